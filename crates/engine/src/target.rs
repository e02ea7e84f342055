//! Where a database is: an SQLite file or a PostgreSQL database, and the URL form of both.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Dialect, Error, Secret};

/// PostgreSQL's registered port.
const POSTGRES_PORT: u16 = 5432;

/// One database.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// An SQLite file.
    Sqlite(SqliteTarget),
    /// A PostgreSQL database.
    Postgres(PostgresTarget),
}

/// An SQLite file.
#[derive(Clone, PartialEq, Eq)]
pub struct SqliteTarget {
    /// The database file; it is made if missing, its directory is not.
    pub path: PathBuf,
}

/// A PostgreSQL database, version 15 or later.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresTarget {
    /// Host name or address, or the directory of a Unix socket.
    pub host: String,
    /// TCP port, or the number in the socket's name.
    pub port: u16,
    /// The role to log in as.
    pub user: String,
    /// The database.
    pub database: String,
    /// The role's password; empty for none.
    pub password: Secret,
    /// Whether and how the connection is encrypted.
    pub ssl: SslMode,
}

/// Whether and how a connection is encrypted; the words are libpq's.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server offers it; anybody's certificate will do.
    #[default]
    Prefer,
    /// Always; anybody's certificate will do.
    Require,
    /// Always, and the certificate must name the host and be signed by a root in this PEM file.
    VerifyFull {
        /// The file of root certificates.
        root_certificate: PathBuf,
    },
}

impl Target {
    /// Reads `sqlite:path` or `postgres://user[:password]@host[:port]/database[?sslmode=…&sslrootcert=…]`.
    ///
    /// A Unix socket is written `postgres://user@/database?host=/directory`.
    pub fn parse(url: &str) -> Result<Target, Error> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            if path.is_empty() {
                return Err(Error::invalid("sqlite: needs a file, as in sqlite:shards/s1.db"));
            }
            return Ok(Target::Sqlite(SqliteTarget { path: PathBuf::from(path) }));
        }
        match url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://")) {
            Some(rest) => parse_postgres(rest).map(Target::Postgres),
            None => Err(Error::invalid(
                "a database address starts with sqlite: or postgres://, as in sqlite:shards/s1.db or \
                 postgres://user@host:5432/database",
            )),
        }
    }

    /// An SQLite file.
    pub fn sqlite(path: impl Into<PathBuf>) -> Target {
        Target::Sqlite(SqliteTarget { path: path.into() })
    }

    /// The SQL it speaks.
    pub fn dialect(&self) -> Dialect {
        match self {
            Target::Sqlite(_) => Dialect::Sqlite,
            Target::Postgres(_) => Dialect::Postgres,
        }
    }

    /// The same target with this password; SQLite has none and is left as it is.
    #[must_use]
    pub fn with_password(mut self, password: Secret) -> Target {
        if let Target::Postgres(target) = &mut self {
            target.password = password;
        }
        self
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(url: &str) -> Result<Target, Error> {
        Target::parse(url)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Sqlite(target) => target.fmt(f),
            Target::Postgres(target) => target.fmt(f),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SqliteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}", self.path.display())
    }
}

impl fmt::Debug for SqliteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PostgresTarget {
    /// The URL without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = percent_encode(&self.database);
        write!(f, "postgres://{}@", percent_encode(&self.user))?;
        let mut separator = '?';
        if self.host.starts_with('/') {
            write!(f, ":{}/{database}?host={}", self.port, percent_encode(&self.host))?;
            separator = '&';
        } else if self.host.contains(':') {
            write!(f, "[{}]:{}/{database}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}/{database}", self.host, self.port)?;
        }
        match &self.ssl {
            SslMode::Prefer => Ok(()),
            SslMode::Disable => write!(f, "{separator}sslmode=disable"),
            SslMode::Require => write!(f, "{separator}sslmode=require"),
            SslMode::VerifyFull { root_certificate } => {
                let root = root_certificate.to_string_lossy();
                write!(f, "{separator}sslmode=verify-full&sslrootcert={}", percent_encode(&root))
            }
        }
    }
}

impl fmt::Debug for PostgresTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Errors never repeat the URL: it may hold a password.
fn parse_postgres(rest: &str) -> Result<PostgresTarget, Error> {
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, address) = authority
        .rsplit_once('@')
        .ok_or_else(|| wrong("names no user: write postgres://user@host:5432/database"))?;
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = split_port(address)?;

    let mut target = PostgresTarget {
        host: percent_decode(host)?,
        port,
        user: percent_decode(user)?,
        database: percent_decode(database)?,
        password: Secret::new(percent_decode(password)?),
        ssl: SslMode::Prefer,
    };
    let mut mode = String::from("prefer");
    let mut root_certificate = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode(value)?;
        match name {
            "sslmode" => mode = value,
            "sslrootcert" => root_certificate = Some(PathBuf::from(value)),
            "host" => target.host = value,
            _ => {
                return Err(wrong(&format!(
                    "has the unknown setting {name:?}: sslmode, sslrootcert and host are known"
                )));
            }
        }
    }
    target.ssl = match (mode.as_str(), root_certificate) {
        ("disable", _) => SslMode::Disable,
        ("prefer", _) => SslMode::Prefer,
        ("require", _) => SslMode::Require,
        ("verify-full" | "verify_full", Some(root_certificate)) => SslMode::VerifyFull { root_certificate },
        ("verify-full" | "verify_full", None) => {
            return Err(wrong("has sslmode=verify-full without sslrootcert=FILE, the roots to trust"));
        }
        (other, _) => {
            return Err(wrong(&format!(
                "has sslmode {other:?}: disable, prefer, require and verify-full are known"
            )));
        }
    };
    for (what, value) in [("user", &target.user), ("host", &target.host), ("database", &target.database)] {
        if value.is_empty() {
            return Err(wrong(&format!("names no {what}: write postgres://user@host:5432/database")));
        }
    }
    Ok(target)
}

fn split_port(address: &str) -> Result<(&str, u16), Error> {
    let (host, port) = if let Some(bracketed) = address.strip_prefix('[') {
        let (host, after) =
            bracketed.split_once(']').ok_or_else(|| wrong("has a '[' without its ']' in the host"))?;
        (host, after.strip_prefix(':').unwrap_or(""))
    } else {
        address.split_once(':').unwrap_or((address, ""))
    };
    if port.is_empty() {
        return Ok((host, POSTGRES_PORT));
    }
    match port.parse() {
        Ok(port) if port != 0 => Ok((host, port)),
        _ => Err(wrong("has a port that is not a number from 1 to 65535")),
    }
}

fn percent_decode(text: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(wrong("has a '%' that is not followed by two hexadecimal digits: write it %25")),
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 once its % escapes are read"))
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn wrong(what: &str) -> Error {
    Error::invalid(format!("the PostgreSQL address {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(url: &str) -> String {
        Target::parse(url).expect_err("a wrong address").to_string()
    }

    #[test]
    fn addresses_print_as_they_are_written_without_the_password() {
        for (url, printed) in [
            ("sqlite:shards/s1.db", "sqlite:shards/s1.db"),
            ("postgres://ann@db.example/shop", "postgres://ann@db.example:5432/shop"),
            ("postgresql://ann:s3cret@[::1]:6000/shop", "postgres://ann@[::1]:6000/shop"),
            (
                "postgres://a%40b:x%2Fy@h:1/d%20e?sslmode=disable",
                "postgres://a%40b@h:1/d%20e?sslmode=disable",
            ),
            ("postgres://ann@:7/shop?host=/tmp/s", "postgres://ann@:7/shop?host=/tmp/s"),
            (
                "postgres://ann@h/shop?sslmode=verify-full&sslrootcert=/ca.pem",
                "postgres://ann@h:5432/shop?sslmode=verify-full&sslrootcert=/ca.pem",
            ),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.to_string(), printed);
            assert_eq!(format!("{target:?}"), printed);
            assert_eq!(Target::parse(printed).unwrap().with_password("s3cret".into()).to_string(), printed);
        }
        let Target::Postgres(target) = Target::parse("postgres://a:x%2Fy@h:1/d").unwrap() else { panic!() };
        assert_eq!(target.password.reveal(), "x/y");
    }

    #[test]
    fn a_wrong_address_is_explained_and_never_repeated() {
        assert!(message("mysql://ann:hunter2@h/d").contains("sqlite: or postgres://"));
        assert!(message("sqlite:").contains("needs a file"));
        assert!(message("postgres://h/d").contains("names no user"));
        assert!(message("postgres://ann:hunter2@h").contains("names no database"));
        assert!(message("postgres://ann:hunter2@h:0/d").contains("port"));
        assert!(message("postgres://ann:hunter2@h/d?sslmode=maybe").contains("disable, prefer, require"));
        assert!(message("postgres://ann:hunter2@h/d?sslmode=verify-full").contains("sslrootcert"));
        assert!(message("postgres://ann:hunter2@h/d?pool=3").contains("\"pool\""));
        assert!(message("postgres://ann:hun%ter2@h/d").contains("%25"));
        for url in ["mysql://ann:hunter2@h/d", "postgres://ann:hunter2@h", "postgres://ann:hunter2@h:0/d"] {
            assert!(!message(url).contains("hunter2"));
        }
    }
}

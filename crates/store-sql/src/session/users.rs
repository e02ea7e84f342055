//! CREATE USER, ALTER USER … PASSWORD and DROP USER: users of this door, kept in the catalog. They are no roles of the
//! shards, and a password never gets into the journal of what all shards have alike.

use polyshard_catalog::{CatalogError, USER_STORE};
use polyshard_sql::{Ddl, SqlError, SqlState, Statement};
use polyshard_store::rights::{USER_FORMAT, UserBody};

use super::{Done, Session};
use crate::reply::{self, state};
use crate::scram::kept_password;

/// What is said of whatever else roles can be in PostgreSQL.
const HINT: &str = "Rights are given with 'polyshard user grant'; here, CREATE USER name PASSWORD '…', ALTER USER name \
                    PASSWORD '…' and DROP USER name are known.";
/// Options that say what is so anyway.
const PLAIN_OPTIONS: [&str; 9] = [
    "with",
    "login",
    "encrypted",
    "nosuperuser",
    "nocreatedb",
    "nocreaterole",
    "noreplication",
    "nobypassrls",
    "inherit",
];

/// Whether a schema change is about users.
pub(super) fn is_about_users(ddl: &Ddl) -> bool {
    let object = ddl.tag.split_once(' ').map(|(_, object)| object);
    matches!(object, Some("USER" | "ROLE")) && !ddl.tag.starts_with("COMMENT")
}

/// A refusal inside a transaction of the catalog.
enum Refusal {
    Catalog(CatalogError),
    Sql(SqlError),
}

impl From<CatalogError> for Refusal {
    fn from(error: CatalogError) -> Refusal {
        Refusal::Catalog(error)
    }
}

impl From<Refusal> for SqlError {
    fn from(refusal: Refusal) -> SqlError {
        match refusal {
            Refusal::Sql(error) => error,
            Refusal::Catalog(error) => SqlError::new(state::CANNOT_CONNECT_NOW, error.to_string()),
        }
    }
}

impl Session {
    /// Carries out a statement about users.
    pub(super) async fn user_statement(&mut self, statement: &Statement, ddl: &Ddl) -> Done {
        self.read_rights().await?;
        self.check_admin()?;
        if self.transaction.is_explicit() {
            let message = format!("{} cannot run inside a transaction block", ddl.tag);
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).into());
        }
        let asked = Asked::read(statement.text())?;
        let users = self.door.host.users();
        let known = users.user(&asked.name).is_some();
        match asked.verb {
            Verb::Drop if !known && asked.if_exists => {}
            Verb::Drop => {
                let gone = self.door.catalog.remove_user(USER_STORE, &asked.name).await;
                if !gone.map_err(|error| SqlError::from(Refusal::Catalog(error)))? {
                    return Err(no_user(&asked.name).into());
                }
                tracing::info!(user = asked.name, by = self.user_name(), "user removed");
            }
            Verb::Create | Verb::Alter => {
                self.put_user(&asked).await?;
                tracing::info!(user = asked.name, by = self.user_name(), verb = ?asked.verb, "password set");
            }
        }
        // A process that does not know that a user is gone would let him in.
        let told = self.door.router.everybody_knows().await;
        told.map_err(|error| reply::of_router(&error))?;
        // As PostgreSQL says it, which makes no difference between the two.
        reply::complete(&mut self.client.out, &ddl.tag.replace("USER", "ROLE"));
        Ok(())
    }

    async fn put_user(&self, asked: &Asked) -> Result<(), SqlError> {
        let name = &asked.name;
        let exists = || SqlError::new(SqlState("42710"), format!("role \"{name}\" already exists"));
        if *name == self.door.login.user {
            let hint = "The user of the configuration is changed there: sql.user, sql.password.";
            return Err(exists().hint(hint));
        }
        check_name(name)?;
        let Some(password) = &asked.password else {
            let message = format!("user {name} has no password, and so could not log in");
            return Err(SqlError::unsupported(message, HINT));
        };
        let random = |bytes: &mut [u8]| self.door.fill(bytes);
        let scram = kept_password(password, &random)
            .map_err(|error| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error))?;
        let change = |old: Option<serde_json::Value>| -> Result<serde_json::Value, Refusal> {
            let body = match (old, asked.verb) {
                (None, Verb::Create) => {
                    UserBody { format: USER_FORMAT, scram: Some(scram), account: false, grants: Vec::new() }
                }
                (Some(body), Verb::Alter) => {
                    let body: UserBody = serde_json::from_value(body).map_err(|_| unreadable(name))?;
                    UserBody { scram: Some(scram), ..body }
                }
                (Some(_), _) => return Err(Refusal::Sql(exists())),
                (None, _) => return Err(Refusal::Sql(no_user(name))),
            };
            serde_json::to_value(&body).map_err(|_| unreadable(name))
        };
        self.door.catalog.put_user(USER_STORE, name, change).await.map(drop).map_err(SqlError::from)
    }

    /// Reads the users as they are in the catalog now, for what is done there without a session that would have seen to
    /// it. The user of the configuration is not among them.
    pub(super) async fn read_rights(&self) -> Result<(), SqlError> {
        if self.who.is_none() {
            return Ok(());
        }
        let read = Box::pin(self.door.router.refresh()).await;
        read.map_err(|error| reply::of_router(&error))
    }

    /// Only who may do everything makes users.
    fn check_admin(&self) -> Result<(), SqlError> {
        if self.is_admin() {
            return Ok(());
        }
        let message = format!("{} may not make or change users", self.user_name());
        Err(SqlError::new(state::INSUFFICIENT_PRIVILEGE, message).hint("It takes the right admin."))
    }
}

fn unreadable(name: &str) -> Refusal {
    let message = format!("the record of user {name} cannot be read");
    Refusal::Sql(SqlError::new(SqlState::INTERNAL_ERROR, message))
}

fn no_user(name: &str) -> SqlError {
    SqlError::new(SqlState("42704"), format!("role \"{name}\" does not exist"))
}

/// Names as the command line takes them.
fn check_name(name: &str) -> Result<(), SqlError> {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = name.bytes().next().is_some_and(word);
    if first && name.len() <= 63 && name.bytes().all(|byte| word(byte) || byte == b'-' || byte == b'.') {
        return Ok(());
    }
    let message = format!("{name:?} is no name of a user: it has letters, digits, _, - and . only");
    Err(SqlError::new(SqlState("42602"), message))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Alter,
    Drop,
}

/// What such a statement asks for.
struct Asked {
    verb: Verb,
    name: String,
    if_exists: bool,
    password: Option<String>,
}

impl Asked {
    /// Reads `CREATE USER name WITH PASSWORD 'text'` and its like; whatever else roles can be is refused.
    fn read(text: &str) -> Result<Asked, SqlError> {
        let unknown = || SqlError::unsupported("this statement about users is not known here", HINT);
        let mut words = words(text).ok_or_else(unknown)?.into_iter();
        let mut next = || words.next();
        let verb = match next() {
            Some(Word::Plain(word)) if word == "create" => Verb::Create,
            Some(Word::Plain(word)) if word == "alter" => Verb::Alter,
            Some(Word::Plain(word)) if word == "drop" => Verb::Drop,
            _ => return Err(unknown()),
        };
        // USER or ROLE.
        next().ok_or_else(unknown)?;
        let mut word = next();
        let mut if_exists = false;
        if verb == Verb::Drop && word == Some(Word::Plain("if".to_owned())) {
            if next() != Some(Word::Plain("exists".to_owned())) {
                return Err(unknown());
            }
            (if_exists, word) = (true, next());
        }
        let name = match word {
            Some(Word::Plain(name) | Word::Name(name)) => name,
            _ => return Err(unknown()),
        };
        let mut password = None;
        while let Some(word) = next() {
            match (verb, word) {
                (Verb::Create | Verb::Alter, Word::Plain(word)) if word == "password" => match next() {
                    Some(Word::Text(text)) if password.is_none() => password = Some(text),
                    _ => return Err(unknown()),
                },
                (Verb::Create | Verb::Alter, Word::Plain(word)) if PLAIN_OPTIONS.contains(&word.as_str()) => {
                }
                _ => return Err(unknown()),
            }
        }
        Ok(Asked { verb, name, if_exists, password })
    }
}

/// A word of such a statement.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// In small letters.
    Plain(String),
    /// In double quotes.
    Name(String),
    /// In single quotes.
    Text(String),
}

/// The words of a text; none if it has anything but plain words, names and texts in plain quotes.
fn words(text: &str) -> Option<Vec<Word>> {
    let mut found = Vec::new();
    let mut letters = text.trim_end().trim_end_matches(';').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            blank if blank.is_whitespace() => {}
            quote @ ('\'' | '"') => {
                let mut inner = String::new();
                loop {
                    let letter = letters.next()?;
                    // Twice, it is one of the text.
                    if letter == quote && letters.next_if_eq(&quote).is_none() {
                        break;
                    }
                    inner.push(letter);
                }
                found.push(if quote == '"' { Word::Name(inner) } else { Word::Text(inner) });
            }
            first if first.is_alphanumeric() || first == '_' => {
                let mut word = first.to_string();
                while let Some(letter) = letters.next_if(|letter| letter.is_alphanumeric() || *letter == '_')
                {
                    word.push(letter);
                }
                // E'…' and U&"…" are other texts.
                if matches!(letters.peek(), Some('\'' | '&')) {
                    return None;
                }
                found.push(Word::Plain(word.to_lowercase()));
            }
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::{Asked, Verb};

    #[test]
    fn statements_about_users_are_read() {
        let read = |text: &str| Asked::read(text).map(|asked| (asked.verb, asked.name, asked.password));
        let text = |text: &str| Some(text.to_owned());
        for create in [
            "CREATE USER Alice PASSWORD 'it''s secret'",
            "create role alice WITH LOGIN ENCRYPTED PASSWORD 'it''s secret';",
        ] {
            assert_eq!(read(create).unwrap(), (Verb::Create, "alice".to_owned(), text("it's secret")));
        }
        let alter = "ALTER USER \"Al\"\"ice\" PASSWORD 'SCRAM-SHA-256$4096:a$b:c'";
        assert_eq!(
            read(alter).unwrap(),
            (Verb::Alter, "Al\"ice".to_owned(), text("SCRAM-SHA-256$4096:a$b:c"))
        );
        assert_eq!(read("DROP ROLE IF EXISTS alice").unwrap(), (Verb::Drop, "alice".to_owned(), None));
        for other in [
            "CREATE ROLE alice SUPERUSER",
            "ALTER USER alice RENAME TO bob",
            "DROP USER alice, bob",
            "CREATE USER alice PASSWORD E'x'",
            "CREATE USER alice PASSWORD NULL",
            "ALTER ROLE alice SET search_path = 'x'",
        ] {
            assert!(Asked::read(other).is_err(), "{other}");
        }
    }
}

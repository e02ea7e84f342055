//! Options: what stores and families declare, and what was configured. The configuration file, its documentation and
//! what a process shows of it are made from the declarations.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::declaration::Stores;
use crate::secret::SecretSource;
use crate::start::StartError;

/// What every environment override begins with; `__` also separates section and key.
pub const ENV_PREFIX: &str = "POLYSHARD__";

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    /// `section.key`, or a key of the top level.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The value when nobody says one, as it would be written; empty for none.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// What values an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Text that is never shown. It has options beside it that say where else it may be: `…_env` and `…_file`.
    Secret,
    /// A folder or file.
    Path,
    /// `ip:port`.
    Address,
    /// The address of a database.
    Url,
    /// The name of an environment variable.
    Variable,
    /// A whole number within bounds, both included.
    Integer {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// `true` or `false`.
    Bool,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A part of a whole: 0 to 1.
    Ratio,
}

impl OptionSpec {
    /// An option of this path (`section.key`), kind, default (as it would be written; empty for none) and meaning.
    pub const fn new(
        path: &'static str,
        kind: Kind,
        default: &'static str,
        about: &'static str,
    ) -> OptionSpec {
        OptionSpec { path, kind, default, about }
    }

    /// The environment variable that overrides it.
    pub fn variable(&self) -> String {
        format!("{ENV_PREFIX}{}", self.path.replace('.', "__").to_uppercase())
    }

    /// The section it is in; empty for the top level.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Text => f.write_str("text"),
            Kind::Secret => f.write_str("secret text"),
            Kind::Path => f.write_str("a path"),
            Kind::Address => f.write_str("ip:port"),
            Kind::Url => f.write_str("a database address"),
            Kind::Variable => f.write_str("the name of a variable"),
            Kind::Integer { min, max } if *max == i64::MAX as u64 => {
                write!(f, "a whole number, at least {min}")
            }
            Kind::Integer { min, max } => write!(f, "a whole number, {min} to {max}"),
            Kind::Bool => f.write_str("true or false"),
            Kind::Choice(words) => f.write_str(&words.join(" or ")),
            Kind::Ratio => f.write_str("a number, 0 to 1"),
        }
    }
}

/// A list of tables that the configuration file may have, such as `[[accounts]]`.
#[derive(Debug, Clone, Copy)]
pub struct ListSpec {
    /// Its name.
    pub name: &'static str,
    /// The options of one of its tables.
    pub options: &'static [OptionSpec],
    /// What to do for want of an environment variable that sets it.
    pub instead: &'static str,
}

/// What is wrong with values that are each right by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub at: MistakeAt,
    /// What.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Where a mistake is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MistakeAt {
    /// At the option of this path.
    Option(String),
    /// In a list, at the table of this number.
    Item(&'static str, usize),
}

impl Mistake {
    /// One at an option.
    pub fn at_option(
        path: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Mistake {
        Mistake { at: MistakeAt::Option(path.into()), message: message.into(), remedy: remedy.into() }
    }
}

/// What was configured: the values of options that stores and families declare. Secrets are not resolved here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptionValues {
    texts: BTreeMap<String, String>,
    secrets: BTreeMap<String, SecretSource>,
    lists: BTreeMap<String, Vec<OptionValues>>,
}

impl OptionValues {
    /// The values when nothing is configured.
    pub fn defaults(stores: Stores) -> OptionValues {
        let given = stores.options().into_iter().filter(|option| !option.default.is_empty());
        let texts = given.map(|option| (option.path.to_owned(), option.default.to_owned()));
        OptionValues { texts: texts.collect(), ..OptionValues::default() }
    }

    /// Sets the value of an option.
    pub fn set(&mut self, path: &str, text: impl Into<String>) {
        self.texts.insert(path.to_owned(), text.into());
    }

    /// Sets where a secret is.
    pub fn set_secret(&mut self, path: &str, source: SecretSource) {
        self.secrets.insert(path.to_owned(), source);
    }

    /// Sets the tables of a list.
    pub fn set_list(&mut self, name: &str, items: Vec<OptionValues>) {
        self.lists.insert(name.to_owned(), items);
    }

    /// The value of an option, if it has one.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// The value of an option as what it means; none if it has none.
    pub fn get<T: FromStr>(&self, path: &str) -> Result<Option<T>, StartError> {
        let Some(text) = self.text(path) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| StartError::new(format!("{path} cannot be {text:?}")))
    }

    /// Where a secret is.
    pub fn secret(&self, path: &str) -> SecretSource {
        self.secrets.get(path).cloned().unwrap_or_default()
    }

    /// Where all secrets are, those of the tables of lists too.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretSource> {
        let in_lists = self.lists.values().flatten().flat_map(|item| item.secrets.values());
        self.secrets.values().chain(in_lists)
    }

    /// The tables of a list; none if the file has no such list.
    pub fn list(&self, name: &str) -> Option<&[OptionValues]> {
        self.lists.get(name).map(Vec::as_slice)
    }

    /// Where an endpoint listens; none if it is closed.
    pub fn listen(&self, endpoint: &str) -> Option<SocketAddr> {
        let of = |key: &str| self.text(&format!("{endpoint}.{key}"));
        if of("open") != Some("true") { None } else { of("listen")?.parse().ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_what_they_mean() {
        let mut values = OptionValues::default();
        values.set("blob.inline_bytes_max", "4096");
        values.set("blob.listen", "127.0.0.1:10000");
        assert_eq!(values.get::<u64>("blob.inline_bytes_max").unwrap(), Some(4096));
        assert_eq!(values.get::<u64>("blob.none").unwrap(), None);
        let wrong = values.get::<u64>("blob.listen").unwrap_err().to_string();
        assert_eq!(wrong, "blob.listen cannot be \"127.0.0.1:10000\"");
        assert_eq!(values.listen("blob"), None, "an endpoint is closed unless it is open");
        values.set("blob.open", "true");
        assert_eq!(values.listen("blob"), "127.0.0.1:10000".parse().ok());
    }
}

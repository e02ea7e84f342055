//! What a client has set for its session, and how a lent session is brought to the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_map::ShardId;

/// Settings by name, each as the statement that sets it. What is not here has the shard's own default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    by_name: BTreeMap<String, Arc<str>>,
    /// Tells apart those under which the same text may mean something else; 0 for none.
    meaning: u32,
}

/// Settings that no statement's meaning depends on. All others are taken to matter: a server reads a literal when a
/// statement is prepared, by time zone, styles of dates and money, and whatever an extension asks for.
const MEANINGLESS: [&str; 9] = [
    "application_name",
    "bytea_output",
    "client_min_messages",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "transaction_timeout",
];

/// Whether the meaning of statements may depend on a setting.
pub(crate) fn has_meaning(name: &str) -> bool {
    !MEANINGLESS.contains(&name)
}

/// A prepared statement's number on sessions with settings of this meaning: each has one of its own.
pub(crate) fn number_under(id: u64, meaning: u32) -> u64 {
    id ^ (u64::from(meaning) << 32)
}

impl Settings {
    /// With one set by this statement.
    pub fn with(&self, name: &str, statement: &str) -> Arc<Settings> {
        let mut next = self.clone();
        next.by_name.insert(name.to_owned(), Arc::from(statement));
        next.find_meaning();
        Arc::new(next)
    }

    /// With one as it was in the beginning.
    pub fn without(&self, name: &str) -> Arc<Settings> {
        let mut next = self.clone();
        next.by_name.remove(name);
        next.find_meaning();
        Arc::new(next)
    }

    /// What statements mean under these, as a number.
    pub fn meaning(&self) -> u32 {
        self.meaning
    }

    fn find_meaning(&mut self) {
        let matters = self.by_name.iter().filter(|(name, _)| has_meaning(name));
        let bytes = matters.flat_map(|(name, said)| [name.as_bytes(), b"=", said.as_bytes(), b";"]).flatten();
        // FNV-1a; the uppermost bit is for settings of one transaction.
        let hash = bytes.fold(None, |hash: Option<u64>, byte| {
            let mixed = hash.unwrap_or(0xcbf2_9ce4_8422_2325) ^ u64::from(*byte);
            Some(mixed.wrapping_mul(0x0100_0000_01b3))
        });
        let folded = |hash: u64| ((hash >> 33) as u32 ^ hash as u32) & 0x7fff_ffff;
        self.meaning = hash.map_or(0, |hash| folded(hash).max(1));
    }

    /// The statement that sets one.
    pub fn statement(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|statement| &**statement)
    }

    /// The statements that set them.
    pub fn statements(&self) -> impl Iterator<Item = &str> {
        self.by_name.values().map(|statement| &**statement)
    }

    /// What is set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The statements that turn a session with `from` into one with these; none if they are the same.
    pub fn difference(self: &Arc<Settings>, from: &Arc<Settings>) -> Option<String> {
        if Arc::ptr_eq(self, from) || self == from {
            return None;
        }
        let mut statements = String::new();
        for name in from.by_name.keys().filter(|name| !self.by_name.contains_key(*name)) {
            statements.push_str("RESET ");
            statements.push_str(&quoted_name(name));
            statements.push(';');
        }
        for (name, statement) in &self.by_name {
            if from.by_name.get(name) != Some(statement) {
                statements.push_str(statement);
                statements.push(';');
            }
        }
        Some(statements)
    }
}

/// SET with a value that is not to be read as anything but text.
pub(crate) fn set_statement(name: &str, value: &str) -> String {
    let value = quoted(value);
    match name {
        // Lists are set by the function: as one text, SET would take it for one element.
        "search_path" | "datestyle" => format!("SELECT pg_catalog.set_config('{name}', {value}, false)"),
        _ => format!("SET {} TO {value}", quoted_name(name)),
    }
}

/// A name with its dots, as SET and RESET take it.
pub(crate) fn quoted_name(name: &str) -> String {
    let parts = name.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\"")));
    parts.collect::<Vec<_>>().join(".")
}

/// A text as a literal, whatever `standard_conforming_strings` says.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = text.replace('\'', "''");
    if escaped.contains('\\') {
        format!("E'{}'", escaped.replace('\\', "\\\\"))
    } else {
        format!("'{escaped}'")
    }
}

/// The schemas in a list as `search_path` has it: `"$user", public`. The user's own schema is left out: nobody
/// here logs in to the shards under his own name.
pub(crate) fn search_path(text: &str) -> Arc<[String]> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => match quoted.find('"') {
                Some(end) => (quoted[..end].to_owned(), &quoted[end + 1..]),
                None => (quoted.to_owned(), ""),
            },
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_lowercase(), &rest[end..])
            }
        };
        if name != "$user" && !name.is_empty() {
            found.push(name);
        }
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    found.into()
}

/// Whether an isolation level, or a statement that sets one, gives all statements of a transaction one snapshot.
pub(crate) fn is_one_snapshot(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("repeatable") || said.contains("serializable")
}

/// Whether it says that transactions are to be as if no other ran beside them.
pub(crate) fn is_serializable(said: &str) -> bool {
    said.to_ascii_lowercase().contains("serializable")
}

/// Settings of the door's own, `SET polyshard.…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Own {
    /// What happens to a write that concerns several shards.
    pub multi_shard: MultiShard,
    /// Whether an answer across shards may leave out shards that failed.
    pub partial_results: bool,
    /// Whether a write that names no key is refused.
    pub strict: bool,
    /// Whether an UPDATE of a key column moves the rows.
    pub move_rows: bool,
    /// The shard that statements without a key are asked of.
    pub shard: Option<ShardId>,
    /// The name of the last write on several shards that was decided; only shown.
    pub last_write: Option<String>,
}

/// What happens to a transaction or write that concerns several shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MultiShard {
    /// It is refused.
    Refuse,
    /// It is carried out by two-phase commit.
    TwoPhase,
    /// It is decided once, and completed on every shard whatever happens.
    Eventual,
}

impl Default for Own {
    fn default() -> Own {
        Own {
            multi_shard: MultiShard::Refuse,
            partial_results: false,
            strict: true,
            move_rows: false,
            shard: None,
            last_write: None,
        }
    }
}

impl Own {
    /// Whether a setting is the door's own.
    pub fn has(name: &str) -> bool {
        name.starts_with("polyshard.")
    }

    /// Sets one by its name; an error says what is known. No value is the default.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let default = Own::default();
        let truth = |value: &str| match value.to_lowercase().as_str() {
            "on" | "true" | "yes" | "1" => Ok(true),
            "off" | "false" | "no" | "0" => Ok(false),
            _ => Err(format!("{name} is on or off")),
        };
        match (name, value) {
            ("polyshard.multi_shard", None) => self.multi_shard = default.multi_shard,
            ("polyshard.multi_shard", Some("refuse" | "off")) => self.multi_shard = MultiShard::Refuse,
            ("polyshard.multi_shard", Some("two_phase")) => self.multi_shard = MultiShard::TwoPhase,
            ("polyshard.multi_shard", Some("eventual")) => self.multi_shard = MultiShard::Eventual,
            ("polyshard.multi_shard", Some(_)) => {
                return Err(format!("{name} is 'refuse', 'two_phase' or 'eventual'"));
            }
            ("polyshard.last_write", _) => return Err(format!("{name} can only be shown")),
            ("polyshard.partial_results", None) => self.partial_results = default.partial_results,
            ("polyshard.partial_results", Some(value)) => self.partial_results = truth(value)?,
            ("polyshard.strict", None) => self.strict = default.strict,
            ("polyshard.strict", Some(value)) => self.strict = truth(value)?,
            ("polyshard.move_rows", None) => self.move_rows = default.move_rows,
            ("polyshard.move_rows", Some(value)) => self.move_rows = truth(value)?,
            ("polyshard.shard", None | Some("")) => self.shard = None,
            ("polyshard.shard", Some(value)) => {
                self.shard = Some(ShardId::new(value).map_err(|error| format!("{name}: {error}"))?);
            }
            _ => {
                return Err(format!(
                    "there is no setting {name}: polyshard.multi_shard, polyshard.move_rows, \
                     polyshard.partial_results, polyshard.shard and polyshard.strict are known"
                ));
            }
        }
        Ok(())
    }

    /// What one is set to.
    pub fn show(&self, name: &str) -> Option<&str> {
        let word = |truth| if truth { "on" } else { "off" };
        match name {
            "polyshard.multi_shard" => Some(match self.multi_shard {
                MultiShard::Refuse => "refuse",
                MultiShard::TwoPhase => "two_phase",
                MultiShard::Eventual => "eventual",
            }),
            "polyshard.last_write" => Some(self.last_write.as_deref().unwrap_or_default()),
            "polyshard.partial_results" => Some(word(self.partial_results)),
            "polyshard.strict" => Some(word(self.strict)),
            "polyshard.move_rows" => Some(word(self.move_rows)),
            "polyshard.shard" => Some(self.shard.as_ref().map_or("", ShardId::as_str)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_set() {
        let none = Arc::new(Settings::default());
        let utc = none.with("timezone", "SET TimeZone TO 'UTC'");
        assert_eq!(none.difference(&none), None);
        assert_eq!(utc.difference(&none).as_deref(), Some("SET TimeZone TO 'UTC';"));
        assert_eq!(none.difference(&utc).as_deref(), Some("RESET \"timezone\";"));
        let again = none.with("timezone", "SET TimeZone TO 'UTC'");
        assert_eq!(again.difference(&utc), None);
    }

    #[test]
    fn settings_that_matter_have_a_meaning_of_their_own() {
        let none = Arc::new(Settings::default());
        let utc = none.with("timezone", "SET TimeZone TO 'UTC'");
        let tokyo = none.with("timezone", "SET TimeZone TO 'Asia/Tokyo'");
        let named = utc.with("application_name", "SET application_name TO 'x'");
        assert_eq!((none.meaning(), utc.without("timezone").meaning()), (0, 0));
        assert!(utc.meaning() != tokyo.meaning() && utc.meaning() != 0);
        assert_eq!(named.meaning(), utc.meaning());
        assert_eq!(number_under(7, 0), 7);
        assert_ne!(number_under(7, utc.meaning()), number_under(7, tokyo.meaning()));
    }

    #[test]
    fn a_search_path_is_read_as_it_is_shown() {
        let read = |text| search_path(text).to_vec();
        assert_eq!(read("\"$user\", public"), ["public"]);
        assert_eq!(read("A, \"B c\",d"), ["a", "B c", "d"]);
        assert!(read("").is_empty());
    }

    #[test]
    fn texts_are_quoted_safely() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(quoted("a\\b'"), "E'a\\\\b'''");
    }
}

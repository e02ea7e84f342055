//! What an entry of the journal says, and its stored form.

use std::collections::BTreeMap;

use polyshard_catalog::JournalEntry;
use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use serde::{Deserialize, Serialize};

use crate::JournalError;

/// The format this program writes.
const FORMAT: u32 = 1;

/// What kind of change an entry is: a shard that comes later needs the schema changes one by one, while rows of
/// reference tables are copied to it as they are then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// The schema.
    Schema,
    /// Rows of reference tables only.
    Rows,
    /// How rows are placed: nothing of it concerns a shard that has no rows yet, but for what it says of the schema.
    Placement,
}

/// One statement of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// What is run.
    pub sql: String,
    /// The shards that it is for; all where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<ShardId>>,
    /// The engine in whose own words it is, for shards on that engine alone; none for PostgreSQL's words that are
    /// translated where need be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Whether a shard that has no rows yet leaves it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rows: bool,
}

impl Recorded {
    /// A statement for all shards.
    pub fn new(sql: impl Into<String>) -> Recorded {
        Recorded { sql: sql.into(), only: None, engine: None, rows: false }
    }

    /// A statement in an engine's own words, for the shards on it.
    pub(crate) fn own(dialect: Dialect, sql: impl Into<String>) -> Recorded {
        Recorded { engine: Some(dialect.name().to_owned()), ..Recorded::new(sql) }
    }

    /// Only for one shard that has rows.
    pub(crate) fn only(self, shard: &ShardId) -> Recorded {
        Recorded { only: Some(vec![shard.clone()]), rows: true, ..self }
    }

    /// Whether it is to be run on this shard.
    pub fn concerns(&self, shard: &ShardId, dialect: Dialect) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(shard))
            && self.engine.as_ref().is_none_or(|engine| engine == dialect.name())
    }
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    format: u32,
    /// What kind of change it is.
    pub kind: EntryKind,
    /// The statements in order.
    pub statements: Vec<Recorded>,
    /// Session settings that the statements' meaning depends on: `search_path`, `TimeZone` …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl Entry {
    /// An entry of one kind.
    pub fn new(kind: EntryKind, statements: Vec<Recorded>, settings: BTreeMap<String, String>) -> Entry {
        Entry { format: FORMAT, kind, statements, settings }
    }

    pub(crate) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("an entry has string keys only and always serialises")
    }

    pub(crate) fn of(stored: &JournalEntry) -> Result<Entry, JournalError> {
        let damaged = |detail: String| JournalError::Damaged { what: "entry of the journal", detail };
        let entry: Entry = serde_json::from_str(&stored.body)
            .map_err(|error| damaged(format!("entry {}: {error}", stored.position)))?;
        if entry.format > FORMAT {
            return Err(damaged(format!(
                "entry {} has format {}, newer than this program's {FORMAT}; upgrade this process",
                stored.position, entry.format
            )));
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_format_1_is_read_for_ever() {
        let body = r#"{"format":1,"kind":"schema","statements":[{"sql":"CREATE TABLE t (a int)"},
            {"sql":"DELETE FROM t","only":["s1"],"engine":"sqlite","rows":true}],"settings":{"TimeZone":"UTC"}}"#;
        let stored = JournalEntry { position: 7, turn: uuid_nil(), body: body.into() };
        let entry = Entry::of(&stored).unwrap();
        assert_eq!(entry.kind, EntryKind::Schema);
        let shard = |name| ShardId::new(name).unwrap();
        assert!(entry.statements[1].concerns(&shard("s1"), Dialect::Sqlite));
        assert!(!entry.statements[1].concerns(&shard("s1"), Dialect::Postgres));
        assert!(!entry.statements[1].concerns(&shard("s2"), Dialect::Sqlite));
        let again = JournalEntry { body: entry.to_text(), ..stored };
        assert_eq!(Entry::of(&again).unwrap(), entry);
    }

    #[test]
    fn a_newer_entry_is_refused() {
        let body = r#"{"format":2,"kind":"schema","statements":[]}"#;
        let stored = JournalEntry { position: 7, turn: uuid_nil(), body: body.into() };
        assert!(Entry::of(&stored).unwrap_err().to_string().contains("upgrade"));
    }

    fn uuid_nil() -> uuid::Uuid {
        uuid::Uuid::nil()
    }
}

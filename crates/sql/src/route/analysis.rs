//! What a statement does to which tables, as far as its text tells.

use std::sync::Arc;

use polyshard_map::{MapName, ShardId};

use super::formula::{Formula, KeyColumn, Operand};
use crate::error::SqlError;
use crate::schema::TableName;

/// What is known of a statement before its parameters; may be cached by text, schema position and search path.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub(super) action: Action,
    pub(super) writes: bool,
    pub(super) reads_reference: bool,
    pub(super) strict: bool,
    /// What cannot be done on several shards, such as FOR UPDATE: in words.
    pub(super) one_shard_only: Option<String>,
}

/// What is to be decided by the parameters.
#[derive(Debug, Clone)]
pub(super) enum Action {
    Anywhere,
    ReferenceRead,
    ReferenceWrite,
    Everywhere,
    /// Tables with rows on some shards.
    Placed(Vec<Occurrence>),
    /// INSERT … VALUES into a sharded table.
    Insert(Box<InsertRows>),
}

/// One occurrence of a table whose rows are not everywhere.
#[derive(Debug, Clone)]
pub(super) struct Occurrence {
    pub table: TableName,
    pub place: Place,
    pub written: bool,
    /// The key that an UPDATE sets: it must be the one that the row has.
    pub sets_key: Option<Operand>,
}

/// Where an occurrence's rows are.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Local(ShardId),
    Sharded { map: MapName, column_name: String, column: KeyColumn, formula: Formula },
}

/// The rows of INSERT … VALUES.
#[derive(Debug, Clone)]
pub(super) struct InsertRows {
    pub table: TableName,
    pub map: MapName,
    pub column_name: String,
    pub column: KeyColumn,
    /// The key of each row.
    pub keys: Vec<Operand>,
    /// Other tables, in sub-queries.
    pub others: Vec<Occurrence>,
    pub text: Arc<str>,
    /// Where each row stands in the text, if it can be cut.
    pub spans: Option<Vec<(usize, usize)>>,
}

impl Analysis {
    /// Whether it changes rows (or the schema).
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether it reads reference tables: the shard must have applied every change of theirs.
    pub fn reads_reference(&self) -> bool {
        self.reads_reference
    }

    /// Whether the route depends on the parameters' values.
    pub fn is_keyed_by_params(&self) -> bool {
        let by_params = |occurrence: &Occurrence| match &occurrence.place {
            Place::Local(_) => false,
            Place::Sharded { formula, .. } => !formula.is_constant(),
        };
        match &self.action {
            Action::Placed(occurrences) => occurrences.iter().any(by_params),
            Action::Insert(insert) => {
                insert.keys.iter().any(|key| matches!(key, Operand::Parameter(_)))
                    || insert.others.iter().any(by_params)
            }
            _ => false,
        }
    }
}

/// Reads a statement against the schema.
pub fn analyse(statement: &crate::Statement, context: &super::Context<'_>) -> Result<Analysis, SqlError> {
    super::build::build(statement, context)
}

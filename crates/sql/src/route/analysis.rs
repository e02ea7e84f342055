//! What a statement does to which tables, as far as its text tells.

use std::sync::Arc;

use polyshard_map::{MapName, ShardId};

use super::builder::Use;
use super::formula::{Formula, KeyColumn, Operand};
use super::lock::ReferenceLock;
use super::unnest::ArrayRows;
use crate::error::SqlError;
use crate::schema::{TableName, Volatility};

/// What is known of a statement before its parameters; may be cached by text, schema position and search path.
#[derive(Debug, Clone)]
pub struct Analysis {
    pub(super) action: Action,
    pub(super) writes: bool,
    pub(super) reads_reference: bool,
    pub(super) strict: bool,
    /// What cannot be done on several shards, such as FOR UPDATE: in words.
    pub(super) one_shard_only: Option<String>,
    pub(super) reference_lock: Option<ReferenceLock>,
    /// Whether each shard can do its part of a write by itself: all rows that matter to a written row have its key.
    pub(super) separable: bool,
    /// The tables met, and whether they are written.
    pub(super) tables: Vec<(TableName, bool)>,
    /// Relations that are not known.
    pub(super) unknown: Vec<String>,
    /// Relations of the system's.
    pub(super) system: Vec<String>,
    /// Whether one of them is written.
    pub(super) writes_system: bool,
    /// A table that nobody has declared.
    pub(super) undeclared: Option<TableName>,
    pub(super) called: Vec<Called>,
    /// Whether it asks what tables, types and the like there are, and for nothing else.
    pub(super) describes: bool,
    /// Whether it sets whether plans are compiled, and does nothing else.
    pub(super) aside: bool,
}

/// A function that the statement calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Its name without its schema.
    pub name: String,
    /// What may be assumed of its answer.
    pub volatility: Volatility,
    /// Whether it is the user's and may read tables.
    pub reads_tables: bool,
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
    /// INSERT … VALUES, or of arrays, into a sharded table.
    Insert(Box<InsertRows>),
}

/// One occurrence of a table whose rows are not everywhere.
#[derive(Debug, Clone)]
pub(super) struct Occurrence {
    pub table: TableName,
    pub place: Place,
    pub use_: Use,
}

/// Where an occurrence's rows are.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Local(ShardId),
    Sharded { map: MapName, column_name: String, column: KeyColumn, formula: Formula },
}

/// The rows of INSERT … VALUES, or of arrays.
#[derive(Debug, Clone)]
pub(super) struct InsertRows {
    pub table: TableName,
    pub map: MapName,
    pub column_name: String,
    pub column: KeyColumn,
    /// Most characters of the key column, if it has a length: a longer value would be cut, or refused.
    pub length: Option<usize>,
    /// The key of each row.
    pub keys: Vec<Operand>,
    /// Where rows come as arrays.
    pub arrays: Option<ArrayRows>,
    /// Other tables, in sub-queries.
    pub others: Vec<Occurrence>,
    pub text: Arc<str>,
    /// Where each row stands in the text, if it can be cut.
    pub spans: Option<Vec<(usize, usize)>>,
}

impl InsertRows {
    /// What the keys are.
    pub fn formula(&self) -> Formula {
        match self.arrays.as_ref().and_then(|arrays| arrays.parameter.clone()) {
            Some(parameter) => Formula::Any(Operand::Parameter(parameter)),
            None => Formula::one_of(self.keys.clone()),
        }
    }
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

    /// How it locks rows of reference tables, or these themselves; nothing if it does not, or if it writes them.
    pub fn locks_reference(&self) -> Option<ReferenceLock> {
        self.reference_lock
    }

    /// The tables it names, views expanded, each with whether it is written; the same table may stand there again.
    pub fn tables(&self) -> &[(TableName, bool)] {
        &self.tables
    }

    /// Relations that are neither known nor the system's: temporary tables, or mistakes.
    pub fn unknown_relations(&self) -> &[String] {
        &self.unknown
    }

    /// Relations of the system's that it names; `information_schema` stands for all of its.
    pub fn system_relations(&self) -> &[String] {
        &self.system
    }

    /// Whether it writes a relation of the system's: settings of the session, or the catalog itself.
    pub fn writes_system(&self) -> bool {
        self.writes_system
    }

    /// A table that it names and nobody has declared, so that its rows are on every shard.
    pub fn undeclared(&self) -> Option<&TableName> {
        self.undeclared.as_ref()
    }

    /// The functions it calls.
    pub fn called(&self) -> &[Called] {
        &self.called
    }

    /// Whether it asks the system catalog what tables, types and the like there are, and for nothing else: the answer
    /// is to be of the shard whose numbers of them clients see.
    pub fn reads_catalog(&self) -> bool {
        self.describes
    }

    /// Whether it sets how plans are made, which changes no answer, and does nothing else: it can be done anywhere,
    /// also beside a transaction.
    pub fn is_aside(&self) -> bool {
        self.aside
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
                    || insert.arrays.as_ref().is_some_and(|arrays| arrays.parameter.is_some())
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

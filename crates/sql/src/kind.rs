//! What a statement is, with what a door must know of it before any table is looked up.

use std::sync::Arc;

use crate::error::{SqlError, SqlState};
use crate::statement::Statement;

/// A relation as it is written, not yet looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationName {
    /// The schema, if it is said.
    pub schema: Option<String>,
    /// The name, as stored.
    pub name: String,
}

impl std::fmt::Display for RelationName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        f.write_str(&self.name)
    }
}

/// The kind of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// SELECT, VALUES, TABLE; it may still lock rows.
    Select,
    /// INSERT, also behind WITH.
    Insert,
    /// UPDATE, also behind WITH.
    Update,
    /// DELETE, also behind WITH.
    Delete,
    /// MERGE.
    Merge,
    /// COPY.
    Copy(Box<Copy>),
    /// TRUNCATE of these tables.
    Truncate(Vec<RelationName>),
    /// BEGIN or START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT or END.
    Commit {
        /// AND CHAIN: a new transaction follows at once.
        chain: bool,
    },
    /// ROLLBACK or ABORT.
    Rollback {
        /// AND CHAIN: a new transaction follows at once.
        chain: bool,
    },
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE name.
    Release(String),
    /// ROLLBACK TO name.
    RollbackTo(String),
    /// PREPARE TRANSACTION 'id'.
    PrepareTransaction(String),
    /// COMMIT PREPARED 'id'.
    CommitPrepared(String),
    /// ROLLBACK PREPARED 'id'.
    RollbackPrepared(String),
    /// SET name = value, SET ROLE, SET TIME ZONE and their like.
    Set(Setting),
    /// `SELECT set_config('name', 'value', …)` as a whole statement, in literals.
    SetConfig(Setting),
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetTransaction {
        /// For this session's later transactions, not for the running one.
        session: bool,
        /// What is set.
        modes: TransactionModes,
    },
    /// SET CONSTRAINTS: for the running transaction, wherever it is.
    SetConstraints,
    /// RESET name; none for ALL.
    Reset(Option<String>),
    /// SHOW name; `all` for all.
    Show(String),
    /// DISCARD.
    Discard(Discard),
    /// DECLARE a cursor.
    Declare(Box<Declare>),
    /// FETCH or MOVE from a cursor.
    Fetch(Fetch),
    /// CLOSE a cursor; none for ALL.
    Close(Option<String>),
    /// PREPARE a statement.
    Prepare(Box<Prepare>),
    /// EXECUTE a prepared statement.
    Execute(Execute),
    /// DEALLOCATE a prepared statement; none for ALL.
    Deallocate(Option<String>),
    /// EXPLAIN.
    Explain(Box<Explain>),
    /// CREATE, ALTER, DROP, COMMENT, GRANT, REVOKE, REINDEX, REFRESH and their like.
    Ddl(Ddl),
    /// LOCK of these tables.
    Lock(Vec<RelationName>),
    /// LISTEN channel.
    Listen(String),
    /// UNLISTEN channel; none for all.
    Unlisten(Option<String>),
    /// NOTIFY channel.
    Notify {
        /// The channel.
        channel: String,
        /// What is said.
        payload: Option<String>,
    },
    /// CALL of a procedure.
    Call,
    /// DO: a block of code.
    Do,
    /// VACUUM, ANALYZE, CHECKPOINT: upkeep of a database, of every shard's alike.
    Vacuum,
    /// `SELECT polyshard.f(…)` as a whole statement, where f is a command.
    Polyshard(PolyshardCall),
    /// It could not be parsed.
    Unparsed,
}

/// The modes of a transaction that were said; none leaves the session's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionModes {
    /// How it is kept apart from others.
    pub isolation: Option<Isolation>,
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// How a transaction is kept apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// In PostgreSQL the same as [`Isolation::ReadCommitted`].
    ReadUncommitted,
    /// Each statement has its own snapshot.
    ReadCommitted,
    /// One snapshot.
    RepeatableRead,
    /// As if one after the other.
    Serializable,
}

/// SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// LOCAL: until the end of the transaction.
    pub local: bool,
    /// The setting's name in lower case: `timezone`, `role`, `session_authorization`, `search_path`.
    pub name: String,
    /// The values as said, without quotes; none for DEFAULT.
    pub values: Option<Vec<String>>,
}

/// What DISCARD forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Everything.
    All,
    /// Cached plans.
    Plans,
    /// What currval would say.
    Sequences,
    /// Temporary tables.
    Temporary,
}

/// DECLARE.
#[derive(Debug, Clone, PartialEq)]
pub struct Declare {
    /// The cursor's name.
    pub name: String,
    /// WITH HOLD: it outlives its transaction.
    pub hold: bool,
    /// SCROLL or NO SCROLL; none if neither is said.
    pub scroll: Option<bool>,
    /// BINARY: its rows come in binary form.
    pub binary: bool,
    /// The query.
    pub query: Arc<Statement>,
}

/// FETCH or MOVE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The cursor's name.
    pub name: String,
    /// MOVE: the rows themselves are not wanted.
    pub moves: bool,
    /// Which rows.
    pub direction: Direction,
}

/// Which rows FETCH wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// So many of those that follow; negative: of those before, backwards. 0 is the row that it stands on, and
    /// [`Direction::ALL`] is all.
    By(i64),
    /// The one of this number; negative: counted from the end.
    Absolute(i64),
    /// The one so many rows further on, or back.
    Relative(i64),
}

impl Direction {
    /// All rows that follow; negated, all before.
    pub const ALL: i64 = i64::MAX;
}

/// PREPARE.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepare {
    /// The name of the prepared statement.
    pub name: String,
    /// The parameters' types, as said.
    pub types: Vec<String>,
    /// The statement.
    pub statement: Arc<Statement>,
}

/// EXECUTE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute {
    /// The name of the prepared statement.
    pub name: String,
    /// The arguments, each as SQL text.
    pub arguments: Vec<String>,
}

/// EXPLAIN.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// Whether the statement is also carried out.
    pub analyze: bool,
    /// FORMAT, in lower case: `text` unless said otherwise.
    pub format: String,
    /// Everything before the explained statement: `EXPLAIN (ANALYZE, VERBOSE)`.
    pub prefix: String,
    /// What is explained.
    pub statement: Arc<Statement>,
}

/// A change of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ddl {
    /// The command's tag as PostgreSQL says it when done: `CREATE TABLE`.
    pub tag: String,
    /// Whether it concerns a temporary object: that belongs to one session on one shard.
    pub temporary: bool,
    /// CONCURRENTLY, CREATE DATABASE and others that PostgreSQL runs outside of transactions only.
    pub outside_transaction: bool,
    /// The object's name, where it stands in the usual place.
    pub name: Option<RelationName>,
}

/// COPY.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    /// What is copied.
    pub what: CopyWhat,
    /// FROM (into the table), or TO.
    pub from: bool,
    /// The other side.
    pub other: CopyOther,
    /// The options in order, names in lower case; the old spelling is turned into these.
    pub options: Vec<(String, Option<String>)>,
    /// FROM … WHERE: rows that are left out.
    pub has_filter: bool,
}

impl Copy {
    /// An option's value, if it is given; the empty text if it has none.
    pub fn option(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_deref().unwrap_or_default())
    }

    /// A character of its form.
    pub fn character(&self, name: &str, default: u8) -> Result<u8, SqlError> {
        match self.option(name).map(str::as_bytes) {
            None => Ok(default),
            Some([one]) => Ok(*one),
            Some(_) => {
                let message = format!("COPY {name} must be a single one-byte character");
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
            }
        }
    }

    /// Whether the first line names the columns.
    pub fn has_header(&self) -> bool {
        let said = self.option("header").map(str::to_lowercase);
        said.is_some_and(|value| !matches!(value.as_str(), "false" | "off" | "0" | "no"))
    }

    /// Refuses data in another encoding than that of everything here.
    pub fn check_encoding(&self) -> Result<(), SqlError> {
        let plain = |value: &str| value.replace('-', "").eq_ignore_ascii_case("utf8");
        match self.option("encoding") {
            Some(value) if !plain(value) => {
                Err(SqlError::unsupported("COPY in another encoding than UTF8 is not offered", "Use UTF-8."))
            }
            _ => Ok(()),
        }
    }

    /// The format: `text` unless said otherwise.
    pub fn format(&self) -> &str {
        self.option("format").unwrap_or("text")
    }
}

/// What COPY copies.
#[derive(Debug, Clone, PartialEq)]
pub enum CopyWhat {
    /// A table.
    Table {
        /// Its name.
        name: RelationName,
        /// Its columns; empty for all.
        columns: Vec<String>,
    },
    /// The answer of a statement.
    Query(Arc<Statement>),
}

/// Where COPY reads from or writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyOther {
    /// STDIN or STDOUT: the client.
    Client,
    /// A file of the server's.
    File(String),
    /// A program on the server.
    Program(String),
}

/// A command of Polyshard's, called as a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolyshardCall {
    /// The function's name without its schema.
    pub function: String,
    /// The arguments in order.
    pub arguments: Vec<Argument>,
    /// The arguments' names, for those given as `name => value`.
    pub names: Vec<Option<String>>,
    /// What the answer's column is to be called.
    pub alias: Option<String>,
}

impl PolyshardCall {
    /// The name of the answer's column.
    pub fn column(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.function)
    }
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A literal's value as text; `true` and `false` too.
    Text(String),
    /// NULL.
    Null,
    /// `$n`.
    Parameter(u32),
}

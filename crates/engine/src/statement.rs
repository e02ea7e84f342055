//! What is asked of a database: statements with expectations, and batches of them.

use std::fmt;
use std::sync::Arc;

use crate::{Error, Guard, Value};

/// The longest notification payload; PostgreSQL refuses 8000 bytes and more, SQLite follows suit so that a
/// program that works on one engine works on the other.
pub const NOTIFY_PAYLOAD_BYTES_MAX: usize = 7999;

/// The longest channel name: PostgreSQL's NAMEDATALEN less its terminator.
pub const NOTIFY_CHANNEL_BYTES_MAX: usize = 63;

/// How many rows a statement must touch for its batch to go on.
///
/// Counted are the rows returned if the statement returns any columns, otherwise the rows changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Any number.
    #[default]
    Any,
    /// Exactly this many.
    Rows(u64),
    /// One or more.
    AtLeastOne,
    /// None at all.
    None,
}

impl Expect {
    /// Whether `got` rows meet the expectation.
    pub fn is_met_by(self, got: u64) -> bool {
        match self {
            Expect::Any => true,
            Expect::Rows(want) => got == want,
            Expect::AtLeastOne => got >= 1,
            Expect::None => got == 0,
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Any => f.write_str("any number of rows"),
            Expect::Rows(1) => f.write_str("exactly 1 row"),
            Expect::Rows(rows) => write!(f, "exactly {rows} rows"),
            Expect::AtLeastOne => f.write_str("at least 1 row"),
            Expect::None => f.write_str("no row"),
        }
    }
}

/// One SQL statement with its parameters, or a notification.
///
/// Parameters are written `$1`, `$2`, … on both engines. Statements are prepared once per connection and
/// kept by their text: hot paths hold the text in an `Arc<str>` and never build it per call.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) action: Action,
    pub(crate) expect: Expect,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Sql { text: Arc<str>, params: Vec<Value> },
    Notify { channel: String, payload: String },
}

impl Statement {
    /// A statement without parameters that expects nothing.
    pub fn new(sql: impl Into<Arc<str>>) -> Statement {
        Statement { action: Action::Sql { text: sql.into(), params: Vec::new() }, expect: Expect::Any }
    }

    /// The same with room for so many parameters: a statement of hundreds need not be moved about as they come.
    pub fn with_room(sql: impl Into<Arc<str>>, params: usize) -> Statement {
        let action = Action::Sql { text: sql.into(), params: Vec::with_capacity(params) };
        Statement { action, expect: Expect::Any }
    }

    /// A notification sent to every [`crate::Listener`] of `channel` when, and only when, the transaction
    /// commits.
    pub fn notify(channel: impl Into<String>, payload: impl Into<String>) -> Statement {
        Statement {
            action: Action::Notify { channel: channel.into(), payload: payload.into() },
            expect: Expect::Any,
        }
    }

    /// Adds the value of the next parameter.
    ///
    /// # Panics
    /// On a notification, which has no parameters.
    #[must_use]
    pub fn bind(mut self, value: impl Into<Value>) -> Statement {
        match &mut self.action {
            Action::Sql { params, .. } => params.push(value.into()),
            Action::Notify { .. } => panic!("a notification has no parameters to bind"),
        }
        self
    }

    /// Sets what the statement must achieve; otherwise the whole batch is rolled back with
    /// [`Error::Expectation`].
    #[must_use]
    pub fn expect(mut self, expect: Expect) -> Statement {
        self.expect = expect;
        self
    }

    /// The statement's text, or a description of the notification.
    pub fn text(&self) -> &str {
        match &self.action {
            Action::Sql { text, .. } => text,
            Action::Notify { .. } => "notify",
        }
    }

    /// The values of its parameters, for a caller that runs the text on a session of its own.
    pub fn params(&self) -> &[Value] {
        match &self.action {
            Action::Sql { params, .. } => params,
            Action::Notify { .. } => &[],
        }
    }

    /// Refuses what one engine would accept and the other not.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Action::Notify { channel, payload } = &self.action else {
            return Ok(());
        };
        if channel.is_empty() || channel.len() > NOTIFY_CHANNEL_BYTES_MAX {
            return Err(Error::invalid(format!(
                "channel name {channel:?} must have 1 to {NOTIFY_CHANNEL_BYTES_MAX} bytes"
            )));
        }
        if payload.len() > NOTIFY_PAYLOAD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "a notification carries at most {NOTIFY_PAYLOAD_BYTES_MAX} bytes, this one has {}: send a \
                 reference and let the listener read the rest",
                payload.len()
            )));
        }
        Ok(())
    }
}

/// Statements that are applied together or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) statements: Vec<Statement>,
    pub(crate) order_key: Option<Vec<u8>>,
    pub(crate) guard: Option<Guard>,
    pub(crate) in_place: bool,
}

impl Batch {
    /// A batch that does nothing yet.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a statement to the end.
    #[must_use]
    pub fn push(mut self, statement: Statement) -> Batch {
        self.statements.push(statement);
        self
    }

    /// Lets the writer run batches waiting at the same time in the order of this key, not of arrival:
    /// neighbouring keys touch the same pages, and every process takes row locks in the same order.
    /// Batches with equal keys keep their order; a batch without a key is never overtaken.
    #[must_use]
    pub fn order_key(mut self, key: Vec<u8>) -> Batch {
        self.order_key = Some(key);
        self
    }

    /// Lets SQLite run it on the calling thread while the writer has nothing else to do: handing a batch to another
    /// thread and its answer back takes as long as the commit itself. For short batches of callers who do nothing else
    /// meanwhile in the same task, which stands still until it is committed.
    #[must_use]
    pub fn in_place(mut self) -> Batch {
        self.in_place = true;
        self
    }

    /// Its statements, in order.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// How many statements it has.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether it has no statement.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

impl From<Statement> for Batch {
    fn from(statement: Statement) -> Batch {
        Batch::new().push(statement)
    }
}

impl FromIterator<Statement> for Batch {
    fn from_iter<I: IntoIterator<Item = Statement>>(statements: I) -> Batch {
        Batch { statements: statements.into_iter().collect(), ..Batch::default() }
    }
}

//! One statement on the shard that has a queue: every operation of this store is one or two of these.

use std::sync::Arc;

use polyshard_engine::{self as engine, Batch, Rows, Statement, Value};
use polyshard_router::{Access, Ticket};
use polyshard_store::Placed;

use super::statements::{Texts, texts};
use super::{QueueStore, StoreError};

/// How a statement is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It reads a few rows.
    Read,
    /// It answers with one row, after looking at many: it must not hold up the thread that serves others.
    Sum,
    /// It changes rows that are there.
    Change,
    /// It adds a row, maybe the first of its queue on that shard.
    Add,
}

/// A statement to be run. It owns what it needs, so that it can be run again elsewhere.
pub(super) struct Query {
    kind: Kind,
    text: fn(&'static Texts) -> &'static Arc<str>,
    params: Vec<Value>,
}

impl Query {
    /// A statement about the rows of a queue, whose number is its first parameter.
    pub fn new(kind: Kind, text: fn(&'static Texts) -> &'static Arc<str>, place: &Placed) -> Query {
        Query { kind, text, params: vec![place.dataset().into()] }
    }

    /// Adds the value of the next parameter.
    pub fn bind(mut self, value: impl Into<Value>) -> Query {
        self.params.push(value.into());
        self
    }

    fn statement(&self, ticket: &Ticket) -> Statement {
        let text = (self.text)(texts(ticket.dialect())).clone();
        self.params.iter().cloned().fold(Statement::new(text), Statement::bind)
    }
}

impl QueueStore {
    /// Runs a statement on the shard that has the queue.
    pub(super) async fn ask(&self, place: &Placed, ask: Query) -> Result<Rows, StoreError> {
        let access = match ask.kind {
            Kind::Read | Kind::Sum => Access::Read,
            Kind::Change | Kind::Add => Access::Write,
        };
        // The shard is told of a queue before its first message there.
        let new = (ask.kind == Kind::Add).then(|| (self.kit.clone(), place.record.clone()));
        let work = async move |ticket: &Ticket| {
            if let Some((kit, record)) = &new {
                kit.register(ticket, record).await?;
            }
            run(ticket, &ask).await
        };
        Ok(self.kit.run(place, access, work).await?)
    }
}

async fn run(ticket: &Ticket, ask: &Query) -> Result<Rows, engine::Error> {
    let statement = ask.statement(ticket);
    match ask.kind {
        Kind::Read => ticket.read(statement).await,
        Kind::Sum => {
            let mut scan = ticket.scan(statement, 1).await?;
            scan.next().await?.ok_or_else(|| engine::Error::invalid("a sum has no row"))
        }
        Kind::Change | Kind::Add => {
            let answers = ticket.write(Batch::from(statement).in_place()).await?;
            answers.into_iter().next().ok_or_else(|| engine::Error::invalid("a statement has no answer"))
        }
    }
}

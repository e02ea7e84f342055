//! Where a logical partition is, and statements there.

use std::sync::Arc;

use polyshard_document_query::Value;
use polyshard_engine::{self as engine, Batch, Dialect, Expect, Rows, Statement, Value as Parameter};
use polyshard_router::{Access, Ticket};
use polyshard_store::{Error, Placed};

use super::statements::{Texts, texts};
use super::{Container, DocumentStore};
use crate::epk;
use crate::failure::Failure;
use crate::partition_key::key_text;

/// A logical partition of a container, and where its rows are.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub placed: Placed,
    pub epk: Vec<u8>,
    pub pk: Vec<u8>,
    /// What its place is derived from.
    pub text: String,
    /// The container's time to live.
    ttl: i64,
}

/// A statement about a partition. Its first parameters are dataset, placement, effective partition key and digest.
#[derive(Clone, Debug)]
pub(super) struct Step {
    text: fn(&Texts) -> &Arc<str>,
    params: Vec<Parameter>,
    expect: Expect,
    adds: bool,
}

impl Step {
    /// A statement about a document of the partition: its id and the container's time to live follow.
    pub fn of(key: &Key, id: &str, text: fn(&Texts) -> &Arc<str>) -> Step {
        Step::new(key, text).bind(id).bind(key.ttl)
    }

    /// A statement about the partition.
    pub fn new(key: &Key, text: fn(&Texts) -> &Arc<str>) -> Step {
        let params = vec![
            key.placed.dataset().into(),
            key.placed.placement.clone().into(),
            key.epk.clone().into(),
            key.pk.clone().into(),
        ];
        Step { text, params, expect: Expect::Any, adds: false }
    }

    /// Adds the value of the next parameter.
    pub fn bind(mut self, value: impl Into<Parameter>) -> Step {
        self.params.push(value.into());
        self
    }

    /// It may add a row.
    pub fn adding(mut self) -> Step {
        self.adds = true;
        self
    }

    /// It must touch one row, or everything written with it is rolled back.
    pub fn one(mut self) -> Step {
        self.expect = Expect::Rows(1);
        self
    }

    /// The statement for an engine.
    pub fn statement(&self, dialect: Dialect) -> Statement {
        let first = Statement::with_room((self.text)(texts(dialect)).clone(), self.params.len());
        self.params.iter().cloned().fold(first, Statement::bind).expect(self.expect)
    }
}

impl DocumentStore {
    /// The partition of these values. Of a container without a partition key there is one.
    pub(crate) fn key(&self, container: &Container, values: &[Value]) -> Result<Key, Failure> {
        let (epk, pk, text) = match container.partition_key() {
            Some(_) => (epk::effective(values), epk::digest(values), key_text(values)),
            None => (Vec::new(), Vec::new(), container.name.name().to_owned()),
        };
        let placed = self.kit.place_of(container.record.clone(), &text)?;
        Ok(Key { placed, epk, pk, text, ttl: container.ttl() })
    }

    /// Counts a request against the quotas.
    pub(crate) fn admit(&self, key: &Key, items: usize) -> Result<(), Failure> {
        Ok(self.kit.admit(&key.placed, items)?)
    }

    /// Counts a request for all documents of a container.
    pub(crate) fn admit_all(&self, container: &Container) -> Result<(), Failure> {
        Ok(self.kit.host().quotas().admit_to(&container.record, None, 1).map_err(Error::from)?)
    }

    /// Runs a statement that reads.
    pub(super) async fn read(&self, key: &Key, step: Step) -> Result<Rows, Failure> {
        // What the work has is its own: it may run again elsewhere.
        let work = async move |ticket: &Ticket| ticket.read(step.statement(ticket.dialect())).await;
        Ok(self.kit.run(&key.placed, Access::Read, work).await?)
    }

    /// Runs statements together, or none of them: then one has not found what it expected.
    pub(super) async fn write(&self, key: &Key, steps: Vec<Step>) -> Result<Option<Vec<Rows>>, Failure> {
        let (kit, record) = (self.kit.clone(), key.placed.record.clone());
        let work = async move |ticket: &Ticket| -> Result<Option<Vec<Rows>>, engine::Error> {
            // A change of what must be there registers nothing: the container may never have had a row.
            if steps.iter().any(|step| step.adds) {
                kit.register(ticket, &record).await?;
            }
            let dialect = ticket.dialect();
            let batch: Batch = steps.iter().map(|step| step.statement(dialect)).collect();
            match ticket.write(batch.in_place()).await {
                Ok(rows) => Ok(Some(rows)),
                Err(engine::Error::Expectation { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok(self.kit.run(&key.placed, Access::Write, work).await?)
    }

    /// Runs one statement that writes.
    pub(super) async fn write_one(&self, key: &Key, step: Step) -> Result<Rows, Failure> {
        let rows = self.write(key, vec![step]).await?.unwrap_or_default();
        rows.into_iter().next().ok_or_else(|| Failure::damaged("answer", "a statement has none"))
    }
}

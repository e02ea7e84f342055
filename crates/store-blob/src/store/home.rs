//! Where a blob is, and statements there: read, then written together if nobody was quicker.

use std::borrow::Borrow;
use std::sync::Arc;

use polyshard_catalog::DatasetRecord;
use polyshard_engine::{self as engine, Batch, Expect, Rows};
use polyshard_router::{Access, Ticket};
use polyshard_store::rights::Right;
use polyshard_store::{Error, ErrorKind, Placed, Target};

use super::rows::{Body, Step, insert, read_blob, read_blob_with_body, stored_snapshot, update};
use super::statements::texts;
use super::{BlobStore, StoreError};
use crate::model::{Blob, Etag};
use crate::name::{BlobName, ContainerName};

/// How often a change is tried again after somebody else was quicker.
pub(super) const TRIES_MAX: u32 = 50;

/// The attribute of a rule by which all blobs of a container have the same key.
const CONTAINER: &str = "container";

/// A blob and where its rows are.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub placed: Placed,
    pub name: BlobName,
}

impl Home {
    /// The number of the container's rows.
    pub fn dataset(&self) -> i64 {
        self.placed.dataset()
    }

    /// The same, as objects are kept by.
    pub fn dataset_id(&self) -> u64 {
        self.placed.record.id
    }
}

/// Whether the content in the row is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Head,
    Body,
}

/// A change of a blob's row, and what is written with it.
pub(super) struct Change {
    /// The row as it is to be. Its version is set when it is written.
    pub blob: Blob,
    /// Its content, if that is in the row.
    pub body: Body,
    /// What is written before the row: it sees the row as it was.
    pub before: Vec<Step>,
    /// What is written after it.
    pub after: Vec<Step>,
}

impl Change {
    /// Of the row alone.
    pub fn new(blob: Blob) -> Change {
        Change { blob, body: Body::Keep, before: Vec::new(), after: Vec::new() }
    }

    /// The row's own content becomes this.
    pub fn body(mut self, body: Option<bytes::Bytes>) -> Change {
        self.body = Body::Set(body);
        self
    }

    /// Something to be written with it.
    pub fn after(mut self, steps: impl IntoIterator<Item = Step>) -> Change {
        self.after.extend(steps);
        self
    }
}

impl BlobStore {
    /// Where a blob is. The container must exist.
    pub(super) async fn home(&self, name: &BlobName) -> Result<Home, StoreError> {
        let record = self.kit.dataset(name.container().id()).await;
        let record = record.map_err(|error| StoreError::of_blob(name, error))?;
        self.home_in(record, name.clone())
    }

    /// The same in a container whose record is known.
    pub(super) fn home_in(&self, record: Arc<DatasetRecord>, name: BlobName) -> Result<Home, StoreError> {
        let text = attribute(&record, &name);
        let placed = self.kit.place_of(record, &text).map_err(|error| StoreError::of_blob(&name, error))?;
        Ok(Home { placed, name })
    }

    /// The same for a request, which the quotas let in.
    pub(super) async fn home_of_request(&self, name: &BlobName) -> Result<Home, StoreError> {
        let home = self.home(name).await?;
        self.admit(&home)?;
        Ok(home)
    }

    /// Runs a statement that reads.
    pub(super) async fn read(&self, home: &Home, step: impl Borrow<Step>) -> Result<Rows, StoreError> {
        let step = step.borrow().clone();
        // What the work has is its own: the compiler cannot tell otherwise that a request may change its thread.
        let work = async move |ticket: &Ticket| ticket.read(step.statement(ticket.dialect())).await;
        Ok(self.kit.run(&home.placed, Access::Read, work).await?)
    }

    /// Runs statements together, or none of them: then a statement has not found what it expected.
    pub(super) async fn write(
        &self,
        home: &Home,
        steps: impl Into<Vec<Step>>,
    ) -> Result<Option<Vec<Rows>>, StoreError> {
        let (steps, kit, record) = (steps.into(), self.kit.clone(), home.placed.record.clone());
        let work = async move |ticket: &Ticket| -> Result<Option<Vec<Rows>>, engine::Error> {
            kit.register(ticket, &record).await?;
            let dialect = ticket.dialect();
            let batch: Batch = steps.iter().map(|step| step.statement(dialect)).collect();
            match ticket.write(batch.in_place()).await {
                Ok(rows) => Ok(Some(rows)),
                Err(engine::Error::Expectation { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok(self.kit.run(&home.placed, Access::Write, work).await?)
    }

    /// The row of a blob or snapshot, whatever state it is in.
    pub(super) async fn row(
        &self,
        home: &Home,
        snapshot: i64,
        what: Read,
    ) -> Result<Option<Blob>, StoreError> {
        let step = match what {
            Read::Head => Step::new(home, |dialect| texts(dialect).head.clone()),
            Read::Body => Step::new(home, |dialect| texts(dialect).get.clone()),
        };
        let rows = self.read(home, step.bind(stored_snapshot(snapshot))).await?;
        let row = rows.into_rows().into_iter().next();
        let blob = match what {
            Read::Head => row.as_ref().map(read_blob),
            Read::Body => row.map(read_blob_with_body),
        };
        Ok(blob.transpose()?)
    }

    /// Changes the row of a blob: reads it (none if there is no row at all), lets `decide` say what it becomes, and
    /// writes that if the row is still as it was read; else begins again.
    pub(super) async fn change(
        &self,
        home: &Home,
        decide: impl FnMut(Option<&Blob>) -> Result<Change, StoreError>,
    ) -> Result<Blob, StoreError> {
        self.change_row(home, 0, decide).await
    }

    /// The same for a snapshot, or for the blob itself, which is 0.
    pub(super) async fn change_row(
        &self,
        home: &Home,
        snapshot: i64,
        mut decide: impl FnMut(Option<&Blob>) -> Result<Change, StoreError>,
    ) -> Result<Blob, StoreError> {
        for _ in 0..TRIES_MAX {
            let found = self.row(home, snapshot, Read::Head).await?;
            let change = decide(found.as_ref())?;
            if let Some(blob) = self.put_row(home, found.as_ref(), change).await? {
                return Ok(blob);
            }
        }
        Err(StoreError::Contended(home.name.to_string()))
    }

    /// Writes a change of a row that was read; none if somebody else was quicker.
    pub(super) async fn put_row(
        &self,
        home: &Home,
        found: Option<&Blob>,
        change: Change,
    ) -> Result<Option<Blob>, StoreError> {
        let Change { mut blob, body, before, after } = change;
        // Never one that the row has had: a row that is deleted and made anew is not the one that was read.
        blob.version = self.kit.next_ticks().max(found.map_or(0, |found| found.version + 1));
        let row = match found {
            Some(found) => update(home, &blob, &body, found.version)?,
            None => insert(home, &blob, &body)?,
        };
        let mut steps = before;
        steps.push(row);
        steps.extend(after);
        Ok(self.write(home, steps).await?.map(|_| blob))
    }

    /// The time of a change: later than that of the change before.
    pub(super) fn next_time(&self, found: Option<&Blob>) -> i64 {
        let before = found.map_or(0, |found| found.etag.0.max(found.modified));
        self.kit.next_ticks().max(before + 1)
    }

    /// Marks a blob as changed by a client.
    pub(super) fn touch(&self, blob: &mut Blob) {
        let now = self.next_time(Some(blob));
        (blob.etag, blob.modified) = (Etag(now), now);
        blob.lease = blob.lease.after_write(blob.now_ms);
    }

    /// Whether an account may do this with a blob: judged by the text that the blob's key is made of.
    pub(crate) async fn permit_blob(
        &self,
        account: &str,
        right: Right,
        name: &BlobName,
    ) -> Result<(), Error> {
        let record = self.record_if_any(name.container()).await?;
        let text = record.map(|record| attribute(&record, name));
        self.kit.permit(account, Target::Dataset(right, name.container().id(), text.as_deref())).await
    }

    /// Whether an account may do this with a container. It needs the right on all keys, unless one key is that of the
    /// whole container.
    pub(crate) async fn permit_container(
        &self,
        account: &str,
        right: Right,
        name: &ContainerName,
    ) -> Result<(), Error> {
        let record = self.record_if_any(name).await?;
        let has_one_key = record.is_some_and(|record| record.rule.attribute == CONTAINER);
        let text = has_one_key.then_some(name.name());
        self.kit.permit(account, Target::Dataset(right, name.id(), text)).await
    }

    async fn record_if_any(&self, name: &ContainerName) -> Result<Option<Arc<DatasetRecord>>, Error> {
        match self.kit.dataset(name.id()).await {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind == ErrorKind::NoDataset => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The record of a container.
    pub(super) async fn record(&self, container: &ContainerName) -> Result<Arc<DatasetRecord>, StoreError> {
        let record = self.kit.dataset(container.id()).await;
        record.map_err(|error| StoreError::of_container(container, error))
    }
}

/// The text that a blob's key is made of.
fn attribute(record: &DatasetRecord, name: &BlobName) -> String {
    match record.rule.attribute.as_str() {
        CONTAINER => name.container().name().to_owned(),
        "name" => name.name().to_owned(),
        _ => name.path(),
    }
}

/// A statement that must do its part.
pub(super) fn one(step: Step) -> Step {
    step.expect(Expect::Rows(1))
}

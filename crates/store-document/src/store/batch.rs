//! Transactional batches: what is there is read, all operations are carried out in memory, and what they change is
//! written as one batch, each row only if it is still as it was read.

use std::collections::HashMap;

use polyshard_document_query::Value;

use super::home::{Key, Step};
use super::items::{Condition, Item, delete, get, insert, no_item, replace};
use super::patches::TRIES_MAX;
use super::{Container, DocumentStore};
use crate::charge;
use crate::document::{Document, Stamp};
use crate::failure::Failure;
use crate::patch::Patch;

/// Operations of one batch at most.
pub(crate) const BATCH_OPERATIONS_MAX: usize = 100;
/// Bytes of documents that one batch reads at most.
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One operation on a document.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub id: String,
    pub kind: OperationKind,
    pub condition: Condition,
}

/// What is done with it.
#[derive(Clone, Debug)]
pub(crate) enum OperationKind {
    Create(Document),
    Upsert(Document),
    Replace(Document),
    Patch(Patch),
    Read,
    Delete,
}

/// How an operation ended well.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub status: u16,
    pub charge: f64,
    pub item: Option<Item>,
}

/// A document while the operations are carried out in memory.
#[derive(Clone, Debug)]
struct State {
    number: i64,
    etag: i64,
    ts_ms: i64,
    /// If it was read or written.
    body: Option<Vec<u8>>,
    /// The step that wrote it.
    step: Option<usize>,
}

/// The work of one attempt.
struct Attempt<'a> {
    store: &'a DocumentStore,
    container: &'a Container,
    key: &'a Key,
    states: HashMap<String, State>,
    steps: Vec<Step>,
    /// Outcomes, each with the step that tells its time.
    outcomes: Vec<(Outcome, Option<usize>)>,
    read_bytes: usize,
}

/// How an attempt ends early.
enum Stop {
    /// Somebody else was quicker.
    Again,
    /// This operation cannot be done.
    Refused(Failure),
}

impl<T: Into<Failure>> From<T> for Stop {
    fn from(failure: T) -> Stop {
        Stop::Refused(failure.into())
    }
}

impl DocumentStore {
    /// Carries out all operations, or none: then the number of the one that cannot be done.
    pub(crate) async fn batch(
        &self,
        container: &Container,
        key: &Key,
        operations: &[Operation],
    ) -> Result<Result<Vec<Outcome>, (usize, Failure)>, Failure> {
        'again: for _ in 0..TRIES_MAX {
            let states = self.heads(key, operations).await?;
            let (steps, outcomes) = (Vec::new(), Vec::new());
            let mut attempt = Attempt { store: self, container, key, states, steps, outcomes, read_bytes: 0 };
            for (at, operation) in operations.iter().enumerate() {
                match attempt.carry_out(operation).await {
                    Ok(()) => {}
                    Err(Stop::Again) => continue 'again,
                    // What is not the client's affair is so for the batch as a whole.
                    Err(Stop::Refused(failure)) if failure.status >= 500 || failure.status == 429 => {
                        return Err(failure);
                    }
                    Err(Stop::Refused(failure)) => return Ok(Err((at, failure))),
                }
            }
            if let Some(outcomes) = attempt.commit().await? {
                return Ok(Ok(outcomes));
            }
        }
        Err(Failure::contended())
    }

    /// What is there of the documents that the operations name, without their bodies.
    async fn heads(&self, key: &Key, operations: &[Operation]) -> Result<HashMap<String, State>, Failure> {
        let ids =
            Value::array(operations.iter().map(|operation| Value::string(operation.id.as_str())).collect());
        let step = Step::of(key, &ids.to_json(), |texts| &texts.heads);
        let mut found = HashMap::new();
        for row in &self.read(key, step).await? {
            let state =
                State { number: row.int(1)?, etag: row.int(2)?, ts_ms: row.int(3)?, body: None, step: None };
            found.insert(row.text(0)?.to_owned(), state);
        }
        Ok(found)
    }
}

impl Attempt<'_> {
    async fn carry_out(&mut self, operation: &Operation) -> Result<(), Stop> {
        let Operation { id, kind, condition } = operation;
        let found = self.states.get(id).cloned();
        let differs = |state: &State| matches!(condition, Condition::Etag(etag) if *etag != state.etag);
        if found.as_ref().is_some_and(differs)
            && !matches!(kind, OperationKind::Create(_) | OperationKind::Read)
        {
            return Err(Failure::etag().into());
        }
        match (kind, found) {
            (OperationKind::Create(_), Some(_)) => Err(Failure::conflict("Entity").into()),
            (OperationKind::Create(document) | OperationKind::Upsert(document), None) => {
                self.add(document);
                Ok(())
            }
            (OperationKind::Upsert(document) | OperationKind::Replace(document), Some(state)) => {
                self.change(document, &state);
                Ok(())
            }
            (
                OperationKind::Replace(_)
                | OperationKind::Patch(_)
                | OperationKind::Read
                | OperationKind::Delete,
                None,
            ) => Err(no_item(id).into()),
            (OperationKind::Patch(patch), Some(state)) => {
                let item = self.body(id, &state).await?;
                let document = self.store.patched(patch, &item)?;
                self.change(&document, &state);
                Ok(())
            }
            (OperationKind::Read, Some(state)) => {
                let item = self.body(id, &state).await?;
                let outcome =
                    Outcome { status: 200, charge: charge::read(item.body.len()), item: Some(item) };
                self.outcomes.push((outcome, state.step));
                Ok(())
            }
            (OperationKind::Delete, Some(state)) => {
                self.steps.push(delete(self.key, id, Condition::Etag(state.etag)).one());
                self.states.remove(id);
                self.outcomes.push((Outcome { status: 204, charge: charge::write(0), item: None }, None));
                Ok(())
            }
        }
    }

    fn add(&mut self, document: &Document) {
        let (number, etag) = (self.store.new_number(), self.store.new_etag());
        self.steps.push(insert(self.key, document, number, etag).one());
        self.wrote(document, 201, number, etag);
    }

    fn change(&mut self, document: &Document, state: &State) {
        let etag = self.store.new_etag();
        self.steps.push(replace(self.key, document, etag, Condition::Etag(state.etag)).one());
        self.wrote(document, 200, state.number, etag);
    }

    fn wrote(&mut self, document: &Document, status: u16, number: i64, etag: i64) {
        let step = Some(self.steps.len() - 1);
        let state = State { number, etag, ts_ms: 0, body: Some(document.body.clone()), step };
        let item = Item { stamp: self.stamp(&state), body: document.body.clone() };
        self.states.insert(document.id.clone(), state);
        let charge = charge::write(document.body.len());
        self.outcomes.push((Outcome { status, charge, item: Some(item) }, step));
    }

    fn stamp(&self, state: &State) -> Stamp {
        self.store.stamp(self.container, state.number, state.etag, state.ts_ms)
    }

    /// A document with its body, which is still to be read if it was not written here.
    async fn body(&mut self, id: &str, state: &State) -> Result<Item, Stop> {
        if let Some(body) = &state.body {
            return Ok(Item { stamp: self.stamp(state), body: body.clone() });
        }
        let rows = self.store.read(self.key, get(self.key, id)).await?;
        let item = self.store.item(self.container, rows)?;
        let item = item.filter(|item| item.stamp.etag == state.etag).ok_or(Stop::Again)?;
        self.read_bytes += item.body.len();
        if self.read_bytes > READ_BYTES_MAX {
            return Err(Failure::too_large("the batch reads more than 4 MB").into());
        }
        Ok(item)
    }

    /// Writes what was changed; none if something is not as it was read any more.
    async fn commit(self) -> Result<Option<Vec<Outcome>>, Failure> {
        let rows = match self.steps.is_empty() {
            true => Vec::new(),
            false => match self.store.write(self.key, self.steps).await? {
                Some(rows) => rows,
                None => return Ok(None),
            },
        };
        let mut outcomes = Vec::with_capacity(self.outcomes.len());
        for (mut outcome, step) in self.outcomes {
            if let (Some(item), Some(step)) = (&mut outcome.item, step) {
                let row = rows.get(step).and_then(|rows| rows.first());
                let row = row.ok_or_else(|| Failure::damaged("answer", "a statement has none"))?;
                item.stamp.ts_ms = row.int(1)?;
            }
            outcomes.push(outcome);
        }
        Ok(Some(outcomes))
    }
}

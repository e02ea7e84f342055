//! Changing entities: one, or several of a partition together or not at all.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use polyshard_azure_storage::Timestamp;
use polyshard_engine::{self as engine, Batch, Expect, Rows, Statement};
use polyshard_router::{Access, Ticket};
use polyshard_store::Kit;

use super::rows::{self, Target};
use super::statements::texts;
use super::{Home, StoreError, TURNS, TableStore, broken, number, timestamp};
use crate::entity::{PartitionKey, Properties, RowKey};
use crate::etag::IfMatch;
use crate::name::TableName;

/// Changes in one transaction, as with the service.
pub const CHANGES_MAX: usize = 100;
/// How often a change is tried anew because another one came between: within a process they take turns, so this is
/// about other processes only.
const TRIES_MAX: usize = 16;

/// What is to be done with an entity.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangeKind {
    /// It must not be there yet.
    Insert(Properties),
    /// It must be there; all its properties are replaced.
    Replace(Properties, IfMatch),
    /// It must be there; the properties given are put over its own.
    Merge(Properties, IfMatch),
    /// Replaced or inserted.
    UpsertReplace(Properties),
    /// Merged or inserted.
    UpsertMerge(Properties),
    /// It must be there.
    Delete(IfMatch),
}

impl ChangeKind {
    /// Whether the entity may be new.
    pub(super) fn may_add(&self) -> bool {
        match self {
            ChangeKind::Insert(_) | ChangeKind::UpsertReplace(_) | ChangeKind::UpsertMerge(_) => true,
            ChangeKind::Replace(..) | ChangeKind::Merge(..) | ChangeKind::Delete(_) => false,
        }
    }
}

/// One change of an entity in a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Which entity.
    pub row: RowKey,
    /// What to do with it.
    pub kind: ChangeKind,
}

/// How an attempt ended.
enum Attempt {
    /// All is done; the times of change.
    Done(Vec<i64>),
    /// The change of this number cannot be made.
    Refused(usize, StoreError),
    /// Something about the entity of one of these changes was not as expected.
    Lost(Range<usize>),
}

impl TableStore {
    /// Makes changes of one partition, all or none. Answers the new times of change; the error has the number of the
    /// change that it is about.
    pub async fn change(
        &self,
        table: &TableName,
        partition: &PartitionKey,
        changes: impl Into<Arc<[Change]>>,
    ) -> Result<Vec<Timestamp>, (usize, StoreError)> {
        let changes: Arc<[Change]> = changes.into();
        debug_assert!(
            changes.iter().map(|change| &change.row).collect::<HashSet<_>>().len() == changes.len()
        );
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let home = Arc::new(self.home(table, partition).await.map_err(|error| (0, error))?);
        for (at, change) in changes.iter().enumerate() {
            rows::check(partition, change).map_err(|error| (at, error))?;
        }
        let admitted = self.kit.host().quotas().admit_to(&home.record, home.key.first(), changes.len());
        admitted.map_err(|error| (0, error.into()))?;
        let mut turn = None;
        for _ in 0..TRIES_MAX {
            let work = Work {
                kit: self.kit.clone(),
                home: home.clone(),
                partition: partition.clone(),
                changes: changes.clone(),
                now: self.kit.next_ticks(),
            };
            let attempt = self.attempt(work).await.map_err(|error| (0, error))?;
            let lost = match attempt {
                Attempt::Done(ticks) => {
                    let times: Result<_, _> = ticks.into_iter().map(timestamp).collect();
                    return times.map_err(|error| (0, error));
                }
                Attempt::Refused(at, error) => return Err((at, error)),
                Attempt::Lost(lost) => lost,
            };
            for at in lost {
                let reason = Box::pin(self.reason(&home, partition, &changes[at])).await;
                if let Some(error) = reason.map_err(|error| (at, error))? {
                    return Err((at, error));
                }
            }
            if turn.is_none() {
                turn = Some(Box::pin(self.turns[turn_of(&home, partition)].lock()).await);
            }
        }
        Err((0, StoreError::Contended))
    }

    async fn attempt(&self, work: Work) -> Result<Attempt, StoreError> {
        let (record, key) = (work.home.record.clone(), work.home.key.clone());
        let work = async move |ticket: &Ticket| work.run(ticket).await;
        Ok(self.kit.router().call_for(&record, &key, Access::Write, work).await?)
    }

    /// Why a change found nothing to do; none if it may succeed when tried again.
    async fn reason(
        &self,
        home: &Home,
        partition: &PartitionKey,
        change: &Change,
    ) -> Result<Option<StoreError>, StoreError> {
        let row = self.stored(home, partition.as_str(), &change.row).await?;
        let time = row.map(|row| row.int(0)).transpose().map_err(broken)?.map(timestamp).transpose()?;
        Ok(match (&change.kind, time) {
            (ChangeKind::Insert(_), Some(_)) => Some(StoreError::EntityExists),
            (ChangeKind::Replace(_, _) | ChangeKind::Merge(_, _) | ChangeKind::Delete(_), None) => {
                Some(StoreError::NoSuchEntity)
            }
            (
                ChangeKind::Replace(_, if_match)
                | ChangeKind::Merge(_, if_match)
                | ChangeKind::Delete(if_match),
                Some(time),
            ) if !if_match.is_met_by(time) => Some(StoreError::Changed),
            _ => None,
        })
    }
}

/// An attempt at some changes. It owns what it needs, so that it can be made again on another shard.
struct Work {
    kit: Kit,
    home: Arc<Home>,
    partition: PartitionKey,
    changes: Arc<[Change]>,
    now: i64,
}

impl Work {
    async fn run(&self, ticket: &Ticket) -> Result<Attempt, engine::Error> {
        // A change of what must be there registers nothing: the table may never have had a row.
        if self.changes.iter().any(|change| change.kind.may_add()) {
            self.kit.register(ticket, &self.home.record).await?;
        }
        let (texts, target) = (texts(ticket.dialect()), self.target());
        if let Some(inserts) = target.insert_all(texts, &self.changes) {
            return self.insert_all(ticket, inserts).await;
        }
        let mut batch = Batch::new();
        for (at, change) in self.changes.iter().enumerate() {
            let found = match rows::reads_first(&change.kind) {
                true => ticket.read(target.read(texts, change)).await?.into_iter().next(),
                false => None,
            };
            let found = match &found {
                Some(row) => Some((row.int(0)?, row.text(1)?)),
                None => None,
            };
            let statement = match target.write(texts, change, found) {
                Ok(statement) => statement,
                Err(error) => return Ok(Attempt::Refused(at, error)),
            };
            // Alone, a change that finds nothing has done nothing: no need to have it rolled back.
            let expect = if self.changes.len() == 1 { Expect::Any } else { Expect::Rows(1) };
            batch = batch.push(statement.expect(expect));
        }
        match ticket.write(batch.order_key(self.order_key()).in_place()).await {
            Ok(answers) => ticks(&answers, self.now),
            Err(engine::Error::Expectation { statement, .. }) => Ok(Attempt::Lost(statement..statement + 1)),
            Err(error) => Err(error),
        }
    }

    /// Inserts several entities: many rows of one statement take less time than many statements.
    async fn insert_all(
        &self,
        ticket: &Ticket,
        inserts: Vec<(usize, Statement)>,
    ) -> Result<Attempt, engine::Error> {
        let rows: Vec<usize> = inserts.iter().map(|(rows, _)| *rows).collect();
        let batch: Batch = inserts
            .into_iter()
            .map(|(rows, statement)| statement.expect(Expect::Rows(rows as u64)))
            .collect();
        match ticket.write(batch.order_key(self.order_key()).in_place()).await {
            Ok(_) => Ok(Attempt::Done(vec![self.now; self.changes.len()])),
            Err(engine::Error::Expectation { statement, .. }) => {
                let first = rows[..statement].iter().sum();
                Ok(Attempt::Lost(first..first + rows[statement]))
            }
            Err(error) => Err(error),
        }
    }

    fn target(&self) -> Target<'_> {
        let (dataset, placement) = (number(self.home.record.id), &self.home.placement);
        Target { dataset, placement, partition: &self.partition, now: self.now }
    }

    /// As the index by key has them: on SQLite by placement, and so by what it is made of. On PostgreSQL it is only the
    /// order that everybody locks rows in.
    fn order_key(&self) -> Vec<u8> {
        let (partition, row) = (self.partition.as_str(), self.changes[0].row.as_str());
        let mut order = Vec::with_capacity(16 + self.home.placement.len() + partition.len() + row.len());
        order.extend_from_slice(&number(self.home.record.id).to_be_bytes());
        order.extend_from_slice(&self.home.placement);
        order.extend_from_slice(partition.as_bytes());
        order.push(0);
        order.extend_from_slice(row.as_bytes());
        order
    }
}

/// The times of change that the statements answered with; one without an answer has found nothing.
fn ticks(answers: &[Rows], now: i64) -> Result<Attempt, engine::Error> {
    let mut ticks = Vec::with_capacity(answers.len());
    for (at, answer) in answers.iter().enumerate() {
        match rows::ticks_of(answer, now)? {
            Some(time) => ticks.push(time),
            None => return Ok(Attempt::Lost(at..at + 1)),
        }
    }
    Ok(Attempt::Done(ticks))
}

fn turn_of(home: &Home, partition: &PartitionKey) -> usize {
    let mut hasher = DefaultHasher::new();
    (home.record.id, partition.as_str()).hash(&mut hasher);
    (hasher.finish() % TURNS as u64) as usize
}

//! From a change of an entity to the statement that makes it. Pure.

use std::sync::Arc;

use polyshard_engine::{self as engine, Rows, Statement};

use super::changes::{Change, ChangeKind};
use super::entities::read_properties;
use super::statements::{INSERT_ROWS, Texts};
use super::{StoreError, timestamp};
use crate::entity::{PartitionKey, Properties};
use crate::etag::IfMatch;
use crate::stored;

/// What was read of an entity: the time of its last change, and its properties as they are stored.
pub(super) type Found<'a> = (i64, &'a str);

/// Where and when a change is made.
pub(super) struct Target<'a> {
    /// The number of the table's rows.
    pub dataset: i64,
    pub placement: &'a [u8],
    pub partition: &'a PartitionKey,
    /// The time of the change.
    pub now: i64,
}

/// Whether the entity must be read before the statement of the change is known: a merge makes sure, when it writes,
/// that it has not changed since.
pub(super) fn reads_first(kind: &ChangeKind) -> bool {
    matches!(kind, ChangeKind::Merge(..) | ChangeKind::UpsertMerge(_))
}

impl Target<'_> {
    /// Reads the entity of a change: its time of change and its properties.
    pub fn read(&self, texts: &Texts, change: &Change) -> Statement {
        self.placed(texts, self.at(&texts.get, change))
    }

    /// The statement of a change, whose answer [`ticks_of`] reads. `found` is what [`Target::read`] found.
    pub fn write(
        &self,
        texts: &Texts,
        change: &Change,
        found: Option<Found<'_>>,
    ) -> Result<Statement, StoreError> {
        Ok(match &change.kind {
            ChangeKind::Insert(properties) => self.add(&texts.insert, change, properties),
            ChangeKind::UpsertReplace(properties) => self.add(&texts.upsert, change, properties),
            ChangeKind::Replace(properties, IfMatch::Any) => {
                self.placed(texts, self.set(&texts.replace, change, properties))
            }
            ChangeKind::Replace(properties, IfMatch::At(time)) => {
                self.placed(texts, self.set(&texts.replace_at, change, properties).bind(time.ticks()))
            }
            ChangeKind::Delete(IfMatch::Any) => self.placed(texts, self.at(&texts.delete, change)),
            ChangeKind::Delete(IfMatch::At(time)) => {
                self.placed(texts, self.at(&texts.delete_at, change).bind(time.ticks()))
            }
            ChangeKind::Merge(over, if_match) => {
                let found = found.ok_or(StoreError::NoSuchEntity)?;
                if !if_match.is_met_by(timestamp(found.0)?) {
                    return Err(StoreError::Changed);
                }
                self.merge(texts, change, found, over)?
            }
            ChangeKind::UpsertMerge(over) => match found {
                None => self.add(&texts.insert, change, over),
                Some(found) => self.merge(texts, change, found, over)?,
            },
        })
    }

    /// The statements that insert several entities, each with how many they are; none if a change is something else.
    pub fn insert_all(&self, texts: &Texts, changes: &[Change]) -> Option<Vec<(usize, Statement)>> {
        let inserted = |change: &Change| matches!(change.kind, ChangeKind::Insert(_));
        if changes.len() < 2 || !changes.iter().all(inserted) {
            return None;
        }
        let mut statements = Vec::new();
        let mut rest = changes;
        while !rest.is_empty() {
            let fitting = INSERT_ROWS.iter().zip(&texts.insert_rows).find(|(rows, _)| **rows <= rest.len());
            let (rows, text) = fitting.expect("one row always fits");
            let (now, later) = rest.split_at(*rows);
            let shared = Statement::with_room(text.clone(), 4 + 2 * rows);
            let shared = shared.bind(self.dataset).bind(self.partition.as_str()).bind(self.placement);
            let shared = shared.bind(self.now);
            let statement = now.iter().fold(shared, |statement, change| {
                let ChangeKind::Insert(properties) = &change.kind else { unreachable!("all are inserts") };
                statement.bind(change.row.as_str()).bind(stored::write(properties))
            });
            statements.push((*rows, statement));
            rest = later;
        }
        Some(statements)
    }

    fn merge(
        &self,
        texts: &Texts,
        change: &Change,
        (ticks, stored): Found<'_>,
        over: &Properties,
    ) -> Result<Statement, StoreError> {
        let merged = read_properties(stored)?.merged(over);
        merged.check_with(self.partition, &change.row)?;
        Ok(self.placed(texts, self.set(&texts.replace_at, change, &merged).bind(ticks)))
    }

    /// With the placement as the last parameter, where the engine finds rows by it.
    fn placed(&self, texts: &Texts, statement: Statement) -> Statement {
        if texts.by_placement { statement.bind(self.placement) } else { statement }
    }

    fn at(&self, text: &Arc<str>, change: &Change) -> Statement {
        // The most that any of them has.
        self.bind_key(Statement::with_room(text.clone(), 7), change)
    }

    fn add(&self, text: &Arc<str>, change: &Change, properties: &Properties) -> Statement {
        self.bind_new(Statement::with_room(text.clone(), 6), change, properties)
    }

    fn bind_key(&self, statement: Statement, change: &Change) -> Statement {
        statement.bind(self.dataset).bind(self.partition.as_str()).bind(change.row.as_str())
    }

    fn bind_new(&self, statement: Statement, change: &Change, properties: &Properties) -> Statement {
        let statement = self.bind_key(statement, change).bind(self.placement);
        statement.bind(self.now).bind(stored::write(properties))
    }

    fn set(&self, text: &Arc<str>, change: &Change, properties: &Properties) -> Statement {
        self.at(text, change).bind(self.now).bind(stored::write(properties))
    }
}

/// The new time of change, of the answer to the statement of a change made at `now`; none if it found nothing to do.
pub(super) fn ticks_of(rows: &Rows, now: i64) -> Result<Option<i64>, engine::Error> {
    match rows.first() {
        Some(row) => row.int(0).map(Some),
        // An insert has no columns.
        None if rows.columns().is_empty() && rows.affected() == 1 => Ok(Some(now)),
        None => Ok(None),
    }
}

/// Whether what is written is within the limits; what a merge makes of it is checked when it is known.
pub(super) fn check(partition: &PartitionKey, change: &Change) -> Result<(), StoreError> {
    let (ChangeKind::Insert(properties)
    | ChangeKind::Replace(properties, _)
    | ChangeKind::Merge(properties, _)
    | ChangeKind::UpsertReplace(properties)
    | ChangeKind::UpsertMerge(properties)) = &change.kind
    else {
        return Ok(());
    };
    Ok(properties.check_with(partition, &change.row)?)
}

//! Changing an entity inside a caller's own transaction on a shard, with SQL rows and messages of the same
//! shardlet (H2).
//!
//! The caller holds a ticket for the key that [`EntityChange::key`] names, has let the shard know of the table
//! ([`EntityChange::dataset`]), and runs either [`change_entity`] on a transaction of the engine, or the statements of
//! [`EntityChange::read`] and [`EntityChange::write`] on a session of its own. Nothing is there until it commits.

use std::sync::Arc;

use polyshard_azure_storage::Timestamp;
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{self as engine, Dialect, Rows, Statement, Transaction};
use polyshard_map::{Key, Map, MapName};
use polyshard_shard::Dataset;
use polyshard_store::descriptor;

use super::changes::{Change, ChangeKind};
use super::rows::{self, Target};
use super::statements::texts;
use super::{Home, StoreError, TableStore, broken, entities, number, place, timestamp};
use crate::entity::{InputError, PartitionKey, Properties, RowKey};
use crate::etag::IfMatch;
use crate::name::TableName;
use crate::odata::{Draft, write_properties};
use crate::schema::ENTITIES;

/// A change of one entity: checked, placed, and given its time.
#[derive(Clone, Debug)]
pub struct EntityChange {
    record: DatasetRecord,
    key: Key,
    placement: Vec<u8>,
    partition: PartitionKey,
    change: Change,
    now: i64,
}

impl EntityChange {
    /// A change of a table with this record, which this map places; `now` is in ticks of 100 ns since 1970.
    pub fn new(
        record: &DatasetRecord,
        map: &Map,
        partition: PartitionKey,
        change: Change,
        now: i64,
    ) -> Result<EntityChange, StoreError> {
        rows::check(&partition, &change)?;
        let (key, placement) = place(record, map, &partition)?;
        Ok(EntityChange { record: record.clone(), key, placement, partition, change, now })
    }

    /// The map that places it.
    pub fn map(&self) -> &MapName {
        &self.record.map
    }

    /// Its key there: the transaction must be on the shard that owns it.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The placement of its row.
    pub fn placement(&self) -> &[u8] {
        &self.placement
    }

    /// What the shard must know of its table before the first row: `Router::bind`.
    pub fn dataset(&self, dialect: Dialect) -> Dataset {
        descriptor(&self.record, dialect.own_table(ENTITIES))
    }

    /// What must be read before the change is written, if anything: a row of two columns, a bigint and a text, which
    /// are for [`EntityChange::write`], or none. On PostgreSQL the row is locked until the transaction ends.
    pub fn read(&self, dialect: Dialect) -> Option<Statement> {
        let on_condition = matches!(
            self.change.kind,
            ChangeKind::Replace(_, IfMatch::At(_)) | ChangeKind::Delete(IfMatch::At(_))
        );
        if !on_condition && !rows::reads_first(&self.change.kind) {
            return None;
        }
        let read = self.target().read(texts(dialect), &self.change);
        let locking = Statement::new(format!("{}{}", read.text(), dialect.for_update()));
        Some(read.params().iter().cloned().fold(locking, Statement::bind))
    }

    /// The statement that makes the change.
    pub fn write(&self, dialect: Dialect, found: Option<(i64, &str)>) -> Result<Statement, StoreError> {
        if let ChangeKind::Replace(_, if_match @ IfMatch::At(_))
        | ChangeKind::Delete(if_match @ IfMatch::At(_)) = &self.change.kind
        {
            let (ticks, _) = found.ok_or(StoreError::NoSuchEntity)?;
            if !if_match.is_met_by(timestamp(ticks)?) {
                return Err(StoreError::Changed);
            }
        }
        self.target().write(texts(dialect), &self.change, found)
    }

    /// The new time of change, of what the statement of [`EntityChange::write`] answered; the old one, if it deletes.
    pub fn answer(&self, rows: &Rows) -> Result<Timestamp, StoreError> {
        match (rows::ticks_of(rows, self.now).map_err(broken)?, &self.change.kind) {
            (Some(ticks), _) => timestamp(ticks),
            (None, ChangeKind::Insert(_)) => Err(StoreError::EntityExists),
            (None, ChangeKind::Replace(_, IfMatch::Any) | ChangeKind::Delete(IfMatch::Any)) => {
                Err(StoreError::NoSuchEntity)
            }
            // Another one came between reading and writing, which only an insert can.
            (None, _) => Err(StoreError::Contended),
        }
    }

    fn target(&self) -> Target<'_> {
        let (dataset, placement) = (number(self.record.id), &self.placement);
        Target { dataset, placement, partition: &self.partition, now: self.now }
    }
}

/// A question for one entity: placed.
#[derive(Clone, Debug)]
pub struct EntityRead {
    record: Arc<DatasetRecord>,
    key: Key,
    placement: Vec<u8>,
    partition: PartitionKey,
    row: RowKey,
}

impl EntityRead {
    /// The map that places it.
    pub fn map(&self) -> &MapName {
        &self.record.map
    }

    /// Its key there.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// What the shard knows of its table, once it has rows.
    pub fn dataset(&self, dialect: Dialect) -> Dataset {
        descriptor(&self.record, dialect.own_table(ENTITIES))
    }

    /// The statement that reads it.
    pub fn read(&self, dialect: Dialect) -> Statement {
        let texts = texts(dialect);
        let statement = Statement::new(texts.get.clone()).bind(number(self.record.id));
        let statement = statement.bind(self.partition.as_str()).bind(self.row.as_str());
        if texts.by_placement { statement.bind(self.placement.as_slice()) } else { statement }
    }

    /// Its properties as [`read_properties`] reads them, of what the statement of [`EntityRead::read`] answered; none
    /// if there is no such entity.
    pub fn answer(&self, rows: &Rows) -> Result<Option<String>, StoreError> {
        let Some(row) = rows.first() else { return Ok(None) };
        let properties = entities::read_properties(row.text(1).map_err(broken)?)?;
        Ok(Some(write_properties(&properties)))
    }
}

/// Makes a change inside a transaction. An error of the store leaves the transaction as it was; one of the engine
/// ends it.
pub async fn change_entity(
    tx: &mut Transaction,
    dialect: Dialect,
    change: &EntityChange,
) -> Result<Timestamp, StoreError> {
    let failed = |error: engine::Error| broken(error);
    let found = match change.read(dialect) {
        Some(read) => tx.run(read).await.map_err(failed)?.into_iter().next(),
        None => None,
    };
    let found = match &found {
        Some(row) => Some((row.int(0).map_err(failed)?, row.text(1).map_err(failed)?)),
        None => None,
    };
    let rows = tx.run(change.write(dialect, found)?).await.map_err(failed)?;
    change.answer(&rows)
}

/// Inserts an entity or replaces the one that is there, inside a transaction.
pub async fn upsert_entity(
    tx: &mut Transaction,
    dialect: Dialect,
    change: &EntityChange,
) -> Result<Timestamp, StoreError> {
    debug_assert!(matches!(change.change.kind, ChangeKind::UpsertReplace(_) | ChangeKind::UpsertMerge(_)));
    change_entity(tx, dialect, change).await
}

/// The properties of a JSON object as the table protocol writes entities: annotations such as `"a@odata.type"` give
/// types, and keys are not among them.
pub fn read_properties(json: &str) -> Result<Properties, InputError> {
    let draft = Draft::read(json.as_bytes())?;
    match (draft.partition, draft.row) {
        (None, None) => Ok(draft.properties),
        _ => Err(InputError::Unreadable("the keys are given apart from the properties".to_owned())),
    }
}

impl TableStore {
    /// A change of an entity for a transaction of the caller's, with this store's clock.
    pub async fn enlist(
        &self,
        table: &TableName,
        partition: PartitionKey,
        row: RowKey,
        kind: ChangeKind,
    ) -> Result<EntityChange, StoreError> {
        let record = self.record(table).await?;
        let view = self.kit.router().view();
        let known = view.maps.get(&record.map).ok_or_else(|| StoreError::NoMap(record.map.to_string()))?;
        EntityChange::new(&record, &known.map, partition, Change { row, kind }, self.kit.next_ticks())
    }

    /// A question for one entity inside a transaction of the caller's.
    pub async fn enlist_read(
        &self,
        table: &TableName,
        partition: PartitionKey,
        row: RowKey,
    ) -> Result<EntityRead, StoreError> {
        let Home { record, key: [key], placement } = self.home(table, &partition).await?;
        Ok(EntityRead { record, key, placement, partition, row })
    }
}

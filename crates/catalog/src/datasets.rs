//! Datasets: what a store keeps under one name, and the map that places it (C8).

use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_map::{
    Entry, Epoch, HashSpec, Key, KeyError, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme,
    ShardId, State, spread_buckets,
};
use serde::{Deserialize, Serialize};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::driver::Driver;
use crate::sql_catalog::{SqlCatalog, from_json, to_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::Event;

/// Datasets of one cluster: each is a record that every router holds in memory.
pub const DATASETS_MAX: u64 = 100_000;

/// The store under which quotas are listed, so that routers hear of them as they hear of datasets. They place nothing,
/// and go with their map.
pub const QUOTA_STORE: &str = "quota";

/// Which part of an attribute is the key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyPart {
    /// All of it.
    #[default]
    Whole,
    /// What stands before the first of these; all of it where there is none.
    Before(String),
}

/// How an item's key is derived from one of its attributes, such as `PartitionKey` or the name of its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRule {
    /// The attribute, as the store calls it.
    pub attribute: String,
    /// Which part of it.
    #[serde(default)]
    pub part: KeyPart,
}

impl KeyRule {
    /// The key of an item whose attribute has this text.
    pub fn key(&self, key_type: &KeyType, text: &str) -> Result<Key, KeyError> {
        let part = match &self.part {
            KeyPart::Whole => text,
            KeyPart::Before(separator) => {
                text.split_once(separator.as_str()).map_or(text, |(before, _)| before)
            }
        };
        key_type.parse(part)
    }
}

/// A dataset as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// A short name for rows, never given twice.
    pub id: u64,
    /// The store it belongs to: `table`, `queue` …
    pub store: String,
    /// Its name there.
    pub name: String,
    /// The map that places it.
    pub map: MapName,
    /// How its items' keys are derived.
    pub rule: KeyRule,
    /// What the store keeps about it.
    pub body: serde_json::Value,
    /// Grows with every change of this record.
    pub version: u64,
}

impl DatasetRecord {
    /// What shards call it. With its number: one that was deleted and made again is another one to them.
    pub fn name_on_shards(&self) -> String {
        format!("{}:{} ({})", self.store, self.name, self.id)
    }

    /// Store, name and number of what shards call so; none if it is no name of theirs.
    pub fn parts_on_shards(name: &str) -> Option<(&str, &str, u64)> {
        let (store, rest) = name.split_once(':')?;
        let (name, number) = rest.strip_suffix(')')?.rsplit_once(" (")?;
        Some((store, name, number.parse().ok()?))
    }
}

/// How often and how long a map that another process is creating is waited for.
const MAP_LOOKS: (u32, Duration) = (100, Duration::from_millis(50));

/// How a store's own map is made, which its datasets are placed by unless they are bound to another one. Keys are
/// texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapScheme {
    /// By hash: spread over all shards that are online.
    HashOfText,
    /// In the order of the texts: one range on one shard, to be split when it grows.
    RangeOfText,
}

impl MapScheme {
    /// A new map of this kind over some shards.
    fn build(self, name: &MapName, online: &[ShardId]) -> Reply<(MapDefinition, Vec<Entry>)> {
        let wrong = |error: &dyn std::fmt::Display| CatalogError::NoRoomForMap {
            map: name.clone(),
            why: error.to_string(),
        };
        let (scheme, entries) = match self {
            MapScheme::HashOfText => {
                let hash = HashSpec::standard();
                let entries = spread_buckets(&hash, online).map_err(|error| wrong(&error))?;
                (Scheme::Hash(hash), entries)
            }
            MapScheme::RangeOfText => {
                let first = online.first().ok_or_else(|| wrong(&"no shard is online"))?;
                (Scheme::Range, vec![NewEntry::new(KeyRange::all(), first.clone())])
            }
        };
        let definition = MapDefinition::new(name.clone(), KeyType::Text, scheme);
        let definition = definition.map_err(|error| wrong(&error))?;
        Ok((definition, entries.into_iter().map(|entry| entry.at(Epoch::ZERO)).collect()))
    }
}

impl Driver {
    /// Sees that a map of this name is there: what a store places its datasets by, unless they are bound to another
    /// one.
    pub async fn ensure_own_map(&self, name: &MapName, scheme: MapScheme) -> Reply<()> {
        for _ in 0..MAP_LOOKS.0 {
            match self.catalog().map(name).await {
                Ok(_) => return Ok(()),
                Err(CatalogError::NoSuchMap(_)) => {}
                Err(error) => return Err(error),
            }
            let shards = self.catalog().shards().await?;
            let online: Vec<ShardId> = shards
                .into_iter()
                .filter(|shard| shard.state == State::Online)
                .map(|shard| shard.id)
                .collect();
            let (definition, entries) = scheme.build(name, &online)?;
            match self.create_map(&definition, entries).await {
                Ok(_) => return Ok(()),
                // Somebody else creates it: it is there soon, or its remains are cleared away.
                Err(CatalogError::Exists(_)) => tokio::time::sleep(MAP_LOOKS.1).await,
                Err(error) => return Err(error),
            }
        }
        Err(CatalogError::NoSuchMap(name.clone()))
    }

    /// Creates a dataset on the map that its name is bound to, or else on a store's own map, which is made when the
    /// first one needs it.
    pub async fn create_dataset_on_own_map(
        &self,
        store: &str,
        name: &str,
        (map, scheme): (&MapName, MapScheme),
        rule: KeyRule,
        body: serde_json::Value,
    ) -> Reply<DatasetRecord> {
        match self.create_dataset(store, name, map, rule.clone(), body.clone()).await {
            Err(CatalogError::NoSuchMap(_)) => {
                self.ensure_own_map(map, scheme).await?;
                self.create_dataset(store, name, map, rule, body).await
            }
            other => other,
        }
    }

    /// Creates a dataset; its map must exist. A name that is bound has the map and rule that it is bound to.
    pub async fn create_dataset(
        &self,
        store: &str,
        name: &str,
        map: &MapName,
        rule: KeyRule,
        body: serde_json::Value,
    ) -> Reply<DatasetRecord> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        if tx.dataset(store, name).await?.is_some() {
            return Err(CatalogError::Exists(format!("{store} {name}")));
        }
        let bound = tx.binding_for(store, name).await?;
        let (map, rule) = bound.as_ref().map_or((map, rule), |bound| (&bound.map, bound.rule.clone()));
        if tx.map(map).await?.is_none_or(|record| !record.live) {
            return Err(CatalogError::NoSuchMap(map.clone()));
        }
        let id = tx.next_dataset().await?;
        let (store, name, map) = (store.to_owned(), name.to_owned(), map.clone());
        let record = DatasetRecord { id, store, name, map, rule, body, version: 1 };
        tx.save_dataset(&record).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Changes what a store keeps about a dataset. `change` may refuse.
    pub async fn update_dataset<E: From<CatalogError>>(
        &self,
        store: &str,
        name: &str,
        change: impl FnOnce(&mut serde_json::Value) -> Result<(), E>,
    ) -> Result<DatasetRecord, E> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let missing = || CatalogError::NoSuchDataset(format!("{store} {name}"));
        let mut record = tx.dataset(store, name).await?.ok_or_else(missing)?;
        change(&mut record.body)?;
        record.version += 1;
        tx.save_dataset(&record).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Forgets a dataset. Its rows are the store's to remove.
    pub async fn delete_dataset(&self, store: &str, name: &str) -> Reply<DatasetRecord> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let missing = || CatalogError::NoSuchDataset(format!("{store} {name}"));
        let record = tx.dataset(store, name).await?.ok_or_else(missing)?;
        tx.forget_dataset(store, name).await?;
        tx.commit().await?;
        Ok(record)
    }
}

impl Catalog {
    /// All datasets.
    pub async fn datasets(&self) -> Reply<Vec<DatasetRecord>> {
        let db = self.db().await?;
        let sql =
            format!("SELECT record FROM {} ORDER BY store, name", db.dialect().own_table("dataset_list"));
        let rows = db.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| from_json("dataset", row.text(0)?)).collect()
    }
}

impl SqlCatalog {
    pub(crate) async fn dataset(&mut self, store: &str, name: &str) -> Reply<Option<DatasetRecord>> {
        let sql = format!("SELECT record FROM {} WHERE store = $1 AND name = $2", self.own("dataset_list"));
        let rows = self.rows(Statement::new(sql).bind(store.to_owned()).bind(name.to_owned())).await?;
        rows.first().map(|row| from_json("dataset", row.text(0)?)).transpose()
    }

    /// Writes a record, and tells the routers.
    pub(crate) async fn save_dataset(&mut self, record: &DatasetRecord) -> Reply<()> {
        self.put_dataset(record).await?;
        self.publish(&Event::Dataset { record: record.clone() }).await
    }

    /// Removes a record, and tells the routers.
    pub(crate) async fn forget_dataset(&mut self, store: &str, name: &str) -> Reply<()> {
        self.delete_dataset(store, name).await?;
        self.publish(&Event::DatasetGone { store: store.to_owned(), name: name.to_owned() }).await
    }

    /// A map's quotas go with it: a new one of its name begins without.
    pub(crate) async fn forget_quotas(&mut self, map: &MapName) -> Reply<()> {
        let sql = format!("SELECT record FROM {} WHERE store = $1", self.own("dataset_list"));
        let rows = self.rows(Statement::new(sql).bind(QUOTA_STORE.to_owned())).await?;
        for row in &rows {
            let record: DatasetRecord = from_json("dataset", row.text(0)?)?;
            if record.map == *map {
                self.forget_dataset(QUOTA_STORE, &record.name).await?;
            }
        }
        Ok(())
    }

    async fn put_dataset(&mut self, record: &DatasetRecord) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (store, name, id, record) VALUES ($1, $2, $3, $4) \
             ON CONFLICT (store, name) DO UPDATE SET id = excluded.id, record = excluded.record",
            self.own("dataset_list")
        );
        let statement = Statement::new(sql)
            .bind(record.store.clone())
            .bind(record.name.clone())
            .bind(record.id as i64)
            .bind(to_json(record));
        self.done(statement).await
    }

    async fn delete_dataset(&mut self, store: &str, name: &str) -> Reply<()> {
        let sql = format!("DELETE FROM {} WHERE store = $1 AND name = $2", self.own("dataset_list"));
        self.done(Statement::new(sql).bind(store.to_owned()).bind(name.to_owned())).await
    }

    /// How many records a store has.
    pub(crate) async fn count_datasets(&mut self, store: &str) -> Reply<usize> {
        let sql = format!("SELECT count(*) FROM {} WHERE store = $1", self.own("dataset_list"));
        let rows = self.rows(Statement::new(sql).bind(store.to_owned())).await?;
        let count = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The next short name; refused when there are too many datasets.
    pub(crate) async fn next_dataset(&mut self) -> Reply<u64> {
        let rows =
            self.rows(Statement::new(format!("SELECT count(*) FROM {}", self.own("dataset_list")))).await?;
        let count = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or(0) as u64;
        if count >= DATASETS_MAX {
            return Err(CatalogError::TooMany(format!(
                "there are {count} datasets already, and {DATASETS_MAX} is the limit; delete some first"
            )));
        }
        let sql = format!("UPDATE {} SET dataset = dataset + 1 RETURNING dataset", self.own("cluster"));
        let rows = self.rows(Statement::new(sql)).await?;
        let row =
            rows.first().ok_or(CatalogError::Damaged { what: "cluster row", detail: "missing".into() })?;
        Ok(row.int(0)? as u64)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_shards_call_a_dataset_is_read_back() {
        let name = super::DatasetRecord::parts_on_shards;
        assert_eq!(name("queue:acct/jobs (7)"), Some(("queue", "acct/jobs", 7)));
        assert_eq!(name("sql:public.odd (1) name (12)"), Some(("sql", "public.odd (1) name", 12)));
        assert_eq!((name("polyshard.queue_message"), name("sql:t"), name("sql:t (x)")), (None, None, None));
    }

    use super::*;

    #[test]
    fn a_rule_takes_the_part_before_the_first_separator() {
        let rule = |part| KeyRule { attribute: "PartitionKey".into(), part };
        let before = rule(KeyPart::Before("-".into()));
        assert_eq!(before.key(&KeyType::BigInt, "42-orders-7"), Ok(Key::BigInt(42)));
        assert_eq!(before.key(&KeyType::BigInt, "42"), Ok(Key::BigInt(42)));
        assert_eq!(rule(KeyPart::Whole).key(&KeyType::Text, "a-b"), Ok(Key::Text("a-b".into())));
        assert!(before.key(&KeyType::BigInt, "x-1").is_err());
    }
}

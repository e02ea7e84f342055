//! Short forms for what the tests do again and again.

use polyshard_azure_storage::Timestamp;
use polyshard_engine::Statement;
use polyshard_map::ShardId;
use polyshard_store_table::{
    Change, ChangeKind, EdmValue, Entity, EntityKey, Filter, IfMatch, Page, PartitionKey, Properties, Query,
    RowKey, StoreError, TableName,
};

use crate::Cluster;

pub fn table(name: &str) -> TableName {
    TableName::new("acct", name).unwrap()
}

pub fn properties(list: &[(&str, EdmValue)]) -> Properties {
    Properties::new(list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()).unwrap()
}

pub fn number(name: &str, value: i32) -> Properties {
    properties(&[(name, EdmValue::Int32(value))])
}

pub fn change(row: &str, kind: ChangeKind) -> Change {
    Change { row: RowKey::new(row).unwrap(), kind }
}

impl Cluster {
    /// Changes one partition of table `orders`.
    pub async fn change(
        &self,
        partition: &str,
        changes: Vec<Change>,
    ) -> Result<Vec<Timestamp>, (usize, StoreError)> {
        let partition = PartitionKey::new(partition).unwrap();
        self.store.change(&table("orders"), &partition, changes).await
    }

    pub async fn one(&self, key: (&str, &str), kind: ChangeKind) -> Result<Timestamp, StoreError> {
        let changed = self.change(key.0, vec![change(key.1, kind)]).await;
        changed.map(|times| times[0]).map_err(|(_, error)| error)
    }

    pub async fn put(&self, key: (&str, &str), value: i32) -> Timestamp {
        self.one(key, ChangeKind::UpsertReplace(number("n", value))).await.unwrap()
    }

    pub async fn get(&self, key: (&str, &str)) -> Result<Entity, StoreError> {
        self.store.get(&table("orders"), &EntityKey::new(key.0, key.1).unwrap()).await
    }

    pub async fn page(&self, filter: &str, after: Option<(String, String)>, top: usize) -> Page {
        let filter = (!filter.is_empty()).then(|| Filter::parse(filter).unwrap().into());
        self.store.query(&table("orders"), &Query { filter, after, top: Some(top) }).await.unwrap()
    }

    /// All that a filter lets through, page by page, as `partition/row`.
    pub async fn all(&self, filter: &str, top: usize) -> Vec<String> {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = self.page(filter, after, top).await;
            assert!(page.entities.len() <= top);
            keys.extend(page.entities.iter().map(key));
            match page.next {
                Some(next) => after = Some(next),
                None => return keys,
            }
        }
    }

    /// Rows of entities on a shard, whoever owns them.
    pub async fn rows_on(&self, shard: &str) -> i64 {
        let opened = self.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let sql = format!("SELECT count(*) FROM {}", opened.dialect().own_table("entity"));
        let count = tx.run(Statement::new(sql)).await.unwrap().one().unwrap().int(0).unwrap();
        tx.rollback().await.unwrap();
        count
    }
}

pub fn key(entity: &Entity) -> String {
    format!("{}/{}", entity.key.partition.as_str(), entity.key.row.as_str())
}

pub fn insert(value: i32) -> ChangeKind {
    ChangeKind::Insert(number("n", value))
}

pub fn merge(name: &str, value: i32) -> ChangeKind {
    ChangeKind::Merge(number(name, value), IfMatch::Any)
}

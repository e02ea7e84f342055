//! Entities changed inside a caller's own transaction (H2).

use polyshard_azure_storage::Timestamp;
use polyshard_engine::Statement;
use polyshard_router::{Access, Ticket};
use polyshard_store_table::transact::{EntityChange, change_entity, read_properties, upsert_entity};
use polyshard_store_table::{ChangeKind, EdmValue, IfMatch, PartitionKey, RowKey, StoreError};

use crate::Cluster;
use crate::place::Place;
use crate::tools::{insert, merge, number, table};

on_both_engines! {
    changes_are_there_when_the_transaction_commits
    conditions_hold_inside_a_transaction
}

impl Cluster {
    async fn enlisted(&self, row: &str, kind: ChangeKind) -> EntityChange {
        let (partition, row) = (PartitionKey::new("p").unwrap(), RowKey::new(row).unwrap());
        self.store.enlist(&table("orders"), partition, row, kind).await.unwrap()
    }

    async fn ticket(&self, change: &EntityChange) -> Ticket {
        let ticket = self.router.enter(change.map(), &[change.key().clone()], Access::Write).await.unwrap();
        assert!(ticket.ranges().iter().any(|range| range.contains(change.placement())));
        self.router.bind(&ticket, &change.dataset(ticket.dialect())).await.unwrap();
        ticket
    }

    /// One change in a transaction of its own.
    async fn transacted(&self, row: &str, kind: ChangeKind) -> Result<Timestamp, StoreError> {
        let change = self.enlisted(row, kind).await;
        let ticket = self.ticket(&change).await;
        let mut tx = ticket.begin().await.unwrap();
        let time = change_entity(&mut tx, ticket.dialect(), &change).await?;
        tx.commit().await.unwrap();
        Ok(time)
    }
}

async fn changes_are_there_when_the_transaction_commits(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    for (row, commits) in [("undone", false), ("done", true)] {
        let upsert = cluster.enlisted(row, ChangeKind::UpsertReplace(number("n", 1))).await;
        let over = cluster.enlisted(row, ChangeKind::UpsertMerge(number("m", 2))).await;
        let ticket = cluster.ticket(&upsert).await;
        let mut tx = ticket.begin().await.unwrap();
        tx.run(Statement::new("CREATE TABLE IF NOT EXISTS ledger (id bigint)")).await.unwrap();
        tx.run(Statement::new("INSERT INTO ledger VALUES ($1)").bind(7)).await.unwrap();
        let first = upsert_entity(&mut tx, ticket.dialect(), &upsert).await.unwrap();
        // It sees what was written before in the same transaction.
        let second = upsert_entity(&mut tx, ticket.dialect(), &over).await.unwrap();
        assert!(second > first);
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        drop(ticket);
        match (commits, cluster.get(("p", row)).await) {
            (true, Ok(entity)) => {
                assert_eq!(entity.timestamp, second);
                assert_eq!(entity.properties.get("n"), Some(&EdmValue::Int32(1)));
                assert_eq!(entity.properties.get("m"), Some(&EdmValue::Int32(2)));
            }
            (false, Err(StoreError::NoSuchEntity)) => {}
            other => panic!("{other:?}"),
        }
    }
    let properties = read_properties("{\"a\": 1, \"b@odata.type\": \"Edm.Int64\", \"b\": \"5\"}").unwrap();
    assert_eq!(properties.get("b"), Some(&EdmValue::Int64(5)));
    assert!(read_properties("{\"PartitionKey\": \"p\"}").is_err());
    assert!(read_properties("[]").is_err());
    cluster.close().await;
}

async fn conditions_hold_inside_a_transaction(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let first = cluster.transacted("r", insert(1)).await.unwrap();
    assert!(matches!(cluster.transacted("r", insert(2)).await, Err(StoreError::EntityExists)));
    let replace = |value, if_match| ChangeKind::Replace(number("n", value), if_match);
    let second = cluster.transacted("r", replace(2, IfMatch::At(first))).await.unwrap();
    assert!(matches!(
        cluster.transacted("r", replace(3, IfMatch::At(first))).await,
        Err(StoreError::Changed)
    ));
    let deleted = cluster.transacted("r", ChangeKind::Delete(IfMatch::At(first))).await;
    assert!(matches!(deleted, Err(StoreError::Changed)));
    cluster.transacted("r", merge("m", 1)).await.unwrap();
    let stale = ChangeKind::Merge(number("m", 9), IfMatch::At(second));
    assert!(matches!(cluster.transacted("r", stale).await, Err(StoreError::Changed)));
    assert_eq!(cluster.get(("p", "r")).await.unwrap().properties.get("n"), Some(&EdmValue::Int32(2)));
    cluster.transacted("r", ChangeKind::Delete(IfMatch::Any)).await.unwrap();
    for kind in [
        merge("m", 1),
        replace(1, IfMatch::Any),
        replace(1, IfMatch::At(first)),
        ChangeKind::Delete(IfMatch::Any),
    ] {
        assert!(matches!(cluster.transacted("r", kind).await, Err(StoreError::NoSuchEntity)));
    }
    cluster.close().await;
}

/// E3: what a killed process left undecided, or another one has open, is in nobody's way who starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_starts_while_a_transaction_is_open() {
    let place = Place::postgres();
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    cluster.put(("p", "before"), 1).await;
    let change = cluster.enlisted("open", insert(1)).await;
    let ticket = cluster.ticket(&change).await;
    let mut tx = ticket.begin().await.unwrap();
    change_entity(&mut tx, ticket.dialect(), &change).await.unwrap();
    let another = place.open().await;
    assert_eq!(another.get(("p", "before")).await.unwrap().properties, number("n", 1));
    another.put(("p", "after"), 2).await;
    tx.commit().await.unwrap();
    drop(ticket);
    assert_eq!(another.all("", 10).await, ["p/after", "p/before", "p/open"]);
    another.close().await;
    cluster.close().await;
}

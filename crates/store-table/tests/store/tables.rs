//! Tables are made, listed and deleted, and leave nothing behind.

use std::time::Duration;

use polyshard_azure_storage::PropertiesPatch;
use polyshard_catalog::{KeyPart, KeyRule};
use polyshard_map::{Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId};
use polyshard_store_table::{
    ChangeKind, DEFAULT_MAP, Filter, IfMatch, Policy, STORE, StoreError, default_rule,
};
use serde_json::json;

use crate::place::Place;
use crate::tools::{insert, merge, number, table};

on_both_engines! {
    tables_are_made_listed_and_deleted
    a_deleted_table_leaves_no_entity_behind
    what_is_kept_about_tables_and_accounts_is_found_again
    a_table_bound_to_a_map_of_tenants_lies_with_them
    changes_of_what_is_not_there_leave_a_table_unused
}

/// Longer than anything here takes on a busy machine; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn tables_are_made_listed_and_deleted(place: Place) {
    let cluster = place.open().await;
    let store = &cluster.store;
    for name in ["Orders", "apples", "Bananas", "cherries"] {
        store.create_table(&table(name)).await.unwrap();
    }
    assert!(matches!(store.create_table(&table("ORDERS")).await, Err(StoreError::TableExists(_))));
    assert_eq!(store.table(&table("orders")).await.unwrap(), "Orders");
    let listed = store.list_tables("acct", None, None, 1000).await.unwrap();
    assert_eq!(listed.names, ["apples", "Bananas", "cherries", "Orders"]);
    assert_eq!(listed.next, None);
    let first = store.list_tables("acct", None, None, 3).await.unwrap();
    assert_eq!(first.names, ["apples", "Bananas", "cherries"]);
    let rest = store.list_tables("acct", None, first.next.as_deref(), 3).await.unwrap();
    assert_eq!(rest.names, ["Orders"]);
    let filter = Filter::parse("TableName ge 'a' and TableName lt 'b'").unwrap();
    let some = store.list_tables("acct", Some(&filter), None, 1000).await.unwrap();
    assert_eq!(some.names, ["apples"]);
    assert!(store.list_tables("acc", None, None, 10).await.unwrap().names.is_empty());
    store.delete_table(&table("Apples")).await.unwrap();
    assert!(matches!(store.delete_table(&table("apples")).await, Err(StoreError::NoSuchTable(_))));
    assert!(matches!(store.table(&table("apples")).await, Err(StoreError::NoSuchTable(_))));
    cluster.close().await;
}

async fn a_deleted_table_leaves_no_entity_behind(place: Place) {
    let cluster = place.open().await;
    let orders = table("orders");
    cluster.store.create_table(&orders).await.unwrap();
    for n in 0..60 {
        cluster.put((&format!("p{n}"), "r"), n).await;
    }
    cluster.store.delete_table(&orders).await.unwrap();
    assert!(matches!(cluster.get(("p1", "r")).await, Err(StoreError::NoSuchTable(_))));
    cluster.store.create_table(&orders).await.unwrap();
    assert!(cluster.all("", 1000).await.is_empty());
    cluster.put(("p1", "new"), 1).await;
    let sweeper = cluster.store.keep_tidy();
    let gone = async {
        loop {
            let mut rows = 0;
            for shard in ["s1", "s2", "s3"] {
                rows += cluster.rows_on(shard).await;
            }
            if rows == 1 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the entities of the old table are removed");
    sweeper.stop().await;
    assert_eq!(cluster.all("", 1000).await, ["p1/new"]);
    cluster.close().await;
}

const HOUR_METRICS: &str = "<HourMetrics><Version>1.0</Version><Enabled>false</Enabled>\
                            <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>";

fn patch(xml: &str) -> PropertiesPatch {
    let body = format!("<StorageServiceProperties>{xml}</StorageServiceProperties>");
    PropertiesPatch::parse(body.as_bytes()).unwrap()
}

async fn what_is_kept_about_tables_and_accounts_is_found_again(place: Place) {
    let cluster = place.open().await;
    let (store, orders) = (cluster.store.clone(), table("orders"));
    let policy = Policy { id: "read".into(), start: None, expiry: Some(5), permission: Some("r".into()) };
    let none = store.set_policies(&orders, vec![policy.clone()]).await;
    assert!(matches!(none, Err(StoreError::NoSuchTable(_))));
    store.create_table(&orders).await.unwrap();
    store.set_policies(&orders, vec![policy.clone()]).await.unwrap();
    // An earlier program kept properties beside the tables.
    let metrics = json!({"enabled": true, "include_apis": null, "retention": {"days": 3}});
    let stored = json!({"format": 1, "properties": {
        "logging": {"delete": false, "read": true, "write": false, "retention": {"days": null}},
        "hour_metrics": metrics, "minute_metrics": metrics, "cors": []}});
    let (map, rule) = (MapName::new(DEFAULT_MAP).unwrap(), default_rule());
    cluster.driver.create_dataset(STORE.id, "acct/$service", &map, rule, stored).await.unwrap();
    cluster.router.refresh().await.unwrap();
    assert!(store.properties("acct").unwrap().logging.read);
    assert_eq!(store.list_tables("acct", None, None, 10).await.unwrap().names, ["orders"]);
    // Two that change different parts at once both have their way.
    let (one, two) = tokio::join!(
        store.set_properties("acct", patch("<Cors/>")),
        store.set_properties("acct", patch(HOUR_METRICS)),
    );
    one.and(two).unwrap();
    cluster.close().await;
    let cluster = place.open().await;
    assert_eq!(cluster.store.policies(&orders).await.unwrap(), [policy]);
    let kept = cluster.store.properties("acct").unwrap();
    assert!(kept.logging.read && !kept.hour_metrics.enabled && kept.minute_metrics.enabled, "{kept:?}");
    assert_eq!(cluster.router.view().datasets_of(STORE.id).count(), 1, "the old record is gone");
    assert_eq!(cluster.store.list_tables("acct", None, None, 10).await.unwrap().names, ["orders"]);
    cluster.close().await;
}

async fn a_table_bound_to_a_map_of_tenants_lies_with_them(place: Place) {
    let cluster = place.open().await;
    let tenants = MapName::new("tenants").unwrap();
    let map = MapDefinition::new(tenants.clone(), KeyType::BigInt, Scheme::Range).unwrap();
    let bound = |tenant| KeyType::BigInt.encode_bound(&Key::BigInt(tenant)).unwrap();
    let entry = |from, to, shard| {
        let range = KeyRange::new(bound(from), Some(bound(to))).unwrap();
        NewEntry::new(range, ShardId::new(shard).unwrap()).at(Epoch::ZERO)
    };
    cluster.driver.create_map(&map, vec![entry(0, 10, "s2"), entry(10, 20, "s3")]).await.unwrap();
    let rule = KeyRule { attribute: "PartitionKey".into(), part: KeyPart::Before("-".into()) };
    let body = serde_json::json!({"format": 1, "name": "orders"});
    cluster.driver.create_dataset(STORE.id, "acct/orders", &tenants, rule, body).await.unwrap();
    for partition in ["7-a", "7-b", "7", "12-a"] {
        cluster.one((partition, "r"), insert(1)).await.unwrap();
    }
    assert_eq!((cluster.rows_on("s2").await, cluster.rows_on("s3").await), (3, 1));
    assert_eq!(cluster.all("", 2).await, ["12-a/r", "7/r", "7-a/r", "7-b/r"]);
    assert_eq!(cluster.all("PartitionKey eq '7-b'", 2).await, ["7-b/r"]);
    // What is no tenant has no place: nothing is there, and nothing can be put there.
    assert!(matches!(cluster.one(("x-a", "r"), insert(1)).await, Err(StoreError::Misplaced { .. })));
    assert!(cluster.all("PartitionKey eq 'x-a'", 2).await.is_empty());
    assert!(cluster.one(("99-a", "r"), insert(1)).await.is_err());
    cluster.close().await;
}

/// C8: such a table has never had an entity, and can still be bound.
async fn changes_of_what_is_not_there_leave_a_table_unused(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    for kind in
        [ChangeKind::Delete(IfMatch::Any), ChangeKind::Replace(number("n", 1), IfMatch::Any), merge("n", 1)]
    {
        let failed = cluster.one(("p", "r"), kind).await;
        assert!(matches!(failed, Err(StoreError::NoSuchEntity)), "{failed:?}");
    }
    let known = async || {
        let mut known = 0;
        for shard in ["s1", "s2", "s3"] {
            let opened = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            let map = MapName::new(polyshard_store_table::DEFAULT_MAP).unwrap();
            known += opened.datasets(&map).await.unwrap().len();
        }
        known
    };
    assert_eq!(known().await, 0);
    cluster.one(("p", "r"), ChangeKind::UpsertMerge(number("n", 1))).await.unwrap();
    assert_eq!(known().await, 1);
    cluster.close().await;
}

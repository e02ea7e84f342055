//! Queues bound to a map of the operator's own (C8, H1).

use std::time::Duration;

use polyshard_catalog::{Binding, CatalogError, KeyPart, KeyRule};
use polyshard_engine as engine;
use polyshard_map::{Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId};
use polyshard_router::Access;
use polyshard_shard::{Dataset, ShardError};
use polyshard_store_queue::{Created, Message, Metadata, NewMessage, QueueName, STORE, StoreError, Ttl};

use crate::Cluster;
use crate::clock::HandClock;
use crate::place::Place;

on_both_engines! {
    a_bound_name_is_placed_by_its_map
    only_a_queue_that_never_had_a_message_can_be_bound
    a_binding_that_is_refused_leaves_the_one_before_it
    a_family_is_bound_once_for_all_its_names
    a_binding_left_unfinished_is_finished
}

fn queue(name: &str) -> QueueName {
    QueueName::new("acct", name).unwrap()
}

fn text(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned(), invisible_ms: 0, ttl: Ttl::Never }
}

fn binding(name: &str) -> Binding {
    Binding {
        store: STORE.id.to_owned(),
        name: format!("acct/{name}"),
        map: MapName::new("tenants").unwrap(),
        rule: KeyRule { attribute: "name".to_owned(), part: KeyPart::Before("-".to_owned()) },
    }
}

/// A cluster with a map of tenants: those below 10 on s2, the others up to 20 on s3.
async fn open(place: &Place) -> Cluster {
    let cluster: Cluster = place.open_at(HandClock::new().clock()).await;
    let tenants = MapName::new("tenants").unwrap();
    let map = MapDefinition::new(tenants, KeyType::BigInt, Scheme::Range).unwrap();
    let bound = |tenant| KeyType::BigInt.encode_bound(&Key::BigInt(tenant)).unwrap();
    let entry = |from, to, shard| {
        let range = KeyRange::new(bound(from), Some(bound(to))).unwrap();
        NewEntry::new(range, ShardId::new(shard).unwrap()).at(Epoch::ZERO)
    };
    cluster.driver.create_map(&map, vec![entry(0, 10, "s2"), entry(10, 20, "s3")]).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster
}

async fn rows_on(cluster: &Cluster, shard: &str) -> i64 {
    let (map, shard) = (MapName::new("tenants").unwrap(), ShardId::new(shard).unwrap());
    let ticket = cluster.router.enter_shard(&map, &KeyRange::all(), &shard, Access::Read).await.unwrap();
    let sql = format!("SELECT count(*) FROM {}", ticket.dialect().own_table("queue_message"));
    ticket.read(engine::Statement::new(sql)).await.unwrap().one().unwrap().int(0).unwrap()
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body.as_str()).collect()
}

async fn a_bound_name_is_placed_by_its_map(place: Place) {
    let cluster = open(&place).await;
    let (store, jobs) = (&cluster.store, queue("12-jobs"));
    // Before it exists, while it exists, and when it is deleted and made again.
    cluster.driver.bind_dataset(&binding("12-jobs")).await.unwrap();
    assert_eq!(store.create(&jobs, Metadata::new()).await.unwrap(), Created::New);
    store.put(&jobs, text("a")).await.unwrap();
    assert_eq!(rows_on(&cluster, "s3").await, 1);
    cluster.driver.bind_dataset(&binding("12-jobs")).await.unwrap();
    store.delete(&jobs).await.unwrap();
    store.sweep().await;
    store.create(&jobs, Metadata::new()).await.unwrap();
    store.put(&jobs, text("b")).await.unwrap();
    assert_eq!(bodies(&store.peek(&jobs, 2).await.unwrap()), ["b"]);
    assert_eq!(rows_on(&cluster, "s3").await, 1);

    // Unbound, the next one of this name has the store's own map; the one that is there stays.
    cluster.driver.unbind_dataset(STORE.id, jobs.dataset()).await.unwrap();
    let again = cluster.driver.unbind_dataset(STORE.id, jobs.dataset()).await;
    assert!(matches!(again, Err(CatalogError::NoSuchDataset(_))), "{again:?}");
    assert_eq!(bodies(&store.peek(&jobs, 2).await.unwrap()), ["b"]);
    store.delete(&jobs).await.unwrap();
    store.create(&jobs, Metadata::new()).await.unwrap();
    let record = cluster.router.dataset(STORE.id, jobs.dataset()).await.unwrap().unwrap();
    assert_eq!(record.map.as_str(), "queues");

    // A name that the map has no key for has no place, and who makes the queue is told.
    cluster.driver.bind_dataset(&binding("nobody")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let refused = store.create(&queue("nobody"), Metadata::new()).await;
    assert!(matches!(refused, Err(StoreError::Misplaced { .. })), "{refused:?}");
    assert!(matches!(store.metadata(&queue("nobody")).await, Err(StoreError::NoSuchQueue(_))));
    // A map that something is bound to stays.
    let dropped = cluster.driver.drop_map(&MapName::new("tenants").unwrap(), None, true).await;
    assert!(matches!(dropped, Err(CatalogError::HoldsData { .. })), "{dropped:?}");
    cluster.close().await;
}

async fn only_a_queue_that_never_had_a_message_can_be_bound(place: Place) {
    let cluster = open(&place).await;
    let (store, fresh, used) = (&cluster.store, queue("7-fresh"), queue("7-used"));
    store.create(&fresh, vec![("owner".to_owned(), "me".to_owned())]).await.unwrap();
    store.create(&used, Metadata::new()).await.unwrap();
    store.put(&used, text("kept")).await.unwrap();

    let refused = cluster.driver.bind_dataset(&binding("7-used")).await.unwrap_err();
    assert!(matches!(refused, CatalogError::HoldsData { .. }), "{refused}");
    // Nothing of the attempt is left: no binding, and the queue works.
    let forgotten = cluster.driver.unbind_dataset(STORE.id, used.dataset()).await;
    assert!(matches!(forgotten, Err(CatalogError::NoSuchDataset(_))), "{forgotten:?}");
    store.put(&used, text("more")).await.unwrap();
    assert_eq!(bodies(&store.peek(&used, 3).await.unwrap()), ["kept", "more"]);

    let old = cluster.router.dataset(STORE.id, fresh.dataset()).await.unwrap().unwrap();
    cluster.driver.bind_dataset(&binding("7-fresh")).await.unwrap();
    // A process that has not heard of it would have to do this before its first message.
    let s1 = cluster.router.administer(&ShardId::new("s1").unwrap()).await.unwrap();
    let stale = Dataset {
        name: old.name_on_shards(),
        map: old.map.clone(),
        table: s1.dialect().own_table("queue_message"),
        placement: polyshard_shard::Placement::Column("placement".to_owned()),
        rows: polyshard_shard::TableRows::Numbered {
            column: "dataset".to_owned(),
            number: i64::try_from(old.id).unwrap(),
        },
    };
    let refused = s1.bind(&stale).await;
    assert!(
        matches!(refused, Err(ShardError::Engine(engine::Error::Unavailable { .. }))),
        "the old number is closed: {refused:?}"
    );
    cluster.router.refresh().await.unwrap();
    let before = rows_on(&cluster, "s2").await;
    store.put(&fresh, text("a")).await.unwrap();
    assert_eq!(rows_on(&cluster, "s2").await, before + 1);
    assert_eq!(store.metadata(&fresh).await.unwrap(), [("owner".to_owned(), "me".to_owned())]);

    let nowhere = Binding { map: MapName::new("nowhere").unwrap(), ..binding("7-new") };
    let refused = cluster.driver.bind_dataset(&nowhere).await;
    assert!(matches!(refused, Err(CatalogError::NoSuchMap(_))), "{refused:?}");
    cluster.close().await;
}

/// A refusal changes nothing: neither where the queue is nor what its name is bound to.
async fn a_binding_that_is_refused_leaves_the_one_before_it(place: Place) {
    let cluster = open(&place).await;
    let (store, jobs) = (&cluster.store, queue("7-jobs"));
    cluster.driver.bind_dataset(&binding("7-jobs")).await.unwrap();
    store.create(&jobs, Metadata::new()).await.unwrap();
    store.put(&jobs, text("a")).await.unwrap();
    let elsewhere = Binding { map: MapName::new("queues").unwrap(), ..binding("7-jobs") };
    for _ in 0..2 {
        let refused = cluster.driver.bind_dataset(&elsewhere).await;
        assert!(matches!(refused, Err(CatalogError::HoldsData { .. })), "{refused:?}");
    }
    store.delete(&jobs).await.unwrap();
    store.create(&jobs, Metadata::new()).await.unwrap();
    let record = cluster.router.dataset(STORE.id, jobs.dataset()).await.unwrap().unwrap();
    assert_eq!(record.map.as_str(), "tenants");
    // One that has no messages is bound anew, and stays so when it is made again.
    cluster.driver.bind_dataset(&elsewhere).await.unwrap();
    cluster.router.refresh().await.unwrap();
    store.put(&jobs, text("b")).await.unwrap();
    let record = cluster.router.dataset(STORE.id, jobs.dataset()).await.unwrap().unwrap();
    assert_eq!(record.map.as_str(), "queues");
    cluster.close().await;
}

/// C8, H1: tenants come and go without the operator.
async fn a_family_is_bound_once_for_all_its_names(place: Place) {
    let cluster = open(&place).await;
    let store = &cluster.store;
    store.create(&queue("3-jobs"), Metadata::new()).await.unwrap();
    cluster.driver.bind_dataset(&binding("*-jobs")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let map_of = async |name: &str| {
        let found = cluster.router.dataset(STORE.id, queue(name).dataset()).await.unwrap().unwrap();
        found.map.as_str().to_owned()
    };
    for (name, map) in [("7-jobs", "tenants"), ("12-jobs", "tenants"), ("mail", "queues")] {
        store.create(&queue(name), Metadata::new()).await.unwrap();
        store.put(&queue(name), text("a")).await.unwrap();
        assert_eq!(map_of(name).await, map, "{name}");
    }
    // What was there stays where it is, and can be made again as if nothing had been bound.
    assert_eq!(store.create(&queue("3-jobs"), Metadata::new()).await.unwrap(), Created::Already);
    assert_eq!(map_of("3-jobs").await, "queues");
    let refused = store.create(&queue("all-jobs"), Metadata::new()).await;
    assert!(matches!(refused, Err(StoreError::Misplaced { .. })), "{refused:?}");
    // A name's own binding says more than that of its family.
    let own = Binding { map: MapName::new("queues").unwrap(), ..binding("9-jobs") };
    cluster.driver.bind_dataset(&own).await.unwrap();
    store.create(&queue("9-jobs"), Metadata::new()).await.unwrap();
    assert_eq!(map_of("9-jobs").await, "queues");
    cluster.driver.unbind_dataset(STORE.id, "acct/*-jobs").await.unwrap();
    store.create(&queue("8-jobs"), Metadata::new()).await.unwrap();
    assert_eq!((map_of("8-jobs").await, map_of("7-jobs").await), ("queues".to_owned(), "tenants".to_owned()));
    cluster.close().await;
}

/// As a process leaves it that dies after it has recorded the binding and closed the old number on one shard.
async fn a_binding_left_unfinished_is_finished(place: Place) {
    let cluster = open(&place).await;
    let (store, jobs) = (&cluster.store, queue("7-jobs"));
    store.create(&jobs, Metadata::new()).await.unwrap();
    let old = cluster.router.dataset(STORE.id, jobs.dataset()).await.unwrap().unwrap();
    let Binding { name, map, rule, .. } = binding("7-jobs");
    let body = serde_json::json!({ "format": 1 });
    cluster.driver.create_dataset("queue-binding", &name, &map, rule, body).await.unwrap();
    for shard in ["s1", "s2"] {
        let shard = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        assert!(shard.close_dataset(&old.name_on_shards()).await.unwrap());
    }
    cluster.router.refresh().await.unwrap();
    let tidy = store.keep_tidy();
    let finished = async {
        while cluster.router.dataset(STORE.id, jobs.dataset()).await.unwrap().unwrap().map.as_str()
            != "tenants"
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished).await.expect("it is finished by itself");
    tidy.stop().await;
    store.put(&jobs, text("a")).await.unwrap();
    assert_eq!(rows_on(&cluster, "s2").await, 1);
    cluster.close().await;
}

//! What queues and messages do, tried alike on both engines.

use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::Access;
use polyshard_store_queue::{
    Created, DEFAULT_MAP, Message, Metadata, NewMessage, QueueName, StoreError, Ttl,
};

use crate::Cluster;
use crate::clock::HandClock;
use crate::place::Place;

const SECOND: Duration = Duration::from_secs(1);

on_both_engines! {
    queues_are_made_listed_and_deleted
    messages_come_in_order_and_are_invisible_while_they_are_got
    updates_and_deletes_need_the_last_receipt
    messages_expire_and_are_removed
    a_deleted_queue_leaves_no_message_behind
    clearing_takes_what_is_there_and_nothing_more
    an_empty_queue_is_asked_without_a_write
}

fn queue(name: &str) -> QueueName {
    QueueName::new("acct", name).unwrap()
}

fn text(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned(), invisible_ms: 0, ttl: Ttl::Ms(7 * 24 * 3600 * 1000) }
}

fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.body.as_str()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

async fn open(place: &Place, clock: &std::sync::Arc<HandClock>) -> Cluster {
    place.open_at(clock.clock()).await
}

/// Rows of messages on all shards.
async fn rows(cluster: &Cluster) -> i64 {
    let (map, all) = (MapName::new(DEFAULT_MAP).unwrap(), KeyRange::all());
    let mut count = 0;
    for shard in ["s1", "s2", "s3"] {
        let shard = ShardId::new(shard).unwrap();
        let ticket = cluster.router.enter_shard(&map, &all, &shard, Access::Read).await.unwrap();
        let sql = format!("SELECT count(*) FROM {}", ticket.dialect().own_table("queue_message"));
        count += ticket.read(Statement::new(sql)).await.unwrap().one().unwrap().int(0).unwrap();
    }
    count
}

/// How many queues the shards know, each counted once.
async fn registered(cluster: &Cluster) -> usize {
    let mut names = std::collections::BTreeSet::new();
    for shard in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        let known = opened.datasets(&MapName::new(DEFAULT_MAP).unwrap()).await.unwrap();
        names.extend(known.into_iter().map(|dataset| dataset.name));
    }
    names.len()
}

async fn queues_are_made_listed_and_deleted(place: Place) {
    let cluster = open(&place, &HandClock::new()).await;
    let store = &cluster.store;
    let mixed = pairs(&[("MixedCase", "1"), ("b", "zwei")]);
    assert_eq!(store.create(&queue("jobs"), mixed.clone()).await.unwrap(), Created::New);
    assert_eq!(store.create(&queue("jobs"), mixed.clone()).await.unwrap(), Created::Already);
    let other = store.create(&queue("jobs"), pairs(&[("c", "3")])).await;
    assert!(matches!(other, Err(StoreError::Exists(_))), "{other:?}");
    assert_eq!(store.metadata(&queue("jobs")).await.unwrap(), mixed);
    store.set_metadata(&queue("jobs"), pairs(&[("New", "x")])).await.unwrap();
    assert_eq!(store.metadata(&queue("jobs")).await.unwrap(), pairs(&[("New", "x")]));

    for name in ["jobs-a", "jobs-b", "mail"] {
        store.create(&queue(name), Metadata::new()).await.unwrap();
    }
    store.create(&QueueName::new("other", "jobs-z").unwrap(), Metadata::new()).await.unwrap();
    let names = async |prefix: &str, from: Option<&str>, max| {
        let page = store.list("acct", prefix, from, max).await.unwrap();
        (page.queues.into_iter().map(|queue| queue.name).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(
        names("", None, 10).await,
        (["jobs", "jobs-a", "jobs-b", "mail"].map(str::to_owned).to_vec(), None)
    );
    let (first, next) = names("jobs", None, 2).await;
    assert_eq!((first, next.as_deref()), (["jobs", "jobs-a"].map(str::to_owned).to_vec(), Some("jobs-b")));
    assert_eq!(names("jobs", next.as_deref(), 2).await, (vec!["jobs-b".to_owned()], None));

    store.delete(&queue("mail")).await.unwrap();
    for result in [
        store.delete(&queue("mail")).await.err(),
        store.put(&queue("mail"), text("x")).await.err(),
        store.get(&queue("mail"), 1, 1000).await.err(),
        store.set_metadata(&queue("mail"), Metadata::new()).await.err(),
        store.count(&queue("mail")).await.err(),
    ] {
        assert!(matches!(result, Some(StoreError::NoSuchQueue(_))), "{result:?}");
    }
    assert_eq!(store.create(&queue("mail"), Metadata::new()).await.unwrap(), Created::New);
    cluster.close().await;
}

async fn messages_come_in_order_and_are_invisible_while_they_are_got(place: Place) {
    let clock = HandClock::new();
    let cluster = open(&place, &clock).await;
    let (store, jobs) = (&cluster.store, queue("jobs"));
    store.create(&jobs, Metadata::new()).await.unwrap();
    // The clock stands still: the order is that of the ids alone.
    for body in ["a", "b", "c"] {
        store.put(&jobs, text(body)).await.unwrap();
    }
    let late = store.put(&jobs, NewMessage { invisible_ms: 5000, ..text("late") }).await.unwrap();
    assert_eq!((late.visible_ms - late.inserted_ms, late.dequeue_count), (5000, 0));
    assert_eq!(bodies(&store.peek(&jobs, 32).await.unwrap()), ["a", "b", "c"]);
    assert_eq!(store.count(&jobs).await.unwrap(), 4);

    let first = store.get(&jobs, 2, 10_000).await.unwrap();
    assert_eq!(bodies(&first), ["a", "b"]);
    assert!(first.iter().all(|message| message.dequeue_count == 1));
    assert_eq!(bodies(&store.get(&jobs, 32, 20_000).await.unwrap()), ["c"]);
    assert!(store.get(&jobs, 32, 1000).await.unwrap().is_empty());
    assert!(store.peek(&jobs, 32).await.unwrap().is_empty());
    assert_eq!(store.count(&jobs).await.unwrap(), 4);

    clock.pass(6 * SECOND);
    assert_eq!(bodies(&store.get(&jobs, 32, 1000).await.unwrap()), ["late"]);
    clock.pass(4 * SECOND);
    // 'late' became visible at 7 s, 'a' and 'b' at 10 s: order is by visibility, then by insertion.
    let again = store.get(&jobs, 32, 1000).await.unwrap();
    assert_eq!(bodies(&again), ["late", "a", "b"]);
    assert_eq!(again[1].dequeue_count, 2);
    cluster.close().await;
}

async fn updates_and_deletes_need_the_last_receipt(place: Place) {
    let clock = HandClock::new();
    let cluster = open(&place, &clock).await;
    let (store, jobs) = (&cluster.store, queue("jobs"));
    store.create(&jobs, Metadata::new()).await.unwrap();
    let put = store.put(&jobs, text("one")).await.unwrap();
    let got = store.get(&jobs, 1, 1000).await.unwrap().remove(0);
    let stale = store.delete_message(&jobs, &put.id, put.receipt).await;
    assert!(matches!(stale, Err(StoreError::ReceiptMismatch)), "{stale:?}");

    let updated = store.update(&jobs, &got.id, got.receipt, 3000, Some("zwei €".to_owned())).await.unwrap();
    let stale = store.update(&jobs, &got.id, got.receipt, 0, None).await;
    assert!(matches!(stale, Err(StoreError::ReceiptMismatch)), "{stale:?}");
    assert!(store.get(&jobs, 1, 1000).await.unwrap().is_empty());
    let updated = store.update(&jobs, &got.id, updated.receipt, 0, None).await.unwrap();
    assert_eq!(bodies(&store.peek(&jobs, 1).await.unwrap()), ["zwei €"]);
    // An update does not count as a get.
    assert_eq!(store.peek(&jobs, 1).await.unwrap()[0].dequeue_count, 1);
    let long = store.update(&jobs, &got.id, updated.receipt, 7 * 24 * 3600 * 1000, None).await;
    assert!(matches!(long, Err(StoreError::InvisibleTooLong)), "{long:?}");
    // It is visible again, and nobody has got it: the receipt still holds.
    store.delete_message(&jobs, &got.id, updated.receipt).await.unwrap();
    let gone = store.delete_message(&jobs, &got.id, updated.receipt).await;
    assert!(matches!(gone, Err(StoreError::NoSuchMessage)), "{gone:?}");
    cluster.close().await;
}

async fn messages_expire_and_are_removed(place: Place) {
    let clock = HandClock::new();
    let cluster = open(&place, &clock).await;
    let (store, jobs) = (&cluster.store, queue("jobs"));
    store.create(&jobs, Metadata::new()).await.unwrap();
    store.sweep().await;
    let short = store.put(&jobs, NewMessage { ttl: Ttl::Ms(5000), ..text("short") }).await.unwrap();
    for _ in 0..1200 {
        store.put(&jobs, NewMessage { ttl: Ttl::Ms(6000), ..text("many") }).await.unwrap();
    }
    let never = store.put(&jobs, NewMessage { ttl: Ttl::Never, ..text("never") }).await.unwrap();
    assert_eq!(never.expires_ms, 253_402_300_799_000);
    let long = store.put(&jobs, NewMessage { invisible_ms: 5000, ttl: Ttl::Ms(5000), ..text("x") }).await;
    assert!(matches!(long, Err(StoreError::InvisibleTooLong)));

    clock.pass(5 * SECOND);
    assert_eq!(bodies(&store.peek(&jobs, 1).await.unwrap()), ["many"]);
    let gone = store.delete_message(&jobs, &short.id, short.receipt).await;
    assert!(matches!(gone, Err(StoreError::NoSuchMessage)), "{gone:?}");
    clock.pass(SECOND);
    assert_eq!(bodies(&store.get(&jobs, 32, 1000).await.unwrap()), ["never"]);
    assert_eq!(store.count(&jobs).await.unwrap(), 1);
    assert_eq!(rows(&cluster).await, 1202);
    // More than one write's worth is gone after a round.
    store.sweep().await;
    assert_eq!(rows(&cluster).await, 1);
    cluster.close().await;
}

async fn a_deleted_queue_leaves_no_message_behind(place: Place) {
    let clock = HandClock::new();
    let cluster = open(&place, &clock).await;
    let (store, jobs) = (&cluster.store, queue("jobs"));
    let sweeper = store.keep_tidy();
    store.create(&jobs, Metadata::new()).await.unwrap();
    for _ in 0..700 {
        store.put(&jobs, text("old")).await.unwrap();
    }
    store.delete(&jobs).await.unwrap();
    store.create(&jobs, Metadata::new()).await.unwrap();
    store.put(&jobs, text("new")).await.unwrap();
    assert_eq!(bodies(&store.peek(&jobs, 32).await.unwrap()), ["new"]);
    let removed = async {
        while rows(&cluster).await != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), removed).await.expect("the old messages are removed");
    sweeper.stop().await;

    // The note that the queue is gone goes too, once nobody can be unaware of it.
    let notes = || cluster.router.view().datasets.keys().filter(|(store, _)| store == "queue-gone").count();
    assert_eq!(notes(), 1);
    assert_eq!(registered(&cluster).await, 2, "a process may not have heard of it");
    clock.pass(301 * SECOND);
    store.sweep().await;
    cluster.router.refresh().await.unwrap();
    assert_eq!(notes(), 0);
    assert_eq!(registered(&cluster).await, 1, "no shard knows the deleted queue any more");
    assert_eq!(bodies(&store.peek(&jobs, 32).await.unwrap()), ["new"]);
    cluster.close().await;
}

async fn clearing_takes_what_is_there_and_nothing_more(place: Place) {
    let cluster = open(&place, &HandClock::new()).await;
    let (store, jobs, mail) = (&cluster.store, queue("jobs"), queue("mail"));
    for queue in [&jobs, &mail] {
        store.create(queue, Metadata::new()).await.unwrap();
        for _ in 0..520 {
            store.put(queue, text("x")).await.unwrap();
        }
    }
    store.get(&jobs, 5, 1000).await.unwrap();
    store.clear(&jobs).await.unwrap();
    assert_eq!((store.count(&jobs).await.unwrap(), store.count(&mail).await.unwrap()), (0, 520));
    store.put(&jobs, text("after")).await.unwrap();
    assert_eq!(bodies(&store.get(&jobs, 32, 1000).await.unwrap()), ["after"]);
    store.clear(&queue("mail")).await.unwrap();
    assert_eq!(rows(&cluster).await, 1);
    cluster.close().await;
}

async fn an_empty_queue_is_asked_without_a_write(place: Place) {
    let cluster = open(&place, &HandClock::new()).await;
    let (store, jobs) = (&cluster.store, queue("jobs"));
    store.create(&jobs, Metadata::new()).await.unwrap();
    store.put(&jobs, text("x")).await.unwrap();
    assert_eq!(store.get(&jobs, 1, 60_000).await.unwrap().len(), 1);
    assert!(store.get(&jobs, 1, 60_000).await.unwrap().is_empty());
    // From now on a shard that takes no writes still says that there is nothing to get.
    let view = cluster.router.view();
    let definition = view.maps.values().next().unwrap().map.definition();
    for range in [definition.buckets(0, 8).unwrap(), definition.buckets(8, 16).unwrap()] {
        let change = polyshard_map::Change::SetState { range, state: polyshard_map::State::ReadOnly };
        let request = polyshard_catalog::ChangeRequest {
            map: definition.name().clone(),
            change,
            if_version: None,
            by: None,
        };
        cluster.driver.change(&request).await.unwrap();
    }
    cluster.router.refresh().await.unwrap();
    assert!(store.get(&jobs, 1, 60_000).await.unwrap().is_empty());
    let put = store.put(&jobs, text("y")).await;
    assert!(matches!(put, Err(StoreError::Kit(_))), "{put:?}");
    cluster.close().await;
}

//! Messages put inside a caller's own transaction (H2).

use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_router::Access;
use polyshard_store_queue::transact::{enqueue, enqueue_statements};
use polyshard_store_queue::{
    MESSAGE_BYTES_MAX, Metadata, NewMessage, QueueName, StoreError, Ttl, VISIBILITY_MS_MAX,
};

use crate::Cluster;
use crate::clock::HandClock;
use crate::place::Place;

on_both_engines! {
    a_message_is_there_when_the_transaction_commits
    the_statements_can_be_run_by_the_caller
    a_message_ends_with_the_transaction
}

fn text(body: &str) -> NewMessage {
    NewMessage { body: body.to_owned(), invisible_ms: 0, ttl: Ttl::Never }
}

async fn a_message_is_there_when_the_transaction_commits(place: Place) {
    let cluster: Cluster = place.open_at(HandClock::new().clock()).await;
    let (store, router) = (&cluster.store, &cluster.router);
    let outbox = QueueName::new("acct", "outbox").unwrap();
    store.create(&outbox, Metadata::new()).await.unwrap();
    for (body, commits) in [("rolled back", false), ("committed", true)] {
        let message = store.enlist(&outbox, text(body)).await.unwrap();
        let keys = [message.key().clone()];
        let ticket = router.enter(message.map(), &keys, Access::Write).await.unwrap();
        assert!(ticket.ranges().iter().any(|range| range.contains(message.placement())));
        let dialect = ticket.dialect();
        router.bind(&ticket, &message.dataset(dialect)).await.unwrap();
        let mut tx = ticket.begin().await.unwrap();
        tx.run(Statement::new("CREATE TABLE IF NOT EXISTS orders (id bigint)")).await.unwrap();
        tx.run(Statement::new("INSERT INTO orders VALUES ($1)").bind(7)).await.unwrap();
        enqueue(&mut tx, dialect, &message).await.unwrap();
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        drop(ticket);
        let seen = store.peek(&outbox, 2).await.unwrap();
        assert_eq!(seen.len(), usize::from(commits), "{body}");
    }
    let got = store.get(&outbox, 1, 1000).await.unwrap().remove(0);
    assert_eq!((got.body.as_str(), got.dequeue_count), ("committed", 1));
    store.delete_message(&outbox, &got.id, got.receipt).await.unwrap();
    let long = store.enlist(&outbox, text(&"x".repeat(MESSAGE_BYTES_MAX + 1))).await;
    assert!(matches!(long, Err(StoreError::TooLarge)));
    // Whoever gets it gets it in XML, which cannot say this.
    for body in ["bell \u{7}", "\u{FFFF}", "\0"] {
        let strange = store.enlist(&outbox, text(body)).await;
        assert!(matches!(strange, Err(StoreError::Unwritable)), "{body:?}");
    }
    let later = NewMessage { invisible_ms: VISIBILITY_MS_MAX + 1, ..text("x") };
    assert!(matches!(store.enlist(&outbox, later).await, Err(StoreError::InvisibleMax)));
    let nowhere = store.enlist(&QueueName::new("acct", "nowhere").unwrap(), text("x")).await;
    assert!(matches!(nowhere, Err(StoreError::NoSuchQueue(_))));
    cluster.close().await;
}

/// As a door does that has a session of its own: text and values.
async fn the_statements_can_be_run_by_the_caller(place: Place) {
    let cluster: Cluster = place.open_at(HandClock::new().clock()).await;
    let (store, router) = (&cluster.store, &cluster.router);
    let outbox = QueueName::new("acct", "outbox").unwrap();
    store.create(&outbox, Metadata::new()).await.unwrap();
    let message = store.enlist(&outbox, text("by hand")).await.unwrap();
    let keys = [message.key().clone()];
    let ticket = router.enter(message.map(), &keys, Access::Write).await.unwrap();
    router.bind(&ticket, &message.dataset(ticket.dialect())).await.unwrap();
    let mut tx = ticket.begin().await.unwrap();
    for statement in enqueue_statements(ticket.dialect(), &message) {
        assert_eq!(statement.params().len(), 8);
        let again = statement.params().iter().cloned();
        tx.run(again.fold(Statement::new(statement.text().to_owned()), Statement::bind)).await.unwrap();
    }
    tx.commit().await.unwrap();
    drop(ticket);
    assert_eq!(store.peek(&outbox, 2).await.unwrap()[0].body, "by hand");
    assert_eq!(store.peek(&outbox, 2).await.unwrap()[0], *message.message());
    cluster.close().await;
}

/// The other end of an outbox: what is done for a message, and that it is done, are one.
async fn a_message_ends_with_the_transaction(place: Place) {
    let clock = HandClock::new();
    let cluster: Cluster = place.open_at(clock.clock()).await;
    let (store, router) = (&cluster.store, &cluster.router);
    let inbox = QueueName::new("acct", "inbox").unwrap();
    store.create(&inbox, Metadata::new()).await.unwrap();
    store.put(&inbox, text("one")).await.unwrap();
    let got = store.get(&inbox, 1, 1000).await.unwrap().remove(0);
    for commits in [false, true] {
        let removal = store.enlist_removal(&inbox, got.id, got.receipt).await.unwrap();
        let keys = [removal.key().clone()];
        let ticket = router.enter(removal.map(), &keys, Access::Write).await.unwrap();
        let mut tx = ticket.begin().await.unwrap();
        assert_eq!(tx.run(removal.delete(ticket.dialect())).await.unwrap().affected(), 1);
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        drop(ticket);
        assert_eq!(store.count(&inbox).await.unwrap(), i64::from(!commits));
    }
    // Nobody else's message is deleted, and none twice; the caller is told which it was.
    store.put(&inbox, text("two")).await.unwrap();
    let lost = store.get(&inbox, 1, 1000).await.unwrap().remove(0);
    clock.pass(Duration::from_secs(2));
    store.get(&inbox, 1, 1000).await.unwrap();
    for (id, receipt, mismatch) in [(lost.id, lost.receipt, true), (got.id, got.receipt, false)] {
        let removal = store.enlist_removal(&inbox, id, receipt).await.unwrap();
        let keys = [removal.key().clone()];
        let ticket = router.enter(removal.map(), &keys, Access::Write).await.unwrap();
        let mut tx = ticket.begin().await.unwrap();
        assert_eq!(tx.run(removal.delete(ticket.dialect())).await.unwrap().affected(), 0);
        let why = removal.why_not(&tx.run(removal.state(ticket.dialect())).await.unwrap());
        assert_eq!(matches!(why, StoreError::ReceiptMismatch), mismatch, "{why}");
        assert_eq!(matches!(why, StoreError::NoSuchMessage), !mismatch, "{why}");
        tx.rollback().await.unwrap();
    }
    cluster.close().await;
}

/// E3: what a killed process left undecided, or another one has open, is in nobody's way who starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_starts_while_a_transaction_is_open() {
    let place = Place::postgres();
    let cluster: Cluster = place.open_at(HandClock::new().clock()).await;
    let outbox = QueueName::new("acct", "outbox").unwrap();
    cluster.store.create(&outbox, Metadata::new()).await.unwrap();
    cluster.store.put(&outbox, text("before")).await.unwrap();
    let message = cluster.store.enlist(&outbox, text("open")).await.unwrap();
    let keys = [message.key().clone()];
    let ticket = cluster.router.enter(message.map(), &keys, Access::Write).await.unwrap();
    let mut tx = ticket.begin().await.unwrap();
    enqueue(&mut tx, ticket.dialect(), &message).await.unwrap();
    let another: Cluster = place.open_at(HandClock::new().clock()).await;
    assert_eq!(another.store.count(&outbox).await.unwrap(), 1);
    another.store.put(&outbox, text("after")).await.unwrap();
    tx.commit().await.unwrap();
    drop(ticket);
    assert_eq!(another.store.count(&outbox).await.unwrap(), 3);
    another.close().await;
    cluster.close().await;
}

//! Many consumers at one queue: no message is had by two at a time, and none is lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyshard_store::Clock;
use polyshard_store_queue::{Metadata, NewMessage, QueueName, QueueStore, StoreError, Ttl};

use crate::Cluster;
use crate::place::Place;

const MESSAGES: usize = 1200;
const CONSUMERS: usize = 300;
const PRODUCERS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn sqlite() {
    let place = Place::sqlite();
    let cluster: Cluster = place.open_at(wall_clock()).await;
    crowd(vec![cluster.store.clone()]).await;
    cleared(cluster.store.clone()).await;
    cluster.close().await;
}

/// Two processes' worth of stores, each with its own sessions, at one queue.
#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let place = Place::postgres();
    let one: Cluster = place.open_at(wall_clock()).await;
    let two: Cluster = place.open_at(wall_clock()).await;
    crowd(vec![one.store.clone(), two.store.clone()]).await;
    cleared(one.store.clone()).await;
    one.close().await;
    two.close().await;
}

/// Consumers and producers go on while the queue is cleared again and again: whatever was got can be deleted or is
/// gone, nothing is got twice, and what was put after the last clear stays.
async fn cleared(store: Arc<QueueStore>) {
    let jobs = QueueName::new("acct", "cleared").unwrap();
    store.create(&jobs, Metadata::new()).await.unwrap();
    let put = async |body: String| {
        store.put(&jobs, NewMessage { body, invisible_ms: 0, ttl: Ttl::Never }).await.unwrap();
    };
    let producer = async {
        for number in 0..400 {
            put(number.to_string()).await;
        }
    };
    let consumer = async || {
        let mut had = Vec::new();
        for _ in 0..150 {
            for message in store.get(&jobs, 2, 60_000).await.unwrap() {
                had.push(message.body.clone());
                match store.delete_message(&jobs, &message.id, message.receipt).await {
                    Ok(()) | Err(StoreError::NoSuchMessage) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        had
    };
    let clearer = async {
        for _ in 0..20 {
            store.clear(&jobs).await.unwrap();
        }
    };
    let ((), (), mut had, more) = tokio::join!(producer, clearer, consumer(), consumer());
    had.extend(more);
    let all = had.len();
    assert_eq!(had.into_iter().collect::<HashSet<_>>().len(), all, "something was got twice");
    store.clear(&jobs).await.unwrap();
    assert_eq!(store.count(&jobs).await.unwrap(), 0);
    put("last".to_owned()).await;
    assert_eq!(store.get(&jobs, 32, 1000).await.unwrap().len(), 1);
}

/// Every message is put once while consumers get, some of them dropping what they got (it comes back after a while),
/// the others deleting it. In the end each message was deleted exactly once.
async fn crowd(stores: Vec<Arc<QueueStore>>) {
    let jobs = QueueName::new("acct", "crowd").unwrap();
    stores[0].create(&jobs, Metadata::new()).await.unwrap();
    let deleted = Arc::new(AtomicUsize::new(0));
    let mut consumers = tokio::task::JoinSet::new();
    for number in 0..CONSUMERS {
        let (store, jobs, deleted) = (stores[number % stores.len()].clone(), jobs.clone(), deleted.clone());
        consumers.spawn(async move {
            let mut had = Vec::new();
            while deleted.load(Ordering::SeqCst) < MESSAGES {
                let count = 1 + number as u32 % 3;
                let messages = store.get(&jobs, count, 60_000).await.unwrap();
                if messages.is_empty() {
                    // As a consumer does that finds nothing.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                for message in messages {
                    had.push((message.body.clone(), message.dequeue_count));
                    // One in ten is given back the first time; its next holder is the second.
                    if number % 10 == 0 && message.dequeue_count == 1 {
                        store.update(&jobs, &message.id, message.receipt, 0, None).await.unwrap();
                    } else {
                        store.delete_message(&jobs, &message.id, message.receipt).await.unwrap();
                        deleted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
            had
        });
    }
    let mut producers = tokio::task::JoinSet::new();
    for producer in 0..PRODUCERS {
        let (store, jobs) = (stores[producer % stores.len()].clone(), jobs.clone());
        producers.spawn(async move {
            for number in (producer..MESSAGES).step_by(PRODUCERS) {
                let message = NewMessage { body: number.to_string(), invisible_ms: 0, ttl: Ttl::Never };
                store.put(&jobs, message).await.unwrap();
            }
        });
    }
    while let Some(done) = producers.join_next().await {
        done.unwrap();
    }
    let mut seen: HashMap<String, HashSet<i64>> = HashMap::new();
    let all = async {
        while let Some(had) = consumers.join_next().await {
            for (body, dequeue_count) in had.unwrap() {
                // Two that had it at the same time would both have counted themselves the first.
                assert!(
                    seen.entry(body.clone()).or_default().insert(dequeue_count),
                    "{body} was had twice at once"
                );
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("every message is got and deleted");
    assert_eq!(seen.len(), MESSAGES);
    assert_eq!(deleted.load(Ordering::SeqCst), MESSAGES);
    assert_eq!(stores[0].count(&jobs).await.unwrap(), 0);
}

fn wall_clock() -> Clock {
    Arc::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        i64::try_from(since.as_nanos() / 100).unwrap()
    })
}

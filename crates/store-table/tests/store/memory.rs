//! Listing a million entities takes the memory of a page.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polyshard_store_table::{Change, ChangeKind, EdmValue, PartitionKey, Properties};
use tokio::task::JoinSet;

use crate::place::Place;
use crate::protocol::Client;
use crate::tools::{change, insert, table};

/// Entities in all, and in a partition.
const ENTITIES: usize = 1_000_000;
const PARTITION: usize = 1_000;
/// Partitions that are filled at once.
const WRITERS: usize = 8;
/// After so many entities the buffers, caches and pools have the size they need.
const SETTLED: usize = 100_000;
/// How much more the process may take at any later time: a page of the largest kind, and what the allocator keeps.
const GROWTH_BYTES_MAX: u64 = 24 * 1024 * 1024;

/// E6: a client that reads everything, page by page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a million entities take minutes: make test-all"]
async fn listing_a_million_entities_takes_no_more_memory_than_listing_some() {
    let place = Place::sqlite();
    let client = Client::new(&place).await;
    client.cluster.store.create_table(&table("orders")).await.unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&client.cluster.store);
        writers.spawn(async move {
            for partition in (writer..ENTITIES / PARTITION).step_by(WRITERS) {
                let key = PartitionKey::new(format!("p{partition:06}")).unwrap();
                for first in (0..PARTITION).step_by(100) {
                    let rows: Vec<Change> =
                        (first..first + 100).map(|n| change(&format!("{n:06}"), insert(n as i32))).collect();
                    store.change(&table("orders"), &key, rows).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }

    let (mut listed, mut next, mut settled, mut most) = (0, String::new(), None, 0);
    loop {
        let (response, text) = client.ok(&format!("GET /orders(){next}"), &[], "").await;
        listed += text.matches("\"RowKey\"").count();
        if listed >= SETTLED {
            let now = resident_bytes();
            settled.get_or_insert(now);
            most = most.max(now);
        }
        let header = |name: &str| response.get(name).map(str::to_owned);
        match (header("x-ms-continuation-NextPartitionKey"), header("x-ms-continuation-NextRowKey")) {
            (Some(partition), Some(row)) => next = format!("?NextPartitionKey={partition}&NextRowKey={row}"),
            (None, None) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(listed, ENTITIES);
    let settled = settled.expect("more entities than it takes to settle");
    println!("from {settled} to {most} bytes while listing");
    assert!(most <= settled + GROWTH_BYTES_MAX, "from {settled} to {most} bytes while listing");
    client.cluster.close().await;
}

/// What follows a few short entities may be hundreds of long ones: they are not all read at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_entities_after_short_ones_are_read_a_few_at_a_time() {
    /// Longer than all that is read ahead.
    const LONG: usize = 100;
    let place = Place::sqlite();
    let client = Client::new(&place).await;
    let store = &client.cluster.store;
    store.create_table(&table("orders")).await.unwrap();
    let key = PartitionKey::new("p").unwrap();
    let short: Vec<Change> = (0..100).map(|n| change(&format!("a{n:04}"), insert(n))).collect();
    store.change(&table("orders"), &key, short).await.unwrap();
    let texts = (0..15).map(|n| (format!("t{n}"), EdmValue::String("x".repeat(32 * 1024))));
    let long = Properties::new(texts.collect()).unwrap();
    for n in 0..LONG {
        let change = change(&format!("b{n:04}"), ChangeKind::Insert(long.clone()));
        store.change(&table("orders"), &key, vec![change]).await.unwrap();
    }
    let before = resident_bytes();
    let (most, is_done) = (AtomicU64::new(before), AtomicBool::new(false));
    let listed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                most.fetch_max(resident_bytes(), Ordering::Relaxed);
            }
        });
        let _done = Done(&is_done);
        tokio::task::block_in_place(|| {
            let list = client.cluster.all("PartitionKey eq 'p'", 1000);
            tokio::runtime::Handle::current().block_on(list)
        })
    });
    assert_eq!(listed.len(), 100 + LONG);
    let most = most.into_inner();
    assert!(most <= before + GROWTH_BYTES_MAX, "from {before} to {most} bytes while listing");
    client.cluster.close().await;
}

/// Tells the thread that watches the memory, whatever becomes of the list.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Memory of this process's own that is in RAM: pages of the databases' files, which SQLite maps, are the system's.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

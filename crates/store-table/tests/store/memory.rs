//! Listing a million entities takes the memory of a page.

use std::sync::Arc;

use polyshard_store_table::{Change, PartitionKey};
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

/// Memory of this process's own that is in RAM: pages of the databases' files, which SQLite maps, are the system's.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

//! What the callers do, the same for everything that is measured.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{BODY_BYTES, CALLERS, ROWS};
use crate::Failure;
use crate::measure::Random;

/// Operations after which a caller lets others go first: an embedded read never waits, and callers would otherwise
/// come one after the other.
const TURN: u64 = 16;

/// What is measured: a store of items on several shards.
pub trait Store: Clone + Send + Sync + 'static {
    /// Reads one item; answers the length of its body.
    fn read(&self, shard: usize, id: i64) -> impl Future<Output = Result<usize, Failure>> + Send;
    /// Inserts one item durably.
    fn insert(
        &self,
        shard: usize,
        id: i64,
        body: Vec<u8>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
    /// Overwrites one item durably.
    fn update(
        &self,
        shard: usize,
        id: i64,
        body: Vec<u8>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// What a caller does over and over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Read,
    Insert,
    Update,
}

impl Operation {
    /// The word in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read by key",
            Operation::Insert => "insert, ascending keys",
            Operation::Update => "update, random keys",
        }
    }
}

/// Lets all callers work for a while; answers operations a second.
pub async fn round<S: Store>(
    store: &S,
    shards: usize,
    operation: Operation,
    round: usize,
    seconds: f64,
) -> Result<f64, Failure> {
    // Every round inserts above the last one.
    let next = Arc::new(AtomicI64::new(ROWS + round as i64 * 10_000_000));
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (store, next) = (store.clone(), next.clone());
        let random = Random::new((round * CALLERS + caller) as u64);
        callers.spawn(async move { call(&store, shards, operation, random, &next, end).await });
    }
    let mut done = 0;
    while let Some(count) = callers.join_next().await {
        done += count??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

async fn call<S: Store>(
    store: &S,
    shards: usize,
    operation: Operation,
    mut random: Random,
    next: &AtomicI64,
    end: Instant,
) -> Result<u64, Failure> {
    let mut done = 0;
    while Instant::now() < end {
        for _ in 0..TURN {
            match operation {
                Operation::Read => {
                    let id = random.below(ROWS as u64) as i64;
                    let bytes = store.read(shard_of(id, shards), id).await?;
                    if bytes != BODY_BYTES {
                        return Err(format!("item {id} has {bytes} bytes").into());
                    }
                }
                Operation::Insert => {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    store.insert(shard_of(id, shards), id, body(&mut random)).await?;
                }
                Operation::Update => {
                    let id = random.below(ROWS as u64) as i64;
                    store.update(shard_of(id, shards), id, body(&mut random)).await?;
                }
            }
            done += 1;
        }
        tokio::task::yield_now().await;
    }
    Ok(done)
}

/// A body that no row has yet: SQLite does not write a row that is overwritten with itself, nor a commit without a
/// changed page.
fn body(random: &mut Random) -> Vec<u8> {
    let mut body = vec![b'y'; BODY_BYTES];
    body[..8].copy_from_slice(&random.next().to_be_bytes());
    body
}

/// Which shard has an item.
pub fn shard_of(id: i64, shards: usize) -> usize {
    id as usize % shards
}

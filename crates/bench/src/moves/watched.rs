//! Writers of keys that stay while a move of others does nothing but note what changes: what its triggers cost them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyshard_catalog::{OpRecord, OpState, Step, Wish};

use super::elsewhere::{PAIRS, STAYING, compare};
use super::{BUCKETS, begin, close, fill, start, write};
use crate::cluster::{Cluster, Place};
use crate::measure::ms_since;
use crate::report::Table;
use crate::{Effort, Failure};

/// After this long a paused move has made its triggers, and the databases have got used to them.
const SETTLED: Duration = Duration::from_millis(500);

pub(super) fn table() -> Table {
    let title =
        "500 writes/s on keys that stay, while a move of others is paused: medians of pairs of times, ms";
    Table::new("move_watched", title, &PAIRS)
}

pub(super) async fn measure(
    place: &Place,
    effort: Effort,
    share: u32,
    table: &mut Table,
) -> Result<(), Failure> {
    let (time, pairs) = effort.pick((Duration::from_secs(5), 10), (Duration::from_secs(2), 5));
    let cluster = start(place, "watched", share).await?;
    fill(&cluster, 10_000).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(cluster.clone(), stop.clone(), STAYING, i64::MAX));
    let began = Instant::now();
    let (mut resting, mut watching) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        tokio::time::sleep(SETTLED).await;
        // Two times at rest: what differs between them is noise.
        let first = ms_since(began);
        tokio::time::sleep(time).await;
        let second = ms_since(began);
        tokio::time::sleep(time).await;
        let rested = ms_since(began);
        let record = begin(&cluster, 0..BUCKETS / 2, &cluster.shards[1]).await?;
        cluster.driver.wish_for(record.op.id, Wish::Pause).await?;
        pause(&cluster, &record).await?;
        let watched = ms_since(began);
        tokio::time::sleep(time).await;
        resting.push([(first, second), (second, rested)]);
        watching.push([(second, rested), (watched, ms_since(began))]);
        cluster.driver.wish_for(record.op.id, Wish::Cancel).await?;
        while cluster.catalog.operation(record.op.id).await?.state == OpState::Running {
            tokio::time::sleep(SETTLED / 10).await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    let seen = writing.await??;
    compare(place, "rest, rest", &seen, &resting, table)?;
    compare(place, "rest, watched", &seen, &watching, table)?;
    close(cluster).await
}

/// Waits until a move that is to be paused copies nothing any more.
async fn pause(cluster: &Cluster, record: &OpRecord) -> Result<(), Failure> {
    loop {
        let now = cluster.catalog.operation(record.op.id).await?;
        match (now.state, now.step) {
            (OpState::Running, Step::Preparing) => tokio::time::sleep(SETTLED / 50).await,
            (OpState::Running, Step::Copying | Step::CatchingUp) => {
                tokio::time::sleep(SETTLED).await;
                return Ok(());
            }
            (_, step) => return Err(format!("the move could not be paused: it is {}", step.as_str()).into()),
        }
    }
}

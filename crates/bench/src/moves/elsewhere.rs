//! Writers of keys that stay, while others of the same shard move away and back: pairs of a time without a move and one
//! with, so that what the neighbours of the machine do hits both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{BUCKETS, Seen, begin, close, fill, follow, start, write};
use crate::cluster::Place;
use crate::measure::{Spread, ms_since};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Nobody moves these buckets: half of them.
pub(super) const STAYING: std::ops::Range<u32> = BUCKETS / 2..BUCKETS;

pub(super) fn table() -> Table {
    let title = "500 writes/s on keys that stay, while others of their shard move: medians of pairs, ms";
    let columns = [
        "engine",
        "pairs",
        "errors",
        "p50 at rest",
        "p50 moving",
        "ratio",
        "p99 at rest",
        "p99 moving",
        "ratio p99",
    ];
    Table::new("move_elsewhere", title, &columns)
}

pub(super) async fn measure(place: &Place, effort: Effort, table: &mut Table) -> Result<(), Failure> {
    let (rows, pairs) = effort.pick((100_000, 12), (20_000, 4));
    let cluster = start(place, "elsewhere").await?;
    fill(&cluster, rows).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(cluster.clone(), stop.clone(), STAYING));
    let began = Instant::now();
    let (mut spans, mut lasts_ms) = (Vec::new(), 500.0);
    for number in 0..pairs {
        let from = ms_since(began);
        tokio::time::sleep(Duration::from_secs_f64(lasts_ms / 1000.0)).await;
        let between = ms_since(began);
        let to = cluster.shards[(number + 1) % 2].clone();
        let record = begin(&cluster, 0..BUCKETS / 2, &to).await?;
        follow(&cluster, &record).await?;
        let end = ms_since(began);
        lasts_ms = end - between;
        spans.push((from, between, end));
    }
    stop.store(true, Ordering::SeqCst);
    let seen = writing.await??;
    let mut figures: [Vec<f64>; 4] = Default::default();
    for (from, between, end) in spans {
        let (rest, moving) = (waits(&seen, from, between), waits(&seen, between, end));
        if rest.is_empty() || moving.is_empty() {
            continue;
        }
        for (into, figure) in
            figures.iter_mut().zip([at(&rest, 0.5), at(&moving, 0.5), at(&rest, 0.99), at(&moving, 0.99)])
        {
            into.push(figure);
        }
    }
    let count = figures[0].len();
    if count == 0 {
        return Err("no write was seen".into());
    }
    let [rest, moving, rest_99, moving_99] = figures.map(|figures| Spread::of(figures).median);
    table.row([
        Cell::from(place.name()),
        Cell::number(count as f64),
        Cell::number(seen.errors as f64),
        rest.into(),
        moving.into(),
        (moving / rest).into(),
        rest_99.into(),
        moving_99.into(),
        (moving_99 / rest_99).into(),
    ]);
    close(cluster).await
}

/// How long the writes of a time took, in order.
fn waits(seen: &Seen, from: f64, to: f64) -> Vec<f64> {
    let mut waits: Vec<f64> =
        seen.waits.iter().filter(|(due, _)| (from..to).contains(due)).map(|(_, wait)| *wait).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

fn at(sorted: &[f64], part: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * part) as usize]
}

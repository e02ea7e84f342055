//! Writers of keys that stay, while others of the same shard move away and back: pairs of a time without a move and one
//! with, so that what the neighbours of the machine do hits both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyshard_catalog::{OpRecord, OpState, Step};

use super::{BUCKETS, Seen, begin, close, fill, start, write};
use crate::cluster::{Cluster, Place};
use crate::measure::{Spread, ms_since};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// How often a move is looked at, and as often the last one while nothing moves: looking is work, too.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Nobody moves these buckets: half of them.
pub(super) const STAYING: std::ops::Range<u32> = BUCKETS / 2..BUCKETS;

/// The columns of pairs of times: of which kind, and what the writers saw in both.
pub(super) const PAIRS: [&str; 12] = [
    "engine",
    "times",
    "pairs",
    "errors",
    "p50 first",
    "p50 second",
    "ratio",
    "ratio, middle half",
    "p99 first",
    "p99 second",
    "ratio p99",
    "ratio p99, middle half",
];

pub(super) fn table() -> Table {
    let title =
        "500 writes/s on keys that stay, while others of their shard move: medians of pairs of times, ms";
    Table::new("move_elsewhere", title, &PAIRS)
}

/// The same, by what the move was doing.
pub(super) fn steps_table() -> Table {
    let title = "The same writes by the step of the move, in all pairs, ms";
    Table::new(
        "move_elsewhere_steps",
        title,
        &["engine", "step", "writes", "p50", "of rest", "p99", "of rest p99", "longest"],
    )
}

pub(super) async fn measure(
    place: &Place,
    effort: Effort,
    share: u32,
    [table, steps]: [&mut Table; 2],
) -> Result<(), Failure> {
    let (rows, pairs) = effort.pick((100_000, 12), (20_000, 4));
    let cluster = start(place, "elsewhere", share).await?;
    fill(&cluster, rows).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(cluster.clone(), stop.clone(), STAYING, i64::MAX));
    let began = Instant::now();
    let (mut lasts_ms, mut last) = (500.0, None);
    let (mut resting, mut moving) = (Vec::new(), Vec::new());
    let mut doing: Vec<(Option<Step>, f64, f64)> = Vec::new();
    for number in 0..pairs {
        // Two times at rest: what differs between them is noise.
        let time = Duration::from_secs_f64(lasts_ms / 1000.0);
        let before = ms_since(began);
        rest(&cluster, last.as_ref(), time).await?;
        let from = ms_since(began);
        rest(&cluster, last.as_ref(), time).await?;
        let between = ms_since(began);
        doing.push((None, before, between));
        let to = cluster.shards[(number + 1) % 2].clone();
        let record = begin(&cluster, 0..BUCKETS / 2, &to).await?;
        watch(&cluster, &record, began, &mut doing).await?;
        let end = ms_since(began);
        lasts_ms = end - between;
        resting.push([(before, from), (from, between)]);
        moving.push([(from, between), (between, end)]);
        last = Some(record);
    }
    stop.store(true, Ordering::SeqCst);
    let seen = writing.await??;
    compare(place, "rest, rest", &seen, &resting, table)?;
    compare(place, "rest, moving", &seen, &moving, table)?;
    by_step(place, &seen, &doing, steps);
    close(cluster).await
}

/// Adds what the writers saw in pairs of times.
pub(super) fn compare(
    place: &Place,
    times: &'static str,
    seen: &Seen,
    pairs: &[[(f64, f64); 2]],
    table: &mut Table,
) -> Result<(), Failure> {
    let waits = pairs.iter().map(|pair| pair.map(|(from, to)| waits(seen, from, to)));
    let waits: Vec<[Vec<f64>; 2]> = waits.filter(|pair| pair.iter().all(|waits| !waits.is_empty())).collect();
    if waits.is_empty() {
        return Err("no write was seen".into());
    }
    let figures = |part: f64| -> [Cell; 4] {
        let of: Vec<[f64; 2]> = waits.iter().map(|[one, two]| [at(one, part), at(two, part)]).collect();
        let median = |place: usize| Spread::of(of.iter().map(|pair| pair[place]).collect()).median;
        let mut ratios: Vec<f64> = of.iter().map(|[one, two]| two / one).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = format!("{:.2} to {:.2}", at(&ratios, 0.25), at(&ratios, 0.75));
        [median(0).into(), median(1).into(), Spread::of(ratios).median.into(), middle.into()]
    };
    let ([a, b, c, d], [e, f, g, h]) = (figures(0.5), figures(0.99));
    let (count, errors) = (Cell::number(waits.len() as f64), Cell::number(seen.errors as f64));
    table.row([Cell::from(place.name()), Cell::from(times), count, errors, a, b, c, d, e, f, g, h]);
    Ok(())
}

/// A time without a move, in which the last one is looked at as often as one under way would be.
async fn rest(cluster: &Cluster, last: Option<&OpRecord>, time: Duration) -> Result<(), Failure> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if let Some(last) = last {
            cluster.catalog.operation(last.op.id).await?;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Waits for the end of a move, and notes what it was doing when.
async fn watch(
    cluster: &Cluster,
    record: &OpRecord,
    began: Instant,
    doing: &mut Vec<(Option<Step>, f64, f64)>,
) -> Result<(), Failure> {
    let mut since = ms_since(began);
    loop {
        let now = cluster.catalog.operation(record.op.id).await?;
        let at = ms_since(began);
        doing.push((Some(now.step), since, at));
        since = at;
        match now.state {
            OpState::Running => tokio::time::sleep(LOOK_EVERY).await,
            OpState::Done => return Ok(()),
            OpState::RolledBack => return Err(now.message.unwrap_or_default().into()),
        }
    }
}

fn by_step(place: &Place, seen: &Seen, doing: &[(Option<Step>, f64, f64)], table: &mut Table) {
    let of = |step: Option<Step>| {
        let during = doing.iter().filter(|(doing, _, _)| *doing == step);
        let mut found: Vec<f64> = during.flat_map(|(_, from, to)| waits(seen, *from, *to)).collect();
        found.sort_by(f64::total_cmp);
        found
    };
    let rest = of(None);
    let mut steps: Vec<Step> = Vec::new();
    for step in doing.iter().filter_map(|(step, _, _)| *step) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    for (name, waits) in std::iter::once(("at rest", rest.clone()))
        .chain(steps.into_iter().map(|step| (step.as_str(), of(Some(step)))))
        .filter(|(_, waits)| !waits.is_empty() && !rest.is_empty())
    {
        let (half, most) = (at(&waits, 0.5), at(&waits, 0.99));
        table.row([
            Cell::from(place.name()),
            Cell::from(name),
            Cell::number(waits.len() as f64),
            half.into(),
            (half / at(&rest, 0.5)).into(),
            most.into(),
            (most / at(&rest, 0.99)).into(),
            at(&waits, 1.0).into(),
        ]);
    }
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

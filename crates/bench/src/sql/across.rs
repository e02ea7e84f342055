//! Questions to all shards, beside the slowest shard's own time for its part while all of them work at once.

use std::time::Instant;

use super::world::{Place, SHARDS, World};
use crate::measure::{Spread, ms_since};
use crate::report::Table;
use crate::{Effort, Failure};

const QUERIES: &[(&str, &str)] = &[
    (
        "group, order, limit",
        "SELECT kind, count(*), sum(amount) FROM events GROUP BY kind ORDER BY sum(amount) DESC, kind LIMIT 10",
    ),
    ("top 10", "SELECT tenant, id, amount FROM events ORDER BY amount DESC, id LIMIT 10"),
    ("count", "SELECT count(*) FROM events"),
    (
        "join by key, group",
        "SELECT e.kind, sum(a.balance) FROM events e JOIN accounts a ON a.tenant = e.tenant \
         GROUP BY e.kind ORDER BY 1 LIMIT 10",
    ),
];

/// Milliseconds of each question.
pub fn run(world: &World, effort: Effort) -> Result<Table, Failure> {
    let rounds = effort.pick(9, 3);
    let title =
        format!("Questions to {SHARDS} shards with {} rows in all, ms, median of {rounds}", world.events);
    let columns = &["question", "slowest shard, all at once", "Polyshard", "ratio"];
    let mut table = Table::new("sql-across", title, columns);
    for (name, sql) in QUERIES {
        let (mut own, mut door) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(slowest(world, sql)?);
            door.push(timed(&world.sharded(), sql)?);
        }
        let (own, door) = (Spread::of(own).median, Spread::of(door).median);
        table.row([(*name).into(), own.into(), door.into(), (door / own).into()]);
    }
    Ok(table)
}

/// All shards asked at once, past the door.
fn slowest(world: &World, sql: &str) -> Result<f64, Failure> {
    let times: Vec<Result<f64, Failure>> = std::thread::scope(|scope| {
        let each = (1..=SHARDS).map(|shard| {
            let place = world.shard(shard);
            scope.spawn(move || timed(&place, sql))
        });
        let running: Vec<_> = each.collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
    });
    times.into_iter().try_fold(0.0, |most: f64, time| Ok(most.max(time?)))
}

/// By psql, whose own start is part of both sides.
fn timed(place: &Place, sql: &str) -> Result<f64, Failure> {
    let start = Instant::now();
    place.psql(sql)?;
    Ok(ms_since(start))
}

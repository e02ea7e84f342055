//! What the router adds to a read on an embedded shard, and what tickets cost.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_engine::{Batch, Statement};
use polyshard_map::{
    Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, MapDefinition, MapName, Scheme, ShardId,
    spread_buckets,
};
use polyshard_router::gate::Gate;
use polyshard_router::{Access, Ticket};
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, Place};
use crate::measure::{Random, Spread, ns_per_op};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Rows there are, one a key.
const ROWS: i64 = 20_000;
/// Shards they are on.
const SHARDS: usize = 4;
/// Operations timed together: about 0.2 ms, so that few batches contain a time in which another process ran.
const BATCH: usize = 50;

/// All tables of routers.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let runtime = Runtime::new()?;
    let place = Place::Files(tempfile::tempdir()?);
    let calls = runtime.block_on(calls(&place, effort))?;
    Ok(vec![calls, gate(effort)?])
}

async fn calls(place: &Place, effort: Effort) -> Result<Table, Failure> {
    let batches = effort.pick(5_000, 500);
    let cluster = Cluster::start(place, "bench", SHARDS).await?;
    let map = MapName::new("tenants")?;
    let spec = HashSpec::standard();
    let definition = MapDefinition::new(map.clone(), KeyType::BigInt, Scheme::Hash(spec))?;
    let entries = spread_buckets(&spec, &cluster.shards)?.into_iter().map(|entry| entry.at(Epoch::ZERO));
    cluster.driver.create_map(&definition, entries.collect()).await?;
    cluster.router.refresh().await?;
    let router = &cluster.router;
    fill(&cluster, &map).await?;

    let read: Arc<str> = "SELECT body FROM item WHERE id = $1".into();
    let statement = |id: i64| Statement::new(read.clone()).bind(id);
    // One ticket for each shard: a read on it is the engine's alone.
    let mut tickets = Vec::new();
    let mut ticket_of = Vec::new();
    for id in 0..ROWS {
        let ticket = router.enter(&map, &[Key::BigInt(id)], Access::Read).await?;
        let known = tickets.iter().position(|known: &Ticket| known.shard() == ticket.shard());
        ticket_of.push(known.unwrap_or(tickets.len()));
        if known.is_none() {
            tickets.push(ticket);
        }
    }
    let mut random = Random::new(1);
    let (mut engine, mut call, mut enter) = (Vec::new(), Vec::new(), Vec::new());
    // Each batch has other rows, so that what one leaves in the caches does not serve the next.
    let mut rows = || (0..BATCH).map(|_| random.below(ROWS as u64) as i64).collect::<Vec<_>>();
    for _ in 0..batches {
        let ids = rows();
        let start = Instant::now();
        for id in &ids {
            black_box(tickets[ticket_of[*id as usize]].read(statement(*id)).await?.one()?.blob(0)?.len());
        }
        engine.push(per_op(start));
        let ids = rows();
        let start = Instant::now();
        for id in &ids {
            let work = async |ticket: &Ticket| ticket.read(statement(*id)).await;
            let rows = router.call(&map, &[Key::BigInt(*id)], Access::Read, work).await?;
            black_box(rows.one()?.blob(0)?.len());
        }
        call.push(per_op(start));
        let ids = rows();
        let start = Instant::now();
        for id in &ids {
            drop(black_box(router.enter(&map, &[Key::BigInt(*id)], Access::Read).await?));
        }
        enter.push(per_op(start));
    }
    drop(tickets);
    cluster.close().await;

    let ratio = Spread::of(engine.iter().zip(&call).map(|(engine, call)| engine / call).collect());
    let mut table = Table::new(
        "router",
        format!("A point read on an embedded shard, one caller, ns ({batches} batches of {BATCH} in turn)"),
        &["what", "min", "median", "speed of the engine's"],
    );
    for (what, times, ratio) in [
        ("engine: read", engine, Cell::None),
        ("router: call with such a read", call, ratio.median.into()),
        ("router: enter, ticket dropped", enter, Cell::None),
    ] {
        let times = Spread::of(times);
        table.row([what.into(), times.min.into(), times.median.into(), ratio]);
    }
    Ok(table)
}

/// Every shard has all rows: only the cost of finding one matters here.
async fn fill(cluster: &Cluster, map: &MapName) -> Result<(), Failure> {
    for ticket in cluster.router.enter_range(map, &KeyRange::all(), Access::Write).await? {
        let create = "CREATE TABLE item (id INTEGER PRIMARY KEY, body BLOB NOT NULL)";
        ticket.write(Statement::new(create).into()).await?;
        let rows = "WITH RECURSIVE n(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM n WHERE id + 1 < $1) \
                    INSERT INTO item SELECT id, zeroblob(200) FROM n";
        ticket.write(Batch::from(Statement::new(rows).bind(ROWS))).await?;
    }
    Ok(())
}

fn per_op(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

/// The gate alone: tickets counted in and out by several threads at once.
fn gate(effort: Effort) -> Result<Table, Failure> {
    let mut table = Table::new(
        "gate",
        "The gate alone: a ticket counted in and out, ns of wall time for each thread's pair",
        &["threads", "min", "median", "pairs a second, all threads"],
    );
    for threads in [1, 2, 8] {
        let gate = Gate::default();
        let times = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let gate = &gate;
                    scope.spawn(move || enter_and_leave(gate, thread, effort))
                })
                .collect();
            let joined = workers.into_iter().map(|worker| worker.join().expect("the gate does not panic"));
            joined.collect::<Result<Vec<_>, Failure>>()
        })?;
        let min = times.iter().map(|(spread, _)| spread.min).fold(f64::INFINITY, f64::min);
        let medians = Spread::of(times.iter().map(|(spread, _)| spread.median).collect());
        let all: f64 = times.iter().map(|(_, rate)| rate).sum();
        table.row([
            Cell::Number(f64::from(threads), 0),
            min.into(),
            medians.median.into(),
            Cell::Number(all, 0),
        ]);
    }
    Ok(table)
}

/// The times of a pair, and the pairs a second of this thread.
fn enter_and_leave(gate: &Gate, thread: i32, effort: Effort) -> Result<(Spread, f64), Failure> {
    let map = MapName::new("tenants")?;
    let shard = ShardId::new("s1")?;
    let ranges: Arc<[KeyRange]> = [KeyRange::point(KeyBytes::new(thread.to_be_bytes().to_vec()))].into();
    let batches = effort.pick(20_000, 2_000);
    let start = Instant::now();
    let times = ns_per_op(batches, BATCH, || {
        for _ in 0..BATCH {
            if let Some(place) = gate.enter(&map, &ranges, &shard, Access::Write) {
                gate.leave(place);
            }
        }
    });
    let took: Duration = start.elapsed();
    Ok((times, ((batches + 1) * BATCH) as f64 / took.as_secs_f64()))
}

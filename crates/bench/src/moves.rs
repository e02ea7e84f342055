//! Moves: how long writers of the moving range wait, and how fast rows are carried beside the raw way.

mod elsewhere;
mod fifth;
mod watched;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use polyshard_catalog::{MoveRequest, OpRecord, OpState, Step};
use polyshard_engine::{Batch, Dialect, Statement};
use polyshard_map::{
    Epoch, HashSpec, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId,
};
use polyshard_mover::{BUSY_SHARE, Mover};
use polyshard_router::{Access, Ticket};
use polyshard_shard::{Dataset, Placement};
use polyshard_testkit::postgres::PgServer;
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, Place};
use crate::measure::ms_since;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Writes a second on the moving range.
const WRITES_PER_S: u64 = 500;
/// Buckets of the map.
const BUCKETS: u32 = 16;
/// Keys that the rows are of.
const KEYS: i64 = 1_000;
/// The first id of rows that are written while something moves.
const WRITTEN_FROM: i64 = 10_000_000;
/// Rows written at once while a table is filled.
const FILL_ROWS: i64 = 500;

/// The tables of moves whose names have this in them.
pub fn run(
    effort: Effort,
    only: &str,
    fifth_rows: Option<i64>,
    share: Option<u32>,
) -> Result<Vec<Table>, Failure> {
    let share = share.unwrap_or(BUSY_SHARE);
    let runtime = Runtime::new()?;
    let mut rates = Table::new(
        "move_rate",
        "Copying rows of about 150 bytes from shard to shard, rows/s",
        &["engine", "rows", "move: copying", "raw copy", "speed of the raw copy", "whole move, ms"],
    );
    let mut pauses = Table::new(
        "move_pause",
        format!("{WRITES_PER_S} writes/s on a range that moves to and fro: what the writers see, ms"),
        &["engine", "moves", "writes", "errors", "p50", "p99", "longest wait of a move, median", "worst"],
    );
    let (mut elsewhere, mut steps) = (elsewhere::table(), elsewhere::steps_table());
    let (mut watched, mut fifth) = (watched::table(), fifth::table());
    let wanted = |name: &str| name.contains(only);
    let fifth_rows = fifth_rows.unwrap_or(effort.pick(1_000_000, 100_000));
    for place in [Place::Files(tempfile::tempdir()?), Place::Server(PgServer::start())] {
        if wanted("move_rate") {
            runtime.block_on(rate(&place, effort, share, &mut rates))?;
        }
        if wanted("move_pause") {
            runtime.block_on(pause(&place, effort, share, &mut pauses))?;
        }
        if wanted("move_elsewhere") {
            let tables = [&mut elsewhere, &mut steps];
            runtime.block_on(elsewhere::measure(&place, effort, share, tables))?;
        }
        if wanted("move_watched") {
            runtime.block_on(watched::measure(&place, effort, share, &mut watched))?;
        }
        if wanted("move_fifth") {
            runtime.block_on(fifth::run(&place, fifth_rows, &mut fifth))?;
        }
    }
    let tables = [
        ("move_rate", rates),
        ("move_pause", pauses),
        ("move_elsewhere", elsewhere),
        ("move_elsewhere", steps),
        ("move_watched", watched),
        ("move_fifth", fifth),
    ];
    Ok(tables.into_iter().filter(|(name, _)| wanted(name)).map(|(_, table)| table).collect())
}

fn tenants() -> Result<MapDefinition, Failure> {
    Ok(MapDefinition::new(
        MapName::new("tenants")?,
        KeyType::BigInt,
        Scheme::Hash(HashSpec::new(0, BUCKETS)?),
    )?)
}

/// A cluster of two shards with a table on both, all of whose keys are on the first.
async fn start(place: &Place, name: &str, share: u32) -> Result<Arc<Cluster>, Failure> {
    let cluster = Cluster::start(place, name, 2).await?;
    let router = cluster.router.clone();
    let mover = Mover::new(cluster.router.shard_source());
    let mover = mover.paced(Arc::new(move || router.requests()), share);
    cluster.driver.set_carrier(Arc::new(mover));
    let definition = tenants()?;
    let all = definition.buckets(0, BUCKETS)?;
    let entry = NewEntry::new(all, cluster.shards[0].clone()).at(Epoch::ZERO);
    cluster.driver.create_map(&definition, vec![entry]).await?;
    cluster.router.refresh().await?;
    for id in &cluster.shards {
        let shard = cluster.router.administer(id).await?;
        let mut tx = shard.control_transaction().await?;
        let (int, blob, text) = (shard.dialect().bigint(), shard.dialect().blob(), shard.dialect().text());
        let clustered = if shard.dialect() == Dialect::Sqlite { " WITHOUT ROWID, STRICT" } else { "" };
        tx.run(Statement::new(format!(
            "CREATE TABLE item (placement {blob} NOT NULL, id {int} NOT NULL, n {int} NOT NULL, body {text} NOT NULL, \
             PRIMARY KEY (placement, id)){clustered}"
        )))
        .await?;
        tx.commit().await?;
        let dataset = Dataset {
            name: "items".to_owned(),
            map: definition.name().clone(),
            table: "item".to_owned(),
            placement: Placement::Column("placement".to_owned()),
            rows: polyshard_shard::TableRows::All,
        };
        shard.bind(&dataset).await?;
    }
    Ok(Arc::new(cluster))
}

const INSERT: &str = "INSERT INTO item (placement, id, n, body) VALUES ($1, $2, 0, $3)";
const PUT: &str = "INSERT INTO item (placement, id, n, body) VALUES ($1, $2, 0, $3) \
                   ON CONFLICT (placement, id) DO UPDATE SET n = item.n + 1";

fn insert(definition: &MapDefinition, id: i64) -> Result<Statement, Failure> {
    row(INSERT, definition, id)
}

/// A row that may be there already.
fn put(definition: &MapDefinition, id: i64) -> Result<Statement, Failure> {
    row(PUT, definition, id)
}

fn row(sql: &'static str, definition: &MapDefinition, id: i64) -> Result<Statement, Failure> {
    let placement = definition.placement(&Key::BigInt(id % KEYS))?.into_vec();
    Ok(Statement::new(sql).bind(placement).bind(id).bind("x".repeat(120)))
}

async fn fill(cluster: &Cluster, rows: i64) -> Result<(), Failure> {
    let definition = tenants()?;
    let all = KeyRange::all();
    let tickets = cluster.router.enter_range(definition.name(), &all, Access::Write).await?;
    for first in (0..rows).step_by(FILL_ROWS as usize) {
        let batch: Result<Batch, Failure> =
            (first..(first + FILL_ROWS).min(rows)).map(|id| insert(&definition, id)).collect();
        tickets[0].write(batch?).await?;
    }
    Ok(())
}

async fn begin(cluster: &Cluster, buckets: Range<u32>, to: &ShardId) -> Result<OpRecord, Failure> {
    let definition = tenants()?;
    let request = MoveRequest {
        map: definition.name().clone(),
        range: definition.buckets(buckets.start, buckets.end)?,
        to: to.clone(),
        keep_ms: 0,
        if_version: None,
        by: None,
    };
    Ok(cluster.driver.start_move(&request).await?)
}

/// Waits for the end of a move; answers how long it copied.
async fn follow(cluster: &Cluster, record: &OpRecord) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut copied = None;
    loop {
        let now = cluster.catalog.operation(record.op.id).await?;
        if now.step != Step::Copying && now.step != Step::Preparing {
            copied.get_or_insert_with(|| ms_since(began));
        }
        match now.state {
            OpState::Running => tokio::time::sleep(Duration::from_millis(2)).await,
            OpState::Done => return Ok(copied.unwrap_or_default()),
            OpState::RolledBack => return Err(now.message.unwrap_or_default().into()),
        }
    }
}

async fn rate(place: &Place, effort: Effort, share: u32, table: &mut Table) -> Result<(), Failure> {
    let rows: i64 = effort.pick(400_000, 40_000);
    let cluster = start(place, "rate", share).await?;
    fill(&cluster, rows).await?;
    let raw_ms = match place {
        Place::Files(folder) => raw_attached(folder.path())?,
        Place::Server(server) => raw_copy(server).await?,
    };
    let began = Instant::now();
    let record = begin(&cluster, 0..BUCKETS, &cluster.shards[1]).await?;
    let copy_ms = follow(&cluster, &record).await?;
    let whole_ms = ms_since(began);
    let per_s = |ms: f64| rows as f64 * 1000.0 / ms;
    table.row([
        Cell::from(place.name()),
        Cell::number(rows as f64),
        Cell::number(per_s(copy_ms)),
        Cell::number(per_s(raw_ms)),
        (raw_ms / copy_ms).into(),
        Cell::number(whole_ms),
    ]);
    close(cluster).await
}

/// The same rows, copied by SQLite itself into another file.
fn raw_attached(folder: &std::path::Path) -> Result<f64, Failure> {
    let copy = folder.join("raw.db");
    let connection = rusqlite::Connection::open(folder.join("rate_1.db"))?;
    connection.execute("ATTACH DATABASE ?1 AS other", [copy.to_string_lossy()])?;
    connection.execute_batch(
        "PRAGMA other.journal_mode = WAL; PRAGMA other.synchronous = FULL; \
         CREATE TABLE other.item (placement BLOB NOT NULL, id INTEGER NOT NULL, n INTEGER NOT NULL, \
         body TEXT NOT NULL, PRIMARY KEY (placement, id)) WITHOUT ROWID, STRICT",
    )?;
    let began = Instant::now();
    connection.execute_batch("INSERT INTO other.item SELECT * FROM main.item ORDER BY placement, id")?;
    Ok(ms_since(began))
}

/// The same rows, by COPY out of one database and into another.
async fn raw_copy(server: &PgServer) -> Result<f64, Failure> {
    server.create_database("raw");
    let from = connect(server, "rate_1").await?;
    let to = connect(server, "raw").await?;
    to.batch_execute(
        "CREATE TABLE item (placement bytea NOT NULL, id bigint NOT NULL, n bigint NOT NULL, \
         body text COLLATE \"C\" NOT NULL, PRIMARY KEY (placement, id))",
    )
    .await?;
    let began = Instant::now();
    let mut out = Box::pin(from.copy_out("COPY (SELECT * FROM item) TO STDOUT (FORMAT binary)").await?);
    let mut into = Box::pin(to.copy_in("COPY item FROM STDIN (FORMAT binary)").await?);
    while let Some(bytes) = out.next().await {
        into.send(bytes?).await?;
    }
    into.as_mut().finish().await?;
    Ok(ms_since(began))
}

async fn connect(server: &PgServer, database: &str) -> Result<tokio_postgres::Client, Failure> {
    let (client, connection) = tokio_postgres::connect(&server.url(database), tokio_postgres::NoTls).await?;
    // Ends with the client.
    tokio::spawn(connection);
    Ok(client)
}

/// What the writers saw.
#[derive(Default)]
struct Seen {
    /// When each write was due, in ms since the beginning, and how long it took.
    waits: Vec<(f64, f64)>,
    errors: u64,
}

async fn pause(place: &Place, effort: Effort, share: u32, table: &mut Table) -> Result<(), Failure> {
    let (rows, moves) = effort.pick((20_000, 20), (2_000, 6));
    let cluster = start(place, "pause", share).await?;
    fill(&cluster, rows).await?;
    let stop = Arc::new(AtomicBool::new(false));
    // As many as there are: otherwise each move would have more to carry than the one before.
    let writing = tokio::spawn(write(cluster.clone(), stop.clone(), 0..BUCKETS, rows));
    let began = Instant::now();
    let mut spans = Vec::new();
    for number in 0..moves {
        let to = cluster.shards[(number + 1) % 2].clone();
        let from = ms_since(began);
        let record = begin(&cluster, 0..BUCKETS, &to).await?;
        follow(&cluster, &record).await?;
        spans.push((from, ms_since(began)));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    stop.store(true, Ordering::SeqCst);
    let seen = writing.await??;
    let mut waits: Vec<f64> = seen.waits.iter().map(|(_, wait)| *wait).collect();
    waits.sort_by(f64::total_cmp);
    let longest = |(from, to): &(f64, f64)| {
        let during = seen.waits.iter().filter(|(at, _)| at >= from && at <= to).map(|(_, wait)| *wait);
        during.fold(0.0, f64::max)
    };
    let mut worst: Vec<f64> = spans.iter().map(longest).collect();
    worst.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
    table.row([
        Cell::from(place.name()),
        Cell::number(moves as f64),
        Cell::number(waits.len() as f64),
        Cell::number(seen.errors as f64),
        at(&waits, 0.5).into(),
        at(&waits, 0.99).into(),
        at(&worst, 0.5).into(),
        at(&worst, 1.0).into(),
    ]);
    close(cluster).await
}

/// Writes to keys of some buckets at a steady rate, each write when it is due, whatever became of the one before. After
/// so many rows the first one comes again.
async fn write(
    cluster: Arc<Cluster>,
    stop: Arc<AtomicBool>,
    buckets: Range<u32>,
    rows: i64,
) -> Result<Seen, Failure> {
    let definition = Arc::new(tenants()?);
    let range = definition.buckets(buckets.start, buckets.end)?;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    let mut due = tokio::time::interval(Duration::from_micros(1_000_000 / WRITES_PER_S));
    let (mut id, mut written) = (WRITTEN_FROM, 0);
    while !stop.load(Ordering::SeqCst) {
        due.tick().await;
        (id, written) = if written == rows { (WRITTEN_FROM + 1, 1) } else { (id + 1, written + 1) };
        while !range.contains(definition.placement(&Key::BigInt(id % KEYS))?.as_slice()) {
            id += 1;
        }
        let (cluster, definition) = (cluster.clone(), definition.clone());
        tasks.spawn(async move {
            let at = ms_since(began);
            let started = Instant::now();
            let statement = put(&definition, id)?;
            let key = [Key::BigInt(id % KEYS)];
            let work =
                async move |ticket: &Ticket| ticket.write(Batch::from(statement.clone())).await.map(drop);
            let written = cluster.router.call(definition.name(), &key, Access::Write, work).await;
            Ok::<_, Failure>((at, ms_since(started), written.is_ok()))
        });
    }
    let mut seen = Seen::default();
    while let Some(done) = tasks.join_next().await {
        let (at, wait, fine) = done??;
        seen.waits.push((at, wait));
        seen.errors += u64::from(!fine);
    }
    Ok(seen)
}

async fn close(cluster: Arc<Cluster>) -> Result<(), Failure> {
    match Arc::into_inner(cluster) {
        Some(cluster) => cluster.close().await,
        None => return Err("a writer is still there".into()),
    }
    Ok(())
}

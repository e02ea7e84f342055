//! A fifth shard beside four that share a hash map evenly: how many rows the plan moves there, and how long it takes.
//! The table is a user's: its rows are placed by the hash of a column, with no index on that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use polyshard_catalog::{MoveRequest, OpRecord};
use polyshard_engine::{Batch, Statement};
use polyshard_map::{Epoch, HashSpec, Key, KeyType, MapDefinition, MapName, Scheme, ShardId, spread_buckets};
use polyshard_mover::Mover;
use polyshard_planner::plan::{Aim, By, Planned, Situation};
use polyshard_planner::{Heat, measure};
use polyshard_router::Access;
use polyshard_shard::{Dataset, Placement};

use super::{close, follow};
use crate::Failure;
use crate::cluster::{Cluster, Place};
use crate::measure::ms_since;
use crate::report::{Cell, Table};

/// Enough that a fifth of them is a fifth of the rows.
const BUCKETS: u32 = 512;
/// Rows of one tenant.
const TENANT_ROWS: i64 = 10;
/// Tenants written at once.
const TENANTS_AT_ONCE: i64 = 100;

pub(super) fn table() -> Table {
    let title = "A fifth shard beside four with one hash map: what moves there";
    let columns = ["engine", "rows", "rows moved", "percent of all", "moves", "rows/s", "whole, ms"];
    Table::new("move_fifth", title, &columns)
}

fn orders() -> Result<MapDefinition, Failure> {
    let hash = Scheme::Hash(HashSpec::new(0, BUCKETS)?);
    Ok(MapDefinition::new(MapName::new("orders")?, KeyType::BigInt, hash)?)
}

pub(super) async fn run(place: &Place, rows: i64, table: &mut Table) -> Result<(), Failure> {
    let cluster = Arc::new(start(place).await?);
    fill(&cluster, rows / TENANT_ROWS).await?;
    let plan = plan(&cluster).await?;
    let began = Instant::now();
    for part in &plan {
        let record: OpRecord = cluster.driver.start_move(part).await?;
        follow(&cluster, &record).await?;
    }
    let whole_ms = ms_since(began);
    let fifth = cluster.router.administer(&cluster.shards[4]).await?;
    let mut tx = fifth.control_transaction().await?;
    let moved = tx.run(Statement::new("SELECT count(*) FROM purchase")).await?.one()?.int(0)? as f64;
    tx.rollback().await?;
    table.row([
        Cell::from(place.name()),
        Cell::number(rows as f64),
        Cell::number(moved),
        (moved * 100.0 / rows as f64).into(),
        Cell::number(plan.len() as f64),
        Cell::number(moved * 1000.0 / whole_ms),
        Cell::number(whole_ms),
    ]);
    close(cluster).await
}

async fn start(place: &Place) -> Result<Cluster, Failure> {
    let cluster = Cluster::start(place, "fifth", 5).await?;
    cluster.driver.set_carrier(Arc::new(Mover::new(cluster.router.shard_source())));
    let definition = orders()?;
    let Scheme::Hash(hash) = definition.scheme() else { return Err("it is a hash map".into()) };
    let entries = spread_buckets(hash, &cluster.shards[..4])?;
    let entries = entries.into_iter().map(|entry| entry.at(Epoch::ZERO)).collect();
    cluster.driver.create_map(&definition, entries).await?;
    cluster.router.refresh().await?;
    for id in &cluster.shards {
        let shard = cluster.router.administer(id).await?;
        let mut tx = shard.control_transaction().await?;
        let (int, text) = (shard.dialect().bigint(), shard.dialect().text());
        tx.run(Statement::new(format!(
            "CREATE TABLE purchase (tenant {int} NOT NULL, id {int} NOT NULL, body {text} NOT NULL, \
             PRIMARY KEY (tenant, id))"
        )))
        .await?;
        tx.commit().await?;
        let dataset = Dataset {
            name: "purchases".to_owned(),
            map: definition.name().clone(),
            table: "purchase".to_owned(),
            placement: Placement::Key(vec!["tenant".to_owned()]),
            rows: polyshard_shard::TableRows::All,
        };
        shard.bind(&dataset).await?;
    }
    Ok(cluster)
}

async fn fill(cluster: &Cluster, tenants: i64) -> Result<(), Failure> {
    let definition = orders()?;
    let all = polyshard_map::KeyRange::all();
    let tickets = cluster.router.enter_range(definition.name(), &all, Access::Write).await?;
    let entries = cluster.catalog.entries(definition.name()).await?;
    let insert: Arc<str> = "INSERT INTO purchase (tenant, id, body) VALUES ($1, $2, $3)".into();
    for first in (0..tenants).step_by(TENANTS_AT_ONCE as usize) {
        let mut batches: BTreeMap<ShardId, Vec<Statement>> = BTreeMap::new();
        for tenant in first..(first + TENANTS_AT_ONCE).min(tenants) {
            let placement = definition.placement(&Key::BigInt(tenant))?;
            let owner = entries.iter().find(|entry| entry.range.contains(placement.as_slice()));
            let owner = owner.ok_or("every bucket has a shard")?.shard.clone();
            let row = |id: i64| Statement::new(insert.clone()).bind(tenant).bind(id).bind("x".repeat(120));
            batches.entry(owner).or_default().extend((0..TENANT_ROWS).map(row));
        }
        for ticket in &tickets {
            if let Some(statements) = batches.remove(ticket.shard()) {
                ticket.write(statements.into_iter().collect::<Batch>()).await?;
            }
        }
    }
    Ok(())
}

/// The moves that give the fifth shard its part, neighbouring buckets together.
async fn plan(cluster: &Cluster) -> Result<Vec<MoveRequest>, Failure> {
    let definition = orders()?;
    // Measured as a plan of the program is: of tables as large as these only a sample is looked at.
    let view = cluster.router.view();
    let known = view.maps.get(definition.name()).ok_or("the map is there")?;
    let measured = measure::pieces(&cluster.router, &known.map, &Heat::default(), &[]).await?;
    let places = measure::places(&cluster.router, &cluster.catalog.shards().await?).await;
    let (pieces, definition) = (&measured.pieces, Some(known.map.definition()));
    let situation = Situation { pieces, places: &places, rules: &[], resting: &[], definition };
    let request = |planned: Planned| MoveRequest {
        map: known.map.definition().name().clone(),
        range: planned.range,
        to: planned.to,
        keep_ms: 0,
        if_version: None,
        by: None,
    };
    Ok(situation.even_out(Aim::new(By::Rows, 1)).moves.into_iter().map(request).collect())
}

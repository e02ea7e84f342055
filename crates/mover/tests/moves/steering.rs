//! Cancel, pause, undo and the refusals of moves (D5, D6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_catalog::{MoveRequest, OpState, Step, Wish};
use polyshard_engine::{Dialect, Statement};
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, Setup, buckets, keys, map, request, shard};
use crate::gates::gates;
use crate::place::Place;
use crate::world::World;

on_both_engines!(
    a_cancelled_move_removes_what_it_copied_and_nothing_else,
    cancelling_after_the_point_of_no_return_is_refused,
    a_paused_move_waits_and_then_goes_on,
    an_undone_move_brings_back_what_was_written_since,
    a_move_is_undone_only_while_its_old_rows_are_kept,
    a_second_move_of_the_same_range_waits_for_the_first,
    a_move_whose_target_is_the_next_moves_source_loses_nothing,
    rows_of_another_in_the_range_stop_a_move_before_it_begins,
    a_table_without_a_primary_key_is_refused_and_nothing_is_left,
    a_table_that_differs_on_the_target_is_refused,
    a_row_changed_behind_the_movers_back_stops_the_move,
    a_dataset_that_gets_its_first_rows_during_a_move_comes_along,
    a_dataset_that_gets_its_first_rows_just_before_the_capture_comes_along,
    a_table_altered_during_a_move_stops_it,
);

/// A process whose moves wait before a place until they are let go.
async fn held_at(place: &Arc<Place>, at: &'static str) -> (Arc<Cluster>, Arc<std::sync::Mutex<bool>>) {
    let held = Arc::new(std::sync::Mutex::new(true));
    let gate = held.clone();
    let failpoint: polyshard_catalog::Failpoint = Arc::new(move |here| {
        if here == at {
            // Other tasks of this thread go on elsewhere.
            tokio::task::block_in_place(|| {
                while *gate.lock().unwrap() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        false
    });
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    (Arc::new(Cluster::with_maps(place, setup).await), held)
}

async fn a_cancelled_move_removes_what_it_copied_and_nothing_else(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "verify.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 40, 5).await;
    let before = cluster.owners("tenants").await;
    let record = cluster.start(request("tenants", buckets(0, 2), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    cluster.driver.wish_for(record.op.id, Wish::Cancel).await.unwrap();
    *held.lock().unwrap() = false;
    let why = cluster.end_of(record.op.id).await.unwrap_err();
    assert!(why.contains("cancelled"), "{why}");
    assert_eq!(cluster.owners("tenants").await, before);
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn cancelling_after_the_point_of_no_return_is_refused(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "activate_from:s2.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 2), "s2")).await.unwrap();
    let left = async {
        let opened = cluster.router.administer(&shard("s1")).await.unwrap();
        while !opened.has_departed(record.op.id).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(crate::cluster::PATIENCE, left).await.unwrap();
    let refused = cluster.driver.wish_for(record.op.id, Wish::Cancel).await.unwrap_err();
    assert!(refused.to_string().contains("point of no return"), "{refused}");
    *held.lock().unwrap() = false;
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn a_paused_move_waits_and_then_goes_on(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "copy.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    let id = record.op.id;
    cluster.driver.wish_for(id, Wish::Pause).await.unwrap();
    // The driver asks what is wanted every 200 ms: it does so before it copies if its last time is longer ago.
    tokio::time::sleep(Duration::from_millis(250)).await;
    *held.lock().unwrap() = false;
    let paused = async {
        while cluster.catalog.move_status(id).await.unwrap().is_none_or(|status| status.wish != Wish::Pause) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::cluster::PATIENCE, paused).await.unwrap();
    // Several looks later it has still copied nothing.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let record = cluster.catalog.operation(id).await.unwrap();
    assert_eq!((record.state, record.step), (OpState::Running, Step::Copying));
    let writers = world.start(std::slice::from_ref(&cluster), 2, &["thing"]);
    world.until_written(20).await;
    cluster.driver.wish_for(id, Wish::Run).await.unwrap();
    cluster.end_of(id).await.unwrap();
    writers.stop().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn an_undone_move_brings_back_what_was_written_since(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let world = Arc::new(World::default());
    world.fill(&cluster, 40, 3).await;
    let before = cluster.owners("tenants").await;
    let writers = world.start(std::slice::from_ref(&cluster), 4, &["thing", "other"]);
    let keep = MoveRequest { keep_ms: 600_000, ..request("tenants", buckets(0, 4), "s2") };
    let record = cluster.start(keep).await.unwrap();
    cluster.until_step(record.op.id, Step::Keeping).await;
    world.until_written(100).await;
    let undo = cluster.driver.undo_move(record.op.id).await.unwrap();
    cluster.end_of(undo.op.id).await.unwrap();
    world.until_written(50).await;
    writers.stop().await;
    assert_eq!(cluster.owners("tenants").await, before);
    let undone = cluster.catalog.operation(record.op.id).await.unwrap();
    assert!(undone.message.unwrap().contains("undone by"), "the first one says so");
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn a_move_is_undone_only_while_its_old_rows_are_kept(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 10, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    let refused = cluster.driver.undo_move(record.op.id).await.unwrap_err();
    assert!(refused.to_string().contains("cleaned away"), "{refused}");
    let keep = MoveRequest { keep_ms: 600_000, ..request("tenants", buckets(0, 4), "s1") };
    let record = cluster.start(keep).await.unwrap();
    cluster.until_step(record.op.id, Step::Keeping).await;
    cluster.driver.wish_for(record.op.id, Wish::Clean).await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

async fn a_second_move_of_the_same_range_waits_for_the_first(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "clean.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Cleaning).await;
    // Switched, and not yet clean: the old rows are still there.
    let refused = cluster.start(request("tenants", buckets(1, 2), "s1")).await.unwrap_err();
    assert!(matches!(refused, polyshard_catalog::CatalogError::Busy { .. }), "{refused}");
    *held.lock().unwrap() = false;
    cluster.end_of(record.op.id).await.unwrap();
    cluster.moves("tenants", buckets(1, 2), "s1").await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn a_move_whose_target_is_the_next_moves_source_loses_nothing(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let world = Arc::new(World::default());
    world.fill(&cluster, 30, 3).await;
    let writers = world.start(std::slice::from_ref(&cluster), 3, &["thing"]);
    // Both at once: s1 → s2 while s2 → s3.
    let first = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    let second = cluster.start(request("tenants", buckets(4, 8), "s3")).await.unwrap();
    cluster.end_of(first.op.id).await.unwrap();
    cluster.end_of(second.op.id).await.unwrap();
    cluster.moves("tenants", buckets(0, 4), "s3").await.unwrap();
    writers.stop().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn rows_of_another_in_the_range_stop_a_move_before_it_begins(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    // A row that somebody left on the target, in the range that is to come.
    let tenant = (0..).find(|tenant| buckets(0, 4).contains(placement(*tenant).as_slice())).unwrap();
    let stray = placement(tenant);
    let insert = |dialect: Dialect| {
        let hex: String = stray.iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = if dialect == Dialect::Sqlite { format!("x'{hex}'") } else { format!("'\\x{hex}'") };
        format!(
            "INSERT INTO {} (dataset, tenant, id, placement, n, body) VALUES (1, {tenant}, 999, {bytes}, 0, 'x')",
            dialect.own_table("thing")
        )
    };
    cluster.rows("s2", insert).await;
    let why = cluster.moves("tenants", buckets(0, 4), "s2").await.unwrap_err();
    assert!(why.contains("rows of thing in the range already"), "{why}");
    let left = |dialect: Dialect| format!("SELECT 1 FROM {} WHERE id = 999", dialect.own_table("thing"));
    assert_eq!(cluster.rows("s2", left).await.len(), 1, "it is not the move's to remove");
    cluster.assert_healthy().await;
    cluster.close().await;
}

fn placement(tenant: i64) -> Vec<u8> {
    crate::cluster::tenants().placement(&polyshard_map::Key::BigInt(tenant)).unwrap().into_vec()
}

async fn a_table_without_a_primary_key_is_refused_and_nothing_is_left(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    bind_table(&cluster, "loose", &["CREATE TABLE loose (customer bigint, note text)"; 2]).await;
    let why = cluster.moves("customers", keys(0, 50), "s2").await.unwrap_err();
    assert!(why.contains("no primary key"), "{why}");
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn a_table_that_differs_on_the_target_is_refused(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let tables = [
        "CREATE TABLE uneven (customer bigint NOT NULL, id bigint NOT NULL, note text, PRIMARY KEY (customer, id))",
        "CREATE TABLE uneven (customer bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (customer, id))",
    ];
    bind_table(&cluster, "uneven", &tables).await;
    let why = cluster.moves("customers", keys(0, 50), "s2").await.unwrap_err();
    assert!(why.contains("not the same on both shards"), "{why}");
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// Makes a table on s1 and s2, and tells s1 that the map of customers places it.
async fn bind_table(cluster: &Cluster, name: &str, create: &[&str; 2]) {
    for (on, sql) in ["s1", "s2"].iter().zip(create) {
        cluster.rows(on, |_| (*sql).to_owned()).await;
    }
    let dataset = Dataset {
        name: name.to_owned(),
        map: map("customers"),
        table: name.to_owned(),
        placement: Placement::Key(vec!["customer".to_owned()]),
        rows: polyshard_shard::TableRows::All,
    };
    cluster.router.administer(&shard("s1")).await.unwrap().bind(&dataset).await.unwrap();
}

/// A row on the target that is not what was carried: the comparison finds it, names it, and traffic stays where it is.
async fn a_row_changed_behind_the_movers_back_stops_the_move(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "verify.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 40, 3).await;
    let before = cluster.owners("tenants").await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    let opened = cluster.router.administer(&shard("s2")).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    let tenant = (0..40).find(|tenant| buckets(0, 4).contains(placement(*tenant).as_slice())).unwrap();
    let sql = format!(
        "UPDATE {} SET body = 'other' WHERE tenant = {tenant} AND id = 1",
        opened.dialect().own_table("thing")
    );
    assert_eq!(tx.run(Statement::new(sql)).await.unwrap().affected(), 1);
    tx.commit().await.unwrap();
    *held.lock().unwrap() = false;
    let why = cluster.end_of(record.op.id).await.unwrap_err();
    assert!(why.contains("differ in 1 row") && why.contains(&format!("(1, {tenant}, 1)")), "{why}");
    assert_eq!(cluster.owners("tenants").await, before);
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn a_dataset_that_gets_its_first_rows_during_a_move_comes_along(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "verify.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    for tenant in 0..20 {
        world.put(&cluster, ("other", tenant, 7)).await;
    }
    *held.lock().unwrap() = false;
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

/// It is bound after the move has looked which datasets there are, and written before anything is captured: its rows
/// are neither in the capture nor among those that the move knew of at first.
async fn a_dataset_that_gets_its_first_rows_just_before_the_capture_comes_along(place: Arc<Place>) {
    let (wait, [gate]) = gates(["begin.after"]);
    let tried = Arc::new(AtomicBool::new(false));
    let tries = tried.clone();
    let failpoint: polyshard_catalog::Failpoint = Arc::new(move |here| {
        tries.fetch_or(here == "begin.after", Ordering::SeqCst);
        wait(here)
    });
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::with_maps(&place, setup).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    // The capture cannot be recorded for now, which passes: a row refers to one that may still come.
    let barrier = |dialect: Dialect| match dialect {
        Dialect::Sqlite => vec![
            "CREATE TABLE waits (n bigint REFERENCES comes (n))",
            "CREATE TABLE comes (n bigint PRIMARY KEY)",
            "CREATE TRIGGER barrier BEFORE INSERT ON polyshard_capture BEGIN INSERT INTO waits VALUES (1); END",
        ],
        Dialect::Postgres => vec![
            "CREATE FUNCTION barrier() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'not yet' USING ERRCODE = 'foreign_key_violation'; END $$",
            "CREATE TRIGGER barrier BEFORE INSERT ON polyshard.capture FOR EACH ROW EXECUTE FUNCTION barrier()",
        ],
    };
    let dialect = cluster.router.administer(&shard("s1")).await.unwrap().dialect();
    for sql in barrier(dialect) {
        cluster.rows("s1", |_| sql.to_owned()).await;
    }
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    let failed = async {
        while !tried.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(crate::cluster::PATIENCE, failed).await.unwrap();
    let captures = |d: Dialect| format!("SELECT 1 FROM {} WHERE state = 'open'", d.own_table("capture"));
    assert_eq!(cluster.rows("s1", captures).await.len(), 0, "nothing is captured yet");
    for tenant in 0..20 {
        world.put(&cluster, ("other", tenant, 7)).await;
    }
    let drop = |d: Dialect| match d {
        Dialect::Sqlite => "DROP TRIGGER barrier",
        Dialect::Postgres => "DROP TRIGGER barrier ON polyshard.capture",
    };
    cluster.rows("s1", |dialect| drop(dialect).to_owned()).await;
    gate.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

async fn a_table_altered_during_a_move_stops_it(place: Arc<Place>) {
    let (cluster, held) = held_at(&place, "record_fencing.before").await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 1).await;
    for customer in 0..20 {
        world.put(&cluster, ("entry", customer, 1)).await;
    }
    let before = cluster.owners("customers").await;
    let record = cluster.start(request("customers", keys(0, 50), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    cluster.rows("s1", |_| "ALTER TABLE account ADD COLUMN extra text".to_owned()).await;
    *held.lock().unwrap() = false;
    let why = cluster.end_of(record.op.id).await.unwrap_err();
    assert!(why.contains("table account on shard s1 was changed"), "{why}");
    assert_eq!(cluster.owners("customers").await, before);
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

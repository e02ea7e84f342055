//! Many datasets share one table: a move costs what it moves, and touches no rows of other maps' datasets (KIT 2g, D2).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyshard_catalog::Step;
use polyshard_engine::{Batch, Dialect, Statement};
use polyshard_shard::{Dataset, Placement, TableRows};

use crate::cluster::{Cluster, PATIENCE, Setup, buckets, customers, map, request, shard, tenants};
use crate::gates::held_at;
use crate::place::Place;

on_every_engine!(
    a_move_among_ten_thousand_datasets_takes_as_many_statements_as_among_ten,
    rows_of_datasets_of_another_map_in_the_same_table_stay,
    datasets_that_get_their_first_rows_during_a_move_come_along,
    what_an_earlier_program_has_marked_and_registered_is_moved,
    rows_of_several_datasets_of_one_table_move_together,
);

const FEW: i64 = 10;
const MANY: i64 = 10_000;
/// Statements that a server makes beside a move, in the time that one takes.
const BESIDE: u64 = 400;

fn queue(dialect: Dialect, name: &str, number: i64) -> Dataset {
    Dataset {
        name: format!("queue {number}"),
        map: map(name),
        table: dialect.own_table("thing"),
        placement: Placement::Column("placement".to_owned()),
        rows: TableRows::Numbered { column: "dataset".to_owned(), number },
    }
}

/// Registers queues on s1.
async fn register(cluster: &Cluster, name: &str, numbers: impl Iterator<Item = i64>) {
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let queues: Vec<Dataset> = numbers.map(|number| queue(opened.dialect(), name, number)).collect();
    opened.bind_all(&queues).await.unwrap();
}

/// Puts a row of a queue into a bucket, on s1.
fn row(dialect: Dialect, number: i64, bucket: u32, id: i64) -> Statement {
    let sql = format!(
        "INSERT INTO {} (dataset, tenant, id, placement, n, body) VALUES ($1, $2, $3, $4, $5, $6)",
        dialect.own_table("thing")
    );
    let placement = buckets(bucket, bucket + 1).lo().as_slice().to_vec();
    let statement = Statement::new(sql).bind(number).bind(i64::from(bucket)).bind(id);
    statement.bind(placement).bind(id).bind("body")
}

async fn put(cluster: &Cluster, rows: impl Iterator<Item = (i64, u32, i64)>) {
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    opened.ensure_tables().await.unwrap();
    let rows: Vec<(i64, u32, i64)> = rows.collect();
    for some in rows.chunks(500) {
        let batch: Batch =
            some.iter().map(|row_of| row(opened.dialect(), row_of.0, row_of.1, row_of.2)).collect();
        opened.carrier().await.unwrap().write(batch).await.unwrap();
    }
}

/// The datasets and buckets of the rows on a shard: `dataset/tenant/id`.
async fn found(cluster: &Cluster, on: &str, condition: &str) -> Vec<String> {
    let sql = |dialect: Dialect| {
        format!(
            "SELECT dataset || '/' || tenant || '/' || id || '=' || n FROM {} WHERE {condition} \
             ORDER BY dataset, tenant, id",
            dialect.own_table("thing")
        )
    };
    cluster.rows(on, sql).await.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}

async fn registered(cluster: &Cluster, on: &str) -> Vec<i64> {
    let sql = |dialect: Dialect| {
        format!(
            "SELECT rows_number FROM {} WHERE map <> '' ORDER BY rows_number",
            dialect.own_table("dataset")
        )
    };
    cluster.rows(on, sql).await.iter().map(|row| row.int(0).unwrap()).collect()
}

/// How many statements both shards have run so far: on PostgreSQL as its log has them, on SQLite reads and batches.
async fn statements(cluster: &Cluster, place: &Place) -> u64 {
    if place.is_postgres("s1") {
        let log = place.pg().log();
        return (log.matches("LOG:  execute").count() + log.matches("LOG:  statement:").count()) as u64;
    }
    let mut sum = 0;
    for on in ["s1", "s2"] {
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        let stats = opened.carrier().await.unwrap().stats();
        sum += stats.reads + stats.writes;
    }
    sum
}

/// The statements and the time of the move of a bucket with three queues of so many.
async fn cost(place: &Arc<Place>, count: i64) -> u64 {
    let cluster = Cluster::with_maps(place, Setup::default()).await;
    register(&cluster, "tenants", 100..100 + count).await;
    // All have rows that stay, and three have some that move.
    put(&cluster, (100..100 + count).map(|number| (number, 2, number))).await;
    put(&cluster, (0..30).map(|id| (100 + id % 3, 0, id))).await;
    if place.is_postgres("s1") {
        let server = place.pg();
        server.execute("postgres", "ALTER SYSTEM SET log_statement = 'all'");
        server.execute("postgres", "SELECT pg_reload_conf()");
    }
    let (before, began) = (statements(&cluster, place).await, Instant::now());
    cluster.moves("tenants", buckets(0, 1), "s2").await.unwrap();
    let took = began.elapsed();
    let made = statements(&cluster, place).await - before;
    if place.is_postgres("s1") {
        place.pg().execute("postgres", "ALTER SYSTEM RESET log_statement");
        place.pg().execute("postgres", "SELECT pg_reload_conf()");
    }
    println!("one of {count} queues: {made} statements in {took:?}");
    assert_eq!(found(&cluster, "s2", "tenant = 0").await.len(), 30);
    assert_eq!(found(&cluster, "s1", "tenant = 0").await.len(), 0);
    assert_eq!(found(&cluster, "s1", "tenant = 2").await.len(), count as usize);
    // The target knows those that it has rows of, and no others.
    assert_eq!(registered(&cluster, "s2").await, [100, 101, 102]);
    cluster.assert_healthy().await;
    cluster.close().await;
    made
}

async fn a_move_among_ten_thousand_datasets_takes_as_many_statements_as_among_ten(place: Arc<Place>) {
    let other = match (place.is_postgres("s1"), place.is_postgres("s2")) {
        (true, _) => Place::server(),
        (false, true) => Place::mixed(),
        (false, false) => Place::files(),
    };
    let (few, many) = (cost(&other, FEW).await, cost(&place, MANY).await);
    assert!(few > 0 && many <= few + BESIDE, "{few} statements among {FEW}, {many} among {MANY}");
}

async fn rows_of_datasets_of_another_map_in_the_same_table_stay(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["catch_up.before"]).await;
    register(&cluster, "tenants", 1..3).await;
    register(&cluster, "customers", 7..9).await;
    // The other map's rows have placements that are of the moving range, too.
    put(&cluster, (0..5).flat_map(|id| [(1, 0, id), (2, 0, id), (7, 0, id), (8, 0, id)])).await;
    cluster.router.administer(&shard("s2")).await.unwrap().ensure_tables().await.unwrap();
    let loads = polyshard_mover::Mover::new(cluster.router.shard_source());
    let loads = loads.preflight(&tenants(), &buckets(0, 1), &shard("s1"), &shard("s2")).await.unwrap();
    let loads: Vec<(&str, u64)> = loads.iter().map(|load| (load.dataset.as_str(), load.rows)).collect();
    assert_eq!(loads, [("queue 1", 5), ("queue 2", 5)]);
    let record = cluster.start(request("tenants", buckets(0, 1), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    for sql in ["UPDATE {} SET n = 9 WHERE id = 1", "DELETE FROM {} WHERE id = 2"] {
        cluster.rows("s1", |dialect| sql.replace("{}", &dialect.own_table("thing"))).await;
    }
    let noted = |dialect: Dialect| format!("SELECT count(*) FROM {}", dialect.own_table("capture_log"));
    let noted = cluster.rows("s1", noted).await[0].int(0).unwrap();
    assert_eq!(noted, 4, "two rows of each of the two that move were changed");
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    let of = |numbers: [i64; 2]| -> Vec<String> {
        let rows = |number| ["0=0", "1=9", "3=3", "4=4"].map(|rest| format!("{number}/0/{rest}"));
        numbers.into_iter().flat_map(rows).collect()
    };
    assert_eq!(found(&cluster, "s2", "1 = 1").await, of([1, 2]));
    assert_eq!(found(&cluster, "s1", "1 = 1").await, of([7, 8]));
    assert_eq!(registered(&cluster, "s2").await, [1, 2]);
    // Nothing of the map is left there: what the other map's datasets have does not count.
    let left = cluster.router.administer(&shard("s1")).await.unwrap();
    let entries = cluster.catalog.entries(&map("tenants")).await.unwrap();
    let mover = polyshard_mover::Mover::new(cluster.router.shard_source());
    let misplaced = mover.misplaced(&tenants(), &entries, &[], left.id()).await.unwrap();
    assert_eq!(misplaced, []);
    assert_eq!(mover.weigh(&tenants(), &buckets(0, 12), left.id()).await.unwrap(), 0);
    assert_eq!(mover.weigh(&customers(), &polyshard_map::KeyRange::all(), left.id()).await.unwrap(), 8);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn datasets_that_get_their_first_rows_during_a_move_come_along(place: Arc<Place>) {
    let (cluster, [copying, caught]) = held_at(&place, ["copy.before", "verify.before"]).await;
    register(&cluster, "tenants", 1..2).await;
    put(&cluster, (0..5).map(|id| (1, 0, id))).await;
    let record = cluster.start(request("tenants", buckets(0, 1), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Copying).await;
    register(&cluster, "tenants", 2..3).await;
    put(&cluster, (0..5).map(|id| (2, 0, id))).await;
    copying.store(false, Ordering::SeqCst);
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    register(&cluster, "tenants", 3..4).await;
    put(&cluster, (0..5).map(|id| (3, 0, id))).await;
    caught.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    assert_eq!(found(&cluster, "s2", "1 = 1").await.len(), 15);
    assert_eq!(found(&cluster, "s1", "1 = 1").await.len(), 0);
    assert_eq!(registered(&cluster, "s2").await, [1, 2, 3]);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn rows_of_several_datasets_of_one_table_move_together(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    register(&cluster, "tenants", 1..200).await;
    put(&cluster, (0..2_000).map(|id| (1 + id % 199, (id % 4) as u32, id))).await;
    let all = found(&cluster, "s1", "tenant IN (1, 2)").await;
    assert_eq!(all.len(), 1_000);
    cluster.moves("tenants", buckets(1, 3), "s2").await.unwrap();
    assert_eq!(found(&cluster, "s2", "1 = 1").await, all);
    assert_eq!(found(&cluster, "s1", "1 = 1").await.len(), 1_000);
    // And back.
    cluster.moves("tenants", buckets(1, 3), "s1").await.unwrap();
    assert_eq!(found(&cluster, "s1", "tenant IN (1, 2)").await, all);
    assert_eq!(found(&cluster, "s2", "1 = 1").await.len(), 0);
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// A program of an earlier version registered each dataset in a table without the index, and a move of its marked each
/// dataset by itself: here one that was stopped after it had copied the first of two.
async fn what_an_earlier_program_has_marked_and_registered_is_moved(place: Arc<Place>) {
    let (cluster, [held]) = held_at(&place, ["copy.before"]).await;
    for on in ["s1", "s2"] {
        cluster
            .rows(on, |dialect| match dialect {
                Dialect::Sqlite => "DROP INDEX polyshard_dataset_of_map".to_owned(),
                Dialect::Postgres => "DROP INDEX polyshard.dataset_of_map".to_owned(),
            })
            .await;
        for number in [1, 2] {
            cluster
                .rows(on, |dialect| {
                    format!(
                        "INSERT INTO {} (name, map, tab, placement, rows_column, rows_number) \
                         VALUES ('queue {number}', 'tenants', '{}', 'placement', 'dataset', {number})",
                        dialect.own_table("dataset"),
                        dialect.own_table("thing")
                    )
                })
                .await;
        }
    }
    put(&cluster, (0..5).flat_map(|id| [(1, 0, id), (2, 0, id)])).await;
    // Its tables have keys that do not begin with the placement: an index does, once.
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    opened.ensure_tables().await.unwrap();
    let indexes = cluster.rows("s1", |dialect| match dialect {
        Dialect::Sqlite => {
            "SELECT name FROM sqlite_schema WHERE type = 'index' AND name LIKE 'polyshard_thing_placed%'"
                .to_owned()
        }
        Dialect::Postgres => {
            "SELECT indexname::text FROM pg_indexes WHERE indexname LIKE 'thing_placed%'".to_owned()
        }
    });
    assert_eq!(indexes.await.len(), 1);
    let record = cluster.start(request("tenants", buckets(0, 1), "s2")).await.unwrap();
    let carried = |dialect: Dialect| dialect.own_table("carried");
    let marked = async {
        while cluster.rows("s2", |dialect| format!("SELECT 1 FROM {}", carried(dialect))).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, marked).await.expect("the move comes to its copy");
    cluster.rows("s2", |dialect| format!("DELETE FROM {} WHERE dataset <> ''", carried(dialect))).await;
    for (number, done) in [(1, 1), (2, 0)] {
        cluster
            .rows("s2", |dialect| {
                format!(
                    "INSERT INTO {} (op, dataset, position, done, copied_rows, copied_bytes) \
                     VALUES ('{}', 'queue {number}', NULL, {done}, {}, 0)",
                    carried(dialect),
                    record.op.id,
                    5 * done
                )
            })
            .await;
    }
    let opened = cluster.router.administer(&shard("s2")).await.unwrap();
    let copied: Batch = (0..5).map(|id| row(opened.dialect(), 1, 0, id)).collect();
    opened.carrier().await.unwrap().write(copied).await.unwrap();
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    assert_eq!(found(&cluster, "s2", "1 = 1").await.len(), 10);
    assert_eq!(found(&cluster, "s1", "1 = 1").await.len(), 0);
    cluster.assert_healthy().await;
    cluster.close().await;
}

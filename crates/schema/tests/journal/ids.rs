//! Ids: unique over shards and processes, time-ordered where that is promised, never running out under inserts.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyshard_engine::{Statement, Value};
use polyshard_schema::ids::{COUNT_BITS, IDS_SINCE_MS, SHARD_BITS};

use crate::cluster::{Cluster, shard, sharded};
use crate::place::Place;

async fn ask(cluster: &Cluster, on: &str, sql: &str) -> Vec<i64> {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    let rows = tx.run(Statement::new(sql)).await.unwrap();
    tx.commit().await.unwrap();
    rows.iter().map(|row| row.int(0).unwrap()).collect()
}

/// G1: `polyshard.next_id()` gives no id twice on any shard, and later ids are larger.
async fn next_id_is_unique_and_in_the_order_of_time(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    for name in ["s1", "s2", "s3"] {
        cluster.journal.ready(&shard(name)).await.unwrap();
    }
    let sql = "SELECT polyshard.next_id() FROM generate_series(1, 2000)";
    let mut all = BTreeSet::new();
    for _ in 0..2 {
        let highest_before = all.last().copied().unwrap_or(0);
        let askers = ["s1", "s1", "s1", "s2", "s2", "s3"].map(|name| ask(&cluster, name, sql));
        for ids in futures_util::future::join_all(askers).await {
            assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "one session's ids only grow");
            assert!(ids[0] > highest_before, "ids of later are above those of before, on whatever shard");
            for id in ids {
                assert!(all.insert(id), "{id} twice");
            }
        }
        let now = cluster.number("s1", "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").await;
        let last = (all.last().unwrap() >> (SHARD_BITS + COUNT_BITS)) + IDS_SINCE_MS;
        assert!(last <= now + 1, "ids run ahead of the clock: {last} at {now}");
        // Until then, since order between shards is that of milliseconds.
        cluster.on("s1", "SELECT 1 FROM pg_sleep(0.003)").await;
    }
    assert_eq!(all.len(), 24_000);
    // A clock that goes back makes no id twice: the sequence remembers.
    let ahead = all.last().unwrap() >> (SHARD_BITS + COUNT_BITS);
    let ahead = (ahead + 60_000) << COUNT_BITS;
    cluster.on("s1", &format!("SELECT setval('polyshard.id_clock', {ahead})")).await;
    let ids = ask(&cluster, "s1", sql).await;
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(ids.into_iter().filter(|id| all.contains(id)).count(), 0);
    cluster.close().await;
}

/// The same made in this process, for shards that have no functions: also after a restart with a clock that went back.
async fn ids_made_by_the_process_only_grow(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let now = 1_800_000_000_000;
    let one = shard("s1");
    let mut last = 0;
    for moment in [now, now, now - 5_000, now + 1] {
        for id in cluster.journal.next_ids(&one, 5_000, moment).await.unwrap() {
            assert!(id > last, "{id} after {last}");
            last = id;
        }
    }
    let other = cluster.journal.next_ids(&shard("s2"), 10, now).await.unwrap();
    let number = |id: i64| (id >> COUNT_BITS) & ((1 << SHARD_BITS) - 1);
    assert_ne!(number(other[0]), number(last));
    let block = cluster.journal.allocate("public.t_id_seq", 10, 1).await.unwrap();
    assert_eq!(block, 1..11);
    assert_eq!(cluster.journal.allocate("public.t_id_seq", 5, 1).await.unwrap(), 11..16);
    assert_eq!(cluster.journal.allocate("'t_id_seq'::regclass", 1, 1).await.unwrap(), 16..17);
    cluster.close().await;

    let again = Cluster::open(&place).await;
    let ids = again.journal.next_ids(&one, 10, now - 60_000).await.unwrap();
    assert!(ids[0] > last, "{} after {last}", ids[0]);
    // What the process had not used is lost, never given again.
    assert_eq!(again.journal.allocate("public.t_id_seq", 1, 1).await.unwrap(), 1001..1002);
    assert_eq!(again.journal.allocate("public.t_id_seq", 2_000, 9_000).await.unwrap(), 9_000..11_000);
    again.close().await;
}

/// G1: many writers on all shards, two processes that lease blocks: no id twice, and nobody runs out for good. A shard
/// that comes later gives others.
async fn serial_ids_do_not_run_out_under_inserts(place: Arc<Place>) {
    let one = Cluster::with_shards(&place).await;
    one.apply(&["CREATE TABLE orders (tenant bigint NOT NULL, id serial, PRIMARY KEY (tenant, id))"])
        .await
        .unwrap();
    one.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    one.journal.schema().await.unwrap();
    let two = Cluster::open_with(&place, 2, None).await;
    two.journal.schema().await.unwrap();
    let (keep_one, keep_two) = (one.journal.keep_up(), two.journal.keep_up());
    one.add_shard("s4").await;
    one.journal.ready(&shard("s4")).await.unwrap();
    // Far more than was laid ready, in single rows and in one large statement.
    let large = "INSERT INTO orders (tenant) SELECT 1 FROM generate_series(1, 20000) RETURNING id::bigint";
    let small = "INSERT INTO orders (tenant) SELECT 1 FROM generate_series(1, 400) RETURNING id::bigint";
    let writers = ["s1", "s2", "s3", "s4"].into_iter().flat_map(|name| {
        let (one, two) = (&one, &two);
        [(one, large), (two, small), (one, small)]
            .into_iter()
            .map(move |(cluster, sql)| ask(cluster, name, sql))
    });
    let mut seen = BTreeSet::new();
    for ids in futures_util::future::join_all(writers).await {
        for id in ids {
            assert!(seen.insert(id), "{id} twice");
        }
    }
    assert_eq!(seen.len(), 4 * 20_800);
    keep_one.stop().await;
    keep_two.stop().await;
    two.close().await;
    one.close().await;
}

/// G1: a transaction that sees everything as it was when it began cannot see ids that are leased since. It is told to
/// begin again, and gets them then.
async fn a_transaction_of_one_snapshot_begins_again_for_ids(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&["CREATE TABLE orders (tenant bigint NOT NULL, id bigserial, PRIMARY KEY (tenant, id))"])
        .await
        .unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    cluster.journal.schema().await.unwrap();
    let keeper = cluster.journal.keep_up();
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let mut refused = 0;
    loop {
        let mut tx = opened.control_transaction().await.unwrap();
        tx.run(Statement::new("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")).await.unwrap();
        let many = "INSERT INTO orders (tenant) SELECT 1 FROM generate_series(1, 5000)";
        match tx.run(Statement::new(many)).await {
            Ok(_) => break tx.commit().await.unwrap(),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        refused += 1;
        assert!(refused < 20, "it gets them in the end");
    }
    assert!(refused > 0, "so many ids were not there");
    assert_eq!(cluster.number("s1", "SELECT count(DISTINCT id) FROM orders").await, 5_000);
    keeper.stop().await;
    cluster.close().await;
}

/// An id of a shard tells which it is of, and the numbers of shards are never given twice.
async fn a_shard_has_its_own_number(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let mut numbers = BTreeSet::new();
    for name in ["s1", "s2", "s3"] {
        cluster.journal.ready(&shard(name)).await.unwrap();
        let table =
            if place.is_postgres() { "polyshard.journal_applied" } else { "polyshard_journal_applied" };
        let Value::Int(number) = cluster.on(name, &format!("SELECT number FROM {table}")).await[0][0] else {
            panic!("no number")
        };
        assert!(numbers.insert(number));
    }
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    cluster.close().await;
}

on_both_engines!(a_shard_has_its_own_number, ids_made_by_the_process_only_grow);

mod in_postgres {
    use super::{
        a_transaction_of_one_snapshot_begins_again_for_ids, next_id_is_unique_and_in_the_order_of_time,
        serial_ids_do_not_run_out_under_inserts,
    };

    on_postgres!(
        a_transaction_of_one_snapshot_begins_again_for_ids,
        next_id_is_unique_and_in_the_order_of_time,
        serial_ids_do_not_run_out_under_inserts
    );
}

//! What a client sees of statements across shards beside the right rows: forms, transactions, plans, missing shards.

use polyshard_map::{Key, MapName};
use tokio_postgres::types::Type;

use crate::Bench;
use crate::support::{Cluster, refusal, rows};
use crate::world::World;

pub async fn notes() -> Cluster {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 1..=20 {
        let insert = format!("INSERT INTO notes VALUES ({tenant}, 1, 'a'), ({tenant}, 2, 'b')");
        client.batch_execute(&insert).await.unwrap();
    }
    cluster
}

// C2: the extended protocol, with parameters and results in binary form.
#[tokio::test]
async fn parameters_and_results_in_binary_form_travel_across_shards() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let rows = client
        .query(
            "SELECT count(*), max(body), sum(id) FROM notes WHERE id >= $1 AND body <> $2",
            &[&2_i64, &"x"],
        )
        .await
        .unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 20);
    assert_eq!(rows[0].get::<_, String>(1), "b");
    let rows =
        client.query("SELECT tenant, body FROM notes WHERE id = $1 ORDER BY tenant DESC", &[&1_i64]).await;
    let rows = rows.unwrap();
    assert_eq!(rows.len(), 20);
    assert_eq!(rows[0].columns()[0].type_(), &Type::INT8);
    assert_eq!(rows[0].get::<_, i64>(0), 20);
    let rows = client.query("SELECT tenant FROM notes WHERE id = $1", &[&1_i64]).await.unwrap();
    assert_eq!(rows.len(), 20);
    cluster.close().await;
}

// C1, C2: a transaction sees what it has written itself.
#[tokio::test]
async fn a_transaction_sees_its_own_writes_in_a_query_across_shards() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let other = cluster.connect().await;
    client.batch_execute("BEGIN; INSERT INTO notes VALUES (1, 3, 'mine')").await.unwrap();
    let count = "SELECT count(*) FROM notes";
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 41);
    assert_eq!(other.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 40);
    client.batch_execute("INSERT INTO notes VALUES (1, 4, 'mine too')").await.unwrap();
    let rows = client.query("SELECT tenant FROM notes WHERE id > 2 ORDER BY id", &[]).await.unwrap();
    assert_eq!(rows.len(), 2);
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 40);
    cluster.close().await;
}

// C2: EXPLAIN shows the route and what the shards are asked.
#[tokio::test]
async fn explain_shows_what_each_shard_is_asked() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let rows = client.query("EXPLAIN SELECT body, count(*) FROM notes GROUP BY body", &[]).await.unwrap();
    let lines: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(lines[0].contains("each of 2 shards (s1, s2)") && lines[0].contains("count(*)"), "{lines:?}");
    assert!(lines[1].starts_with("Combine: SELECT"), "{lines:?}");
    cluster.close().await;
}

// C2: EXPLAIN ANALYZE carries it out, on every shard and where it is combined; what changes nothing, changes nothing.
#[tokio::test]
async fn explain_analyze_shows_how_each_shard_did_its_part() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for sql in ["SELECT body, count(*) FROM notes GROUP BY body", "SELECT tenant FROM notes WHERE id = 1"] {
        let lines = rows(&client, &format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {sql}")).await.concat();
        for shard in ["Shard s1:", "Shard s2:"] {
            let at = lines.iter().position(|line| line == shard).unwrap_or_else(|| panic!("{lines:#?}"));
            assert!(lines[at + 1].contains("(actual rows="), "{lines:#?}");
        }
        let combined = lines.iter().position(|line| line == "Combine step:");
        assert_eq!(combined.is_some(), sql.contains("GROUP"), "{lines:#?}");
        if let Some(at) = combined {
            assert!(lines[at + 1].contains("(actual rows=2"), "{lines:#?}");
        }
    }
    let (state, _) = refusal(&client, "EXPLAIN (FORMAT JSON) SELECT count(*) FROM notes").await;
    assert_eq!(state, "0A000");
    cluster.close().await;
}

// C2: types of the user's own travel between shards, though their numbers differ from shard to shard.
#[tokio::test]
async fn types_of_the_users_own_are_combined_across_shards() {
    let cluster = notes().await;
    // The numbers of the first shard run ahead.
    cluster.on_shard("s1", "CREATE TYPE public.unused AS ENUM ('x'); DROP TYPE public.unused");
    let client = cluster.connect().await;
    for sql in [
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE TABLE moods (tenant bigint, id bigint, mood mood, many mood[], n positive, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('moods', 'tenants', 'tenant')",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    for tenant in 1..=12 {
        let mood = ["sad", "ok", "happy"][tenant % 3];
        let row = format!("({tenant}, 1, '{mood}', ARRAY['ok', '{mood}']::mood[], {tenant})");
        client.batch_execute(&format!("INSERT INTO moods VALUES {row}")).await.unwrap();
    }
    let oids = ["s1", "s2"].map(|shard| cluster.on_shard(shard, "SELECT 'mood'::regtype::oid"));
    assert_ne!(oids[0], oids[1], "the numbers differ");
    // In the type's own order, not that of its texts.
    let grouped = rows(&client, "SELECT mood, count(*), sum(n) FROM moods GROUP BY mood ORDER BY mood").await;
    assert_eq!(grouped, [["sad", "4", "30"], ["ok", "4", "22"], ["happy", "4", "26"]]);
    let arrays = rows(&client, "SELECT many, count(*) FROM moods GROUP BY many ORDER BY many DESC").await;
    assert_eq!(arrays, [["{ok,happy}", "4"], ["{ok,ok}", "4"], ["{ok,sad}", "4"]]);
    let joined = "SELECT count(*) FROM moods a JOIN moods b ON a.mood = b.mood AND a.n < b.n";
    assert_eq!(rows(&client, joined).await, [["18"]]);
    let asked =
        client.query("SELECT max(mood)::text FROM moods WHERE mood < $1::text::mood", &[&"happy"]).await;
    assert_eq!(asked.unwrap()[0].get::<_, String>(0), "ok");
    cluster.close().await;
}

// C2: a pseudo-column tells the shard of a row.
#[tokio::test]
async fn a_row_tells_its_shard() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let sql = "SELECT polyshard.shard(), count(*) FROM notes GROUP BY 1 ORDER BY 1";
    let rows = client.simple_query(sql).await.unwrap();
    let shards: Vec<String> = rows
        .iter()
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(shards, ["s1", "s2"]);
    cluster.close().await;
}

// C3: an error of a shard is the statement's error, and the session goes on.
#[tokio::test]
async fn an_error_on_a_shard_is_the_answer_and_the_session_goes_on() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for sql in [
        "SELECT 1 / (id - 1) FROM notes",
        "SELECT sum(1 / (id - 1)) FROM notes",
        "SELECT n.body, row_number() OVER (ORDER BY 1 / (n.id - 1)) FROM notes n",
    ] {
        let error = client.simple_query(sql).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "22012", "{sql}");
        let count = client.query_one("SELECT count(*) FROM notes", &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), 40);
    }
    // In a transaction it fails the transaction.
    client.batch_execute("BEGIN").await.unwrap();
    assert!(client.simple_query("SELECT 1 / (id - 1) FROM notes").await.is_err());
    let error = client.simple_query("SELECT 1").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    cluster.close().await;
}

// C2: many clients at once share the shards' sessions.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_query_across_shards_at_once() {
    let cluster = notes().await;
    let mut tasks = Vec::new();
    for _ in 0..10 {
        let client = cluster.connect().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let rows = client
                    .query("SELECT a.tenant FROM notes a JOIN notes b ON a.id = b.id", &[])
                    .await
                    .unwrap();
                assert_eq!(rows.len(), 800);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    cluster.close().await;
}

// C2: nothing is left behind on the shards.
#[tokio::test]
async fn no_temporary_table_and_no_transaction_is_left_behind() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for sql in [
        "SELECT a.tenant FROM notes a JOIN notes b ON a.id = b.id",
        "SELECT body, count(*) FROM notes GROUP BY body",
    ] {
        client.query(sql, &[]).await.unwrap();
    }
    for shard in ["s1", "s2"] {
        let left = cluster.on_shard(shard, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ps\\_%'");
        assert_eq!(left, "0");
        let open = cluster.on_shard(
            shard,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND state LIKE 'idle in transaction%'",
        );
        assert_eq!(open, "0");
    }
    cluster.close().await;
}

// C2, E5
#[tokio::test]
async fn an_answer_larger_than_the_buffers_arrives_whole() {
    let world = World::new(0);
    let bench = Bench::new(&world).await;
    let sql = "SELECT a.*, repeat('x', 3000) FROM orders a, orders b, items c ORDER BY 1, 2 LIMIT 20000";
    let rows = bench.door.simple_query(sql).await.unwrap();
    assert_eq!(rows.len(), 20_002);
    bench.cluster.close().await;
}

// F2, C2: while a range is moved, both shards may have its rows; only the owner's count.
#[tokio::test]
async fn rows_of_a_moving_range_count_once() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let view = cluster.router.view();
    let map = &view.maps[&MapName::new("tenants").unwrap()].map;
    let (tenant, range) = (1..=20)
        .map(|tenant| (tenant, map.locate(&Key::BigInt(tenant)).unwrap()))
        .find(|(_, located)| located.shard().to_string() == "s2")
        .map(|(tenant, located)| (tenant, located.range()))
        .unwrap();
    cluster.on_shard(
        "s1",
        &format!("INSERT INTO notes VALUES ({tenant}, 1, 'copied'), ({tenant}, 2, 'copied')"),
    );
    let counts = [
        "SELECT count(*) FROM notes",
        "SELECT count(*) FROM (SELECT DISTINCT tenant, id FROM notes) x",
        "SELECT sum(n) FROM (SELECT count(*) OVER () * 0 + 1 AS n FROM notes) x",
        "WITH w AS (SELECT * FROM notes n) SELECT count(*) FROM w",
    ];
    let count = async |sql: &str| match &client.simple_query(sql).await.unwrap()[1] {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    // Without a word about the move they would be counted.
    assert_eq!(count(counts[0]).await, "42");
    let ranges = serde_json::to_string(&[&range]).unwrap();
    let capture = format!(
        "INSERT INTO polyshard.capture (capture, op, map, ranges, state, ready) \
         VALUES (gen_random_uuid()::text, gen_random_uuid()::text, 'tenants', '{ranges}', 'open', 0)"
    );
    cluster.on_shard("s2", &capture);
    for sql in counts {
        assert_eq!(count(sql).await, "40", "{sql}");
    }
    // The target's own word is enough.
    cluster.on_shard("s2", "DELETE FROM polyshard.capture");
    cluster.on_shard("s1", &capture);
    let rows = client.query("SELECT a.body FROM notes a JOIN notes b USING (tenant, id)", &[]).await.unwrap();
    assert_eq!(rows.len(), 40);
    assert!(rows.iter().all(|row| row.get::<_, String>(0) != "copied"));
    // In a transaction too.
    client.batch_execute("BEGIN; INSERT INTO notes VALUES (1, 3, 'x')").await.unwrap();
    assert_eq!(count(counts[0]).await, "41");
    client.batch_execute("ROLLBACK").await.unwrap();
    cluster.close().await;
}

// C3, E3: a shard that is down is an error, unless the session asks for what there is.
#[tokio::test]
async fn a_missing_shard_is_an_error_or_a_notice() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client.batch_execute("SET polyshard.partial_results = on").await.unwrap();
    let count = "SELECT count(*) FROM notes";
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 40);
    cluster.server().execute("postgres", "ALTER DATABASE s2 ALLOW_CONNECTIONS false");
    cluster
        .server()
        .execute("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 's2'");
    let partial = client.query_one(count, &[]).await.unwrap().get::<_, i64>(0);
    let there: i64 = cluster.on_shard("s1", count).parse().unwrap();
    assert_eq!(partial, there);
    let rows = client.query("SELECT tenant FROM notes", &[]).await.unwrap();
    assert_eq!(rows.len() as i64, there);
    client.batch_execute("SET polyshard.partial_results = off").await.unwrap();
    let error = client.query_one(count, &[]).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("s2"), "{error:?}");
    cluster.server().execute("postgres", "ALTER DATABASE s2 ALLOW_CONNECTIONS true");
    cluster.close().await;
}

/// A query that would take minutes.
const LONG: &str = "SELECT count(a.body || b.body) FROM notes a, notes b, generate_series(1, 900000001) n";

// C3: cancelling reaches every shard.
#[tokio::test]
async fn a_query_across_shards_can_be_cancelled() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let token = client.cancel_token();
    let running = tokio::spawn(async move {
        let error = client.simple_query(LONG).await.unwrap_err();
        (client, error)
    });
    // Once it runs on a shard, it is cancelled.
    let runs = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%900000001%' AND state = 'active' \
                AND pid <> pg_backend_pid()";
    let seen = async {
        while cluster.on_shard("s1", runs) == "0" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), seen).await.expect("it runs");
    token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (client, error) = running.await.unwrap();
    assert_eq!(error.code().unwrap().code(), "57014");
    assert_eq!(client.query_one("SELECT count(*) FROM notes", &[]).await.unwrap().get::<_, i64>(0), 40);
    cluster.close().await;
}

// C2: settings that write values with fewer digits do not touch what travels between shards.
#[tokio::test]
async fn values_travel_exactly_whatever_the_session_shows() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client.batch_execute("SET extra_float_digits = -10; SET IntervalStyle = 'sql_standard'").await.unwrap();
    let sql = "SELECT count(DISTINCT x::double precision / 3e10 + 1), min(d) FROM \
               (SELECT a.tenant * 10 + a.id AS x, make_interval(months => -1, days => a.id::int) AS d FROM notes a \
                ORDER BY a.tenant, a.id LIMIT 40) n JOIN notes b ON b.id = 1 AND b.tenant = 1";
    let row = client.query_one(sql, &[]).await;
    assert_eq!(row.unwrap().get::<_, i64>(0), 40);
    cluster.close().await;
}

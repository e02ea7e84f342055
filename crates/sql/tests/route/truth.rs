//! Routes against a real PostgreSQL: what goes to one shard gives there what one database with all rows gives.
//!
//! One database has the same tables in five schemas: `whole` with all rows, `s1` to `s4` with those of each shard.
//! `POLYSHARD_SEEDS` says how many random statements are tried.

use polyshard_map::ShardId;
use polyshard_sql::Route;
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::generate::Generator;
use crate::world::World;

const SHARDS: usize = 4;

fn seeds() -> u64 {
    std::env::var("POLYSHARD_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

async fn bench() -> (PgServer, Client) {
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
    server.create_database("truth");
    let (client, connection) =
        tokio_postgres::connect(&server.connect_string("truth"), NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client.batch_execute(&tables()).await.expect("the tables are made");
    (server, client)
}

/// The tables of the tests' world, with few values so that rows meet; keys from 0 to 11.
fn tables() -> String {
    let mut sql = String::new();
    for schema in ["whole".to_owned()].into_iter().chain((1..=SHARDS).map(|n| format!("s{n}"))) {
        sql += &format!(
            "CREATE SCHEMA {schema}; SET search_path = {schema};
             CREATE TABLE orders (tenant_id bigint NOT NULL, id bigint, total numeric, note text);
             CREATE TABLE lines (tenant_id bigint NOT NULL, order_id bigint, product int, tenant_code int);
             CREATE TABLE countries (code text, tenant_id bigint, n int);
             CREATE VIEW order_view AS SELECT tenant_id AS tenant, id FROM orders WHERE total > 0;
             CREATE VIEW five AS SELECT tenant_id, id FROM orders WHERE tenant_id = 5;
             CREATE VIEW totals AS SELECT tenant_id, sum(total) AS total FROM orders GROUP BY tenant_id;
             CREATE VIEW top AS SELECT tenant_id FROM orders ORDER BY id, tenant_id LIMIT 1;"
        );
        let mine = match schema.strip_prefix('s') {
            Some(number) => format!("% {SHARDS} = {number} - 1"),
            None => ">= 0".to_owned(),
        };
        sql += &format!(
            "INSERT INTO orders SELECT k, nullif(i % 7, 6), i % 5 - 1, 'n' || i % 3
               FROM generate_series(0, 11) k, generate_series(k, k + 5) i WHERE k {mine};
             INSERT INTO lines SELECT k, nullif((i * 3) % 8, 7), i % 12, nullif((k + i % 2) % 12, 3)
               FROM generate_series(0, 11) k, generate_series(k, k + 4) i WHERE k {mine};
             INSERT INTO countries SELECT 'c' || i, nullif(i, 4), i % 6 FROM generate_series(0, 11) i;"
        );
    }
    sql
}

/// The rows as text, sorted; or the error's class.
async fn run(client: &Client, schema: &str, sql: &str) -> Result<Vec<String>, String> {
    client.batch_execute(&format!("BEGIN; SET LOCAL search_path = {schema}")).await.expect("it begins");
    let answer = client.simple_query(sql).await;
    client.batch_execute("ROLLBACK").await.expect("it rolls back");
    match answer {
        Err(error) => Err(error.code().expect("the server's own error").code().to_owned()),
        Ok(messages) => {
            let mut rows: Vec<String> = messages
                .iter()
                .filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => {
                        let values: Vec<&str> = (0..row.len()).map(|at| row.get(at).unwrap_or("∅")).collect();
                        Some(values.join("|"))
                    }
                    _ => None,
                })
                .collect();
            rows.sort();
            Ok(rows)
        }
    }
}

#[tokio::test]
async fn one_shard_answers_like_one_database() {
    let (_server, client) = bench().await;
    let world = World::new();
    let (mut one, mut many, mut failed) = (0, 0, 0);
    for seed in 0..seeds() {
        let sql = Generator::new(seed).select();
        let route =
            world.route(&sql, &[], true).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{sql}"));
        let schema = match route {
            Route::One { shard, .. } => shard.to_string(),
            Route::Nowhere { .. } | Route::Anywhere | Route::ReferenceRead => "s3".to_owned(),
            Route::Many { .. } => {
                many += 1;
                continue;
            }
            other => panic!("seed {seed}: {other:?} for {sql}"),
        };
        let (whole, part) = (run(&client, "whole", &sql).await, run(&client, &schema, &sql).await);
        match (whole, part) {
            (Ok(whole), Ok(part)) => {
                one += 1;
                assert_eq!(whole, part, "seed {seed}: shard {schema} answers otherwise\n{sql}");
            }
            // A statement may fail over a row that only one of them looks at.
            (whole, part) => {
                assert!(whole.is_err(), "seed {seed}: shard {schema} fails with {part:?}\n{sql}");
                let class = whole.expect_err("it failed");
                assert!(class != "42601", "seed {seed}: the generator writes nonsense\n{sql}");
                failed += 1;
            }
        }
    }
    println!("{one} on one shard, {many} on several, {failed} failed");
    assert!(one > many / 4 && failed * 4 < one, "{one} on one shard, {many} on several, {failed} failed");
}

#[tokio::test]
async fn writes_do_what_they_do_in_one_database() {
    let (_server, client) = bench().await;
    let world = World::new();
    let (mut one, mut many, mut refused) = (0, 0, 0);
    for seed in 0..seeds() {
        let sql = Generator::new(seed).write();
        let shards: Vec<ShardId> = match world.route(&sql, &[], false) {
            Ok(Route::One { shard, .. }) => vec![shard],
            Ok(Route::Many { shards, .. }) => shards.into_iter().collect(),
            Ok(Route::Nowhere { .. }) => Vec::new(),
            Ok(other) => panic!("seed {seed}: {other:?} for {sql}"),
            Err(error) => {
                assert_eq!(error.state.0, "0A000", "seed {seed}: {error}\n{sql}");
                refused += 1;
                continue;
            }
        };
        let Ok(whole) = run(&client, "whole", &sql).await else { continue };
        let mut parts = Vec::new();
        for shard in &shards {
            let part = run(&client, shard.as_str(), &sql).await;
            parts.extend(
                part.unwrap_or_else(|error| panic!("seed {seed}: {shard} fails with {error}\n{sql}")),
            );
        }
        parts.sort();
        assert_eq!(whole, parts, "seed {seed}: {shards:?} do something else\n{sql}");
        if shards.len() > 1 { many += 1 } else { one += 1 }
    }
    println!("{one} on one shard, {many} on several, {refused} refused");
    assert!(one > 20 && many > 20, "{one} on one shard, {many} on several, {refused} refused");
}

/// Recursive queries, which the generator does not write.
#[tokio::test]
async fn recursive_queries_answer_like_one_database() {
    let (_server, client) = bench().await;
    let world = World::new();
    let first = "SELECT tenant_id, id FROM orders WHERE tenant_id = 5 AND id = 5";
    let step =
        "SELECT o.tenant_id, o.id - 1 FROM orders o JOIN r ON o.id = r.id AND o.tenant_id = r.tenant_id";
    let renamed = step.replace("r.id", "r.i").replace("r.tenant_id", "r.t");
    let recursive = |name: &str, first: &str, step: &str, rest: &str| {
        format!("WITH RECURSIVE {name} AS ({first} UNION {step}) SELECT * FROM r {rest}")
    };
    let all = "SELECT tenant_id, id FROM orders WHERE tenant_id = 5";
    let onward = "SELECT o.tenant_id, o.id FROM orders o \
                  JOIN r ON o.id = r.id - 1 AND o.tenant_id = r.tenant_id - 1 WHERE r.tenant_id > 0";
    let exchanged = "SELECT r.id, o.tenant_id FROM orders o JOIN r ON o.tenant_id = r.tenant_id";
    let cases = [
        (recursive("r", first, step, ""), true),
        (recursive("r (t, i)", first, &renamed, ""), true),
        (recursive("r", first, step, "JOIN lines l USING (tenant_id)"), true),
        // Each round goes on to other keys.
        (recursive("r", first, onward, ""), false),
        // The columns change places.
        (recursive("r", all, exchanged, ""), false),
    ];
    for (sql, is_one) in cases {
        let route = world.route(&sql, &[], true).unwrap();
        let whole = run(&client, "whole", &sql).await.expect("it runs");
        assert!(!whole.is_empty(), "{sql}");
        match route {
            Route::One { shard, .. } if is_one => {
                assert_eq!(run(&client, shard.as_str(), &sql).await, Ok(whole), "{sql}");
            }
            Route::Many { .. } if !is_one => {}
            other => panic!("{sql}: {other:?}"),
        }
    }
}

/// Every form of a literal that is taken for a key is what the engine makes of it (C2).
#[tokio::test]
async fn literals_mean_what_the_engine_says() {
    let (_server, client) = bench().await;
    let world = World::new();
    let forms = [
        (
            "numbers",
            "n",
            "int",
            vec!["5", "-5", "'5'", "'-5'", "5::bigint", "CAST('7' AS int)", "int '3'", "$$8$$"],
        ),
        (
            "people",
            "name",
            "varchar(5)",
            vec![
                "'bob'",
                "'b''b'",
                "E'b\\x6fb'",
                "E'\\u00e9'",
                "E'\\101'",
                "'bob'::text",
                "'é'",
                "$q$b'b$q$",
                "''",
                "E'a\\\\b'",
                "E'a\\'b'",
                "E'a''b'",
                "'a\\b'",
            ],
        ),
        ("events", "day", "date", vec!["'2024-02-29'", "date '1999-12-31'", "'2024-01-01'::date"]),
        (
            "things",
            "id",
            "uuid",
            vec!["'67e55044-10b1-426f-9247-bb680e5fe0c8'", "'67E5504410B1426F9247BB680E5FE0C8'::uuid"],
        ),
    ];
    for (table, column, type_name, values) in forms {
        for value in values {
            let sql = format!("SELECT * FROM {table} WHERE {column} = {value}");
            let route = world.route(&sql, &[], true).unwrap();
            let Route::One { keys, .. } = &route else { panic!("{sql}: {route:?}") };
            let key = keys[0].1[0].to_string();
            // The engine's own text form of the value, as a parameter of the column's type.
            let engine =
                client.query_one(&format!("SELECT ({value})::{type_name}::text"), &[]).await.unwrap();
            assert_eq!(engine.get::<_, String>(0), key, "{sql}");
        }
    }
}

//! Parameters and results in both forms of the protocol, and queries across shards.

mod common;

use std::collections::BTreeMap;

use common::{Answer, Lite, Postgres};
use polyshard_engine::{Batch, Statement as EngineStatement, Value};
use polyshard_sql::{Context, Param, ParamValue, Placement};
use polyshard_sql_on_sqlite::{Across, Attached, Format, Moment, QUIET, Settings};
use tokio_postgres::types::Type;

/// The value of the first column of the first row in PostgreSQL's binary form, as the driver got it.
struct Raw(Vec<u8>);

impl<'a> tokio_postgres::types::FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

const VALUES: [&str; 24] = [
    "true",
    "(-5)::smallint",
    "123456",
    "9007199254740993",
    "1.5::float8",
    "0.0",
    "123456.7890",
    "-0.000012",
    "10000",
    "100000000.00",
    "'NaN'::numeric",
    "'é日本'::text",
    "'ab'::varchar(5)",
    "'2020-02-29'::date",
    "'infinity'::date",
    "'2020-02-29 12:34:56.789'::timestamp",
    "'1969-02-28 12:34:56.789+03'::timestamptz",
    "'1 mon -2 days 03:04:05.6'::interval",
    "'12:34:56.5'::time",
    "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
    "'{\"b\": [1, 2.50], \"a\": null}'::jsonb",
    "'\\x00ff10'::bytea",
    "ARRAY[1, NULL, 3]",
    "'{a,\"b c\",NULL}'::text[]",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_have_postgresqls_binary_form_both_ways() {
    // G1
    let postgres = Postgres::open().await;
    let mut lite = Lite::open().await;
    for value in VALUES {
        let text = format!("SELECT {value}");
        let row = postgres.client.query_one(&text, &[]).await.unwrap();
        let theirs = row.get::<_, Raw>(0).0;
        let prepared = lite.prepare(&text, &[]).unwrap();
        let rows = lite.execute(&prepared, &[]).await.unwrap();
        let type_oid = prepared.columns.as_ref().unwrap()[0].type_oid;
        let mut ours = Vec::new();
        let settings = Settings::default();
        polyshard_sql_on_sqlite::encode(
            type_oid,
            rows.rows()[0].get(0),
            Format::Binary,
            &settings,
            &mut ours,
        )
        .unwrap();
        assert_eq!(ours, theirs, "{value}");

        // And the same bytes as a parameter come out as the same text.
        let echo = lite.prepare("SELECT $1", &[Some(type_oid)]).unwrap();
        let param = Param { type_oid, value: ParamValue::Binary(&theirs) };
        let back = lite.execute(&echo, &[param]).await.unwrap();
        assert_eq!(back.rows()[0].get(0), rows.rows()[0].get(0), "{value}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parameter_becomes_a_literal_of_the_same_value() {
    // C3
    let postgres = Postgres::open().await;
    let settings = Settings::default();
    for value in VALUES {
        let row = postgres.client.query_one(&format!("SELECT {value}"), &[]).await.unwrap();
        let type_oid = polyshard_sql::TypeOid(row.columns()[0].type_().oid());
        let bytes = row.get::<_, Raw>(0).0;
        let param = Param { type_oid, value: ParamValue::Binary(&bytes) };
        let literal = polyshard_sql_on_sqlite::parameter_literal(&param, &settings).unwrap();
        let again = postgres.client.query_one(&format!("SELECT {literal}"), &[]).await.unwrap();
        assert_eq!(again.get::<_, Raw>(0).0, bytes, "{value} as {literal}");
    }
    let null = Param { type_oid: polyshard_sql::TypeOid::INT4, value: ParamValue::Null };
    assert_eq!(polyshard_sql_on_sqlite::parameter_literal(&null, &settings).unwrap(), "NULL::integer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_get_the_types_of_where_they_stand() {
    // G1
    let postgres = Postgres::open().await;
    let mut lite = Lite::open().await;
    let table =
        "CREATE TABLE p (id bigint PRIMARY KEY, n numeric(8,2), t varchar(5), d date, j jsonb, f float8)";
    postgres.client.batch_execute(table).await.unwrap();
    assert!(lite.run(table).await.state().is_none());
    for text in [
        "SELECT * FROM p WHERE id = $1",
        "SELECT $1 + 1",
        "SELECT $1::int + $2",
        "SELECT $1 || 'x', upper($2)",
        "SELECT * FROM p WHERE id IN ($1, $2) AND t LIKE $3",
        "SELECT * FROM p WHERE id = ANY($1)",
        "SELECT * FROM p WHERE n BETWEEN $1 AND $2",
        "SELECT * FROM p WHERE d > $1 LIMIT $2 OFFSET $3",
        "INSERT INTO p VALUES ($1, $2, $3, $4, $5, $6)",
        "INSERT INTO p (id, n) VALUES ($1, $2), ($3, $4) ON CONFLICT (id) DO UPDATE SET n = excluded.n + $5",
        "UPDATE p SET n = $1, t = $2 WHERE id = $3",
        "DELETE FROM p WHERE id = $1 AND f < $2",
        "SELECT CASE WHEN $1 THEN $2 ELSE 'x' END",
        "SELECT coalesce($1, 5)",
        "SELECT j ->> $1, j @> $2 FROM p",
        "SELECT date_trunc($1, $2::timestamptz)",
        "INSERT INTO p (id, t) SELECT $1, $2",
        "SELECT 1 WHERE $1",
    ] {
        let theirs: Vec<u32> =
            postgres.client.prepare(text).await.unwrap().params().iter().map(Type::oid).collect();
        let ours = lite.prepare(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
        let ours: Vec<u32> = ours.parameters.iter().map(|oid| oid.0).collect();
        assert_eq!(ours, theirs, "{text}");
    }
    let insert = "INSERT INTO p VALUES ($1, $2, $3, $4, $5, $6) RETURNING *";
    let values = [Some("1"), Some("2.345"), Some("abc"), Some("2020-01-01"), Some("{\"a\":1}"), Some("1.5")];
    let Answer::Rows { rows, .. } = lite.run_with(insert, &values).await else { panic!("it returns a row") };
    let shown: Vec<&str> = rows[0].iter().map(|value| value.as_deref().unwrap()).collect();
    assert_eq!(shown, ["1", "2.35", "abc", "2020-01-01", "{\"a\": 1}", "1.5"]);
    let long = [Some("2"), None, Some("abcdef"), None, None, None];
    assert_eq!(lite.run_with(insert, &long).await.state(), Some("22001"));
    let wrong = [Some("x"), None, None, None, None, None];
    assert_eq!(lite.run_with(insert, &wrong).await.state(), Some("22P02"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_across_shards_sees_the_rows_of_all() {
    // C4
    let mut shards = [Lite::open().await, Lite::open().await, Lite::open().await];
    for (number, shard) in shards.iter_mut().enumerate() {
        // As a shard has them.
        for sql in [
            "CREATE TABLE polyshard_capture (capture TEXT, map TEXT, ranges TEXT)",
            "CREATE TABLE polyshard_local_range (map TEXT, lo BLOB, hi BLOB, incoming TEXT)",
        ] {
            shard.db.write(Batch::new().push(EngineStatement::new(sql))).await.unwrap();
        }
        for sql in [
            "CREATE TABLE o (k bigint PRIMARY KEY, n numeric, city text)".to_owned(),
            "CREATE TABLE c (city text PRIMARY KEY, country text)".to_owned(),
            "INSERT INTO c VALUES ('Oslo', 'NO'), ('Roma', 'IT')".to_owned(),
            format!("INSERT INTO o VALUES ({number}, {number}.50, 'Oslo'), ({}, 1.0, 'Roma')", number + 10),
        ] {
            let answer = shard.run(&sql).await;
            assert!(answer.state().is_none(), "{sql}: {answer:?}");
        }
    }
    let mut schema = shards[0].schema.clone();
    let orders = schema.tables.keys().find(|name| name.name == "o").unwrap().clone();
    let mut table = schema.tables[&orders].as_ref().clone();
    table.placement =
        Placement::Sharded { map: "m".parse().unwrap(), column: 0, key_type: "bigint".parse().unwrap() };
    schema.tables.insert(orders, std::sync::Arc::new(table));
    let path = vec!["public".to_owned()];
    let context = Context { schema: &schema, search_path: &path, strict: true };
    let text =
        "SELECT c.country, count(*), sum(o.n) FROM o JOIN c USING (city) GROUP BY c.country ORDER BY 1";
    let statement = Lite::statement(text).unwrap();
    let file = |name: &str| Attached { database: name.to_owned(), foreign: BTreeMap::new() };
    let across = Across::new(["main", "s1", "s2"].map(|name| (file(name), QUIET.to_owned())).to_vec());
    let prepared =
        polyshard_sql_on_sqlite::prepare_across(&statement, &context, &[], &Settings::default(), &across)
            .unwrap();
    let mut query = EngineStatement::new(prepared.sql.clone());
    for value in prepared.bind(&[], &Moment::default()).unwrap() {
        query = query.bind(value);
    }
    let others = vec![("s1".to_owned(), shards[1].db.clone()), ("s2".to_owned(), shards[2].db.clone())];
    let mut scan = shards[0].db.scan_attached(&others, query, 100).await.unwrap();
    let rows = scan.next().await.unwrap().unwrap();
    let shown: Vec<Vec<Value>> = rows.into_iter().map(|row| row.into_values()).collect();
    let row = |country: &str, sum: &str| vec![Value::from(country), Value::Int(3), Value::from(sum)];
    assert_eq!(shown, [row("IT", "3.0"), row("NO", "4.50")]);
    let write = Lite::statement("DELETE FROM o").unwrap();
    let refused =
        polyshard_sql_on_sqlite::prepare_across(&write, &context, &[], &Settings::default(), &across);
    assert_eq!(refused.unwrap_err().state.0, "0A000");
}

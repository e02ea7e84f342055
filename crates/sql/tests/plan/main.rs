//! Plans against the truth: random queries on one PostgreSQL, and planned over three; the answers must be equal.

mod cases;
mod execute;
mod generate;
mod plans;
mod wide;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_map::{KeyType, MapName, ShardId};
use polyshard_sql::{
    Collation, Column, Context, Generated, Placement, Schema, SqlState, Table, TableName, TypeOid, View,
    plan, statements,
};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::{Client, NoTls};

use crate::execute::Answer;
use crate::generate::Generator;
use crate::world::{Kind, Where, World};

/// One database with everything, and the same rows over three.
struct Bench {
    whole: Client,
    combine: Client,
    shards: Vec<(ShardId, Client)>,
    schema: Schema,
    path: Vec<String>,
    _server: Arc<PgServer>,
}

/// Views: name, columns, definition as PostgreSQL gives it.
const VIEWS: &[(&str, &[&str], &str)] = &[
    (
        "busy",
        &["tenant_id", "n"],
        "SELECT o.tenant_id, count(*) AS n FROM public.orders o GROUP BY o.tenant_id;",
    ),
    (
        "busier",
        &["tenant_id", "n", "name"],
        "SELECT b.tenant_id, b.n, c.name FROM (public.busy b JOIN public.countries c ON ((c.region = b.n)));",
    ),
];

/// What came of a query.
#[derive(Debug)]
enum Outcome {
    Same,
    /// Both refused it alike.
    SameError,
    /// A value that cannot be (overflow, …) in a row that one database never looked at, or the other way round:
    /// PostgreSQL promises no order of evaluation, and a shard may look earlier.
    Earlier,
    /// Refused by the planner.
    Refused(String),
    Different(String),
}

async fn connect(server: &PgServer, database: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&server.connect_string(database), NoTls).await.expect("connect");
    tokio::spawn(connection);
    client.batch_execute("SET TimeZone = 'UTC'; SET extra_float_digits = 1").await.expect("settings");
    client
}

fn type_oid(kind: Kind) -> TypeOid {
    match kind {
        Kind::Int => TypeOid::INT4,
        Kind::Big => TypeOid::INT8,
        Kind::Text => TypeOid::TEXT,
        Kind::Numeric => TypeOid::NUMERIC,
        Kind::Double => TypeOid::FLOAT8,
        Kind::Bool => TypeOid::BOOL,
        Kind::Date => TypeOid::DATE,
        Kind::Moment => TypeOid::TIMESTAMPTZ,
        Kind::Uuid => TypeOid::UUID,
        Kind::Json => TypeOid::JSONB,
    }
}

fn schema_of(world: &World) -> Schema {
    let mut schema = Schema::default();
    for table in &world.tables {
        let columns = table
            .columns
            .iter()
            .enumerate()
            .map(|(at, (name, kind))| Column {
                name: (*name).to_owned(),
                type_oid: type_oid(*kind),
                type_mod: -1,
                type_name: kind.sql().to_owned(),
                not_null: at < table.key,
                default: None,
                generated: Generated::No,
                collation: Collation::Deterministic,
            })
            .collect();
        let placement = match &table.place {
            Where::Map(map) => Placement::Sharded {
                map: MapName::new(map).expect("a map's name"),
                column: 0,
                key_type: KeyType::BigInt,
            },
            Where::Everywhere => Placement::Reference { declared: true },
        };
        let name = TableName::public(table.name);
        let made = Table {
            name: name.clone(),
            columns,
            primary_key: (0..table.key).collect(),
            unique: Vec::new(),
            foreign_keys: Vec::new(),
            row_security: false,
            triggers: false,
            placement,
        };
        schema.tables.insert(name, Arc::new(made));
    }
    schema
}

impl Bench {
    async fn new(server: &Arc<PgServer>, name: &str, world: &World) -> Bench {
        let (whole_name, shard_names) =
            (format!("{name}_whole"), (0..3).map(|at| format!("{name}_s{at}")).collect::<Vec<_>>());
        server.create_database(&whole_name);
        let whole = connect(server, &whole_name).await;
        for table in &world.tables {
            whole.batch_execute(&table.ddl()).await.expect("create");
            whole.batch_execute(&table.insert(|_| true)).await.expect("insert");
        }
        let mut shards = Vec::new();
        for (at, shard) in shard_names.iter().enumerate() {
            server.create_database(shard);
            let client = connect(server, shard).await;
            for table in &world.tables {
                client.batch_execute(&table.ddl()).await.expect("create");
                let owns = |row: &[String]| match table.place {
                    Where::Everywhere => true,
                    Where::Map(map) => owner(map, &row[0]) == at,
                };
                let insert = table.insert(owns);
                if !insert.is_empty() {
                    client.batch_execute(&insert).await.expect("insert");
                }
            }
            shards.push((ShardId::new(&format!("s{at}")).expect("a shard's name"), client));
        }
        let combine = connect(server, &shard_names[0]).await;
        let mut schema = schema_of(world);
        for (name, columns, definition) in VIEWS {
            let sql = format!("CREATE VIEW {name} AS {definition}");
            for client in shards.iter().map(|(_, client)| client).chain([&whole]) {
                client.batch_execute(&sql).await.expect("create a view");
            }
            let name = TableName::public(*name);
            let columns = columns.iter().map(|column| (*column).to_owned()).collect();
            let view = View { name: name.clone(), columns, definition: (*definition).to_owned() };
            schema.views.insert(name, Arc::new(view));
        }
        Bench { whole, combine, shards, schema, path: vec!["public".to_owned()], _server: server.clone() }
    }

    async fn try_query(&self, sql: &str, ordered: bool) -> Outcome {
        let expected = execute::whole(&self.whole, sql).await;
        let context = Context { schema: &self.schema, search_path: &self.path, strict: true };
        let planned = statements(sql).and_then(|all| match all.first() {
            Some(statement) => plan(statement, &context, &[], None),
            None => panic!("no statement in {sql}"),
        });
        let plan = match planned {
            Ok(plan) => plan,
            Err(error) if error.state == SqlState::FEATURE_NOT_SUPPORTED => {
                return Outcome::Refused(error.to_string());
            }
            Err(error) => match &expected {
                Err(_) => return Outcome::SameError,
                Ok(_) => return Outcome::Refused(format!("{} {error}", error.state)),
            },
        };
        let got = execute::planned(&self.shards, &self.combine, sql, &plan).await;
        let told = |what: String| {
            Outcome::Different(format!("{what}\n  query: {sql}\n  {}", plan.explain(&[]).join("\n  ")))
        };
        match (expected, got) {
            (Ok(expected), Ok(got)) => match difference(expected, got, ordered) {
                None => Outcome::Same,
                Some(what) => told(what),
            },
            (Err(expected), Err(got)) => {
                let class =
                    |error: &tokio_postgres::Error| error.code().map(|code| code.code()[..2].to_owned());
                if class(&expected) == class(&got) {
                    return Outcome::SameError;
                }
                told(format!("error {expected:?}, but over shards {got:?}"))
            }
            (Ok(_), Err(error)) | (Err(error), Ok(_))
                if error.code().is_some_and(|code| code.code().starts_with("22")) =>
            {
                Outcome::Earlier
            }
            (Ok(_), Err(got)) => told(format!("only over shards an error: {got:?}")),
            (Err(expected), Ok(_)) => told(format!("over shards no error, but {expected:?}")),
        }
    }
}

/// Which of the three shards has a key. Any rule will do, as long as equal keys of one map go together, and those of
/// another map elsewhere.
fn owner(map: &str, key: &str) -> usize {
    key.bytes().fold(7_usize + map.len(), |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
        / 5
        % 3
}

fn difference(mut expected: Answer, mut got: Answer, ordered: bool) -> Option<String> {
    if expected.columns != got.columns {
        return Some(format!("columns {:?}, but over shards {:?}", expected.columns, got.columns));
    }
    if !ordered {
        expected.rows.sort();
        got.rows.sort();
    }
    if expected.rows == got.rows {
        return None;
    }
    let first = expected.rows.iter().zip(&got.rows).find(|(a, b)| a != b);
    Some(format!("{} rows, over shards {}; first difference {first:?}", expected.rows.len(), got.rows.len()))
}

/// How many random queries for each of the four worlds.
fn queries_per_world() -> u64 {
    match std::env::var("POLYSHARD_LONG") {
        Ok(_) => 5_000,
        Err(_) => 90,
    }
}

// C2: cross-shard SELECT answers as one PostgreSQL does.
#[tokio::test]
async fn random_queries_over_three_shards_answer_as_one_database_does() {
    let server =
        Arc::new(PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() }));
    let asked = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let count = asked("POLYSHARD_QUERIES").unwrap_or_else(queries_per_world);
    let first = asked("POLYSHARD_SEED").unwrap_or(0);
    let (mut different, mut refused, mut totals) =
        (Vec::new(), BTreeMap::<String, usize>::new(), [0_usize; 4]);
    for seed in 0..4_u64 {
        let world = World::new(seed);
        let bench = Bench::new(&server, &format!("w{seed}"), &world).await;
        for number in first..first + count {
            let mut generator = Generator::new(seed * 1_000_000 + number, &world);
            let case = generator.case();
            match bench.try_query(&case.sql, case.ordered).await {
                Outcome::Same => totals[0] += 1,
                Outcome::SameError => totals[1] += 1,
                Outcome::Earlier => totals[3] += 1,
                Outcome::Refused(why) => {
                    totals[2] += 1;
                    *refused.entry(why).or_default() += 1;
                }
                Outcome::Different(what) => different.push(format!("seed {seed}, query {number}: {what}")),
            }
        }
    }
    println!(
        "same {}, same error {}, refused {}, earlier error {}",
        totals[0], totals[1], totals[2], totals[3]
    );
    assert!(different.is_empty(), "{} answers differ:\n{}", different.len(), different.join("\n\n"));
    let all = totals.iter().sum::<usize>();
    assert!(totals[2] * 20 < all, "more than 5 % are refused: {refused:#?}");
    assert!(totals[3] * 100 < all, "too many errors of values that one database does not look at");
    assert!(totals[1] * 5 < all, "too many queries are errors on any database: the generator is broken");
}

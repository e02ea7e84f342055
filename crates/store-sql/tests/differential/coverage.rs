//! What share of ordinary statements passes: each of a list by kind is asked of one PostgreSQL, of PostgreSQL shards
//! and of SQLite shards, and docs/sql-coverage.md tells what came of it.

use std::fmt::Write as _;
use std::path::Path;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use crate::plain;
use crate::support::{Cluster, Setup};

/// Kinds after `=`, one statement a line; after `~` the values themselves are not compared, only how many rows there
/// are.
const STATEMENTS: &str = "tests/differential/coverage.txt";

const TABLES: &[&str] = &[
    "CREATE TABLE customers (tenant_id int, id int, name text, email text, country text, created_at timestamptz, \
     meta jsonb, PRIMARY KEY (tenant_id, id))",
    "CREATE TABLE orders (tenant_id int, id int, customer_id int, status text DEFAULT 'new', total numeric(10,2), \
     placed_at timestamptz, PRIMARY KEY (tenant_id, id))",
    "CREATE TABLE lines (tenant_id int, order_id int, sku text, quantity int, price numeric(10,2), \
     PRIMARY KEY (tenant_id, order_id, sku))",
    "CREATE TABLE countries (code text PRIMARY KEY, name text)",
    "CREATE TABLE nodes (id int PRIMARY KEY, parent int)",
    "INSERT INTO countries VALUES ('ch', 'Switzerland'), ('is', 'Iceland'), ('jp', '日本')",
    "INSERT INTO nodes VALUES (1, NULL), (2, 1), (3, 1), (4, 3)",
];

fn rows_of_tables() -> Vec<String> {
    let mut all = Vec::new();
    for tenant in 1..=6 {
        for id in 1..=4 {
            let (country, name) =
                (["ch", "is", "jp", "xx"][(tenant + id) % 4], ["Ada", "Bob", "Zoë", "a b"][id - 1]);
            all.push(format!(
                "INSERT INTO customers VALUES ({tenant}, {id}, '{name}{tenant}', {}, '{country}', \
                 '2024-01-0{id} 08:00:00+00', '{{\"plan\": \"{}\", \"tags\": [\"t{id}\"]}}')",
                if id == 4 { "NULL".to_owned() } else { format!("'u{id}@example.com'") },
                ["pro", "free"][id % 2],
            ));
            let total = if id == 3 { "NULL".to_owned() } else { format!("{}.5", tenant * id * 7 % 90) };
            all.push(format!(
                "INSERT INTO orders VALUES ({tenant}, {id}, {}, '{}', {total}, '2024-0{}-0{tenant} 12:30:00+00')",
                id % 3 + 1,
                ["new", "paid", "sent"][(tenant * id) % 3],
                id % 3 + 1,
            ));
            all.push(format!("INSERT INTO lines VALUES ({tenant}, {id}, 'sku{id}', {id}, {tenant}.25)"));
        }
    }
    all
}

async fn fill(client: &Client, sharded: bool) {
    for table in TABLES {
        client.batch_execute(table).await.unwrap_or_else(|error| panic!("{table}: {error:?}"));
    }
    // SQLite shards have none.
    if let Err(error) = client.batch_execute("CREATE SEQUENCE counter").await {
        assert_eq!(error.code().map(|code| code.code()), Some("0A000"));
    }
    if sharded {
        client.batch_execute("SELECT polyshard.create_map('tenants', 'hash', 'int')").await.unwrap();
        for table in ["customers", "orders", "lines"] {
            let declare = format!("SELECT polyshard.shard_table('{table}', 'tenants', 'tenant_id')");
            client.batch_execute(&declare).await.unwrap();
        }
    }
    for insert in rows_of_tables() {
        client.batch_execute(&insert).await.unwrap_or_else(|error| panic!("{insert}: {error:?}"));
    }
}

type Answer = Result<Vec<Vec<Option<String>>>, Error>;

/// The rows of a statement that is undone again.
async fn ask(client: &Client, sql: &str) -> Answer {
    client.batch_execute("BEGIN").await?;
    let answer = client.simple_query(sql).await;
    client.batch_execute("ROLLBACK").await?;
    let mut rows = Vec::new();
    for message in answer? {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect());
        }
    }
    rows.sort();
    Ok(rows)
}

/// What came of a statement.
enum Outcome {
    Passed,
    Refused(String),
    Different(String),
}

async fn compare(client: &Client, sql: &str, whole: &Answer, loose: bool) -> Outcome {
    let told = |error: &Error| {
        error.as_db_error().map_or_else(|| error.to_string(), |said| said.message().to_owned())
    };
    match (ask(client, sql).await, whole) {
        (Ok(got), Ok(expected)) if got == *expected || (loose && got.len() == expected.len()) => {
            Outcome::Passed
        }
        // A plan is in each engine's own words.
        (Ok(got), Ok(_)) if sql.starts_with("EXPLAIN") && !got.is_empty() => Outcome::Passed,
        (Ok(got), Ok(expected)) => Outcome::Different(format!("{sql}\n  {got:?}\n  {expected:?}")),
        (Err(got), Err(expected)) if got.code() == expected.code() => Outcome::Passed,
        (Err(got), _) => Outcome::Refused(told(&got)),
        (Ok(got), Err(expected)) => {
            Outcome::Different(format!("{sql}\n  {got:?}\n  but PostgreSQL says {}", told(expected)))
        }
    }
}

#[derive(Default)]
struct Kind {
    name: String,
    statements: usize,
    refused: [Vec<(String, String)>; 2],
}

// G1, C2: the published share is the measured one.
#[tokio::test]
async fn the_published_share_of_statements_that_pass_is_true() {
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
    server.create_database("whole");
    let whole = plain(&server).await;
    let clusters =
        [Cluster::start_with(Setup { shards: 3, ..Setup::default() }).await, Cluster::start_embedded().await];
    let doors = [clusters[0].connect().await, clusters[1].connect().await];
    fill(&whole, false).await;
    for door in &doors {
        fill(door, true).await;
    }
    let (mut kinds, mut different) = (Vec::<Kind>::new(), Vec::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for line in std::fs::read_to_string(folder.join(STATEMENTS)).unwrap().lines() {
        if let Some(name) = line.strip_prefix("= ") {
            kinds.push(Kind { name: name.to_owned(), ..Kind::default() });
            continue;
        }
        let (loose, sql) = line.strip_prefix("~ ").map_or((false, line), |sql| (true, sql));
        let kind = kinds.last_mut().expect("a kind comes first");
        kind.statements += 1;
        let expected = ask(&whole, sql).await;
        for (door, list) in doors.iter().zip(&mut kind.refused) {
            match compare(door, sql, &expected, loose).await {
                Outcome::Passed => {}
                Outcome::Refused(why) => list.push((sql.to_owned(), why)),
                Outcome::Different(what) => different.push(what),
            }
        }
    }
    for cluster in clusters {
        cluster.close().await;
    }
    assert!(different.is_empty(), "answers differ:\n{}", different.join("\n"));
    let path = folder.join("../../docs/sql-coverage.md");
    let page = page(&kinds);
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == page, "docs/sql-coverage.md differs; UPDATE_GOLDENFILES=1 writes it:\n{page}");
}

fn page(kinds: &[Kind]) -> String {
    let mut page = "# What share of PostgreSQL's statements passes\n\n\
        <!-- Written by crates/store-sql/tests/differential/coverage.rs: UPDATE_GOLDENFILES=1 writes it anew. -->\n\n\
        A list of ordinary statements by kind, each run on one PostgreSQL and through the door, over three\n\
        PostgreSQL shards and over two SQLite shards; the tables are sharded by `tenant_id`, but for `countries`\n\
        and `nodes`, which are reference tables. It passes if the answer is the same, rows or error. Everything\n\
        else is refused: no statement of the list is answered otherwise, or the test fails.\n\n\
        | kind | statements | PostgreSQL shards | SQLite shards |\n| --- | ---: | ---: | ---: |\n"
        .to_owned();
    let mut totals = [0; 3];
    for kind in kinds {
        let passed = kind.refused.each_ref().map(|refused| kind.statements - refused.len());
        writeln!(page, "| {} | {} | {} | {} |", kind.name, kind.statements, passed[0], passed[1]).unwrap();
        totals = [totals[0] + kind.statements, totals[1] + passed[0], totals[2] + passed[1]];
    }
    let share = |passed: usize| format!("{passed} ({} %)", passed * 100 / totals[0]);
    writeln!(page, "| all | {} | {} | {} |", totals[0], share(totals[1]), share(totals[2])).unwrap();
    for (at, name) in ["PostgreSQL", "SQLite"].iter().enumerate() {
        writeln!(page, "\n## Refused on {name} shards\n").unwrap();
        for (sql, why) in kinds.iter().flat_map(|kind| &kind.refused[at]) {
            writeln!(page, "- `{sql}`: {why}").unwrap();
        }
    }
    page
}

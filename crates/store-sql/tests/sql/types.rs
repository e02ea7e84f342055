//! The user's own types have one id each, whichever shard answers. G1, C1.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Client, Row};

use crate::support::{Cluster, refusal, rows};

type Any = Box<dyn std::error::Error + Sync + Send>;

/// A value as it came, whatever its type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Raw(Vec<u8>);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw, Any> {
        Ok(Raw(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// An enum's label.
#[derive(Debug)]
struct Label(&'static str);

impl ToSql for Label {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Any> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

const TENANTS: i64 = 12;

/// A table with columns of types of the user's own, on two shards; the same values in every row.
async fn feelings() -> (Cluster, Client) {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for statement in [
        "CREATE TYPE mood AS ENUM ('sad', 'calm', 'glad')",
        "CREATE TYPE spot AS (mood mood, n int, moods mood[])",
        "CREATE DOMAIN spots AS spot[]",
        "CREATE TABLE feelings (tenant bigint PRIMARY KEY, mood mood, gone int, moods mood[], spot spot, spots spots)",
        "ALTER TABLE feelings DROP COLUMN gone",
        "SELECT polyshard.shard_table('feelings', 'tenants', 'tenant')",
    ] {
        client.simple_query(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
    let number = |shard: &str| cluster.on_shard(shard, "SELECT 'mood'::regtype::oid");
    assert_ne!(number("s1"), number("s2"), "the test is of no use where the numbers are the same");
    let insert = "INSERT INTO feelings (tenant, mood, moods) VALUES ($1, $2, $3)";
    let insert = client.prepare(insert).await.unwrap();
    for tenant in 1..=TENANTS {
        let moods = [Label("glad"), Label("sad")];
        client.execute(&insert, &[&tenant, &Label("calm"), &&moods[..]]).await.unwrap();
        let spot = "UPDATE feelings SET spot = ('glad', 7, moods), spots = ARRAY[('sad', 8, moods)::spot] WHERE tenant";
        client.simple_query(&format!("{spot} = {tenant}")).await.unwrap();
    }
    for shard in ["s1", "s2"] {
        assert_ne!(cluster.on_shard(shard, "SELECT count(*) FROM feelings"), "0");
    }
    (cluster, client)
}

/// A column as it was told: its type, its table and its number there.
type Told = (u32, Option<u32>, Option<i16>);

/// All values of a row but the tenant's, and its columns' types and places.
fn told(row: &Row) -> (Vec<Option<Raw>>, Vec<Told>) {
    let values = (1..row.len()).map(|at| row.get(at)).collect();
    let column =
        |column: &tokio_postgres::Column| (column.type_().oid(), column.table_oid(), column.column_id());
    (values, row.columns().iter().map(column).collect())
}

const SELECT: &str = "SELECT tenant, mood, moods, spot, spots, ROW(tenant > 0, mood, spots) FROM feelings";

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_every_shard_have_the_types_of_one() {
    let (cluster, client) = feelings().await;
    let direct = cluster.server().url("s1");
    let (direct, connection) = tokio_postgres::connect(&direct, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let wanted = told(&direct.query(SELECT, &[]).await.unwrap()[0]);
    let read = format!("{SELECT} WHERE tenant = $1");
    for tenant in 1..=TENANTS {
        // Asked anew each time, also what the types are; and by a session that has looked them up.
        for client in [&cluster.connect().await, &client] {
            assert_eq!(told(&client.query_one(&read, &[&tenant]).await.unwrap()), wanted, "tenant {tenant}");
        }
    }
    // One after the other, and combined. No table is told: the rows are of several.
    let without_tables = |columns: &[(u32, Option<u32>, Option<i16>)]| -> Vec<u32> {
        columns.iter().map(|(type_id, ..)| *type_id).collect()
    };
    for words in ["", " ORDER BY tenant DESC", " ORDER BY mood, spots LIMIT 9"] {
        let found = client.query(&format!("{SELECT}{words}"), &[]).await.unwrap();
        assert!(found.len() >= 9, "{words}");
        for row in &found {
            let (values, columns) = told(row);
            assert_eq!(
                (&values, without_tables(&columns)),
                (&wanted.0, without_tables(&wanted.1)),
                "{words}"
            );
        }
    }
    drop(direct);
    connection.await.unwrap().unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_on_any_shard_see_the_types_of_one() {
    let (cluster, _) = feelings().await;
    let number = cluster.on_shard("s1", "SELECT 'mood'::regtype::oid");
    let wanted = |table: &str| cluster.on_shard("s1", &format!("SELECT '{table}'::regclass::oid"));
    let (feelings, notes) = (wanted("feelings"), wanted("notes"));
    for tenant in 1..=TENANTS {
        let mut client = cluster.connect().await;
        let transaction = client.transaction().await.unwrap();
        let one = |sql: String| {
            let transaction = &transaction;
            async move {
                let found =
                    transaction.simple_query(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
                let row = found.into_iter().find_map(|message| match message {
                    tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                });
                row.unwrap_or_default()
            }
        };
        // As asyncpg does before it asks what a type is; it binds the transaction to no shard.
        let jit = "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new";
        let before: String = transaction.query_one(jit, &[]).await.unwrap().get(0);
        let set_back = "SELECT set_config('jit', $1, false)";
        transaction.query_one(set_back, &[&before]).await.unwrap();
        let update = "UPDATE feelings SET mood = 'glad' WHERE tenant";
        transaction.simple_query(&format!("{update} = {tenant}")).await.unwrap();
        // By the simple protocol, and by the extended one in the midst of everything.
        assert_eq!(one("SELECT oid FROM pg_type WHERE typname = 'mood'".to_owned()).await, number);
        assert_eq!(one("SELECT 'mood'::regtype::oid".to_owned()).await, number);
        let asked = "SELECT oid FROM pg_catalog.pg_class WHERE relname = $1 AND relkind = 'r'";
        for (table, id) in [("feelings", &feelings), ("notes", &notes)] {
            let found: u32 = transaction.query_one(asked, &[&table]).await.unwrap().get(0);
            assert_eq!(found.to_string(), *id);
        }
        // It goes on where it was.
        let read = "SELECT mood::text, moods FROM feelings WHERE tenant = $1 AND moods = $2 AND mood = $3";
        let moods = [Label("glad"), Label("sad")];
        let row = transaction.query_one(read, &[&tenant, &&moods[..], &Label("glad")]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "glad");
        assert_eq!(row.columns()[1].type_().name(), "_mood");
        one("PREPARE by_mood(bigint, mood, mood[]) AS SELECT mood FROM feelings \
             WHERE tenant = $1 AND mood = $2 AND moods = $3"
            .to_owned())
        .await;
        let executed = format!("EXECUTE by_mood({tenant}, 'glad', '{{glad,sad}}')");
        assert_eq!(one(executed).await, "glad");
        transaction.rollback().await.unwrap();
        let mood = rows(&client, &format!("SELECT mood FROM feelings WHERE tenant = {tenant}")).await;
        assert_eq!(mood, [["calm"]]);
        // What was set is nobody else's.
        assert_eq!(rows(&client, "SHOW jit").await, [["on"]]);
    }
    cluster.close().await;
}

/// Parameters that must be written as literals, and rows that come back from each of several shards in turn.
#[tokio::test(flavor = "multi_thread")]
async fn writes_over_several_shards_know_the_types() {
    let (cluster, client) = feelings().await;
    client.simple_query("SET polyshard.multi_shard = 'two_phase'; SET polyshard.strict = off").await.unwrap();
    let moods = [Label("calm"), Label("calm")];
    let update = "UPDATE feelings SET moods = $1 WHERE mood = $2 RETURNING moods, spots";
    let found = client.query(update, &[&&moods[..], &Label("calm")]).await.unwrap();
    assert_eq!(found.len() as i64, TENANTS);
    let values = |row: &Row| -> (Raw, Raw) { (row.get(0), row.get(1)) };
    for row in &found {
        assert_eq!(values(row), values(&found[0]));
        assert_eq!(row.columns()[0].type_().name(), "_mood");
    }
    let count = "SELECT count(*) FROM feelings WHERE moods = $1";
    assert_eq!(client.query_one(count, &[&&moods[..]]).await.unwrap().get::<_, i64>(0), TENANTS);
    // Written to every shard by one journal.
    client.simple_query("CREATE TABLE kinds (mood mood PRIMARY KEY, others mood[])").await.unwrap();
    client.execute("INSERT INTO kinds VALUES ($1, $2)", &[&Label("glad"), &&moods[..]]).await.unwrap();
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT mood, others FROM kinds"), "glad|{calm,calm}");
    }
    cluster.close().await;
}

/// What a transaction makes is its own until it is committed; after that everybody's.
#[tokio::test(flavor = "multi_thread")]
async fn types_made_and_dropped_are_known_as_they_are() {
    let (cluster, mut client) = feelings().await;
    for round in 0..2 {
        let transaction = client.transaction().await.unwrap();
        transaction.simple_query("CREATE TYPE level AS ENUM ('low', 'high')").await.unwrap();
        transaction.simple_query("CREATE TABLE levels (tenant bigint PRIMARY KEY, l level[])").await.unwrap();
        transaction.commit().await.unwrap();
        client.simple_query("SELECT polyshard.shard_table('levels', 'tenants', 'tenant')").await.unwrap();
        let other = cluster.connect().await;
        let mut seen: Vec<(u32, Raw)> = Vec::new();
        for tenant in 1..=TENANTS {
            let values = [Label("high")];
            let insert = "INSERT INTO levels VALUES ($1, $2) RETURNING l";
            let row = other.query_one(insert, &[&tenant, &&values[..]]).await.unwrap();
            seen.push((row.columns()[0].type_().oid(), row.get(0)));
        }
        seen.dedup();
        assert_eq!(seen.len(), 1, "round {round}");
        let number = cluster.on_shard("s1", "SELECT 'level[]'::regtype::oid");
        assert_eq!(seen[0].0.to_string(), number);
        client.simple_query("DROP TABLE levels").await.unwrap();
        client.simple_query("DROP TYPE level").await.unwrap();
    }
    cluster.close().await;
}

/// The shard that gives types their numbers is one like others: what needs none of them is answered without it. E10.
#[tokio::test(flavor = "multi_thread")]
async fn shards_answer_while_the_one_that_gives_numbers_is_down() {
    let (cluster, client) = feelings().await;
    let there = cluster.on_shard("s2", "SELECT min(tenant) FROM feelings");
    let of = |list: &str| format!("SELECT {list} FROM feelings WHERE tenant = {there}");
    assert_eq!(rows(&client, &of("mood")).await, [["calm"]]);
    rows(&client, "CREATE TYPE fresh AS ENUM ('new')").await;
    cluster.on_shard("catalog", "ALTER DATABASE s1 ALLOW_CONNECTIONS false");
    let sessions =
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = 's1'";
    cluster.on_shard("catalog", sessions);
    for _ in 0..2 {
        assert_eq!(rows(&client, &of("tenant")).await, [[there.clone()]]);
        assert_eq!(rows(&client, &of("mood, ROW(tenant > 0, 'new'::fresh)")).await, [["calm", "(t,new)"]]);
        let (code, message) = crate::support::refusal(&client, &of("'new'::fresh")).await;
        assert_eq!(code, "57P03", "{message}");
        assert!(message.contains("s1"), "{message}");
    }
    cluster.on_shard("catalog", "ALTER DATABASE s1 ALLOW_CONNECTIONS true");
    let again = async {
        while client.simple_query(&of("'new'::fresh")).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), again)
        .await
        .expect("it is told once home is back");
    cluster.close().await;
}

/// A row may have types in it that were made after those of its shard were read.
#[tokio::test(flavor = "multi_thread")]
async fn types_made_later_are_known_within_rows() {
    let (cluster, client) = feelings().await;
    let there: i64 = cluster.on_shard("s2", "SELECT min(tenant) FROM feelings").parse().unwrap();
    let row = "SELECT ROW(mood), spot FROM feelings WHERE tenant = $1";
    client.query_one(row, &[&there]).await.unwrap();
    client.simple_query("CREATE TYPE later AS ENUM ('soon')").await.unwrap();
    let nested = "SELECT ROW('soon'::later) FROM feelings WHERE tenant = $1";
    let Raw(value) = client.query_one(nested, &[&there]).await.unwrap().get(0);
    let told = u32::from_be_bytes(value[4..8].try_into().unwrap());
    assert_eq!(told.to_string(), cluster.on_shard("s1", "SELECT 'later'::regtype::oid"));
    cluster.close().await;
}

/// What was told of a statement is told anew when another shard gives the numbers.
#[tokio::test(flavor = "multi_thread")]
async fn statements_are_described_anew_when_home_goes() {
    let (cluster, client) = feelings().await;
    let text = "SELECT mood FROM feelings WHERE tenant = $1";
    let type_of = async |client: &Client| client.prepare(text).await.unwrap().columns()[0].type_().oid();
    let number = |shard: &str| cluster.on_shard(shard, "SELECT 'mood'::regtype::oid");
    assert_eq!(type_of(&client).await.to_string(), number("s1"));
    cluster.move_all("tenants", "s1", "s2").await;
    cluster.remove_shard("s1").await;
    // Another session, which has looked nothing up; what the door knows is the same.
    let other = cluster.connect().await;
    let wanted = number("s2");
    let told = async {
        while type_of(&other).await.to_string() != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), told).await.expect("home's numbers are told");
    cluster.close().await;
}

/// COPY in binary form passes bytes on as they are: what would name a type by another shard's number is refused.
#[tokio::test(flavor = "multi_thread")]
async fn binary_copy_of_values_that_name_types_is_refused() {
    use futures_util::TryStreamExt;
    let (cluster, client) = feelings().await;
    for columns in ["moods", "spot", "spots", "tenant, row(mood)"] {
        for query in [
            format!("SELECT {columns} FROM feelings"),
            format!("SELECT {columns} FROM feelings WHERE tenant = 1"),
        ] {
            let copy = format!("COPY ({query}) TO STDOUT (FORMAT binary)");
            let refused = client.copy_out(&copy).await.err().unwrap_or_else(|| panic!("{copy}"));
            let refused = refused.as_db_error().unwrap_or_else(|| panic!("{copy}: {refused:?}")).clone();
            assert_eq!(refused.code().code(), "0A000", "{copy}: {refused:?}");
            assert!(refused.hint().is_some_and(|hint| hint.contains("text")), "{refused:?}");
        }
    }
    assert_eq!(refusal(&client, "COPY feelings FROM STDIN (FORMAT binary)").await.0, "0A000");
    // An enum's values name nothing; and in text all are fine.
    for copy in ["COPY feelings (tenant, mood) TO STDOUT (FORMAT binary)", "COPY feelings TO STDOUT"] {
        let out = client.copy_out(copy).await.unwrap_or_else(|error| panic!("{copy}: {error:?}"));
        let out: Vec<bytes::Bytes> = out.try_collect().await.unwrap();
        assert!(out.concat().windows(4).any(|part| part == b"calm"), "{copy}");
    }
    drop(client);
    cluster.close().await;
}

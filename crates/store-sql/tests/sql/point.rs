//! Rows read by their primary key in the simple protocol are asked of prepared statements; nobody may notice. G1, C2.

use tokio_postgres::error::ErrorPosition;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::support::{Cluster, Setup, refusal, rows};

/// Reads by primary key until the shards are asked by prepared statements.
async fn read_often(client: &Client) {
    for round in 0..20 {
        let sql = format!("SELECT body FROM notes WHERE tenant = {} AND id = 1", round % 4);
        assert_eq!(rows(client, &sql).await, [[format!("of {}", round % 4)]]);
    }
}

async fn fill(client: &Client) {
    for tenant in 0..4 {
        client.simple_query(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'of {tenant}')")).await.unwrap();
    }
    client.simple_query("INSERT INTO notes VALUES (-7, 4000000000, 'far')").await.unwrap();
    client.simple_query("INSERT INTO notes VALUES (2, -1, 'it''s')").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_by_key_as_if_their_text_was_sent() {
    let cluster = Cluster::start_with(Setup { shards: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    let client = cluster.connect().await;
    fill(&client).await;
    read_often(&client).await;
    // On the session of the shard that this client had before: it is the only one.
    let prepared = "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%$1 AND id = $2%') \
         FROM notes WHERE tenant = 1";
    assert_eq!(rows(&client, prepared).await, [["1"]]);
    // Values of other types than those that came before.
    let sql =
        |tenant: &str, id: &str| format!("SELECT body FROM notes WHERE tenant = {tenant} AND id = {id}");
    assert_eq!(rows(&client, &sql("-7", "4000000000")).await, [["far"]]);
    assert_eq!(rows(&client, &sql("2", "-1")).await, [["it's"]]);
    assert_eq!(rows(&client, &sql("'2'", "'-1'")).await, [["it's"]]);
    assert_eq!(rows(&client, &sql("2", "-1.0")).await, [["it's"]]);
    assert!(rows(&client, &sql("2", "99999999999999999")).await.is_empty());
    let text = "SELECT body, tenant FROM notes WHERE tenant = 2 AND id = -1 AND body = 'it''s'";
    for _ in 0..6 {
        assert_eq!(rows(&client, text).await, [["it's", "2"]]);
    }
    // The columns are told as always.
    let (good, shown) =
        cluster.program("psql", &["-X", "-c", &sql("3", "1").replace("body", "body AS b, id")]).await;
    assert!(good && shown.contains("b   | id"), "{shown}");
    // Inside a transaction too, and after it.
    client.simple_query("BEGIN; UPDATE notes SET body = 'mine' WHERE tenant = 1 AND id = 1").await.unwrap();
    assert_eq!(rows(&client, &sql("1", "1")).await, [["mine"]]);
    client.simple_query("ROLLBACK").await.unwrap();
    read_often(&client).await;
    drop(client);
    cluster.close().await;
}

// G1, C2: drivers send a text without parameters by the extended protocol too.
#[tokio::test(flavor = "multi_thread")]
async fn literals_in_the_extended_protocol_are_bound_to_what_is_prepared() {
    let cluster = Cluster::start_with(Setup { shards: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    let mut client = cluster.connect().await;
    fill(&client).await;
    let sql =
        |tenant: &str, id: &str| format!("SELECT body, id FROM notes WHERE tenant = {tenant} AND id = {id}");
    for round in 0..20 {
        let tenant = round % 4;
        let row = client.query_typed_one(&sql(&tenant.to_string(), "1"), &[]).await.unwrap();
        assert_eq!((row.get::<_, String>(0), row.get::<_, i64>(1)), (format!("of {tenant}"), 1));
        let row = client.query_typed_one(&sql(&format!("'{tenant}'"), "'1'"), &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), format!("of {tenant}"));
    }
    // On the only session of the shard.
    let prepared = "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%= $1 AND id = $2') \
         FROM notes WHERE tenant = 1";
    assert_eq!(rows(&client, prepared).await, [["2"]], "one with numbers, one with texts");
    let row = client.query_typed_one(&sql("-7", "4000000000"), &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "far");
    assert!(client.query_typed(&sql("3", "2"), &[]).await.unwrap().is_empty());
    // What is no value is told about the client's own words.
    let wrong = sql("3", "'one'");
    let error = client.query_typed(&wrong, &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.where_()), ("22P02", None));
    let place = u32::try_from(wrong.find("'one'").unwrap() + 1).unwrap();
    assert_eq!(error.position(), Some(&ErrorPosition::Original(place)));
    // In a transaction, several in one series, and after a change of the table.
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("UPDATE notes SET body = 'mine' WHERE tenant = 1 AND id = 1").await.unwrap();
    let (first, second, third) = (sql("1", "1"), sql("1", "1"), sql("1", "7"));
    let (one, two, none) = tokio::join!(
        transaction.query_typed(&first, &[]),
        transaction.query_typed(&second, &[]),
        transaction.query_typed(&third, &[])
    );
    assert_eq!(one.unwrap()[0].get::<_, String>(0), "mine");
    assert_eq!(two.unwrap()[0].get::<_, String>(0), "mine");
    assert!(none.unwrap().is_empty());
    transaction.rollback().await.unwrap();
    client.batch_execute("ALTER TABLE notes ALTER COLUMN body TYPE varchar(40)").await.unwrap();
    for tenant in 0..4 {
        let row = client.query_typed_one(&sql(&tenant.to_string(), "1"), &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), format!("of {tenant}"));
        assert_eq!(row.columns()[0].type_().name(), "varchar");
    }
    drop(client);
    cluster.close().await;
}

/// What a shard refuses is told about the client's own words.
#[tokio::test(flavor = "multi_thread")]
async fn errors_are_about_what_the_client_wrote() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    fill(&client).await;
    read_often(&client).await;
    for good in ["'1'", "'1'", "'1'", "'1'", "'1'", "'1'"] {
        let sql = format!("SELECT body FROM notes WHERE tenant = 12345 AND id = {good}");
        assert!(rows(&client, &sql).await.is_empty());
    }
    let sql = "SELECT body FROM notes WHERE tenant = 12345 AND id = 'one'";
    let error = client.simple_query(sql).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.where_()), ("22P02", None));
    let place = u32::try_from(sql.find("'one'").unwrap() + 1).unwrap();
    assert_eq!(error.position(), Some(&ErrorPosition::Original(place)));
    for _ in 0..6 {
        let (state, _) = refusal(&client, "SELECT body, nobody FROM notes WHERE tenant = 1 AND id = 1").await;
        assert_eq!(state, "42703");
    }
    read_often(&client).await;
    drop(client);
    cluster.close().await;
}

/// What others do to the shards past the door is not noticed more than it was.
#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_that_are_gone_or_changed_are_no_errors() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    fill(&client).await;
    let all = "SELECT * FROM notes WHERE tenant = 1 AND id = 1";
    for _ in 0..8 {
        assert_eq!(rows(&client, all).await, [["1", "1", "of 1"]]);
    }
    for shard in ["s1", "s2"] {
        cluster.on_shard(shard, "ALTER TABLE notes ALTER COLUMN body TYPE varchar(100)");
    }
    for _ in 0..8 {
        assert_eq!(rows(&client, all).await, [["1", "1", "of 1"]]);
    }
    // On one shard alone: each tells its own columns.
    cluster.on_shard("s2", "ALTER TABLE notes ADD COLUMN strange int DEFAULT 7");
    let strange = cluster.on_shard("s2", "SELECT tenant FROM notes WHERE id = 1");
    let strange: Vec<&str> = strange.lines().collect();
    for _ in 0..6 {
        for tenant in ["0", "1", "2", "3"] {
            let sql = format!("SELECT * FROM notes WHERE tenant = {tenant} AND id = 1");
            let told = client.simple_query(&sql).await.unwrap();
            let columns = told.iter().find_map(|message| match message {
                SimpleQueryMessage::RowDescription(columns) => Some(columns.len()),
                _ => None,
            });
            let count = if strange.contains(&tenant) { 4 } else { 3 };
            assert_eq!((columns, rows(&client, &sql).await[0].len()), (Some(count), count));
        }
    }
    cluster.on_shard("s2", "ALTER TABLE notes DROP COLUMN strange");
    let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
         WHERE datname IN ('s1', 's2') AND pid <> pg_backend_pid() AND query LIKE '%notes%'";
    let ended: u32 = cluster.on_shard("s1", end).parse().unwrap();
    assert!(ended > 0);
    for _ in 0..8 {
        assert_eq!(rows(&client, all).await, [["1", "1", "of 1"]]);
    }
    // Through the door it is a change of the schema: with the next statement everything is as it is then.
    client.simple_query("ALTER TABLE notes ADD COLUMN more int DEFAULT 5").await.unwrap();
    for _ in 0..8 {
        assert_eq!(rows(&client, all).await, [["1", "1", "of 1", "5"]]);
    }
    drop(client);
    cluster.close().await;
}

/// A shard that is not there does not matter to reads of others: each statement is asked where its row is. C4.
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_read_while_another_shard_is_down() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..20 {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'of {tenant}')")).await;
    }
    let there = cluster.on_shard("s2", "SELECT min(tenant) FROM notes");
    cluster.on_shard("catalog", "ALTER DATABASE s1 ALLOW_CONNECTIONS false");
    let sessions =
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = 's1'";
    cluster.on_shard("catalog", sessions);
    let sql = format!("SELECT id, body FROM notes WHERE tenant = {there} AND id = 1");
    for _ in 0..8 {
        assert_eq!(rows(&client, &sql).await, [["1".to_owned(), format!("of {there}")]]);
    }
    cluster.on_shard("catalog", "ALTER DATABASE s1 ALLOW_CONNECTIONS true");
    drop(client);
    cluster.close().await;
}

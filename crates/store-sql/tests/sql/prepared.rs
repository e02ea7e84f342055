//! PREPARE, EXECUTE and DEALLOCATE as SQL statements, and DISCARD. C1, G1.

use crate::support::{Cluster, refusal, rows};

/// The same on both engines: what is prepared belongs to the client, and goes where its values say.
async fn prepared_by_sql(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("PREPARE put (bigint, bigint, text) AS INSERT INTO notes (tenant, id, body) VALUES ($1, $2, $3)")
        .await;
    run("PREPARE get AS SELECT body FROM notes WHERE tenant = $1 ORDER BY id").await;
    for tenant in 0..12 {
        run(&format!("EXECUTE put({tenant}, 1, 'of {tenant}')")).await;
    }
    for tenant in 0..12 {
        assert_eq!(run(&format!("EXECUTE get({tenant})")).await, [[format!("of {tenant}")]]);
    }
    // A text is a text: no quotes or dollars in it are read as anything else.
    run("EXECUTE put(3, 2, 'it''s $1; DROP TABLE notes')").await;
    assert_eq!(run("EXECUTE get('3')").await, [["of 3"], ["it's $1; DROP TABLE notes"]]);
    run("PREPARE everywhere AS SELECT count(*) FROM notes WHERE id = $1").await;
    assert_eq!(run("EXECUTE everywhere(1)").await, [["12"]]);
    run("PREPARE country (text) AS UPDATE countries SET name = $1 WHERE code = 'ch'").await;
    run("EXECUTE country('Schweiz')").await;
    assert_eq!(run("SELECT name FROM countries WHERE code = 'ch'").await, [["Schweiz"]]);

    let (state, message) = refusal(&client, "EXECUTE get(1, 2)").await;
    assert_eq!((state.as_str(), message.contains("wrong number")), ("42601", true), "{message}");
    assert_eq!(refusal(&client, "EXECUTE nothing").await.0, "26000");
    assert_eq!(refusal(&client, "PREPARE get AS SELECT 1").await.0, "42P05");
    assert_eq!(refusal(&client, "PREPARE made AS CREATE TABLE x (a int)").await.0, "42601");
    assert_eq!(refusal(&client, "PREPARE made (nonsense) AS SELECT $1").await.0, "42704");
    assert_eq!(refusal(&client, "EXECUTE put(1, 1, 'twice')").await.0, "23505");

    // In a transaction it is on the transaction's shard, and is undone with it.
    run("BEGIN; EXECUTE put(5, 7, 'x'); ROLLBACK").await;
    assert_eq!(run("EXECUTE get(5)").await, [["of 5"]]);
    // Prepared statements of the protocol and of SQL have their names in common, as on PostgreSQL.
    let other = cluster.connect().await;
    assert_eq!(refusal(&other, "EXECUTE get(1)").await.0, "26000");
    run("DEALLOCATE get").await;
    assert_eq!(refusal(&client, "EXECUTE get(1)").await.0, "26000");
    assert_eq!(refusal(&client, "DEALLOCATE get").await.0, "26000");
    run("DEALLOCATE ALL").await;
    assert_eq!(refusal(&client, "EXECUTE put(1, 9, 'x')").await.0, "26000");
    run("PREPARE get AS SELECT 1; DISCARD PLANS; DISCARD TEMP; DISCARD SEQUENCES").await;
    assert_eq!(run("EXECUTE get").await, [["1"]]);
    run("SET timezone = '+02'").await;
    run("DISCARD ALL").await;
    assert_eq!(refusal(&client, "EXECUTE get").await.0, "26000");
    assert!(!run("SHOW timezone").await[0][0].contains("02"));
    drop((client, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_prepared_by_sql_go_where_their_values_say() {
    let cluster = Cluster::with_tables().await;
    prepared_by_sql(&cluster).await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    // An argument is worked out once, in the parameter's type.
    run("PREPARE same (double precision) AS SELECT $1 = $1").await;
    assert_eq!(run("EXECUTE same(random())").await, [["t"]]);
    run("PREPARE sum (numeric, int) AS SELECT $1 + $2 AS s, $1 = $1").await;
    assert_eq!(run("EXECUTE sum(1.5 + length('ab') * 0, 2.6)").await, [["4.5", "t"]]);
    assert_eq!(run("EXECUTE sum(NULL, -1)").await, [["NULL", "NULL"]]);
    let (state, _) = refusal(&client, "EXECUTE sum((SELECT count(*) FROM notes), 1)").await;
    assert_eq!(state, "0A000");
    // Types of one's own.
    run("CREATE TYPE mood AS ENUM ('sad', 'ok')").await;
    run("PREPARE feel (mood) AS SELECT $1 > 'sad'").await;
    assert_eq!(run("EXECUTE feel('ok')").await, [["t"]]);
    assert!(run("EXPLAIN EXECUTE feel('ok')").await[0][0].contains("Result"));
    // By the extended protocol too, columns and all.
    run("PREPARE get AS SELECT tenant, body FROM notes WHERE tenant = $1").await;
    let row = client.query_one("EXECUTE get(2)", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, String>(1)), (2, "of 2".to_owned()));
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_prepared_by_sql_work_on_sqlite_shards() {
    let cluster = crate::embedded::with_tables().await;
    prepared_by_sql(&cluster).await;
    cluster.close().await;
}

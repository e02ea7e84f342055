//! Savepoints in transactions that change what every shard has, as migration tools and psql use them. C1, C3, E3.

use crate::support::{Cluster, refusal, rows};
use tokio_postgres::SimpleQueryMessage;

/// The same on both engines: what was done since a savepoint is undone on every shard, the rest is kept.
async fn changes_with_savepoints(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("BEGIN; INSERT INTO countries VALUES ('no', 'Norway'); SAVEPOINT a").await;
    run("INSERT INTO countries VALUES ('se', 'Sweden')").await;
    run("CREATE TABLE gone (id int PRIMARY KEY)").await;
    run("INSERT INTO gone VALUES (1)").await;
    assert_eq!(refusal(&client, "INSERT INTO countries VALUES ('no', 'twice')").await.0, "23505");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    assert_eq!(refusal(&client, "RELEASE a").await.0, "25P02");
    run("ROLLBACK TO a").await;
    assert_eq!(run("SELECT code FROM countries ORDER BY code").await, [["ch"], ["is"], ["no"]]);
    // The table is gone from the transaction's own view, too.
    run("SAVEPOINT b").await;
    assert_eq!(refusal(&client, "SELECT * FROM gone").await.0, "42P01");
    run("ROLLBACK TO b; RELEASE b").await;
    run("CREATE TABLE kept (id int PRIMARY KEY, x text)").await;
    run("SAVEPOINT b; INSERT INTO kept VALUES (1, 'one'); RELEASE b").await;
    run("SAVEPOINT b; INSERT INTO kept VALUES (2, 'two'); ROLLBACK TO b").await;
    run("INSERT INTO kept VALUES (3, 'three')").await;
    run("COMMIT").await;
    assert_eq!(run("SELECT id FROM kept ORDER BY id").await, [["1"], ["3"]]);
    assert_eq!(refusal(&client, "SELECT * FROM gone").await.0, "42P01");
    assert_eq!(refusal(&client, "SAVEPOINT a").await.0, "25P01");
    // Rolled back as a whole, whatever was released.
    run("BEGIN; SAVEPOINT a; DELETE FROM kept WHERE id = 1; RELEASE a; ROLLBACK").await;
    assert_eq!(run("SELECT count(*) FROM kept").await, [["2"]]);
    drop(client);
}

/// A shard that comes later gets from the journal what was kept, and nothing of what was undone.
async fn a_newcomer_has_what_was_kept(cluster: &Cluster) {
    if let crate::support::Place::Postgres(server) = &cluster.place {
        server.create_database("s3");
    }
    cluster.add_shard("s3").await;
    let shard = polyshard_map::ShardId::new("s3").unwrap();
    cluster.journal.ready(&shard).await.unwrap();
    let report = cluster.journal.check().await.unwrap();
    assert!(report.differences.is_empty(), "{report:?}");
}

/// A transaction that came to every shard after a savepoint may go elsewhere once it is back there.
async fn back_before_every_shard(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("BEGIN; SELECT count(*) FROM countries; SAVEPOINT a").await;
    assert_eq!(refusal(&client, "CREATE TABLE countries (id int)").await.0, "42P07");
    run("ROLLBACK TO a").await;
    run("INSERT INTO notes (tenant, id, body) VALUES (5, 50, 'after all')").await;
    run("SAVEPOINT b").await;
    assert_eq!(refusal(&client, "CREATE TABLE other (id int)").await.0, "0A000");
    run("ROLLBACK TO b; COMMIT").await;
    assert_eq!(run("SELECT body FROM notes WHERE tenant = 5 AND id = 50").await, [["after all"]]);
    // The turn was given back: another client can change what every shard has while this one is inside.
    run("BEGIN; SAVEPOINT a; INSERT INTO countries VALUES ('xx', 'X'); ROLLBACK TO a").await;
    let other = cluster.connect().await;
    rows(&other, "INSERT INTO countries VALUES ('de', 'Germany')").await;
    run("INSERT INTO countries VALUES ('fr', 'France'); RELEASE a; COMMIT").await;
    let found = run("SELECT count(*) FROM countries WHERE code IN ('xx', 'de', 'fr')").await;
    assert_eq!(found, [["2"]]);
    drop((client, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_undo_a_part_of_a_change_on_every_shard() {
    let cluster = Cluster::with_tables().await;
    changes_with_savepoints(&cluster).await;
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT string_agg(id::text, ',' ORDER BY id) FROM kept"), "1,3");
        let codes = cluster.on_shard(shard, "SELECT string_agg(code, ',' ORDER BY code) FROM countries");
        assert_eq!(codes, "ch,is,no");
    }
    back_before_every_shard(&cluster).await;
    a_newcomer_has_what_was_kept(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn savepoints_undo_a_part_of_a_change_on_every_sqlite_shard() {
    let cluster = crate::embedded::with_tables().await;
    changes_with_savepoints(&cluster).await;
    back_before_every_shard(&cluster).await;
    a_newcomer_has_what_was_kept(&cluster).await;
    cluster.close().await;
}

/// psql with ON_ERROR_ROLLBACK wraps every statement in a savepoint.
#[tokio::test(flavor = "multi_thread")]
async fn psql_goes_on_after_errors_in_a_migration() {
    let cluster = Cluster::with_tables().await;
    let script = "BEGIN;\nCREATE TABLE m (id int PRIMARY KEY);\nCREATE TABLE m (id int);\n\
                  INSERT INTO m VALUES (1);\nINSERT INTO m VALUES (1);\nALTER TABLE m ADD COLUMN x text;\n\
                  UPDATE m SET x = 'x';\nCOMMIT;\nSELECT * FROM m;\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("migration.sql");
    std::fs::write(&path, script).unwrap();
    let (done, said) =
        cluster.program("psql", &["-At", "-v", "ON_ERROR_ROLLBACK=on", "-f", path.to_str().unwrap()]).await;
    assert!(done, "{said}");
    assert!(said.contains("1|x"), "{said}");
    assert_eq!(said.matches("ERROR").count(), 2, "{said}");
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT x FROM m"), "x");
    }
    cluster.close().await;
}

/// What a statement means by the search path is the same on every shard, and on those that come later.
#[tokio::test(flavor = "multi_thread")]
async fn settings_made_between_two_changes_hold_on_every_shard() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE SCHEMA other").await;
    run("BEGIN; CREATE TABLE first (id int PRIMARY KEY)").await;
    run("SET search_path = other").await;
    run("CREATE TABLE second (id int PRIMARY KEY); SAVEPOINT a; SET LOCAL search_path = public").await;
    run("CREATE TABLE third (id int PRIMARY KEY); ROLLBACK TO a").await;
    run("CREATE TABLE fourth (id int PRIMARY KEY)").await;
    run("SET LOCAL search_path = public; CREATE TABLE fifth (id int PRIMARY KEY); COMMIT").await;
    cluster.server().create_database("s3");
    cluster.add_shard("s3").await;
    cluster.journal.ready(&polyshard_map::ShardId::new("s3").unwrap()).await.unwrap();
    let tables = "SELECT string_agg(schemaname || '.' || tablename, ' ' ORDER BY schemaname, tablename) FROM pg_tables \
                  WHERE tablename IN ('first', 'second', 'third', 'fourth', 'fifth')";
    for shard in ["s1", "s2", "s3"] {
        assert_eq!(
            cluster.on_shard(shard, tables),
            "other.fourth other.second public.fifth public.first",
            "{shard}"
        );
    }
    // The session's own search path is what it was set to for the session.
    assert_eq!(run("SHOW search_path").await, [["other"]]);
    drop(client);
    cluster.close().await;
}

/// A change that is refused at its end was not told to be done before. E3.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_change_is_not_said_to_be_done() {
    let cluster = Cluster::with_tables().await;
    let (done, said) = cluster.program("psql", &["-c", "ALTER TABLE notes DROP COLUMN tenant CASCADE"]).await;
    assert!(!done && said.contains("key"), "{said}");
    assert!(!said.contains("ALTER TABLE"), "{said}");
    let client = cluster.connect().await;
    // And what is done is said as PostgreSQL says it.
    let (done, said) = cluster
        .program(
            "psql",
            &[
                "-c",
                "CREATE TABLE a AS SELECT 1 AS x",
                "-c",
                "CREATE UNIQUE INDEX ON a (x)",
                "-c",
                "DROP TABLE a",
            ],
        )
        .await;
    assert!(done, "{said}");
    assert_eq!(said, "SELECT 1\nCREATE INDEX\nDROP TABLE\n");
    let answers = client.simple_query("UPDATE countries SET name = name").await.unwrap();
    assert!(answers.iter().any(|answer| matches!(answer, SimpleQueryMessage::CommandComplete(2))));
    let returned =
        client.query("INSERT INTO countries VALUES ('no', 'Norway') RETURNING code", &[]).await.unwrap();
    assert_eq!(returned.len(), 1);
    drop(client);
    cluster.close().await;
}

//! What comes from outside of Polyshard does not make a move lose rows: writers past it, and what a database, its roles
//! or its tables are set to (D3, D4).

use std::time::Duration;

use tokio_postgres::{Client, NoTls};

use crate::cluster::Cluster;
use crate::fleet::password;
use crate::ledger::Fate;
use crate::support::run;

/// How long something may take that must come; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The tenants that move.
const MOVING: std::ops::Range<i64> = 5..15;

/// A session of a shard's own role, past Polyshard.
async fn past_polyshard(cluster: &Cluster, shard: &str) -> Client {
    let mut config = tokio_postgres::Config::new();
    let port = cluster.fleet.as_ref().expect("databases").servers[0].port();
    config.host("127.0.0.1").port(port).user(shard).password(password(shard)).dbname(shard);
    let (client, connection) = config.connect(NoTls).await.expect("the database is there");
    // It ends with the client.
    drop(tokio::spawn(connection));
    client
}

/// The departure takes its locks, and then looks whether something is left to carry. It must see what was committed
/// before it had them, which a transaction with one snapshot would not.
#[test]
fn a_write_beside_the_departure_arrives_whatever_isolation_a_database_has_by_default() {
    let mut cluster = Cluster::together(1);
    let (source, target) = (cluster.source(), cluster.target());
    for shard in [source, target] {
        let sql = format!("ALTER DATABASE {shard} SET default_transaction_isolation = 'repeatable read'");
        cluster.fleet.as_ref().expect("databases").servers[0].execute("postgres", &sql);
    }
    cluster.kill(0);
    cluster.start(0);
    cluster.hold("depart.before");
    let operation = cluster.begin(&format!("move tenants --range 5..15 --to {target}"));
    cluster.await_held("depart.before");
    let id = cluster.ledger.number();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let holder = past_polyshard(&cluster, source).await;
        let writer = past_polyshard(&cluster, source).await;
        holder.batch_execute("BEGIN; SELECT one FROM polyshard.meta FOR SHARE").await.unwrap();
        cluster.let_go();
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                       AND query LIKE '%meta%'";
        let waits = async {
            while writer.query(waiting, &[]).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.expect("the departure waits for the local map");
        let insert = format!("INSERT INTO entry VALUES (7, {id}, 'beside')");
        let insert = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {insert}; COMMIT");
        writer.batch_execute(&insert).await.unwrap();
        holder.batch_execute("COMMIT").await.unwrap();
    });
    cluster.ledger.note(("entry", 7, id), Fate::There);
    assert_eq!(cluster.ended(&operation)["state"], "done");
    assert_eq!(cluster.owner(7), target);
    cluster.assert_whole();
}

/// Rows that a policy hides from the owner of a table would be left behind, and be gone for everybody.
#[test]
fn a_table_whose_rows_are_hidden_by_a_forced_policy_is_not_moved() {
    let cluster = Cluster::together(1);
    let (source, target) = (cluster.source(), cluster.target());
    let on_both = |sql: &str| {
        for shard in [source, target] {
            cluster.fleet.as_ref().expect("databases").servers[0].execute(shard, sql);
        }
    };
    on_both("ALTER TABLE entry ENABLE ROW LEVEL SECURITY");
    on_both("ALTER TABLE entry FORCE ROW LEVEL SECURITY");
    on_both("CREATE POLICY evens ON entry USING (id % 2 = 0)");
    let moved = run(cluster.process(0), &format!("move tenants --range 5..15 --to {target} --wait"));
    assert_ne!(moved.code, Some(0), "{moved:?}");
    assert!(moved.stderr.contains("row-level security"), "{moved:?}");
    for tenant in MOVING {
        assert_eq!(cluster.owner(tenant), source);
    }
    on_both("DROP POLICY evens ON entry");
    on_both("ALTER TABLE entry DISABLE ROW LEVEL SECURITY");
    on_both("ALTER TABLE entry NO FORCE ROW LEVEL SECURITY");
    // Then it can be.
    run(cluster.process(0), &format!("move tenants --range 5..15 --to {target} --wait")).ok();
    cluster.assert_whole();
}

/// A prepared transaction has no session that could be ended, and keeps its share of the move's lock: the range stays
/// until it is over, and takes its rows along.
#[test]
fn a_prepared_transaction_delays_the_switch_and_keeps_its_writes() {
    let cluster = Cluster::together_with(1, &[("max_prepared_transactions", "8")]);
    let (source, target) = (cluster.source(), cluster.target());
    cluster.hold("raise.before");
    let operation = cluster.begin(&format!("move tenants --range 5..15 --to {target}"));
    cluster.await_held("raise.before");
    let id = cluster.ledger.number();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let on_source = |sql: String| {
        runtime.block_on(async {
            let client = past_polyshard(&cluster, source).await;
            client.batch_execute(&sql).await.unwrap();
        });
    };
    on_source(format!("BEGIN; INSERT INTO entry VALUES (7, {id}, 'prepared'); PREPARE TRANSACTION 'late'"));
    cluster.let_go();
    // It was tried to leave, and given up for now.
    let is_tried = |line: &str| line.contains("operation has to wait") && line.contains("depart:");
    let tried = cluster.process(0).log().wait_for(PATIENCE, is_tried);
    assert!(tried.is_some(), "{}", cluster.process(0).log().text());
    assert_eq!(cluster.operation(&operation).expect("the catalog answers")["state"], "running");
    assert_eq!(cluster.owner(7), source);
    on_source("COMMIT PREPARED 'late'".to_owned());
    cluster.ledger.note(("entry", 7, id), Fate::There);
    assert_eq!(cluster.ended(&operation)["state"], "done");
    assert_eq!(cluster.owner(7), target);
    cluster.assert_whole();
}

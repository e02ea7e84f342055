//! Series that fail, copied data, undone settings: what one client does leaves others alone. C1, C4.

use std::time::Duration;

use futures_util::{SinkExt, future::join};
use tokio::time::timeout;

use crate::support::{Cluster, Setup, refusal, rows};

/// Far more than any of it takes: what hangs fails rather than hanging the test.
const PATIENCE: Duration = Duration::from_secs(30);

async fn with_one_session() -> Cluster {
    let cluster = Cluster::start_with(Setup { raw_max: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    cluster
}

/// The one session to the shard must be free for others once a failed series is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_fails_ends_and_its_commit_is_a_rollback() {
    let cluster = with_one_session().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    rows(&client, "INSERT INTO notes VALUES (1, 1, 'a')").await;
    let insert = client.prepare("INSERT INTO notes VALUES ($1, $2, 'b')").await.unwrap();
    let commit = client.prepare("COMMIT").await.unwrap();
    rows(&client, "BEGIN").await;
    // Both are sent before the first is answered.
    let failing = client.execute(&insert, &[&1_i64, &1_i64]);
    let (failed, committed) =
        timeout(PATIENCE, join(failing, client.execute(&commit, &[]))).await.expect("a series hangs");
    assert_eq!(failed.unwrap_err().code().unwrap().code(), "23505");
    committed.unwrap();
    let all = "SELECT body FROM notes WHERE tenant = 1";
    assert_eq!(timeout(PATIENCE, rows(&other, all)).await.expect("a session is held"), [["a"]]);
    // A message of several parts, of which the first fails and the last is the end of the transaction.
    let mut stream = crate::wire::Wire::connect(&cluster).await;
    stream.simple("BEGIN").await;
    stream.statement("INSERT INTO notes VALUES (1, 1, 'c')");
    stream.statement("INSERT INTO notes VALUES (1, 2, 'c')");
    stream.statement("COMMIT");
    let kinds = timeout(PATIENCE, stream.sync()).await.expect("a series hangs");
    assert!(kinds.ends_with("EZ") && kinds.matches('E').count() == 1, "{kinds}");
    stream.simple("ROLLBACK").await;
    assert_eq!(timeout(PATIENCE, rows(&other, all)).await.expect("a session is held"), [["a"]]);
    // What came after the error was not prepared, and is when it is asked for again.
    stream.statement("INSERT INTO notes VALUES (1, 2, 'c')");
    let kinds = timeout(PATIENCE, stream.sync()).await.expect("a series hangs");
    assert!(kinds.ends_with("CZ"), "{kinds}");
    // Flushes after an error.
    stream.statement("INSERT INTO notes VALUES (1, 1, 'c')");
    stream.flush().await;
    stream.flush().await;
    let kinds = timeout(PATIENCE, stream.sync()).await.expect("a series hangs");
    assert!(kinds.ends_with("EZ"), "{kinds}");
    drop((client, other, stream));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_is_copied_by_the_extended_protocol() {
    let cluster = with_one_session().await;
    let client = cluster.connect().await;
    rows(&client, "CREATE TABLE here (id bigint PRIMARY KEY)").await;
    rows(&client, "SELECT polyshard.local_table('here', 's1')").await;
    let copy = async |data: &'static str| {
        let sink = client.copy_in::<_, bytes::Bytes>("COPY here FROM STDIN").await?;
        let mut sink = std::pin::pin!(sink);
        sink.send(bytes::Bytes::from_static(data.as_bytes())).await?;
        sink.finish().await
    };
    let copied = timeout(PATIENCE, copy("1\n2\n3\n")).await.expect("COPY hangs");
    assert_eq!(copied.unwrap(), 3);
    let failed = timeout(PATIENCE, copy("4\n1\n")).await.expect("COPY hangs");
    assert_eq!(failed.unwrap_err().code().unwrap().code(), "23505");
    let count = timeout(PATIENCE, rows(&client, "SELECT count(*) FROM here")).await.expect("it hangs");
    assert_eq!(count, [["3"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_are_undone_are_nobodys() {
    let cluster = with_one_session().await;
    let (one, two) = (cluster.connect().await, cluster.connect().await);
    let zone = async |client| rows(client, "SHOW TimeZone").await.concat().concat();
    let default = zone(&one).await;
    // Two clients that want the same: the session seems to be what the second needs.
    rows(&two, "SET TimeZone = 'Asia/Tokyo'").await;
    for undo in ["ROLLBACK", "ROLLBACK TO a; COMMIT"] {
        rows(&one, "BEGIN; SELECT 1 FROM notes WHERE tenant = 1; SAVEPOINT a").await;
        rows(&one, "SET TimeZone = 'Asia/Tokyo'").await;
        rows(&one, undo).await;
        assert_eq!(zone(&two).await, "Asia/Tokyo", "{undo}");
        assert_eq!(zone(&one).await, default, "{undo}");
    }
    // A COMMIT that fails undoes it as well.
    rows(&one, "CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    rows(&one, "SELECT polyshard.local_table('late', 's1')").await;
    rows(&one, "BEGIN; INSERT INTO late VALUES (1), (1)").await;
    rows(&one, "SET TimeZone = 'Asia/Tokyo'").await;
    assert_eq!(refusal(&one, "COMMIT").await.0, "23505");
    assert_eq!(zone(&two).await, "Asia/Tokyo");
    assert_eq!(zone(&one).await, default);
    // Characteristics are settings like others.
    let level = async |client| rows(client, "SHOW default_transaction_isolation").await.concat().concat();
    rows(&one, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY").await;
    assert_eq!(level(&one).await, "serializable");
    assert_eq!(level(&two).await, "read committed");
    assert_eq!(rows(&two, "SHOW default_transaction_read_only").await, [["off"]]);
    assert_eq!(rows(&one, "SHOW default_transaction_read_only").await, [["on"]]);
    // Code that nobody looks into leaves nothing behind.
    rows(&two, "DO $$ BEGIN SET work_mem = '7MB'; END $$").await;
    assert_ne!(rows(&one, "SHOW work_mem").await, [["7MB"]]);
    drop((one, two));
    cluster.close().await;
}

/// The shard that fails is asked before the transaction's own, whose answer is then still to come. C1, C3.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_across_shards_that_fails_leaves_the_transaction_in_step() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..30 {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 0, 'probe')")).await;
    }
    let first = |shard: &str| cluster.on_shard(shard, "SELECT min(tenant) FROM notes");
    let (other, own) = (first("s1"), first("s2"));
    rows(&client, "BEGIN").await;
    rows(&client, &format!("INSERT INTO notes VALUES ({own}, 1, 'kept')")).await;
    rows(&client, "SAVEPOINT a").await;
    assert_eq!(refusal(&client, &format!("SELECT 1 / (tenant - {other}) FROM notes")).await.0, "22012");
    rows(&client, "ROLLBACK TO a").await;
    let body = format!("SELECT body FROM notes WHERE tenant = {own} AND id = 1");
    assert_eq!(rows(&client, &body).await, [["kept"]]);
    assert_eq!(rows(&client, "SELECT 7").await, [["7"]]);
    rows(&client, "COMMIT").await;
    assert_eq!(cluster.on_shard("s2", &body), "kept");
    drop(client);
    cluster.close().await;
}

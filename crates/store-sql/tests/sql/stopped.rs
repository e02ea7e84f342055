//! Cursors over several shards whose FETCH is stopped, by word or because the client is gone, and what files work out
//! for such a client. C1, C3.

use std::time::Duration;

use futures_util::TryStreamExt;

use crate::support::{Cluster, refusal, rows};

/// Rows that end where no row is, after a time that no test waits for. What the shards do for it is done at once.
const ENDLESS: &str = "DECLARE c CURSOR FOR SELECT n FROM (SELECT max(id) AS id FROM notes) a, \
                       generate_series(1, 1000000) n, generate_series(1, 1000000) m WHERE n + m < a.id";

const FETCHING: &str = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'FETCH%'";
const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname IN ('s1', 's2') \
                              AND pid <> pg_backend_pid() AND state <> 'idle' AND state IS NOT NULL";

async fn until(cluster: &Cluster, sql: &str, wanted: &str) {
    let there = async {
        while cluster.on_shard("s1", sql) != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), there).await.is_ok(), "{sql}: not {wanted}");
}

async fn declare(client: &tokio_postgres::Client) {
    let declared = tokio::time::timeout(Duration::from_secs(60), rows(client, ENDLESS)).await;
    assert!(declared.is_ok(), "DECLARE itself asks for the rows");
}

async fn with_notes() -> Cluster {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..8 {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'x')")).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_over_several_shards_is_cancelled() {
    let cluster = with_notes().await;
    let mut client = cluster.connect().await;
    // At its end the transaction is rolled back, whatever is said.
    for end in ["COMMIT", "ROLLBACK"] {
        rows(&client, "BEGIN; INSERT INTO notes VALUES (100, 1, 'x')").await;
        declare(&client).await;
        let token = client.cancel_token();
        let fetching = tokio::spawn(async move {
            let refused = refusal(&client, "FETCH 10 FROM c").await;
            (client, refused)
        });
        until(&cluster, FETCHING, "1").await;
        token.cancel_query(tokio_postgres::NoTls).await.unwrap();
        let stopped = tokio::time::timeout(Duration::from_secs(60), fetching).await.expect("it is stopped");
        let refused;
        (client, refused) = stopped.unwrap();
        assert_eq!(refused.0, "57014", "{refused:?}");
        assert_eq!(refusal(&client, "FETCH 1 FROM c").await.0, "25P02");
        rows(&client, end).await;
        until(&cluster, IN_TRANSACTION, "0").await;
        assert_eq!(refusal(&client, "FETCH 1 FROM c").await.0, "34000");
        // The sessions are as good as new, and nothing was written.
        assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["8"]]);
    }
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_it_fetches_leaves_nothing_behind() {
    let cluster = with_notes().await;
    let (gone, connection) =
        tokio_postgres::connect(&cluster.connect_string(), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    rows(&gone, "BEGIN").await;
    declare(&gone).await;
    let fetching = tokio::spawn(async move { gone.simple_query("FETCH 10 FROM c").await });
    until(&cluster, FETCHING, "1").await;
    connection.abort();
    assert!(fetching.await.unwrap().is_err());
    until(&cluster, IN_TRANSACTION, "0").await;
    let client = cluster.connect().await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["8"]]);
    drop(client);
    cluster.close().await;
}

/// C3: what a file works out for a client that is gone ends: it would keep a reader, and a core.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_a_file_works_leaves_nothing_behind() {
    let cluster = Cluster::start_embedded().await;
    cluster.make_tables().await;
    let watcher = cluster.connect().await;
    for tenant in 0..8 {
        let many = format!("INSERT INTO notes SELECT {tenant}, n, 'x' FROM generate_series(1, 400) n");
        rows(&watcher, &many).await;
    }
    let names = ["a", "b", "c", "d", "e"];
    let tables = names.map(|name| format!("notes {name}")).join(", ");
    let together: Vec<String> = names.iter().map(|name| format!("{name}.tenant = 1")).collect();
    // All but one of the ids are 1: hundreds of such rows are found at once, the next ones after minutes.
    let pairs =
        names.iter().enumerate().flat_map(|(at, one)| names[at + 1..].iter().map(move |two| (one, two)));
    let pairs: Vec<String> = pairs.map(|(one, two)| format!("({one}.id - 1) * ({two}.id - 1)")).collect();
    let by_key = format!(
        "SELECT repeat('x', 2000) FROM {tables} WHERE {} AND {} = 0",
        together.join(" AND "),
        pairs.join(" + ")
    );
    let across = by_key.replace("a.tenant = 1", "a.tenant IN (1, 2, 3, 4, 5, 6, 7)");
    let across = across.replace(".tenant = 1", ".tenant = a.tenant");
    for endless in [by_key, across] {
        let gone = format!("{} application_name=gone", cluster.connect_string());
        let (gone, connection) = tokio_postgres::connect(&gone, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut found = std::pin::pin!(gone.simple_query_raw(&endless).await.unwrap());
        // Eight pages: while the ninth is looked for, nothing is sent, and so nobody finds out by sending.
        let mut seen = 0;
        while seen < 800 {
            let message = found.try_next().await.unwrap();
            seen += usize::from(matches!(message, Some(tokio_postgres::SimpleQueryMessage::Row(_))));
        }
        connection.abort();
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gone'";
        let ended = async {
            while rows(&watcher, left).await != [["0"]] {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok(), "{endless} goes on");
    }
    drop(watcher);
    cluster.close().await;
}

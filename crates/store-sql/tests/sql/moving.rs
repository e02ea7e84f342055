//! Statements over several shards while the old rows of a move are kept: every row counts once. C4, C5, D1.

use futures_util::TryStreamExt;

use crate::support::{Cluster, refusal, rows};

const TENANTS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_query_across_sqlite_shards_counts_kept_rows_once() {
    let cluster = super::embedded::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..TENANTS {
        run(&format!("INSERT INTO notes (tenant, id, body) VALUES ({tenant}, 1, 'x')")).await;
    }
    let ask = "SELECT count(*), sum(tenant) FROM notes";
    let joined = "SELECT count(*) FROM notes a JOIN notes b ON a.id = b.id";
    let check = async || {
        assert_eq!(run(ask).await, [["20", "190"]]);
        assert_eq!(run(joined).await, [["400"]]);
        assert_eq!(run("SELECT tenant FROM notes ORDER BY tenant").await.len(), TENANTS);
    };
    check().await;
    let moves = cluster.swap_and_keep("tenants").await;
    check().await;
    // The old rows stay as they were.
    for tenant in 0..TENANTS {
        run(&format!("UPDATE notes SET body = 'y' WHERE tenant = {tenant}")).await;
    }
    assert_eq!(run("SELECT body, count(*) FROM notes GROUP BY body").await, [["y", "20"]]);
    cluster.clean_up(moves).await;
    check().await;
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_and_writes_over_several_shards_take_kept_rows_once() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("SET polyshard.multi_shard = 'two_phase'").await;
    let many: Vec<String> = (0..TENANTS).map(|tenant| format!("({tenant}, 1, 'x')")).collect();
    run(&format!("INSERT INTO notes VALUES {}", many.join(", "))).await;
    // Both shards own rows then, and both keep some that they do not own.
    let moves = cluster.swap_and_keep("tenants").await;
    let on =
        |shard: &str| -> usize { cluster.on_shard(shard, "SELECT count(*) FROM notes").parse().unwrap() };
    assert!(on("s1") + on("s2") > TENANTS, "old rows are kept");
    assert_eq!(run("SELECT count(*) FROM notes").await, [["20"]]);
    for copy in ["COPY notes TO STDOUT", "COPY notes (body, tenant) TO STDOUT WITH (FORMAT csv, HEADER)"] {
        let bytes: Vec<bytes::Bytes> = client.copy_out(copy).await.unwrap().try_collect().await.unwrap();
        let text = String::from_utf8(bytes.concat()).unwrap();
        let header = usize::from(copy.contains("HEADER"));
        assert_eq!(text.lines().count(), TENANTS + header, "{copy}: {text}");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), TENANTS + header, "{copy}: {text}");
    }
    let listed =
        |from: usize| (from..TENANTS).map(|tenant| tenant.to_string()).collect::<Vec<_>>().join(", ");
    let all = listed(0);
    let count =
        async |sql: &str| client.execute(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    assert_eq!(count(&format!("UPDATE notes SET body = 'y' WHERE tenant IN ({all})")).await, 20);
    let some = format!("UPDATE notes AS n SET body = 'z' WHERE n.tenant IN ({all}) AND n.tenant < $1");
    assert_eq!(client.execute(&some, &[&5_i64]).await.unwrap(), 5);
    // In a transaction that goes on, and is then undone.
    run("BEGIN").await;
    assert_eq!(count(&format!("DELETE FROM notes WHERE tenant IN ({all}) OR tenant IN (1, 2)")).await, 20);
    run("ROLLBACK").await;
    assert_eq!(count(&format!("DELETE FROM notes WHERE tenant IN ({})", listed(10))).await, 10);
    let bodies = "SELECT body, count(*) FROM notes GROUP BY body ORDER BY body";
    assert_eq!(run(bodies).await, [["y", "5"], ["z", "5"]]);
    // What cannot be told apart is refused.
    let joined =
        format!("DELETE FROM notes n USING notes m WHERE n.tenant = m.tenant AND n.tenant IN ({all})");
    assert_eq!(refusal(&client, &joined).await.0, "40001");
    cluster.clean_up(moves).await;
    assert_eq!(on("s1") + on("s2"), 10);
    assert_eq!(count(&format!("DELETE FROM notes WHERE tenant IN ({all})")).await, 10);
    drop(client);
    cluster.close().await;
}

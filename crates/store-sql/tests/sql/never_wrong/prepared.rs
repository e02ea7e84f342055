//! What a driver was told of a prepared statement stays so, or it is refused.

use super::both;
use crate::support::{Cluster, rows};

/// A client reads rows by the columns that it was told: 4 bytes of an integer are no float.
async fn columns_stay_as_told(cluster: &Cluster) {
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    let run = async |sql: &str| rows(&other, sql).await;
    run("CREATE TABLE facts (tenant bigint, id bigint, PRIMARY KEY (tenant, id))").await;
    run("SELECT polyshard.shard_table('facts', 'tenants', 'tenant')").await;
    run("CREATE TABLE kinds (id bigint PRIMARY KEY, note text)").await;
    run("SELECT polyshard.reference_table('kinds')").await;
    for tenant in 0..4 {
        run(&format!("INSERT INTO facts VALUES ({tenant}, 1)")).await;
    }
    run("INSERT INTO kinds VALUES (1, 'a')").await;
    let by_key = client.prepare("SELECT * FROM facts WHERE tenant = $1").await.unwrap();
    let all = client.prepare("SELECT * FROM facts WHERE id = $1").await.unwrap();
    let kind = client.prepare("SELECT * FROM kinds WHERE id = $1").await.unwrap();
    let noted = client.prepare("SELECT note FROM kinds WHERE id = $1").await.unwrap();
    for _ in 0..3 {
        assert_eq!(client.query(&by_key, &[&1_i64]).await.unwrap().len(), 1);
        assert_eq!(client.query(&all, &[&1_i64]).await.unwrap().len(), 4);
        assert_eq!(client.query(&kind, &[&1_i64]).await.unwrap().len(), 1);
    }
    run("ALTER TABLE facts ADD COLUMN x text").await;
    run("ALTER TABLE kinds DROP COLUMN note").await;
    run("ALTER TABLE kinds ADD COLUMN note int DEFAULT 7").await;
    for statement in [&by_key, &all, &kind, &noted] {
        for _ in 0..2 {
            let error = client.query(statement, &[&1_i64]).await.unwrap_err();
            let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
            let said = (error.code().code(), error.message());
            assert_eq!(said, ("0A000", "cached plan must not change result type"));
        }
    }
    // Others, and what is prepared anew, see what is there.
    let again = client.prepare("SELECT * FROM facts WHERE tenant = $1").await.unwrap();
    assert_eq!(client.query_one(&again, &[&1_i64]).await.unwrap().len(), 3);
    assert_eq!(client.query_one(&again, &[&1_i64]).await.unwrap().get::<_, Option<String>>(2), None);
    let again = other.prepare("SELECT note FROM kinds WHERE id = $1").await.unwrap();
    assert_eq!(other.query_one(&again, &[&1_i64]).await.unwrap().get::<_, i32>(0), 7);
    drop((client, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_answers_what_it_was_told_to() {
    for cluster in both().await {
        columns_stay_as_told(&cluster).await;
        cluster.close().await;
    }
    let cluster = Cluster::with_tables().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    // Values are sent as the types that the client was told, whatever the columns are now.
    rows(&other, "CREATE TABLE sizes (id int PRIMARY KEY, n int)").await;
    rows(&other, "SELECT polyshard.local_table('sizes', 's1')").await;
    rows(&other, "INSERT INTO sizes VALUES (1, 5)").await;
    let find = client.prepare("SELECT id FROM sizes WHERE n = $1").await.unwrap();
    let number = client.prepare("SELECT n FROM sizes WHERE id = $1").await.unwrap();
    assert_eq!(client.query(&find, &[&5_i32]).await.unwrap().len(), 1);
    assert_eq!(client.query_one(&number, &[&1_i32]).await.unwrap().get::<_, i32>(0), 5);
    rows(&other, "ALTER TABLE sizes ALTER COLUMN n TYPE real").await;
    assert_eq!(client.query(&find, &[&5_i32]).await.unwrap().len(), 1);
    assert_eq!(client.query(&number, &[&1_i32]).await.unwrap_err().code().unwrap().code(), "0A000");
    // A table that the transaction itself has made is known to what it prepares.
    rows(&client, "BEGIN; CREATE TABLE fresh (id bigserial PRIMARY KEY, n int)").await;
    client.execute("INSERT INTO fresh (n) VALUES ($1)", &[&1_i32]).await.unwrap();
    client.execute("INSERT INTO fresh (n) VALUES ($1)", &[&2_i32]).await.unwrap();
    assert_eq!(client.query("SELECT n FROM fresh WHERE n > $1", &[&0_i32]).await.unwrap().len(), 2);
    rows(&client, "COMMIT").await;
    drop((client, other));
    cluster.close().await;
}

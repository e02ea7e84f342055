//! One tenant comes back beside the running rest: whole or not at all, from any backup that has it, on both engines.

use std::sync::Arc;

use polyshard_backup::{BackupError, Present, What, verify};
use polyshard_engine::Statement;

use crate::cluster::{Cluster, Place, location, map};

fn words(orders: &[(i64, String)]) -> Vec<&str> {
    orders.iter().map(|(_, what)| what.as_str()).collect()
}

async fn tenant_comes_back(place: Arc<Place>) {
    let cluster = Cluster::new(&place).await;
    cluster.with_orders().await;
    // More than a page.
    for id in 0..1_200 {
        cluster.order(2, id, "chair").await;
    }
    cluster.order(1, 1, "lamp").await;
    cluster.order(3, 1, "table").await;
    let at = place.folder.path().join("backups");
    cluster.back_up(&at.join("all")).await.unwrap();
    let shard = What::Shards(vec![polyshard_map::ShardId::new("s2").unwrap()]);
    cluster.take(&cluster.request(&at.join("s2"), shard)).await.unwrap();
    let tenant = What::Shardlet { map: map(), key: "2".to_owned() };
    let alone = cluster.take(&cluster.request(&at.join("two"), tenant)).await.unwrap();
    assert_eq!(alone.what(), "tenants 2");
    verify(&location(&at.join("two"))).await.unwrap();

    for name in ["all", "s2", "two"] {
        cluster.write(2, Statement::new("UPDATE orders SET what = 'broken' WHERE id < 600")).await;
        cluster.write(2, Statement::new("DELETE FROM orders WHERE id >= 600")).await;
        cluster.order(2, 9_999, "later").await;
        cluster.write(1, Statement::new("UPDATE orders SET what = 'new lamp'")).await;
        let refused = cluster.restore_tenant(&at.join(name), 2, Present::Keep).await.unwrap_err();
        assert!(matches!(&refused, BackupError::Refused(why) if why.contains("--replace")), "{refused}");
        assert_eq!(cluster.orders(2).await.len(), 601, "nothing was touched");
        let rows = cluster.restore_tenant(&at.join(name), 2, Present::Replace).await.unwrap();
        assert_eq!(rows, 1_200);
        let orders = cluster.orders(2).await;
        assert!(orders.len() == 1_200 && words(&orders).iter().all(|what| *what == "chair"), "{name}");
        assert_eq!(words(&cluster.orders(1).await), ["new lamp"], "others are as they are now");
    }
    cluster.write(2, Statement::new("DELETE FROM orders")).await;
    assert_eq!(cluster.restore_tenant(&at.join("two"), 2, Present::Keep).await.unwrap(), 1_200);

    let other = cluster.restore_tenant(&at.join("two"), 3, Present::Replace).await.unwrap_err();
    assert!(matches!(&other, BackupError::Refused(why) if why.contains("not of tenants 3")), "{other}");
    let other = cluster.restore_tenant(&at.join("s2"), 3, Present::Replace).await.unwrap_err();
    assert!(matches!(&other, BackupError::Refused(why) if why.contains("was on shard s3")), "{other}");
    let left = std::fs::read_dir(place.folder.path().join("scratch")).unwrap().count();
    assert_eq!(left, 0, "files that were needed meanwhile are gone");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_comes_back_on_embedded_shards() {
    tenant_comes_back(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_comes_back_on_postgresql() {
    let place = Place::postgres();
    tenant_comes_back(place.clone()).await;
    let server = place.server.as_ref().unwrap();
    let left = server
        .execute("postgres", "SELECT count(*) FROM pg_database WHERE datname LIKE 'polyshard_restore%'");
    assert_eq!(left, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_leave_everything_as_it_is() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.with_orders().await;
    for id in 0..100 {
        cluster.order(2, id, "chair").await;
    }
    let backup = place.folder.path().join("backup");
    cluster.back_up(&backup).await.unwrap();
    cluster.write(2, Statement::new("DELETE FROM orders WHERE id >= 50")).await;
    // A rule that the last of the old rows breaks: the transaction has done almost everything by then.
    cluster
        .write(2, Statement::new("CREATE UNIQUE INDEX cheap ON orders (CASE WHEN id IN (98, 99) THEN 1 END)"))
        .await;
    let before = cluster.orders(2).await;
    let refused = cluster.restore_tenant(&backup, 2, Present::Replace).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(cluster.orders(2).await, before);
    cluster.write(2, Statement::new("DROP INDEX cheap")).await;
    // A column that is gone, and one that has come.
    cluster.write(2, Statement::new("ALTER TABLE orders ADD COLUMN colour TEXT")).await;
    assert_eq!(cluster.restore_tenant(&backup, 2, Present::Replace).await.unwrap(), 100);
    cluster.write(2, Statement::new("ALTER TABLE orders DROP COLUMN what")).await;
    let refused = cluster.restore_tenant(&backup, 2, Present::Replace).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("what")), "{refused}");
    cluster.close().await;
}

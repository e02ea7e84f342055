//! Reference tables that differ are put right, and no row of a tenant goes along (C4).

use std::sync::Arc;

use polyshard_schema::Declaration;

use crate::cluster::{Cluster, sharded, table};
use crate::place::Place;

on_both_engines!(rows_that_tenants_refer_to_stay);

async fn rows_that_tenants_refer_to_stay(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let tables = [
        "CREATE TABLE country (code text PRIMARY KEY, number int UNIQUE, name text)",
        "CREATE TABLE visits (tenant bigint, id bigint, \
         country int REFERENCES country (number) ON DELETE CASCADE ON UPDATE CASCADE, \
         PRIMARY KEY (tenant, id))",
    ];
    cluster.apply(&tables).await.unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("country") }).await.unwrap();
    cluster.journal.declare(sharded("visits", "tenants", "tenant")).await.unwrap();
    // Past the journal: one that a row of a tenant refers to, and one that none does.
    cluster.on("s2", "INSERT INTO country (code, number) VALUES ('it''s', 1), ('yy', 2)").await;
    cluster.on("s2", "INSERT INTO visits VALUES (7, 1, 1)").await;
    for dry_run in [true, false] {
        let mended = cluster.journal.mend(None, dry_run, true).await.unwrap();
        let [one] = mended.as_slice() else { panic!("{mended:?}") };
        assert!(one.refused.as_ref().is_some_and(|why| why.contains("visits refer to it")), "{one:?}");
        assert_eq!(cluster.number("s2", "SELECT count(*) FROM visits").await, 1);
        assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 2);
    }
    cluster.on("s2", "DELETE FROM visits").await;
    // Somebody may have been told that they are there: they go only when a human says so, and are kept.
    let mended = cluster.journal.mend(None, false, false).await.unwrap();
    assert!(mended[0].refused.as_ref().is_some_and(|why| why.contains("--confirm")), "{mended:?}");
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 2);
    let mended = cluster.journal.mend(None, false, true).await.unwrap();
    assert!(mended.len() == 1 && mended[0].refused.is_none() && mended[0].deleted == 2, "{mended:?}");
    let kept = if place.is_postgres() { "polyshard.mended_row" } else { "polyshard_mended_row" };
    let kept = cluster.on("s2", &format!("SELECT statement FROM {kept} WHERE tab = 'country'")).await;
    assert_eq!(kept.len(), 2);
    let polyshard_engine::Value::Text(back) = &kept[0][0] else { panic!("{kept:?}") };
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 0);
    cluster.on("s2", back).await;
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 1);
    cluster.on("s2", "DELETE FROM country").await;
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 0);
    // What they refer to by another name stays so, and what they do not look at is put right.
    cluster.apply(&["INSERT INTO country VALUES ('no', 5, 'Norway')"]).await.unwrap();
    cluster.on("s2", "UPDATE country SET number = 6").await;
    cluster.on("s2", "INSERT INTO visits VALUES (8, 1, 6)").await;
    let mended = cluster.journal.mend(None, false, true).await.unwrap();
    assert!(mended[0].refused.as_ref().is_some_and(|why| why.contains("visits refer to it")), "{mended:?}");
    cluster.on("s2", "DELETE FROM visits").await;
    cluster.on("s2", "UPDATE country SET number = 5, name = 'Norge'").await;
    cluster.on("s2", "INSERT INTO visits VALUES (8, 1, 5)").await;
    let mended = cluster.journal.mend(None, false, true).await.unwrap();
    assert!(mended[0].refused.is_none() && mended[0].updated == 1, "{mended:?}");
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM visits").await, 1);
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country WHERE name = 'Norway'").await, 1);
    cluster.close().await;
}

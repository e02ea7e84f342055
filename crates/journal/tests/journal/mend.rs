//! Reference tables that differ are put right, and no row of a tenant goes along (C4).

use std::sync::Arc;

use polyshard_journal::Declaration;

use crate::cluster::{Cluster, sharded, table};
use crate::place::Place;

on_both_engines!(rows_that_tenants_refer_to_stay);

async fn rows_that_tenants_refer_to_stay(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let tables = [
        "CREATE TABLE country (code text PRIMARY KEY, number int UNIQUE)",
        "CREATE TABLE visits (tenant bigint, id bigint, country int REFERENCES country (number) ON DELETE CASCADE, \
         PRIMARY KEY (tenant, id))",
    ];
    cluster.apply(&tables).await.unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("country") }).await.unwrap();
    cluster.journal.declare(sharded("visits", "tenants", "tenant")).await.unwrap();
    // Past the journal: one that a row of a tenant refers to, and one that none does.
    cluster.on("s2", "INSERT INTO country VALUES ('it''s', 1), ('yy', 2)").await;
    cluster.on("s2", "INSERT INTO visits VALUES (7, 1, 1)").await;
    for dry_run in [true, false] {
        let mended = cluster.journal.mend(None, dry_run).await.unwrap();
        let [one] = mended.as_slice() else { panic!("{mended:?}") };
        assert!(one.refused.as_ref().is_some_and(|why| why.contains("visits refer to it")), "{one:?}");
        assert_eq!(cluster.number("s2", "SELECT count(*) FROM visits").await, 1);
        assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 2);
    }
    cluster.on("s2", "DELETE FROM visits").await;
    let mended = cluster.journal.mend(None, false).await.unwrap();
    assert!(mended.len() == 1 && mended[0].refused.is_none() && mended[0].deleted == 2, "{mended:?}");
    assert_eq!(cluster.number("s2", "SELECT count(*) FROM country").await, 0);
    cluster.close().await;
}

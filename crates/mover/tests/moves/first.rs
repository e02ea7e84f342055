//! What a move does when nothing goes wrong (D1, D2).

use std::sync::Arc;

use crate::cluster::{Cluster, Setup, buckets, keys, shard};
use crate::place::Place;
use crate::world::World;

on_every_engine!(
    a_range_moves_with_all_its_rows_and_leaves_nothing_behind,
    writers_go_on_while_a_range_moves_and_see_no_error,
    tables_that_refer_to_each_other_move_together_while_they_are_written,
);

async fn a_range_moves_with_all_its_rows_and_leaves_nothing_behind(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 40, 5).await;
    cluster.moves("tenants", buckets(0, 4), "s2").await.unwrap();
    assert_eq!(cluster.owners("tenants").await[&buckets(0, 4)], shard("s2"));
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    // The way back, of a part.
    cluster.moves("tenants", buckets(1, 3), "s1").await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

async fn writers_go_on_while_a_range_moves_and_see_no_error(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 5).await;
    let writers = world.start(std::slice::from_ref(&cluster), 4, &["thing", "other"]);
    for (range, to) in [(buckets(0, 4), "s2"), (buckets(0, 2), "s3"), (buckets(6, 8), "s1")] {
        world.until_written(50).await;
        cluster.moves("tenants", range, to).await.unwrap();
    }
    world.until_written(50).await;
    writers.stop().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn tables_that_refer_to_each_other_move_together_while_they_are_written(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let world = Arc::new(World::default());
    let writers = world.start(std::slice::from_ref(&cluster), 4, &["entry"]);
    for (range, to) in [(keys(0, 50), "s2"), (keys(20, 40), "s3"), (keys(100, 200), "s1")] {
        world.until_written(60).await;
        cluster.moves("customers", range, to).await.unwrap();
    }
    world.until_written(50).await;
    writers.stop().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

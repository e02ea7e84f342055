//! Shards come, go and change their address, and a lost catalog is rebuilt from them (B4, D1).

use std::sync::Arc;

use polyshard_catalog::{CatalogError, ShardPatch};
use polyshard_map::{Change, KeyType, MapDefinition, NewEntry, Scheme};
use polyshard_router::{Access, RouterError};
use polyshard_shard::ShardError;

use crate::cluster::{Cluster, Picture, Setup, assign, key, keys, map, shard};
use crate::place::Place;

on_both_engines!(
    a_shard_with_ranges_is_removed_only_with_an_explicit_word,
    a_detached_shard_comes_back_with_its_ranges_when_attached,
    a_shard_attached_late_gives_way_to_what_is_newer,
    a_shard_whose_map_has_become_another_is_not_attached,
    a_database_with_ranges_of_an_earlier_life_is_attached_and_not_added,
    a_shard_follows_its_new_address_and_no_other_database_is_taken_for_it,
    a_database_of_another_shard_or_cluster_is_refused,
    a_lost_catalog_is_rebuilt_from_its_shards,
);

/// A10: all shardlets of one map have one shape. What does not fit is refused before anything is touched.
async fn a_shard_whose_map_has_become_another_is_not_attached(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.driver.drop_map(&map("tenants"), None, false).await.unwrap();
    let other = MapDefinition::new(map("tenants"), KeyType::Text, Scheme::Range).unwrap();
    cluster.driver.create_map(&other, vec![]).await.unwrap();
    let refused = cluster.attach_shard("s1").await.unwrap_err();
    assert!(refused.to_string().contains("hash of bigint, but the catalog's is range of text"), "{refused}");
    cluster.router.refresh().await.unwrap();
    cluster.assert_healthy().await;
    cluster.driver.drop_map(&map("tenants"), None, false).await.unwrap();
    cluster.attach_shard("s1").await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// Every key has at most one owner: ranges that come back are compared with the map first.
async fn a_database_with_ranges_of_an_earlier_life_is_attached_and_not_added(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let refused = cluster.add_shard("s1").await.unwrap_err();
    assert!(refused.to_string().contains("polyshard shard attach"), "{refused}");
    cluster.attach_shard("s1").await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// D1: removing is destructive and so needs an empty shard or an explicit word.
async fn a_shard_with_ranges_is_removed_only_with_an_explicit_word(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let refused = cluster.driver.remove_shard(&shard("s3"), false).await.unwrap_err();
    assert!(matches!(refused, CatalogError::HoldsData { .. }), "{refused}");
    assert!(refused.to_string().contains("--destroy s3"), "{refused}");
    cluster.driver.remove_shard(&shard("s3"), true).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.assert_healthy().await;
    let gone = cluster.router.enter(&map("orders"), &[key(250)], Access::Read).await.err().unwrap();
    assert!(matches!(gone, RouterError::Locate(_)), "{gone}");
    let missing = cluster.driver.remove_shard(&shard("s3"), false).await.unwrap_err();
    assert!(matches!(missing, CatalogError::NoSuchShard(_)), "{missing}");
    // Its database can be used again, under any name; an empty shard goes without a word.
    cluster.add_shard("s3").await.unwrap();
    cluster.driver.remove_shard(&shard("s3"), false).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn a_detached_shard_comes_back_with_its_ranges_when_attached(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    cluster.write("orders", 150, 1).await.unwrap();
    let before = cluster.picture().await;
    let old = cluster.catalog.shard(&shard("s2")).await.unwrap().incarnation;
    cluster.driver.detach_shard(&shard("s2")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let gone = cluster.read("orders", 150).await.unwrap_err();
    assert!(matches!(gone, RouterError::Locate(_)), "{gone}");
    cluster.assert_healthy().await;

    let record = cluster.attach_shard("s2").await.unwrap();
    assert_ne!(record.incarnation, old, "a router that knew the old one must look again");
    assert_eq!(cluster.picture().await, before);
    assert_eq!(cluster.read("orders", 150).await.unwrap(), (shard("s2"), vec![1]));
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// PROTOCOL §1: for each range the highest epoch wins.
async fn a_shard_attached_late_gives_way_to_what_is_newer(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.driver.detach_shard(&shard("s2")).await.unwrap();
    let new = NewEntry::new(keys(120, 150), shard("s1"));
    cluster.change("orders", Change::Add { entries: vec![new] }).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.attach_shard("s2").await.unwrap();
    for (number, on) in [(110, "s2"), (120, "s1"), (149, "s1"), (150, "s2")] {
        let ticket = cluster.router.enter(&map("orders"), &[key(number)], Access::Read).await.unwrap();
        assert_eq!(ticket.shard(), &shard(on), "key {number}");
    }
    cluster.assert_healthy().await;
    cluster.change("orders", assign(keys(100, 200), "s3")).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn a_shard_follows_its_new_address_and_no_other_database_is_taken_for_it(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    cluster.write("orders", 150, 1).await.unwrap();
    let before = cluster.picture().await;
    cluster.close().await;
    place.copy_one("s2", "moved");
    place.copy_one("s3", "other");

    let cluster = Cluster::open(&place, Setup::default()).await;
    let patch = |url: &str| ShardPatch { url: Some(url.into()), ..ShardPatch::default() };
    let wrong = cluster.router.open_candidate(&Cluster::candidate("s2", "other")).await.unwrap();
    let refused = cluster.driver.patch_shard(&shard("s2"), patch("other"), Some(&wrong)).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Invalid(_)), "{refused}");
    wrong.close().await;
    let moved = cluster.router.open_candidate(&Cluster::candidate("s2", "moved")).await.unwrap();
    let record = cluster.driver.patch_shard(&shard("s2"), patch("moved"), Some(&moved)).await.unwrap();
    cluster.router.adopt(record, moved).await;
    cluster.router.refresh().await.unwrap();
    assert_eq!(cluster.write("orders", 150, 2).await.unwrap(), shard("s2"));
    assert_eq!(cluster.read("orders", 150).await.unwrap().1, [1, 2]);
    assert_eq!(cluster.picture().await, before);
    cluster.assert_healthy().await;

    let seen = ShardPatch { if_version: Some(1), tier: Some(Some("hot".into())), ..ShardPatch::default() };
    let refused = cluster.driver.patch_shard(&shard("s2"), seen, None).await.unwrap_err();
    assert!(matches!(refused, CatalogError::ChangedMeanwhile { current: 2, .. }), "{refused}");
    cluster.close().await;
}

async fn a_database_of_another_shard_or_cluster_is_refused(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.close().await;
    place.copy_one("s2", "copy");
    let cluster = Cluster::open(&place, Setup::default()).await;
    let opened = cluster.router.open_candidate(&Cluster::candidate("s4", "copy")).await.unwrap();
    let refused = cluster.driver.add_shard(Cluster::new_shard("s4"), &opened).await.unwrap_err();
    let wrong = |error: &CatalogError| {
        matches!(error, CatalogError::Shard { error: ShardError::WrongDatabase { .. }, .. })
    };
    assert!(wrong(&refused), "{refused}");
    opened.close().await;
    let refused = cluster.attach_shard("empty").await.unwrap_err();
    let no_shard = matches!(&refused, CatalogError::Shard { error: ShardError::NotAShard, .. });
    assert!(no_shard, "{refused}");
    let known = cluster.router.administer(&shard("s1")).await.unwrap();
    let refused = cluster.driver.add_shard(Cluster::new_shard("s1"), &known).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Exists(_)), "{refused}");
    cluster.assert_healthy().await;
    cluster.close().await;

    // Another cluster, whose catalog names the same database.
    place.move_to("catalog", place.target("catalog_of_others"));
    let others = Cluster::open(&place, Setup::default()).await;
    let refused = others.add_shard("s1").await.unwrap_err();
    assert!(wrong(&refused), "{refused}");
    others.close().await;
}

/// B4: the map is rebuilt from the shards' local metadata after a disaster.
async fn a_lost_catalog_is_rebuilt_from_its_shards(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    cluster.change("orders", assign(keys(50, 150), "s3")).await.unwrap();
    let state = polyshard_map::State::ReadOnly;
    cluster.change("orders", Change::SetState { range: keys(0, 10), state }).await.unwrap();
    cluster.write("orders", 60, 1).await.unwrap();
    let before = cluster.picture().await;
    let epochs = highest_epoch(&cluster).await;
    cluster.close().await;

    place.move_to("catalog", place.target("new_catalog"));
    let cluster = Cluster::open(&place, Setup { router: 2, ..Setup::default() }).await;
    assert_eq!(cluster.picture().await, Picture { shards: vec![], maps: Default::default() });
    for name in ["s1", "s2", "s3"] {
        cluster.attach_shard(name).await.unwrap();
    }
    assert_eq!(cluster.picture().await, before);
    cluster.assert_healthy().await;
    assert_eq!(cluster.read("orders", 60).await.unwrap(), (shard("s3"), vec![1]));
    let op = cluster.change("orders", assign(keys(10, 20), "s2")).await.unwrap();
    assert!(op.op.epoch > epochs, "it starts again above the highest epoch that any shard has seen");
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn highest_epoch(cluster: &Cluster) -> polyshard_map::Epoch {
    let mut highest = polyshard_map::Epoch::ZERO;
    for name in ["tenants", "orders"] {
        let entries = cluster.catalog.entries(&map(name)).await.unwrap();
        highest = entries.into_iter().map(|entry| entry.epoch).fold(highest, polyshard_map::Epoch::max);
    }
    highest
}

/// B: an embedded shard's file is proven to be that shard whenever it is opened: another one's, an empty one and none
/// at all are refused and named, and nothing is made in their place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_in_a_shards_place_is_not_served() {
    let place = Place::files();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let path = |name: &str| match place.target(name) {
        polyshard_engine::Target::Sqlite(file) => file.path,
        polyshard_engine::Target::Postgres(_) => unreachable!("files were asked for"),
    };
    let (mine, other) = (path("s1"), path("s2"));
    cluster.close().await;
    let kept = std::fs::read(&mine).unwrap();
    let refused = async |words: &str| {
        let cluster = Cluster::open(&place, Setup::default()).await;
        let entered = cluster.router.enter_unmapped(&shard("s1"), Access::Write).await.map(drop);
        let error = entered.unwrap_err().to_string();
        assert!(error.contains("s1") && error.contains(words), "{error}");
        let error = cluster.router.administer(&shard("s1")).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("s1") && error.contains(words), "{error}");
        cluster.router.enter_unmapped(&shard("s2"), Access::Write).await.unwrap();
        cluster.close().await;
    };
    std::fs::copy(&other, &mine).unwrap();
    refused("s2").await;
    std::fs::write(&mine, "").unwrap();
    refused("is lost").await;
    std::fs::remove_file(&mine).unwrap();
    refused("is lost").await;
    assert!(!mine.exists(), "it was made anew");
    std::fs::write(&mine, kept).unwrap();
    let cluster = Cluster::open(&place, Setup::default()).await;
    cluster.router.enter_unmapped(&shard("s1"), Access::Write).await.unwrap();
    cluster.close().await;
}

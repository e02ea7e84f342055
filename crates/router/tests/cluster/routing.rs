//! Requests reach the shard that has their key, and are told clearly when there is none (A2, B2, B6, C1).

use std::sync::Arc;

use polyshard_map::{Change, LocateError, State};
use polyshard_router::{Access, RouterError};

use crate::cluster::{Cluster, Setup, assign, entries, key, keys, map, orders, shard};
use crate::place::Place;

on_both_engines!(
    requests_read_and_write_where_their_key_is,
    a_key_that_is_not_mapped_is_an_error_that_says_so,
    keys_of_several_shards_are_refused_together,
    states_of_ranges_and_shards_are_respected,
    a_map_created_or_dropped_is_seen_by_the_next_request,
);

/// C1: a request that carries the key goes to exactly one shard.
async fn requests_read_and_write_where_their_key_is(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    for (number, on) in [(5, "s1"), (150, "s2"), (299, "s3")] {
        assert_eq!(cluster.write("orders", number, number * 10).await.unwrap(), shard(on));
        assert_eq!(cluster.read("orders", number).await.unwrap(), (shard(on), vec![number * 10]));
        assert_eq!(cluster.rows_on(on, &keys(number, number + 1)).await, 1);
    }
    let ticket = cluster.router.enter(&map("orders"), &[key(5)], Access::Read).await.unwrap();
    let write = polyshard_engine::Statement::new("DELETE FROM item");
    let refused = ticket.write(write.into()).await.unwrap_err();
    assert!(refused.to_string().contains("Access::Write"), "{refused}");
    drop(ticket);
    assert_eq!(cluster.router.status().tickets, 0);
    cluster.close().await;
}

/// A2: gaps are allowed, and a key in a gap is an error that says so.
async fn a_key_that_is_not_mapped_is_an_error_that_says_so(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let missed = cluster.router.enter(&map("orders"), &[key(1000)], Access::Read).await.err().unwrap();
    assert!(matches!(missed, RouterError::Locate(LocateError::Gap { .. })), "{missed}");
    assert!(missed.to_string().contains("gap") && missed.to_string().contains("1000"), "{missed}");
    let missed = cluster.router.enter(&map("nowhere"), &[key(1)], Access::Read).await.err().unwrap();
    assert!(matches!(missed, RouterError::NoSuchMap(_)), "{missed}");
    let text = polyshard_map::Key::Text("five".into());
    let wrong = cluster.router.enter(&map("orders"), &[text], Access::Read).await.err().unwrap();
    assert!(matches!(wrong, RouterError::Locate(LocateError::WrongType { .. })), "{wrong}");
    cluster.close().await;
}

async fn keys_of_several_shards_are_refused_together(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let both = [key(5), key(150)];
    let refused = cluster.router.enter(&map("orders"), &both, Access::Read).await.err().unwrap();
    assert!(matches!(&refused, RouterError::CrossShard(on) if on.len() == 2), "{refused}");
    let first = cluster.router.enter(&map("orders"), &[key(5), key(6)], Access::Read).await.unwrap();
    assert_eq!(cluster.router.enter_within(&first, &[key(7)]).await.unwrap().shard(), &shard("s1"));
    let refused = cluster.router.enter_within(&first, &[key(150)]).await.err().unwrap();
    assert!(matches!(refused, RouterError::CrossShard(_)), "{refused}");
    drop(first);
    cluster.close().await;
}

/// B6: shardlets and shards have states.
async fn states_of_ranges_and_shards_are_respected(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    let set = |state| Change::SetState { range: keys(0, 50), state };
    cluster.change("orders", set(State::ReadOnly)).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.read("orders", 5).await.unwrap();
    assert!(matches!(cluster.write("orders", 5, 1).await, Err(RouterError::ReadOnly(_))));
    cluster.write("orders", 60, 1).await.unwrap();
    cluster.change("orders", set(State::Offline)).await.unwrap();
    cluster.router.refresh().await.unwrap();
    assert!(matches!(cluster.read("orders", 5).await, Err(RouterError::Offline(_))));
    cluster.change("orders", set(State::Online)).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.write("orders", 5, 1).await.unwrap();

    let patch = |state| polyshard_catalog::ShardPatch { state: Some(state), ..Default::default() };
    cluster.driver.patch_shard(&shard("s2"), patch(State::Offline), None).await.unwrap();
    cluster.router.refresh().await.unwrap();
    assert!(matches!(cluster.read("orders", 150).await, Err(RouterError::Offline(_))));
    cluster.driver.patch_shard(&shard("s2"), patch(State::Online), None).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.read("orders", 150).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// B2: what the cache lacks is looked for before a request is refused.
async fn a_map_created_or_dropped_is_seen_by_the_next_request(place: Arc<Place>) {
    let hourly = std::time::Duration::from_secs(3600);
    let cluster = Cluster::with_maps(&place, Setup { poll: hourly, ..Setup::default() }).await;
    cluster.driver.drop_map(orders().name(), None, false).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let gone = cluster.router.enter(&map("orders"), &[key(5)], Access::Read).await.err().unwrap();
    assert!(matches!(gone, RouterError::NoSuchMap(_)), "{gone}");
    cluster.driver.create_map(&orders(), entries(&[(keys(0, 10), "s3")])).await.unwrap();
    let ticket = cluster.router.enter(&map("orders"), &[key(5)], Access::Read).await.unwrap();
    assert_eq!(ticket.shard(), &shard("s3"));
    drop(ticket);
    let new = polyshard_map::NewEntry::new(keys(10, 20), shard("s1"));
    cluster.change("orders", Change::Add { entries: vec![new] }).await.unwrap();
    let ticket = cluster.router.enter(&map("orders"), &[key(15)], Access::Read).await.unwrap();
    assert_eq!(ticket.shard(), &shard("s1"));
    drop(ticket);
    cluster.change("orders", assign(keys(10, 20), "s2")).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

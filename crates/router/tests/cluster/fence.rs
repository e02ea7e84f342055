//! Hold, drain, acknowledge, cut off: a range is taken from a shard under the eyes of its users (PROTOCOL §2).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{CatalogError, FenceLimits};
use polyshard_engine::{Error, Statement};
use polyshard_map::{Change, ShardId, State};
use polyshard_router::{Access, RouterError};
use polyshard_shard::{
    Dataset, FenceEpoch, HelloReply, HelloState, Learnt, Placement, RouterId, Shard, ShardError, ShardOptions,
};
use uuid::Uuid;

use crate::cluster::{Cluster, PATIENCE, Resolving, Setup, assign, engine_options, key, keys, map, shard};
use crate::place::Place;

on_both_engines!(
    a_long_request_delays_a_switch_and_those_who_wait_go_to_the_new_shard,
    a_transaction_that_needs_a_moving_range_is_told_at_once,
    readers_go_on_while_a_range_becomes_read_only,
    a_range_that_holds_data_is_not_assigned,
    data_that_comes_while_a_switch_has_no_driver_stays_where_it_is,
);

/// Patient enough that a held request waits for the end of the switch, not for the end of an attempt.
fn patient() -> Setup {
    let limits = FenceLimits { silent: Duration::from_secs(20), hold: Duration::from_secs(40) };
    Setup { limits, wait_max: PATIENCE, ..Setup::default() }
}

async fn until_held(cluster: &Cluster) {
    let held = async {
        while cluster.router.status().holds == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.expect("the router holds the range");
}

async fn a_long_request_delays_a_switch_and_those_who_wait_go_to_the_new_shard(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, patient()).await);
    cluster.items().await;
    let long = cluster.router.enter(&map("orders"), &[key(5)], Access::Write).await.unwrap();
    let switch = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.change("orders", assign(keys(0, 10), "s2")).await }
    });
    until_held(&cluster).await;
    let waiting: Vec<_> = (0..10)
        .map(|number| {
            let cluster = cluster.clone();
            tokio::spawn(async move { cluster.write("orders", number, number).await })
        })
        .collect();
    // What is inside goes on, and so does the rest of the shard.
    long.write(Statement::new("INSERT INTO item VALUES ($1, 99)").bind(vec![0u8]).into()).await.unwrap();
    assert_eq!(cluster.write("orders", 50, 1).await.unwrap(), shard("s1"));
    assert!(!switch.is_finished());
    drop(long);
    switch.await.unwrap().unwrap();
    for request in waiting {
        assert_eq!(request.await.unwrap().unwrap(), shard("s2"));
    }
    assert_eq!(cluster.rows_on("s1", &keys(0, 10)).await, 0);
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}

/// Waiting while holding another session could deadlock, so it is 'try again' at once.
async fn a_transaction_that_needs_a_moving_range_is_told_at_once(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, patient()).await);
    let inside = cluster.router.enter(&map("orders"), &[key(5)], Access::Write).await.unwrap();
    let elsewhere = cluster.router.enter(&map("orders"), &[key(50)], Access::Write).await.unwrap();
    let switch = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.change("orders", assign(keys(0, 10), "s2")).await }
    });
    until_held(&cluster).await;
    let refused = cluster.router.enter_within(&elsewhere, &[key(6)]).await.err().unwrap();
    assert!(matches!(refused, RouterError::Moving(_)) && refused.is_retryable(), "{refused}");
    drop((inside, elsewhere));
    switch.await.unwrap().unwrap();
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn readers_go_on_while_a_range_becomes_read_only(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, patient()).await);
    cluster.items().await;
    let reader = cluster.router.enter(&map("orders"), &[key(5)], Access::Read).await.unwrap();
    // No writer is inside: the change does not wait for the reader.
    let change = Change::SetState { range: keys(0, 10), state: State::ReadOnly };
    cluster.change("orders", change).await.unwrap();
    reader.read(Statement::new("SELECT count(*) FROM item")).await.unwrap();
    drop(reader);
    cluster.router.refresh().await.unwrap();
    assert!(matches!(cluster.write("orders", 5, 1).await, Err(RouterError::ReadOnly(_))));
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}

/// Map verbs change the map only: `assign` refuses a range that holds data.
async fn a_range_that_holds_data_is_not_assigned(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    bind_items(&cluster).await;
    cluster.write("orders", 5, 1).await.unwrap();
    let refused = cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap_err();
    assert!(matches!(refused, CatalogError::RolledBack(_)), "{refused}");
    assert!(refused.to_string().contains("dataset items"), "{refused}");
    cluster.assert_healthy().await;
    cluster.write("orders", 5, 2).await.unwrap();
    cluster.change("orders", assign(keys(10, 20), "s2")).await.unwrap();
    cluster.change("orders", Change::Split { at: crate::cluster::bound(5) }).await.unwrap();
    cluster.on_all_shards(|_| "DELETE FROM item".into()).await;
    cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// Tells every shard that the items are placed by the map `orders`.
async fn bind_items(cluster: &Cluster) {
    for id in ["s1", "s2", "s3"] {
        let dataset = Dataset {
            name: "items".into(),
            map: map("orders"),
            table: "item".into(),
            placement: Placement::Column("placement".to_owned()),
            rows: polyshard_shard::TableRows::All,
        };
        cluster.router.administer(&shard(id)).await.unwrap().bind(&dataset).await.unwrap();
    }
}

/// The driver dies after it has seen that the range is empty and recorded that it may leave. Requests go on when the
/// fence is withdrawn, so the range may hold data when the next driver comes: then it does not leave.
async fn data_that_comes_while_a_switch_has_no_driver_stays_where_it_is(place: Arc<Place>) {
    let dies = Arc::new(|place: &str| place == "record_departing.after");
    let setup = Setup { failpoint: Some(dies), lease: Duration::from_secs(2), ..Setup::default() };
    let cluster = Cluster::with_maps(&place, setup).await;
    cluster.items().await;
    bind_items(&cluster).await;
    cluster.change("orders", assign(keys(0, 10), "s2")).await.expect_err("its driver stops");
    assert_eq!(cluster.write("orders", 5, 1).await.unwrap(), shard("s1"));
    cluster.settle().await;
    cluster.router.refresh().await.unwrap();
    assert_eq!(cluster.read("orders", 5).await.unwrap(), (shard("s1"), vec![1]));
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// A ticket that is never given back: the switch is given up, and nobody was kept for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_never_ends_has_the_switch_rolled_back_and_all_others_go_on() {
    let limits = FenceLimits { silent: Duration::from_secs(5), hold: Duration::from_millis(20) };
    let cluster = Cluster::with_maps(&Place::files(), Setup { limits, ..Setup::default() }).await;
    cluster.items().await;
    let before = cluster.picture().await;
    let endless = cluster.router.enter(&map("orders"), &[key(5)], Access::Write).await.unwrap();
    let writing = async {
        let mut written = 0;
        loop {
            assert_eq!(cluster.write("orders", 6, written).await.unwrap(), shard("s1"));
            written += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let refused = tokio::select! {
        () = writing => unreachable!("it never ends"),
        ended = cluster.change("orders", assign(keys(0, 10), "s2")) => ended.unwrap_err(),
    };
    assert!(
        matches!(refused, CatalogError::RolledBack(_) | CatalogError::Unfinished { .. }),
        "the caller is told: {refused}"
    );
    cluster.settle().await;
    assert_eq!(cluster.picture().await, before);
    cluster.assert_healthy().await;
    drop(endless);
    cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// A router that opens sessions and then never answers a fence.
#[derive(Default)]
struct Mute {
    learnt: Mutex<Vec<HelloReply>>,
}

impl HelloState for Mute {
    fn router(&self) -> RouterId {
        RouterId::new(77)
    }
    fn known(&self, _: &ShardId) -> FenceEpoch {
        FenceEpoch::ZERO
    }
    fn incarnation(&self, _: &ShardId) -> Option<Uuid> {
        None
    }
    fn hear(&self, _: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError> {
        self.learnt.lock().unwrap().push(reply);
        Ok(Learnt::Known)
    }
    fn learn(&self, _: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError> {
        self.learnt.lock().unwrap().push(reply);
        Ok(Learnt::Known)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_never_answers_is_cut_off_and_its_next_session_learns_why() {
    let place = Place::server();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.touch_all_shards().await;
    let options = ShardOptions { data: engine_options(), ..ShardOptions::default() };
    let opened = Shard::open(shard("s1"), place.target("s1"), options).await.unwrap();
    let mute = Arc::new(Mute::default());
    let hello: Arc<dyn HelloState> = mute.clone();
    let data = opened.data(&hello).await.unwrap().clone();
    let mut open = data.begin(polyshard_engine::Access::Write).await.unwrap();
    open.run(Statement::new("SELECT 1")).await.unwrap();
    assert!(opened.routers().await.unwrap().contains(&RouterId::new(77)));

    cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    assert!(open.run(Statement::new("SELECT 1")).await.is_err(), "its open transaction was ended");
    let departed = |reply: &HelloReply| reply.departures.iter().any(|left| left.range == keys(0, 10));
    mute.learnt.lock().unwrap().clear();
    data.read(Statement::new("SELECT 1")).await.unwrap();
    assert!(mute.learnt.lock().unwrap().iter().any(departed), "a new session is told what has left");
    cluster.assert_healthy().await;
    opened.close().await;
    cluster.close().await;
}

/// A process that sleeps through a switch, as under SIGSTOP: what it was about to write does not reach the old
/// shard, and its callers see nothing of it (B2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_slept_over_is_void_and_the_call_is_repeated_at_the_new_shard() {
    let place = Place::server();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    let (asleep, slept) = std::sync::mpsc::sync_channel::<()>(1);
    let (wake, woken) = std::sync::mpsc::sync_channel::<()>(1);
    let other = place.clone();
    // All of the second process runs on one thread, so that nothing of it moves while that thread sleeps.
    let sleeper = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let setup = Setup { router: 2, resolver: Resolving::No, ..Setup::default() };
            let cluster = Cluster::open(&other, setup).await;
            cluster.write("orders", 5, 1).await.unwrap();
            let ticket = cluster.router.enter(&map("orders"), &[key(5)], Access::Write).await.unwrap();
            asleep.send(()).unwrap();
            woken.recv().unwrap();
            let insert = Statement::new("INSERT INTO item VALUES ($1, 2)").bind(vec![0u8]);
            let void = ticket.write(insert.into()).await.unwrap_err();
            assert!(matches!(void, Error::Conflict { .. } | Error::Unavailable { .. }), "{void}");
            drop(ticket);
            assert_eq!(cluster.write("orders", 5, 3).await.unwrap(), shard("s2"));
            cluster.close().await;
        });
    });
    tokio::task::spawn_blocking(move || slept.recv().unwrap()).await.unwrap();
    cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    wake.send(()).unwrap();
    tokio::task::spawn_blocking(move || sleeper.join().unwrap()).await.unwrap();
    let all = polyshard_map::KeyRange::new(
        polyshard_map::KeyBytes::default(),
        Some(polyshard_map::KeyBytes::new(vec![0xff])),
    )
    .unwrap();
    assert_eq!(cluster.rows_on("s1", &all).await, 1);
    assert_eq!(cluster.rows_on("s2", &all).await, 1);
    cluster.assert_healthy().await;
    cluster.close().await;
}

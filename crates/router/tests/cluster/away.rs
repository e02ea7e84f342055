//! The catalog is away, or a router hears of nothing: requests go on, and none goes to the wrong shard (B2, B5).

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Target;
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::{Access, RouterError, View};

use crate::cluster::{Cluster, PATIENCE, Resolving, Setup, assign, bound, key, keys, map, shard};
use crate::place::{Place, SharedServer, start_server};

on_postgres!(
    two_processes_on_one_catalog_hear_of_changes_without_polling,
    a_process_whose_notifications_are_cut_off_still_learns_of_changes,
    a_router_that_cannot_reach_the_catalog_follows_a_switch_unseen_by_its_callers,
);

/// Longer than any test: nothing is learnt by polling, but that others may wait for it, twice a second.
const NEVER: Duration = Duration::from_secs(3600);

fn second(router: u32, poll: Duration) -> Setup {
    Setup { router, poll, resolver: Resolving::No, ..Setup::default() }
}

fn owner(view: &View, name: &str, number: i64) -> Option<ShardId> {
    let known = view.maps.get(&map(name))?;
    known.map.locate(&key(number)).ok().map(|found| found.shard().clone())
}

/// B2: caches are told of changes.
async fn two_processes_on_one_catalog_hear_of_changes_without_polling(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup { poll: NEVER, ..Setup::default() }).await;
    let two = Cluster::open(&place, second(2, NEVER)).await;
    one.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    two.until_seen(|view| owner(view, "orders", 5) == Some(shard("s2"))).await;
    two.change("orders", assign(keys(10, 20), "s3")).await.unwrap();
    one.until_seen(|view| owner(view, "orders", 15) == Some(shard("s3"))).await;
    one.assert_healthy().await;
    two.assert_healthy().await;
    two.close().await;
    one.close().await;
}

/// B2: and they also poll.
async fn a_process_whose_notifications_are_cut_off_still_learns_of_changes(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    let two = Cluster::open(&place, second(2, Duration::from_millis(100))).await;
    for (round, to) in ["s2", "s3", "s1"].into_iter().enumerate() {
        place.pg().execute(
            "postgres",
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query ILIKE 'listen%'",
        );
        one.change("orders", assign(keys(0, 10), to))
            .await
            .unwrap_or_else(|error| panic!("{round}: {error}"));
        two.until_seen(|view| owner(view, "orders", 5) == Some(shard(to))).await;
    }
    one.assert_healthy().await;
    two.close().await;
    one.close().await;
}

/// A process whose way to the catalog, and only that, can be closed: it logs in there under a name of its own.
struct Blockable {
    place: Arc<Place>,
    database: String,
}

impl Blockable {
    fn of(place: &Arc<Place>) -> Blockable {
        let database = place.database("catalog");
        let second = Place::on(place.shared_server());
        {
            let server = place.pg();
            server.execute("postgres", "CREATE ROLE follower SUPERUSER LOGIN");
            let url = |user: &str, database: &str| {
                format!("postgres://{user}@{}:{}/{database}", server.host(), server.port())
            };
            second.move_to("catalog", Target::parse(&url("follower", &database)).unwrap());
            for name in ["s1", "s2", "s3"] {
                second.move_to(name, Target::parse(&url("postgres", &place.database(name))).unwrap());
            }
        }
        Blockable { place: second, database }
    }

    fn close_the_way(&self) {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'follower'";
        let server = self.place.pg();
        server.execute(&self.database, "ALTER ROLE follower NOLOGIN");
        server.execute(&self.database, end);
    }

    fn open_the_way(&self) {
        self.place.pg().execute(&self.database, "ALTER ROLE follower LOGIN");
    }
}

/// B2: a stale cache is always caught, refreshed and retried; the application sees neither an error nor a wrong answer.
async fn a_router_that_cannot_reach_the_catalog_follows_a_switch_unseen_by_its_callers(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    one.items().await;
    let blockable = Blockable::of(&place);
    let two = Cluster::open(&blockable.place, second(2, NEVER)).await;
    // The second process uses s1, and has never been on s3.
    assert_eq!(two.write("orders", 5, 1).await.unwrap(), shard("s1"));
    blockable.close_the_way();
    one.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    one.change("orders", assign(keys(200, 210), "s2")).await.unwrap();
    assert_eq!(two.write("orders", 5, 2).await.unwrap(), shard("s2"));
    assert_eq!(two.write("orders", 205, 2).await.unwrap(), shard("s2"));
    assert_eq!(two.write("orders", 50, 2).await.unwrap(), shard("s1"));
    assert_eq!(one.rows_on("s1", &keys(0, 10)).await, 1);
    let missed = two.router.enter(&map("orders"), &[key(1000)], Access::Read).await.err().unwrap();
    assert!(matches!(missed, RouterError::CatalogAway(_)), "{missed}");
    blockable.open_the_way();
    let caught_up = async {
        while two.router.refresh().await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, caught_up).await.expect("the catalog is reached again");
    assert_eq!(two.view_picture(), one.picture().await);
    one.assert_healthy().await;
    two.close().await;
    one.close().await;
}

/// A place whose catalog has a server of its own.
fn apart() -> (Arc<Place>, SharedServer) {
    let (place, server) = (Place::server(), start_server());
    {
        let server = server.lock().unwrap();
        server.create_database("catalog");
        place.move_to("catalog", Target::parse(&server.url("catalog")).unwrap());
    }
    (place, server)
}

/// B5: data traffic continues on the cached map while the global map's database is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_catalog_is_down_known_keys_go_on_and_unknown_ones_are_asked_to_come_back() {
    let (place, server) = apart();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.items().await;
    server.lock().unwrap().kill9();
    for number in [5, 150, 250] {
        cluster.write("orders", number, 1).await.unwrap();
        assert_eq!(cluster.read("orders", number).await.unwrap().1, [1]);
    }
    let missed = cluster.router.enter(&map("orders"), &[key(1000)], Access::Read).await.err().unwrap();
    assert!(matches!(missed, RouterError::CatalogAway(_)) && missed.is_retryable(), "{missed}");
    assert!(cluster.router.status().catalog_down.is_some());
    let refused = cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");

    server.lock().unwrap().start_again();
    let back = async {
        while cluster.change("orders", assign(keys(0, 10), "s2")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.expect("changes are possible again");
    cluster.settle().await;
    cluster.until_seen(|view| owner(view, "orders", 5) == Some(shard("s2"))).await;
    assert_eq!(cluster.write("orders", 5, 2).await.unwrap(), shard("s2"));
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// B5: the process starts from its last saved snapshot if the catalog is unreachable, and is caught if that is old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_starts_from_its_saved_map_when_the_catalog_is_down() {
    let (place, server) = apart();
    let folder = tempfile::tempdir().unwrap();
    let saved = Some(folder.path().join("map.json"));
    let old = Cluster::with_maps(&place, Setup { saved: saved.clone(), ..Setup::default() }).await;
    old.items().await;
    let before = old.picture().await;
    old.close().await;
    // Somebody else changes the map after it was saved.
    let other = Cluster::open(&place, Setup { router: 2, ..Setup::default() }).await;
    other.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    let after = other.picture().await;
    other.close().await;
    server.lock().unwrap().kill9();

    let error = Cluster::try_open(&place, Setup::default()).await.err().unwrap();
    assert!(error.is_retryable(), "{error}");
    let cluster = Cluster::open(&place, Setup { router: 3, saved, ..Setup::default() }).await;
    assert!(!cluster.router.status().fresh);
    assert_eq!(cluster.view_picture(), before);
    assert_eq!(cluster.write("orders", 5, 1).await.unwrap(), shard("s2"), "the departure is learnt from s1");
    assert_eq!(cluster.write("orders", 50, 1).await.unwrap(), shard("s1"));
    assert_eq!(cluster.write("orders", 250, 1).await.unwrap(), shard("s3"));
    server.lock().unwrap().start_again();
    cluster.until_seen(|view| shards_of(view, &map("orders")) == 4).await;
    cluster.assert_healthy().await;
    assert_eq!(cluster.picture().await, after);
    assert!(cluster.router.status().fresh);
    cluster.close().await;
}

/// PROTOCOL §5: after the point of no return anyone can roll the switch forward, also with the catalog down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_whose_coordinator_died_is_finished_without_the_catalog() {
    let (place, server) = apart();
    let dies = Arc::new(|place: &str| place == "depart:s1.after");
    let setup = Setup { failpoint: Some(dies), resolver: Resolving::No, ..Setup::default() };
    let cluster = Cluster::with_maps(&place, setup).await;
    cluster.items().await;
    assert_eq!(cluster.write("orders", 5, 1).await.unwrap(), shard("s1"));
    cluster
        .change("orders", assign(keys(0, 10), "s2"))
        .await
        .expect_err("its driver stops where it departed");
    server.lock().unwrap().kill9();

    assert_eq!(
        cluster.write("orders", 5, 2).await.unwrap(),
        shard("s2"),
        "the range is served where it went"
    );
    assert_eq!(cluster.write("orders", 50, 2).await.unwrap(), shard("s1"));
    assert_eq!(cluster.rows_on("s1", &keys(0, 10)).await, 1);
    cluster.close().await;
    server.lock().unwrap().start_again();
    let heir = Cluster::open(&place, Setup { router: 2, ..Setup::default() }).await;
    heir.settle().await;
    heir.until_seen(|view| owner(view, "orders", 5) == Some(shard("s2"))).await;
    heir.assert_healthy().await;
    heir.close().await;
}

fn shards_of(view: &View, name: &MapName) -> usize {
    let whole = KeyRange::new(bound(0), None).unwrap();
    view.maps.get(name).map_or(0, |known| known.map.entries(&whole).count())
}

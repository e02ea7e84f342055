//! The catalog's own database on both engines: who may open it, what it refuses, and how it is followed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, CatalogError, ChangeRequest, Changes, Driver, Event, FenceLimits, NewShard, PasswordSource,
    ShardLimits, ShardSource,
};
use polyshard_engine::{Access, Database, Error, Options, Statement, Target};
use polyshard_map::{
    Change, Entry, Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId,
};
use polyshard_shard::{RouterId, Shard, ShardError, ShardOptions};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use uuid::Uuid;

/// Where the databases are; dropped last.
enum Place {
    Files(tempfile::TempDir),
    Server(PgServer),
}

impl Place {
    fn files() -> Place {
        Place::Files(tempfile::tempdir().unwrap())
    }

    fn server() -> Place {
        let server =
            PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
        for database in ["catalog", "s1", "s2"] {
            server.create_database(database);
        }
        Place::Server(server)
    }

    fn target(&self, name: &str) -> Target {
        match self {
            Place::Files(folder) => Target::sqlite(folder.path().join(format!("{name}.db"))),
            Place::Server(server) => Target::parse(&server.url(name)).unwrap(),
        }
    }

    fn catalog(&self) -> Arc<Catalog> {
        let owner = Uuid::new_v4().to_string();
        Arc::new(Catalog::new(self.target("catalog"), Options::default(), owner, Arc::new(Uuid::new_v4)))
    }
}

macro_rules! on_both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Place::files()).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(super::Place::server()).await;
            })*
        }
    };
}

on_both_engines!(
    a_catalog_keeps_its_cluster_and_everything_in_it_over_a_restart,
    a_catalog_of_a_newer_format_is_left_alone,
    a_refused_change_leaves_nothing_behind,
    a_follower_gets_every_event_in_order_or_is_told_to_read_anew,
    processes_tell_each_other_of_load_until_they_fall_silent,
);

/// Shards that are open already.
struct Open(BTreeMap<ShardId, Arc<Shard>>);

impl ShardSource for Open {
    fn shard<'a>(
        &'a self,
        id: &'a ShardId,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Shard>, ShardError>> + Send + 'a>> {
        Box::pin(async move { self.0.get(id).cloned().ok_or(ShardError::NotAShard) })
    }
}

fn map() -> MapName {
    MapName::new("orders").unwrap()
}

fn keys(from: i64, to: i64) -> KeyRange {
    let bound = |number| KeyType::BigInt.encode_bound(&Key::BigInt(number)).unwrap();
    KeyRange::new(bound(from), Some(bound(to))).unwrap()
}

fn entry(from: i64, to: i64, on: &str) -> Entry {
    NewEntry::new(keys(from, to), ShardId::new(on).unwrap()).at(Epoch::ZERO)
}

/// A driver over two shards and the map `orders`.
async fn driver(place: &Place, catalog: &Arc<Catalog>) -> (Driver, Arc<Open>) {
    let mut open = BTreeMap::new();
    for name in ["s1", "s2"] {
        let id = ShardId::new(name).unwrap();
        let shard = Shard::open(id.clone(), place.target(name), ShardOptions::default()).await.unwrap();
        open.insert(id, Arc::new(shard));
    }
    let open = Arc::new(Open(open));
    let driver = Driver::new(catalog.clone(), open.clone(), FenceLimits::default(), None);
    for (id, shard) in &open.0 {
        let new = NewShard {
            id: id.clone(),
            url: id.to_string(),
            password: PasswordSource::Config,
            server: None,
            region: None,
            tier: None,
            limits: ShardLimits::default(),
        };
        driver.add_shard(new, shard).await.unwrap();
    }
    let definition = MapDefinition::new(map(), KeyType::BigInt, Scheme::Range).unwrap();
    driver.create_map(&definition, vec![entry(0, 100, "s1"), entry(100, 200, "s2")]).await.unwrap();
    (driver, open)
}

async fn close(driver: Driver, open: Arc<Open>, catalog: &Catalog) {
    driver.close().await;
    for shard in open.0.values() {
        shard.close().await;
    }
    catalog.close().await;
}

fn request(change: Change) -> ChangeRequest {
    ChangeRequest { map: map(), change, if_version: None, by: None }
}

async fn a_catalog_keeps_its_cluster_and_everything_in_it_over_a_restart(place: Place) {
    let catalog = place.catalog();
    let (driver, open) = driver(&place, &catalog).await;
    let cluster = catalog.cluster().await.unwrap();
    let (shards, entries) = (catalog.shards().await.unwrap(), catalog.entries(&map()).await.unwrap());
    close(driver, open, &catalog).await;

    let again = place.catalog();
    assert_eq!(again.cluster().await.unwrap(), cluster);
    assert_eq!(again.shards().await.unwrap(), shards);
    assert_eq!(again.entries(&map()).await.unwrap(), entries);
    assert_eq!(again.operations(10).await.unwrap().len(), 1);
    again.close().await;
}

/// A newer program may have written what this one would misread.
// D3, E2: each process has one row, however often it speaks; one that is silent is not heard.
async fn processes_tell_each_other_of_load_until_they_fall_silent(place: Place) {
    let catalog = place.catalog();
    let (one, other) = (RouterId::new(1), RouterId::new(2));
    for requests in 0..3 {
        catalog.publish_heat(one, &serde_json::json!({ "requests": requests })).await.unwrap();
    }
    catalog.publish_heat(other, &serde_json::json!({})).await.unwrap();
    let long = Duration::from_secs(600);
    let heard = catalog.heats(long).await.unwrap();
    assert_eq!(heard.iter().map(|(router, _)| *router).collect::<Vec<_>>(), [one, other]);
    assert_eq!(heard[0].1["requests"], 2);
    catalog.forget_heat(other).await.unwrap();
    assert_eq!(catalog.heats(long).await.unwrap().len(), 1);
    let later = async {
        while !catalog.heats(Duration::from_millis(1)).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), later).await.expect("the silent one drops out");

    let s1 = ShardId::new("s1").unwrap();
    catalog.note_sizes(&[(s1.clone(), 10)], long).await.unwrap();
    catalog.note_sizes(&[(s1.clone(), 20), (ShardId::new("s2").unwrap(), 5)], long).await.unwrap();
    let sizes = catalog.sizes(long).await.unwrap();
    let seen: Vec<(&str, u64)> = sizes.iter().map(|size| (size.shard.as_str(), size.bytes)).collect();
    assert_eq!(seen, [("s1", 10), ("s2", 5)], "not noted again so soon");
    catalog.close().await;
}

async fn a_catalog_of_a_newer_format_is_left_alone(place: Place) {
    let catalog = place.catalog();
    catalog.ping().await.unwrap();
    catalog.close().await;
    let raw = Database::open(place.target("catalog"), Options::default(), None).await.unwrap();
    let sql = format!("UPDATE {} SET format = 99", raw.dialect().own_table("cluster"));
    raw.write(Statement::new(sql).into()).await.unwrap();
    raw.close().await;
    let refused = place.catalog().ping().await.unwrap_err();
    assert!(matches!(refused, CatalogError::FormatTooNew { found: 99, .. }), "{refused}");
    assert!(refused.to_string().contains("upgrade"), "{refused}");
}

async fn a_refused_change_leaves_nothing_behind(place: Place) {
    let catalog = place.catalog();
    let (driver, open) = driver(&place, &catalog).await;
    let before = (catalog.map(&map()).await.unwrap(), catalog.entries(&map()).await.unwrap());
    let elsewhere = ShardId::new("s9").unwrap();
    let refusals = [
        Change::Assign { range: keys(0, 10), to: elsewhere.clone() },
        Change::Add { entries: vec![NewEntry::new(keys(50, 150), ShardId::new("s1").unwrap())] },
        Change::Add { entries: vec![NewEntry::new(keys(500, 600), elsewhere)] },
        Change::Add { entries: vec![] },
        Change::Split { at: keys(1000, 1001).lo().clone() },
        Change::Merge { at: keys(100, 101).lo().clone() },
        Change::Assign {
            range: KeyRange::point(vec![1u8, 2].as_slice().into()),
            to: ShardId::new("s1").unwrap(),
        },
    ];
    for change in refusals {
        let text = format!("{change:?}");
        let refused = driver.change(&request(change)).await.expect_err(&text);
        assert!(
            matches!(refused, CatalogError::Change(_) | CatalogError::NoSuchShard(_)),
            "{text}: {refused}"
        );
    }
    let missing =
        ChangeRequest { map: MapName::new("nowhere").unwrap(), ..request(Change::Add { entries: vec![] }) };
    let refused = driver.change(&missing).await.unwrap_err();
    assert!(matches!(refused, CatalogError::NoSuchMap(_) | CatalogError::Change(_)), "{refused}");
    let definition = before.0.definition.clone();
    let refused = driver.create_map(&definition, vec![]).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Exists(_)), "{refused}");
    assert_eq!((catalog.map(&map()).await.unwrap(), catalog.entries(&map()).await.unwrap()), before);
    assert_eq!(catalog.operations(10).await.unwrap().len(), 1, "only the creation");
    close(driver, open, &catalog).await;
}

async fn a_follower_gets_every_event_in_order_or_is_told_to_read_anew(place: Place) {
    let catalog = place.catalog();
    let (driver, open) = driver(&place, &catalog).await;
    let snapshot = catalog.snapshot().await.unwrap();
    let mut listener = catalog.listen().await.unwrap();
    for at in [10, 20, 30] {
        driver.change(&request(Change::Split { at: keys(at, at + 1).lo().clone() })).await.unwrap();
    }
    listener.next().await.unwrap();
    let Changes::Events(last, events) = catalog.changes(snapshot.seq).await.unwrap() else {
        panic!("the events are kept");
    };
    assert_eq!(last, snapshot.seq + 3);
    let epochs: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Changed { epoch, .. } => *epoch,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(epochs.is_sorted() && epochs.len() == 3, "{epochs:?}");
    assert!(matches!(catalog.changes(last).await.unwrap(), Changes::Events(_, none) if none.is_empty()));
    // A catalog that has fewer events than the follower has seen was restored.
    assert!(matches!(catalog.changes(last + 5).await.unwrap(), Changes::TooOld));
    close(driver, open, &catalog).await;
}

/// PROTOCOL §1: an SQLite catalog belongs to one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_catalog_has_one_owner() {
    let place = Place::files();
    let first = place.catalog();
    first.ping().await.unwrap();
    let refused = place.catalog().ping().await.unwrap_err();
    assert!(matches!(refused, CatalogError::Engine(Error::InUse { .. })), "{refused}");
    first.close().await;
    place.catalog().ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_start_at_once_on_an_empty_database_make_one_cluster() {
    let place = Place::server();
    let catalogs: Vec<_> = (0..6).map(|_| place.catalog()).collect();
    let opening: Vec<_> = catalogs
        .iter()
        .map(|catalog| {
            tokio::spawn({
                let catalog = catalog.clone();
                async move { catalog.cluster().await }
            })
        })
        .collect();
    let mut clusters = Vec::new();
    for opened in opening {
        clusters.push(opened.await.unwrap().unwrap());
    }
    clusters.dedup();
    assert_eq!(clusters.len(), 1);
    for catalog in catalogs {
        catalog.close().await;
    }
}

/// E3: what a killed process left undecided, or another one has open, is in nobody's way who starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_starts_while_changes_of_the_catalog_are_undecided() {
    let place = Place::server();
    let first = place.catalog();
    let cluster = first.cluster().await.unwrap();
    let db = Database::open(place.target("catalog"), Options::default(), None).await.unwrap();
    let mut undecided = db.begin(Access::Write).await.unwrap();
    for table in ["map_range", "operation"] {
        undecided.run(Statement::new(format!("DELETE FROM polyshard.{table}"))).await.unwrap();
    }
    let second = place.catalog();
    assert_eq!(second.cluster().await.unwrap(), cluster);
    undecided.rollback().await.unwrap();
    db.close().await;
    second.close().await;
    first.close().await;
}

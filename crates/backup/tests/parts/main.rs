//! A store whose datasets have rows in two tables: they are bound, moved, backed up, restored and deleted as one, on
//! both engines.

#![recursion_limit = "256"]

#[path = "../../../store-queue/tests/store/cluster.rs"]
mod cluster;
#[macro_use]
#[path = "../../../store-queue/tests/store/place.rs"]
mod place;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use polyshard_backup::{
    Clock, Extent, Location, Present, Progress, Request, RestoreShardlet, RunName, Variables, What, take,
};
use polyshard_catalog::{Binding, CatalogError, KeyPart, KeyRule, MoveRequest, OpState};
use polyshard_engine::{self as engine, Batch, Dialect, Statement};
use polyshard_map::{Key, KeyRange, KeyType, MapName, Scheme, ShardId};
use polyshard_mover::Mover;
use polyshard_router::{Access, Ticket};
use polyshard_shard::{ShardOptions, SharedTable, StoreSchema, whole_name};
use polyshard_store::{Body, DatasetName, Datasets, DefaultMap, Kit, Placed, Removal, Store, Stores, Upkeep};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::place::Place;

on_both_engines! {
    both_tables_of_a_dataset_are_treated_as_one
}

const HEAD: &str = "pair_head";
const PART: &str = "pair_part";
/// The map of its datasets, which the kit creates.
const PAIRS: &str = "pairs";

static STORE: Store = Store {
    schema: Some(schema),
    tables: &[HEAD, PART],
    datasets: Some(Datasets {
        noun: "pair",
        attribute: "path",
        attributes: &["path", "name"],
        name_attribute: Some("name"),
        key_columns: &[],
        parse: |owner, name| Ok(DatasetName::new(owner, name)),
        map: DefaultMap::range_of_text(PAIRS),
    }),
    ..Store::new("pair", "pairs")
};

static UPKEEP: Upkeep = Upkeep {
    store: &STORE,
    removals: &[
        Removal { any: |dialect| any(dialect, PART), remove: |dialect| remove(dialect, PART) },
        Removal { any: |dialect| any(dialect, HEAD), remove: |dialect| remove(dialect, HEAD) },
    ],
};

fn any(dialect: Dialect, table: &str) -> Arc<str> {
    format!("SELECT 1 FROM {} WHERE dataset = $1 LIMIT 1", dialect.own_table(table)).into()
}

fn remove(dialect: Dialect, table: &str) -> Arc<str> {
    let table = dialect.own_table(table);
    let some = format!("SELECT id FROM {table} WHERE dataset = $1 ORDER BY id LIMIT $2");
    format!("DELETE FROM {table} WHERE dataset = $1 AND id IN ({some})").into()
}

fn schema() -> StoreSchema {
    let statements = |dialect: Dialect| {
        let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
        let table = |name| {
            format!(
                "CREATE TABLE IF NOT EXISTS {} (dataset {int} NOT NULL, placement {blob} NOT NULL, \
                 id {text} NOT NULL, PRIMARY KEY (placement, dataset, id))",
                dialect.own_table(name)
            )
        };
        let own_schema = dialect.create_own_schema().map(str::to_owned);
        own_schema.into_iter().chain([table(HEAD), table(PART)]).collect()
    };
    const SHARED: &[SharedTable] = &[
        SharedTable { name: HEAD, by_placement: |_| "placement, dataset" },
        SharedTable { name: PART, by_placement: |_| "placement, dataset" },
    ];
    StoreSchema { statements, shared: SHARED }
}

struct Pairs(Kit);

impl cluster::Store for Pairs {
    const MAP: &'static str = "others";
    const DECLARATION: &'static Store = &STORE;
    const STORES: Stores = Stores(&[&STORE]);

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(kit: Kit) -> Pairs {
        Pairs(kit)
    }
}

type Cluster = cluster::Cluster<Pairs>;

#[derive(Default, Serialize, Deserialize)]
struct Empty {}

impl Body for Empty {
    const FORMAT: u32 = 1;
}

impl Pairs {
    async fn put(&self, name: &DatasetName, table: &'static str, id: &str) {
        let placed = self.0.place(name, id).await.unwrap();
        let (kit, place, id) = (self.0.clone(), placed.clone(), id.to_owned());
        let work = async move |ticket: &Ticket| {
            kit.register(ticket, &place.record).await?;
            let sql = format!(
                "INSERT INTO {} (dataset, placement, id) VALUES ($1, $2, $3)",
                ticket.dialect().own_table(table)
            );
            let put = Statement::new(sql).bind(place.dataset()).bind(place.placement.as_slice());
            ticket.write(Batch::from(put.bind(id.as_str()))).await.map(drop)
        };
        self.0.run(&placed, Access::Write, work).await.unwrap();
    }

    async fn remove_one(&self, placed: &Placed, table: &'static str) {
        let place = placed.clone();
        let work = async move |ticket: &Ticket| -> Result<(), engine::Error> {
            let table = ticket.dialect().own_table(table);
            let sql = format!("DELETE FROM {table} WHERE dataset = $1 AND placement = $2");
            let remove = Statement::new(sql).bind(place.dataset()).bind(place.placement.as_slice());
            ticket.write(Batch::from(remove)).await.map(drop)
        };
        self.0.run(placed, Access::Write, work).await.unwrap();
    }
}

fn map() -> MapName {
    MapName::new(PAIRS).unwrap()
}

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

/// What a shard has of a table: whether it is owned there or not.
async fn ids(cluster: &Cluster, on: &str, table: &str) -> Vec<String> {
    let ticket =
        cluster.router.enter_shard(&map(), &KeyRange::all(), &shard(on), Access::Read).await.unwrap();
    let sql = format!("SELECT id FROM {} WHERE id LIKE 'k%' ORDER BY id", ticket.dialect().own_table(table));
    let rows = ticket.read(Statement::new(sql)).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}

/// What a shard calls the parts that it knows.
async fn known(cluster: &Cluster, on: &str) -> Vec<String> {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    opened.datasets(&map()).await.unwrap().into_iter().map(|dataset| dataset.name).collect()
}

/// From the key `k5` on.
fn upper() -> KeyRange {
    KeyRange::new(KeyType::Text.encode_bound(&Key::Text("k5".to_owned())).unwrap(), None).unwrap()
}

async fn moves(cluster: &Cluster, to: &str) {
    let request =
        MoveRequest { map: map(), range: upper(), to: shard(to), keep_ms: 0, if_version: None, by: None };
    let record = cluster.driver.start_move(&request).await.unwrap();
    let ended = async {
        loop {
            let record = cluster.driver.catalog().operation(record.op.id).await.unwrap();
            match record.state {
                OpState::Running => tokio::time::sleep(Duration::from_millis(5)).await,
                OpState::Done => return,
                OpState::RolledBack => panic!("{:?}", record.message),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the move ends");
    cluster.router.refresh().await.unwrap();
}

async fn both_tables_of_a_dataset_are_treated_as_one(place: Place) {
    let cluster: Cluster = place.open_at(Arc::new(|| 17_947_275_160_000_000)).await;
    let mover = Arc::new(Mover::new(cluster.router.shard_source()));
    cluster.driver.set_carrier(mover.clone());
    let (store, kit) = (&cluster.store, &cluster.store.0);
    let name = DatasetName::new("acct", "docs");
    kit.create(&name, &Empty {}).await.unwrap();
    let definition = cluster.router.view().maps.get(&map()).unwrap().map.definition().clone();
    assert_eq!(*definition.scheme(), Scheme::Range, "the store's own map is a range");

    // Heads below k5, parts above: a move of what is above carries parts alone.
    for number in 0..10 {
        store.put(&name, if number < 5 { HEAD } else { PART }, &format!("k{number}")).await;
    }
    assert_eq!(known(&cluster, "s1").await.len(), 2, "both tables are known before the first row");
    moves(&cluster, "s2").await;
    assert_eq!(ids(&cluster, "s2", PART).await, ["k5", "k6", "k7", "k8", "k9"]);
    let parts = known(&cluster, "s2").await;
    assert_eq!(parts.len(), 1, "only what has rows there: {parts:?}");

    // One that has rows anywhere, in any table, cannot be bound; also where a shard has none in the first one.
    let (whole, moved) = (whole_name(&parts[0]).to_owned(), cluster.router.administer(&shard("s2")).await);
    assert_eq!(whole, cluster.router.dataset("pair", "acct/docs").await.unwrap().unwrap().name_on_shards());
    assert!(!moved.unwrap().close_dataset(&whole).await.unwrap(), "s2 has parts of it");
    let rule = KeyRule { attribute: "path".to_owned(), part: KeyPart::Before("-".to_owned()) };
    let (of, to) = ("pair".to_owned(), MapName::new("others").unwrap());
    let binding = |name: &DatasetName| Binding {
        store: of.clone(),
        name: name.as_str().to_owned(),
        map: to.clone(),
        rule: rule.clone(),
    };
    let refused = cluster.driver.bind_dataset(&binding(&name)).await;
    assert!(matches!(refused, Err(CatalogError::HoldsData { .. })), "{refused:?}");
    let fresh = DatasetName::new("acct", "fresh");
    kit.create(&fresh, &Empty {}).await.unwrap();
    cluster.driver.bind_dataset(&binding(&fresh)).await.unwrap();
    cluster.router.refresh().await.unwrap();
    store.put(&fresh, HEAD, "a").await;

    // A head there makes it known in full; what is counted before the way back is shown once.
    store.put(&name, HEAD, "k7").await;
    assert_eq!(known(&cluster, "s2").await.len(), 2);
    let loads = mover.preflight(&definition, &upper(), &shard("s2"), &shard("s1")).await.unwrap();
    let loads: Vec<_> = loads.iter().map(|load| (load.dataset.as_str(), load.rows)).collect();
    assert_eq!(loads, [(whole.as_str(), 6)]);
    moves(&cluster, "s1").await;
    assert_eq!(ids(&cluster, "s1", PART).await.len(), 5);
    assert_eq!(ids(&cluster, "s1", HEAD).await, ["k0", "k1", "k2", "k3", "k4", "k7"]);

    comes_back(&cluster, &name).await;
    goes(&cluster, &name).await;
    cluster.close().await;
}

/// A shardlet of both tables is backed up and restored.
async fn comes_back(cluster: &Cluster, name: &DatasetName) {
    let folder = tempfile::tempdir().unwrap();
    let variables: Variables = Arc::new(|_| None);
    let at = |name: &str| {
        let path = folder.path().join(name);
        Location::open(Path::to_str(&path).unwrap(), &variables).unwrap()
    };
    let request = Request {
        to: at("backup"),
        what: What::Shardlet { map: map(), key: "k7".to_owned() },
        class: None,
        program: "0.0.0".to_owned(),
        catalog_url: String::new(),
        scratch: folder.path().join("scratch"),
        carriers: Arc::from([]),
        memory: Arc::default(),
        probe: None,
    };
    let (router, catalog) = (&cluster.router, cluster.driver.catalog());
    let clock: Clock = Arc::new(|| 1_794_744_000_000);
    take(router, catalog, &request, &clock, &Progress::default()).await.unwrap();
    let placed = cluster.store.0.place(name, "k7").await.unwrap();
    cluster.store.remove_one(&placed, HEAD).await;
    cluster.store.remove_one(&placed, PART).await;
    assert_eq!(ids(cluster, "s1", HEAD).await.len() + ids(cluster, "s1", PART).await.len(), 9);
    let restore = RestoreShardlet {
        router,
        backup: &at("backup"),
        map: map(),
        key: "k7".to_owned(),
        extent: Extent::Key,
        present: Present::Keep,
        scratch: folder.path().join("scratch"),
        carriers: Arc::from([]),
        run: RunName::new(Uuid::nil(), 1),
        options: ShardOptions::default(),
    };
    assert_eq!(restore.run(&Progress::default()).await.unwrap(), 2);
    assert_eq!(ids(cluster, "s1", HEAD).await.len() + ids(cluster, "s1", PART).await.len(), 11);
}

/// A deleted dataset leaves nothing behind, in no table and on no shard.
async fn goes(cluster: &Cluster, name: &DatasetName) {
    cluster.store.0.delete(name).await.unwrap();
    let later = cluster.store.0.now_ms() + 3_600_000;
    UPKEEP.run(&cluster.router, &cluster.driver, later).await;
    for shard in ["s1", "s2", "s3"] {
        assert_eq!(ids(cluster, shard, HEAD).await, [""; 0], "{shard}");
        assert_eq!(ids(cluster, shard, PART).await, [""; 0], "{shard}");
        assert_eq!(known(cluster, shard).await, [""; 0], "{shard}");
    }
}

//! What a store keeps outside the databases is in every backup, and comes back with its rows. The store of this test
//! keeps files in a folder.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream;
use polyshard_backup::{
    Archive, BackupError, Carriers, Deleting, Manifest, Present, Progress, Restore, What, With, verify,
};
use polyshard_catalog::{ArchiveRecord, ChangeRequest, KeyPart, KeyRule};
use polyshard_engine::{Batch, Dialect, Statement, Target, Value};
use polyshard_map::{Change, Key, KeyRange, ShardId, State};
use polyshard_router::{Access, Ticket};
use polyshard_shard::{
    Carrier, CarrierError, Dataset, NamedIn, OfflineClaim, Pieces, Placement, Shard, TableRows, Unnamed,
    part_name,
};
use uuid::Uuid;

use crate::cluster::{Cluster, Place, definition, location, map};

const TABLE: &str = "thing";
/// What the store is to delete later.
const CONDEMNED: &str = "thing_condemned";
/// Stands for that table in a statement.
const CONDEMNED_TABLE: &str = "{condemned}";
const NAMED_IN: &[NamedIn] =
    &[NamedIn { table: TABLE, column: "object", dataset: "dataset", place: &["placement", "dataset"] }];
const PENDING_IN: &[NamedIn] =
    &[NamedIn { table: CONDEMNED, column: "id", dataset: "dataset", place: &["placement", "dataset"] }];

/// Called with a key when its length has been asked for.
type Asked = Box<dyn Fn(&str) + Send + Sync>;

/// Objects as files of a folder.
#[derive(Default)]
struct Files {
    folder: PathBuf,
    asked: Mutex<Option<Asked>>,
}

impl Files {
    fn new(folder: PathBuf) -> Files {
        Files { folder, ..Files::default() }
    }

    fn failed(key: &str, error: &std::io::Error) -> CarrierError {
        CarrierError::Failed { key: key.to_owned(), why: error.to_string() }
    }
}

impl Carrier for Files {
    fn store(&self) -> &'static str {
        "thing"
    }

    fn named_in(&self) -> &'static [NamedIn] {
        NAMED_IN
    }

    fn pending_in(&self) -> &'static [NamedIn] {
        PENDING_IN
    }

    fn keys(
        &self,
        _: &NamedIn,
        dataset: i64,
        value: &Value,
        found: &mut Vec<String>,
    ) -> Result<(), CarrierError> {
        assert!(dataset > 0);
        let Value::Text(key) = value else { panic!("a key is a text: {value:?}") };
        found.push(key.clone());
        Ok(())
    }

    fn condemn(&self, dialect: Dialect, objects: &[Unnamed]) -> Result<Vec<Statement>, CarrierError> {
        let sql = format!(
            "INSERT INTO {} (placement, dataset, id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            dialect.own_table(CONDEMNED)
        );
        let statement = |object: &Unnamed| {
            let [placement, dataset] = object.place.as_slice() else { panic!("two values: {object:?}") };
            let statement = Statement::new(sql.clone()).bind(placement.clone()).bind(dataset.clone());
            statement.bind(object.key.clone())
        };
        Ok(objects.iter().map(statement).collect())
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Pieces, CarrierError>> {
        Box::pin(async move {
            match std::fs::read(self.folder.join(key)) {
                Ok(content) => {
                    let pieces: Vec<_> = content.chunks(1000).map(Bytes::copy_from_slice).map(Ok).collect();
                    Ok(stream::iter(pieces).boxed())
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Err(CarrierError::Missing(key.to_owned()))
                }
                Err(error) => Err(Files::failed(key, &error)),
            }
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        length: u64,
        mut pieces: Pieces,
    ) -> BoxFuture<'a, Result<(), CarrierError>> {
        Box::pin(async move {
            let mut content = Vec::new();
            while let Some(piece) = pieces.next().await {
                content.extend_from_slice(&piece?);
            }
            assert_eq!(content.len() as u64, length);
            std::fs::create_dir_all(&self.folder).map_err(|error| Files::failed(key, &error))?;
            std::fs::write(self.folder.join(key), content).map_err(|error| Files::failed(key, &error))
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, CarrierError>> {
        Box::pin(async move {
            let found = std::fs::metadata(self.folder.join(key)).ok().map(|found| found.len());
            if let Some(asked) = &*self.asked.lock().unwrap() {
                asked(key);
            }
            Ok(found)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), CarrierError>> {
        Box::pin(async move {
            match std::fs::remove_file(self.folder.join(key)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Files::failed(key, &error)),
                _ => Ok(()),
            }
        })
    }
}

/// A cluster with the store, whose files are in the data folder.
struct World {
    place: Arc<Place>,
    cluster: Cluster,
    number: i64,
}

fn carriers(data: &Path) -> Carriers {
    Arc::new([Arc::new(Files::new(data.join("things"))) as Arc<dyn Carrier>])
}

fn content(tenant: i64, id: i64) -> Vec<u8> {
    // Several pieces, and nothing that repeats.
    (0..5_000_i64).flat_map(|at| (at * 7 + tenant * 1_000_003 + id).to_le_bytes()).collect()
}

impl World {
    async fn new(place: Arc<Place>) -> World {
        let mut cluster = Cluster::new(&place).await;
        cluster.carriers = carriers(&place.data());
        let rule = KeyRule { attribute: "tenant".to_owned(), part: KeyPart::Whole };
        let body = serde_json::json!({"format": 1});
        let record = cluster.driver.create_dataset("thing", "acct/things", &map(), rule, body).await.unwrap();
        cluster.router.refresh().await.unwrap();
        let number = record.id as i64;
        for tenant in 1..=3 {
            let ticket = enter(&cluster, tenant).await;
            let (dialect, table) = (ticket.dialect(), ticket.dialect().own_table(TABLE));
            let make = format!(
                "CREATE TABLE {table} (placement {} NOT NULL, dataset BIGINT NOT NULL, id BIGINT NOT NULL, \
                 object TEXT, PRIMARY KEY (placement, dataset, id))",
                dialect.blob()
            );
            ticket.write(Batch::from(Statement::new(make))).await.unwrap();
            let condemned = ticket.dialect().own_table(CONDEMNED);
            let make = format!(
                "CREATE TABLE {condemned} (placement {} NOT NULL, dataset BIGINT NOT NULL, id {} NOT NULL, \
                 PRIMARY KEY (placement, dataset, id))",
                dialect.blob(),
                dialect.text()
            );
            ticket.write(Batch::from(Statement::new(make))).await.unwrap();
            let whole = record.name_on_shards();
            for (name, table) in [(whole.clone(), table), (part_name(&whole, CONDEMNED), condemned)] {
                let dataset = Dataset {
                    name,
                    map: map(),
                    table,
                    placement: Placement::Column("placement".to_owned()),
                    rows: TableRows::Numbered { column: "dataset".to_owned(), number },
                };
                cluster.router.bind(&ticket, &dataset).await.unwrap();
            }
        }
        World { place, cluster, number }
    }

    /// Puts an object, and the row that names it.
    async fn put(&self, tenant: i64, id: i64) -> String {
        let key = format!("{tenant}-{id}");
        let content = content(tenant, id);
        let (length, pieces) = (content.len() as u64, stream::iter([Ok(Bytes::from(content))]).boxed());
        self.cluster.carriers[0].write(&key, length, pieces).await.unwrap();
        let sql = "INSERT INTO {} (placement, dataset, id, object) VALUES ($1, $2, $3, $4)";
        self.run(tenant, sql, &[Value::Int(id), Value::Text(key.clone())]).await;
        key
    }

    async fn remove_all(&self, tenant: i64) {
        self.run(tenant, "DELETE FROM {} WHERE placement = $1 AND dataset = $2", &[]).await;
    }

    async fn run(&self, tenant: i64, sql: &str, more: &[Value]) {
        let placement = definition().placement(&Key::BigInt(tenant)).unwrap();
        let ticket = enter(&self.cluster, tenant).await;
        let own = |name| ticket.dialect().own_table(name);
        let sql = sql.replace("{}", &own(TABLE)).replace(CONDEMNED_TABLE, &own(CONDEMNED));
        let statement = Statement::new(sql).bind(placement.as_slice().to_vec()).bind(self.number);
        let statement = more.iter().cloned().fold(statement, Statement::bind);
        ticket.write(Batch::from(statement)).await.unwrap();
    }

    /// The objects of a tenant that rows name, after a look at the content of each.
    async fn found(&self, cluster: &Cluster, data: &Path, tenant: i64) -> Vec<i64> {
        let ticket = enter(cluster, tenant).await;
        let sql = format!("SELECT id, object FROM {} ORDER BY id", ticket.dialect().own_table(TABLE));
        let rows = ticket.read(Statement::new(sql)).await.unwrap();
        let mut found = Vec::new();
        for row in rows.iter() {
            let (id, key) = (row.int(0).unwrap(), row.text(1).unwrap());
            assert_eq!(std::fs::read(data.join("things").join(key)).unwrap(), content(tenant, id), "{key}");
            found.push(id);
        }
        found
    }

    /// The objects of a tenant that the store is to delete.
    async fn condemned(&self, tenant: i64) -> Vec<String> {
        let ticket = enter(&self.cluster, tenant).await;
        let sql = format!("SELECT id FROM {} ORDER BY id", ticket.dialect().own_table(CONDEMNED));
        let rows = ticket.read(Statement::new(sql)).await.unwrap();
        rows.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
    }

    async fn condemn(&self, tenant: i64, key: &str) {
        let sql = format!("INSERT INTO {CONDEMNED_TABLE} (placement, dataset, id) VALUES ($1, $2, $3)");
        self.run(tenant, &sql, &[Value::Text(key.to_owned())]).await;
    }

    async fn set_state(&self, range: KeyRange, state: State) {
        let change = Change::SetState { range, state };
        let request = ChangeRequest { map: map(), change, if_version: None, by: None };
        self.cluster.driver.change(&request).await.unwrap();
        self.cluster.router.refresh().await.unwrap();
    }

    /// Has something called whenever the length of an object has been asked for.
    fn when_asked(&mut self, asked: impl Fn(&str) + Send + Sync + 'static) {
        let files = Files::new(self.place.data().join("things"));
        *files.asked.lock().unwrap() = Some(Box::new(asked));
        self.cluster.carriers = Arc::new([Arc::new(files) as Arc<dyn Carrier>]);
    }

    fn file(&self, key: &str) -> PathBuf {
        self.place.data().join("things").join(key)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.place.data().join("things")).unwrap().count()
    }
}

async fn enter(cluster: &Cluster, tenant: i64) -> Ticket {
    cluster.router.enter(&map(), &[Key::BigInt(tenant)], Access::Write).await.unwrap()
}

fn point(tenant: i64) -> KeyRange {
    KeyRange::point(definition().placement(&Key::BigInt(tenant)).unwrap())
}

fn objects(manifest: &Manifest) -> u64 {
    manifest.objects.iter().map(|part| part.count).sum()
}

/// A backup of everything has all objects, stores each once, and restores them into an empty place.
async fn everything_comes_back(place: Arc<Place>) {
    let world = World::new(place.clone()).await;
    for tenant in 1..=3 {
        for id in 0..3 {
            world.put(tenant, id).await;
        }
    }
    let at = place.folder.path().join("backups");
    let first = world.cluster.back_up(&at.join("first")).await.unwrap();
    assert_eq!(objects(&first), 9);
    verify(&location(&at.join("first"))).await.unwrap();

    world.put(1, 7).await;
    // One that a backup has is not read again.
    std::fs::write(place.data().join("things/2-0"), b"changed past the store").unwrap();
    let second = world.cluster.back_up(&at.join("second")).await.unwrap();
    assert_eq!(objects(&second), 10);
    let content_bytes = |manifest: &Manifest| manifest.objects[0].content.bytes;
    assert_eq!(content_bytes(&second) - content_bytes(&first), content(1, 7).len() as u64);
    verify(&location(&at.join("second"))).await.unwrap();
    let World { cluster, .. } = world;
    cluster.close().await;

    let data = place.folder.path().join("restored");
    let restored = restore(&place, &at.join("second"), &data).await.unwrap();
    assert_eq!(objects(&restored), 10);
    if place.server.is_none() {
        let again = Cluster::open(&place, &data, 3).await;
        let looking = World { place: place.clone(), cluster: again, number: 0 };
        assert_eq!(looking.found(&looking.cluster, &data, 1).await, [0, 1, 2, 7]);
        assert_eq!(looking.found(&looking.cluster, &data, 2).await, [0, 1, 2]);
        looking.cluster.close().await;
    }
    for (tenant, id) in [(1, 7), (2, 0), (3, 2)] {
        let file = data.join(format!("things/{tenant}-{id}"));
        assert_eq!(std::fs::read(file).unwrap(), content(tenant, id));
    }
}

async fn restore(place: &Arc<Place>, backup: &Path, data: &Path) -> Result<Manifest, BackupError> {
    if let Some(server) = &place.server {
        for name in crate::cluster::SHARDS.iter().chain(&["catalog"]) {
            server.create_database(&format!("{name}_restored"));
        }
    }
    let target = |_: Option<&_>, url: &str| -> Result<Target, BackupError> {
        let beside = if place.server.is_some() { format!("{url}_restored") } else { url.to_owned() };
        Ok(place.target(data, &beside))
    };
    let carriers = |data: &Path| Ok(carriers(data));
    let restore = Restore {
        backup: &location(backup),
        data,
        carriers: &carriers,
        catalog_url: &place.url("catalog"),
        target: &target,
    };
    restore.run().await
}

/// One tenant's objects come back with its rows, from a backup of everything and from one of the tenant alone; what
/// only the replaced rows named is condemned with them, and nobody else's.
async fn a_tenant_comes_back(place: Arc<Place>) {
    let world = World::new(place.clone()).await;
    let (data, at) = (place.data(), place.folder.path().join("backups"));
    for tenant in 1..=3 {
        world.put(tenant, 0).await;
        world.put(tenant, 1).await;
    }
    world.cluster.back_up(&at.join("all")).await.unwrap();
    let tenant = What::Shardlet { map: map(), key: "2".to_owned() };
    let alone = world.cluster.take(&world.cluster.request(&at.join("two"), tenant)).await.unwrap();
    assert_eq!(objects(&alone), 2);
    for name in ["all", "two"] {
        world.remove_all(2).await;
        std::fs::remove_file(data.join("things/2-0")).unwrap();
        world.put(2, 9).await;
        assert_eq!(world.files(), 6, "of two objects that no row names one is left");
        world.cluster.restore_tenant(&at.join(name), 2, Present::Replace).await.unwrap();
        assert_eq!(world.found(&world.cluster, &data, 2).await, [0, 1], "{name}");
        assert_eq!(world.found(&world.cluster, &data, 1).await, [0, 1], "{name}");
        assert_eq!(world.files(), 7, "a backup that is being taken may need what the replaced rows named");
        assert_eq!(world.condemned(2).await, ["2-9"], "{name}");
    }
    world.cluster.close().await;
}

/// Objects that were condemned before stay so, unless the restored rows name them.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_condemned_before_a_restoration_is_not_forgotten() {
    let place = Place::sqlite();
    let world = World::new(place.clone()).await;
    world.put(2, 0).await;
    let at = place.folder.path().join("backups");
    world.cluster.back_up(&at.join("all")).await.unwrap();
    world.condemn(2, "2-8").await;
    world.cluster.restore_tenant(&at.join("all"), 2, Present::Replace).await.unwrap();
    assert_eq!(world.condemned(2).await, ["2-8"]);
    world.cluster.close().await;
}

/// A process that was killed while it wrote an object has left a part of it under its name.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_not_whole_is_written_anew() {
    let place = Place::sqlite();
    let world = World::new(place.clone()).await;
    world.put(2, 0).await;
    let at = place.folder.path().join("backups");
    world.cluster.back_up(&at.join("all")).await.unwrap();
    world.remove_all(2).await;
    std::fs::write(world.file("2-0"), &content(2, 0)[..1000]).unwrap();
    world.cluster.restore_tenant(&at.join("all"), 2, Present::Keep).await.unwrap();
    assert_eq!(world.found(&world.cluster, &place.data(), 2).await, [0]);
    world.cluster.close().await;
}

/// A store that judged before the restoration that nobody needs an object deletes it while its rows are put back.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_deleted_before_the_rows_are_committed_is_written_again() {
    let place = Place::sqlite();
    let mut world = World::new(place.clone()).await;
    world.put(2, 0).await;
    let at = place.folder.path().join("backups");
    world.cluster.back_up(&at.join("all")).await.unwrap();
    world.remove_all(2).await;
    let (file, looks) = (world.file("2-0"), AtomicUsize::new(0));
    world.when_asked(move |_| {
        if looks.fetch_add(1, Ordering::SeqCst) == 0 {
            std::fs::remove_file(&file).unwrap();
        }
    });
    world.cluster.restore_tenant(&at.join("all"), 2, Present::Keep).await.unwrap();
    assert_eq!(world.found(&world.cluster, &place.data(), 2).await, [0]);
    world.cluster.close().await;
}

/// The same of one that was condemned when its rows were put back: its deletion may still be under way after that.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_whose_deletion_is_under_way_is_written_again() {
    let place = Place::sqlite();
    let mut world = World::new(place.clone()).await;
    world.put(2, 0).await;
    let at = place.folder.path().join("backups");
    world.cluster.back_up(&at.join("all")).await.unwrap();
    world.remove_all(2).await;
    world.condemn(2, "2-0").await;
    let (file, looks) = (world.file("2-0"), AtomicUsize::new(0));
    world.when_asked(move |_| {
        if looks.fetch_add(1, Ordering::SeqCst) == 1 {
            std::fs::remove_file(&file).unwrap();
        }
    });
    world.cluster.restore_tenant(&at.join("all"), 2, Present::Replace).await.unwrap();
    assert_eq!(world.found(&world.cluster, &place.data(), 2).await, [0]);
    assert!(world.condemned(2).await.is_empty());
    world.cluster.close().await;
}

/// An archive has the objects of its rows, which are deleted after the rows and come back before them. Whoever has
/// slept since deletes nothing.
async fn an_archive_comes_back(place: Arc<Place>) {
    let world = World::new(place.clone()).await;
    for tenant in 1..=3 {
        // More than are deleted at once.
        for id in 0..20 {
            world.put(tenant, id).await;
        }
    }
    std::fs::write(world.file("2-99"), b"nobody names it any more").unwrap();
    world.condemn(2, "2-99").await;
    let range = point(2);
    let record = ArchiveRecord::new(
        (Uuid::from_u128(7), "old".to_owned()),
        (map(), range.clone()),
        ShardId::new("s2").unwrap(),
        place.folder.path().join("archives").to_str().unwrap().to_owned(),
    );
    let at = location(&place.folder.path().join("archives/old"));
    let archive = Archive {
        router: &world.cluster.router,
        cluster: world.cluster.catalog.cluster().await.unwrap(),
        record: &record,
        definition: &definition(),
        at: &at,
        program: "0.0.0".to_owned(),
        carriers: world.cluster.carriers.clone(),
        scratch: place.folder.path().join("scratch"),
        clock: crate::cluster::clock(),
    };
    assert_eq!(objects(&archive.write(&Progress::default()).await.unwrap()), 20);
    archive.compare().await.unwrap();
    world.set_state(range.clone(), State::Offline).await;
    let shard = world.cluster.router.administer(&record.shard).await.unwrap();
    let claim = async |rank| shard.claim_offline("old", OfflineClaim::rank(rank, 1)).await.unwrap();
    let first = claim(1).await;
    drop_rows(&shard, &first, &range, &world.cluster.carriers, With::PendingObjects).await.unwrap();
    assert!(world.file("2-0").exists(), "the archive's list of objects is still needed");
    assert!(!world.file("2-99").exists(), "nothing else would delete it, now that the row is gone");
    archive.delete_objects(&shard, &first).await.unwrap();
    archive.delete_objects(&shard, &first).await.unwrap();
    assert_eq!(world.files(), 40, "nobody else's are deleted");

    let second = claim(2).await;
    assert_eq!(archive.restore(&second).await.unwrap(), 21);
    let late = archive.delete_objects(&shard, &first).await;
    assert!(late.is_err(), "it was claimed by a restoration since");
    assert_eq!(world.files(), 60);
    world.set_state(range.clone(), State::Online).await;
    assert_eq!(world.found(&world.cluster, &place.data(), 2).await, Vec::from_iter(0..20));
    assert_eq!(world.condemned(2).await, ["2-99"], "as it was archived");

    // A range that is dropped goes with its objects.
    world.set_state(range.clone(), State::Offline).await;
    let late = drop_rows(&shard, &first, &range, &world.cluster.carriers, With::Objects).await;
    assert!(late.is_err());
    assert_eq!(world.files(), 60);
    let third = claim(3).await;
    drop_rows(&shard, &third, &range, &world.cluster.carriers, With::Objects).await.unwrap();
    assert_eq!(world.files(), 40);
    world.cluster.close().await;
}

async fn drop_rows(
    shard: &Shard,
    claim: &OfflineClaim,
    range: &KeyRange,
    carriers: &Carriers,
    with: With,
) -> Result<(), BackupError> {
    let deleting = Deleting::new(shard, &definition(), range, None).await?;
    let mut deleting = deleting.with_objects(carriers, with);
    while !deleting.go_on(shard, claim, u64::MAX).await?.is_done {}
    Ok(())
}

/// A row whose object is gone fails the backup, which then leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_named_and_nothing_is_left() {
    let place = Place::sqlite();
    let world = World::new(place.clone()).await;
    let key = world.put(1, 0).await;
    std::fs::remove_file(place.data().join("things").join(&key)).unwrap();
    let at = place.folder.path().join("backups");
    let failed = world.cluster.back_up(&at.join("first")).await.unwrap_err();
    assert!(matches!(&failed, BackupError::Failed(why) if why.contains("object 1-0 is missing")), "{failed}");
    assert!(!at.join("first/manifest.json").exists());
    world.cluster.close().await;
}

/// What is damaged in the place of backups is neither restored nor taken for whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_object_is_found_before_rows_are_restored() {
    let place = Place::sqlite();
    let world = World::new(place.clone()).await;
    world.put(2, 0).await;
    let at = place.folder.path().join("backups");
    world.cluster.back_up(&at.join("all")).await.unwrap();
    let list = std::fs::read_to_string(at.join("all/objects/thing.chunks")).unwrap();
    let digest = list.lines().next().unwrap().split(' ').next().unwrap();
    std::fs::write(at.join(format!("chunks/{}/{digest}", &digest[..2])), b"\0damage").unwrap();
    let damaged = verify(&location(&at.join("all"))).await.unwrap_err();
    assert!(matches!(&damaged, BackupError::Damaged(why) if why.contains("objects/thing")), "{damaged}");
    world.remove_all(2).await;
    std::fs::remove_file(place.data().join("things/2-0")).unwrap();
    let refused = world.cluster.restore_tenant(&at.join("all"), 2, Present::Keep).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Damaged(_)), "{refused}");
    assert!(world.found(&world.cluster, &place.data(), 2).await.is_empty(), "no row names what is not there");
    world.cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_back_on_embedded_shards() {
    everything_comes_back(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_comes_back_on_postgres() {
    everything_comes_back(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_comes_back_on_embedded_shards() {
    a_tenant_comes_back(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_comes_back_on_postgres() {
    a_tenant_comes_back(Place::postgres()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_comes_back_on_embedded_shards() {
    an_archive_comes_back(Place::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_comes_back_on_postgres() {
    an_archive_comes_back(Place::postgres()).await;
}

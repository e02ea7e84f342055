//! Rows that tell only their bucket: all keys of it come back together, or none does.

use std::sync::Arc;

use polyshard_backup::{BackupError, Extent, Present, What};
use polyshard_engine::{Batch, Dialect, Statement, Value};
use polyshard_map::{Epoch, HashSpec, Key, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId};
use polyshard_router::Access;
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, Place};

fn map() -> MapName {
    MapName::new("hashed").unwrap()
}

fn definition(buckets: u32) -> MapDefinition {
    let scheme = Scheme::Hash(HashSpec::new(0, buckets).unwrap());
    MapDefinition::new(map(), KeyType::BigInt, scheme).unwrap()
}

async fn make_map(cluster: &Cluster, buckets: u32) {
    let range = definition(buckets).buckets(0, buckets).unwrap();
    let entry = NewEntry::new(range, ShardId::new("s1").unwrap()).at(Epoch::ZERO);
    cluster.driver.create_map(&definition(buckets), vec![entry]).await.unwrap();
    cluster.router.refresh().await.unwrap();
}

async fn write(cluster: &Cluster, key: i64, statement: Statement) {
    let ticket = cluster.router.enter(&map(), &[Key::BigInt(key)], Access::Write).await.unwrap();
    ticket.write(Batch::from(statement)).await.unwrap();
}

/// What is stored of a key; its number is in the text, which no restoration looks into.
async fn things(cluster: &Cluster, key: i64) -> Vec<String> {
    let ticket = cluster.router.enter(&map(), &[Key::BigInt(key)], Access::Read).await.unwrap();
    let sql = format!("SELECT what FROM things WHERE what LIKE '{key}:%' ORDER BY id");
    let rows = ticket.read(Statement::new(sql)).await.unwrap();
    rows.rows().iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}

async fn fill(cluster: &Cluster, dialect: Dialect, keys: [i64; 3]) {
    let make = format!(
        "CREATE TABLE things (id BIGINT PRIMARY KEY, placement {} NOT NULL, what TEXT)",
        dialect.blob()
    );
    write(cluster, keys[0], Statement::new(make)).await;
    let ticket = cluster.router.enter(&map(), &[Key::BigInt(keys[0])], Access::Write).await.unwrap();
    let dataset = Dataset {
        name: "things".to_owned(),
        map: map(),
        table: "things".to_owned(),
        placement: Placement::Column("placement".to_owned()),
        rows: polyshard_shard::TableRows::All,
    };
    cluster.router.bind(&ticket, &dataset).await.unwrap();
    drop(ticket);
    for key in keys {
        let placement = definition(4).placement(&Key::BigInt(key)).unwrap();
        let insert = Statement::new("INSERT INTO things (id, placement, what) VALUES ($1, $2, $3)")
            .bind(key)
            .bind(Value::Blob(placement.into_vec()))
            .bind(format!("{key}:then"));
        write(cluster, key, insert).await;
    }
}

async fn bucket_comes_back(place: Arc<Place>, dialect: Dialect) {
    let cluster = Cluster::new(&place).await;
    make_map(&cluster, 4).await;
    // Two keys that share a bucket, and one of another.
    let bucket = |key: i64| definition(4).placement(&Key::BigInt(key)).unwrap();
    let same = (2..).find(|key| bucket(*key) == bucket(1)).unwrap();
    let apart = (2..).find(|key| bucket(*key) != bucket(1)).unwrap();
    fill(&cluster, dialect, [1, same, apart]).await;
    let backup = place.folder.path().join("backups/monday");
    cluster.back_up(&backup).await.unwrap();
    let alone = What::Shardlet { map: map(), key: "1".to_owned() };
    let refused = cluster.take(&cluster.request(&place.folder.path().join("backups/one"), alone)).await;
    assert!(matches!(&refused, Err(BackupError::Refused(why)) if why.contains("--bucket")), "{refused:?}");

    let now = "UPDATE things SET what = replace(what, 'then', 'now')";
    write(&cluster, 1, Statement::new(now)).await;
    let restore =
        |extent, present| cluster.restore_shardlet(&backup, (MAP.get_or_init(map), 1, extent), present);
    let refused = restore(Extent::Key, Present::Replace).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("--bucket")), "{refused}");
    let refused = restore(Extent::Bucket, Present::Keep).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("--replace")), "{refused}");
    assert_eq!(things(&cluster, 1).await, ["1:now"], "nothing was touched");
    assert_eq!(restore(Extent::Bucket, Present::Replace).await.unwrap(), 2);
    assert_eq!(things(&cluster, 1).await, ["1:then"]);
    assert_eq!(things(&cluster, same).await, [format!("{same}:then")]);
    assert_eq!(things(&cluster, apart).await, [format!("{apart}:now")], "of another bucket");

    // Under another map of the same name a bucket has other keys.
    cluster.driver.drop_map(&map(), None, true).await.unwrap();
    cluster.router.refresh().await.unwrap();
    make_map(&cluster, 8).await;
    let refused = restore(Extent::Bucket, Present::Replace).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("another one")), "{refused}");
    cluster.close().await;
}

static MAP: std::sync::OnceLock<MapName> = std::sync::OnceLock::new();

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_comes_back_on_embedded_shards() {
    bucket_comes_back(Place::sqlite(), Dialect::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_comes_back_on_postgresql() {
    bucket_comes_back(Place::postgres(), Dialect::Postgres).await;
}

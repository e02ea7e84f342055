//! What was backed up comes back, and nothing is served before all of it is there.

use std::path::Path;
use std::sync::Arc;

use polyshard_backup::{BackupError, Manifest, Restore, restore_shard, verify};
use polyshard_engine::{Database, Options, Secret, Statement, Target};
use polyshard_map::ShardId;
use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, Place, SHARDS, Writer, location, no_carriers, of_one_moment};

async fn restore(place: &Arc<Place>, backup: &Path, data: &Path) -> Result<Manifest, BackupError> {
    let target =
        |_: Option<&ShardId>, url: &str| -> Result<Target, BackupError> { Ok(place.target(data, url)) };
    let catalog_url = place.url("catalog");
    Restore {
        backup: &location(backup),
        data,
        carriers: &no_carriers,
        catalog_url: &catalog_url,
        target: &target,
    }
    .run()
    .await
}

async fn lasts(cluster: &Cluster) -> [i64; 3] {
    [cluster.last(1).await, cluster.last(2).await, cluster.last(3).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_shards_come_back_in_another_folder() {
    let place = Place::sqlite();
    let cluster = Arc::new(Cluster::new(&place).await);
    let writer = Writer::start(&cluster);
    let backup = place.folder.path().join("backup");
    cluster.back_up(&backup).await.unwrap();
    writer.stop().await;
    Arc::into_inner(cluster).unwrap().close().await;

    let restored = place.folder.path().join("restored");
    let manifest = restore(&place, &backup, &restored).await.unwrap();
    assert_eq!(manifest.shards.len(), 3);
    let again = Cluster::open(&place, &restored, 3).await;
    let numbers = lasts(&again).await;
    assert!(of_one_moment(numbers), "{numbers:?}");
    again.note(1, 1_000_000).await;
    assert_eq!(again.last(1).await, 1_000_000);
    again.close().await;
    let refused = restore(&place, &backup, &restored).await.unwrap_err();
    assert!(
        matches!(refused, BackupError::Refused(_)),
        "a folder that is in use is not written into: {refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_chunk_leaves_nothing_that_could_be_served() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backups/monday");
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
    // Of the last part that is copied: the others are there already then.
    let list = std::fs::read_to_string(backup.join("catalog.chunks")).unwrap();
    let digest = list.lines().last().unwrap().split(' ').next().unwrap();
    let file = place.folder.path().join(format!("backups/chunks/{}/{digest}", &digest[..2]));
    let whole = std::fs::read(&file).unwrap();
    let restored = place.folder.path().join("restored");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [Some(&whole[..whole.len() - 1]), Some(flipped.as_slice()), Some(&[]), None] {
        match damaged {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let found = restore(&place, &backup, &restored).await.unwrap_err();
        let named = matches!(&found, BackupError::Damaged(why) if why.contains(digest));
        assert!(named, "{found}");
        assert!(!restored.exists());
    }
    // The next attempt is not in the way of the first, and a folder of somebody else is.
    std::fs::write(&file, &whole).unwrap();
    let staging = place.folder.path().join("restored.restoring");
    assert!(staging.exists());
    restore(&place, &backup, &restored).await.unwrap();
    assert!(!staging.exists());
    let other = place.folder.path().join("other");
    std::fs::create_dir(place.folder.path().join("other.restoring")).unwrap();
    let refused = restore(&place, &backup, &other).await.unwrap_err();
    assert!(matches!(refused, BackupError::Refused(_)), "{refused}");
}

/// Format 1 had whole files beside its manifest.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_format_1_is_restored() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.note(1, 5).await;
    let backup = place.folder.path().join("old");
    std::fs::create_dir_all(backup.join("shards")).unwrap();
    let mut parts = Vec::new();
    for name in SHARDS.iter().chain(&["catalog"]) {
        let file =
            if *name == "catalog" { "catalog.sqlite".to_owned() } else { format!("shards/{name}.sqlite") };
        let held = match *name {
            "catalog" => cluster.catalog.hold_moment().await.unwrap(),
            shard => {
                let shard = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
                shard.carrier().await.unwrap().snapshot().await.unwrap()
            }
        };
        held.copy_to(&backup.join(&file), |_, _| ()).await.unwrap();
        let bytes = std::fs::read(backup.join(&file)).unwrap();
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let url = place.url(name);
        parts.push(format!(
            "{{\"file\": {file:?}, \"engine\": \"sqlite\", \"url\": {url:?}, \"bytes\": {}, \"sha256\": {sha256:?}}}",
            bytes.len()
        ));
    }
    let shards: Vec<String> =
        SHARDS.iter().zip(&parts).map(|(id, part)| format!("{{\"id\": {id:?}, \"copy\": {part}}}")).collect();
    let manifest = format!(
        "{{\"format\": 1, \"program\": \"0.1.0\", \"cluster\": \"{}\", \"moment_ms\": 1, \"seq\": 1, \
         \"catalog\": {}, \"shards\": [{}]}}",
        cluster.catalog.cluster().await.unwrap(),
        parts[3],
        shards.join(", ")
    );
    std::fs::write(backup.join("manifest.json"), manifest).unwrap();
    cluster.close().await;
    verify(&location(&backup)).await.unwrap();
    let restored = place.folder.path().join("restored");
    restore(&place, &backup, &restored).await.unwrap();
    let again = Cluster::open(&place, &restored, 3).await;
    assert_eq!(again.last(1).await, 5);
    again.close().await;
    let mut bytes = std::fs::read(backup.join("shards/s2.sqlite")).unwrap();
    bytes[100] ^= 1;
    std::fs::write(backup.join("shards/s2.sqlite"), bytes).unwrap();
    let found = verify(&location(&backup)).await.unwrap_err();
    assert!(matches!(&found, BackupError::Damaged(why) if why.contains("s2.sqlite")), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_databases_come_back_at_one_moment() {
    let place = Place::postgres();
    let cluster = Arc::new(Cluster::new(&place).await);
    let writer = Writer::start(&cluster);
    let backup = place.folder.path().join("backup");
    cluster.back_up(&backup).await.unwrap();
    writer.stop().await;
    Arc::into_inner(cluster).unwrap().close().await;

    let data = place.folder.path().join("restored");
    let refused = restore(&place, &backup, &data).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(message) if message.contains("not empty")), "{refused}");
    let server = place.server.as_ref().unwrap();
    for name in SHARDS.iter().chain(&["catalog"]) {
        server.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
        server.create_database(name);
    }
    restore(&place, &backup, &data).await.unwrap();
    let again = Cluster::open(&place, &data, 3).await;
    let numbers = lasts(&again).await;
    assert!(of_one_moment(numbers), "{numbers:?}");
    again.note(2, 1_000_000).await;
    assert_eq!(again.last(2).await, 1_000_000);
    again.close().await;
}

async fn last_in(target: Target) -> i64 {
    let database = Database::open(target, Options::default(), None).await.unwrap();
    let rows = database.read(Statement::new("SELECT coalesce(max(number), 0) FROM notes")).await.unwrap();
    let last = rows.one().unwrap().int(0).unwrap();
    database.close().await;
    last
}

/// E10: one shard that is lost comes back by itself, into an empty place, whole or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn one_embedded_shard_is_restored_into_a_new_file() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    cluster.note(2, 22).await;
    let at = place.folder.path().join("backups/monday");
    cluster.back_up(&at).await.unwrap();
    cluster.close().await;
    let (from, id) = (location(&at), ShardId::new("s2").unwrap());
    let file = place.folder.path().join("elsewhere/s2.db");
    // The first chunk that is read is not as it was: there is no file under the name.
    let list = std::fs::read_to_string(at.join("shards/s2.chunks")).unwrap();
    let digest = list.lines().next().unwrap().split(' ').next().unwrap();
    let chunk = place.folder.path().join(format!("backups/chunks/{}/{digest}", &digest[..2]));
    let whole = std::fs::read(&chunk).unwrap();
    std::fs::write(&chunk, &whole[..whole.len() / 2]).unwrap();
    let damaged = restore_shard(&from, &id, &Target::sqlite(&file)).await.unwrap_err();
    assert!(matches!(&damaged, BackupError::Damaged(why) if why.contains(digest)), "{damaged}");
    assert!(!file.exists());
    std::fs::write(&chunk, &whole).unwrap();

    restore_shard(&from, &id, &Target::sqlite(&file)).await.unwrap();
    assert_eq!(last_in(Target::sqlite(&file)).await, 22);
    let refused = restore_shard(&from, &id, &Target::sqlite(&file)).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("there already")), "{refused}");
    let other = Target::sqlite(place.folder.path().join("s9.db"));
    let refused = restore_shard(&from, &ShardId::new("s9").unwrap(), &other).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("no shard s9")), "{refused}");
    let database = Target::parse("postgres://a@127.0.0.1/b").unwrap();
    let refused = restore_shard(&from, &id, &database).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("same engine")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_postgresql_shard_is_restored_into_an_empty_database() {
    let place = Place::postgres();
    let cluster = Cluster::new(&place).await;
    cluster.note(2, 22).await;
    let at = place.folder.path().join("backups/monday");
    cluster.back_up(&at).await.unwrap();
    cluster.close().await;
    let server = place.server.as_ref().unwrap();
    server.create_database("fresh");
    let password = Secret::new(server.password().to_owned());
    let fresh = Target::parse(&place.url("fresh")).unwrap().with_password(password);
    let id = ShardId::new("s2").unwrap();
    restore_shard(&location(&at), &id, &fresh).await.unwrap();
    assert_eq!(last_in(fresh.clone()).await, 22);
    let refused = restore_shard(&location(&at), &id, &fresh).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(why) if why.contains("not empty")), "{refused}");
}

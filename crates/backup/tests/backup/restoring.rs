//! What was backed up comes back, and nothing is served before all of it is there.

use std::path::Path;
use std::sync::Arc;

use polyshard_backup::{BackupError, Manifest, Restore};
use polyshard_engine::Target;
use polyshard_map::ShardId;

use crate::cluster::{Cluster, Place, SHARDS, Writer, of_one_moment};

async fn restore(place: &Arc<Place>, backup: &Path, data: &Path) -> Result<Manifest, BackupError> {
    let target =
        |_: Option<&ShardId>, url: &str| -> Result<Target, BackupError> { Ok(place.target(data, url)) };
    let catalog_url = place.url("catalog");
    Restore { backup, data, catalog_url: &catalog_url, target: &target }.run().await
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
async fn a_damaged_file_leaves_nothing_that_could_be_served() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backup");
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
    // The last one to be copied: the others are there already then.
    let file = backup.join("catalog.sqlite");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let restored = place.folder.path().join("restored");
    let found = restore(&place, &backup, &restored).await.unwrap_err();
    assert!(matches!(found, BackupError::Damaged(_)), "{found}");
    assert!(!restored.exists());
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

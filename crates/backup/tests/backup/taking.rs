//! What is copied is of one moment, and a backup is there whole or not at all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polyshard_backup::{BackupError, check};
use polyshard_engine::Statement;
use polyshard_map::Key;
use polyshard_router::Access;

use crate::cluster::{Cluster, Place, SHARDS, Writer, map, of_one_moment};

fn last(backup: &Path, shard: &str) -> i64 {
    let copy = rusqlite::Connection::open(backup.join(format!("shards/{shard}.sqlite"))).unwrap();
    copy.query_row("SELECT coalesce(max(number), 0) FROM notes", [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_shards_are_copied_at_one_moment_while_writes_go_on() {
    let place = Place::sqlite();
    let cluster = Arc::new(Cluster::new(&place).await);
    let writer = Writer::start(&cluster);
    let mut numbers = Vec::new();
    for round in 0..8 {
        let backup = place.folder.path().join(format!("backup-{round}"));
        let (before, taken) =
            (writer.written.load(Ordering::SeqCst), cluster.back_up(&backup).await.unwrap());
        assert_eq!(taken.manifest.shards.len(), 3);
        check(&backup).unwrap();
        let copied = SHARDS.map(|shard| last(&backup, shard));
        assert!(of_one_moment(copied), "{copied:?} were never there at the same time");
        assert!(copied[2] >= before, "what was acknowledged before is in it: {copied:?}, {before}");
        numbers.push(copied[0]);
    }
    writer.stop().await;
    assert!(numbers.is_sorted() && numbers.first() < numbers.last(), "writes went on: {numbers:?}");
    Arc::into_inner(cluster).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_moment_is_held_writes_wait_and_reads_go_on() {
    let place = Place::sqlite();
    let cluster = Arc::new(Cluster::new(&place).await);
    let barrier = cluster.router.barrier(Duration::from_secs(20)).await.unwrap();
    let writing = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.note(1, 7).await }
    });
    // The write has come to the gate when it is counted as waiting.
    while cluster.router.meter().waits.get() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(cluster.last(1).await, 0, "a read goes on, and sees nothing of it");
    assert!(!writing.is_finished());
    drop(barrier);
    writing.await.unwrap();
    assert_eq!(cluster.last(1).await, 7);
    Arc::into_inner(cluster).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_do_not_end_make_it_give_up_and_harm_nobody() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let keys = [Key::BigInt(1)];
    let ticket = cluster.router.enter(&map(), &keys, Access::Write).await.unwrap();
    let backup = place.folder.path().join("backup");
    let refused = cluster.back_up(&backup).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Busy(message) if message.contains("did not end")), "{refused}");
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1, "nothing is left but the data");
    cluster.note(2, 1).await;
    drop(ticket);
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_not_written_over() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backup");
    for taken in [backup.clone(), place.folder.path().join("backup.partial")] {
        std::fs::create_dir(&taken).unwrap();
        let refused = cluster.back_up(&backup).await.unwrap_err();
        assert!(matches!(refused, BackupError::Refused(_)), "{refused}");
        std::fs::remove_dir(&taken).unwrap();
    }
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_is_found() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backup");
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
    check(&backup).unwrap();
    let file = backup.join("shards/s2.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let found = check(&backup).unwrap_err();
    assert!(matches!(&found, BackupError::Damaged(message) if message.contains("s2")), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_on_the_shards_is_noticed_and_named() {
    let place = Place::postgres();
    let cluster = Cluster::new(&place).await;
    let other = Cluster::open(&place, &place.data(), 2).await;
    other.write(2, Statement::new("INSERT INTO notes VALUES (1)")).await;
    let refused = cluster.back_up(&place.folder.path().join("backup")).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Refused(message) if message.contains("s2")), "{refused}");
    other.close().await;
    cluster.close().await;
}

//! What is copied is of one moment, and a backup is there whole or not at all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polyshard_backup::{BackupError, Probe, Progress, Request, Restore, What, take, verify};
use polyshard_catalog::{OpState, REPAIR};
use polyshard_engine::{Database, Options, Statement, Target};
use polyshard_map::Key;
use polyshard_router::Access;

use crate::cluster::{Cluster, Place, SHARDS, Writer, clock, location, map, no_carriers, of_one_moment};

/// The last numbers in a backup, by the restored databases themselves.
async fn lasts(place: &Place, backup: &Path, round: usize) -> [i64; 3] {
    let data = place.folder.path().join(format!("looked-into-{round}"));
    let target = |_: Option<&_>, url: &str| -> Result<Target, BackupError> { Ok(place.target(&data, url)) };
    let (backup, catalog_url) = (location(backup), place.url("catalog"));
    Restore {
        backup: &backup,
        data: &data,
        carriers: &no_carriers,
        catalog_url: &catalog_url,
        target: &target,
    }
    .run()
    .await
    .unwrap();
    let mut found = [0; 3];
    for (at, shard) in SHARDS.iter().enumerate() {
        let file = Target::sqlite(data.join(format!("{shard}.db")));
        let database = Database::open(file, Options::default(), None).await.unwrap();
        let rows = database.read(Statement::new("SELECT coalesce(max(number), 0) FROM notes")).await.unwrap();
        found[at] = rows.one().unwrap().int(0).unwrap();
        database.close().await;
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn all_shards_are_copied_at_one_moment_while_writes_go_on() {
    let place = Place::sqlite();
    let cluster = Arc::new(Cluster::new(&place).await);
    let writer = Writer::start(&cluster);
    let mut numbers = Vec::new();
    for round in 0..4 {
        let backup = place.folder.path().join(format!("backup-{round}"));
        let before = writer.written.load(Ordering::SeqCst);
        // Slowly: without the barrier the writer would go on between one shard and the next.
        let manifest = cluster.back_up_slowly(&backup).await.unwrap();
        assert_eq!(manifest.shards.len(), 3);
        let copied = lasts(&place, &backup, round).await;
        assert!(of_one_moment(copied), "{copied:?} were never there at the same time");
        assert!(copied[2] >= before, "what was acknowledged before is in it: {copied:?}, {before}");
        numbers.push(copied[0]);
    }
    writer.stop().await;
    assert!(numbers.is_sorted() && numbers.first() < numbers.last(), "writes went on: {numbers:?}");
    Arc::into_inner(cluster).unwrap().close().await;
}

/// The test above can fail: copies that are held as slowly, but without the barrier, are of many moments.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_barrier_copies_are_of_many_moments() {
    let place = Place::sqlite();
    let cluster = Arc::new(Cluster::new(&place).await);
    let writer = Writer::start(&cluster);
    let mut apart = 0;
    for round in 0..10 {
        let mut held = Vec::new();
        for tenant in 1..=3 {
            let ticket = cluster.router.enter(&map(), &[Key::BigInt(tenant)], Access::Read).await.unwrap();
            let shard = cluster.router.administer(ticket.shard()).await.unwrap();
            held.push(shard.carrier().await.unwrap().snapshot().await.unwrap());
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        let mut numbers = [0; 3];
        for (at, held) in held.into_iter().enumerate() {
            let file = place.folder.path().join(format!("apart-{round}-{at}"));
            held.copy_to(&file, |_, _| ()).await.unwrap();
            let copy = rusqlite::Connection::open(file).unwrap();
            let sql = "SELECT coalesce(max(number), 0) FROM notes";
            numbers[at] = copy.query_row(sql, [], |row| row.get(0)).unwrap();
        }
        apart += usize::from(!of_one_moment(numbers));
    }
    writer.stop().await;
    assert!(apart > 0, "the writer is too slow to tell");
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
    let backup = place.folder.path().join("backups/monday");
    let refused = cluster.back_up(&backup).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Busy(message) if message.contains("did not end")), "{refused}");
    assert!(!backup.exists(), "nothing is left");
    cluster.note(2, 1).await;
    drop(ticket);
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
}

/// A repair carries rows from shard to shard, and knows nothing of the moment.
#[tokio::test(flavor = "multi_thread")]
async fn no_moment_is_one_in_which_rows_are_put_right() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let body = serde_json::json!({});
    let mut running = cluster.catalog.begin_procedure(REPAIR, None, body.clone(), "").await.unwrap();
    let refused = cluster.back_up(&place.folder.path().join("monday")).await.unwrap_err();
    let named = |why: &str| why.contains("repair") && why.contains(&running.id.to_string());
    assert!(matches!(&refused, BackupError::Busy(why) if named(why)), "{refused}");
    running.state = OpState::Done;
    cluster.catalog.save_procedure(&running).await.unwrap();
    // One that begins and ends while shards are held; then it is tried again.
    let (catalog, held) = (cluster.catalog.clone(), Arc::new(AtomicUsize::new(0)));
    let count = held.clone();
    let probe: Probe = Arc::new(move |_| {
        let (catalog, body, first) =
            (catalog.clone(), body.clone(), count.fetch_add(1, Ordering::SeqCst) == 0);
        Box::pin(async move {
            if first {
                let mut short = catalog.begin_procedure(REPAIR, None, body, "").await.unwrap();
                short.state = OpState::Done;
                catalog.save_procedure(&short).await.unwrap();
            }
        })
    });
    let request = cluster.request(&place.folder.path().join("tuesday"), What::Everything);
    cluster.take(&Request { probe: Some(probe), ..request }).await.unwrap();
    assert_eq!(held.load(Ordering::SeqCst), 2 * SHARDS.len());
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_not_written_over() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backup");
    std::fs::create_dir(&backup).unwrap();
    std::fs::write(backup.join("somebody's"), "file").unwrap();
    let refused = cluster.back_up(&backup).await.unwrap_err();
    assert!(matches!(refused, BackupError::Refused(_)), "{refused}");
    assert_eq!(std::fs::read_dir(&backup).unwrap().count(), 1);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_cancelled_leaves_nothing_under_its_name() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("backups/monday");
    let progress = Progress::default();
    progress.cancel();
    let request = cluster.request(&backup, What::Everything);
    let refused = take(&cluster.router, &cluster.catalog, &request, &clock(), &progress).await.unwrap_err();
    assert!(refused.to_string().contains("cancelled"), "{refused}");
    assert!(!backup.exists());
    cluster.back_up(&backup).await.unwrap();
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_shards_are_copied_and_an_unknown_one_is_named() {
    let place = Place::sqlite();
    let cluster = Cluster::new(&place).await;
    let backup = place.folder.path().join("s2");
    let shard = |name: &str| What::Shards(vec![polyshard_map::ShardId::new(name).unwrap()]);
    let manifest = cluster.take(&cluster.request(&backup, shard("s2"))).await.unwrap();
    assert_eq!((manifest.what().as_str(), manifest.catalog.is_none(), manifest.maps.len()), ("s2", true, 1));
    verify(&location(&backup)).await.unwrap();
    let refused = cluster.take(&cluster.request(&place.folder.path().join("s9"), shard("s9"))).await;
    assert!(matches!(&refused, Err(BackupError::Refused(why)) if why.contains("s9")), "{refused:?}");
    cluster.close().await;
}

/// Two processes, the writer in the one that does not take the backup: A then B; B in the copy means A is in it.
#[tokio::test(flavor = "multi_thread")]
async fn writes_of_other_processes_wait_too() {
    let place = Place::postgres();
    let cluster = Cluster::new(&place).await;
    let other = Arc::new(Cluster::open(&place, &place.data(), 2).await);
    let writer = Writer::start(&other);
    while writer.written.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let backup = place.folder.path().join("backup");
    cluster.back_up_slowly(&backup).await.unwrap();
    let taken = writer.written.load(Ordering::SeqCst);
    while writer.written.load(Ordering::SeqCst) < taken + 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    writer.stop().await;
    Arc::into_inner(other).unwrap().close().await;
    cluster.close().await;
    let server = place.server.as_ref().unwrap();
    for name in SHARDS.iter().chain(&["catalog"]) {
        server.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
        server.create_database(name);
    }
    let data = place.folder.path().join("restored");
    let target = |_: Option<&_>, url: &str| -> Result<Target, BackupError> { Ok(place.target(&data, url)) };
    let (from, catalog_url) = (location(&backup), place.url("catalog"));
    Restore {
        backup: &from,
        data: &data,
        carriers: &no_carriers,
        catalog_url: &catalog_url,
        target: &target,
    }
    .run()
    .await
    .unwrap();
    let again = Cluster::open(&place, &data, 3).await;
    let numbers = [again.last(1).await, again.last(2).await, again.last(3).await];
    assert!(of_one_moment(numbers) && numbers[2] > 0, "{numbers:?}");
    again.note(1, 1_000_000).await;
    again.close().await;
}

/// A process that does not hold its writes is named, and there is no backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_does_not_answer_is_named() {
    let place = Place::postgres();
    let cluster = Cluster::new(&place).await;
    let other = Cluster::open(&place, &place.data(), 2).await;
    let held = other.router.enter(&map(), &[Key::BigInt(2)], Access::Write).await.unwrap();
    let backup = place.folder.path().join("backups/monday");
    let refused = cluster.back_up(&backup).await.unwrap_err();
    let named = matches!(&refused, BackupError::Busy(why) if why.contains("router-00000002"));
    assert!(named, "{refused}");
    assert!(!backup.exists());
    drop(held);
    cluster.back_up(&backup).await.unwrap();
    other.note(2, 1).await;
    other.close().await;
    cluster.close().await;
}

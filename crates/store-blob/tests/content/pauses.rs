//! Writers and sweeps that stop between two steps, as when their process is paused: locks of PostgreSQL stop them.

use std::time::Duration;

use polyshard_store_blob::{BlockSource, CopyKind, CopyOptions, CopySource, NewBlob, StoreError};

use crate::place::Place;
use crate::process::{Beside, blob, bytes, unconditional, upload};

const UNITS: i64 = 450;

/// Waits until another session waits for a lock.
async fn someone_waits(beside: &mut Beside, sessions: i64) {
    for _ in 0..500 {
        let waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted";
        if beside.run(waiting).await.one().unwrap().int(0).unwrap() >= sessions {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("nobody has come to wait for a lock");
}

/// A content that was announced can be named only as long as none of its rows has been removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_is_not_named_when_its_pages_began_to_go() {
    let process = Place::postgres().open().await;
    let (new, size) = (NewBlob::default(), UNITS as u64 * 64 * 1024);
    process.store.create_pages(&blob("from"), size, 0, &new, unconditional()).await.unwrap();
    for unit in 0..UNITS as u64 {
        process
            .store
            .put_pages(&blob("from"), unit * 65_536, upload(&[1; 512]), unconditional())
            .await
            .unwrap();
    }
    process.put("to", b"old").await;
    let mut writer_stops = process.beside("to").await;
    writer_stops.run("SELECT 1 FROM {blob_item} WHERE name = 'to' FOR UPDATE").await;
    let source = CopySource::Own {
        name: blob("from"),
        snapshot: None,
        conditions: Box::default(),
        url: "http://localhost/acct/box/from".to_owned(),
    };
    let (to, options) = (blob("to"), CopyOptions::default());
    let copy = process.store.copy_blob(&to, source, CopyKind::Whole, &options, unconditional());
    let sweep = async {
        someone_waits(&mut writer_stops, 1).await;
        assert_eq!(process.count("blob_page").await, 2 * UNITS, "the copy is complete, and not named");
        let mut sweep_stops = process.beside("to").await;
        let last =
            format!("SELECT 1 FROM {{blob_page}} WHERE name = 'to' AND page = {} FOR UPDATE", UNITS - 1);
        sweep_stops.run(&last).await;
        let sweeps = async {
            for _ in 0..3 {
                process.store.sweep().await;
            }
        };
        let go_on = async {
            // The sweep has removed some of the rows; now the writer goes on.
            someone_waits(&mut writer_stops, 2).await;
            assert!(process.count("blob_page").await < 2 * UNITS);
            writer_stops.commit().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            sweep_stops.commit().await;
        };
        tokio::join!(sweeps, go_on);
    };
    let (copied, ()) = tokio::join!(copy, sweep);
    match copied {
        Err(StoreError::Contended(_)) => assert_eq!(process.all("to", None).await.unwrap(), b"old"),
        Err(error) => panic!("{error}"),
        Ok(_) => {
            let (from, to) =
                (process.all("from", None).await.unwrap(), process.all("to", None).await.unwrap());
            assert!(from == to, "the copy has lost pages");
        }
    }
    process.expect_nothing_left(&["from", "to"]).await;
    process.close().await;
}

/// What a sweep takes for unused must have been unused at one moment: lists that were read one after the other while
/// the blob got another list do not show that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_sweep_removes_nothing_that_a_newer_list_has() {
    let process = Place::postgres().open().await;
    process.put_block("a", "one", &bytes(1500, 1)).await.unwrap();
    process.commit("a", &[(BlockSource::Latest, "one")]).await.unwrap();
    process.put_block("a", "two", &bytes(1500, 2)).await.unwrap();
    // The first list is to be removed; the second one has its object too.
    process.commit("a", &[(BlockSource::Latest, "one"), (BlockSource::Latest, "two")]).await.unwrap();
    let expected = [bytes(1500, 1), bytes(1500, 2)].concat();
    let mut other = process.beside("a").await;
    other.run("LOCK TABLE {blob_extent} IN ACCESS EXCLUSIVE MODE").await;
    let meanwhile = async {
        // The sweep knows the second list, and is about to read it.
        someone_waits(&mut other, 1).await;
        // The blob gets a third one with the same blocks, and another sweep removes the second.
        let columns = "placement, dataset, name, start, seq, length, blocks, body";
        let second = "content = (SELECT content FROM {blob_item} WHERE name = 'a')";
        other
            .run(&format!(
                "INSERT INTO {{blob_extent}} (content, {columns}) SELECT 77, {columns} FROM {{blob_extent}} \
                 WHERE name = 'a' AND {second}"
            ))
            .await;
        other.run(&format!("DELETE FROM {{blob_extent}} WHERE name = 'a' AND {second}")).await;
        other.run("UPDATE {blob_item} SET content = 77, version = version + 1 WHERE name = 'a'").await;
        other.commit().await;
    };
    tokio::join!(process.store.sweep(), meanwhile);
    for _ in 0..5 {
        process.store.sweep().await;
    }
    assert_eq!(process.memory.count(), 2, "objects");
    assert!(process.all("a", None).await.unwrap() == expected);
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

/// Two processes may put one block at the same time: the one that comes second puts it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_another_process_puts_too_is_put() {
    let process = Place::postgres().open().await;
    process.put_block("a", "one", b"first").await.unwrap();
    let mut other = process.beside("a").await;
    let columns = "size, at, object, body";
    let put = format!(
        "INSERT INTO {{blob_block}} (placement, dataset, name, stage, block_id, seq, {columns}) \
         SELECT placement, dataset, name, stage, block_id, seq + 1, {columns} FROM {{blob_block}} WHERE name = 'a'"
    );
    assert_eq!(other.run(&put).await.affected(), 1);
    let go_on = async {
        someone_waits(&mut other, 1).await;
        // For so long that the put, which was tried again with less beside it, is tried for the last time.
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.commit().await;
    };
    let (put, ()) = tokio::join!(process.put_block("a", "one", b"last"), go_on);
    put.unwrap();
    process.commit("a", &[(BlockSource::Latest, "one")]).await.unwrap();
    assert_eq!(process.all("a", None).await.unwrap(), b"last");
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

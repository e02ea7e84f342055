//! Blocks and lists of blocks.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use polyshard_store_blob::{BlockListKind, BlockSource, StoreError};

use crate::place::Place;
use crate::process::{Process, blob, bytes, id, unconditional, upload};

on_both_engines! {
    a_list_has_as_many_blocks_as_the_service_allows
    ids_of_uncommitted_blocks_are_equally_long
    blocks_are_put_at_the_same_time
    a_block_put_again_does_not_change_what_was_committed
    a_read_of_what_was_removed_fails
    nothing_is_put_that_breaks_off
    a_block_can_be_put_by_many_at_once
}

const LATEST: BlockSource = BlockSource::Latest;

async fn sizes(process: &Process, name: &str) -> (Vec<u64>, Vec<u64>) {
    let list =
        process.store.block_list(&blob(name), None, BlockListKind::All, unconditional()).await.unwrap();
    let sizes = |blocks: Vec<polyshard_store_blob::Block>| blocks.iter().map(|block| block.size).collect();
    (sizes(list.committed), sizes(list.uncommitted))
}

async fn a_list_has_as_many_blocks_as_the_service_allows(place: Place) {
    let process = place.open().await;
    process.put_block("a", "in row", b"x").await.unwrap();
    process.put_block("a", "object", &bytes(1500, 1)).await.unwrap();
    // Many more bytes of lists than one transaction writes: they are announced and written before.
    let list: Vec<_> =
        (0..50_000).map(|at| (LATEST, if at == 49_999 { "object" } else { "in row" })).collect();
    process.commit("a", &list).await.unwrap();
    let (committed, uncommitted) = sizes(&process, "a").await;
    assert_eq!((committed.len(), committed[49_999], uncommitted.len()), (50_000, 1500, 0));
    let expected = [vec![b'x'; 49_999], bytes(1500, 1)].concat();
    assert!(process.all("a", None).await.unwrap() == expected);
    assert!(process.range("a", None, (49_990, 50_010)).await.unwrap() == expected[49_990..50_010]);
    let too_many: Vec<_> = (0..50_001).map(|_| (LATEST, "in row")).collect();
    let refused = process.commit("a", &too_many).await;
    assert!(matches!(refused, Err(StoreError::TooManyBlocks(50_000))), "{refused:?}");
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

async fn ids_of_uncommitted_blocks_are_equally_long(place: Place) {
    let process = place.open().await;
    process.put_block("a", "one", b"1").await.unwrap();
    let refused = process.put_block("a", "four", b"2").await;
    assert!(matches!(refused, Err(StoreError::InvalidBlockId)), "{refused:?}");
    let refused = process.put_block("a", "four", &bytes(1500, 1)).await;
    assert!(matches!(refused, Err(StoreError::InvalidBlockId)), "{refused:?}");
    process.commit("a", &[(LATEST, "one")]).await.unwrap();
    // Committed blocks do not count, but both kinds may be listed together.
    process.put_block("a", "four", b"2").await.unwrap();
    process.commit("a", &[(LATEST, "four"), (LATEST, "one"), (LATEST, "four")]).await.unwrap();
    assert_eq!(process.all("a", None).await.unwrap(), b"212");
    let long = "x".repeat(65);
    let refused = process.put_block("a", &long, b"1").await;
    assert!(matches!(refused, Err(StoreError::InvalidBlockId)), "{refused:?}");
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

async fn blocks_are_put_at_the_same_time(place: Place) {
    let process = place.open().await;
    let names: Vec<String> = (0..40).map(|at| format!("block-{at:02}")).collect();
    let puts = names.iter().enumerate().map(|(at, name)| {
        let data = bytes(if at % 2 == 0 { 10 } else { 1500 }, at as u64);
        let process = &process;
        async move { process.put_block("a", name, &data).await.unwrap() }
    });
    futures_util::stream::iter(puts).buffer_unordered(16).collect::<Vec<()>>().await;
    let (committed, uncommitted) = sizes(&process, "a").await;
    assert_eq!((committed.len(), uncommitted.len()), (0, 40));
    let list: Vec<_> = names.iter().rev().map(|name| (BlockSource::Uncommitted, name.as_str())).collect();
    process.commit("a", &list).await.unwrap();
    let expected = (0..40).rev().map(|at| bytes(if at % 2 == 0 { 10 } else { 1500 }, at));
    assert!(process.all("a", None).await.unwrap() == expected.collect::<Vec<_>>().concat());
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

async fn a_block_put_again_does_not_change_what_was_committed(place: Place) {
    let process = place.open().await;
    for data in [b"old".as_slice(), b"new"] {
        process.put_block("a", "one", data).await.unwrap();
    }
    process.put_block("a", "two", b"2").await.unwrap();
    process.commit("a", &[(LATEST, "one"), (LATEST, "two")]).await.unwrap();
    let taken = process.snapshot("a").await;
    process.put_block("a", "one", b"newest").await.unwrap();
    assert_eq!(process.all("a", None).await.unwrap(), b"new2");
    process.commit("a", &[(BlockSource::Committed, "one"), (LATEST, "one")]).await.unwrap();
    for _ in 0..3 {
        process.store.sweep().await;
    }
    assert_eq!(process.all("a", None).await.unwrap(), b"newnewest");
    assert_eq!(process.all("a", Some(taken)).await.unwrap(), b"new2");
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

async fn a_read_of_what_was_removed_fails(place: Place) {
    let process = place.open().await;
    for at in 0..40 {
        process.put_block("a", &format!("{at:02}"), &bytes(1500, at)).await.unwrap();
    }
    let ids: Vec<String> = (0..40).map(|at| format!("{at:02}")).collect();
    let list: Vec<_> = ids.iter().map(|id| (LATEST, id.as_str())).collect();
    process.commit("a", &list).await.unwrap();
    let mut download = process.store.get_blob(&blob("a"), None, None, unconditional()).await.unwrap();
    download.bytes.next().await.unwrap().unwrap();
    process.put("a", b"other").await;
    for _ in 0..5 {
        process.store.sweep().await;
    }
    let rest: Result<Vec<Bytes>, _> = download.bytes.try_collect().await;
    assert!(rest.is_err());
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

async fn nothing_is_put_that_breaks_off(place: Place) {
    let process = place.open().await;
    for length in [10, 1500] {
        let short = polyshard_store_blob::Upload { length: length + 1, ..upload(&bytes(length as usize, 1)) };
        let refused = process.store.put_block(&blob("a"), &id("one"), short, unconditional()).await;
        assert!(matches!(refused, Err(StoreError::Client(_))), "{refused:?}");
        let mut wrong = upload(&bytes(length as usize, 1));
        wrong.expected.md5 = Some([1; 16]);
        let refused = process.store.put_block(&blob("a"), &id("one"), wrong, unconditional()).await;
        assert!(matches!(refused, Err(StoreError::Checksum(_))), "{refused:?}");
    }
    let none = process.store.block_list(&blob("a"), None, BlockListKind::All, unconditional()).await;
    assert!(matches!(none, Err(StoreError::NoSuchBlob(_))), "{none:?}");
    process.expect_nothing_left(&[]).await;
    process.close().await;
}

/// The protocol lets clients put one block several times at once; each put is answered, and one of them counts.
async fn a_block_can_be_put_by_many_at_once(place: Place) {
    let process = place.open().await;
    process.put_block("a", "one", b"first").await.unwrap();
    for round in 0..5 {
        let puts = (0..16).map(|at| {
            let process = &process;
            async move { process.put_block("a", "one", &[at + 16 * round; 3]).await }
        });
        let puts: Vec<_> = futures_util::stream::iter(puts).buffer_unordered(16).collect().await;
        assert!(puts.iter().all(Result::is_ok), "{puts:?}");
    }
    process.commit("a", &[(LATEST, "one")]).await.unwrap();
    let all = process.all("a", None).await.unwrap();
    assert!(all.len() == 3 && (64..80).contains(&all[0]), "{all:?}");
    process.expect_nothing_left(&["a"]).await;
    process.close().await;
}

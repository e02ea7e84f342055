//! Append blobs.

use futures_util::StreamExt;
use polyshard_store_blob::{Appended, Conditions, NewBlob, StoreError};

use crate::place::Place;
use crate::process::{Process, blob, bytes, unconditional, upload};

on_both_engines! {
    appends_at_the_same_time_are_all_there
    conditions_of_appends_are_held
    a_snapshot_stays_as_long_as_it_was
    a_read_of_many_appends_holds_few_of_them
}

async fn append(process: &Process, data: &[u8], conditions: &Conditions) -> Result<Appended, StoreError> {
    process.store.append(&blob("log"), upload(data), conditions).await
}

async fn create(process: &Process) {
    process.store.create_append(&blob("log"), &NewBlob::default(), unconditional()).await.unwrap();
}

async fn appends_at_the_same_time_are_all_there(place: Place) {
    let process = place.open().await;
    create(&process).await;
    let appends = (0..60).map(|at| {
        let process = &process;
        async move {
            let data = vec![at; if at % 3 == 0 { 1500 } else { 30 }];
            (at, append(process, &data, unconditional()).await.unwrap().offset)
        }
    });
    let mut offsets: Vec<(u8, u64)> =
        futures_util::stream::iter(appends).buffer_unordered(16).collect().await;
    let all = process.all("log", None).await.unwrap();
    assert_eq!(all.len(), 20 * 1500 + 40 * 30);
    offsets.sort_by_key(|(_, offset)| *offset);
    for (at, offset) in offsets {
        let length = if at % 3 == 0 { 1500 } else { 30 };
        assert!(all[offset as usize..][..length].iter().all(|byte| *byte == at));
    }
    let tail = process.range("log", None, (29_000, all.len() as u64)).await.unwrap();
    assert!(tail == all[29_000..]);
    process.expect_nothing_left(&["log"]).await;
    process.close().await;
}

async fn conditions_of_appends_are_held(place: Place) {
    let process = place.open().await;
    create(&process).await;
    let at = |position| Conditions { append_position: Some(position), ..Conditions::default() };
    assert_eq!(append(&process, b"abc", &at(0)).await.unwrap().offset, 0);
    let refused = append(&process, b"def", &at(0)).await;
    assert!(matches!(refused, Err(StoreError::Condition(_))), "{refused:?}");
    let short = Conditions { size_max: Some(5), ..Conditions::default() };
    let refused = append(&process, b"def", &short).await;
    assert!(matches!(refused, Err(StoreError::Condition(_))), "{refused:?}");
    assert_eq!(append(&process, b"de", &short).await.unwrap().offset, 3);
    let sealed = process.store.seal(&blob("log"), unconditional()).await.unwrap();
    assert!(sealed.props.is_sealed);
    let refused = append(&process, b"f", unconditional()).await;
    assert!(matches!(refused, Err(StoreError::Sealed)), "{refused:?}");
    assert_eq!(process.all("log", None).await.unwrap(), b"abcde");
    process.expect_nothing_left(&["log"]).await;
    process.close().await;
}

async fn a_snapshot_stays_as_long_as_it_was(place: Place) {
    let process = place.open().await;
    create(&process).await;
    let empty = process.snapshot("log").await;
    append(&process, &bytes(1500, 1), unconditional()).await.unwrap();
    let taken = process.snapshot("log").await;
    append(&process, b"more", unconditional()).await.unwrap();
    assert_eq!(process.all("log", Some(empty)).await.unwrap(), b"");
    assert!(process.all("log", Some(taken)).await.unwrap() == bytes(1500, 1));
    // The blob is made anew; its snapshots keep what it was.
    create(&process).await;
    for _ in 0..3 {
        process.store.sweep().await;
    }
    assert!(process.all("log", Some(taken)).await.unwrap() == bytes(1500, 1));
    assert_eq!(process.all("log", None).await.unwrap(), b"");
    process.expect_nothing_left(&["log"]).await;
    process.close().await;
}

/// A read loads a bounded part of the blob, however long or short the appends are. That shows when its rows are removed
/// meanwhile: what was not loaded before is not sent.
async fn a_read_of_many_appends_holds_few_of_them(place: Place) {
    const LONG: usize = 64 * 1024;
    let process = place.open().await;
    create(&process).await;
    let store = process.with_inline(LONG as u64);
    for (count, length) in [(16, 1), (80, LONG)] {
        for _ in 0..count {
            store.append(&blob("log"), upload(&vec![7; length]), unconditional()).await.unwrap();
        }
    }
    assert_eq!(process.all("log", None).await.unwrap(), vec![7; 16 + 80 * LONG]);
    let mut download = store.get_blob(&blob("log"), None, None, unconditional()).await.unwrap();
    let mut got = download.bytes.next().await.unwrap().unwrap().len();
    create(&process).await;
    for _ in 0..10 {
        store.sweep().await;
    }
    let error = loop {
        match download.bytes.next().await.expect("it cannot be whole") {
            Ok(piece) => got += piece.len(),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, polyshard_store_blob::ObjectError::Gone(_)), "{error}");
    assert!(got <= 3 * 1024 * 1024, "{got} bytes were loaded");
    process.expect_nothing_left(&["log"]).await;
    process.close().await;
}

//! Copies of blobs.

use polyshard_store_blob::{
    BlobKind, BlockListKind, BlockSource, Conditions, ContentHeaders, CopyKind, CopyOptions, CopySource,
    CopyStatus, CopyTags, NewBlob, StoreError, Written,
};

use crate::place::Place;
use crate::process::{Process, blob, bytes, unconditional, upload};

on_both_engines! {
    a_copy_is_what_its_source_is
    a_copy_outlives_its_source
    only_what_may_be_copied_is_copied
}

async fn copy(process: &Process, from: &str, to: &str, kind: CopyKind) -> Result<Written, StoreError> {
    let source = CopySource::Own {
        name: blob(from),
        snapshot: None,
        conditions: Box::default(),
        url: format!("http://localhost/acct/box/{from}"),
    };
    process.store.copy_blob(&blob(to), source, kind, &CopyOptions::default(), unconditional()).await
}

async fn a_copy_is_what_its_source_is(place: Place) {
    let process = place.open().await;
    let new = NewBlob {
        headers: ContentHeaders { content_type: Some("text/x".to_owned()), ..ContentHeaders::default() },
        metadata: vec![("Key".to_owned(), "value".to_owned())],
        tags: vec![("tag".to_owned(), "1".to_owned())],
        tier: None,
    };
    process.put_block("a", "one", &bytes(900, 1)).await.unwrap();
    process.put_block("a", "two", &bytes(1500, 2)).await.unwrap();
    let list: Vec<_> = ["one", "two", "one"].map(|id| (BlockSource::Latest, crate::process::id(id))).into();
    process.store.put_block_list(&blob("a"), &list, &new, unconditional()).await.unwrap();
    let done = copy(&process, "a", "b", CopyKind::Whole).await.unwrap().blob;
    let state = done.props.copy.as_ref().unwrap();
    assert_eq!((state.status, state.progress), (CopyStatus::Success, (3300, 3300)));
    assert_eq!(state.source, "http://localhost/acct/box/a");
    assert_eq!((&done.props.headers, &done.props.metadata), (&new.headers, &new.metadata));
    assert!(done.props.tags.is_empty());
    assert!(process.all("b", None).await.unwrap() == process.all("a", None).await.unwrap());
    let blocks = async |name: &str| {
        let list =
            process.store.block_list(&blob(name), None, BlockListKind::Committed, unconditional()).await;
        list.unwrap().committed
    };
    assert_eq!(blocks("b").await, blocks("a").await);
    // Blocks of the copy can be used in a new list, and the copy stays readable in ranges.
    let list = [(BlockSource::Committed, "two"), (BlockSource::Committed, "one")];
    process.commit("b", &list).await.unwrap();
    assert!(process.all("b", None).await.unwrap() == [bytes(1500, 2), bytes(900, 1)].concat());
    let put = copy(&process, "a", "c", CopyKind::Put).await.unwrap().blob;
    assert_eq!((put.kind, put.props.copy), (BlobKind::Block, None));
    assert!(process.all("c", None).await.unwrap() == process.all("a", None).await.unwrap());
    process.expect_nothing_left(&["a", "b", "c"]).await;
    process.close().await;
}

async fn a_copy_outlives_its_source(place: Place) {
    let process = place.open().await;
    let new = NewBlob::default();
    process.store.create_append(&blob("log"), &new, unconditional()).await.unwrap();
    for number in 0..3 {
        process.store.append(&blob("log"), upload(&bytes(700, number)), unconditional()).await.unwrap();
    }
    process.store.create_pages(&blob("disk"), 1024 * 1024, 3, &new, unconditional()).await.unwrap();
    process.store.put_pages(&blob("disk"), 512_000, upload(&[1; 1024]), unconditional()).await.unwrap();
    let (log, disk) = (process.all("log", None).await.unwrap(), process.all("disk", None).await.unwrap());
    for (from, to) in [("log", "log 2"), ("disk", "disk 2")] {
        copy(&process, from, to, CopyKind::Whole).await.unwrap();
    }
    process.put("log", b"").await;
    process.put("disk", b"").await;
    for _ in 0..3 {
        process.store.sweep().await;
    }
    process.store.append(&blob("log 2"), upload(b"more"), unconditional()).await.unwrap();
    assert!(process.all("log 2", None).await.unwrap() == [log, b"more".to_vec()].concat());
    process.store.clear_pages(&blob("disk 2"), 512_000..512_512, unconditional()).await.unwrap();
    let copied = process.all("disk 2", None).await.unwrap();
    assert!(copied[512_512..] == disk[512_512..] && copied[..512_512].iter().all(|byte| *byte == 0));
    process.expect_nothing_left(&["log", "disk", "log 2", "disk 2"]).await;
    process.close().await;
}

async fn only_what_may_be_copied_is_copied(place: Place) {
    let process = place.open().await;
    let missing = copy(&process, "none", "b", CopyKind::Whole).await;
    assert!(matches!(missing, Err(StoreError::Source(_))), "{missing:?}");
    process.store.create_pages(&blob("disk"), 512, 0, &NewBlob::default(), unconditional()).await.unwrap();
    let refused = copy(&process, "disk", "b", CopyKind::Sync).await;
    assert!(matches!(refused, Err(StoreError::Source(_))), "{refused:?}");
    process.put("a", &bytes(1500, 1)).await;
    let etag = process.store.head_blob(&blob("a"), None, unconditional()).await.unwrap().etag;
    let other = Conditions { modified_since: Some(i64::MAX / 2), ..Conditions::default() };
    let source =
        CopySource::Own { name: blob("a"), snapshot: None, conditions: Box::new(other), url: String::new() };
    let options = CopyOptions { tags: CopyTags::OfSource, ..CopyOptions::default() };
    let refused =
        process.store.copy_blob(&blob("b"), source, CopyKind::Whole, &options, unconditional()).await;
    assert!(matches!(refused, Err(StoreError::Source(_))), "{refused:?}");
    assert!(matches!(process.all("b", None).await, Err(StoreError::NoSuchBlob(_))));
    let copied = copy(&process, "a", "b", CopyKind::Sync).await.unwrap();
    assert_ne!(copied.blob.etag, etag);
    let id = copied.blob.props.copy.unwrap().id;
    let abort = process.store.abort_copy(&blob("b"), id, None).await;
    assert!(matches!(abort, Err(StoreError::NoPendingCopy)), "{abort:?}");
    process.expect_nothing_left(&["a", "b", "disk"]).await;
    process.close().await;
}

//! Deleted blobs that are kept for a time, and brought back or removed for good.

use polyshard_store_blob::{
    BlobPropertiesPatch, BlobQuery, Conditions, DeleteRetention, DeleteSnapshots, Deleted, Include, Listed,
    StoreError,
};

use crate::place::Place;
use crate::tools::{LARGE, Tried, blob, container, pattern, read};

on_both_engines! {
    deleted_blobs_can_be_brought_back
    overwritten_blobs_are_kept_too
    what_was_kept_for_long_enough_is_removed
}

async fn keep(tried: &Tried, days: Option<u32>) {
    let delete_retention = Some(DeleteRetention { days, allow_permanent_delete: false });
    let patch = BlobPropertiesPatch { delete_retention, ..BlobPropertiesPatch::default() };
    tried.store.set_properties("acct", patch).await.unwrap();
}

/// Names with whether they are snapshots and deleted.
async fn list(tried: &Tried, include: Include) -> Vec<(String, bool, bool)> {
    let query = BlobQuery { include, max: 100, ..BlobQuery::default() };
    let page = tried.store.list_blobs(&container(), &query).await.unwrap();
    let entries = page.entries.into_iter().map(|entry| match entry {
        Listed::Blob(blob) => (blob.name, blob.snapshot != 0, blob.deleted != 0),
        Listed::Prefix(prefix) => panic!("{prefix}"),
    });
    entries.collect()
}

const ALL: Include = Include { snapshots: true, uncommitted: true, deleted: true };

async fn deleted_blobs_can_be_brought_back(place: Place) {
    let tried = Tried::new(&place).await;
    let (store, none) = (&tried.store, Conditions::default());
    keep(&tried, Some(1)).await;
    tried.put("a", pattern(LARGE, 1)).await;
    let (id, _) = store.snapshot(&blob("a"), None, &none).await.unwrap();
    let deleted = store.delete_blob(&blob("a"), None, DeleteSnapshots::Include, &none).await.unwrap();
    assert_eq!(deleted, Deleted::Kept);
    assert_eq!(tried.get("a").await, None);
    assert!(list(&tried, Include::default()).await.is_empty());
    let shown = [("a".to_owned(), true, true), ("a".to_owned(), false, true)];
    assert_eq!(list(&tried, ALL).await, shown);
    tried.sweep().await;
    assert_eq!(tried.objects(), 1, "its day is not over");
    store.undelete_blob(&blob("a")).await.unwrap();
    assert_eq!(tried.get("a").await, Some(pattern(LARGE, 1)));
    let snapshot = store.get_blob(&blob("a"), Some(id), None, &none).await.unwrap();
    assert_eq!(read(snapshot).await, pattern(LARGE, 1));
    // What is there may be undeleted, what never was may not.
    store.undelete_blob(&blob("a")).await.unwrap();
    let never = store.undelete_blob(&blob("b")).await;
    assert!(matches!(never, Err(StoreError::NoSuchBlob(_))), "{never:?}");
    tried.close().await;
}

async fn overwritten_blobs_are_kept_too(place: Place) {
    let tried = Tried::new(&place).await;
    let (store, none) = (&tried.store, Conditions::default());
    keep(&tried, Some(1)).await;
    tried.put("a", pattern(LARGE, 1)).await;
    tried.put("a", "second").await;
    store.delete_blob(&blob("a"), None, DeleteSnapshots::Refuse, &none).await.unwrap();
    tried.put("a", "third").await;
    tried.sweep().await;
    let shown = [("a".to_owned(), true, true), ("a".to_owned(), true, true), ("a".to_owned(), false, false)];
    assert_eq!(list(&tried, ALL).await, shown);
    assert_eq!(tried.get("a").await.as_deref(), Some(&b"third"[..]));
    store.undelete_blob(&blob("a")).await.unwrap();
    let query = BlobQuery { include: ALL, max: 100, ..BlobQuery::default() };
    let mut contents = Vec::new();
    for entry in store.list_blobs(&container(), &query).await.unwrap().entries {
        let Listed::Blob(listed) = entry else { panic!("a blob") };
        let got = store.get_blob(&blob("a"), listed.snapshot_id(), None, &none).await.unwrap();
        contents.push(read(got).await);
    }
    assert_eq!(contents, [pattern(LARGE, 1), b"second".to_vec(), b"third".to_vec()]);
    tried.close().await;
}

async fn what_was_kept_for_long_enough_is_removed(place: Place) {
    let tried = Tried::new(&place).await;
    let (store, none) = (&tried.store, Conditions::default());
    keep(&tried, Some(0)).await;
    tried.put("a", pattern(LARGE, 1)).await;
    store.snapshot(&blob("a"), None, &none).await.unwrap();
    tried.put("a", pattern(LARGE, 2)).await;
    store.delete_blob(&blob("a"), None, DeleteSnapshots::Include, &none).await.unwrap();
    // Without the switch, what is deleted is gone.
    keep(&tried, None).await;
    tried.put("b", pattern(LARGE, 3)).await;
    let deleted = store.delete_blob(&blob("b"), None, DeleteSnapshots::Refuse, &none).await.unwrap();
    assert_eq!(deleted, Deleted::Gone);
    tried.sweep().await;
    assert_eq!((tried.rows("blob_item").await, tried.rows("blob_pending").await, tried.objects()), (0, 0, 0));
    tried.close().await;
}

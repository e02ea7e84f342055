//! Blobs that are put whole, read, changed and deleted, tried alike on both engines.

use polyshard_store_blob::{
    ByteRange, Conditions, ContentHeaders, DeleteSnapshots, Deleted, Expected, LeaseAction, NewBlob,
    PropsChange, StoreError, Tier, Upload,
};
use uuid::Uuid;

use crate::place::Place;
use crate::tools::{LARGE, Tried, blob, pattern, read, upload};

on_both_engines! {
    bytes_are_read_as_they_were_put
    what_is_kept_with_a_blob_can_be_changed
    wrong_bytes_are_not_kept
    snapshots_stay_as_they_were
    a_lease_keeps_others_out
    a_tier_is_set_only_with_the_lease_that_there_is
    blobs_lie_on_all_shards_by_their_path
}

fn none() -> Conditions {
    Conditions::default()
}

async fn bytes_are_read_as_they_were_put(place: Place) {
    let tried = Tried::new(&place).await;
    let store = &tried.store;
    for (name, length) in
        [("empty", 0), ("small", 5), ("inline", 65_536), ("object", 65_537), ("z/large", LARGE)]
    {
        let bytes = pattern(length, 7);
        let new = NewBlob {
            headers: ContentHeaders { content_type: Some("text/x".to_owned()), ..ContentHeaders::default() },
            metadata: vec![("MixedCase".to_owned(), "1".to_owned())],
            tags: vec![("a".to_owned(), "b".to_owned())],
            tier: Some(Tier::Cool),
        };
        let put = store.put_blob(&blob(name), &new, upload(bytes.clone()), &none()).await.unwrap();
        assert_eq!(put.blob.props.headers.content_md5, put.digests.unwrap().md5);
        let got = store.get_blob(&blob(name), None, None, &none()).await.unwrap();
        assert_eq!((got.blob.etag, got.blob.size), (put.blob.etag, length as u64));
        assert_eq!((&got.blob.props.metadata, &got.blob.props.tags), (&new.metadata, &new.tags));
        assert_eq!(read(got).await, bytes, "{name}");
        for (first, last) in [(0, Some(0)), (1, Some(3)), (2, None), (60_000, Some(70_000)), (65_536, None)] {
            let range = Some(ByteRange { first, last });
            let got = store.get_blob(&blob(name), None, range, &none()).await;
            if first >= length as u64 {
                assert!(matches!(got, Err(StoreError::InvalidRange { .. })), "{name} {first}");
                continue;
            }
            let got = got.unwrap();
            let end = last.map_or(length, |last| length.min(last as usize + 1));
            assert_eq!(got.first, first);
            assert_eq!(read(got).await, bytes[first as usize..end], "{name} {first}");
        }
    }
    assert_eq!(tried.objects(), 2);
    // Put again, in the other form.
    tried.put("z/large", "short").await;
    tried.put("small", pattern(LARGE, 3)).await;
    assert_eq!(tried.get("z/large").await.as_deref(), Some(&b"short"[..]));
    assert_eq!(tried.get("small").await, Some(pattern(LARGE, 3)));
    tried.sweep().await;
    assert_eq!((tried.objects(), tried.rows("blob_pending").await), (2, 0));
    for name in ["empty", "small", "inline", "object", "z/large"] {
        let deleted = store.delete_blob(&blob(name), None, DeleteSnapshots::Refuse, &none()).await.unwrap();
        assert_eq!(deleted, Deleted::Gone);
        let again = store.delete_blob(&blob(name), None, DeleteSnapshots::Refuse, &none()).await;
        assert!(matches!(again, Err(StoreError::NoSuchBlob(_))), "{again:?}");
    }
    tried.sweep().await;
    assert_eq!((tried.objects(), tried.rows("blob_pending").await, tried.rows("blob_item").await), (0, 0, 0));
    tried.close().await;
}

async fn what_is_kept_with_a_blob_can_be_changed(place: Place) {
    let tried = Tried::new(&place).await;
    let store = &tried.store;
    tried.put("a", pattern(100, 1)).await;
    let first = store.head_blob(&blob("a"), None, &none()).await.unwrap();
    let metadata = vec![("New".to_owned(), "x".to_owned())];
    let changed =
        store.set_props(&blob("a"), None, &PropsChange::Metadata(metadata.clone()), &none()).await.unwrap();
    assert!(changed.etag > first.etag && changed.modified > first.modified);
    let headers = ContentHeaders { cache_control: Some("no-store".to_owned()), ..ContentHeaders::default() };
    store.set_props(&blob("a"), None, &PropsChange::Headers(headers.clone()), &none()).await.unwrap();
    let before = store.head_blob(&blob("a"), None, &none()).await.unwrap();
    let tags = vec![("t".to_owned(), "1".to_owned())];
    store.set_props(&blob("a"), None, &PropsChange::Tags(tags.clone()), &none()).await.unwrap();
    store.set_props(&blob("a"), None, &PropsChange::Tier(Tier::Archive), &none()).await.unwrap();
    let now = store.head_blob(&blob("a"), None, &none()).await.unwrap();
    assert_eq!((now.etag, now.modified, now.created), (before.etag, before.modified, first.created));
    assert_eq!((now.props.metadata, now.props.headers, now.props.tags), (metadata, headers, tags));
    let archived = store.get_blob(&blob("a"), None, None, &none()).await;
    assert!(matches!(archived, Err(StoreError::Archived(_))), "{archived:?}");
    store.set_props(&blob("a"), None, &PropsChange::Tier(Tier::Hot), &none()).await.unwrap();
    assert_eq!(tried.get("a").await, Some(pattern(100, 1)), "the content has stayed");
    let missing = store.set_props(&blob("b"), None, &PropsChange::Tags(Vec::new()), &none()).await;
    assert!(matches!(missing, Err(StoreError::NoSuchBlob(_))));
    tried.close().await;
}

async fn wrong_bytes_are_not_kept(place: Place) {
    let tried = Tried::new(&place).await;
    for length in [10, LARGE] {
        tried.put("a", "good").await;
        let wrong = Expected { md5: Some([0; 16]), crc64: None };
        let broken = [
            Upload { expected: wrong, ..upload(pattern(length, 1)) },
            Upload { expected: Expected { md5: None, crc64: Some(1) }, ..upload(pattern(length, 1)) },
            Upload { length: length as u64 + 1, ..upload(pattern(length, 1)) },
            Upload { length: length as u64 - 1, ..upload(pattern(length, 1)) },
        ];
        for upload in broken {
            let put = tried.store.put_blob(&blob("a"), &NewBlob::default(), upload, &none()).await;
            assert!(matches!(put, Err(StoreError::Checksum(_) | StoreError::Client(_))), "{put:?}");
            assert_eq!(tried.get("a").await.as_deref(), Some(&b"good"[..]));
        }
        tried.sweep().await;
        assert_eq!((tried.objects(), tried.rows("blob_pending").await), (0, 0));
    }
    tried.close().await;
}

async fn snapshots_stay_as_they_were(place: Place) {
    let tried = Tried::new(&place).await;
    let store = &tried.store;
    for length in [10, LARGE] {
        let mut taken = Vec::new();
        for seed in 0..3 {
            tried.put("s", pattern(length, seed)).await;
            let metadata = vec![("seed".to_owned(), seed.to_string())];
            let (id, base) = store.snapshot(&blob("s"), Some(&metadata), &none()).await.unwrap();
            assert!(base.props.metadata.is_empty());
            taken.push(id);
        }
        tried.put("s", "now").await;
        tried.sweep().await;
        for (seed, id) in taken.iter().enumerate() {
            let got = store.get_blob(&blob("s"), Some(*id), None, &none()).await.unwrap();
            assert_eq!(got.blob.props.metadata, [("seed".to_owned(), seed.to_string())]);
            assert_eq!(read(got).await, pattern(length, seed as u8));
        }
        let refused = store.delete_blob(&blob("s"), None, DeleteSnapshots::Refuse, &none()).await;
        assert!(matches!(refused, Err(StoreError::SnapshotsPresent)), "{refused:?}");
        store.delete_blob(&blob("s"), Some(taken[0]), DeleteSnapshots::Refuse, &none()).await.unwrap();
        tried.sweep().await;
        assert_eq!(tried.objects(), if length == LARGE { 2 } else { 0 });
        store.delete_blob(&blob("s"), None, DeleteSnapshots::Only, &none()).await.unwrap();
        assert_eq!(tried.get("s").await.as_deref(), Some(&b"now"[..]));
        store.snapshot(&blob("s"), None, &none()).await.unwrap();
        store.delete_blob(&blob("s"), None, DeleteSnapshots::Include, &none()).await.unwrap();
        tried.sweep().await;
        assert_eq!(
            (tried.objects(), tried.rows("blob_item").await, tried.rows("blob_pending").await),
            (0, 0, 0)
        );
    }
    tried.close().await;
}

async fn a_lease_keeps_others_out(place: Place) {
    let tried = Tried::new(&place).await;
    let store = &tried.store;
    tried.put("a", "x").await;
    let acquire = LeaseAction::Acquire { proposed: None, seconds: -1 };
    let leased = store.lease_blob(&blob("a"), acquire, &none()).await.unwrap();
    let id = leased.id.unwrap();
    let put = async |lease: Option<Uuid>| {
        let with = Conditions::of_lease(lease);
        store.put_blob(&blob("a"), &NewBlob::default(), upload("y"), &with).await.map(|written| written.blob)
    };
    assert!(matches!(put(None).await, Err(StoreError::BlobLease(_))));
    assert!(matches!(put(Some(Uuid::from_u128(1))).await, Err(StoreError::BlobLease(_))));
    assert_eq!(put(Some(id)).await.unwrap().lease.id, Some(id), "it is still leased");
    let deleted = store.delete_blob(&blob("a"), None, DeleteSnapshots::Refuse, &none()).await;
    assert!(matches!(deleted, Err(StoreError::BlobLease(_))), "{deleted:?}");
    assert_eq!(tried.get("a").await.as_deref(), Some(&b"y"[..]), "who reads needs none");
    store.lease_blob(&blob("a"), LeaseAction::Release { id }, &none()).await.unwrap();
    put(None).await.unwrap();
    let mismatch = put(Some(id)).await;
    assert!(matches!(mismatch, Err(StoreError::BlobLease(_))), "{mismatch:?}");
    tried.close().await;
}

async fn blobs_lie_on_all_shards_by_their_path(place: Place) {
    let tried = Tried::new(&place).await;
    for name in ["a", "g", "h", "i", "p", "zz"] {
        tried.put(name, name.to_owned()).await;
        assert_eq!(tried.get(name).await, Some(name.as_bytes().to_vec()));
    }
    let view = tried.cluster.router.view();
    assert_eq!(view.maps.values().next().unwrap().map.entries(&polyshard_map::KeyRange::all()).count(), 3);
    assert_eq!(tried.rows("blob_item").await, 6);
    tried.close().await;
}

/// Set Blob Tier needs no lease, but one that is named must be the blob's.
async fn a_tier_is_set_only_with_the_lease_that_there_is(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("a", "x").await;
    let set = async |lease: Option<Uuid>| {
        let (cool, conditions) = (PropsChange::Tier(Tier::Cool), Conditions { lease, ..none() });
        tried.store.set_props(&blob("a"), None, &cool, &conditions).await
    };
    let (own, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let refused = set(Some(own)).await;
    assert!(matches!(refused, Err(StoreError::BlobLease(_))), "there is no lease: {refused:?}");
    let acquire = LeaseAction::Acquire { proposed: Some(own), seconds: 60 };
    tried.store.lease_blob(&blob("a"), acquire, &none()).await.unwrap();
    let refused = set(Some(other)).await;
    assert!(matches!(refused, Err(StoreError::BlobLease(_))), "it is another lease: {refused:?}");
    set(None).await.unwrap();
    set(Some(own)).await.unwrap();
    tried.close().await;
}

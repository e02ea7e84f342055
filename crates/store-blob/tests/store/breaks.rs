//! Writes and sweeps that are killed or fail between any two steps: nothing acknowledged is lost, nothing is left over.

use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_store_blob::{
    BlobOptions, BlockId, BlockSource, Conditions, CopyKind, CopyOptions, CopySource, NewBlob, StoreError,
};

use crate::place::Place;
use crate::tools::{At, How, LARGE, Tried, blob, pattern, read, upload};

on_both_engines! {
    a_killed_upload_leaves_what_was_there_and_nothing_else
    a_failed_upload_leaves_what_was_there_and_nothing_else
    an_upload_that_is_too_slow_is_not_named
    a_killed_sweep_is_repeated
    a_lost_object_store_fails_only_what_needs_it
    a_copy_that_fails_leaves_no_object
    an_unreadable_note_holds_up_no_others
    a_shard_that_does_not_answer_holds_up_no_writers_of_others
}

const WRITES: [At; 4] = [At::Create, At::Write, At::BeforeFinish, At::AfterFinish];

async fn impatient(place: &Place) -> Tried {
    let change =
        |options| BlobOptions { keep_removed: Duration::ZERO, upload_max: Duration::ZERO, ..options };
    Tried::with(place, change).await
}

async fn a_killed_upload_leaves_what_was_there_and_nothing_else(place: Place) {
    let tried = impatient(&place).await;
    let (old, new) = (pattern(LARGE, 1), pattern(LARGE, 2));
    tried.put("old", old.clone()).await;
    for at in WRITES {
        tried.stops.set(Some((at, How::Wait)));
        for name in ["old", "new"] {
            let (to, none) = (blob(name), Conditions::default());
            let made = NewBlob::default();
            let put = tried.store.put_blob(&to, &made, upload(new.clone()), &none);
            tokio::select! {
                done = put => panic!("{at:?}: {done:?}"),
                () = tried.stops.reached.notified() => {}
            }
        }
        tried.stops.set(None);
        assert_eq!(tried.rows("blob_pending").await, 2, "{at:?}: both are announced");
        assert_eq!(tried.get("old").await.as_ref(), Some(&old), "{at:?}");
        assert_eq!(tried.get("new").await, None, "{at:?}");
        tried.sweep().await;
        assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1), "{at:?}");
        assert_eq!(tried.get("old").await.as_ref(), Some(&old), "{at:?}");
    }
    tried.close().await;
}

async fn a_failed_upload_leaves_what_was_there_and_nothing_else(place: Place) {
    let tried = Tried::new(&place).await;
    let (old, new) = (pattern(LARGE, 1), pattern(LARGE, 2));
    tried.put("old", old.clone()).await;
    for (at, how) in WRITES.into_iter().flat_map(|at| [(at, How::Fail), (at, How::Full)]) {
        tried.stops.set(Some((at, how)));
        let none = Conditions::default();
        let put = tried.store.put_blob(&blob("old"), &NewBlob::default(), upload(new.clone()), &none).await;
        assert!(matches!(put, Err(StoreError::Kit(_))), "{at:?} {how:?}: {put:?}");
        tried.stops.set(None);
        assert_eq!(tried.get("old").await.as_ref(), Some(&old), "{at:?}");
        // A failed upload is condemned at once: no day need pass.
        tried.sweep().await;
        assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1), "{at:?}");
    }
    tried.put("old", new.clone()).await;
    assert_eq!(tried.get("old").await, Some(new), "it has recovered");
    // What the row named before is deleted, and only that.
    tried.sweep().await;
    assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1));
    tried.close().await;
}

async fn an_upload_that_is_too_slow_is_not_named(place: Place) {
    let tried = impatient(&place).await;
    tried.put("old", pattern(LARGE, 1)).await;
    tried.stops.set(Some((At::AfterFinish, How::Wait)));
    let (to, made, none) = (blob("old"), NewBlob::default(), Conditions::default());
    let put = tried.store.put_blob(&to, &made, upload(pattern(LARGE, 2)), &none);
    let sweep = async {
        tried.stops.reached.notified().await;
        tried.stops.set(None);
        tried.sweep().await;
        tried.stops.go.notify_one();
    };
    let (put, ()) = tokio::join!(put, sweep);
    assert!(matches!(put, Err(StoreError::Kit(_))), "{put:?}");
    assert_eq!(tried.get("old").await, Some(pattern(LARGE, 1)));
    assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1));
    tried.close().await;
}

async fn a_killed_sweep_is_repeated(place: Place) {
    let tried = Tried::new(&place).await;
    for at in [At::Delete, At::AfterDelete] {
        tried.put("blob", pattern(LARGE, 1)).await;
        tried.put("blob", pattern(LARGE, 2)).await;
        let noted = tried.rows("blob_pending").await;
        tried.stops.set(Some((at, How::Wait)));
        tokio::select! {
            () = tried.store.sweep() => panic!("{at:?}: it was to be stopped"),
            () = tried.stops.reached.notified() => {}
        }
        tried.stops.set(Some((at, How::Fail)));
        tried.store.sweep().await;
        assert_eq!(
            tried.rows("blob_pending").await,
            noted,
            "{at:?}: a row is there as long as its object may be"
        );
        tried.stops.set(None);
        tried.sweep().await;
        assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1), "{at:?}");
        assert_eq!(tried.get("blob").await, Some(pattern(LARGE, 2)));
    }
    tried.close().await;
}

async fn a_lost_object_store_fails_only_what_needs_it(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("large", pattern(LARGE, 1)).await;
    tried.put("small", "abc").await;
    for at in [At::Create, At::Read] {
        tried.stops.set(Some((at, How::Fail)));
        assert_eq!(tried.get("small").await.as_deref(), Some(&b"abc"[..]));
        tried.put("small", "abc").await;
        let none = Conditions::default();
        assert_eq!(tried.store.head_blob(&blob("large"), None, &none).await.unwrap().size, LARGE as u64);
    }
    let none = Conditions::default();
    let away = tried.store.get_blob(&blob("large"), None, None, &none).await;
    assert!(matches!(away, Err(StoreError::Kit(_))), "{away:?}");
    tried.stops.set(None);
    let download = tried.store.get_blob(&blob("large"), None, None, &none).await.unwrap();
    assert_eq!(read(download).await, pattern(LARGE, 1));
    tried.close().await;
}

/// What a copy has stored when it fails is deleted soon, and not only when the longest upload would be over.
async fn a_copy_that_fails_leaves_no_object(place: Place) {
    let tried = Tried::new(&place).await;
    let (store, none) = (&tried.store, Conditions::default());
    let block = BlockId(b"one".to_vec());
    store.put_block(&blob("from"), &block, upload(pattern(LARGE, 1)), &none).await.unwrap();
    let list = [(BlockSource::Latest, block)];
    store.put_block_list(&blob("from"), &list, &NewBlob::default(), &none).await.unwrap();
    tried.sweep().await;
    assert_eq!(tried.objects(), 1);
    let source = CopySource::Own {
        name: blob("from"),
        snapshot: None,
        conditions: Box::default(),
        url: String::new(),
    };
    tried.stops.set(Some((At::AfterFinish, How::Wait)));
    let (to, options) = (blob("to"), CopyOptions::default());
    let copy = store.copy_blob(&to, source, CopyKind::Whole, &options, &none);
    let damage = async {
        // The bytes are copied; the list of blocks cannot be read any more.
        tried.stops.reached.notified().await;
        tried.stops.set(None);
        let bad = "UPDATE {table} SET blocks = CAST('bad' AS BLOB)";
        let bad = if tried.is_sqlite().await { bad.to_owned() } else { bad.replace("BLOB", "bytea") };
        assert_eq!(tried.run_sql("s1", "blob_extent", &bad).await, 1);
        tried.stops.go.notify_one();
    };
    let (copied, ()) = tokio::join!(copy, damage);
    assert!(matches!(copied, Err(StoreError::Kit(_))), "{copied:?}");
    tried.sweep().await;
    assert_eq!((tried.rows("blob_pending").await, tried.objects()), (0, 1));
    tried.close().await;
}

/// One damaged row does not keep the sweep from all others of its shard.
async fn an_unreadable_note_holds_up_no_others(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("a", pattern(LARGE, 1)).await;
    tried.put("a", "short").await;
    assert_eq!((tried.rows("blob_pending").await, tried.objects()), (1, 1));
    let copy = "INSERT INTO {table} (placement, dataset, id, name, kind, number, at) \
                SELECT placement, dataset, 'bad', '', kind, number, at - 1 FROM {table}";
    assert_eq!(tried.run_sql("s1", "blob_pending", copy).await, 1);
    tried.sweep().await;
    assert_eq!((tried.rows("blob_pending").await, tried.objects()), (1, 0));
    tried.close().await;
}

/// Writers of pages and appends wait for each other, but never for a shard on which they do not write.
async fn a_shard_that_does_not_answer_holds_up_no_writers_of_others(place: Place) {
    let tried = Tried::new(&place).await;
    let (new, none) = (NewBlob::default(), Conditions::default());
    let names: Vec<String> = (0..300).map(|number| format!("z{number}")).collect();
    for name in names.iter().map(String::as_str).chain(["a"]) {
        tried.store.create_append(&blob(name), &new, &none).await.unwrap();
    }
    let (mut tx, dialect) = tried.beside("s1").await;
    let lock = format!("UPDATE {} SET size = size", dialect.own_table("blob_item"));
    tx.run(Statement::new(lock)).await.unwrap();
    let stuck = blob("a");
    let mut waiting = Box::pin(tried.store.append(&stuck, upload("x"), &none));
    let waits = tokio::time::timeout(Duration::from_millis(500), &mut waiting).await;
    assert!(waits.is_err(), "the shard was to be stopped: {waits:?}");
    for name in &names {
        let name = blob(name);
        let append = tried.store.append(&name, upload("x"), &none);
        tokio::time::timeout(Duration::from_secs(10), append)
            .await
            .expect("another shard holds it up")
            .unwrap();
    }
    tx.rollback().await.unwrap();
    waiting.await.unwrap();
    tried.close().await;
}

//! Several writers of one blob at once.

use std::sync::Arc;

use polyshard_store_blob::{
    BlobStore, Conditions, DeleteSnapshots, Etags, LeaseAction, NewBlob, PropsChange, StoreError,
};
use tokio::task::JoinSet;

use crate::place::Place;
use crate::tools::{LARGE, Tried, blob, pattern, upload};

on_both_engines! {
    one_of_many_creates_a_blob
    one_of_many_changes_a_version
    the_last_writer_wins_and_nothing_is_left_over
    one_of_many_gets_a_lease
    snapshots_are_not_left_behind_by_a_delete
}

const WRITERS: usize = 12;

/// What each of several tasks answered.
async fn all<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    store: &Arc<BlobStore>,
    task: impl Fn(Arc<BlobStore>, usize) -> F,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for number in 0..WRITERS {
        tasks.spawn(task(store.clone(), number));
    }
    tasks.join_all().await
}

fn refused<T: std::fmt::Debug>(answers: &[Result<T, StoreError>]) -> usize {
    answers.iter().filter(|answer| matches!(answer, Err(StoreError::Condition(_)))).count()
}

async fn one_of_many_creates_a_blob(place: Place) {
    let tried = Tried::new(&place).await;
    for length in [10, LARGE] {
        let name = format!("new {length}");
        let answers = all(&tried.store, |store, number| {
            let to = blob(&name);
            async move {
                let new_only = Conditions { if_none_match: Some(Etags::Any), ..Conditions::default() };
                let bytes = pattern(length, number as u8);
                let put = store.put_blob(&to, &NewBlob::default(), upload(bytes), &new_only).await;
                put.map(|_| number)
            }
        })
        .await;
        assert_eq!(refused(&answers), WRITERS - 1, "{answers:?}");
        let winner = *answers.iter().flatten().next().unwrap();
        assert_eq!(tried.get(&name).await, Some(pattern(length, winner as u8)));
    }
    tried.sweep().await;
    assert_eq!((tried.objects(), tried.rows("blob_pending").await), (1, 0));
    tried.close().await;
}

async fn one_of_many_changes_a_version(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("a", "x").await;
    let etag = tried.store.head_blob(&blob("a"), None, &Conditions::default()).await.unwrap().etag;
    let answers = all(&tried.store, |store, number| async move {
        let this =
            Conditions { if_match: Some(Etags::These(vec![etag.to_string()])), ..Conditions::default() };
        let metadata = vec![("n".to_owned(), number.to_string())];
        store.set_props(&blob("a"), None, &PropsChange::Metadata(metadata), &this).await.map(|blob| blob.etag)
    })
    .await;
    assert_eq!(refused(&answers), WRITERS - 1, "{answers:?}");
    tried.close().await;
}

async fn the_last_writer_wins_and_nothing_is_left_over(place: Place) {
    let tried = Tried::new(&place).await;
    for length in [10, LARGE] {
        let answers = all(&tried.store, |store, number| async move {
            let bytes = pattern(length, number as u8);
            let put =
                store.put_blob(&blob("a"), &NewBlob::default(), upload(bytes), &Conditions::default()).await;
            put.map(|written| (written.blob.etag, number))
        })
        .await;
        let etags = answers.into_iter().map(Result::unwrap);
        let (etag, winner) = etags.max().unwrap();
        let now = tried.store.head_blob(&blob("a"), None, &Conditions::default()).await.unwrap();
        assert_eq!(now.etag, etag);
        assert_eq!(tried.get("a").await, Some(pattern(length, winner as u8)));
    }
    tried.sweep().await;
    assert_eq!((tried.objects(), tried.rows("blob_pending").await), (1, 0));
    tried.close().await;
}

async fn one_of_many_gets_a_lease(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("a", "x").await;
    let answers = all(&tried.store, |store, _| async move {
        let acquire = LeaseAction::Acquire { proposed: None, seconds: 15 };
        store.lease_blob(&blob("a"), acquire, &Conditions::default()).await
    })
    .await;
    let leased = answers.iter().filter(|answer| answer.is_ok()).count();
    let late = answers.iter().filter(|answer| matches!(answer, Err(StoreError::BlobLease(_)))).count();
    assert_eq!((leased, late), (1, WRITERS - 1), "{answers:?}");
    tried.close().await;
}

async fn snapshots_are_not_left_behind_by_a_delete(place: Place) {
    let tried = Tried::new(&place).await;
    for _ in 0..5 {
        tried.put("a", pattern(LARGE, 1)).await;
        all(&tried.store, |store, number| async move {
            let none = Conditions::default();
            if number % 3 == 0 {
                let done = store.delete_blob(&blob("a"), None, DeleteSnapshots::Include, &none).await;
                assert!(matches!(done, Ok(_) | Err(StoreError::NoSuchBlob(_))), "{done:?}");
            } else {
                let done = store.snapshot(&blob("a"), None, &none).await;
                assert!(matches!(done, Ok(_) | Err(StoreError::NoSuchBlob(_))), "{done:?}");
            }
        })
        .await;
        assert_eq!(tried.rows("blob_item").await, 0, "a snapshot without its blob could never be deleted");
    }
    tried.sweep().await;
    assert_eq!((tried.objects(), tried.rows("blob_pending").await), (0, 0));
    tried.close().await;
}

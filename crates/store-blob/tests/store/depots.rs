//! Processes that have their objects in different places are told apart.

use std::time::Duration;

use polyshard_store::{ErrorKind, Reason};
use polyshard_store_blob::{BlobStore, Conditions, NewBlob, StoreError};

use crate::place::Place;
use crate::tools::{LARGE, Tried, blob, pattern, read, upload};

on_both_engines! {
    a_process_with_another_folder_is_refused
    the_only_process_may_have_a_new_folder
    the_place_of_another_cluster_is_refused_until_it_is_given_away
}

async fn put(store: &BlobStore, name: &str) -> Result<(), StoreError> {
    let (new, none) = (NewBlob::default(), Conditions::default());
    store.put_blob(&blob(name), &new, upload(pattern(LARGE, 1)), &none).await.map(drop)
}

fn is_refused(answer: Result<(), StoreError>) -> bool {
    let out = ErrorKind::OutOfService(Reason::Offline);
    matches!(answer, Err(StoreError::Kit(error)) if error.kind == out)
}

async fn a_process_with_another_folder_is_refused(place: Place) {
    let (tried, folder) = (Tried::new(&place).await, tempfile::tempdir().unwrap());
    put(&tried.store, "first").await.unwrap();
    tried.hear_of(2);
    let other = tried.elsewhere(folder.path());
    tried.pass(Duration::from_secs(11));
    assert!(is_refused(put(&other, "second").await));
    let none = Conditions::default();
    other.put_blob(&blob("small"), &NewBlob::default(), upload("x"), &none).await.unwrap();
    assert_eq!(tried.get("small").await.as_deref(), Some(&b"x"[..]), "rows are shared");
    put(&tried.store, "first").await.unwrap();
    let missing = other.get_blob(&blob("first"), None, None, &none).await;
    assert!(is_refused(missing.map(drop)), "it says that the bytes are not there");
    // The same folder again is right, whoever else there is.
    put(&tried.again(|options| options), "third").await.unwrap();
    drop(other);
    tried.close().await;
}

async fn the_only_process_may_have_a_new_folder(place: Place) {
    let (tried, folder) = (Tried::new(&place).await, tempfile::tempdir().unwrap());
    put(&tried.store, "first").await.unwrap();
    let other = tried.elsewhere(folder.path());
    assert!(is_refused(put(&other, "second").await), "others may not have been heard of yet");
    tried.pass(Duration::from_secs(11));
    put(&other, "second").await.unwrap();
    let download = other.get_blob(&blob("second"), None, None, &Conditions::default()).await.unwrap();
    assert_eq!(read(download).await, pattern(LARGE, 1));
    tried.hear_of(2);
    assert!(is_refused(put(&tried.store, "third").await), "the place has been moved");
    drop(other);
    tried.close().await;
}

async fn the_place_of_another_cluster_is_refused_until_it_is_given_away(place: Place) {
    let (tried, folder) = (Tried::new(&place).await, tempfile::tempdir().unwrap());
    let mark = folder.path().join("polyshard-objects");
    std::fs::write(&mark, "0123456789abcdef0123456789abcdef-00000000000000010000000000000002").unwrap();
    std::fs::create_dir(folder.path().join("4711")).unwrap();
    let store = tried.elsewhere(folder.path());
    tried.pass(Duration::from_secs(11));
    assert!(is_refused(put(&store, "first").await));
    // This cluster has no container of that number, but it may be the other one's.
    store.sweep().await;
    tried.pass(Duration::from_secs(2 * 3600));
    store.sweep().await;
    assert!(folder.path().join("4711").exists());

    std::fs::write(&mark, "take-over\n").unwrap();
    tried.hear_of(2);
    assert!(is_refused(put(&store, "first").await), "another process may keep them elsewhere");
    tried.hear_of(1);
    put(&store, "first").await.unwrap();
    assert_ne!(std::fs::read_to_string(&mark).unwrap(), "take-over\n", "the place has a new mark");
    // A process looks once an hour.
    tried.pass(Duration::from_secs(2 * 3600));
    store.sweep().await;
    tried.pass(Duration::from_secs(2 * 3600));
    store.sweep().await;
    assert!(!folder.path().join("4711").exists(), "all in it is this cluster's now");

    // A copy of the cluster takes it over: within seconds this one stops.
    std::fs::write(&mark, std::fs::read_to_string(&mark).unwrap().replace('-', "-ffff")).unwrap();
    tried.pass(Duration::from_secs(11));
    assert!(is_refused(put(&store, "third").await));
    drop(store);
    tried.close().await;
}

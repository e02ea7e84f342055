//! Containers: made, listed, changed, leased and deleted with all they have.

use std::time::Duration;

use polyshard_store_blob::{
    BlobOptions, Conditions, ContainerName, ContainerQuery, LeaseAction, Metadata, PublicAccess, StoreError,
};

use crate::place::Place;
use crate::tools::{LARGE, Tried, container, pattern};

on_both_engines! {
    containers_are_made_listed_and_changed
    a_deleted_container_leaves_nothing_behind
}

fn named(name: &str) -> ContainerName {
    ContainerName::new("acct", name).unwrap()
}

async fn containers_are_made_listed_and_changed(place: Place) {
    let tried = Tried::new(&place).await;
    let (store, none) = (&tried.store, Conditions::default());
    let metadata = vec![("MixedCase".to_owned(), "1".to_owned())];
    for name in ["box-a", "box-b", "other"] {
        store.create_container(&named(name), metadata.clone(), PublicAccess::Blob).await.unwrap();
    }
    let again = store.create_container(&named("other"), Metadata::new(), PublicAccess::None).await;
    assert!(matches!(again, Err(StoreError::ContainerExists(_))), "{again:?}");
    let other = ContainerName::new("second", "box-z").unwrap();
    store.create_container(&other, Metadata::new(), PublicAccess::None).await.unwrap();
    let list = async |prefix: &str, marker: Option<String>, max| {
        let query = ContainerQuery { prefix: prefix.to_owned(), marker, max };
        let page = store.list_containers("acct", &query).await.unwrap();
        (page.containers.into_iter().map(|container| container.name).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(
        list("", None, 10).await,
        (["box", "box-a", "box-b", "other"].map(str::to_owned).to_vec(), None)
    );
    let (first, next) = list("box", None, 2).await;
    assert_eq!(first, ["box", "box-a"]);
    assert_eq!(list("box", next, 2).await, (vec!["box-b".to_owned()], None));

    let made = store.container(&named("box-a"), &none).await.unwrap();
    assert_eq!((made.access, &made.metadata), (PublicAccess::Blob, &metadata));
    let changed = store.set_container_metadata(&named("box-a"), Metadata::new(), &none).await.unwrap();
    assert!(changed.etag > made.etag);
    assert_eq!(
        store.container(&named("box-a"), &none).await.unwrap(),
        polyshard_store_blob::Container {
            now_ms: store.container(&named("box-a"), &none).await.unwrap().now_ms,
            ..changed
        }
    );
    let acquire = LeaseAction::Acquire { proposed: None, seconds: -1 };
    let id = store.lease_container(&named("box-a"), acquire, &none).await.unwrap().id;
    let refused = store.delete_container(&named("box-a"), &none).await;
    assert!(matches!(refused, Err(StoreError::ContainerLease(_))), "{refused:?}");
    store.delete_container(&named("box-a"), &Conditions::of_lease(id)).await.unwrap();
    for gone in [
        store.container(&named("box-a"), &none).await.err(),
        store.set_container_metadata(&named("box-a"), Metadata::new(), &none).await.err(),
        store.delete_container(&named("box-a"), &none).await.err(),
    ] {
        assert!(matches!(gone, Some(StoreError::NoSuchContainer(_))), "{gone:?}");
    }
    tried.close().await;
}

async fn a_deleted_container_leaves_nothing_behind(place: Place) {
    let tried = Tried::new(&place).await;
    for name in ["a", "k", "z"] {
        tried.put(name, pattern(LARGE, 1)).await;
        tried.put(name, pattern(LARGE, 2)).await;
        tried.put(&format!("{name}-small"), "x").await;
    }
    tried.store.delete_container(&container(), &Conditions::default()).await.unwrap();
    tried.store.create_container(&container(), Metadata::new(), PublicAccess::None).await.unwrap();
    assert_eq!(tried.get("a").await, None);
    tried.put("a", pattern(LARGE, 3)).await;
    tried.sweep().await;
    assert_eq!((tried.rows("blob_item").await, tried.rows("blob_pending").await, tried.objects()), (1, 0, 1));
    assert_eq!(tried.get("a").await, Some(pattern(LARGE, 3)));
    // With a time to keep it, nothing of it is deleted before.
    let patient = tried.again(|options| BlobOptions { keep_removed: Duration::from_secs(60), ..options });
    patient.delete_container(&container(), &Conditions::default()).await.unwrap();
    patient.sweep().await;
    assert_eq!((tried.rows("blob_item").await, tried.objects()), (0, 1));
    drop(patient);
    tried.close().await;
}

//! Lists of blobs, compared with what a sorted list of the names says: merged from three shards, page by page.

use polyshard_store_blob::{
    BlobName, BlobQuery, Conditions, ContainerName, FindIn, Include, Listed, Metadata, NewBlob, PublicAccess,
    StoreError, TagFilter, TagUse,
};

use crate::place::Place;
use crate::tools::{Tried, blob, container, upload};

on_both_engines! {
    lists_are_in_order_whatever_the_page
    lists_by_delimiter_show_each_prefix_once
    snapshots_come_before_their_blob
    blobs_are_found_by_their_tags
    a_search_through_empty_containers_comes_in_parts
}

const NAMES: [&str; 24] = [
    "a", "a/", "a/1", "a/2", "a/b/1", "a/b/2", "a/b/c/1", "a0", "b//x", "f/1", "g", "h", "h/1", "h/2", "i",
    "k/1", "m/n/o", "o", "p/1", "p/2", "z", "z/é", "z/日本", "~",
];

async fn filled(place: &Place) -> Tried {
    let tried = Tried::new(place).await;
    for name in NAMES.iter().rev() {
        tried.put(name, *name).await;
    }
    tried
}

/// All entries, page by page.
async fn pages(tried: &Tried, query: &BlobQuery) -> Vec<String> {
    let mut query = query.clone();
    let mut shown = Vec::new();
    loop {
        let page = tried.store.list_blobs(&container(), &query).await.unwrap();
        assert!(page.entries.len() <= query.max);
        shown.extend(page.entries.into_iter().map(|entry| match entry {
            Listed::Prefix(prefix) => format!("{prefix}*"),
            Listed::Blob(blob) => blob.name,
        }));
        match page.next {
            Some(next) => query.marker = Some(next),
            None => return shown,
        }
    }
}

/// What the names say.
fn expected(prefix: &str, delimiter: Option<&str>) -> Vec<String> {
    let mut shown: Vec<String> = Vec::new();
    let mut names = NAMES.to_vec();
    names.sort_unstable();
    for name in names.into_iter().filter(|name| name.starts_with(prefix)) {
        let rest = &name[prefix.len()..];
        let entry = match delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len())) {
            Some(end) => format!("{}*", &name[..prefix.len() + end]),
            None => name.to_owned(),
        };
        if shown.last() != Some(&entry) {
            shown.push(entry);
        }
    }
    shown
}

async fn lists_are_in_order_whatever_the_page(place: Place) {
    let tried = filled(&place).await;
    for max in [1, 2, 7, 23, 24, 5000] {
        for prefix in ["", "a", "a/", "a/b/", "h", "z/日", "none"] {
            let query = BlobQuery { prefix: prefix.to_owned(), max, ..BlobQuery::default() };
            assert_eq!(pages(&tried, &query).await, expected(prefix, None), "{prefix:?} by {max}");
        }
    }
    let from = BlobQuery { start_from: Some("k".to_owned()), max: 3, ..BlobQuery::default() };
    let after: Vec<String> = expected("", None).into_iter().filter(|name| name.as_str() >= "k").collect();
    assert_eq!(pages(&tried, &from).await, after);
    let wrong = BlobQuery { marker: Some("a/1".to_owned()), max: 3, ..BlobQuery::default() };
    let wrong = tried.store.list_blobs(&container(), &wrong).await;
    assert!(matches!(wrong, Err(StoreError::InvalidMarker)), "{wrong:?}");
    tried.close().await;
}

async fn lists_by_delimiter_show_each_prefix_once(place: Place) {
    let tried = filled(&place).await;
    for number in 0..300 {
        tried.put(&format!("many/{number:04}"), "x").await;
    }
    for max in [1, 3, 5000] {
        for (prefix, delimiter) in
            [("", "/"), ("a/", "/"), ("a/b/", "/"), ("b/", "/"), ("", "//"), ("a", "b")]
        {
            let (prefix, delimiter) = (prefix.to_owned(), delimiter.to_owned());
            let mut wanted = expected(&prefix, Some(&delimiter));
            if prefix.is_empty() && delimiter == "/" {
                wanted.push("many/*".to_owned());
                wanted.sort_unstable();
            }
            if delimiter == "//" {
                continue;
            }
            let query =
                BlobQuery { prefix: prefix.clone(), delimiter: Some(delimiter), max, ..BlobQuery::default() };
            assert_eq!(pages(&tried, &query).await, wanted, "{prefix:?} by {max}");
        }
    }
    tried.close().await;
}

async fn snapshots_come_before_their_blob(place: Place) {
    let tried = Tried::new(&place).await;
    let none = Conditions::default();
    let mut wanted = Vec::new();
    for name in ["a", "b", "h", "z"] {
        tried.put(name, "x").await;
        for _ in 0..3 {
            let (id, _) = tried.store.snapshot(&blob(name), None, &none).await.unwrap();
            wanted.push((name.to_owned(), id.0));
        }
        wanted.push((name.to_owned(), 0));
    }
    let include = Include { snapshots: true, ..Include::default() };
    for max in [1, 3, 4, 100] {
        let mut query = BlobQuery { include, max, ..BlobQuery::default() };
        let mut shown = Vec::new();
        loop {
            let page = tried.store.list_blobs(&container(), &query).await.unwrap();
            shown.extend(page.entries.into_iter().map(|entry| match entry {
                Listed::Blob(blob) => (blob.name, blob.snapshot),
                Listed::Prefix(prefix) => panic!("{prefix}"),
            }));
            match page.next {
                Some(next) => query.marker = Some(next),
                None => break,
            }
        }
        assert_eq!(shown, wanted, "by {max}");
    }
    tried.close().await;
}

async fn blobs_are_found_by_their_tags(place: Place) {
    let tried = Tried::new(&place).await;
    for number in 0..40 {
        let tags =
            vec![("n".to_owned(), format!("{number:02}")), ("odd".to_owned(), (number % 2).to_string())];
        let new = NewBlob { tags, ..NewBlob::default() };
        let name = blob(&format!("{}{number}", if number % 3 == 0 { "a" } else { "z" }));
        tried.store.put_blob(&name, &new, upload("x"), &Conditions::default()).await.unwrap();
    }
    tried.put("untagged", "x").await;
    let filter = TagFilter::parse("n >= '10' AND odd = '1'", TagUse::Find).unwrap();
    for within in [FindIn::Account("acct".to_owned()), FindIn::Container(container())] {
        let (mut found, mut marker) = (Vec::new(), None);
        loop {
            let page = tried.store.find_blobs(&within, &filter, marker.as_deref(), 4).await.unwrap();
            found.extend(page.blobs);
            match page.next {
                Some(next) => marker = Some(next),
                None => break,
            }
        }
        assert_eq!(found.len(), 15);
        assert!(found.iter().all(|blob| blob.container == "box" && blob.tags.len() == 2), "{found:?}");
    }
    tried.close().await;
}

/// A part of a search takes bounded work, also if there is nothing to find: then it says where to go on.
async fn a_search_through_empty_containers_comes_in_parts(place: Place) {
    const CONTAINERS: usize = 130;
    let tried = Tried::new(&place).await;
    for number in 0..CONTAINERS {
        let container = ContainerName::new("acct", &format!("empty{number:03}")).unwrap();
        tried.store.create_container(&container, Metadata::new(), PublicAccess::None).await.unwrap();
    }
    let last = ContainerName::new("acct", &format!("empty{:03}", CONTAINERS - 1)).unwrap();
    let new = NewBlob { tags: vec![("a".to_owned(), "1".to_owned())], ..NewBlob::default() };
    let name = BlobName::new(last, "found").unwrap();
    tried.store.put_blob(&name, &new, upload("x"), &Conditions::default()).await.unwrap();
    let filter = TagFilter::parse("a = '1'", TagUse::Find).unwrap();
    let within = FindIn::Account("acct".to_owned());
    let (mut found, mut marker, mut parts) = (Vec::new(), None, 0);
    loop {
        let page = tried.store.find_blobs(&within, &filter, marker.as_deref(), 10).await.unwrap();
        parts += 1;
        found.extend(page.blobs.into_iter().map(|blob| blob.name));
        match page.next {
            Some(next) => marker = Some(next),
            None => break,
        }
    }
    assert_eq!((found, parts), (vec!["found".to_owned()], 2));
    tried.close().await;
}

//! What becomes of entities: conditions, merges, transactions, and many writers at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyshard_azure_storage::Timestamp;
use polyshard_store_table::{ChangeKind, EdmValue, IfMatch, InputError, StoreError};
use uuid::Uuid;

use crate::place::Place;
use crate::tools::{change, insert, merge, number, properties, table};

on_both_engines! {
    every_type_comes_back_as_it_was
    changes_obey_their_conditions
    merges_keep_what_they_do_not_name
    transactions_are_made_whole_or_not_at_all
    many_mergers_of_one_entity_lose_nothing
    many_inserters_of_one_key_have_one_winner
}

async fn every_type_comes_back_as_it_was(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let all = properties(&[
        ("String", EdmValue::String("a\0é😀\r\n\"\\ ".into())),
        ("Empty", EdmValue::String(String::new())),
        ("Int32", EdmValue::Int32(i32::MIN)),
        ("Int64", EdmValue::Int64(i64::MIN)),
        ("One", EdmValue::Double(1.0)),
        ("Tiny", EdmValue::Double(5e-324)),
        ("Zero", EdmValue::Double(-0.0)),
        ("Infinite", EdmValue::Double(f64::NEG_INFINITY)),
        ("Yes", EdmValue::Boolean(true)),
        ("When", EdmValue::DateTime(Timestamp::parse_iso("0001-01-01T00:00:00.0000001Z").unwrap())),
        ("Guid", EdmValue::Guid(Uuid::from_u128(u128::MAX))),
        ("Binary", EdmValue::Binary((0..=255).collect())),
    ]);
    for key in [("", ""), ("o'b", "%20 \"&+"), ("日本", "ü\u{10FFFF}")] {
        let time = cluster.one(key, ChangeKind::Insert(all.clone())).await.unwrap();
        let entity = cluster.get(key).await.unwrap();
        assert_eq!((&entity.properties, entity.timestamp), (&all, time));
        let page = cluster.page(&format!("PartitionKey eq '{}'", key.0.replace('\'', "''")), None, 10).await;
        assert_eq!(page.entities, [entity]);
    }
    cluster.close().await;
}

async fn changes_obey_their_conditions(place: Place) {
    let cluster = place.open().await;
    let key = ("p", "r");
    assert!(matches!(cluster.one(key, insert(1)).await, Err(StoreError::NoSuchTable(_))));
    cluster.store.create_table(&table("orders")).await.unwrap();
    let replace = |value, if_match| ChangeKind::Replace(number("n", value), if_match);
    for kind in [replace(1, IfMatch::Any), merge("n", 1), ChangeKind::Delete(IfMatch::Any)] {
        assert!(matches!(cluster.one(key, kind).await, Err(StoreError::NoSuchEntity)));
    }
    let first = cluster.one(key, insert(1)).await.unwrap();
    assert!(matches!(cluster.one(key, insert(2)).await, Err(StoreError::EntityExists)));
    let second = cluster.one(key, replace(2, IfMatch::At(first))).await.unwrap();
    // The clock stands still, and every change has its own time all the same.
    assert!(second > first);
    let merged = ChangeKind::Merge(number("n", 3), IfMatch::At(first));
    for kind in [replace(3, IfMatch::At(first)), merged, ChangeKind::Delete(IfMatch::At(first))] {
        assert!(matches!(cluster.one(key, kind).await, Err(StoreError::Changed)));
    }
    assert_eq!(cluster.get(key).await.unwrap().properties, number("n", 2));
    let mut times = BTreeSet::from([first, second]);
    for n in 0..5 {
        assert!(times.insert(cluster.put(key, n).await));
        assert!(times.insert(cluster.one(key, replace(n, IfMatch::Any)).await.unwrap()));
        assert!(times.insert(cluster.one(key, merge("n", n)).await.unwrap()));
    }
    assert_eq!(times.last(), Some(&cluster.get(key).await.unwrap().timestamp));
    let last = *times.last().unwrap();
    cluster.one(key, ChangeKind::Delete(IfMatch::At(last))).await.unwrap();
    assert!(matches!(cluster.get(key).await, Err(StoreError::NoSuchEntity)));
    assert!(cluster.one(key, insert(1)).await.unwrap() > last);
    cluster.close().await;
}

async fn merges_keep_what_they_do_not_name(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let key = ("p", "r");
    let upsert = |name, value| ChangeKind::UpsertMerge(number(name, value));
    cluster.one(key, upsert("a", 1)).await.unwrap();
    cluster.one(key, upsert("b", 2)).await.unwrap();
    cluster
        .one(key, ChangeKind::UpsertMerge(properties(&[("a", EdmValue::String("x".into()))])))
        .await
        .unwrap();
    let expected = properties(&[("a", EdmValue::String("x".into())), ("b", EdmValue::Int32(2))]);
    assert_eq!(cluster.get(key).await.unwrap().properties, expected);
    let half = |prefix: &str| {
        let list = (0..130).map(|n| (format!("{prefix}{n}"), EdmValue::Int32(n)));
        polyshard_store_table::Properties::new(list.collect()).unwrap()
    };
    cluster.one(key, ChangeKind::UpsertMerge(half("x"))).await.unwrap();
    let error = cluster.one(key, ChangeKind::UpsertMerge(half("y"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Input(InputError::TooManyProperties)), "{error}");
    let error = cluster.one(key, ChangeKind::Merge(half("y"), IfMatch::Any)).await.unwrap_err();
    assert!(matches!(error, StoreError::Input(InputError::TooManyProperties)), "{error}");
    cluster.close().await;
}

async fn transactions_are_made_whole_or_not_at_all(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let times = cluster
        .change(
            "p",
            vec![
                change("a", insert(1)),
                change("b", ChangeKind::UpsertMerge(number("m", 1))),
                change("c", ChangeKind::UpsertReplace(number("n", 1))),
            ],
        )
        .await
        .unwrap();
    assert_eq!(times.len(), 3);
    let failures = [
        (change("a", insert(2)), "exists already"),
        (change("x", merge("n", 2)), "does not exist"),
        (change("x", ChangeKind::Delete(IfMatch::Any)), "does not exist"),
        (
            change("c", ChangeKind::Replace(number("n", 2), IfMatch::At(Timestamp::from_ticks(5).unwrap()))),
            "changed",
        ),
        (
            change("c", ChangeKind::Merge(number("n", 2), IfMatch::At(Timestamp::from_ticks(5).unwrap()))),
            "changed",
        ),
    ];
    for (failing, reason) in failures {
        let others = [
            change("new", insert(1)),
            change("b", merge("m", 9)),
            change("z", ChangeKind::UpsertMerge(number("n", 1))),
        ];
        let mut changes = others.to_vec();
        changes.insert(2, failing.clone());
        let (at, error) = cluster.change("p", changes).await.unwrap_err();
        assert_eq!(at, 2, "{failing:?}");
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(cluster.all("", 1000).await, ["p/a", "p/b", "p/c"]);
        assert_eq!(cluster.get(("p", "b")).await.unwrap().properties, number("m", 1));
    }
    // However late the one that cannot be made: its number is told, and nothing of the others is there.
    let mut many: Vec<_> = (0..100).map(|n| change(&format!("m{n:03}"), insert(n))).collect();
    many[57] = change("a", insert(2));
    let (at, error) = cluster.change("p", many).await.unwrap_err();
    assert!(matches!((at, &error), (57, StoreError::EntityExists)), "{at}: {error}");
    assert_eq!(cluster.all("", 1000).await, ["p/a", "p/b", "p/c"]);
    let hundred = (0..100).map(|n| change(&format!("r{n:03}"), insert(n))).collect();
    cluster.change("q", hundred).await.unwrap();
    assert_eq!(cluster.all("PartitionKey eq 'q'", 7).await.len(), 100);
    let all = (0..100).map(|n| change(&format!("r{n:03}"), ChangeKind::Delete(IfMatch::Any))).collect();
    cluster.change("q", all).await.unwrap();
    assert_eq!(cluster.all("PartitionKey eq 'q'", 7).await.len(), 0);
    cluster.close().await;
}

async fn many_mergers_of_one_entity_lose_nothing(place: Place) {
    let cluster = Arc::new(place.open().await);
    cluster.store.create_table(&table("orders")).await.unwrap();
    cluster.put(("p", "r"), 0).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..24 {
        let cluster = cluster.clone();
        tasks.spawn(async move {
            for n in 0..4 {
                let kind = match n % 2 {
                    0 => merge(&format!("t{task}n{n}"), n),
                    _ => ChangeKind::UpsertMerge(number(&format!("t{task}n{n}"), n)),
                };
                cluster.one(("p", "r"), kind).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(cluster.get(("p", "r")).await.unwrap().properties.iter().count(), 1 + 24 * 4);
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn many_inserters_of_one_key_have_one_winner(place: Place) {
    let cluster = Arc::new(place.open().await);
    cluster.store.create_table(&table("orders")).await.unwrap();
    for round in 0..10 {
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..8 {
            let (cluster, row) = (cluster.clone(), format!("r{round}"));
            tasks.spawn(async move {
                match cluster.one(("p", &row), insert(task)).await {
                    Ok(_) => Some(task),
                    Err(StoreError::EntityExists) => None,
                    Err(error) => panic!("{error}"),
                }
            });
        }
        let winners: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(winners.len(), 1);
        let stored = cluster.get(("p", &format!("r{round}"))).await.unwrap();
        assert_eq!(stored.properties, number("n", winners[0]));
    }
    Arc::into_inner(cluster).unwrap().close().await;
}

//! The client against the handlers: every endpoint, and every kind of map through its human keys.

mod memory;

use memory::{Server, TOKEN};
use polyshard_admin::types::{
    ChangeRequest, NewMap, NewShard, PageRequest, RangeView, RepairRequest, ShardPatch,
};
use polyshard_admin::{Basis, Client, ClientError, Data, ErrorCode};
use polyshard_map::MapName;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn client(server: &Server) -> Client {
    Client::new(&server.url(), TOKEN).unwrap()
}

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn create(client: &Client, map: Value) -> MapName {
    client.create_map(&of::<NewMap>(map)).unwrap().name
}

fn change(client: &Client, map: &MapName, change: Value) {
    let request: ChangeRequest = of(change.clone());
    client.change(map, &request, None, Basis::Current).unwrap_or_else(|e| panic!("{change}: {e:?}"));
}

/// The ranges of a map and their shards, as JSON.
fn entries(client: &Client, map: &MapName) -> Value {
    let page = client.entries(map, &PageRequest { after: None, limit: Some(10_000) }).unwrap();
    page.entries.iter().map(|entry| json!([entry.range, entry.shard])).collect()
}

fn code(result: Result<impl std::fmt::Debug, ClientError>) -> ErrorCode {
    match result {
        Err(ClientError::Problem(problem)) => problem.code,
        other => panic!("{other:?} is no problem the server named"),
    }
}

#[test]
fn shards_are_added_set_attached_detached_and_removed() {
    let server = Server::start();
    let client = client(&server);
    let new: NewShard =
        of(json!({"id": "s3", "url": "sqlite:shards/s3.db", "region": "eu", "limits": {"bytes_max": 5}}));
    let added = client.add_shard(&new).unwrap();
    assert_eq!((added.region.as_deref(), added.limits.bytes_max.unwrap().get()), (Some("eu"), 5));
    assert_eq!(client.shards().unwrap().shards.len(), 3);
    let patch: ShardPatch = of(json!({"state": "offline"}));
    let set = client.set_shard(&added.id, &patch, Basis::Version(added.version)).unwrap();
    assert_eq!(client.shard(&added.id).unwrap(), set);
    assert_eq!(
        code(client.set_shard(&added.id, &patch, Basis::Version(added.version))),
        ErrorCode::ChangedMeanwhile
    );
    assert_eq!(client.attach_shard(&new).unwrap().ranges, 7);

    assert_eq!(code(client.remove_shard(&added.id, Data::Keep)), ErrorCode::HoldsData);
    client.remove_shard(&added.id, Data::Destroy).unwrap();
    assert_eq!(client.status().unwrap().shards.len(), 2);
    let first = "s1".parse().unwrap();
    client.detach_shard(&first).unwrap();
    assert_eq!(code(client.detach_shard(&first)), ErrorCode::NotFound);
    assert_eq!(code(client.ready()), ErrorCode::Unavailable);
}

#[test]
fn a_hash_map_is_spoken_of_in_buckets() {
    let server = Server::start();
    let client = client(&server);
    let map = create(&client, json!({"name": "tenants", "kind": "hash", "key": "bigint", "buckets": 8}));
    assert_eq!(entries(&client, &map), json!([[{"buckets": [0, 4]}, "s1"], [{"buckets": [4, 8]}, "s2"]]));
    change(&client, &map, json!({"split": {"at": "2"}}));
    change(&client, &map, json!({"assign": {"range": {"buckets": [2, 4]}, "to": "s2"}}));
    change(&client, &map, json!({"merge": {"at": 4}}));
    assert_eq!(entries(&client, &map), json!([[{"buckets": [0, 2]}, "s1"], [{"buckets": [2, 8]}, "s2"]]));
    let located = client.locate(&map, "-42").unwrap();
    assert_eq!(located.key.json(), &json!(-42));
    assert!(matches!(located.range, RangeView::Buckets { .. }));
    let key: ChangeRequest = of(json!({"remove": {"range": {"key": 42}}}));
    assert_eq!(code(client.change(&map, &key, None, Basis::Current)), ErrorCode::Invalid);
}

#[test]
fn a_list_map_is_spoken_of_in_keys_and_groups() {
    let server = Server::start();
    let client = client(&server);
    let map = create(&client, json!({"name": "customers", "kind": "list", "key": "text"}));
    let entry = |key: &str, group: Value| json!({"range": {"key": key}, "shard": "s1", "group": group});
    let nordic = json!("scandinavia");
    let three = [entry("acme", Value::Null), entry("bergen", nordic.clone()), entry("oslo", nordic)];
    change(&client, &map, json!({"add": {"entries": three}}));
    change(&client, &map, json!({"assign": {"group": "scandinavia", "to": "s2"}}));
    let expected = json!([[{"key": "acme"}, "s1"], [{"key": "bergen"}, "s2"], [{"key": "oslo"}, "s2"]]);
    assert_eq!(entries(&client, &map), expected);
    assert_eq!(code(client.locate(&map, "paris")), ErrorCode::NotFound);
    let page = client.entries(&map, &PageRequest { after: None, limit: Some(2) }).unwrap();
    let rest = client.entries(&map, &PageRequest { after: page.next, limit: Some(2) }).unwrap();
    assert_eq!((page.entries.len(), rest.entries.len(), rest.next), (2, 1, None));
}

#[test]
fn a_map_of_tuples_takes_arrays_and_their_text() {
    let server = Server::start();
    let client = client(&server);
    let map = create(&client, json!({"name": "orders", "kind": "range", "key": "(text, bigint)"}));
    change(
        &client,
        &map,
        json!({"add": {"entries": [{"range": {"from": null, "to": ["eu", 5]}, "shard": "s1"}]}}),
    );
    change(&client, &map, json!({"add": {"entries": [{"range": {"from": "[\"eu\", 5]"}, "shard": "s2"}]}}));
    assert_eq!(client.locate(&map, "[\"eu\", 4]").unwrap().shard.as_str(), "s1");
    assert_eq!(client.locate(&map, "[\"eu\", 5]").unwrap().shard.as_str(), "s2");
    let wrong: ChangeRequest = of(json!({"split": {"at": "eu"}}));
    assert_eq!(code(client.change(&map, &wrong, None, Basis::Current)), ErrorCode::Invalid);
}

#[test]
fn a_composite_map_is_spoken_of_in_segments_and_buckets() {
    let server = Server::start();
    let client = client(&server);
    let new = json!({"name": "events", "kind": "range_hash", "key": "(date, bigint)", "buckets": 4});
    let map = create(&client, new);
    let january = json!({"from": "2024-01-01", "to": "2024-02-01"});
    change(&client, &map, json!({"add_segment": {"segment": january, "shards": ["s1", "s2"]}}));
    let first = json!("2024-01-01");
    let expected = json!([
        [{"segment": first, "buckets": [0, 2]}, "s1"],
        [{"segment": first, "buckets": [2, 4]}, "s2"],
    ]);
    assert_eq!(entries(&client, &map), expected);
    change(&client, &map, json!({"split": {"segment": first, "at": 1}}));
    change(&client, &map, json!({"assign": {"range": {"segment": first, "buckets": [0, 1]}, "to": "s2"}}));
    change(&client, &map, json!({"split_segment": {"segment": first, "at": "2024-01-15"}}));
    assert_eq!(entries(&client, &map).as_array().unwrap().len(), 6);
    change(&client, &map, json!({"remove_segment": {"segment": "2024-01-15"}}));
    assert_eq!(entries(&client, &map).as_array().unwrap().len(), 3);
    assert_eq!(client.locate(&map, "[\"2024-01-03\", 7]").unwrap().map, map);
    assert_eq!(code(client.locate(&map, "[\"2024-01-20\", 7]")), ErrorCode::NotFound);
}

#[test]
fn a_map_is_exported_dropped_and_imported_as_it_was() {
    let server = Server::start();
    let client = client(&server);
    let map = create(&client, json!({"name": "tenants", "kind": "hash", "key": "uuid", "buckets": 16}));
    let before = entries(&client, &map);
    let document = client.export_map(&map).unwrap();
    client.drop_map(&map, Data::Keep, Basis::Version(1)).unwrap();
    assert_eq!(code(client.map(&map)), ErrorCode::NotFound);
    assert_eq!(client.import_map(&document).unwrap().name, map);
    assert_eq!(entries(&client, &map), before);
    assert_eq!(client.maps().unwrap().maps.len(), 1);
    assert_eq!(code(client.import_map(b"{}")), ErrorCode::Invalid);
}

#[test]
fn differences_and_operations_come_through() {
    let server = Server::start();
    let client = client(&server);
    let map = create(&client, json!({"name": "tenants", "kind": "hash", "key": "uuid"}));
    let check = client.check_map(&map).unwrap();
    assert_eq!((check.differences.len(), check.unreachable.len()), (2, 1));
    let repair: RepairRequest = of(json!({"from": "shards", "mode": "plan"}));
    assert_eq!(client.repair_map(&map, &repair).unwrap().differences, check.differences);
    assert_eq!(client.operations().unwrap().operations.len(), 1);
    assert_eq!(client.operation("op1").unwrap().id, "op1");
    for id in ["op2", "", "../status", "a b"] {
        assert_eq!(code(client.operation(id)), ErrorCode::NotFound, "{id:?}");
    }
}

#[test]
fn the_served_document_is_the_committed_one() {
    let server = Server::start();
    let served = String::from_utf8(client(&server).openapi().unwrap()).unwrap();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        served == committed,
        "docs/openapi.json is not the served document; UPDATE_GOLDENFILES=1 writes it"
    );
}

#[test]
fn a_server_that_is_not_there_or_not_ours_is_told_apart() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let gone = Client::new(&format!("http://{address}"), TOKEN).unwrap().status().unwrap_err();
    assert!(matches!(gone, ClientError::Unreachable { .. }), "{gone:?}");
    assert_eq!(gone.into_problem().code, ErrorCode::Unavailable);

    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = other.accept().unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).unwrap();
        assert!(read > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmoin").unwrap();
    });
    let strange = Client::new(&format!("http://{address}/"), TOKEN).unwrap().status().unwrap_err();
    thread.join().unwrap();
    assert!(matches!(strange, ClientError::NotPolyshard { .. }), "{strange:?}");

    for wrong in ["", "127.0.0.1:7070", "https://host:7070", "http://", "http://me@host/"] {
        assert_eq!(code(Client::new(wrong, TOKEN)), ErrorCode::Invalid, "{wrong}");
    }
    assert_eq!(code(Client::new("http://host", "with space")), ErrorCode::Invalid);
}

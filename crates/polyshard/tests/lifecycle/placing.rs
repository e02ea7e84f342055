//! D6: new keys that name no shard go where there is room; a full shard gets none.

use polyshard_testkit::process::{Server, Setup};

use crate::fleet::Fleet;
use crate::sql::sql;
use crate::support::{json, refused, run, session, shard_of};

/// Adds a key without saying where to; answers where it went.
#[track_caller]
fn placed(server: &Server, key: u32) -> String {
    let answer = json(server, &format!("map add tenants --key {key}"));
    let shard = answer["placed"][0]["shard"].as_str().expect("a shard").to_owned();
    assert_eq!(shard_of(server, "tenants", &key.to_string()), shard);
    shard
}

fn finds_room(server: &Server, [first, second, third, fourth]: [&str; 4]) {
    session(server, "map create tenants --kind list --key bigint");
    sql(server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(server, "table shard orders --map tenants --key tenant").ok();
    let mut spread: Vec<String> = (1..=8).map(|key| placed(server, key)).collect();
    spread.sort();
    assert_eq!(
        spread,
        [first, first, second, second, third, third, fourth, fourth],
        "one is as good as another"
    );
    for key in 1..=3 {
        sql(server, &format!("INSERT INTO orders VALUES ({key}, 1)"));
    }

    // Full by its size, and closed by hand.
    run(server, &format!("shard set {first} --bytes-max 1")).ok();
    run(server, &format!("shard set {second} --shardlets-max 1")).ok();
    for key in 10..14 {
        let shard = placed(server, key);
        assert!([third, fourth].contains(&shard.as_str()), "{key} on {shard}");
    }
    for full in [first, second] {
        let error = refused(server, &format!("map add tenants --key 20 --to {full}"), 4);
        assert!(error["message"].as_str().expect("a message").contains("is full"), "{error}");
    }
    // A key that a rule pins goes there; others stay in the region of the rest.
    run(server, &format!("shard set {third} --region eu")).ok();
    run(server, "rule add tenants --key 30 --region eu").ok();
    assert_eq!((placed(server, 30).as_str(), placed(server, 31).as_str()), (third, fourth));

    run(server, &format!("shard set {fourth} --bytes-max 1")).ok();
    let error = refused(server, "map add tenants --key 32", 4);
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("no shard has room for new keys of map tenants"), "{error}");
    assert!([first, second, fourth].iter().all(|shard| message.contains(shard)), "each is told of: {error}");
    refused(server, "map locate tenants 32", 3);
    // A new map is spread over those with room alone.
    run(server, "map create users --kind hash --key bigint --buckets 16").ok();
    let shown = json(server, "map show users");
    assert_eq!(
        shown["by_shard"].as_object().map(|all| all.keys().cloned().collect()),
        Some(vec![third.to_owned()])
    );
    assert_eq!(sql(server, "SELECT count(*) FROM orders"), "3");
}

#[test]
fn new_keys_go_where_there_is_room() {
    let mut server = Setup::new().start();
    finds_room(&server, ["s1", "s2", "s3", "s4"]);
    server.stop();
}

#[test]
fn new_keys_on_postgres_go_where_there_is_room() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0), ("c", 0), ("d", 0)]);
    let mut server = fleet.setup().start();
    finds_room(&server, ["a", "b", "c", "d"]);
    server.stop();
}

//! D6: new keys that name no shard go where there is room; a full shard gets none.

use polyshard_testkit::process::{Server, Setup};
use serde_json::json;

use crate::fleet::Fleet;
use crate::sql::sql;
use crate::support::{self, TOKEN, refused, run, send, session, shard_of};

/// Adds a key without saying where to; answers where it went.
#[track_caller]
fn placed(server: &Server, key: u32) -> String {
    let answer = support::json(server, &format!("map add tenants --key {key}"));
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
    let shown = support::json(server, "map show users");
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
    finds_rows(&server, &fleet);
    server.stop();
}

/// Keys that nobody owns, and whose rows are on a shard, after [`finds_room`]: a, b and d are full.
fn finds_rows(server: &Server, fleet: &Fleet) {
    let on = |shard: &str, sql: &str| fleet.servers[0].execute(shard, sql);
    on("b", "INSERT INTO orders VALUES (40, 1), (41, 1)");
    assert_eq!(placed(server, 40), "b", "however full it is");
    let error = refused(server, "map add tenants --key 41 --to a", 4);
    assert!(error["message"].as_str().expect("a message").contains("is full"), "{error}");
    run(server, "map add tenants --key 41 --to b").ok();
    assert_eq!(sql(server, "SELECT count(*) FROM orders WHERE tenant IN (40, 41)"), "2", "nothing is hidden");

    session(server, "map create names --kind list --key text");
    sql(server, "CREATE TABLE notes (name text, id bigint, PRIMARY KEY (name, id))");
    run(server, "table shard notes --map names --key name").ok();
    for name in ["ann", "o''hara", "ünal"] {
        on("c", &format!("INSERT INTO notes VALUES ('{name}', 1)"));
    }
    on("d", "INSERT INTO notes VALUES ('ann', 1)");
    for name in ["o'hara", "ünal"] {
        let answer = server.cli(&["map", "add", "names", "--key", name, "--json"]).json();
        assert_eq!(answer["placed"][0]["shard"], "c", "{name}");
    }
    assert_eq!(sql(server, "SELECT count(*) FROM notes WHERE name IN ('o''hara', 'ünal')"), "2");
    // Nobody can tell which shard is right if two have rows.
    let error = refused(server, "map add names --key ann", 4);
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("on several shards: c, d"), "{error}");
    refused(server, "map locate names ann", 3);
    // A shard that cannot be asked may have them.
    on("postgres", "ALTER DATABASE d ALLOW_CONNECTIONS false");
    on("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'd'");
    let error = refused(server, "map add names --key eve", 5);
    assert!(error["message"].as_str().expect("a message").contains("shard d does not say"), "{error}");
}

#[test]
fn groups_rules_and_tiers_are_heeded_within_one_request() {
    let mut server = Setup::new().start();
    // It would be the first by its name.
    session(&server, "shard set s1 --tier cold\nmap create tenants --kind list --key bigint");
    run(&server, "rule add tenants --apart 5,6,7").ok();
    let body = json!({ "add": { "entries": [
        { "range": { "key": 1 }, "group": "g" },
        { "range": { "key": 2 }, "group": "g" },
        { "range": { "key": 3 }, "group": "h" },
        { "range": { "key": 4 }, "group": "h", "shard": "s4" },
        { "range": { "key": 5 } },
        { "range": { "key": 6 } },
        { "range": { "key": 7 } },
    ] } });
    let headers = format!("{TOKEN}content-type: application/json\r\n");
    let reply = send(&server, "POST /v1/maps/tenants/changes", &headers, body.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.body);
    let at: Vec<String> = (1..=7).map(|key| shard_of(&server, "tenants", &key.to_string())).collect();
    assert_eq!((&at[0], at[2].as_str()), (&at[1], "s4"), "a group is on one shard: {at:?}");
    let mut apart = at[4..].to_vec();
    apart.sort();
    assert_eq!(apart, ["s2", "s3", "s4"], "apart, and not in the cold: {at:?}");
    assert!(!at.contains(&"s1".to_owned()), "{at:?}");
    server.stop();
}

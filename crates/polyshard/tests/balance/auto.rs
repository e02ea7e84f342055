//! D3: load is evened out by itself, within its limits, and then it is calm.

use std::collections::BTreeMap;

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::reader::Reader;
use crate::sql::{load, rows, sql};
use crate::support::{assert_agreed, await_quiet, eventually, json, run, session, shard_of, version_of};

/// Looks every second and moves two at a time.
fn automatic(setup: Setup) -> Setup {
    setup
        .env("POLYSHARD__REBALANCE__AUTO", "true")
        .env("POLYSHARD__REBALANCE__EVERY_S", "1")
        .env("POLYSHARD__REBALANCE__MOVES_MAX", "2")
}

/// Tenants 1 to 8 on one of several shards.
fn all_on_one(server: &Server, shard: &str) {
    run(server, "map create tenants --kind list --key bigint").ok();
    for tenant in 1..=8 {
        run(server, &format!("map add tenants --key {tenant} --to {shard}")).ok();
    }
    sql(server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(server, "table shard orders --map tenants --key tenant").ok();
    load(server, "orders", rows(8, 20, ""));
}

fn operations(server: &Server, kind: &str) -> Vec<Value> {
    let list = json(server, "ops list");
    let all = list["operations"].as_array().expect("a list").clone();
    all.into_iter().filter(|one| one["kind"] == kind).collect()
}

/// Waits until nothing has changed for some looks of the rebalancer.
fn await_calm(server: &Server) -> u64 {
    let up = || json(server, "top --once")["traffic"]["up_s"].as_u64().expect("a time");
    let mut seen = (up(), version_of(server, "tenants"));
    eventually("some looks at which nothing is moved", || {
        let (now, version) = (up(), version_of(server, "tenants"));
        if version != seen.1 {
            seen = (now, version);
        }
        (now >= seen.0 + 2).then_some(version)
    })
}

#[test]
fn hot_tenants_are_spread_over_the_shards_and_then_it_is_calm() {
    let mut server = automatic(Setup::new()).start();
    all_on_one(&server, "s1");
    let reader = Reader::start(&server, "SELECT count(*) FROM orders WHERE tenant = $1", vec![1, 2, 3, 4]);
    let spread = || {
        let mut on: BTreeMap<String, usize> = BTreeMap::new();
        for tenant in 1..=4 {
            *on.entry(shard_of(&server, "tenants", &tenant.to_string())).or_default() += 1;
        }
        on
    };
    eventually("the hot tenants to be on several shards", || (spread().len() >= 3).then_some(()));
    await_calm(&server);
    await_quiet(&server);
    let read = reader.stop();
    assert!(read > 0);
    let moves = operations(&server, "move");
    assert!((2..=4).contains(&moves.len()), "each hot tenant moves at most once: {moves:?}");
    let procedures = operations(&server, "rebalance");
    assert!(procedures.iter().all(|one| one["state"] == "done"), "{procedures:?}");
    assert!(procedures.len() >= 2 || moves.len() <= 2, "two moves in one go at most: {procedures:?}");
    assert!(spread().len() >= 3, "{:?}", spread());
    for quiet in 5..=8 {
        assert_eq!(shard_of(&server, "tenants", &quiet.to_string()), "s1", "what is quiet stays");
    }
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "160");
    assert_agreed(&server);
    server.assert_clean_log(&[]);
    server.stop();
}

#[test]
#[ignore = "long: waits for the third attempt"]
fn what_fails_is_tried_again_later_and_later_and_says_why() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = automatic(fleet.setup()).start();
    all_on_one(&server, "a");
    // Rows that are there already, past Polyshard, keep others from coming.
    fleet.servers[0].execute("b", "INSERT INTO orders SELECT tenant, 1 FROM generate_series(1, 4) AS tenant");
    let reader = Reader::start(&server, "SELECT count(*) FROM orders WHERE tenant = $1", vec![1, 2, 3, 4]);
    let attempts = eventually("three attempts", || {
        let attempts = operations(&server, "rebalance");
        (attempts.iter().filter(|one| one["state"] == "rolled_back").count() >= 3).then_some(attempts)
    });
    reader.stop();
    let mut begun: Vec<i64> =
        attempts.iter().map(|one| one["started_ms"].as_i64().expect("a time")).collect();
    begun.sort_unstable();
    assert!(begun[1] - begun[0] >= 2_000 && begun[2] - begun[1] >= 4_000, "{begun:?}");
    assert!(attempts[0]["message"].as_str().expect("a reason").contains("does not own"), "{attempts:?}");
    let log = server.log().text();
    assert!(log.contains("the last attempt failed") && log.contains("--plan"), "{log}");
    for tenant in 1..=8 {
        assert_eq!(shard_of(&server, "tenants", &tenant.to_string()), "a");
    }
    server.stop();
}

#[test]
#[ignore = "long: waits for some looks at which nothing may happen"]
fn outside_of_the_quiet_hours_nothing_is_moved() {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let hour = now.as_secs() / 3_600 % 24;
    let hours = format!("{:02}:00-{:02}:00", (hour + 12) % 24, (hour + 14) % 24);
    let mut server = automatic(Setup::new()).env("POLYSHARD__REBALANCE__HOURS", &hours).start();
    all_on_one(&server, "s1");
    let reader = Reader::start(&server, "SELECT count(*) FROM orders WHERE tenant = $1", vec![1, 2, 3, 4]);
    await_calm(&server);
    let plan = json(&server, "rebalance tenants --plan --by requests");
    reader.stop();
    assert!(!plan["moves"].as_array().expect("moves").is_empty(), "there was something to move: {plan}");
    assert_eq!(operations(&server, "rebalance"), Vec::<Value>::new());
    session(&server, "rebalance tenants --apply --by requests");
    assert!(!operations(&server, "rebalance").is_empty(), "an operator may at any time");
    server.stop();
}

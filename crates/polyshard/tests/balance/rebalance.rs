//! D1, D3, D5: drains and plans heed rules and limits, and the server carries them out.

use std::os::unix::process::ExitStatusExt;

use polyshard_testkit::process::Setup;
use serde_json::Value;

use crate::sql::{load, rows, sql};
use crate::support::{assert_agreed, await_quiet, json, refused, run, session};

fn rows_by_shard(plan: &Value) -> Vec<(String, u64, u64)> {
    let shards = plan["shards"].as_array().expect("shards").iter();
    let number = |value: &Value| value.as_u64().expect("a number");
    shards
        .map(|load| {
            let shard = load["shard"].as_str().expect("a shard").to_owned();
            (shard, number(&load["rows"]), number(&load["rows_after"]))
        })
        .collect()
}

// A4: adding a 5th shard to a hash map of 4 moves 20 % ± 2 % of its rows.
#[test]
fn a_fifth_shard_gets_a_fifth_of_the_rows_and_the_rest_stays() {
    let mut server = Setup::new().start();
    session(&server, "map create tenants --kind hash --key bigint --buckets 256");
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(20_000, 1, ""));
    run(&server, "shard add s5 --url sqlite:shards/s5.db").ok();
    let plan = json(&server, "rebalance tenants --plan --by rows --slack 2");
    let moves = plan["moves"].as_array().expect("moves").clone();
    assert!(moves.iter().all(|planned| planned["to"] == "s5"), "{plan}");
    let moved: u64 = moves.iter().map(|planned| planned["rows"].as_u64().expect("rows")).sum();
    assert!((3600..=4400).contains(&moved), "{moved} of 20000: {plan}");
    assert!(moves[0]["why"].as_str().expect("a reason").contains("where 20.0 % would be even"), "{plan}");
    run(&server, "rebalance tenants --apply --by rows --slack 2").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "20000");
    let again = json(&server, "rebalance tenants --plan --by rows --slack 10");
    assert_eq!(again["moves"], serde_json::json!([]), "{again}");
    let loads = rows_by_shard(&again);
    assert_eq!(loads.iter().map(|(_, rows, _)| rows).sum::<u64>(), 20000, "{loads:?}");
    run(&server, "check tenants").ok();

    // D1: and it can be emptied again, which survives the server.
    server.stop();
    let setup = server.setup().clone();
    let mut server = setup.clone().env("POLYSHARD_FAILPOINT", "task_move.after").start();
    let _lost = run(&server, "drain s5 --apply --detach");
    let ended = server.wait();
    assert_eq!(ended.signal(), Some(6), "{}", server.log().text());
    let mut server = setup.start();
    await_quiet(&server);
    assert_eq!(json(&server, "shard show s5")["ranges"], 0);
    run(&server, "shard remove s5").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "20000");
    assert_agreed(&server);
    server.stop();
}

// D1: the documented way out of embedded shards: one after the other is emptied, then they are removed.
#[test]
fn a_shard_that_was_emptied_is_not_filled_by_the_next_one_that_is() {
    let mut server = Setup::new().start();
    session(
        &server,
        "map create tenants --kind hash --key bigint --buckets 16
        drain s1 --apply
        drain s2 --apply
        drain s3 --apply
        shard remove s1
        shard remove s2
        shard remove s3",
    );
    let by_shard = json(&server, "map show tenants")["by_shard"].clone();
    assert_eq!(by_shard.as_object().expect("shards").keys().collect::<Vec<_>>(), ["s4"]);
    // The last one has nowhere to go to, and says so.
    let error = refused(&server, "drain s4 --apply", 4);
    assert!(error["message"].as_str().expect("a message").contains("no other shard"), "{error}");
    server.stop();
}

// D5, D4: pins, tiers, what is kept apart; limits of shards.
#[test]
fn plans_and_moves_heed_rules_and_limits() {
    let mut server = Setup::new().start();
    session(
        &server,
        "shard set s1 --region eu
        shard set s2 --region eu
        shard set s3 --region us
        map create tenants --kind list --key bigint
        map add tenants --key 1 --to s1
        map add tenants --key 2 --to s1
        map add tenants --key 3 --to s1
        map add tenants --key 4 --to s1",
    );
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(4, 100, ""));
    run(&server, "rule add tenants --key 1 --region eu").ok();
    run(&server, "rule add tenants --apart 2,3").ok();
    let error = refused(&server, "move tenants --key 1 --to s3", 4);
    assert!(error["message"].as_str().expect("a message").contains("region eu"), "{error}");
    let plan = json(&server, "rebalance tenants --plan --by rows --slack 2");
    assert!(!plan["moves"].as_array().expect("moves").is_empty(), "{plan}");
    run(&server, "rebalance tenants --apply --by rows --slack 2").ok();
    let on = |key: &str| crate::support::shard_of(&server, "tenants", key);
    assert!(["s1", "s2"].contains(&on("1").as_str()));
    assert_ne!(on("2"), on("3"));
    let same = on("2");
    let error = refused(&server, &format!("move tenants --key 3 --to {same}"), 4);
    assert!(error["message"].as_str().expect("a message").contains("never together"), "{error}");
    // A limit that is reached is named.
    run(&server, "shard add small --url sqlite:shards/small.db --bytes-max 10").ok();
    let error = refused(&server, "move tenants --key 4 --to small", 4);
    assert!(error["message"].as_str().expect("a message").contains("its limit is 10"), "{error}");
    // Where a rule leaves no place, a drain says so and begins nothing.
    run(&server, "rule add tenants --key 4 --region nowhere").ok();
    let holder = on("4");
    let error = refused(&server, &format!("drain {holder} --apply"), 4);
    assert!(error["message"].as_str().expect("a message").contains("no other place"), "{error}");
    let rules = json(&server, "rule list");
    let id = rules["rules"][0]["id"].as_str().expect("an id").to_owned();
    run(&server, &format!("rule remove {id}")).ok();
    refused(&server, &format!("rule remove {id}"), 3);
    assert_eq!(json(&server, "rule list")["rules"].as_array().expect("rules").len(), 2);
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "400");
    server.stop();
}

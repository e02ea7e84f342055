//! D4: a key gets a shard of its own, from every kind of map, and keeps it.

use polyshard_testkit::process::Setup;

use crate::sql::{Writer, load, rows, sql};
use crate::support::{assert_agreed, json, refused, run, session, shard_of};

const TABLE: &str = "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))";

#[test]
fn a_tenant_gets_a_new_shard_while_it_is_written_and_others_are_kept_away() {
    let mut server = Setup::new().start();
    session(&server, "map create tenants --kind range --key bigint\nmap add tenants --range '..' --to s1");
    sql(&server, TABLE);
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(20, 20, "\tx"));
    // The other embedded shards are empty, and one of them is taken first.
    let looked = json(&server, "isolate tenants --key 7 --dry-run");
    assert_eq!(looked["parts"][0]["to"], "s2", "{looked}");
    assert!(looked["steps"].as_array().expect("steps").len() > 5, "{looked}");
    let writer = Writer::start(&server, "INSERT INTO orders VALUES (7, 1000 + $1::bigint, 'w')");
    run(&server, "isolate tenants --key 7 --wait").ok();
    let written = writer.stop();
    assert_eq!(shard_of(&server, "tenants", "7"), "s2");
    assert_eq!(
        (shard_of(&server, "tenants", "6"), shard_of(&server, "tenants", "8")),
        ("s1".into(), "s1".into())
    );
    let expected = (20 + written).to_string();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE tenant = 7"), expected);
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), (400 + written).to_string());

    // A rule keeps it so: neither a move nor a plan puts anything there.
    let error = refused(&server, "move tenants --key 9 --to s2", 4);
    assert!(error["message"].as_str().expect("a message").contains("to itself"), "{error}");
    let plan = json(&server, "rebalance tenants --plan --by rows");
    for planned in plan["moves"].as_array().expect("moves") {
        assert_ne!(planned["to"], "s2", "{plan}");
    }
    // With all shards taken, an embedded one is made.
    session(
        &server,
        "isolate tenants --key 8 --wait
        isolate tenants --key 10 --wait
        isolate tenants --key 11 --wait",
    );
    assert_eq!(shard_of(&server, "tenants", "11"), "s5");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), (400 + written).to_string());
    run(&server, "check tenants").ok();
    assert_agreed(&server);
    let kinds = json(&server, "ops list")["operations"].to_string();
    assert!(kinds.contains("isolate"), "{kinds}");
    server.stop();
}

// D4, D5: what belongs to another map is somebody else, too.
#[test]
fn a_shard_of_its_own_is_not_shared_with_other_maps() {
    let mut server = Setup::new().start();
    session(
        &server,
        "map create tenants --kind range --key bigint
        map add tenants --range '..' --to s1
        map create customers --kind list --key text
        map add customers --key acme --to s1
        isolate tenants --key 7 --wait",
    );
    assert_eq!(shard_of(&server, "tenants", "7"), "s2");
    let error = refused(&server, "move customers --key acme --to s2", 4);
    assert!(error["message"].as_str().expect("a message").contains("by a rule of map tenants"), "{error}");
    for number in 0..8 {
        let key = format!("c{number}");
        run(&server, &format!("map add customers --key {key}")).ok();
        assert_ne!(shard_of(&server, "customers", &key), "s2");
    }
    run(&server, "map create devices --kind hash --key bigint --buckets 16").ok();
    let spread = json(&server, "map show devices")["by_shard"].clone();
    assert_eq!(spread.as_object().expect("shards").keys().collect::<Vec<_>>(), ["s1", "s3", "s4"]);
    let plan = json(&server, "rebalance devices --plan --by rows");
    assert_eq!(plan["moves"], serde_json::json!([]), "{plan}");
    // What came there all the same is told of, and leaves.
    run(&server, "map create guests --kind hash --key bigint --buckets 4 --shards s2,s3").ok();
    let plan = json(&server, "rebalance guests --plan");
    let moves = plan["moves"].as_array().expect("moves");
    assert!(!moves.is_empty() && moves.iter().all(|planned| planned["from"] == "s2"), "{plan}");
    assert!(moves[0]["why"].as_str().expect("a reason").contains("7 has its shard to itself"), "{plan}");
    run(&server, "rebalance guests --apply").ok();
    assert_eq!(json(&server, "map show guests")["by_shard"]["s2"], serde_json::Value::Null);

    // A map takes its rules along; one of the same name begins without, and may have other keys.
    assert_eq!(json(&server, "rule list")["rules"].as_array().expect("rules").len(), 1);
    session(&server, "map drop tenants --destroy tenants\nmap create tenants --kind list --key text");
    assert_eq!(json(&server, "rule list")["rules"], serde_json::json!([]));
    run(&server, "move customers --key acme --to s2 --wait").ok();
    // Two homes for one key are refused when the second is asked for.
    run(&server, "rule add customers --key acme --region eu").ok();
    let error = refused(&server, "rule add customers --key acme --region us", 4);
    assert!(error["message"].as_str().expect("a message").contains("stays in region eu"), "{error}");
    assert_agreed(&server);
    server.stop();
}

#[test]
fn list_and_hash_maps_give_a_shard_of_its_own_too() {
    let mut server = Setup::new().start();
    session(
        &server,
        "map create listed --kind list --key bigint
        map add listed --key 1 --to s1
        map add listed --key 2 --to s1
        shard add e1 --url sqlite:shards/e1.db
        shard add e2 --url sqlite:shards/e2.db",
    );
    run(&server, "isolate listed --key 2 --to e1 --wait").ok();
    assert_eq!(
        (shard_of(&server, "listed", "1"), shard_of(&server, "listed", "2")),
        ("s1".into(), "e1".into())
    );
    run(&server, "map create hashed --kind hash --key bigint --buckets 16").ok();
    // A hash map is spread over all shards online; here one is emptied first.
    run(&server, "drain e2 --apply").ok();
    run(&server, "isolate hashed --key 5 --to e2 --wait").ok();
    assert_eq!(shard_of(&server, "hashed", "5"), "e2");
    let error = refused(&server, "isolate listed --key 1 --to s3", 4);
    assert!(error["message"].as_str().expect("a message").contains("hashed"), "{error}");
    assert_agreed(&server);
    server.stop();
}

//! D3, E2: what is hot by requests and by bytes, what is large, what is hardly used; counted by all processes.

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::reader::Reader;
use crate::sql::{block_on, connect, load, rows, sql};
use crate::support::{eventually, json, refused, run, session};

fn first_key(answer: &Value, list: &str) -> Value {
    answer[list][0]["key"].clone()
}

/// Asks for a tenant's rows so often.
fn ask(server: &Server, tenant: i64, times: usize, columns: &str) {
    let address = server.door("sql").to_owned();
    block_on(async move {
        let client = connect(&address).await;
        let select = format!("SELECT {columns} FROM orders WHERE tenant = $1");
        let select = client.prepare(&select).await.expect("it can be prepared");
        for _ in 0..times {
            client.query(&select, &[&tenant]).await.expect("an answer");
        }
    });
}

#[test]
fn the_hot_the_heavy_the_large_and_the_cold_are_told_apart() {
    let mut server = Setup::new().start();
    session(
        &server,
        "map create tenants --kind list --key bigint
        map add tenants --key 1 --to s1
        map add tenants --key 2 --to s1
        map add tenants --key 3 --to s2
        map add tenants --key 4 --to s2",
    );
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(3, 20, "\tx"));
    load(&server, "orders", (1..=400).map(|id| format!("4\t{id}\tx")));
    sql(&server, &format!("UPDATE orders SET note = '{}' WHERE tenant = 2", "y".repeat(500)));
    ask(&server, 1, 400, "id");
    ask(&server, 2, 100, "note");
    ask(&server, 3, 40, "id");
    let hot = json(&server, "hot");
    assert_eq!(first_key(&hot, "shardlets"), 1, "{hot}");
    assert_eq!(hot["processes"], 1);
    let heavy = json(&server, "hot --by bytes");
    assert_eq!(first_key(&heavy, "shardlets"), 2, "{heavy}");
    assert!(
        heavy["shardlets"][0]["bytes_per_s"].as_f64() > hot["shardlets"][0]["bytes_per_s"].as_f64(),
        "{heavy}"
    );
    let large = json(&server, "hot --by size");
    assert_eq!(first_key(&large, "shardlets"), 4, "{large}");
    let cold = json(&server, "hot --cold --map tenants");
    assert_eq!(cold["cold"][0]["range"]["key"], 4, "{cold}");
    assert_eq!((&cold["cold"][0]["rows"], &cold["cold"][0]["estimated"]), (&400.into(), &false.into()));
    for (line, words) in [
        ("hot", "BYTES/S"),
        ("hot --by size", "LARGE KEY"),
        ("hot --cold", "COLD RANGE"),
        ("top --once", "BYTES/S"),
    ] {
        let shown = run(&server, line).ok();
        assert!(shown.contains(words), "{line}: {shown}");
    }
    refused(&server, "hot --cold --map nothing", 3);
    assert_eq!(server.get("/v1/hot?by=colour").status, 400);
    server.stop();
}

#[test]
fn every_process_knows_the_load_of_all_until_one_is_gone() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut first = fleet.setup().start();
    // E2: as if shard a had grown by some megabytes a day. A process looks when it starts.
    run(&first, "shard set a --bytes-max 60000000").ok();
    fleet.servers[0].execute(
        "catalog",
        "INSERT INTO polyshard.shard_size SELECT 'a', (extract(epoch FROM now()) * 1000)::bigint - day * 86400000, \
         7000000 - day * 3000000 FROM generate_series(1, 2) AS day",
    );
    let mut second = fleet.setup().start();
    eventually("a warning that the shard will be full", || {
        let top = json(&second, "top --once");
        let shards = top["traffic"]["shards"].as_array().expect("shards").clone();
        let warnings =
            shards.into_iter().find(|one| one["shard"] == "a").expect("shard a")["warnings"].to_string();
        warnings.contains("reaches the limit about 20").then_some(())
    });
    run(&first, "map create tenants --kind hash --key bigint --buckets 16").ok();
    sql(&first, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&first, "table shard orders --map tenants --key tenant").ok();
    load(&first, "orders", rows(40, 5, ""));
    let reader = Reader::start(&first, "SELECT count(*) FROM orders WHERE tenant = $1", vec![7]);
    let hot = eventually("the other process to hear of it", || {
        let hot = json(&second, "hot");
        (first_key(&hot, "shardlets") == 7).then_some(hot)
    });
    assert_eq!(hot["processes"], 2, "{hot}");
    let plan = json(&second, "rebalance tenants --plan --by requests");
    let rates =
        plan["shards"].as_array().expect("shards").iter().map(|shard| shard["requests_per_s"].as_f64());
    assert!(rates.flatten().sum::<f64>() > 0.0, "a plan goes by the requests of all: {plan}");
    reader.stop();
    first.stop();
    eventually("the process that has ended to be left out", || {
        let hot = json(&second, "hot");
        (hot["processes"] == 1 && hot["shardlets"].as_array().expect("a list").is_empty()).then_some(())
    });
    second.assert_clean_log(&[]);
    second.stop();
}

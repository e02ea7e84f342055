//! A plan looks at a sample of large tables, says so, and is about right; what moves is counted exactly.

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::sql::{load, rows, sql};
use crate::support::{json, run};

/// The rows that a plan thinks a shard has.
fn rows_on(plan: &Value, shard: &str) -> u64 {
    let of = plan["shards"].as_array().expect("shards").iter().find(|one| one["shard"] == shard);
    of.and_then(|one| one["rows"].as_u64()).unwrap_or_else(|| panic!("no rows of {shard} in {plan}"))
}

/// The plan says that it is an estimate, and is right within the error of a sample.
fn assert_estimated(server: &Server, shard: &str, total: u64) {
    let shown = run(server, "rebalance tenants --plan --by rows").ok();
    assert!(shown.contains("estimates from a sample"), "{shown}");
    let plan = json(server, "rebalance tenants --plan --by rows --slack 5");
    assert_eq!(plan["estimated"], true, "{plan}");
    let seen = rows_on(&plan, shard);
    assert!((total * 95 / 100..=total * 105 / 100).contains(&seen), "{seen} of {total}");
}

fn prepare(server: &Server, shard: &str) {
    run(server, "map create tenants --kind list --key bigint").ok();
    for tenant in 1..=10 {
        run(server, &format!("map add tenants --key {tenant} --to {shard}")).ok();
    }
    sql(server, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))");
    run(server, "table shard orders --map tenants --key tenant").ok();
}

// D3
#[test]
fn a_large_table_on_postgres_is_sampled_by_its_pages() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    prepare(&server, "a");
    // Straight into the database, which is quicker; each tenant's rows lie together, as after an import.
    fleet.servers[0].execute(
        "a",
        "INSERT INTO orders SELECT tenant, id, repeat('x', 200) FROM generate_series(1, 10) AS tenant, \
         generate_series(1, 9000) AS id ORDER BY tenant, id",
    );
    assert_estimated(&server, "a", 90_000);
    server.stop();
}

// D3
#[test]
#[ignore = "long: 150 000 rows"]
fn a_large_table_on_sqlite_is_sampled_by_its_row_numbers() {
    let mut server = Setup::new().start();
    prepare(&server, "s1");
    load(&server, "orders", rows(10, 15_000, "\tx"));
    assert_estimated(&server, "s1", 150_000);
    run(&server, "rebalance tenants --apply --by rows --slack 5").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "150000");
    run(&server, "check tenants").ok();
    server.stop();
}

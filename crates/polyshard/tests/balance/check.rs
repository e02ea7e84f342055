//! E4: the checker finds what is wrong, and says so with its exit code.

use polyshard_testkit::process::Setup;
use serde_json::{Value, json as value};

use crate::fleet::Fleet;
use crate::left::leave_old_rows;
use crate::sql::{load, rows, sql};
use crate::support::{assert_agreed, eventually, json, run, session};

#[test]
fn rows_on_a_shard_that_does_not_own_them_are_found_and_put_right() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().env("POLYSHARD__CHECK__EVERY_S", "1").start();
    session(&server, "map create tenants --kind range --key bigint\nmap add tenants --range '..' --to a");
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(4, 10, ""));
    run(&server, "check").ok();
    // Somebody has put rows where they are not looked for: two new ones, and one that is where it should be, too.
    fleet.servers[0].execute("b", "INSERT INTO orders VALUES (2, 999), (77, 1), (3, 1)");
    run(&server, "check tenants").fails_with(4);
    let answer = json_of(&server);
    assert_eq!(answer[0]["misplaced"][0]["rows"], 3, "{answer}");
    assert_eq!(answer[0]["misplaced"][0]["shard"], "b", "{answer}");
    // The checker has found it by itself, too, and says so where operators look.
    eventually("the checker's own finding", || {
        let page = server.get("/metrics").body;
        page.contains("polyshard_check_found{kind=\"misplaced_rows\"} 3").then_some(())
    });
    let traffic = server.get("/v1/traffic").body;
    assert!(traffic.contains("has 3 rows that it does not own"), "{traffic}");
    let looked = run(&server, "check --repair --dry-run --json");
    assert_eq!(looked.code, Some(4), "{looked:?}");
    let looked: Value = serde_json::from_str(&looked.stdout).expect("JSON");
    assert_eq!(
        (&looked["rows"][0]["moved"], &looked["rows"][0]["removed"]),
        (&value!(2), &value!(1)),
        "{looked}"
    );
    assert_eq!(fleet.servers[0].execute("b", "SELECT count(*) FROM orders"), "3", "it was only looked at");
    let done = run(&server, "check --repair");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.stdout.contains("2 moved to their owner"), "{done:?}");
    assert_eq!(fleet.servers[0].execute("b", "SELECT count(*) FROM orders"), "0");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "42");
    run(&server, "check").ok();

    // C4: a reference table that differs is found, too. Of two shards a human must say which is right.
    sql(&server, "CREATE TABLE country (code text PRIMARY KEY)");
    run(&server, "table reference country").ok();
    sql(&server, "INSERT INTO country VALUES ('no'), ('dk')");
    fleet.servers[0].execute("b", "DELETE FROM country WHERE code = 'no'");
    let output = server.cli(&["check"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stdout.contains("country"), "{output:?}");
    let output = run(&server, "check --repair");
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stdout.contains("--like"), "{output:?}");
    run(&server, "check --repair --like a").ok();
    assert_eq!(fleet.servers[0].execute("b", "SELECT count(*) FROM country"), "2");
    run(&server, "check").ok();

    // C9: a reference that no database can watch.
    sql(&server, "CREATE TABLE lines (tenant bigint, id bigint, order_id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard lines --map tenants --key tenant").ok();
    sql(&server, "INSERT INTO lines VALUES (1, 1, 5), (1, 2, 4711)");
    run(&server, "link add lines.order_id --to orders.nothing").fails_with(2);
    let link = json(&server, "link add lines.order_id --to orders.id");
    let output = run(&server, "check");
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stdout.contains("4711"), "{output:?}");
    sql(&server, "DELETE FROM lines WHERE tenant = 1 AND id = 2");
    run(&server, "check").ok();
    let id = link["id"].as_str().expect("an id");
    assert!(run(&server, "link list").ok().contains(id));
    run(&server, &format!("link remove {id}")).ok();
    server.stop();
}

#[test]
fn what_a_move_left_is_not_read_when_its_shard_comes_back() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    session(
        &server,
        "map create tenants --kind range --key bigint
         map add tenants --range '..100' --to a
         map add tenants --range '100..' --to b",
    );
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(4, 10, "\told"));
    leave_old_rows(
        &fleet,
        &server,
        "UPDATE orders SET note = 'new' WHERE tenant = 1; DELETE FROM orders WHERE tenant = 2 AND id > 7",
    );
    assert_eq!(fleet.servers[0].execute("a", "SELECT count(*) FROM orders"), "40", "the old rows are there");
    // E4: no request sees them.
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "37");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE note = 'old'"), "27");
    let output = run(&server, "check --repair");
    assert_eq!(output.code, Some(4), "{output:?}");
    run(&server, "check --repair --owner-wins").ok();
    assert_eq!(fleet.servers[0].execute("a", "SELECT count(*) FROM orders"), "20");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "37");
    run(&server, "move tenants --range 1..3 --to a --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "37");
    run(&server, "check").ok();
    assert_agreed(&server);
    server.stop();
}

fn json_of(server: &polyshard_testkit::process::Server) -> serde_json::Value {
    let output = server.cli(&["check", "tenants", "--json"]);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let mut server = Setup::new().start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 8").ok();
    run(&server, "check").ok();
    server.stop();
}

// D7: what somebody has dropped on one shard is neither forgotten nor asked of another alone.
#[test]
fn a_table_that_is_missing_on_one_shard_is_told_and_stays_sharded() {
    let fleet = crate::fleet::Fleet::start(1, &[("a", 0), ("b", 0), ("c", 0)]);
    let setup = fleet.setup();
    let mut server = setup.start();
    run(&server, "map create tenants --kind list --key bigint").ok();
    run(&server, "map add tenants --key 1 --to b").ok();
    run(&server, "map add tenants --key 2 --to c").ok();
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(2, 10, ""));
    server.stop();
    fleet.servers[0].execute("a", "DROP TABLE orders");
    let mut server = setup.start();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "20");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE tenant = 2"), "10");
    let said = run(&server, "check");
    assert_eq!(said.code, Some(4), "{said:?}");
    // It is the one that differs from most.
    let lines: Vec<&str> = said.stdout.lines().filter(|line| line.contains("public.orders")).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("a ")), "{said:?}");
    server.stop();
}

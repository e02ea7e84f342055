//! E4: the checker finds what is wrong, and says so with its exit code.

use polyshard_testkit::process::Setup;

use crate::fleet::Fleet;
use crate::sql::{load, rows, sql};
use crate::support::{run, session};

#[test]
fn rows_on_a_shard_that_does_not_own_them_are_found() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let mut server = fleet.setup().start();
    session(&server, "map create tenants --kind range --key bigint\nmap add tenants --range '..' --to a");
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(4, 10, ""));
    run(&server, "check").ok();
    // Somebody has put rows where they are not looked for.
    fleet.servers[0].execute("b", "INSERT INTO orders VALUES (2, 999), (77, 1)");
    run(&server, "check tenants").fails_with(4);
    let answer = json_of(&server);
    assert_eq!(answer[0]["misplaced"][0]["rows"], 2, "{answer}");
    assert_eq!(answer[0]["misplaced"][0]["shard"], "b", "{answer}");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "40", "requests never see them");
    // C4: a reference table that differs is found, too.
    sql(&server, "CREATE TABLE country (code text PRIMARY KEY)");
    run(&server, "table reference country").ok();
    sql(&server, "INSERT INTO country VALUES ('no')");
    fleet.servers[0].execute("b", "DELETE FROM orders WHERE id = 999 OR tenant = 77");
    run(&server, "check").ok();
    fleet.servers[0].execute("b", "DELETE FROM country");
    let output = server.cli(&["check"]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stdout.contains("country"), "{output:?}");
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

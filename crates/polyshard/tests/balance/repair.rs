//! E4: repairs, with the real program: killed at each step, and old rows that an operator decides on.

use std::os::unix::process::ExitStatusExt;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::left::leave_old_rows;
use crate::sql::{load, rows, sql};
use crate::support::{await_quiet, json, run, session};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;

/// Two shards of a range map; all keys below 100 are on the first.
fn begin(fleet: &Fleet) {
    let mut server = fleet.setup().start();
    session(
        &server,
        "map create tenants --kind range --key bigint
         map add tenants --range '..100' --to a
         map add tenants --range '100..' --to b",
    );
    sql(&server, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))");
    run(&server, "table shard orders --map tenants --key tenant").ok();
    load(&server, "orders", rows(9, 10, "\tmine"));
    server.stop();
}

fn killed_at(places: &[&str]) {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    begin(&fleet);
    let on = |shard: &str, what: &str| fleet.servers[0].execute(shard, what);
    for (number, place) in places.iter().enumerate() {
        let tenant = number + 1;
        on("b", &format!("INSERT INTO orders VALUES ({tenant}, 900, 'lost'), ({tenant}, 901, 'lost')"));
        let mut server = fleet.setup().env("POLYSHARD_FAILPOINT", place).start();
        // The answer is lost with the server.
        let _asked = run(&server, "check --repair");
        let ended = server.wait();
        assert_eq!(ended.signal(), Some(ABORTED), "{place}: {}", server.log().text());
        // What the owner has noted.
        let taken = on(
            "a",
            "SELECT string_agg(format('(%L, %L, %L, %L, %L)', shard, tab, key_digest, pk, row_digest), ', ') \
             FROM polyshard.taken WHERE tab <> ''",
        );
        // A client of the owner deletes one of the rows, if it has come there.
        let delete = format!("DELETE FROM orders WHERE tenant = {tenant} AND id = 900 RETURNING 1");
        let deleted = on("a", &format!("WITH gone AS ({delete}) SELECT count(*) FROM gone"));
        let mut server = fleet.setup().start();
        await_quiet(&server);
        run(&server, "check --repair").ok();
        let count = |shard: &str, id: i64| {
            on(shard, &format!("SELECT count(*) FROM orders WHERE tenant = {tenant} AND id = {id}"))
        };
        let there = if deleted == "1" { "0" } else { "1" };
        assert_eq!(count("a", 900), there, "{place}: a row that was deleted is back, or one is lost");
        assert_eq!((count("a", 901), count("b", 900), count("b", 901)), ("1".into(), "0".into(), "0".into()));
        assert_eq!(on("a", "SELECT count(*) FROM polyshard.taken WHERE tab <> ''"), "0", "{place}");
        // Had the repair been given up, all would be as it is, but for what is noted: the next one sees to it.
        if !taken.is_empty() {
            on("a", &format!("INSERT INTO polyshard.taken VALUES {taken}"));
            run(&server, "check --repair").ok();
            assert_eq!(on("a", "SELECT count(*) FROM polyshard.taken WHERE tab <> ''"), "0", "{place}");
        }
        run(&server, "check").ok();
        server.stop();
    }
}

#[test]
fn a_repair_killed_between_owner_and_stray_brings_nothing_back() {
    killed_at(&["repair_put.after"]);
}

#[test]
#[ignore = "five servers are killed and waited for: make test-all"]
fn a_repair_killed_at_each_step_is_gone_on_with() {
    killed_at(&[
        "task_repair_rows.before",
        "repair_hide.after",
        "repair_put.after",
        "repair_remove.after",
        "task_repair_rows.after",
    ]);
}

#[test]
fn old_rows_are_listed_and_then_carried_or_removed() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    begin(&fleet);
    let mut server = fleet.setup().start();
    leave_old_rows(
        &fleet,
        &server,
        "DELETE FROM orders WHERE tenant = 1 AND id <= 2; DELETE FROM orders WHERE tenant = 2 AND id = 1",
    );
    // They are listed first, with their keys; nothing is done to them unless it is said.
    let looked = run(&server, "check --repair --dry-run").stdout;
    assert!(looked.contains("1, 1; 1, 2; 2, 1") && looked.contains("--carry-old"), "{looked}");
    assert_eq!(run(&server, "check --repair").code, Some(4));
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "87");
    let answer: Value = json_of(&run(&server, "check --repair --drop-old --dry-run --json").stdout);
    assert_eq!(answer["rows"][0]["discarded"], 3, "{answer}");
    let answer: Value = json_of(&run(&server, "check --repair --carry-old --dry-run --json").stdout);
    assert_eq!(answer["rows"][0]["moved"], 3, "{answer}");
    run(&server, "check --repair --carry-old --drop-old").fails_with(2);
    run(&server, "check --repair --carry-old").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "90", "they are back");
    assert_eq!(fleet.servers[0].execute("a", "SELECT count(*) FROM orders WHERE tenant < 3"), "0");
    run(&server, "check").ok();
    assert_eq!(json(&server, "map locate tenants 1")["shard"], "b");
    server.stop();
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

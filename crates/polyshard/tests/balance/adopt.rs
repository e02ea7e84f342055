//! D10: an existing database becomes a shard where it is, with its rows; then tenants move out of it while it is used.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use polyshard_testkit::process::Setup;
use serde_json::{Value, json as value};

use crate::fleet::Fleet;
use crate::sql::{Writer, sql};
use crate::support::{assert_agreed, await_quiet, await_quiet_for, json, refused, run, shard_of};

const LEGACY: &str = "
    CREATE TABLE country (code text PRIMARY KEY, name text NOT NULL);
    CREATE TABLE tenants (id bigint PRIMARY KEY, name text NOT NULL, country text REFERENCES country);
    CREATE TABLE orders (tenant_id bigint NOT NULL REFERENCES tenants, id bigserial, total numeric(10, 2) DEFAULT 0,
        placed timestamptz DEFAULT now(), PRIMARY KEY (tenant_id, id));
    CREATE INDEX orders_total ON orders (tenant_id, total);
    INSERT INTO country VALUES ('no', 'Norway'), ('dk', 'Denmark');
    INSERT INTO tenants SELECT n, 'tenant ' || n, CASE n % 2 WHEN 0 THEN 'no' ELSE 'dk' END
        FROM generate_series(1, 20) n;
    INSERT INTO orders (tenant_id, total) SELECT 1 + n % 20, n FROM generate_series(1, 2000) n;";

/// A catalog, an empty shard, and a database that knows nothing of either.
fn cluster() -> (Fleet, Setup) {
    let fleet = Fleet::start(1, &[("b", 0)]);
    fleet.create(0, "legacy");
    let (url, password) = (fleet.url(0, "legacy"), crate::fleet::password("legacy"));
    let connect = url.replace("legacy@", &format!("legacy:{password}@"));
    let ran =
        std::process::Command::new("psql").args([&connect, "-qv", "ON_ERROR_STOP=1", "-c", LEGACY]).output();
    let ran = ran.expect("psql is installed");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let setup = fleet.setup();
    (fleet, setup)
}

fn line(fleet: &Fleet, rest: &str) -> String {
    format!(
        "adopt {} --map tenants --key-column tenant_id --key-column tenants=id --as legacy --password-file {} {rest}",
        fleet.url(0, "legacy"),
        fleet.password_file("legacy").display()
    )
}

#[test]
fn a_database_is_taken_in_with_its_rows_and_a_tenant_moves_out_while_it_is_written() {
    let (fleet, setup) = cluster();
    let mut server = setup.start();
    // What must change is said first, and nothing is begun.
    let wrong = format!(
        "adopt {} --map tenants --key-column tenant --as legacy --password-file {}",
        fleet.url(0, "legacy"),
        fleet.password_file("legacy").display()
    );
    let error = refused(&server, &wrong, 4);
    assert!(error["message"].as_str().expect("a message").contains("--key-column"), "{error}");
    let looked = json(&server, &line(&fleet, "--dry-run"));
    assert_eq!(looked["must_change"], value!([]), "{looked}");
    let tables: Vec<(&Value, &Value)> = looked["tables"]
        .as_array()
        .expect("tables")
        .iter()
        .map(|one| (&one["table"], &one["placement"]))
        .collect();
    assert_eq!(
        tables,
        [
            (&value!("public.country"), &value!("reference")),
            (&value!("public.orders"), &value!("sharded")),
            (&value!("public.tenants"), &value!("sharded"))
        ]
    );
    assert_eq!(json(&server, "map list")["maps"], value!([]));

    run(&server, &line(&fleet, "--wait")).ok();
    assert_eq!(shard_of(&server, "tenants", "7"), "legacy");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "2000");
    assert_eq!(sql(&server, "SELECT name FROM country WHERE code = 'no'"), "Norway");
    assert_eq!(fleet.servers[0].execute("b", "SELECT count(*) FROM country"), "2", "on every shard");

    let writer = Writer::start(&server, "INSERT INTO orders (tenant_id, total) VALUES (7, $1::bigint)");
    run(&server, "move tenants --key 7 --to b --wait").ok();
    let written = writer.stop();
    assert!(written > 0);
    assert_eq!(shard_of(&server, "tenants", "7"), "b");
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE tenant_id = 7"), (100 + written).to_string());
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), (2000 + written).to_string());
    assert_eq!(
        sql(&server, "SELECT count(DISTINCT id) FROM orders"),
        (2000 + written).to_string(),
        "ids are unique"
    );
    assert_eq!(fleet.servers[0].execute("b", "SELECT count(*) FROM tenants"), "1");
    let joined = "SELECT country.name FROM tenants JOIN country ON code = country WHERE tenants.id = 7";
    assert_eq!(sql(&server, joined), "Denmark");
    run(&server, "check").ok();
    run(&server, "schema check").ok();
    assert_agreed(&server);
    server.stop();
}

/// B2: a move comes to its end also where writers change rows faster than they can be carried: they are held for a part
/// of the time until little is left.
#[test]
fn a_move_outruns_a_writer_of_many_rows_at_once() {
    const ROWS: u64 = 250;
    let (fleet, setup) = cluster();
    let mut server = setup.start();
    run(&server, &line(&fleet, "--wait")).ok();
    let rows = vec!["(7, $1::bigint)"; ROWS as usize].join(", ");
    let writer = Writer::start(&server, &format!("INSERT INTO orders (tenant_id, total) VALUES {rows}"));
    run(&server, "move tenants --key 7 --to b").ok();
    while shard_of(&server, "tenants", "7") != "b" {
        std::thread::sleep(Duration::from_millis(50));
    }
    let written = writer.stop() * ROWS;
    assert!(written > 0);
    // Beside traffic the old copy is removed in a small part of the time; now there is none.
    await_quiet_for(&server, Duration::from_secs(200));
    let (count, ids) =
        (sql(&server, "SELECT count(*) FROM orders"), sql(&server, "SELECT count(DISTINCT id) FROM orders"));
    assert_eq!((count, ids), ((2000 + written).to_string(), (2000 + written).to_string()));
    run(&server, "check").ok();
    server.stop();
}

/// What the cluster has already is not the newcomer's, whatever map it is of.
#[test]
fn a_database_is_taken_in_beside_tables_of_another_map() {
    let (fleet, setup) = cluster();
    let mut server = setup.start();
    run(&server, "map create users --kind hash --key bigint --buckets 8 --shards b").ok();
    sql(&server, "CREATE TABLE logins (tenant_id bigint, id bigint, PRIMARY KEY (tenant_id, id))");
    run(&server, "table shard logins --map users --key tenant_id").ok();
    sql(&server, "CREATE TABLE colour (name text PRIMARY KEY)");
    run(&server, "table reference colour").ok();
    sql(&server, "INSERT INTO colour VALUES ('red'), ('blue')");
    sql(&server, "INSERT INTO logins VALUES (1, 1), (2, 1)");
    sql(&server, "CREATE VIEW all_logins AS SELECT * FROM logins");
    run(&server, &line(&fleet, "--wait")).ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "2000");
    assert_eq!(sql(&server, "SELECT count(*) FROM logins"), "2");
    assert_eq!(fleet.servers[0].execute("legacy", "SELECT count(*) FROM colour"), "2");
    let maps = json(&server, "table list").to_string();
    assert!(maps.contains("\"users\"") && maps.contains("\"tenants\""), "{maps}");
    run(&server, "move tenants --key 7 --to b --wait").ok();
    run(&server, "move users --buckets 0..8 --to legacy --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM logins"), "2");
    run(&server, "check").ok();
    server.stop();
}

#[test]
#[ignore = "five servers are killed and waited for: make test-all"]
fn killed_at_each_step_an_adoption_goes_on_by_itself() {
    let (fleet, setup) = cluster();
    for place in
        ["task_take_in.before", "task_take_in.after", "task_create_map.after", "task_adopt_tables.after"]
    {
        let mut server = setup.clone().env("POLYSHARD_FAILPOINT", place).start();
        // The first one begins it, the others take it over.
        let _lost = run(&server, &line(&fleet, ""));
        let ended = server.wait();
        assert_eq!(ended.signal(), Some(6), "{place}: {}", server.log().text());
    }
    let mut server = setup.start();
    await_quiet(&server);
    let list = json(&server, "ops list")["operations"].to_string();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "2000", "{list}");
    assert_eq!(sql(&server, "SELECT count(*) FROM country"), "2");
    run(&server, "move tenants --range 1..5 --to b --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE tenant_id = 3"), "100");
    run(&server, "check").ok();
    server.stop();
}

// D10: all that is in the way is told at once; and one that was given up can be tried again.
#[test]
fn what_is_in_the_way_is_told_at_once_and_a_second_attempt_finds_no_traces_of_the_first() {
    let (fleet, setup) = cluster();
    let mut server = setup.start();
    let legacy = |sql: &str| fleet.servers[0].execute("legacy", sql);
    legacy(
        "SET ROLE legacy; CREATE TYPE mood AS ENUM ('glad', 'sad');
         CREATE TABLE audit (tenant_id bigint, what text DEFAULT 'glad'::mood::text)",
    );
    let looked: Value =
        serde_json::from_str(&run(&server, &line(&fleet, "--dry-run --json")).stdout).expect("JSON");
    let said = looked["must_change"].to_string();
    for wrong in ["allows NULL", "audit has no primary key", "type public.mood"] {
        assert!(said.contains(wrong), "{wrong}: {said}");
    }
    legacy("DROP TABLE audit; DROP TYPE mood");
    // An index of this name is on every shard already, which shows when the tables are made there.
    sql(
        &server,
        "CREATE TABLE parts (id bigint PRIMARY KEY, name text); CREATE INDEX orders_total ON parts (name)",
    );
    let failed = run(&server, &line(&fleet, "--wait"));
    assert!(failed.stderr.contains("orders_total"), "{failed:?}");
    assert_eq!(failed.code, Some(4));
    legacy("ALTER INDEX orders_total RENAME TO orders_by_total");
    run(&server, &line(&fleet, "--wait")).ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "2000");
    sql(&server, "INSERT INTO parts VALUES (1, 'wheel')");
    assert_eq!(legacy("SELECT count(*) FROM parts"), "1");
    run(&server, "move tenants --key 3 --to b --wait").ok();
    run(&server, "check").ok();
    assert_agreed(&server);
    server.stop();
}

//! Looking on: metrics, traffic, heat and windows of a real process, from the command line and over HTTP. E2, E8.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;

use crate::fleet::Fleet;
use crate::support::eventually;

/// The names of all metrics that the page declares, with their kind; every sample belongs to one.
fn declared(page: &str) -> BTreeMap<String, String> {
    let mut kinds = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is declared twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let known = kinds.contains_key(name) || base.is_some_and(|base| kinds[base] == "histogram");
            assert!(known, "{line} belongs to no metric");
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        }
    }
    kinds
}

fn sample(page: &str, start: &str) -> f64 {
    let line =
        page.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn metrics(server: &Server) -> String {
    let answer = server.get("/metrics");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Looks at a shardlet so often, which is a request on its shard each time.
fn look(server: &Server, key: &str, times: usize) {
    for _ in 0..times {
        let answer = server.get(&format!("/v1/maps/tenants/shardlet?key={key}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

#[test]
fn metrics_count_what_happens_and_never_name_a_key() {
    let mut server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "text"]).ok();
    let before = metrics(&server);
    look(&server, "secret-tenant", 40);
    let page = metrics(&server);
    let kinds = declared(&page);
    assert!(kinds.len() > 25, "{kinds:?}");
    let requests = "polyshard_router_requests_total";
    assert_eq!(sample(&page, requests) - sample(&before, requests), 40.0);
    let counts = page.lines().filter(|line| line.starts_with("polyshard_shard_request_seconds_count"));
    let counted: f64 = counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum();
    assert!(counted >= 40.0, "{counted}");
    assert!(sample(&page, "polyshard_door_accepted_total{door=\"admin\"}") >= 41.0);
    assert_eq!(sample(&page, "polyshard_map_entries{map=\"tenants\"}"), 4.0);
    assert_eq!(sample(&page, "polyshard_catalog_up"), 1.0);
    assert!(sample(&page, "process_resident_memory_bytes") > 1e6);
    assert!(!page.contains("secret-tenant"), "a key is no label");
    server.stop();
}

#[test]
fn every_metric_is_documented_and_used_right_by_the_dashboard() {
    let mut server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "text"]).ok();
    look(&server, "a", 1);
    let kinds = declared(&metrics(&server));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(root.join("metrics.md")).unwrap();
    for name in kinds.keys().filter(|name| *name != "polyshard_build_info") {
        let short = name.rsplit_once("polyshard_engine").or(name.rsplit_once("polyshard_door"));
        let named = page.contains(name.as_str()) || short.is_some_and(|(_, end)| page.contains(end));
        assert!(named, "{name} is not in docs/metrics.md");
    }
    let dashboard = std::fs::read_to_string(root.join("grafana/polyshard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut used = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let words =
                target["expr"].as_str().unwrap().split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names = words.filter(|word| word.starts_with("polyshard_") || word.starts_with("process_"));
            used.extend(names.map(|name| name.trim_end_matches("_bucket").to_owned()));
        }
    }
    // Those that have no sample without requests of doors, limits or running operations are still declared.
    let unknown: Vec<_> = used.iter().filter(|name| !kinds.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "the dashboard shows {unknown:?}, which are not told");
    server.stop();
}

#[test]
fn the_hottest_key_and_its_shard_are_told_in_the_terminal() {
    let mut server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "text"]).ok();
    look(&server, "busy", 120);
    look(&server, "quiet", 10);
    let hot = server.cli(&["hot", "--json"]).ok();
    let hot: Value = serde_json::from_str(&hot).unwrap();
    assert_eq!(hot["shardlets"][0]["key"], "busy", "{hot}");
    let located = server.get("/v1/maps/tenants/locate?key=busy").json();
    assert_eq!(hot["shardlets"][0]["shard"], located["shard"]);
    let top = server.cli(&["top", "--once"]).ok();
    assert!(top.contains("REQ/S") && top.contains("busy") && top.contains("s4"), "{top}");
    let wrong = server.get("/v1/hot?limit=100000");
    assert_eq!(wrong.status, 400);
    server.stop();
}

#[test]
fn a_window_shows_a_part_of_a_map_and_refuses_what_makes_no_sense() {
    let mut server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "text"]).ok();
    let window = server.get("/v1/maps/tenants/window?first=200&count=100&pieces=50").json();
    assert_eq!(window["pieces"].as_array().unwrap().len(), 2, "{window}");
    assert_eq!((window["first"].as_u64(), window["total"].as_u64()), (Some(200), Some(1024)));
    for wrong in ["pieces=0", "pieces=5000", "count=0", "first=-1", "colour=red"] {
        assert_eq!(server.get(&format!("/v1/maps/tenants/window?{wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(server.get("/v1/maps/nothing/window").status, 404);
    server.stop();
}

/// The SQL door, for psql.
fn psql(server: &Server, sql: &str) -> String {
    let ran = run_psql(server, sql);
    assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// What is said of a statement that is refused.
fn psql_refused(server: &Server, sql: &str) -> String {
    let ran = run_psql(server, sql);
    assert!(!ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stdout));
    String::from_utf8(ran.stderr).unwrap()
}

fn run_psql(server: &Server, sql: &str) -> std::process::Output {
    let door = server.door("sql").rsplit_once('@').map_or(server.door("sql"), |(_, door)| door);
    let url = format!("postgres://polyshard:polyshard@{door}");
    let ran =
        std::process::Command::new("psql").args(["-X", "-v", "ON_ERROR_STOP=1", "-c", sql, &url]).output();
    ran.unwrap()
}

/// Gives a server orders of two tenants, of which one has many.
fn with_orders(server: &Server) {
    psql(server, "SELECT polyshard.create_map('tenants', 'hash', 'bigint')");
    psql(server, "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))");
    psql(server, "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')");
    for (tenant, rows) in [(7, 500), (8, 20)] {
        let values: Vec<String> =
            (0..rows).map(|id| format!("({tenant}, {id}, '{}')", "x".repeat(100))).collect();
        psql(server, &format!("INSERT INTO orders VALUES {}", values.join(", ")));
    }
}

#[test]
fn the_largest_shardlets_are_told_with_their_rows_and_about_their_bytes() {
    let fleet = Fleet::start(1, &[("s1", 0), ("s2", 0)]);
    for setup in [Setup::new(), fleet.setup()] {
        let mut server = setup.start();
        with_orders(&server);
        let large = server.get("/v1/large").json();
        assert_eq!((&large["left_out"], &large["left_out_more"]), (&Value::Array(Vec::new()), &0.into()));
        let shardlets = large["shardlets"].as_array().unwrap();
        let told: Vec<_> =
            shardlets.iter().map(|one| (one["key"].clone(), one["rows"].as_u64().unwrap())).collect();
        assert_eq!(told, [(Value::from(7), 500), (Value::from(8), 20)], "{large}");
        let (first, located) = (&shardlets[0], server.get("/v1/maps/tenants/locate?key=7").json());
        assert_eq!((&first["shard"], &first["sampled"]), (&located["shard"], &Value::from(false)));
        assert!((50_000..100_000).contains(&first["bytes"].as_u64().unwrap()), "{first}");
        let one = server.get("/v1/large?limit=1&map=tenants").json();
        assert_eq!(one["shardlets"].as_array().unwrap().len(), 1, "{one}");
        assert_eq!(server.get("/v1/large?map=nothing").status, 404);
        assert_eq!(server.get("/v1/large?limit=0").status, 400);
        server.stop();
    }
}

// C2: the console asks so, and what the statement writes is taken back.
#[test]
fn what_each_shard_took_is_told_in_a_transaction_that_is_taken_back() {
    let fleet = Fleet::start(1, &[("s1", 0), ("s2", 0)]);
    let mut server = fleet.setup().start();
    with_orders(&server);
    for sql in ["SELECT count(*) FROM orders", "SELECT count(*) FROM orders WHERE tenant = 7"] {
        let told = psql(&server, &format!("BEGIN; EXPLAIN ANALYZE {sql}\n; ROLLBACK"));
        assert!(told.contains(" ms") && told.contains("ROLLBACK"), "{told}");
    }
    psql(&server, "BEGIN; EXPLAIN ANALYZE DELETE FROM orders WHERE tenant = 7\n; ROLLBACK");
    let left = psql(&server, "SELECT count(*) FROM orders WHERE tenant = 7");
    assert!(left.contains("500"), "{left}");
    server.stop();
}

// C2: several files are read at once, and each shard's part is told all the same; nothing is carried out that writes.
#[test]
fn embedded_shards_and_what_each_of_them_took_are_told() {
    let mut server = Setup::new().start();
    with_orders(&server);
    let told = psql(&server, "EXPLAIN SELECT note, count(*) FROM orders GROUP BY note");
    let asked = "On each of 4 shards (s1, s2, s3, s4), read by one connection: SELECT";
    assert!(told.contains("orders by map tenants: any tenant") && told.contains(asked), "{told}");
    let located = server.get("/v1/maps/tenants/locate?key=7").json();
    let home = located["shard"].as_str().unwrap();
    let told = psql(&server, "EXPLAIN DELETE FROM orders WHERE tenant = 7");
    assert!(told.contains(&format!("On shard {home}: DELETE")), "{told}");

    let told = psql(&server, "BEGIN; EXPLAIN ANALYZE SELECT id FROM orders\n; ROLLBACK");
    let numbers = |word: &str| -> Vec<f64> {
        let lines = told.lines().filter_map(|line| line.trim().strip_prefix(word));
        lines.map(|rest| rest.split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let (rows, times) = (numbers("Rows: "), numbers("Execution Time: "));
    assert_eq!((rows.len(), times.len()), (5, 5), "each of four and all together: {told}");
    assert_eq!((rows[..4].iter().sum::<f64>(), rows[4]), (520.0, 520.0), "{told}");
    for shard in ["s1", "s2", "s3", "s4"] {
        assert!(told.contains(&format!("Shard {shard}:")), "{told}");
    }
    let one = psql(&server, "EXPLAIN ANALYZE SELECT count(*) FROM orders WHERE tenant = 7");
    assert!(one.contains(&format!("Shard {home}:")) && !one.contains("All shards together"), "{one}");

    for (sql, why) in [
        ("EXPLAIN ANALYZE DELETE FROM orders WHERE tenant = 7", "that writes or locks is not offered"),
        ("EXPLAIN (FORMAT JSON) SELECT id FROM orders", "the form json is not offered"),
    ] {
        let refused = psql_refused(&server, sql);
        assert!(refused.contains(why), "{refused}");
    }
    assert!(psql(&server, "SELECT count(*) FROM orders").contains("520"));
    server.stop();
    server.assert_clean_log(&[]);
}

/// Requests that are on a shard now.
fn inside(server: &Server) -> f64 {
    let page = metrics(server);
    let lines = page.lines().filter(|line| line.starts_with("polyshard_shard_requests_inside{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

// E1, C2: a statement that would take days ends when the console's page is closed, and when its client cancels it.
#[test]
fn a_statement_that_nobody_waits_for_is_stopped() {
    const DAYS: &str = "SELECT count(*) FROM orders a, orders b, orders c, orders d, orders e";
    let mut server = Setup::new().start();
    with_orders(&server);
    let begun = || eventually("the statement on shards", || (inside(&server) > 0.0).then_some(()));
    let ended = || eventually("nothing on shards", || (inside(&server) == 0.0).then_some(()));

    let address = server.door("admin").trim_start_matches("http://").to_owned();
    let mut page = std::net::TcpStream::connect(&address).unwrap();
    let body = serde_json::json!({ "sql": DAYS }).to_string();
    let length = body.len();
    let head = format!("POST /v1/query HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer polyshard\r\n");
    write!(page, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    begun();
    drop(page);
    ended();

    let door = server.door("sql").rsplit_once('@').map_or(server.door("sql"), |(_, door)| door).to_owned();
    let url = format!("postgres://polyshard:polyshard@{door}");
    let mut psql = std::process::Command::new("psql");
    let mut client =
        psql.args(["-X", "-c", DAYS, &url]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    begun();
    // What Ctrl-C does: it asks the server to cancel, and waits for the answer.
    let id = client.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let mut said = String::new();
    client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    client.wait().unwrap();
    assert!(said.contains("canceling statement due to user request"), "{said}");
    ended();
    server.stop();
}

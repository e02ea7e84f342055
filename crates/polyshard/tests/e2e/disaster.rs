//! Everything is lost, and everything comes back in an empty place: rows, reference tables, ids, entities, messages,
//! maps and rules, on either engine. E1.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_ACCOUNT as ACCOUNT, DEVELOPMENT_KEY, Timestamp};
use polyshard_testkit::process::{Server, Setup};

use crate::backup::{Holding, orders, psql, text, with_orders};
use crate::fleet::{Fleet, password};
use crate::restores::await_lock;
use crate::support::{eventually, json};

const VERSION: &str = "2021-12-02";

/// A signed request to a door of Azure Storage, as an SDK makes it.
fn azure(server: &Server, door: &str, method: &str, path: &str, body: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let date = Timestamp::from_unix_ms(since as i64).unwrap().rfc1123();
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{}", path.split('?').next().unwrap());
    let kind = if body.is_empty() { "" } else { "application/json" };
    let signed = match door {
        "table" => format!("{date}\n{resource}"),
        _ => format!("{method}\n\n{kind}\n\nx-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"),
    };
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&signed);
    let mut request = ureq::http::Request::builder()
        .method(method)
        .uri(format!("http://{}/{ACCOUNT}/{path}", server.door(door).trim_start_matches("http://")))
        .header("x-ms-date", &date)
        .header("x-ms-version", VERSION)
        .header("Accept", "application/json;odata=nometadata")
        .header("Authorization", format!("SharedKeyLite {ACCOUNT}:{signature}"));
    if !kind.is_empty() {
        request = request.header("Content-Type", kind);
    }
    let answer = ureq::run(request.body(body.to_owned()).unwrap());
    answer.unwrap_or_else(|error| panic!("{method} {path}: {error}")).body_mut().read_to_string().unwrap()
}

fn fill(server: &Server) {
    for sql in [
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "CREATE TABLE country (code text PRIMARY KEY, name text NOT NULL)",
        "CREATE TABLE orders (tenant bigint NOT NULL, id bigserial, what text, country text REFERENCES country, \
         PRIMARY KEY (tenant, id))",
        "SELECT polyshard.reference_table('country')",
        "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')",
        "INSERT INTO country VALUES ('se', 'Sweden'), ('fi', 'Finland')",
    ] {
        psql(server, sql);
    }
    for tenant in 1..=12 {
        let sql = format!(
            "INSERT INTO orders (tenant, what, country) VALUES ({tenant}, 'chair', 'se'), ({tenant}, 'lamp', 'fi')"
        );
        psql(server, &sql);
    }
    azure(server, "table", "POST", "Tables", "{\"TableName\":\"Totals\"}");
    azure(server, "queue", "PUT", "outbox", "");
    for tenant in 1..=12 {
        psql(
            server,
            &format!(
                "SELECT polyshard.entity_upsert('Totals', '{tenant}', 'all', '{{\"count\": {tenant}}}')"
            ),
        );
    }
    for number in 1..=5 {
        psql(server, &format!("SELECT polyshard.enqueue('outbox', 'message {number}')"));
    }
    server.cli(&["rule", "add", "tenants", "--apart", "1,2"]).ok();
}

/// All that somebody can see: what was there must be what is there again.
fn seen(server: &Server) -> Vec<String> {
    let messages = azure(server, "queue", "GET", "outbox/messages?peekonly=true&numofmessages=32", "");
    let words = |name: &str| -> String {
        messages.split(&format!("<{name}>")).skip(1).map(|rest| rest.split('<').next().unwrap()).collect()
    };
    let entities: Vec<String> = (1..=12)
        .map(|tenant| {
            azure(server, "table", "GET", &format!("Totals(PartitionKey='{tenant}',RowKey='all')"), "")
        })
        .collect();
    vec![
        psql(server, "SELECT tenant, id, what, country FROM orders ORDER BY tenant, id"),
        psql(
            server,
            "SELECT o.tenant, c.name FROM orders o JOIN country c ON c.code = o.country ORDER BY 1, 2",
        ),
        psql(server, "SELECT code, name FROM country ORDER BY code"),
        words("MessageText") + &words("MessageId"),
        entities.join("\n"),
        json(server, "rule list").to_string(),
        json(server, "map entries tenants").to_string(),
        json(server, "table list").to_string(),
        server.cli(&["datasets"]).ok(),
    ]
}

/// Writes after the moment of the backup, which must not come back.
fn go_on(server: &Server) {
    psql(server, "INSERT INTO orders (tenant, what, country) VALUES (3, 'later', 'se')");
    psql(server, "UPDATE country SET name = 'Suomi' WHERE code = 'fi'");
    psql(server, "SELECT polyshard.enqueue('outbox', 'later')");
    psql(server, "SELECT polyshard.entity_upsert('Totals', '3', 'all', '{\"count\": 99}')");
}

/// The cluster works as one that was never lost: every kind of write, ids that nobody has, nothing out of place.
fn works(server: &Server) {
    let before: u32 = psql(server, "SELECT count(*) FROM orders").parse().unwrap();
    for tenant in 1..=12 {
        let sql = format!("INSERT INTO orders (tenant, what, country) VALUES ({tenant}, 'new', 'fi')");
        psql(server, &sql);
    }
    let counted = psql(server, "SELECT count(*), count(DISTINCT id) FROM orders");
    assert_eq!(counted, format!("{0}|{0}", before + 12), "ids are given once");
    psql(server, "INSERT INTO country VALUES ('no', 'Norway')");
    psql(server, "ALTER TABLE orders ADD COLUMN note text");
    psql(server, "UPDATE orders SET note = 'seen', country = 'no' WHERE tenant = 5");
    psql(server, "SELECT polyshard.enqueue('outbox', 'new')");
    psql(server, "SELECT polyshard.entity_upsert('Totals', '13', 'all', '{}')");
    server.cli(&["schema", "check"]).ok();
    server.cli(&["map", "check", "tenants"]).ok();
    server.cli(&["check"]).ok();
    let folder = tempfile::tempdir().unwrap();
    // The backup was under way at its own moment, and counts as such until its lease lapses.
    let next = folder.path().join("next");
    let taken = eventually("the lease to lapse", || {
        let taken = server.cli(&["backup", "take", text(&next)]);
        (taken.code == Some(0)).then_some(taken)
    });
    assert!(taken.ok().contains("one moment"));
}

#[test]
fn everything_comes_back_in_an_empty_folder() {
    let mut server = Setup::new().start();
    fill(&server);
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("backups/monday"), folder.path().join("restored"));
    let then = seen(&server);
    server.cli(&["backup", "take", text(&backup)]).ok();
    go_on(&server);
    assert_ne!(seen(&server), then);
    server.kill9();
    let lost: &Path = server.setup().data_path();
    std::fs::remove_dir_all(lost).unwrap();

    let elsewhere = Setup::new().data(&data);
    elsewhere.run(&["restore", text(&backup), "--data", text(&data)]).ok();
    let mut server = elsewhere.start();
    assert_eq!(seen(&server), then);
    works(&server);
    server.stop();
}

#[test]
#[ignore = "takes ten seconds; run by 'make test-all'"]
fn everything_comes_back_in_empty_postgresql_databases() {
    let fleet = Fleet::start(2, &[("a", 0), ("b", 1), ("c", 1)]);
    let setup = fleet.setup();
    let mut server = setup.start();
    fill(&server);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backups/monday");
    let then = seen(&server);
    server.cli(&["backup", "take", text(&backup)]).ok();
    go_on(&server);
    server.kill9();
    for (number, name) in [(0, "catalog"), (0, "a"), (1, "b"), (1, "c")] {
        fleet.servers[number].execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
        fleet.servers[number].execute("postgres", &format!("CREATE DATABASE {name} OWNER {name}"));
    }
    let data = folder.path().join("restored");
    let elsewhere = setup.clone().data(&data);
    let config = elsewhere.config_path();
    elsewhere.run(&["restore", text(&backup), "--config", text(&config), "--data", text(&data)]).ok();
    let mut server = elsewhere.start();
    assert_eq!(seen(&server), then);
    works(&server);
    server.stop();
}

/// Killed when one shard is filled, another is being filled, and the catalog is empty.
#[test]
#[ignore = "takes ten seconds; run by 'make test-all'"]
fn half_a_restoration_into_postgresql_is_not_served() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let (setup, pg) = (fleet.setup(), &fleet.servers[0]);
    let mut server = setup.start();
    with_orders(&server, 3);
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("backups/monday"), folder.path().join("restored"));
    server.cli(&["backup", "take", text(&backup)]).ok();
    server.kill9();
    let empty = || {
        for name in ["catalog", "a", "b"] {
            pg.execute("postgres", &format!("DROP DATABASE {name} WITH (FORCE)"));
            pg.execute("postgres", &format!("CREATE DATABASE {name} OWNER {name}"));
        }
    };
    empty();
    // Whoever fills the second waits for this, until it is gone.
    let holding = Holding::begin(&pg.url("b"), "CREATE SCHEMA polyshard");
    let elsewhere = setup.clone().data(&data);
    let config = elsewhere.config_path();
    let restore = ["restore", text(&backup), "--config", text(&config), "--data", text(&data)];
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(restore).env("B_SECRET", password("b")).stdin(Stdio::null()).stdout(Stdio::null());
    let mut restoring = command.spawn().unwrap();
    await_lock(pg, "b");
    restoring.kill().unwrap();
    restoring.wait().unwrap();
    holding.end();
    let at_work = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_restore'";
    eventually("the end of what was killed", || (pg.execute("postgres", at_work) == "0").then_some(()));
    assert_ne!(pg.execute("a", "SELECT count(*) FROM orders"), "0", "the first was filled");
    assert_eq!(pg.execute("catalog", "SELECT count(*) FROM pg_tables WHERE schemaname = 'polyshard'"), "0");

    let refused = elsewhere.try_start().map(drop).expect_err("half of a cluster is not served").to_string();
    assert!(refused.contains("is shard a of cluster"), "{refused}");
    empty();
    let data = folder.path().join("again");
    let again = setup.clone().data(&data);
    again.run(&["restore", text(&backup), "--config", text(&config), "--data", text(&data)]).ok();
    let mut server = again.start();
    assert_eq!(orders(&server, 7), "3|order 0|order 2");
    server.stop();
}

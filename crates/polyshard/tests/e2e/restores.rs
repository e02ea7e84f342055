//! Shards and shardlets restored beside the running rest, killed at chosen points: nothing is half-restored. E1, E10.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use polyshard_testkit::postgres::PgServer;
use polyshard_testkit::process::{Server, Setup};

use crate::backup::{
    Blocked, Holding, address, chunks_of, orders, program, psql, restores, text, url_of, wait_for,
    with_orders,
};
use crate::fleet::{Fleet, password};
use crate::support::{eventually, json, shard_of};

/// Gives tenant 7 so many rows of 100 KB, each another, that the copy of its shard has several chunks.
fn with_large_orders(server: &Server, rows: u32) {
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &url_of(server)]).stdin(Stdio::piped());
    let mut psql = command.spawn().unwrap();
    let mut input = psql.stdin.take().unwrap();
    let mut state = 7_u64;
    writeln!(input, "BEGIN;").unwrap();
    for id in 1_000..1_000 + rows {
        let mut noise = String::with_capacity(100_000);
        while noise.len() < 100_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            noise.push_str(&format!("{state:016x}"));
        }
        writeln!(input, "INSERT INTO orders VALUES (7, {id}, '{noise}');").unwrap();
    }
    writeln!(input, "COMMIT;").unwrap();
    drop(input);
    assert!(psql.wait().unwrap().success());
}

/// Everything a tenant has, as one text.
fn all_of(server: &Server, tenant: u32) -> String {
    psql(server, &format!("SELECT id, md5(what) FROM orders WHERE tenant = {tenant} ORDER BY id"))
}

#[test]
fn a_lost_embedded_shard_comes_back_while_the_others_are_served() {
    let mut server = Setup::new().start();
    with_orders(&server, 5);
    with_large_orders(&server, 20);
    let folder = tempfile::tempdir().unwrap();
    let (backup, to) = (folder.path().join("monday"), folder.path().join("new/shard.db"));
    server.cli(&["backup", "take", text(&backup)]).ok();
    let (shard, then) = (shard_of(&server, "tenants", "7"), all_of(&server, 7));
    let other = (1..=20).find(|key| shard_of(&server, "tenants", &key.to_string()) != shard).unwrap();
    psql(&server, "DELETE FROM orders WHERE tenant = 7 AND id >= 1000");

    let chunks = chunks_of(&backup, &format!("shards/{shard}"));
    assert!(chunks.len() > 3, "{}", chunks.len());
    let url = format!("sqlite:{}", text(&to));
    let partial = folder.path().join("new/shard.db.restoring");
    for at in [0, chunks.len() / 2, chunks.len() - 1] {
        let blocked = Blocked::new(&chunks[at]);
        // Of the round before: this one's is waited for.
        if partial.exists() {
            std::fs::remove_file(&partial).unwrap();
        }
        let mut restoring = program(&["restore", text(&backup), "--shard", &shard, "--to", &url]);
        wait_for(&partial);
        restoring.kill().unwrap();
        restoring.wait().unwrap();
        blocked.end();
        assert!(!to.exists(), "there is nothing yet that could be attached");
    }
    let restored = server.cli(&["restore", text(&backup), "--shard", &shard, "--to", &url]).ok();
    assert!(restored.contains("attach"), "{restored}");
    server.cli(&["shard", "detach", &shard]).ok();
    assert_eq!(orders(&server, other), "5|order 0|order 4", "the others are served all the while");
    server.cli(&["shard", "attach", &shard, "--url", &url]).ok();
    assert_eq!(all_of(&server, 7), then);
    psql(&server, "INSERT INTO orders VALUES (7, 5000, 'new')");
    server.cli(&["map", "check", "tenants"]).ok();
    server.stop();
}

/// How many tables of any kind a database has, when nobody is connected to it any more.
fn tables_left(pg: &PgServer, database: &str) -> String {
    let others = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    eventually("the end of what was killed", || (pg.execute("postgres", &others) == "0").then_some(()));
    pg.execute(
        database,
        "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
}

#[test]
#[ignore = "takes ten seconds; run by 'make test-all'"]
fn a_lost_postgresql_shard_comes_back_while_the_others_are_served() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let pg = &fleet.servers[0];
    let mut server = fleet.setup().start();
    with_orders(&server, 5);
    with_large_orders(&server, 80);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("monday");
    server.cli(&["backup", "take", text(&backup)]).ok();
    let (shard, then) = (shard_of(&server, "tenants", "7"), all_of(&server, 7));
    let other = (1..=20).find(|key| shard_of(&server, "tenants", &key.to_string()) != shard).unwrap();
    // The database is lost.
    pg.execute("postgres", &format!("DROP DATABASE {shard} WITH (FORCE)"));
    pg.execute("postgres", &format!("CREATE DATABASE fresh OWNER {shard}"));
    assert_eq!(orders(&server, other), "5|order 0|order 4", "the others are served all the while");

    let chunks = chunks_of(&backup, &format!("shards/{shard}"));
    // Chunks are read eight at a time: the program that fills the database has begun when it waits for these.
    assert!(chunks.len() > 16, "{}", chunks.len());
    let to = format!("postgres://{shard}@127.0.0.1:{}/fresh", pg.port());
    let restore =
        ["restore", text(&backup), "--shard", &shard, "--to", &to, "--password-env", "FRESH_PASSWORD"];
    for at in [chunks.len() / 2, chunks.len() - 1] {
        let blocked = Blocked::new(&chunks[at]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
        command
            .args(restore)
            .env("FRESH_PASSWORD", password(&shard))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut restoring = command.spawn().unwrap();
        let at_work = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_restore' \
                       AND datname = 'fresh' AND backend_xid IS NOT NULL";
        eventually("rows on their way", || (pg.execute("postgres", at_work) == "1").then_some(()));
        restoring.kill().unwrap();
        restoring.wait().unwrap();
        blocked.end();
        assert_eq!(tables_left(pg, "fresh"), "0", "nothing is there that could be attached");
    }
    let setup = server.setup().clone().env("FRESH_PASSWORD", &password(&shard));
    setup.run(&restore).ok();
    server.cli(&["shard", "detach", &shard]).ok();
    let file = fleet.password_file(&shard);
    server.cli(&["shard", "attach", &shard, "--url", &to, "--password-file", text(&file)]).ok();
    assert_eq!(all_of(&server, 7), then);
    psql(&server, "INSERT INTO orders VALUES (7, 5000, 'new')");
    server.stop();
}

/// Waits until somebody waits for a lock in a database.
pub fn await_lock(pg: &PgServer, database: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = '{database}'"
    );
    eventually("the restoration to wait for a lock", || (pg.execute("postgres", &sql) != "0").then_some(()));
}

/// In the middle of its one transaction: before anything is removed, and with the last row to be put.
#[test]
#[ignore = "waits for leases to lapse; run by 'make test-all'"]
fn a_tenant_on_postgresql_is_as_it_was_when_its_restoration_is_cancelled_or_killed_half_way() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let pg = &fleet.servers[0];
    for role in ["a", "b"] {
        pg.execute("postgres", &format!("ALTER ROLE {role} CREATEDB"));
    }
    let setup = fleet.setup();
    let mut server = setup.start();
    with_orders(&server, 300);
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("monday");
    server.cli(&["backup", "take", text(&backup)]).ok();
    let (shard, then) = (shard_of(&server, "tenants", "7"), all_of(&server, 7));
    psql(&server, "UPDATE orders SET what = 'now' WHERE tenant = 7");
    psql(&server, "DELETE FROM orders WHERE tenant = 7 AND id = 299");
    let now = all_of(&server, 7);

    for (held, killed) in [
        ("SELECT 1 FROM orders WHERE tenant = 7 AND id = 5 FOR UPDATE", true),
        ("INSERT INTO orders VALUES (7, 299, 'somebody else''s')", true),
        ("INSERT INTO orders VALUES (7, 299, 'somebody else''s')", false),
    ] {
        // What was killed counts as under way until its lease lapses.
        eventually("the end of the one before", || {
            let listed = json(&server, "backup list");
            listed["backups"].as_array().unwrap().iter().all(|one| one["state"] != "running").then_some(())
        });
        let holding = Holding::begin(&pg.url(&shard), held);
        let before = restores(&server);
        let address = address(&server);
        let arguments = ["--server", &address, "restore", text(&backup), "--map", "tenants", "--key", "7"];
        let mut restoring = program(&[&arguments[..], &["--replace"]].concat());
        eventually("the restoration to begin", || (restores(&server) > before).then_some(()));
        await_lock(pg, &shard);
        if killed {
            server.kill9();
        } else {
            let id = json(&server, "backup list")["backups"][0]["id"].to_string();
            let given_up = server.cli(&["backup", "cancel", &id]).ok();
            assert!(given_up.contains("is given up"), "{given_up}");
            let listed = server.cli(&["backup", "list"]).ok();
            assert!(listed.contains("cancelled, and nothing was changed"), "{listed}");
        }
        assert!(!restoring.wait().unwrap().success());
        holding.end();
        if killed {
            server = setup.start();
        }
        assert_eq!(all_of(&server, 7), now, "{held}");
    }
    let done = server.cli(&["restore", text(&backup), "--map", "tenants", "--key", "7", "--replace"]).ok();
    assert!(done.contains("300 rows"), "{done}");
    assert_eq!(all_of(&server, 7), then);
    let left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'polyshard_restore%'";
    assert_eq!(pg.execute("postgres", left), "0");
    server.stop();
}

/// What was given up before the last step has no last step; what is over cannot be given up.
#[test]
fn a_backup_that_is_over_cannot_be_given_up() {
    let mut server = Setup::new().start();
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("monday");
    let taken = server.cli(&["backup", "take", text(&backup), "--json"]).json();
    let refused = server.cli(&["backup", "cancel", &taken["id"].to_string()]).fails_with(4);
    assert!(refused.contains("is not under way"), "{refused}");
    assert!(Path::new(&backup).join("manifest.json").exists());
    server.stop();
}

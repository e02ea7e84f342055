//! PostgreSQL shards with credentials of their own: added, refused, attached, repaired, and never a password shown.

use polyshard_testkit::process::{Server, StartFailure};
use serde_json::{Value, json as value};

use crate::backup::psql;
use crate::fleet::{Fleet, SECRET};
use crate::support::{assert_agreed, eventually, everything, json, refused, run, session, shard_of};

/// The ids of the shards.
fn shards(server: &Server) -> Vec<String> {
    let list = json(server, "shard list");
    let ids = list["shards"].as_array().expect("a list").iter();
    ids.map(|shard| shard["id"].as_str().expect("an id").to_owned()).collect()
}

/// E7, B1: three ways to give a password, none of which shows it.
#[test]
fn each_database_is_reached_with_its_own_role_and_no_password_is_ever_shown() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0), ("c", 0)]);
    let setup = fleet.setup().env("POLYSHARD__LOG__LEVEL", "debug");
    let mut server = setup.start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 12").ok();
    let by_shard = json(&server, "map show tenants")["by_shard"].clone();
    assert_eq!(by_shard, value!({"a": 1, "b": 1, "c": 1}));
    assert_agreed(&server);
    let roles = fleet.servers[0].execute(
        "postgres",
        "SELECT DISTINCT usename FROM pg_stat_activity WHERE usename <> 'postgres' ORDER BY 1",
    );
    assert_eq!(roles, "a\nb\nc\ncatalog");

    // A password that stops working is an error somebody will read.
    fleet.servers[0].execute("postgres", "ALTER ROLE b PASSWORD 'changed'");
    fleet.servers[0]
        .execute("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'b'");
    eventually("shard b to be seen as away", || {
        let shard = json(&server, "shard show b");
        (shard["reachable"] == false).then_some(())
    });
    let config = setup.config_path().display().to_string();
    let mut shown = String::new();
    for line in [
        "status --json",
        "status",
        "shard list --json",
        "shard show a --json",
        "map check tenants --json",
        "ops list --json",
    ] {
        let output = run(&server, line);
        shown.push_str(&format!("{}{}", output.stdout, output.stderr));
    }
    for arguments in [
        vec!["config", "show", "--config", &config],
        vec!["config", "show", "--config", &config, "--json"],
        vec!["config", "check", &config],
    ] {
        let output = setup.run(&arguments);
        assert_eq!(output.code, Some(0), "{output:?}");
        shown.push_str(&format!("{}{}", output.stdout, output.stderr));
    }
    server.stop();
    shown.push_str(&server.log().text());
    assert!(shown.contains("password"), "the error of shard b names the cause:\n{shown}");
    assert!(!shown.contains(SECRET), "a password is shown:\n{shown}");

    fleet.servers[0].execute("postgres", "ALTER ROLE catalog PASSWORD 'changed'");
    let failure =
        fleet.setup().env("POLYSHARD__LOG__LEVEL", "debug").try_start().expect_err("the catalog refuses it");
    let StartFailure::Ended(status, log) = failure else { panic!("{failure}") };
    assert_ne!(status.code(), Some(0));
    assert!(log.contains("password authentication failed"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

/// D1, E8: nothing is half-added, and the same command with the mistake corrected works.
#[test]
fn a_shard_that_cannot_be_one_is_refused_and_nothing_is_half_added() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    fleet.create(0, "fresh");
    // Its texts have another order than those of the others.
    fleet.servers[0].execute(
        "postgres",
        "CREATE DATABASE odd OWNER fresh TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    );
    let server = fleet.setup().start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 8").ok();
    let before = everything(&server);
    let port = fleet.servers[0].port();
    let file = |name: &str| fleet.password_file(name).display().to_string();
    let (fresh, own) = (file("fresh"), file("a"));
    let refusals = [
        (
            format!("shard add n --url postgres://fresh@127.0.0.1:1/fresh --password-file {fresh}"),
            5,
            "127.0.0.1:1",
        ),
        (format!("shard add n --url {} --password-file {own}", fleet.url(0, "fresh")), 2, "password"),
        (
            format!("shard add n --url postgres://fresh@127.0.0.1:{port}/nowhere --password-file {fresh}"),
            2,
            "nowhere",
        ),
        (format!("shard add n --url {} --password-file {own}", fleet.url(0, "a")), 4, "shard a"),
        (
            format!("shard add n --url {} --password-file /no/such/file", fleet.url(0, "fresh")),
            2,
            "/no/such/file",
        ),
        (
            format!("shard add n --url {} --password-env POLYSHARD_SHARD_NO_SUCH", fleet.url(0, "fresh")),
            2,
            "POLYSHARD_SHARD_NO_SUCH is not set",
        ),
        // Any other secret could be sent to a host of the caller's.
        (
            format!("shard add n --url {} --password-env HOME", fleet.url(0, "fresh")),
            2,
            "not one for passwords",
        ),
        (
            format!("shard add n --url {} --password-file {}", fleet.url(0, "fresh"), file("catalog")),
            2,
            "not in the folder for passwords",
        ),
        (
            format!("shard add n --url postgres://fresh@127.0.0.1:{port}/odd --password-file {fresh}"),
            2,
            "LC_COLLATE 'C.UTF-8'",
        ),
        ("shard add n --url sqlite:shards/n.db".to_owned(), 2, "one process"),
        (
            format!("shard attach n --url {} --password-file {fresh}", fleet.url(0, "fresh")),
            2,
            "no shard yet",
        ),
    ];
    let mut wrong = Vec::new();
    for (line, exit, words) in refusals {
        let output = run(&server, &format!("{line} --json"));
        if output.code != Some(exit) || !output.stderr.contains(words) {
            wrong.push(format!(
                "{line}: wanted {exit} and {words:?}, got {:?} {}",
                output.code, output.stderr
            ));
        }
        assert_eq!(everything(&server), before, "{line}");
    }
    assert!(wrong.is_empty(), "answered otherwise:\n{}", wrong.join("\n"));
    session(
        &server,
        &format!(
            "shard add n --url {} --password-file {fresh} --region eu
             map assign tenants --buckets 0..2 --to n",
            fleet.url(0, "fresh")
        ),
    );
    assert_eq!(shards(&server), ["a", "b", "n"]);
    // Another cluster must not take a database that is in use here.
    let other = Fleet::start(1, &[("x", 0)]);
    let elsewhere = other.setup().start();
    std::fs::copy(&own, other.password_file("own")).expect("a password file");
    let own = other.password_file("own").display().to_string();
    let taken =
        refused(&elsewhere, &format!("shard add y --url {} --password-file {own}", fleet.url(0, "a")), 4);
    assert!(taken["message"].as_str().unwrap().contains("cluster"), "{taken}");
    assert_eq!(shards(&elsewhere), ["x"]);
    assert_agreed(&server);
}

/// B4: a shard leaves with its data, comes back with its ranges, and follows its database to a new address.
#[test]
fn a_shard_is_detached_attached_and_follows_its_database() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let server = fleet.setup().start();
    session(
        &server,
        "map create orders --kind range --key bigint
         map add orders --range ..0 --to a
         map add orders --range 0.. --to b",
    );
    run(&server, "shard detach b").ok();
    assert_eq!(shards(&server), ["a"]);
    assert_eq!(refused(&server, "map locate orders 7", 3)["code"], "not_found");
    assert_eq!(shard_of(&server, "orders", "-7"), "a");
    let file = fleet.password_file("b").display().to_string();
    run(&server, &format!("shard attach b --url {} --password-file {file}", fleet.url(0, "b"))).ok();
    assert_eq!(shard_of(&server, "orders", "7"), "b");
    assert_agreed(&server);

    let elsewhere = format!("postgres://b@localhost:{}/b", fleet.servers[0].port());
    let a_file = fleet.password_file("a").display().to_string();
    let wrong =
        refused(&server, &format!("shard set b --url {} --password-file {a_file}", fleet.url(0, "a")), 2);
    assert!(wrong["message"].as_str().unwrap().contains("shard b"), "{wrong}");
    let away = format!("shard set b --url postgres://b@127.0.0.1:1/b --password-file {file}");
    assert_eq!(refused(&server, &away, 5)["code"], "unavailable");
    assert_eq!(json(&server, "shard show b")["url"], fleet.url(0, "b").as_str());
    run(&server, &format!("shard set b --url {elsewhere} --password-file {file}")).ok();
    assert_eq!(json(&server, "shard show b")["url"], elsewhere.as_str());
    assert_eq!(json(&server, "shard show b")["reachable"], true);
    run(&server, "map split orders --at 100").ok();
    assert_agreed(&server);
}

/// B4: either side is rebuilt from the other, and the differences are shown first.
#[test]
fn what_was_lost_on_either_side_is_shown_and_rebuilt_from_the_other() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let server = fleet.setup().start();
    session(
        &server,
        "map create orders --kind range --key bigint
         map add orders --range 0..100 --to a
         map add orders --range 100.. --to b",
    );
    let differences = |line: &str, exit: i32| -> Value {
        let output = run(&server, &format!("{line} --json"));
        assert_eq!(output.code, Some(exit), "{output:?}");
        serde_json::from_str::<Value>(&output.stdout).expect("JSON")["differences"].clone()
    };
    fleet.servers[0].execute("b", "DELETE FROM polyshard.local_range");
    let found = differences("map check orders", 4);
    assert_eq!((&found[0]["shard"], &found[0]["found"]), (&value!("b"), &value!("catalog_only")), "{found}");
    assert_eq!(differences("map repair orders --from catalog", 0), found);
    run(&server, "map repair orders --from catalog --apply").ok();
    assert_agreed(&server);

    fleet.servers[0].execute("catalog", "DELETE FROM polyshard.map_range WHERE shard = 'a'");
    let found = differences("map check orders", 4);
    assert_eq!((&found[0]["shard"], &found[0]["found"]), (&value!("a"), &value!("shard_only")), "{found}");
    run(&server, "map repair orders --from shards --apply").ok();
    assert_agreed(&server);
    assert_eq!(
        (shard_of(&server, "orders", "7"), shard_of(&server, "orders", "700")),
        ("a".into(), "b".into())
    );
    run(&server, "map split orders --at 50").ok();
}

/// The role of our own schema's name, as many will call it: tables are the user's, and not among ours.
#[test]
fn a_role_that_is_called_polyshard_makes_tables_where_they_belong() {
    let fleet = Fleet::start(1, &[("polyshard", 0)]);
    let mut server = fleet.setup().start();
    run(&server, "map create tenants --kind hash --key bigint").ok();
    psql(&server, "CREATE TABLE dataset (id bigint PRIMARY KEY)");
    run(&server, "table shard dataset --map tenants --key id").ok();
    psql(&server, "INSERT INTO dataset VALUES (7)");
    assert_eq!(psql(&server, "RESET ALL; SELECT id FROM dataset"), "RESET\n7");
    let schema = "SELECT schemaname FROM pg_tables WHERE tablename = 'dataset' ORDER BY 1";
    assert_eq!(fleet.servers[0].execute("polyshard", schema), "polyshard\npublic");
    server.stop();
}

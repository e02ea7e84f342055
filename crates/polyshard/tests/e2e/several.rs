//! Writes on several shards of real processes, killed after the decision: every one is completed, none twice. C3.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use polyshard_testkit::process::{Server, Setup};

use crate::backup::{psql, url_of};
use crate::support::{json, refused, run};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;

/// Asks with the settings that let a write be on several shards.
fn try_sql(server: &Server, sql: &str) -> Output {
    let mut command = Command::new("psql");
    command.env("PGOPTIONS", "-c polyshard.multi_shard=eventual -c polyshard.strict=off");
    command.args(["-X", "-At", "-v", "ON_ERROR_STOP=1", "-c", sql, &url_of(server)]).output().unwrap()
}

fn sql(server: &Server, sql: &str) -> String {
    let ran = try_sql(server, sql);
    assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_write_on_several_shards_is_completed_after_its_server_is_killed() {
    let setup = Setup::new();
    let mut server = setup.start();
    for statement in [
        "CREATE TABLE counts (tenant bigint PRIMARY KEY, n bigint NOT NULL)",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('counts', 'tenants', 'tenant')",
    ] {
        psql(&server, statement);
    }
    assert!(
        !try_sql(&server, "SET polyshard.multi_shard = 'refuse'; UPDATE counts SET n = 1").status.success()
    );
    let rows: Vec<String> = (0..40).map(|tenant| format!("({tenant}, 0)")).collect();
    assert_eq!(sql(&server, &format!("INSERT INTO counts VALUES {}", rows.join(", "))), "INSERT 0 40");
    let listed = json(&server, "writes list");
    assert_eq!(listed["writes"][0]["completed"], true, "{listed}");
    let mut n = 0;
    let places = [
        ("eventual.decide.before", 0),
        ("eventual.decide.after", 1),
        ("eventual.commit:s1.before", 1),
        ("eventual.commit:s3.before", 1),
        ("eventual.commit.after", 1),
    ];
    for (place, decided) in places {
        assert_eq!(server.stop().code(), Some(0));
        server = setup.clone().env("POLYSHARD_FAILPOINT", place).start();
        assert!(!try_sql(&server, "UPDATE counts SET n = n + 1").status.success(), "{place}");
        let ended = server.wait();
        assert_eq!(ended.signal(), Some(ABORTED), "{place}: {ended}");
        n += decided;
        server = setup.start();
        let found = sql(&server, "SELECT count(*), min(n), max(n) FROM counts");
        assert_eq!(found, format!("40|{n}|{n}"), "{place}");
    }
    let listed = json(&server, "writes list");
    let writes = listed["writes"].as_array().unwrap();
    assert_eq!(writes.len(), 5, "{listed}");
    assert!(writes.iter().all(|write| write["completed"] == true), "{listed}");
    let id = writes[0]["id"].as_str().unwrap();
    assert_eq!(sql(&server, &format!("SELECT polyshard.write_completed('{id}')")), "true");
    assert_eq!(json(&server, &format!("writes show {id}"))["waiting"].as_array().unwrap().len(), 0);
    assert!(run(&server, &format!("writes retry {id}")).ok().contains("done"));
    assert_eq!(refused(&server, "writes show 00000000-0000-4000-8000-000000000000", 3)["code"], "not_found");
    assert_eq!(refused(&server, &format!("writes skip {id} --shard s1 --yes"), 3)["code"], "not_found");
    assert_eq!(refused(&server, &format!("writes skip {id} --shard s1"), 2)["field"], "yes");
    assert_eq!(server.stop().code(), Some(0));
}

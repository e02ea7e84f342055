//! D7, D8: killed at each step an archive goes on by itself, and so does its restoration: nothing is lost or doubled.

use std::os::unix::process::ExitStatusExt;

use polyshard_testkit::process::{Server, Setup};
use tempfile::TempDir;

use crate::archive::{filled, seen};
use crate::fleet::Fleet;
use crate::sql::sql;
use crate::support::{await_quiet, json, run};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;

/// Places of an archive.
const GOING: [&str; 12] = [
    "task_hold.before",
    "task_hold.after",
    "task_write_archive.before",
    "task_write_archive.after",
    "task_compare_archive.after",
    "task_hold_offline.after",
    "depart.after",
    "task_drop_rows.before",
    "task_drop_rows.after",
    "task_pass_on.before",
    "task_pass_on.after",
    "task_note_archive.after",
];

/// Places of its restoration.
const COMING: [&str; 6] = [
    "task_pass_on.after",
    "task_assign.after",
    "task_restore_archive.before",
    "task_restore_archive.after",
    "task_let_go.before",
    "task_let_go.after",
];

/// Has a server killed at a place of what a command begins, and another one end it.
fn kill_at(setup: &Setup, place: &str, line: &str) -> Server {
    let mut server = setup.clone().env("POLYSHARD_FAILPOINT", place).start();
    // The answer may be lost with the server.
    let _asked = run(&server, line);
    let ended = server.wait();
    assert_eq!(ended.signal(), Some(ABORTED), "{place}: {}", server.log().text());
    let server = setup.start();
    await_quiet(&server);
    server
}

fn survives(setup: &Setup, shards: [&str; 2]) {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let mut server = setup.start();
    filled(&server, shards[0]);
    let before = seen(&server);
    let february = sql(&server, "SELECT count(*) FROM orders WHERE day >= '2024-02-01'");
    server.stop();
    for (number, at) in GOING.into_iter().enumerate() {
        let name = format!("going-{number}");
        let line = format!(
            "archive run orders --range 2024-01-01..2024-02-01 --to {} --name {name}",
            place.path().display()
        );
        let mut server = kill_at(setup, at, &line);
        let archives = json(&server, "archive list")["archives"].clone();
        let found =
            archives.as_array().expect("a list").iter().find(|one| one["name"] == name.as_str()).cloned();
        let found = found.unwrap_or_else(|| panic!("{at}: {archives}"));
        assert_eq!(found["state"], "archived", "{at}: {}", json(&server, "ops list"));
        assert_eq!(sql(&server, "SELECT count(*) FROM orders"), february, "{at}");
        run(&server, &format!("archive restore {name} --to {} --wait", shards[number % 2])).ok();
        assert_eq!(seen(&server), before, "{at}");
        server.stop();
    }
    for (number, at) in COMING.into_iter().enumerate() {
        let name = format!("coming-{number}");
        let mut server = setup.start();
        let line = format!(
            "archive run orders --range 2024-01-01..2024-02-01 --to {} --name {name} --wait",
            place.path().display()
        );
        run(&server, &line).ok();
        server.stop();
        let to = shards[number % 2];
        let mut server = kill_at(setup, at, &format!("archive restore {name} --to {to}"));
        assert_eq!(seen(&server), before, "{at}: {}", json(&server, "ops list"));
        run(&server, "check orders").ok();
        server.stop();
    }
    let mut server = setup.start();
    run(&server, "map check orders").ok();
    server.stop();
}

#[test]
#[ignore = "eighteen servers are killed and waited for: make test-all"]
fn killed_at_each_step_an_archive_goes_on_by_itself() {
    survives(&Setup::new(), ["s1", "s2"]);
}

#[test]
#[ignore = "eighteen servers are killed and waited for: make test-all"]
fn killed_at_each_step_an_archive_of_postgres_goes_on_by_itself() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    survives(&fleet.setup(), ["a", "b"]);
}

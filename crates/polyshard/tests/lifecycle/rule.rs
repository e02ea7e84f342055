//! D7: old months are archived, dropped or moved by rules, once each time.

use polyshard_testkit::process::Setup;
use tempfile::TempDir;

use crate::archive::filled;
use crate::sql::sql;
use crate::support::{await_quiet, eventually, json, refused, run, session, shard_of};

#[test]
fn old_months_are_archived_by_a_rule_and_what_is_young_stays() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let mut server = Setup::new().start();
    filled(&server, "s1");
    // Where the map begins is known, so that months are months.
    session(&server, "map split orders --at 2024-01-01\nmap split orders --at 2024-03-01");
    sql(&server, "INSERT INTO orders VALUES ('2999-01-01', 1, 'young')");
    let line =
        format!("archive rule add orders --older-than 2months --every day --to {}", place.path().display());
    let rule = json(&server, &line);
    assert_eq!(json(&server, &line)["id"], rule["id"], "the same rule again is the one that is there");
    let states = || {
        let list = json(&server, "archive list")["archives"].clone();
        let all = list.as_array().expect("a list").iter();
        let mut all: Vec<String> = all
            .map(|one| {
                format!(
                    "{} {}",
                    one["name"].as_str().expect("a name"),
                    one["state"].as_str().expect("a state")
                )
            })
            .collect();
        all.sort();
        all
    };
    let wanted = ["orders-2024-01 archived", "orders-2024-02 archived", "orders-2024-03 archived"];
    eventually("three months in archives", || (states() == wanted).then_some(()));
    await_quiet(&server);
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "1");
    let rules = json(&server, "archive rule list")["rules"].clone();
    assert_eq!(rules[0]["due"].as_array().map(Vec::len), Some(0), "{rules}");
    assert!(rules[0]["last_ms"].as_i64().is_some_and(|at| at > 0), "{rules}");
    run(&server, &format!("archive rule remove {}", rule["id"].as_str().expect("an id"))).ok();
    refused(&server, "archive rule add orders --older-than 2moons --drop", 2);
    run(&server, "archive restore orders-2024-02 --wait").ok();
    assert_eq!(sql(&server, "SELECT count(*) FROM orders"), "601");

    // What was restored is old still: another rule moves it to cheaper shards, while it can be read.
    run(&server, "shard set s4 --tier cold").ok();
    run(&server, "archive rule add orders --older-than 2months --every day --to-tier cold").ok();
    eventually("February on the cold shard", || {
        (shard_of(&server, "orders", "2024-02-05") == "s4").then_some(())
    });
    await_quiet(&server);
    assert_eq!(sql(&server, "SELECT count(*) FROM orders WHERE day = '2024-02-05'"), "22");
    server.stop();
}

//! D7: old months are archived, dropped or moved by rules, once each time.

use polyshard_testkit::process::Setup;
use tempfile::TempDir;

use crate::archive::filled;
use crate::sql::sql;
use crate::support::{TOKEN, await_quiet, eventually, json, refused, run, send, session, shard_of};

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

/// Hours of the day that are not now, nor will be soon.
fn other_hours() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let hour = now.as_secs() / 3_600 % 24;
    format!("{:02}:00-{:02}:00", (hour + 12) % 24, (hour + 14) % 24)
}

#[test]
fn a_rule_says_what_it_would_take_and_why_and_is_carried_out_by_hand_at_any_hour() {
    let place = TempDir::with_prefix("polyshard-archive-").expect("a folder");
    let mut server = Setup::new().env("POLYSHARD__REBALANCE__HOURS", &other_hours()).start();
    filled(&server, "s1");
    session(&server, "map split orders --at 2024-01-01\nmap split orders --at 2024-03-01");
    let to = place.path().display();
    let rule = json(&server, &format!("archive rule add orders --older-than 2months --every day --to {to}"));
    let id = rule["id"].as_str().expect("an id").to_owned();
    let short = &id[..8];

    let plan = json(&server, &format!("archive rule run {short} --dry-run"));
    let parts = plan["parts"].as_array().expect("parts");
    let names: Vec<&str> = parts.iter().map(|part| part["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["orders-2024-01", "orders-2024-02", "orders-2024-03"], "{plan}");
    for part in parts {
        assert_eq!((&part["shard"], &part["rows"]), (&"s1".into(), &1200.into()), "{plan}");
        assert!(part["bytes"].as_u64().is_some_and(|bytes| bytes > 1200 * 24), "{plan}");
        assert!(part["why"].as_str().expect("a reason").contains("older than 2months"), "{plan}");
    }
    let words = run(&server, &format!("archive rule run {id} --dry-run")).ok();
    assert!(words.contains("3 ranges in all: 3600 rows") && words.contains("Nothing was done"), "{words}");
    assert_eq!(json(&server, "archive list")["archives"], serde_json::json!([]));
    let listed = json(&server, "archive rule list")["rules"][0].clone();
    assert_eq!(
        (listed["due"].as_array().map(Vec::len), &listed["last_ms"]),
        (Some(3), &serde_json::Value::Null)
    );

    run(&server, &format!("archive rule run {short} --wait")).ok();
    let list = run(&server, "archive list").ok();
    assert!(
        list.contains("3600 rows") && list.contains("polyshard archive restore orders-2024-01"),
        "{list}"
    );
    let nothing = run(&server, &format!("archive rule run {short} --dry-run")).ok();
    assert!(nothing.contains("nothing of map orders from before"), "{nothing}");
    refused(&server, "archive rule run 00000000", 3);

    // One that cannot be begun says why.
    run(&server, "archive restore orders-2024-02 --wait").ok();
    run(&server, "shard set s4 --tier cold").ok();
    let cold = json(&server, "archive rule add orders --older-than 2months --to-tier cold");
    let cold = cold["id"].as_str().expect("an id");
    let plan = json(&server, &format!("archive rule run {cold} --dry-run"));
    assert!(plan["steps"][0].as_str().expect("a step").contains("from s1 to s4"), "{plan}");
    run(&server, "shard set s4 --state offline").ok();
    refused(&server, &format!("archive rule run {cold}"), 5);
    let rules = run(&server, "archive rule list").ok();
    assert!(rules.contains("was not carried out") && rules.contains("no shard of tier cold"), "{rules}");
    let page = send(&server, "GET /metrics", TOKEN, b"").body;
    for line in [
        "polyshard_archive_ranges{map=\"orders\",state=\"archived\"} 2",
        "polyshard_archive_ranges{map=\"orders\",state=\"restored\"} 1",
        "polyshard_archive_rows{map=\"orders\"} 3600",
        "polyshard_archive_given_up{kind=\"archive\"} 0",
        &format!("polyshard_archive_rule_failures_total{{map=\"orders\",rule=\"{cold}\"}} 1"),
        &format!("polyshard_archive_rule_failures_total{{map=\"orders\",rule=\"{id}\"}} 0"),
    ] {
        assert!(page.lines().any(|one| one == line), "{line}: {page}");
    }
    let last = format!("polyshard_archive_rule_last_run_timestamp_seconds{{map=\"orders\",rule=\"{id}\"}}");
    assert!(page.contains(&last), "{page}");
    server.stop();
}

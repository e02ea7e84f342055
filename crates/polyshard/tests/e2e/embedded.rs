//! Embedded shards: every verb on every kind of map, and what a stop, a kill and an old copy leave.

use std::fs;

use polyshard_testkit::process::{Server, Setup};
use serde_json::{Value, json as value};

use crate::support::{
    assert_agreed, error_of, eventually, everything, json, refused, run, session, shard_of, version_of,
};

/// Ends a scenario: catalog and shards agree, nothing was logged that somebody should look at, the end is clean.
#[track_caller]
fn close(mut server: Server) {
    assert_agreed(&server);
    assert_eq!(server.stop().code(), Some(0));
    server.assert_clean_log(&[]);
}

/// Exports, drops, imports; the map answers as before.
#[track_caller]
fn carry_over(server: &Server, map: &str, key: &str) {
    let before = (entries(server, map), shard_of(server, map, key));
    run(server, &format!("map export {map} --output {map}.json")).ok();
    run(server, &format!("map drop {map}")).ok();
    assert_eq!(refused(server, &format!("map locate {map} '{key}'"), 3)["code"], "not_found");
    run(server, &format!("map import {map}.json")).ok();
    assert_eq!((entries(server, map), shard_of(server, map, key)), before);
    assert_eq!(refused(server, &format!("map import {map}.json"), 4)["code"], "exists");
}

/// The entries of a map without epochs and locks, which are not carried over.
fn entries(server: &Server, map: &str) -> Vec<Value> {
    let page = json(server, &format!("map entries {map} --limit 10000"));
    let entries = page["entries"].as_array().expect("entries").iter();
    entries.map(|e| value!([e["range"], e["shard"], e["state"], e["group"]])).collect()
}

/// A1, B6: single keys, groups that stay together, states, locks.
#[test]
fn a_list_map_is_made_changed_locked_and_carried_over() {
    let server = Setup::new().start();
    session(
        &server,
        "map create customers --kind list --key text
         map add customers --key acme --to s1
         map add customers --key oslo --to s1 --group scandinavia
         map add customers --key bergen --to s1 --group scandinavia --state read_only",
    );
    assert_eq!(shard_of(&server, "customers", "bergen"), "s1");
    let twice = refused(&server, "map add customers --key acme --to s2", 4);
    assert!(twice["message"].as_str().unwrap().contains("acme"), "{twice}");
    run(&server, "map assign customers --group scandinavia --to s2").ok();
    for city in ["oslo", "bergen"] {
        assert_eq!(shard_of(&server, "customers", city), "s2");
    }
    run(&server, "map lock customers --key acme --owner alice --lease 1h").ok();
    let locked = refused(&server, "map assign customers --key acme --to s3", 4);
    assert_eq!(locked["code"], "locked");
    assert!(locked["message"].as_str().unwrap().contains("alice"), "{locked}");
    run(&server, "map assign customers --key acme --to s3 --lock-owner alice").ok();
    assert_eq!(refused(&server, "map unlock customers --key acme --owner bob", 4)["code"], "locked");
    session(
        &server,
        "map unlock customers --key acme --owner alice
         map state customers offline --key acme",
    );
    assert_eq!(json(&server, "map locate customers acme")["state"], "offline");
    assert_eq!(refused(&server, "map locate customers nobody", 3)["code"], "not_found");
    carry_over(&server, "customers", "oslo");
    run(&server, "map remove customers --key acme").ok();
    assert_eq!(refused(&server, "map locate customers acme", 3)["code"], "not_found");
    close(server);
}

/// B6: a lease ends by itself.
#[test]
fn a_lock_that_is_not_given_back_ends_with_its_lease() {
    let server = Setup::new().start();
    session(
        &server,
        "map create customers --kind list --key text
         map add customers --key acme --to s1
         map lock customers --key acme --owner alice --lease 300ms",
    );
    eventually("the end of the lease", || {
        (run(&server, "map assign customers --key acme --to s2").code == Some(0)).then_some(())
    });
    assert_eq!(shard_of(&server, "customers", "acme"), "s2");
    run(&server, "map lock customers --key acme --owner alice --lease 1h").ok();
    run(&server, "map unlock customers --key acme --force").ok();
    run(&server, "map remove customers --key acme").ok();
    close(server);
}

/// A2: half-open ranges, gaps, split and merge that keep the shard.
#[test]
fn a_range_map_is_split_merged_assigned_and_carried_over() {
    let server = Setup::new().start();
    session(
        &server,
        "map create orders --kind range --key bigint
         map add orders --range ..-10 --to s4
         map add orders --range 0..1000 --to s1
         map add orders --range 1000.. --to s2
         map split orders --at 500",
    );
    assert_eq!(shard_of(&server, "orders", "499"), "s1");
    assert_eq!(shard_of(&server, "orders", "500"), "s1");
    let gap = refused(&server, "map locate orders -5", 3);
    assert!(gap["message"].as_str().unwrap().contains("-5"), "{gap}");
    assert_eq!(refused(&server, "map merge orders --at 1000", 4)["code"], "conflict");
    run(&server, "map assign orders --range 500..1000 --to s2").ok();
    for (key, shard) in [("499", "s1"), ("500", "s2"), ("999", "s2"), ("1000", "s2"), ("-11", "s4")] {
        assert_eq!(shard_of(&server, "orders", key), shard, "{key}");
    }
    session(
        &server,
        "map merge orders --at 1000
         map state orders read_only --range 0..500
         map state orders online --range 0..",
    );
    let overlap = refused(&server, "map add orders --range 400..2000 --to s3", 4);
    assert!(overlap["remedy"].is_string(), "{overlap}");
    carry_over(&server, "orders", "700");
    run(&server, "map remove orders --range ..-10").ok();
    assert_eq!(refused(&server, "map locate orders -11", 3)["code"], "not_found");
    close(server);
}

/// A3, A4: every key has a bucket, the same before and after; buckets are re-pointed.
#[test]
fn a_hash_map_spreads_over_all_shards_and_buckets_are_re_pointed() {
    let server = Setup::new().start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 64 --seed 7").ok();
    let shown = json(&server, "map show tenants");
    assert_eq!(shown["by_shard"].as_object().unwrap().len(), 4, "{shown}");
    let located = json(&server, "map locate tenants 42");
    for field in ["shard", "range", "epoch"] {
        assert!(!located[field].is_null(), "{located}");
    }
    session(
        &server,
        "map split tenants --at 5
         map assign tenants --buckets 0..5 --to s4
         map assign tenants --buckets 5..16 --to s4
         map merge tenants --at 5
         map state tenants read_only --buckets 0..16
         map lock tenants --buckets 0..16 --owner mover
         map unlock tenants --buckets 0..16 --owner mover",
    );
    let by_shard = &json(&server, "map show tenants")["by_shard"];
    assert!(by_shard["s1"].is_null(), "{by_shard}");
    carry_over(&server, "tenants", "42");
    run(&server, "map create few --kind hash --key uuid --buckets 8 --shards s2,s3").ok();
    let by_shard = json(&server, "map show few")["by_shard"].clone();
    assert_eq!(by_shard, value!({"s2": 1, "s3": 1}));
    run(&server, "map remove few --buckets 0..8").ok();
    assert_eq!(json(&server, "map show few")["entries"], 0);
    close(server);
}

/// A5: range then hash; segments are added, cut and taken out.
#[test]
fn a_range_hash_map_has_segments_with_buckets_of_their_own() {
    let server = Setup::new().start();
    session(
        &server,
        "map create events --kind range_hash --key '(date, bigint)' --buckets 8
         map add-segment events --range 2024-01-01..2024-02-01 --shards s1,s2
         map add-segment events --range 2024-02-01..2024-03-01 --shards s3,s4
         map assign events --segment 2024-01-01 --buckets 0..4 --to s3
         map split-segment events --segment 2024-01-01 --at 2024-01-15
         map split events --segment 2024-01-15 --at 2
         map merge events --segment 2024-01-15 --at 2
         map state events read_only --segment 2024-01-15 --buckets 0..4",
    );
    let january = json(&server, r#"map locate events '["2024-01-20", 7]'"#);
    assert_eq!(january["range"]["segment"], "2024-01-15", "{january}");
    assert!(["s2", "s3"].contains(&january["shard"].as_str().unwrap()), "{january}");
    assert_eq!(refused(&server, r#"map locate events '["2024-03-01", 7]'"#, 3)["code"], "not_found");
    carry_over(&server, "events", r#"["2024-02-20", 7]"#);
    run(&server, "map remove-segment events --segment 2024-01-01").ok();
    assert_eq!(refused(&server, r#"map locate events '["2024-01-02", 7]'"#, 3)["code"], "not_found");
    assert_eq!(json(&server, r#"map locate events '["2024-01-20", 7]'"#)["range"], january["range"]);
    // Entities keep the place that they were put to, which the split of their segment would change.
    run(&server, "bind table:readings --map events").ok();
    let split = "map split-segment events --segment 2024-02-01 --at 2024-02-15";
    assert_eq!(refused(&server, split, 4)["code"], "holds_data");
    run(&server, "map add-segment events --range 2024-03-01..2024-04-01 --shards s1").ok();
    run(&server, "unbind table:readings").ok();
    run(&server, split).ok();
    close(server);
}

/// A5: region, then hash over the shards of the region only.
#[test]
fn a_list_hash_map_keeps_a_region_on_its_own_shards() {
    let server = Setup::new().start();
    session(
        &server,
        "map create people --kind list_hash --key '(text, uuid)' --buckets 16
         map add-segment people --key eu --shards s1,s2
         map add-segment people --key us --shards s3,s4
         map assign people --segment eu --buckets 0..4 --to s2",
    );
    for n in 0..20 {
        let id = format!("00000000-0000-0000-0000-0000000000{n:02}");
        assert!(["s1", "s2"].contains(&&*shard_of(&server, "people", &format!(r#"["eu", "{id}"]"#))));
        assert!(["s3", "s4"].contains(&&*shard_of(&server, "people", &format!(r#"["us", "{id}"]"#))));
    }
    carry_over(&server, "people", r#"["us", "00000000-0000-0000-0000-000000000001"]"#);
    run(&server, "map remove-segment people --segment eu").ok();
    let gone = r#"map locate people '["eu", "00000000-0000-0000-0000-000000000001"]'"#;
    assert_eq!(refused(&server, gone, 3)["code"], "not_found");
    close(server);
}

/// B3: what was acknowledged is there after an orderly stop and after a kill, epoch by epoch.
#[test]
fn maps_outlive_a_stop_and_a_kill_with_the_same_epochs_and_versions() {
    let setup = Setup::new();
    let mut server = setup.start();
    session(
        &server,
        "map create tenants --kind hash --key bigint --buckets 16
         map create orders --kind range --key date
         map add orders --range 2024-01-01.. --to s1
         map assign tenants --buckets 0..2 --to s3
         map state orders read_only --range 2024-01-01..
         map lock orders --range 2024-01-01.. --owner alice --lease 1h
         shard set s4 --region eu --tier cold --bytes-max 1000",
    );
    let before = everything(&server);
    assert_eq!(server.stop().code(), Some(0));
    assert!(server.log().text().ends_with("stopped\n"), "{}", server.log().text());

    let mut server = setup.start();
    assert_eq!(everything(&server), before);
    run(&server, "map split tenants --at 1").ok();
    let before = everything(&server);
    server.kill9();

    let server = setup.start();
    assert_eq!(everything(&server), before);
    assert_eq!(refused(&server, "map remove orders --range 2024-01-01..", 4)["code"], "locked");
    run(&server, "map split tenants --at 3").ok();
    close(server);
}

/// D1: taking a shard out is destructive, and so needs an empty shard or the explicit word.
#[test]
fn a_shard_with_ranges_leaves_only_with_the_explicit_word() {
    let server = Setup::new().start();
    session(
        &server,
        "shard add s5 --url sqlite:shards/s5.db --region eu
         map create tenants --kind hash --key bigint --buckets 10",
    );
    let before = everything(&server);
    let held = refused(&server, "shard remove s5", 4);
    assert_eq!(held["code"], "holds_data", "{held}");
    assert!(held["remedy"].as_str().unwrap().contains("--destroy s5"), "{held}");
    assert_eq!(refused(&server, "shard remove s5 --destroy s4", 2)["field"], "--destroy");
    assert_eq!(everything(&server), before, "a refusal changes nothing");

    run(&server, "shard remove s5 --destroy s5").ok();
    assert_eq!(refused(&server, "shard show s5", 3)["code"], "not_found");
    assert!(json(&server, "map show tenants")["by_shard"]["s5"].is_null());
    session(
        &server,
        "map assign tenants --buckets 0..2 --to s2
         shard remove s1",
    );
    assert_eq!(json(&server, "shard list")["shards"].as_array().unwrap().len(), 3);
    close(server);
}

/// B4, PROTOCOL §1: an old copy of a shard is noticed, shown, and repaired from the catalog.
#[test]
fn an_old_copy_of_a_shard_is_shown_and_repaired() {
    let setup = Setup::new();
    let mut server = setup.start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 16").ok();
    assert_eq!(server.stop().code(), Some(0));
    let file = setup.data_path().join("shards/s1.db");
    let copy = setup.data_path().join("old-copy.db");
    fs::copy(&file, &copy).unwrap();

    let mut server = setup.start();
    run(&server, "map split tenants --at 2").ok();
    assert_eq!(server.stop().code(), Some(0));
    fs::copy(&copy, &file).unwrap();

    let server = setup.start();
    let found = run(&server, "map check tenants --json");
    assert_eq!(found.code, Some(4), "{found:?}");
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(found["differences"].as_array().unwrap().len(), 3, "{found}");
    let version = version_of(&server, "tenants");
    let plan = json(&server, "map repair tenants --from catalog");
    assert_eq!(plan["differences"], found["differences"]);
    assert_eq!(version_of(&server, "tenants"), version, "a plan changes nothing");
    assert_eq!(run(&server, "map check tenants").code, Some(4), "a plan changes nothing");
    let wrong = run(&server, "map repair tenants --from shards --shard s1 --apply --json");
    assert_eq!(error_of(wrong, 2)["field"], "shard");
    run(&server, "map repair tenants --from catalog --apply").ok();
    run(&server, "map check tenants").ok();
    assert_eq!(json(&server, "map show tenants")["by_shard"]["s1"], 2);
    run(&server, "map merge tenants --at 2").ok();
    close(server);
}

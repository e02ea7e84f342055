//! Several server processes on one PostgreSQL catalog: what one does the others see, race for, and survive.

use std::os::unix::process::ExitStatusExt;
use std::thread;

use polyshard_testkit::process::Server;

use crate::fleet::Fleet;
use crate::support::{
    assert_agreed, await_quiet, eventually, everything, json, refused, run, session, shard_of, version_of,
};

fn two() -> (Fleet, Server, Server) {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let first = fleet.setup().start();
    let second = fleet.setup().start();
    (fleet, first, second)
}

/// Waits until a process has seen this version of a map.
#[track_caller]
fn await_version(server: &Server, map: &str, version: u64) {
    eventually("the other process to see the change", || {
        let shown = run(server, &format!("map show {map} --json"));
        (shown.code == Some(0) && shown.json()["version"] == version).then_some(())
    });
}

/// B1, B2: no process has to be told.
#[test]
fn what_one_process_changes_the_other_sees() {
    let (_fleet, first, second) = two();
    session(
        &first,
        "map create orders --kind range --key bigint
         map add orders --range 0..100 --to a",
    );
    await_version(&second, "orders", 2);
    assert_eq!(shard_of(&second, "orders", "7"), "a");
    run(&second, "map assign orders --range 0..50 --to b").ok();
    await_version(&first, "orders", 3);
    assert_eq!(shard_of(&first, "orders", "7"), "b");
    run(&first, "map drop orders").ok();
    eventually("the map to be gone", || (run(&second, "map show orders").code == Some(3)).then_some(()));
    assert_eq!(everything(&first)["shards"], everything(&second)["shards"]);
}

/// B3: two operators, one success, and one who is told what there is now.
#[test]
fn two_operators_racing_on_one_version_get_one_success_and_one_changed_meanwhile() {
    let (_fleet, first, second) = two();
    session(
        &first,
        "map create orders --kind range --key bigint
         map add orders --range 0..100000 --to a",
    );
    await_version(&second, "orders", 2);
    for round in 1..=8_u64 {
        let version = version_of(&first, "orders");
        let race = |server: &Server, at: u64| {
            run(server, &format!("map split orders --at {at} --if-version {version}"))
        };
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| race(&first, round * 10));
            let other = scope.spawn(|| race(&second, round * 10 + 5));
            (one.join().expect("no panic"), other.join().expect("no panic"))
        });
        let mut codes = [one.code, other.code];
        codes.sort();
        assert_eq!(codes, [Some(0), Some(4)], "{one:?}\n{other:?}");
        let loser = if one.code == Some(4) { one } else { other };
        assert!(loser.stderr.contains("changed meanwhile"), "{loser:?}");
        await_version(&first, "orders", version + 1);
        await_version(&second, "orders", version + 1);
    }
    assert_agreed(&first);
    assert_eq!(everything(&first), everything(&second));
}

/// PROTOCOL §2: a process that is paused is not waited for, and finds its way again.
#[test]
fn a_paused_process_stops_nobody_and_heals_when_it_goes_on() {
    let (_fleet, first, second) = two();
    session(
        &first,
        "map create orders --kind range --key bigint
         map add orders --range 0..100 --to a",
    );
    await_version(&second, "orders", 2);
    first.pause();
    session(
        &second,
        "map split orders --at 50
         map assign orders --range 50..100 --to b
         map state orders read_only --range 0..50",
    );
    assert_eq!(shard_of(&second, "orders", "70"), "b");
    first.resume();
    await_version(&first, "orders", 5);
    assert_eq!(shard_of(&first, "orders", "70"), "b");
    run(&first, "map assign orders --range 50..100 --to a --if-version 5").ok();
    await_version(&second, "orders", 6);
    assert_agreed(&first);
    assert_agreed(&second);
}

/// B3: the living finish what the dead began, without anybody being restarted.
#[test]
fn an_operation_whose_process_died_is_finished_by_another() {
    let fleet = Fleet::start(1, &[("a", 0), ("b", 0)]);
    let living = fleet.setup().start();
    session(
        &living,
        "map create orders --kind range --key bigint
         map add orders --range 0..100 --to a",
    );
    for (place, to, back) in
        [("depart.after", "b", "a"), ("raise.after", "b", "a"), ("publish.before", "b", "a")]
    {
        let mut dying = fleet.setup().env("POLYSHARD_FAILPOINT", place).start();
        let lost = run(&dying, &format!("map assign orders --range 50..100 --to {to}"));
        assert_ne!(lost.code, Some(0), "{lost:?}");
        assert_eq!(dying.wait().signal(), Some(6), "{place}");
        await_quiet(&living);
        eventually("the range to arrive", || (shard_of(&living, "orders", "70") == to).then_some(()));
        assert_agreed(&living);
        run(&living, &format!("map assign orders --range 50..100 --to {back}")).ok();
        run(&living, "map merge orders --at 50").ok();
    }
    assert_eq!(json(&living, "map show orders")["entries"], 1);
    assert_eq!(refused(&living, "map locate orders 100", 3)["code"], "not_found");
}

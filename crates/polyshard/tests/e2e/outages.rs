//! Databases that go away and come back: traffic goes on where it can, errors say what to do, no restart is needed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use polyshard_testkit::process::{Server, Setup, StartFailure};

use crate::fleet::Fleet;
use crate::support::{
    assert_agreed, await_quiet, eventually, json, refused, run, running, session, shard_of,
};

/// A catalog on a server of its own, and two shards on servers of their own.
fn apart() -> (Fleet, Setup, Server) {
    let fleet = Fleet::start(3, &[("a", 1), ("b", 2)]);
    let setup = fleet.setup();
    let server = setup.start();
    session(
        &server,
        "map create orders --kind range --key bigint
         map add orders --range 0..100 --to a
         map add orders --range 100..200 --to b",
    );
    (fleet, setup, server)
}

/// Waits until a change works again, and sees that everything is well.
#[track_caller]
fn heals(server: &Server, line: &str) {
    eventually("changes to work again", || (run(server, line).code == Some(0)).then_some(()));
    await_quiet(server);
    assert_agreed(server);
}

/// B5: the cached map serves while the catalog is away.
#[test]
fn while_the_catalog_is_away_known_keys_are_found_and_changes_are_told_to_wait() {
    let (mut fleet, _setup, server) = apart();
    fleet.servers[0].stop();
    assert_eq!(shard_of(&server, "orders", "7"), "a");
    assert_eq!(shard_of(&server, "orders", "170"), "b");
    assert_eq!(refused(&server, "map split orders --at 50", 5)["code"], "unavailable");
    assert_eq!(refused(&server, "map create more --kind hash --key uuid", 5)["code"], "unavailable");
    assert_eq!(refused(&server, "shard set a --region eu", 5)["code"], "unavailable");
    // It may be mapped by now: not 'no such key'.
    let unknown = refused(&server, "map locate orders 700", 5);
    assert_eq!(unknown["code"], "unavailable");
    assert!(unknown.to_string().contains("try again"), "{unknown}");
    let status = json(&server, "status");
    assert_eq!(status["catalog"]["reachable"], false, "{status}");
    assert_eq!(status["shards"][0]["reachable"], true, "{status}");

    fleet.servers[0].start_again();
    heals(&server, "map split orders --at 50");
    assert_eq!(json(&server, "status")["catalog"]["reachable"], true);
    assert_eq!(refused(&server, "map locate orders 700", 3)["code"], "not_found");
    assert!(json(&server, "shard show a")["region"].is_null(), "what was refused was not done");
    assert_eq!(json(&server, "map show orders")["entries"], 3);
}

/// B5: a start without the catalog is possible from the saved map, and only from it.
#[test]
fn a_server_starts_without_its_catalog_from_the_map_as_last_saved() {
    let (mut fleet, setup, mut server) = apart();
    let stopped = server.stop();
    assert_eq!(stopped.code(), Some(0));
    fleet.servers[0].stop();

    let server = setup.start();
    assert_eq!(shard_of(&server, "orders", "7"), "a");
    assert_eq!(refused(&server, "map split orders --at 50", 5)["code"], "unavailable");
    assert_eq!(refused(&server, "map locate orders 700", 5)["code"], "unavailable");

    let failure = fleet.setup().try_start().expect_err("there is nothing to start from");
    let StartFailure::Ended(status, log) = failure else { panic!("{failure}") };
    assert_eq!(status.code(), Some(5), "{log}");
    assert!(log.contains("catalog"), "{log}");

    fleet.servers[0].start_again();
    heals(&server, "map split orders --at 50");
}

/// E10: only requests for the lost keys fail, and say so.
#[test]
fn a_shard_that_is_away_affects_its_own_keys_only() {
    let (mut fleet, _setup, server) = apart();
    fleet.servers[2].stop();
    run(&server, "map split orders --at 50").ok();
    let outcome = thread::scope(|scope| {
        // It waits for the shard a while, and is undone once the shard can be asked what it has of it.
        let change = scope.spawn(|| run(&server, "map assign orders --range 50..100 --to b --json"));
        eventually("the operation on the shard that is away", || {
            (!running(&server).is_empty()).then_some(())
        });
        run(&server, "map state orders read_only --range 0..50").ok();
        run(&server, "map split orders --at 25").ok();
        run(&server, "map create more --kind list --key text").ok();
        run(&server, "map add more --key acme --to a").ok();
        assert_eq!(shard_of(&server, "orders", "170"), "b", "the map is known");
        assert_eq!(shard_of(&server, "orders", "70"), "a");
        let status = json(&server, "status");
        assert_eq!(status["shards"][0]["reachable"], true, "{status}");
        assert_eq!(status["shards"][1]["reachable"], false, "{status}");
        assert_eq!(run(&server, "map check orders").code, Some(5), "a check says that it could not ask");

        fleet.servers[2].start_again();
        change.join().expect("no panic")
    });
    await_quiet(&server);
    // Whole or not at all, as the operator was told.
    match outcome.code {
        Some(0) => assert_eq!(shard_of(&server, "orders", "70"), "b"),
        Some(4 | 5) => {
            assert!(outcome.stderr.contains("shard b"), "the message names the shard: {outcome:?}");
            assert_eq!(shard_of(&server, "orders", "70"), "a");
        }
        _ => panic!("{outcome:?}"),
    }
    heals(&server, "map assign orders --range 50..200 --to a");
}

/// E10: a shard that will not come back is let go, and can be replaced.
#[test]
fn a_shard_that_is_lost_for_good_is_detached_and_its_keys_mapped_anew() {
    let (mut fleet, _setup, server) = apart();
    fleet.servers[2].kill9();
    run(&server, "shard detach b").ok();
    assert_eq!(refused(&server, "map locate orders 170", 3)["code"], "not_found");
    assert_eq!(shard_of(&server, "orders", "70"), "a");
    run(&server, "map check orders").ok();
    run(&server, "map add orders --range 100..200 --to a").ok();
    assert_eq!(shard_of(&server, "orders", "170"), "a");
    // The old copy comes back late: what is newer stays.
    fleet.servers[2].start_again();
    let file = fleet.password_file("b").display().to_string();
    run(&server, &format!("shard attach b --url {} --password-file {file}", fleet.url(2, "b"))).ok();
    assert_eq!(shard_of(&server, "orders", "170"), "a");
    assert_agreed(&server);
}

/// A shard whose server hangs is no reason for the others, or for `status`, to hang.
#[test]
fn a_shard_that_hangs_is_shown_as_away_and_stops_nobody() {
    let (fleet, _setup, server) = apart();
    fleet.servers[2].suspend();
    let status = json(&server, "status");
    assert_eq!(status["shards"][1]["reachable"], false, "{status}");
    run(&server, "map split orders --at 50").ok();
    assert_eq!(shard_of(&server, "orders", "170"), "b");
    fleet.servers[2].resume();
    heals(&server, "map split orders --at 150");
    assert_eq!(json(&server, "status")["shards"][1]["reachable"], true);
}

/// Nothing acknowledged is lost, wherever the restarts fall.
#[test]
fn every_change_acknowledged_while_databases_restart_is_there_afterwards() {
    let mut fleet = Fleet::start(2, &[("a", 1), ("b", 1)]);
    let server = fleet.setup().start();
    session(
        &server,
        "map create orders --kind range --key bigint
         map add orders --range 0..1000000 --to a",
    );
    let over = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            for n in 1.. {
                if over.load(Ordering::SeqCst) && acknowledged.len() >= 3 {
                    break;
                }
                let (at, to) = (n * 10, if n % 2 == 0 { "a" } else { "b" });
                let output = run(&server, &format!("map assign orders --range {at}..{} --to {to}", at + 10));
                match output.code {
                    Some(0) => acknowledged.push((at, to)),
                    Some(5) | Some(4) => {}
                    _ => panic!("{output:?}"),
                }
            }
            acknowledged
        });
        for _ in 0..3 {
            for server in &mut fleet.servers {
                server.restart();
            }
        }
        over.store(true, Ordering::SeqCst);
        changes.join().expect("no panic")
    });
    await_quiet(&server);
    assert_agreed(&server);
    for (at, to) in acknowledged {
        assert_eq!(shard_of(&server, "orders", &at.to_string()), to, "{at} was acknowledged");
    }
    heals(&server, "map assign orders --range 500000..600000 --to b");
}

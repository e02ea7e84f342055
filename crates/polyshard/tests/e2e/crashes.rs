//! kill -9 at every step of every operation: one crash a step, each on a map of its own, and all of it heals by itself.
//!
//! The servers of a matrix run one after the other on one data directory, each ending itself at one place. They start
//! faster than the lease of a dead driver lapses, so that what they leave is mostly healed at the end, all at once.

use std::os::unix::process::ExitStatusExt;

use polyshard_testkit::process::{Server, Setup, StartFailure};

use crate::support::{assert_agreed, await_quiet, json, refused, run};

/// SIGABRT, by which a server ends itself at a failpoint.
const ABORTED: i32 = 6;

/// Crashes of one place before the test gives up on reaching it with its own command: while an earlier operation is
/// being healed the server may end itself in that one.
const TRIES_MAX: usize = 5;

/// One operation and its places. `{map}` stands for the map of a place.
struct Matrix {
    /// As `ops list` has it.
    kind: &'static str,
    /// Commands that make the map ready.
    before: &'static [&'static str],
    /// The command that is killed.
    command: &'static str,
    /// Where.
    places: &'static [&'static str],
    /// Places where it is undone instead of finished, since the dead process had what is missing.
    undone: &'static [&'static str],
    /// What must be true of a map on which it is done.
    done: fn(&Server, &str),
    /// A change that must work afterwards.
    after: &'static str,
}

const HASH: &[&str] = &["map create {map} --kind hash --key bigint --buckets 8"];

/// Before and after each of the actions that an operation without departures has.
const GAIN: &[&str] = &[
    "intent.after",
    "prepare.before",
    "prepare.after",
    "record_activating.before",
    "record_activating.after",
    "activate.before",
    "activate.after",
    "publish.before",
    "publish.after",
];

/// The same with a fence and a departure.
const LOSE: &[&str] = &[
    "intent.after",
    "prepare.before",
    "prepare.after",
    "record_fencing.before",
    "record_fencing.after",
    "raise.before",
    "raise.after",
    "await_acks.before",
    "await_acks.after",
    "check_empty.before",
    "check_empty.after",
    "record_departing.before",
    "record_departing.after",
    "depart.before",
    "depart.after",
    "release.before",
    "release.after",
    "record_activating.before",
    "record_activating.after",
    "activate.before",
    "activate.after",
    "publish.before",
    "publish.after",
];

const CREATE: Matrix = Matrix {
    kind: "create",
    before: &[],
    command: "map create {map} --kind hash --key bigint --buckets 8",
    places: &[
        "intent.after",
        "stage.after",
        "prepare.before",
        "prepare.after",
        "load.before",
        "load.after",
        "record_activating.before",
        "record_activating.after",
        "activate.before",
        "activate.after",
        "publish.before",
        "publish.after",
    ],
    undone: &["intent.after", "stage.after"],
    done: |server, map| assert_eq!(json(server, &format!("map show {map}"))["entries"], 4),
    after: "map split {map} --at 1",
};

const ADD: Matrix = Matrix {
    kind: "add",
    before: &["map create {map} --kind range --key bigint"],
    command: "map add {map} --range 0..100 --to s1",
    places: GAIN,
    undone: &[],
    done: |server, map| assert_shard(server, map, 7, "s1"),
    after: "map assign {map} --range 0..100 --to s2",
};

const SPLIT: Matrix = Matrix {
    kind: "split",
    before: HASH,
    command: "map split {map} --at 1",
    places: GAIN,
    undone: &[],
    done: |server, map| assert_eq!(json(server, &format!("map show {map}"))["entries"], 5),
    after: "map merge {map} --at 1",
};

const ASSIGN: Matrix = Matrix {
    kind: "assign",
    before: &["map create {map} --kind range --key bigint", "map add {map} --range 0..100 --to s1"],
    command: "map assign {map} --range 50..100 --to s2",
    places: LOSE,
    undone: &[],
    done: |server, map| {
        assert_shard(server, map, 49, "s1");
        assert_shard(server, map, 50, "s2");
    },
    after: "map assign {map} --range 0..100 --to s3",
};

const ACTIVATE_FROM: Matrix = Matrix { places: &["activate_from.before", "activate_from.after"], ..ASSIGN };

const REMOVE: Matrix = Matrix {
    kind: "remove",
    before: &["map create {map} --kind range --key bigint", "map add {map} --range 0..100 --to s1"],
    command: "map remove {map} --range 50..100",
    places: LOSE,
    undone: &[],
    done: |server, map| {
        assert_shard(server, map, 49, "s1");
        assert_eq!(refused(server, &format!("map locate {map} 50"), 3)["code"], "not_found");
    },
    after: "map add {map} --range 50..100 --to s2",
};

const STATE: Matrix = Matrix {
    kind: "set_state",
    before: HASH,
    command: "map state {map} offline --buckets 0..2",
    places: LOSE,
    undone: &[],
    done: |server, map| {
        let entries = json(server, &format!("map entries {map}"));
        assert_eq!(entries["entries"][0]["state"], "offline", "{entries}");
    },
    after: "map state {map} online --buckets 0..2",
};

const DROP: Matrix = Matrix {
    kind: "drop",
    before: HASH,
    command: "map drop {map}",
    places: LOSE,
    undone: &[],
    done: |server, map| assert_eq!(refused(server, &format!("map show {map}"), 3)["code"], "not_found"),
    after: "map create {map} --kind list --key text",
};

#[track_caller]
fn assert_shard(server: &Server, map: &str, key: i64, shard: &str) {
    assert_eq!(json(server, &format!("map locate {map} {key}"))["shard"], shard);
}

/// The map of a place.
fn map_of(place: &str) -> String {
    format!("m_{}", place.replace([':', '.'], "_"))
}

/// Runs the command on a server that ends itself at the place. Answers whether it was this command that ended it.
fn crash(setup: &Setup, matrix: &Matrix, place: &str) -> bool {
    let map = map_of(place);
    let mut server = match setup.clone().env("POLYSHARD_FAILPOINT", place).try_start() {
        Ok(server) => server,
        // It was healing an earlier operation, and came to the same place there.
        Err(StartFailure::Ended(status, _)) if status.signal() == Some(ABORTED) => return false,
        Err(failure) => panic!("{failure}"),
    };
    let output = run(&server, &matrix.command.replace("{map}", &map));
    assert_ne!(output.code, Some(0), "{place} is not on the way of {}", matrix.command);
    let ended = server.wait();
    assert_eq!(ended.signal(), Some(ABORTED), "{place}: {ended} {output:?}");
    true
}

/// Whether the catalog has recorded the operation on the map of a place.
fn was_begun(server: &Server, matrix: &Matrix, place: &str) -> bool {
    let list = json(server, "ops list");
    let operations = list["operations"].as_array().expect("a list");
    operations
        .iter()
        .any(|operation| operation["kind"] == matrix.kind && operation["map"] == map_of(place).as_str())
}

/// Crashes at each place, then sees that everything healed and goes on.
fn run_matrix(matrix: &Matrix) {
    let setup = Setup::new();
    let mut server = setup.start();
    for place in matrix.places {
        for line in matrix.before {
            run(&server, &line.replace("{map}", &map_of(place))).ok();
        }
    }
    let mut left: Vec<&str> = matrix.places.to_vec();
    for _ in 0..TRIES_MAX {
        assert_eq!(server.stop().code(), Some(0));
        for place in &left {
            crash(&setup, matrix, place);
        }
        server = setup.start();
        await_quiet(&server);
        left.retain(|place| !was_begun(&server, matrix, place));
        if left.is_empty() {
            break;
        }
    }
    assert!(left.is_empty(), "never reached: {left:?}");
    assert_agreed(&server);
    for place in matrix.places {
        let map = map_of(place);
        if matrix.undone.contains(place) {
            assert_eq!(refused(&server, &format!("map show {map}"), 3)["code"], "not_found", "{place}");
            run(&server, &matrix.command.replace("{map}", &map)).ok();
        }
        (matrix.done)(&server, &map);
        run(&server, &matrix.after.replace("{map}", &map)).ok();
    }
    assert_agreed(&server);
    assert_eq!(server.stop().code(), Some(0));
}

/// B3. Each of these crashes once at each place.
#[test]
fn create_killed_at_any_step_heals() {
    run_matrix(&CREATE);
}

#[test]
fn add_killed_at_any_step_heals() {
    run_matrix(&ADD);
}

#[test]
fn split_killed_at_any_step_heals() {
    run_matrix(&SPLIT);
}

#[test]
fn assign_killed_at_any_step_heals() {
    run_matrix(&ASSIGN);
}

#[test]
fn assign_killed_around_the_arrival_heals() {
    run_matrix(&ACTIVATE_FROM);
}

#[test]
fn remove_killed_at_any_step_heals() {
    run_matrix(&REMOVE);
}

#[test]
fn set_state_killed_at_any_step_heals() {
    run_matrix(&STATE);
}

#[test]
fn drop_killed_at_any_step_heals() {
    run_matrix(&DROP);
}

/// Kills the server that heals, too, at each of these places.
fn kill_the_healer(matrix: &Matrix, first: &str, places: &[&str]) -> Server {
    let setup = Setup::new();
    let mut server = setup.start();
    for line in matrix.before {
        run(&server, &line.replace("{map}", &map_of(first))).ok();
    }
    assert_eq!(server.stop().code(), Some(0));
    assert!(crash(&setup, matrix, first));
    for place in places {
        match setup.clone().env("POLYSHARD_FAILPOINT", place).try_start() {
            Ok(mut server) => assert_eq!(server.wait().signal(), Some(ABORTED), "{place}"),
            Err(StartFailure::Ended(status, _)) => assert_eq!(status.signal(), Some(ABORTED), "{place}"),
            Err(failure) => panic!("{failure}"),
        }
    }
    let server = setup.start();
    await_quiet(&server);
    assert_agreed(&server);
    server
}

#[test]
fn a_map_half_created_is_undone_even_if_undoing_is_killed() {
    let server = kill_the_healer(&CREATE, "stage.after", &["record_rolling_back.after", "discard.before"]);
    assert_eq!(refused(&server, "map show m_stage_after", 3)["code"], "not_found");
    run(&server, &CREATE.command.replace("{map}", "m_stage_after")).ok();
}

#[test]
#[ignore = "long: each kill waits for the lease of the one before"]
fn a_map_half_created_is_undone_wherever_undoing_is_killed() {
    let places = [
        "record_rolling_back.before",
        "record_rolling_back.after",
        "undo.before",
        "undo.after",
        "undo:s4.before",
        "undo:s4.after",
        "discard.before",
    ];
    let server = kill_the_healer(&CREATE, "stage.after", &places);
    assert_eq!(refused(&server, "map show m_stage_after", 3)["code"], "not_found");
    run(&server, &CREATE.command.replace("{map}", "m_stage_after")).ok();
}

#[test]
#[ignore = "long: each kill waits for the lease of the one before"]
fn an_assignment_goes_forward_wherever_its_healers_are_killed() {
    let places = ["record_fencing.after", "raise.after", "depart.before", "depart.after", "release.after"];
    let server = kill_the_healer(&ASSIGN, "prepare.after", &places);
    (ASSIGN.done)(&server, "m_prepare_after");
    run(&server, &ASSIGN.after.replace("{map}", "m_prepare_after")).ok();
}

/// The places of an operation on several shards, shard by shard.
#[test]
#[ignore = "long: every shard of every step"]
fn operations_on_all_shards_killed_at_any_shard_heal() {
    const SHARDS: &[&str] = &[
        "prepare:s2.before",
        "prepare:s2.after",
        "prepare:s4.before",
        "prepare:s4.after",
        "activate:s2.before",
        "activate:s2.after",
        "activate:s4.before",
        "activate:s4.after",
    ];
    const DEPARTURES: &[&str] = &[
        "raise:s2.after",
        "raise:s4.before",
        "raise:s4.after",
        "await_acks:s4.after",
        "check_empty:s3.after",
        "depart:s2.before",
        "depart:s2.after",
        "depart:s4.before",
        "depart:s4.after",
        "release:s2.after",
        "release:s4.before",
        "release:s4.after",
    ];
    run_matrix(&Matrix { places: SHARDS, undone: &[], ..CREATE });
    run_matrix(&Matrix { places: SHARDS, ..DROP });
    run_matrix(&Matrix { places: DEPARTURES, ..DROP });
    run_matrix(&Matrix {
        places: DEPARTURES,
        command: "map state {map} read_only --buckets 0..8",
        done: |_, _| (),
        ..STATE
    });
}

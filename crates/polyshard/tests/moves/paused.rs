//! A process that moves is stopped (SIGSTOP), replaced by another one, and wakes up: it does no harm (E4).

use crate::cluster::Cluster;
use crate::support::{json, run};

/// The tenants that move.
const MOVING: std::ops::Range<i64> = 5..15;

/// Stops the moving process before it does what the place is before of; another one finishes the move. When the first
/// wakes up it is about to do what has been done, and what must not be done again.
fn wakes_up_too_late(place: &str, keep: &str) {
    let cluster = Cluster::together(2);
    let writers = cluster.writers(&[1]);
    cluster.ledger.until_written(MOVING, 20);
    cluster.hold(place);
    let operation = cluster.begin(&format!("move tenants --range 5..15 --to {}{keep}", cluster.target()));
    cluster.await_held(place);
    cluster.process(0).pause();
    cluster.let_go();
    let ended = cluster.ended(&operation);
    assert_eq!(ended["state"], "done", "{ended}");
    // The range goes on to where the sleeper believes it to come from.
    let back = format!("move tenants --range 5..15 --to {} --wait", cluster.source());
    run(cluster.process(1), &back).ok();
    cluster.ledger.until_written(MOVING, 20);
    cluster.process(0).resume();
    // It serves as before: what it was about to do, it has found not to be its own any more.
    let awake = cluster.writers(&[0]);
    cluster.ledger.until_written(MOVING, 60);
    awake.stop();
    writers.stop();
    assert_eq!(cluster.ledger.errors_of(1), Vec::<String>::new(), "callers of the process that was awake");
    assert_eq!(cluster.owner(7), cluster.source());
    cluster.assert_whole();
}

/// The first process sleeps just before it does the next step of an operation, which the other one then finishes and
/// makes the range the target's; then the first wakes up, and callers of both go on.
fn wakes_up_after(cluster: &Cluster, operation: &str, state: &str) {
    cluster.process(0).pause();
    cluster.let_go();
    assert_eq!(cluster.ended(operation)["state"], state);
    assert_eq!(cluster.owner(7), cluster.source());
    let again = format!("move tenants --range 5..15 --to {} --wait", cluster.target());
    run(cluster.process(1), &again).ok();
    cluster.ledger.until_written(MOVING, 20);
    cluster.process(0).resume();
    let awake = cluster.writers(&[0]);
    cluster.ledger.until_written(MOVING, 60);
    awake.stop();
    assert_eq!(cluster.owner(7), cluster.target());
}

/// What it was about to clear away has become the new owner's.
#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_it_clears_a_cancelled_move_clears_nothing_of_the_new_owner() {
    let cluster = Cluster::together(2);
    let writers = cluster.writers(&[1]);
    cluster.ledger.until_written(MOVING, 20);
    cluster.hold("verify.before");
    let operation = cluster.begin(&format!("move tenants --range 5..15 --to {}", cluster.target()));
    cluster.await_held("verify.before");
    cluster.hold("clear.before");
    run(cluster.process(1), &format!("ops cancel {operation}")).ok();
    cluster.let_go_of("verify.before");
    cluster.await_held("clear.before");
    wakes_up_after(&cluster, &operation, "rolled_back");
    writers.stop();
    assert_eq!(cluster.ledger.errors_of(1), Vec::<String>::new(), "callers of the process that was awake");
    cluster.assert_whole();
}

/// The way back was finished by another one, and the range has gone forth again.
#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_while_it_undoes_a_move_is_replaced_and_does_no_harm() {
    let cluster = Cluster::together(2);
    let writers = cluster.writers(&[1]);
    cluster.ledger.until_written(MOVING, 20);
    cluster.hold("keep.before");
    let operation = cluster.begin(&format!("move tenants --range 5..15 --to {} --keep 1h", cluster.target()));
    cluster.await_held("keep.before");
    cluster.ledger.until_written(MOVING, 20);
    cluster.hold("depart.before");
    let undo = json(cluster.process(0), &format!("ops undo {operation}"));
    cluster.let_go_of("keep.before");
    cluster.await_held("depart.before");
    wakes_up_after(&cluster, undo["id"].as_str().expect("an id"), "done");
    writers.stop();
    assert_eq!(cluster.ledger.errors_of(1), Vec::<String>::new(), "callers of the process that was awake");
    cluster.assert_whole();
}

#[test]
fn a_mover_that_sleeps_before_the_departure_is_replaced_and_does_no_harm() {
    wakes_up_too_late("depart.before", "");
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_copying_is_replaced_and_does_no_harm() {
    wakes_up_too_late("copy.before", "");
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_settling_is_replaced_and_does_no_harm() {
    wakes_up_too_late("settle.before", "");
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_the_arrival_is_replaced_and_does_no_harm() {
    wakes_up_too_late("activate_from.before", "");
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_cleaning_is_replaced_and_cleans_nothing_of_the_new_owner() {
    wakes_up_too_late("clean.before", "");
}

#[test]
#[ignore = "long: a part of the whole matrix"]
fn a_mover_that_sleeps_before_keeping_is_replaced_and_does_no_harm() {
    wakes_up_too_late("keep.before", " --keep 1s");
}

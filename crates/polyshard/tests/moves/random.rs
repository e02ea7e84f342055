//! Moves, splits, merges, cancels, undos and kills in random order, by seed, under callers of three doors and callers
//! who write on several shards at once: afterwards every acknowledged write is found once, on its owner, and every key
//! has one history (C3, D4, E4, H1).
//!
//! `POLYSHARD_SEED` replays one seed; `POLYSHARD_FIRST_SEED` begins the long run with another.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::Cluster;
use crate::support::{await_quiet_for, run};
use crate::writers::TENANTS;

/// Things done for one seed.
const DEEDS: usize = 12;
/// The same where writes on several shards miss their commit, unless there is much time: each death is waited for.
const DEEDS_FEW: usize = 5;
/// How long the last moves may take beside the writers: they step back, and are taken over from processes that died.
const END_PATIENCE: Duration = Duration::from_secs(300);
/// How long a process has to come to the place where it dies; then it is killed wherever it is.
const DEATH_PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take at most to come to a place that callers lead to.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which kills there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum World {
    /// One process on files.
    Files,
    /// Two processes, and databases that die, too.
    Apart,
}

impl World {
    fn cluster(self) -> Cluster {
        match self {
            World::Files => Cluster::embedded(),
            World::Apart => Cluster::apart(2),
        }
    }

    fn processes(self) -> &'static [usize] {
        if self == World::Files { &[0] } else { &[0, 1] }
    }
}

/// Callers of the three doors.
fn nothing_is_lost(world: World, seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = world.cluster();
    cluster.open_stores();
    let sql = cluster.writers(world.processes());
    let azure = cluster.store_writers(world.processes());
    storm(&mut cluster, &mut random, world, DEEDS, &[]);
    sql.stop();
    azure.stop();
    cluster.assert_whole();
    cluster.assert_stores();
}

/// Callers of single keys, and callers whose writes are on several shards and miss their commit on some.
fn nothing_is_half_done(world: World, seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = world.cluster();
    cluster.open_several();
    let sql = cluster.writers(world.processes());
    let several = cluster.several_writers(world.processes(), 3);
    let (a, b) = (cluster.source(), cluster.target());
    // After the first shard has committed: the second one has missed it.
    assert!(cluster.die_at(0, &format!("eventual.commit:{b}.before"), PATIENCE), "it is come to");
    let places = [
        "eventual.decide.before".to_owned(),
        "eventual.decide.after".to_owned(),
        format!("eventual.commit:{a}.before"),
        format!("eventual.commit:{b}.before"),
        "eventual.commit.after".to_owned(),
        format!("complete:{b}.before"),
        format!("complete:{b}.after"),
        "depart.before".to_owned(),
        "depart.after".to_owned(),
        "activate.before".to_owned(),
        "publish.before".to_owned(),
    ];
    let deeds = if is_set("POLYSHARD_LONG") || is_set("POLYSHARD_SEED") { DEEDS } else { DEEDS_FEW };
    storm(&mut cluster, &mut random, world, deeds, &places);
    sql.stop();
    let account = several.stop();
    cluster.await_complete();
    cluster.assert_whole();
    cluster.assert_several(&account);
}

/// Changes and deaths, some at these places; ends when all is quiet.
fn storm(cluster: &mut Cluster, random: &mut StdRng, world: World, deeds: usize, places: &[String]) {
    for deed in 0..deeds {
        cluster.ledger.until_written(0..TENANTS, random.random_range(10..60));
        let line = change(cluster, random);
        println!("  {deed}: {line}");
        let asked = run(cluster.any(), &format!("{line} --json"));
        let operation = serde_json::from_str::<serde_json::Value>(&asked.stdout).ok();
        let operation =
            operation.and_then(|answer| answer["parts"][0]["operation"].as_str().map(str::to_owned));
        std::thread::sleep(Duration::from_millis(random.random_range(0..250)));
        match (random.random_range(0..10), operation) {
            // It may be too late, or too early: then it is refused.
            (0..2, Some(operation)) => drop(run(cluster.any(), &format!("ops cancel {operation}"))),
            (2..4, Some(operation)) => drop(run(cluster.any(), &format!("ops undo {operation}"))),
            (4..8, _) => kill(cluster, random, world, places),
            _ => {}
        }
    }
    await_quiet_for(cluster.any(), END_PATIENCE);
    cluster.ledger.until_written(0..TENANTS, 60);
}

/// What an operator asks for next.
fn change(cluster: &Cluster, random: &mut StdRng) -> String {
    let from = random.random_range(0..TENANTS - 1);
    let to = random.random_range(from + 1..=TENANTS.min(from + 12));
    let shard = [cluster.source(), cluster.target()][random.random_range(0..2)];
    match random.random_range(0..10) {
        0 => format!("map split tenants --at {to}"),
        1 => format!("map merge tenants --at {to}"),
        2..5 => format!("move tenants --range {from}..{to} --to {shard} --keep 2s"),
        _ => format!("move tenants --range {from}..{to} --to {shard}"),
    }
}

fn kill(cluster: &mut Cluster, random: &mut StdRng, world: World, places: &[String]) {
    let process = world.processes()[random.random_range(0..world.processes().len())];
    match random.random_range(0..6) {
        database @ 0..3 if world == World::Apart => {
            println!("     database {database} is killed");
            cluster.kill_database(database, Duration::from_millis(random.random_range(0..1500)));
        }
        _ if !places.is_empty() && random.random_range(0..3) > 0 => {
            let place = &places[random.random_range(0..places.len())];
            let came = cluster.die_at(process, place, DEATH_PATIENCE);
            println!("     process {process} dies at {place}, if it comes there: {came}");
        }
        _ => {
            println!("     process {process} is killed");
            cluster.kill(process);
            cluster.start(process);
        }
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

fn seeds(short: u64, long: u64) -> Vec<u64> {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: u64 = variable("POLYSHARD_FIRST_SEED").unwrap_or(0);
    match variable("POLYSHARD_SEED") {
        Some(seed) => vec![seed],
        None if is_set("POLYSHARD_LONG") => (first..first + long).collect(),
        None => (0..short).collect(),
    }
}

#[test]
fn random_deeds_and_kills_on_files_lose_nothing() {
    seeds(1, 25).into_iter().for_each(|seed| nothing_is_lost(World::Files, seed));
}

#[test]
fn random_deeds_and_kills_on_databases_lose_nothing() {
    seeds(1, 25).into_iter().for_each(|seed| nothing_is_lost(World::Apart, seed));
}

#[test]
fn writes_on_several_files_that_miss_their_commit_are_there_once_after_random_deeds_and_kills() {
    seeds(1, 15).into_iter().for_each(|seed| nothing_is_half_done(World::Files, seed));
}

#[test]
#[ignore = "long: servers die again and again"]
fn writes_on_several_databases_that_miss_their_commit_are_there_once_after_random_deeds_and_kills() {
    seeds(1, 15).into_iter().for_each(|seed| nothing_is_half_done(World::Apart, seed));
}

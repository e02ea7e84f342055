//! Moves, splits, merges, cancels, undos and kills in random order, by seed, under callers of three doors: afterwards
//! every acknowledged write is found once, on its owner, and every key has one history (D4, E4, H1).
//!
//! `POLYSHARD_SEED` replays one seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::Cluster;
use crate::support::{await_quiet_for, run};
use crate::writers::TENANTS;

/// Things done for one seed.
const DEEDS: usize = 12;
/// How long the last moves may take beside the writers: they step back, and are taken over from processes that died.
const END_PATIENCE: Duration = Duration::from_secs(300);

/// Which kills there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum World {
    /// One process on files.
    Files,
    /// Two processes, and databases that die, too.
    Apart,
}

fn nothing_is_lost(world: World, seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut cluster = match world {
        World::Files => Cluster::embedded(),
        World::Apart => Cluster::apart(2),
    };
    cluster.open_stores();
    let processes: &[usize] = if world == World::Files { &[0] } else { &[0, 1] };
    let sql = cluster.writers(processes);
    let azure = cluster.store_writers(processes);
    for deed in 0..DEEDS {
        cluster.ledger.until_written(0..TENANTS, random.random_range(10..60));
        let line = change(&cluster, &mut random);
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
            (4..8, _) => kill(&mut cluster, &mut random, world),
            _ => {}
        }
    }
    await_quiet_for(cluster.any(), END_PATIENCE);
    cluster.ledger.until_written(0..TENANTS, 60);
    sql.stop();
    azure.stop();
    cluster.assert_whole();
    cluster.assert_stores();
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

fn kill(cluster: &mut Cluster, random: &mut StdRng, world: World) {
    let process = if world == World::Files { 0 } else { random.random_range(0..2) };
    match random.random_range(0..6) {
        database @ 0..3 if world == World::Apart => {
            println!("     database {database} is killed");
            cluster.kill_database(database, Duration::from_millis(random.random_range(0..1500)));
        }
        _ => {
            println!("     process {process} is killed");
            cluster.kill(process);
            cluster.start(process);
        }
    }
}

fn seeds(short: u64, long: u64) -> Vec<u64> {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match variable("POLYSHARD_SEED") {
        Some(seed) => vec![seed],
        None if std::env::var_os("POLYSHARD_LONG").is_some() => (0..long).collect(),
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

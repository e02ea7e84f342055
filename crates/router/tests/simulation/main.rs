//! The protocol in a faulty world, from a seed: the very code that runs on databases, run on memory, with lost
//! replies, unknown commits, pauses, restarts and takeovers between any two steps.
//!
//! `POLYSHARD_SEEDS` says how many seeds to run, `POLYSHARD_FIRST_SEED` from which on, `POLYSHARD_SEED` replays one.

mod check;
mod clients;
mod database;
mod drivers;
mod model;
mod moves;
mod rescue;
mod routers;
mod rows;
mod world;

use polyshard_shard::HelloState;
use rand::RngExt;

use crate::routers::SimRouter;
use crate::world::World;

/// Seeds run unless told otherwise: hundreds, in well under a minute.
const SEEDS_DEFAULT: u64 = 250;
/// The same where rows move, which takes longer.
const MOVE_SEEDS_DEFAULT: u64 = 120;
/// Steps of a run before faults end.
const STEPS: usize = 1_200;
/// The same where rows move: a move takes many steps.
const MOVE_STEPS: usize = 1_800;
/// Rounds in which everything must come to rest once faults have ended.
const ROUNDS_MAX: usize = 5_000;

/// Of these the first, in which moves are still undone.
const UNDO_ROUNDS: usize = 300;

#[test]
fn the_protocol_keeps_its_promises_in_a_faulty_world() {
    if let Some(seed) = number("POLYSHARD_SEED") {
        run(seed);
        return;
    }
    let seeds = number("POLYSHARD_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let mut executed = 0;
    let mut done = 0;
    for seed in first()..first() + seeds {
        let (statements, operations) = run(seed);
        executed += statements;
        done += operations;
    }
    // A world in which nothing happens would keep every promise.
    assert!(executed > 30 * seeds, "only {executed} statements were executed under {seeds} seeds");
    assert!(done > 3 * seeds, "only {done} operations were carried out under {seeds} seeds");
}

/// Moves that were done, rolled back and undone in a world.
type Moved = [u64; 3];

#[test]
fn rows_that_move_are_found_once_in_a_faulty_world() {
    if let Some(seed) = number("POLYSHARD_SEED") {
        run_moves(seed);
        return;
    }
    let seeds = number("POLYSHARD_SEEDS").unwrap_or(MOVE_SEEDS_DEFAULT);
    let mut all = [0; 3];
    for seed in first()..first() + seeds {
        all.iter_mut().zip(run_moves(seed)).for_each(|(sum, count)| *sum += count);
    }
    // A world in which nothing moves would keep every promise.
    let [done, rolled_back, undone] = all;
    assert!(done > seeds && rolled_back > seeds / 4 && undone > seeds / 8, "{all:?} under {seeds} seeds");
}

/// Runs a world of rows to its end.
fn run_moves(seed: u64) -> Moved {
    let mut world = World::with_rows(seed);
    for _ in 0..MOVE_STEPS {
        world.step();
        world.forget_writes();
        world.settle();
        world.check();
    }
    world.come_to_rest();
    world.check_end();
    let count = |state| {
        let moves = world.catalog.state.operations.values().filter(|record| record.op.carry.is_some());
        moves.filter(|record| record.state == state).count() as u64
    };
    let (done, back) = (polyshard_catalog::OpState::Done, polyshard_catalog::OpState::RolledBack);
    [count(done), count(back), world.undone]
}

/// The seed that a run of many begins with.
fn first() -> u64 {
    number("POLYSHARD_FIRST_SEED").unwrap_or(0)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, and should be a number")))
}

/// Runs a world to its end; answers how many statements were executed and operations carried out in it.
fn run(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed);
    for _ in 0..STEPS {
        world.step();
        world.settle();
        world.check();
    }
    world.come_to_rest();
    world.check_end();
    (world.executed, world.catalog.state.events.len() as u64)
}

impl World {
    /// Somebody does something.
    fn step(&mut self) {
        self.now_ms += self.rng.random_range(0..3);
        if self.mishap(0.01) {
            self.now_ms += self.rng.random_range(50..700);
        }
        match self.rng.random_range(0..1000) {
            340..380 if self.moving => self.stray(),
            0..380 => {
                let client = self.rng.random_range(0..self.clients.len());
                (0..self.rng.random_range(1..=6)).for_each(|_| self.serve(client));
            }
            560..720 if self.moving && !self.drivers.is_empty() => {
                let driver = self.rng.random_range(0..self.drivers.len());
                self.drive(driver);
            }
            380..720 => {
                let router = self.rng.random_range(0..self.routers.len());
                self.route(router);
            }
            720..930 if !self.drivers.is_empty() && (!self.moving || self.chance(0.97)) => {
                let driver = self.rng.random_range(0..self.drivers.len());
                self.drive(driver);
            }
            930..945 if self.moving => self.steer(),
            720..945 if self.moving && self.chance(0.7) => self.begin_move(),
            720..945 => self.operate(),
            945..960 => self.resolve(),
            960..970 if !self.ghosts.is_empty() => {
                let ghost = self.rng.random_range(0..self.ghosts.len());
                self.haunt(ghost);
            }
            960..975 => self.break_something(),
            _ => {}
        }
    }

    fn break_something(&mut self) {
        let router = self.rng.random_range(0..self.routers.len());
        let shard = self.rng.random_range(0..self.shards.len());
        let a_while = self.rng.random_range(100..2_500);
        match self.rng.random_range(0..16) {
            0..2 => {
                self.note(format!("r{router} is paused for {a_while} ms"));
                self.routers[router].paused_until = self.now_ms + a_while;
            }
            2 => self.routers[router].paused_until = 0,
            3 => {
                self.note(format!("r{router} dies and starts again"));
                self.bury_clients(router);
                self.routers[router] = SimRouter::start(self, router);
            }
            4 => self.routers[router].save(),
            5 if !self.drivers.is_empty() => {
                let driver = self.rng.random_range(0..self.drivers.len());
                self.drivers.swap_remove(driver);
                self.note("a driver dies");
            }
            6..8 if !self.drivers.is_empty() => {
                let driver = self.rng.random_range(0..self.drivers.len());
                self.drivers[driver].paused_until = self.now_ms + 2_000 + 2 * a_while;
                self.note(format!("a driver is paused for {} ms", 2_000 + 2 * a_while));
            }
            8 | 14 => {
                let down = if self.chance(0.5) { a_while } else { 0 };
                self.note(format!("s{shard} starts again, and takes {down} ms"));
                self.shards[shard].down_until = self.now_ms + down;
                self.shards[shard].db.decide(&mut self.rng);
                self.shards[shard].sessions.clear();
            }
            9 => {
                self.note(format!("the catalog is down for {a_while} ms"));
                self.catalog.decide(&mut self.rng);
                self.catalog_down_until = self.now_ms + a_while;
            }
            10..12 => self.now_ms += 6_000,
            12..14 => {
                self.note(format!("r{router} is not told of fences for {a_while} ms"));
                self.routers[router].deaf_until = self.now_ms + a_while;
            }
            _ => self.forget_orphans(shard),
        }
    }

    /// A shard notices that the process behind some sessions is gone.
    fn forget_orphans(&mut self, shard: usize) {
        let living: Vec<_> = self.routers.iter().map(|router| router.state.router()).collect();
        self.shards[shard].sessions.retain(|_, session| living.contains(&session.router));
    }

    /// Faults end; everything is to be finished by itself.
    fn come_to_rest(&mut self) {
        self.note("faults end");
        self.faulty = false;
        self.catalog.decide(&mut self.rng);
        // Nobody wants anything to wait any more, and strangers commit.
        self.catalog.state.wishes.retain(|_, wish| *wish != polyshard_catalog::Wish::Pause);
        (0..self.shards.len()).for_each(|shard| self.commit_rows(shard, None));
        self.catalog_down_until = 0;
        for router in 0..self.routers.len() {
            self.routers[router].paused_until = 0;
            self.routers[router].deaf_until = 0;
        }
        for shard in 0..self.shards.len() {
            self.shards[shard].db.decide(&mut self.rng);
            self.shards[shard].down_until = 0;
        }
        self.catalog.decide(&mut self.rng);
        for round in 0..ROUNDS_MAX {
            // Some moves are taken back even now.
            if self.moving && round < UNDO_ROUNDS && self.chance(0.1) {
                self.take_back_one();
            }
            // When nobody has anything to do, the clock goes on to when somebody has.
            let idle = self.drivers.iter().all(|driver| driver.is_waiting(self.now_ms));
            self.now_ms += if idle { 200 } else { 20 };
            (0..self.clients.len()).for_each(|client| self.serve(client));
            (0..self.routers.len()).for_each(|router| self.route_all(router));
            if self.moving {
                (0..self.shards.len()).for_each(|shard| self.forget_orphans(shard));
                self.forget_writes();
            }
            (0..self.drivers.len()).rev().for_each(|driver| self.drive(driver));
            self.resolve();
            self.settle();
            self.check();
            if self.is_at_rest() {
                break;
            }
        }
        assert!(self.is_at_rest(), "this does not come to rest by itself");
        // What was finished last is heard of.
        (0..4).for_each(|_| (0..self.routers.len()).for_each(|router| self.route_all(router)));
    }

    fn is_at_rest(&self) -> bool {
        let running =
            |record: &polyshard_catalog::OpRecord| record.state == polyshard_catalog::OpState::Running;
        !self.catalog.state.operations.values().any(running)
            && self.drivers.is_empty()
            && self.clients.iter().all(|client| client.is_idle())
            && self.routers.iter().all(|router| router.is_quiet())
    }
}

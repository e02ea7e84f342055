//! The simulated world: a catalog, shards with their sessions, routers, drivers and clients, all from one seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use polyshard_catalog::memory::MemoryCatalog;
use polyshard_catalog::{CatalogError, MapRecord, PasswordSource, ShardLimits, ShardRecord};
use polyshard_map::{Entry, Epoch, MapName, ShardId, State};
use polyshard_shard::memory::MemoryLocal;
use polyshard_shard::{FenceEpoch, HelloReply, LocalEntry, Meta, OpId, RouterId, ShardError};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::check::Watch;
use crate::clients::{Client, Ghost};
use crate::database::{Database, Fault, Trouble};
use crate::drivers::SimDriver;
use crate::model::{Effect, Space, UNITS, Units, Wish};
use crate::routers::SimRouter;
use crate::rows::{OpenWrite, RowId, Store};

/// Events shown when a seed fails.
const EVENTS_SHOWN: usize = 80;
const ROUTERS: usize = 3;
const CLIENTS: usize = 9;

/// How far the introduction of a session is.
pub enum Hello {
    /// The lock that names the router is taken; this is what the router knew then.
    Locked(FenceEpoch),
    /// The shard has answered.
    Answered(HelloReply),
    /// The router has learnt it: the session may be used.
    Ready,
}

/// A session for data, as the shard sees it. One that is not in the shard's list is dead.
pub struct Session {
    pub router: RouterId,
    pub hello: Hello,
}

pub struct SimShard {
    pub id: ShardId,
    pub db: Database<Store>,
    pub sessions: BTreeMap<u64, Session>,
    /// What is written and not committed yet.
    pub writes: Vec<OpenWrite>,
    /// Nothing gets to it before.
    pub down_until: i64,
}

pub struct World {
    pub seed: u64,
    pub rng: StdRng,
    pub now_ms: i64,
    pub faulty: bool,
    pub catalog: Database<MemoryCatalog>,
    pub catalog_down_until: i64,
    pub cluster: Uuid,
    pub shard_records: Vec<ShardRecord>,
    pub shards: Vec<SimShard>,
    pub routers: Vec<SimRouter>,
    pub drivers: Vec<SimDriver>,
    pub clients: Vec<Client>,
    pub ghosts: Vec<Ghost>,
    pub spaces: Vec<Space>,
    /// What each operation will have changed, and on which map.
    pub effects: BTreeMap<OpId, (usize, Effect)>,
    /// What the maps should look like.
    pub model: Vec<Units>,
    pub watch: Watch,
    pub executed: u64,
    /// There are rows, and they move.
    pub moving: bool,
    /// The rows, as they were last committed.
    pub truth: BTreeMap<RowId, u64>,
    /// Names and placements of the units of the maps.
    pub placements: Vec<(MapName, Vec<Vec<u8>>)>,
    /// What an operator is about to want of a move, and whether it had left when he asked.
    pub steering: Option<(OpId, polyshard_catalog::Wish, bool)>,
    /// Moves that were taken back.
    pub undone: u64,
    numbers: u64,
    events: VecDeque<String>,
}

impl World {
    /// A world in which maps change.
    pub fn new(seed: u64) -> World {
        World::start(seed, false)
    }

    /// A world in which there are rows, too, and they move.
    pub fn with_rows(seed: u64) -> World {
        World::start(seed, true)
    }

    fn start(seed: u64, moving: bool) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let cluster = Uuid::from_u128(1);
        let names: Vec<ShardId> = (0..rng.random_range(3..=5))
            .map(|index| ShardId::new(&format!("s{index}")).expect("a plain name"))
            .collect();
        let shard_records = names.iter().map(|id| record(id.clone())).collect();
        let shards = names.iter().map(|id| SimShard::new(id.clone(), cluster)).collect();
        let spaces = vec![Space::range("ranges"), Space::hash("buckets")];
        let mut world = World {
            seed,
            rng,
            now_ms: 1_000,
            faulty: true,
            catalog: Database::new(MemoryCatalog::new()),
            catalog_down_until: 0,
            cluster,
            shard_records,
            shards,
            routers: Vec::new(),
            drivers: Vec::new(),
            clients: Vec::new(),
            ghosts: Vec::new(),
            placements: World::placements(&spaces),
            spaces,
            effects: BTreeMap::new(),
            model: vec![Units::default(), Units::default()],
            watch: Watch::default(),
            executed: 0,
            moving,
            truth: BTreeMap::new(),
            steering: None,
            undone: 0,
            numbers: 0,
            events: VecDeque::new(),
        };
        world.lay_out(0);
        if world.rng.random_bool(0.5) {
            world.lay_out(1);
        }
        for index in 0..ROUTERS {
            let router = SimRouter::start(&mut world, index);
            world.routers.push(router);
        }
        world.clients = (0..CLIENTS).map(|index| Client::new(index % ROUTERS)).collect();
        world
    }

    /// Puts a map in the catalog and on the shards, as if it had always been there.
    fn lay_out(&mut self, map: usize) {
        let owners: Vec<ShardId> = (0..UNITS).map(|_| self.any_shard()).collect();
        let epoch = self.catalog.state.epoch.next();
        let stamped = |entry: Entry| Entry { epoch, ..entry };
        let entries: Vec<Entry> = self.spaces[map].entries(&owners).into_iter().map(stamped).collect();
        let definition = self.spaces[map].definition.clone();
        let name = definition.name().clone();
        self.model[map].apply(Units::default().effect(&Wish::Create(owners)));
        let catalog = &mut self.catalog.state;
        catalog.epoch = epoch;
        catalog.maps.insert(
            name.clone(),
            MapRecord { definition: definition.clone(), epoch, version: 1, live: true },
        );
        for entry in entries {
            let key = (name.clone(), entry.range.lo().as_slice().to_vec());
            let at = self.shard_index(&entry.shard);
            let local = &mut self.shards[at].db.state;
            local.definitions.insert(name.clone(), definition.clone());
            local.ranges.insert(key.clone(), LocalEntry { entry: entry.clone(), incoming: None });
            self.catalog.state.entries.insert(key, entry);
        }
        if self.moving {
            self.fill(map);
        }
    }

    pub fn note(&mut self, event: impl Into<String>) {
        if self.events.len() == EVENTS_SHOWN {
            self.events.pop_front();
        }
        self.events.push_back(format!("{:>7} ms  {}", self.now_ms, event.into()));
    }

    /// A number that no one else has.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    /// Whether something goes wrong now.
    pub fn mishap(&mut self, probability: f64) -> bool {
        self.faulty && self.rng.random_bool(probability)
    }

    pub fn any_shard(&mut self) -> ShardId {
        let index = self.rng.random_range(0..self.shards.len());
        self.shards[index].id.clone()
    }

    pub fn shard_index(&self, id: &ShardId) -> usize {
        self.shards.iter().position(|shard| shard.id == *id).expect("shards are never removed")
    }

    pub fn fault(&mut self) -> Fault {
        if !self.faulty {
            return Fault::None;
        }
        match self.rng.random_range(0..100) {
            0..5 => Fault::Lost,
            5..10 => Fault::ReplyLost,
            10..13 => Fault::Late,
            _ => Fault::None,
        }
    }

    /// What becomes of a request to a shard.
    pub fn shard_fault(&mut self, shard: usize) -> Fault {
        if self.now_ms < self.shards[shard].down_until { Fault::Lost } else { self.fault() }
    }

    pub fn catalog_is_down(&self) -> bool {
        self.now_ms < self.catalog_down_until
    }

    /// A transaction on the catalog.
    pub fn on_catalog<R>(
        &mut self,
        work: impl FnOnce(&mut MemoryCatalog) -> Result<R, CatalogError>,
    ) -> Result<R, Trouble<CatalogError>> {
        if self.catalog_is_down() {
            return Err(Trouble::Unknown);
        }
        let fault = self.fault();
        self.catalog.state.now_ms = self.now_ms;
        let reply = self.catalog.transact(&mut self.rng, fault, work);
        if fault != Fault::None {
            self.note(format!("  fault at the catalog: {fault:?}"));
        }
        reply
    }

    /// A transaction on a shard.
    pub fn on_shard<R>(
        &mut self,
        shard: usize,
        work: impl FnOnce(&mut MemoryLocal) -> Result<R, ShardError>,
    ) -> Result<R, Trouble<ShardError>> {
        let fault = self.shard_fault(shard);
        let reply = self.shards[shard].db.transact(&mut self.rng, fault, |store| work(&mut store.local));
        if fault != Fault::None {
            self.note(format!("  fault at s{shard}: {fault:?}"));
        }
        reply
    }

    /// A map's entries in the catalog.
    pub fn entries(&self, map: &MapName) -> Vec<Entry> {
        let entries = self.catalog.state.entries.iter().filter(|((name, _), _)| name == map);
        entries.map(|(_, entry)| entry.clone()).collect()
    }

    /// Routers with sessions on a shard, as the shard lists them.
    pub fn sessions_of(&self, shard: usize) -> BTreeSet<RouterId> {
        self.shards[shard].sessions.values().map(|session| session.router).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed; replay it with POLYSHARD_SEED={}", self.seed, self.seed);
            self.events.iter().for_each(|event| eprintln!("{event}"));
        }
    }
}

impl SimShard {
    fn new(id: ShardId, cluster: Uuid) -> SimShard {
        let meta = Meta {
            format: 1,
            cluster,
            shard: id.clone(),
            incarnation: Uuid::from_u128(2),
            fence_epoch: FenceEpoch::ZERO,
            pruned_epoch: Epoch::ZERO,
        };
        SimShard {
            id,
            db: Database::new(Store::new(MemoryLocal::new(meta))),
            sessions: BTreeMap::new(),
            writes: Vec::new(),
            down_until: 0,
        }
    }
}

fn record(id: ShardId) -> ShardRecord {
    ShardRecord {
        url: format!("memory:{id}"),
        id,
        password: PasswordSource::Config,
        server: None,
        region: None,
        tier: None,
        limits: ShardLimits::default(),
        state: State::Online,
        incarnation: Uuid::from_u128(2),
        version: 1,
    }
}

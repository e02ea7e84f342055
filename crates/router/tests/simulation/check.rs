//! What must hold at every step, and what must hold once everything has come to rest.

use std::collections::BTreeMap;

use polyshard_catalog::{OpState, Step};
use polyshard_map::{Entry, Epoch, KeyRange, MapName};
use polyshard_shard::{FenceEpoch, OpId, Phase};

use crate::clients::owner_in;
use crate::drivers::short;
use crate::model::{UNITS, Units};
use crate::world::World;

/// What was seen at the step before.
#[derive(Default)]
pub struct Watch {
    catalog_commits: u64,
    catalog_epoch: Option<Epoch>,
    versions: BTreeMap<MapName, (u64, Epoch)>,
    tokens: BTreeMap<OpId, u64>,
    shard_commits: Vec<u64>,
    fence_epochs: Vec<FenceEpoch>,
    phases: BTreeMap<(usize, OpId), (Phase, u64)>,
    seqs: Vec<(usize, u64)>,
}

impl World {
    /// Checked after every step.
    pub fn check(&mut self) {
        let mut watch = std::mem::take(&mut self.watch);
        self.check_catalog(&mut watch);
        self.check_shards(&mut watch);
        self.check_routers(&mut watch);
        self.watch = watch;
    }

    fn check_catalog(&self, watch: &mut Watch) {
        if watch.catalog_epoch.is_some() && watch.catalog_commits == self.catalog.commits {
            return;
        }
        watch.catalog_commits = self.catalog.commits;
        let catalog = &self.catalog.state;
        assert!(watch.catalog_epoch <= Some(catalog.epoch), "the catalog's epoch goes back");
        watch.catalog_epoch = Some(catalog.epoch);
        watch.versions.retain(|name, _| catalog.maps.contains_key(name));
        for (name, record) in &catalog.maps {
            let before = watch.versions.insert(name.clone(), (record.version, record.epoch));
            let back =
                before.is_some_and(|(version, epoch)| version > record.version || epoch > record.epoch);
            assert!(!back, "version or epoch of map {name} goes back");
        }
        for (id, record) in &catalog.operations {
            let before = watch.tokens.insert(*id, record.token);
            assert!(before <= Some(record.token), "the token of {} goes back", short(*id));
            if record.state == OpState::RolledBack || record.step == Step::RollingBack {
                let departed = |shard: &crate::world::SimShard| {
                    shard.db.state.ops.get(id).is_some_and(|row| row.phase == Phase::Departed)
                };
                let on = self.shards.iter().find(|shard| departed(shard)).map(|shard| &shard.id);
                assert!(on.is_none(), "{} is rolled back, and has departed from {on:?}", short(*id));
            }
        }
    }

    fn check_shards(&self, watch: &mut Watch) {
        watch.shard_commits.resize(self.shards.len(), u64::MAX);
        watch.fence_epochs.resize(self.shards.len(), FenceEpoch::ZERO);
        let mut changed = false;
        for (index, shard) in self.shards.iter().enumerate() {
            if watch.shard_commits[index] == shard.db.commits {
                continue;
            }
            changed = true;
            watch.shard_commits[index] = shard.db.commits;
            let local = &shard.db.state;
            assert!(watch.fence_epochs[index] <= local.meta.fence_epoch, "the fence epoch goes back");
            watch.fence_epochs[index] = local.meta.fence_epoch;
            for (id, row) in &local.ops {
                let before = watch.phases.insert((index, *id), (row.phase, row.token));
                let (phase, token) = before.unwrap_or((Phase::Prepared, 0));
                let ended = phase != Phase::Prepared && phase != row.phase;
                assert!(!ended, "{} goes from {phase:?} to {:?} on s{index}", short(*id), row.phase);
                assert!(token <= row.token, "the token of {} goes back on s{index}", short(*id));
            }
        }
        if changed {
            self.check_owners();
            if self.moving {
                self.check_rows();
            }
        }
    }

    /// Every placement has at most one owner.
    fn check_owners(&self) {
        let mut owned: Vec<(&MapName, &KeyRange, usize)> = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            let in_force = shard.db.state.ranges.iter().filter(|(_, local)| local.incoming.is_none());
            owned.extend(in_force.map(|((map, _), local)| (map, &local.entry.range, index)));
        }
        owned.sort();
        for pair in owned.windows(2) {
            let ((map, range, one), (next_map, next, other)) = (&pair[0], &pair[1]);
            let both = map == next_map && range.overlaps(next);
            assert!(!both, "s{one} and s{other} both own a part of {range:?} and {next:?} of map {map}");
        }
    }

    fn check_routers(&self, watch: &mut Watch) {
        watch.seqs.resize(self.routers.len(), (0, 0));
        for (router, seen) in self.routers.iter().zip(&mut watch.seqs) {
            let now = (router.state.router.get() as usize, router.state.view().seq);
            assert!(seen.0 != now.0 || seen.1 <= now.1, "the view of r{} goes back", router.index);
            *seen = now;
        }
    }

    /// Checked once everything has come to rest.
    pub fn check_end(&self) {
        if self.moving {
            self.check_rows_end();
        }
        for (map, space) in self.spaces.iter().enumerate() {
            let name = space.name();
            let entries = self.entries(name);
            let exists = self.catalog.state.maps.contains_key(name);
            let units = if exists { Units::read(space, &entries) } else { Units::default() };
            assert_eq!(units, self.model[map], "the catalog's map {name} is not as operators wished");
            self.check_local_maps(name, &entries);
            for router in &self.routers {
                let view = router.state.view();
                for unit in 0..UNITS {
                    let wished = self.model[map].0.as_ref().and_then(|units| units[unit].clone());
                    let seen = owner_in(&view, self, map, unit);
                    assert_eq!(seen, wished, "r{} is wrong about unit {unit} of {name}", router.index);
                }
            }
        }
        for shard in &self.shards {
            let local = &shard.db.state;
            assert!(local.fences.is_empty() && local.acks.is_empty(), "a fence is left on {}", shard.id);
            for (id, row) in &local.ops {
                let ended = self.catalog.state.operations.get(id).map(|record| record.state);
                let undone = row.phase == Phase::Undone;
                let agrees = row.phase != Phase::Prepared && undone == (ended == Some(OpState::RolledBack));
                assert!(agrees, "{} is {ended:?}, and {:?} on {}", short(*id), row.phase, shard.id);
            }
        }
    }

    fn check_local_maps(&self, name: &MapName, entries: &[Entry]) {
        for shard in &self.shards {
            let rows = shard.db.state.ranges.iter().filter(|((map, _), _)| map == name);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for (_, local) in rows {
                assert!(local.incoming.is_none(), "a range is still arriving on {}", shard.id);
                ours.push((&local.entry.range, local.entry.state));
            }
            for entry in entries.iter().filter(|entry| entry.shard == shard.id) {
                theirs.push((&entry.range, entry.state));
            }
            assert_eq!(ours, theirs, "the local map of {name} on {} differs from the catalog", shard.id);
        }
    }
}

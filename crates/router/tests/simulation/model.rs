//! What maps should look like: operators' wishes over numbered units of key space, applied one after another.

use polyshard_catalog::ChangeRequest;
use polyshard_map::{
    Change, Entry, Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, MapDefinition, MapName, NewEntry,
    Scheme, ShardId, State,
};

/// Units of key space of each map. Changes begin and end at their bounds; requests are for their first key.
pub const UNITS: usize = 10;

/// A map's key space, in units.
pub struct Space {
    pub definition: MapDefinition,
    bounds: Vec<KeyBytes>,
}

impl Space {
    pub fn range(name: &str) -> Space {
        let definition = definition(name, Scheme::Range);
        let bound = |unit: usize| definition.placement(&Key::Int(unit as i32 * 10)).expect("an int is a key");
        Space { bounds: (0..=UNITS).map(bound).collect(), definition }
    }

    pub fn hash(name: &str) -> Space {
        let spec = HashSpec::new(0, UNITS as u32).expect("few buckets are allowed");
        let definition = definition(name, Scheme::Hash(spec));
        let bound = |unit: usize| KeyBytes::new((unit as u32).to_be_bytes().to_vec());
        Space { bounds: (0..=UNITS).map(bound).collect(), definition }
    }

    pub fn name(&self) -> &MapName {
        self.definition.name()
    }

    pub fn bound(&self, unit: usize) -> &KeyBytes {
        &self.bounds[unit]
    }

    pub fn units(&self, from: usize, to: usize) -> KeyRange {
        KeyRange::new(self.bounds[from].clone(), Some(self.bounds[to].clone())).expect("from is below to")
    }

    /// One entry for each run of units on the same shard.
    pub fn entries(&self, owners: &[ShardId]) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut from = 0;
        for unit in 1..=owners.len() {
            if unit == owners.len() || owners[unit] != owners[from] {
                let entry = NewEntry::new(self.units(from, unit), owners[from].clone());
                entries.push(entry.at(Epoch::ZERO));
                from = unit;
            }
        }
        entries
    }
}

fn definition(name: &str, scheme: Scheme) -> MapDefinition {
    let name = MapName::new(name).expect("a plain name");
    MapDefinition::new(name, KeyType::Int, scheme).expect("a plain map")
}

/// What an operator wants of a map; numbers are units.
#[derive(Debug, Clone)]
pub enum Wish {
    Add(usize, usize, ShardId),
    Remove(usize, usize),
    Assign(usize, usize, ShardId),
    SetState(usize, usize, State),
    Split(usize),
    Merge(usize),
    Create(Vec<ShardId>),
    Drop,
}

impl Wish {
    /// The change to ask for; none for the creation or end of a whole map.
    pub fn request(&self, space: &Space) -> Option<ChangeRequest> {
        let change = match self {
            Wish::Add(from, to, shard) => {
                Change::Add { entries: vec![NewEntry::new(space.units(*from, *to), shard.clone())] }
            }
            Wish::Remove(from, to) => Change::Remove { range: space.units(*from, *to) },
            Wish::Assign(from, to, shard) => {
                Change::Assign { range: space.units(*from, *to), to: shard.clone() }
            }
            Wish::SetState(from, to, state) => {
                Change::SetState { range: space.units(*from, *to), state: *state }
            }
            Wish::Split(at) => Change::Split { at: space.bound(*at).clone() },
            Wish::Merge(at) => Change::Merge { at: space.bound(*at).clone() },
            Wish::Create(_) | Wish::Drop => return None,
        };
        Some(ChangeRequest { map: space.name().clone(), change, if_version: None, by: None })
    }
}

/// Owner and state of each unit of a map; none if there is no such map, or no owner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Units(pub Option<Vec<Option<(ShardId, State)>>>);

/// What a wish changes, as seen when it was begun: an operation leaves alone what is as wished already.
#[derive(Debug, Clone)]
pub enum Effect {
    Whole(Units),
    Some(Vec<(usize, Option<(ShardId, State)>)>),
}

impl Units {
    /// What a wish would change.
    pub fn effect(&self, wish: &Wish) -> Effect {
        let old = |unit: &usize| self.0.as_ref().and_then(|units| units[*unit].clone());
        let changed = |from: usize, to: usize, new: &dyn Fn((ShardId, State)) -> (ShardId, State)| {
            let units = (from..to).filter_map(|unit| Some((unit, old(&unit)?)));
            let changed = units.map(|(unit, old)| (unit, old.clone(), new(old)));
            changed.filter(|(_, old, new)| old != new).map(|(unit, _, new)| (unit, Some(new))).collect()
        };
        match wish {
            Wish::Create(owners) => {
                Effect::Whole(Units(Some(owners.iter().map(|shard| Some(online(shard))).collect())))
            }
            Wish::Drop => Effect::Whole(Units(None)),
            Wish::Add(from, to, shard) => {
                Effect::Some((*from..*to).map(|unit| (unit, Some(online(shard)))).collect())
            }
            Wish::Remove(from, to) => Effect::Some((*from..*to).map(|unit| (unit, None)).collect()),
            Wish::Assign(from, to, shard) => {
                Effect::Some(changed(*from, *to, &|(_, state)| (shard.clone(), state)))
            }
            Wish::SetState(from, to, state) => {
                Effect::Some(changed(*from, *to, &|(shard, _)| (shard, *state)))
            }
            Wish::Split(_) | Wish::Merge(_) => Effect::Some(vec![]),
        }
    }

    /// What a wish that came true makes of it.
    pub fn apply(&mut self, effect: Effect) {
        match (effect, &mut self.0) {
            (Effect::Whole(units), _) => *self = units,
            (Effect::Some(changed), Some(units)) => {
                changed.into_iter().for_each(|(unit, new)| units[unit] = new);
            }
            (Effect::Some(_), None) => panic!("a map that is not there was changed"),
        }
    }

    /// Reads it off some entries.
    pub fn read(space: &Space, entries: &[Entry]) -> Units {
        let owner = |unit: usize| {
            let entry = entries.iter().find(|entry| entry.range.contains(space.bound(unit).as_slice()))?;
            Some((entry.shard.clone(), entry.state))
        };
        Units(Some((0..UNITS).map(owner).collect()))
    }
}

fn online(shard: &ShardId) -> (ShardId, State) {
    (shard.clone(), State::Online)
}

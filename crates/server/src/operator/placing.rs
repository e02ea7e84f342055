//! Which shard new keys go to that name none; and whether one that is named has room for them.

use std::collections::BTreeMap;

use polyshard_admin::convert::{range_view, read_range};
use polyshard_admin::types::{AddChange, PlacedEntry};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::ShardRecord;
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_rebalance::plan::{HEADROOM_PERCENT, Piece, Place, Situation};
use polyshard_rebalance::rule::Seen;
use polyshard_rebalance::{Rule, measure};
use polyshard_router::view::KnownMap;

use super::Operations;
use crate::problem;

/// Entries of one request that may name no shard: each is weighed against all shards and rules.
const PLACED_MAX: usize = 1_000;
/// Shards whose reason is told when none may take a key.
const REASONS_SHOWN: usize = 5;

impl Operations {
    /// The shards among these that are full, each with the reason. Only those with limits are asked.
    pub(super) async fn full_shards(&self, shards: &[ShardRecord]) -> BTreeMap<ShardId, String> {
        let limited: Vec<ShardRecord> = shards.iter().filter(|one| is_limited(one)).cloned().collect();
        let places = measure::places(&self.router, &limited).await;
        places.iter().filter_map(|place| Some((place.shard.clone(), fullness(place)?))).collect()
    }

    /// Names a shard for each new entry that names none, and refuses those that name a full one. Answers where those
    /// went that had no shard.
    pub(super) async fn place_new(
        &self,
        known: &KnownMap,
        add: &mut AddChange,
    ) -> Result<Vec<PlacedEntry>, Problem> {
        let unnamed = add.entries.iter().filter(|entry| entry.shard.is_none()).count();
        if unnamed > PLACED_MAX {
            let message =
                format!("{unnamed} entries name no shard, and {PLACED_MAX} are given one in one go");
            return Err(Problem::invalid("add.entries", message).with_remedy("add fewer of them at a time"));
        }
        let records = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let is_named =
            |record: &ShardRecord| add.entries.iter().any(|entry| entry.shard.as_ref() == Some(&record.id));
        // Nobody waits for shards that have nothing to do with it.
        let asked: Vec<ShardRecord> =
            records.into_iter().filter(|one| unnamed > 0 || is_named(one) && is_limited(one)).collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let rules = if unnamed > 0 { self.rules_of(known).await? } else { Vec::new() };
        let mut placing = Placing::new(known, measure::places(&self.router, &asked).await, rules);
        let definition = known.map.definition();
        let (mut placed, everything) = (Vec::new(), KeyRange::all());
        for (at, entry) in add.entries.iter_mut().enumerate() {
            let range = read_range(definition, &entry.range, &format!("add.entries[{at}].range"))?;
            let group = || {
                let group = entry.group.as_ref()?;
                let mut all = known.map.located(&everything);
                all.find(|found| found.group() == Some(group)).map(|found| found.shard().clone())
            };
            match &entry.shard {
                Some(shard) => placing.require_room(shard)?,
                None => {
                    // A group stays on one shard.
                    let shard = match group() {
                        Some(shard) => shard,
                        None => placing.choose(definition.name(), &range)?,
                    };
                    placed.push(PlacedEntry { range: range_view(definition, &range), shard: shard.clone() });
                    entry.shard = Some(shard);
                }
            }
            if let Some(shard) = &entry.shard {
                placing.note(shard, &range);
            }
        }
        Ok(placed)
    }
}

/// What is known of the shards while keys are placed.
struct Placing<'a> {
    known: &'a KnownMap,
    places: Vec<Place>,
    rules: Vec<Rule>,
    /// What is where, as far as rules look at it.
    pieces: Vec<Piece>,
    /// The map's entries on each place.
    counts: Vec<u64>,
    /// Bytes that a new key is thought to bring one day.
    mean: u64,
    /// The region and tier that most of the map's entries are in.
    home: Option<Seen>,
}

impl<'a> Placing<'a> {
    fn new(known: &'a KnownMap, places: Vec<Place>, rules: Vec<Rule>) -> Placing<'a> {
        let by_shard = known.map.count_by_shard();
        let count = |place: &Place| by_shard.get(&place.shard).map_or(0, |count| *count as u64);
        let counts: Vec<u64> = places.iter().map(count).collect();
        let bytes: u64 = places.iter().map(|place| place.bytes).sum();
        let mean = (bytes / counts.iter().sum::<u64>().max(1)).max(1);
        let mut homes: Vec<(&Seen, u64)> = Vec::new();
        for (place, count) in places.iter().zip(&counts).filter(|(_, count)| **count > 0) {
            match homes.iter_mut().find(|(seen, _)| **seen == place.seen) {
                Some((_, sum)) => *sum += count,
                None => homes.push((&place.seen, *count)),
            }
        }
        let home = homes.iter().max_by_key(|(_, sum)| *sum).map(|(seen, _)| (*seen).clone());
        let pieces = match rules.is_empty() {
            true => Vec::new(),
            false => {
                known.map.entries(&KeyRange::all()).map(|entry| piece(entry.range, entry.shard)).collect()
            }
        };
        Placing { known, places, rules, pieces, counts, mean, home }
    }

    /// The emptiest shard that may take a range. It stays in the region and tier of the map's other entries, unless a
    /// rule says where it belongs.
    fn choose(&self, map: &MapName, range: &KeyRange) -> Result<ShardId, Problem> {
        let is_pinned = self.rules.iter().any(|rule| match rule {
            Rule::Region { range: of, .. } | Rule::Tier { range: of, .. } => of.overlaps(range),
            _ => false,
        });
        let is_home = |place: &Place| is_pinned || self.home.as_ref().is_none_or(|home| *home == place.seen);
        let definition = Some(self.known.map.definition());
        let situation = Situation {
            pieces: &self.pieces,
            places: &self.places,
            rules: &self.rules,
            resting: &[],
            definition,
        };
        let mut order: Vec<usize> = (0..self.places.len()).filter(|at| is_home(&self.places[*at])).collect();
        order.sort_by_key(|at| {
            let weight = self.places[*at].bytes.saturating_add(self.counts[*at].saturating_mul(self.mean));
            (weight, self.places[*at].shard.clone())
        });
        let mut reasons = Vec::new();
        for at in order {
            let place = &self.places[at];
            match fullness(place).or_else(|| situation.refuses(range, 0, &place.shard)) {
                None => return Ok(place.shard.clone()),
                Some(why) => reasons.push(why),
            }
        }
        let more = reasons.len().saturating_sub(REASONS_SHOWN);
        reasons.truncate(REASONS_SHOWN);
        if more > 0 {
            reasons.push(format!("and {more} more"));
        }
        if reasons.is_empty() {
            reasons.push("there is no shard".to_owned());
        }
        let message = format!("no shard has room for new keys of map {map}: {}", reasons.join("; "));
        Err(Problem::new(ErrorCode::Conflict, message).with_remedy(
            "add a shard of the same region and tier, raise a limit with 'polyshard shard set', or change a rule",
        ))
    }

    /// Refuses a shard that is full.
    fn require_room(&self, shard: &ShardId) -> Result<(), Problem> {
        let place = self.places.iter().find(|place| place.shard == *shard);
        match place.and_then(fullness) {
            None => Ok(()),
            Some(why) => Err(Problem::new(ErrorCode::Conflict, why).with_remedy(
                "name no shard and one with room is chosen, or raise the limit with 'polyshard shard set'",
            )),
        }
    }

    /// Remembers what goes where for the entries that follow.
    fn note(&mut self, shard: &ShardId, range: &KeyRange) {
        let Some(at) = self.places.iter().position(|place| place.shard == *shard) else { return };
        self.places[at].entries += 1;
        self.counts[at] += 1;
        if !self.rules.is_empty() {
            self.pieces.push(piece(range.clone(), shard.clone()));
        }
    }
}

fn is_limited(record: &ShardRecord) -> bool {
    record.limits.bytes_max.is_some() || record.limits.shardlets_max.is_some()
}

fn piece(range: KeyRange, shard: ShardId) -> Piece {
    Piece { range, shard, rows: 0, bytes: 0, requests: 0.0, traffic: 0.0 }
}

/// Why a shard is full, if it is.
fn fullness(place: &Place) -> Option<String> {
    let (shard, bytes, entries) = (&place.shard, place.bytes, place.entries);
    match (place.room(), place.bytes_max, place.entries_max) {
        (Some(0), Some(most), _) => Some(format!(
            "shard {shard} is full: {bytes} of {most} bytes, {HEADROOM_PERCENT} % are kept free"
        )),
        (_, _, Some(most)) if entries >= most => {
            Some(format!("shard {shard} is full: {entries} entries, and its limit is {most}"))
        }
        _ => None,
    }
}

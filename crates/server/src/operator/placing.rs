//! Which shard new keys go to that name none; and whether one that is named has room for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyshard_admin::convert::{range_view, read_range};
use polyshard_admin::types::{AddChange, PlacedEntry};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::ShardRecord;
use polyshard_map::{GroupName, KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_planner::plan::{HEADROOM_PERCENT, Place};
use polyshard_planner::rule::Seen;
use polyshard_planner::{Rule, measure};
use polyshard_router::view::KnownMap;

use super::Operations;
use crate::problem;

/// Entries of one request that may name no shard: each is weighed against all shards and rules.
const PLACED_MAX: usize = 1_000;
/// Shards whose reason is told when none may take a key.
const REASONS_SHOWN: usize = 5;
/// Shards that are asked for rows at once: more would be felt by requests.
const ASKED_AT_ONCE: usize = 8;
/// How long a shard may look for rows of new keys: where no index helps, it reads whole tables.
const FOUND_WAIT: Duration = Duration::from_secs(20);

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
        let definition = known.map.definition();
        let mut ranges = Vec::with_capacity(add.entries.len());
        for (at, entry) in add.entries.iter().enumerate() {
            ranges.push(read_range(definition, &entry.range, &format!("add.entries[{at}].range"))?);
        }
        let rules = if unnamed > 0 { self.rules_of(known).await? } else { Vec::new() };
        let mut places = measure::places(&self.router, &asked).await;
        if unnamed > 0 {
            self.keep_for_others(definition.name(), &mut places).await?;
        }
        let mut placing = Placing::new(known, places, rules);
        let is_unnamed = |at: &usize| add.entries[*at].shard.is_none();
        let loose: Vec<KeyRange> =
            (0..ranges.len()).filter(is_unnamed).map(|at| ranges[at].clone()).collect();
        let mut holders = self.holders(definition, &loose, &asked, &placing.places).await?.into_iter();
        let mut groups = Groups::new(known, add);
        let mut placed = Vec::new();
        for (entry, range) in add.entries.iter_mut().zip(&ranges) {
            let shard = match &entry.shard {
                Some(shard) => {
                    if let Err(full) = placing.require_room(shard) {
                        self.require_rows(definition, range, shard).await.map_err(|_| full)?;
                    }
                    shard.clone()
                }
                None => {
                    // A group stays on one shard.
                    let home = entry.group.as_ref().and_then(|group| groups.home(group));
                    let shard = match holder(definition, range, holders.next().unwrap_or_default(), &home)? {
                        // Nothing new comes to it, so that it may be full.
                        Some(holder) => holder,
                        None => match home {
                            Some(home) => home,
                            None => placing.choose(definition.name(), range)?,
                        },
                    };
                    placed.push(PlacedEntry { range: range_view(definition, range), shard: shard.clone() });
                    shard
                }
            };
            if let Some(group) = &entry.group {
                groups.homes.insert(group.clone(), shard.clone());
            }
            placing.note(&shard, range);
            entry.shard = Some(shard);
            // Each may look at all entries of a shard.
            tokio::task::yield_now().await;
        }
        Ok(placed)
    }

    /// The shards that have rows of each of these ranges: somebody else would hide them.
    async fn holders(
        &self,
        definition: &MapDefinition,
        ranges: &[KeyRange],
        shards: &[ShardRecord],
        places: &[Place],
    ) -> Result<Vec<Vec<ShardId>>, Problem> {
        let mut holders = vec![Vec::new(); ranges.len()];
        if ranges.is_empty() {
            return Ok(holders);
        }
        let ask = async |shard: ShardId| (self.rows_found(definition, ranges, &shard).await, shard);
        let away = |shard: &ShardRecord| {
            let place = places.iter().find(|place| place.shard == shard.id);
            shard.state == State::Online && place.is_some_and(|place| !place.takes)
        };
        let answers: Vec<_> = match shards.iter().find(|shard| away(shard)) {
            // It was waited for already.
            Some(shard) => vec![(Err("it does not answer".to_owned()), shard.id.clone())],
            None => {
                let shards: Vec<ShardId> = shards.iter().map(|record| record.id.clone()).collect();
                stream::iter(shards).map(ask).buffered(ASKED_AT_ONCE).collect().await
            }
        };
        for (found, shard) in answers {
            let found = found.map_err(|why| {
                let message = format!("shard {shard} does not say whether it has rows of new keys: {why}");
                Problem::unavailable(message).with_remedy(
                    "name the shard that has their rows with --to, or any one if they are new; or try again when the \
                     shard is back",
                )
            })?;
            found.into_iter().for_each(|at| holders[at].push(shard.clone()));
        }
        Ok(holders)
    }

    async fn rows_found(
        &self,
        definition: &MapDefinition,
        ranges: &[KeyRange],
        shard: &ShardId,
    ) -> Result<BTreeSet<usize>, String> {
        let found = measure::found(&self.router, definition, ranges, shard);
        match tokio::time::timeout(FOUND_WAIT, found).await {
            Ok(found) => found.map_err(|unmeasured| unmeasured.error.to_string()),
            Err(_) => Err(format!("it has not answered for {} s", FOUND_WAIT.as_secs())),
        }
    }

    /// Refuses a shard that has no rows of a range, or does not say so.
    async fn require_rows(
        &self,
        definition: &MapDefinition,
        range: &KeyRange,
        shard: &ShardId,
    ) -> Result<(), String> {
        match self.rows_found(definition, std::slice::from_ref(range), shard).await?.is_empty() {
            true => Err(format!("shard {shard} has no rows of it")),
            false => Ok(()),
        }
    }
}

/// The shard that has the rows of a range that nobody owns, if one has any. Refuses if no one shard will do.
fn holder(
    definition: &MapDefinition,
    range: &KeyRange,
    holders: Vec<ShardId>,
    group: &Option<ShardId>,
) -> Result<Option<ShardId>, Problem> {
    let words = || definition.describe_range(range);
    let (message, remedy) = match (holders.as_slice(), group) {
        ([], _) => return Ok(None),
        ([one], None) => return Ok(Some(one.clone())),
        ([one], Some(group)) if one == group => return Ok(Some(one.clone())),
        ([one], Some(group)) => (
            format!("rows of {} are on shard {one}, and its group is on shard {group}", words()),
            "add it without its group, move it to that shard, and put it into the group then",
        ),
        (several, _) => {
            let shown: Vec<&str> = several.iter().take(REASONS_SHOWN).map(ShardId::as_str).collect();
            (
                format!("rows of {} are on several shards: {}", words(), shown.join(", ")),
                "name the one whose rows are right with --to; the others' are hidden until 'polyshard check --repair' \
                 has looked at them",
            )
        }
    };
    Err(Problem::new(ErrorCode::Conflict, message).with_remedy(remedy))
}

/// Where groups are.
struct Groups<'a> {
    known: &'a KnownMap,
    /// Those of this request.
    homes: BTreeMap<GroupName, ShardId>,
}

impl<'a> Groups<'a> {
    fn new(known: &'a KnownMap, add: &AddChange) -> Groups<'a> {
        let named = add.entries.iter().filter_map(|entry| Some((entry.group.clone()?, entry.shard.clone()?)));
        Groups { known, homes: named.collect() }
    }

    fn home(&self, group: &GroupName) -> Option<ShardId> {
        let stored = || self.known.map.group(group).next().map(|entry| entry.shard);
        self.homes.get(group).cloned().or_else(stored)
    }
}

/// What is known of the shards while keys are placed.
struct Placing<'a> {
    known: &'a KnownMap,
    places: Vec<Place>,
    rules: Vec<Rule>,
    /// What is on a place, once a rule has looked at it.
    there: BTreeMap<usize, Vec<KeyRange>>,
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
        let mut homes: Vec<(&Seen, [u64; 4])> = Vec::new();
        for (place, count) in places.iter().zip(&counts) {
            // A map without entries begins where those of others are, and not in a tier of its own if it can be.
            let of = [*count, place.entries, u64::from(place.seen.tier.is_none()), 1];
            match homes.iter_mut().find(|(seen, _)| **seen == place.seen) {
                Some((_, sums)) => sums.iter_mut().zip(of).for_each(|(sum, of)| *sum += of),
                None => homes.push((&place.seen, of)),
            }
        }
        let home = homes.iter().max_by_key(|(_, sums)| *sums).map(|(seen, _)| (*seen).clone());
        Placing { known, places, rules, there: BTreeMap::new(), counts, mean, home }
    }

    /// The rule that a range would break on a place.
    fn breaks(&mut self, range: &KeyRange, at: usize) -> Option<String> {
        let (place, definition) = (&self.places[at], Some(self.known.map.definition()));
        if let Some(kept) = &place.kept {
            return Some(kept.clone());
        }
        let looks = |rule: &Rule| matches!(rule, Rule::Apart { .. } | Rule::Alone { .. });
        // All of a large map is looked at once for a place, and only for a rule that does.
        let there: &[KeyRange] = match self.rules.iter().any(looks) {
            false => &[],
            true => self.there.entry(at).or_insert_with(|| {
                let all = KeyRange::all();
                let here = self.known.map.located(&all).filter(|found| *found.shard() == place.shard);
                here.map(|found| found.range()).collect()
            }),
        };
        let forbids = |rule: &Rule| rule.forbids(range, &place.shard, &place.seen, there, definition);
        self.rules.iter().find_map(forbids)
    }

    /// The emptiest shard that may take a range. It stays in the region and tier of the map's other entries, unless a
    /// rule says where it belongs.
    fn choose(&mut self, map: &MapName, range: &KeyRange) -> Result<ShardId, Problem> {
        let is_pinned = self.rules.iter().any(|rule| match rule {
            Rule::Region { range: of, .. } | Rule::Tier { range: of, .. } => of.overlaps(range),
            _ => false,
        });
        let is_home = |place: &Place| is_pinned || self.home.as_ref().is_none_or(|home| *home == place.seen);
        let mut order: Vec<usize> = (0..self.places.len()).filter(|at| is_home(&self.places[*at])).collect();
        order.sort_by_key(|at| {
            let weight = self.places[*at].bytes.saturating_add(self.counts[*at].saturating_mul(self.mean));
            (weight, self.places[*at].shard.clone())
        });
        let mut reasons = Vec::new();
        for at in order {
            let place = &self.places[at];
            let away = (!place.takes).then(|| format!("shard {} takes nothing", place.shard));
            match fullness(place).or(away).or_else(|| self.breaks(range, at)) {
                None => return Ok(self.places[at].shard.clone()),
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
                "name no shard and one with room is chosen, or raise the limit with 'polyshard shard set'; a shard \
                 that has rows of the key already takes it however full it is",
            )),
        }
    }

    /// Remembers what goes where for the entries that follow.
    fn note(&mut self, shard: &ShardId, range: &KeyRange) {
        let Some(at) = self.places.iter().position(|place| place.shard == *shard) else { return };
        self.places[at].entries += 1;
        self.counts[at] += 1;
        if let Some(there) = self.there.get_mut(&at) {
            there.push(range.clone());
        }
    }
}

fn is_limited(record: &ShardRecord) -> bool {
    record.limits.bytes_max.is_some() || record.limits.shardlets_max.is_some()
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

//! The choice of moves, one at a time: from the fullest to the emptiest that may take it, the piece that helps most
//! for what it costs to carry.

use std::collections::BTreeMap;

use polyshard_map::{KeyRange, ShardId};

use super::{Aim, Piece, Place, Plan, Planned, Situation, percent, usable};
use crate::rule::Rule;

/// A piece lighter than this part of what a shard has too much is passed over while heavier ones fit: many small moves
/// take longer than a few.
const WORTH_ONE_OF: u64 = 20;

/// A plan in the making.
pub(super) struct Work<'a> {
    pub(super) situation: &'a Situation<'a>,
    aim: Aim,
    weights: Vec<u64>,
    /// Where each piece is by now.
    on: Vec<ShardId>,
    loads: BTreeMap<ShardId, Load>,
    moved: Vec<(usize, Why)>,
    /// What each shard would have if all were even.
    mean: u64,
    is_moved: Vec<bool>,
    /// The pieces that each shard had before.
    of_shards: BTreeMap<ShardId, Vec<usize>>,
    pub(super) notes: Vec<String>,
}

/// Why a piece moves.
#[derive(Debug, Clone, PartialEq)]
enum Why {
    /// For this reason.
    Said(String),
    /// Its shard has too much.
    Even,
}

/// What is on a shard by now.
#[derive(Clone, Default)]
struct Load {
    weight: u64,
    bytes: u64,
    entries: u64,
}

impl<'a> Work<'a> {
    pub(super) fn new(situation: &'a Situation<'a>, aim: Aim) -> Work<'a> {
        let weights = situation.weights(aim);
        let load = |place: &Place| Load { weight: 0, bytes: place.bytes, entries: place.entries };
        let mut loads: BTreeMap<ShardId, Load> =
            situation.places.iter().map(|place| (place.shard.clone(), load(place))).collect();
        for (piece, weight) in situation.pieces.iter().zip(&weights) {
            loads.entry(piece.shard.clone()).or_default().weight += weight;
        }
        let on: Vec<ShardId> = situation.pieces.iter().map(|piece| piece.shard.clone()).collect();
        let mut of_shards: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (index, shard) in on.iter().enumerate() {
            of_shards.entry(shard.clone()).or_default().push(index);
        }
        let is_moved = vec![false; on.len()];
        Work {
            situation,
            aim,
            weights,
            on,
            loads,
            moved: Vec::new(),
            mean: 0,
            is_moved,
            of_shards,
            notes: Vec::new(),
        }
    }

    fn place(&self, shard: &ShardId) -> Option<&'a Place> {
        self.situation.places.iter().find(|place| place.shard == *shard)
    }

    /// The ranges that are on a shard by now, but for one piece.
    fn there(&self, shard: &ShardId, but: &KeyRange) -> Vec<KeyRange> {
        let pieces = self.situation.pieces.iter().zip(&self.on);
        let there = pieces.filter(|(piece, on)| *on == shard && piece.range != *but);
        there.flat_map(|(piece, _)| piece.range.subtract(but)).collect()
    }

    /// Why a piece may not be on a shard.
    pub(super) fn refuses(&self, piece: &Piece, to: &ShardId, headroom_percent: u64) -> Option<String> {
        let Some(place) = self.place(to).filter(|place| place.takes) else {
            return Some(format!("shard {to} takes nothing"));
        };
        let load = self.loads.get(to).cloned().unwrap_or_default();
        if let Some(most) = place.bytes_max
            && load.bytes.saturating_add(piece.bytes) > usable(most, headroom_percent)
        {
            return Some(format!(
                "shard {to} would have {} bytes, and its limit is {most} with {headroom_percent} % kept free",
                load.bytes + piece.bytes
            ));
        }
        if let Some(most) = place.entries_max.filter(|most| load.entries >= *most) {
            return Some(format!("shard {to} has {} entries, and its limit is {most}", load.entries));
        }
        self.breaks(piece, to)
    }

    /// The rule that a piece would break on a shard.
    fn breaks(&self, piece: &Piece, to: &ShardId) -> Option<String> {
        if self.situation.rules.is_empty() {
            return None;
        }
        let place = self.place(to)?;
        let there = self.there(to, &piece.range);
        let forbids =
            |rule: &Rule| rule.forbids(&piece.range, to, &place.seen, &there, self.situation.definition);
        self.situation.rules.iter().find_map(forbids)
    }

    fn carry(&mut self, index: usize, to: ShardId, why: Why) {
        let (piece, weight) = (&self.situation.pieces[index], self.weights[index]);
        let from = self.loads.entry(self.on[index].clone()).or_default();
        from.weight -= weight;
        from.bytes = from.bytes.saturating_sub(piece.bytes);
        let there = self.loads.entry(to.clone()).or_default();
        (there.weight, there.bytes) = (there.weight + weight, there.bytes + piece.bytes);
        // The old shard may keep what is beside it as one entry more; the new one has one more for sure.
        there.entries += 1;
        self.on[index] = to;
        self.is_moved[index] = true;
        self.moved.push((index, why));
    }

    /// The shard with least load that may take a piece.
    fn emptiest(&self, index: usize, headroom_percent: u64) -> Option<ShardId> {
        let piece = &self.situation.pieces[index];
        let mut places: Vec<&Place> = self.situation.places.iter().filter(|place| place.takes).collect();
        places.sort_by_key(|place| {
            let load = self.loads.get(&place.shard).cloned().unwrap_or_default();
            (load.weight, load.bytes, place.shard.clone())
        });
        let may = |place: &&Place| {
            place.shard != self.on[index] && self.refuses(piece, &place.shard, headroom_percent).is_none()
        };
        places.into_iter().find(may).map(|place| place.shard.clone())
    }

    /// Moves what is where a rule forbids it.
    pub(super) fn put_right(&mut self) {
        if self.situation.rules.is_empty() {
            return;
        }
        for index in self.heaviest_first(|_| true) {
            let piece = &self.situation.pieces[index];
            let Some(broken) = self.breaks(piece, &self.on[index].clone()) else { continue };
            // Who has a shard to himself stays; what disturbs him goes.
            let alone = |rule: &Rule| matches!(rule, Rule::Alone { range } if range.covers(&piece.range));
            let stays = self.situation.rules.iter().any(alone) && self.disturbed_by_movable(index);
            if stays {
                continue;
            }
            match self.emptiest(index, 0) {
                Some(to) => self.carry(index, to, Why::Said(format!("rule: {broken}"))),
                None => self.notes.push(format!("{broken}; no other shard may take it")),
            }
        }
    }

    /// Whether what disturbs a piece that is to be alone can go instead of it.
    fn disturbed_by_movable(&self, index: usize) -> bool {
        let (on, own) = (&self.on[index], &self.situation.pieces[index].range);
        let others = (0..self.on.len()).filter(|other| {
            *other != index && self.on[*other] == *on && !self.situation.pieces[*other].range.overlaps(own)
        });
        let mut found = false;
        for other in others {
            found = true;
            if self.emptiest(other, 0).is_none() {
                return false;
            }
        }
        found
    }

    /// Moves everything off a shard: neighbours to the same place while that is not above what would be even, so that
    /// there are few moves.
    pub(super) fn drain(&mut self, shard: &ShardId) {
        let mut leaving: Vec<usize> =
            (0..self.on.len()).filter(|index| self.situation.pieces[*index].shard == *shard).collect();
        leaving.sort_by_key(|index| self.situation.pieces[*index].range.clone());
        let takers = self.situation.places.iter().filter(|place| place.takes).count() as u64;
        let total: u64 = self.loads.values().map(|load| load.weight).sum();
        let level = total.div_ceil(takers.max(1));
        let mut current: Option<ShardId> = None;
        for index in leaving {
            let piece = &self.situation.pieces[index];
            let stays = current.take().filter(|to| {
                self.loads[to].weight + self.weights[index] <= level && self.refuses(piece, to, 0).is_none()
            });
            match stays.or_else(|| self.emptiest(index, 0)) {
                Some(to) => {
                    self.carry(index, to.clone(), Why::Said(format!("shard {shard} is to be empty")));
                    current = Some(to);
                }
                None => {
                    let mut reasons: Vec<String> = self
                        .situation
                        .places
                        .iter()
                        .filter(|place| place.shard != *shard && place.takes)
                        .filter_map(|place| self.refuses(piece, &place.shard, 0))
                        .collect();
                    reasons.dedup();
                    let why = match reasons.is_empty() {
                        true => "there is no other shard online".to_owned(),
                        false => reasons.join("; "),
                    };
                    self.notes.push(format!("{} has no other place: {why}", self.words(&piece.range)));
                }
            }
        }
    }

    fn heaviest_first(&self, wanted: impl Fn(&Piece) -> bool) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.on.len()).filter(|index| wanted(&self.situation.pieces[*index])).collect();
        found.sort_by_key(|index| {
            let piece = &self.situation.pieces[*index];
            (std::cmp::Reverse((self.weights[*index], piece.bytes)), piece.range.clone())
        });
        found
    }

    pub(super) fn words(&self, range: &KeyRange) -> String {
        match self.situation.definition {
            Some(definition) => definition.describe_range(range),
            None => "a piece".to_owned(),
        }
    }

    pub(super) fn even_out(&mut self) {
        let takers: Vec<ShardId> = self
            .situation
            .places
            .iter()
            .filter(|place| place.takes)
            .map(|place| place.shard.clone())
            .collect();
        if takers.len() < 2 {
            return;
        }
        let total: u64 = takers.iter().map(|shard| self.loads[shard].weight).sum();
        let mean = total / takers.len() as u64;
        self.mean = mean;
        let above = |percent: u64| mean + mean / 100 * percent;
        if takers.iter().all(|shard| self.loads[shard].weight <= above(self.aim.slack_percent)) {
            return;
        }
        let limit = above(self.aim.goal_percent.min(self.aim.slack_percent));
        let mut stuck: Vec<ShardId> = Vec::new();
        // Each piece moves at most once, so this ends.
        for _ in 0..=self.on.len() + takers.len() {
            let fullest = takers
                .iter()
                .filter(|shard| !stuck.contains(shard))
                .max_by_key(|shard| (self.loads[*shard].weight, std::cmp::Reverse((*shard).clone())));
            let Some(from) = fullest.filter(|shard| self.loads[*shard].weight > limit).cloned() else {
                break;
            };
            match self.best(&from, mean, &takers) {
                Some((index, to)) => self.carry(index, to, Why::Even),
                None => {
                    self.note_stuck(&from, mean);
                    stuck.push(from);
                }
            }
        }
    }

    /// The move from a shard that helps most for what it costs.
    fn best(&self, from: &ShardId, mean: u64, takers: &[ShardId]) -> Option<(usize, ShardId)> {
        let full = self.loads[from].weight;
        let excess = full - mean.min(full);
        let mut targets: Vec<&ShardId> = takers.iter().filter(|to| *to != from).collect();
        targets.sort_by_key(|to| (self.loads[*to].weight, (*to).clone()));
        let movable = |index: &usize| {
            let piece = &self.situation.pieces[*index];
            let rests = self.situation.resting.iter().any(|resting| resting.overlaps(&piece.range));
            self.weights[*index] > 0 && !self.is_moved[*index] && !rests
        };
        // Each piece moves at most once, so what was not there before does not leave again.
        let of_from = self.of_shards.get(from).map(Vec::as_slice).unwrap_or_default();
        let of_from: Vec<usize> = of_from.iter().copied().filter(movable).collect();
        for to in targets {
            let gap = full - self.loads[to].weight.min(full);
            // More than half of the gap would only turn it round.
            let fits = |index: &&usize| self.weights[**index] <= gap.div_ceil(2) && gap > 0;
            let fitting: Vec<usize> = of_from.iter().filter(fits).copied().collect();
            let worth = |index: &&usize| self.weights[**index].saturating_mul(WORTH_ONE_OF) >= excess;
            let mut choice: Vec<usize> = fitting.iter().filter(worth).copied().collect();
            if choice.is_empty() {
                choice = fitting;
            }
            choice.sort_by(|a, b| {
                // What helps about as much for its bytes is taken in the order of keys: neighbours go as one.
                let value = |index: &usize| {
                    let piece = &self.situation.pieces[*index];
                    (self.weights[*index] as f64 / (piece.bytes as f64 + 1.0)).log2().round()
                };
                let (first, second) = (&self.situation.pieces[*a], &self.situation.pieces[*b]);
                value(b).total_cmp(&value(a)).then_with(|| first.range.cmp(&second.range))
            });
            let headroom = self.aim.headroom_percent;
            let may = |index: &usize| self.refuses(&self.situation.pieces[*index], to, headroom).is_none();
            if let Some(index) = choice.into_iter().find(may) {
                return Some((index, to.clone()));
            }
        }
        None
    }

    /// What a shard has by now, the heaviest piece first.
    pub(super) fn heaviest_on(&self, shard: &ShardId) -> Vec<(usize, u64)> {
        let mut own: Vec<(usize, u64)> = (0..self.on.len())
            .filter(|index| self.on[*index] == *shard && self.weights[*index] > 0)
            .map(|index| (index, self.weights[index]))
            .collect();
        own.sort_by_key(|(index, weight)| (std::cmp::Reverse(*weight), *index));
        own
    }

    /// What is evened out, for people.
    pub(super) fn word(&self) -> &'static str {
        self.aim.by.word()
    }

    /// The weight of a shard by now.
    pub(super) fn load(&self, shard: &ShardId) -> u64 {
        self.loads.get(shard).map_or(0, |load| load.weight)
    }

    /// The moves, with neighbours that go the same way for the same reason joined.
    pub(super) fn plan(self) -> Plan {
        let mut moves: Vec<(Planned, u64, &Why)> = Vec::new();
        let mut order: Vec<&(usize, Why)> = self.moved.iter().collect();
        order.sort_by_key(|(index, _)| self.situation.pieces[*index].range.clone());
        for (index, why) in order {
            let (piece, to, weight) =
                (&self.situation.pieces[*index], &self.on[*index], self.weights[*index]);
            match moves.last_mut() {
                Some((last, sum, same))
                    if last.from == piece.shard
                        && last.to == *to
                        && *same == why
                        && last.range.hi() == Some(piece.range.lo()) =>
                {
                    let joined = KeyRange::new(last.range.lo().clone(), piece.range.hi().cloned());
                    last.range = joined.expect("two that meet are one");
                    last.rows += piece.rows;
                    last.bytes += piece.bytes;
                    last.requests += piece.requests;
                    *sum += weight;
                }
                _ => {
                    let planned = Planned {
                        range: piece.range.clone(),
                        from: piece.shard.clone(),
                        to: to.clone(),
                        rows: piece.rows,
                        bytes: piece.bytes,
                        requests: piece.requests,
                        why: String::new(),
                    };
                    moves.push((planned, weight, why));
                }
            }
        }
        let before = self.before();
        let mut moves: Vec<Planned> = moves
            .into_iter()
            .map(|(planned, weight, why)| {
                let why = match why {
                    Why::Said(why) => why.clone(),
                    Why::Even => self.too_much(&before, &planned, weight),
                };
                Planned { why, ..planned }
            })
            .collect();
        // What helps most first: whoever stops half way has the better half.
        moves.sort_by(|a, b| {
            b.requests.total_cmp(&a.requests).then(b.bytes.cmp(&a.bytes)).then(a.range.cmp(&b.range))
        });
        Plan { moves, notes: self.notes }
    }

    /// What each shard has before anything is moved.
    fn before(&self) -> BTreeMap<&'a ShardId, u64> {
        let mut before: BTreeMap<&ShardId, u64> = BTreeMap::new();
        for (piece, weight) in self.situation.pieces.iter().zip(&self.weights) {
            *before.entry(&piece.shard).or_default() += weight;
        }
        before
    }

    /// Why a move evens out, with the numbers that the plan begins with.
    fn too_much(&self, before: &BTreeMap<&ShardId, u64>, planned: &Planned, weight: u64) -> String {
        let of = |shard: &ShardId| percent(before.get(shard).copied().unwrap_or(0));
        format!(
            "{} has {} of the {} and {} {}, where {} would be even; this is {}",
            planned.from,
            of(&planned.from),
            self.aim.by.word(),
            planned.to,
            of(&planned.to),
            percent(self.mean),
            percent(weight),
        )
    }
}

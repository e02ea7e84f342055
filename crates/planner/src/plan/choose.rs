//! The choice of moves, one at a time: from the fullest to the emptiest that may take it, the piece that helps most
//! for what it costs to carry.

use std::collections::BTreeMap;

use polyshard_map::{KeyRange, ShardId};

use super::{Aim, Piece, Place, Plan, Planned, Situation, percent, usable};
use crate::rule::Rule;

/// A piece lighter than this part of what a shard has too much is passed over while heavier ones fit: many small moves
/// take longer than a few.
const WORTH_ONE_OF: u64 = 20;

/// Pieces without a place that are told one by one: each is told with what every shard says.
const NOTES_MAX: usize = 5;

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
        let place = self.place(to)?;
        if let Some(kept) = &place.kept {
            return Some(format!("{kept}, and that would share shard {to}"));
        }
        if self.situation.rules.is_empty() {
            return None;
        }
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
        let is_kept = |place: &Place| place.kept.is_some();
        if self.situation.rules.is_empty() && !self.situation.places.iter().any(is_kept) {
            return;
        }
        let alone = |piece: &Piece| {
            let covers = |rule: &Rule| matches!(rule, Rule::Alone { range } if range.covers(&piece.range));
            self.situation.rules.iter().any(covers)
        };
        // Whoever is to be alone may go himself, if that is less to carry; then all others are where they may be.
        let (lonely, others) = (self.heaviest_first(alone), self.in_order(|piece| !alone(piece)));
        let mut stuck = Vec::new();
        let mut last: Option<(ShardId, String)> = None;
        for index in lonely.iter().chain(&others).copied() {
            let piece = &self.situation.pieces[index];
            let Some(broken) = self.breaks(piece, &self.on[index].clone()) else { continue };
            if lonely.contains(&index) && self.stays_alone(index) {
                continue;
            }
            let same = last.take().filter(|(to, why)| {
                *why == broken && self.load(to) < self.level() && self.refuses(piece, to, 0).is_none()
            });
            match same.map(|(to, _)| to).or_else(|| self.emptiest(index, 0)) {
                Some(to) => {
                    self.carry(index, to.clone(), Why::Said(format!("rule: {broken}")));
                    last = Some((to, broken));
                }
                None => stuck.push((index, broken)),
            }
        }
        let words = |(index, broken): &(usize, String)| {
            let piece = &self.situation.pieces[*index];
            let why = self.no_place(piece, &self.on[*index]);
            format!(
                "{} is where it may not be: {broken}; it has no other place: {why}",
                self.words(&piece.range)
            )
        };
        let notes: Vec<String> = stuck.iter().take(NOTES_MAX).map(words).collect();
        self.note_all(notes, stuck.len());
    }

    /// What each shard that takes something would have if all were even.
    fn level(&self) -> u64 {
        let takers = self.situation.places.iter().filter(|place| place.takes).count() as u64;
        self.loads.values().map(|load| load.weight).sum::<u64>().div_ceil(takers.max(1))
    }

    /// Whether a piece that is to be alone, and is not, stays where it is because others go.
    fn stays_alone(&self, index: usize) -> bool {
        let (piece, on) = (&self.situation.pieces[index], &self.on[index]);
        let others: u64 = (0..self.on.len())
            .filter(|other| *other != index && self.on[*other] == *on)
            .map(|other| self.situation.pieces[other].bytes)
            .sum();
        let goes = others > piece.bytes && self.emptiest(index, 0).is_some();
        !goes && self.disturbed_by_movable(index)
    }

    /// Why a piece can be on no other shard.
    fn no_place(&self, piece: &Piece, on: &ShardId) -> String {
        let others = self.situation.places.iter().filter(|place| place.shard != *on && place.takes);
        let mut reasons: Vec<String> =
            others.filter_map(|place| self.refuses(piece, &place.shard, 0)).collect();
        reasons.dedup();
        match reasons.is_empty() {
            true => "there is no other shard online".to_owned(),
            false => reasons.join("; "),
        }
    }

    /// Adds notes about single pieces, the first of so many.
    fn note_all(&mut self, notes: Vec<String>, count: usize) {
        let more = count - notes.len();
        self.notes.extend(notes);
        if more > 0 {
            self.notes.push(format!("the same is true of {more} more pieces"));
        }
    }

    /// Whether all that a shard has by now is there by a rule that keeps everything else away.
    fn is_alone(&self, shard: &ShardId) -> bool {
        let covers =
            |rule: &Rule, range: &KeyRange| matches!(rule, Rule::Alone { range: of } if of.covers(range));
        let mut own = self.situation.pieces.iter().zip(&self.on).filter(|(_, on)| *on == shard).peekable();
        own.peek().is_some()
            && own.all(|(piece, _)| self.situation.rules.iter().any(|rule| covers(rule, &piece.range)))
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
        let level = self.level();
        let mut current: Option<ShardId> = None;
        let mut stuck = Vec::new();
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
                None => stuck.push(index),
            }
        }
        let words = |index: &usize| {
            let piece = &self.situation.pieces[*index];
            format!("{} has no other place: {}", self.words(&piece.range), self.no_place(piece, shard))
        };
        let notes: Vec<String> = stuck.iter().take(NOTES_MAX).map(words).collect();
        self.note_all(notes, stuck.len());
    }

    fn in_order(&self, wanted: impl Fn(&Piece) -> bool) -> Vec<usize> {
        let mut found: Vec<usize> =
            (0..self.on.len()).filter(|index| wanted(&self.situation.pieces[*index])).collect();
        found.sort_by_key(|index| self.situation.pieces[*index].range.clone());
        found
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
        let open = self.situation.places.iter().filter(|place| place.takes && place.kept.is_none());
        let (alone, takers): (Vec<ShardId>, Vec<ShardId>) =
            open.map(|place| place.shard.clone()).partition(|shard| self.is_alone(shard));
        let mean_of = |shards: &[&ShardId]| {
            let total: u64 = shards.iter().map(|shard| self.load(shard)).sum();
            total / (shards.len() as u64).max(1)
        };
        let of_all = mean_of(&takers.iter().chain(&alone).collect::<Vec<_>>());
        // What nothing else comes to is no measure for the others, nor they for it.
        let mean = mean_of(&takers.iter().collect::<Vec<_>>());
        let slack = |mean: u64, percent: u64| mean + mean / 100 * percent;
        for shard in alone {
            if self.load(&shard) > slack(of_all, self.aim.slack_percent) {
                self.note_stuck(&shard, of_all);
            }
        }
        if takers.len() < 2 {
            return;
        }
        self.mean = mean;
        let above = |percent: u64| slack(mean, percent);
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
        // Whoever took the last one of this shard takes the next while it has less than its part: neighbours go as one.
        let last = self
            .moved
            .last()
            .filter(|(index, why)| *why == Why::Even && self.situation.pieces[*index].shard == *from);
        let same = last.map(|(index, _)| &self.on[*index]).filter(|to| self.loads[*to].weight < mean);
        targets.sort_by_key(|to| (Some(*to) != same, self.loads[*to].weight, (*to).clone()));
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
            // Where rules leave it only shards that are about as full, it helps nobody to go there.
            if gap <= mean / 100 * self.aim.goal_percent.min(self.aim.slack_percent) {
                continue;
            }
            // More than half of the gap would only turn it round.
            let most = match Some(to) == same {
                true => (mean - self.loads[to].weight).min(gap.div_ceil(2)),
                false => gap.div_ceil(2),
            };
            let fits = |index: &&usize| self.weights[**index] <= most;
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
        let mut before: Option<usize> = None;
        for (index, why) in order {
            let (piece, to, weight) =
                (&self.situation.pieces[*index], &self.on[*index], self.weights[*index]);
            let adjoins = piece.adjoins && before == index.checked_sub(1);
            before = Some(*index);
            match moves.last_mut() {
                Some((last, sum, same))
                    if last.from == piece.shard
                        && last.to == *to
                        && *same == why
                        && (adjoins || last.range.hi() == Some(piece.range.lo())) =>
                {
                    let joined = KeyRange::new(last.range.lo().clone(), piece.range.hi().cloned());
                    last.range = joined.expect("what comes later ends later");
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
        Plan { moves: self.as_rules_allow(moves), notes: self.notes }
    }

    /// The same moves, those first that make room for others which a rule would forbid before.
    fn as_rules_allow(&self, mut moves: Vec<Planned>) -> Vec<Planned> {
        let looks = |rule: &&Rule| matches!(rule, Rule::Apart { .. } | Rule::Alone { .. });
        let rules: Vec<&Rule> = self.situation.rules.iter().filter(looks).collect();
        if rules.is_empty() {
            return moves;
        }
        let mut there: BTreeMap<ShardId, Vec<KeyRange>> = BTreeMap::new();
        for piece in self.situation.pieces {
            there.entry(piece.shard.clone()).or_default().push(piece.range.clone());
        }
        let mut out = Vec::with_capacity(moves.len());
        while !moves.is_empty() {
            let may = |planned: &Planned| {
                let (Some(place), on) = (self.place(&planned.to), there.get(&planned.to)) else {
                    return true;
                };
                let on = on.map(Vec::as_slice).unwrap_or_default();
                let forbids =
                    |rule: &&Rule| rule.forbids(&planned.range, &planned.to, &place.seen, on, None).is_some();
                !rules.iter().any(forbids)
            };
            // One that was broken before may stay so: what it can do comes all the same.
            let planned = moves.remove(moves.iter().position(may).unwrap_or(0));
            if let Some(left) = there.get_mut(&planned.from) {
                *left = left.iter().flat_map(|range| range.subtract(&planned.range)).collect();
            }
            there.entry(planned.to.clone()).or_default().push(planned.range.clone());
            out.push(planned);
        }
        out
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

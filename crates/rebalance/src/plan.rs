//! Which pieces of a map should change their shard, and why. Pure: what is measured in, moves out.

mod choose;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use polyshard_map::{KeyRange, MapDefinition, ShardId};

use crate::rule::{Rule, Seen};

/// A piece of a map that can be moved by itself, and what it weighs.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// What.
    pub range: KeyRange,
    /// Where it is.
    pub shard: ShardId,
    /// Its rows.
    pub rows: u64,
    /// About how many bytes they are.
    pub bytes: u64,
    /// About how many requests a second are for it.
    pub requests: f64,
}

/// A shard.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its name.
    pub shard: ShardId,
    /// Its region and tier.
    pub seen: Seen,
    /// Whether pieces may be put there.
    pub takes: bool,
    /// Bytes on it now, of all maps.
    pub bytes: u64,
    /// Bytes that it may hold.
    pub bytes_max: Option<u64>,
    /// Entries of all maps on it now.
    pub entries: u64,
    /// Entries that it may hold.
    pub entries_max: Option<u64>,
}

/// What is to be evened out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Requests and bytes, one as much as the other; bytes alone while there are no requests.
    Load,
    /// Requests.
    Requests,
    /// Bytes.
    Bytes,
    /// Rows.
    Rows,
}

/// How even is even enough, and how full is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// What is evened out.
    pub by: By,
    /// How far a shard may be above the mean, in percent.
    pub slack_percent: u64,
    /// How much of a shard's limit of bytes is kept free when load is evened out, in percent.
    pub headroom_percent: u64,
}

/// One move of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// What.
    pub range: KeyRange,
    /// From where.
    pub from: ShardId,
    /// Where to.
    pub to: ShardId,
    /// Rows in it.
    pub rows: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Requests a second for it.
    pub requests: f64,
    /// Why, for people.
    pub why: String,
}

/// What would be done, and what cannot be.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The moves, in the order in which they are best made.
    pub moves: Vec<Planned>,
    /// What an operator should know: what moving cannot help, and what has no place.
    pub notes: Vec<String>,
}

/// What a plan is made from.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// All pieces of the map.
    pub pieces: &'a [Piece],
    /// All shards.
    pub places: &'a [Place],
    /// The rules of the map.
    pub rules: &'a [Rule],
    /// The map, for words.
    pub definition: Option<&'a MapDefinition>,
}

/// Parts of the whole are counted in these: whole numbers, so that a plan is the same wherever it is made.
const WHOLE: u64 = 1_000_000_000;

/// What is measured of a piece.
type Measure = fn(&Piece) -> f64;

impl Situation<'_> {
    /// Moves that bring every shard within the slack of the mean, with little carried; and before them those that put
    /// right what the rules forbid.
    pub fn even_out(&self, aim: Aim) -> Plan {
        let mut work = choose::Work::new(self, aim);
        work.put_right();
        work.even_out();
        work.plan()
    }

    /// Moves that empty a shard. What has no place anywhere is noted, and stays.
    pub fn drain(&self, shard: &ShardId, aim: Aim) -> Plan {
        let mut work = choose::Work::new(self, aim);
        work.drain(shard);
        work.plan()
    }

    /// Why a range may not be on a shard, if it may not: rules and limits. `bytes` is what it brings.
    pub fn refuses(&self, range: &KeyRange, bytes: u64, to: &ShardId) -> Option<String> {
        let aim = Aim { by: By::Bytes, slack_percent: 0, headroom_percent: 0 };
        let work = choose::Work::new(self, aim);
        let piece = Piece { range: range.clone(), shard: to.clone(), rows: 0, bytes, requests: 0.0 };
        work.refuses(&piece, to, 0)
    }

    /// What each piece weighs, in parts of the whole.
    fn weights(&self, by: By) -> Vec<u64> {
        let sum = |of: Measure| self.pieces.iter().map(of).sum::<f64>();
        let requests: Measure = |piece| piece.requests;
        let bytes: Measure = |piece| piece.bytes as f64;
        let rows: Measure = |piece| piece.rows as f64;
        let parts: Vec<(Measure, f64)> = match by {
            By::Load if sum(requests) > 0.0 && sum(bytes) > 0.0 => vec![(requests, 0.5), (bytes, 0.5)],
            By::Load if sum(requests) > 0.0 => vec![(requests, 1.0)],
            By::Load | By::Bytes => vec![(bytes, 1.0)],
            By::Requests => vec![(requests, 1.0)],
            By::Rows => vec![(rows, 1.0)],
        };
        let totals: Vec<f64> = parts.iter().map(|(of, _)| sum(*of).max(f64::MIN_POSITIVE)).collect();
        let weigh = |piece: &Piece| {
            let shares = parts.iter().zip(&totals).map(|((of, part), total)| part * of(piece) / total);
            (shares.sum::<f64>() * WHOLE as f64).round() as u64
        };
        self.pieces.iter().map(weigh).collect()
    }
}

/// A share in words: `12.5 %`.
fn percent(part: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / WHOLE as f64)
}

/// Loads of shards after a plan, for those who show it.
pub fn loads_after(pieces: &[Piece], plan: &Plan) -> BTreeMap<ShardId, (u64, u64)> {
    let mut rows: BTreeMap<ShardId, (u64, u64)> = BTreeMap::new();
    for piece in pieces {
        let of = rows.entry(piece.shard.clone()).or_default();
        *of = (of.0 + piece.rows, of.1 + piece.rows);
    }
    for planned in &plan.moves {
        let from = rows.entry(planned.from.clone()).or_default();
        from.1 = from.1.saturating_sub(planned.rows);
        rows.entry(planned.to.clone()).or_default().1 += planned.rows;
    }
    rows
}

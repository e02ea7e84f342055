//! Which pieces of a map should change their shard, and why. Pure: what is measured in, moves out.

mod choose;
mod notes;
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
    /// About how many bytes a second its requests and answers have, as far as it is among the busiest.
    pub traffic: f64,
    /// Whether nothing is between it and the piece before it, on a list, where the two do not meet.
    pub adjoins: bool,
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
    /// The rule of another map that gives it to keys of that map alone, for people.
    pub kept: Option<String>,
    /// Bytes on it now, of all maps.
    pub bytes: u64,
    /// Bytes that it may hold.
    pub bytes_max: Option<u64>,
    /// Entries of all maps on it now.
    pub entries: u64,
    /// Entries that it may hold.
    pub entries_max: Option<u64>,
}

impl Place {
    /// Bytes that it may still take until only the headroom is left of its limit; none without a limit.
    pub fn room(&self) -> Option<u64> {
        self.bytes_max.map(|most| usable(most, HEADROOM_PERCENT).saturating_sub(self.bytes))
    }
}

/// What may be used of a limit if a part is kept free.
fn usable(limit: u64, headroom_percent: u64) -> u64 {
    limit - limit.min(limit / 100 * headroom_percent.min(100))
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

impl By {
    /// The word for people.
    fn word(self) -> &'static str {
        match self {
            By::Load => "load",
            By::Requests => "requests",
            By::Bytes => "bytes",
            By::Rows => "rows",
        }
    }
}

/// How much of a shard's limit of bytes is kept free when load is evened out, unless somebody says otherwise: it
/// grows, too.
pub const HEADROOM_PERCENT: u64 = 10;

/// How even is even enough, and how full is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// What is evened out.
    pub by: By,
    /// How far a shard may be above the mean before anything is moved, in percent.
    pub slack_percent: u64,
    /// How far it may be above it afterwards. Less than the slack lets it drift for a while before it is moved again.
    pub goal_percent: u64,
    /// How much of a shard's limit of bytes is kept free when load is evened out, in percent.
    pub headroom_percent: u64,
    /// Fewer requests a second on all shards are noise, and do not count.
    pub requests_min: u64,
    /// Fewer bytes on all shards are not worth a move, and do not count.
    pub bytes_min: u64,
}

impl Aim {
    /// Within the slack, whatever there is.
    pub const fn new(by: By, slack_percent: u64) -> Aim {
        Aim {
            by,
            slack_percent,
            goal_percent: slack_percent,
            headroom_percent: HEADROOM_PERCENT,
            requests_min: 0,
            bytes_min: 0,
        }
    }
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
    /// What was moved lately and is let rest, unless a rule says otherwise: it would only go to and fro.
    pub resting: &'a [KeyRange],
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
        work.note_neighbours();
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
        let work = choose::Work::new(self, Aim::new(By::Bytes, 0));
        let (range, shard) = (range.clone(), to.clone());
        let piece = Piece { range, shard, rows: 0, bytes, requests: 0.0, traffic: 0.0, adjoins: false };
        work.refuses(&piece, to, 0)
    }

    /// What each piece weighs, in parts of the whole.
    fn weights(&self, aim: Aim) -> Vec<u64> {
        let sum = |of: Measure| self.pieces.iter().map(of).sum::<f64>();
        let requests: Measure = |piece| piece.requests;
        let bytes: Measure = |piece| piece.bytes as f64;
        let rows: Measure = |piece| piece.rows as f64;
        let counts = |of: Measure, least: u64| sum(of) > 0.0 && sum(of) >= least as f64;
        let asked: Vec<Measure> = match aim.by {
            By::Load | By::Requests if counts(requests, aim.requests_min) => match aim.by {
                By::Load if counts(bytes, aim.bytes_min) => vec![requests, bytes],
                _ => vec![requests],
            },
            By::Load | By::Bytes if counts(bytes, aim.bytes_min) => vec![bytes],
            By::Rows => vec![rows],
            By::Load | By::Requests | By::Bytes => vec![],
        };
        let part = 1.0 / asked.len().max(1) as f64;
        let parts: Vec<(Measure, f64)> = asked.into_iter().map(|of| (of, part)).collect();
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

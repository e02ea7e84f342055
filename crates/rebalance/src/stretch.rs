//! A range that is to move, cut into the parts that are each on one shard now. Pure.

use polyshard_map::{Entry, KeyRange, ShardId};

/// Entries of a list map that go in one move: each is a condition on what is written meanwhile.
const PART_ENTRIES_MAX: usize = 200;

/// A stretch of a map on one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// What.
    pub range: KeyRange,
    /// Where it is.
    pub from: ShardId,
}

/// The parts of a range that are elsewhere, each on one shard.
pub fn stretches(entries: &[Entry], range: &KeyRange, to: &ShardId) -> Vec<Stretch> {
    let mut out: Vec<(Stretch, usize)> = Vec::new();
    for entry in entries {
        let Some(part) = entry.range.intersect(range) else { continue };
        if entry.shard == *to {
            continue;
        }
        match out.last_mut() {
            Some((last, count))
                if last.from == entry.shard
                    && last.range.hi() == Some(part.lo())
                    && *count < PART_ENTRIES_MAX =>
            {
                let joined = KeyRange::new(last.range.lo().clone(), part.hi().cloned());
                last.range = joined.expect("two that meet are one");
                *count += 1;
            }
            _ => out.push((Stretch { range: part, from: entry.shard.clone() }, 1)),
        }
    }
    out.into_iter().map(|(stretch, _)| stretch).collect()
}

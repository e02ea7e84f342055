//! A range that is to move, cut into the parts that are each on one shard now. Pure.

use polyshard_map::{Entry, KeyRange, Scheme, ShardId};

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

/// The parts of a range that are elsewhere, each on one shard. Of a list, in which nothing is between two entries,
/// those beside each other are one part; elsewhere those that meet.
pub fn stretches(scheme: &Scheme, entries: &[Entry], range: &KeyRange, to: &ShardId) -> Vec<Stretch> {
    let mut out: Vec<(Stretch, usize)> = Vec::new();
    let mut is_interrupted = false;
    for entry in entries {
        let Some(part) = entry.range.intersect(range) else { continue };
        if entry.shard == *to {
            is_interrupted = true;
            continue;
        }
        match out.last_mut() {
            Some((last, count))
                if last.from == entry.shard
                    && *count < PART_ENTRIES_MAX
                    && !is_interrupted
                    && (*scheme == Scheme::List || last.range.hi() == Some(part.lo())) =>
            {
                let joined = KeyRange::new(last.range.lo().clone(), part.hi().cloned());
                last.range = joined.expect("what comes later ends later");
                *count += 1;
            }
            _ => out.push((Stretch { range: part, from: entry.shard.clone() }, 1)),
        }
        is_interrupted = false;
    }
    out.into_iter().map(|(stretch, _)| stretch).collect()
}

#[cfg(test)]
mod tests {
    use polyshard_map::{Epoch, KeyBytes, NewEntry};

    use super::*;

    fn shard(name: &str) -> ShardId {
        ShardId::new(name).unwrap()
    }

    fn entry(range: KeyRange, on: &str) -> Entry {
        NewEntry::new(range, shard(on)).at(Epoch::ZERO)
    }

    fn key(number: u8) -> KeyBytes {
        KeyBytes::new(vec![number])
    }

    #[test]
    fn keys_of_a_list_beside_each_other_go_in_one_part_and_others_by_themselves() {
        let on = ["s1", "s1", "s2", "s1", "s3", "s1", "s1"];
        let entries: Vec<Entry> =
            on.iter().zip(0..).map(|(on, number)| entry(KeyRange::point(key(number)), on)).collect();
        let parts = stretches(&Scheme::List, &entries, &KeyRange::all(), &shard("s3"));
        let found: Vec<(u8, u8, &str)> = parts
            .iter()
            .map(|part| {
                let last = part.range.hi().unwrap().as_slice()[0];
                (part.range.lo().as_slice()[0], last, part.from.as_str())
            })
            .collect();
        assert_eq!(found, [(0, 1, "s1"), (2, 2, "s2"), (3, 3, "s1"), (5, 6, "s1")]);
        let many: Vec<Entry> = (0..=u8::MAX).map(|n| entry(KeyRange::point(key(n)), "s1")).collect();
        assert_eq!(stretches(&Scheme::List, &many, &KeyRange::all(), &shard("s3")).len(), 2);
    }

    #[test]
    fn ranges_with_a_gap_between_them_are_two_parts() {
        let range = |from, to| KeyRange::new(key(from), Some(key(to))).unwrap();
        let entries = [entry(range(0, 3), "s1"), entry(range(3, 5), "s1"), entry(range(6, 9), "s1")];
        let parts = stretches(&Scheme::Range, &entries, &range(1, 8), &shard("s2"));
        let found: Vec<&KeyRange> = parts.iter().map(|part| &part.range).collect();
        assert_eq!(found, [&range(1, 5), &range(6, 8)]);
    }
}

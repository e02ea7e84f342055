//! Which ranges should change their shard, and why. Pure: loads in, moves out.

use std::collections::BTreeMap;

use polyshard_map::{KeyRange, ShardId};

/// A range and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The range.
    pub range: KeyRange,
    /// Where it is.
    pub shard: ShardId,
    /// How much it weighs: bytes, rows, whatever is to be evened out.
    pub weight: u64,
}

/// One move of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What.
    pub range: KeyRange,
    /// From where.
    pub from: ShardId,
    /// Where to.
    pub to: ShardId,
    /// How much it weighs.
    pub weight: u64,
}

/// Moves that empty a shard: each range goes to the shard that has least by then.
pub fn drain(holdings: &[Holding], shard: &ShardId, targets: &[ShardId]) -> Vec<Planned> {
    let mut loads = loads(holdings, targets);
    loads.remove(shard);
    let mut leaving: Vec<&Holding> = holdings.iter().filter(|holding| holding.shard == *shard).collect();
    // The heavy ones first: the light ones then fill up the differences.
    leaving.sort_by_key(|holding| (std::cmp::Reverse(holding.weight), holding.range.clone()));
    let mut planned = Vec::new();
    for holding in leaving {
        let Some(to) = least(&loads) else { return Vec::new() };
        *loads.entry(to.clone()).or_default() += holding.weight;
        planned.push(Planned {
            range: holding.range.clone(),
            from: shard.clone(),
            to,
            weight: holding.weight,
        });
    }
    planned
}

/// Moves that bring the shards within `slack_percent` of the mean, with as little carried as can be: always from the
/// fullest to the emptiest, the largest range that makes both better.
pub fn even_out(holdings: &[Holding], targets: &[ShardId], slack_percent: u64) -> Vec<Planned> {
    let mut loads = loads(holdings, targets);
    let mut left: Vec<Holding> = holdings.to_vec();
    let total: u64 = loads.values().sum();
    let mean = total / (loads.len() as u64).max(1);
    let limit = mean + mean * slack_percent / 100;
    let mut planned: Vec<Planned> = Vec::new();
    // Each range moves at most once, so this ends.
    for _ in 0..holdings.len() {
        let (Some(from), Some(to)) = (most(&loads), least(&loads)) else { break };
        let (full, empty) = (loads[&from], loads[&to]);
        if full <= limit || from == to {
            break;
        }
        let gap = full - empty;
        // More than half of the gap would only turn it round.
        let fits = |holding: &&Holding| {
            holding.shard == from && holding.weight > 0 && holding.weight <= gap.div_ceil(2)
        };
        let best = left
            .iter()
            .filter(fits)
            .max_by_key(|holding| (holding.weight, std::cmp::Reverse(&holding.range)));
        let Some(best) = best.cloned() else { break };
        left.retain(|holding| holding.range != best.range);
        *loads.entry(from.clone()).or_default() -= best.weight;
        *loads.entry(to.clone()).or_default() += best.weight;
        planned.push(Planned { range: best.range, from, to, weight: best.weight });
    }
    planned
}

fn loads(holdings: &[Holding], targets: &[ShardId]) -> BTreeMap<ShardId, u64> {
    let mut loads: BTreeMap<ShardId, u64> = targets.iter().map(|shard| (shard.clone(), 0)).collect();
    for holding in holdings {
        if let Some(load) = loads.get_mut(&holding.shard) {
            *load += holding.weight;
        }
    }
    loads
}

fn least(loads: &BTreeMap<ShardId, u64>) -> Option<ShardId> {
    loads.iter().min_by_key(|(shard, load)| (**load, (*shard).clone())).map(|(shard, _)| shard.clone())
}

fn most(loads: &BTreeMap<ShardId, u64>) -> Option<ShardId> {
    loads
        .iter()
        .max_by_key(|(shard, load)| (**load, std::cmp::Reverse((*shard).clone())))
        .map(|(s, _)| s.clone())
}

#[cfg(test)]
mod tests {
    use polyshard_map::KeyBytes;

    use super::*;

    fn shard(name: &str) -> ShardId {
        ShardId::new(name).unwrap()
    }

    fn holding(number: u8, on: &str, weight: u64) -> Holding {
        let bound = |number: u8| KeyBytes::new(vec![number]);
        let range = KeyRange::new(bound(number), Some(bound(number + 1))).unwrap();
        Holding { range, shard: shard(on), weight }
    }

    #[test]
    fn a_fifth_shard_gets_a_fifth_and_nothing_else_moves() {
        let old = ["s1", "s2", "s3", "s4"];
        let holdings: Vec<Holding> = (0..200).map(|n| holding(n, old[usize::from(n) % 4], 10)).collect();
        let targets: Vec<ShardId> = ["s1", "s2", "s3", "s4", "s5"].map(shard).to_vec();
        let plan = even_out(&holdings, &targets, 2);
        assert!(plan.iter().all(|planned| planned.to == shard("s5")));
        assert!((39..=41).contains(&plan.len()), "{}", plan.len());
    }

    #[test]
    fn what_is_even_stays() {
        let holdings = [holding(0, "s1", 10), holding(1, "s2", 11)];
        assert_eq!(even_out(&holdings, &[shard("s1"), shard("s2")], 10), []);
        // One heavy range cannot be halved.
        assert_eq!(even_out(&[holding(0, "s1", 100)], &[shard("s1"), shard("s2")], 10), []);
    }

    #[test]
    fn a_drained_shard_keeps_nothing_and_the_others_stay_even() {
        let holdings: Vec<Holding> = (0..9).map(|n| holding(n, "s1", 10)).collect();
        let plan = drain(&holdings, &shard("s1"), &[shard("s1"), shard("s2"), shard("s3")]);
        assert_eq!(plan.len(), 9);
        let to_2 = plan.iter().filter(|planned| planned.to == shard("s2")).count();
        assert!((4..=5).contains(&to_2));
        assert_eq!(drain(&holdings, &shard("s1"), &[shard("s1")]), []);
    }
}

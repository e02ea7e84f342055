//! What plans and moves must heed: regions, tiers, keys that are kept apart or alone. Pure.

use std::collections::BTreeMap;

use polyshard_map::{KeyBytes, KeyRange, MapDefinition, ShardId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The format this program writes.
const FORMAT: u64 = 1;

/// One rule of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// These keys stay on shards of a region.
    Region {
        /// Which keys.
        range: KeyRange,
        /// The region.
        region: String,
    },
    /// These keys stay on shards of a tier.
    Tier {
        /// Which keys.
        range: KeyRange,
        /// The tier.
        tier: String,
    },
    /// No two of these are on one shard.
    Apart {
        /// What is kept apart.
        ranges: Vec<KeyRange>,
    },
    /// These keys have their shard to themselves.
    Alone {
        /// Which keys.
        range: KeyRange,
    },
}

/// A shard as rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its region.
    pub region: Option<String>,
    /// Its tier.
    pub tier: Option<String>,
}

impl Rule {
    /// The stored form.
    pub fn write(&self) -> Value {
        json!({ "format": FORMAT, "says": self })
    }

    /// Reads the stored form.
    pub fn read(body: &Value) -> Result<Rule, String> {
        if body["format"].as_u64().is_none_or(|format| format > FORMAT) {
            return Err("a rule is of a newer program; upgrade this process".to_owned());
        }
        serde_json::from_value(body["says"].clone())
            .map_err(|error| format!("a rule cannot be read: {error}"))
    }

    /// What it says, for people.
    pub fn describe(&self, definition: Option<&MapDefinition>) -> String {
        let words = |range: &KeyRange| match definition {
            Some(definition) => definition.describe_range(range),
            None => "a range".to_owned(),
        };
        match self {
            Rule::Region { range, region } => format!("{} stays in region {region}", words(range)),
            Rule::Tier { range, tier } => format!("{} stays in tier {tier}", words(range)),
            Rule::Apart { ranges } => {
                let all: Vec<String> = ranges.iter().map(words).collect();
                format!("{} are never together", all.join(", "))
            }
            Rule::Alone { range } => format!("{} has its shard to itself", words(range)),
        }
    }

    /// Where the ranges that it is about begin and end.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = KeyBytes> {
        let ranges = match self {
            Rule::Apart { ranges } => ranges.as_slice(),
            Rule::Region { range, .. } | Rule::Tier { range, .. } | Rule::Alone { range } => {
                std::slice::from_ref(range)
            }
        };
        ranges.iter().flat_map(|range| Some(range.lo()).into_iter().chain(range.hi()).cloned())
    }

    /// Whether no shard, present or future, could heed both.
    pub fn contradicts(&self, other: &Rule) -> bool {
        match (self, other) {
            (Rule::Region { range, region }, Rule::Region { range: of, region: elsewhere }) => {
                range.overlaps(of) && region != elsewhere
            }
            (Rule::Tier { range, tier }, Rule::Tier { range: of, tier: other }) => {
                range.overlaps(of) && tier != other
            }
            _ => false,
        }
    }

    /// Whether a range may be on a shard, given what is there besides. The reason if not.
    pub fn forbids(
        &self,
        range: &KeyRange,
        shard: &ShardId,
        seen: &Seen,
        there: &[KeyRange],
        definition: Option<&MapDefinition>,
    ) -> Option<String> {
        let rule = || self.describe(definition);
        match self {
            Rule::Region { range: of, region } if of.overlaps(range) => {
                (seen.region.as_ref() != Some(region)).then(|| {
                    format!("{}, and shard {shard} is in {}", rule(), place(seen.region.as_deref(), "region"))
                })
            }
            Rule::Tier { range: of, tier } if of.overlaps(range) => {
                (seen.tier.as_ref() != Some(tier)).then(|| {
                    format!("{}, and shard {shard} is in {}", rule(), place(seen.tier.as_deref(), "tier"))
                })
            }
            Rule::Apart { ranges } => {
                let own: Vec<&KeyRange> = ranges.iter().filter(|of| of.overlaps(range)).collect();
                let met = ranges.iter().any(|of| {
                    let other = own.iter().any(|own| *own != of);
                    other && there.iter().any(|there| there.overlaps(of))
                });
                (own.len() > 1 || met).then(|| format!("{}, and another is on shard {shard}", rule()))
            }
            Rule::Alone { range: of } => {
                let outside = |piece: &KeyRange| !of.covers(piece);
                let met = match of.overlaps(range) {
                    true => outside(range) || there.iter().any(outside),
                    false => there.iter().any(|there| of.overlaps(there)),
                };
                met.then(|| format!("{}, and that would share shard {shard}", rule()))
            }
            Rule::Region { .. } | Rule::Tier { .. } => None,
        }
    }
}

fn place(name: Option<&str>, what: &str) -> String {
    name.map_or_else(|| format!("no {what}"), |name| format!("{what} {name}"))
}

/// The ranges of each shard, as rules look at them.
pub type Holds = BTreeMap<ShardId, Vec<KeyRange>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u8, to: u8) -> KeyRange {
        KeyRange::new(KeyBytes::new(vec![from]), Some(KeyBytes::new(vec![to]))).unwrap()
    }

    fn forbids(rule: &Rule, of: KeyRange, there: &[KeyRange]) -> bool {
        let seen = Seen { region: Some("eu".to_owned()), tier: None };
        rule.forbids(&of, &ShardId::new("s1").unwrap(), &seen, there, None).is_some()
    }

    #[test]
    fn each_rule_forbids_what_it_says_and_nothing_else() {
        let region = |name: &str| Rule::Region { range: range(1, 5), region: name.to_owned() };
        assert!(!forbids(&region("eu"), range(1, 2), &[]));
        assert!(forbids(&region("us"), range(4, 9), &[]));
        assert!(!forbids(&region("us"), range(5, 9), &[]));
        let tier = Rule::Tier { range: range(1, 5), tier: "fast".to_owned() };
        assert!(forbids(&tier, range(1, 2), &[]));
        let apart = Rule::Apart { ranges: vec![range(1, 2), range(5, 6)] };
        assert!(forbids(&apart, range(1, 2), &[range(4, 6)]));
        assert!(!forbids(&apart, range(1, 2), &[range(6, 9)]));
        assert!(!forbids(&apart, range(3, 4), &[range(1, 2), range(5, 6)]), "not concerned itself");
        assert!(forbids(&apart, range(0, 9), &[]), "both in one range");
        let alone = Rule::Alone { range: range(1, 3) };
        assert!(!forbids(&alone, range(1, 2), &[range(2, 3)]));
        assert!(forbids(&alone, range(1, 2), &[range(7, 8)]));
        assert!(forbids(&alone, range(7, 8), &[range(1, 3)]));
        assert!(!forbids(&alone, range(7, 8), &[range(5, 6)]));
    }

    #[test]
    fn two_homes_for_one_key_contradict_each_other() {
        let region = |from, name: &str| Rule::Region { range: range(from, 5), region: name.to_owned() };
        let tier = |name: &str| Rule::Tier { range: range(1, 5), tier: name.to_owned() };
        assert!(region(1, "eu").contradicts(&region(4, "us")));
        assert!(!region(1, "eu").contradicts(&region(4, "eu")));
        let above = Rule::Region { range: range(5, 9), region: "us".to_owned() };
        assert!(!region(1, "eu").contradicts(&above));
        assert!(tier("hot").contradicts(&tier("cold")) && !tier("hot").contradicts(&region(1, "eu")));
    }

    #[test]
    fn a_rule_is_read_as_it_was_written_and_a_newer_one_is_refused() {
        let rule = Rule::Apart { ranges: vec![range(1, 2), range(5, 6)] };
        assert_eq!(Rule::read(&rule.write()), Ok(rule));
        assert!(Rule::read(&json!({ "format": 2, "says": {} })).is_err());
    }
}

//! How busy shards and keys are, as one server process has counted it or all of them together. Pure.

use std::collections::{BTreeMap, HashMap};

use polyshard_map::{Key, KeyType, MapName, ShardId};
use serde_json::{Value, json};

/// The format this program writes.
const FORMAT: u64 = 1;
/// Keys that one process tells of: the hottest by requests and by bytes, which it keeps 256 of each.
pub const KEYS_TOLD_MAX: usize = 512;

/// Rates of shards and keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    /// Requests a second, by shard, in the last seconds, also those that are for no key.
    pub shards: BTreeMap<ShardId, f64>,
    /// The busiest keys; one that is missing is not among them.
    pub keys: Vec<KeyHeat>,
    /// Requests a second for keys that are not among the busiest.
    pub rest: f64,
    /// How many requests for keys were counted: few of them say little.
    pub counted: u64,
    /// How many server processes have counted it.
    pub processes: u32,
}

/// How busy a key is.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyHeat {
    /// The map.
    pub map: MapName,
    /// The key.
    pub key: Key,
    /// Requests a second, about.
    pub requests: f64,
    /// Bytes a second of requests and answers, about; 0 if others have far more.
    pub bytes: f64,
}

impl Heat {
    /// The stored form, for other processes.
    pub fn write(&self) -> Value {
        let keys = self.keys.iter().take(KEYS_TOLD_MAX);
        let told = |one: &KeyHeat| json!([one.map, one.key.to_string(), one.requests, one.bytes]);
        let shards: BTreeMap<&str, f64> =
            self.shards.iter().map(|(shard, rate)| (shard.as_str(), *rate)).collect();
        let keys: Vec<Value> = keys.map(told).collect();
        json!({ "format": FORMAT, "shards": shards, "keys": keys, "rest": self.rest, "counted": self.counted })
    }

    /// Reads the stored form. Keys of maps that are not known here, or whose keys are of another type now, are left
    /// out.
    pub fn read(body: &Value, key_type: impl Fn(&MapName) -> Option<KeyType>) -> Result<Heat, String> {
        if body["format"].as_u64() != Some(FORMAT) {
            return Err("what another process tells of load is of another version".to_owned());
        }
        let counted = body["counted"].as_u64().unwrap_or(0);
        let rest = body["rest"].as_f64().unwrap_or(0.0);
        let mut heat = Heat { rest, counted, processes: 1, ..Heat::default() };
        for (shard, rate) in body["shards"].as_object().into_iter().flatten() {
            if let (Ok(shard), Some(rate)) = (ShardId::new(shard.as_str()), rate.as_f64()) {
                heat.shards.insert(shard, rate);
            }
        }
        for told in body["keys"].as_array().into_iter().flatten().take(KEYS_TOLD_MAX) {
            let read = || {
                let map = MapName::new(told[0].as_str()?).ok()?;
                let key = key_type(&map)?.parse(told[1].as_str()?).ok()?;
                Some(KeyHeat { map, key, requests: told[2].as_f64()?, bytes: told[3].as_f64()? })
            };
            heat.keys.extend(read());
        }
        Ok(heat)
    }

    /// What several processes have counted, together; the busiest key first.
    pub fn sum(heats: impl IntoIterator<Item = Heat>) -> Heat {
        let mut sum = Heat::default();
        let mut keys: HashMap<(MapName, Key), (f64, f64)> = HashMap::new();
        for heat in heats {
            sum.processes += heat.processes;
            sum.rest += heat.rest;
            sum.counted += heat.counted;
            for (shard, rate) in heat.shards {
                *sum.shards.entry(shard).or_default() += rate;
            }
            for one in heat.keys {
                let of = keys.entry((one.map, one.key)).or_default();
                *of = (of.0 + one.requests, of.1 + one.bytes);
            }
        }
        let heat = |((map, key), (requests, bytes))| KeyHeat { map, key, requests, bytes };
        sum.keys = keys.into_iter().map(heat).collect();
        sum.keys.sort_by(|a, b| {
            let order = b.requests.total_cmp(&a.requests).then(b.bytes.total_cmp(&a.bytes));
            order.then_with(|| (&a.map, a.key.to_string()).cmp(&(&b.map, b.key.to_string())))
        });
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants() -> MapName {
        MapName::new("tenants").unwrap()
    }

    fn one(key: i64, requests: f64, bytes: f64) -> Heat {
        let shards = [(ShardId::new("s1").unwrap(), requests)].into();
        let keys = vec![KeyHeat { map: tenants(), key: Key::BigInt(key), requests, bytes }];
        Heat { shards, keys, rest: 0.5, counted: 10, processes: 1 }
    }

    #[test]
    fn what_processes_tell_is_read_as_it_was_written_and_added_up() {
        let bigint = |map: &MapName| (*map == tenants()).then_some(KeyType::BigInt);
        let heat = one(7, 2.5, 100.0);
        assert_eq!(Heat::read(&heat.write(), bigint), Ok(heat.clone()));
        assert_eq!(Heat::read(&heat.write(), |_| None).unwrap().keys, []);
        assert!(Heat::read(&json!({ "format": 2 }), bigint).is_err());
        let sum = Heat::sum([heat, one(8, 4.0, 1.0), one(7, 2.0, 10.0)]);
        assert_eq!((sum.processes, sum.counted, sum.rest), (3, 30, 1.5));
        assert_eq!(sum.shards.values().sum::<f64>(), 8.5);
        let seen: Vec<(String, f64, f64)> =
            sum.keys.iter().map(|one| (one.key.to_string(), one.requests, one.bytes)).collect();
        assert_eq!(seen, [("7".to_owned(), 4.5, 110.0), ("8".to_owned(), 4.0, 1.0)]);
    }
}

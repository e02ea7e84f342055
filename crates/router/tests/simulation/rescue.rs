//! Routers that finish a switch whose coordinator is silent, from what the source shard has recorded.

use std::collections::BTreeMap;

use polyshard_map::KeyRange;
use polyshard_shard::{OpId, OpRef, protocol};

use crate::database::now;
use crate::drivers::short;
use crate::routers::HOLD_MAX_MS;
use crate::world::World;

/// How far a router is with finishing a switch.
#[derive(Debug, Clone)]
pub enum Rescue {
    /// The coordinator still has time.
    Wait { since: i64 },
    /// These ranges are still to be put in force, by shard; then the fence is taken down.
    Finish(OpRef, Vec<(usize, Vec<KeyRange>)>),
}

impl World {
    /// The next step of a rescue. A failure begins it anew.
    pub fn rescue(&mut self, router: usize, source: usize, op: OpId) {
        let Some(rescue) = self.routers[router].rescues.get(&(source, op)).cloned() else { return };
        let anew = Rescue::Wait { since: self.now_ms };
        let next = match rescue {
            Rescue::Wait { since } if self.now_ms - since <= HOLD_MAX_MS => return,
            Rescue::Wait { .. } => match self.on_shard(source, |tx| now(protocol::departed(tx, op))) {
                Ok(Some((op_ref, departures))) => {
                    let mut arrived: BTreeMap<usize, Vec<KeyRange>> = BTreeMap::new();
                    for departure in departures {
                        if let Some(to) = departure.to.filter(|to| *to != self.shards[source].id) {
                            arrived.entry(self.shard_index(&to)).or_default().push(departure.range);
                        }
                    }
                    self.note(format!("r{router} rescues {} from s{source}", short(op)));
                    Rescue::Finish(op_ref, arrived.into_iter().collect())
                }
                _ => anew,
            },
            Rescue::Finish(op_ref, mut arrived) => {
                let done = match arrived.pop() {
                    Some((to, ranges)) => {
                        self.on_shard(to, |tx| now(protocol::activate(tx, op_ref, Some(&ranges))))
                    }
                    None => self.on_shard(source, |tx| now(protocol::release(tx, op_ref))),
                };
                if done.is_ok() { Rescue::Finish(op_ref, arrived) } else { anew }
            }
        };
        self.routers[router].rescues.insert((source, op), next);
    }
}

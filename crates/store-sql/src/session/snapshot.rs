//! Transactions whose statements share one snapshot: one of every shard, and rows where they were when it was taken.
//!
//! All snapshots are opened with the first query across shards, and leave for every range is kept until the end, so
//! that none of them moves meanwhile. What moved between the first statement and that is missing from one shard's
//! snapshot, or is in two: such a transaction is to be tried again.

use std::collections::BTreeMap;

use polyshard_map::{Key, KeyRange, MapName, ShardId};
use polyshard_router::{Access, Ticket, View};
use polyshard_sql::{SqlError, SqlState};

use super::{Done, Session};
use crate::reply;

impl Session {
    /// Notes where everything is, before the transaction's first snapshot is taken.
    pub(super) fn note_places(&mut self) {
        if self.transaction.has_one_snapshot() && self.transaction.places.is_none() {
            self.transaction.places = Some(self.door.router.view());
        }
    }

    /// Refuses keys and ranges that have come to another place since.
    pub(super) fn check_places(
        &self,
        keys: &[(MapName, Vec<Key>)],
        ranges: &[(MapName, Vec<KeyRange>)],
    ) -> Result<(), SqlError> {
        let Some(before) = &self.transaction.places else { return Ok(()) };
        let now = self.door.router.view();
        let same = keys.iter().all(|(map, keys)| keys.iter().all(|key| is_same_key(before, &now, map, key)))
            && ranges
                .iter()
                .all(|(map, ranges)| ranges.iter().all(|range| is_same_range(before, &now, map, range)));
        if same { Ok(()) } else { Err(moved()) }
    }

    /// Opens a snapshot on every shard, if the transaction has not done so.
    pub(crate) async fn open_snapshots(&mut self) -> Done {
        if self.transaction.everywhere {
            return Ok(());
        }
        if self.transaction.serializable {
            return Err(SqlError::unsupported(
                "a SERIALIZABLE transaction cannot query across shards",
                "REPEATABLE READ reads one snapshot of each shard, READ COMMITTED one for each statement.",
            )
            .into());
        }
        let router = self.door.router.clone();
        let view = router.view();
        let all: Vec<(MapName, Vec<KeyRange>)> =
            view.maps.keys().map(|map| (map.clone(), vec![KeyRange::all()])).collect();
        let entered = router.enter_ranges(&all, Access::Read).await;
        let mut tickets = entered.map_err(|error| reply::of_router(&error))?;
        for shard in view.shards.keys() {
            if !tickets.contains_key(shard) {
                let ticket = router.enter_unmapped(shard, Access::Read).await;
                tickets.insert(shard.clone(), vec![ticket.map_err(|error| reply::of_router(&error))?]);
            }
        }
        self.check_places(&[], &all)?;
        let before = self.backend.as_ref().map(|backend| backend.shard.clone());
        let opened = self.open_each(tickets).await;
        // What follows goes on where the transaction was, also if it is to end.
        if !before.is_some_and(|before| self.switch_to(&before)) {
            self.take_up();
        }
        opened?;
        self.transaction.everywhere = true;
        self.transaction.movable = false;
        Ok(())
    }

    async fn open_each(&mut self, tickets: BTreeMap<ShardId, Vec<Ticket>>) -> Done {
        for (shard, tickets) in tickets {
            if self.switch_to(&shard) {
                if let Some(backend) = &mut self.backend {
                    backend.hold(tickets);
                }
            } else {
                self.park();
                self.open_with(tickets, Vec::new(), true).await?;
                if let Some(leave) = self.backend.as_ref().and_then(|backend| backend.leave()) {
                    leave.take_snapshot_alone();
                }
            }
            self.begun().await?;
            // A snapshot is taken with the first question.
            self.pass_quietly("SELECT 1").await?;
            self.park();
        }
        Ok(())
    }

    /// Whether the transaction may go on on another of the shards that it has snapshots of.
    pub(super) fn may_go_on(&self, shard: &ShardId, access: Access) -> bool {
        let mut others = self.parked.values().chain(&self.backend).filter(|backend| backend.shard != *shard);
        self.transaction.everywhere && (access == Access::Read || !others.any(|other| other.wrote))
    }
}

fn is_same_key(before: &View, now: &View, map: &MapName, key: &Key) -> bool {
    let (Some(before), Some(now)) = (before.maps.get(map), now.maps.get(map)) else { return false };
    match (before.map.locate(key), now.map.locate(key)) {
        (Ok(before), Ok(now)) => before.shard() == now.shard() && before.epoch() == now.epoch(),
        _ => false,
    }
}

fn is_same_range(before: &View, now: &View, map: &MapName, range: &KeyRange) -> bool {
    let (Some(before), Some(now)) = (before.maps.get(map), now.maps.get(map)) else { return false };
    let (mut before, mut now) = (before.map.entries(range), now.map.entries(range));
    loop {
        match (before.next(), now.next()) {
            (None, None) => return true,
            (Some(old), Some(new))
                if old.range == new.range && old.shard == new.shard && old.epoch == new.epoch => {}
            _ => return false,
        }
    }
}

/// The answer to a transaction whose snapshot does not show rows where they are now.
pub(crate) fn moved() -> SqlError {
    let message = "a range was moved since the transaction's snapshot was taken";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try the transaction again.")
}

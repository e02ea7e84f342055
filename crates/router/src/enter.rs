//! Other ways in: to a shard without keys, with keys of several maps, and with more keys within a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use polyshard_map::{Key, KeyRange, MapName, ShardId, State as EntryState};
use tokio::time::Instant;

use crate::error::RouterError;
use crate::gate::Access;
use crate::router::{Router, check_state, is_archived, locate};
use crate::ticket::Ticket;
use crate::view::View;

/// The name under which tickets without keys are counted. They are in no range, so no fence asks for them.
static NO_MAP: LazyLock<MapName> = LazyLock::new(|| MapName::new("none").expect("it is a name"));

impl Router {
    /// Leave to touch the shard of one key, as [`Router::enter`] gives it, where nothing is to be asked, waited for or
    /// refused; none where something is. Made short: it is on the way of every small request.
    pub fn try_enter(&self, view: &Arc<View>, map: &MapName, key: &Key, access: Access) -> Option<Ticket> {
        let known = view.maps.get(map)?;
        let located = known.map.locate(key).ok()?;
        let shard = located.shard();
        let is_online = |state| state == EntryState::Online;
        if !is_online(located.state())
            || !view.shards.get(shard).is_some_and(|record| is_online(record.state))
        {
            return None;
        }
        let point: Arc<[KeyRange]> = Arc::from([KeyRange::point(known.map.placement(key).ok()?)]);
        let mut ticket = self.ticket_now(view, map, shard, point, access)?;
        ticket.sample = self.meter().enter(map, std::slice::from_ref(key));
        Some(ticket)
    }

    /// Leave to touch a shard for what is there whatever the maps say: reference tables, its own catalog. Nothing
    /// that a map places may be touched with it.
    pub async fn enter_unmapped(&self, shard: &ShardId, access: Access) -> Result<Ticket, RouterError> {
        let deadline = Instant::now() + self.wait_max();
        loop {
            let view = self.view();
            check_shard(&view, shard, access)?;
            let none: Arc<[KeyRange]> = Arc::from([]);
            if let Some(ticket) = self.ticket(&view, &NO_MAP, shard, none, access, deadline).await? {
                return Ok(ticket);
            }
        }
    }

    /// Leave to touch the one shard that has all keys, of several maps, under one view. One ticket for each map.
    pub async fn enter_all(
        &self,
        keys: &[(MapName, Vec<Key>)],
        access: Access,
    ) -> Result<Vec<Ticket>, RouterError> {
        let [first, others @ ..] = keys else { return Err(RouterError::CrossShard(vec![])) };
        let deadline = Instant::now() + self.wait_max();
        loop {
            let ticket = self.enter(&first.0, &first.1, access).await?;
            let mut tickets = Vec::with_capacity(keys.len());
            let mut moving = None;
            for (map, keys) in others {
                match self.enter_within_map(&ticket, map, keys, access).await {
                    Ok(next) => tickets.push(next),
                    Err(error @ RouterError::Moving(_)) => {
                        moving = Some((map, keys, error));
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some((map, keys, error)) = moving else {
                tickets.insert(0, ticket);
                return Ok(tickets);
            };
            // Waiting happens with empty hands: somebody may be waiting for the tickets given back here.
            drop((ticket, tickets));
            if Instant::now() >= deadline {
                return Err(error);
            }
            drop(self.enter(map, keys, access).await?);
        }
    }

    /// A ticket for more keys, of any map, inside a transaction that already has one. It never waits: a range that is
    /// being switched is an error at once, since waiting while holding another session could deadlock.
    pub async fn enter_within_map(
        &self,
        first: &Ticket,
        map: &MapName,
        keys: &[Key],
        access: Access,
    ) -> Result<Ticket, RouterError> {
        let sample = self.meter().enter(map, keys);
        let view = self.view();
        let (shard, ranges) = locate(&view, map, keys, access)?;
        if shard != first.shard {
            return Err(RouterError::CrossShard(vec![first.shard.clone(), shard]));
        }
        let moving = || RouterError::Moving(map.clone());
        let covered = first.map == *map
            && (first.access == access || first.access == Access::Write)
            && ranges.iter().all(|range| first.ranges.iter().any(|mine| mine.covers(range)));
        if !covered && self.is_held(map, &ranges, &shard, access) {
            return Err(moving());
        }
        let ticket = self.ticket(&view, map, &shard, ranges.into(), access, Instant::now()).await?;
        let mut ticket = ticket.ok_or_else(moving)?;
        ticket.sample = sample;
        Ok(ticket)
    }

    /// Tickets for every shard that has a part of the ranges of several maps, under one view of each. Shards have
    /// one ticket for each map that has a part there.
    pub async fn enter_ranges(
        &self,
        ranges: &[(MapName, Vec<KeyRange>)],
        access: Access,
    ) -> Result<BTreeMap<ShardId, Vec<Ticket>>, RouterError> {
        let deadline = Instant::now() + self.wait_max();
        'again: loop {
            let mut view = self.view();
            for (map, _) in ranges {
                if !view.maps.contains_key(map) {
                    view = self.view_with(map).await?;
                }
            }
            let mut parts: BTreeMap<(ShardId, &MapName), Vec<KeyRange>> = BTreeMap::new();
            for (map, ranges) in ranges {
                let known = view.maps.get(map).ok_or_else(|| RouterError::NoSuchMap(map.clone()))?;
                let (before, mut archived) = (parts.len(), None);
                for range in ranges {
                    for entry in known.map.entries(range) {
                        // What is in an archive is gone from its table, for whoever asks for more than that.
                        if entry.archive().is_some() {
                            archived.get_or_insert(entry);
                            continue;
                        }
                        check_state(&view, known, &entry.shard, entry.state, &entry.range, access)?;
                        let part = entry.range.intersect(range);
                        parts.entry((entry.shard.clone(), map)).or_default().extend(part);
                    }
                }
                if let (Some(entry), true) = (archived, parts.len() == before) {
                    return Err(is_archived(known, &entry));
                }
            }
            let mut tickets: BTreeMap<ShardId, Vec<Ticket>> = BTreeMap::new();
            for ((shard, map), ranges) in parts {
                if !tickets.is_empty() && self.is_held(map, &ranges, &shard, access) {
                    // Waiting happens with empty hands: somebody may be waiting for the tickets given back here.
                    tickets.clear();
                    drop(self.ticket(&view, map, &shard, ranges.into(), access, deadline).await?);
                    continue 'again;
                }
                match self.ticket(&view, map, &shard, ranges.into(), access, deadline).await? {
                    Some(ticket) => tickets.entry(shard).or_default().push(ticket),
                    None => continue 'again,
                }
            }
            let now = self.view();
            let same = |view: &View, map| view.maps.get(map).map(Arc::as_ptr);
            if ranges.iter().all(|(map, _)| same(&now, map) == same(&view, map)) {
                return Ok(tickets);
            }
        }
    }
}

fn check_shard(view: &View, shard: &ShardId, access: Access) -> Result<(), RouterError> {
    let state = view.shards.get(shard).map_or(EntryState::Online, |record| record.state);
    match (state, access) {
        (EntryState::Offline, _) => Err(RouterError::Offline(format!("shard {shard}"))),
        (EntryState::ReadOnly, Access::Write) => Err(RouterError::ReadOnly(format!("shard {shard}"))),
        _ => Ok(()),
    }
}

//! Who is in which range, and which ranges are held: tickets are counted, holds make newcomers wait. No I/O.
//!
//! A ticket is entered first and checked against the holds after; a hold is set first and the tickets are
//! looked at after. So a ticket either finds the hold or is found by it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_shard::{FenceAccess, FenceRow, FenceState, OpId};
use tokio::sync::Notify;

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read.
    Read,
    /// To write, or to read and write.
    Write,
}

impl Access {
    /// Its word in traces.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// Tickets are spread over so many lists, so that threads seldom meet.
const LISTS: usize = 16;

#[derive(Debug, Clone)]
struct Inside {
    map: MapName,
    ranges: Arc<[KeyRange]>,
    shard: ShardId,
    access: Access,
}

#[derive(Debug, Default)]
struct List {
    slots: Vec<Option<Inside>>,
    free: Vec<usize>,
}

/// A hold: newcomers to these ranges wait.
#[derive(Debug, Clone)]
struct Hold {
    shard: ShardId,
    fence: FenceRow,
    drained: bool,
}

impl Hold {
    /// Once the ranges have departed, requests know the new owner and would go there; but it serves them only
    /// when the fence is taken down.
    fn stops(&self, map: &MapName, ranges: &[KeyRange], shard: &ShardId, access: Access) -> bool {
        (self.shard == *shard || self.fence.state == FenceState::Departed)
            && self.fence.map == *map
            && (access == Access::Write || self.fence.access == FenceAccess::All)
            && ranges.iter().any(|range| self.fence.ranges.iter().any(|held| held.overlaps(range)))
    }
}

/// The gate of one router.
#[derive(Debug, Default)]
pub struct Gate {
    lists: [Mutex<List>; LISTS],
    next: AtomicUsize,
    /// How many holds there are, so that the common case is one load.
    holding: AtomicUsize,
    holds: RwLock<Vec<Hold>>,
    /// How many keep all writes out; each counts as a hold too.
    closed: AtomicUsize,
    /// Told when a ticket leaves while there are holds.
    left: Notify,
    /// Told when a hold is released.
    released: Notify,
}

/// Where a ticket is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    list: usize,
    slot: usize,
}

impl Gate {
    /// Counts a ticket in the ranges, unless one of them is held.
    pub fn enter(
        &self,
        map: &MapName,
        ranges: &Arc<[KeyRange]>,
        shard: &ShardId,
        access: Access,
    ) -> Option<Place> {
        let list = self.next.fetch_add(1, Ordering::Relaxed) % LISTS;
        let inside = Inside { map: map.clone(), ranges: ranges.clone(), shard: shard.clone(), access };
        let place = {
            let mut tickets = self.lists[list].lock().expect("no panic while held");
            let slot = match tickets.free.pop() {
                Some(slot) => slot,
                None => {
                    tickets.slots.push(None);
                    tickets.slots.len() - 1
                }
            };
            tickets.slots[slot] = Some(inside);
            Place { list, slot }
        };
        if self.holding.load(Ordering::SeqCst) > 0 && self.is_held(map, ranges, shard, access) {
            self.leave(place);
            return None;
        }
        Some(place)
    }

    /// Takes a ticket out.
    pub fn leave(&self, place: Place) {
        {
            let mut tickets = self.lists[place.list].lock().expect("no panic while held");
            tickets.slots[place.slot] = None;
            tickets.free.push(place.slot);
        }
        if self.holding.load(Ordering::SeqCst) > 0 {
            self.left.notify_waiters();
        }
    }

    /// Whether a request would have to wait.
    pub fn is_held(&self, map: &MapName, ranges: &[KeyRange], shard: &ShardId, access: Access) -> bool {
        if access == Access::Write && self.closed.load(Ordering::SeqCst) > 0 {
            return true;
        }
        let holds = self.holds.read().expect("no panic while held");
        holds.iter().any(|hold| hold.stops(map, ranges, shard, access))
    }

    /// Holds the ranges of a fence. False if that raising of it is held already.
    pub fn hold(&self, shard: &ShardId, fence: &FenceRow) -> bool {
        let mut holds = self.holds.write().expect("no panic while held");
        let new = Hold { shard: shard.clone(), fence: fence.clone(), drained: false };
        match holds.iter_mut().find(|hold| hold.fence.op == fence.op && hold.shard == *shard) {
            Some(hold) if hold.fence.attempt == fence.attempt => {
                hold.fence.state = fence.state;
                return false;
            }
            Some(hold) => *hold = new,
            None => {
                holds.push(new);
                self.holding.fetch_add(1, Ordering::SeqCst);
            }
        }
        true
    }

    /// Lets the ranges of a fence go; those that waited look at the map again.
    pub fn release(&self, shard: &ShardId, op: OpId) {
        {
            let mut holds = self.holds.write().expect("no panic while held");
            let before = holds.len();
            holds.retain(|hold| hold.fence.op != op || hold.shard != *shard);
            self.holding.fetch_sub(before - holds.len(), Ordering::SeqCst);
        }
        self.released.notify_waiters();
    }

    /// Lets go of one raising of a fence; a later raising stays held.
    pub fn release_raising(&self, shard: &ShardId, fence: &FenceRow) {
        {
            let mut holds = self.holds.write().expect("no panic while held");
            let before = holds.len();
            let same = |held: &FenceRow| held.op == fence.op && held.attempt == fence.attempt;
            holds.retain(|hold| !same(&hold.fence) || hold.shard != *shard);
            self.holding.fetch_sub(before - holds.len(), Ordering::SeqCst);
        }
        self.released.notify_waiters();
    }

    /// The fences held of a shard.
    pub fn held(&self, shard: &ShardId) -> Vec<FenceRow> {
        let holds = self.holds.read().expect("no panic while held");
        holds.iter().filter(|hold| hold.shard == *shard).map(|hold| hold.fence.clone()).collect()
    }

    /// Whether nobody is in the ranges of a fence any more; remembers it if so.
    pub fn check_drained(&self, shard: &ShardId, fence: &FenceRow) -> bool {
        let probe = Hold { shard: shard.clone(), fence: fence.clone(), drained: false };
        let stopped =
            |inside: &Inside| probe.stops(&inside.map, &inside.ranges, &inside.shard, inside.access);
        for list in &self.lists {
            let tickets = list.lock().expect("no panic while held");
            if tickets.slots.iter().flatten().any(stopped) {
                return false;
            }
        }
        let mut holds = self.holds.write().expect("no panic while held");
        let mine = |hold: &&mut Hold| hold.fence.op == fence.op && hold.fence.attempt == fence.attempt;
        if let Some(hold) = holds.iter_mut().filter(|hold| hold.shard == *shard).find(mine) {
            hold.drained = true;
        }
        true
    }

    /// Whether this router has held and drained the operation's fence: then no ticket of it can be in the way.
    pub fn has_drained(&self, shard: &ShardId, op: OpId) -> bool {
        let holds = self.holds.read().expect("no panic while held");
        holds.iter().any(|hold| hold.shard == *shard && hold.fence.op == op && hold.drained)
    }

    /// Waits until nobody is in the ranges of a fence.
    pub async fn drained(&self, shard: &ShardId, fence: &FenceRow) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.check_drained(shard, fence) {
                return;
            }
            left.await;
        }
    }

    /// Waits until a request need not wait any more.
    pub async fn passable(&self, map: &MapName, ranges: &[KeyRange], shard: &ShardId, access: Access) {
        loop {
            let released = self.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            if !self.is_held(map, ranges, shard, access) {
                return;
            }
            released.await;
        }
    }

    /// Lets no new writes begin.
    pub fn close_to_writes(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
        self.holding.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets them begin again.
    pub fn open_to_writes(&self) {
        self.holding.fetch_sub(1, Ordering::SeqCst);
        self.closed.fetch_sub(1, Ordering::SeqCst);
        self.released.notify_waiters();
    }

    /// Waits until no write is under way.
    pub async fn without_writes(&self) {
        let writes = |list: &Mutex<List>| {
            let tickets = list.lock().expect("no panic while held");
            tickets.slots.iter().flatten().any(|inside| inside.access == Access::Write)
        };
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if !self.lists.iter().any(writes) {
                return;
            }
            left.await;
        }
    }

    /// How many tickets are out.
    pub fn tickets(&self) -> usize {
        let count =
            |list: &Mutex<List>| list.lock().expect("no panic while held").slots.iter().flatten().count();
        self.lists.iter().map(count).sum()
    }

    /// How many holds there are.
    pub fn holds(&self) -> usize {
        self.holding.load(Ordering::SeqCst)
    }
}

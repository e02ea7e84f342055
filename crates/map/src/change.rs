//! Changes of a map as values, and what they come to: rows to remove and rows to put.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::definition::Segment;
use crate::encode::{self, KeyBytes};
use crate::entry::{Entry, NewEntry, State};
use crate::ids::{GroupName, ShardId};
use crate::range::KeyRange;

/// Most entries one change may touch: it is one transaction in the catalog and in each shard.
pub const CHANGE_ENTRIES_MAX: usize = 10_000;
/// Most entries of a group: a group moves in one change.
pub const GROUP_ENTRIES_MAX: usize = CHANGE_ENTRIES_MAX;

/// One operation on a map, over placement bytes. Its preconditions are checked by [`crate::apply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// New entries where nothing is mapped.
    Add {
        /// What to add.
        entries: Vec<NewEntry>,
    },
    /// Nothing is mapped there any more.
    Remove {
        /// What to remove; entries that reach over it are split.
        range: KeyRange,
    },
    /// Re-point a range, and with it every group that has a part in it.
    Assign {
        /// What to assign; entries that reach over it are split.
        range: KeyRange,
        /// Where to.
        to: ShardId,
    },
    /// Re-point all entries of a group.
    AssignGroup {
        /// Which group.
        group: GroupName,
        /// Where to.
        to: ShardId,
    },
    /// Cut the entry that has this bound inside; both parts stay on its shard.
    Split {
        /// The first placement of the upper part.
        at: KeyBytes,
    },
    /// Join the two entries that meet at this bound.
    Merge {
        /// Where one ends and the other begins.
        at: KeyBytes,
    },
    /// Set what may be done with a range.
    SetState {
        /// Which range; entries that reach over it are split.
        range: KeyRange,
        /// The new state.
        state: State,
    },
    /// Hold a range against changes by others; renews a lock of the same owner.
    Lock {
        /// Which range; entries that reach over it are split.
        range: KeyRange,
        /// Who holds it.
        owner: String,
        /// Until when, in milliseconds since 1970.
        until_ms: i64,
    },
    /// Let go of a range.
    Unlock {
        /// Which range; entries that reach over it are split.
        range: KeyRange,
        /// Whose lock; none breaks everyone's.
        owner: Option<String>,
    },
    /// A new segment of a composite map, with entries for its buckets.
    AddSegment {
        /// The new segment.
        segment: Segment,
        /// Entries within it.
        entries: Vec<NewEntry>,
    },
    /// Cut a segment of a range_hash map; the upper part gets the same entries, so that no data moves.
    SplitSegment {
        /// The segment, by its lower bound.
        segment: KeyBytes,
        /// The lower bound of the upper part.
        at: KeyBytes,
    },
    /// Remove a segment and all its entries.
    RemoveSegment {
        /// The segment, by its lower bound.
        segment: KeyBytes,
    },
}

impl Change {
    /// Which rows [`crate::apply`] must be given: every entry that overlaps **or touches** one of these ranges.
    /// Further rows do no harm. Then ask [`Change::groups`] for the rest.
    ///
    /// Over rows sorted by `lo` that is, for each range: from the last row with a `lo` below the range's, to the last
    /// row with a `lo` at or below the range's `hi`.
    pub fn window(&self) -> Vec<KeyRange> {
        match self {
            Change::Add { entries } => entries.iter().map(|entry| entry.range.clone()).collect(),
            Change::Remove { range }
            | Change::Assign { range, .. }
            | Change::SetState { range, .. }
            | Change::Lock { range, .. }
            | Change::Unlock { range, .. } => vec![range.clone()],
            Change::AssignGroup { .. } => Vec::new(),
            Change::Split { at } | Change::Merge { at } => vec![KeyRange::point(at.clone())],
            Change::AddSegment { segment, .. } => vec![segment_stretch(segment.lo())],
            Change::SplitSegment { segment, at } => vec![segment_stretch(segment), segment_stretch(at)],
            Change::RemoveSegment { segment } => vec![segment_stretch(segment)],
        }
    }

    /// The groups whose every entry must be in the window as well, given the rows found so far.
    pub fn groups(&self, window: &[Entry]) -> Vec<GroupName> {
        let groups: BTreeSet<&GroupName> = match self {
            Change::Add { entries } => entries.iter().filter_map(|entry| entry.group.as_ref()).collect(),
            Change::AssignGroup { group, .. } => BTreeSet::from([group]),
            Change::Assign { range, .. } => {
                let met = window.iter().filter(|entry| entry.range.overlaps(range));
                met.filter_map(|entry| entry.group.as_ref()).collect()
            }
            _ => BTreeSet::new(),
        };
        groups.into_iter().cloned().collect()
    }

    /// The shards that it points ranges at.
    pub fn shards(&self) -> BTreeSet<&ShardId> {
        match self {
            Change::Add { entries } | Change::AddSegment { entries, .. } => {
                entries.iter().map(|entry| &entry.shard).collect()
            }
            Change::Assign { to, .. } | Change::AssignGroup { to, .. } => BTreeSet::from([to]),
            _ => BTreeSet::new(),
        }
    }

    /// Whether a router that has not heard of it could do what it no longer may: such a change must be fenced.
    pub fn takes_rights_away(&self) -> bool {
        match self {
            Change::Remove { .. }
            | Change::Assign { .. }
            | Change::AssignGroup { .. }
            | Change::RemoveSegment { .. }
            | Change::SetState { state: State::ReadOnly | State::Offline, .. } => true,
            Change::SetState { state: State::Online, .. }
            | Change::Add { .. }
            | Change::Split { .. }
            | Change::Merge { .. }
            | Change::Lock { .. }
            | Change::Unlock { .. }
            | Change::AddSegment { .. }
            | Change::SplitSegment { .. } => false,
        }
    }
}

/// All of the space that begins with the segment's lower bound, whatever the number of buckets.
fn segment_stretch(lo: &KeyBytes) -> KeyRange {
    let mut from = Vec::with_capacity(lo.as_slice().len() + 8);
    encode::write_escaped(&mut from, lo.as_slice());
    let mut to = from.clone();
    // Buckets are 4 bytes, and none is that high.
    to.extend_from_slice(&u32::MAX.to_be_bytes());
    KeyRange::new(KeyBytes::new(from), Some(KeyBytes::new(to))).expect("the upper bound is longer")
}

/// What a change comes to: remove the rows with exactly these ranges, then put these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    /// Ranges of entries that go, each exactly as it is stored.
    pub remove: Vec<KeyRange>,
    /// Entries that come, sorted, none overlapping another or what stays.
    pub put: Vec<Entry>,
    /// All segments of the map after the change, if it changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<Segment>>,
}

/// A range that leaves a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Where it was.
    pub from: ShardId,
    /// What leaves.
    pub range: KeyRange,
    /// Where it goes; none if it is mapped no more.
    pub to: Option<ShardId>,
}

impl Delta {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.put.is_empty() && self.segments.is_none()
    }

    /// The ranges that leave one shard for another, or for none. `window` is what the delta was made from.
    pub fn departures(&self, window: &[Entry]) -> Vec<Departure> {
        let mut departures = Vec::new();
        let mut put: Vec<&Entry> = self.put.iter().collect();
        put.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
        for entry in self.removed(window) {
            let leaves = |range, to| Departure { from: entry.shard.clone(), range, to };
            let mut from = Some(entry.range.lo().clone());
            let first = put.partition_point(|new| !new.range.ends_after(entry.range.lo()));
            for new in put[first..].iter().take_while(|new| entry.range.ends_after(new.range.lo())) {
                let Some(part) = entry.range.intersect(&new.range) else { continue };
                let Some(lo) = from else { break };
                if let Ok(gap) = KeyRange::new(lo, Some(part.lo().clone())) {
                    departures.push(leaves(gap, None));
                }
                from = part.hi().cloned();
                if new.shard != entry.shard {
                    departures.push(leaves(part, Some(new.shard.clone())));
                }
            }
            if let Some(gap) = from.and_then(|lo| KeyRange::new(lo, entry.range.hi().cloned()).ok()) {
                departures.push(leaves(gap, None));
            }
        }
        departures
    }

    /// Every shard that has or had a part in the change.
    pub fn shards(&self, window: &[Entry]) -> BTreeSet<ShardId> {
        self.removed(window).into_iter().chain(&self.put).map(|entry| entry.shard.clone()).collect()
    }

    /// What the change comes to in the local map of one shard.
    pub fn for_shard(&self, window: &[Entry], shard: &ShardId) -> Delta {
        let gone = self.removed(window).into_iter().filter(|entry| entry.shard == *shard);
        Delta {
            remove: gone.map(|entry| entry.range.clone()).collect(),
            put: self.put.iter().filter(|entry| entry.shard == *shard).cloned().collect(),
            segments: self.segments.clone(),
        }
    }

    fn removed<'a>(&self, window: &'a [Entry]) -> Vec<&'a Entry> {
        let gone: BTreeSet<&KeyRange> = self.remove.iter().collect();
        window.iter().filter(|entry| gone.contains(&entry.range)).collect()
    }
}

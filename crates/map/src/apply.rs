//! Applies a change to a window of entries: checks every precondition, and says which rows go and which come.

use std::collections::BTreeMap;

use crate::change::{CHANGE_ENTRIES_MAX, Change, Delta, GROUP_ENTRIES_MAX};
use crate::definition::{MapDefinition, Scheme};
use crate::encode::KeyBytes;
use crate::entry::{Entry, Lock, NewEntry};
use crate::error::ChangeError;
use crate::ids::{Epoch, GroupName, ShardId};
use crate::range::KeyRange;
use crate::segments;

/// What the change comes to. `window` has the rows named by [`Change::window`] and [`Change::groups`], in any order;
/// `by` is the lock owner who acts; `epoch` is that of the map after the change. An empty delta means that all is as
/// asked already.
pub fn apply(
    definition: &MapDefinition,
    window: &[Entry],
    change: &Change,
    by: Option<&str>,
    epoch: Epoch,
    now_ms: i64,
) -> Result<Delta, ChangeError> {
    let mut sorted: Vec<&Entry> = window.iter().collect();
    sorted.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
    let work = Work { definition, window: sorted, by, epoch, now_ms };
    let mut delta = match change {
        Change::Add { entries } => work.add(definition, entries)?,
        Change::Remove { range } => work.carve(range, by, |_, _| Ok(Piece::Gone))?,
        Change::Assign { range, to } => work.assign(range, to)?,
        Change::AssignGroup { group, to } => work.assign_group(group, to)?,
        Change::Split { at } => work.split(at)?,
        Change::Merge { at } => work.merge(at)?,
        Change::SetState { range, state } => {
            work.carve(range, by, |entry, _| match entry.state == *state {
                true => Ok(Piece::Same),
                false => Ok(Piece::Put(Entry { state: *state, ..entry })),
            })?
        }
        Change::Lock { range, owner, until_ms } => work.lock(range, owner, *until_ms)?,
        Change::Unlock { range, owner } => work.unlock(range, owner.as_deref())?,
        Change::AddSegment { segment, entries } => segments::add(&work, segment, entries)?,
        Change::SplitSegment { segment, at } => segments::split(&work, segment, at)?,
        Change::RemoveSegment { segment } => segments::remove(&work, segment)?,
    };
    let count = delta.put.len().max(delta.remove.len());
    if count > CHANGE_ENTRIES_MAX {
        return Err(ChangeError::TooManyEntries { count });
    }
    delta.put.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
    Ok(delta)
}

/// What becomes of the part of an entry that a change is about.
enum Piece {
    Same,
    Put(Entry),
    Gone,
}

/// The window and the circumstances of one change.
pub(crate) struct Work<'a> {
    pub(crate) definition: &'a MapDefinition,
    /// Sorted by lower bound.
    pub(crate) window: Vec<&'a Entry>,
    by: Option<&'a str>,
    epoch: Epoch,
    now_ms: i64,
}

impl<'a> Work<'a> {
    /// Adds entries; `definition` is that after the change, which may have one more segment.
    pub(crate) fn add(&self, definition: &MapDefinition, new: &[NewEntry]) -> Result<Delta, ChangeError> {
        if new.is_empty() {
            return Err(ChangeError::Empty);
        }
        if new.len() > CHANGE_ENTRIES_MAX {
            return Err(ChangeError::TooManyEntries { count: new.len() });
        }
        let mut put: Vec<Entry> = new.iter().cloned().map(|entry| entry.at(self.epoch)).collect();
        put.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
        for entry in &put {
            definition.check_entry_range(&entry.range)?;
            if let Some(existing) = self.overlapping(&entry.range).next() {
                return Err(ChangeError::Overlap {
                    new: definition.describe_range(&entry.range),
                    existing: definition.describe_range(&existing.range),
                    shard: existing.shard.clone(),
                });
            }
        }
        if let Some(pair) = put.windows(2).find(|pair| pair[0].range.ends_after(pair[1].range.lo())) {
            let (first, second) = (&pair[0].range, &pair[1].range);
            let (first, second) = (definition.describe_range(first), definition.describe_range(second));
            return Err(ChangeError::OverlapInChange { first, second });
        }
        self.check_groups(&put)?;
        Ok(Delta { put, ..Delta::default() })
    }

    fn assign(&self, range: &KeyRange, to: &ShardId) -> Result<Delta, ChangeError> {
        let mut delta = self.carve(range, self.by, |entry, _| {
            // Grouped entries go whole, with their group, below.
            match entry.shard == *to || entry.group.is_some() {
                true => Ok(Piece::Same),
                false => Ok(Piece::Put(Entry { shard: to.clone(), ..entry })),
            }
        })?;
        let change = Change::Assign { range: range.clone(), to: to.clone() };
        let met: Vec<Entry> = self.overlapping(range).cloned().collect();
        for group in change.groups(&met) {
            let whole = self.assign_group(&group, to)?;
            delta.remove.extend(whole.remove);
            delta.put.extend(whole.put);
        }
        Ok(delta)
    }

    fn assign_group(&self, group: &GroupName, to: &ShardId) -> Result<Delta, ChangeError> {
        let members: Vec<&Entry> = self.members(group).collect();
        if members.is_empty() {
            return Err(ChangeError::UnknownGroup { group: group.clone() });
        }
        let mut delta = Delta::default();
        for entry in members.into_iter().filter(|entry| entry.shard != *to) {
            self.check_lock(entry, self.by)?;
            delta.remove.push(entry.range.clone());
            delta.put.push(Entry { shard: to.clone(), ..self.touched(entry) });
        }
        Ok(delta)
    }

    fn split(&self, at: &KeyBytes) -> Result<Delta, ChangeError> {
        self.refuse_list("split", "an entry of a list is one key, which is the smallest part there is")?;
        // Checks that it is a bound of this map at all.
        self.definition
            .clip(&KeyRange::new(at.clone(), None).expect("a range up to infinity is not empty"))?;
        let described = || self.definition.describe_bound(at);
        let not_inside = |entry| ChangeError::NotInside { at: described(), entry: self.describe(entry) };
        let entry = match self.window.iter().copied().find(|entry| entry.range.contains(at.as_slice())) {
            Some(entry) if entry.range.lo() == at => return Err(not_inside(entry)),
            Some(entry) => entry,
            None => match self.window.iter().copied().find(|entry| entry.range.hi() == Some(at)) {
                Some(entry) => return Err(not_inside(entry)),
                None => return Err(ChangeError::Gap { gap: described() }),
            },
        };
        self.check_lock(entry, self.by)?;
        let (lo, hi) = entry.range.clone().into_bounds();
        let whole = self.touched(entry);
        let part = |lo, hi| KeyRange::new(lo, hi).expect("the split point is strictly inside");
        let put = vec![
            Entry { range: part(lo, Some(at.clone())), ..whole.clone() },
            Entry { range: part(at.clone(), hi), ..whole },
        ];
        Ok(Delta { remove: vec![entry.range.clone()], put, segments: None })
    }

    fn merge(&self, at: &KeyBytes) -> Result<Delta, ChangeError> {
        self.refuse_list("merge", "put keys into a group to keep them together")?;
        let left = self.window.iter().find(|entry| entry.range.hi() == Some(at));
        let right = self.window.iter().find(|entry| entry.range.lo() == at);
        let (Some(left), Some(right)) = (left, right) else {
            return Err(ChangeError::NotABoundary { at: self.definition.describe_bound(at) });
        };
        self.check_lock(left, self.by)?;
        self.check_lock(right, self.by)?;
        let (one, other) = (self.touched(left), self.touched(right));
        let differs = |what, left_value: String, right_value: String| ChangeError::MergeDiffers {
            left: self.describe(left),
            right: self.describe(right),
            what,
            left_value,
            right_value,
        };
        if one.shard != other.shard {
            return Err(differs("shard", one.shard.to_string(), other.shard.to_string()));
        }
        if one.state != other.state {
            return Err(differs("state", one.state.to_string(), other.state.to_string()));
        }
        if one.group != other.group {
            let name = |entry: &Entry| entry.group.as_ref().map_or("none".to_owned(), GroupName::to_string);
            return Err(differs("group", name(&one), name(&other)));
        }
        if one.lock != other.lock {
            let shown = |entry: &Entry| match &entry.lock {
                Some(lock) => format!("{:?} until {} ms", lock.owner(), lock.until_ms()),
                None => "none".to_owned(),
            };
            return Err(differs("lock", shown(&one), shown(&other)));
        }
        let (lo, hi) = (left.range.lo().clone(), right.range.hi().cloned());
        let range = KeyRange::new(lo, hi).expect("two neighbours make a range");
        Ok(Delta {
            remove: vec![left.range.clone(), right.range.clone()],
            put: vec![Entry { range, ..one }],
            segments: None,
        })
    }

    fn lock(&self, range: &KeyRange, owner: &str, until_ms: i64) -> Result<Delta, ChangeError> {
        let lock = Lock::new(owner.to_owned(), until_ms)?;
        if !lock.holds_at(self.now_ms) {
            let reason = format!("{until_ms} ms is not after now, {} ms: ask for a later end", self.now_ms);
            return Err(ChangeError::BadLock { owner: owner.to_owned(), reason });
        }
        self.carve(range, Some(owner), |entry, _| Ok(Piece::Put(Entry { lock: Some(lock.clone()), ..entry })))
    }

    fn unlock(&self, range: &KeyRange, owner: Option<&str>) -> Result<Delta, ChangeError> {
        let acting = match owner {
            Some(owner) => Acting::As(Some(owner)),
            None => Acting::ByForce,
        };
        let delta = self.carve_acting(range, acting, |entry, before| match &before.lock {
            Some(_) => Ok(Piece::Put(Entry { lock: None, ..entry })),
            None => Ok(Piece::Same),
        })?;
        match owner {
            Some(owner) if delta.is_empty() => {
                let entry = self.definition.describe_range(range);
                Err(ChangeError::NotLocked { entry, owner: owner.to_owned() })
            }
            _ => Ok(delta),
        }
    }

    fn carve(
        &self,
        range: &KeyRange,
        by: Option<&str>,
        each: impl Fn(Entry, &Entry) -> Result<Piece, ChangeError>,
    ) -> Result<Delta, ChangeError> {
        self.carve_acting(range, Acting::As(by), each)
    }

    /// Cuts the range out of the entries that have it, and replaces each part by what `each` makes of it (given the
    /// part as touched by this change, and the entry as it was). The rest of a cut entry stays as it was, but for
    /// the epoch.
    fn carve_acting(
        &self,
        range: &KeyRange,
        acting: Acting<'_>,
        each: impl Fn(Entry, &Entry) -> Result<Piece, ChangeError>,
    ) -> Result<Delta, ChangeError> {
        let parts = self.definition.clip(range)?;
        let mut delta = Delta::default();
        self.check_mapped(range, &parts)?;
        for part in &parts {
            for entry in self.overlapping(part) {
                if let Acting::As(by) = acting {
                    self.check_lock(entry, by)?;
                }
                let Some(inside) = entry.range.intersect(part) else { continue };
                let whole = self.touched(entry);
                match each(Entry { range: inside.clone(), ..whole.clone() }, entry)? {
                    Piece::Same => continue,
                    Piece::Put(piece) => delta.put.push(piece),
                    Piece::Gone => {}
                }
                delta.remove.push(entry.range.clone());
                let below = KeyRange::new(entry.range.lo().clone(), Some(inside.lo().clone())).ok();
                let above =
                    inside.hi().and_then(|hi| KeyRange::new(hi.clone(), entry.range.hi().cloned()).ok());
                let rests = below.into_iter().chain(above);
                delta.put.extend(rests.map(|range| Entry { range, ..whole.clone() }));
            }
        }
        Ok(delta)
    }

    /// A list has entries for keys, not for what lies between: there one entry is enough. Elsewhere every part of the
    /// range must be mapped.
    fn check_mapped(&self, range: &KeyRange, parts: &[KeyRange]) -> Result<(), ChangeError> {
        let gap = |gap: &KeyRange| Err(ChangeError::Gap { gap: self.definition.describe_range(gap) });
        if parts.is_empty() {
            return gap(range);
        }
        for part in parts {
            if matches!(self.definition.scheme(), Scheme::List) {
                if self.overlapping(part).next().is_none() {
                    return gap(part);
                }
                continue;
            }
            let mut reached = Some(part.lo().clone());
            for entry in self.overlapping(part) {
                let Some(from) = reached else { break };
                if *entry.range.lo() > from {
                    let missing = KeyRange::new(from, Some(entry.range.lo().clone()));
                    return gap(&missing.expect("the next entry begins above"));
                }
                reached = entry.range.hi().cloned();
            }
            if let Some(missing) = reached.and_then(|from| KeyRange::new(from, part.hi().cloned()).ok()) {
                return gap(&missing);
            }
        }
        Ok(())
    }

    /// All members of a group, old and new, are on one shard; and only keys can be grouped, buckets are groups already.
    fn check_groups(&self, put: &[Entry]) -> Result<(), ChangeError> {
        let mut counts: BTreeMap<&GroupName, usize> = BTreeMap::new();
        let mut homes: BTreeMap<&GroupName, &ShardId> = BTreeMap::new();
        for entry in put {
            let Some(group) = &entry.group else { continue };
            if self.definition.scheme().hash().is_some() {
                return Err(ChangeError::WrongScheme {
                    kind: self.definition.scheme().kind(),
                    verb: "have groups",
                    remedy: "keys of one bucket stay together already; assign ranges of buckets",
                });
            }
            let count = counts.entry(group).or_insert_with(|| self.members(group).count());
            *count += 1;
            if *count > GROUP_ENTRIES_MAX {
                return Err(ChangeError::TooManyEntries { count: *count });
            }
            let existing = self.members(group).next().map(|member| &member.shard);
            let home = *homes.entry(group).or_insert(existing.unwrap_or(&entry.shard));
            if *home != entry.shard {
                return Err(ChangeError::GroupElsewhere {
                    group: group.clone(),
                    shard: home.clone(),
                    entry: self.describe(entry),
                    other: entry.shard.clone(),
                });
            }
        }
        Ok(())
    }

    pub(crate) fn check_lock(&self, entry: &Entry, by: Option<&str>) -> Result<(), ChangeError> {
        match &entry.lock {
            Some(lock) if lock.holds_at(self.now_ms) && by != Some(lock.owner()) => {
                Err(ChangeError::Locked {
                    entry: self.describe(entry),
                    owner: lock.owner().to_owned(),
                    until_ms: lock.until_ms(),
                })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check_own_lock(&self, entry: &Entry) -> Result<(), ChangeError> {
        self.check_lock(entry, self.by)
    }

    /// The entry with the epoch of this change, and without a lock that has expired.
    pub(crate) fn touched(&self, entry: &Entry) -> Entry {
        let lock = entry.lock.clone().filter(|lock| lock.holds_at(self.now_ms));
        Entry { epoch: self.epoch, lock, ..entry.clone() }
    }

    /// The entries of the window that share bytes with the range, in order.
    pub(crate) fn overlapping<'w>(&'w self, range: &'w KeyRange) -> impl Iterator<Item = &'a Entry> + 'w {
        let first = self.window.partition_point(|entry| !entry.range.ends_after(range.lo()));
        self.window[first..].iter().copied().take_while(|entry| range.ends_after(entry.range.lo()))
    }

    fn members<'w>(&'w self, group: &'w GroupName) -> impl Iterator<Item = &'a Entry> + 'w {
        self.window.iter().copied().filter(move |entry| entry.group.as_ref() == Some(group))
    }

    fn describe(&self, entry: &Entry) -> String {
        self.definition.describe_range(&entry.range)
    }

    fn refuse_list(&self, verb: &'static str, remedy: &'static str) -> Result<(), ChangeError> {
        match self.definition.scheme() {
            Scheme::List => Err(ChangeError::WrongScheme { kind: "list", verb, remedy }),
            _ => Ok(()),
        }
    }
}

/// On whose behalf locks are looked at.
#[derive(Clone, Copy)]
enum Acting<'b> {
    As(Option<&'b str>),
    ByForce,
}

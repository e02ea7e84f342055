//! What callers were told, and what must be found because of it: every row exactly once, and one history for each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::history::History;

/// How long traffic may stand still before that is a failure; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

/// A row that is put once and perhaps deleted: the kind of thing, its tenant, its number.
pub type Item = (&'static str, i64, i64);

/// What is known of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was acknowledged.
    There,
    /// Its deletion was acknowledged.
    Gone,
    /// Nobody was told what became of the last write.
    Unknown,
}

/// A counter: what it is kept in, and its tenant.
pub type Counter = (&'static str, i64);

/// All that callers were told.
#[derive(Default)]
pub struct Ledger {
    items: Mutex<BTreeMap<Item, Fate>>,
    counters: Mutex<BTreeMap<Counter, History>>,
    /// Items that were written together by a write that nobody knows the end of.
    together: Mutex<Vec<Vec<Item>>>,
    /// When messages were handed to callers: asked and answered.
    taken: Mutex<BTreeMap<Item, Vec<(Instant, Instant)>>>,
    /// When deletions were acknowledged.
    gone: Mutex<BTreeMap<Item, Instant>>,
    errors: Mutex<Vec<(usize, String)>>,
    /// Acknowledged writes, by tenant.
    writes: Mutex<BTreeMap<i64, u64>>,
    numbers: AtomicU64,
}

impl Ledger {
    /// A number that no other item has.
    pub fn number(&self) -> i64 {
        self.numbers.fetch_add(1, Ordering::SeqCst) as i64
    }

    /// An item was put or deleted, or nobody knows.
    pub fn note(&self, item: Item, fate: Fate) {
        self.items.lock().unwrap().insert(item, fate);
        if fate == Fate::Gone {
            self.gone.lock().unwrap().entry(item).or_insert_with(Instant::now);
        }
        if fate != Fate::Unknown {
            *self.writes.lock().unwrap().entry(item.1).or_default() += 1;
        }
    }

    /// An item was put: it is there, unless somebody has deleted it before that was heard.
    pub fn note_put(&self, item: Item) {
        let gone = self.items.lock().unwrap().get(&item) == Some(&Fate::Gone);
        if !gone {
            self.note(item, Fate::There);
        }
    }

    /// Nobody knows any more whether an item is there, unless it is known to be gone.
    pub fn doubt(&self, item: Item) {
        let mut items = self.items.lock().unwrap();
        if items.get(&item) != Some(&Fate::Gone) {
            items.insert(item, Fate::Unknown);
        }
    }

    /// A message was handed to a caller, for whom alone it is for so long. Says what is wrong with that.
    pub fn taken(&self, item: Item, from: Instant, hidden: Duration) -> Option<String> {
        let to = Instant::now();
        if self.gone.lock().unwrap().get(&item).is_some_and(|gone| *gone < from) {
            return Some(format!("LOST: {item:?} is handed out after its deletion was acknowledged"));
        }
        let mut taken = self.taken.lock().unwrap();
        let takes = taken.entry(item).or_default();
        // Whichever of two was first, the other one was answered after its time.
        let meets = |before: &&(Instant, Instant)| to < before.0 + hidden && before.1 < from + hidden;
        let met = takes.iter().find(meets).map(|_| format!("LOST: {item:?} is handed out to two at a time"));
        takes.push((from, to));
        met
    }

    /// Items of this kind that were acknowledged and are not among those found.
    pub fn missing(&self, kind: &str, found: &[(i64, i64)]) -> usize {
        let all: BTreeSet<(i64, i64)> = found.iter().copied().collect();
        let items = self.items.lock().unwrap();
        let there = items.iter().filter(|((of, _, _), fate)| *of == kind && **fate == Fate::There);
        there.filter(|((_, tenant, id), _)| !all.contains(&(*tenant, *id))).count()
    }

    /// Items were put or deleted by one write, or nobody knows: then all of them were, or none.
    pub fn note_together(&self, items: &[Item], fate: Fate) {
        items.iter().for_each(|item| self.note(*item, fate));
        if fate == Fate::Unknown {
            self.together.lock().unwrap().push(items.to_vec());
        }
    }

    /// A counter was increased to this value, or nobody knows.
    pub fn bumped(&self, counter: Counter, from: Instant, value: Option<i64>) {
        let to = Instant::now();
        let mut counters = self.counters.lock().unwrap();
        let history = counters.entry(counter).or_default();
        match value {
            Some(value) => history.bumped(from, to, value),
            None => history.unknown(from),
        }
    }

    /// A counter was read.
    pub fn seen(&self, counter: Counter, from: Instant, value: i64) {
        let to = Instant::now();
        self.counters.lock().unwrap().entry(counter).or_default().seen(from, to, value);
    }

    /// A caller of this process was told of a failure.
    pub fn failed(&self, process: usize, error: String) {
        self.errors.lock().unwrap().push((process, error));
    }

    /// What callers of this process were told of failures.
    pub fn errors_of(&self, process: usize) -> Vec<String> {
        let errors = self.errors.lock().unwrap();
        errors.iter().filter(|(of, _)| *of == process).map(|(_, error)| error.clone()).collect()
    }

    /// Waits until so many more writes were acknowledged for these tenants.
    pub fn until_written(&self, tenants: std::ops::Range<i64>, more: u64) {
        let count =
            || -> u64 { self.writes.lock().unwrap().range(tenants.clone()).map(|(_, count)| count).sum() };
        let (from, deadline) = (count(), Instant::now() + PATIENCE);
        while count() < from + more {
            let last = || self.errors.lock().unwrap().last().cloned();
            assert!(Instant::now() < deadline, "writers of {tenants:?} do not go on: {:?}", last());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Every item of this kind that was acknowledged is among those found, once, and nothing else is.
    #[track_caller]
    pub fn assert_found(&self, kind: &str, found: &[(i64, i64)]) {
        let all: BTreeSet<(i64, i64)> = found.iter().copied().collect();
        assert_eq!(all.len(), found.len(), "some {kind} is found twice");
        let items = self.items.lock().unwrap();
        let mut wrong = Vec::new();
        for ((_, tenant, id), fate) in items.iter().filter(|((of, _, _), _)| *of == kind) {
            match (fate, all.contains(&(*tenant, *id))) {
                (Fate::There, true) | (Fate::Gone, false) | (Fate::Unknown, _) => {}
                (fate, is) => wrong.push(format!("{kind} {id} of {tenant}: {fate:?}, found: {is}")),
            }
        }
        let strange = |(tenant, id): &&(i64, i64)| {
            !items.keys().any(|(of, owner, number)| (*of, owner, number) == (kind, tenant, id))
        };
        wrong.extend(all.iter().filter(strange).map(|found| format!("{kind} {found:?} was never put")));
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), items.len(), wrong.join("\n"));
    }

    /// What was written together is there together, or not at all.
    #[track_caller]
    pub fn assert_together(&self, kind: &str, found: &[(i64, i64)]) {
        let all: BTreeSet<(i64, i64)> = found.iter().copied().collect();
        let (items, together) = (self.items.lock().unwrap(), self.together.lock().unwrap());
        for group in together.iter() {
            // What has been written again since, and is known, does not count.
            let open = group.iter().filter(|item| item.0 == kind && items[*item] == Fate::Unknown);
            let (there, gone): (Vec<&Item>, Vec<&Item>) =
                open.partition(|(_, tenant, id)| all.contains(&(*tenant, *id)));
            assert!(there.is_empty() || gone.is_empty(), "half of a write: {there:?} there, {gone:?} not");
        }
    }

    /// The histories are those of counters that one machine keeps: each increase gives the next number, whoever asks
    /// later sees no less, and what is there at the end is what was acknowledged, and perhaps what nobody knows of.
    #[track_caller]
    pub fn assert_linear(&self, kind: &str, last: &BTreeMap<i64, i64>) {
        let counters = self.counters.lock().unwrap();
        for ((_, tenant), history) in counters.iter().filter(|((of, _), _)| *of == kind) {
            let end = *last.get(tenant).unwrap_or_else(|| panic!("the {kind} of {tenant} is gone"));
            let fault = history.fault(end);
            assert!(fault.is_none(), "{kind} of {tenant}: {}", fault.unwrap_or_default());
        }
    }
}

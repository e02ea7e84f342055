//! What callers were told, and what must be found because of it: every row exactly once, and one history for each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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

/// A counter of a tenant, read or increased.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// When it was asked, and when it was answered.
    from: Instant,
    to: Instant,
    value: i64,
    bumped: bool,
}

/// The history of one counter: looks that were answered, and when increases without an answer were asked for.
#[derive(Debug, Default)]
struct History {
    looks: Vec<Look>,
    unknown: Vec<Instant>,
}

/// All that callers were told.
#[derive(Default)]
pub struct Ledger {
    items: Mutex<BTreeMap<Item, Fate>>,
    counters: Mutex<BTreeMap<i64, History>>,
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
        if fate != Fate::Unknown {
            *self.writes.lock().unwrap().entry(item.1).or_default() += 1;
        }
    }

    /// A counter was increased to this value, or nobody knows.
    pub fn bumped(&self, tenant: i64, from: Instant, value: Option<i64>) {
        let mut counters = self.counters.lock().unwrap();
        let history = counters.entry(tenant).or_default();
        match value {
            Some(value) => history.looks.push(Look { from, to: Instant::now(), value, bumped: true }),
            None => history.unknown.push(from),
        }
    }

    /// A counter was read.
    pub fn seen(&self, tenant: i64, from: Instant, value: i64) {
        let look = Look { from, to: Instant::now(), value, bumped: false };
        self.counters.lock().unwrap().entry(tenant).or_default().looks.push(look);
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

    /// The histories are those of counters that one machine keeps: each increase gives the next number, whoever asks
    /// later sees no less, and what is there at the end is what was acknowledged, and perhaps what nobody knows of.
    #[track_caller]
    pub fn assert_linear(&self, last: &BTreeMap<i64, i64>) {
        let counters = self.counters.lock().unwrap();
        for (tenant, history) in counters.iter() {
            let end = *last.get(tenant).unwrap_or_else(|| panic!("the counter of {tenant} is gone"));
            history.assert_linear(*tenant, end);
        }
    }
}

impl History {
    fn assert_linear(&self, tenant: i64, end: i64) {
        let mut bumps: BTreeMap<i64, Look> = BTreeMap::new();
        for look in self.looks.iter().filter(|look| look.bumped) {
            let twice = bumps.insert(look.value, *look);
            assert!(twice.is_none(), "counter of {tenant}: two increases gave {}", look.value);
        }
        let known = bumps.len();
        let most = (known + self.unknown.len()) as i64;
        assert!(
            (known as i64..=most).contains(&end),
            "counter of {tenant} is {end}, after {known} increases and {} unknown ones",
            self.unknown.len()
        );
        // In the order in which they were asked: none may give less than what was answered before it was asked.
        let mut by_answer: Vec<&Look> = self.looks.iter().collect();
        by_answer.sort_by_key(|look| look.to);
        let mut by_ask: Vec<&Look> = self.looks.iter().collect();
        by_ask.sort_by_key(|look| look.from);
        let (mut answered, mut floor) = (0, 0);
        for look in by_ask {
            while by_answer.get(answered).is_some_and(|before| before.to < look.from) {
                floor = floor.max(by_answer[answered].value);
                answered += 1;
            }
            let enough = if look.bumped { look.value > floor } else { look.value >= floor };
            assert!(enough, "counter of {tenant} goes back: {} after {floor}", look.value);
            assert!(look.value <= end, "counter of {tenant} was {} and is {end}", look.value);
            // No value comes from the future: so many increases had been asked for.
            let asked = bumps.values().filter(|bump| bump.from <= look.to).count()
                + self.unknown.iter().filter(|from| **from <= look.to).count();
            assert!(look.value <= asked as i64, "counter of {tenant} is {} after {asked} asked", look.value);
        }
    }
}

//! Quotas: how many requests a second a shardlet or a dataset may have, and when one that came too early may come
//! again (E6).
//!
//! A quota is a moment until which the requests of its holder are paid for. A request moves it on by its share of a
//! second; it may be at most [`BURST`] ahead of now. So a holder that was quiet may have a second's worth at once, and
//! one that never rests gets its rate evenly. A quota that is not ahead of now has nothing to remember.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use polyshard_catalog::{DatasetRecord, QUOTA_STORE};
use polyshard_map::{Key, MapName};
use polyshard_meter::Counter;
use polyshard_router::{Router, View};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How much of its rate a holder that was quiet may have at once.
const BURST: Duration = Duration::from_secs(1);
/// Keys of one map whose requests are remembered under a quota for each; those that have rested are forgotten first.
const EACH_MAX: usize = 65_536;
/// Requests a second that a quota may allow: more is no limit.
pub const QUOTA_MAX: u64 = 1_000_000_000;

/// Whose requests a quota counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum QuotaOf {
    /// One shardlet of the map, by its key in JSON.
    Key(serde_json::Value),
    /// Every shardlet of the map that has none of its own, each by itself.
    Each,
    /// A dataset: its store and name.
    Dataset(String, String),
}

/// What the catalog keeps of a quota, as the body of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaBody {
    /// The form of this record.
    pub format: u32,
    /// Whose.
    pub of: QuotaOf,
    /// Requests a second, of all server processes together.
    pub requests: u64,
}

/// The form of records that this program writes.
pub const QUOTA_FORMAT: u32 = 1;

/// One holder's quota in this process.
#[derive(Debug)]
struct Quota {
    /// Requests a second.
    rate: u64,
    /// Until when requests are paid for, in nanoseconds after the start.
    paid_until: AtomicU64,
}

impl Quota {
    fn new(rate: u64) -> Quota {
        Quota { rate, paid_until: AtomicU64::new(0) }
    }

    /// Counts a request that is under way already: those who come later pay for it.
    fn charge(&self, now: u64, processes: u64) {
        let each = self.each(processes);
        let pay = |had: u64| Some(had.max(now).saturating_add(each));
        // It never declines, so there is always an answer.
        let _had = self.paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
    }

    /// What one request moves the moment on by.
    fn each(&self, processes: u64) -> u64 {
        (1_000_000_000 * processes).div_ceil(self.rate.max(1))
    }

    /// Lets `units` requests in at a moment, if there is room for the first of them; else tells how long to wait. More
    /// than one are paid for by those who come later.
    fn admit(&self, now: u64, units: u64, processes: u64) -> Result<(), Duration> {
        let each = self.each(processes);
        let burst = (BURST.as_nanos() as u64).max(each);
        let mut had = self.paid_until.load(Ordering::Relaxed);
        loop {
            let from = had.max(now);
            let first = from.saturating_add(each) - now;
            if first > burst {
                return Err(Duration::from_nanos(first - burst));
            }
            let next = from.saturating_add(each.saturating_mul(units));
            match self.paid_until.compare_exchange_weak(had, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => had = other,
            }
        }
    }
}

/// Quotas of one map's shardlets.
#[derive(Debug, Default)]
struct OfMap {
    keys: HashMap<Key, Arc<Quota>>,
    each: Option<Arc<Each>>,
}

impl OfMap {
    fn of(&self, key: &Key, now: u64) -> Option<Arc<Quota>> {
        match self.keys.get(key) {
            Some(own) => Some(own.clone()),
            None => self.each.as_ref().map(|each| each.of(key, now)),
        }
    }
}

/// One quota for every shardlet that has none of its own.
#[derive(Debug)]
struct Each {
    rate: u64,
    keys: Mutex<HashMap<Key, Arc<Quota>>>,
}

impl Each {
    fn of(&self, key: &Key, now: u64) -> Arc<Quota> {
        let mut keys = self.keys.lock().expect("no panic while held");
        if let Some(known) = keys.get(key) {
            return known.clone();
        }
        if keys.len() >= EACH_MAX {
            keys.retain(|_, quota| quota.paid_until.load(Ordering::Relaxed) > now);
            if keys.len() >= EACH_MAX {
                // As many are busy at this moment: the count of one of them begins anew.
                if let Some(any) = keys.keys().next().cloned() {
                    keys.remove(&any);
                }
            }
        }
        let fresh = Arc::new(Quota::new(self.rate));
        keys.insert(key.clone(), fresh.clone());
        fresh
    }
}

/// All quotas of one view.
#[derive(Debug)]
struct QuotaSet {
    start: Instant,
    /// Server processes that share each quota.
    processes: AtomicU32,
    maps: HashMap<MapName, OfMap>,
    datasets: HashMap<(String, String), Arc<Quota>>,
    /// What they were made of: number and version of each record.
    made_of: Vec<(u64, u64)>,
}

impl QuotaSet {
    fn none() -> QuotaSet {
        let (maps, datasets, made_of) = (HashMap::new(), HashMap::new(), Vec::new());
        QuotaSet { start: Instant::now(), processes: AtomicU32::new(1), maps, datasets, made_of }
    }

    /// Those of a view, if they are others. What is paid for stays paid for where the rate is the same.
    fn of(&self, view: &View) -> Option<QuotaSet> {
        let records = || view.datasets_of(QUOTA_STORE).filter(|record| view.maps.contains_key(&record.map));
        let made_of: Vec<(u64, u64)> = records().map(|record| (record.id, record.version)).collect();
        if made_of == self.made_of {
            return None;
        }
        let mut next = QuotaSet {
            start: self.start,
            processes: AtomicU32::new(self.processes.load(Ordering::Relaxed)),
            maps: HashMap::new(),
            datasets: HashMap::new(),
            made_of,
        };
        for record in records() {
            if let Err(why) = next.add(self, view, record) {
                tracing::warn!(quota = record.name, why, "a quota cannot be read, and is not kept to");
            }
        }
        Some(next)
    }

    fn add(&mut self, old: &QuotaSet, view: &View, record: &DatasetRecord) -> Result<(), String> {
        let body: QuotaBody =
            serde_json::from_value(record.body.clone()).map_err(|error| error.to_string())?;
        if body.format > QUOTA_FORMAT {
            return Err(format!("its format {} is of a newer program", body.format));
        }
        let rate = body.requests;
        let kept = |known: Option<&Arc<Quota>>| match known.filter(|known| known.rate == rate) {
            Some(known) => known.clone(),
            None => Arc::new(Quota::new(rate)),
        };
        let of_map = self.maps.entry(record.map.clone()).or_default();
        match body.of {
            QuotaOf::Each => {
                let before = old.maps.get(&record.map).and_then(|map| map.each.as_ref());
                let before = before.filter(|each| each.rate == rate).cloned();
                let fresh = || Arc::new(Each { rate, keys: Mutex::default() });
                of_map.each = Some(before.unwrap_or_else(fresh));
            }
            QuotaOf::Key(key) => {
                let known = view.maps.get(&record.map).ok_or("its map is gone")?;
                let key = known.map.definition().key_type().from_json(&key);
                let key = key.map_err(|error| error.to_string())?;
                let before = old.maps.get(&record.map).and_then(|map| map.keys.get(&key));
                of_map.keys.insert(key, kept(before));
            }
            QuotaOf::Dataset(store, name) => {
                let dataset = (store, name);
                let before = kept(old.datasets.get(&dataset));
                self.datasets.insert(dataset, before);
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn processes(&self) -> u64 {
        u64::from(self.processes.load(Ordering::Relaxed).max(1))
    }

    /// Lets a request for some keys in, or says when it may come again.
    fn admit(&self, map: &MapName, keys: &[Key], units: u64) -> Result<(), OverQuota> {
        let Some(of_map) = self.maps.get(map) else { return Ok(()) };
        let now = self.now();
        for key in keys {
            let Some(quota) = of_map.of(key, now) else { continue };
            quota.admit(now, units, self.processes()).map_err(|after| OverQuota {
                of: format!("key {key} of map {map}"),
                rate: quota.rate,
                after,
            })?;
        }
        Ok(())
    }

    /// Counts a request for some keys that is under way already.
    fn charge(&self, map: &MapName, keys: &[Key]) {
        let Some(of_map) = self.maps.get(map) else { return };
        let now = self.now();
        for key in keys {
            if let Some(quota) = of_map.of(key, now) {
                quota.charge(now, self.processes());
            }
        }
    }

    fn admit_to(&self, dataset: &DatasetRecord, units: u64) -> Result<(), OverQuota> {
        if self.datasets.is_empty() {
            return Ok(());
        }
        let name = (dataset.store.clone(), dataset.name.clone());
        let Some(quota) = self.datasets.get(&name) else { return Ok(()) };
        quota.admit(self.now(), units, self.processes()).map_err(|after| OverQuota {
            of: format!("{} {}", name.0, name.1),
            rate: quota.rate,
            after,
        })
    }
}

/// The quotas of this process. They follow the router's view.
pub struct Quotas {
    router: Arc<Router>,
    set: ArcSwap<QuotaSet>,
    /// The number of the view that the set is of, as [`Router::view_number`] counts.
    seen: AtomicU64,
    /// Held while a new set is made: what is counted meanwhile stays counted.
    changing: Mutex<()>,
    rejected: Counter,
}

impl Quotas {
    pub(crate) fn new(router: Arc<Router>) -> Quotas {
        let set = ArcSwap::from_pointee(QuotaSet::none());
        Quotas {
            router,
            set,
            seen: AtomicU64::new(0),
            changing: Mutex::default(),
            rejected: Counter::default(),
        }
    }

    /// The quotas of the router's view. Most requests find that the view is still the same, by one number.
    fn now(&self) -> Guard<Arc<QuotaSet>> {
        if self.seen.load(Ordering::Acquire) != self.router.view_number() {
            self.follow();
        }
        self.set.load()
    }

    #[cold]
    fn follow(&self) {
        let _changing = self.changing.lock().expect("no panic while held");
        // The number first: the view is then at least as new.
        let number = self.router.view_number();
        let next = self.set.load().of(&self.router.view());
        if let Some(next) = next {
            self.set.store(Arc::new(next));
        }
        self.seen.store(number, Ordering::Release);
    }

    /// Lets a request for some keys in, or says when it may come again. It is asked once for a request, however often
    /// that is tried.
    pub fn admit(&self, map: &MapName, keys: &[Key]) -> Result<(), OverQuota> {
        let quotas = self.now();
        if quotas.made_of.is_empty() {
            return Ok(());
        }
        self.counted(quotas.admit(map, keys, 1))
    }

    /// Lets a request in, as [`Quotas::admit`] does, unless that would refuse it: then that is to be asked, which
    /// counts it.
    pub fn try_admit(&self, map: &MapName, key: &Key) -> bool {
        let quotas = self.now();
        quotas.made_of.is_empty() || quotas.admit(map, std::slice::from_ref(key), 1).is_ok()
    }

    /// Counts a request for some keys that is part of something under way, which is not broken off.
    pub fn charge(&self, map: &MapName, keys: &[Key]) {
        let quotas = self.now();
        if !quotas.made_of.is_empty() {
            quotas.charge(map, keys);
        }
    }

    /// The same as [`Quotas::admit`] for a request that is for some items of a dataset: of one key, or of all.
    pub fn admit_to(
        &self,
        dataset: &DatasetRecord,
        key: Option<&Key>,
        items: usize,
    ) -> Result<(), OverQuota> {
        let quotas = self.now();
        if quotas.made_of.is_empty() {
            return Ok(());
        }
        let units = items.max(1) as u64;
        let key = key.map(std::slice::from_ref).unwrap_or_default();
        // The key first: one that is refused must not use up what others may have of the dataset.
        let admitted = quotas.admit(&dataset.map, key, units);
        self.counted(admitted.and_then(|()| quotas.admit_to(dataset, units)))
    }

    /// Says how many server processes share the quotas: each lets in its part.
    pub fn share(&self, processes: usize) {
        let processes = u32::try_from(processes).unwrap_or(u32::MAX).max(1);
        // Not while a new set is made, which would not have it.
        let _changing = self.changing.lock().expect("no panic while held");
        self.set.load().processes.store(processes, Ordering::Relaxed);
    }

    /// How many server processes share the quotas, as far as this one has heard.
    pub fn processes(&self) -> usize {
        self.set.load().processes.load(Ordering::Relaxed) as usize
    }

    /// Requests that were rejected so far.
    pub fn rejected(&self) -> u64 {
        self.rejected.get()
    }

    fn counted(&self, admitted: Result<(), OverQuota>) -> Result<(), OverQuota> {
        admitted.inspect_err(|_| self.rejected.add_one())
    }
}

/// There were more requests than a quota allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{of} has had the {rate} requests a second of its quota; try again in {} ms", .after.as_millis().max(1))]
pub struct OverQuota {
    /// Whose quota.
    pub of: String,
    /// Requests a second.
    pub rate: u64,
    /// When there is room for one.
    pub after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_second_at_once_and_then_the_rate() {
        let quota = Quota::new(10);
        let at_once = (0..20).filter(|_| quota.admit(5 * SECOND, 1, 1).is_ok()).count();
        assert_eq!(at_once, 10);
        let after = quota.admit(5 * SECOND, 1, 1).unwrap_err();
        assert_eq!(after, Duration::from_millis(100));
        assert!(quota.admit(5 * SECOND + 100_000_000, 1, 1).is_ok());
        assert!(quota.admit(5 * SECOND + 100_000_000, 1, 1).is_err());
        let mut passed = 0;
        for tick in 1..=1_000 {
            passed += usize::from(quota.admit(6 * SECOND + tick * 10_000_000, 1, 1).is_ok());
        }
        assert!((99..=110).contains(&passed), "{passed} in ten seconds");
    }

    #[test]
    fn many_at_once_are_paid_for_later() {
        let quota = Quota::new(10);
        assert!(quota.admit(0, 100, 1).is_ok());
        assert_eq!(quota.admit(0, 1, 1), Err(Duration::from_millis(9_100)));
        assert!(quota.admit(9 * SECOND, 1, 1).is_err());
        assert!(quota.admit(9 * SECOND + 100_000_000, 1, 1).is_ok());
    }

    #[test]
    fn processes_share_a_rate_and_a_slow_one_still_gets_one() {
        let quota = Quota::new(10);
        assert_eq!((0..20).filter(|_| quota.admit(0, 1, 5).is_ok()).count(), 2);
        let slow = Quota::new(1);
        assert!(slow.admit(0, 1, 4).is_ok() && slow.admit(3 * SECOND, 1, 4).is_err());
        assert!(slow.admit(4 * SECOND, 1, 4).is_ok());
    }

    #[test]
    fn keys_that_have_rested_are_forgotten_first() {
        let each = Each { rate: 1, keys: Mutex::default() };
        for number in 0..EACH_MAX as i64 {
            drop(each.of(&Key::BigInt(number), 0));
        }
        assert!(each.of(&Key::BigInt(7), 0).admit(0, 1, 1).is_ok());
        drop(each.of(&Key::BigInt(-1), SECOND / 2));
        let keys = each.keys.lock().unwrap();
        assert_eq!(keys.len(), 2, "the busy one and the new one");
        assert!(keys.contains_key(&Key::BigInt(7)));
    }
}

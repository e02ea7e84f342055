//! The heaviest of many things, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi, 2005).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

/// Counts the heaviest things among any number of them. A thing that came more often than one in `capacity` of all is
/// surely among them; a count is too high by at most its `error`.
#[derive(Debug)]
pub struct Top<K> {
    capacity: usize,
    counts: Mutex<HashMap<K, Count>>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    count: u64,
    error: u64,
}

/// One of the heaviest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heavy<K> {
    /// What.
    pub key: K,
    /// How often it came, at most.
    pub count: u64,
    /// By how much the count may be too high.
    pub error: u64,
}

impl<K: Eq + Hash + Clone> Top<K> {
    /// Keeps so many.
    pub fn new(capacity: usize) -> Top<K> {
        Top { capacity: capacity.max(1), counts: Mutex::new(HashMap::with_capacity(capacity)) }
    }

    /// It came so many times. If another thread is counting just now, this one is not counted: the heaviest come
    /// often enough, and nobody waits.
    pub fn add(&self, key: &K, times: u64) {
        let Ok(mut counts) = self.counts.try_lock() else { return };
        if let Some(known) = counts.get_mut(key) {
            known.count += times;
            return;
        }
        let mut error = 0;
        if counts.len() >= self.capacity {
            let lightest = counts.iter().min_by_key(|(_, known)| known.count);
            let lightest = lightest.map(|(key, known)| (key.clone(), known.count));
            if let Some((lightest, count)) = lightest {
                counts.remove(&lightest);
                error = count;
            }
        }
        counts.insert(key.clone(), Count { count: error + times, error });
    }

    /// Halves all counts, so that what was long ago weighs less; what comes to nothing is forgotten.
    pub fn halve(&self) {
        let mut counts = self.counts.lock().expect("no panic while held");
        counts.retain(|_, known| {
            known.count /= 2;
            known.error /= 2;
            known.count > 0
        });
    }

    /// The heaviest, the heaviest first.
    pub fn heaviest(&self, limit: usize) -> Vec<Heavy<K>> {
        let counts = self.counts.lock().expect("no panic while held");
        let heavy =
            |(key, known): (&K, &Count)| Heavy { key: key.clone(), count: known.count, error: known.error };
        let mut all: Vec<Heavy<K>> = counts.iter().map(heavy).collect();
        drop(counts);
        all.sort_by_key(|heavy| std::cmp::Reverse(heavy.count - heavy.error));
        all.truncate(limit);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Top;

    #[test]
    fn the_heaviest_are_found_among_many_more_than_fit() {
        let top = Top::new(64);
        for round in 0..20_000u64 {
            top.add(&(1_000_000 + round), 1);
            if round % 4 == 0 {
                top.add(&7, 1);
            }
            if round % 10 == 0 {
                top.add(&8, 1);
            }
        }
        let heaviest: Vec<u64> = top.heaviest(2).into_iter().map(|heavy| heavy.key).collect();
        assert_eq!(heaviest, [7, 8]);
        assert!(top.heaviest(1000).len() <= 64);
        assert!(top.heaviest(1)[0].count >= 5_000, "a count is never too low");
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let top = Top::new(4);
        top.add(&"old", 3);
        top.halve();
        top.halve();
        assert!(top.heaviest(4).is_empty());
    }
}

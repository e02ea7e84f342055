//! The heaviest of many things, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi, 2005).

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

/// Counts the heaviest things among any number of them. A thing that came more often than one in `capacity` of all is
/// surely among them; a count is too high by at most its `error`.
#[derive(Debug)]
pub struct Top<K> {
    capacity: usize,
    ranks: Mutex<Ranks<K>>,
}

/// Things and their counts, so that the lightest is at hand.
#[derive(Debug)]
struct Ranks<K> {
    /// In which slot each is.
    slots_of: HashMap<K, usize>,
    slots: Vec<Slot<K>>,
    /// The slots as a binary heap, the lightest at the top.
    heap: Vec<usize>,
}

#[derive(Debug)]
struct Slot<K> {
    key: K,
    count: u64,
    error: u64,
    /// Where in the heap it is.
    rank: usize,
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
        let capacity = capacity.max(1);
        Top { capacity, ranks: Mutex::new(Ranks::of(Vec::with_capacity(capacity))) }
    }

    /// It came so many times. If another thread is counting just now, this one is not counted: the heaviest come
    /// often enough, and nobody waits.
    pub fn add(&self, key: &K, times: u64) {
        let Ok(mut ranks) = self.ranks.try_lock() else { return };
        match ranks.slots_of.get(key) {
            Some(&slot) => ranks.grow(slot, times),
            None if ranks.slots.len() < self.capacity => ranks.insert(key, times),
            None => ranks.replace_lightest(key, times),
        }
    }

    /// Halves all counts, so that what was long ago weighs less; what comes to nothing is forgotten.
    pub fn halve(&self) {
        let mut ranks = self.ranks.lock().expect("no panic while held");
        let mut slots = std::mem::take(&mut ranks.slots);
        slots.retain_mut(|slot| {
            slot.count /= 2;
            slot.error /= 2;
            slot.count > 0
        });
        *ranks = Ranks::of(slots);
    }

    /// The heaviest, the heaviest first.
    pub fn heaviest(&self, limit: usize) -> Vec<Heavy<K>> {
        let ranks = self.ranks.lock().expect("no panic while held");
        let heavy = |slot: &Slot<K>| Heavy { key: slot.key.clone(), count: slot.count, error: slot.error };
        let mut all: Vec<Heavy<K>> = ranks.slots.iter().map(heavy).collect();
        drop(ranks);
        all.sort_by_key(|heavy| std::cmp::Reverse(heavy.count - heavy.error));
        all.truncate(limit);
        all
    }
}

impl<K: Eq + Hash + Clone> Ranks<K> {
    /// Of these, whatever their ranks were.
    fn of(mut slots: Vec<Slot<K>>) -> Ranks<K> {
        // What is in order is a heap.
        slots.sort_by_key(|slot| slot.count);
        for (rank, slot) in slots.iter_mut().enumerate() {
            slot.rank = rank;
        }
        let slots_of = slots.iter().enumerate().map(|(at, slot)| (slot.key.clone(), at)).collect();
        let heap = (0..slots.len()).collect();
        Ranks { slots_of, slots, heap }
    }

    fn insert(&mut self, key: &K, count: u64) {
        let (slot, mut rank) = (self.slots.len(), self.heap.len());
        self.slots.push(Slot { key: key.clone(), count, error: 0, rank });
        self.slots_of.insert(key.clone(), slot);
        self.heap.push(slot);
        while rank > 0 && self.count_at(rank) < self.count_at((rank - 1) / 2) {
            self.swap(rank, (rank - 1) / 2);
            rank = (rank - 1) / 2;
        }
    }

    /// Who comes for the first time may have come as often as the lightest, and been forgotten.
    fn replace_lightest(&mut self, key: &K, times: u64) {
        let lightest = self.heap[0];
        let slot = &mut self.slots[lightest];
        self.slots_of.remove(&slot.key);
        slot.key = key.clone();
        slot.error = slot.count;
        self.slots_of.insert(key.clone(), lightest);
        self.grow(lightest, times);
    }

    fn grow(&mut self, slot: usize, times: u64) {
        self.slots[slot].count += times;
        let mut rank = self.slots[slot].rank;
        loop {
            let below = [2 * rank + 1, 2 * rank + 2].into_iter().filter(|below| *below < self.heap.len());
            let lighter = below.min_by_key(|below| self.count_at(*below));
            match lighter {
                Some(lighter) if self.count_at(lighter) < self.count_at(rank) => {
                    self.swap(rank, lighter);
                    rank = lighter;
                }
                _ => return,
            }
        }
    }

    fn count_at(&self, rank: usize) -> u64 {
        self.slots[self.heap[rank]].count
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.slots[self.heap[one]].rank = one;
        self.slots[self.heap[other]].rank = other;
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

    #[test]
    fn counts_are_those_of_the_plain_algorithm() {
        // The same with no heap: whoever is lightest is looked for among all.
        let (top, capacity) = (Top::new(8), 8);
        let mut plain: Vec<(u64, u64, u64)> = Vec::new();
        let mut random = 1_u64;
        for round in 0..5_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) % 30 * ((random >> 50) % 3);
            // Different weights, so that no two are ever equally light and the choice is the same.
            let times = 1_000 + round;
            if round % 1_000 == 999 {
                top.halve();
                plain.iter_mut().for_each(|(_, count, error)| (*count, *error) = (*count / 2, *error / 2));
            }
            top.add(&key, times);
            match plain.iter().position(|(known, ..)| *known == key) {
                Some(at) => plain[at].1 += times,
                None if plain.len() < capacity => plain.push((key, times, 0)),
                None => {
                    let lightest = plain.iter_mut().min_by_key(|(_, count, _)| *count).unwrap();
                    *lightest = (key, lightest.1 + times, lightest.1);
                }
            }
        }
        let mut found: Vec<_> =
            top.heaviest(99).into_iter().map(|heavy| (heavy.key, heavy.count, heavy.error)).collect();
        found.sort_unstable();
        plain.sort_unstable();
        assert_eq!(found, plain);
    }
}

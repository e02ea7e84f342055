//! How things are measured: many short batches, of which the least and the median are told.
//!
//! On a machine shared with others the least is what the code takes when nobody disturbs it, and the median what it
//! took that day; a mean would mostly measure the neighbours.

use std::time::Instant;

/// A few figures of many.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// As many above as below.
    pub median: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one figure.
    pub fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => (figures[middle - 1] + figures[middle]) / 2.0,
            _ => figures[middle],
        };
        Spread { min: figures[0], median, max: figures[figures.len() - 1] }
    }
}

/// Nanoseconds an operation takes; each batch is `ops` of them.
pub fn ns_per_op(batches: usize, ops: usize, mut batch: impl FnMut()) -> Spread {
    batch();
    let timed = (0..batches).map(|_| {
        let start = Instant::now();
        batch();
        start.elapsed().as_nanos() as f64 / ops as f64
    });
    Spread::of(timed.collect())
}

/// Milliseconds since then.
pub fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Random numbers that are the same in every run (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Each seed gives another sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x6a09_e667_f3bc_c908)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

/// Memory of this process that is in RAM.
pub fn resident_bytes() -> Result<u64, crate::Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let odd = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.min, odd.median, odd.max), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
    }

    #[test]
    fn random_numbers_stay_below_their_limit_and_repeat() {
        let draw = |seed| (0..1000).map(|_| Random::new(seed).below(10)).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        let mut random = Random::new(1);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[random.below(10) as usize] = true);
        assert_eq!(seen, [true; 10]);
    }
}

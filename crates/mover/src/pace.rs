//! Has moves step back while requests are served: a mover then works for a part of the time only, and in smaller bites.
//!
//! Never while it catches up or requests are held: a move must outrun the writers, and its switch must be short. Nor
//! while it copies or compares more rows than there were when it began (`Session::keep_ahead`). So what
//! writers add does not add rests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// Tells how many requests this process has served so far; nothing if nobody counts them.
pub type Traffic = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// The least part of the time that a mover works, in percent: a move always comes to its end.
pub const BUSY_SHARE_MIN: u32 = 1;
/// The usual part. With a quarter, the median of writes of other keys was a tenth to a quarter higher than at rest on
/// two processors; with a tenth it is within what two times at rest differ by.
pub const BUSY_SHARE: u32 = 10;

/// How long a look at the traffic counts: long enough that a few requests a second are seen, short enough that a
/// machine that falls idle is used.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After how long a first look is followed by the second, which shows what has come between.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A look that is older says nothing of now.
const LOOK_OLD: Duration = Duration::from_secs(1);
/// The longest rest: however slow a bite was, because others have the processors or the disk, the next one comes.
const REST_MAX: Duration = Duration::from_millis(300);

/// How long a bite should take while requests are served: whoever comes meanwhile waits for it on an embedded shard,
/// or shares the processors with it. That is the least that is seen of a move by the slowest of a hundred.
const BITE: Duration = Duration::from_micros(500);
/// Rows of a bite then at least: each has a commit or a query to pay for.
const BITE_ROWS_MIN: usize = 32;
/// A bite of few rows that takes longer is one that had to be looked for, or met with bad luck.
const BITE_SLOW: Duration = Duration::from_millis(10);
/// So many slow ones in a row are hardly bad luck.
const BITES_SLOW_MAX: u32 = 6;
/// So many large ones follow until a small one is tried again, in case that it was bad luck: a disk at its limit.
const BITES_LARGE: u32 = 8;
/// And so many at most, however often that was tried.
const BITES_LARGE_MAX: u32 = 1024;

/// How much a mover steps back for one move.
pub(crate) struct Pace {
    looks: Arc<Looks>,
    /// Of the time, in percent, while requests are served: if an operator wants nothing else, and now.
    usual: u32,
    share: AtomicU32,
}

/// What is seen of the traffic, for all moves.
struct Looks {
    traffic: Option<Traffic>,
    last: Mutex<Option<Look>>,
}

/// What the last look at the traffic has shown.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    served: Option<u64>,
    /// None after a first look, which can be compared with none before.
    is_busy: Option<bool>,
}

impl Pace {
    /// Steps back for nobody.
    pub(crate) fn unhindered() -> Pace {
        Pace::new(None, 100)
    }

    /// Works for `share` percent of the time while requests are served.
    pub(crate) fn new(traffic: Option<Traffic>, share: u32) -> Pace {
        let usual = share.clamp(BUSY_SHARE_MIN, 100);
        let looks = Arc::new(Looks { traffic, last: Mutex::default() });
        Pace { looks, usual, share: AtomicU32::new(usual) }
    }

    /// The same for another move.
    pub(crate) fn another(&self) -> Pace {
        Pace { looks: self.looks.clone(), usual: self.usual, share: AtomicU32::new(self.usual) }
    }

    /// Works for so many percent of the time from now on; if nothing is said, as usual.
    pub(crate) fn set_share(&self, share: Option<u32>) {
        let share = share.map_or(self.usual, |share| share.clamp(BUSY_SHARE_MIN, 100));
        self.share.store(share, Ordering::Relaxed);
    }

    fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// For how many percent of the time it works now, if it steps back.
    pub(crate) fn stepping_back(&self) -> Option<u32> {
        self.is_busy().then(|| self.share())
    }

    /// Whether requests were served a moment ago. Until that is known, they were.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy_at(Instant::now())
    }

    fn is_busy_at(&self, now: Instant) -> bool {
        let Some(traffic) = self.looks.traffic.as_ref().filter(|_| self.share() < 100) else { return false };
        let mut last = self.looks.last.lock().expect("no panic while held");
        let before = last.filter(|look| now - look.at < LOOK_OLD);
        if let Some(look) = before {
            let counts = if look.is_busy.is_some() { LOOK_EVERY } else { LOOK_AGAIN };
            if now - look.at < counts {
                return look.is_busy.unwrap_or(true);
            }
        }
        let served = traffic();
        let is_busy = before.map(|before| served.is_none() || served != before.served);
        *last = Some(Look { at: now, served, is_busy });
        is_busy.unwrap_or(true)
    }

    /// Rests after a bite of work that began then, if requests are served.
    pub(crate) async fn rest(&self, began: Instant) {
        if self.is_busy() {
            tokio::time::sleep(rest_after(began.elapsed(), self.share())).await;
        }
    }

    /// Does both, at once if nobody is served. Otherwise one after the other, each with its rest, so that a processor
    /// is left to the others. Answers also how long the first took.
    pub(crate) async fn both<A, B>(
        &self,
        first: impl Future<Output = A>,
        second: impl Future<Output = B>,
    ) -> (A, B, Duration) {
        let began = Instant::now();
        if !self.is_busy() {
            let (first, second) = tokio::join!(first, second);
            return (first, second, began.elapsed());
        }
        let first = first.await;
        let took = began.elapsed();
        self.rest(began).await;
        let began = Instant::now();
        let second = second.await;
        self.rest(began).await;
        (first, second, took)
    }
}

/// How many rows a bite has while requests are served: as many as fit into its time, by the bites before.
pub(crate) struct Bite {
    rows: usize,
    most: usize,
    /// Slow ones in a row.
    slow: u32,
    /// Large ones to come, since small ones were slow.
    large: u32,
    /// As many as there will be when the next ones are slow.
    large_next: u32,
}

impl Bite {
    /// Begins with few rows; has `most` at most, also while nobody is served.
    pub(crate) fn new(most: usize) -> Bite {
        Bite { rows: (BITE_ROWS_MIN * 2).min(most), most, slow: 0, large: 0, large_next: BITES_LARGE }
    }

    /// The rows of the next bite.
    pub(crate) fn rows(&self, pace: &Pace) -> usize {
        // Where no index leads to the beginning of a bite each has to look for it anew: small ones do not help.
        if pace.is_busy() && self.large == 0 { self.rows } else { self.most }
    }

    /// A bite of so many rows took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        if self.large > 0 {
            self.large -= 1;
            return;
        }
        // A larger one was taken alone; the last one of a table may be of a few rows, and says nothing.
        if !(self.rows.div_ceil(2)..=self.rows).contains(&rows) {
            return;
        }
        let is_slow = took > BITE_SLOW && rows <= BITE_ROWS_MIN * 2;
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        if self.slow >= BITES_SLOW_MAX {
            // A small one is tried again: if it is slow as well, it is the only one for longer.
            self.large = self.large_next;
            self.large_next = (self.large_next * 2).min(BITES_LARGE_MAX);
        } else if !is_slow {
            self.large_next = BITES_LARGE;
        }
        let fit = rows as u128 * BITE.as_nanos() / took.as_nanos().max(1);
        let fit = usize::try_from(fit).unwrap_or(usize::MAX);
        // Little by little: one that had to wait says nothing of the next.
        let step = (self.rows / 4).max(1);
        let next = fit.clamp(self.rows.saturating_sub(step), self.rows + step);
        self.rows = next.clamp(BITE_ROWS_MIN.min(self.most), self.most);
    }
}

/// How long to rest after so much work.
fn rest_after(worked: Duration, share: u32) -> Duration {
    let percent = worked * (100 - share);
    (percent / share).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn a_rest_is_in_proportion_and_never_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest_after(ms(4), 25), ms(12));
        assert_eq!(rest_after(ms(4), 100), ms(0));
        assert_eq!(rest_after(ms(4), 50), ms(4));
        assert_eq!(rest_after(Duration::from_secs(60), 1), REST_MAX);
    }

    #[test]
    fn a_mover_steps_back_only_while_requests_are_served() {
        let served = Arc::new(AtomicU64::new(7));
        let count = served.clone();
        let pace = Pace::new(Some(Arc::new(move || Some(count.load(Ordering::SeqCst)))), 25);
        let mut now = Instant::now();
        assert!(pace.is_busy_at(now), "nobody knows yet");
        now += LOOK_AGAIN;
        assert!(!pace.is_busy_at(now), "none came since");
        served.fetch_add(1, Ordering::SeqCst);
        assert!(!pace.is_busy_at(now), "it looks only now and then");
        now += LOOK_EVERY;
        assert!(pace.is_busy_at(now));
        now += LOOK_EVERY;
        assert!(!pace.is_busy_at(now), "at full speed when it is alone");
        served.fetch_add(1, Ordering::SeqCst);
        now += LOOK_OLD;
        assert!(pace.is_busy_at(now), "what was seen long ago says nothing");
        now += LOOK_AGAIN;
        assert!(!pace.is_busy_at(now));
    }

    #[test]
    fn a_bite_fits_into_its_time() {
        let busy = Pace::new(Some(Arc::new(|| None)), 25);
        let mut bite = Bite::new(8192);
        for _ in 0..100 {
            // A fifth of its time for itself, and a microsecond for each row.
            let rows = bite.rows(&busy);
            bite.learn(rows, BITE / 5 + Duration::from_micros(1) * rows as u32);
        }
        assert!((350..=450).contains(&bite.rows(&busy)), "{}", bite.rows(&busy));
        // One that has to wait changes little, and many make it small, but not smaller than is of use.
        bite.learn(bite.rows(&busy), Duration::from_secs(1));
        assert!(bite.rows(&busy) > 275);
        for _ in 0..100 {
            bite.learn(bite.rows(&busy), BITE * 5);
        }
        assert_eq!(bite.rows(&busy), BITE_ROWS_MIN);
        assert_eq!(bite.rows(&Pace::unhindered()), 8192, "alone it takes all it can");
    }

    #[test]
    fn bites_that_have_to_be_looked_for_are_large() {
        let busy = Pace::new(Some(Arc::new(|| None)), 25);
        let mut bite = Bite::new(8192);
        for _ in 0..100 {
            bite.learn(bite.rows(&busy), BITE_SLOW * 2);
            bite.learn(bite.rows(&busy), BITE);
        }
        assert!(bite.rows(&busy) < 100, "now and then one is slow by chance");
        for _ in 0..BITES_SLOW_MAX {
            bite.learn(bite.rows(&busy), BITE_SLOW * 2);
        }
        let mut small = 0;
        for _ in 0..1000 {
            small += usize::from(bite.rows(&busy) < 8192);
            bite.learn(bite.rows(&busy), BITE_SLOW * 2);
        }
        assert!((1..10).contains(&small), "{small} were tried, which is next to none");
    }

    #[test]
    fn bites_are_small_again_after_a_stall() {
        let busy = Pace::new(Some(Arc::new(|| None)), 25);
        let mut bite = Bite::new(8192);
        for _ in 0..BITES_SLOW_MAX {
            bite.learn(bite.rows(&busy), BITE_SLOW * 2);
        }
        assert_eq!(bite.rows(&busy), 8192);
        for _ in 0..BITES_LARGE {
            bite.learn(bite.rows(&busy), BITE * 8);
        }
        for _ in 0..100 {
            assert!(bite.rows(&busy) < 100, "{}", bite.rows(&busy));
            bite.learn(bite.rows(&busy), BITE);
        }
    }

    #[test]
    fn where_nobody_counts_requests_it_steps_back() {
        let pace = Pace::new(Some(Arc::new(|| None)), 25);
        let now = Instant::now();
        for looks in 0..3 {
            assert!(pace.is_busy_at(now + LOOK_EVERY * looks));
        }
        assert!(!Pace::new(Some(Arc::new(|| None)), 100).is_busy(), "whoever wants full speed has it");
        // An operator may want it of one move only, and be content again.
        let (one, other) = (pace.another(), pace.another());
        one.set_share(Some(100));
        assert_eq!((one.stepping_back(), other.stepping_back()), (None, Some(25)));
        one.set_share(Some(0));
        assert_eq!(one.stepping_back(), Some(BUSY_SHARE_MIN), "it always comes to its end");
        one.set_share(None);
        assert_eq!(one.stepping_back(), Some(25));
        assert!(!Pace::unhindered().is_busy());
    }
}

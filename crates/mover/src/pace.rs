//! Has moves step back while requests are served: a mover then works for a part of the time only, and in smaller bites.
//!
//! Never while it catches up or requests are held: a move must outrun the writers, and its switch must be short.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

/// Tells how many requests this process has served so far; nothing if nobody counts them.
pub type Traffic = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// The least part of the time that a mover works, in percent: a move always comes to its end.
pub const BUSY_SHARE_MIN: u32 = 1;
/// The usual part. With a quarter, writers of other keys see three of four milliseconds as if nothing moved, and so
/// their median is that of a machine at rest.
pub const BUSY_SHARE: u32 = 25;

/// How long a look at the traffic counts: long enough that a few requests a second are seen, short enough that a
/// machine that falls idle is used.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After how long a first look is followed by the second, which shows what has come between.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A look that is older says nothing of now.
const LOOK_OLD: Duration = Duration::from_secs(1);
/// The longest rest: however slow a bite was, the next one comes.
const REST_MAX: Duration = Duration::from_secs(1);

/// How much a mover steps back.
pub(crate) struct Pace {
    traffic: Option<Traffic>,
    /// Of the time, in percent, while requests are served.
    share: u32,
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
        let share = share.clamp(BUSY_SHARE_MIN, 100);
        Pace { traffic, share, last: Mutex::default() }
    }

    /// Whether requests were served a moment ago. Until that is known, they were.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy_at(Instant::now())
    }

    fn is_busy_at(&self, now: Instant) -> bool {
        let Some(traffic) = self.traffic.as_ref().filter(|_| self.share < 100) else { return false };
        let mut last = self.last.lock().expect("no panic while held");
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
            tokio::time::sleep(rest_after(began.elapsed(), self.share)).await;
        }
    }
}

/// How long to rest after so much work.
fn rest_after(worked: Duration, share: u32) -> Duration {
    let percent = worked * (100 - share);
    (percent / share).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

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
    fn where_nobody_counts_requests_it_steps_back() {
        let pace = Pace::new(Some(Arc::new(|| None)), 25);
        let now = Instant::now();
        for looks in 0..3 {
            assert!(pace.is_busy_at(now + LOOK_EVERY * looks));
        }
        assert!(!Pace::new(Some(Arc::new(|| None)), 100).is_busy(), "whoever wants full speed has it");
        assert!(!Pace::unhindered().is_busy());
    }
}

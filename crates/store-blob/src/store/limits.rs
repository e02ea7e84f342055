//! Limits of accounts and blobs, so that one does not take all there is from the others: requests a second, and bytes
//! a second of one blob.
//!
//! Each has a moment until which its requests are paid for. A request moves it on by its share of a second; it may be
//! at most a second ahead of now.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use polyshard_store::OverQuota;
use tokio::time::Instant;

/// How much of its rate one that was quiet may have at once.
const BURST: Duration = Duration::from_secs(1);
/// Blobs and accounts that are remembered; those that have rested are forgotten first.
const HOLDERS_MAX: usize = 65_536;

/// Limits of one process; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Requests a second of one account.
    pub account_requests: u64,
    /// Requests a second of one blob.
    pub blob_requests: u64,
    /// Bytes a second of one blob.
    pub blob_bytes: u64,
}

/// What has been let in.
pub(super) struct Limits {
    rates: Rates,
    start: Instant,
    /// Until when each is paid for, in nanoseconds after the start.
    requests: Mutex<HashMap<String, u64>>,
    bytes: Mutex<HashMap<String, u64>>,
}

impl Limits {
    pub fn new(rates: Rates) -> Limits {
        Limits { rates, start: Instant::now(), requests: Mutex::default(), bytes: Mutex::default() }
    }

    /// Lets a request for a blob in, or says when there is room again.
    pub fn admit(&self, account: &str, path: &str) -> Result<(), OverQuota> {
        if self.rates == Rates::default() {
            return Ok(());
        }
        self.admit_at(account, path, self.now())
    }

    fn admit_at(&self, account: &str, path: &str, now: u64) -> Result<(), OverQuota> {
        let Rates { account_requests, blob_requests, blob_bytes } = self.rates;
        // Bytes that were sent already: requests wait until they are paid for.
        admit(&self.bytes, path, blob_bytes, 0, now)?;
        admit(&self.requests, path, blob_requests, 1, now)?;
        admit(&self.requests, account, account_requests, 1, now)
    }

    /// Counts bytes of a blob that are sent or taken.
    pub fn charge(&self, path: &str, bytes: u64) {
        if self.rates.blob_bytes != 0 {
            self.charge_at(path, bytes, self.now());
        }
    }

    fn charge_at(&self, path: &str, bytes: u64, now: u64) {
        let each = share(bytes, self.rates.blob_bytes);
        let mut holders = self.bytes.lock().expect("no panic while held");
        let paid = holder(&mut holders, path, now);
        *paid = (*paid).max(now).saturating_add(each);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What so many take of the time at a rate, in nanoseconds.
fn share(units: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(units) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

fn holder<'a>(holders: &'a mut HashMap<String, u64>, name: &str, now: u64) -> &'a mut u64 {
    if holders.len() >= HOLDERS_MAX && !holders.contains_key(name) {
        holders.retain(|_, paid| *paid > now);
        if holders.len() >= HOLDERS_MAX {
            // As many are busy at this moment: they begin anew.
            holders.clear();
        }
    }
    holders.entry(name.to_owned()).or_default()
}

fn admit(
    holders: &Mutex<HashMap<String, u64>>,
    name: &str,
    rate: u64,
    units: u64,
    now: u64,
) -> Result<(), OverQuota> {
    if rate == 0 {
        return Ok(());
    }
    let each = share(units, rate);
    let mut holders = holders.lock().expect("no panic while held");
    let paid = holder(&mut holders, name, now);
    let next = (*paid).max(now).saturating_add(each);
    let burst = (BURST.as_nanos() as u64).max(each);
    if next - now > burst {
        let after = Duration::from_nanos(next - now - burst);
        return Err(OverQuota { of: name.to_owned(), rate, after });
    }
    *paid = next;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_blob_has_its_rate_and_a_second_of_it_at_once() {
        let limits = Limits::new(Rates { blob_requests: 10, ..Rates::default() });
        let let_in = |path: &str, now| (0..30).filter(|_| limits.admit_at("acct", path, now).is_ok()).count();
        assert_eq!((let_in("a", 0), let_in("b", 0)), (10, 10));
        let after = limits.admit_at("acct", "a", 0).unwrap_err().after;
        assert_eq!(after, Duration::from_millis(100));
        assert_eq!(let_in("a", SECOND / 2), 5);
    }

    #[test]
    fn bytes_are_paid_for_by_those_who_come_later() {
        let limits = Limits::new(Rates { blob_bytes: 1000, ..Rates::default() });
        limits.admit_at("acct", "a", 0).unwrap();
        limits.charge_at("a", 5000, 0);
        let after = limits.admit_at("acct", "a", 0).unwrap_err().after;
        assert_eq!(after, Duration::from_secs(4));
        limits.admit_at("acct", "b", 0).unwrap();
        limits.admit_at("acct", "a", 4 * SECOND).unwrap();
    }

    #[test]
    fn an_account_has_a_rate_over_all_its_blobs() {
        let limits = Limits::new(Rates { account_requests: 3, ..Rates::default() });
        assert!((0..3).all(|number| limits.admit_at("acct", &format!("acct/{number}"), 0).is_ok()));
        assert!(limits.admit_at("acct", "acct/9", 0).is_err());
        limits.admit_at("other", "other/1", 0).unwrap();
        let none = Limits::new(Rates::default());
        assert!((0..1000).all(|_| none.admit("acct", "a").is_ok()));
    }
}

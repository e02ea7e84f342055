//! When a shard will be full, if it goes on growing as it has. Pure.

use polyshard_map::Key;

/// With less than this between the first and the last look there is no trend to speak of.
const TREND_MS_MIN: i64 = 60 * 60 * 1000;
/// Nobody plans further ahead than ten years.
const AHEAD_MS_MAX: f64 = 10.0 * 365.0 * 24.0 * 3_600_000.0;
const DAY_MS: f64 = 24.0 * 3_600_000.0;

/// A trend of growth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Bytes a day.
    pub grows_per_day: f64,
    /// When the limit is reached, in milliseconds since 1970.
    pub full_ms: i64,
}

/// When a limit will be reached, by the straight line that fits best; none if it is not growing, if too little is
/// known, or if it is further away than anybody plans. `looks` are moments in milliseconds and bytes then.
pub fn forecast(looks: &[(i64, u64)], limit: u64) -> Option<Forecast> {
    let (first, last) = (looks.first()?, looks.last()?);
    if last.0 - first.0 < TREND_MS_MIN {
        return None;
    }
    let count = looks.len() as f64;
    let at = |look: &(i64, u64)| (look.0 - first.0) as f64;
    let mean_at = looks.iter().map(at).sum::<f64>() / count;
    let mean_bytes = looks.iter().map(|look| look.1 as f64).sum::<f64>() / count;
    let spread: f64 = looks.iter().map(|look| (at(look) - mean_at).powi(2)).sum();
    let common: f64 = looks.iter().map(|look| (at(look) - mean_at) * (look.1 as f64 - mean_bytes)).sum();
    let per_ms = common / spread;
    if !per_ms.is_finite() || per_ms <= 0.0 {
        return None;
    }
    let left_ms = (limit as f64 - last.1 as f64).max(0.0) / per_ms;
    (left_ms <= AHEAD_MS_MAX)
        .then(|| Forecast { grows_per_day: per_ms * DAY_MS, full_ms: last.0.saturating_add(left_ms as i64) })
}

/// Days from 1970 to 2000, from which dates are counted.
const DAYS_TO_2000: i64 = 10_957;

/// The day of a moment: `2026-12-03`.
pub fn day(ms: i64) -> String {
    let days = ms.div_euclid(DAY_MS as i64) - DAYS_TO_2000;
    Key::Date(i32::try_from(days).unwrap_or(i32::MAX)).to_string()
}

/// A moment as people write it, in UTC: `2026-12-03 22:30:00 UTC`.
pub fn moment(ms: i64) -> String {
    let second = ms.div_euclid(1000).rem_euclid(24 * 3_600);
    format!("{} {:02}:{:02}:{:02} UTC", day(ms), second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    #[test]
    fn a_steady_growth_is_carried_on_to_the_limit() {
        let looks: Vec<(i64, u64)> = (0..48).map(|hour| (hour * HOUR_MS, 1_000 + 10 * hour as u64)).collect();
        let found = forecast(&looks, 1_470 + 240).unwrap();
        assert!((found.grows_per_day - 240.0).abs() < 1e-6, "{found:?}");
        assert_eq!(found.full_ms, (47 + 24) * HOUR_MS);
        let full = forecast(&looks, 100).unwrap();
        assert_eq!(full.full_ms, 47 * HOUR_MS, "it is full already");
    }

    #[test]
    fn without_growth_or_with_too_little_known_nothing_is_foretold() {
        assert_eq!(forecast(&[], 10), None);
        assert_eq!(forecast(&[(0, 5), (HOUR_MS / 2, 6)], 10), None, "half an hour is no trend");
        assert_eq!(forecast(&[(0, 5), (HOUR_MS * 9, 5)], 10), None);
        assert_eq!(forecast(&[(0, 9), (HOUR_MS * 9, 5)], 10), None);
        assert_eq!(forecast(&[(0, 0), (HOUR_MS * 1_000, 1)], u64::MAX), None, "beyond what anybody plans");
    }

    #[test]
    fn a_day_is_written_as_people_write_it() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(1_709_164_800_000), "2024-02-29");
        assert_eq!(day(1_709_251_200_000), "2024-03-01");
        assert_eq!(day(1_796_342_399_999), "2026-12-03");
        assert_eq!(moment(1_796_342_399_999), "2026-12-03 23:59:59 UTC");
    }
}

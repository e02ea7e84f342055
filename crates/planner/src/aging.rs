//! Which ranges of a map by time are old enough for a rule, and when a rule is due. Pure.

use polyshard_map::{Entry, Key, KeyBytes, KeyRange, KeyType, MapDefinition, Scheme, State};
use serde::{Deserialize, Serialize};

const DAY_MS: i64 = 86_400_000;
const HOUR_MS: i64 = 3_600_000;
const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01, from which keys are counted.
const UNIX_TO_2000_DAYS: i64 = 10_957;
/// The longest age: what is older than a thousand years is a mistake.
const AGE_MAX: u32 = 365_000;

/// A stretch of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// A day, in UTC.
    Day,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl std::str::FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Period, String> {
        match text {
            "day" => Ok(Period::Day),
            "month" => Ok(Period::Month),
            "year" => Ok(Period::Year),
            _ => Err(format!("{text:?} is no period: use day, month or year")),
        }
    }
}

/// How old something must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Age {
    count: u32,
    unit: Period,
}

impl std::str::FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        let wrong = || format!("{text:?} is no age: use 90days, 13months or 2years");
        let at = text.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
        let (count, unit) = text.split_at(at);
        let unit = match unit.trim() {
            "d" | "day" | "days" => Period::Day,
            "month" | "months" => Period::Month,
            "y" | "year" | "years" => Period::Year,
            _ => return Err(wrong()),
        };
        let count: u32 = count.parse().map_err(|_| wrong())?;
        if count > AGE_MAX {
            return Err(format!("{text:?} is too long ago: at most {AGE_MAX}"));
        }
        Ok(Age { count, unit })
    }
}

/// How often a rule is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// Each hour.
    Hour,
    /// Each day.
    Day,
    /// Each Monday.
    Week,
    /// Each first of a month.
    Month,
}

impl std::str::FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Every, String> {
        match text {
            "hour" => Ok(Every::Hour),
            "day" => Ok(Every::Day),
            "week" => Ok(Every::Week),
            "month" => Ok(Every::Month),
            _ => Err(format!("{text:?} is not how often: use hour, day, week or month")),
        }
    }
}

/// Minutes after midnight of a text like `03:30`.
pub fn minutes(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no time of day: use HH:MM, in UTC");
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let (hour, minute): (i64, i64) =
        (hour.parse().map_err(|_| wrong())?, minute.parse().map_err(|_| wrong())?);
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) {
        return Err(wrong());
    }
    Ok(hour * 60 + minute)
}

/// When a rule was last due: one that was not carried out since is to be carried out now.
pub fn due_since(now_ms: i64, every: Every, at_minutes: i64) -> i64 {
    let offset = at_minutes * 60_000;
    if every == Every::Hour {
        return now_ms.div_euclid(HOUR_MS) * HOUR_MS;
    }
    // The day that counts begins at the given time.
    let day = (now_ms - offset).div_euclid(DAY_MS);
    let day = match every {
        Every::Hour | Every::Day => day,
        // 1970-01-01 was a Thursday.
        Every::Week => day - (day + 3).rem_euclid(7),
        Every::Month => begin(day - UNIX_TO_2000_DAYS, Period::Month) + UNIX_TO_2000_DAYS,
    };
    day * DAY_MS + offset
}

/// When a rule is due next.
pub fn due_next(now_ms: i64, every: Every, at_minutes: i64) -> i64 {
    let since = due_since(now_ms, every, at_minutes);
    match every {
        Every::Hour => since + HOUR_MS,
        Every::Day => since + DAY_MS,
        Every::Week => since + 7 * DAY_MS,
        // However long the month is, so many days later it is the next one.
        Every::Month => due_since(since + 32 * DAY_MS, every, at_minutes),
    }
}

/// A day as people write it: `2025-10-01`.
pub fn day_text(day: i64) -> String {
    label(day, Period::Day)
}

/// Year and month of a day, counted from 2000-01-01.
fn year_and_month(day: i64) -> (i64, i64) {
    let text = Key::Date(i32::try_from(day).unwrap_or(i32::MAX - 1)).to_string();
    let mut parts = text.split('-').map(|part| part.parse::<i64>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The day on which a month begins; months are counted on beyond twelve.
fn month_begin(year: i64, month: i64) -> i64 {
    let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
    match KeyType::Date.parse(&format!("{year:04}-{month:02}-01")) {
        Ok(Key::Date(day)) => i64::from(day),
        _ => i64::from(i32::MIN),
    }
}

/// The day on which the period of a day begins.
fn begin(day: i64, period: Period) -> i64 {
    let (year, month) = year_and_month(day);
    match period {
        Period::Day => day,
        Period::Month => month_begin(year, month),
        Period::Year => month_begin(year, 1),
    }
}

/// The day on which the next period begins.
fn next(day: i64, period: Period) -> i64 {
    let (year, month) = year_and_month(day);
    match period {
        Period::Day => day + 1,
        Period::Month => month_begin(year, month + 1),
        Period::Year => month_begin(year + 1, 1),
    }
}

/// The day up to which everything is old enough: only whole periods are.
pub fn cutoff(now_ms: i64, age: Age, by: Period) -> i64 {
    let today = now_ms.div_euclid(DAY_MS) - UNIX_TO_2000_DAYS;
    let (year, month) = year_and_month(today);
    let old = match age.unit {
        Period::Day => today - i64::from(age.count),
        // The day of the month stays, as far as there is one; a period that ends within it is old enough only after.
        Period::Month | Period::Year => {
            let months = i64::from(age.count) * if age.unit == Period::Year { 12 } else { 1 };
            let first = month_begin(year, month - months);
            let of_month = today - month_begin(year, month);
            (first + of_month).min(next(first, Period::Month) - 1)
        }
    };
    begin(old, by)
}

/// A range that is old enough, and a word for it in names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Old {
    /// The range, within one entry.
    pub range: KeyRange,
    /// Which period it is of.
    pub label: String,
}

/// Whether the keys of a map begin with a day or a moment, so that its ranges are old together.
pub fn is_by_time(definition: &MapDefinition) -> bool {
    let first = definition.key_type().components().first().cloned();
    matches!(definition.scheme(), Scheme::Range) && matches!(first, Some(KeyType::Date | KeyType::Timestamp))
}

/// The ranges of a map that are old enough, period by period; what is not online, or is held, is left out.
pub fn old_ranges(
    definition: &MapDefinition,
    entries: &[Entry],
    cutoff: i64,
    by: Period,
    now_ms: i64,
) -> Vec<Old> {
    let mut out = Vec::new();
    for entry in entries {
        let held = entry.lock.as_ref().is_some_and(|lock| lock.holds_at(now_ms));
        if entry.state != State::Online || held {
            continue;
        }
        let cut = |from: Option<i64>, to: i64, label: String, out: &mut Vec<Old>| {
            let lo = from.map_or_else(|| Some(KeyBytes::default()), |day| bound(definition, day));
            let range = lo.and_then(|lo| KeyRange::new(lo, Some(bound(definition, to)?)).ok());
            let range = range.and_then(|range| range.intersect(&entry.range));
            out.extend(range.map(|range| Old { range, label }));
        };
        match first_day(definition, entry.range.lo()) {
            // Whatever was before: nobody knows where it begins.
            None if entry.range.lo().as_slice().is_empty() => {
                cut(None, cutoff, format!("before-{}", label(cutoff, Period::Day)), &mut out);
            }
            None => {}
            Some(day) => {
                let mut from = begin(day, by);
                while next(from, by) <= cutoff {
                    let to = next(from, by);
                    if entry.range.hi().is_some_and(|hi| bound(definition, from).is_some_and(|lo| lo >= *hi))
                    {
                        break;
                    }
                    cut(Some(from), to, label(from, by), &mut out);
                    from = to;
                }
            }
        }
    }
    out
}

fn label(day: i64, by: Period) -> String {
    let text = Key::Date(i32::try_from(day).unwrap_or_default()).to_string();
    let letters = match by {
        Period::Day => text.len(),
        Period::Month => text.len().saturating_sub(3),
        Period::Year => text.len().saturating_sub(6),
    };
    text[..letters].to_owned()
}

/// The bound at which a day begins.
fn bound(definition: &MapDefinition, day: i64) -> Option<KeyBytes> {
    let key_type = definition.key_type();
    let first = match key_type.components().first()? {
        KeyType::Date => Key::Date(i32::try_from(day).ok()?),
        KeyType::Timestamp => Key::Timestamp(day.checked_mul(DAY_MICROS)?),
        _ => return None,
    };
    let key = if matches!(key_type, KeyType::Tuple(_)) { Key::Tuple(vec![first]) } else { first };
    key_type.encode_bound(&key).ok()
}

/// The day of a bound.
fn first_day(definition: &MapDefinition, bound: &KeyBytes) -> Option<i64> {
    let key = definition.key_type().decode_bound(bound.as_slice()).ok()?;
    let first = match key {
        Key::Tuple(parts) => parts.into_iter().next()?,
        key => key,
    };
    match first {
        Key::Date(i32::MIN | i32::MAX) | Key::Timestamp(i64::MIN | i64::MAX) => None,
        Key::Date(day) => Some(i64::from(day)),
        Key::Timestamp(micros) => Some(micros.div_euclid(DAY_MICROS)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use polyshard_map::{Epoch, MapName, NewEntry, ShardId};

    use super::*;

    fn ms(text: &str) -> i64 {
        let Ok(Key::Timestamp(micros)) = KeyType::Timestamp.parse(text) else { panic!("{text}") };
        micros / 1_000 + UNIX_TO_2000_DAYS * DAY_MS
    }

    fn map(key: KeyType) -> MapDefinition {
        MapDefinition::new(MapName::new("orders").unwrap(), key, Scheme::Range).unwrap()
    }

    fn entry(definition: &MapDefinition, lo: Option<&str>, hi: Option<&str>) -> Entry {
        let at = |text: &str| {
            let Ok(Key::Date(day)) = KeyType::Date.parse(text) else { panic!("{text}") };
            bound(definition, i64::from(day)).unwrap()
        };
        let range = KeyRange::new(lo.map(at).unwrap_or_default(), hi.map(at)).unwrap();
        NewEntry::new(range, ShardId::new("s1").unwrap()).at(Epoch::ZERO)
    }

    fn labels(
        definition: &MapDefinition,
        entries: &[Entry],
        now: &str,
        age: &str,
        by: Period,
    ) -> Vec<String> {
        let cutoff = cutoff(ms(now), age.parse().unwrap(), by);
        let old = old_ranges(definition, entries, cutoff, by, ms(now));
        old.into_iter()
            .map(|old| format!("{} {}", old.label, definition.describe_range(&old.range)))
            .collect()
    }

    // D7, A5, A9
    #[test]
    fn only_whole_months_that_ended_long_enough_ago_are_old() {
        for key in [KeyType::Date, KeyType::tuple(vec![KeyType::Date, KeyType::BigInt]).unwrap()] {
            let definition = map(key);
            assert!(is_by_time(&definition));
            let entries = [entry(&definition, Some("2025-10-15"), None)];
            let found = labels(&definition, &entries, "2026-11-16T02:00:00Z", "11months", Period::Month);
            let names: Vec<&str> = found.iter().map(|one| one.split(' ').next().unwrap()).collect();
            assert_eq!(names, ["2025-10", "2025-11"], "{found:?}");
            assert!(found[0].contains("2025-10-15") && found[0].contains("2025-11-01"), "{found:?}");
            let later = labels(&definition, &entries, "2026-12-01T00:00:00Z", "11months", Period::Month);
            assert_eq!(later.len(), 3, "{later:?}");
            assert_eq!(
                labels(&definition, &entries, "2026-11-16T02:00:00Z", "2years", Period::Year),
                [""; 0]
            );
        }
    }

    #[test]
    fn what_was_before_is_one_range_and_what_is_held_or_offline_is_left_out() {
        let definition = map(KeyType::Timestamp);
        let mut entries = vec![entry(&definition, None, None)];
        let found = labels(&definition, &entries, "2026-03-31T23:59:59Z", "1months", Period::Month);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("before-2026-02-01 [-∞, "), "{found:?}");
        entries[0].state = State::Offline;
        assert_eq!(labels(&definition, &entries, "2026-03-31T23:59:59Z", "1months", Period::Month), [""; 0]);
        assert!(!is_by_time(&map(KeyType::BigInt)));
    }

    #[test]
    fn days_and_years_are_cut_too() {
        let definition = map(KeyType::Date);
        let entries = [entry(&definition, Some("2024-12-30"), Some("2025-01-02"))];
        let days = labels(&definition, &entries, "2026-01-01T00:00:00Z", "1days", Period::Day);
        assert_eq!(days.len(), 3, "{days:?}");
        let years = labels(&definition, &entries, "2027-01-01T00:00:00Z", "1years", Period::Year);
        let names: Vec<&str> = years.iter().map(|one| one.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["2024", "2025"]);
    }

    #[test]
    fn a_rule_is_due_once_each_time() {
        let at = |text: &str, every, minutes| {
            let since = due_since(ms(text), every, minutes) - UNIX_TO_2000_DAYS * DAY_MS;
            Key::Timestamp(since * 1_000).to_string()
        };
        assert_eq!(at("2026-11-16T02:59:00Z", Every::Day, 180), "2026-11-15T03:00:00Z");
        assert_eq!(at("2026-11-16T03:00:00Z", Every::Day, 180), "2026-11-16T03:00:00Z");
        assert_eq!(at("2026-11-16T02:59:00Z", Every::Hour, 0), "2026-11-16T02:00:00Z");
        assert_eq!(at("2026-11-15T12:00:00Z", Every::Week, 0), "2026-11-09T00:00:00Z");
        assert_eq!(at("2026-11-16T12:00:00Z", Every::Week, 0), "2026-11-16T00:00:00Z");
        assert_eq!(at("2026-11-01T02:00:00Z", Every::Month, 180), "2026-10-01T03:00:00Z");
        let next = |text: &str, every| {
            let next = due_next(ms(text), every, 180) - UNIX_TO_2000_DAYS * DAY_MS;
            Key::Timestamp(next * 1_000).to_string()
        };
        assert_eq!(next("2026-11-16T02:59:00Z", Every::Day), "2026-11-16T03:00:00Z");
        assert_eq!(next("2026-01-31T04:00:00Z", Every::Month), "2026-02-01T03:00:00Z");
        assert_eq!(next("2026-12-31T04:00:00Z", Every::Month), "2027-01-01T03:00:00Z");
        assert_eq!(next("2026-11-15T12:00:00Z", Every::Week), "2026-11-16T03:00:00Z");
        assert!(
            "25:00".parse::<Age>().is_err() && minutes("25:00").is_err() && "13moons".parse::<Age>().is_err()
        );
    }
}

//! Points in time as the Azure Storage protocols write them: RFC 1123 in headers, ISO 8601 with 100 ns in bodies.

use std::fmt;
use std::time::Duration;

/// Ticks of 100 ns in a second: the resolution of every time on these wires.
pub const TICKS_PER_SECOND: i64 = 10_000_000;

/// 0001-01-01T00:00:00Z, the first second the protocols can write.
const SECOND_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z, the last one.
const SECOND_MAX: i64 = 253_402_300_799;

const SECONDS_PER_DAY: i64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A point in time between the years 1 and 9999, in ticks of 100 ns since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 0001-01-01T00:00:00Z, the first time that can be written.
    pub const MIN: Timestamp = Timestamp(SECOND_MIN * TICKS_PER_SECOND);

    /// The time `ticks` of 100 ns after 1970-01-01T00:00:00Z, if its year has four digits.
    pub fn from_ticks(ticks: i64) -> Option<Timestamp> {
        let second = ticks.div_euclid(TICKS_PER_SECOND);
        (SECOND_MIN..=SECOND_MAX).contains(&second).then_some(Timestamp(ticks))
    }

    /// The time `ms` milliseconds after 1970-01-01T00:00:00Z, if its year has four digits.
    pub fn from_unix_ms(ms: i64) -> Option<Timestamp> {
        ms.checked_mul(TICKS_PER_SECOND / 1000).and_then(Timestamp::from_ticks)
    }

    /// Ticks of 100 ns since 1970-01-01T00:00:00Z.
    pub fn ticks(self) -> i64 {
        self.0
    }

    /// Milliseconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn unix_ms(self) -> i64 {
        self.0.div_euclid(TICKS_PER_SECOND / 1000)
    }

    /// This time and `duration`, if its year still has four digits.
    pub fn checked_add(self, duration: Duration) -> Option<Timestamp> {
        let ticks = i64::try_from(duration.as_nanos() / 100).ok()?;
        self.0.checked_add(ticks).and_then(Timestamp::from_ticks)
    }

    /// How far apart two times are, whichever is later.
    pub fn distance(self, other: Timestamp) -> Duration {
        let ticks = self.0.abs_diff(other.0);
        let (seconds, rest) = (ticks / TICKS_PER_SECOND as u64, ticks % TICKS_PER_SECOND as u64);
        Duration::new(seconds, u32::try_from(rest * 100).expect("less than a second of nanoseconds"))
    }

    /// As in headers and in the XML of queues: `Sun, 15 Nov 2026 07:25:16 GMT`.
    pub fn rfc1123(self) -> String {
        let at = Civil::of(self);
        let mut out = String::with_capacity("Sun, 15 Nov 2026 07:25:16 GMT".len());
        out.push_str(WEEKDAYS[at.weekday]);
        push_digits(&mut out, ", ", at.day, 2);
        out.push(' ');
        out.push_str(MONTHS[at.month - 1]);
        push_digits(&mut out, " ", at.year, 4);
        push_digits(&mut out, " ", at.hour, 2);
        push_digits(&mut out, ":", at.minute, 2);
        push_digits(&mut out, ":", at.second, 2);
        out.push_str(" GMT");
        out
    }

    /// As in the JSON of tables and in access policies: `2026-11-15T07:25:16.2221997Z`, always with seven digits.
    pub fn iso(self) -> String {
        let at = Civil::of(self);
        let mut out = String::with_capacity("2026-11-15T07:25:16.2221997Z".len());
        push_digits(&mut out, "", at.year, 4);
        push_digits(&mut out, "-", at.month as i64, 2);
        push_digits(&mut out, "-", at.day, 2);
        push_digits(&mut out, "T", at.hour, 2);
        push_digits(&mut out, ":", at.minute, 2);
        push_digits(&mut out, ":", at.second, 2);
        push_digits(&mut out, ".", at.tick, 7);
        out.push('Z');
        out
    }

    /// Reads the form of [`Timestamp::rfc1123`]; the name of the weekday is not checked against the date.
    pub fn parse_rfc1123(text: &str) -> Option<Timestamp> {
        let (weekday, rest) = text.trim().split_once(", ")?;
        WEEKDAYS.iter().position(|name| *name == weekday)?;
        let mut words = rest.split(' ');
        let (day, month, year) = (words.next()?, words.next()?, words.next()?);
        let (clock, zone) = (words.next()?, words.next()?);
        if words.next().is_some() || !matches!(zone, "GMT" | "UTC") {
            return None;
        }
        let month = MONTHS.iter().position(|name| *name == month)? + 1;
        let mut clock = clock.split(':');
        let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next()?);
        if clock.next().is_some() {
            return None;
        }
        let two = |text: &str| digits(text, 1, 2);
        seconds(digits(year, 4, 4)?, month as i64, two(day)?, two(hour)?, two(minute)?, two(second)?)
            .and_then(|second| Timestamp::from_ticks(second * TICKS_PER_SECOND))
    }

    /// Reads every ISO 8601 form that the SDKs write: a date, with minutes, with seconds, with up to nine digits of a
    /// second (those after the seventh are cut off), with `Z`, an offset or nothing, which means UTC.
    pub fn parse_iso(text: &str) -> Option<Timestamp> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let mut date = date.split('-');
        let (year, month, day) = (date.next()?, date.next()?, date.next()?);
        if date.next().is_some() {
            return None;
        }
        let (year, month, day) = (digits(year, 4, 4)?, digits(month, 2, 2)?, digits(day, 2, 2)?);
        let Some(time) = time else {
            return seconds(year, month, day, 0, 0, 0)
                .and_then(|second| Timestamp::from_ticks(second * TICKS_PER_SECOND));
        };
        let (clock, offset) = split_zone(time)?;
        let (clock, tick) = match clock.split_once('.') {
            Some((clock, fraction)) => (clock, ticks_of_fraction(fraction)?),
            None => (clock, 0),
        };
        let mut clock = clock.split(':');
        let (hour, minute) = (digits(clock.next()?, 2, 2)?, digits(clock.next()?, 2, 2)?);
        let second = clock.next().map_or(Some(0), |second| digits(second, 2, 2))?;
        if clock.next().is_some() {
            return None;
        }
        let second = seconds(year, month, day, hour, minute, second)?;
        Timestamp::from_ticks((second - offset) * TICKS_PER_SECOND + tick)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.iso())
    }
}

/// A time taken apart into the fields of the Gregorian calendar.
struct Civil {
    year: i64,
    month: usize,
    day: i64,
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
    tick: i64,
}

impl Civil {
    fn of(time: Timestamp) -> Civil {
        let (second, tick) = (time.0.div_euclid(TICKS_PER_SECOND), time.0.rem_euclid(TICKS_PER_SECOND));
        let (days, second) = (second.div_euclid(SECONDS_PER_DAY), second.rem_euclid(SECONDS_PER_DAY));
        // An estimate that is right for this century, then steps to the year: at most twenty, for the year 9999.
        let mut year = 1970 + days.div_euclid(366) - i64::from(days < 0);
        while year > 1 && days_before_year(year) > days {
            year -= 1;
        }
        while days_before_year(year + 1) <= days {
            year += 1;
        }
        let mut day = days - days_before_year(year);
        let mut month = 1;
        while day >= days_in_month(year, month) {
            day -= days_in_month(year, month);
            month += 1;
        }
        Civil {
            year,
            month: month as usize,
            day: day + 1,
            // 1970-01-01 was a Thursday.
            weekday: (days + 4).rem_euclid(7) as usize,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            tick,
        }
    }
}

/// Days from 1970-01-01 to the first of January of `year`.
fn days_before_year(year: i64) -> i64 {
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Seconds since 1970 of a calendar date and time, if there is such a one.
fn seconds(year: i64, month: i64, day: i64, hour: i64, minute: i64, second: i64) -> Option<i64> {
    if year < 1 || !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days =
        days_before_year(year) + (1..month).map(|month| days_in_month(year, month)).sum::<i64>() + day - 1;
    Some(days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second)
}

/// A separator, and a number that is not negative with all its digits: several times as fast as formatting it, and
/// every answer has a time or more.
fn push_digits(out: &mut String, separator: &str, number: i64, width: u32) {
    out.push_str(separator);
    for place in (0..width).rev() {
        let digit = number / 10_i64.pow(place) % 10;
        out.push(char::from(b'0' + digit.unsigned_abs() as u8));
    }
}

fn digits(text: &str, length_min: usize, length_max: usize) -> Option<i64> {
    let fits =
        (length_min..=length_max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn ticks_of_fraction(fraction: &str) -> Option<i64> {
    digits(fraction, 1, 9)?;
    let seven: String = fraction.chars().chain("0000000".chars()).take(7).collect();
    seven.parse().ok()
}

/// Parts a time of day from its zone, given back as seconds east of Greenwich.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(clock) = time.strip_suffix('Z') {
        return Some((clock, 0));
    }
    let Some(at) = time.find(['+', '-']) else { return Some((time, 0)) };
    let (clock, zone) = (&time[..at], &time[at + 1..]);
    let (hours, minutes) = zone.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2, 2)?, digits(minutes, 2, 2)?);
    if hours > 14 || minutes > 59 {
        return None;
    }
    let east = hours * 3600 + minutes * 60;
    Some((clock, if time.as_bytes()[at] == b'-' { -east } else { east }))
}

#[cfg(test)]
mod tests {
    use super::Timestamp;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_written_as_the_service_writes_them() {
        let time = Timestamp::from_ticks(1_794_727_516 * 10_000_000 + 2_221_997).unwrap();
        assert_eq!(time.iso(), "2026-11-15T07:25:16.2221997Z");
        assert_eq!(time.rfc1123(), "Sun, 15 Nov 2026 07:25:16 GMT");
        assert_eq!(Timestamp::from_ticks(0).unwrap().rfc1123(), "Thu, 01 Jan 1970 00:00:00 GMT");
        let first = Timestamp::parse_iso("0001-01-01").unwrap();
        assert_eq!(first.iso(), "0001-01-01T00:00:00.0000000Z");
        assert_eq!(first.rfc1123(), "Mon, 01 Jan 0001 00:00:00 GMT");
        let last = Timestamp::parse_iso("9999-12-31T23:59:59.9999999Z").unwrap();
        assert_eq!(last.iso(), "9999-12-31T23:59:59.9999999Z");
        assert_eq!(Timestamp::from_ticks(last.ticks() + 1), None);
    }

    #[test]
    fn every_form_of_iso_the_sdks_send_is_read() {
        let at = |text| Timestamp::parse_iso(text).map(Timestamp::iso);
        assert_eq!(at("2024-02-29").unwrap(), "2024-02-29T00:00:00.0000000Z");
        assert_eq!(at("2024-02-29T07:08Z").unwrap(), "2024-02-29T07:08:00.0000000Z");
        assert_eq!(at("2024-02-29T07:08:09Z").unwrap(), "2024-02-29T07:08:09.0000000Z");
        assert_eq!(at("2024-02-29T07:08:09.5Z").unwrap(), "2024-02-29T07:08:09.5000000Z");
        assert_eq!(at("2024-02-29T07:08:09.123456789").unwrap(), "2024-02-29T07:08:09.1234567Z");
        assert_eq!(at("2024-02-29T07:08:09+01:30").unwrap(), "2024-02-29T05:38:09.0000000Z");
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for text in [
            "",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "2024-01-01T25:00Z",
            "2024-01-01T",
            "x",
            "+024-01-01",
        ] {
            assert_eq!(Timestamp::parse_iso(text), None, "{text}");
        }
        for text in [
            "",
            "Sun, 31 Feb 2026 07:25:16 GMT",
            "Sun, 15 Nov 2026 07:25:16",
            "Someday, 15 Nov 2026 07:25:16 GMT",
        ] {
            assert_eq!(Timestamp::parse_rfc1123(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ticks in -621_355_968_000_000_000i64..2_534_023_008_000_000_000) {
            let time = Timestamp::from_ticks(ticks).unwrap();
            prop_assert_eq!(Timestamp::parse_iso(&time.iso()), Some(time));
            let second = Timestamp::from_ticks(ticks - ticks.rem_euclid(10_000_000)).unwrap();
            prop_assert_eq!(Timestamp::parse_rfc1123(&time.rfc1123()), Some(second));
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "\\PC{0,40}", iso in "[0-9TZ:.+-]{0,34}") {
            let _any = Timestamp::parse_iso(&text);
            let _any = Timestamp::parse_rfc1123(&text);
            let _any = Timestamp::parse_iso(&iso);
        }
    }
}

//! Dates and timestamps as PostgreSQL counts them (from 2000-01-01 UTC, proleptic Gregorian), to text and back.

use std::fmt;

/// First day PostgreSQL can hold: 4714-11-24 BC, day 0 of its Julian count.
pub(crate) const DATE_DAYS_MIN: i32 = -2_451_545;
/// Last day PostgreSQL can hold: 5874897-12-31.
pub(crate) const DATE_DAYS_MAX: i32 = 2_145_031_948;
/// First microsecond PostgreSQL can hold: 4714-11-24 00:00 BC.
pub(crate) const TIMESTAMP_MICROS_MIN: i64 = -211_813_488_000_000_000;
/// Last microsecond PostgreSQL can hold: the end of the year 294276.
pub(crate) const TIMESTAMP_MICROS_MAX: i64 = 9_223_371_331_199_999_999;

const DAY_MICROS: i64 = 86_400_000_000;
/// Days from 0000-03-01 (year 0 is 1 BC; March first puts the leap day last) to 2000-01-01.
const MARCH_0_TO_2000_DAYS: i64 = 730_425;
/// Days in 400 Gregorian years.
const ERA_DAYS: i64 = 146_097;
/// Farthest a zone is from UTC that PostgreSQL accepts, in hours.
const ZONE_HOURS_MAX: i64 = 15;

pub(crate) fn date_in_range(days: i32) -> bool {
    days == i32::MIN || days == i32::MAX || (DATE_DAYS_MIN..=DATE_DAYS_MAX).contains(&days)
}

pub(crate) fn timestamp_in_range(micros: i64) -> bool {
    micros == i64::MIN
        || micros == i64::MAX
        || (TIMESTAMP_MICROS_MIN..=TIMESTAMP_MICROS_MAX).contains(&micros)
}

pub(crate) fn write_date(f: &mut fmt::Formatter<'_>, days: i32) -> fmt::Result {
    match days {
        i32::MIN => f.write_str("-infinity"),
        i32::MAX => f.write_str("infinity"),
        _ => {
            let (year, month, day) = civil(i64::from(days));
            let (shown, suffix) = shown_year(year);
            write!(f, "{shown:04}-{month:02}-{day:02}{suffix}")
        }
    }
}

pub(crate) fn write_timestamp(f: &mut fmt::Formatter<'_>, micros: i64) -> fmt::Result {
    match micros {
        i64::MIN => return f.write_str("-infinity"),
        i64::MAX => return f.write_str("infinity"),
        _ => {}
    }
    let (days, of_day) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (year, month, day) = civil(days);
    let (shown, suffix) = shown_year(year);
    let (seconds, fraction) = (of_day / 1_000_000, of_day % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(f, "{shown:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if fraction != 0 {
        write!(f, ".{fraction:06}")?;
    }
    write!(f, "Z{suffix}")
}

pub(crate) fn parse_date(text: &str) -> Result<i32, String> {
    match text {
        "infinity" => return Ok(i32::MAX),
        "-infinity" => return Ok(i32::MIN),
        _ => {}
    }
    let (body, before_christ) = strip_era(text);
    let days = date_part(body, before_christ)?;
    i32::try_from(days)
        .ok()
        .filter(|days| (DATE_DAYS_MIN..=DATE_DAYS_MAX).contains(days))
        .ok_or_else(|| "PostgreSQL holds dates from 4714-11-24 BC to 5874897-12-31".to_owned())
}

pub(crate) fn parse_timestamp(text: &str) -> Result<i64, String> {
    match text {
        "infinity" => return Ok(i64::MAX),
        "-infinity" => return Ok(i64::MIN),
        _ => {}
    }
    let (body, before_christ) = strip_era(text);
    let separator = body.find(['T', 't', ' ']).ok_or_else(|| {
        "use YYYY-MM-DDTHH:MM:SS[.ffffff][Z|±HH:MM]; without an offset it is UTC".to_owned()
    })?;
    let days = date_part(&body[..separator], before_christ)?;
    let micros = time_part(&body[separator + 1..])?;
    days.checked_mul(DAY_MICROS)
        .and_then(|start| start.checked_add(micros))
        .filter(|micros| (TIMESTAMP_MICROS_MIN..=TIMESTAMP_MICROS_MAX).contains(micros))
        .ok_or_else(|| "PostgreSQL holds timestamps from 4714-11-24 BC to the year 294276".to_owned())
}

fn strip_era(text: &str) -> (&str, bool) {
    match text.strip_suffix(" BC") {
        Some(body) => (body, true),
        None => (text, false),
    }
}

/// Days since 2000-01-01 of `YYYY-MM-DD`.
fn date_part(text: &str, before_christ: bool) -> Result<i64, String> {
    let mut parts = text.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("write the date as YYYY-MM-DD".to_owned());
    };
    let year = number(year, 4..=7, "year")?;
    let (month, day) = (number(month, 2..=2, "month")?, number(day, 2..=2, "day")?);
    if year == 0 {
        return Err("there is no year 0000: use 0001 or 0001 BC".to_owned());
    }
    let year = if before_christ { 1 - year } else { year };
    let days = days_since_2000(year, month, day);
    // A day that does not exist (30 February) comes back as another one.
    if !(1..=12).contains(&month) || civil(days) != (year, month, day) {
        return Err("there is no such day in the calendar".to_owned());
    }
    Ok(days)
}

/// Microseconds to add to midnight UTC for `HH:MM:SS[.ffffff][Z|±HH[:MM]]`.
fn time_part(text: &str) -> Result<i64, String> {
    let zone_at = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = text.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut parts = clock.split(':');
    let (Some(hour), Some(minute), Some(second), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("write the time as HH:MM:SS".to_owned());
    };
    let (hour, minute) = (number(hour, 2..=2, "hour")?, number(minute, 2..=2, "minute")?);
    let second = number(second, 2..=2, "second")?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err("a time lies between 00:00:00 and 23:59:59".to_owned());
    }
    let digits = u32::try_from(fraction.len()).unwrap_or(u32::MAX);
    let fraction = number(fraction, 1..=6, "fraction of a second")? * 10_i64.pow(6 - digits.min(6));
    Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction - zone_micros(zone)?)
}

fn zone_micros(zone: &str) -> Result<i64, String> {
    if matches!(zone, "" | "Z" | "z") {
        return Ok(0);
    }
    let (sign, body) = match zone.as_bytes()[0] {
        b'-' => (-1, &zone[1..]),
        _ => (1, &zone[1..]),
    };
    let (hours, minutes) = match body.split_once(':') {
        Some(parts) => parts,
        None if body.len() == 4 && body.is_ascii() => body.split_at(2),
        None => (body, "00"),
    };
    let (hours, minutes) = (number(hours, 2..=2, "offset")?, number(minutes, 2..=2, "offset")?);
    if hours > ZONE_HOURS_MAX || minutes > 59 {
        return Err("an offset from UTC is at most 15:59".to_owned());
    }
    Ok(sign * (hours * 60 + minutes) * 60_000_000)
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>, what: &str) -> Result<i64, String> {
    if !digits.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("the {what} {text:?} is not {} to {} digits", digits.start(), digits.end()));
    }
    text.parse().map_err(|_| format!("the {what} {text:?} is too large"))
}

/// Year 0 is 1 BC in the arithmetic, and there is no year 0 on paper.
fn shown_year(year: i64) -> (i64, &'static str) {
    if year > 0 { (year, "") } else { (1 - year, " BC") }
}

/// The calendar day, `days` after 2000-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let from_march_0 = days + MARCH_0_TO_2000_DAYS;
    let era = from_march_0.div_euclid(ERA_DAYS);
    let of_era = from_march_0.rem_euclid(ERA_DAYS);
    // Each leap day so far is taken out before dividing into years of 365 days.
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// Days from 2000-01-01 to the given calendar day, which need not exist.
fn days_since_2000(year: i64, month: i64, day: i64) -> i64 {
    let march_year = if month <= 2 { year - 1 } else { year };
    let era = march_year.div_euclid(400);
    let year_of_era = march_year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * ERA_DAYS + of_era - MARCH_0_TO_2000_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(parse_date("2000-01-01"), Ok(0));
        assert_eq!(parse_date("1999-12-31"), Ok(-1));
        assert_eq!(parse_date("1970-01-01"), Ok(-10_957));
        assert_eq!(parse_date("4714-11-24 BC"), Ok(DATE_DAYS_MIN));
        assert_eq!(parse_date("5874897-12-31"), Ok(DATE_DAYS_MAX));
        assert!(parse_date("2023-02-29").is_err());
        assert!(parse_date("2023-13-01").is_err());
        assert!(parse_date("5874898-01-01").is_err());
    }

    #[test]
    fn known_moments() {
        assert_eq!(parse_timestamp("2000-01-01T00:00:00Z"), Ok(0));
        assert_eq!(parse_timestamp("2000-01-01 02:00:00.5+02:00"), Ok(500_000));
        assert_eq!(parse_timestamp("1999-12-31 19:30:00-0430"), Ok(0));
        assert_eq!(parse_timestamp("294276-12-31 23:59:59.999999"), Ok(TIMESTAMP_MICROS_MAX));
        assert_eq!(parse_timestamp("4714-11-24T00:00:00Z BC"), Ok(TIMESTAMP_MICROS_MIN));
        for wrong in
            ["2000-01-01", "2000-01-01T24:00:00", "2000-01-01T00:00:00.1234567", "2000-01-01T00:00", "T", "é"]
        {
            assert!(parse_timestamp(wrong).is_err(), "{wrong}");
        }
    }
}

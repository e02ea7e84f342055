//! Dates and times as PostgreSQL counts them: from 2000-01-01, proleptic Gregorian, in days and microseconds.

use polyshard_sql::SqlError;

use crate::fail::{fail, unsupported};
use crate::settings::Zone;

pub(crate) const DATE_DAYS_MIN: i64 = -2_451_545;
pub(crate) const DATE_DAYS_MAX: i64 = 2_145_031_948;
pub(crate) const TIMESTAMP_MICROS_MIN: i64 = -211_813_488_000_000_000;
pub(crate) const TIMESTAMP_MICROS_MAX: i64 = 9_223_371_331_199_999_999;
/// Stored for dates and timestamps alike; wider than any of them.
pub(crate) const INFINITY: i64 = i64::MAX;
pub(crate) const MINUS_INFINITY: i64 = i64::MIN;

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

pub(crate) fn is_infinite(value: i64) -> bool {
    value == INFINITY || value == MINUS_INFINITY
}

/// Days since 2000-01-01 of a day; year 0 is 1 BC.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 730_425
}

/// Year, month and day of days since 2000-01-01.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 730_425;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (years + era * 400 + i64::from(month <= 2), month, day)
}

pub(crate) fn month_days(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Monday is 1, Sunday 7.
pub(crate) fn iso_weekday(days: i64) -> i64 {
    (days + 5).rem_euclid(7) + 1
}

/// ISO year and week of a day.
pub(crate) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - iso_weekday(days) + 4;
    let (year, _, _) = civil(thursday);
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

/// Checks a date's range.
pub(crate) fn checked_date(days: i64) -> Result<i64, SqlError> {
    if (DATE_DAYS_MIN..=DATE_DAYS_MAX).contains(&days) {
        Ok(days)
    } else {
        Err(fail("22008", "date out of range"))
    }
}

/// Checks a timestamp's range.
pub(crate) fn checked_timestamp(micros: i128) -> Result<i64, SqlError> {
    match i64::try_from(micros) {
        Ok(micros) if (TIMESTAMP_MICROS_MIN..=TIMESTAMP_MICROS_MAX).contains(&micros) => Ok(micros),
        _ => Err(fail("22008", "timestamp out of range")),
    }
}

pub(crate) fn write_date(days: i64) -> String {
    match days {
        INFINITY => "infinity".to_owned(),
        MINUS_INFINITY => "-infinity".to_owned(),
        _ => {
            let (year, month, day) = civil(days);
            let (shown, suffix) = shown_year(year);
            format!("{shown:04}-{month:02}-{day:02}{suffix}")
        }
    }
}

pub(crate) fn write_time(micros: i64) -> String {
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    push_fraction(&mut text, fraction);
    text
}

/// With the zone's offset if there is a zone.
pub(crate) fn write_timestamp(micros: i64, zone: Option<&Zone>) -> String {
    match micros {
        INFINITY => return "infinity".to_owned(),
        MINUS_INFINITY => return "-infinity".to_owned(),
        _ => {}
    }
    let local = micros + zone.map_or(0, |zone| zone.offset_micros());
    let (year, month, day) = civil(local.div_euclid(DAY));
    let (shown, suffix) = shown_year(year);
    let time = write_time(local.rem_euclid(DAY));
    let offset = zone.map_or_else(String::new, Zone::shown);
    format!("{shown:04}-{month:02}-{day:02} {time}{offset}{suffix}")
}

fn shown_year(year: i64) -> (i64, &'static str) {
    if year > 0 { (year, "") } else { (1 - year, " BC") }
}

pub(crate) fn push_fraction(text: &mut String, fraction: i64) {
    if fraction != 0 {
        let digits = format!("{:06}", fraction.abs());
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
}

/// What a date or timestamp text says.
pub(crate) struct Parsed {
    /// Days, or infinity.
    pub days: i64,
    /// Microseconds of the day.
    pub time: Option<i64>,
    /// Offset east of UTC in microseconds.
    pub offset: Option<i64>,
}

/// Reads the ISO forms; other forms PostgreSQL knows are refused, never misread.
pub(crate) fn parse(type_name: &str, text: &str) -> Result<Parsed, SqlError> {
    let bad = || fail("22007", format!("invalid input syntax for type {type_name}: \"{text}\""));
    let trimmed = text.trim();
    let lower = trimmed.to_ascii_lowercase();
    let infinite = |days| Parsed { days, time: None, offset: None };
    match lower.as_str() {
        "infinity" | "+infinity" => return Ok(infinite(INFINITY)),
        "-infinity" => return Ok(infinite(MINUS_INFINITY)),
        "epoch" => return Ok(Parsed { days: -10_957, time: Some(0), offset: Some(0) }),
        "now" | "today" | "tomorrow" | "yesterday" | "allballs" => {
            return Err(unsupported(format!("the text '{lower}' as a {type_name}"))
                .hint("use now() or current_date: their time is that of the statement"));
        }
        _ => {}
    }
    if !lower.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let other_form = || {
        unsupported(format!("the form of the {type_name} \"{text}\""))
            .hint("write it as 2026-01-31 12:00:00+00")
    };
    let (body, before_christ) = match lower.strip_suffix("bc") {
        Some(rest) => (rest.trim_end(), true),
        None => (lower.strip_suffix("ad").map_or(lower.as_str(), str::trim_end), false),
    };
    let date_end = body.find(['t', ' ']).unwrap_or(body.len());
    let (date, rest) = body.split_at(date_end);
    let parts: Vec<&str> = date.split('-').collect();
    let number = |part: &str, most: usize| -> Option<i64> {
        let fits = !part.is_empty() && part.len() <= most && part.bytes().all(|byte| byte.is_ascii_digit());
        if fits { part.parse().ok() } else { None }
    };
    let (year, month, day) = match parts[..] {
        [year, month, day] if year.len() >= 3 => match (number(year, 7), number(month, 2), number(day, 2)) {
            (Some(year), Some(month), Some(day)) => (year, month, day),
            _ => return Err(other_form()),
        },
        [all] if all.len() == 8 => {
            match (number(&all[..4], 4), number(&all[4..6], 2), number(&all[6..], 2)) {
                (Some(year), Some(month), Some(day)) => (year, month, day),
                _ => return Err(other_form()),
            }
        }
        _ => return Err(other_form()),
    };
    let out_of_range = || fail("22008", format!("date/time field value out of range: \"{text}\""));
    if year == 0 || !(1..=12).contains(&month) {
        return Err(out_of_range());
    }
    let year = if before_christ { 1 - year } else { year };
    if day < 1 || day > month_days(year, month) {
        return Err(out_of_range());
    }
    let days = days_from_civil(year, month, day);
    let rest = rest.trim_start_matches(['t', ' ']);
    if rest.is_empty() {
        return Ok(Parsed { days, time: None, offset: None });
    }
    let (time, offset) = parse_time(rest).ok_or_else(other_form)?;
    let time = time.ok_or_else(out_of_range)?;
    Ok(Parsed { days, time: Some(time), offset })
}

/// `hh:mm[:ss[.fff]]` and an offset; the inner `None` is a time out of range.
pub(crate) fn parse_time(text: &str) -> Option<(Option<i64>, Option<i64>)> {
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == ':' || letter == '.'));
    let (time, zone) = text.split_at(end.unwrap_or(text.len()));
    let mut parts = time.split(':');
    let digits =
        |part: &str| part.len() <= 2 && !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (hour, minute) = (parts.next()?, parts.next()?);
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (second, fraction) = match parts.next() {
        None => ("0", 0),
        Some(seconds) => {
            let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
            if !digits(second) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (second, fraction_micros(fraction))
        }
    };
    if parts.next().is_some() {
        return None;
    }
    let (hour, minute, second): (i64, i64, i64) =
        (hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?);
    let micros = hour * HOUR + minute * MINUTE + second * SECOND + fraction;
    let fits = hour <= 24 && minute < 60 && second <= 60 && micros <= DAY;
    let zone = zone.trim();
    let offset = if zone.is_empty() { None } else { Some(parse_offset(zone)?) };
    Some((fits.then_some(micros), offset))
}

/// Digits after the point, rounded to microseconds.
pub(crate) fn fraction_micros(digits: &str) -> i64 {
    if digits.is_empty() {
        return 0;
    }
    let value: f64 = format!("0.{digits}").parse().unwrap_or(0.0);
    (value * SECOND as f64).round_ties_even() as i64
}

/// `Z`, `UTC`, `+hh`, `+hh:mm`, `+hhmm`, `+hh:mm:ss`: microseconds east of UTC.
pub(crate) fn parse_offset(text: &str) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "z" | "utc" | "gmt" | "zulu" | "ut") {
        return Some(0);
    }
    let (sign, body) = match lower.as_bytes().first()? {
        b'+' => (1, &lower[1..]),
        b'-' => (-1, &lower[1..]),
        _ => return None,
    };
    let parts: Vec<&str> = body.split(':').collect();
    let number = |part: &str| -> Option<i64> {
        if part.len() == 2 || part.len() == 1 { part.parse().ok() } else { None }
    };
    let (hours, minutes, seconds) = match parts[..] {
        [both] if both.len() == 4 && both.is_ascii() => (number(&both[..2])?, number(&both[2..])?, 0),
        [hours] => (number(hours)?, 0, 0),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return None,
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return None;
    }
    Some(sign * (hours * HOUR + minutes * MINUTE + seconds * SECOND))
}

/// A date from text.
pub(crate) fn parse_date(text: &str) -> Result<i64, SqlError> {
    let parsed = parse("date", text)?;
    if is_infinite(parsed.days) { Ok(parsed.days) } else { checked_date(parsed.days) }
}

/// A timestamp without zone from text: a zone in it is read and ignored, as PostgreSQL does.
pub(crate) fn parse_timestamp(text: &str) -> Result<i64, SqlError> {
    let parsed = parse("timestamp", text)?;
    if is_infinite(parsed.days) {
        return Ok(parsed.days);
    }
    checked_timestamp(i128::from(parsed.days) * i128::from(DAY) + i128::from(parsed.time.unwrap_or(0)))
}

/// A timestamp with zone from text.
pub(crate) fn parse_timestamptz(text: &str, zone: &Zone) -> Result<i64, SqlError> {
    let parsed = parse("timestamp with time zone", text)?;
    if is_infinite(parsed.days) {
        return Ok(parsed.days);
    }
    let offset = parsed.offset.unwrap_or_else(|| zone.offset_micros());
    let local = i128::from(parsed.days) * i128::from(DAY) + i128::from(parsed.time.unwrap_or(0));
    checked_timestamp(local - i128::from(offset))
}

/// A time of day from text.
pub(crate) fn parse_time_of_day(text: &str) -> Result<i64, SqlError> {
    let trimmed = text.trim().to_ascii_lowercase();
    let bad = || fail("22007", format!("invalid input syntax for type time: \"{text}\""));
    if !trimmed.bytes().any(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    match parse_time(&trimmed) {
        Some((Some(micros), _)) => Ok(micros),
        Some((None, _)) => Err(fail("22008", format!("date/time field value out of range: \"{text}\""))),
        None => Err(unsupported(format!("the form of the time \"{text}\"")).hint("write it as 12:30:00")),
    }
}

/// A timestamp as the zone shows it, or back.
pub(crate) fn to_local(micros: i64, zone: &Zone) -> Result<i64, SqlError> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    checked_timestamp(i128::from(micros) + i128::from(zone.offset_micros()))
}

/// From what the zone shows.
pub(crate) fn from_local(micros: i64, zone: &Zone) -> Result<i64, SqlError> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    checked_timestamp(i128::from(micros) - i128::from(zone.offset_micros()))
}

/// Midnight of a date.
pub(crate) fn date_to_timestamp(days: i64) -> Result<i64, SqlError> {
    if is_infinite(days) {
        return Ok(days);
    }
    checked_timestamp(i128::from(days) * i128::from(DAY))
        .map_err(|_| fail("22008", "date out of range for timestamp"))
}

/// The day of a timestamp.
pub(crate) fn timestamp_to_date(micros: i64) -> i64 {
    if is_infinite(micros) { micros } else { micros.div_euclid(DAY) }
}

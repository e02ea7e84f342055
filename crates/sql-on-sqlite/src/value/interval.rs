//! PostgreSQL's interval: months, days and microseconds kept apart.

use polyshard_sql::SqlError;

use super::calendar::{
    DAY, HOUR, MINUS_INFINITY, MINUTE, SECOND, checked_timestamp, civil, days_from_civil, fraction_micros,
    is_infinite, month_days, push_fraction,
};
use crate::fail::{fail, unsupported};

/// An interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

fn out_of_range() -> SqlError {
    fail("22008", "interval out of range")
}

impl Interval {
    /// As it is kept in SQLite.
    pub fn pack(&self) -> String {
        format!("{} {} {}", self.months, self.days, self.micros)
    }

    pub fn unpack(text: &str) -> Option<Interval> {
        let mut parts = text.split(' ');
        let interval = Interval {
            months: parts.next()?.parse().ok()?,
            days: parts.next()?.parse().ok()?,
            micros: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(interval)
    }

    /// What comparison goes by: months of 30 days, days of 24 hours.
    pub fn span(&self) -> i128 {
        (i128::from(self.months) * 30 + i128::from(self.days)) * i128::from(DAY) + i128::from(self.micros)
    }

    pub fn negated(&self) -> Result<Interval, SqlError> {
        Ok(Interval {
            months: self.months.checked_neg().ok_or_else(out_of_range)?,
            days: self.days.checked_neg().ok_or_else(out_of_range)?,
            micros: self.micros.checked_neg().ok_or_else(out_of_range)?,
        })
    }

    pub fn add(&self, other: &Interval) -> Result<Interval, SqlError> {
        Ok(Interval {
            months: self.months.checked_add(other.months).ok_or_else(out_of_range)?,
            days: self.days.checked_add(other.days).ok_or_else(out_of_range)?,
            micros: self.micros.checked_add(other.micros).ok_or_else(out_of_range)?,
        })
    }

    /// Fractions of months become days, fractions of days time; a month is 30 days.
    pub fn mul(&self, factor: f64) -> Result<Interval, SqlError> {
        self.scaled(|part| part * factor, |part| part * factor)
    }

    pub fn div(&self, divisor: f64) -> Result<Interval, SqlError> {
        if divisor == 0.0 {
            return Err(fail("22012", "division by zero"));
        }
        self.scaled(|part| part / divisor, |part| part / divisor)
    }

    fn scaled(&self, whole: impl Fn(f64) -> f64, time: impl Fn(f64) -> f64) -> Result<Interval, SqlError> {
        const SECS_PER_DAY: f64 = 86_400.0;
        let months = whole(f64::from(self.months));
        let days = whole(f64::from(self.days));
        if !(months.abs() <= f64::from(i32::MAX) && days.abs() <= f64::from(i32::MAX)) {
            return Err(out_of_range());
        }
        let (result_months, result_days) = (months as i32, days as i32);
        // As PostgreSQL does it, with its own rounding to microseconds.
        let round = |value: f64| (value * 1e6).round_ties_even() / 1e6;
        let month_remainder_days = round((months - f64::from(result_months)) * 30.0);
        let mut seconds = round(
            (days - f64::from(result_days) + month_remainder_days - month_remainder_days.trunc())
                * SECS_PER_DAY,
        );
        let mut result_days = i64::from(result_days);
        if seconds.abs() >= SECS_PER_DAY {
            result_days += (seconds / SECS_PER_DAY) as i64;
            seconds -= (seconds / SECS_PER_DAY).trunc() * SECS_PER_DAY;
        }
        result_days += month_remainder_days as i64;
        let micros = (time(self.micros as f64) + seconds * 1e6).round_ties_even();
        if micros.is_nan() || micros.abs() >= i64::MAX as f64 {
            return Err(out_of_range());
        }
        Ok(Interval {
            months: result_months,
            days: i32::try_from(result_days).map_err(|_| out_of_range())?,
            micros: micros as i64,
        })
    }

    /// Adds to a timestamp without zone (or in a zone of fixed distance, which is the same).
    pub fn add_to(&self, micros: i64) -> Result<i64, SqlError> {
        if is_infinite(micros) {
            return Ok(micros);
        }
        let mut days = micros.div_euclid(DAY);
        let time = micros.rem_euclid(DAY);
        if self.months != 0 {
            let (year, month, day) = civil(days);
            let month0 = month - 1 + i64::from(self.months);
            let (year, month) = (year + month0.div_euclid(12), month0.rem_euclid(12) + 1);
            days = days_from_civil(year, month, day.min(month_days(year, month)));
        }
        days += i64::from(self.days);
        checked_timestamp(i128::from(days) * i128::from(DAY) + i128::from(time) + i128::from(self.micros))
    }

    /// The difference of two timestamps as PostgreSQL's `-` gives it: days and time.
    pub fn between(later: i64, earlier: i64) -> Result<Interval, SqlError> {
        if is_infinite(later) || is_infinite(earlier) {
            return Err(fail("22008", "cannot subtract infinite timestamps"));
        }
        let micros = later.checked_sub(earlier).ok_or_else(|| fail("22008", "interval out of range"))?;
        Ok(Interval { months: 0, days: 0, micros }.justify_hours())
    }

    pub fn justify_hours(&self) -> Interval {
        let mut days = i64::from(self.days) + self.micros / DAY;
        let mut micros = self.micros % DAY;
        if days > 0 && micros < 0 {
            micros += DAY;
            days -= 1;
        } else if days < 0 && micros > 0 {
            micros -= DAY;
            days += 1;
        }
        Interval { months: self.months, days: days as i32, micros }
    }

    pub fn justify_days(&self) -> Interval {
        let mut months = self.months + self.days / 30;
        let mut days = self.days % 30;
        if months > 0 && days < 0 {
            days += 30;
            months -= 1;
        } else if months < 0 && days > 0 {
            days -= 30;
            months += 1;
        }
        Interval { months, days, micros: self.micros }
    }

    /// `age(a, b)`: years, months, days and time between.
    pub fn age(later: i64, earlier: i64) -> Result<Interval, SqlError> {
        if later == MINUS_INFINITY || earlier == MINUS_INFINITY {
            return Err(fail("22008", "timestamp out of range"));
        }
        if is_infinite(later) || is_infinite(earlier) {
            // PostgreSQL takes them for far dates, which is no age at all.
            return Err(unsupported("the age of an infinite timestamp"));
        }
        let negative = later < earlier;
        let (high, low) = if negative { (earlier, later) } else { (later, earlier) };
        let ((high_year, high_month, high_day), high_time) =
            (civil(high.div_euclid(DAY)), high.rem_euclid(DAY));
        let ((low_year, low_month, low_day), low_time) = (civil(low.div_euclid(DAY)), low.rem_euclid(DAY));
        let (mut year, mut month, mut day) =
            (high_year - low_year, high_month - low_month, high_day - low_day);
        let mut time = high_time - low_time;
        if time < 0 {
            time += DAY;
            day -= 1;
        }
        while day < 0 {
            // The length of the month that the earlier of the two lies in.
            day += month_days(low_year, low_month);
            month -= 1;
        }
        while month < 0 {
            month += 12;
            year -= 1;
        }
        let interval = Interval { months: (year * 12 + month) as i32, days: day as i32, micros: time };
        if negative { interval.negated() } else { Ok(interval) }
    }

    /// PostgreSQL's default style.
    pub fn shown(&self) -> String {
        let mut text = String::new();
        let mut before = false;
        let parts = [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")];
        for (value, unit) in parts {
            if value != 0 {
                if !text.is_empty() {
                    text.push(' ');
                }
                let plus = if before && value > 0 { "+" } else { "" };
                text.push_str(&format!("{plus}{value} {unit}{}", if value == 1 { "" } else { "s" }));
                before = value < 0;
            }
        }
        if text.is_empty() || self.micros != 0 {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(if self.micros < 0 {
                "-"
            } else if before {
                "+"
            } else {
                ""
            });
            let micros = self.micros.unsigned_abs();
            let second = SECOND as u64;
            text.push_str(&format!(
                "{:02}:{:02}:{:02}",
                micros / HOUR as u64,
                micros / MINUTE as u64 % 60,
                micros / second % 60
            ));
            push_fraction(&mut text, (micros % second) as i64);
        }
        text
    }

    /// The forms PostgreSQL prints, quantities with units, `hh:mm:ss`, and ISO 8601's `P…`.
    pub fn parse(text: &str) -> Result<Interval, SqlError> {
        let bad = || fail("22007", format!("invalid input syntax for type interval: \"{text}\""));
        let lower = text.trim().to_ascii_lowercase();
        if let Some(iso) = lower.strip_prefix('p') {
            return parse_iso(iso).ok_or_else(bad)?.finish();
        }
        let (body, ago) = match lower.strip_suffix("ago") {
            Some(rest) => (rest.trim_end(), true),
            None => (lower.as_str(), false),
        };
        let body = body.strip_prefix('@').unwrap_or(body).trim_start();
        let mut sum = Sum::default();
        let tokens = split(body);
        if tokens.is_empty() {
            return Err(bad());
        }
        let mut place = 0;
        while place < tokens.len() {
            let token = &tokens[place];
            if token.contains(':') {
                sum.add_clock(token).ok_or_else(bad)?;
                place += 1;
            } else if let Some((years, months)) = year_month(token) {
                sum.months += years * 12.0 + months;
                place += 1;
            } else {
                let quantity = Quantity::parse(token).ok_or_else(bad)?;
                let unit = tokens.get(place + 1).map_or("second", String::as_str);
                // A bare number is a number of seconds only at the end.
                sum.add(&quantity, unit).ok_or_else(bad)?;
                place += 2;
            }
        }
        let interval = sum.finish()?;
        if ago { interval.negated() } else { Ok(interval) }
    }
}

/// Numbers and words, also where they stand together as in `1day`.
fn split(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let numeric = |letter: char| letter.is_ascii_digit() || matches!(letter, '.' | '-' | '+' | ':');
        match word.find(|letter| !numeric(letter)) {
            Some(0) | None => tokens.push(word.to_owned()),
            Some(end) => {
                tokens.push(word[..end].to_owned());
                tokens.push(word[end..].to_owned());
            }
        }
    }
    tokens
}

fn year_month(token: &str) -> Option<(f64, f64)> {
    let (sign, body) = match token.strip_prefix('-') {
        Some(body) => (-1.0, body),
        None => (1.0, token.strip_prefix('+').unwrap_or(token)),
    };
    let (years, months) = body.split_once('-')?;
    let (years, months): (u32, u32) = (years.parse().ok()?, months.parse().ok()?);
    (months < 12).then_some((sign * f64::from(years), sign * f64::from(months)))
}

/// A number with its fraction apart, so that whole numbers stay exact.
struct Quantity {
    whole: i64,
    fraction: f64,
    fraction_digits: String,
    negative: bool,
}

impl Quantity {
    fn parse(text: &str) -> Option<Quantity> {
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = body.split_once('.').unwrap_or((body, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
            return None;
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let value: f64 = if fraction.is_empty() { 0.0 } else { format!("0.{fraction}").parse().ok()? };
        let sign = if negative { -1.0 } else { 1.0 };
        Some(Quantity {
            whole: if negative { -whole } else { whole },
            fraction: sign * value,
            fraction_digits: fraction.to_owned(),
            negative,
        })
    }
}

/// What has been read so far.
#[derive(Default)]
struct Sum {
    months: f64,
    days: i64,
    micros: i128,
}

impl Sum {
    fn add(&mut self, quantity: &Quantity, unit: &str) -> Option<()> {
        let whole = quantity.whole;
        let years = |sum: &mut Sum, factor: i64| {
            sum.months +=
                (whole * factor * 12) as f64 + (quantity.fraction * (factor * 12) as f64).round_ties_even();
        };
        match unit {
            "millennium" | "millennia" | "mil" | "mils" => years(self, 1000),
            "century" | "centuries" | "cent" | "c" => years(self, 100),
            "decade" | "decades" | "dec" | "decs" => years(self, 10),
            "year" | "years" | "y" | "yr" | "yrs" => years(self, 1),
            "month" | "months" | "mon" | "mons" => {
                self.months += whole as f64;
                self.fraction_days(quantity.fraction * 30.0);
            }
            "week" | "weeks" | "w" => {
                self.days += whole.checked_mul(7)?;
                self.fraction_days(quantity.fraction * 7.0);
            }
            "day" | "days" | "d" => {
                self.days += whole;
                self.micros += (quantity.fraction * DAY as f64).round_ties_even() as i128;
            }
            "hour" | "hours" | "h" | "hr" | "hrs" => self.time(quantity, HOUR),
            "minute" | "minutes" | "m" | "min" | "mins" => self.time(quantity, MINUTE),
            "second" | "seconds" | "s" | "sec" | "secs" => {
                let fraction = fraction_micros(&quantity.fraction_digits);
                let fraction = if quantity.negative { -fraction } else { fraction };
                self.micros += i128::from(whole) * i128::from(SECOND) + i128::from(fraction);
            }
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" | "mseconds" => {
                self.time(quantity, 1000)
            }
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" | "useconds" => self.time(quantity, 1),
            _ => return None,
        }
        Some(())
    }

    fn time(&mut self, quantity: &Quantity, unit: i64) {
        self.micros += i128::from(quantity.whole) * i128::from(unit)
            + (quantity.fraction * unit as f64).round_ties_even() as i128;
    }

    fn fraction_days(&mut self, days: f64) {
        self.days += days as i64;
        self.micros += ((days - days.trunc()) * DAY as f64).round_ties_even() as i128;
    }

    fn add_clock(&mut self, token: &str) -> Option<()> {
        let (sign, body) = match token.strip_prefix('-') {
            Some(body) => (-1, body),
            None => (1, token.strip_prefix('+').unwrap_or(token)),
        };
        let parts: Vec<&str> = body.split(':').collect();
        let whole = |text: &str| -> Option<i64> {
            if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
                text.parse().ok()
            } else {
                None
            }
        };
        let (hours, minutes, seconds) = match parts[..] {
            [hours, minutes] if !minutes.contains('.') => (whole(hours)?, whole(minutes)?, "0"),
            [minutes, seconds] => (0, whole(minutes)?, seconds),
            [hours, minutes, seconds] => (whole(hours)?, whole(minutes)?, seconds),
            _ => return None,
        };
        let (second, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
        let second = whole(second)?;
        if minutes > 59 || second > 59 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let micros = i128::from(hours) * i128::from(HOUR)
            + i128::from(minutes * MINUTE + second * SECOND + fraction_micros(fraction));
        self.micros += sign * micros;
        Some(())
    }

    fn finish(self) -> Result<Interval, SqlError> {
        if self.months.abs() > f64::from(i32::MAX) {
            return Err(out_of_range());
        }
        Ok(Interval {
            months: self.months as i32,
            days: i32::try_from(self.days).map_err(|_| out_of_range())?,
            micros: i64::try_from(self.micros).map_err(|_| out_of_range())?,
        })
    }
}

fn parse_iso(text: &str) -> Option<Sum> {
    let mut sum = Sum::default();
    let (date, time) = text.split_once('t').unwrap_or((text, ""));
    let mut part = |text: &str, units: &[(char, &str)]| -> Option<()> {
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|letter: char| letter.is_ascii_alphabetic())?;
            let letter = rest[end..].chars().next()?;
            let unit = units.iter().find(|(short, _)| *short == letter)?.1;
            sum.add(&Quantity::parse(&rest[..end])?, unit)?;
            rest = &rest[end + 1..];
        }
        Some(())
    };
    part(date, &[('y', "year"), ('m', "month"), ('w', "week"), ('d', "day")])?;
    part(time, &[('h', "hour"), ('m', "minute"), ('s', "second")])?;
    if date.is_empty() && time.is_empty() {
        return None;
    }
    Some(sum)
}

//! Dates, timestamps and intervals.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;

use super::{Answer, int, real, strict, text, to_char, zone};
use crate::fail::{fail, unsupported};
use crate::value::calendar::{
    DAY, HOUR, MINUTE, SECOND, checked_date, checked_timestamp, civil, days_from_civil, is_infinite,
    iso_week, iso_weekday, month_days,
};
use crate::value::interval::Interval;
use crate::value::numeric::Numeric;

/// Microseconds from 1970 to 2000.
const UNIX_EPOCH: i128 = 946_684_800_000_000;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_date_add", 2, |a| shift_date(int(&a[0])?, int(&a[1])?)),
        strict("pg_date_sub", 2, |a| shift_date(int(&a[0])?, -int(&a[1])?)),
        strict("pg_date_time", 2, |a| {
            let midnight = crate::value::calendar::date_to_timestamp(int(&a[0])?)?;
            if is_infinite(midnight) {
                return Ok(Value::Int(midnight));
            }
            checked_timestamp(i128::from(midnight) + i128::from(int(&a[1])?)).map(Value::Int)
        }),
        strict("pg_date_diff", 2, |a| {
            let (a, b) = (int(&a[0])?, int(&a[1])?);
            if is_infinite(a) || is_infinite(b) {
                return Err(fail("22008", "cannot subtract infinite dates"));
            }
            Ok(Value::Int(a - b))
        }),
        strict("pg_ts_add", 2, |a| interval(&a[1])?.add_to(int(&a[0])?).map(Value::Int)),
        strict("pg_ts_sub", 2, |a| interval(&a[1])?.negated()?.add_to(int(&a[0])?).map(Value::Int)),
        // With a zone of fixed distance, months and days are those the zone shows.
        strict("pg_tstz_add", 3, |a| zoned(a, |local, interval| interval.add_to(local))),
        strict("pg_tstz_sub", 3, |a| zoned(a, |local, interval| interval.negated()?.add_to(local))),
        strict("pg_ts_diff", 2, |a| Interval::between(int(&a[0])?, int(&a[1])?).map(kept)),
        strict("pg_interval_add", 2, |a| interval(&a[0])?.add(&interval(&a[1])?).map(kept)),
        strict("pg_interval_sub", 2, |a| interval(&a[0])?.add(&interval(&a[1])?.negated()?).map(kept)),
        strict("pg_interval_neg", 1, |a| interval(&a[0])?.negated().map(kept)),
        strict("pg_interval_mul", 2, |a| interval(&a[0])?.mul(real(&a[1])?).map(kept)),
        strict("pg_interval_div", 2, |a| interval(&a[0])?.div(real(&a[1])?).map(kept)),
        strict("pg_interval_cmp", 2, |a| {
            Ok(Value::Int(interval(&a[0])?.span().cmp(&interval(&a[1])?.span()) as i64))
        }),
        strict("pg_justify_days", 1, |a| Ok(kept(interval(&a[0])?.justify_days()))),
        strict("pg_justify_hours", 1, |a| Ok(kept(interval(&a[0])?.justify_hours()))),
        strict("pg_age", 2, |a| Interval::age(int(&a[0])?, int(&a[1])?).map(kept)),
        strict("pg_isfinite", 1, |a| Ok(Value::Int((!is_infinite(int(&a[0])?)).into()))),
        strict("pg_trunc_ts", 2, |a| truncate(text(&a[0])?, int(&a[1])?).map(Value::Int)),
        strict("pg_trunc_tstz", 3, |a| {
            let zone = zone(&a[2])?;
            let micros = int(&a[1])?;
            let local = crate::value::calendar::to_local(micros, &zone)?;
            crate::value::calendar::from_local(truncate(text(&a[0])?, local)?, &zone).map(Value::Int)
        }),
        strict("pg_trunc_interval", 2, |a| truncate_interval(text(&a[0])?, interval(&a[1])?).map(kept)),
        strict("pg_extract_date", 2, |a| shown(extract_date(&unit(&a[0])?, int(&a[1])?)?)),
        strict("pg_extract_ts", 2, |a| shown(extract(&unit(&a[0])?, int(&a[1])?, None)?)),
        strict("pg_extract_tstz", 3, |a| shown(extract(&unit(&a[0])?, int(&a[1])?, Some(&a[2]))?)),
        strict("pg_extract_interval", 2, |a| {
            shown(Some(extract_interval(&unit(&a[0])?, &interval(&a[1])?)?))
        }),
        strict("pg_to_char_ts", 3, |a| to_char::timestamp(int(&a[0])?, text(&a[1])?, &zone(&a[2])?)),
        strict("pg_to_char_num", 2, |a| to_char::number(&Numeric::parse(text(&a[0])?)?, text(&a[1])?)),
        strict("pg_make_date", 3, |a| {
            let (year, month, day) = (int(&a[0])?, int(&a[1])?, int(&a[2])?);
            let out_of_range =
                || fail("22008", format!("date field value out of range: {year}-{month:02}-{day:02}"));
            let own = if year < 0 { year + 1 } else { year };
            if year == 0 || !(1..=12).contains(&month) || day < 1 || day > month_days(own, month) {
                return Err(out_of_range());
            }
            checked_date(days_from_civil(own, month, day)).map(Value::Int)
        }),
        strict("pg_to_timestamp", 1, |a| {
            let seconds = real(&a[0])?;
            if seconds.is_infinite() {
                return Ok(Value::Int(if seconds > 0.0 { i64::MAX } else { i64::MIN }));
            }
            let micros = (seconds - 946_684_800.0) * 1e6;
            if micros.abs() > 1e19 {
                return Err(fail("22008", format!("timestamp out of range: \"{seconds}\"")));
            }
            checked_timestamp(micros.round_ties_even() as i128).map(Value::Int)
        }),
    ]);
}

fn interval(value: &Value) -> Result<Interval, SqlError> {
    Interval::unpack(text(value)?).ok_or_else(|| fail("XX000", "an interval that is none"))
}

fn kept(interval: Interval) -> Value {
    Value::Text(interval.pack())
}

fn shown(number: Option<Numeric>) -> Answer {
    Ok(number.map(|number| number.to_string()).into())
}

fn shift_date(days: i64, by: i64) -> Answer {
    if is_infinite(days) {
        return Ok(Value::Int(days));
    }
    checked_date(days.saturating_add(by)).map(Value::Int)
}

fn zoned(a: &[Value], body: fn(i64, Interval) -> Result<i64, SqlError>) -> Answer {
    let (micros, interval, zone) = (int(&a[0])?, interval(&a[1])?, zone(&a[2])?);
    let local = crate::value::calendar::to_local(micros, &zone)?;
    crate::value::calendar::from_local(body(local, interval)?, &zone).map(Value::Int)
}

/// The unit's one name out of its several.
fn unit(value: &Value) -> Result<String, SqlError> {
    let given = text(value)?.to_ascii_lowercase();
    Ok(match given.as_str() {
        "years" | "y" | "yr" | "yrs" => "year",
        "months" | "mon" | "mons" => "month",
        "days" | "d" => "day",
        "hours" | "h" | "hr" | "hrs" => "hour",
        "minutes" | "m" | "min" | "mins" => "minute",
        "seconds" | "s" | "sec" | "secs" => "second",
        "milliseconds" | "millisecond" | "ms" | "msec" | "msecs" => "millisecond",
        "microseconds" | "microsecond" | "us" | "usec" | "usecs" => "microsecond",
        "weeks" | "w" => "week",
        "quarters" | "qtr" => "quarter",
        "decades" | "dec" | "decs" => "decade",
        "centuries" | "cent" | "c" => "century",
        "millennia" | "mil" | "mils" => "millennium",
        other => other,
    }
    .to_owned())
}

fn no_unit(kind: &str, unit: &str) -> SqlError {
    fail("22023", format!("unit \"{unit}\" not recognized for type {kind}"))
}

fn unit_for_other(kind: &str, unit: &str) -> SqlError {
    fail("0A000", format!("unit \"{unit}\" not supported for type {kind}"))
}

fn truncate(unit_name: &str, micros: i64) -> Result<i64, SqlError> {
    if is_infinite(micros) {
        return Ok(micros);
    }
    let unit_name = unit(&Value::from(unit_name))?;
    let known = [
        "microsecond",
        "millisecond",
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
        "decade",
        "century",
        "millennium",
    ];
    if !known.contains(&unit_name.as_str()) {
        return Err(no_unit("timestamp without time zone", &unit_name));
    }
    let down = |unit: i64| micros.div_euclid(unit) * unit;
    let days = micros.div_euclid(DAY);
    let (year, month, _) = civil(days);
    let from_year = |year: i64| days_from_civil(year, 1, 1);
    let days = match unit_name.as_str() {
        "microsecond" => return Ok(micros),
        "millisecond" => return Ok(down(1000)),
        "second" => return Ok(down(SECOND)),
        "minute" => return Ok(down(MINUTE)),
        "hour" => return Ok(down(HOUR)),
        "day" => days,
        "week" => days - iso_weekday(days) + 1,
        "month" => days_from_civil(year, month, 1),
        "quarter" => days_from_civil(year, (month - 1) / 3 * 3 + 1, 1),
        "year" => from_year(year),
        "decade" => from_year(year.div_euclid(10) * 10),
        "century" => from_year((year - 1).div_euclid(100) * 100 + 1),
        _ => from_year((year - 1).div_euclid(1000) * 1000 + 1),
    };
    checked_timestamp(i128::from(days) * i128::from(DAY))
}

fn truncate_interval(unit_name: &str, interval: Interval) -> Result<Interval, SqlError> {
    let unit_name = unit(&Value::from(unit_name))?;
    let months = |unit: i32| Interval { months: interval.months / unit * unit, days: 0, micros: 0 };
    let time = |unit: i64| Interval { micros: interval.micros / unit * unit, ..interval };
    Ok(match unit_name.as_str() {
        "millennium" => months(12_000),
        "century" => months(1200),
        "decade" => months(120),
        "year" => months(12),
        "quarter" => months(3),
        "month" => months(1),
        "day" => Interval { micros: 0, ..interval },
        "hour" => time(HOUR),
        "minute" => time(MINUTE),
        "second" => time(SECOND),
        "millisecond" => time(1000),
        "microsecond" => interval,
        "week" => return Err(unit_for_other("interval", "week")),
        other => return Err(no_unit("interval", other)),
    })
}

fn whole(value: i64) -> Option<Numeric> {
    Some(Numeric::from_i128(value.into()))
}

fn units(value: i128, scale: u32) -> Option<Numeric> {
    Some(Numeric::from_units(value, scale))
}

fn extract_date(unit: &str, days: i64) -> Result<Option<Numeric>, SqlError> {
    match unit {
        "hour" | "minute" | "second" | "millisecond" | "microsecond" | "timezone" | "timezone_hour"
        | "timezone_minute" => return Err(unit_for_other("date", unit)),
        _ => {}
    }
    if is_infinite(days) {
        return infinite("date", unit, days);
    }
    if unit == "epoch" {
        return Ok(whole((days + 10_957) * 86_400));
    }
    of_day("date", unit, days)
}

fn infinite(kind: &str, unit: &str, value: i64) -> Result<Option<Numeric>, SqlError> {
    match unit {
        "year" | "decade" | "century" | "millennium" | "isoyear" | "epoch" | "julian" => {
            Ok(Some(Numeric::Infinity { negative: value < 0 }))
        }
        _ => of_day(kind, unit, 0).map(|_| None).or_else(|error| match unit {
            "hour" | "minute" | "second" | "millisecond" | "microsecond" | "timezone" | "timezone_hour"
            | "timezone_minute" => Ok(None),
            _ => Err(error),
        }),
    }
}

fn of_day(kind: &str, unit: &str, days: i64) -> Result<Option<Numeric>, SqlError> {
    let (year, month, day) = civil(days);
    // There is no year 0: 1 BC is -1.
    let shown_year = if year > 0 { year } else { year - 1 };
    Ok(match unit {
        "year" => whole(shown_year),
        "month" => whole(month),
        "day" => whole(day),
        "quarter" => whole((month - 1) / 3 + 1),
        "week" => whole(iso_week(days).1),
        "isoyear" => {
            let year = iso_week(days).0;
            whole(if year > 0 { year } else { year - 1 })
        }
        "decade" => whole(year.div_euclid(10)),
        "century" => whole(if year > 0 { (year + 99) / 100 } else { -((99 - (year - 1)) / 100) }),
        "millennium" => whole(if year > 0 { (year + 999) / 1000 } else { -((999 - (year - 1)) / 1000) }),
        "dow" => whole(iso_weekday(days) % 7),
        "isodow" => whole(iso_weekday(days)),
        "doy" => whole(days - days_from_civil(year, 1, 1) + 1),
        "julian" => return Err(unsupported("the unit julian")),
        other => return Err(no_unit(kind, other)),
    })
}

/// Of a timestamp, with the zone for one with time zone.
fn extract(unit: &str, micros: i64, in_zone: Option<&Value>) -> Result<Option<Numeric>, SqlError> {
    let zone = in_zone.map(zone).transpose()?;
    let kind = if zone.is_some() { "timestamp with time zone" } else { "timestamp without time zone" };
    if is_infinite(micros) {
        return infinite(kind, unit, micros);
    }
    let offset = zone.as_ref().map_or(0, |zone| zone.offset_micros());
    let local = micros + offset;
    let of_day_micros = local.rem_euclid(DAY);
    Ok(match (unit, &zone) {
        ("epoch", _) => units(i128::from(micros) + UNIX_EPOCH, 6),
        ("microsecond", _) => whole(of_day_micros % MINUTE),
        ("millisecond", _) => units((of_day_micros % MINUTE).into(), 3),
        ("second", _) => units((of_day_micros % MINUTE).into(), 6),
        ("minute", _) => whole(of_day_micros / MINUTE % 60),
        ("hour", _) => whole(of_day_micros / HOUR),
        ("timezone", Some(_)) => whole(offset / SECOND),
        ("timezone_hour", Some(_)) => whole(offset / HOUR),
        ("timezone_minute", Some(_)) => whole(offset % HOUR / MINUTE),
        ("timezone" | "timezone_hour" | "timezone_minute", None) => return Err(unit_for_other(kind, unit)),
        _ => return of_day(kind, unit, local.div_euclid(DAY)),
    })
}

fn extract_interval(unit: &str, interval: &Interval) -> Result<Numeric, SqlError> {
    let (years, months) = (i64::from(interval.months / 12), i64::from(interval.months % 12));
    let time = interval.micros;
    let value = match unit {
        "year" => whole(years),
        "month" => whole(months),
        "quarter" => whole(months / 3 + 1),
        "decade" => whole(years / 10),
        "century" => whole(years / 100),
        "millennium" => whole(years / 1000),
        "day" => whole(interval.days.into()),
        "hour" => whole(time / HOUR),
        "minute" => whole(time / MINUTE % 60),
        "second" => units((time % MINUTE).into(), 6),
        "millisecond" => units((time % MINUTE).into(), 3),
        "microsecond" => whole(time % MINUTE),
        "epoch" => {
            // A year is 365.25 days, a month 30.
            let quarter_days =
                i128::from(years) * 1461 + i128::from(months) * 120 + i128::from(interval.days) * 4;
            units(quarter_days * i128::from(DAY / 4) + i128::from(time), 6)
        }
        "week" | "dow" | "isodow" | "doy" | "isoyear" | "timezone" | "timezone_hour" | "timezone_minute" => {
            return Err(unit_for_other("interval", unit));
        }
        other => return Err(no_unit("interval", other)),
    };
    value.ok_or_else(|| fail("XX000", "an interval has all units"))
}

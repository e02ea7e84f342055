//! Functions of dates and times, which are strings such as `2024-10-14T14:20:30.6668888Z`.

use super::calendar::{DAY, Moment, SECOND, days_of_month};
use super::{Function, checked, date_format, integer, or_undefined, plain};
use crate::value::Value;

/// Ticks of one millisecond.
const MILLISECOND: i64 = SECOND / 1000;

pub(super) const FUNCTIONS: &[Function] = &[
    checked("Ago", 2, Some(2), |context, a| Ok(or_undefined(shifted(context.now_ticks, &a[0], &a[1], -1)))),
    plain("DateTimeAdd", 3, 3, |a| {
        or_undefined(read(&a[2]).and_then(|ticks| shifted(ticks, &a[0], &a[1], 1)))
    }),
    plain("DateTimeBin", 2, 4, |a| or_undefined(bin(a))),
    plain("DateTimeDiff", 3, 3, |a| or_undefined(difference(a))),
    plain("DateTimeFormat", 2, 2, |a| or_undefined(format(a))),
    plain("DateTimeFromParts", 3, 7, |a| or_undefined(from_parts(a))),
    plain("DateTimePart", 2, 2, |a| or_undefined(Part::read(&a[0]).and_then(|part| part_of(part, &a[1])))),
    plain("DateTimeToTicks", 1, 1, |a| or_undefined(read(&a[0]).map(|ticks| Value::Number(ticks as f64)))),
    plain("DateTimeToTimestamp", 1, 1, |a| {
        or_undefined(read(&a[0]).map(|ticks| Value::Number(ticks.div_euclid(MILLISECOND) as f64)))
    }),
    plain("DAY", 1, 1, |a| or_undefined(part_of(Part::Day, &a[0]))),
    checked("GetCurrentDateTime", 0, Some(0), |context, _| Ok(or_undefined(write(context.now_ticks)))),
    checked("GetCurrentDateTimeStatic", 0, Some(0), |context, _| Ok(or_undefined(write(context.now_ticks)))),
    checked("GetCurrentTicks", 0, Some(0), |context, _| Ok(Value::Number(context.now_ticks as f64))),
    checked("GetCurrentTicksStatic", 0, Some(0), |context, _| Ok(Value::Number(context.now_ticks as f64))),
    checked("GetCurrentTimestamp", 0, Some(0), |context, _| Ok(timestamp(context.now_ticks))),
    checked("GetCurrentTimestampStatic", 0, Some(0), |context, _| Ok(timestamp(context.now_ticks))),
    plain("MONTH", 1, 1, |a| or_undefined(part_of(Part::Month, &a[0]))),
    checked("Now", 0, Some(2), |context, a| {
        Ok(or_undefined(match a {
            [] => write(context.now_ticks),
            [part, number] => shifted(context.now_ticks, part, number, 1),
            _ => None,
        }))
    }),
    plain("TicksToDateTime", 1, 1, |a| or_undefined(integer(&a[0]).and_then(write))),
    plain("TimestampToDateTime", 1, 1, |a| {
        or_undefined(integer(&a[0]).and_then(|stamp| stamp.checked_mul(MILLISECOND)).and_then(write))
    }),
    plain("YEAR", 1, 1, |a| or_undefined(part_of(Part::Year, &a[0]))),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Part {
    fn read(value: &Value) -> Option<Part> {
        Some(match value.as_str()?.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Part::Year,
            "month" | "mm" | "m" => Part::Month,
            "day" | "dd" | "d" => Part::Day,
            "hour" | "hh" => Part::Hour,
            "minute" | "mi" | "n" => Part::Minute,
            "second" | "ss" | "s" => Part::Second,
            "millisecond" | "ms" => Part::Millisecond,
            "microsecond" | "mcs" => Part::Microsecond,
            "nanosecond" | "ns" => Part::Nanosecond,
            _ => return None,
        })
    }

    /// `number` of these in ticks; a tick is 100 nanoseconds. None for years and months.
    fn ticks(self, number: i64) -> Option<i64> {
        match self {
            Part::Year | Part::Month => None,
            Part::Day => number.checked_mul(DAY),
            Part::Hour => number.checked_mul(3600 * SECOND),
            Part::Minute => number.checked_mul(60 * SECOND),
            Part::Second => number.checked_mul(SECOND),
            Part::Millisecond => number.checked_mul(MILLISECOND),
            Part::Microsecond => number.checked_mul(10),
            Part::Nanosecond => Some(number / 100),
        }
    }
}

/// Reads `YYYY-MM-DD`, then perhaps a `T` or space with `hh:mm:ss` and up to seven digits, then perhaps `Z`.
pub(super) fn read(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    let text = text.strip_suffix('Z').unwrap_or(text);
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
        Some(digits.iter().fold(0i64, |number, digit| number * 10 + i64::from(digit - b'0')))
    };
    let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|byte| wanted.contains(byte));
    if !is(4, b"-") || !is(7, b"-") {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let mut moment = Moment { year, month, day, hour: 0, minute: 0, second: 0, fraction: 0 };
    if bytes.len() == 10 {
        return moment.ticks();
    }
    if !is(10, b"T ") || !is(13, b":") || !is(16, b":") {
        return None;
    }
    (moment.hour, moment.minute, moment.second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let digits = bytes.len().saturating_sub(20);
    match bytes.len() {
        19 => {}
        _ if is(19, b".") && (1..=7).contains(&digits) => {
            moment.fraction = number(20, bytes.len())? * 10i64.pow(7 - digits as u32);
        }
        _ => return None,
    }
    moment.ticks()
}

/// The form in which all functions return a date and time.
fn write(ticks: i64) -> Option<Value> {
    let Moment { year, month, day, hour, minute, second, fraction } = Moment::from_ticks(ticks)?;
    Some(Value::from(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:07}Z"
    )))
}

fn timestamp(ticks: i64) -> Value {
    Value::Number(ticks.div_euclid(MILLISECOND) as f64)
}

/// The date and time `number` parts later, or earlier for a `sign` of -1.
fn shifted(ticks: i64, part: &Value, number: &Value, sign: i64) -> Option<Value> {
    let number = integer(number)?.checked_mul(sign)?;
    let months = match Part::read(part)? {
        Part::Year => number.checked_mul(12)?,
        Part::Month => number,
        part => return write(ticks.checked_add(part.ticks(number)?)?),
    };
    let mut moment = Moment::from_ticks(ticks)?;
    let month = (moment.year * 12 + moment.month - 1).checked_add(months)?;
    (moment.year, moment.month) = (month.div_euclid(12), month.rem_euclid(12) + 1);
    moment.day = moment.day.min(days_of_month(moment.year, moment.month));
    write(moment.ticks()?)
}

/// Rounds down to a multiple of the bin size, counted from the start.
fn bin(arguments: &[Value]) -> Option<Value> {
    /// The Windows epoch, 1601-01-01: bins may not start before it.
    const START_MIN: i64 = -116_444_736_000_000_000;
    let ticks = read(&arguments[0])?;
    let size = arguments.get(2).map_or(Some(1), integer).filter(|size| *size > 0)?;
    let start = arguments.get(3).map_or(Some(0), read).filter(|start| *start >= START_MIN)?;
    let width = Part::read(&arguments[1])?.ticks(size)?.max(1);
    write(start + (ticks - start).div_euclid(width) * width)
}

/// How many boundaries of a part lie between two dates and times.
fn difference(arguments: &[Value]) -> Option<Value> {
    let part = Part::read(&arguments[0])?;
    let count = |value: &Value| {
        let ticks = read(value)?;
        let moment = Moment::from_ticks(ticks)?;
        Some(i128::from(match part {
            Part::Year => moment.year,
            Part::Month => moment.year * 12 + moment.month,
            Part::Nanosecond => return Some(i128::from(ticks) * 100),
            part => ticks.div_euclid(part.ticks(1)?),
        }))
    };
    Some(Value::Number((count(&arguments[2])? - count(&arguments[1])?) as f64))
}

fn format(arguments: &[Value]) -> Option<Value> {
    let moment = Moment::from_ticks(read(&arguments[0])?)?;
    Some(Value::from(date_format::format(&moment, arguments[1].as_str()?)))
}

fn from_parts(arguments: &[Value]) -> Option<Value> {
    let part = |index: usize| arguments.get(index).map_or(Some(0), integer);
    let moment = Moment {
        year: part(0)?,
        month: part(1)?,
        day: part(2)?,
        hour: part(3)?,
        minute: part(4)?,
        second: part(5)?,
        fraction: part(6)?,
    };
    moment.ticks().and_then(write)
}

fn part_of(part: Part, value: &Value) -> Option<Value> {
    let moment = Moment::from_ticks(read(value)?)?;
    let number = match part {
        Part::Year => moment.year,
        Part::Month => moment.month,
        Part::Day => moment.day,
        Part::Hour => moment.hour,
        Part::Minute => moment.minute,
        Part::Second => moment.second,
        Part::Millisecond => moment.fraction / MILLISECOND,
        Part::Microsecond => moment.fraction / 10,
        Part::Nanosecond => moment.fraction * 100,
    };
    Some(Value::Number(number as f64))
}

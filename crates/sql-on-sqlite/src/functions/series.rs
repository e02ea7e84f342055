//! Series of timestamps, and sizes as people read them.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;

use super::{Answer, int, strict, text, zone};
use crate::fail::{fail, unsupported};
use crate::settings::Zone;
use crate::value::calendar::{from_local, is_infinite, to_local};
use crate::value::interval::Interval;

/// A series is made whole before it is used.
const SERIES_MAX: usize = 1_000_000;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_series_ts", 3, |a| series(a, &Zone::utc())),
        // With a zone of fixed distance, months and days are those the zone shows.
        strict("pg_series_tstz", 4, |a| series(a, &zone(&a[3])?)),
        strict("pg_size_pretty", 1, |a| Ok(Value::Text(size(int(&a[0])?)))),
    ]);
}

/// Timestamps as an array; the translator takes it apart with json_each. Each is the one before it and the step, as in
/// PostgreSQL: by months from the 31st it goes on with the last day of a shorter month.
fn series(a: &[Value], zone: &Zone) -> Answer {
    let local = |value: &Value| -> Result<i64, SqlError> {
        let micros = int(value)?;
        if is_infinite(micros) {
            return Err(unsupported("a series that begins or ends at infinity"));
        }
        to_local(micros, zone)
    };
    let (mut value, end) = (local(&a[0])?, local(&a[1])?);
    let step = Interval::unpack(text(&a[2])?).ok_or_else(|| fail("XX000", "an interval cannot be read"))?;
    let span = step.span();
    if span == 0 {
        return Err(fail("22023", "step size cannot equal zero"));
    }
    let mut out = Vec::new();
    while (span > 0 && value <= end) || (span < 0 && value >= end) {
        if out.len() == SERIES_MAX {
            return Err(unsupported(format!("a series of more than {SERIES_MAX} timestamps")));
        }
        out.push(from_local(value, zone)?.to_string());
        value = step.add_to(value)?;
    }
    Ok(Value::Text(format!("[{}]", out.join(","))))
}

/// As PostgreSQL's pg_size_pretty: the next unit from 10240 on, rounded to the nearest half up.
fn size(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    const WHOLE_MAX: i64 = 10 * 1024;
    const HALVES_MAX: i64 = 20 * 1024 - 1;
    if bytes.unsigned_abs() < WHOLE_MAX as u64 {
        return format!("{bytes} bytes");
    }
    // Kept in halves of the unit, so that it can be rounded once, in the end.
    let mut halves = bytes / 512;
    let mut unit = 0;
    while halves.abs() >= HALVES_MAX && unit + 1 < UNITS.len() {
        halves /= 1024;
        unit += 1;
    }
    format!("{} {}", (halves + halves.signum()) / 2, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_postgresql_writes_them() {
        let pairs = [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_751, "10 kB"),
            (10_752, "11 kB"),
            (-10_752, "-11 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (i64::MAX, "8192 PB"),
        ];
        for (bytes, wanted) in pairs {
            assert_eq!(size(bytes), wanted);
        }
    }
}

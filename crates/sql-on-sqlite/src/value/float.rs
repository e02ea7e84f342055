//! Double precision numbers as PostgreSQL writes and reads them.

use polyshard_sql::SqlError;

use crate::fail::{bad_input, fail, unsupported};

/// The shortest digits that read back as the same number.
pub(crate) fn write(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Not-a-number is refused: SQLite keeps it as NULL.
pub(crate) fn parse(text: &str) -> Result<f64, SqlError> {
    let trimmed = text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\x0b');
    let lower = trimmed.to_ascii_lowercase();
    match lower.strip_prefix(['+', '-']).unwrap_or(&lower) {
        "nan" => return Err(no_nan()),
        "inf" | "infinity" => {
            return Ok(if lower.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        body if body.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.') => {}
        _ => return Err(bad_input("double precision", text)),
    }
    let value: f64 = trimmed.parse().map_err(|_| bad_input("double precision", text))?;
    let is_zero = lower
        .split('e')
        .next()
        .is_some_and(|mantissa| !mantissa.bytes().any(|byte| (b'1'..=b'9').contains(&byte)));
    if value.is_infinite() || (value == 0.0 && !is_zero) {
        return Err(fail("22003", format!("\"{trimmed}\" is out of range for type double precision")));
    }
    Ok(value)
}

/// The result of a calculation: overflow is an error, as is what SQLite cannot keep.
pub(crate) fn checked(value: f64, inputs_finite: bool) -> Result<f64, SqlError> {
    if value.is_nan() {
        return Err(no_nan());
    }
    if value.is_infinite() && inputs_finite {
        return Err(fail("22003", "value out of range: overflow"));
    }
    Ok(value)
}

pub(crate) fn no_nan() -> SqlError {
    unsupported("NaN in double precision on SQLite shards")
}

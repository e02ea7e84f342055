//! Numbers as text, the way JavaScript's `Number::toString` prints them (ECMA-262, 6.1.6.1.20).

/// Exponent from which JavaScript changes to the form `1e+21`.
const PLAIN_DIGITS_MAX: i32 = 21;
/// Exponent down to which JavaScript writes `0.000001`.
const PLAIN_EXPONENT_MIN: i32 = -6;

/// The shortest decimal text that reads back as the same number.
pub fn format_number(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number == 0.0 {
        return "0".to_owned();
    }
    let sign = if number < 0.0 { "-" } else { "" };
    if number.is_infinite() {
        return format!("{sign}Infinity");
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = mantissa.replace('.', "");
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    format!("{sign}{}", place_point(&digits, point))
}

/// Writes `0.digits` × 10^point.
fn place_point(digits: &str, point: i32) -> String {
    let count = digits.len() as i32;
    if point > PLAIN_DIGITS_MAX || point <= PLAIN_EXPONENT_MIN {
        let (first, rest) = digits.split_at(1);
        let fraction = if rest.is_empty() { String::new() } else { format!(".{rest}") };
        return format!("{first}{fraction}e{:+}", point - 1);
    }
    if point >= count {
        return format!("{digits}{}", "0".repeat((point - count) as usize));
    }
    if point > 0 {
        let (whole, fraction) = digits.split_at(point as usize);
        return format!("{whole}.{fraction}");
    }
    format!("0.{}{digits}", "0".repeat(-point as usize))
}

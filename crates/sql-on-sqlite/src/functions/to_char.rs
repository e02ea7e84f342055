//! `to_char` for timestamps and numbers: the patterns that are used most; others are refused.

use polyshard_engine::Value;

use super::Answer;
use crate::fail::unsupported;
use crate::settings::Zone;
use crate::value::calendar::{
    DAY, HOUR, MINUTE, SECOND, civil, days_from_civil, is_infinite, iso_week, iso_weekday,
};
use crate::value::numeric::Numeric;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Longer ones first, since `MON` begins `MONTH`.
const KEYWORDS: &[&str] = &[
    "MONTH", "Month", "month", "HH24", "HH12", "YYYY", "IYYY", "A.M.", "P.M.", "a.m.", "p.m.", "DAY", "Day",
    "day", "MON", "Mon", "mon", "DDD", "ddd", "yyyy", "hh24", "hh12", "DY", "Dy", "dy", "DD", "dd", "MM",
    "mm", "YY", "yy", "HH", "hh", "MI", "mi", "SS", "ss", "MS", "ms", "US", "us", "AM", "PM", "am", "pm",
    "IW", "iw", "WW", "ww", "CC", "ID", "TZ", "OF", "Q", "D", "W",
];

pub(super) fn timestamp(micros: i64, pattern: &str, zone: &Zone) -> Answer {
    if is_infinite(micros) {
        return Ok(Value::Null);
    }
    let local = micros + zone.offset_micros();
    let (days, time) = (local.div_euclid(DAY), local.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    if year <= 0 {
        return Err(unsupported("to_char of a year before Christ"));
    }
    let hour = time / HOUR;
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(letter) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"').unwrap_or(quoted.len());
            out.push_str(&quoted[..end]);
            rest = quoted.get(end + 1..).unwrap_or("");
            continue;
        }
        let (fill, after) = match rest.strip_prefix("FM") {
            Some(after) => (false, after),
            None => (true, rest),
        };
        let Some(word) = KEYWORDS.iter().find(|word| after.starts_with(**word)) else {
            if letter.is_ascii_alphabetic() || letter == '\\' || !fill {
                return Err(unsupported(format!("the to_char pattern \"{pattern}\"")));
            }
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
            continue;
        };
        rest = &after[word.len()..];
        if rest.starts_with("TH") || rest.starts_with("th") {
            return Err(unsupported(format!("the to_char pattern \"{pattern}\"")));
        }
        let number = |value: i64, width: usize| {
            if fill { format!("{value:0width$}") } else { value.to_string() }
        };
        let name = |name: &str, width: usize| {
            let cased = match *word {
                word if word == word.to_uppercase() => name.to_uppercase(),
                word if word == word.to_lowercase() => name.to_lowercase(),
                _ => name.to_owned(),
            };
            if fill { format!("{cased:<width$}") } else { cased }
        };
        let weekday = iso_weekday(days) % 7;
        out.push_str(&match word.to_uppercase().as_str() {
            "YYYY" => number(year, 4),
            "YY" => number(year % 100, 2),
            "IYYY" => number(iso_week(days).0, 4),
            "CC" => number((year + 99) / 100, 2),
            "MONTH" => name(MONTHS[month as usize - 1], 9),
            "MON" => name(&MONTHS[month as usize - 1][..3], 0),
            "MM" => number(month, 2),
            "DAY" => name(DAYS[weekday as usize], 9),
            "DY" => name(&DAYS[weekday as usize][..3], 0),
            "DDD" => number(days - days_from_civil(year, 1, 1) + 1, 3),
            "DD" => number(day, 2),
            "D" => (weekday + 1).to_string(),
            "ID" => iso_weekday(days).to_string(),
            "HH24" => number(hour, 2),
            "HH" | "HH12" => number((hour + 11) % 12 + 1, 2),
            "MI" => number(time / MINUTE % 60, 2),
            "SS" => number(time / SECOND % 60, 2),
            "MS" => format!("{:03}", time / 1000 % 1000),
            "US" => format!("{:06}", time % SECOND),
            "AM" | "PM" | "A.M." | "P.M." => {
                let text = if hour >= 12 { "PM" } else { "AM" };
                let text = if word.contains('.') { format!("{}.M.", &text[..1]) } else { text.to_owned() };
                if word.starts_with(char::is_lowercase) { text.to_lowercase() } else { text }
            }
            "Q" => ((month - 1) / 3 + 1).to_string(),
            "IW" => number(iso_week(days).1, 2),
            "WW" => number((days - days_from_civil(year, 1, 1)) / 7 + 1, 2),
            "W" => ((day - 1) / 7 + 1).to_string(),
            "TZ" if zone.offset_micros() == 0 && zone.name() == "UTC" => "UTC".to_owned(),
            "OF" => zone.shown(),
            _ => return Err(unsupported(format!("the to_char pattern \"{pattern}\""))),
        });
    }
    Ok(Value::Text(out))
}

/// Digits `9` and `0`, `.`, `,` and `FM`.
pub(super) fn number(number: &Numeric, pattern: &str) -> Answer {
    let other = || unsupported(format!("the to_char pattern \"{pattern}\""));
    let (fill, body) = match pattern.strip_prefix("FM") {
        Some(body) => (false, body),
        None => (true, pattern),
    };
    if body.is_empty() || !body.bytes().all(|byte| matches!(byte, b'9' | b'0' | b'.' | b',')) {
        return Err(other());
    }
    let (whole, fraction) = match body.split_once('.') {
        Some((_, fraction)) if fraction.contains(['.', ',']) => return Err(other()),
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (body, None),
    };
    if !matches!(number, Numeric::Finite { .. }) {
        return Err(other());
    }
    let scale = fraction.map_or(0, str::len);
    let rounded = number.round(scale as i64);
    let negative = rounded.is_negative();
    let shown = rounded.abs().to_string();
    let (digits, decimals) = shown.split_once('.').unwrap_or((&shown, ""));
    let places = whole.bytes().filter(|byte| *byte != b',').count();
    let out = if digits.len() > places && digits != "0" {
        let hashes = |part: &str| part.replace(['9', '0'], "#");
        let text = format!(
            "{}{}",
            hashes(whole),
            fraction.map(|part| format!(".{}", hashes(part))).unwrap_or_default()
        );
        sign(text, negative, fill)
    } else {
        sign(
            fit(whole, if fraction.is_some() && digits == "0" { "" } else { digits }, fill)
                + &fraction_text(fraction, decimals, fill),
            negative,
            fill,
        )
    };
    Ok(Value::Text(out))
}

fn fraction_text(pattern: Option<&str>, decimals: &str, fill: bool) -> String {
    let Some(pattern) = pattern else {
        return String::new();
    };
    if fill {
        return format!(".{decimals}");
    }
    // With FM zeros at the end go, up to the last 0 of the pattern.
    let least = pattern.rfind('0').map_or(0, |place| place + 1);
    let used = decimals.trim_end_matches('0').len().max(least);
    format!(".{}", &decimals[..used])
}

/// The digits before the point, in the places that the pattern has for them.
fn fit(pattern: &str, digits: &str, fill: bool) -> String {
    let mut places: Vec<char> = pattern.chars().collect();
    let zero_from = pattern.find('0');
    let mut rest: Vec<char> = digits.chars().collect();
    for (place, letter) in places.iter_mut().enumerate().rev() {
        let zeros = zero_from.is_some_and(|from| place >= from);
        *letter = match *letter {
            ',' if rest.is_empty() && !zeros => ' ',
            ',' => ',',
            _ => rest.pop().unwrap_or(if zeros { '0' } else { ' ' }),
        };
    }
    let text: String = places.into_iter().collect();
    if fill { text } else { text.trim_start().to_owned() }
}

/// The sign stands directly before the number; a positive one leaves its place free.
fn sign(text: String, negative: bool, fill: bool) -> String {
    if !fill {
        return if negative { format!("-{text}") } else { text };
    }
    let blanks = text.len() - text.trim_start().len();
    let mark = if negative { '-' } else { ' ' };
    format!("{}{mark}{}", &text[..blanks], &text[blanks..])
}

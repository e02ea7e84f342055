//! Texts and bytes: parts, cases, paddings, encodings, digests.

use md5::{Digest, Md5};
use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;

use super::{Answer, blob, int, plain, strict, table_text, text, variadic};
use crate::fail::fail;
use crate::value::json::Json;
use crate::value::text::{hex, unhex};
use crate::value::{array, text as codec};

/// The longest text a function may make: PostgreSQL's own limit is a gigabyte, SQLite's value limit likewise.
const TEXT_BYTES_MAX: usize = 1 << 28;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_lower", 1, |a| Ok(Value::Text(text(&a[0])?.chars().map(lower_char).collect()))),
        strict("pg_upper", 1, |a| Ok(Value::Text(text(&a[0])?.chars().map(upper_char).collect()))),
        strict("pg_initcap", 1, |a| {
            let mut inside = false;
            let capital = |letter: char| {
                let shown = if inside { lower_char(letter) } else { upper_char(letter) };
                inside = letter.is_alphanumeric();
                shown
            };
            Ok(Value::Text(text(&a[0])?.chars().map(capital).collect()))
        }),
        strict("pg_substr2", 2, |a| substring(text(&a[0])?, int(&a[1])?, None)),
        strict("pg_substr3", 3, |a| substring(text(&a[0])?, int(&a[1])?, Some(int(&a[2])?))),
        strict("pg_bsubstr2", 2, |a| bytes_substring(blob(&a[0])?, int(&a[1])?, None)),
        strict("pg_bsubstr3", 3, |a| bytes_substring(blob(&a[0])?, int(&a[1])?, Some(int(&a[2])?))),
        strict("pg_btrim", 2, |a| Ok(Value::from(text(&a[0])?.trim_matches(any_of(text(&a[1])?))))),
        strict("pg_ltrim", 2, |a| Ok(Value::from(text(&a[0])?.trim_start_matches(any_of(text(&a[1])?))))),
        strict("pg_rtrim", 2, |a| Ok(Value::from(text(&a[0])?.trim_end_matches(any_of(text(&a[1])?))))),
        strict("pg_split_part", 3, split_part),
        strict("pg_strpos", 2, |a| {
            let (subject, wanted) = (text(&a[0])?, text(&a[1])?);
            Ok(Value::Int(subject.find(wanted).map_or(0, |at| subject[..at].chars().count() as i64 + 1)))
        }),
        strict("pg_left", 2, |a| side(a, |letters, take| letters[..take].iter().collect())),
        strict("pg_right", 2, |a| {
            // The only number that has no opposite leaves nothing out.
            if int(&a[1])? == i64::from(i32::MIN) {
                return Ok(a[0].clone());
            }
            side(a, |letters, take| letters[letters.len() - take..].iter().collect())
        }),
        strict("pg_lpad", 3, |a| pad(a, |text, fill| format!("{fill}{text}"))),
        strict("pg_rpad", 3, |a| pad(a, |text, fill| format!("{text}{fill}"))),
        strict("pg_repeat", 2, |a| {
            let (text, times) = (text(&a[0])?, int(&a[1])?.max(0) as usize);
            if text.len().saturating_mul(times) > TEXT_BYTES_MAX {
                return Err(fail("54000", "requested length too large"));
            }
            Ok(Value::Text(text.repeat(times)))
        }),
        strict("pg_reverse", 1, |a| Ok(Value::Text(text(&a[0])?.chars().rev().collect()))),
        variadic("pg_concat", |a| {
            let mut all = String::new();
            for value in a.iter().filter(|value| !value.is_null()) {
                all.push_str(text(value)?);
            }
            Ok(Value::Text(all))
        }),
        variadic("pg_concat_ws", |a| {
            let Some((Value::Text(separator), values)) = a.split_first() else {
                return Ok(Value::Null);
            };
            let parts: Result<Vec<&str>, SqlError> =
                values.iter().filter(|value| !value.is_null()).map(text).collect();
            Ok(Value::Text(parts?.join(separator)))
        }),
        variadic("pg_format", format_text),
        strict("pg_ascii", 1, |a| {
            Ok(Value::Int(text(&a[0])?.chars().next().map_or(0, |letter| letter as i64)))
        }),
        strict("pg_chr", 1, |a| match int(&a[0])? {
            0 => Err(fail("54000", "null character not permitted")),
            code if code < 0 => Err(fail("22023", "character number must be positive")),
            code => match u32::try_from(code).ok().and_then(char::from_u32) {
                Some(letter) => Ok(Value::Text(letter.to_string())),
                None => Err(fail("54000", "requested character not valid for encoding")),
            },
        }),
        strict("pg_md5", 1, |a| {
            let digest = match &a[0] {
                Value::Text(text) => Md5::digest(text.as_bytes()),
                other => Md5::digest(blob(other)?),
            };
            Ok(Value::Text(hex(&digest)))
        }),
        strict("pg_sha256", 1, |a| Ok(Value::Blob(sha2::Sha256::digest(blob(&a[0])?).to_vec()))),
        strict("pg_encode", 2, encode),
        strict("pg_decode", 2, decode),
        strict("pg_hex4", 1, |a| Ok(Value::Text(format!("{:x}", int(&a[0])? as i32)))),
        strict("pg_hex8", 1, |a| Ok(Value::Text(format!("{:x}", int(&a[0])?)))),
        strict("pg_translate", 3, |a| {
            let (from, to): (Vec<char>, Vec<char>) =
                (text(&a[1])?.chars().collect(), text(&a[2])?.chars().collect());
            let change = |letter: char| match from.iter().position(|known| *known == letter) {
                Some(place) => to.get(place).copied(),
                None => Some(letter),
            };
            Ok(Value::Text(text(&a[0])?.chars().filter_map(change).collect()))
        }),
        strict("pg_starts_with", 2, |a| Ok(Value::Int(text(&a[0])?.starts_with(text(&a[1])?).into()))),
        strict("pg_overlay3", 3, |a| {
            let size = text(&a[1])?.chars().count() as i64;
            overlay(text(&a[0])?, text(&a[1])?, int(&a[2])?, size)
        }),
        strict("pg_overlay4", 4, |a| overlay(text(&a[0])?, text(&a[1])?, int(&a[2])?, int(&a[3])?)),
        strict("pg_quote_ident", 1, |a| Ok(Value::Text(quote_ident(text(&a[0])?)))),
        strict("pg_quote_literal", 1, |a| Ok(Value::Text(quote_literal(text(&a[0])?)))),
        plain("pg_quote_nullable", 1, |a| match &a[0] {
            Value::Null => Ok(Value::from("NULL")),
            value => Ok(Value::Text(quote_literal(text(value)?))),
        }),
        strict("pg_uuid_v4", 1, |a| {
            let mut bytes = blob(&a[0])?.to_vec();
            if bytes.len() != 16 {
                return Err(fail("XX000", "a uuid has 16 bytes"));
            }
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            Ok(Value::Blob(bytes))
        }),
        strict("pg_bytea_cat", 2, |a| Ok(Value::Blob([blob(&a[0])?, blob(&a[1])?].concat()))),
        strict("pg_array_length", 2, |a| match (int(&a[1])?, array::elements(text(&a[0])?)?.len() as i64) {
            (1, length) if length > 0 => Ok(Value::Int(length)),
            _ => Ok(Value::Null),
        }),
        strict("pg_cardinality", 1, |a| Ok(Value::Int(array::elements(text(&a[0])?)?.len() as i64))),
        // The elements are texts already; the third says what stands for NULL.
        plain("pg_array_to_string", 3, |a| {
            if a[0].is_null() || a[1].is_null() {
                return Ok(Value::Null);
            }
            let mut parts = Vec::new();
            for element in array::elements(text(&a[0])?)? {
                match (element, &a[2]) {
                    (Json::Null, Value::Text(instead)) => parts.push(instead.clone()),
                    (Json::Null, _) => {}
                    (Json::String(text), _) => parts.push(text),
                    (other, _) => parts.push(other.to_string()),
                }
            }
            Ok(Value::Text(parts.join(text(&a[1])?)))
        }),
        plain("pg_string_to_array", 2, |a| {
            let Value::Text(subject) = &a[0] else { return Ok(Value::Null) };
            let parts: Vec<Value> = match &a[1] {
                _ if subject.is_empty() => Vec::new(),
                Value::Text(separator) if separator.is_empty() => vec![Value::from(subject.as_str())],
                Value::Text(separator) => subject.split(separator.as_str()).map(Value::from).collect(),
                _ => subject.chars().map(|letter| Value::Text(letter.to_string())).collect(),
            };
            Ok(array::pack(&parts))
        }),
        strict("pg_with_constraint", 2, |a| {
            Ok(Value::Text(table_text::with_constraint(text(&a[0])?, text(&a[1])?)?))
        }),
        strict("pg_index_parts", 1, |a| {
            let parts = super::table_text::index_parts(text(&a[0])?).into_iter().map(Json::String);
            Ok(Value::Text(Json::Array(parts.collect()).to_string()))
        }),
        strict("pg_without_reference", 2, |a| {
            Ok(Value::Text(table_text::without_reference(text(&a[0])?, text(&a[1])?)))
        }),
        strict("pg_without_not_null", 2, |a| {
            Ok(Value::Text(table_text::without_not_null(text(&a[0])?, text(&a[1])?)))
        }),
        strict("pg_same_length", 2, |a| {
            if array::elements(text(&a[0])?)?.len() == array::elements(text(&a[1])?)?.len() {
                return Ok(Value::Int(1));
            }
            Err(crate::fail::unsupported("functions in a select list that give different numbers of rows"))
        }),
        // The first of each, the second of each, …; what is missing in a shorter one is NULL.
        variadic("pg_zip", |a| {
            let mut arrays = Vec::with_capacity(a.len());
            for array in a {
                let elements = if array.is_null() { Vec::new() } else { array::elements(text(array)?)? };
                arrays.push(elements.into_iter());
            }
            let longest = arrays.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
            let row =
                |_| Json::Array(arrays.iter_mut().map(|rest| rest.next().unwrap_or(Json::Null)).collect());
            Ok(Value::Text(Json::Array((0..longest).map(row).collect()).to_string()))
        }),
        plain("pg_array_cat", 2, |a| {
            // A missing array adds nothing.
            if a[0].is_null() || a[1].is_null() {
                return Ok(if a[0].is_null() { a[1].clone() } else { a[0].clone() });
            }
            let mut all = array::elements(text(&a[0])?)?;
            all.extend(array::elements(text(&a[1])?)?);
            Ok(Value::Text(Json::Array(all).to_string()))
        }),
        strict("pg_array_get", 2, |a| {
            let elements = array::elements(text(&a[0])?)?;
            let place = int(&a[1])?.checked_sub(1).and_then(|place| usize::try_from(place).ok());
            Ok(match place.and_then(|place| elements.get(place)) {
                None | Some(Json::Null) => Value::Null,
                Some(Json::String(text)) => Value::from(text.as_str()),
                Some(Json::Number(number)) => {
                    let whole = number.to_i128().and_then(|whole| i64::try_from(whole).ok());
                    Value::Int(whole.ok_or_else(|| fail("XX000", "an array element of another type"))?)
                }
                Some(_) => return Err(fail("XX000", "an array element of another type")),
            })
        }),
        strict("pg_series", 3, series),
    ]);
}

/// Whole numbers as an array; the translator takes it apart with json_each.
fn series(a: &[Value]) -> Answer {
    /// A series is made whole before it is used.
    const SERIES_MAX: i128 = 1_000_000;
    let (from, to, step) = (int(&a[0])?, int(&a[1])?, int(&a[2])?);
    if step == 0 {
        return Err(fail("22023", "step size cannot equal zero"));
    }
    let count = (i128::from(to) - i128::from(from)) / i128::from(step);
    if count > SERIES_MAX {
        return Err(crate::fail::unsupported(format!("a series of more than {SERIES_MAX} numbers")));
    }
    let mut out = String::from("[");
    let mut value = i128::from(from);
    while (step > 0 && value <= to.into()) || (step < 0 && value >= to.into()) {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&value.to_string());
        value += i128::from(step);
    }
    out.push(']');
    Ok(Value::Text(out))
}

/// One letter to one letter, as the C library's towlower has it.
pub(super) fn lower_char(letter: char) -> char {
    if letter == '\u{130}' {
        return 'i';
    }
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

fn upper_char(letter: char) -> char {
    // Letters whose capital is two letters in full, but one to the C library.
    match letter {
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => {
            return char::from_u32(letter as u32 + 8).unwrap_or(letter);
        }
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => return char::from_u32(letter as u32 + 9).unwrap_or(letter),
        _ => {}
    }
    let mut upper = letter.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

fn any_of(set: &str) -> impl Fn(char) -> bool + '_ {
    move |letter| set.contains(letter)
}

/// Start and end of a substring, counted from 1, both within the text.
fn bounds(length: usize, start: i64, size: Option<i64>) -> Result<(usize, usize), SqlError> {
    let end = match size {
        None => i64::MAX,
        Some(size) if size < 0 => return Err(fail("22011", "negative substring length not allowed")),
        Some(size) => start.saturating_add(size),
    };
    let from = start.max(1) as usize - 1;
    let to = usize::try_from(end.saturating_sub(1)).unwrap_or(0);
    let (from, to) = (from.min(length), to.min(length));
    Ok((from, to.max(from)))
}

fn substring(subject: &str, start: i64, size: Option<i64>) -> Answer {
    let letters: Vec<char> = subject.chars().collect();
    let (from, to) = bounds(letters.len(), start, size)?;
    Ok(Value::Text(letters[from..to].iter().collect()))
}

fn bytes_substring(subject: &[u8], start: i64, size: Option<i64>) -> Answer {
    let (from, to) = bounds(subject.len(), start, size)?;
    Ok(Value::Blob(subject[from..to].to_vec()))
}

fn overlay(subject: &str, with: &str, start: i64, size: i64) -> Answer {
    if start <= 0 {
        return Err(fail("22011", "negative substring length not allowed"));
    }
    if start.saturating_add(size) > i64::from(i32::MAX) {
        return Err(fail("22003", "integer out of range"));
    }
    let letters: Vec<char> = subject.chars().collect();
    let (_, before) = bounds(letters.len(), 1, Some(start - 1))?;
    let (after, _) = bounds(letters.len(), start.saturating_add(size), None)?;
    let head: String = letters[..before].iter().collect();
    let tail: String = letters[after..].iter().collect();
    Ok(Value::Text(format!("{head}{with}{tail}")))
}

fn split_part(a: &[Value]) -> Answer {
    let (subject, separator, place) = (text(&a[0])?, text(&a[1])?, int(&a[2])?);
    if place == 0 {
        return Err(fail("22023", "field position must not be zero"));
    }
    let parts: Vec<&str> = if subject.is_empty() {
        Vec::new()
    } else if separator.is_empty() {
        vec![subject]
    } else {
        subject.split(separator).collect()
    };
    let index = if place > 0 { place - 1 } else { parts.len() as i64 + place };
    Ok(Value::from(usize::try_from(index).ok().and_then(|index| parts.get(index)).copied().unwrap_or("")))
}

/// A negative count leaves out so many letters on the other side.
fn side(a: &[Value], take: fn(&[char], usize) -> String) -> Answer {
    let letters: Vec<char> = text(&a[0])?.chars().collect();
    let count = int(&a[1])?;
    let size = letters.len() as i64;
    let taken = if count < 0 { (size + count).max(0) } else { count.min(size) };
    Ok(Value::Text(take(&letters, taken as usize)))
}

fn pad(a: &[Value], join: fn(&str, &str) -> String) -> Answer {
    let (subject, size, fill) = (text(&a[0])?, int(&a[1])?.max(0) as usize, text(&a[2])?);
    if size > TEXT_BYTES_MAX / 4 {
        return Err(fail("54000", "requested length too large"));
    }
    let length = subject.chars().count();
    if length >= size || fill.is_empty() {
        return Ok(Value::Text(subject.chars().take(size).collect()));
    }
    let filling: String = fill.chars().cycle().take(size - length).collect();
    Ok(Value::Text(join(subject, &filling)))
}

/// Names that PostgreSQL quotes although they look plain: its reserved words.
const RESERVED: &str = " all analyse analyze and any array as asc asymmetric authorization between bigint binary bit \
    boolean both case cast char character check coalesce collate collation column concurrently constraint create \
    cross current_catalog current_date current_role current_schema current_time current_timestamp current_user dec \
    decimal default deferrable desc distinct do else end except exists extract false fetch float for foreign freeze \
    from full grant greatest group grouping having ilike in initially inner inout int integer intersect interval into \
    is isnull join lateral leading least left like limit localtime localtimestamp national natural nchar none \
    normalize not notnull null nullif numeric offset on only or order out outer overlaps overlay placing position \
    precision primary real references returning right row select session_user setof similar smallint some substring \
    symmetric table tablesample then time timestamp to trailing treat trim true union unique user using values \
    varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest \
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable ";

pub(crate) fn quote_ident(name: &str) -> String {
    let safe = name.bytes().enumerate().all(|(place, byte)| {
        byte.is_ascii_lowercase() || byte == b'_' || (place > 0 && byte.is_ascii_digit())
    });
    if safe && !name.is_empty() && !RESERVED.contains(&format!(" {name} ")) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn quote_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// `format('%s %I %L', …)` with positions, but without widths.
fn format_text(a: &[Value]) -> Answer {
    let Some((Value::Text(pattern), values)) = a.split_first() else {
        return Ok(Value::Null);
    };
    let mut out = String::new();
    let mut letters = pattern.chars().peekable();
    let mut next = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if letters.next_if_eq(&'$').is_some() {
            next = digits.parse::<usize>().unwrap_or(0);
            if next == 0 {
                return Err(fail("22023", "format specifies argument 0, but arguments are numbered from 1"));
            }
            next -= 1;
        } else if !digits.is_empty() || matches!(letters.peek(), Some('-' | '*')) {
            return Err(crate::fail::unsupported("format() with widths"));
        }
        let value =
            |next: usize| values.get(next).ok_or_else(|| fail("22023", "too few arguments for format()"));
        match letters.next() {
            Some('s') => {
                if let Value::Text(text) = value(next)? {
                    out.push_str(text);
                }
            }
            Some('I') => match value(next)? {
                Value::Text(text) => out.push_str(&quote_ident(text)),
                _ => return Err(fail("22004", "null values cannot be formatted as an SQL identifier")),
            },
            Some('L') => match value(next)? {
                Value::Text(text) => out.push_str(&quote_literal(text)),
                _ => out.push_str("NULL"),
            },
            Some(other) => {
                return Err(fail("22023", format!("unrecognized format() type specifier \"{other}\"")));
            }
            None => return Err(fail("22023", "unterminated format() type specifier")),
        }
        next += 1;
    }
    Ok(Value::Text(out))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(a: &[Value]) -> Answer {
    let bytes = blob(&a[0])?;
    Ok(Value::Text(match text(&a[1])?.to_ascii_lowercase().as_str() {
        "hex" => hex(bytes),
        "escape" => {
            let mut out = String::new();
            for byte in bytes {
                match byte {
                    0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
                    b'\\' => out.push_str("\\\\"),
                    byte => out.push(char::from(*byte)),
                }
            }
            out
        }
        "base64" => {
            let mut out = String::new();
            let mut line = 0;
            for chunk in bytes.chunks(3) {
                let bits = chunk
                    .iter()
                    .enumerate()
                    .fold(0u32, |sum, (place, byte)| sum | u32::from(*byte) << (16 - 8 * place));
                for place in 0..4 {
                    let digit = BASE64[(bits >> (18 - 6 * place)) as usize & 63];
                    out.push(if place <= chunk.len() { char::from(digit) } else { '=' });
                }
                line += 4;
                // Lines of 76, as PostgreSQL and MIME have them.
                if line == 76 {
                    out.push('\n');
                    line = 0;
                }
            }
            if line == 0 && out.ends_with('\n') && bytes.len() % 57 == 0 {
                // A line that is just full ends with its newline only if more follows.
                out.pop();
            }
            out
        }
        other => return Err(fail("22023", format!("unrecognized encoding: \"{other}\""))),
    }))
}

fn decode(a: &[Value]) -> Answer {
    let subject = text(&a[0])?;
    Ok(Value::Blob(match text(&a[1])?.to_ascii_lowercase().as_str() {
        "hex" => {
            let compact: String = subject.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
            if let Some(odd) = compact.chars().find(|letter| !letter.is_ascii_hexdigit()) {
                return Err(fail("22023", format!("invalid hexadecimal digit: \"{odd}\"")));
            }
            unhex(&compact).ok_or_else(|| fail("22023", "invalid hexadecimal data: odd number of digits"))?
        }
        "escape" => codec::parse_bytea(subject)?,
        "base64" => {
            let mut bytes = Vec::new();
            let (mut bits, mut count, mut padding) = (0u32, 0, 0);
            for byte in subject.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
                let digit = match BASE64.iter().position(|known| *known == byte) {
                    Some(digit) if padding == 0 => digit as u32,
                    None if byte == b'=' && count >= 2 => {
                        padding += 1;
                        0
                    }
                    _ => {
                        return Err(fail(
                            "22023",
                            format!("invalid symbol \"{}\" while decoding base64 sequence", char::from(byte)),
                        ));
                    }
                };
                bits = bits << 6 | digit;
                count += 1;
                if count == 4 {
                    bytes.extend(&bits.to_be_bytes()[1..4 - padding]);
                    (bits, count) = (0, 0);
                }
            }
            if count != 0 {
                return Err(fail("22023", "invalid base64 end sequence"));
            }
            bytes
        }
        other => return Err(fail("22023", format!("unrecognized encoding: \"{other}\""))),
    }))
}

//! JSON documents: read, and written as PostgreSQL prints jsonb.

use std::cmp::Ordering;
use std::fmt::Write;

use polyshard_sql::SqlError;

use super::numeric::Numeric;
use crate::fail::fail;

/// As deep as a document may be nested; PostgreSQL's own limit is its stack, of about this size.
const DEPTH_MAX: usize = 1000;

/// A JSON value. Objects have each key once, sorted by length and then by bytes, as jsonb keeps them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// How jsonb sorts its keys.
pub(crate) fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

impl Json {
    pub fn parse(text: &str) -> Result<Json, SqlError> {
        let mut reader = Reader { bytes: text.as_bytes(), text, place: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.place < reader.bytes.len() {
            return Err(reader.bad());
        }
        Ok(value)
    }

    pub fn object(members: Vec<(String, Json)>) -> Json {
        let mut kept: Vec<(String, Json)> = Vec::with_capacity(members.len());
        let mut members = members;
        // Stable, so that of equal keys the last stays last, and wins.
        members.sort_by(|a, b| key_order(&a.0, &b.0));
        for (key, value) in members {
            match kept.last_mut() {
                Some(last) if last.0 == key => last.1 = value,
                _ => kept.push((key, value)),
            }
        }
        Json::Object(kept)
    }

    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Counted from the end if negative.
    pub fn at(&self, index: i64) -> Option<&Json> {
        match self {
            Json::Array(elements) => {
                let place = if index < 0 { elements.len() as i64 + index } else { index };
                elements.get(usize::try_from(place).ok()?)
            }
            // PostgreSQL keeps a bare scalar as an array of one.
            Json::Object(_) => None,
            scalar => matches!(index, 0 | -1).then_some(scalar),
        }
    }

    /// By a step of a path, which is a number for arrays.
    pub fn step(&self, step: &str) -> Option<&Json> {
        match self {
            Json::Array(_) => self.at(step.trim().parse().ok()?),
            // Within a document a scalar is no array.
            _ => self.get(step),
        }
    }

    /// What `->>` gives: a string without quotes, null as NULL.
    pub fn to_text(&self) -> Option<String> {
        match self {
            Json::Null => None,
            Json::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    fn is_scalar(&self) -> bool {
        !matches!(self, Json::Array(_) | Json::Object(_))
    }

    /// PostgreSQL's `@>`.
    pub fn contains(&self, other: &Json) -> bool {
        match (self, other) {
            // As a special case, an array contains a bare scalar.
            (Json::Array(elements), scalar) if scalar.is_scalar() => elements.contains(scalar),
            _ => self.contains_within(other),
        }
    }

    fn contains_within(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Object(_), Json::Object(wanted)) => {
                wanted.iter().all(|(key, value)| self.get(key).is_some_and(|own| own.contains_within(value)))
            }
            (Json::Array(own), Json::Array(wanted)) => {
                wanted.iter().all(|value| own.iter().any(|element| element.contains_within(value)))
            }
            (own, wanted) => own.is_scalar() && own == wanted,
        }
    }

    /// PostgreSQL's `?`.
    pub fn has_key(&self, key: &str) -> bool {
        match self {
            Json::Object(_) => self.get(key).is_some(),
            Json::Array(elements) => {
                elements.iter().any(|element| matches!(element, Json::String(text) if text == key))
            }
            Json::String(text) => text == key,
            _ => false,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => out.push_str(&number.to_string()),
            Json::String(text) => write_string(text, out),
            Json::Array(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    element.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (place, (key, value)) in members.iter().enumerate() {
                    if place > 0 {
                        out.push_str(", ");
                    }
                    write_string(key, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    /// `jsonb_pretty`.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write_pretty(0, &mut out);
        out
    }

    fn write_pretty(&self, depth: usize, out: &mut String) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("    ", depth));
        };
        match self {
            Json::Array(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    line(out, depth + 1);
                    element.write_pretty(depth + 1, out);
                }
                line(out, depth);
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (place, (key, value)) in members.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    line(out, depth + 1);
                    write_string(key, out);
                    out.push_str(": ");
                    value.write_pretty(depth + 1, out);
                }
                line(out, depth);
                out.push('}');
            }
            scalar => scalar.write(out),
        }
    }
}

impl std::fmt::Display for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}

/// With the escapes that PostgreSQL writes.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

struct Reader<'t> {
    bytes: &'t [u8],
    text: &'t str,
    place: usize,
}

impl Reader<'_> {
    fn bad(&self) -> SqlError {
        fail("22P02", "invalid input syntax for type json")
    }

    fn space(&mut self) {
        while matches!(self.bytes.get(self.place), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.place += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.place) == Some(&byte);
        self.place += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, SqlError> {
        if depth > DEPTH_MAX {
            return Err(fail("54001", "stack depth limit exceeded"));
        }
        self.space();
        match self.bytes.get(self.place) {
            Some(b'{') => {
                self.place += 1;
                let mut members = Vec::new();
                if self.take(b'}') {
                    return Ok(Json::Object(members));
                }
                loop {
                    self.space();
                    if self.bytes.get(self.place) != Some(&b'"') {
                        return Err(self.bad());
                    }
                    let key = self.string()?;
                    if !self.take(b':') {
                        return Err(self.bad());
                    }
                    members.push((key, self.value(depth + 1)?));
                    if self.take(b'}') {
                        return Ok(Json::object(members));
                    }
                    if !self.take(b',') {
                        return Err(self.bad());
                    }
                }
            }
            Some(b'[') => {
                self.place += 1;
                let mut elements = Vec::new();
                if self.take(b']') {
                    return Ok(Json::Array(elements));
                }
                loop {
                    elements.push(self.value(depth + 1)?);
                    if self.take(b']') {
                        return Ok(Json::Array(elements));
                    }
                    if !self.take(b',') {
                        return Err(self.bad());
                    }
                }
            }
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in
                    [("true", Json::Bool(true)), ("false", Json::Bool(false)), ("null", Json::Null)]
                {
                    if self.text[self.place..].starts_with(word) {
                        self.place += word.len();
                        let next = self.bytes.get(self.place);
                        if next.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                            return Err(self.bad());
                        }
                        return Ok(value);
                    }
                }
                Err(self.bad())
            }
        }
    }

    fn number(&mut self) -> Result<Json, SqlError> {
        let start = self.place;
        let digits = |reader: &mut Self| {
            let from = reader.place;
            while reader.bytes.get(reader.place).is_some_and(u8::is_ascii_digit) {
                reader.place += 1;
            }
            reader.place > from
        };
        self.place += usize::from(self.bytes[self.place] == b'-');
        let leading_zero = self.bytes.get(self.place) == Some(&b'0');
        let whole = self.place;
        if !digits(self) || (leading_zero && self.place > whole + 1) {
            return Err(self.bad());
        }
        if self.bytes.get(self.place) == Some(&b'.') {
            self.place += 1;
            if !digits(self) {
                return Err(self.bad());
            }
        }
        if matches!(self.bytes.get(self.place), Some(b'e' | b'E')) {
            self.place += 1;
            if matches!(self.bytes.get(self.place), Some(b'+' | b'-')) {
                self.place += 1;
            }
            if !digits(self) {
                return Err(self.bad());
            }
        }
        if self.bytes.get(self.place).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            return Err(self.bad());
        }
        Numeric::parse(&self.text[start..self.place]).map(Json::Number)
    }

    fn string(&mut self) -> Result<String, SqlError> {
        self.place += 1;
        let mut out = String::new();
        loop {
            let start = self.place;
            while self
                .bytes
                .get(self.place)
                .is_some_and(|byte| *byte >= 0x20 && *byte != b'"' && *byte != b'\\')
            {
                self.place += 1;
            }
            out.push_str(&self.text[start..self.place]);
            match self.bytes.get(self.place) {
                Some(b'"') => {
                    self.place += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.place += 1;
                    let escape = *self.bytes.get(self.place).ok_or_else(|| self.bad())?;
                    self.place += 1;
                    match escape {
                        b'"' | b'\\' | b'/' => out.push(char::from(escape)),
                        b'b' => out.push('\u{8}'),
                        b'f' => out.push('\u{c}'),
                        b'n' => out.push('\n'),
                        b'r' => out.push('\r'),
                        b't' => out.push('\t'),
                        b'u' => out.push(self.unicode()?),
                        _ => return Err(self.bad()),
                    }
                }
                _ => return Err(self.bad()),
            }
        }
    }

    fn unicode(&mut self) -> Result<char, SqlError> {
        let first = self.hex4()?;
        if first == 0 {
            return Err(fail("22P05", "unsupported Unicode escape sequence"));
        }
        let code = if (0xD800..0xDC00).contains(&first) {
            if !self.text.is_char_boundary(self.place) || !self.text[self.place..].starts_with("\\u") {
                return Err(self.bad());
            }
            self.place += 2;
            let second = self.hex4()?;
            if !(0xDC00..0xE000).contains(&second) {
                return Err(self.bad());
            }
            0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        } else {
            first
        };
        char::from_u32(code).ok_or_else(|| self.bad())
    }

    fn hex4(&mut self) -> Result<u32, SqlError> {
        let digits = self.bytes.get(self.place..self.place + 4).ok_or_else(|| self.bad())?;
        let digits = std::str::from_utf8(digits).map_err(|_| self.bad())?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(self.bad());
        }
        self.place += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.bad())
    }
}

/// Whether a text is JSON, kept as it was written (the type json).
pub(crate) fn check(text: &str) -> Result<(), SqlError> {
    Json::parse(text).map(drop)
}

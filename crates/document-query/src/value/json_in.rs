//! JSON text to values: strict, numbers read to the nearest double, nesting bounded.

use super::{Object, Value};
use crate::limits::{JSON_DEPTH_MAX, VALUE_DEPTH_MAX};

/// Why bytes are not a JSON document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON at byte {offset}: {reason}")]
pub struct JsonError {
    /// Where, in bytes from the start.
    pub offset: usize,
    /// What is wrong there.
    pub reason: &'static str,
}

impl Value {
    /// Reads one JSON text, nested at most [`JSON_DEPTH_MAX`] deep. Of properties with one name the last counts.
    pub fn from_json(bytes: &[u8]) -> Result<Value, JsonError> {
        Value::from_json_with_depth(bytes, JSON_DEPTH_MAX)
    }

    /// Reads one JSON text, nested at most `depth_max` and [`VALUE_DEPTH_MAX`] deep.
    pub fn from_json_with_depth(bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| JsonError { offset: error.valid_up_to(), reason: "the text is not UTF-8" })?;
        let mut reader = Reader { text, at: 0, depth_left: depth_max.min(VALUE_DEPTH_MAX) };
        reader.skip_spaces();
        let value = reader.value()?;
        reader.skip_spaces();
        if reader.at < text.len() {
            return Err(reader.error("there is text after the value"));
        }
        Ok(value)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth_left: usize,
}

impl Reader<'_> {
    fn error(&self, reason: &'static str) -> JsonError {
        JsonError { offset: self.at, reason }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => Ok(Value::from(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word("null", Value::Null),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(_) => Err(self.error("a value was expected")),
            None => Err(self.error("the text ends too early")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.error("a value was expected"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, JsonError>) -> Result<Value, JsonError> {
        if self.depth_left == 0 {
            return Err(self.error("the nesting is too deep"));
        }
        self.depth_left -= 1;
        self.at += 1;
        self.skip_spaces();
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    /// True at the closing byte, which is consumed; a comma must come otherwise, except before the first item.
    fn closes(&mut self, close: u8, first: bool) -> Result<bool, JsonError> {
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                return Ok(true);
            }
            Some(b',') if !first => self.at += 1,
            Some(_) if first => return Ok(false),
            _ => return Err(self.error("a comma or the end of the list was expected")),
        }
        self.skip_spaces();
        Ok(false)
    }

    fn array(&mut self) -> Result<Value, JsonError> {
        let mut items = Vec::new();
        while !self.closes(b']', items.is_empty())? {
            items.push(self.value()?);
            self.skip_spaces();
        }
        Ok(Value::array(items))
    }

    fn object(&mut self) -> Result<Value, JsonError> {
        let mut object = Object::new();
        let mut first = true;
        while !self.closes(b'}', first)? {
            first = false;
            if self.peek() != Some(b'"') {
                return Err(self.error("a property name was expected"));
            }
            let key = self.string()?;
            self.skip_spaces();
            if self.peek() != Some(b':') {
                return Err(self.error("a colon was expected"));
            }
            self.at += 1;
            self.skip_spaces();
            let value = self.value()?;
            object.insert(key, value);
            self.skip_spaces();
        }
        Ok(Value::object(object))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { Err(self.error("a digit was expected")) } else { Ok(()) }
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Number(number)),
            _ => Err(JsonError { offset: start, reason: "the number is too large for a double" }),
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut text = String::new();
        let mut plain = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    text.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    text.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    text.push(self.escape()?);
                    plain = self.at;
                }
                Some(0x00..0x20) => return Err(self.error("a control character stands in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.error("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let byte = self.peek();
        let character = match byte {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.error("the escape is unknown")),
        };
        self.at += 1;
        Ok(character)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).ok_or_else(|| self.error("half of a surrogate pair is missing"));
        }
        if self.peek() != Some(b'\\') || self.text.as_bytes().get(self.at + 1) != Some(&b'u') {
            return Err(self.error("half of a surrogate pair is missing"));
        }
        self.at += 1;
        let second = self.hex()?;
        if !(0xDC00..0xE000).contains(&second) {
            return Err(self.error("half of a surrogate pair is missing"));
        }
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair is missing"))
    }

    /// Reads `uXXXX` from the `u` on.
    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|d| u32::from_str_radix(d, 16).ok());
        let code = code.ok_or_else(|| self.error("four hexadecimal digits were expected"))?;
        self.at += 5;
        Ok(code)
    }
}

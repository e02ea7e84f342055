//! A small JSON reader for entities: it keeps the order of members and the text of numbers, since `1` and `1.0` are
//! values of different types here, and a double must be read to its last bit.

use std::borrow::Cow;

/// Deeper objects than these mean nothing in an entity, on the wire or stored.
const DEPTH_MAX: usize = 2;

/// A value that may occur in an entity. Most texts are where they were read, and are not copied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    /// The number's own text.
    Number(&'a str),
    Text(Cow<'a, str>),
    Object(Members<'a>),
}

/// The members of an object, in order; names may repeat.
pub(crate) type Members<'a> = Vec<(Cow<'a, str>, Json<'a>)>;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at} of the JSON")]
pub(crate) struct JsonError {
    problem: &'static str,
    at: usize,
}

/// Reads one object that is the whole text.
pub(crate) fn read_object(text: &str) -> Result<Members<'_>, JsonError> {
    read_members(text, &|_| true, usize::MAX)
}

/// Reads those members of one object, which is the whole text, that are wanted by name; the others are passed over.
/// What comes after so many is not looked at.
pub(crate) fn read_members<'a>(
    text: &'a str,
    is_wanted: &dyn Fn(&str) -> bool,
    members_max: usize,
) -> Result<Members<'a>, JsonError> {
    let mut reader = Reader { text, at: 0 };
    // Some .NET writers begin with a byte order mark.
    if let Some(rest) = text.strip_prefix('\u{FEFF}') {
        reader.at = text.len() - rest.len();
    }
    reader.space();
    let members = reader.object(1, is_wanted, members_max)?;
    if members.len() == members_max {
        return Ok(members);
    }
    reader.space();
    if reader.at < text.len() {
        return Err(reader.wrong("something follows the object"));
    }
    Ok(members)
}

/// Writes a text as JSON, with quotes.
pub(crate) fn write_text(text: &str, to: &mut String) {
    use std::fmt::Write as _;
    to.push('"');
    let mut rest = text;
    loop {
        let at = bytes_before(rest.as_bytes(), |byte| {
            (byte == b'"') | (byte == b'\\') | (byte < b' ') | (byte == 0x7F)
        });
        to.push_str(&rest[..at]);
        let Some(special) = rest.as_bytes().get(at) else { break };
        match *special {
            b'"' => to.push_str("\\\""),
            b'\\' => to.push_str("\\\\"),
            b'\n' => to.push_str("\\n"),
            b'\r' => to.push_str("\\r"),
            b'\t' => to.push_str("\\t"),
            byte => {
                let _infallible = write!(to, "\\u{byte:04x}");
            }
        }
        rest = &rest[at + 1..];
    }
    to.push('"');
}

/// How many bytes stand before the first that ends a text, is escaped or may not be there.
fn plain_bytes(bytes: &[u8]) -> usize {
    bytes_before(bytes, |byte| (byte == b'"') | (byte == b'\\') | (byte < b' '))
}

/// How many bytes stand before the first of some. Looked at sixteen at a time, which the compiler makes a few
/// instructions of.
#[inline]
fn bytes_before(bytes: &[u8], is_special: impl Fn(u8) -> bool) -> usize {
    let whole = bytes
        .chunks_exact(16)
        .take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_special(*byte)));
    let start = whole.count() * 16;
    let rest = bytes[start..].iter().position(|byte| is_special(*byte));
    rest.map_or(bytes.len(), |length| start + length)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong(&self, problem: &'static str) -> JsonError {
        JsonError { problem, at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8, problem: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(problem));
        }
        self.at += 1;
        Ok(())
    }

    fn object(
        &mut self,
        depth: usize,
        is_wanted: &dyn Fn(&str) -> bool,
        members_max: usize,
    ) -> Result<Members<'a>, JsonError> {
        self.take(b'{', "an object is expected")?;
        let mut members = Members::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(members);
        }
        loop {
            self.space();
            let name = self.text()?;
            self.space();
            self.take(b':', "a colon is expected")?;
            self.space();
            if is_wanted(&name) {
                members.push((name, self.value(depth)?));
                if members.len() == members_max {
                    return Ok(members);
                }
            } else {
                self.pass_over(depth)?;
            }
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(members);
                }
                _ => return Err(self.wrong("a comma or the end of the object is expected")),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonError> {
        match self.peek() {
            Some(b'"') => self.text().map(Json::Text),
            Some(b'{') if depth < DEPTH_MAX => {
                self.object(depth + 1, &|_| true, usize::MAX).map(Json::Object)
            }
            Some(b'{') => Err(self.wrong("objects are nested too deep")),
            Some(b'[') => Err(self.wrong("a property cannot be an array")),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            _ => Err(self.wrong("a value is expected")),
        }
    }

    /// A value that nobody wants.
    fn pass_over(&mut self, depth: usize) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'{') if depth < DEPTH_MAX => self.object(depth + 1, &|_| false, usize::MAX).map(drop),
            _ => self.value(depth).map(drop),
        }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.wrong("a value is expected"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.wrong("a digit is expected"));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    /// RFC 8259, section 6.
    fn number(&mut self) -> Result<Json<'a>, JsonError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let first = self.at;
        self.digits()?;
        if leading_zero && self.at > first + 1 {
            return Err(self.wrong("a number has no leading zeros"));
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
        Ok(Json::Number(&self.text[start..self.at]))
    }

    /// A text; most have nothing escaped and are not copied.
    fn text(&mut self) -> Result<Cow<'a, str>, JsonError> {
        self.take(b'"', "a string is expected")?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let length = plain_bytes(rest.as_bytes());
            self.at += length;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    let last = &rest[..length];
                    if out.is_empty() {
                        return Ok(Cow::Borrowed(last));
                    }
                    out.push_str(last);
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push_str(&rest[..length]);
                    out.push(self.escape()?);
                }
                Some(_) => return Err(self.wrong("a control character must be escaped")),
                None => return Err(self.wrong("a string has no end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let char = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(self.wrong("an unknown escape")),
        };
        self.at += 1;
        Ok(char)
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let lone = "half of a surrogate pair is not a character";
        let first = self.hex()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let second = match self.text[self.at..].strip_prefix("\\u") {
            Some(_) => {
                self.at += 2;
                self.hex()?
            }
            None => return Err(self.wrong(lone)),
        };
        if !(0xD800..0xDC00).contains(&first) || !(0xDC00..0xE000).contains(&second) {
            return Err(self.wrong(lone));
        }
        let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        char::from_u32(code).ok_or_else(|| self.wrong(lone))
    }

    fn hex(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        let mut code = 0;
        for digit in digits {
            let digit =
                char::from(*digit).to_digit(16).ok_or_else(|| self.wrong("four hex digits are expected"))?;
            code = code * 16 + digit;
        }
        if digits.len() < 4 {
            return Err(self.wrong("four hex digits are expected"));
        }
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn members_keep_their_order_and_numbers_their_text() {
        let text = "\u{FEFF} {\"b\": 1.0, \"a\":1,\
            \"c\":-2E+3 ,\"d\":\"\\u00e9\\ud83d\\ude00\\n\", \"e\":null,\"f\":{}} ";
        let members = read_object(text).unwrap();
        let expected = [
            ("b", Json::Number("1.0")),
            ("a", Json::Number("1")),
            ("c", Json::Number("-2E+3")),
            ("d", Json::Text("é😀\n".into())),
            ("e", Json::Null),
            ("f", Json::Object(vec![])),
        ];
        assert_eq!(members, expected.map(|(name, value)| (name.into(), value)));
    }

    #[test]
    fn what_is_no_entity_is_refused() {
        let bad = [
            "",
            "{",
            "[]",
            "{}x",
            "{\"a\":}",
            "{\"a\":01}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":+1}",
            "{\"a\":[1]}",
            "{\"a\" 1}",
            "{\"a\":\"\\ud800\"}",
            "{\"a\":\"\\ud800\\u0041\"}",
            "{\"a\":\"\\udc00\"}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12\"}",
            "{\"a\":\"\\u12é\"}",
            "{\"a\":{\"b\":{\"c\":{}}}}",
            "{a:1}",
            "{\"a\":1,}",
            "{\"a\":nul}",
            "{\"a\":NaN}",
            "{\"a\":\"",
        ];
        for text in bad {
            assert!(read_object(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was_written(text in any::<String>()) {
            let mut json = "{\"t\":".to_owned();
            write_text(&text, &mut json);
            json.push('}');
            prop_assert_eq!(&read_object(&json).unwrap()[0].1, &Json::Text(text.as_str().into()));
            let other: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(other["t"].as_str(), Some(text.as_str()));
        }

        #[test]
        fn garbage_never_panics(text in "[{}\\[\\]\":,0-9eE+.\\\\untfalse é-]{0,60}") {
            let ours = read_object(&text);
            if ours.is_ok() {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok() || text.contains(['e', 'E']));
            }
        }
    }
}

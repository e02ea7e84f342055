//! Rows of COPY: where each ends, and what its fields say.

use std::borrow::Cow;

use polyshard_sql::{Copy, SqlError, SqlState};

/// The longest row: beyond it, a quote was most likely left open.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What data in binary form begins with.
const BINARY_MARK: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// PostgreSQL's binary form; the rest does not matter then.
    pub binary: bool,
    csv: bool,
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: Vec<u8>,
    /// Whether the first line names the columns.
    pub header: bool,
}

impl Form {
    /// As a COPY says.
    pub fn of(copy: &Copy) -> Result<Form, SqlError> {
        if copy.option("default").is_some() {
            return Err(SqlError::unsupported(
                "COPY with DEFAULT is not offered: rows are placed by what their fields say",
                "Leave the column out, or write its value.",
            ));
        }
        copy.check_encoding()?;
        let (csv, binary) = match copy.format() {
            "text" => (false, false),
            "csv" => (true, false),
            "binary" => (false, true),
            other => {
                let message = format!("COPY format \"{other}\" not recognized");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        };
        let quote = copy.character("quote", b'"')?;
        Ok(Form {
            binary,
            csv,
            delimiter: copy.character("delimiter", if csv { b',' } else { b'\t' })?,
            quote,
            escape: copy.character("escape", quote)?,
            null: copy.option("null").unwrap_or(if csv { "" } else { "\\N" }).as_bytes().to_vec(),
            header: copy.has_header(),
        })
    }

    /// The length of what comes before the first row in binary form; none if it is not there as a whole.
    pub fn binary_header(bytes: &[u8]) -> Result<Option<usize>, SqlError> {
        let wrong =
            |what: &str| SqlError::new(SqlState("22P04"), format!("invalid COPY file header ({what})"));
        let known = bytes.len().min(BINARY_MARK.len());
        if bytes[..known] != BINARY_MARK[..known] {
            return Err(wrong("it does not begin with PostgreSQL's mark"));
        }
        let Some(more) = bytes.get(15..19) else { return Ok(None) };
        if bytes[11..15] != [0; 4] {
            return Err(wrong("flags that are not known"));
        }
        let more = be_i32(more);
        let more = usize::try_from(more).map_err(|_| wrong("a negative length"))?;
        if more > ROW_BYTES_MAX {
            return Err(wrong("a length beyond 64 MiB"));
        }
        Ok((bytes.len() >= 19 + more).then_some(19 + more))
    }

    fn binary_row_end(bytes: &[u8]) -> Option<usize> {
        let fields = be_i16(bytes.get(..2)?);
        let mut at = 2;
        for _ in 0..fields.max(0) {
            let length = be_i32(bytes.get(at..at + 4)?);
            at += 4 + usize::try_from(length).unwrap_or(0);
        }
        (at <= bytes.len()).then_some(at)
    }

    fn binary_field(row: &[u8], wanted: usize) -> Result<Option<Vec<u8>>, SqlError> {
        let bad = || SqlError::new(SqlState("22P04"), "a binary row is not whole, or lacks the key");
        let mut at = 2;
        for number in 0.. {
            let length = be_i32(row.get(at..at + 4).ok_or_else(bad)?);
            at += 4;
            let length = usize::try_from(length).ok();
            if number == wanted {
                return match length {
                    None => Ok(None),
                    Some(length) => Ok(Some(row.get(at..at + length).ok_or_else(bad)?.to_vec())),
                };
            }
            at += length.unwrap_or(0);
        }
        Err(bad())
    }

    /// The length of the first row with its line end; none if it is not there as a whole.
    pub fn row_end(&self, bytes: &[u8]) -> Option<usize> {
        if self.binary {
            return Form::binary_row_end(bytes);
        }
        if self.csv { self.csv_row_end(bytes) } else { text_row_end(bytes) }
    }

    fn csv_row_end(&self, bytes: &[u8]) -> Option<usize> {
        let (mut at, mut quoted) = (0, false);
        loop {
            at += memchr::memchr3(b'\n', self.quote, self.escape, bytes.get(at..)?)?;
            let byte = bytes[at];
            if quoted && byte == self.escape && self.escape != self.quote {
                at += 2;
                continue;
            }
            if byte == self.quote {
                // A doubled quote closes and opens again.
                quoted = !quoted;
            }
            at += 1;
            if byte == b'\n' && !quoted {
                return Some(at);
            }
        }
    }

    /// Whether a row is the mark that ends the data.
    pub fn is_end(&self, row: &[u8]) -> bool {
        if self.binary {
            return row == [0xff, 0xff];
        }
        trimmed(row) == b"\\."
    }

    /// The same as [`Form::field`], without a copy of what is written plainly: asked of every row.
    pub fn key<'r>(&self, row: &'r [u8], wanted: usize) -> Result<Option<Cow<'r, [u8]>>, SqlError> {
        match self.plain_field(row, wanted) {
            Some(field) => Ok(Some(Cow::Borrowed(field))),
            None => self.field(row, wanted).map(|field| field.map(Cow::Owned)),
        }
    }

    /// A field that says what is written, with nothing quoted or escaped up to it, and is not NULL.
    fn plain_field<'r>(&self, row: &'r [u8], wanted: usize) -> Option<&'r [u8]> {
        if self.binary {
            return None;
        }
        let (one, other) = if self.csv { (self.quote, self.escape) } else { (b'\\', b'\\') };
        let mut rest = trimmed(row);
        for _ in 0..wanted {
            let end = memchr::memchr3(self.delimiter, one, other, rest)?;
            if rest[end] != self.delimiter {
                return None;
            }
            rest = &rest[end + 1..];
        }
        let field = match memchr::memchr3(self.delimiter, one, other, rest) {
            None => rest,
            Some(end) if rest[end] == self.delimiter => &rest[..end],
            Some(_) => return None,
        };
        (*field != *self.null).then_some(field)
    }

    /// What field number `wanted` says; `None` for NULL. An error if the row has no such field.
    pub fn field(&self, row: &[u8], wanted: usize) -> Result<Option<Vec<u8>>, SqlError> {
        if self.binary {
            return Form::binary_field(row, wanted);
        }
        let row = trimmed(row);
        let (mut at, mut number) = (0, 0);
        loop {
            let (value, quoted, next) =
                if self.csv { self.csv_field(row, at) } else { self.text_field(row, at) };
            if number == wanted {
                return match value {
                    Value::Null => Ok(None),
                    Value::Text(text) if text == self.null && self.csv && !quoted => Ok(None),
                    Value::Text(text) => Ok(Some(text)),
                };
            }
            match next {
                Some(next) => at = next,
                None => {
                    return Err(SqlError::new(
                        SqlState("22P04"),
                        format!("a row has {} fields, and the key is field {}", number + 1, wanted + 1),
                    ));
                }
            }
            number += 1;
        }
    }

    /// What each field of a row says, in text or CSV form.
    pub fn fields(&self, row: &[u8]) -> Vec<Option<Vec<u8>>> {
        let row = trimmed(row);
        let (mut at, mut found) = (0, Vec::new());
        loop {
            let (value, quoted, next) =
                if self.csv { self.csv_field(row, at) } else { self.text_field(row, at) };
            found.push(match value {
                Value::Null => None,
                Value::Text(text) if text == self.null && self.csv && !quoted => None,
                Value::Text(text) => Some(text),
            });
            match next {
                Some(next) => at = next,
                None => return found,
            }
        }
    }

    fn text_field(&self, row: &[u8], start: usize) -> (Value, bool, Option<usize>) {
        let mut end = start;
        while end < row.len() && row[end] != self.delimiter {
            end += if row[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(row.len());
        let raw = &row[start..end];
        let next = (end < row.len()).then_some(end + 1);
        if raw == self.null {
            return (Value::Null, false, next);
        }
        (Value::Text(unescaped(raw)), false, next)
    }

    fn csv_field(&self, row: &[u8], start: usize) -> (Value, bool, Option<usize>) {
        let (mut text, mut quoted, mut inside) = (Vec::new(), false, false);
        let mut at = start;
        while let Some(&byte) = row.get(at) {
            let next = row.get(at + 1).copied();
            if inside {
                if byte == self.escape && (next == Some(self.quote) || next == Some(self.escape)) {
                    text.extend(next);
                    at += 2;
                    continue;
                }
                if byte == self.quote {
                    inside = false;
                } else {
                    text.push(byte);
                }
            } else if byte == self.quote {
                inside = true;
                quoted = true;
            } else if byte == self.delimiter {
                return (Value::Text(text), quoted, Some(at + 1));
            } else {
                text.push(byte);
            }
            at += 1;
        }
        (Value::Text(text), quoted, None)
    }
}

enum Value {
    Null,
    Text(Vec<u8>),
}

/// A line ends where no backslash stands before its end.
fn text_row_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'\n', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'\n' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn be_i16(bytes: &[u8]) -> i16 {
    bytes.try_into().map_or(0, i16::from_be_bytes)
}

fn be_i32(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_be_bytes)
}

/// A row without its line end.
fn trimmed(row: &[u8]) -> &[u8] {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    row.strip_suffix(b"\r").unwrap_or(row)
}

/// The text form's escapes.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some((&letter, after)) = rest.split_first() else {
            out.push(b'\\');
            break;
        };
        rest = after;
        let digits = |radix: u32, max: usize, from: &[u8]| {
            from.iter().take(max).take_while(|digit| (**digit as char).is_digit(radix)).count()
        };
        let number = |radix: u32, text: &[u8]| {
            std::str::from_utf8(text)
                .ok()
                .and_then(|text| u32::from_str_radix(text, radix).ok())
                .map_or(0, |n| n as u8)
        };
        match letter {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'x' if digits(16, 2, rest) > 0 => {
                let count = digits(16, 2, rest);
                out.push(number(16, &rest[..count]));
                rest = &rest[count..];
            }
            b'0'..=b'7' => {
                let count = digits(8, 2, rest);
                let mut all = vec![letter];
                all.extend_from_slice(&rest[..count]);
                out.push(number(8, &all));
                rest = &rest[count..];
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(sql: &str) -> Form {
        let statement = polyshard_sql::statements(sql).unwrap().remove(0);
        let polyshard_sql::Kind::Copy(copy) = statement.kind() else { panic!("{sql} is no COPY") };
        Form::of(copy).unwrap()
    }

    fn text(form: &Form, row: &str, at: usize) -> Option<String> {
        form.field(row.as_bytes(), at).unwrap().map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn rows_of_text_end_where_postgresql_ends_them() {
        let form = form("COPY t FROM STDIN");
        assert_eq!(form.row_end(b"a\\\nb\tc\nd"), Some(7));
        assert_eq!(form.row_end(b"a\\\\\nb"), Some(4));
        assert_eq!(form.row_end(b"no end"), None);
        assert_eq!((form.row_end(b"a\\"), form.row_end(b"a\\\n")), (None, None));
        assert_eq!(text(&form, "1\tx\\ty\\\\\\101\n", 1).as_deref(), Some("x\ty\\A"));
        assert_eq!(text(&form, "\\N\tx\r\n", 0), None);
        assert_eq!(text(&form, "\\N\tx\r\n", 1).as_deref(), Some("x"));
        assert!(form.is_end(b"\\.\r\n"));
        assert!(form.field(b"1\n", 2).is_err());
    }

    #[test]
    fn rows_in_binary_form_are_cut_by_their_lengths() {
        let form = form("COPY t FROM STDIN WITH (FORMAT binary)");
        let mut data = [BINARY_MARK, &[0; 8]].concat();
        assert_eq!(Form::binary_header(&data[..18]).unwrap(), None);
        assert_eq!(Form::binary_header(&data).unwrap(), Some(19));
        assert!(Form::binary_header(b"1\tx\n").is_err());
        data = [&[0, 2, 0, 0, 0, 3][..], b"abc", &[0xff; 4]].concat();
        assert_eq!((form.row_end(&data), form.row_end(&data[..12])), (Some(13), None));
        assert_eq!(form.field(&data, 0).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(form.field(&data, 1).unwrap(), None);
        assert!(form.field(&data, 2).is_err());
        assert!(form.is_end(&[0xff, 0xff]) && form.row_end(&[0xff, 0xff]) == Some(2));
    }

    /// The short way to a key says what the long way says.
    #[test]
    fn keys_are_read_alike_with_and_without_a_copy() {
        let rows = [
            "1\t2\t3\n",
            "\\N\tx\n",
            "a\\tb\tc\n",
            "x\ta\\\tb\n",
            "\t\t\r\n",
            "1,2,3\n",
            "\"a,b\",c\n",
            ",x\n",
            "a,\"\"\n",
            "nil,\"nil\"\n",
            "~it~~s~,2\n",
            "a!,b\n",
            "\n",
        ];
        let forms = [
            "COPY t FROM STDIN",
            "COPY t FROM STDIN WITH (NULL 'nil', DELIMITER ',')",
            "COPY t FROM STDIN WITH (FORMAT csv)",
            "COPY t FROM STDIN WITH (FORMAT csv, NULL 'nil', QUOTE '~', ESCAPE '!')",
        ];
        let mut borrowed = 0;
        for form in forms.map(form) {
            for row in rows {
                for at in 0..3 {
                    let (short, long) = (form.key(row.as_bytes(), at), form.field(row.as_bytes(), at));
                    borrowed += usize::from(matches!(&short, Ok(Some(Cow::Borrowed(_)))));
                    assert_eq!(short.map(|key| key.map(Cow::into_owned)), long, "{form:?} {row:?} {at}");
                }
            }
        }
        assert!(borrowed > 20, "{borrowed}");
    }

    #[test]
    fn every_field_of_a_row_is_read() {
        let csv = form("COPY t FROM STDIN WITH (FORMAT csv, NULL 'nil')");
        let shown = |form: &Form, row: &[u8]| -> Vec<Option<String>> {
            form.fields(row)
                .into_iter()
                .map(|field| field.map(|text| String::from_utf8(text).unwrap()))
                .collect()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&csv, b"1,nil,\"nil\",\n"), [some("1"), None, some("nil"), some("")]);
        let text = form("COPY t FROM STDIN");
        assert_eq!(shown(&text, b"a\\tb\t\\N\t\n"), [some("a\tb"), None, some("")]);
    }

    #[test]
    fn rows_of_csv_may_have_line_ends_in_quotes() {
        let form = form("COPY t FROM STDIN WITH (FORMAT csv, HEADER)");
        assert!(form.header);
        assert_eq!(form.row_end(b"1,\"a\nb\"\n2,c\n"), Some(8));
        assert_eq!(form.row_end(b"\"a\"\"\n\"\nx"), Some(7));
        assert_eq!((form.row_end(b"\"a\n"), form.row_end(b"")), (None, None));
        assert_eq!(text(&form, "\"a\"\"b\",c\n", 0).as_deref(), Some("a\"b"));
        assert_eq!(text(&form, "a\"b,c\"d,e\n", 0).as_deref(), Some("ab,cd"));
        assert_eq!((text(&form, ",x\n", 0), text(&form, "\"\",x\n", 0).as_deref()), (None, Some("")));
    }
}

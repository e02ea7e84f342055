//! Rows of COPY in text and CSV form: where each ends, and what one of its fields says. Nothing else of them is read.

use polyshard_sql::{Copy, SqlError, SqlState};

/// The longest row: beyond it, a quote was most likely left open.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
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
        let csv = match copy.format() {
            "text" => false,
            "csv" => true,
            other => {
                return Err(SqlError::unsupported(
                    format!("COPY in format {other} is not offered over several shards"),
                    "Use text or CSV.",
                ));
            }
        };
        let byte = |name: &str, default: u8| match copy.option(name).map(str::as_bytes) {
            None => Ok(default),
            Some([one]) => Ok(*one),
            Some(_) => Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("COPY {name} must be a single one-byte character"),
            )),
        };
        let quote = byte("quote", b'"')?;
        let header = copy
            .option("header")
            .is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "off" | "0" | "no"));
        Ok(Form {
            csv,
            delimiter: byte("delimiter", if csv { b',' } else { b'\t' })?,
            quote,
            escape: byte("escape", quote)?,
            null: copy.option("null").unwrap_or(if csv { "" } else { "\\N" }).as_bytes().to_vec(),
            header,
        })
    }

    /// The length of the first row with its line end; none if it is not there as a whole.
    pub fn row_end(&self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        let mut quoted = false;
        while let Some(&byte) = bytes.get(at) {
            if !self.csv && byte == b'\\' {
                at += 2;
                continue;
            }
            if self.csv && quoted && byte == self.escape && self.escape != self.quote {
                at += 2;
                continue;
            }
            if self.csv && byte == self.quote {
                // A doubled quote closes and opens again.
                quoted = !quoted;
            }
            if byte == b'\n' && !quoted {
                return Some(at + 1);
            }
            at += 1;
        }
        None
    }

    /// Whether a row is the mark that ends the data.
    pub fn is_end(&self, row: &[u8]) -> bool {
        trimmed(row) == b"\\."
    }

    /// What field number `wanted` says; `None` for NULL. An error if the row has no such field.
    pub fn field(&self, row: &[u8], wanted: usize) -> Result<Option<Vec<u8>>, SqlError> {
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
        assert_eq!(text(&form, "1\tx\\ty\\\\\\101\n", 1).as_deref(), Some("x\ty\\A"));
        assert_eq!(text(&form, "\\N\tx\r\n", 0), None);
        assert_eq!(text(&form, "\\N\tx\r\n", 1).as_deref(), Some("x"));
        assert!(form.is_end(b"\\.\r\n"));
        assert!(form.field(b"1\n", 2).is_err());
    }

    #[test]
    fn rows_of_csv_may_have_line_ends_in_quotes() {
        let form = form("COPY t FROM STDIN WITH (FORMAT csv, HEADER)");
        assert!(form.header);
        assert_eq!(form.row_end(b"1,\"a\nb\"\n2,c\n"), Some(8));
        assert_eq!(form.row_end(b"\"a\"\"\n\"\nx"), Some(7));
        assert_eq!(text(&form, "\"a\"\"b\",c\n", 0).as_deref(), Some("a\"b"));
        assert_eq!(text(&form, "a\"b,c\"d,e\n", 0).as_deref(), Some("ab,cd"));
        assert_eq!((text(&form, ",x\n", 0), text(&form, "\"\",x\n", 0).as_deref()), (None, Some("")));
    }
}

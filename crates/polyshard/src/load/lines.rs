//! Rows of a text file, as they stand: where each ends, and its line number.

use std::io::{self, BufRead, Read as _};

use memchr::{memchr, memchr2};

/// The longest row: beyond it, a quote was most likely left open.
pub const ROW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Comma-separated, with this delimiter; fields may be quoted and then have line ends in them.
    Csv { delimiter: u8 },
    /// PostgreSQL's text form: one line a row, with backslash escapes.
    Text,
}

/// Reads rows one after the other.
pub struct Lines<R> {
    from: R,
    form: Form,
    /// The line on which the next row begins.
    line: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(from: R, form: Form) -> Lines<R> {
        Lines { from, form, line: 1 }
    }

    /// Appends the next row with its line end to `out`, and says on which line it began; nothing at the end.
    /// A last row without a line end gets one.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let began = out.len();
        let first = self.line;
        let mut quoted = false;
        loop {
            let line_began = out.len();
            // One byte more than may be, and no more: a file without line ends does not fill the memory.
            let room = (ROW_BYTES_MAX + 1).saturating_sub(line_began - began) as u64;
            let read = self.from.by_ref().take(room).read_until(b'\n', out)?;
            if read == 0 && out.len() == began {
                return Ok(None);
            }
            if read == 0 && quoted {
                return Err(invalid(format!("line {first}: a quote is left open to the end of the file")));
            }
            self.line += u64::from(read > 0);
            if out.len() - began > ROW_BYTES_MAX {
                return Err(invalid(format!(
                    "line {first}: the row is longer than {} MiB: most likely a quote is left open",
                    ROW_BYTES_MAX >> 20
                )));
            }
            let line = &out[line_began..];
            let goes_on = match self.form {
                Form::Csv { .. } => {
                    quoted ^= memchr::memchr_iter(b'"', line).count() % 2 == 1;
                    quoted
                }
                Form::Text => ends_escaped(line),
            };
            if self.form == Form::Text && matches!(line, b"\\.\n" | b"\\.\r\n" | b"\\.") {
                // As PostgreSQL's own programs end their data.
                out.truncate(began);
                return Ok(None);
            }
            if !goes_on || read == 0 {
                if !out.ends_with(b"\n") {
                    out.push(b'\n');
                }
                return Ok(Some(first));
            }
        }
    }
}

/// Whether the line end is escaped, and so a part of a field.
fn ends_escaped(line: &[u8]) -> bool {
    let Some(line) = line.strip_suffix(b"\n") else { return false };
    line.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The names on a first line.
pub fn names(line: &[u8], form: Form) -> io::Result<Vec<String>> {
    let delimiter = match form {
        Form::Csv { delimiter } => delimiter,
        Form::Text => b'\t',
    };
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut rest = text.strip_suffix(b"\r").unwrap_or(text);
    // Spreadsheets put a mark before the first name.
    rest = rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest);
    let mut found = Vec::new();
    loop {
        let (name, after) = field(rest, delimiter, form);
        let name = String::from_utf8(name).map_err(|_| invalid("the first line is not UTF-8".to_owned()))?;
        if name.is_empty() {
            return Err(invalid(format!("the first line has no name for column {}", found.len() + 1)));
        }
        found.push(name);
        match after {
            Some(after) => rest = after,
            None => return Ok(found),
        }
    }
}

fn field(row: &[u8], delimiter: u8, form: Form) -> (Vec<u8>, Option<&[u8]>) {
    let Form::Csv { .. } = form else {
        return match memchr(delimiter, row) {
            Some(at) => (row[..at].to_vec(), Some(&row[at + 1..])),
            None => (row.to_vec(), None),
        };
    };
    let (mut out, mut rest, mut quoted) = (Vec::new(), row, false);
    while let Some(at) = memchr2(b'"', delimiter, rest) {
        out.extend_from_slice(&rest[..at]);
        if rest[at] == delimiter && !quoted {
            return (out, Some(&rest[at + 1..]));
        }
        if rest[at] == delimiter {
            out.push(delimiter);
        } else if quoted && rest.get(at + 1) == Some(&b'"') {
            out.push(b'"');
            rest = &rest[at + 2..];
            continue;
        } else {
            quoted = !quoted;
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    (out, None)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, form: Form) -> Vec<(u64, String)> {
        let mut lines = Lines::new(text.as_bytes(), form);
        let mut found = Vec::new();
        loop {
            let mut row = Vec::new();
            let Some(line) = lines.next_into(&mut row).unwrap() else { return found };
            found.push((line, String::from_utf8(row).unwrap()));
        }
    }

    const CSV: Form = Form::Csv { delimiter: b',' };

    #[test]
    fn a_quoted_line_end_is_inside_a_row_and_lines_are_counted_on() {
        let found = rows("a,\"x\ny\"\nb,\"\"\"\"\nlast", CSV);
        let wanted = [(1, "a,\"x\ny\"\n"), (3, "b,\"\"\"\"\n"), (4, "last\n")];
        assert_eq!(found, wanted.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn an_escaped_line_end_is_inside_a_row_of_text() {
        assert_eq!(
            rows("a\\\nb\nc\\\\\nd\n", Form::Text).iter().map(|row| row.0).collect::<Vec<_>>(),
            [1, 3, 4]
        );
        assert_eq!(rows("a\n\\.\nb\n", Form::Text).len(), 1, "what follows the end mark is not read");
    }

    #[test]
    fn an_open_quote_is_said_with_its_line() {
        let mut lines = Lines::new("a\n\"b\nc\n".as_bytes(), CSV);
        let mut row = Vec::new();
        assert_eq!(lines.next_into(&mut row).unwrap(), Some(1));
        let error = lines.next_into(&mut row).unwrap_err().to_string();
        assert!(error.starts_with("line 2:"), "{error}");
    }

    #[test]
    fn a_line_without_an_end_is_given_up_at_the_limit() {
        let mut lines = Lines::new(io::BufReader::new(io::repeat(b'x')), CSV);
        let mut row = Vec::new();
        let error = lines.next_into(&mut row).unwrap_err().to_string();
        assert!(error.starts_with("line 1: the row is longer"), "{error}");
        assert_eq!(row.len(), ROW_BYTES_MAX + 1);
    }

    #[test]
    fn names_are_read_with_quotes_and_the_mark_of_spreadsheets() {
        let line = "\u{feff}id,\"a,b\",\"say \"\"x\"\"\"\r\n";
        assert_eq!(names(line.as_bytes(), CSV).unwrap(), ["id", "a,b", "say \"x\""]);
        assert!(names(b"a,,b\n", CSV).is_err());
        assert_eq!(names(b"a\tb\n", Form::Text).unwrap(), ["a", "b"]);
    }
}

//! How COPY writes rows: PostgreSQL's text form, and CSV.

use bytes::{BufMut, BytesMut};
use polyshard_sql::{Copy, SqlError};

use crate::reply;

/// How rows are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OutForm {
    csv: bool,
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: String,
    header: bool,
    force_all: bool,
}

impl OutForm {
    /// As a COPY says.
    pub fn of(copy: &Copy) -> Result<OutForm, SqlError> {
        let csv = match copy.format() {
            "text" => false,
            "csv" => true,
            _ => {
                return Err(SqlError::unsupported(
                    "COPY in format binary is not offered on SQLite shards",
                    "Use text or CSV.",
                ));
            }
        };
        copy.check_encoding()?;
        let force_all = match copy.option("force_quote") {
            None => false,
            Some("*") => true,
            Some(_) => {
                return Err(SqlError::unsupported(
                    "FORCE_QUOTE of single columns is not offered on SQLite shards",
                    "Use FORCE_QUOTE *.",
                ));
            }
        };
        let quote = copy.character("quote", b'"')?;
        Ok(OutForm {
            csv,
            delimiter: copy.character("delimiter", if csv { b',' } else { b'\t' })?,
            quote,
            escape: copy.character("escape", quote)?,
            null: copy.option("null").unwrap_or(if csv { "" } else { "\\N" }).to_owned(),
            header: copy.has_header(),
            force_all,
        })
    }

    /// Tells that rows follow, and the names of the columns if those are wanted.
    pub fn begin<'n>(&self, out: &mut BytesMut, names: impl ExactSizeIterator<Item = &'n str>) {
        reply::message(out, b'H', |out| {
            out.put_u8(0);
            out.put_u16(u16::try_from(names.len()).unwrap_or(u16::MAX));
            for _ in 0..names.len() {
                out.put_u16(0);
            }
        });
        if self.header {
            self.row(out, names.map(|name| Some(name.as_bytes())), false);
        }
    }

    /// One row of values in text form.
    pub fn row<'v>(&self, out: &mut BytesMut, values: impl Iterator<Item = Option<&'v [u8]>>, forced: bool) {
        reply::message(out, b'd', |out| {
            for (at, value) in values.enumerate() {
                if at > 0 {
                    out.put_u8(self.delimiter);
                }
                match value {
                    None => out.put_slice(self.null.as_bytes()),
                    Some(value) if self.csv => self.put_csv(out, value, forced && self.force_all),
                    Some(value) => self.put_text(out, value),
                }
            }
            out.put_u8(b'\n');
        });
    }

    /// One row of values in text form, as data.
    pub fn data<'v>(&self, out: &mut BytesMut, values: impl Iterator<Item = Option<&'v [u8]>>) {
        self.row(out, values, true);
    }

    fn put_text(&self, out: &mut BytesMut, value: &[u8]) {
        for byte in value {
            let letter = match byte {
                b'\\' => b'\\',
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                byte if *byte == self.delimiter => *byte,
                byte => {
                    out.put_u8(*byte);
                    continue;
                }
            };
            out.put_slice(&[b'\\', letter]);
        }
    }

    fn put_csv(&self, out: &mut BytesMut, value: &[u8], forced: bool) {
        let special = |byte: &u8| [self.delimiter, self.quote, b'\n', b'\r'].contains(byte);
        // The end mark alone on a line, and what would be read as NULL, are quoted too.
        if !forced && value != self.null.as_bytes() && value != b"\\." && !value.iter().any(special) {
            return out.put_slice(value);
        }
        out.put_u8(self.quote);
        for byte in value {
            if *byte == self.quote || *byte == self.escape {
                out.put_u8(self.escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(self.quote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(sql: &str, values: &[Option<&str>]) -> String {
        let statement = polyshard_sql::statements(sql).unwrap().remove(0);
        let polyshard_sql::Kind::Copy(copy) = statement.kind() else { panic!("{sql} is no COPY") };
        let mut out = BytesMut::new();
        OutForm::of(copy).unwrap().data(&mut out, values.iter().map(|value| value.map(str::as_bytes)));
        String::from_utf8(out[5..].to_vec()).unwrap()
    }

    #[test]
    fn rows_are_written_as_postgresql_writes_them() {
        let values = [Some("a\tb\\c\nd"), None, Some(""), Some("x,\"y\"")];
        assert_eq!(written("COPY t TO STDOUT", &values), "a\\tb\\\\c\\nd\t\\N\t\tx,\"y\"\n");
        let csv = "a\tb\\c\nd";
        assert_eq!(
            written("COPY t TO STDOUT WITH (FORMAT csv)", &values),
            format!("\"{csv}\",,\"\",\"x,\"\"y\"\"\"\n")
        );
        assert_eq!(
            written(
                "COPY t TO STDOUT WITH (FORMAT csv, FORCE_QUOTE *, NULL '-')",
                &[Some("1"), None, Some("-")]
            ),
            "\"1\",-,\"-\"\n"
        );
        assert_eq!(written("COPY t TO STDOUT WITH (DELIMITER '|')", &[Some("a|b"), Some("c")]), "a\\|b|c\n");
    }
}

//! The client's data of a COPY, kept until it is whole: shards are not held while a client is slow, or gone.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use bytes::{Buf as _, BytesMut};
use polyshard_sql::{SqlError, SqlState};
use tempfile::SpooledTempFile;

use super::load::other_than_data;
use super::{Session, Stop};
use crate::reply::state;
use crate::rows::{Form, ROW_BYTES_MAX};

/// Data kept in memory; more of it goes to a file without a name.
const MEMORY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Data kept at all: a client must not fill the disk of all others.
const SPOOL_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;

/// What the fields of a row say; none is NULL.
pub(crate) type Fields = Vec<Option<Vec<u8>>>;

/// Rows that a client has sent.
pub(crate) struct Spool {
    data: SpooledTempFile,
    form: Form,
}

/// Reads them, from the first.
pub(crate) struct SpoolRows<'s> {
    spool: &'s mut Spool,
    buffer: BytesMut,
    over: bool,
    header: bool,
    line: u64,
}

impl Session {
    /// Has the client send its data, and keeps it.
    pub(crate) async fn receive(&mut self, columns: usize, form: Form) -> Result<Spool, Stop> {
        if form.binary {
            return Err(SqlError::unsupported(
                "COPY in format binary is offered on PostgreSQL shards, and for sharded tables alone",
                "Use text or CSV.",
            )
            .into());
        }
        self.ask_for_data(columns, false);
        let mut data = SpooledTempFile::new(MEMORY_BYTES_MAX);
        let mut last = b'\n';
        let mut bytes: u64 = 0;
        loop {
            let (kind, body) = self.client.next().await?;
            match kind {
                b'd' => {
                    bytes += body.len() as u64;
                    if bytes > SPOOL_BYTES_MAX {
                        let message =
                            "COPY takes at most 4 GiB at once here: the data is kept until it is whole";
                        let error = SqlError::new(SqlState("54000"), message);
                        return Err(error.hint("Copy it in parts.").into());
                    }
                    data.write_all(&body).map_err(full)?;
                    last = body.last().copied().unwrap_or(last);
                }
                b'c' => break,
                kind => other_than_data(kind, &body)?,
            }
        }
        if last != b'\n' {
            data.write_all(b"\n").map_err(full)?;
        }
        Ok(Spool { data, form })
    }
}

impl Spool {
    /// The rows, from the first.
    pub fn rows(&mut self) -> Result<SpoolRows<'_>, SqlError> {
        self.data.seek(SeekFrom::Start(0)).map_err(full)?;
        let header = self.form.header;
        Ok(SpoolRows { spool: self, buffer: BytesMut::new(), over: false, header, line: 0 })
    }
}

impl SpoolRows<'_> {
    /// The fields of the next row, and its line.
    pub fn next(&mut self) -> Result<Option<(u64, Fields)>, SqlError> {
        loop {
            let Some(end) = self.spool.form.row_end(&self.buffer) else {
                if self.over {
                    return if self.buffer.has_remaining() { Err(unterminated()) } else { Ok(None) };
                }
                self.fill()?;
                continue;
            };
            let row = self.buffer.split_to(end);
            self.line += memchr::memchr_iter(b'\n', &row).count().max(1) as u64;
            if std::mem::take(&mut self.header) {
                continue;
            }
            if self.spool.form.is_end(&row) {
                return Ok(None);
            }
            return Ok(Some((self.line, self.spool.form.fields(&row))));
        }
    }

    fn fill(&mut self) -> Result<(), SqlError> {
        if self.buffer.len() > ROW_BYTES_MAX {
            return Err(unterminated());
        }
        let had = self.buffer.len();
        self.buffer.resize(had + READ_BYTES, 0);
        let read = self.spool.data.read(&mut self.buffer[had..]).map_err(full)?;
        self.buffer.truncate(had + read);
        self.over = read == 0;
        Ok(())
    }
}

fn unterminated() -> SqlError {
    SqlError::new(state::BAD_COPY, "unterminated CSV quoted field, or a row beyond 64 MiB")
}

fn full(error: std::io::Error) -> SqlError {
    SqlError::new(SqlState("53100"), format!("the data of COPY cannot be kept until it is whole: {error}"))
        .hint("Make room where temporary files are kept, or copy less at a time.")
}

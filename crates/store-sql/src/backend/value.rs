//! A question of the door's own to a shard's session whose refusal the client is shown as the shard said it.

use bytes::BytesMut;

use polyshard_sql::{SqlError, SqlState};

use super::words::{lost, optional_texts};
use super::{Backend, Broken};
use crate::reply::state;

/// What an answer may hold: it is taken into memory.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The fields of a row in text form.
pub(crate) type Fields = Vec<Option<String>>;

impl Backend {
    /// Asks something when nothing else is under way: all rows; or the error's body.
    pub async fn ask_openly(&mut self, sql: &str) -> Result<Result<Vec<Fields>, BytesMut>, Broken> {
        self.query(sql, true);
        self.flush().await?;
        let (mut rows, mut failure, mut bytes) = (Vec::new(), None, 0);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b'D' => {
                    bytes += body.len();
                    if bytes > ANSWER_BYTES_MAX {
                        let message = "a shard's answer of more than 64 MiB is not taken into memory";
                        return Err(Broken::Ended(SqlError::new(SqlState("54000"), message)));
                    }
                    rows.push(optional_texts(&body).ok_or_else(no_row)?);
                }
                b'E' => {
                    self.check_fatal(&body)?;
                    failure = Some(body);
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    self.steps.pop_front();
                    if self.steps.is_empty() {
                        break;
                    }
                    // That was the end of something quiet that was sent before.
                    (rows, failure, bytes) = (Vec::new(), None, 0);
                }
                _ => {}
            }
        }
        Ok(match failure {
            Some(body) => Err(body),
            None => Ok(rows),
        })
    }
}

fn no_row() -> Broken {
    Broken::Cut(SqlError::new(state::PROTOCOL_VIOLATION, "a shard sent a row that is none"))
}

//! A question of the door's own to a shard's session whose refusal the client is shown as the shard said it.

use bytes::BytesMut;

use super::words::{lost, optional_texts};
use super::{Backend, Broken};

/// The fields of a row in text form.
pub(crate) type Fields = Vec<Option<String>>;

impl Backend {
    /// Asks something when nothing else is under way: all rows; or the error's body.
    pub async fn ask_openly(&mut self, sql: &str) -> Result<Result<Vec<Fields>, BytesMut>, Broken> {
        self.query(sql, true);
        self.flush().await?;
        let (mut rows, mut failure) = (Vec::new(), None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b'D' => rows.push(optional_texts(&body)),
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
                    (rows, failure) = (Vec::new(), None);
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

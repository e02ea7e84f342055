//! A question of the door's own to a shard's session whose refusal the client is shown as the shard said it.

use bytes::BytesMut;

use super::words::{lost, optional_texts};
use super::{Backend, Broken};

impl Backend {
    /// Asks something when nothing else is under way: the first row, empty if there is none; or the error's body.
    pub async fn ask_openly(&mut self, sql: &str) -> Result<Result<Vec<Option<String>>, BytesMut>, Broken> {
        self.query(sql, true);
        self.flush().await?;
        let (mut row, mut failure) = (None, None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b'D' => drop(row.get_or_insert_with(|| optional_texts(&body))),
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
                    (row, failure) = (None, None);
                }
                _ => {}
            }
        }
        Ok(match failure {
            Some(body) => Err(body),
            None => Ok(row.unwrap_or_default()),
        })
    }
}

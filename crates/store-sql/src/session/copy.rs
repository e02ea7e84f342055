//! The client's data on its way to one shard.

use super::{Done, Session, Stop};
use crate::backend::Broken;

/// Bytes gathered before they are sent on.
const CHUNK_BYTES: usize = 64 * 1024;

impl Session {
    /// Passes the client's data on until it ends, or the shard says something else.
    pub(super) async fn copy_in(&mut self) -> Done {
        self.client.flush().await?;
        loop {
            let Some(backend) = &mut self.backend else { return Ok(()) };
            while let Some(head) = self.client.whole()? {
                match head.kind {
                    b'd' | b'c' | b'f' => {
                        let body = self.client.take(head);
                        backend.pass(head.kind, &body);
                        if head.kind != b'd' {
                            return Ok(());
                        }
                    }
                    // The protocol lets these pass while data is copied.
                    b'H' | b'S' => drop(self.client.take(head)),
                    _ => {
                        backend.pass(b'f', b"another message came while data was copied\0");
                        return Ok(());
                    }
                }
                if backend.waiting_bytes() >= CHUNK_BYTES {
                    break;
                }
            }
            if let Err(broken) = backend.flush().await {
                return Err(self.broken(broken).await);
            }
            if backend.has_said() {
                // An error, most likely: the rest of the data is passed over.
                return Ok(());
            }
            if self.client.whole()?.is_some() {
                continue;
            }
            let heard = tokio::select! {
                filled = self.client.fill() => filled.map_err(Broken::Client),
                said = backend.fill() => said,
            };
            if let Err(broken) = heard {
                return Err(self.broken(broken).await);
            }
        }
    }

    async fn broken(&mut self, broken: Broken) -> Stop {
        match broken {
            Broken::Client(gone) => Stop::Gone(gone),
            Broken::Ended(error) => self.lose(error, false).await,
            Broken::Cut(error) => self.lose(error, true).await,
        }
    }
}

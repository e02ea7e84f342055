//! A row read by its primary key in the simple protocol: asked by a statement that the shard has prepared already.
//!
//! For PostgreSQL, reading and planning such a text is more work than running it. Only outside a transaction, where
//! an error leaves nothing behind: then the text itself is sent, so that the client is told about its own words.

use std::sync::Arc;

use polyshard_router::Access;
use polyshard_sql::{Schema, Shape};

use super::place::{Wanted, outdated};
use super::{Session, Stop};
use crate::backend::field;
use crate::cache::KnownLane;

/// Classes of errors that may be about the prepared form rather than about the statement: data that is no such value,
/// a plan that is not as it was, a prepared statement that is gone, a name that is gone.
const ASKED_AGAIN: [&str; 4] = ["22", "0A", "26", "42"];

impl Session {
    /// Reads a row for a text of this shape. False if the text is to be sent as it is, and the client was told nothing.
    pub(super) async fn read_point(
        &mut self,
        known: &KnownLane,
        shape: &Shape<'_>,
        wanted: &Wanted<'_>,
        schema: &Arc<Schema>,
    ) -> Result<bool, Stop> {
        if matches!(wanted, Wanted::Keys { shard, .. } if self.door.is_file(shard)) {
            return Ok(false);
        }
        let Some(prepared) = known.point(shape, &self.door.cache) else { return Ok(false) };
        let description = match prepared.description(&known.basis) {
            Some(description) => description,
            None => match Box::pin(self.described_by_shard(&prepared, wanted)).await {
                Ok(Ok(description)) => {
                    let description = Arc::new(description);
                    prepared.describe(known.basis.clone(), description.clone());
                    description
                }
                Ok(Err(_refused)) => {
                    // The client gets the shard's own words for it when the text is sent.
                    known.leave_as_it_is();
                    return Ok(false);
                }
                // So it does if the shard cannot be asked now.
                Err(Stop::Refused(_)) => return Ok(false),
                Err(stop) => return Err(stop),
            },
        };
        self.routed_by = Some(schema.clone());
        match self.acquire(wanted, Access::Read).await {
            Ok(()) => {}
            Err(Stop::Refused(error)) if error == outdated() => return Ok(false),
            Err(stop) => return Err(stop),
        }
        let said = self.client.said();
        let Some(backend) = &mut self.backend else { return Ok(false) };
        backend.prepare(description.id, &prepared.text, &prepared.types);
        backend.run_prepared(description.id, shape.values());
        match self.drain().await {
            Ok(()) => {}
            // The session was dead already, or died of this: the text is sent on another.
            Err(Stop::Refused(_)) if self.client.said() == said => return Ok(false),
            Err(stop) => return Err(stop),
        }
        let again = self.told && self.client.unsent(said).is_some_and(is_asked_again);
        if again {
            self.client.take_back(said);
            self.told = false;
            if self.backend.as_ref().is_some_and(|backend| backend.stale) {
                prepared.forget();
            }
        }
        self.release().await;
        Ok(!again)
    }
}

/// Whether nothing was said but an error of those classes.
fn is_asked_again(said: &[u8]) -> bool {
    let code = match said {
        [b'E', _, _, _, _, body @ ..] => field(body, b'C'),
        _ => None,
    };
    code.is_some_and(|code| ASKED_AGAIN.iter().any(|class| code.starts_with(class)))
}

//! A row read by its primary key in the simple protocol: asked by a statement that the shard has prepared already.
//!
//! For PostgreSQL, reading and planning such a text is more work than running it. Only outside a transaction, where
//! an error leaves nothing behind: then the text itself is sent, so that the client is told about its own words.

use std::sync::Arc;

use polyshard_router::Access;
use polyshard_sql::{Schema, Shape};

use super::lane::Ran;
use super::place::{Wanted, is_outdated};
use super::short::{Asked, Looked, Taken};
use super::{Session, Stop};
use crate::backend::{Expected, field, put_question};
use crate::cache::{KnownLane, Prepared};
use crate::settings::number_under;

/// Classes of errors that may be about the prepared form rather than about the statement: data that is no such value,
/// a plan that is not as it was, a prepared statement that is gone, a name that is gone.
const ASKED_AGAIN: [&str; 4] = ["22", "0A", "26", "42"];

impl Session {
    /// Reads a row for a text of this shape; not if the text is to be sent as it is, and the client was told nothing.
    pub(super) async fn read_point(
        &mut self,
        known: &KnownLane,
        shape: &Shape<'_>,
        wanted: &Wanted<'_>,
        schema: &Arc<Schema>,
    ) -> Result<Ran, Stop> {
        if matches!(wanted, Wanted::Keys { shard, .. } if self.door.is_file(shard)) {
            return Ok(Ran::Not);
        }
        let Some(prepared) = known.point(shape, &self.door.cache) else { return Ok(Ran::Not) };
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
                    return Ok(Ran::Not);
                }
                // So it does if the shard cannot be asked now.
                Err(Stop::Refused(_)) => return Ok(Ran::Not),
                Err(stop) => return Err(stop),
            },
        };
        let said = self.client.said();
        let taken = match self.ask_point(known, shape, wanted, &prepared) {
            Some(asked) => self.take_turn(asked).await,
            None => Ok(Taken::Not),
        };
        let asked = match taken {
            Ok(Taken::Answered) => return Ok(Ran::Ready),
            Ok(Taken::Begun) => self.drain().await,
            Ok(Taken::Not) => {
                self.routed_by = Some(self.routed_by(schema.clone()));
                match self.acquire(wanted, Access::Read).await {
                    Ok(()) => {}
                    Err(Stop::Refused(error)) if is_outdated(&error) => return Ok(Ran::Not),
                    Err(stop) => return Err(stop),
                }
                let Some(backend) = &mut self.backend else { return Ok(Ran::Not) };
                backend.prepare(description.id, &prepared.text, &prepared.types);
                backend.run_prepared(description.id, shape.values());
                self.drain().await
            }
            Err(stop) => Err(stop),
        };
        match asked {
            Ok(()) => {}
            // The session was dead already, or died of this: the text is sent on another.
            Err(Stop::Refused(_)) if self.client.said() == said => return Ok(Ran::Not),
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
        Ok(if again { Ran::Not } else { Ran::Answered })
    }

    /// Enters the shard for it, if it can be asked the short way.
    fn ask_point(
        &mut self,
        known: &KnownLane,
        shape: &Shape<'_>,
        wanted: &Wanted<'_>,
        prepared: &Arc<Prepared>,
    ) -> Option<Asked> {
        let Wanted::Keys { keys, ranges: [], .. } = wanted else { return None };
        let [(map, keys)] = keys.as_slice() else { return None };
        let [key] = keys.as_slice() else { return None };
        let view = self.door.router.view();
        let way = self.way(prepared, &view, Looked::Elsewhere)?;
        if way.writes || way.basis.position != known.basis.position {
            return None;
        }
        self.question.clear();
        let id = number_under(way.description.id, self.settings.meaning());
        put_question(&mut self.question, id, shape.values());
        let expected = Expected { first: &[], tells_bound: false, describes: true };
        self.enter_short(&view, way, (map.clone(), key.clone()), Access::Read, expected)
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

//! Putting the rows of a table elsewhere, while other processes go on: first everybody is told that a table is
//! changing, and nobody goes by an older schema any more; then the rows are put where they belong. A process that had
//! not heard of it would otherwise read a part of the table for the whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::Decision;
use polyshard_shard::RouterId;
use polyshard_sql::{SqlError, SqlState};

use crate::JournalError;
use crate::entry::EntryKind;
use crate::journal::{Inner, Journal, Known};
use crate::read::Teller;
use crate::run::Told;
use crate::turn::Change;

/// Stands among the declarations while a table is changing; no table is called so, since it has no schema before it.
pub(crate) const CHANGING: &str = "changing";

/// How often, and with which pause, a statement looks whether a table is still changing, before it is refused.
const LOOKS: (u32, Duration) = (600, Duration::from_millis(25));
/// How often, and with which pause, it is looked whether all processes know, before a declaration is given up.
const ANSWERS: (u32, Duration) = (400, Duration::from_millis(25));

/// What is declared of tables and functions.
pub(crate) fn declarations(all: &[(String, String)]) -> impl Iterator<Item = &(String, String)> {
    all.iter().filter(|(name, _)| name != CHANGING)
}

impl Inner {
    /// The schema as somebody tells it, once no table is changing.
    pub(crate) async fn settled(&self, teller: Teller) -> Result<Arc<Known>, JournalError> {
        for _ in 0..LOOKS.0 {
            let known = self.read_schema_as(self.position(), teller).await?;
            if !known.changing {
                return Ok(known);
            }
            tokio::time::sleep(LOOKS.1).await;
        }
        Err(JournalError::Busy)
    }

    /// Says once, before the first schema is used, that this process is one that goes by schemas.
    pub(crate) async fn register(&self) -> Result<(), JournalError> {
        if self.said.lock().expect("no panic while held").is_none() {
            self.catalog.saw(self.me(), 0).await?;
            *self.said.lock().expect("no panic while held") = Some(0);
        }
        Ok(())
    }

    /// Says which schema this process goes by, if it has not yet.
    pub(crate) async fn say_seen(&self) -> Result<(), JournalError> {
        let position = self.position();
        let said = *self.said.lock().expect("no panic while held");
        // A process that has no schema has nothing to say.
        if said.is_none_or(|said| said >= position) {
            return Ok(());
        }
        let position = self.read_schema(position).await?.schema.position;
        self.catalog.saw(self.me(), position).await?;
        *self.said.lock().expect("no panic while held") = Some(position);
        Ok(())
    }

    fn me(&self) -> RouterId {
        self.router.status().router
    }

    /// Tells everybody that a table is changing, and waits until all processes know. Answers what stands for it.
    pub(crate) async fn begin_changing(&self, journal: &Journal) -> Result<String, JournalError> {
        let (position, body, told) = journal.mark_changing(None).await?;
        self.pass("changing.after")?;
        let known = match told {
            Ok(()) => self.everybody_knows(position).await,
            // Nothing of the change itself is made yet.
            Err(error) => Err(not_known(&error)),
        };
        if known.is_err() {
            self.end_changing(journal, &body).await;
        }
        known.map(|()| body)
    }

    /// Takes it back. If that cannot be done now, the background does it.
    pub(crate) async fn end_changing(&self, journal: &Journal, body: &str) {
        match journal.mark_changing(Some(body)).await {
            Ok((.., Ok(()))) => {}
            Ok((.., Err(error))) => {
                tracing::warn!(%error, "tables are open again, which not every process may know yet");
            }
            Err(error) => {
                tracing::warn!(%error, "tables stay closed until the change is taken back in the background");
            }
        }
    }

    async fn everybody_knows(&self, position: u64) -> Result<(), JournalError> {
        self.say_seen().await?;
        let mut missing = BTreeSet::new();
        for _ in 0..ANSWERS.0 {
            missing = self.missing(position).await?;
            if missing.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(ANSWERS.1).await;
        }
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let message = format!("{} did not answer that it knows of the change", names.join(", "));
        let hint = "see that all Polyshard servers run and reach the catalog, and try again";
        Err(SqlError::new(SqlState("55000"), message).hint(hint).into())
    }

    /// The routers with sessions on a shard that go by an older schema.
    async fn missing(&self, position: u64) -> Result<BTreeSet<RouterId>, JournalError> {
        let mut present = BTreeSet::new();
        for id in self.serving() {
            let routers = self.shard(&id).await?.routers().await;
            present.extend(routers.map_err(|error| JournalError::on(&id, error))?);
        }
        let seen: BTreeMap<RouterId, u64> = self.catalog.seen().await?.into_iter().collect();
        // One that never had a schema serves no SQL.
        let behind = |router: &RouterId| seen.get(router).is_some_and(|seen| *seen < position);
        Ok(present.into_iter().filter(behind).collect())
    }
}

impl Journal {
    /// Puts up that a table is changing, or takes down what was put up before. Answers the position, and what stands
    /// for it; and whether all processes know.
    async fn mark_changing(&self, down: Option<&str>) -> Result<(u64, String, Told), JournalError> {
        let turn = self.turn().await?;
        if down.is_none() && turn.known().changing {
            turn.give_up().await;
            return Err(JournalError::Busy);
        }
        let body =
            down.map_or_else(|| format!("{{\"format\":1,\"turn\":\"{}\"}}", turn.name()), str::to_owned);
        let change = Change { kind: EntryKind::Placement, statements: Vec::new(), settings: BTreeMap::new() };
        let open = match self.inner.open_everywhere(&turn, &change).await {
            Ok(open) => open,
            Err(error) => {
                turn.give_up().await;
                return Err(error);
            }
        };
        let decision = match down {
            None => {
                Decision { declare: vec![(CHANGING.to_owned(), Some(body.clone()))], ..Decision::default() }
            }
            Some(_) => taking_down(&body),
        };
        let (decided, told) = self.inner.decide_and_commit(turn, change, decision, open).await?;
        Ok((decided.position, body, told))
    }

    /// Takes back what a process that has died left changing: one that lives would have ended it long ago, since until
    /// its turn it only waits for others; and once it has the turn, it cannot be taken from it.
    pub(crate) async fn free_tables(&self, watched: &mut Option<(String, u32)>) -> Result<(), JournalError> {
        if !self.inner.known.load().as_ref().is_some_and(|known| known.changing) {
            *watched = None;
            return Ok(());
        }
        let state = self.inner.catalog.journal_state().await?;
        let Some((_, body)) = state.declarations.into_iter().find(|(name, _)| name == CHANGING) else {
            *watched = None;
            return Ok(());
        };
        let rounds = match watched {
            Some((seen, rounds)) if *seen == body => *rounds + 1,
            _ => 0,
        };
        *watched = Some((body.clone(), rounds));
        if rounds >= self.inner.options.abandoned_after_rounds {
            let (.., told) = self.mark_changing(Some(&body)).await?;
            *watched = None;
            told?;
        }
        Ok(())
    }
}

/// The refusal of a change of which not everybody could be told beforehand.
fn not_known(error: &JournalError) -> JournalError {
    if let JournalError::Failpoint(_) = error {
        return error.clone();
    }
    let message =
        format!("the table was not changed, since not all processes know that it would be: {error}");
    SqlError::new(SqlState("55000"), message)
        .hint("Try again when all shards and the catalog can be reached.")
        .into()
}

/// A decision by which a table is changing no more; only if it still is.
pub(crate) fn taking_down(body: &str) -> Decision {
    let require = Some((CHANGING.to_owned(), body.to_owned()));
    Decision { declare: vec![(CHANGING.to_owned(), None)], require, ..Decision::default() }
}

//! A turn: the right to change all shards, one in the cluster at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyshard_catalog::{CatalogError, Decision, TURN_LEASE, TurnLease};
use polyshard_engine as engine;
use polyshard_engine::{Dialect, Statement};
use polyshard_map::ShardId;
use polyshard_sql::{Schema, TableName};
use tokio::sync::oneshot;

use crate::JournalError;
use crate::entry::{Entry, EntryKind, Recorded};
use crate::journal::{Inner, Journal, Known};
use crate::review::Review;
use crate::tables;

/// The pause between looks whether the turn is free; a notification would come no sooner than most turns end.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How often a catalog that cannot say whether it has decided is asked, and the pause between.
const SETTLE_TRIES: (u32, Duration) = (20, Duration::from_millis(250));

/// The right to change all shards. Dropping it gives it back with nothing decided.
pub struct Turn {
    inner: Arc<Inner>,
    lease: TurnLease,
    known: Arc<Known>,
    shards: Vec<ShardId>,
    review: Review,
    /// Tables that its own transaction has made, as of the last look at it.
    made: Mutex<Vec<TableName>>,
    /// Dropped, it tells the task that keeps the turn alive to give it back; told true, that it is given back already.
    keeper: Option<oneshot::Sender<Ended>>,
}

/// How a turn has ended.
enum Ended {
    /// The catalog knows.
    Told,
}

/// What was decided: from now on it is only a matter of bringing it to the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// The entry's position.
    pub position: u64,
}

/// What is to be recorded of a change that was run on all shards.
#[derive(Debug, Clone)]
pub struct Change {
    /// What kind of change it is.
    pub kind: EntryKind,
    /// The statements, each of which gives the same result wherever and whenever it is run again.
    pub statements: Vec<Recorded>,
    /// Session settings that their meaning depends on.
    pub settings: BTreeMap<String, String>,
}

impl Journal {
    /// Waits, for a bounded time, for the right to change all shards; then sees that every shard has what was decided
    /// before. Shards that an operator has put offline are left out.
    pub async fn turn(&self) -> Result<Turn, JournalError> {
        let inner = &self.inner;
        let take = async {
            loop {
                if let Some(lease) = inner.catalog.take_turn().await? {
                    return Ok::<TurnLease, CatalogError>(lease);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let lease = match tokio::time::timeout(inner.options.turn_wait, take).await {
            Err(_) => return Err(JournalError::Busy),
            Ok(lease) => lease?,
        };
        // From here on it is given back whatever happens.
        let keeper = keep(inner, &lease);
        inner.learn_position(lease.position - 1);
        // A shard that has come since must not be left out.
        inner.router.refresh().await?;
        let shards = inner.serving();
        for shard in &shards {
            inner.catch_up(shard).await?;
        }
        // A write that a shard missed must not meet what is changed now.
        inner.complete_all().await?;
        let known = inner.read_schema(lease.position - 1).await?;
        Ok(Turn {
            inner: inner.clone(),
            lease,
            known,
            shards,
            review: Review::default(),
            made: Mutex::default(),
            keeper: Some(keeper),
        })
    }
}

/// Keeps a turn alive until it has ended.
fn keep(inner: &Arc<Inner>, lease: &TurnLease) -> oneshot::Sender<Ended> {
    let (sender, mut ended) = oneshot::channel();
    let (catalog, lease) = (inner.catalog.clone(), lease.clone());
    let task = async move {
        loop {
            match tokio::time::timeout(TURN_LEASE / 3, &mut ended).await {
                Ok(Ok(Ended::Told)) => return,
                Ok(Err(_)) => {
                    // If it cannot be told, it hears of the end when the lease is over.
                    if let Err(error) = catalog.give_turn_back(&lease).await {
                        tracing::debug!(%error, "a turn could not be given back; it ends by itself");
                    }
                    return;
                }
                Err(_) => match catalog.renew_turn(&lease).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => tracing::debug!(%error, "a turn could not be renewed"),
                },
            }
        }
    };
    let mut turns = inner.turns.lock().expect("no panic while held");
    while turns.try_join_next().is_some() {}
    turns.spawn(task);
    sender
}

impl Turn {
    pub(crate) fn name(&self) -> uuid::Uuid {
        self.lease.turn
    }

    /// The position that this turn decides.
    pub fn position(&self) -> u64 {
        self.lease.position
    }

    /// The schema that every shard has at this moment. What was looked at before may be out of date: look again.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.known.schema
    }

    pub(crate) fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// The tables that this turn's transaction has made, as of the last [`Turn::schema_within`]: not those that it gave
    /// another name.
    pub fn made(&self) -> Vec<TableName> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_made(&self, made: Vec<TableName>) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// What follows from the change, to be recorded with it.
    pub(crate) fn take_review(&mut self) -> (Vec<Recorded>, Decision) {
        let Review { statements, decision } = std::mem::take(&mut self.review);
        (statements, decision)
    }

    pub(crate) fn reviewed(&mut self, review: Review) {
        self.review = review;
    }

    /// The shards to run the change on, the first of which is the one whose answers are shown.
    pub fn shards(&self) -> &[ShardId] {
        &self.shards
    }

    /// The last statement in each shard's transaction: it changes exactly one row, or the transaction must be rolled
    /// back.
    pub fn mark(&self, dialect: Dialect) -> Statement {
        tables::mark(dialect, self.lease.position)
    }

    /// Makes it so. Every shard's transaction has run the change and the mark, and is still open: after this they are
    /// committed, and those that cannot be are brought there from the journal. On an error they are rolled back;
    /// [`JournalError::Unknown`] says that it may have been decided all the same.
    pub async fn decide(mut self, mut change: Change) -> Result<Decided, JournalError> {
        let (statements, decision) = self.take_review();
        change.statements.extend(statements);
        self.decide_with(change, decision).await
    }

    /// Likewise, with what becomes true in the catalog.
    pub(crate) async fn decide_with(
        mut self,
        change: Change,
        mut decision: Decision,
    ) -> Result<Decided, JournalError> {
        self.inner.pass("decide.before")?;
        decision.rows_only = change.kind == EntryKind::Rows;
        decision.body = Entry::new(change.kind, change.statements, change.settings).to_text();
        let decided = match self.inner.catalog.decide(&self.lease, &decision).await {
            Ok(decided) => decided,
            Err(CatalogError::Engine(engine::Error::OutcomeUnknown { message })) => {
                self.settle(&message).await?
            }
            Err(error) => return Err(error.into()),
        };
        if !decided {
            return Err(JournalError::TurnLost);
        }
        if let Some(keeper) = self.keeper.take() {
            // The task may have seen that the turn is over.
            let _ = keeper.send(Ended::Told);
        }
        self.inner.learn_position(self.lease.position);
        self.inner.pass("decide.after")?;
        Ok(Decided { position: self.lease.position })
    }

    /// Finds out whether it was decided.
    async fn settle(&self, message: &str) -> Result<bool, JournalError> {
        for _ in 0..SETTLE_TRIES.0 {
            match self.inner.catalog.settle_turn(&self.lease).await {
                Ok(decided) => return Ok(decided),
                Err(error) => tracing::debug!(%error, "the catalog cannot say yet whether it has decided"),
            }
            tokio::time::sleep(SETTLE_TRIES.1).await;
        }
        Err(JournalError::Unknown(message.to_owned()))
    }

    /// Gives it back with nothing decided.
    pub async fn give_up(mut self) {
        match self.inner.catalog.give_turn_back(&self.lease).await {
            Ok(()) => {
                if let Some(keeper) = self.keeper.take() {
                    // The task may have seen that the turn is over.
                    let _ = keeper.send(Ended::Told);
                }
            }
            Err(error) => tracing::debug!(%error, "a turn could not be given back; it ends by itself"),
        }
    }
}

impl Journal {
    /// To be called when a decision was committed, before its author is answered: waits until every process goes by it,
    /// or is cut off. What concerns rows alone is the same to all.
    pub async fn told(&self, kind: EntryKind) -> Result<(), JournalError> {
        match kind {
            EntryKind::Rows => Ok(()),
            EntryKind::Schema | EntryKind::Placement => self.inner.tell_everybody().await,
        }
    }

    /// Says that a shard has committed a decision, which saves asking it.
    pub fn committed(&self, shard: &ShardId, decided: Decided) {
        self.inner.learn_applied(shard, decided.position);
    }
}

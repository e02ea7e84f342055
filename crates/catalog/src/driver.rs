//! Drives operations: does what the saga says on the real catalog and shards, and reports back to it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_map::{Entry, MapDefinition, MapName, ShardId};
use polyshard_shard::{Edit, OpId, Shard, ShardError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::CatalogError;
use crate::carrier::{Carrier, CarryTask, Progress, Wish};
use crate::catalog::Catalog;
use crate::fence::{self, FenceLimits, Verdict};
use crate::protocol;
use crate::saga::{Action, Ending, Outcome, Saga};
use crate::tx::Reply;
use crate::types::{ChangeRequest, OpRecord, Operation, Step};

/// Where the driver finds shards.
pub trait ShardSource: Send + Sync {
    /// An open shard.
    fn shard<'a>(
        &'a self,
        id: &'a ShardId,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Shard>, ShardError>> + Send + 'a>>;
}

/// Called between every two steps with the name of the place; answering true stops the driver there, as a
/// kill would. For tests.
pub type Failpoint = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Entries written in one transaction while a map is created.
const STAGE_ENTRIES: usize = 5_000;
/// How often acknowledgements are looked for.
const ACK_POLL: Duration = Duration::from_millis(3);
/// The first and the longest pause before an action is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Old records are dropped from shards once in so many operations.
const PRUNE_EVERY: u64 = 256;
/// How long a caller waits for an operation before he is told that it goes on by itself.
const CALLER_WAIT: Duration = Duration::from_secs(30);

/// Carries operations out. Operations go on when the caller has left.
pub struct Driver {
    inner: Arc<Inner>,
    tasks: Mutex<JoinSet<()>>,
}

struct Inner {
    catalog: Arc<Catalog>,
    shards: Arc<dyn ShardSource>,
    limits: FenceLimits,
    failpoint: Option<Failpoint>,
    carrier: std::sync::OnceLock<Arc<dyn Carrier>>,
    /// What operations that are driven here wait for.
    waits: Mutex<BTreeMap<OpId, String>>,
}

impl Driver {
    /// A driver on a catalog and its shards.
    pub fn new(
        catalog: Arc<Catalog>,
        shards: Arc<dyn ShardSource>,
        limits: FenceLimits,
        failpoint: Option<Failpoint>,
    ) -> Driver {
        let carrier = std::sync::OnceLock::new();
        let inner = Inner { catalog, shards, limits, failpoint, carrier, waits: Mutex::default() };
        Driver { inner: Arc::new(inner), tasks: Mutex::default() }
    }

    /// Gives the driver a mover, without which it cannot move rows. The first one stays.
    pub fn set_carrier(&self, carrier: Arc<dyn Carrier>) {
        // A second one would be told of tasks that the first has begun.
        let _ = self.inner.carrier.set(carrier);
    }

    pub(crate) fn pass(&self, place: &str) -> Reply<()> {
        self.inner.pass(place)
    }

    /// The catalog.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.inner.catalog
    }

    pub(crate) async fn shard(&self, id: &ShardId) -> Reply<Arc<Shard>> {
        self.inner.shard(id).await
    }

    /// Makes a change of a map.
    #[boxed]
    pub async fn change(&self, request: &ChangeRequest) -> Reply<OpRecord> {
        let record = {
            let mut tx = self.inner.catalog.begin().await?;
            let record = protocol::intend(&mut tx, request, &self.name()).await?;
            tx.commit().await?;
            record
        };
        self.inner.pass("intent.after")?;
        self.finish(record).await
    }

    /// Creates a map with its entries, which carry no epoch yet.
    #[boxed]
    pub async fn create_map(&self, definition: &MapDefinition, entries: Vec<Entry>) -> Reply<OpRecord> {
        let mut shards: Vec<ShardId> = entries.iter().map(|entry| entry.shard.clone()).collect();
        shards.sort();
        shards.dedup();
        let record = {
            let mut tx = self.inner.catalog.begin().await?;
            let record = protocol::intend_create(&mut tx, definition, &shards, &self.name()).await?;
            tx.commit().await?;
            record
        };
        self.inner.pass("intent.after")?;
        let epoch = record.op.epoch;
        for chunk in entries.chunks(STAGE_ENTRIES) {
            let stamped = chunk.iter().map(|entry| Entry { epoch, lock: None, ..entry.clone() }).collect();
            let mut tx = self.inner.catalog.begin().await?;
            protocol::stage(&mut tx, &record, stamped).await?;
            tx.commit().await?;
            self.inner.pass("stage.after")?;
        }
        let mut record = record;
        let mut tx = self.inner.catalog.begin().await?;
        protocol::record(&mut tx, &record, crate::Step::Preparing, None).await?;
        tx.commit().await?;
        record.step = crate::Step::Preparing;
        self.finish(record).await
    }

    /// Drops a map; with `destroy` also one whose ranges hold data.
    #[boxed]
    pub async fn drop_map(&self, name: &MapName, if_version: Option<u64>, destroy: bool) -> Reply<OpRecord> {
        let record = {
            let mut tx = self.inner.catalog.begin().await?;
            let record = protocol::intend_drop(&mut tx, name, if_version, destroy, &self.name()).await?;
            tx.commit().await?;
            record
        };
        self.inner.pass("intent.after")?;
        self.finish(record).await
    }

    pub(crate) async fn edits(
        &self,
        name: &MapName,
        kind: &str,
        edits: Vec<(ShardId, Edit)>,
        delta: polyshard_map::Delta,
        if_version: Option<u64>,
    ) -> Reply<OpRecord> {
        let record = {
            let mut tx = self.inner.catalog.begin().await?;
            let record =
                protocol::intend_edits(&mut tx, name, kind, edits, delta, if_version, &self.name()).await?;
            tx.commit().await?;
            record
        };
        self.inner.pass("intent.after")?;
        self.finish(record).await
    }

    /// Takes over an operation whose driver is gone, and goes on with it. False if its driver still lives.
    pub async fn take_over(&self, id: OpId) -> Reply<bool> {
        let mut tx = self.inner.catalog.begin().await?;
        let taken = protocol::take_over(&mut tx, id, self.inner.catalog.owner()).await?;
        tx.commit().await?;
        match taken {
            None => Ok(false),
            Some(record) => {
                tracing::info!(op = %id, kind = record.op.kind, step = record.step.as_str(), "operation taken over");
                drop(self.spawn(record));
                Ok(true)
            }
        }
    }

    /// Ends the driver's work; operations under way are left to whoever takes them over.
    pub async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic while held"));
        tasks.shutdown().await;
    }

    pub(crate) fn name(&self) -> protocol::Driver {
        let catalog = &self.inner.catalog;
        protocol::Driver { owner: catalog.owner().to_owned(), id: OpId::new(catalog.fresh_id()) }
    }

    /// Drives an operation to its end in a task of its own.
    pub(crate) fn spawn(&self, record: OpRecord) -> tokio::sync::oneshot::Receiver<Reply<Ending>> {
        let inner = self.inner.clone();
        let (done, ended) = tokio::sync::oneshot::channel();
        let mut tasks = self.tasks.lock().expect("no panic while held");
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let ending = inner.drive(record).await;
            // The caller may have left; the operation is done all the same.
            let _ = done.send(ending);
        });
        ended
    }

    /// Drives an operation to its end, and waits for it a while.
    async fn finish(&self, record: OpRecord) -> Reply<OpRecord> {
        let id = record.op.id;
        let ended = self.spawn(record.clone());
        match tokio::time::timeout(CALLER_WAIT, ended).await {
            Ok(Ok(Ok(Ending::Done))) => Ok(record),
            Ok(Ok(Ok(Ending::RolledBack))) => {
                let why = self.inner.catalog.operation(id).await?.message;
                Err(CatalogError::RolledBack(why.unwrap_or_else(|| "no reason was recorded".into())))
            }
            Ok(Ok(Ok(Ending::Superseded))) => Err(CatalogError::Superseded(id)),
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(CatalogError::Unfinished { op: id, why: "the server is stopping".into() }),
            Err(_) => {
                let said = self.inner.catalog.operation(id).await.ok().and_then(|record| record.message);
                let why =
                    said.or_else(|| self.inner.waits.lock().expect("no panic while held").get(&id).cloned());
                Err(CatalogError::Unfinished { op: id, why: why.unwrap_or_else(|| "it takes long".into()) })
            }
        }
    }
}

impl Inner {
    pub(crate) async fn shard(&self, id: &ShardId) -> Reply<Arc<Shard>> {
        self.shards.shard(id).await.map_err(|error| CatalogError::Shard { shard: id.clone(), error })
    }

    fn pass(&self, place: &str) -> Reply<()> {
        match &self.failpoint {
            Some(failpoint) if failpoint(place) => {
                Err(CatalogError::Invalid(format!("stopped at failpoint {place}")))
            }
            _ => Ok(()),
        }
    }

    async fn drive(&self, record: OpRecord) -> Reply<Ending> {
        let ending = self.drive_on(&record).await;
        self.waits.lock().expect("no panic while held").remove(&record.op.id);
        if let Some(carrier) = self.carrier.get() {
            carrier.forget(record.op.id);
        }
        ending
    }

    async fn drive_on(&self, record: &OpRecord) -> Reply<Ending> {
        let mut saga = Saga::new(record);
        let mut renewed = Instant::now();
        let mut warned = String::new();
        let mut look = Look::default();
        loop {
            let action = saga.next();
            if let Action::Finished(ending) = action {
                tracing::debug!(op = %record.op.id, kind = record.op.kind, ?ending, "operation ended");
                self.prune(record).await;
                return Ok(ending);
            }
            let place = place(action, saga.operation());
            self.pass(&format!("{place}.before"))?;
            if renewed.elapsed() > self.catalog.lease() / 3 && !is_held(action) {
                if self.renew(record).await == Renewed::Superseded {
                    return Ok(Ending::Superseded);
                }
                renewed = Instant::now();
            }
            let outcome = {
                let doing = async {
                    match action {
                        Action::Carry(task) => self.carry(task, record, &mut look).await,
                        _ => self.execute(action, record, &saga).await,
                    }
                };
                tokio::pin!(doing);
                loop {
                    // One action may take longer than the lease, such as counting many rows. It goes on meanwhile:
                    // it may have the very transaction open that renewing waits for.
                    let again = (self.catalog.lease() / 3).max(RENEW_EVERY_MIN);
                    let renewing = async {
                        tokio::time::sleep(again).await;
                        self.renew(record).await
                    };
                    tokio::select! {
                        outcome = doing.as_mut() => break outcome,
                        lease = renewing => match lease {
                            Renewed::Superseded => return Ok(Ending::Superseded),
                            Renewed::Yes | Renewed::NotNow => renewed = Instant::now(),
                        }
                    }
                }
            };
            look.note(action, &outcome);
            if let Outcome::Retry(why) | Outcome::Refused(why) | Outcome::CannotDrain(why) = &outcome
                && *why != warned
            {
                tracing::info!(op = %record.op.id, kind = record.op.kind, place, why, "operation has to wait");
                warned = why.clone();
                self.waits.lock().expect("no panic while held").insert(record.op.id, why.clone());
            }
            self.pass(&format!("{place}.after"))?;
            saga.report(outcome);
        }
    }

    /// Says that this driver lives. If it cannot, the lease may lapse; then another one takes over and this one is
    /// told.
    async fn renew(&self, record: &OpRecord) -> Renewed {
        match self.catalog_call(async |tx| protocol::renew(tx, record).await).await {
            Ok(()) => Renewed::Yes,
            Err(CatalogError::Superseded(_)) => Renewed::Superseded,
            Err(error) => {
                tracing::debug!(op = %record.op.id, %error, "the lease could not be renewed");
                Renewed::NotNow
            }
        }
    }

    /// Now and then drops the oldest records from the shards that an operation has touched.
    async fn prune(&self, record: &OpRecord) {
        if !record.op.epoch.get().is_multiple_of(PRUNE_EVERY) {
            return;
        }
        for (id, _) in &record.op.edits {
            let pruned = match self.shard(id).await {
                Ok(shard) => shard.prune().await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = pruned {
                tracing::debug!(shard = %id, error, "old records could not be pruned; a later operation will");
            }
        }
    }

    async fn catalog_call<T>(
        &self,
        call: impl AsyncFnOnce(&mut crate::sql_catalog::SqlCatalog) -> Reply<T>,
    ) -> Reply<T> {
        let mut tx = self.catalog.begin().await?;
        let reply = call(&mut tx).await?;
        tx.commit().await?;
        Ok(reply)
    }

    async fn execute(&self, action: Action, record: &OpRecord, saga: &Saga) -> Outcome {
        let op = saga.operation();
        match action {
            Action::Record(step) => {
                let message = saga.message();
                let call = async |tx: &mut crate::sql_catalog::SqlCatalog| {
                    if step == Step::Departing {
                        crate::moving::refuse_cancelled(tx, record.op.id).await?;
                        if let Some(write) = tx.write_in_the_way(record).await? {
                            return Ok(Some(write));
                        }
                    }
                    protocol::record(tx, record, step, message).await.map(|()| None)
                };
                match self.catalog_call(call).await {
                    Ok(Some(write)) if write.lasting => Outcome::Refused(write.why),
                    // Requests go on meanwhile, and with them whoever completes the write.
                    Ok(Some(write)) => Outcome::CannotDrain(write.why),
                    reply => catalog_outcome(reply.map(drop)),
                }
            }
            Action::End => {
                catalog_outcome(self.catalog_call(async |tx| protocol::end(tx, record).await).await)
            }
            Action::Publish => {
                catalog_outcome(self.catalog_call(async |tx| protocol::publish(tx, record).await).await)
            }
            Action::Discard => {
                catalog_outcome(self.catalog_call(async |tx| protocol::discard(tx, record).await).await)
            }
            Action::Wait(tries) => {
                let factor = 1u32 << tries.min(10);
                tokio::time::sleep((BACKOFF.0 * factor).min(BACKOFF.1)).await;
                Outcome::Done
            }
            Action::Load(index) => catalog_outcome(self.load(index, record).await),
            Action::Finished(_) | Action::Carry(_) => Outcome::Done,
            Action::AwaitAcks(index, attempt) => {
                match self.await_acks(&op.edits[index].0, op.id, attempt).await {
                    Ok(outcome) => outcome,
                    Err(error) => failure(&error),
                }
            }
            _ => self.on_shard(action, record, saga.step()).await,
        }
    }

    /// Has the mover do a part of a task, unless an operator wants it to wait or to end.
    async fn carry(&self, task: CarryTask, record: &OpRecord, look: &mut Look) -> Outcome {
        let Some(carrier) = self.carrier.get() else {
            return Outcome::Retry("this process has no mover; another one will go on".into());
        };
        // Requests are held while it settles: nothing is asked then that can wait.
        if task != CarryTask::Settle && look.is_due() {
            self.tell(carrier.as_ref(), record, look).await;
        }
        match (look.wish, task) {
            (Wish::Cancel, _) if !task.ends() => return Outcome::Refused("cancelled by an operator".into()),
            (Wish::Pause, task) if task.can_pause() => {
                tokio::time::sleep(LOOK_EVERY).await;
                return Outcome::Waiting;
            }
            (Wish::Clean, CarryTask::Keep) => return Outcome::Done,
            _ => {}
        }
        match carrier.carry(record, task).await {
            // Requests are held: they go on before it is tried again.
            Outcome::Retry(why) if task == CarryTask::Settle => Outcome::CannotDrain(why),
            outcome @ (Outcome::Retry(_) | Outcome::Refused(_)) if task.ends() => {
                match self.lost(record).await {
                    lost if lost.is_empty() => outcome,
                    lost => carrier.carry_without(record, task, &lost).await,
                }
            }
            outcome => {
                // The last of it: a short move has told nothing of how far it was before.
                if outcome == Outcome::Done && matches!(task, CarryTask::Clean | CarryTask::Clear) {
                    self.tell(carrier.as_ref(), record, look).await;
                }
                outcome
            }
        }
    }

    /// Stores how far a move is, if that is news, and hears what is wanted of it.
    async fn tell(&self, carrier: &dyn Carrier, record: &OpRecord, look: &mut Look) {
        let mut progress = carrier.progress(record.op.id);
        progress.pause_ms = look.pause_ms;
        let news = (look.told != progress).then_some(&progress);
        match self.catalog.wish(record.op.id, news).await {
            Ok(wish) => {
                (look.wish, look.told) = (wish, progress);
                let share = if let Wish::Pace(share) = wish { Some(share) } else { None };
                carrier.set_pace(record, share);
            }
            Err(error) => tracing::debug!(op = %record.op.id, %error, "what is wanted cannot be asked"),
        }
    }

    /// The shards of an operation that have left the cluster.
    async fn lost(&self, record: &OpRecord) -> Vec<ShardId> {
        let mut lost = Vec::new();
        for (id, _) in &record.op.edits {
            if matches!(self.catalog.shard(id).await, Err(CatalogError::NoSuchShard(_))) {
                lost.push(id.clone());
            }
        }
        lost
    }

    async fn on_shard(&self, action: Action, record: &OpRecord, step: Step) -> Outcome {
        let (op, op_ref) = (&record.op, record.op_ref());
        let index = match action {
            Action::Prepare(index)
            | Action::Raise(index)
            | Action::CheckEmpty(index)
            | Action::Depart(index, _) => index,
            Action::Activate(index) | Action::Release(index) | Action::Undo(index) => index,
            Action::ActivateFrom { gainer, .. } => gainer,
            _ => unreachable!("only actions on shards come here"),
        };
        let (id, edit) = &op.edits[index];
        let shard = match self.shard(id).await {
            Ok(shard) => shard,
            Err(error) => {
                // A shard that was detached meanwhile has nothing left to undo; attaching it clears the remains.
                let undoing =
                    matches!(action, Action::Undo(_) | Action::Release(_)) && step == Step::RollingBack;
                let left = self.lost(record).await.contains(id);
                return if undoing && left { Outcome::Done } else { failure(&error) };
            }
        };
        let done = match action {
            Action::Prepare(_) => shard.prepare(op_ref, edit).await,
            Action::CheckEmpty(_) => shard.check_empty(op_ref).await,
            Action::Depart(_, attempt) => shard.depart(op_ref, attempt).await,
            Action::Activate(_) => shard.activate(op_ref, None).await,
            Action::ActivateFrom { loser, .. } => {
                let left: Vec<_> = op.edits[loser].1.lost.iter().map(|(range, _, _)| range.clone()).collect();
                shard.activate(op_ref, Some(&left)).await
            }
            Action::Release(_) => shard.release(op_ref).await,
            Action::Undo(_) => shard.undo(op_ref).await,
            _ => match shard.raise_fence(op_ref).await {
                Ok(Some(fence)) => return Outcome::Raised(fence.attempt),
                Ok(None) => return Outcome::AlreadyDeparted,
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(error) => failure(&CatalogError::Shard { shard: id.clone(), error }),
        }
    }

    /// Copies a new map's staged entries to one shard.
    async fn load(&self, index: usize, record: &OpRecord) -> Reply<()> {
        let (id, edit) = &record.op.edits[index];
        let shard = self.shard(id).await?;
        let entries = self.catalog.entries_of(&record.op.map, id).await?;
        for chunk in entries.chunks(STAGE_ENTRIES) {
            let loaded = shard.load(record.op_ref(), edit, chunk).await;
            loaded.map_err(|error| CatalogError::Shard { shard: id.clone(), error })?;
            self.catalog_call(async |tx| protocol::renew(tx, record).await).await?;
        }
        Ok(())
    }

    /// Waits until no router is in the fenced ranges. Routers that are silent are cut off; that they are
    /// gone is seen before the fence counts as clear.
    async fn await_acks(&self, id: &ShardId, op: OpId, attempt: u64) -> Reply<Outcome> {
        let shard = self.shard(id).await?;
        let wrap = |error| CatalogError::Shard { shard: id.clone(), error };
        let began = Instant::now();
        loop {
            // Both at once: a session that is not in the list was opened after the fence was raised, and has heard of
            // it.
            let (acks, routers) = tokio::join!(shard.acks(op), shard.routers());
            let (acks, routers) = (acks.map_err(wrap)?, routers.map_err(wrap)?);
            match fence::verdict(&routers, &acks, began.elapsed(), self.limits) {
                Verdict::Clear => return Ok(Outcome::Done),
                Verdict::Wait => tokio::time::sleep(ACK_POLL).await,
                Verdict::GiveUp(slow) => {
                    let why = format!("{} cannot finish what it is doing in the range in time", list(&slow));
                    return Ok(Outcome::CannotDrain(why));
                }
                Verdict::CutOff(silent) => {
                    // Nobody answers a fence that was withdrawn: that is no reason to cut anybody off.
                    let fence = shard.fence(op).await.map_err(wrap)?;
                    if !fence.is_some_and(|fence| fence.stands(attempt)) {
                        return Ok(Outcome::FenceBroken);
                    }
                    for router in silent {
                        tracing::warn!(
                            shard = %id, %router,
                            "router does not answer the fence: its sessions are cut off"
                        );
                        if !shard.cut_off(router).await.map_err(wrap)? {
                            return Ok(Outcome::CannotDrain(format!("sessions of {router} are still there")));
                        }
                    }
                }
            }
        }
    }
}

/// Whether requests are held, so that nothing is done that can wait. The lease is longer than they ever are.
fn is_held(action: Action) -> bool {
    matches!(
        action,
        Action::AwaitAcks(..)
            | Action::CheckEmpty(_)
            | Action::Carry(CarryTask::Settle)
            | Action::Record(Step::Departing)
            | Action::Depart(..)
            | Action::ActivateFrom { .. }
            | Action::Release(_)
    )
}

/// How often a lease is renewed at most.
const RENEW_EVERY_MIN: Duration = Duration::from_millis(50);

/// What became of a lease.
#[derive(PartialEq, Eq)]
enum Renewed {
    Yes,
    NotNow,
    /// Somebody else has the operation.
    Superseded,
}

/// How often an operator's wishes are looked for, and progress is stored.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What the driver of a move has heard last, and how long requests were held.
struct Look {
    at: Option<Instant>,
    wish: Wish,
    /// The progress as it was last stored.
    told: Progress,
    raised: Option<Instant>,
    pause_ms: Option<u64>,
}

impl Default for Look {
    fn default() -> Look {
        Look { at: None, wish: Wish::Run, told: Progress::default(), raised: None, pause_ms: None }
    }
}

impl Look {
    fn is_due(&mut self) -> bool {
        let due = self.at.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if due {
            self.at = Some(Instant::now());
        }
        due
    }

    fn note(&mut self, action: Action, outcome: &Outcome) {
        match (action, outcome) {
            (Action::Raise(_), Outcome::Raised(_)) => self.raised = Some(Instant::now()),
            (Action::Release(_), Outcome::Done) => {
                if let Some(raised) = self.raised.take() {
                    self.pause_ms = Some(raised.elapsed().as_millis() as u64);
                }
            }
            _ => {}
        }
    }
}

fn list(routers: &[polyshard_shard::RouterId]) -> String {
    routers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn catalog_outcome(reply: Reply<()>) -> Outcome {
    match reply {
        Ok(()) => Outcome::Done,
        Err(error) => failure(&error),
    }
}

fn failure(error: &CatalogError) -> Outcome {
    match error {
        CatalogError::Superseded(_) | CatalogError::Shard { error: ShardError::Superseded(_), .. } => {
            Outcome::Superseded
        }
        CatalogError::Shard { error: ShardError::FenceBroken(_), .. } => Outcome::FenceBroken,
        CatalogError::Shard { error: ShardError::TailLeft(_), .. } => Outcome::CannotDrain(error.to_string()),
        error if error.is_retryable() => Outcome::Retry(error.to_string()),
        error => Outcome::Refused(error.to_string()),
    }
}

/// The name of an action's place, for failpoints and logs.
fn place(action: Action, op: &Operation) -> String {
    let on = |index: usize| &op.edits[index].0;
    match action {
        Action::Record(step) => format!("record_{}", step.as_str()),
        Action::Prepare(index) => format!("prepare:{}", on(index)),
        Action::Load(index) => format!("load:{}", on(index)),
        Action::Raise(index) => format!("raise:{}", on(index)),
        Action::AwaitAcks(index, _) => format!("await_acks:{}", on(index)),
        Action::CheckEmpty(index) => format!("check_empty:{}", on(index)),
        Action::Depart(index, _) => format!("depart:{}", on(index)),
        Action::ActivateFrom { gainer, .. } => format!("activate_from:{}", on(gainer)),
        Action::Activate(index) => format!("activate:{}", on(index)),
        Action::Release(index) => format!("release:{}", on(index)),
        Action::Undo(index) => format!("undo:{}", on(index)),
        Action::Carry(task) => task.as_str().into(),
        Action::Publish => "publish".into(),
        Action::End => "end".into(),
        Action::Discard => "discard".into(),
        Action::Wait(_) => "wait".into(),
        Action::Finished(_) => "finished".into(),
    }
}

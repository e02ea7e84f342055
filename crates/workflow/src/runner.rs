//! Carries procedures out: one task after the other, recorded before and after each, and taken over from processes
//! that are gone.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use polyshard_catalog::{
    CatalogError, ChangeRequest, Driver, Failpoint, NewShard, OpRecord, OpState, PasswordSource,
    ProcedureRecord, ShardLimits, Wish,
};
use polyshard_map::{Change, Entry, KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_mover::Repair;
use polyshard_router::Router;
use polyshard_schema::Journal;
use polyshard_shard::OpId;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

mod adopt;
mod archive;
mod moves;
mod repair;

use crate::archiving::Archiver;
use crate::procedure::{Made, Procedure, Task};
use moves::PlannedMove;
use polyshard_planner::rule::Rule;

/// How often procedures without a driver are looked for. Shorter than the lease, so that the lease decides.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a move under way is looked at; the lease is renewed with it.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
/// The pause before a task that cannot be done just now is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Tries of one task before the procedure is given up: a shard may be away for two minutes.
const TRIES_MAX: u32 = 120;

/// What a runner needs.
pub struct RunnerOptions {
    /// Makes changes and moves.
    pub driver: Arc<Driver>,
    /// Opens shards.
    pub router: Arc<Router>,
    /// Brings new shards up.
    pub journal: Arc<Journal>,
    /// Stops it at named places, for tests.
    pub failpoint: Option<Failpoint>,
}

/// Carries procedures out, in tasks of its own.
pub struct Procedures {
    inner: Arc<Inner>,
    stop: watch::Sender<bool>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    options: RunnerOptions,
    archiver: OnceLock<Box<dyn Archiver>>,
    running: Mutex<JoinSet<()>>,
    stopped: watch::Receiver<bool>,
}

/// What a try of a task gave.
enum Outcome {
    Done,
    /// It is under way.
    Waiting,
    /// Something is to be on record before it goes on.
    Noted,
    /// A part of it is done, for people; the rest comes next.
    Part(String),
    /// Not possible just now.
    Retry(String),
    /// Not possible.
    Refused(String),
    /// Not possible any more, also where there is no way back.
    Broken(String),
}

impl Procedures {
    /// Starts to look for procedures that nobody drives.
    pub fn start(options: RunnerOptions) -> Arc<Procedures> {
        let (stop, stopped) = watch::channel(false);
        let inner =
            Arc::new(Inner { options, archiver: OnceLock::new(), running: Mutex::default(), stopped });
        let looking = tokio::spawn(look(inner.clone()));
        Arc::new(Procedures { inner, stop, looking: Mutex::new(Some(looking)) })
    }

    /// Says who does what needs a depot. The first one stays.
    pub fn set_archiver(&self, archiver: Box<dyn Archiver>) {
        // A second one would do the same.
        let _ = self.inner.archiver.set(archiver);
    }

    /// Records a procedure and begins it.
    pub async fn begin(
        &self,
        kind: &str,
        map: Option<&MapName>,
        procedure: Procedure,
    ) -> Result<ProcedureRecord, CatalogError> {
        let catalog = self.inner.options.driver.catalog();
        let step = procedure.count();
        let record = catalog.begin_procedure(kind, map, procedure.write(), &step).await?;
        self.inner.clone().spawn(record.clone());
        Ok(record)
    }

    /// Stops; what is under way is left to whoever takes it over.
    pub async fn stop(&self) {
        // Nobody listening means that the task has ended.
        let _ = self.stop.send(true);
        let looking = self.looking.lock().expect("no panic while held").take();
        if let Some(looking) = looking
            && let Err(error) = looking.await
        {
            tracing::error!(%error, "the task that looks for procedures failed");
        }
        let mut running = std::mem::take(&mut *self.inner.running.lock().expect("no panic while held"));
        running.shutdown().await;
    }
}

async fn look(inner: Arc<Inner>) {
    let mut stopped = inner.stopped.clone();
    loop {
        match inner.options.driver.catalog().take_procedures().await {
            Ok(taken) => {
                for record in taken {
                    tracing::info!(procedure = %record.id, kind = record.kind, "procedure taken over");
                    inner.clone().spawn(record);
                }
            }
            Err(error) => tracing::debug!(%error, "procedures cannot be looked for just now"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stopped.changed() => return,
        }
    }
}

impl Inner {
    fn spawn(self: Arc<Self>, record: ProcedureRecord) {
        let inner = self.clone();
        let mut running = self.running.lock().expect("no panic while held");
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let (id, kind) = (record.id, record.kind.clone());
            match inner.drive(record).await {
                Ok(()) => {}
                Err(CatalogError::Superseded(_)) => {
                    tracing::info!(procedure = %id, kind, "another process drives it now");
                }
                Err(error) => tracing::warn!(procedure = %id, kind, %error, "left to whoever takes it over"),
            }
        });
    }

    fn pass(&self, place: &str) -> Result<(), CatalogError> {
        match &self.options.failpoint {
            Some(failpoint) if failpoint(place) => {
                Err(CatalogError::Invalid(format!("stopped at failpoint {place}")))
            }
            _ => Ok(()),
        }
    }

    /// Does a procedure to its end. An error leaves it to whoever takes it over when the lease has lapsed.
    async fn drive(&self, mut record: ProcedureRecord) -> Result<(), CatalogError> {
        let mut procedure = match Procedure::read(&record.body) {
            Ok(procedure) => procedure,
            Err(why) => return Err(CatalogError::Damaged { what: "procedure", detail: why }),
        };
        let mut tries = 0;
        while let Some(task) = procedure.next().cloned() {
            let definition = self.definition(&task);
            record.step = format!("{}: {}", procedure.count(), task.describe(definition.as_ref()));
            record.body = procedure.write();
            let wish = self.save(&record).await?;
            if wish == Wish::Cancel && procedure.given_up().is_none() && !task.is_final() {
                let running = self.cancel(procedure.operation()).await?;
                if running {
                    tokio::time::sleep(FOLLOW_EVERY).await;
                    continue;
                }
                procedure.give_up("cancelled by an operator".to_owned());
                continue;
            }
            self.steer(&mut procedure, wish).await;
            if wish == Wish::Pause && procedure.operation().is_none() && procedure.given_up().is_none() {
                tokio::time::sleep(FOLLOW_EVERY).await;
                continue;
            }
            let place = format!("task_{}", task.as_str());
            self.pass(&format!("{place}.before"))?;
            match self.attempt_alive(&mut procedure, &task, &record).await? {
                Outcome::Done => {
                    self.pass(&format!("{place}.after"))?;
                    procedure.advance();
                    record.message = procedure.given_up().map(str::to_owned);
                    tries = 0;
                }
                Outcome::Noted => tries = 0,
                Outcome::Part(says) => {
                    tries = 0;
                    record.message = Some(says);
                }
                Outcome::Waiting => {
                    tries = 0;
                    tokio::time::sleep(FOLLOW_EVERY).await;
                }
                Outcome::Retry(why) => {
                    tries += 1;
                    if tries >= TRIES_MAX && procedure.given_up().is_none() && !task.is_final() {
                        procedure.give_up(why);
                        tries = 0;
                        continue;
                    }
                    record.message = Some(why);
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                // What undoes is tried again and again: half of it done helps nobody. Likewise what has no way back.
                Outcome::Refused(why) if procedure.given_up().is_some() || task.is_final() => {
                    tracing::warn!(procedure = %record.id, kind = record.kind, why, "cannot be done just now");
                    record.message = Some(why);
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                Outcome::Refused(why) | Outcome::Broken(why) => procedure.give_up(why),
            }
        }
        record.body = procedure.write();
        let is_given_up = procedure.given_up().is_some();
        record.message = procedure.given_up().map(str::to_owned).or_else(|| procedure.report());
        record.state = if is_given_up { OpState::RolledBack } else { OpState::Done };
        record.step = if is_given_up { "rolled_back" } else { "done" }.to_owned();
        self.save(&record).await?;
        tracing::info!(procedure = %record.id, kind = record.kind, step = record.step, "procedure ended");
        Ok(())
    }

    /// Stores how far it is, and answers what is wanted. While the catalog is away it waits: if somebody else takes
    /// over meanwhile, it is told when the catalog is back.
    async fn save(&self, record: &ProcedureRecord) -> Result<Wish, CatalogError> {
        loop {
            match self.options.driver.catalog().save_procedure(record).await {
                Err(error) if error.is_retryable() => {
                    tracing::debug!(procedure = %record.id, %error, "how far it is cannot be stored just now");
                    tokio::time::sleep(RETRY_EVERY).await;
                }
                other => return other,
            }
        }
    }

    fn definition(&self, task: &Task) -> Option<MapDefinition> {
        let view = self.options.router.view();
        view.maps.get(task.map()?).map(|known| known.map.definition().clone())
    }

    /// The record of a move that was noted; none if it has not begun.
    async fn operation(&self, id: OpId) -> Result<Option<OpRecord>, CatalogError> {
        match self.options.driver.catalog().operation(id).await {
            Ok(record) => Ok(Some(record)),
            Err(CatalogError::NoSuchOperation(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the move under way to be given up; true while it still runs. One that was noted and has not begun does not
    /// begin any more: the catalog refuses it.
    async fn cancel(&self, operation: Option<OpId>) -> Result<bool, CatalogError> {
        let Some(id) = operation else { return Ok(false) };
        match self.operation(id).await? {
            Some(record) if record.state == OpState::Running => {}
            _ => return Ok(false),
        }
        if let Err(error) = self.options.driver.wish_for(id, Wish::Cancel).await {
            // It has passed its point of no return, and ends by itself.
            tracing::debug!(operation = %id, %error, "cannot be cancelled any more");
        }
        Ok(true)
    }

    /// Has the move under way wait or go on, as the procedure is asked to. A move that somebody has paused by its own
    /// name goes on when he says so.
    async fn steer(&self, procedure: &mut Procedure, wish: Wish) {
        let Some(id) = procedure.operation() else { return };
        let driver = &self.options.driver;
        let wanted = match wish {
            Wish::Pause if !procedure.pauses() => Wish::Pause,
            Wish::Run if procedure.pauses() => Wish::Run,
            _ => return,
        };
        if wanted == Wish::Pause {
            let status = driver.catalog().move_status(id).await;
            if status.is_ok_and(|status| status.is_some_and(|status| status.wish == Wish::Pause)) {
                return;
            }
        }
        match driver.wish_for(id, wanted).await {
            Ok(()) => procedure.set_pauses(wanted == Wish::Pause),
            Err(error) => tracing::debug!(operation = %id, %error, "the move cannot be steered now"),
        }
    }

    /// Tries a task, which may take longer than the lease: it is renewed meanwhile.
    async fn attempt_alive(
        &self,
        procedure: &mut Procedure,
        task: &Task,
        record: &ProcedureRecord,
    ) -> Result<Outcome, CatalogError> {
        let catalog = self.options.driver.catalog();
        let every = catalog.lease() / 3;
        let attempt = self.attempt(procedure, task, record);
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                outcome = attempt.as_mut() => return Ok(outcome),
                () = tokio::time::sleep(every) => {}
            }
            match catalog.save_procedure(record).await {
                Err(error @ CatalogError::Superseded(_)) => return Err(error),
                Err(error) => {
                    tracing::debug!(procedure = %record.id, %error, "the lease could not be renewed")
                }
                // What can be given up in the middle is; the next look at the wish says so.
                Ok(Wish::Cancel) if matches!(task, Task::Archive(_)) && !task.is_final() => {
                    return Ok(Outcome::Noted);
                }
                Ok(_) => {}
            }
        }
    }

    async fn attempt(&self, procedure: &mut Procedure, task: &Task, record: &ProcedureRecord) -> Outcome {
        let attempt = match task {
            Task::SetState { map, range, state } => self.set_state(map, range, *state).await,
            Task::Move { map, range, to, keep_ms, arrives, operation, .. } => {
                let planned = PlannedMove { map, range, to, keep_ms: *keep_ms, arrives: *arrives };
                match operation {
                    None => self.plan_move(procedure, planned).await,
                    Some(id) => self.carry(procedure, planned, *id, record).await,
                }
            }
            Task::AddShard { shard, url, region, tier } => {
                let new = NewShard {
                    id: shard.clone(),
                    url: url.clone(),
                    password: PasswordSource::Config,
                    server: None,
                    region: region.clone(),
                    tier: tier.clone(),
                    limits: ShardLimits::default(),
                };
                self.add_shard(procedure, new).await
            }
            Task::RemoveShard { shard } => self.remove_shard(procedure, shard).await,
            Task::AddRule { map, rule } => self.add_rule(map, rule).await,
            Task::TakeIn(database) => self.take_in(procedure, database).await,
            Task::CreateMap { definition, shard, columns } => {
                self.create_map(procedure, definition, shard, columns).await
            }
            Task::DropMap { map } => self.drop_map(map).await,
            Task::RepairRows { map, shard, owner_wins, old } => {
                let how = Repair { dry_run: false, owner_wins: *owner_wins, old: *old };
                self.repair_rows(procedure, map, shard, how).await
            }
            Task::RepairReference { like, confirmed } => {
                self.repair_reference(procedure, like.as_ref(), *confirmed).await
            }
            Task::AdoptTables { map, shard, columns } => self.adopt_tables(map, shard, columns).await,
            Task::Archive(step) => self.archiving(procedure, step, record).await,
        };
        attempt.unwrap_or_else(|error| match error {
            error if error.is_retryable() => Outcome::Retry(error.to_string()),
            error @ (CatalogError::Unfinished { .. } | CatalogError::Superseded(_)) => {
                Outcome::Retry(error.to_string())
            }
            error => Outcome::Refused(error.to_string()),
        })
    }

    async fn entries(&self, map: &MapName, range: &KeyRange) -> Result<Vec<Entry>, CatalogError> {
        let all = self.options.driver.catalog().entries(map).await?;
        Ok(all.into_iter().filter(|entry| entry.range.overlaps(range)).collect())
    }

    async fn set_state(
        &self,
        map: &MapName,
        range: &KeyRange,
        state: State,
    ) -> Result<Outcome, CatalogError> {
        if self.entries(map, range).await?.iter().all(|entry| entry.state == state) {
            return Ok(Outcome::Done);
        }
        let change = Change::SetState { range: range.clone(), state };
        let request = ChangeRequest { map: map.clone(), change, if_version: None, by: None };
        self.options.driver.change(&request).await?;
        Ok(Outcome::Done)
    }

    async fn add_shard(&self, procedure: &mut Procedure, new: NewShard) -> Result<Outcome, CatalogError> {
        let router = &self.options.router;
        let id = new.id.clone();
        if let Some(noted) = self.make_shard(procedure, new).await? {
            return Ok(noted);
        }
        if let Err(error) = router.refresh().await {
            return Ok(Outcome::Retry(error.to_string()));
        }
        match self.options.journal.ready(&id).await {
            Ok(()) => Ok(Outcome::Done),
            Err(error) => Ok(Outcome::Retry(error.to_string())),
        }
    }

    /// Adds a shard, unless it is there; none when it is. One of the same name at the same address is what was wanted,
    /// but if it was not made by this procedure, undoing it leaves it there.
    async fn make_shard(
        &self,
        procedure: &mut Procedure,
        new: NewShard,
    ) -> Result<Option<Outcome>, CatalogError> {
        let (driver, router) = (&self.options.driver, &self.options.router);
        let id = new.id.clone();
        if let Some(known) = driver.catalog().shards().await?.into_iter().find(|shard| shard.id == id) {
            return match known.url == new.url {
                true => Ok(None),
                false => Err(CatalogError::Exists(format!("shard {id} at another address"))),
            };
        }
        let Some(incarnation) = procedure.made_shard(&id) else {
            procedure.note(Made::Shard { shard: id, incarnation: driver.catalog().fresh_id() });
            return Ok(Some(Outcome::Noted));
        };
        let opened = router.open_candidate(&new.candidate()).await;
        let opened = opened.map_err(|error| CatalogError::Shard { shard: id.clone(), error })?;
        let added = match driver.check_alike(&opened).await {
            Ok(()) => driver.add_shard_as(new, &opened, incarnation).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(record) => {
                procedure.note(Made::Shard { shard: id, incarnation: record.incarnation });
                router.adopt(record, opened).await;
                Ok(None)
            }
            Err(error) => {
                opened.close().await;
                Err(error)
            }
        }
    }

    /// Removes a shard that this procedure has made; not another of that name.
    async fn remove_shard(&self, procedure: &Procedure, id: &ShardId) -> Result<Outcome, CatalogError> {
        let known = self.options.driver.catalog().shards().await?.into_iter().find(|shard| shard.id == *id);
        if known.is_none_or(|shard| procedure.made_shard(id) != Some(shard.incarnation)) {
            return Ok(Outcome::Done);
        }
        match self.options.driver.remove_shard(id, false).await {
            Ok(()) | Err(CatalogError::NoSuchShard(_) | CatalogError::HoldsData { .. }) => Ok(Outcome::Done),
            Err(error) => Err(error),
        }
    }

    async fn add_rule(&self, map: &MapName, rule: &Rule) -> Result<Outcome, CatalogError> {
        self.options.driver.catalog().add_rule(map, &rule.write()).await?;
        Ok(Outcome::Done)
    }
}

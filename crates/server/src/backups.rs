//! Backups and restorations of a running server: recorded in the catalog, one at a time in the cluster.

mod schedule;
mod tools;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_admin::types::{
    BackupFailure, BackupState, BackupView, BackupsAnswer, NewBackup, NewRestore, ScheduleView,
};
use polyshard_admin::{Answer, Backups, ErrorCode, Problem};
use polyshard_backup::{
    BackupError, Carriers, Clock, Depot, Extent, Location, Memory, Present, Progress, Request,
    RestoreShardlet, RunName, Variables, What,
};
use polyshard_catalog::{Begun, Catalog, CatalogError, Run, RunBody, RunState};
use polyshard_engine::Target;
use polyshard_router::Router;
use polyshard_shard::ShardOptions;
use tokio::task::JoinHandle;

pub use polyshard_backup::CANCELLED as BACKUP_CANCELLED;
pub(crate) use schedule::Scheduling;
pub use tools::{DepotBackup, check_backup, list_backups, prune_backups, restore, restore_shard};

use crate::RunOptions;
use crate::config::{BackupConfig, Config};
use crate::operator::now_ms;
use crate::problem;

/// Runs that are shown.
const SHOWN: u32 = 100;
/// How often the catalog is told how far a run is, and asked whether it shall go on.
const BEAT: Duration = Duration::from_secs(1);
/// How long a removal of old backups may take to end when the server stops: a store may not answer.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// The folder under the data folder for files that are needed meanwhile.
const SCRATCH: &str = "backup-scratch";

/// The backups of one server process.
pub(crate) struct Taking {
    router: Arc<Router>,
    catalog: Arc<Catalog>,
    catalog_url: String,
    config: BackupConfig,
    scratch: PathBuf,
    shard_options: ShardOptions,
    variables: Variables,
    memory: Arc<Memory>,
    carriers: Carriers,
    running: Mutex<Option<Running>>,
    /// The last backup of each class after which old ones were removed.
    pruned: Mutex<BTreeMap<String, i64>>,
    /// The removal of old ones that runs here.
    removal: Mutex<Option<JoinHandle<()>>>,
    stopping: AtomicBool,
}

struct Running {
    id: u64,
    body: RunBody,
    progress: Arc<Progress>,
    task: JoinHandle<()>,
}

/// What is to be done.
enum Job {
    Take(Box<Request>),
    Restore { from: Location, asked: NewRestore },
}

impl Taking {
    pub(crate) fn new(
        router: Arc<Router>,
        catalog: Arc<Catalog>,
        config: &Config,
        options: &RunOptions,
        shard_options: ShardOptions,
        carriers: Carriers,
    ) -> Arc<Taking> {
        let options = options.clone();
        let scratch = config.data.join(SCRATCH);
        // Of a process that was killed.
        match std::fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(folder = %scratch.display(), %error, "files of an earlier backup are left");
            }
            _ => {}
        }
        Arc::new(Taking {
            router,
            catalog,
            catalog_url: config.catalog.url.clone(),
            config: config.backup.clone(),
            scratch,
            shard_options,
            variables: Arc::new(move |name: &str| options.variable(name)),
            memory: Arc::default(),
            carriers,
            running: Mutex::default(),
            pruned: Mutex::default(),
            removal: Mutex::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Marks what an earlier process of an embedded catalog has left; those of others' lapse by themselves.
    pub(crate) async fn mark_left(&self) {
        if matches!(self.catalog.target(), Target::Sqlite(_))
            && let Err(error) = self.catalog.abandon_runs().await
        {
            tracing::warn!(%error, "backups of an earlier process cannot be marked");
        }
    }

    /// Gives up the one that runs here; what is there of it is no backup. A removal ends after the step it is at.
    pub(crate) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let removal = self.removal.lock().expect("no panic while held").take();
        if let Some(mut removal) = removal
            && tokio::time::timeout(STOP_WAIT, &mut removal).await.is_err()
        {
            removal.abort();
            tracing::warn!(
                "a removal of old backups did not stop; its mark keeps others from the place for a while"
            );
        }
        let running = self.running.lock().expect("no panic while held").take();
        if let Some(running) = running {
            running.progress.cancel();
            if let Err(error) = running.task.await {
                tracing::error!(%error, "a backup failed");
            }
        }
    }

    fn location(&self, to: Option<&str>, class: &str) -> Result<Location, Problem> {
        let invalid = |field: &str, error: BackupError| Problem::invalid(field, error.to_string());
        match (to, &self.config.to) {
            (Some(to), _) => {
                if !to.starts_with('/') && !to.contains("://") {
                    return Err(Problem::invalid("to", format!("{to:?} is not a path from the root"))
                        .with_remedy("name a new folder on the server's machine, as /backups/monday"));
                }
                Location::open(to, &self.variables).map_err(|error| invalid("to", error))
            }
            (None, Some(to)) => {
                let depot = Depot::open(to, &self.variables).map_err(|error| invalid("backup.to", error))?;
                let name = format!("{class}-{}", schedule::time_text(now_ms()));
                Location::new(depot, &name).map_err(|error| invalid("backup.to", error))
            }
            (None, None) => Err(Problem::invalid("to", "it is not said where to")
                .with_remedy("name a place, as /backups/monday, or set backup.to in the configuration")),
        }
    }

    fn take_job(&self, to: Location, what: What, class: Option<&str>) -> (Job, RunBody) {
        let body = RunBody {
            kind: "backup".to_owned(),
            at: to.url(),
            what: match &what {
                What::Everything => "everything".to_owned(),
                What::Shards(shards) => shards.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(","),
                What::Shardlet { map, key } => format!("{map} {key}"),
            },
            ..RunBody::default()
        };
        let request = Request {
            to,
            what,
            class: class.map(str::to_owned),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            catalog_url: self.catalog_url.clone(),
            scratch: self.scratch.clone(),
            memory: self.memory.clone(),
            carriers: self.carriers.clone(),
            probe: None,
        };
        (Job::Take(Box::new(request)), body)
    }

    /// Begins what a schedule or an operator wants. None if it is not due.
    async fn start(
        self: &Arc<Taking>,
        class: &str,
        every: Option<Duration>,
        (job, body): (Job, RunBody),
    ) -> Result<Option<Run>, Problem> {
        let begun = self.catalog.begin_run(class, every, &body).await.map_err(of_catalog)?;
        let run = match begun {
            Begun::Mine(run) => run,
            Begun::NotDue => return Ok(None),
            Begun::Busy(other) => {
                let what =
                    format!("{} {} ({}) is under way already", other.body.kind, other.id, other.body.at);
                return Err(Problem::new(ErrorCode::Busy, what)
                    .with_remedy("wait until it is done, see 'polyshard backup list'"));
            }
        };
        let progress = Arc::new(Progress::default());
        let work = Arc::clone(self).carry_out(run.clone(), job, progress.clone());
        let task = tokio::spawn(work);
        let running = Running { id: run.id, body, progress, task };
        *self.running.lock().expect("no panic while held") = Some(running);
        Ok(Some(run))
    }

    async fn carry_out(self: Arc<Taking>, run: Run, job: Job, progress: Arc<Progress>) {
        // Beside each other: while the catalog does not answer, the work goes on, for which writes may wait.
        let done = tokio::select! {
            done = self.work(run.id, &job, &progress) => done,
            never = self.beat(&run, &progress) => match never {},
        };
        let message = done.as_ref().err().map(ToString::to_string);
        match &message {
            None => tracing::info!(run = run.id, kind = run.body.kind, at = run.body.at, "it is done"),
            Some(error) => {
                tracing::warn!(
                    run = run.id,
                    kind = run.body.kind,
                    at = run.body.at,
                    error,
                    "it was not done"
                );
            }
        }
        let mut body = body_of(&run.body, &progress);
        body.failure = done.as_ref().err().map(|error| failure_word(error).to_owned());
        let ended = self.catalog.end_run(run.id, &body, message.as_deref()).await;
        if let Err(error) = ended {
            tracing::warn!(run = run.id, %error, "the catalog cannot be told that a backup has ended");
        }
    }

    /// Tells the catalog how far a run is, and whether it shall go on.
    async fn beat(&self, run: &Run, progress: &Progress) -> Infallible {
        loop {
            tokio::time::sleep(BEAT).await;
            match self.catalog.renew_run(run.id, &body_of(&run.body, progress)).await {
                Ok(true) => {}
                Ok(false) => progress.cancel(),
                // It goes on; if the catalog stays away, the lease lapses and the next answer says so.
                Err(error) => tracing::debug!(%error, "the catalog cannot be told of a backup"),
            }
        }
    }

    async fn work(&self, run: u64, job: &Job, progress: &Progress) -> Result<(), BackupError> {
        match job {
            Job::Take(request) => {
                let clock: Clock = Arc::new(now_ms);
                polyshard_backup::take(&self.router, &self.catalog, request, &clock, progress).await.map(drop)
            }
            Job::Restore { from, asked } => {
                let restore = RestoreShardlet {
                    router: &self.router,
                    backup: from,
                    map: asked.map.clone(),
                    key: asked.key.clone(),
                    extent: if asked.bucket { Extent::Bucket } else { Extent::Key },
                    present: if asked.replace { Present::Replace } else { Present::Keep },
                    scratch: self.scratch.clone(),
                    run: RunName::new(self.catalog.cluster().await?, run),
                    options: self.shard_options.clone(),
                    carriers: self.carriers.clone(),
                };
                restore.run(progress).await.map(drop)
            }
        }
    }

    async fn view_of(&self, id: u64) -> Result<BackupView, Problem> {
        let runs = self.catalog.runs(SHOWN).await.map_err(of_catalog)?;
        let found = runs.iter().find(|run| run.id == id).map(|run| self.view(run));
        found.ok_or_else(|| {
            Problem::not_found(format!("there is no backup {id}")).with_remedy("see 'polyshard backup list'")
        })
    }

    /// What is known of a run; of one that runs here, up to now.
    fn view(&self, run: &Run) -> BackupView {
        let running = self.running.lock().expect("no panic while held");
        let body = match running.as_ref().filter(|mine| mine.id == run.id && run.state == RunState::Running) {
            Some(mine) => body_of(&mine.body, &mine.progress),
            None => run.body.clone(),
        };
        BackupView {
            id: run.id,
            kind: body.kind,
            to: body.at,
            what: body.what,
            class: (!run.class.is_empty()).then(|| run.class.clone()),
            state: match run.state {
                RunState::Running => BackupState::Running,
                RunState::Done => BackupState::Done,
                RunState::Failed => BackupState::Failed,
            },
            moment_ms: body.moment_ms,
            databases: body.databases,
            copied: body.copied,
            bytes: body.bytes,
            new_bytes: body.new_bytes,
            rows: body.rows,
            pause_ms: body.pause_ms,
            began_ms: run.began_ms,
            ended_ms: run.ended_ms,
            message: run.message.clone(),
            failure: (run.state == RunState::Failed).then(|| failure_of(body.failure.as_deref())),
        }
    }

    async fn begin_backup(self: &Arc<Taking>, asked: NewBackup) -> Result<BackupView, Problem> {
        let what = match (asked.shards.filter(|shards| !shards.is_empty()), asked.map, asked.key) {
            (None, None, None) => What::Everything,
            (Some(shards), None, None) => What::Shards(shards),
            (None, Some(map), Some(key)) => What::Shardlet { map, key },
            _ => {
                return Err(Problem::invalid("map", "that is not one thing to back up")
                    .with_remedy("name shards, or a map and a key, or nothing for everything"));
            }
        };
        let to = self.location(asked.to.as_deref(), "manual")?;
        let run = self.start("", None, self.take_job(to, what, None)).await?;
        let run = run.ok_or_else(|| Problem::new(ErrorCode::Busy, "it is not due"))?;
        Ok(self.view(&run))
    }

    async fn begin_restore(self: &Arc<Taking>, asked: NewRestore) -> Result<BackupView, Problem> {
        let from = Location::open(&asked.from, &self.variables);
        let from = from.map_err(|error| Problem::invalid("from", error.to_string()))?;
        let body = RunBody {
            kind: "restore".to_owned(),
            at: from.url(),
            what: format!("{} {}", asked.map, asked.key),
            ..RunBody::default()
        };
        let run = self.start("", None, (Job::Restore { from, asked }, body)).await?;
        let run = run.ok_or_else(|| Problem::new(ErrorCode::Busy, "it is not due"))?;
        Ok(self.view(&run))
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>, Problem> {
        let last = self.catalog.last_runs().await.map_err(of_catalog)?;
        let view = |schedule: &crate::config::ScheduleConfig| ScheduleView {
            class: schedule.class.clone(),
            every_seconds: schedule.every.as_secs(),
            keep: schedule.keep as u64,
            what: match (&schedule.tier, &schedule.map) {
                (Some(tier), _) => format!("tier {tier}"),
                (None, Some(map)) => format!("map {map}"),
                (None, None) => "everything".to_owned(),
            },
            last_ms: last.iter().find(|(class, _)| *class == schedule.class).map(|(_, at)| *at),
        };
        Ok(self.config.schedules.iter().map(view).collect())
    }
}

fn of_catalog(error: CatalogError) -> Problem {
    problem::of_catalog(&error)
}

/// Why a run failed, as the catalog keeps it.
fn failure_word(error: &BackupError) -> &'static str {
    match error {
        BackupError::Busy(_) => "busy",
        BackupError::Refused(_) => "refused",
        BackupError::Damaged(_) => "damaged",
        BackupError::Failed(_) => "failed",
    }
}

/// The same for people; a run without a word is one whose process is gone.
fn failure_of(word: Option<&str>) -> BackupFailure {
    match word {
        Some("busy") => BackupFailure::Busy,
        Some("refused") => BackupFailure::Refused,
        Some("damaged") => BackupFailure::Damaged,
        _ => BackupFailure::Failed,
    }
}

/// What a run is, and how far.
fn body_of(body: &RunBody, progress: &Progress) -> RunBody {
    RunBody {
        moment_ms: progress.moment_ms(),
        databases: progress.databases(),
        copied: progress.done(),
        bytes: progress.bytes(),
        new_bytes: progress.new_bytes(),
        rows: progress.rows(),
        pause_ms: progress.pause_ms(),
        ..body.clone()
    }
}

/// The operator's side of it.
pub(crate) struct Door(pub(crate) Arc<Taking>);

impl Backups for Door {
    fn begin(&self, backup: NewBackup) -> Answer<'_, BackupView> {
        Box::pin(self.0.begin_backup(backup))
    }

    fn restore(&self, restore: NewRestore) -> Answer<'_, BackupView> {
        Box::pin(self.0.begin_restore(restore))
    }

    fn list(&self) -> Answer<'_, BackupsAnswer> {
        Box::pin(async move {
            let runs = self.0.catalog.runs(SHOWN).await.map_err(of_catalog)?;
            let backups = runs.iter().map(|run| self.0.view(run)).collect();
            Ok(BackupsAnswer { backups, schedules: self.0.schedules().await? })
        })
    }

    fn show(&self, id: u64) -> Answer<'_, BackupView> {
        Box::pin(self.0.view_of(id))
    }

    fn cancel(&self, id: u64) -> Answer<'_, BackupView> {
        Box::pin(async move {
            let found = self.0.catalog.cancel_run(id).await.map_err(of_catalog)?;
            let view = self.0.view_of(id).await?;
            if !found {
                let message = format!("{} {id} is not under way, it is {}", view.kind, view.state);
                return Err(Problem::new(ErrorCode::Conflict, message));
            }
            Ok(view)
        })
    }
}

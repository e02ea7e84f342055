//! Backups of a running server, and their restoration into an empty place.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use polyshard_admin::types::{BackupState, BackupView, NewBackup};
use polyshard_admin::{Answer, Backups, ErrorCode, Problem};
use polyshard_backup::{BackupError, Clock, Manifest, Progress, Request, Restore};
use polyshard_catalog::Catalog;
use polyshard_map::ShardId;
use polyshard_router::Router;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::error::ServerError;
use crate::operator::now_ms;
use crate::{RunOptions, connect};

/// Backups that a process remembers.
const REMEMBERED: usize = 100;

/// The backups of one server process.
pub(crate) struct Taking {
    router: Arc<Router>,
    catalog: Arc<Catalog>,
    catalog_url: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    entries: VecDeque<Arc<Entry>>,
    /// One at a time: two would only take longer, and each holds writes for a moment.
    running: Option<JoinHandle<()>>,
}

struct Entry {
    id: u64,
    to: PathBuf,
    began_ms: i64,
    progress: Progress,
    ended: Mutex<Option<Result<(), String>>>,
}

impl Taking {
    pub(crate) fn new(router: Arc<Router>, catalog: Arc<Catalog>, config: &Config) -> Taking {
        Taking { router, catalog, catalog_url: config.catalog.url.clone(), state: Mutex::default() }
    }

    /// Gives up the one that is being taken; what is there of it is no backup.
    pub(crate) async fn stop(&self) {
        let running = self.state.lock().expect("no panic while held").running.take();
        if let Some(running) = running {
            running.abort();
            if let Err(error) = running.await
                && !error.is_cancelled()
            {
                tracing::error!(%error, "a backup failed");
            }
        }
    }

    fn start(&self, asked: NewBackup) -> Result<BackupView, Problem> {
        let to = PathBuf::from(&asked.to);
        if !to.is_absolute() || to.file_name().is_none() {
            return Err(Problem::invalid("to", format!("{:?} is not a path from the root", asked.to))
                .with_remedy("name a new folder on the server's machine, as /backups/monday"));
        }
        let mut state = self.state.lock().expect("no panic while held");
        if state.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return Err(Problem::new(ErrorCode::Busy, "a backup is being taken already")
                .with_remedy("wait until it is done, see 'polyshard backup list'"));
        }
        state.next += 1;
        let entry = Arc::new(Entry {
            id: state.next,
            to: to.clone(),
            began_ms: now_ms(),
            progress: Progress::default(),
            ended: Mutex::default(),
        });
        let request = Request {
            backup: to,
            shards: asked.shards.filter(|shards| !shards.is_empty()),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            catalog_url: self.catalog_url.clone(),
        };
        let (router, catalog, mine) = (self.router.clone(), self.catalog.clone(), entry.clone());
        state.running = Some(tokio::spawn(async move {
            let clock: Clock = Arc::new(now_ms);
            let taken = polyshard_backup::take(&router, &catalog, &request, &clock, &mine.progress).await;
            match &taken {
                Ok(_) => tracing::info!(backup = mine.id, "a backup was taken"),
                Err(error) => tracing::warn!(backup = mine.id, %error, "a backup was not taken"),
            }
            let ended = taken.map(drop).map_err(|error| error.to_string());
            *mine.ended.lock().expect("no panic while held") = Some(ended);
        }));
        state.entries.push_front(entry.clone());
        state.entries.truncate(REMEMBERED);
        Ok(view(&entry))
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        self.state.lock().expect("no panic while held").entries.iter().cloned().collect()
    }
}

fn view(entry: &Entry) -> BackupView {
    let ended = entry.ended.lock().expect("no panic while held").clone();
    let (state, message) = match ended {
        None => (BackupState::Running, None),
        Some(Ok(())) => (BackupState::Done, None),
        Some(Err(message)) => (BackupState::Failed, Some(message)),
    };
    BackupView {
        id: entry.id,
        to: entry.to.display().to_string(),
        state,
        databases: entry.progress.databases(),
        copied: entry.progress.done(),
        bytes: entry.progress.bytes(),
        pause_ms: entry.progress.pause_ms(),
        began_ms: entry.began_ms,
        message,
    }
}

impl Backups for Taking {
    fn begin(&self, backup: NewBackup) -> Answer<'_, BackupView> {
        Box::pin(async move { self.start(backup) })
    }

    fn list(&self) -> Answer<'_, Vec<BackupView>> {
        Box::pin(async move { Ok(self.entries().iter().map(|entry| view(entry)).collect()) })
    }

    fn show(&self, id: u64) -> Answer<'_, BackupView> {
        Box::pin(async move {
            let entries = self.entries();
            let found = entries.iter().find(|entry| entry.id == id).map(|entry| view(entry));
            found.ok_or_else(|| {
                Problem::not_found(format!("this server process has no backup {id}"))
                    .with_remedy("see 'polyshard backup list'")
            })
        })
    }
}

/// What a backup holds, after a comparison with its checksums; for people and programs.
pub fn check_backup(backup: &Path) -> Result<Manifest, ServerError> {
    polyshard_backup::check(backup).map_err(of_backup)
}

/// Restores a backup of everything into the place that a configuration names, which must be empty.
pub async fn restore(config: &Config, options: &RunOptions, backup: &Path) -> Result<Manifest, ServerError> {
    let refuse = |error: String| BackupError::Refused(error);
    let target = |id: Option<&ShardId>, url: &str| {
        let source = match id {
            None => config.catalog.password.clone(),
            Some(id) => {
                let named = config.shards.iter().find(|shard| shard.id == *id);
                named.map_or(crate::config::SecretSource::None, |shard| shard.password.clone())
            }
        };
        let password =
            source.resolve(|name| options.variable(name)).map_err(|error| refuse(error.to_string()))?;
        connect::target(url, &config.data, password).map_err(|error| refuse(error.to_string()))
    };
    let restore = Restore { backup, data: &config.data, catalog_url: &config.catalog.url, target: &target };
    restore.run().await.map_err(of_backup)
}

fn of_backup(error: BackupError) -> ServerError {
    match error {
        BackupError::Busy(message) | BackupError::Failed(message) => ServerError::System(message),
        BackupError::Refused(message) | BackupError::Damaged(message) => ServerError::Config(message),
    }
}

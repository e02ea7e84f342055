//! Does the tasks of moves, as the driver asks for them.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::saga::Outcome;
use polyshard_catalog::{Carrier, CarryTask, OpRecord, Progress, ShardSource};
use polyshard_shard::OpId;
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::session::Session;

/// How often a move that keeps its old rows looks whether that is over.
const KEEP_LOOK: Duration = Duration::from_millis(100);

/// Carries rows for the operations that this process drives.
pub struct Mover {
    shards: Arc<dyn ShardSource>,
    sessions: Mutex<HashMap<OpId, Held>>,
}

/// A session, under the token it was begun with.
struct Held {
    token: u64,
    session: Arc<tokio::sync::Mutex<Session>>,
    progress: Progress,
}

impl Mover {
    /// A mover between these shards. Give it to the driver with `Driver::set_carrier`.
    pub fn new(shards: Arc<dyn ShardSource>) -> Mover {
        Mover { shards, sessions: Mutex::default() }
    }

    pub(crate) fn shards(&self) -> &dyn ShardSource {
        self.shards.as_ref()
    }

    async fn session(&self, record: &OpRecord) -> Result<Arc<tokio::sync::Mutex<Session>>> {
        {
            let sessions = self.sessions.lock().expect("no panic while held");
            if let Some(held) = sessions.get(&record.op.id).filter(|held| held.token == record.token) {
                return Ok(held.session.clone());
            }
        }
        let session = Session::begin(self.shards.as_ref(), record).await?;
        let session = Arc::new(tokio::sync::Mutex::new(session));
        let held = Held { token: record.token, session: session.clone(), progress: Progress::default() };
        self.sessions.lock().expect("no panic while held").insert(record.op.id, held);
        Ok(session)
    }

    async fn do_part(&self, record: &OpRecord, task: CarryTask) -> Result<Outcome> {
        let session = self.session(record).await?;
        let mut session = session.lock().await;
        let done = match task {
            CarryTask::Begin => session.prepare().await.map(|()| true),
            CarryTask::Copy if session.carry.filled => Ok(true),
            CarryTask::Copy => session.copy().await,
            CarryTask::CatchUp => session.catch_up().await,
            CarryTask::Verify => session.verify().await,
            CarryTask::Reverse => session.reverse().await.map(|()| true),
            CarryTask::Settle => session.settle().await.map(|()| true),
            CarryTask::Keep => session.keep().await,
            CarryTask::Clean => session.clean_source().await,
            CarryTask::Clear => session.clear_target().await,
        };
        if let Some(held) = self.sessions.lock().expect("no panic while held").get_mut(&record.op.id) {
            held.progress = session.progress.clone();
        }
        Ok(if done? { Outcome::Done } else { Outcome::Waiting })
    }
}

impl Carrier for Mover {
    fn carry<'a>(
        &'a self,
        record: &'a OpRecord,
        task: CarryTask,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(async move { self.do_part(record, task).await.unwrap_or_else(|error| error.outcome()) })
    }

    fn progress(&self, op: OpId) -> Progress {
        let sessions = self.sessions.lock().expect("no panic while held");
        sessions.get(&op).map(|held| held.progress.clone()).unwrap_or_default()
    }

    fn forget(&self, op: OpId) {
        self.sessions.lock().expect("no panic while held").remove(&op);
    }
}

impl Session {
    /// Checks everything that can fail, then begins the capture.
    async fn prepare(&mut self) -> Result<()> {
        let (source, target) = (self.source.clone(), self.target.clone());
        self.refresh().await?;
        self.announce().await?;
        if let Some(replaced) = self.carry.replaces {
            target.remove_capture(self.op, replaced).await.map_err(MoveError::on(target.id()))?;
        }
        if !self.is_marked().await? {
            if !self.carry.filled {
                self.refuse_rows_on_target().await?;
            }
            self.mark_carried().await?;
        }
        let opened =
            source.open_capture(self.op, self.carry.forward, &self.definition, &self.carry.ranges).await;
        opened.map_err(MoveError::on(source.id()))?;
        self.refresh().await?;
        self.progress.total_rows = self.count_source().await?;
        Ok(())
    }

    /// Has readers of all shards leave out what the target has of the ranges, for as long as that is not its own. The
    /// ranges that arrive say so, too, but a move that is rolled back takes those away before the rows.
    pub(crate) async fn announce(&self) -> Result<()> {
        let (target, map) = (&self.target, self.definition.name());
        let announced = target.announce_capture(self.op, self.carry.reverse, map, &self.carry.ranges).await;
        announced.map_err(MoveError::on(target.id()))
    }

    pub(crate) async fn refuse_rows_on_target(&self) -> Result<()> {
        let on_target = MoveError::engine(self.target.id());
        let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
        for unit in &self.units {
            let found = db.read(self.tables[unit.table].to.any(unit.number)).await.map_err(&on_target)?;
            if !found.is_empty() {
                return Err(MoveError::Refused(format!(
                    "shard {} has rows of {} in the range already, which it does not own; look at them with \
                     'polyshard check', and remove them first",
                    self.target.id(),
                    unit.dataset.name
                )));
            }
        }
        Ok(())
    }

    async fn count_source(&self) -> Result<u64> {
        let mut total = 0;
        for unit in &self.units {
            total += self.count_unit(unit).await?;
        }
        Ok(total)
    }

    pub(crate) async fn count_unit(&self, unit: &crate::session::Unit) -> Result<u64> {
        let on_source = MoveError::engine(self.source.id());
        let db = self.source.carrier().await.map_err(MoveError::on(self.source.id()))?;
        let mut rows = 0;
        let count = self.tables[unit.table].from.count(unit.number);
        let mut scan = db.scan(count, 1).await.map_err(&on_source)?;
        while let Some(page) = scan.next().await.map_err(&on_source)? {
            rows += page.one().and_then(|row| row.int(0)).map_err(&on_source)? as u64;
        }
        Ok(rows)
    }

    /// Begins the capture on the target, so that what is written there can be taken back.
    async fn reverse(&mut self) -> Result<()> {
        if self.carry.keep_ms == 0 {
            return Ok(());
        }
        let target = &self.target;
        let opened =
            target.open_capture(self.op, self.carry.reverse, &self.definition, &self.carry.ranges).await;
        opened.map_err(MoveError::on(target.id()))
    }

    /// Keeps the old rows for as long as was asked. A process that takes over begins the time anew.
    async fn keep(&mut self) -> Result<bool> {
        let since = match self.keeping_since {
            Some(since) => since,
            None => {
                // Where copying had come to is of no use any more, also not to whoever undoes it.
                self.forget_carried().await?;
                *self.keeping_since.insert(Instant::now())
            }
        };
        let over = since.elapsed() >= Duration::from_millis(self.carry.keep_ms);
        if !over {
            tokio::time::sleep(KEEP_LOOK).await;
        }
        Ok(over)
    }
}

//! Does the tasks of moves, as the driver asks for them.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use polyshard_catalog::saga::Outcome;
use polyshard_catalog::{Carrier, CarryTask, Failpoint, OpRecord, Progress, ShardSource};
use polyshard_engine::Statement;
use polyshard_map::ShardId;
use polyshard_shard::{Dataset, OpId};

use crate::ending::{Ending, announce, is_marked};
use crate::error::{MoveError, Result};
use crate::pace::{Pace, Traffic};
use crate::register::number_of;
use crate::session::Session;
use crate::table::Side;

/// Carries rows for the operations that this process drives.
pub struct Mover {
    shards: Arc<dyn ShardSource>,
    pace: Arc<Pace>,
    failpoint: Option<Failpoint>,
    held: Mutex<HashMap<OpId, Held>>,
}

/// What is remembered of a move, under the token it was begun with.
#[derive(Default)]
struct Held {
    token: u64,
    session: Option<Arc<tokio::sync::Mutex<Session>>>,
    ending: Option<Arc<tokio::sync::Mutex<Ending>>>,
    progress: Progress,
    pace: Option<Arc<Pace>>,
}

impl Mover {
    /// A mover between these shards. Give it to the driver with `Driver::set_carrier`.
    pub fn new(shards: Arc<dyn ShardSource>) -> Mover {
        Mover { shards, pace: Arc::new(Pace::unhindered()), failpoint: None, held: Mutex::default() }
    }

    /// The same, that works for `share` percent of the time only while requests are served.
    pub fn paced(self, traffic: Traffic, share: u32) -> Mover {
        Mover { pace: Arc::new(Pace::new(Some(traffic), share)), ..self }
    }

    /// The same, that is stopped at named places, for tests.
    pub fn failing(self, failpoint: Option<Failpoint>) -> Mover {
        Mover { failpoint, ..self }
    }

    /// A place where a test may stop it, as a kill would.
    pub(crate) fn pass(&self, place: &str) -> Result<()> {
        match &self.failpoint {
            Some(failpoint) if failpoint(place) => {
                Err(MoveError::Refused(format!("stopped at failpoint {place}")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn shards(&self) -> &dyn ShardSource {
        self.shards.as_ref()
    }

    /// Looks at what is remembered of a move, or begins to remember.
    fn remember<T>(&self, record: &OpRecord, look: impl FnOnce(&mut Held) -> T) -> T {
        let mut held = self.held.lock().expect("no panic while held");
        let held = held.entry(record.op.id).or_default();
        if held.token != record.token {
            *held = Held { token: record.token, ..Held::default() };
        }
        look(held)
    }

    /// How much is stepped back for this move.
    fn pace_of(&self, record: &OpRecord) -> Arc<Pace> {
        let another = || Arc::new(self.pace.another());
        self.remember(record, |held| held.pace.get_or_insert_with(another).clone())
    }

    async fn session(&self, record: &OpRecord) -> Result<Arc<tokio::sync::Mutex<Session>>> {
        if let Some(session) = self.remember(record, |held| held.session.clone()) {
            return Ok(session);
        }
        let session = Session::begin(self.shards.as_ref(), record, self.pace_of(record)).await?;
        let session = Arc::new(tokio::sync::Mutex::new(session));
        self.remember(record, |held| held.session = Some(session.clone()));
        Ok(session)
    }

    async fn ending(&self, record: &OpRecord) -> Result<Arc<tokio::sync::Mutex<Ending>>> {
        if let Some(ending) = self.remember(record, |held| held.ending.clone()) {
            return Ok(ending);
        }
        let mut ending = Ending::begin(self.shards.as_ref(), record, &[], self.pace_of(record)).await?;
        ending.progress = self.remember(record, |held| held.progress.clone());
        let ending = Arc::new(tokio::sync::Mutex::new(ending));
        self.remember(record, |held| held.ending = Some(ending.clone()));
        Ok(ending)
    }

    async fn do_part(&self, record: &OpRecord, task: CarryTask) -> Result<Outcome> {
        if task.ends() {
            let ending = self.ending(record).await?;
            let mut ending = ending.lock().await;
            let done = ending.go_on(task).await;
            let works = self.pace_of(record).stepping_back().filter(|_| task.is_paced());
            self.remember(record, |held| {
                held.progress = Progress { works_percent: works, ..ending.progress.clone() };
            });
            return Ok(if done? { Outcome::Done } else { Outcome::Waiting });
        }
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
            CarryTask::Keep | CarryTask::Clean | CarryTask::Clear => Ok(true),
        };
        let works = session.pace().stepping_back().filter(|_| task.is_paced());
        self.remember(record, |held| {
            held.progress = Progress { works_percent: works, ..session.progress.clone() };
        });
        Ok(if done? { Outcome::Done } else { Outcome::Waiting })
    }

    /// Ends a move without the shards that are lost.
    async fn end_without(&self, record: &OpRecord, task: CarryTask, lost: &[ShardId]) -> Result<Outcome> {
        let mut ending = Ending::begin(self.shards.as_ref(), record, lost, self.pace_of(record)).await?;
        while !ending.go_on(task).await? {}
        Ok(Outcome::Done)
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

    fn carry_without<'a>(
        &'a self,
        record: &'a OpRecord,
        task: CarryTask,
        lost: &'a [ShardId],
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>> {
        Box::pin(
            async move { self.end_without(record, task, lost).await.unwrap_or_else(|error| error.outcome()) },
        )
    }

    fn progress(&self, op: OpId) -> Progress {
        let held = self.held.lock().expect("no panic while held");
        held.get(&op).map(|held| held.progress.clone()).unwrap_or_default()
    }

    fn set_pace(&self, record: &OpRecord, share: Option<u32>) {
        self.pace_of(record).set_share(share);
    }

    fn forget(&self, op: OpId) {
        self.held.lock().expect("no panic while held").remove(&op);
    }
}

impl Session {
    /// Checks everything that can fail, begins the capture, and then marks what is to be copied: a dataset that is
    /// bound after the marks has all its rows in the capture, and one that is bound before is copied.
    async fn prepare(&mut self) -> Result<()> {
        let (source, target) = (self.source.clone(), self.target.clone());
        self.refresh().await?;
        announce(&target, self.op, &self.carry, &self.definition).await?;
        if let Some(replaced) = self.carry.replaces {
            target.remove_capture(self.op, replaced).await.map_err(MoveError::on(target.id()))?;
        }
        // Rows come after the marks only.
        let is_marked = is_marked(&target, self.op.id).await?;
        let looks = !is_marked && !self.carry.filled;
        if looks {
            self.refuse_rows_on_target().await?;
        }
        let opened =
            source.open_capture(self.op, self.carry.forward, &self.definition, &self.carry.ranges).await;
        opened.map_err(MoveError::on(source.id()))?;
        self.refresh().await?;
        if looks {
            self.refuse_rows_on_target().await?;
        }
        if !is_marked {
            self.mark_carried().await?;
        }
        self.progress.total_rows = self.count_source().await?;
        Ok(())
    }

    /// Looks whether the target has rows in the ranges that are not this move's; at each dataset once.
    pub(crate) async fn refuse_rows_on_target(&mut self) -> Result<()> {
        for unit in &self.units {
            if self.looked_at.contains(&unit.dataset.name) {
                continue;
            }
            // It may have to read the whole table: a scan may take its time.
            let to = &self.tables[unit.table].to;
            let there = Dataset { table: to.table.clone(), ..unit.dataset.clone() };
            self.refuse_any(to.any(unit.number), &there).await?;
            self.looked_at.insert(unit.dataset.name.clone());
        }
        // The source may get its first rows of others during the move. What is bound on the target later is looked at
        // then (`Shard::bind`).
        let target = self.target.clone();
        let bound = target.settled_tables(self.definition.name()).await;
        for dataset in bound.map_err(MoveError::on(target.id()))? {
            if self.looked_at.contains(&dataset.name) {
                continue;
            }
            let shape = target.shape(&dataset.table).await.map_err(MoveError::on(target.id()))?;
            if let Some(shape) = shape {
                let (definition, ranges) = (&self.definition, self.carry.ranges.as_slice());
                let side = Side::new(target.dialect(), &dataset, &shape, &shape, definition, ranges)?;
                self.refuse_any(side.any(dataset.number()), &dataset).await?;
            }
            self.looked_at.insert(dataset.name);
        }
        Ok(())
    }

    /// Refuses the move if the target has such a row.
    async fn refuse_any(&self, any: Statement, of: &Dataset) -> Result<()> {
        let Some(row) = self.page_of(false, any, 1).await?.into_iter().next() else { return Ok(()) };
        let number = number_of(row.first()).filter(|_| of.is_of_map());
        let named = self.target.named(of, number.as_slice()).await;
        let named = named.map_err(MoveError::on(self.target.id()))?;
        Err(self.has_rows(&named.first().unwrap_or(of).name))
    }

    pub(crate) fn has_rows(&self, dataset: &str) -> MoveError {
        MoveError::Refused(format!(
            "shard {} has rows of {dataset} in the range already, which it does not own; look at them with 'polyshard \
             check', and remove them first",
            self.target.id(),
        ))
    }

    pub(crate) async fn count_source(&self) -> Result<u64> {
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
}

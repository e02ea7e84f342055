//! Follows the catalog: hears of changes, polls as the safety net, and reads anew what it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{Catalog, CatalogError, Changes, Event, MapContents};
use polyshard_engine::{Listener, Target};
use polyshard_map::{MapName, ShardId};
use polyshard_shard::FenceEpoch;
use tokio::sync::{Mutex, watch};

use crate::RouterError;
use crate::known::SILENT;
use crate::state::State;
use crate::view::View;

/// How long a process that ends tries to say so.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
/// The pause after the catalog could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Of a process that has not registered, and so is waited for by nobody.
const NEVER: u64 = u64::MAX;

/// One follower for a router.
pub(crate) struct Follower {
    catalog: Arc<Catalog>,
    state: Arc<State>,
    /// One refresh at a time; remembers why the last one failed.
    refreshing: Mutex<()>,
    down: std::sync::Mutex<Option<String>>,
    applied: watch::Sender<u64>,
    /// The last event that was said to be known here.
    said: AtomicU64,
    /// How often the process began to register, and the last time that it did so.
    joins_begun: AtomicU64,
    joined: Mutex<u64>,
}

impl Follower {
    pub(crate) fn new(catalog: Arc<Catalog>, state: Arc<State>) -> Follower {
        let (applied, _) = watch::channel(0);
        Follower {
            catalog,
            state,
            refreshing: Mutex::default(),
            down: std::sync::Mutex::default(),
            applied,
            said: AtomicU64::new(NEVER),
            joins_begun: AtomicU64::new(0),
            joined: Mutex::new(0),
        }
    }

    /// Reads the catalog so that no change is missed: registers, and reads again. Whoever commits a change either finds
    /// this process in the list and waits for it, or committed before that second reading. To be done before a view is
    /// served by: at the start, and after this process was cut off, which strikes it from the list.
    pub(crate) async fn join(&self) -> Result<(), RouterError> {
        let asked = self.joins_begun.load(Ordering::SeqCst);
        let mut joined = self.joined.lock().await;
        // One that began after this one was asked for does for it too.
        if *joined > asked {
            return Ok(());
        }
        let number = self.joins_begun.fetch_add(1, Ordering::SeqCst) + 1;
        self.refresh().await?;
        // Also if it says nothing new: what was said before may have been struck out.
        self.say_anyway().await?;
        self.refresh().await?;
        *joined = number;
        Ok(())
    }

    /// Says up to which event this process knows the catalog, if it has heard of one since: others may wait for it.
    async fn say(&self) -> Result<(), CatalogError> {
        // An event of before the program was started says nothing of what it was saved with.
        let fresh = self.state.fresh.load(Ordering::SeqCst);
        if !fresh || self.state.view().seq == self.said.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.say_anyway().await
    }

    async fn say_anyway(&self) -> Result<(), CatalogError> {
        // An embedded catalog is of one process, for which nobody waits.
        if matches!(self.catalog.target(), Target::Sqlite(_)) {
            return Ok(());
        }
        let seq = self.state.view().seq;
        self.catalog.heard(self.state.router, seq).await?;
        self.said.store(seq, Ordering::SeqCst);
        Ok(())
    }

    /// Says that nobody need wait for this process any more: it has no sessions.
    pub(crate) async fn leave(&self) {
        if self.said.load(Ordering::SeqCst) == NEVER {
            return;
        }
        let said =
            tokio::time::timeout(LEAVE_WAIT, self.catalog.forget_router(self.state.router, u64::MAX)).await;
        if !matches!(said, Ok(Ok(()))) {
            tracing::debug!(
                "the catalog does not know that this process has ended: others will wait for it once"
            );
        }
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    /// Why the catalog cannot be asked at the moment, if it cannot.
    pub(crate) fn down(&self) -> Option<String> {
        self.down.lock().expect("no panic while held").clone()
    }

    /// Reads the catalog because a shard has said that the map may be old.
    pub(crate) async fn read_for(&self, shard: &ShardId, upto: FenceEpoch) -> Result<(), RouterError> {
        // It may say so because this process was cut off, and is waited for by nobody.
        Box::pin(self.join()).await?;
        self.state.shard(shard).set_read_for(upto);
        Ok(())
    }

    /// Tells when events have been applied.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Brings the view up to what is published now.
    #[boxed]
    pub(crate) async fn refresh(&self) -> Result<(), RouterError> {
        let _one = self.refreshing.lock().await;
        let result = self.refresh_once().await;
        let mut down = self.down.lock().expect("no panic while held");
        let was_down = down.is_some();
        *down = result.as_ref().err().map(ToString::to_string);
        match (&result, was_down) {
            (Err(error), false) => {
                tracing::warn!(%error, "the catalog cannot be asked; going on with the map as last seen")
            }
            (Ok(()), true) => tracing::info!("the catalog answers again"),
            _ => {}
        }
        result
    }

    async fn refresh_once(&self) -> Result<(), RouterError> {
        if !self.state.fresh.load(Ordering::SeqCst) {
            self.reload().await?;
        }
        loop {
            let since = self.state.view().seq;
            match self.catalog.changes(since).await? {
                Changes::TooOld => self.reload().await?,
                Changes::Events(last, events) if events.is_empty() => {
                    self.applied.send_replace(last);
                    return Ok(());
                }
                Changes::Events(last, events) => self.apply(last, events).await?,
            }
        }
    }

    /// Reads everything anew.
    async fn reload(&self) -> Result<(), RouterError> {
        let snapshot = self.catalog.snapshot().await?;
        let next = View::from_snapshot(snapshot).map_err(damaged)?;
        let old = self.state.view();
        if old.cluster != uuid::Uuid::nil() && old.cluster != next.cluster {
            return Err(RouterError::Saved(format!(
                "it is of cluster {}, but the catalog is of cluster {}; check catalog.url, or remove the saved file",
                old.cluster, next.cluster
            )));
        }
        self.state.replace(next).map_err(damaged)?;
        self.state.fresh.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn apply(&self, last: u64, events: Vec<Event>) -> Result<(), RouterError> {
        let mut maps: Vec<MapName> = Vec::new();
        let mut shards = false;
        for event in &events {
            match event {
                Event::Reload { map } => maps.push(map.clone()),
                Event::Shards => shards = true,
                Event::Changed { .. }
                | Event::Dropped { .. }
                | Event::Dataset { .. }
                | Event::DatasetGone { .. }
                | Event::Journal { .. } => {}
            }
        }
        maps.sort();
        maps.dedup();
        let mut contents = Vec::new();
        for name in maps {
            match self.catalog.map(&name).await {
                Ok(record) => {
                    contents.push(MapContents { record, entries: self.catalog.entries(&name).await? })
                }
                // Dropped again meanwhile: the event that says so is in the list or will come.
                Err(CatalogError::NoSuchMap(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let shards = if shards { Some(self.catalog.shards().await?) } else { None };
        let change = |view: &mut View| {
            events.iter().try_for_each(|event| view.apply(event))?;
            contents.into_iter().try_for_each(|contents| view.set_map(contents))?;
            if let Some(shards) = shards {
                view.set_shards(shards);
            }
            view.seq = last;
            Ok(())
        };
        self.state.change(change).map_err(damaged)?;
        self.applied.send_replace(last);
        Ok(())
    }

    async fn follow_once(&self) -> Result<(), RouterError> {
        if self.said.load(Ordering::SeqCst) == NEVER && !matches!(self.catalog.target(), Target::Sqlite(_)) {
            // It was started while the catalog was away.
            return self.join().await;
        }
        self.refresh().await?;
        Ok(self.say().await?)
    }

    /// Follows until told to stop.
    pub(crate) async fn run(self: Arc<Follower>, poll: Duration, mut stopped: watch::Receiver<bool>) {
        // Others wait for an answer only so long, whatever is configured.
        let poll = poll.min(SILENT / 4);
        let mut listener: Option<Listener> = None;
        let mut can_say = true;
        while !*stopped.borrow() {
            if listener.is_none() {
                listener = self.catalog.listen().await.ok();
            }
            let wait = match self.follow_once().await {
                Ok(()) => {
                    can_say = true;
                    poll
                }
                Err(error) => {
                    // That the catalog cannot be read was logged where it was tried.
                    if std::mem::take(&mut can_say) && self.down().is_none() {
                        tracing::warn!(%error, "the catalog takes no writes; changes elsewhere wait for this process");
                    }
                    RETRY_AFTER
                }
            };
            tokio::select! {
                _ = hear(&mut listener) => {}
                _ = tokio::time::sleep(wait) => {}
                _ = stopped.changed() => {}
            }
        }
    }
}

/// Waits for a notification; for ever if there is no listener, since the timer looks too.
async fn hear(listener: &mut Option<Listener>) {
    match listener {
        None => std::future::pending().await,
        Some(open) => {
            if open.next().await.is_err() {
                *listener = None;
            }
        }
    }
}

fn damaged(error: polyshard_map::BuildError) -> RouterError {
    RouterError::Catalog(CatalogError::Damaged { what: "map", detail: error.to_string() })
}

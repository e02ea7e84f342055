//! Follows the catalog: hears of changes, polls as the safety net, and reads anew what it must.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{Catalog, CatalogError, Changes, Event, MapContents};
use polyshard_engine::Listener;
use polyshard_map::{MapName, ShardId};
use polyshard_shard::FenceEpoch;
use tokio::sync::{Mutex, watch};

use crate::RouterError;
use crate::state::State;
use crate::view::View;

/// The pause after the catalog could not be reached.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// One follower for a router.
pub(crate) struct Follower {
    catalog: Arc<Catalog>,
    state: Arc<State>,
    /// One refresh at a time; remembers why the last one failed.
    refreshing: Mutex<()>,
    down: std::sync::Mutex<Option<String>>,
    applied: watch::Sender<u64>,
}

impl Follower {
    pub(crate) fn new(catalog: Arc<Catalog>, state: Arc<State>) -> Follower {
        let (applied, _) = watch::channel(0);
        Follower { catalog, state, refreshing: Mutex::default(), down: std::sync::Mutex::default(), applied }
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
        self.refresh().await?;
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

    /// Follows until told to stop.
    pub(crate) async fn run(self: Arc<Follower>, poll: Duration, mut stopped: watch::Receiver<bool>) {
        let mut listener: Option<Listener> = None;
        while !*stopped.borrow() {
            if listener.is_none() {
                listener = self.catalog.listen().await.ok();
            }
            let wait = match self.refresh().await {
                Ok(()) => poll,
                Err(_) => RETRY_AFTER,
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

//! The router: locate, enter, call, retry.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{Catalog, DatasetRecord, ShardRecord, ShardSource};
use polyshard_engine as engine;
use polyshard_map::{BuildError, Entry, Key, KeyRange, LocateError, MapName, ShardId, State as EntryState};
use polyshard_meter::trace;
use polyshard_shard::{HelloState, RouterId, Shard, ShardError, ShardOptions};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::RouterError;
use crate::follow::Follower;
use crate::gate::{Access, Place};
use crate::meter::{RouterMeter, ShardCounts};
use crate::register::Registered;
use crate::saved;
use crate::shards::{Connect, Shards};
use crate::state::{ShardState, State};
use crate::ticket::Ticket;
use crate::view::{KnownMap, View};

/// Tries of a request that provably was not carried out.
const TRIES_MAX: u32 = 8;
/// The first pause between tries; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// How often a changed map is saved at most.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// How a router is set up.
#[derive(Clone)]
pub struct RouterOptions {
    /// Who it is; random.
    pub router: RouterId,
    /// How shards are opened.
    pub shard: ShardOptions,
    /// How long requests are held for a fence before they are let go again, if nobody says otherwise.
    pub hold_max: Duration,
    /// How long a request waits for a held range before it gets an error.
    pub wait_max: Duration,
    /// How often the catalog is asked without being told.
    pub poll: Duration,
    /// Where the map is saved, to start from when the catalog is away.
    pub saved: Option<PathBuf>,
}

/// What a router has to say of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterStatus {
    /// Who it is.
    pub router: RouterId,
    /// Tickets out.
    pub tickets: usize,
    /// Ranges held.
    pub holds: usize,
    /// Why the catalog cannot be asked, if it cannot.
    pub catalog_down: Option<String>,
    /// Whether the map was read from the catalog since the start.
    pub fresh: bool,
}

/// Routes requests of one process.
pub struct Router {
    state: Arc<State>,
    pub(crate) shards: Arc<Shards>,
    follower: Arc<Follower>,
    options: RouterOptions,
    pub(crate) registered: Registered,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

/// One who is counted in the gate, and what he has to do with there.
struct Counted {
    known: Arc<ShardState>,
    data: engine::Database,
    guard: engine::Guard,
    place: Place,
}

impl Router {
    /// Starts a router. It reads the catalog, or if that is away, the map as it was last saved.
    #[boxed]
    pub async fn start(
        catalog: Arc<Catalog>,
        connect: Connect,
        options: RouterOptions,
    ) -> Result<Router, RouterError> {
        let state = Arc::new(State::new(options.router, View::empty()));
        let follower = Arc::new(Follower::new(catalog, state.clone()));
        let shards =
            Shards::new(state.clone(), follower.clone(), connect, options.shard.clone(), options.hold_max);
        // From here on it is waited for by whoever changes what an older view gets wrong.
        if let Err(error) = follower.join().await {
            match &options.saved {
                // It was read, and can only not be written to; the follower tries again.
                Some(path)
                    if error.is_retryable()
                        && path.exists()
                        && state.fresh.load(std::sync::atomic::Ordering::SeqCst) =>
                {
                    tracing::warn!(%error, "catalog rejects writes; changes elsewhere do not wait for this process");
                }
                Some(path) if error.is_retryable() && path.exists() => {
                    let view = saved::load(path)?;
                    tracing::warn!(%error, seq = view.seq, "the catalog is away: starting with the map as last saved");
                    let fail = |error: BuildError| RouterError::Saved(error.to_string());
                    state.replace(view).map_err(fail)?;
                }
                _ => {
                    follower.leave().await;
                    return Err(error);
                }
            }
        }
        let (stop, stopped) = watch::channel(false);
        let barriers =
            crate::barrier::follow(follower.catalog(), state.clone(), options.poll, stopped.clone());
        let mut tasks =
            vec![tokio::spawn(follower.clone().run(options.poll, stopped.clone())), tokio::spawn(barriers)];
        if let Some(path) = options.saved.clone() {
            tasks.push(tokio::spawn(save_changes(state.clone(), follower.applied(), path, stopped)));
        }
        Ok(Router {
            state,
            shards,
            follower,
            options,
            registered: Registered::default(),
            stop,
            tasks: Mutex::new(tasks),
        })
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.follower.catalog()
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// What it believes now.
    pub fn view(&self) -> Arc<View> {
        self.state.view()
    }

    /// How often the view was replaced. What was derived from a view is right as long as the number that was read
    /// before that view is still this one: cheaper to ask than to hold the view.
    pub fn view_number(&self) -> u64 {
        self.state.view_number()
    }

    /// Where the driver of operations finds shards.
    pub fn shard_source(&self) -> Arc<dyn ShardSource> {
        self.shards.clone()
    }

    /// A dataset of a store. One that is not here may have come since; only the catalog can say that it has not.
    pub async fn dataset(&self, store: &str, name: &str) -> Result<Option<Arc<DatasetRecord>>, RouterError> {
        let key = (store.to_owned(), name.to_owned());
        if let Some(record) = self.state.view().datasets.get(&key) {
            return Ok(Some(record.clone()));
        }
        match Box::pin(self.follower.refresh()).await {
            Ok(()) => Ok(self.state.view().datasets.get(&key).cloned()),
            Err(down) => Err(RouterError::CatalogAway(down.to_string())),
        }
    }

    /// What it has to say of itself.
    pub fn status(&self) -> RouterStatus {
        RouterStatus {
            router: self.state.router,
            tickets: self.state.gate.tickets(),
            holds: self.state.gate.holds(),
            catalog_down: self.follower.down(),
            fresh: self.state.fresh.load(std::sync::atomic::Ordering::SeqCst),
        }
    }

    /// Brings the map up to what is published now.
    #[boxed]
    pub async fn refresh(&self) -> Result<(), RouterError> {
        self.follower.refresh().await?;
        self.shards.forget_missing().await;
        Ok(())
    }

    /// Opens a database that is to become a shard.
    pub async fn open_candidate(&self, record: &ShardRecord) -> Result<Arc<Shard>, ShardError> {
        self.shards.open_candidate(record).await
    }

    /// Takes such a database in once it is in the catalog.
    pub async fn adopt(&self, record: ShardRecord, shard: Arc<Shard>) {
        let id = record.id.clone();
        self.shards.adopt(record, shard).await;
        // The next change may name it, and goes by the view.
        if !self.view().shards.contains_key(&id)
            && let Err(error) = self.refresh().await
        {
            tracing::debug!(%error, shard = %id, "the catalog is read again later");
        }
    }

    /// A shard's handle for administration; requests use [`Router::enter`].
    #[boxed]
    pub async fn administer(&self, id: &ShardId) -> Result<Arc<Shard>, ShardError> {
        self.shards.get(id).await
    }

    /// Leave to touch the one shard that has all the keys. Waits, for a bounded time, while a range is being
    /// switched.
    pub async fn enter(&self, map: &MapName, keys: &[Key], access: Access) -> Result<Ticket, RouterError> {
        let sample = self.state.meter.enter(map, keys);
        let deadline = Instant::now() + self.options.wait_max;
        loop {
            let view = self.state.view();
            let (shard, ranges) = match locate(&view, map, keys, access) {
                Ok(found) => found,
                Err(error @ (RouterError::Locate(LocateError::Gap { .. }) | RouterError::NoSuchMap(_))) => {
                    // What is not here may have come since; only the catalog can say that it has not.
                    match Box::pin(self.follower.refresh()).await {
                        Ok(()) if self.state.view().seq != view.seq => continue,
                        Ok(()) => return Err(error),
                        Err(down) => return Err(RouterError::CatalogAway(down.to_string())),
                    }
                }
                Err(error) => return Err(error),
            };
            if let Some(mut ticket) = self.ticket(&view, map, &shard, ranges.into(), access, deadline).await?
            {
                ticket.sample = sample;
                return Ok(ticket);
            }
        }
    }

    /// A view that has the map: one that is not here may have come since, and only the catalog can say that it
    /// has not.
    pub(crate) async fn view_with(&self, map: &MapName) -> Result<Arc<View>, RouterError> {
        let view = self.state.view();
        if view.maps.contains_key(map) {
            return Ok(view);
        }
        match self.follower.refresh().await {
            Ok(()) => Ok(self.state.view()),
            Err(down) => Err(RouterError::CatalogAway(down.to_string())),
        }
    }

    /// Tickets for every shard that has a part of the range, under one view of the map.
    pub async fn enter_range(
        &self,
        map: &MapName,
        range: &KeyRange,
        access: Access,
    ) -> Result<Vec<Ticket>, RouterError> {
        let deadline = Instant::now() + self.options.wait_max;
        'again: loop {
            let view = self.view_with(map).await?;
            let known = view.maps.get(map).ok_or_else(|| RouterError::NoSuchMap(map.clone()))?;
            let mut parts: std::collections::BTreeMap<ShardId, Vec<KeyRange>> = Default::default();
            let mut archived = None;
            for entry in known.map.entries(range) {
                if entry.archive().is_some() {
                    archived.get_or_insert(entry);
                    continue;
                }
                check_state(&view, known, &entry.shard, entry.state, &entry.range, access)?;
                if let Some(part) = entry.range.intersect(range) {
                    parts.entry(entry.shard.clone()).or_default().push(part);
                }
            }
            if let (Some(entry), true) = (archived, parts.is_empty()) {
                return Err(is_archived(known, &entry));
            }
            let mut tickets = Vec::with_capacity(parts.len());
            for (shard, ranges) in parts {
                match self.ticket(&view, map, &shard, ranges.into(), access, deadline).await? {
                    Some(ticket) => tickets.push(ticket),
                    None => continue 'again,
                }
            }
            return Ok(tickets);
        }
    }

    /// A ticket for one shard's part of the range.
    pub async fn enter_shard(
        &self,
        map: &MapName,
        range: &KeyRange,
        shard: &ShardId,
        access: Access,
    ) -> Result<Ticket, RouterError> {
        let deadline = Instant::now() + self.options.wait_max;
        loop {
            let view = self.view_with(map).await?;
            let known = view.maps.get(map).ok_or_else(|| RouterError::NoSuchMap(map.clone()))?;
            let mut ranges = Vec::new();
            let mut archived = None;
            for entry in known.map.entries(range).filter(|entry| entry.shard == *shard) {
                if entry.archive().is_some() {
                    archived.get_or_insert(entry);
                    continue;
                }
                check_state(&view, known, shard, entry.state, &entry.range, access)?;
                ranges.extend(entry.range.intersect(range));
            }
            let is_elsewhere = || known.map.entries(range).any(|entry| entry.archive().is_none());
            if let Some(entry) = archived.filter(|_| ranges.is_empty() && !is_elsewhere()) {
                return Err(is_archived(known, &entry));
            }
            if let Some(ticket) = self.ticket(&view, map, shard, ranges.into(), access, deadline).await? {
                return Ok(ticket);
            }
        }
    }

    /// One ticket under the given view; none if the view has changed and must be looked at again.
    pub(crate) async fn ticket(
        &self,
        view: &Arc<View>,
        map: &MapName,
        shard: &ShardId,
        ranges: Arc<[KeyRange]>,
        access: Access,
        deadline: Instant,
    ) -> Result<Option<Ticket>, RouterError> {
        let known = self.state.shard(shard);
        let open = self.shards.serving(shard).filter(|_| known.is_learnt());
        let data = match open.as_ref().and_then(|shard| shard.open_data()) {
            Some(data) => data.clone(),
            // Boxed: the usual case needs no room for it.
            None => match Box::pin(self.make_ready(shard)).await? {
                Some(data) => data,
                None => return Ok(None),
            },
        };
        // The generation is taken before the ticket is counted: what voids it later is then seen.
        let guard = known.generation.guard();
        let Some(place) = self.state.gate.enter(map, &ranges, shard, access) else {
            self.state.meter.waits.add_one();
            let passable = Box::pin(self.state.gate.passable(map, &ranges, shard, access));
            return match tokio::time::timeout_at(deadline, passable).await {
                Ok(()) => Ok(None),
                Err(_) => Err(RouterError::Moving(map.clone())),
            };
        };
        let counted = Counted { known, data, guard, place };
        Ok(self.counted_ticket(view, map, shard, ranges, access, counted))
    }

    /// The same where the shard is open, what it has to say is known, and the ranges are not held.
    pub(crate) fn ticket_now(
        &self,
        view: &Arc<View>,
        map: &MapName,
        shard: &ShardId,
        ranges: Arc<[KeyRange]>,
        access: Access,
    ) -> Option<Ticket> {
        let known = self.state.shard(shard);
        let data = self.shards.serving(shard).filter(|_| known.is_learnt())?.open_data()?.clone();
        let guard = known.generation.guard();
        let place = self.state.gate.enter(map, &ranges, shard, access)?;
        let counted = Counted { known, data, guard, place };
        self.counted_ticket(view, map, shard, ranges, access, counted)
    }

    /// The ticket of one who is counted; none if the view has changed and must be looked at again.
    fn counted_ticket(
        &self,
        view: &Arc<View>,
        map: &MapName,
        shard: &ShardId,
        ranges: Arc<[KeyRange]>,
        access: Access,
        counted: Counted,
    ) -> Option<Ticket> {
        let Counted { known, data, guard, place } = counted;
        let timed = known.meter.enter(access);
        let epoch = view.maps.get(map).map(|known| known.map.epoch()).unwrap_or(polyshard_map::Epoch::ZERO);
        let ticket = Ticket {
            state: self.state.clone(),
            place,
            map: map.clone(),
            shard: shard.clone(),
            ranges,
            epoch,
            access,
            data,
            guard,
            known,
            since: timed.then(Instant::now),
            sample: None,
            _span: trace::on_shard(shard.as_str(), map.as_str(), access.as_str()),
        };
        let same = |view: &View| view.maps.get(map).map(Arc::as_ptr);
        (self.state.is_view(view) || same(&self.state.view()) == same(view)).then_some(ticket)
    }

    /// Opens a shard for its data, with all that must be known of it first; none if the map had to be read again, and
    /// now has been.
    async fn make_ready(&self, shard: &ShardId) -> Result<Option<engine::Database>, RouterError> {
        let fail = |error| RouterError::Shard { shard: shard.clone(), error };
        let opened = self.shards.get_serving(shard).await.map_err(fail)?;
        let hello: Arc<dyn HelloState> = self.state.clone();
        let ready = async {
            let data = opened.data(&hello).await?.clone();
            if !self.state.shard(shard).is_learnt() {
                opened.teach(self.state.as_ref()).await?;
            }
            Ok(data)
        };
        match ready.await.map_err(fail) {
            Ok(data) => Ok(Some(data)),
            Err(error) if is_old_map(&error) && self.heal(&error).await => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A ticket for more keys inside a transaction that already has one. It never waits: a range that is being
    /// switched is an error at once, since waiting while holding another session could deadlock.
    pub async fn enter_within(&self, first: &Ticket, keys: &[Key]) -> Result<Ticket, RouterError> {
        let view = self.state.view();
        let (shard, ranges) = locate(&view, &first.map, keys, first.access)?;
        if shard != first.shard {
            return Err(RouterError::CrossShard(vec![first.shard.clone(), shard]));
        }
        let moving = || RouterError::Moving(first.map.clone());
        let covered = ranges.iter().all(|range| first.ranges.iter().any(|mine| mine.covers(range)));
        if !covered && self.state.gate.is_held(&first.map, &ranges, &shard, first.access) {
            return Err(moving());
        }
        let now = Instant::now();
        self.ticket(&view, &first.map, &shard, ranges.into(), first.access, now).await?.ok_or_else(moving)
    }

    /// Runs work on the shard that has the keys; again, elsewhere if need be, when it provably was not done.
    pub async fn call<T>(
        &self,
        map: &MapName,
        keys: &[Key],
        access: Access,
        work: impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
    ) -> Result<T, RouterError> {
        self.call_if(map, keys, access, || Ok(()), work).await
    }

    /// Likewise, if a check says so once the ticket is there.
    pub async fn call_if<T>(
        &self,
        map: &MapName,
        keys: &[Key],
        access: Access,
        check: impl Fn() -> Result<(), RouterError>,
        work: impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
    ) -> Result<T, RouterError> {
        let mut tries = 0;
        loop {
            let error = match self.enter(map, keys, access).await {
                Ok(ticket) => match check().map(|()| work(&ticket))?.await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => RouterError::Engine(error),
                },
                Err(error) => error,
            };
            tries += 1;
            // Who has waited for a range that is being switched has waited long enough.
            let waited = matches!(error, RouterError::Moving(_));
            if tries >= TRIES_MAX || waited || !self.heal(&error).await {
                return Err(error);
            }
            self.state.meter.retries.add_one();
            tokio::time::sleep(RETRY_AFTER * (1 << tries.min(6))).await;
        }
    }

    /// What was counted of all requests.
    pub fn meter(&self) -> &RouterMeter {
        &self.state.meter
    }

    /// What the engine of one shard has done; none if it was not used yet.
    pub fn engine_stats(&self, id: &ShardId) -> Option<engine::Stats> {
        self.shards.opened(id)?.stats()
    }

    /// Requests to shards so far; none if nobody counts them.
    pub fn requests(&self) -> Option<u64> {
        let view = self.state.view();
        let entered = || view.shards.keys().map(|id| self.state.shard(id).meter.entered()).sum();
        polyshard_meter::is_counting().then(entered)
    }

    /// What was counted of requests to one shard.
    pub fn shard_counts(&self, id: &ShardId) -> ShardCounts {
        self.state.shard(id).meter.counts()
    }

    pub(crate) fn wait_max(&self) -> Duration {
        self.options.wait_max
    }

    pub(crate) fn is_held(
        &self,
        map: &MapName,
        ranges: &[KeyRange],
        shard: &ShardId,
        access: Access,
    ) -> bool {
        self.state.gate.is_held(map, ranges, shard, access)
    }

    /// Whether a failure may be tried again; learns what the failure says first.
    pub async fn heal(&self, error: &RouterError) -> bool {
        let refused = refusal(error);
        if let Some(ShardError::OldMap { shard, upto }) = refused {
            return self.follower.read_for(shard, *upto).await.is_ok();
        }
        if let Some(ShardError::IncarnationChanged { .. } | ShardError::WrongDatabase { .. }) = refused {
            // The catalog knows which shard is meant now; a router that cannot ask it must not guess.
            return self.follower.refresh().await.is_ok();
        }
        error.is_retryable()
    }

    /// Ends all sessions and tasks, and saves the map.
    #[boxed]
    pub async fn close(&self) {
        // Nobody listening means that the tasks have ended.
        let _ = self.stop.send(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic while held"));
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the router failed");
            }
        }
        self.shards.close().await;
        self.follower.leave().await;
    }
}

/// Why a shard, or the introduction of a session to it, refused.
fn refusal(error: &RouterError) -> Option<&ShardError> {
    match error {
        RouterError::Engine(engine::Error::SessionRefused(inner))
        | RouterError::Shard { error: ShardError::Engine(engine::Error::SessionRefused(inner)), .. } => {
            inner.downcast_ref::<ShardError>()
        }
        RouterError::Shard { error, .. } => Some(error),
        _ => None,
    }
}

fn is_old_map(error: &RouterError) -> bool {
    matches!(refusal(error), Some(ShardError::OldMap { .. }))
}

/// The one shard of some keys, and their placements.
pub(crate) fn locate(
    view: &View,
    map: &MapName,
    keys: &[Key],
    access: Access,
) -> Result<(ShardId, Vec<KeyRange>), RouterError> {
    let known = view.maps.get(map).ok_or_else(|| RouterError::NoSuchMap(map.clone()))?;
    let mut shards: Vec<ShardId> = Vec::new();
    let mut ranges = Vec::with_capacity(keys.len());
    for key in keys {
        let located = known.map.locate(key)?;
        let point = KeyRange::point(known.map.placement(key)?);
        if located.state() == EntryState::Offline && located.lock().is_some() {
            let entry = Entry { range: point.clone(), ..located.entry() };
            if entry.archive().is_some() {
                return Err(is_archived(known, &entry));
            }
        }
        check_state(view, known, located.shard(), located.state(), &point, access)?;
        if !shards.contains(located.shard()) {
            shards.push(located.shard().clone());
        }
        ranges.push(point);
    }
    match shards.len() {
        1 => Ok((shards.remove(0), ranges)),
        0 => Err(RouterError::CrossShard(vec![])),
        _ => Err(RouterError::CrossShard(shards)),
    }
}

/// The refusal of a request for rows that are in an archive.
pub(crate) fn is_archived(known: &KnownMap, entry: &Entry) -> RouterError {
    let definition = known.map.definition();
    let (range, name) = (definition.describe_range(&entry.range), entry.archive().unwrap_or_default());
    RouterError::Offline(format!(
        "{range} of map {} is archived as {name} ('polyshard archive restore {name}' brings it back), and",
        definition.name()
    ))
}

/// Whether the range and its shard allow what is asked.
pub(crate) fn check_state(
    view: &View,
    known: &KnownMap,
    shard: &ShardId,
    state: EntryState,
    range: &KeyRange,
    access: Access,
) -> Result<(), RouterError> {
    let of_shard = view.shards.get(shard).map_or(EntryState::Online, |record| record.state);
    let range = || {
        format!("{} of map {}", known.map.definition().describe_range(range), known.map.definition().name())
    };
    for (state, what) in [(state, &range as &dyn Fn() -> String), (of_shard, &|| format!("shard {shard}"))] {
        match (state, access) {
            (EntryState::Offline, _) => return Err(RouterError::Offline(what())),
            (EntryState::ReadOnly, Access::Write) => return Err(RouterError::ReadOnly(what())),
            _ => {}
        }
    }
    Ok(())
}

/// Saves the map after changes, not too often, and once more at the end.
async fn save_changes(
    state: Arc<State>,
    mut applied: watch::Receiver<u64>,
    path: PathBuf,
    mut stopped: watch::Receiver<bool>,
) {
    let mut saved_seq = None;
    let mut save = |state: &State| {
        let view = state.view();
        if saved_seq == Some(view.seq) || view.cluster.is_nil() {
            return;
        }
        match saved::save(&path, &view) {
            Ok(()) => saved_seq = Some(view.seq),
            Err(error) => {
                tracing::warn!(%error, "the map could not be saved for a start without the catalog")
            }
        }
    };
    loop {
        tokio::task::block_in_place(|| save(&state));
        let pause = async {
            tokio::time::sleep(SAVE_EVERY).await;
            // An error means that the follower has ended: then the stop is near.
            applied.changed().await
        };
        tokio::select! {
            _ = pause => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
    }
    save(&state);
}

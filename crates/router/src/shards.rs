//! Opens shards when they are first needed, again when their address changes, and keeps their fence tasks.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{ShardRecord, ShardSource};
use polyshard_engine::Target;
use polyshard_map::ShardId;
use polyshard_shard::{Shard, ShardError, ShardOptions};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::fences::FenceTask;
use crate::follow::Follower;
use crate::state::State;

/// Turns a shard's record into an address with its password.
pub type Connect = Arc<dyn Fn(&ShardRecord) -> Result<Target, ShardError> + Send + Sync>;

/// After a failure to open, callers get the same answer for this long, instead of each trying in turn.
const FAILURE_KEPT: Duration = Duration::from_millis(500);

pub(crate) struct Shards {
    /// For the fence tasks, which must not keep it alive.
    me: Weak<Shards>,
    state: Arc<State>,
    follower: Arc<Follower>,
    connect: Connect,
    options: ShardOptions,
    hold_max: Duration,
    slots: Mutex<BTreeMap<ShardId, Arc<Slot>>>,
}

/// A shard at one address.
struct Slot {
    record: Arc<ShardRecord>,
    open: OnceCell<OpenShard>,
    failure: Mutex<Option<(Instant, ShardError)>>,
}

struct OpenShard {
    shard: Arc<Shard>,
    fences: Mutex<Option<FenceTask>>,
}

impl Slot {
    /// Whether the slot still leads to the shard that the record describes.
    fn is_for(&self, record: &Arc<ShardRecord>) -> bool {
        let (mine, theirs) = (&self.record, record);
        // Views share the records that have not changed.
        Arc::ptr_eq(mine, theirs)
            || mine.url == theirs.url
                && mine.password == theirs.password
                && mine.incarnation == theirs.incarnation
    }
}

impl Shards {
    pub(crate) fn new(
        state: Arc<State>,
        follower: Arc<Follower>,
        connect: Connect,
        options: ShardOptions,
        hold_max: Duration,
    ) -> Arc<Shards> {
        Arc::new_cyclic(|me| Shards {
            me: me.clone(),
            state,
            follower,
            connect,
            options,
            hold_max,
            slots: Mutex::default(),
        })
    }

    /// Opens a database that is not in the list yet.
    #[boxed]
    pub(crate) async fn open_candidate(&self, record: &ShardRecord) -> Result<Arc<Shard>, ShardError> {
        let target = (self.connect)(record)?;
        Ok(Arc::new(Shard::open(record.id.clone(), target, self.options.clone()).await?))
    }

    /// Opens a database that is in the list, and so was a shard already: it must still be that one. A file that is gone
    /// is not made anew, which would serve no rows for those that were there.
    #[boxed]
    async fn open_known(&self, record: &ShardRecord) -> Result<Arc<Shard>, ShardError> {
        let target = (self.connect)(record)?;
        if let Target::Sqlite(file) = &target
            && !file.path.exists()
        {
            let why = format!("there is no file {}", file.path.display());
            return Err(ShardError::Lost { shard: record.id.clone(), why });
        }
        let shard = Arc::new(Shard::open(record.id.clone(), target, self.options.clone()).await?);
        match shard.prove(self.state.view().cluster, record.incarnation).await {
            Ok(()) => Ok(shard),
            Err(error) => {
                shard.close().await;
                Err(error)
            }
        }
    }

    /// Takes a candidate in once it is in the list.
    pub(crate) async fn adopt(&self, record: ShardRecord, shard: Arc<Shard>) {
        let open = OpenShard { shard, fences: Mutex::new(None) };
        let slot = Slot {
            record: Arc::new(record),
            open: OnceCell::new_with(Some(open)),
            failure: Mutex::default(),
        };
        let id = slot.record.id.clone();
        let old = self.slots.lock().expect("no panic while held").insert(id, Arc::new(slot));
        if let Some(old) = old {
            close(old).await;
        }
    }

    /// The shard, opened if need be.
    #[boxed]
    pub(crate) async fn get(&self, id: &ShardId) -> Result<Arc<Shard>, ShardError> {
        let slot = self.slot(id)?;
        if let Some(open) = slot.open.get() {
            return Ok(open.shard.clone());
        }
        let open = slot.open.get_or_try_init(|| async {
            // Asked by each caller when it is his turn: those who queued behind a failure do not try it again.
            let recent = slot.failure.lock().expect("no panic while held").clone();
            if let Some((at, error)) = recent
                && at.elapsed() < FAILURE_KEPT
            {
                return Err(error);
            }
            let opened = self.open_known(&slot.record).await;
            if let Err(error) = &opened {
                *slot.failure.lock().expect("no panic while held") = Some((Instant::now(), error.clone()));
            }
            Ok(OpenShard { shard: opened?, fences: Mutex::new(None) })
        });
        Ok(open.await?.shard.clone())
    }

    /// The shard, with the task that answers its fences running: needed before data is touched.
    pub(crate) async fn get_serving(&self, id: &ShardId) -> Result<Arc<Shard>, ShardError> {
        let shard = self.get(id).await?;
        let slot = self.slot(id)?;
        if let Some(open) = slot.open.get() {
            let mut fences = open.fences.lock().expect("no panic while held");
            if fences.is_none() {
                *fences = Some(FenceTask::start(
                    self.state.clone(),
                    open.shard.clone(),
                    self.me.clone(),
                    self.follower.clone(),
                    self.hold_max,
                ));
            }
        }
        Ok(shard)
    }

    /// The shard, if it is open and the task that answers its fences runs.
    pub(crate) fn serving(&self, id: &ShardId) -> Option<Arc<Shard>> {
        let slot = self.slot(id).ok()?;
        let open = slot.open.get()?;
        let serves = open.fences.lock().expect("no panic while held").is_some();
        serves.then(|| open.shard.clone())
    }

    /// The shard, if it is open.
    pub(crate) fn opened(&self, id: &ShardId) -> Option<Arc<Shard>> {
        let slots = self.slots.lock().expect("no panic while held");
        slots.get(id)?.open.get().map(|open| open.shard.clone())
    }

    fn slot(&self, id: &ShardId) -> Result<Arc<Slot>, ShardError> {
        let view = self.state.view();
        let Some(record) = view.shards.get(id) else {
            return Err(ShardError::WrongDatabase {
                wanted: format!("shard {id}"),
                found: "not in the catalog".into(),
            });
        };
        let mut slots = self.slots.lock().expect("no panic while held");
        if let Some(slot) = slots.get(id)
            && slot.is_for(record)
        {
            return Ok(slot.clone());
        }
        let slot =
            Arc::new(Slot { record: record.clone(), open: OnceCell::new(), failure: Mutex::default() });
        if let Some(old) = slots.insert(id.clone(), slot.clone()) {
            // Whoever still uses the old address keeps it until he is done.
            tokio::spawn(close(old));
        }
        Ok(slot)
    }

    /// Closes shards that have left the list.
    pub(crate) async fn forget_missing(&self) {
        let view = self.state.view();
        let gone: Vec<Arc<Slot>> = {
            let mut slots = self.slots.lock().expect("no panic while held");
            let ids: Vec<ShardId> =
                slots.keys().filter(|id| !view.shards.contains_key(*id)).cloned().collect();
            ids.into_iter().filter_map(|id| slots.remove(&id)).collect()
        };
        for slot in gone {
            close(slot).await;
        }
    }

    /// Closes all.
    pub(crate) async fn close(&self) {
        let slots = std::mem::take(&mut *self.slots.lock().expect("no panic while held"));
        futures_util::future::join_all(slots.into_values().map(close)).await;
    }
}

async fn close(slot: Arc<Slot>) {
    if let Some(open) = slot.open.get() {
        let fences = open.fences.lock().expect("no panic while held").take();
        if let Some(fences) = fences {
            fences.stop().await;
        }
        open.shard.close().await;
    }
}

impl ShardSource for Shards {
    fn shard<'a>(
        &'a self,
        id: &'a ShardId,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<Shard>, ShardError>> + Send + 'a>> {
        Box::pin(self.get(id))
    }
}

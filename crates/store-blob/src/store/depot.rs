//! Makes sure that all processes of a cluster keep objects in one place, and that no other cluster does.
//!
//! Every place has a mark that names its cluster and has a number of its own, and the catalog keeps the mark of the
//! cluster's place. Nobody stores or removes objects in a place with another mark: a folder that other processes do not
//! see, or a place of another cluster. Whoever takes a place over gives it a new mark, so that the former owner stops.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use polyshard_store::{Body, Error, ErrorKind, Reason};
use serde::{Deserialize, Serialize};

use super::{BlobStore, StoreError};
use crate::carrier::{claimed, forget_claim};
use crate::objects::Mark;

/// Whose settings those of the objects are: no account is called so.
const OWNER: &str = "$objects";
/// After which time a process that hears of no other one is alone: they tell of themselves every 3 seconds.
const ALONE_AFTER_MS: i64 = 10_000;
/// How often the log says that a place is not the right one.
const WARN_EVERY_MS: i64 = 60_000;
/// How long a mark is believed that was read: the former owner of a place that was taken over stops within this time.
const MARK_KNOWN_MS: i64 = 10_000;

/// What the catalog keeps about the place of all objects.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct DepotBody {
    /// Its mark.
    mark: Option<String>,
    /// Whether it was empty when this cluster began with it, or was handed over: then all that is in it is the
    /// cluster's.
    #[serde(default)]
    is_own: bool,
}

impl Body for DepotBody {
    const FORMAT: u32 = 1;
}

/// What a process knows of its place.
pub(super) struct Depot {
    started_ms: i64,
    warned_ms: AtomicI64,
    /// The mark of this process's place, and when it was read.
    seen: Mutex<Option<(String, i64)>>,
}

impl Depot {
    pub fn new(now_ms: i64) -> Depot {
        Depot { started_ms: now_ms, warned_ms: AtomicI64::new(i64::MIN), seen: Mutex::default() }
    }

    /// The mark, if it was read lately.
    fn seen(&self, now_ms: i64) -> Option<String> {
        let seen = self.seen.lock().expect("no panic while held");
        let is_new = |(_, read_ms): &&(String, i64)| (0..MARK_KNOWN_MS).contains(&(now_ms - read_ms));
        seen.as_ref().filter(is_new).map(|(mark, _)| mark.clone())
    }
}

/// Why a place is not this cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotOurs {
    /// It is new, and other processes may have another one.
    New,
    /// It has the mark of another place of this cluster, or of a copy of this cluster.
    Another,
    /// It is another cluster's.
    Cluster,
    /// An operator has given it away, and other processes may run.
    GivenAway,
    /// A cluster is being restored into it.
    Restoring,
}

impl NotOurs {
    /// For the log.
    fn remedy(self) -> &'static str {
        match self {
            NotOurs::New => {
                "other server processes may keep the objects of blobs in another place; set blob.objects to one place \
                 for all processes (a folder must be one that all of them see); to move to a new place, stop all \
                 processes but one, and wait 10 seconds"
            }
            NotOurs::Another => {
                "the objects of blobs are in another place, or a copy of this cluster has taken this one; set \
                 blob.objects to the place of this cluster, or write the text take-over into the object \
                 polyshard-objects of the place, with one process running"
            }
            NotOurs::Cluster => {
                "the place of objects belongs to another cluster; set blob.objects to a place of this cluster, or, if \
                 the other one is gone for good, write the text take-over into its object polyshard-objects, with one \
                 process running"
            }
            NotOurs::GivenAway => {
                "the place of objects is taken over once this process is the only one for 10 seconds"
            }
            NotOurs::Restoring => {
                "a cluster is being restored into the place of objects; let the restoration end, or write the text \
                 take-over into its object polyshard-objects"
            }
        }
    }
}

impl BlobStore {
    /// Refuses to store an object where other processes would not find it, or in a place of another cluster.
    pub(super) async fn check_depot(&self) -> Result<(), StoreError> {
        let known: DepotBody = self.kit.settings(OWNER)?;
        if known.mark.is_some() && known.mark == self.depot.seen(self.kit.now_ms()) {
            return Ok(());
        }
        match self.look_at_depot().await? {
            Ok(_) => Ok(()),
            Err(why) => {
                self.warn_of_depot(why.remedy());
                let message = match why {
                    NotOurs::New | NotOurs::Another => {
                        "blobs of this size cannot be stored now: the servers do not share a place for them"
                    }
                    _ => "blobs of this size cannot be stored now: their place belongs to somebody else",
                };
                Err(StoreError::Kit(Error::new(ErrorKind::OutOfService(Reason::Offline), message)))
            }
        }
    }

    /// Reads the mark of the place. A place of nobody becomes this cluster's, if that is safe.
    async fn look_at_depot(&self) -> Result<Result<DepotBody, NotOurs>, StoreError> {
        let mut known: DepotBody = self.kit.settings(OWNER)?;
        let found = self.options.objects.mark().await?;
        if known.mark.as_deref() != found.as_ref().map(Mark::as_str) {
            // Another process may just have changed it.
            self.kit.router().refresh().await.map_err(Error::from)?;
            known = self.kit.settings(OWNER)?;
        }
        let cluster = self.kit.router().view().cluster;
        let Some(mark) = found else {
            if known.mark.is_some() && !self.may_take_over() {
                return Ok(Err(NotOurs::New));
            }
            let is_own = self.options.objects.datasets().await?.is_empty();
            let mark = self.options.objects.set_mark(&self.new_mark()).await?;
            if !mark.is_of(cluster) {
                return Ok(Err(NotOurs::Cluster));
            }
            return self.take_depot(&known, mark, is_own).await.map(Ok);
        };
        if known.mark.as_deref() == Some(mark.as_str()) {
            self.saw(&mark);
            return Ok(Ok(known));
        }
        if mark.is_given_away() {
            if !self.may_take_over() {
                return Ok(Err(NotOurs::GivenAway));
            }
            let mark = self.options.objects.replace_mark(&self.new_mark()).await?;
            let is_ours = mark.is_of(cluster);
            return if is_ours {
                self.take_depot(&known, mark, true).await.map(Ok)
            } else {
                Ok(Err(NotOurs::Cluster))
            };
        }
        if !mark.is_of(cluster) {
            return Ok(Err(NotOurs::Cluster));
        }
        if mark.is_restoring() {
            return Ok(Err(NotOurs::Restoring));
        }
        let data = self.kit.data_dir();
        if claimed(data).as_ref() == Some(&mark) {
            let taken = self.take_depot(&known, mark, true).await?;
            forget_claim(data);
            return Ok(Ok(taken));
        }
        if known.mark.is_none() {
            // Another process has just marked it.
            let is_own = self.options.objects.datasets().await?.is_empty();
            return self.take_depot(&known, mark, is_own).await.map(Ok);
        }
        Ok(Err(NotOurs::Another))
    }

    fn new_mark(&self) -> Mark {
        Mark::new(self.kit.router().view().cluster, self.kit.random(), self.kit.random())
    }

    fn saw(&self, mark: &Mark) {
        let seen = Some((mark.as_str().to_owned(), self.kit.now_ms()));
        *self.depot.seen.lock().expect("no panic while held") = seen;
    }

    /// Has the catalog keep the mark of the place.
    async fn take_depot(&self, known: &DepotBody, mark: Mark, is_own: bool) -> Result<DepotBody, StoreError> {
        let (before, new) = (known.mark.clone(), Some(mark.as_str().to_owned()));
        let edit = |body: &mut DepotBody| {
            // Another process may have begun meanwhile.
            if body.mark == before {
                *body = DepotBody { mark: new.clone(), is_own };
            }
        };
        self.kit.change_settings(OWNER, edit).await?;
        let kept: DepotBody = self.kit.settings(OWNER)?;
        if kept.mark != new {
            return Err(StoreError::Kit(Error::new(ErrorKind::Busy, "the place of objects was just chosen")));
        }
        self.saw(&mark);
        tracing::info!(
            place = self.options.objects.url(),
            mark = mark.as_str(),
            is_own,
            "place of objects taken"
        );
        Ok(kept)
    }

    /// A new place is the right one when the operator has chosen it; but not if another process has a place of its own.
    fn may_take_over(&self) -> bool {
        let is_heard = self.kit.now_ms() - self.depot.started_ms >= ALONE_AFTER_MS;
        is_heard && self.kit.host().quotas().processes() <= 1
    }

    /// Whether all objects in the place are those of this cluster. The mark is read anew each time: what is removed
    /// then cannot be brought back.
    pub(super) async fn has_depot_alone(&self) -> Result<bool, StoreError> {
        if self.kit.settings::<DepotBody>(OWNER)?.mark.is_none() {
            // This cluster has stored nothing yet, so what is in the place is not its own.
            return Ok(false);
        }
        match self.look_at_depot().await? {
            Ok(known) if known.is_own => Ok(true),
            Ok(_) => {
                self.warn_of_depot(
                    "objects of deleted containers are kept, since the place had objects before this cluster began \
                     with it; if nobody else uses it, write the text take-over into its object polyshard-objects",
                );
                Ok(false)
            }
            Err(why) => {
                self.warn_of_depot(why.remedy());
                Ok(false)
            }
        }
    }

    fn warn_of_depot(&self, what: &str) {
        let (now, before) = (self.kit.now_ms(), self.depot.warned_ms.load(Ordering::Relaxed));
        if now.saturating_sub(before) < WARN_EVERY_MS {
            return;
        }
        self.depot.warned_ms.store(now, Ordering::Relaxed);
        tracing::warn!(place = self.options.objects.url(), "{what}");
    }
}

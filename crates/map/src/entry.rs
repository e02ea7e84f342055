//! One entry of a map: a range of placement bytes, the shard it is on, and its state.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{self, ChangeError};
use crate::ids::{Epoch, GroupName, ShardId};
use crate::range::KeyRange;

/// Longest lock owner: room for a host, a process and an operation id.
pub const LOCK_OWNER_BYTES_MAX: usize = 128;
/// What the owner of a range's lock begins with when its rows are in an archive; the name of the archive follows.
pub const ARCHIVED: &str = "archived:";

/// What may be done with the shardlets of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Read and write.
    Online,
    /// Read only.
    ReadOnly,
    /// Neither.
    Offline,
}

impl State {
    /// The word in JSON, tables and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Online => "online",
            State::ReadOnly => "read_only",
            State::Offline => "offline",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<State, String> {
        [State::Online, State::ReadOnly, State::Offline]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a state: use online, read_only or offline"))
    }
}

/// Who holds an entry, and until when. An expired lock counts as none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredLock")]
pub struct Lock {
    owner: String,
    until_ms: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLock {
    owner: String,
    until_ms: i64,
}

impl TryFrom<StoredLock> for Lock {
    type Error = ChangeError;
    fn try_from(stored: StoredLock) -> Result<Lock, ChangeError> {
        Lock::new(stored.owner, stored.until_ms)
    }
}

impl Lock {
    /// A lock of this owner (1 to 128 bytes) until the given moment, in milliseconds since 1970.
    pub fn new(owner: String, until_ms: i64) -> Result<Lock, ChangeError> {
        if owner.is_empty() || owner.len() > LOCK_OWNER_BYTES_MAX {
            let reason = error::owner_too_long();
            return Err(ChangeError::BadLock { owner: owner.chars().take(80).collect(), reason });
        }
        Ok(Lock { owner, until_ms })
    }

    /// Who holds it.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// When it ends, in milliseconds since 1970.
    pub fn until_ms(&self) -> i64 {
        self.until_ms
    }

    /// The archive that the rows are in, if it is held because of one.
    pub fn archive(&self) -> Option<&str> {
        self.owner.strip_prefix(ARCHIVED)
    }

    /// Whether it still holds at this moment.
    pub fn holds_at(&self, now_ms: i64) -> bool {
        self.until_ms > now_ms
    }
}

/// One entry of a map, in the form it is stored; the container carries the format version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Which placements it covers.
    pub range: KeyRange,
    /// Where they are.
    pub shard: ShardId,
    /// What may be done there.
    pub state: State,
    /// The epoch of the change that last touched it.
    pub epoch: Epoch,
    /// The set it lives and moves with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
}

impl Entry {
    /// The archive that its rows are in: it is offline, and held because of that.
    pub fn archive(&self) -> Option<&str> {
        self.lock.as_ref().filter(|_| self.state == State::Offline)?.archive()
    }
}

/// An entry to be added: the epoch is that of the change, and nobody holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEntry {
    /// Which placements it covers.
    pub range: KeyRange,
    /// Where they are.
    pub shard: ShardId,
    /// What may be done there.
    pub state: State,
    /// The set it lives and moves with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupName>,
}

impl NewEntry {
    /// An entry that is online and in no group.
    pub fn new(range: KeyRange, shard: ShardId) -> NewEntry {
        NewEntry { range, shard, state: State::Online, group: None }
    }

    /// The entry as it stands in the map from this epoch on.
    pub fn at(self, epoch: Epoch) -> Entry {
        Entry {
            range: self.range,
            shard: self.shard,
            state: self.state,
            epoch,
            group: self.group,
            lock: None,
        }
    }
}

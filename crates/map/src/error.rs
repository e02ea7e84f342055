//! What can go wrong, named by what the caller must do; every message names the thing and the remedy.

use thiserror::Error;

use crate::change::CHANGE_ENTRIES_MAX;
use crate::definition::SEGMENTS_MAX;
use crate::entry::LOCK_OWNER_BYTES_MAX;
use crate::ids::{GroupName, ShardId};

/// A name that is not one: choose another.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} {name:?} is not a name: use a lower-case letter, then up to 62 of a-z, 0-9, '_' and '-'")]
pub struct NameError {
    what: &'static str,
    name: String,
}

impl NameError {
    pub(crate) fn new(what: &'static str, name: &str) -> Self {
        // A name from the network may be of any size; the message must not be.
        NameError { what, name: name.chars().take(80).collect() }
    }
}

/// A key that does not fit the map's key type: fix the request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The value is of another type.
    #[error("key {key} is not of type {expected}: give {hint}")]
    WrongType {
        /// The key as given.
        key: String,
        /// The key type of the map.
        expected: String,
        /// What a key of that type looks like.
        hint: String,
    },
    /// The value is of the right type, but outside of what it can hold.
    #[error("key is not a valid {key_type}: {reason}")]
    Invalid {
        /// The key type.
        key_type: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Bytes that no key of this type encodes to.
    #[error("bytes {bytes} are not an encoded {key_type} key: {reason}")]
    Undecodable {
        /// The bytes in hex, shortened.
        bytes: String,
        /// The key type.
        key_type: String,
        /// Why not.
        reason: String,
    },
    /// Text that names no key type.
    #[error(
        "{text:?} is not a key type: use int, bigint, uuid, binary, text, timestamp, date, \
         or a tuple of 2 to 8 of these such as \"(text, bigint)\""
    )]
    UnknownType {
        /// The text as given.
        text: String,
    },
}

/// Bounds that are not a range: swap or fix them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// The lower bound is not below the upper.
    #[error(
        "range [{lo}, {hi}) is empty: the lower bound must be below the upper, which is not part of the range"
    )]
    Empty {
        /// Lower bound in hex.
        lo: String,
        /// Upper bound in hex.
        hi: String,
    },
    /// Bytes that are not written in hex.
    #[error("{text:?} is not hex: use an even number of the digits 0-9 and a-f")]
    NotHex {
        /// The text, shortened.
        text: String,
    },
}

/// A map definition that contradicts itself: fix the definition.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DefinitionError {
    /// Too few or too many buckets.
    #[error("{buckets} buckets: a hash map has 1 to 65536 (1024 unless you need another number)")]
    Buckets {
        /// As given.
        buckets: u32,
    },
    /// A hash function other than the pinned one.
    #[error("hash function {function:?} is unknown: only \"postgres_hash_extended\" is pinned in maps")]
    HashFunction {
        /// As given.
        function: String,
    },
    /// A composite scheme over a key that cannot be cut in two.
    #[error(
        "a prefix of {prefix} of key {key_type} leaves nothing to hash: use a tuple key with more components"
    )]
    Prefix {
        /// As given.
        prefix: usize,
        /// The key type of the map.
        key_type: String,
    },
    /// Segments that overlap, are out of order, or are no prefix of the key.
    #[error("segment {segment}: {reason}")]
    Segment {
        /// The segment in human form.
        segment: String,
        /// What is wrong.
        reason: String,
    },
    /// Too many segments.
    #[error("{count} segments: a map has at most {SEGMENTS_MAX}; use longer segments or drop old ones")]
    TooManySegments {
        /// As given.
        count: usize,
    },
    /// A key type that breaks its own rules (a tuple of one, a tuple in a tuple).
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A key that has no shard.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LocateError {
    /// The key is of the map's type, but nothing is mapped there: add an entry, or correct the key.
    #[error(
        "map {map} has no entry for {key}: the key lies in a gap; add an entry for it, or correct the key"
    )]
    Gap {
        /// The map.
        map: String,
        /// The key in human form.
        key: String,
    },
    /// The key does not fit the map: fix the request.
    #[error("map {map}: {source}")]
    WrongType {
        /// The map.
        map: String,
        /// Why it does not fit.
        source: KeyError,
    },
}

/// A change whose precondition does not hold. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChangeError {
    /// Something is mapped there already.
    #[error("{new} overlaps {existing}, which is on shard {shard}: remove or assign that entry instead")]
    Overlap {
        /// What was to be added.
        new: String,
        /// What is there.
        existing: String,
        /// Its shard.
        shard: ShardId,
    },
    /// Two parts of the same change overlap.
    #[error("{first} and {second} of this change overlap: give each key once")]
    OverlapInChange {
        /// One entry.
        first: String,
        /// The other.
        second: String,
    },
    /// The range is not fully mapped.
    #[error("{gap} is not mapped: add an entry for it first, or choose a range without gaps")]
    Gap {
        /// The first part without an entry.
        gap: String,
    },
    /// A merge where no two entries meet.
    #[error("{at} is not a boundary between two entries: merge where one entry ends and the next begins")]
    NotABoundary {
        /// The place.
        at: String,
    },
    /// A split at the edge of an entry.
    #[error("{at} is not strictly inside {entry}: an entry is split between its bounds")]
    NotInside {
        /// The split point.
        at: String,
        /// The entry or segment that has it.
        entry: String,
    },
    /// The two neighbours are not alike.
    #[error(
        "{left} and {right} differ in {what} ({left_value} and {right_value}): make them equal, then merge"
    )]
    MergeDiffers {
        /// The lower neighbour.
        left: String,
        /// The upper neighbour.
        right: String,
        /// Shard, state, group or lock.
        what: &'static str,
        /// That of the lower.
        left_value: String,
        /// That of the upper.
        right_value: String,
    },
    /// Somebody else holds a lock: wait for it to end, or unlock by force.
    #[error("{entry} is locked by {owner:?} until {until_ms} ms: wait, ask the owner, or unlock it by force")]
    Locked {
        /// The entry.
        entry: String,
        /// Who holds it.
        owner: String,
        /// When the lease ends, in milliseconds since 1970.
        until_ms: i64,
    },
    /// The entry is not locked by this owner.
    #[error("{entry} is not locked by {owner:?}: there is nothing to unlock")]
    NotLocked {
        /// The entry.
        entry: String,
        /// Who wanted to unlock it.
        owner: String,
    },
    /// A lock request that makes no sense.
    #[error("lock of owner {owner:?}: {reason}")]
    BadLock {
        /// The owner, shortened.
        owner: String,
        /// What is wrong: empty or too long an owner, or a lease that has ended already.
        reason: String,
    },
    /// No entry carries this group.
    #[error("group {group} has no entries in this map: add entries with it first, or correct the name")]
    UnknownGroup {
        /// The group.
        group: GroupName,
    },
    /// A member of a group was to be put on another shard than the rest.
    #[error("group {group} is on shard {shard}, and {entry} on {other}: a group is on one shard")]
    GroupElsewhere {
        /// The group.
        group: GroupName,
        /// Where the group is.
        shard: ShardId,
        /// The entry that differs.
        entry: String,
        /// Its shard.
        other: ShardId,
    },
    /// A verb this kind of map does not have.
    #[error("map of kind {kind} cannot {verb}: {remedy}")]
    WrongScheme {
        /// list, range, hash, …
        kind: &'static str,
        /// What was asked.
        verb: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A bound that is not one of this map's (a bucket too high, bytes that are no key).
    #[error("{bound} is not a bound of this map: {reason}")]
    BadBound {
        /// The bound.
        bound: String,
        /// What it should be.
        reason: String,
    },
    /// Nothing to do.
    #[error("the change is empty: name at least one entry")]
    Empty,
    /// Too much at once.
    #[error("the change touches {count} entries, more than {CHANGE_ENTRIES_MAX} at once: divide it")]
    TooManyEntries {
        /// How many.
        count: usize,
    },
    /// A segment of a composite map that is not there.
    #[error("segment {segment} does not exist: add it first, or correct its lower bound")]
    UnknownSegment {
        /// Its lower bound in human form.
        segment: String,
    },
    /// The definition would contradict itself after the change.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
}

/// Entries that do not make a map: the stored rows or the imported file are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// Entries overlap or are not sorted.
    #[error("entries {first} and {second} overlap or are not sorted by their lower bound")]
    Unsorted {
        /// The one that came first.
        first: String,
        /// The one that came second.
        second: String,
    },
    /// An entry that the scheme cannot have.
    #[error("entry {entry}: {reason}")]
    BadEntry {
        /// The entry.
        entry: String,
        /// What is wrong.
        reason: String,
    },
    /// A delta that does not belong to this map: load the map again.
    #[error("change does not fit the map: {reason}; load the map again")]
    Stale {
        /// What is missing or in the way.
        reason: String,
    },
}

/// A plan that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// Only hashed maps and lists are spread by count.
    #[error(
        "map {map} is ordered by key: choose the ranges to move yourself, a count of ranges says nothing of load"
    )]
    Ordered {
        /// The map.
        map: String,
    },
    /// Nothing would be left to hold the data.
    #[error("shard {shard} is the only one of map {map}: add another shard first")]
    LastShard {
        /// The shard.
        shard: ShardId,
        /// The map.
        map: String,
    },
    /// No shards to spread over.
    #[error("no shards given: name at least one to spread the buckets over")]
    NoShards,
}

pub(crate) fn owner_too_long() -> String {
    format!("an owner is 1 to {LOCK_OWNER_BYTES_MAX} bytes")
}

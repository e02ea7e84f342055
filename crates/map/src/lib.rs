//! Pure: key encoding, hashing, ranges, maps, change operations, the JSON form. No I/O, no clock.

mod apply;
mod calendar;
mod change;
mod chunk;
mod definition;
mod encode;
mod entry;
mod error;
mod hash;
mod human;
mod ids;
mod json;
mod json_in;
mod key;
mod key_type;
mod map;
mod plan;
mod range;
mod segments;
mod sorted;
mod space;

pub use apply::apply;
pub use change::{CHANGE_ENTRIES_MAX, Change, Delta, Departure, GROUP_ENTRIES_MAX};
pub use definition::{MapDefinition, SEGMENTS_MAX, Scheme, Segment};
pub use encode::KeyBytes;
pub use entry::{ARCHIVED, Entry, LOCK_OWNER_BYTES_MAX, Lock, NewEntry, State};
pub use error::{
    BuildError, ChangeError, DefinitionError, KeyError, LocateError, NameError, PlanError, RangeError,
};
pub use hash::{BUCKETS_DEFAULT, BUCKETS_MAX, HASH_FUNCTION, HashSpec, hash_extended};
pub use ids::{Epoch, GroupName, MapName, NAME_BYTES_MAX, ShardId};
pub use json::{JSON_FORMAT, MapJson};
pub use json_in::{ImportError, import};
pub use key::Key;
pub use key_type::{BINARY_BYTES_MAX, KeyType, TEXT_BYTES_MAX, TUPLE_COMPONENTS_MAX, TUPLE_COMPONENTS_MIN};
pub use map::{Located, Map};
pub use plan::{
    Step, plan_add_shard, plan_add_shard_within, plan_remove_shard, spread_buckets, spread_segment,
};
pub use range::KeyRange;

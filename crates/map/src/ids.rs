//! Names of shards, maps and groups, and the epoch: newtypes that cannot hold a wrong value.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::NameError;

/// Longest name: PostgreSQL's identifier length, so that a name can be part of an object's name there.
pub const NAME_BYTES_MAX: usize = 63;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the name: a lower-case letter, then up to 62 of `a-z`, `0-9`, `_` and `-`.
            pub fn new(name: &str) -> Result<Self, NameError> {
                check($what, name)?;
                Ok(Self(Arc::from(name)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(&name)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

name!(
    /// The name of a shard: one database that holds shardlets.
    ShardId,
    "shard id"
);
name!(
    /// The name of a map.
    MapName,
    "map name"
);
name!(
    /// The name of a set of list keys that live and move as one.
    GroupName,
    "group name"
);

/// The version of ownership: grows with every change of a map, and every entry carries the one that last touched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// Before the first change.
    pub const ZERO: Epoch = Epoch(0);

    /// The epoch with this number.
    pub const fn new(epoch: u64) -> Epoch {
        Epoch(epoch)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The epoch after this one. Saturates: a million changes a second would take 500,000 years to get there.
    pub const fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    let first_is_a_letter = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    let rest_is_plain =
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if first_is_a_letter && rest_is_plain && name.len() <= NAME_BYTES_MAX {
        Ok(())
    } else {
        Err(NameError::new(what, name))
    }
}

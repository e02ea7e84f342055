//! Who may do what, at every front door: users, and the rights they were granted on stores, maps, keys and tables (E7).
//!
//! One notion for all doors. A right is one of four, each of which includes those before it; a grant gives it on
//! everything, or on what it names. Whoever the configuration file names has all rights and is asked nothing.

mod check;
mod users;

use std::fmt;

use polyshard_map::{KeyType, MapName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use check::{AccessCheck, Missing, Rights};
pub(crate) use users::KnownUsers;
pub use users::{Bearer, User, Users};

use crate::declaration::{StoreId, Stores};

/// The form of records that this program writes.
pub const USER_FORMAT: u32 = 1;

/// What one may do; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// See rows, entities, messages.
    Read,
    /// Add, change and delete them.
    Write,
    /// Make, change and drop tables and queues, and say where their rows are.
    Schema,
    /// Everything, users too.
    Admin,
}

impl Right {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Schema => "schema",
            Right::Admin => "admin",
        }
    }

    /// In a sentence: "alice may not … orders".
    fn verb(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::Write => "write",
            Right::Schema => "make or change",
            Right::Admin => "administer",
        }
    }
}

/// A role of an operator; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks on.
    Viewer,
    /// Changes maps, moves, takes backups.
    Operator,
    /// Also makes users and tokens.
    Admin,
}

/// Which keys of a map a grant is for, in JSON as the map's key type writes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GrantedKeys {
    /// One.
    Key(Value),
    /// From one (included) to another (not included); without a side, all on that side.
    Range(Option<Value>, Option<Value>),
}

impl GrantedKeys {
    /// Whether these can be keys of a map whose keys are of this type.
    pub fn check(&self, key_type: &KeyType) -> Result<(), String> {
        check::range_of(key_type, self).map(drop)
    }
}

/// A right on something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The right.
    pub right: Right,
    /// In this store alone. It may be one that this program does not have: the grant then allows nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreId>,
    /// On what this map places alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<MapName>,
    /// On these keys of the map alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<GrantedKeys>,
    /// On the table or queue of this name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

impl Grant {
    /// Whether it is limited to nothing.
    pub fn is_everywhere(&self) -> bool {
        self.store.is_none() && self.map.is_none() && self.keys.is_none() && self.table.is_none()
    }

    /// Whether both are on the same, whatever the right.
    pub fn is_on_same(&self, other: &Grant) -> bool {
        let on = |grant: &Grant| Grant { right: Right::Read, ..grant.clone() };
        on(self) == on(other)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} on ", self.right.as_str())?;
        if self.is_everywhere() {
            return to.write_str("everything");
        }
        let mut parts = Vec::new();
        match (&self.store, &self.table) {
            (Some(store), Some(table)) => parts.push(format!("{table} of {store}")),
            (Some(store), None) => parts.push(store.to_string()),
            (None, Some(table)) => parts.push(table.clone()),
            (None, None) => {}
        }
        let shown = |key: &Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        let side = |key: &Option<Value>| key.as_ref().map(shown).unwrap_or_default();
        match (&self.map, &self.keys) {
            (Some(map), Some(GrantedKeys::Key(key))) => {
                parts.push(format!("key {} of map {map}", shown(key)))
            }
            (Some(map), Some(GrantedKeys::Range(from, to))) => {
                parts.push(format!("keys {}..{} of map {map}", side(from), side(to)));
            }
            (Some(map), None) => parts.push(format!("map {map}")),
            (None, _) => {}
        }
        to.write_str(&parts.join(", "))
    }
}

impl UserBody {
    /// Writes the ids of stores in their present spelling.
    pub fn with_present_ids(mut self, stores: Stores) -> UserBody {
        for grant in &mut self.grants {
            if let Some(present) = grant.store.as_ref().and_then(|store| stores.id(store.as_str()).ok()) {
                grant.store = Some(present);
            }
        }
        self
    }
}

/// What the catalog keeps of a user, as the body of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserBody {
    /// The form of this record.
    pub format: u32,
    /// What the SQL door checks a password with; none if this user cannot come in there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scram: Option<String>,
    /// Whether the account of this name, at the Azure Storage doors, has these rights and no others.
    #[serde(default)]
    pub account: bool,
    /// The rights.
    pub grants: Vec<Grant>,
}

/// What the catalog keeps of an operator's token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    /// The form of this record.
    pub format: u32,
    /// What its bearer may do.
    pub role: Role,
    /// SHA-256 of the token, in hexadecimal: the token is random, so that nobody finds it from this.
    pub sha256: String,
}

//! Whether somebody's rights are enough for what is asked, and in words what is missing.

use std::fmt;

use polyshard_map::{Key, KeyRange, KeyType, MapName};
use polyshard_router::View;

use super::{Grant, GrantedKeys, Right};
use crate::declaration::{Store, Stores};

/// What somebody is about to do.
#[derive(Debug, Clone, Copy)]
pub struct AccessCheck<'a> {
    /// What it takes.
    pub right: Right,
    /// In which store.
    pub store: &'static Store,
    /// The table or queue; none if it is about the store as a whole.
    pub table: Option<&'a str>,
    /// The map that places it, if one does.
    pub map: Option<&'a MapName>,
    /// The keys it is about; none if it may concern any.
    pub keys: Option<&'a [Key]>,
}

/// What is missing: in words, to be told to whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The refusal.
    pub message: String,
    /// What would help.
    pub hint: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

/// The rights of one user, against the maps of one moment.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    user: String,
    grants: Vec<Held>,
}

/// A grant that can be judged by.
#[derive(Debug, Clone)]
struct Held {
    right: Right,
    store: Option<&'static Store>,
    map: Option<MapName>,
    table: Option<String>,
    keys: Option<(KeyType, KeyRange)>,
}

impl Held {
    /// Of a grant; none if it names what there is not: it then allows nothing.
    fn of(grant: &Grant, view: &View, stores: Stores) -> Result<Held, String> {
        let Grant { right, store, map, keys, table } = grant.clone();
        let known = |id: &str| stores.find(id).ok_or_else(|| format!("this program has no store {id:?}"));
        let store = store.map(|id| known(id.as_str())).transpose()?;
        let keys = match keys {
            None => None,
            Some(keys) => {
                let name = map.as_ref().ok_or("keys without a map")?;
                let known = view.maps.get(name).ok_or_else(|| format!("there is no map {name}"))?;
                let key_type = known.map.definition().key_type().clone();
                let range = range_of(&key_type, &keys)?;
                Some((key_type, range))
            }
        };
        Ok(Held { right, store, map, table, keys })
    }

    fn is_in(&self, store: &Store) -> bool {
        self.store.is_none_or(|own| own.id == store.id)
    }

    fn is_for(&self, asked: &AccessCheck<'_>) -> bool {
        let is_named = |own: &str| asked.table.is_some_and(|table| asked.store.is_same_name(own, table));
        self.right >= asked.right
            && self.is_in(asked.store)
            && self.table.as_deref().is_none_or(is_named)
            && self.map.as_ref().is_none_or(|map| Some(map) == asked.map)
    }

    fn has(&self, key: &Key) -> bool {
        match &self.keys {
            None => true,
            Some((key_type, range)) => {
                key_type.encode(key).is_ok_and(|bytes| range.contains(bytes.as_slice()))
            }
        }
    }
}

/// The keys of a grant, in the order of the key type.
pub(super) fn range_of(key_type: &KeyType, keys: &GrantedKeys) -> Result<KeyRange, String> {
    let read = |value: &serde_json::Value| key_type.from_json(value).map_err(|error| error.to_string());
    let encoded = |key: &Key| key_type.encode(key).map_err(|error| error.to_string());
    match keys {
        GrantedKeys::Key(key) => Ok(KeyRange::point(encoded(&read(key)?)?)),
        GrantedKeys::Range(from, to) => {
            let bound =
                |key: &Option<serde_json::Value>| key.as_ref().map(|key| encoded(&read(key)?)).transpose();
            let (lo, hi) = (bound(from)?, bound(to)?);
            KeyRange::new(lo.unwrap_or_default(), hi).map_err(|error| error.to_string())
        }
    }
}

impl Rights {
    /// Of a user's grants. A grant that names what does not exist allows nothing, and is logged; the others stand.
    pub(super) fn of(user: &str, grants: &[Grant], view: &View, stores: Stores) -> Rights {
        let mut held = Vec::with_capacity(grants.len());
        for grant in grants {
            match Held::of(grant, view, stores) {
                Ok(grant) => held.push(grant),
                Err(why) => tracing::warn!(user, %grant, why, "a grant allows nothing"),
            }
        }
        Rights { user: user.to_owned(), grants: held }
    }

    /// Whether nothing in this store needs to be asked: making tables is allowed, and so everything is.
    pub fn are_all(&self, store: &'static Store) -> bool {
        self.grants.iter().any(|grant| {
            let limited = grant.map.is_some() || grant.table.is_some() || grant.keys.is_some();
            grant.right >= Right::Schema && grant.is_in(store) && !limited
        })
    }

    /// Whether users may be made and changed.
    pub fn are_admin(&self) -> bool {
        let everywhere = |grant: &Held| {
            grant.store.is_none() && grant.map.is_none() && grant.table.is_none() && grant.keys.is_none()
        };
        self.grants.iter().any(|grant| grant.right == Right::Admin && everywhere(grant))
    }

    /// Whether some right in this store is bound to keys.
    pub fn are_by_key(&self, store: &'static Store) -> bool {
        self.grants.iter().any(|grant| grant.keys.is_some() && grant.is_in(store))
    }

    /// Whether this may be done; every key by one grant or another.
    pub fn check(&self, asked: &AccessCheck<'_>) -> Result<(), Missing> {
        let fitting = || self.grants.iter().filter(|grant| grant.is_for(asked));
        match asked.keys {
            None if fitting().any(|grant| grant.keys.is_none()) => Ok(()),
            None => Err(self.missing(asked, None, fitting().next().is_some())),
            // No row can matter: whoever has any right there may ask.
            Some([]) if fitting().next().is_some() => Ok(()),
            Some([]) => Err(self.missing(asked, None, false)),
            Some(keys) => match keys.iter().find(|key| !fitting().any(|grant| grant.has(key))) {
                None => Ok(()),
                Some(key) => Err(self.missing(asked, Some(key), false)),
            },
        }
    }

    /// Whether a table that every shard has alike may be read: by whoever may read this store, or that very table.
    pub fn check_reference(&self, store: &'static Store, table: &str) -> Result<(), Missing> {
        let fits = |grant: &Held| {
            grant.is_in(store) && grant.table.as_deref().is_none_or(|own| store.is_same_name(own, table))
        };
        if self.grants.iter().any(fits) {
            return Ok(());
        }
        let asked = AccessCheck { right: Right::Read, store, table: Some(table), map: None, keys: None };
        Err(self.missing(&asked, None, false))
    }

    /// Whether there is any right in this store: enough to ask what it is like.
    pub fn check_any(&self, store: &'static Store) -> Result<(), Missing> {
        if self.grants.iter().any(|grant| grant.is_in(store)) {
            return Ok(());
        }
        let asked = AccessCheck { right: Right::Read, store, table: None, map: None, keys: None };
        Err(self.missing(&asked, None, false))
    }

    fn missing(&self, asked: &AccessCheck<'_>, key: Option<&Key>, by_key: bool) -> Missing {
        let what = asked.table.unwrap_or(asked.store.title);
        let of = match key {
            Some(key) => format!(" of key {key}"),
            None if by_key => " of every key".to_owned(),
            None => String::new(),
        };
        let user = &self.user;
        let message = format!("{user} may not {} {what}{of}", asked.right.verb());
        let mut hint = match by_key {
            true => "Name one of the keys that are allowed by a condition. ".to_owned(),
            false => String::new(),
        };
        hint.push_str(&format!(
            "An administrator can allow it: polyshard user grant {user} {} --store {}",
            asked.right.as_str(),
            asked.store.id
        ));
        if let (Some(map), Some(key)) = (asked.map, key) {
            hint.push_str(&format!(" --map {map} --key {key}"));
        }
        if let Some(table) = asked.table {
            hint.push_str(&format!(" --table {table}"));
        }
        Missing { message, hint }
    }
}

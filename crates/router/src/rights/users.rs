//! The users and tokens of the cluster, as a router knows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use polyshard_catalog::{DatasetRecord, TOKEN_STORE, USER_STORE};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{Grant, Rights, Role, TokenBody, USER_FORMAT, UserBody};
use crate::router::Router;
use crate::view::View;

/// A user.
#[derive(Debug, Clone)]
pub struct User {
    /// The name.
    pub name: String,
    /// Never given twice: one who was removed and made again is another.
    pub id: u64,
    /// What the SQL door checks a password with; none if this user cannot come in there.
    pub scram: Option<String>,
    /// Whether the account of this name has these rights and no others.
    pub account: bool,
    /// What was granted.
    pub grants: Vec<Grant>,
    /// The same, to judge by.
    pub rights: Rights,
}

/// Who bears a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The token's name.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    sha256: String,
}

/// All users and tokens of one moment.
#[derive(Debug, Default)]
pub struct Users {
    users: BTreeMap<String, User>,
    tokens: Vec<Bearer>,
    accounts: bool,
}

impl Users {
    fn of(view: &View) -> Users {
        let mut users = BTreeMap::new();
        for record in view.datasets_of(USER_STORE) {
            // The account of that name must not be without limits for that: it may do nothing, and nobody comes in.
            let nothing = || UserBody { format: USER_FORMAT, scram: None, account: true, grants: Vec::new() };
            let body = read::<UserBody>(record, |body| body.format).unwrap_or_else(nothing);
            let rights = Rights::of(&record.name, &body.grants, view);
            let UserBody { scram, account, grants, .. } = body;
            let user = User { name: record.name.clone(), id: record.id, scram, account, grants, rights };
            users.insert(record.name.clone(), user);
        }
        let tokens = view.datasets_of(TOKEN_STORE).filter_map(|record| {
            let TokenBody { role, sha256, .. } = read::<TokenBody>(record, |body| body.format)?;
            Some(Bearer { name: record.name.clone(), role, sha256 })
        });
        let tokens = tokens.collect();
        let accounts = users.values().any(|user| user.account);
        Users { users, tokens, accounts }
    }

    /// A user by name.
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// What an account of the Azure Storage doors is limited to; none if to nothing.
    pub fn account(&self, name: &str) -> Option<&Rights> {
        if !self.accounts {
            return None;
        }
        self.users.get(name).filter(|user| user.account).map(|user| &user.rights)
    }

    /// All users, by name.
    pub fn all(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// All tokens, by name.
    pub fn tokens(&self) -> &[Bearer] {
        &self.tokens
    }

    /// Who bears the token of this hash. It is the hash of something random: comparing it tells nothing of others.
    pub fn bearer(&self, sha256: &str) -> Option<&Bearer> {
        self.tokens.iter().find(|token| token.sha256 == sha256)
    }
}

/// A record that cannot be read lets nobody in.
fn read<T: DeserializeOwned>(record: &DatasetRecord, format: impl Fn(&T) -> u32) -> Option<T> {
    match serde_json::from_value::<T>(record.body.clone()) {
        Ok(body) if format(&body) <= USER_FORMAT => Some(body),
        Ok(body) => {
            let (store, name, format) = (&record.store, &record.name, format(&body));
            tracing::warn!(
                store,
                name,
                format,
                "a record of a newer program cannot be read, and lets nobody in"
            );
            None
        }
        Err(error) => {
            // Only where, never what: there may be a secret in it.
            let (store, name, line) = (&record.store, &record.name, error.column());
            tracing::warn!(store, name, line, "a record cannot be read, and lets nobody in");
            None
        }
    }
}

/// What a set of users was made of: if it is the same, so are they.
#[derive(Debug, PartialEq, Eq, Default)]
struct MadeOf {
    records: Vec<(u64, u64)>,
    /// Keys in grants are read by the types of their maps.
    maps: Vec<(String, String)>,
}

impl MadeOf {
    fn of(view: &View) -> MadeOf {
        let records = view.datasets_of(USER_STORE).chain(view.datasets_of(TOKEN_STORE));
        let records: Vec<(u64, u64)> = records.map(|record| (record.id, record.version)).collect();
        let maps = match records.is_empty() {
            true => Vec::new(),
            false => {
                let shown = |(name, known): (&polyshard_map::MapName, &Arc<crate::view::KnownMap>)| {
                    (name.to_string(), known.map.definition().key_type().to_string())
                };
                view.maps.iter().map(shown).collect()
            }
        };
        MadeOf { records, maps }
    }
}

/// The users of the view that was last asked for.
#[derive(Debug, Default)]
struct Asked {
    seen: (Uuid, u64),
    made_of: MadeOf,
    users: Arc<Users>,
}

/// Remembers the users until something changes.
#[derive(Debug, Default)]
pub(crate) struct Known(ArcSwap<Asked>);

impl Router {
    /// The users and tokens of now.
    pub fn users(&self) -> Arc<Users> {
        let view = self.view();
        let known = self.known_users().0.load();
        let seen = (view.cluster, view.seq);
        if known.seen == seen {
            return known.users.clone();
        }
        let made_of = MadeOf::of(&view);
        let users = if made_of == known.made_of { known.users.clone() } else { Arc::new(Users::of(&view)) };
        self.known_users().0.store(Arc::new(Asked { seen, made_of, users: users.clone() }));
        users
    }
}

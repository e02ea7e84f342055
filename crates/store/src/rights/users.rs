//! The users and tokens of the cluster, as a router knows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use polyshard_catalog::{DatasetRecord, TOKEN_STORE, USER_STORE};
use polyshard_map::MapName;
use polyshard_router::view::KnownMap;
use polyshard_router::{Router, View};
use serde::de::DeserializeOwned;

use super::{Grant, Rights, Role, TokenBody, USER_FORMAT, UserBody};
use crate::declaration::Stores;

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
    fn of(view: &View, stores: Stores) -> Users {
        let mut users = BTreeMap::new();
        for record in view.datasets_of(USER_STORE) {
            // The account of that name must not be without limits for that: it may do nothing, and nobody comes in.
            let nothing = || UserBody { format: USER_FORMAT, scram: None, account: true, grants: Vec::new() };
            let body =
                read::<UserBody>(record, |body| body.format).unwrap_or_else(nothing).with_present_ids(stores);
            let rights = Rights::of(&record.name, &body.grants, view, stores);
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
                "user or token record of a newer program unreadable; access denied"
            );
            None
        }
        Err(error) => {
            // Only where, never what: there may be a secret in it.
            let (store, name, line) = (&record.store, &record.name, error.column());
            tracing::warn!(store, name, line, "user or token record unreadable; access denied");
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
                let shown = |(name, known): (&MapName, &Arc<KnownMap>)| {
                    (name.to_string(), known.map.definition().key_type().to_string())
                };
                view.maps.iter().map(shown).collect()
            }
        };
        MadeOf { records, maps }
    }
}

/// The users of one view.
#[derive(Debug, Default)]
struct OfView {
    /// As [`Router::view_number`] counts.
    number: u64,
    made_of: MadeOf,
    users: Arc<Users>,
}

/// Remembers the users until something changes.
#[derive(Debug, Default)]
pub(crate) struct KnownUsers(ArcSwap<OfView>);

impl KnownUsers {
    /// The users and tokens of the router's view.
    pub fn now(&self, router: &Router, stores: Stores) -> Arc<Users> {
        let known = self.0.load();
        // The number first: the view is then at least as new.
        let number = router.view_number();
        if known.number == number {
            return known.users.clone();
        }
        let view = router.view();
        let made_of = MadeOf::of(&view);
        let users =
            if made_of == known.made_of { known.users.clone() } else { Arc::new(Users::of(&view, stores)) };
        self.0.store(Arc::new(OfView { number, made_of, users: users.clone() }));
        users
    }
}

#[cfg(test)]
mod tests {
    use polyshard_catalog::{KeyPart, KeyRule};
    use serde_json::{Value, json};

    use super::*;
    use crate::declaration::Store;
    use crate::rights::{AccessCheck, Right};

    static ROWS: Store = Store::new("rows", "rows");
    static THINGS: Store =
        Store { formerly: &["things"], ignores_case: true, ..Store::new("thing", "things") };
    const STORES: Stores = Stores(&[&ROWS, &THINGS]);

    /// The users of a catalog with one record.
    fn users(body: Value) -> Users {
        let mut view = View::empty();
        let rule = KeyRule { attribute: String::new(), part: KeyPart::Whole };
        view.set_dataset(DatasetRecord {
            id: 1,
            store: USER_STORE.to_owned(),
            name: "alice".to_owned(),
            map: MapName::new("none").unwrap(),
            rule,
            body,
            version: 1,
        });
        Users::of(&view, STORES)
    }

    fn may_read(users: &Users, store: &'static Store, table: &str) -> bool {
        let check = AccessCheck { right: Right::Read, store, table: Some(table), map: None, keys: None };
        users.user("alice").unwrap().rights.check(&check).is_ok()
    }

    /// E7, issue 17 line 20: a process that is older than another one of its cluster.
    #[test]
    fn a_grant_on_an_unknown_store_voids_that_grant_alone() {
        let users = users(json!({"format": 1, "scram": "verifier", "account": true, "grants": [
            {"right": "schema", "store": "of-next-year"},
            {"right": "read", "store": "rows"},
        ]}));
        assert!(may_read(&users, &ROWS, "orders"));
        assert!(!may_read(&users, &THINGS, "orders"), "the unknown store is no other one");
        let alice = users.user("alice").unwrap();
        assert_eq!(alice.scram.as_deref(), Some("verifier"));
        assert_eq!(alice.grants[0].store.as_ref().unwrap().as_str(), "of-next-year", "it is kept as it is");
    }

    #[test]
    fn a_former_id_is_read_and_written_as_the_present_one() {
        let users = users(json!({"format": 1, "grants": [{"right": "read", "store": "things"}]}));
        assert!(may_read(&users, &THINGS, "orders"));
        assert!(!may_read(&users, &ROWS, "orders"));
        let grant = serde_json::to_value(&users.user("alice").unwrap().grants[0]).unwrap();
        assert_eq!(grant, json!({"right": "read", "store": "thing"}));
    }

    /// Issue 17 line 20: a grant that names no store has the name in the case that was typed.
    #[test]
    fn a_name_in_capitals_is_the_same_where_the_store_says_so() {
        let users = users(json!({"format": 1, "grants": [{"right": "read", "table": "Orders"}]}));
        assert!(may_read(&users, &THINGS, "orders") && may_read(&users, &THINGS, "ORDERS"));
        assert!(may_read(&users, &ROWS, "Orders") && !may_read(&users, &ROWS, "orders"));
    }

    #[test]
    fn ids_are_checked_against_the_list() {
        assert_eq!(STORES.id("things").unwrap().as_str(), "thing");
        let unknown = STORES.id("queues").unwrap_err();
        assert_eq!(unknown.to_string(), "there is no store \"queues\"; the stores are rows, thing");
    }
}

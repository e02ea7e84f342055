//! Users, what they may do, and tokens of operators.

use std::fmt;

use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::KeyText;

/// Most characters of a name, as PostgreSQL's.
const NAME_CHARS_MAX: usize = 63;

/// The name of a user or a token: a letter, digit or `_`, then up to 62 of these, `-` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(String);

impl UserName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<UserName, String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let first = name.bytes().next().is_some_and(word);
        let fits = first
            && name.len() <= NAME_CHARS_MAX
            && name.bytes().all(|byte| word(byte) || byte == b'-' || byte == b'.');
        if fits {
            return Ok(UserName(name.to_owned()));
        }
        Err(format!(
            "{name:?} is no name: it begins with a letter, digit or _, and has up to {NAME_CHARS_MAX} of a-z, A-Z, \
             0-9, _, - and ."
        ))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for UserName {
    type Err = String;

    fn from_str(text: &str) -> Result<UserName, String> {
        UserName::new(text)
    }
}

impl TryFrom<String> for UserName {
    type Error = String;

    fn try_from(text: String) -> Result<UserName, String> {
        UserName::new(&text)
    }
}

impl From<UserName> for String {
    fn from(name: UserName) -> String {
        name.0
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// What one may do; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
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

/// The id of a store, such as `sql`; the server knows which there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct StoreId(String);

impl StoreId {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for StoreId {
    fn from(id: String) -> StoreId {
        StoreId(id)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// What the bearer of a token may do; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look on.
    Viewer,
    /// Change maps and shards, move, take backups, run SQL in the console.
    Operator,
    /// Also make users and tokens.
    Admin,
}

macro_rules! words {
    ($name:ident, $($word:literal => $value:ident),+) => {
        impl fmt::Display for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(match self {
                    $($name::$value => $word,)+
                })
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$value),)+
                    _ => Err(format!("{text:?} is none of {}", [$($word),+].join(", "))),
                }
            }
        }
    };
}

words!(Right, "read" => Read, "write" => Write, "schema" => Schema, "admin" => Admin);
words!(Role, "viewer" => Viewer, "operator" => Operator, "admin" => Admin);

/// A right on everything, or on what it names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Grant)]
#[serde(deny_unknown_fields)]
pub struct GrantView {
    /// The right.
    pub right: Right,
    /// In this store alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreId>,
    /// On what this map places alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// On this key of the map alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyText>,
    /// On a range of keys of the map alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<GrantRange>,
    /// On the table, queue or container of this name alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// Keys from one (included) to another (not included); a side that is missing is infinite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRange {
    /// The first key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<KeyText>,
    /// The key before which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<KeyText>,
}

impl fmt::Display for GrantView {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match (&self.store, &self.table) {
            (Some(store), Some(table)) => parts.push(format!("{table} of {store}")),
            (Some(store), None) => parts.push(store.to_string()),
            (None, Some(table)) => parts.push(table.clone()),
            (None, None) => {}
        }
        let side = |key: &Option<KeyText>| key.as_ref().map(ToString::to_string).unwrap_or_default();
        match (&self.map, &self.key, &self.range) {
            (Some(map), Some(key), _) => parts.push(format!("key {key} of map {map}")),
            (Some(map), None, Some(range)) => {
                parts.push(format!("keys {}..{} of map {map}", side(&range.from), side(&range.to)));
            }
            (Some(map), None, None) => parts.push(format!("map {map}")),
            (None, _, _) => {}
        }
        let on = if parts.is_empty() { "everything".to_owned() } else { parts.join(", ") };
        write!(to, "{} on {on}", self.right)
    }
}

/// A user, without anything secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = User)]
pub struct UserView {
    /// The name.
    #[schema(value_type = String)]
    pub name: UserName,
    /// Whether there is a password for the SQL door.
    pub password: bool,
    /// Whether the account of this name, at the doors of tables and queues, has these rights and no others.
    pub account: bool,
    /// The rights.
    pub grants: Vec<GrantView>,
}

/// All users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Users)]
pub struct UsersAnswer {
    /// By name. The user and the accounts of the configuration file, who have all rights, are not among them.
    pub users: Vec<UserView>,
}

/// A user to be made. It has no rights yet.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// The name.
    #[schema(value_type = String)]
    pub name: UserName,
    /// The password for the SQL door: as it is, or as PostgreSQL's SCRAM-SHA-256 verifier. Only a verifier is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Whether it stands for the account of this name, which the configuration file has, and limits it.
    #[serde(default)]
    pub account: bool,
}

/// A user's new password.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// As it is, or as PostgreSQL's SCRAM-SHA-256 verifier. Only a verifier is kept.
    pub password: String,
}

/// A token, without the secret itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Token)]
pub struct TokenView {
    /// Its name, which stands in the log beside what its bearer does.
    #[schema(value_type = String)]
    pub name: UserName,
    /// What its bearer may do.
    pub role: Role,
}

/// All tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tokens)]
pub struct TokensAnswer {
    /// By name. The one of the configuration file, whose bearer may do everything, is not among them.
    pub tokens: Vec<TokenView>,
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name.
    #[schema(value_type = String)]
    pub name: UserName,
    /// What its bearer may do.
    pub role: Role,
}

/// A token that was made: the only time that it is told.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Its name.
    #[schema(value_type = String)]
    pub name: UserName,
    /// What its bearer may do.
    pub role: Role,
    /// The token itself. Only a hash of it is kept.
    pub token: String,
}

macro_rules! hide {
    ($($name:ident),+) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str(concat!(stringify!($name), "(***)"))
            }
        })+
    };
}

hide!(NewUser, NewPassword, MadeToken);

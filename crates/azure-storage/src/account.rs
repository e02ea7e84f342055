//! Storage accounts and their keys, as configured.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The account of every emulator, which `UseDevelopmentStorage=true` connects to. Serve it on loopback only.
pub const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// That account's key, published by Microsoft and so known to everybody.
pub const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Names are 3 to 24 characters long, as with the service: clients check this too.
const NAME_CHARS_MIN: usize = 3;
const NAME_CHARS_MAX: usize = 24;

/// An account that cannot be configured so; the operator must correct the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountError {
    /// The name is not one clients can use.
    Name(String),
    /// The key is not what clients would sign with. It is not shown.
    Key(String),
    /// Two accounts of one name.
    Twice(String),
}

impl AccountError {
    /// What is wrong.
    pub fn message(&self) -> String {
        match self {
            AccountError::Name(name) => {
                format!("account name '{name}' must be 3 to 24 lower-case letters and digits")
            }
            AccountError::Key(name) => {
                format!("a key of account '{name}' is not base64 of at least one byte")
            }
            AccountError::Twice(name) => format!("account '{name}' is configured twice"),
        }
    }

    /// What to do.
    pub fn remedy(&self) -> &'static str {
        match self {
            AccountError::Name(_) => "choose another name",
            AccountError::Key(_) => "make one with `openssl rand -base64 64`",
            AccountError::Twice(_) => "remove one of them",
        }
    }
}

impl fmt::Display for AccountError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}; {}", self.message(), self.remedy())
    }
}

impl std::error::Error for AccountError {}

/// The name of a storage account: 3 to 24 lower-case letters and digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountName(String);

impl AccountName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<AccountName, AccountError> {
        let fits = (NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if fits { Ok(AccountName(name.to_owned())) } else { Err(AccountError::Name(name.to_owned())) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names are ordered as their texts, so that they can be found by these.
impl Borrow<str> for AccountName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// A key that requests are signed with. Never shown, not even in debug output.
#[derive(Clone)]
pub struct AccountKey(Hmac<Sha256>);

impl AccountKey {
    /// Decodes a key from base64; nothing if it is not base64, or empty.
    pub fn from_base64(key: &str) -> Option<AccountKey> {
        let bytes = STANDARD.decode(key.trim()).ok()?;
        if bytes.is_empty() {
            return None;
        }
        Hmac::new_from_slice(&bytes).ok().map(AccountKey)
    }

    /// The signature of a text, in base64.
    pub fn sign(&self, text: &str) -> String {
        STANDARD.encode(self.0.clone().chain_update(text.as_bytes()).finalize().into_bytes())
    }

    /// Whether `signature` is that of `text`, in a time that does not tell how much of it is right.
    pub(crate) fn verifies(&self, text: &str, signature: &[u8]) -> bool {
        self.0.clone().chain_update(text.as_bytes()).verify_slice(signature).is_ok()
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("AccountKey(hidden)")
    }
}

/// The one or two keys of an account: with two, clients are taken from one to the other without a pause.
#[derive(Clone, Debug)]
pub struct AccountKeys {
    /// The first key.
    pub key1: AccountKey,
    /// The second one, if there is one.
    pub key2: Option<AccountKey>,
}

impl AccountKeys {
    /// Each key in turn.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AccountKey> {
        std::iter::once(&self.key1).chain(&self.key2)
    }
}

/// The accounts a door serves.
#[derive(Clone, Debug, Default)]
pub struct Accounts(BTreeMap<AccountName, AccountKeys>);

impl Accounts {
    /// No account yet.
    pub fn new() -> Accounts {
        Accounts::default()
    }

    /// The development account alone. Its key is public: only for doors on loopback.
    pub fn development() -> Accounts {
        let mut accounts = Accounts::new();
        accounts
            .add(DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, None)
            .expect("the development account has a good name and key");
        accounts
    }

    /// Adds an account with its keys in base64.
    pub fn add(&mut self, name: &str, key1: &str, key2: Option<&str>) -> Result<(), AccountError> {
        let key =
            |text: &str| AccountKey::from_base64(text).ok_or_else(|| AccountError::Key(name.to_owned()));
        let keys = AccountKeys { key1: key(key1)?, key2: key2.map(key).transpose()? };
        let account = AccountName::new(name)?;
        if self.0.contains_key(&account) {
            return Err(AccountError::Twice(name.to_owned()));
        }
        self.0.insert(account, keys);
        Ok(())
    }

    /// Whether there is none, so that a door would refuse every request.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The account of that name, with its keys.
    pub(crate) fn get(&self, name: &str) -> Option<(&AccountName, &AccountKeys)> {
        self.0.get_key_value(name)
    }
}

#[cfg(test)]
mod tests {
    use super::{AccountError, Accounts, DEVELOPMENT_KEY};

    #[test]
    fn accounts_are_checked_and_keys_never_shown() {
        let mut accounts = Accounts::development();
        assert!(!format!("{accounts:?}").contains("Eby8"));
        let twice = accounts.add("devstoreaccount1", DEVELOPMENT_KEY, None);
        assert_eq!(twice, Err(AccountError::Twice("devstoreaccount1".to_owned())));
        for name in ["ab", "UPPER", "with-dash", "abcdefghijklmnopqrstuvwxyz"] {
            assert_eq!(accounts.add(name, DEVELOPMENT_KEY, None), Err(AccountError::Name(name.to_owned())));
        }
        for key in ["", "no base64", "===="] {
            assert_eq!(accounts.add("fine", key, None), Err(AccountError::Key("fine".to_owned())));
            assert_eq!(
                accounts.add("fine", DEVELOPMENT_KEY, Some(key)),
                Err(AccountError::Key("fine".to_owned()))
            );
        }
        accounts.add("fine", DEVELOPMENT_KEY, Some("c2Vjb25k")).unwrap();
        assert_eq!(accounts.get("fine").unwrap().1.iter().count(), 2);
    }
}

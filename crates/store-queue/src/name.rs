//! Names of queues, checked as the service checks them.

use std::fmt;

use polyshard_store::DatasetName;

/// Names are 3 to 63 characters long, as with the service.
const NAME_CHARS_MIN: usize = 3;
const NAME_CHARS_MAX: usize = 63;

/// A name no queue can have; the client must choose another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Too short or too long.
    #[error("the name of a queue has {NAME_CHARS_MIN} to {NAME_CHARS_MAX} characters; choose another name")]
    Length,
    /// Something in it is not allowed.
    #[error(
        "the name of a queue has lower-case letters, digits and single dashes, and begins and ends with a letter or \
         digit; choose another name"
    )]
    Characters,
}

/// A queue of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueName(DatasetName);

impl QueueName {
    /// Checks a name. The account's own name was checked when it was configured.
    pub fn new(account: &str, name: &str) -> Result<QueueName, NameError> {
        if !(NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&name.chars().count()) {
            return Err(NameError::Length);
        }
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let dashes_apart = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
        if !name.bytes().all(good) || !dashes_apart {
            return Err(NameError::Characters);
        }
        Ok(QueueName(DatasetName::new(account, name)))
    }

    /// The account.
    pub fn account(&self) -> &str {
        self.0.owner()
    }

    /// The name within the account.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// What the catalog calls it: `account/name`.
    pub fn dataset(&self) -> &str {
        self.0.as_str()
    }

    /// The same for the kit.
    pub(crate) fn id(&self) -> &DatasetName {
        &self.0
    }
}

impl From<QueueName> for DatasetName {
    fn from(name: QueueName) -> DatasetName {
        name.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{NameError, QueueName};

    #[test]
    fn names_are_checked_as_the_service_checks_them() {
        let long = "a".repeat(63);
        for name in ["abc", "a-b-c", "1-2", "000", long.as_str()] {
            let queue = QueueName::new("acct", name).unwrap();
            assert_eq!((queue.account(), queue.name()), ("acct", name));
        }
        for name in ["", "ab", "a".repeat(64).as_str()] {
            assert_eq!(QueueName::new("acct", name), Err(NameError::Length), "{name}");
        }
        for name in ["-abc", "abc-", "a--b", "Abc", "a_b", "a.b", "a/b", "äöü"] {
            assert_eq!(QueueName::new("acct", name), Err(NameError::Characters), "{name}");
        }
    }
}

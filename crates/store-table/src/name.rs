//! Names of tables, checked as the service checks them.

use std::fmt;
use std::sync::Arc;

use polyshard_store::DatasetName;

/// Names are 3 to 63 characters long, as with the service.
const NAME_CHARS_MIN: usize = 3;
const NAME_CHARS_MAX: usize = 63;

/// A name no table can have; the client must choose another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Too short or too long.
    #[error("the name of a table has {NAME_CHARS_MIN} to {NAME_CHARS_MAX} characters; choose another name")]
    Length,
    /// Something in it is not allowed.
    #[error("the name of a table is a letter, then letters and digits (a-z, A-Z, 0-9); choose another name")]
    Characters,
    /// The word means something else.
    #[error("no table can be called 'tables'; choose another name")]
    Reserved,
}

/// A table of an account. Names that differ only in case are the same.
#[derive(Clone, Debug)]
pub struct TableName {
    name: Arc<str>,
    id: Arc<DatasetName>,
}

impl TableName {
    /// Checks a name. The account's own name was checked when it was configured.
    pub fn new(account: &str, name: &str) -> Result<TableName, NameError> {
        if !(NAME_CHARS_MIN..=NAME_CHARS_MAX).contains(&name.chars().count()) {
            return Err(NameError::Length);
        }
        let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !letters || !name.as_bytes()[0].is_ascii_alphabetic() {
            return Err(NameError::Characters);
        }
        if name.eq_ignore_ascii_case("tables") {
            return Err(NameError::Reserved);
        }
        let id = DatasetName::new(account, &name.to_ascii_lowercase());
        Ok(TableName { name: name.into(), id: Arc::new(id) })
    }

    /// The name as the client wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the catalog calls it: `account/name` in lower case.
    pub fn dataset(&self) -> &str {
        self.id.as_str()
    }

    /// The same for the kit.
    pub(crate) fn id(&self) -> &DatasetName {
        &self.id
    }
}

impl From<TableName> for DatasetName {
    fn from(name: TableName) -> DatasetName {
        Arc::unwrap_or_clone(name.id)
    }
}

impl PartialEq for TableName {
    fn eq(&self, other: &TableName) -> bool {
        self.id == other.id
    }
}

impl Eq for TableName {}

impl fmt::Display for TableName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{NameError, TableName};

    #[test]
    fn names_are_checked_as_the_service_checks_them() {
        let long = "a".repeat(63);
        for name in ["abc", "Orders2", "x00", long.as_str()] {
            let table = TableName::new("acct", name).unwrap();
            assert_eq!(table.name(), name);
            assert_eq!(table.dataset(), format!("acct/{}", name.to_lowercase()));
        }
        assert_eq!(TableName::new("acct", "ORDERS").unwrap(), TableName::new("acct", "orders").unwrap());
        for name in ["", "ab", "a".repeat(64).as_str(), "ä"] {
            assert_eq!(TableName::new("acct", name), Err(NameError::Length), "{name}");
        }
        for name in ["1ab", "a-b", "a_b", "a.b", "äöü", "a b"] {
            assert_eq!(TableName::new("acct", name), Err(NameError::Characters), "{name}");
        }
        assert_eq!(TableName::new("acct", "Tables"), Err(NameError::Reserved));
    }
}

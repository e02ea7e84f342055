//! Ids of databases, containers and documents, and what the catalog calls them.

use polyshard_store::DatasetName;

/// Characters of an id at most.
pub(crate) const ID_CHARS_MAX: usize = 255;

/// An id that nothing can have; says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError(String);

impl std::fmt::Display for NameError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for NameError {}

/// Checks the id of a database, container or document.
pub(crate) fn check_id(id: &str) -> Result<(), NameError> {
    let wrong = |why: &str| Err(NameError(format!("id {:?} {why}; choose another one", shown(id))));
    if id.is_empty() {
        return wrong("is empty");
    }
    if id.chars().count() > ID_CHARS_MAX {
        return wrong("has more than 255 characters");
    }
    if id.contains(['/', '\\', '?', '#']) {
        return wrong("has one of the characters / \\ ? #");
    }
    if id.contains('\0') {
        return wrong("has a NUL character");
    }
    if id.ends_with(' ') {
        return wrong("ends with a space");
    }
    Ok(())
}

/// As much of an id as an error shows.
fn shown(id: &str) -> String {
    id.chars().take(40).collect()
}

/// The dataset of a database, or of a container: `database` or `database/container`.
pub fn dataset_name(account: &str, name: &str) -> Result<DatasetName, NameError> {
    let mut ids = name.split('/');
    let (database, container, more) = (ids.next().unwrap_or_default(), ids.next(), ids.next());
    if more.is_some() {
        return Err(NameError(format!(
            "{:?} names no container; say ACCOUNT/DATABASE/CONTAINER",
            shown(name)
        )));
    }
    for id in [Some(database), container].into_iter().flatten() {
        check_id(id)?;
        // The catalog has a use of its own for this name.
        if id == "$service" {
            return Err(NameError("id \"$service\" is reserved; choose another one".to_owned()));
        }
    }
    Ok(DatasetName::new(account, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_and_containers_have_names_that_are_told_apart() {
        assert_eq!(dataset_name("acct", "db").unwrap().as_str(), "acct/db");
        assert_eq!(dataset_name("acct", "db/a b+é%41&=").unwrap().as_str(), "acct/db/a b+é%41&=");
        for wrong in ["", "db/", "/c", "a/b/c", "a#", "a?b", "a\\b", "a\0", "a ", "db/$service"] {
            assert!(dataset_name("acct", wrong).is_err(), "{wrong:?}");
        }
        assert!(check_id(&"é".repeat(255)).is_ok());
        assert!(check_id(&"é".repeat(256)).is_err());
    }
}

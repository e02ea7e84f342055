//! Names of containers and blobs, checked as the service checks them.

use std::fmt;

use polyshard_store::DatasetName;

/// Names of containers are 3 to 63 characters long, as with the service.
const CONTAINER_CHARS_MIN: usize = 3;
const CONTAINER_CHARS_MAX: usize = 63;
/// Characters of a blob's name: the service's own limit.
pub const BLOB_CHARS_MAX: usize = 1024;
/// Bytes of it in UTF-8 at most: it is twice in keys of PostgreSQL's indexes, which have 2704 bytes.
pub const BLOB_BYTES_MAX: usize = 1200;
/// The container that a path without a container means.
pub const ROOT_CONTAINER: &str = "$root";
/// Containers that the service has besides those with an ordinary name.
const SPECIAL: [&str; 3] = [ROOT_CONTAINER, "$logs", "$web"];

/// A name that nothing can have; the client must choose another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A container's name is too short or too long.
    #[error(
        "the name of a container has {CONTAINER_CHARS_MIN} to {CONTAINER_CHARS_MAX} characters; choose another name"
    )]
    ContainerLength,
    /// Something in a container's name is not allowed.
    #[error(
        "the name of a container has lower-case letters, digits and single dashes, and begins and ends with a letter \
         or digit; choose another name"
    )]
    ContainerCharacters,
    /// A blob's name is empty or too long.
    #[error(
        "the name of a blob has 1 to {BLOB_CHARS_MAX} characters, and at most {BLOB_BYTES_MAX} bytes in UTF-8; choose \
         another name"
    )]
    BlobLength,
    /// Something in a blob's name is not allowed.
    #[error("the name of a blob cannot contain the character U+0000; choose another name")]
    BlobCharacters,
}

/// A container of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerName(DatasetName);

impl ContainerName {
    /// Checks a name. The account's own name was checked when it was configured.
    pub fn new(account: &str, name: &str) -> Result<ContainerName, NameError> {
        if SPECIAL.contains(&name) {
            return Ok(ContainerName(DatasetName::new(account, name)));
        }
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let dashes_apart = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
        if !name.bytes().all(good) || !dashes_apart {
            return Err(NameError::ContainerCharacters);
        }
        if !(CONTAINER_CHARS_MIN..=CONTAINER_CHARS_MAX).contains(&name.len()) {
            return Err(NameError::ContainerLength);
        }
        Ok(ContainerName(DatasetName::new(account, name)))
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

impl From<ContainerName> for DatasetName {
    fn from(name: ContainerName) -> DatasetName {
        name.0
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// A blob of a container. The name is as the client wrote it, decoded once and never normalised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlobName {
    container: ContainerName,
    name: String,
}

impl BlobName {
    /// Checks a name.
    pub fn new(container: ContainerName, name: impl Into<String>) -> Result<BlobName, NameError> {
        let name = name.into();
        if name.is_empty() || name.len() > BLOB_BYTES_MAX || name.chars().count() > BLOB_CHARS_MAX {
            return Err(NameError::BlobLength);
        }
        // PostgreSQL has no such character in a text.
        if name.contains('\0') {
            return Err(NameError::BlobCharacters);
        }
        Ok(BlobName { container, name })
    }

    /// The container.
    pub fn container(&self) -> &ContainerName {
        &self.container
    }

    /// The name within the container.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the default map places it by: `account/container/name`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.container.dataset(), self.name)
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.container, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::{BlobName, ContainerName, NameError};

    #[test]
    fn containers_are_named_as_the_service_has_it() {
        let long = "a".repeat(63);
        for name in ["abc", "a-b-c", "1-2", "000", "$root", "$web", "$logs", long.as_str()] {
            let container = ContainerName::new("acct", name).unwrap();
            assert_eq!((container.account(), container.name()), ("acct", name));
        }
        for name in ["", "ab", "a".repeat(64).as_str()] {
            assert_eq!(ContainerName::new("acct", name), Err(NameError::ContainerLength), "{name}");
        }
        for name in ["-abc", "abc-", "a--b", "Abc", "a_b", "a.b", "a/b", "äöü", "$other"] {
            assert_eq!(ContainerName::new("acct", name), Err(NameError::ContainerCharacters), "{name}");
        }
    }

    #[test]
    fn blobs_have_any_name_up_to_a_length() {
        let container = ContainerName::new("acct", "box").unwrap();
        let blob = |name: &str| BlobName::new(container.clone(), name);
        for name in ["a", "a//b/", "../x", "%2F", "\u{7f}", "日本", &"x".repeat(1024), &"ü".repeat(600)] {
            assert_eq!(blob(name).unwrap().name(), name);
        }
        assert_eq!(blob("x/y").unwrap().path(), "acct/box/x/y");
        for name in ["", &"x".repeat(1025), &"ü".repeat(601)] {
            assert_eq!(blob(name), Err(NameError::BlobLength));
        }
        assert_eq!(blob("a\0b"), Err(NameError::BlobCharacters));
    }
}

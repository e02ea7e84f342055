//! Where backups are kept: a folder, or a prefix in an object store. Objects are there whole or not at all.

mod folder;
mod objects;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::BackupError;
use folder::Folder;
use objects::Objects;

/// Reads a variable of the environment: secrets of object stores come from there.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where backups are kept.
#[derive(Clone)]
pub struct Depot {
    kind: Kind,
    url: String,
}

#[derive(Clone)]
enum Kind {
    Folder(Folder),
    Objects(Objects),
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its path from the depot's root, with slashes.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was written by the clock of whoever keeps it, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// Beginnings of the addresses of object stores.
const SCHEMES: [&str; 5] = ["s3://", "s3a://", "az://", "azure://", "abfs://"];

impl Depot {
    /// Reads an address: a path from the root, `s3://bucket/prefix`, or `az://container/prefix`.
    pub fn open(url: &str, variables: &Variables) -> Result<Depot, BackupError> {
        let url = url.trim_end_matches('/');
        let kind = if SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            Kind::Objects(Objects::open(url, variables)?)
        } else if url.contains("://") {
            let (scheme, _) = url.split_once("://").unwrap_or_default();
            return Err(BackupError::Refused(format!(
                "backups cannot be kept at {scheme}://; name a folder, s3://bucket/prefix or az://container/prefix"
            )));
        } else {
            Kind::Folder(Folder::new(PathBuf::from(if url.is_empty() { "/" } else { url })))
        };
        Ok(Depot { kind, url: url.to_owned() })
    }

    /// Its address; it holds no secret.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The address of something in it, for people.
    pub fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    /// The file of a path, if it is in a folder.
    pub(crate) fn file(&self, path: &str) -> Option<PathBuf> {
        match &self.kind {
            Kind::Folder(folder) => Some(folder.path(path)),
            Kind::Objects(_) => None,
        }
    }

    /// Writes an object durably; one that is there is replaced.
    pub(crate) async fn put(&self, path: &str, bytes: Bytes) -> Result<(), BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.put(path, bytes).await,
            Kind::Objects(objects) => objects.put(path, bytes).await,
        }
    }

    /// Writes an object that may not be there yet; false if it is.
    pub(crate) async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool, BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.put_new(path, bytes).await,
            Kind::Objects(objects) => objects.put_new(path, bytes).await,
        }
    }

    /// Reads an object.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Bytes>, BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.get(path).await,
            Kind::Objects(objects) => objects.get(path).await,
        }
    }

    /// What is known of an object.
    pub(crate) async fn look(&self, path: &str) -> Result<Option<Item>, BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.look(path).await,
            Kind::Objects(objects) => objects.look(path).await,
        }
    }

    /// Everything below a path.
    pub(crate) async fn list(&self, below: &str) -> Result<Vec<Item>, BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.list(below).await,
            Kind::Objects(objects) => objects.list(below).await,
        }
    }

    /// The folders at its root.
    pub(crate) async fn names(&self) -> Result<Vec<String>, BackupError> {
        let mut names = match &self.kind {
            Kind::Folder(folder) => folder.names().await,
            Kind::Objects(objects) => objects.names().await,
        }?;
        names.sort();
        Ok(names)
    }

    /// Removes an object; one that is not there is fine.
    pub(crate) async fn delete(&self, path: &str) -> Result<(), BackupError> {
        match &self.kind {
            Kind::Folder(folder) => folder.delete(path).await,
            Kind::Objects(objects) => objects.delete(path).await,
        }
    }
}

/// One backup: the depot it is in, and its name there.
#[derive(Clone)]
pub struct Location {
    /// The depot.
    pub depot: Depot,
    /// The backup's name.
    pub name: String,
}

/// Names are for folders, addresses and tables alike; so long that a date and a class fit in.
const NAME_CHARS_MAX: usize = 100;

impl Location {
    /// Reads the address of a backup: that of its depot, a slash, its name.
    pub fn open(url: &str, variables: &Variables) -> Result<Location, BackupError> {
        let refuse =
            |why: &str| Err(BackupError::Refused(format!("{url:?} is no address of a backup: {why}")));
        let Some((depot, name)) = url.trim_end_matches('/').rsplit_once('/') else {
            return refuse("it must be a path from the root, or like s3://bucket/prefix/monday");
        };
        if depot.ends_with(":/") {
            return refuse("after the bucket a name must follow, as in s3://bucket/monday");
        }
        Location::new(Depot::open(depot, variables)?, name)
    }

    /// A backup of this name.
    pub fn new(depot: Depot, name: &str) -> Result<Location, BackupError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:+".contains(&byte);
        let good = !name.is_empty()
            && name.len() <= NAME_CHARS_MAX
            && name.bytes().all(fits)
            && !name.starts_with('.')
            && name != crate::pool::CHUNKS;
        if !good {
            return Err(BackupError::Refused(format!(
                "{name:?} is no name for a backup; use up to {NAME_CHARS_MAX} letters, digits, - _ . : +, other than \
                 {:?}",
                crate::pool::CHUNKS
            )));
        }
        Ok(Location { depot, name: name.to_owned() })
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.depot.address(&self.name)
    }

    /// Writes one of its objects, never over somebody else's: whoever slept may have lost the name to another.
    pub(crate) async fn put(&self, file: &str, bytes: Bytes) -> Result<(), BackupError> {
        let path = self.path(file);
        // One that is there with the same content was written by an attempt whose answer was lost.
        if self.depot.put_new(&path, bytes.clone()).await? || self.depot.get(&path).await? == Some(bytes) {
            return Ok(());
        }
        let at = self.depot.address(&path);
        Err(BackupError::Failed(format!("{at} is another backup's, which took the name; take it again")))
    }

    /// The path of one of its objects.
    pub(crate) fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_depot_and_a_name() {
        let none: Variables = Arc::new(|_| None);
        let at = Location::open("/backups/monday/", &none).unwrap();
        assert_eq!(
            (at.depot.url(), at.name.as_str(), at.url()),
            ("/backups", "monday", "/backups/monday".into())
        );
        let at = Location::open("s3://bucket/a/b/monday", &none).unwrap();
        assert_eq!((at.depot.url(), at.name.as_str()), ("s3://bucket/a/b", "monday"));
        for wrong in ["monday", "s3://bucket", "/", "ftp://h/x/y", "/backups/chunks", "/backups/..", "/b/a b"]
        {
            assert!(matches!(Location::open(wrong, &none), Err(BackupError::Refused(_))), "{wrong}");
        }
    }
}

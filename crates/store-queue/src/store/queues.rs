//! Making, listing and deleting queues, and what is kept about them.

use polyshard_store::{Body, Created as Made, ErrorKind, read_body};
use serde::{Deserialize, Serialize};

use super::{QueueStore, StoreError};
use crate::name::QueueName;

/// Names and values in the order and spelling they were given in.
pub type Metadata = Vec<(String, String)>;

/// What the catalog keeps about a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct QueueBody {
    metadata: Metadata,
    #[serde(default)]
    policies: Vec<Policy>,
}

impl Body for QueueBody {
    const FORMAT: u32 = 1;
}

/// A stored access policy, as its owner wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name in signatures.
    pub id: String,
    /// From when it holds, in the client's own writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<String>,
    /// What it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

/// Whether a queue is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was made.
    New,
    /// It was there, with the same metadata.
    Already,
}

/// A queue in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the account.
    pub name: String,
    /// Its metadata.
    pub metadata: Metadata,
}

/// A part of a list, in the order of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The queues.
    pub queues: Vec<Listed>,
    /// Where the next part begins, if there is more.
    pub next: Option<String>,
}

impl QueueStore {
    /// Creates a queue.
    pub async fn create(&self, queue: &QueueName, metadata: Metadata) -> Result<Created, StoreError> {
        let body = QueueBody { metadata, policies: Vec::new() };
        let made = self.kit.create(queue.id(), &body).await;
        match made.map_err(|error| StoreError::of_kit(queue, error))? {
            Made::New => Ok(Created::New),
            Made::Already(record) => {
                match same_metadata(&read_body::<QueueBody>(&record)?.metadata, &body.metadata) {
                    true => Ok(Created::Already),
                    false => Err(StoreError::Exists(queue.to_string())),
                }
            }
        }
    }

    /// Deletes a queue. It is gone at once; its messages are removed in the background.
    pub async fn delete(&self, queue: &QueueName) -> Result<(), StoreError> {
        let deleted = self.kit.delete(queue.id()).await;
        self.deleted.notify_one();
        deleted.map_err(|error| missing(queue, error))
    }

    /// The queues of an account whose names begin with a prefix, from a name on.
    pub async fn list(
        &self,
        account: &str,
        prefix: &str,
        from: Option<&str>,
        max: usize,
    ) -> Result<Page, StoreError> {
        // Without the catalog the list is as old as what this process has heard.
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let mut queues = Vec::new();
        let first = from.unwrap_or_default().max(prefix);
        for (name, record) in self.kit.datasets(&view, account, first) {
            if !name.starts_with(prefix) {
                break;
            }
            if queues.len() >= max {
                return Ok(Page { queues, next: Some(name.to_owned()) });
            }
            let metadata = read_body::<QueueBody>(record)?.metadata;
            queues.push(Listed { name: name.to_owned(), metadata });
        }
        Ok(Page { queues, next: None })
    }

    /// A queue's metadata.
    pub async fn metadata(&self, queue: &QueueName) -> Result<Metadata, StoreError> {
        Ok(self.body(queue).await?.metadata)
    }

    /// Replaces a queue's metadata.
    pub async fn set_metadata(&self, queue: &QueueName, metadata: Metadata) -> Result<(), StoreError> {
        self.change(queue, |body| body.metadata = metadata).await
    }

    /// A queue's stored access policies.
    pub async fn policies(&self, queue: &QueueName) -> Result<Vec<Policy>, StoreError> {
        Ok(self.body(queue).await?.policies)
    }

    /// Replaces a queue's stored access policies.
    pub async fn set_policies(&self, queue: &QueueName, policies: Vec<Policy>) -> Result<(), StoreError> {
        self.change(queue, |body| body.policies = policies).await
    }

    async fn body(&self, queue: &QueueName) -> Result<QueueBody, StoreError> {
        let record = self.kit.dataset(queue.id()).await.map_err(|error| missing(queue, error))?;
        Ok(read_body(&record)?)
    }

    async fn change(&self, queue: &QueueName, change: impl FnOnce(&mut QueueBody)) -> Result<(), StoreError> {
        let edit = |body: &mut QueueBody| {
            change(body);
            Ok(())
        };
        self.kit.change(queue.id(), edit).await.map_err(|error| missing(queue, error))
    }
}

/// An error about a queue: there may be none.
fn missing(queue: &QueueName, error: polyshard_store::Error) -> StoreError {
    match error.kind {
        ErrorKind::NoDataset => StoreError::NoSuchQueue(queue.to_string()),
        _ => StoreError::Kit(error),
    }
}

/// Whether two sets of metadata say the same: names are compared without regard to case and order.
fn same_metadata(one: &Metadata, other: &Metadata) -> bool {
    let sorted = |metadata: &Metadata| {
        let mut pairs: Vec<_> =
            metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        pairs.sort();
        pairs
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests {
    use polyshard_store::{Error, read_stored};

    use super::*;

    fn from_json(stored: &serde_json::Value) -> Result<QueueBody, Error> {
        read_stored("a queue", stored)
    }

    #[test]
    fn the_first_format_of_a_record_is_still_read() {
        let stored = serde_json::json!({"format": 1, "metadata": [["Name", "value"]]});
        let body = from_json(&stored).unwrap();
        assert_eq!(body.metadata, [("Name".to_owned(), "value".to_owned())]);
        let policies = serde_json::json!({"format": 1, "metadata": [], "policies": [
            {"id": "read", "expiry": "2030-01-01", "permission": "r"}]});
        let policy = &from_json(&policies).unwrap().policies[0];
        assert_eq!((policy.start.as_deref(), policy.expiry.as_deref()), (None, Some("2030-01-01")));
        assert!(from_json(&serde_json::json!({"format": 2, "metadata": []})).is_err());
        assert!(from_json(&serde_json::json!({"metadata": 7})).is_err());
    }

    #[test]
    fn metadata_is_compared_without_case_and_order_of_names() {
        let of = |pairs: &[(&str, &str)]| -> Metadata {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        assert!(same_metadata(&of(&[("A", "1"), ("b", "2")]), &of(&[("B", "2"), ("a", "1")])));
        assert!(!same_metadata(&of(&[("a", "x")]), &of(&[("a", "X")])));
        assert!(!same_metadata(&of(&[("a", "1")]), &of(&[])));
    }
}

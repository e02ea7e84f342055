//! Making, listing and deleting queues, and what is kept about them.

use polyshard_catalog::{BINDING_SUFFIX, Binding, CatalogError};
use serde::{Deserialize, Serialize};

use super::{QueueStore, STORE, StoreError, default_map, default_rule, key_and_placement};
use crate::name::QueueName;

/// Names and values in the order and spelling they were given in.
pub type Metadata = Vec<(String, String)>;

/// The format of [`Body`]; a program meets a newer one only when it is older than others of its cluster.
const BODY_FORMAT: u32 = 1;

/// What the catalog keeps about a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Body {
    format: u32,
    metadata: Metadata,
    #[serde(default)]
    policies: Vec<Policy>,
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
    /// Makes a queue.
    pub async fn create(&self, queue: &QueueName, metadata: Metadata) -> Result<Created, StoreError> {
        self.check_place(queue)?;
        let body = to_json(&Body { format: BODY_FORMAT, metadata: metadata.clone(), policies: Vec::new() });
        let (map, rule) = (default_map(), default_rule());
        let made =
            self.kit.driver().create_dataset_on_own_map(STORE.id, queue.dataset(), &map, rule, body).await;
        self.catch_up().await;
        match made {
            Ok(_) => Ok(Created::New),
            Err(CatalogError::Exists(_)) => {
                let same = same_metadata(&self.metadata(queue).await?, &metadata);
                if same { Ok(Created::Already) } else { Err(StoreError::Exists(queue.to_string())) }
            }
            Err(CatalogError::NoSuchMap(map)) => Err(StoreError::NoMap(map.to_string())),
            Err(CatalogError::Invalid(why)) => Err(StoreError::TooMany(why)),
            Err(error) => Err(error.into()),
        }
    }

    /// A queue that no message could be put into is not made: whoever makes it can choose another name, and whoever
    /// sends messages cannot. What this process has not heard of yet shows with the first message.
    fn check_place(&self, queue: &QueueName) -> Result<(), StoreError> {
        let view = self.kit.router().view();
        if view.datasets.contains_key(&(STORE.id.to_owned(), queue.dataset().to_owned())) {
            return Ok(());
        }
        let list = format!("{}{BINDING_SUFFIX}", STORE.id);
        let bindings = view.datasets_of(&list).filter_map(|record| Binding::of(record));
        let Some(binding) = Binding::best(bindings, queue.dataset()) else { return Ok(()) };
        match view.maps.get(&binding.map) {
            Some(known) => key_and_placement(&binding.rule, &known.map, queue.name()).map(drop),
            None => Ok(()),
        }
    }

    /// Deletes a queue. It is gone at once; its messages are removed in the background.
    pub async fn delete(&self, queue: &QueueName) -> Result<(), StoreError> {
        let deleted = self.kit.driver().retire_dataset(STORE.id, queue.dataset(), self.now_ms()).await;
        self.catch_up().await;
        self.deleted.notify_one();
        match deleted {
            Ok(_) => Ok(()),
            Err(CatalogError::NoSuchDataset(_)) => Err(StoreError::NoSuchQueue(queue.to_string())),
            Err(error) => Err(error.into()),
        }
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
        self.catch_up().await;
        let view = self.kit.router().view();
        let (folder, first) = (format!("{account}/"), from.unwrap_or_default().max(prefix));
        let mut queues = Vec::new();
        for ((store, name), record) in
            view.datasets.range((STORE.id.to_owned(), format!("{folder}{first}"))..)
        {
            let name =
                name.strip_prefix(&folder).filter(|name| store == STORE.id && name.starts_with(prefix));
            let Some(name) = name else { break };
            if queues.len() >= max {
                return Ok(Page { queues, next: Some(name.to_owned()) });
            }
            queues.push(Listed { name: name.to_owned(), metadata: from_json(&record.body)?.metadata });
        }
        Ok(Page { queues, next: None })
    }

    /// A queue's metadata.
    pub async fn metadata(&self, queue: &QueueName) -> Result<Metadata, StoreError> {
        Ok(from_json(&self.record(queue).await?.body)?.metadata)
    }

    /// Replaces a queue's metadata.
    pub async fn set_metadata(&self, queue: &QueueName, metadata: Metadata) -> Result<(), StoreError> {
        self.change(queue, |body| body.metadata = metadata).await
    }

    /// A queue's stored access policies.
    pub async fn policies(&self, queue: &QueueName) -> Result<Vec<Policy>, StoreError> {
        Ok(from_json(&self.record(queue).await?.body)?.policies)
    }

    /// Replaces a queue's stored access policies.
    pub async fn set_policies(&self, queue: &QueueName, policies: Vec<Policy>) -> Result<(), StoreError> {
        self.change(queue, |body| body.policies = policies).await
    }

    async fn change(&self, queue: &QueueName, change: impl FnOnce(&mut Body)) -> Result<(), StoreError> {
        let changed = self.kit.driver().update_dataset(STORE.id, queue.dataset(), |stored| {
            let mut body = from_json(stored)?;
            change(&mut body);
            *stored = to_json(&body);
            Ok::<(), StoreError>(())
        });
        let changed = changed.await;
        self.catch_up().await;
        match changed {
            Ok(_) => Ok(()),
            Err(StoreError::Catalog(CatalogError::NoSuchDataset(_))) => {
                Err(StoreError::NoSuchQueue(queue.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Has this process see what was just changed. If the catalog cannot be asked now, it will by itself, later.
    pub(super) async fn catch_up(&self) {
        if let Err(error) = self.kit.router().refresh().await {
            tracing::debug!(%error, "what this process knows of queues is as old as its last word from the catalog");
        }
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

fn to_json(body: &Body) -> serde_json::Value {
    serde_json::to_value(body).expect("a queue's record is plain JSON")
}

fn from_json(body: &serde_json::Value) -> Result<Body, StoreError> {
    let body = Body::deserialize(body).map_err(|_| StoreError::Damaged("queue record"))?;
    if body.format > BODY_FORMAT {
        tracing::warn!(format = body.format, "a queue's record is of a newer program; upgrade this process");
        return Err(StoreError::Damaged("queue record (it is of a newer program)"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! Making, listing and deleting containers, and what is kept about them.

use std::sync::Arc;

use polyshard_catalog::DatasetRecord;
use polyshard_store::{Body, Created as Made, read_body};
use serde::{Deserialize, Serialize};

use super::{BlobStore, StoreError};
use crate::conditions::{ConditionError, Conditions};
use crate::model::{
    Container, ContainerPage, ContainerQuery, Etag, Lease, LeaseAction, LeaseAnswer, Metadata, Policy,
    PublicAccess,
};
use crate::name::ContainerName;

/// What the catalog keeps about a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ContainerBody {
    etag: Etag,
    modified: i64,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    access: PublicAccess,
    #[serde(default)]
    policies: Vec<Policy>,
    #[serde(default)]
    lease: Lease,
}

impl Body for ContainerBody {
    const FORMAT: u32 = 1;
}

impl ContainerBody {
    fn into_container(self, name: &str, now_ms: i64) -> Container {
        let ContainerBody { etag, modified, metadata, access, policies, lease } = self;
        Container { name: name.to_owned(), etag, modified, metadata, access, policies, lease, now_ms }
    }

    fn of(container: &Container) -> ContainerBody {
        ContainerBody {
            etag: container.etag,
            modified: container.modified,
            metadata: container.metadata.clone(),
            access: container.access,
            policies: container.policies.clone(),
            lease: container.lease,
        }
    }
}

fn of_lease(error: ConditionError) -> StoreError {
    match error {
        ConditionError::Lease(error) => StoreError::ContainerLease(error),
        other => StoreError::Condition(other),
    }
}

impl BlobStore {
    /// Creates a container.
    pub async fn create_container(
        &self,
        name: &ContainerName,
        metadata: Metadata,
        access: PublicAccess,
    ) -> Result<Container, StoreError> {
        let now = self.kit.next_ticks();
        let body = ContainerBody {
            etag: Etag(now),
            modified: now,
            metadata,
            access,
            policies: Vec::new(),
            lease: Lease::default(),
        };
        let made = self.kit.create(name.id(), &body).await;
        match made.map_err(|error| StoreError::of_container(name, error))? {
            Made::New => Ok(body.into_container(name.name(), self.kit.now_ms())),
            Made::Already(_) => Err(StoreError::ContainerExists(name.to_string())),
        }
    }

    /// A container, with its metadata, access and policies.
    pub async fn container(
        &self,
        name: &ContainerName,
        conditions: &Conditions,
    ) -> Result<Container, StoreError> {
        let container = self.container_of(&*self.record(name).await?, name.name())?;
        conditions.check_read(Some(container.subject()))?;
        conditions.check_read_lease(&container.lease, container.now_ms).map_err(of_lease)?;
        Ok(container)
    }

    fn container_of(&self, record: &DatasetRecord, name: &str) -> Result<Container, StoreError> {
        Ok(read_body::<ContainerBody>(record)?.into_container(name, self.kit.now_ms()))
    }

    /// Deletes a container. It is gone at once; its blobs are removed in the background.
    pub async fn delete_container(
        &self,
        name: &ContainerName,
        conditions: &Conditions,
    ) -> Result<(), StoreError> {
        let container = self.container_of(&*self.record(name).await?, name.name())?;
        conditions.check_write(Some(container.subject()))?;
        conditions.check_write_lease(&container.lease, container.now_ms).map_err(of_lease)?;
        let deleted = self.kit.delete(name.id()).await;
        self.tidy.notify_one();
        deleted.map_err(|error| StoreError::of_container(name, error))
    }

    /// Replaces a container's metadata.
    pub async fn set_container_metadata(
        &self,
        name: &ContainerName,
        metadata: Metadata,
        conditions: &Conditions,
    ) -> Result<Container, StoreError> {
        self.change_container(name, |container| {
            check_container(conditions, container)?;
            container.metadata = metadata;
            self.touch_container(container);
            Ok(())
        })
        .await
    }

    /// Replaces a container's public access and stored access policies.
    pub async fn set_container_policies(
        &self,
        name: &ContainerName,
        access: PublicAccess,
        policies: Vec<Policy>,
        conditions: &Conditions,
    ) -> Result<Container, StoreError> {
        self.change_container(name, |container| {
            check_container(conditions, container)?;
            (container.access, container.policies) = (access, policies);
            self.touch_container(container);
            Ok(())
        })
        .await
    }

    /// One of the five verbs of a container's lease.
    pub async fn lease_container(
        &self,
        name: &ContainerName,
        action: LeaseAction,
        conditions: &Conditions,
    ) -> Result<LeaseAnswer, StoreError> {
        let (mut id, mut seconds_left) = (None, None);
        let made = self.new_lease();
        let container = self.change_container(name, |container| {
            conditions.check_write(Some(container.subject()))?;
            let outcome = container.lease.apply(action, made, container.now_ms);
            let outcome = outcome.map_err(StoreError::ContainerLease)?;
            container.lease = outcome.lease;
            (id, seconds_left) = (outcome.id, outcome.seconds_left);
            Ok(())
        });
        let Container { etag, modified, .. } = container.await?;
        Ok(LeaseAnswer { id, seconds_left, etag, modified })
    }

    /// A change of a container, in one transaction of the catalog.
    async fn change_container(
        &self,
        name: &ContainerName,
        change: impl FnOnce(&mut Container) -> Result<(), StoreError>,
    ) -> Result<Container, StoreError> {
        let mut answer = None;
        let edit = |body: &mut ContainerBody| {
            let mut container = body.clone().into_container(name.name(), self.kit.now_ms());
            match change(&mut container) {
                Ok(()) => {
                    *body = ContainerBody::of(&container);
                    answer = Some(Ok(container));
                    Ok(())
                }
                Err(error) => {
                    answer = Some(Err(error));
                    // Its words are not shown: the answer is at hand.
                    Err(polyshard_store::Error::new(polyshard_store::ErrorKind::Invalid, "refused"))
                }
            }
        };
        let changed = self.kit.change(name.id(), edit).await;
        match (changed, answer) {
            (_, Some(Err(refusal))) => Err(refusal),
            (Err(error), _) => Err(StoreError::of_container(name, error)),
            (Ok(()), Some(Ok(container))) => Ok(container),
            (Ok(()), None) => Err(StoreError::damaged("container", "its change was not made")),
        }
    }

    fn touch_container(&self, container: &mut Container) {
        let now = self.kit.next_ticks().max(container.etag.0 + 1);
        (container.etag, container.modified) = (Etag(now), now);
        container.lease = container.lease.after_write(container.now_ms);
    }

    /// Containers of an account.
    pub async fn list_containers(
        &self,
        account: &str,
        query: &ContainerQuery,
    ) -> Result<ContainerPage, StoreError> {
        // Without the catalog the list is as old as what this process has heard.
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let mut containers = Vec::new();
        let prefix = query.prefix.as_str();
        let first = query.marker.as_deref().unwrap_or_default().max(prefix);
        for (name, record) in self.kit.datasets(&view, account, first) {
            if !name.starts_with(prefix) {
                break;
            }
            if containers.len() >= query.max {
                return Ok(ContainerPage { containers, next: Some(name.to_owned()) });
            }
            containers.push(self.container_of(record, name)?);
        }
        Ok(ContainerPage { containers, next: None })
    }

    /// The containers of an account, by name.
    pub(super) fn records_of(&self, account: &str, from: &str) -> Vec<(String, Arc<DatasetRecord>)> {
        let view = self.kit.router().view();
        let records = self.kit.datasets(&view, account, from);
        records.map(|(name, record)| (name.to_owned(), record.clone())).collect()
    }
}

fn check_container(conditions: &Conditions, container: &Container) -> Result<(), StoreError> {
    conditions.check_write(Some(container.subject()))?;
    // A container's lease keeps it from being deleted only; but a lease that is named must be the right one.
    conditions.check_read_lease(&container.lease, container.now_ms).map_err(of_lease)
}

#[cfg(test)]
mod tests {
    use polyshard_store::read_stored;

    use super::*;

    #[test]
    fn the_first_format_of_a_record_is_still_read() {
        let stored = serde_json::json!({"format": 1, "etag": 5, "modified": 4, "metadata": [["Name", "value"]],
            "access": "Blob", "policies": [{"id": "read", "permission": "r"}],
            "lease": {"id": null, "seconds": 0, "until_ms": 0, "broken_ms": 0}});
        let body: ContainerBody = read_stored("a container", &stored).unwrap();
        assert_eq!((body.etag, body.modified, body.access), (Etag(5), 4, PublicAccess::Blob));
        assert_eq!(body.policies[0].permission.as_deref(), Some("r"));
        let short = serde_json::json!({"format": 1, "etag": 5, "modified": 4});
        assert_eq!(read_stored::<ContainerBody>("a container", &short).unwrap().lease, Lease::default());
        assert!(read_stored::<ContainerBody>("a container", &serde_json::json!({"format": 2})).is_err());
    }
}

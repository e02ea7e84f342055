//! Answers about a container.

use polyshard_azure_storage::{Response, StoredPolicy, Timestamp, write_policies};
use polyshard_store::Error;

use super::{document, lease_state, metadata, state};
use crate::model::{Container, Policy, PublicAccess};
use crate::store::StoreError;

pub(crate) fn created(container: &Container) -> Response {
    changed(201, container)
}

pub(crate) fn set(container: &Container) -> Response {
    changed(200, container)
}

pub(crate) fn deleted() -> Response {
    Response::new(202)
}

fn changed(status: u16, container: &Container) -> Response {
    state(Response::new(status), container.etag, container.modified)
}

pub(crate) fn properties(container: &Container) -> Response {
    let response = metadata(changed(200, container), &container.metadata);
    let response = lease_state(response, &container.lease, container.now_ms);
    access(response, container.access)
        .header("x-ms-has-immutability-policy", "false")
        .header("x-ms-has-legal-hold", "false")
        .header("x-ms-immutable-storage-with-versioning-enabled", "false")
        .header("x-ms-default-encryption-scope", "$account-encryption-key")
        .header("x-ms-deny-encryption-scope-override", "false")
}

pub(crate) fn policies(container: &Container) -> Result<Response, StoreError> {
    let body = write_policies(&stored_policies(&container.policies)?);
    Ok(access(state(document(200, body), container.etag, container.modified), container.access))
}

fn access(response: Response, access: PublicAccess) -> Response {
    match access_text(access) {
        Some(text) => response.header("x-ms-blob-public-access", text),
        None => response,
    }
}

/// As in `x-ms-blob-public-access`, which is not there for private containers.
pub(super) fn access_text(access: PublicAccess) -> Option<&'static str> {
    match access {
        PublicAccess::None => None,
        PublicAccess::Blob => Some("blob"),
        PublicAccess::Container => Some("container"),
    }
}

/// Policies as signatures are checked against. A time that cannot be read is an error, and not "no limit".
pub(crate) fn stored_policies(policies: &[Policy]) -> Result<Vec<StoredPolicy>, StoreError> {
    let damaged = |id: &str, text: &str| {
        let detail = format!("policy {id:?} has the time {text:?}");
        StoreError::Kit(Error::damaged("access policy", detail))
    };
    let time = |id: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => Timestamp::parse_iso(text).map(Some).ok_or_else(|| damaged(id, text)),
    };
    let stored = policies.iter().map(|policy| {
        Ok(StoredPolicy {
            id: policy.id.clone(),
            start: time(&policy.id, &policy.start)?,
            expiry: time(&policy.id, &policy.expiry)?,
            permission: policy.permission.clone(),
        })
    });
    stored.collect()
}

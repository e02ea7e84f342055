//! Leases of blobs.

use uuid::Uuid;

use super::home::Change;
use super::{BlobStore, StoreError};
use crate::conditions::Conditions;
use crate::model::{Blob, LeaseAction, LeaseAnswer};
use crate::name::BlobName;

impl BlobStore {
    /// One of the five verbs of a blob's lease. Neither ETag nor time of the blob change.
    pub async fn lease_blob(
        &self,
        name: &BlobName,
        action: LeaseAction,
        conditions: &Conditions,
    ) -> Result<LeaseAnswer, StoreError> {
        let home = self.home_of_request(name).await?;
        let (mut id, mut seconds_left) = (None, None);
        let made = self.new_lease();
        let decide = |found: Option<&Blob>| {
            // One that has uncommitted blocks only can be leased too.
            let Some(found) = found.filter(|blob| blob.deleted == 0) else {
                return Err(StoreError::no_blob(name));
            };
            conditions.check_write(Some(found.subject()))?;
            let outcome = found.lease.apply(action, made, found.now_ms).map_err(StoreError::BlobLease)?;
            (id, seconds_left) = (outcome.id, outcome.seconds_left);
            Ok(Change::new(Blob { lease: outcome.lease, ..found.clone() }))
        };
        let Blob { etag, modified, .. } = self.change(&home, decide).await?;
        Ok(LeaseAnswer { id, seconds_left, etag, modified })
    }

    /// The id of a lease for which the client proposes none.
    pub(super) fn new_lease(&self) -> Uuid {
        let (high, low) = (u128::from(self.kit.random()), u128::from(self.kit.random()));
        uuid::Builder::from_random_bytes(((high << 64) | low).to_be_bytes()).into_uuid()
    }
}

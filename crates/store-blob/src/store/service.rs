//! The properties of an account's blob service, kept in the catalog.

use polyshard_azure_storage::{PropertiesPatch, ServiceProperties};
use polyshard_store::Body;
use serde::{Deserialize, Serialize};

use super::{BlobStore, StoreError};

/// All properties of an account's blob service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobProperties {
    /// Those that all services have.
    pub common: ServiceProperties,
    /// What becomes of deleted blobs.
    #[serde(default)]
    pub delete_retention: DeleteRetention,
    /// The version of requests that name none; only told again.
    #[serde(default)]
    pub default_version: Option<String>,
    /// A site made of blobs; only told again.
    #[serde(default)]
    pub website: Website,
}

/// What becomes of deleted blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteRetention {
    /// For how many days they are kept; not at all if not said.
    pub days: Option<u32>,
    /// Whether a deleted snapshot may be removed before.
    #[serde(default)]
    pub allow_permanent_delete: bool,
}

/// A site made of blobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Website {
    /// Whether there is one.
    pub enabled: bool,
    /// The blob that stands for a folder.
    #[serde(default)]
    pub index_document: Option<String>,
    /// The blob for what there is not.
    #[serde(default)]
    pub error_document: Option<String>,
    /// The blob for a folder without one of its own.
    #[serde(default)]
    pub default_index_path: Option<String>,
}

/// Properties to be set; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobPropertiesPatch {
    /// Those that all services have.
    pub common: PropertiesPatch,
    /// What becomes of deleted blobs.
    pub delete_retention: Option<DeleteRetention>,
    /// The version of requests that name none.
    pub default_version: Option<String>,
    /// A site made of blobs.
    pub website: Option<Website>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct AccountBody {
    properties: BlobProperties,
}

impl Body for AccountBody {
    const FORMAT: u32 = 1;
}

impl BlobStore {
    /// An account's properties. The catalog is not asked: a stranger's request with an `Origin` comes here.
    pub fn properties(&self, account: &str) -> Result<BlobProperties, StoreError> {
        Ok(self.kit.settings::<AccountBody>(account)?.properties)
    }

    /// Sets some of an account's properties.
    pub async fn set_properties(&self, account: &str, patch: BlobPropertiesPatch) -> Result<(), StoreError> {
        let edit = |body: &mut AccountBody| {
            let properties = &mut body.properties;
            patch.common.apply(&mut properties.common);
            if let Some(retention) = patch.delete_retention {
                properties.delete_retention = retention;
            }
            if let Some(version) = patch.default_version {
                properties.default_version = Some(version);
            }
            if let Some(website) = patch.website {
                properties.website = website;
            }
        };
        Ok(self.kit.change_settings(account, edit).await?)
    }

    /// For how many days the deleted blobs of an account are kept, if they are.
    pub(super) fn retention_days(&self, account: &str) -> Result<Option<u32>, StoreError> {
        Ok(self.properties(account)?.delete_retention.days)
    }
}

#[cfg(test)]
mod tests {
    use polyshard_store::{Error, read_stored};

    use super::AccountBody;

    fn from_json(stored: &serde_json::Value) -> Result<AccountBody, Error> {
        read_stored("an account", stored)
    }

    #[test]
    fn the_first_format_of_properties_is_still_read() {
        let stored = serde_json::json!({"format": 1, "properties": {"common": {},
            "delete_retention": {"days": 7}, "website": {"enabled": true, "index_document": "index.html"}}});
        let body = from_json(&stored).unwrap();
        assert_eq!(body.properties.delete_retention.days, Some(7));
        assert!(body.properties.website.enabled);
        assert!(from_json(&serde_json::json!({"format": 2, "properties": {"common": {}}})).is_err());
    }
}

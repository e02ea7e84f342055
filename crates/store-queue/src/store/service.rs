//! The properties of an account's queue service, kept in the catalog.

use polyshard_azure_storage::{PropertiesPatch, ServiceProperties};
use polyshard_store::Body;
use serde::{Deserialize, Serialize};

use super::{QueueStore, StoreError};

#[derive(Debug, Default, Serialize, Deserialize)]
struct AccountBody {
    properties: ServiceProperties,
}

impl Body for AccountBody {
    const FORMAT: u32 = 1;
}

impl QueueStore {
    /// An account's properties. The catalog is not asked: a stranger's request with an `Origin` comes here.
    pub fn properties(&self, account: &str) -> Result<ServiceProperties, StoreError> {
        Ok(self.kit.settings::<AccountBody>(account)?.properties)
    }

    /// Sets some of an account's properties.
    pub async fn set_properties(&self, account: &str, patch: PropertiesPatch) -> Result<(), StoreError> {
        let edit = |body: &mut AccountBody| patch.apply(&mut body.properties);
        Ok(self.kit.change_settings(account, edit).await?)
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
        let metrics = serde_json::json!({"enabled": true, "include_apis": null, "retention": {"days": 3}});
        let stored = serde_json::json!({"format": 1, "properties": {
            "logging": {"delete": false, "read": true, "write": false, "retention": {"days": null}},
            "hour_metrics": metrics, "minute_metrics": metrics,
            "cors": [{"allowed_origins": "*", "allowed_methods": "GET", "allowed_headers": "", "exposed_headers": "",
                "max_age_seconds": 5}]}});
        let body = from_json(&stored).unwrap();
        assert!(body.properties.logging.read);
        assert_eq!(body.properties.minute_metrics.days, Some(3));
        assert!(from_json(&serde_json::json!({"format": 2, "properties": {}})).is_err());
    }
}

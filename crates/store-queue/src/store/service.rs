//! The properties of an account's queue service, kept in the catalog.

use polyshard_azure_storage::{PropertiesPatch, ServiceProperties};
use polyshard_catalog::CatalogError;
use serde::{Deserialize, Serialize};

use super::{QueueStore, StoreError, default_map, default_rule};

/// What the catalog calls the records of accounts.
const SERVICE_STORE: &str = "queue-service";

/// The format of [`Body`].
const BODY_FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Body {
    format: u32,
    properties: ServiceProperties,
}

impl QueueStore {
    /// An account's properties.
    pub async fn properties(&self, account: &str) -> Result<ServiceProperties, StoreError> {
        match self.kit.router().dataset(SERVICE_STORE, account).await? {
            Some(record) => Ok(from_json(&record.body)?.properties),
            None => Ok(ServiceProperties::default()),
        }
    }

    /// Sets some of an account's properties.
    pub async fn set_properties(&self, account: &str, patch: PropertiesPatch) -> Result<(), StoreError> {
        let body = Body { format: BODY_FORMAT, properties: ServiceProperties::default() };
        let made = self
            .kit
            .driver()
            .create_dataset_on_own_map(SERVICE_STORE, account, &default_map(), default_rule(), to_json(&body))
            .await;
        match made {
            Ok(_) | Err(CatalogError::Exists(_)) => {}
            Err(CatalogError::NoSuchMap(map)) => return Err(StoreError::NoMap(map.to_string())),
            Err(error) => return Err(error.into()),
        }
        let changed = self.kit.driver().update_dataset(SERVICE_STORE, account, |stored| {
            let mut body = from_json(stored)?;
            patch.apply(&mut body.properties);
            *stored = to_json(&body);
            Ok::<(), StoreError>(())
        });
        let changed = changed.await;
        self.catch_up().await;
        changed.map(drop)
    }
}

fn to_json(body: &Body) -> serde_json::Value {
    serde_json::to_value(body).expect("properties are plain JSON")
}

fn from_json(body: &serde_json::Value) -> Result<Body, StoreError> {
    let body = Body::deserialize(body).map_err(|_| StoreError::Damaged("service properties"))?;
    if body.format > BODY_FORMAT {
        return Err(StoreError::Damaged("service properties (they are of a newer program)"));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::from_json;

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

//! Creating, deleting and listing tables, and what is kept about them and about an account.

use polyshard_azure_storage::{PropertiesPatch, ServiceProperties};
use polyshard_catalog::is_account_record;
use polyshard_store::{Body, Created, Error, ErrorKind, FormerSettings, read_body};
use serde::{Deserialize, Serialize};

use super::{StoreError, TableStore};
use crate::edm::Scalar;
use crate::filter::Filter;
use crate::name::TableName;

/// What the catalog keeps about a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TableBody {
    /// The name as it was first written.
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<Policy>,
}

impl Body for TableBody {
    const FORMAT: u32 = 1;
}

/// A stored access policy of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// What signatures name it by.
    pub id: String,
    /// When it begins to hold, in ticks of 100 ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<i64>,
    /// What it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

/// What the catalog keeps about an account's table service.
#[derive(Debug, Default, Serialize, Deserialize)]
struct AccountBody {
    properties: ServiceProperties,
}

impl Body for AccountBody {
    const FORMAT: u32 = 1;
}

/// Where an earlier program kept it.
pub(super) const FORMER_SETTINGS: FormerSettings =
    FormerSettings { store: "table", name: |account| format!("{account}/$service") };

/// A part of a list of tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Names as they were first written, in the order of their lower-case form.
    pub names: Vec<String>,
    /// The name at which to go on.
    pub next: Option<String>,
}

impl TableStore {
    /// Creates a table.
    pub async fn create_table(&self, table: &TableName) -> Result<(), StoreError> {
        let body = TableBody { name: table.name().to_owned(), policies: Vec::new() };
        match self.kit.create(table.id(), &body).await? {
            Created::New => Ok(()),
            Created::Already(_) => Err(StoreError::TableExists(table.to_string())),
        }
    }

    /// Deletes a table. It is gone at once; its entities are removed in the background.
    pub async fn delete_table(&self, table: &TableName) -> Result<(), StoreError> {
        let deleted = self.kit.delete(table.id()).await;
        self.deleted.notify_one();
        deleted.map_err(|error| missing(table, error))
    }

    /// Whether a table is there; the name as it was first written.
    pub async fn table(&self, table: &TableName) -> Result<String, StoreError> {
        Ok(read_body::<TableBody>(&*self.record(table).await?)?.name)
    }

    /// Tables of an account, from a name on.
    pub async fn list_tables(
        &self,
        account: &str,
        filter: Option<&Filter>,
        from: Option<&str>,
        top: usize,
    ) -> Result<Listed, StoreError> {
        // Without the catalog the list is as old as what this process has heard.
        self.kit.catch_up().await;
        let view = self.kit.router().view();
        let from = from.unwrap_or_default().to_ascii_lowercase();
        let mut listed = Listed::default();
        for (place, record) in self.kit.datasets(&view, account, &from) {
            // What an earlier program kept about the account itself.
            if is_account_record(&record.name) {
                continue;
            }
            let name = read_body::<TableBody>(record)?.name;
            let value = |property: &str| (property == "TableName").then_some(Scalar::String(&name));
            if !filter.is_none_or(|filter| filter.matches(&value)) {
                continue;
            }
            if listed.names.len() >= top {
                listed.next = Some(place.to_owned());
                break;
            }
            listed.names.push(name);
        }
        Ok(listed)
    }

    /// The stored access policies of a table.
    pub async fn policies(&self, table: &TableName) -> Result<Vec<Policy>, StoreError> {
        Ok(read_body::<TableBody>(&*self.record(table).await?)?.policies)
    }

    /// Replaces the stored access policies of a table.
    pub async fn set_policies(&self, table: &TableName, policies: Vec<Policy>) -> Result<(), StoreError> {
        let edit = |body: &mut TableBody| {
            body.policies = policies;
            Ok(())
        };
        self.kit.change(table.id(), edit).await.map_err(|error| missing(table, error))
    }

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

/// An error about a table: there may be none.
pub(super) fn missing(table: &TableName, error: Error) -> StoreError {
    match error.kind {
        ErrorKind::NoDataset => StoreError::NoSuchTable(table.to_string()),
        _ => StoreError::Kit(error),
    }
}

#[cfg(test)]
mod tests {
    use polyshard_store::read_stored;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_format_of_a_record_is_still_read() {
        let policy = json!({"id": "read", "expiry": 5, "permission": "r"});
        let stored = json!({"format": 1, "name": "Orders", "policies": [policy]});
        let body: TableBody = read_stored("a table", &stored).unwrap();
        assert_eq!((body.name.as_str(), body.policies[0].expiry), ("Orders", Some(5)));
        let newer = json!({"format": 2, "name": "Orders"});
        assert!(read_stored::<TableBody>("a table", &newer).is_err());
    }

    #[test]
    fn the_first_format_of_properties_is_still_read() {
        let metrics = json!({"enabled": true, "include_apis": null, "retention": {"days": 3}});
        let stored = json!({"format": 1, "properties": {
            "logging": {"delete": false, "read": true, "write": false, "retention": {"days": null}},
            "hour_metrics": metrics, "minute_metrics": metrics, "cors": []}});
        let body: AccountBody = read_stored("an account", &stored).unwrap();
        assert!(body.properties.logging.read);
    }
}

//! Creating, deleting and listing tables, and what is kept about them and about an account.

use polyshard_catalog::{CatalogError, DatasetRecord};
use serde::{Deserialize, Serialize};

use super::{STORE, StoreError, TableStore, default_map, default_rule};
use crate::edm::Scalar;
use crate::filter::Filter;
use crate::name::TableName;

/// The format of what the catalog keeps about a table.
const FORMAT: u32 = 1;

/// What the catalog keeps about a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Body {
    format: u32,
    /// The name as it was first written.
    name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<Policy>,
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
#[derive(Debug, Serialize, Deserialize)]
struct AccountBody {
    format: u32,
    properties: serde_json::Value,
}

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
        let body = Body { format: FORMAT, name: table.name().to_owned(), policies: Vec::new() };
        self.create(table.dataset(), &body).await.map_err(|error| match error {
            CatalogError::Exists(_) => StoreError::TableExists(table.to_string()),
            other => failed(other),
        })
    }

    /// Deletes a table. It is gone at once; its entities are removed in the background.
    pub async fn delete_table(&self, table: &TableName) -> Result<(), StoreError> {
        let gone = self.kit.driver().retire_dataset(STORE.id, table.dataset(), self.now_ms()).await;
        self.kit.router().refresh().await?;
        match gone {
            Ok(_) => {
                self.deleted.notify_one();
                Ok(())
            }
            Err(CatalogError::NoSuchDataset(_)) => Err(StoreError::NoSuchTable(table.to_string())),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether a table is there; the name as it was first written.
    pub async fn table(&self, table: &TableName) -> Result<String, StoreError> {
        read_body(&*self.record(table).await?).map(|body| body.name)
    }

    /// Tables of an account, from a name on.
    pub async fn list_tables(
        &self,
        account: &str,
        filter: Option<&Filter>,
        from: Option<&str>,
        top: usize,
    ) -> Result<Listed, StoreError> {
        self.kit.router().refresh().await?;
        let view = self.kit.router().view();
        let prefix = format!("{account}/");
        let from = format!("{prefix}{}", from.unwrap_or_default().to_ascii_lowercase());
        let mut listed = Listed::default();
        for ((store, dataset), record) in view.datasets.range((STORE.id.to_owned(), from)..) {
            if store != STORE.id || !dataset.starts_with(&prefix) {
                break;
            }
            // What is kept about the account itself.
            if dataset[prefix.len()..].starts_with('$') {
                continue;
            }
            let name = read_body(record)?.name;
            let value = |property: &str| (property == "TableName").then_some(Scalar::String(&name));
            if !filter.is_none_or(|filter| filter.matches(&value)) {
                continue;
            }
            if listed.names.len() >= top {
                listed.next = Some(dataset[prefix.len()..].to_owned());
                break;
            }
            listed.names.push(name);
        }
        Ok(listed)
    }

    /// The stored access policies of a table.
    pub async fn policies(&self, table: &TableName) -> Result<Vec<Policy>, StoreError> {
        read_body(&*self.record(table).await?).map(|body| body.policies)
    }

    /// Replaces the stored access policies of a table.
    pub async fn set_policies(&self, table: &TableName, policies: Vec<Policy>) -> Result<(), StoreError> {
        let change = |body: &mut serde_json::Value| -> Result<(), StoreError> {
            let mut parsed: Body = parse(body)?;
            parsed.policies = policies;
            *body = to_json(&parsed);
            Ok(())
        };
        let changed = self.kit.driver().update_dataset(STORE.id, table.dataset(), change).await;
        self.kit.router().refresh().await?;
        match changed {
            Ok(_) => Ok(()),
            Err(StoreError::Catalog(CatalogError::NoSuchDataset(_))) => {
                Err(StoreError::NoSuchTable(table.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// What is kept about an account's table service; nothing if nothing was set.
    pub async fn service_properties(&self, account: &str) -> Result<Option<serde_json::Value>, StoreError> {
        match self.kit.router().dataset(STORE.id, &account_dataset(account)).await? {
            None => Ok(None),
            Some(record) => parse::<AccountBody>(&record.body).map(|body| Some(body.properties)),
        }
    }

    /// Sets what is kept about an account's table service.
    pub async fn set_service_properties(
        &self,
        account: &str,
        properties: serde_json::Value,
    ) -> Result<(), StoreError> {
        let dataset = account_dataset(account);
        let body = AccountBody { format: FORMAT, properties };
        let change = |old: &mut serde_json::Value| -> Result<(), CatalogError> {
            *old = to_json(&body);
            Ok(())
        };
        let done = match self.kit.driver().update_dataset(STORE.id, &dataset, change).await {
            Err(CatalogError::NoSuchDataset(_)) => self.create(&dataset, &body).await,
            other => other.map(drop),
        };
        done.map_err(failed)?;
        self.kit.router().refresh().await?;
        Ok(())
    }

    async fn create(&self, dataset: &str, body: &impl Serialize) -> Result<(), CatalogError> {
        let (map, rule) = (default_map(), default_rule());
        self.kit
            .driver()
            .create_dataset_on_own_map(STORE.id, dataset, &map, rule, to_json(body))
            .await
            .map(drop)
    }
}

/// The name that holds what is kept about an account: no table can be called so.
fn account_dataset(account: &str) -> String {
    format!("{account}/$service")
}

fn failed(error: CatalogError) -> StoreError {
    match error {
        CatalogError::NoSuchMap(map) => StoreError::NoMap(map.to_string()),
        other => StoreError::Catalog(other),
    }
}

fn read_body(record: &DatasetRecord) -> Result<Body, StoreError> {
    parse(&record.body)
}

/// Reads a record of the catalog, of this format.
fn parse<T: serde::de::DeserializeOwned>(body: &serde_json::Value) -> Result<T, StoreError> {
    let damaged = |detail: String| StoreError::Damaged { what: "table record", detail };
    let format = body.get("format").and_then(serde_json::Value::as_u64);
    if format != Some(u64::from(FORMAT)) {
        return Err(damaged(format!("format {format:?} is not the one this program knows, {FORMAT}")));
    }
    T::deserialize(body).map_err(|error| damaged(error.to_string()))
}

fn to_json(body: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(body).expect("plain values")
}

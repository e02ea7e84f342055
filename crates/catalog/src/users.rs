//! Users of the front doors and tokens of operators: records that every router holds, as it holds datasets, so that
//! each process has them, hears of changes at once, and starts with them while the catalog is away. They place nothing.

use polyshard_map::MapName;
use serde_json::Value;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::datasets::{DatasetRecord, KeyPart, KeyRule, QUOTA_STORE};
use crate::tx::{CatalogTx, Reply};

/// The store under which users are listed.
pub const USER_STORE: &str = "user";
/// The store under which operators' tokens are listed.
pub const TOKEN_STORE: &str = "token";
/// The store under which stores list what they keep about an owner of datasets, such as an account: `store/owner`.
pub const SETTINGS_STORE: &str = "settings";

/// Users and tokens of one cluster, each: every router has all of them in memory.
pub const USERS_MAX: usize = 10_000;

/// The map that their records name: none is asked for it.
const NO_MAP: &str = "none";

/// Whether records of this store are no datasets: no map is kept for their sake.
pub fn places_nothing(store: &str) -> bool {
    matches!(store, USER_STORE | TOKEN_STORE | QUOTA_STORE | SETTINGS_STORE)
}

impl Catalog {
    /// Makes or changes the record of a user, token or owner. `change` is given what there is, and may refuse.
    pub async fn put_user<E: From<CatalogError>>(
        &self,
        store: &str,
        name: &str,
        change: impl FnOnce(Option<Value>) -> Result<Value, E>,
    ) -> Result<DatasetRecord, E> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let record = match tx.dataset(store, name).await? {
            Some(mut record) => {
                record.body = change(Some(record.body))?;
                record.version += 1;
                record
            }
            None => {
                let body = change(None)?;
                if tx.count_datasets(store).await? >= USERS_MAX {
                    let message =
                        format!("there are {USERS_MAX} records of {store}s, which is the most; remove some");
                    return Err(CatalogError::Invalid(message).into());
                }
                let map = MapName::new(NO_MAP)
                    .map_err(|error| CatalogError::Damaged { what: "name", detail: error.to_string() })?;
                let rule = KeyRule { attribute: store.to_owned(), part: KeyPart::Whole };
                let id = tx.next_dataset().await?;
                let (store, name) = (store.to_owned(), name.to_owned());
                DatasetRecord { id, store, name, map, rule, body, version: 1 }
            }
        };
        tx.save_dataset(&record).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Removes the record of a user or token; false if there was none.
    pub async fn remove_user(&self, store: &str, name: &str) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if tx.dataset(store, name).await?.is_none() {
            return Ok(false);
        }
        tx.forget_dataset(store, name).await?;
        tx.commit().await?;
        Ok(true)
    }
}

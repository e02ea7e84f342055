//! Datasets that are gone, remembered until their rows are too.

use serde::{Deserialize, Serialize};

use crate::CatalogError;
use crate::datasets::DatasetRecord;
use crate::driver::Driver;
use crate::tx::{CatalogTx, Reply};

/// How long one that is gone is remembered: a process that has not heard of it yet may still write rows.
const KEPT_MS: i64 = 5 * 60 * 1000;

/// The format of [`Body`].
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Body {
    format: u32,
    dataset: u64,
    /// Milliseconds since 1970. One without it was written long ago.
    #[serde(default)]
    gone_ms: i64,
}

/// A dataset that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// The number of its rows.
    pub dataset: u64,
    gone_ms: i64,
}

impl Gone {
    /// What a record of the list [`Gone::list`] says.
    pub fn of(record: &DatasetRecord) -> Result<Gone, CatalogError> {
        let damaged = |detail: String| CatalogError::Damaged { what: "record of a deleted dataset", detail };
        let body = Body::deserialize(&record.body).map_err(|error| damaged(error.to_string()))?;
        if body.format > FORMAT {
            return Err(damaged(format!("format {} is of a newer program", body.format)));
        }
        Ok(Gone { dataset: body.dataset, gone_ms: body.gone_ms })
    }

    /// The list of a store's datasets that are gone.
    pub fn list(store: &str) -> String {
        format!("{store}-gone")
    }

    /// Whether every process has heard of it by now.
    pub fn is_over(&self, now_ms: i64) -> bool {
        self.gone_ms.saturating_add(KEPT_MS) <= now_ms
    }
}

impl Driver {
    /// Deletes a dataset, and remembers in the same transaction that its rows are still to be removed.
    pub async fn retire_dataset(&self, store: &str, name: &str, now_ms: i64) -> Reply<DatasetRecord> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let missing = || CatalogError::NoSuchDataset(format!("{store} {name}"));
        let record = tx.dataset(store, name).await?.ok_or_else(missing)?;
        tx.forget_dataset(store, name).await?;
        let body = Body { format: FORMAT, dataset: record.id, gone_ms: now_ms };
        let gone = DatasetRecord {
            id: tx.next_dataset().await?,
            store: Gone::list(store),
            name: format!("{name}#{}", record.id),
            body: serde_json::to_value(&body).expect("plain values"),
            version: 1,
            ..record.clone()
        };
        tx.save_dataset(&gone).await?;
        tx.commit().await?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{KeyPart, KeyRule};
    use polyshard_map::MapName;
    use serde_json::json;

    #[test]
    fn the_first_formats_are_still_read() {
        let of = |body| {
            let rule = KeyRule { attribute: "name".into(), part: KeyPart::Whole };
            let (store, name) = ("queue-gone".to_owned(), "a/b#7".to_owned());
            Gone::of(&DatasetRecord {
                id: 9,
                store,
                name,
                map: MapName::new("m").unwrap(),
                rule,
                body,
                version: 1,
            })
        };
        let queue = of(json!({"format": 1, "dataset": 7, "name": "b", "gone_ms": 100})).unwrap();
        assert_eq!(
            (queue.dataset, queue.is_over(99 + KEPT_MS), queue.is_over(100 + KEPT_MS)),
            (7, false, true)
        );
        let table = of(json!({"format": 1, "dataset": 8, "gone_at": 17_000_000_000_000_000_i64})).unwrap();
        assert!(table.dataset == 8 && table.is_over(KEPT_MS));
        assert!(of(json!({"format": 2, "dataset": 8})).is_err());
        assert!(of(json!({})).is_err());
    }
}

//! What tells the key of a row, store by store: a column, the dataset's own name, or nothing but the bucket.

use polyshard_catalog::{DatasetRecord, KeyPart, KeyRule};
use polyshard_map::{Key, MapDefinition, Scheme};
use polyshard_shard::{Dataset, Placement};

use crate::stores::STORES;

/// What tells the key of a dataset's rows.
pub(super) enum Tells {
    /// All rows are of this key.
    Name(Key),
    /// This column, by this rule.
    Column(String, KeyRule),
    /// Nothing: only the bucket is known.
    Bucket,
}

impl Tells {
    /// Of a dataset as a shard knows it, and as the catalog does.
    pub(super) fn of(dataset: &Dataset, record: Option<&DatasetRecord>, definition: &MapDefinition) -> Tells {
        if let Placement::Key(columns) = &dataset.placement {
            return match columns.as_slice() {
                [column] => {
                    let rule = KeyRule { attribute: column.clone(), part: KeyPart::Whole };
                    Tells::Column(column.clone(), rule)
                }
                _ => Tells::Bucket,
            };
        }
        let Some(record) = record else { return Tells::Bucket };
        let Some(datasets) = STORES.find(&record.store).and_then(|store| store.datasets) else {
            return Tells::Bucket;
        };
        if datasets.name_attribute == Some(record.rule.attribute.as_str()) {
            // The name that follows the account's.
            let name = record.name.rsplit('/').next().unwrap_or_default();
            return record.rule.key(definition.key_type(), name).map_or(Tells::Bucket, Tells::Name);
        }
        match datasets.key_columns.iter().find(|one| one.is_of(dataset, &record.rule)) {
            Some(one) => Tells::Column(one.column.to_owned(), record.rule.clone()),
            None => Tells::Bucket,
        }
    }

    /// The column to read beside the placement.
    pub(super) fn column(&self) -> Option<&str> {
        match self {
            Tells::Column(column, _) => Some(column),
            Tells::Name(_) | Tells::Bucket => None,
        }
    }

    /// The key of a row with this placement, whose column has this text. Only one that is placed there counts.
    pub(super) fn key(
        &self,
        definition: &MapDefinition,
        placement: &[u8],
        text: Option<&str>,
    ) -> Option<Key> {
        let key_type = definition.key_type();
        let key = match (definition.scheme(), self) {
            (Scheme::List | Scheme::Range, _) => key_type.decode(placement).ok()?,
            (_, Tells::Name(key)) => key.clone(),
            (_, Tells::Column(_, rule)) => rule.key(key_type, text?).ok()?,
            (_, Tells::Bucket) => return None,
        };
        definition.placement(&key).is_ok_and(|at| at.as_slice() == placement).then_some(key)
    }
}

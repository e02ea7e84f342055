//! Bindings: which map an operator wants a dataset placed by, recorded for its name, whether it exists yet or not (C8).
//!
//! A dataset that exists is bound by giving it a new number, under which it has no rows anywhere. Its old number is
//! closed on every shard first, so that a router that has not heard of the binding cannot write under it: it would
//! have to bind the number there before its first row, and is refused. So only a dataset that never had a row can be
//! bound. The binding is recorded before anything else, and is finished by [`Driver::bind_dataset`] called again,
//! which the stores do for bindings that they find unfinished.
//!
//! A name with a `*` in it is that of a family: it says where those are placed that are created from then on and have
//! no binding of their own.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_engine::Statement;
use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::CatalogError;
use crate::datasets::{DatasetRecord, KeyRule};
use crate::driver::Driver;
use crate::sql_catalog::{SqlCatalog, from_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::Publish;

/// What follows a store's name in the name of the list of its bindings.
pub const BINDING_SUFFIX: &str = "-binding";

/// What stands for any characters in the name of a family.
pub const FAMILY_MARK: char = '*';

/// Whether it is the name of the record in which an earlier program kept what it knew of an account: it is no dataset,
/// and of no family.
pub fn is_account_record(name: &str) -> bool {
    name.ends_with("/$service")
}

/// How often it is begun again because the dataset was deleted and made anew meanwhile.
const TRIES_MAX: u32 = 5;

/// How long a binding may take to be taken back, since the catalog is locked meanwhile.
const REOPEN_MAX: Duration = Duration::from_secs(2);

/// Where a dataset is to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Its store.
    pub store: String,
    /// Its name there.
    pub name: String,
    /// The map that places it.
    pub map: MapName,
    /// How its items' keys are derived.
    pub rule: KeyRule,
}

impl Binding {
    /// What a record in the list of a store's bindings says; nothing if it is no such record.
    pub fn of(record: &DatasetRecord) -> Option<Binding> {
        let store = record.store.strip_suffix(BINDING_SUFFIX)?.to_owned();
        Some(Binding { store, name: record.name.clone(), map: record.map.clone(), rule: record.rule.clone() })
    }

    /// Whether it is that of a whole family of names.
    pub fn is_family(&self) -> bool {
        self.name.contains(FAMILY_MARK)
    }

    /// Whether it is for this name: its own, or one of its family.
    pub fn is_for(&self, name: &str) -> bool {
        match self.name.split_once(FAMILY_MARK) {
            None => self.name == name,
            Some(_) if is_account_record(name) => false,
            Some((start, end)) => {
                name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
            }
        }
    }

    /// The one that holds for a name: its own, or else that of the family that says most about it.
    pub fn best(bindings: impl Iterator<Item = Binding>, name: &str) -> Option<Binding> {
        bindings
            .filter(|binding| binding.is_for(name))
            .max_by_key(|binding| (!binding.is_family(), binding.name.len(), binding.name.clone()))
    }

    /// Whether a dataset is placed so.
    pub fn is_met_by(&self, record: &DatasetRecord) -> bool {
        record.map == self.map && record.rule == self.rule
    }

    fn is(&self, record: &DatasetRecord) -> bool {
        self.is_met_by(record) && record.name == self.name
    }
}

/// What a binding that is not finished yet would take the place of: it holds again if this one is refused.
#[derive(Debug, Serialize, Deserialize)]
struct InsteadOf {
    map: MapName,
    rule: KeyRule,
}

/// What the list keeps about a binding.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
    format: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instead_of: Option<InsteadOf>,
}

impl Body {
    fn of(record: &DatasetRecord) -> Reply<Body> {
        Body::deserialize(&record.body)
            .map_err(|error| CatalogError::Damaged { what: "binding", detail: error.to_string() })
    }
}

/// The list of a store's bindings.
pub(crate) fn store_of(store: &str) -> String {
    format!("{store}{BINDING_SUFFIX}")
}

impl Driver {
    /// Has a dataset placed by a map from now on. One that exists must never have had a row.
    #[boxed]
    pub async fn bind_dataset(&self, binding: &Binding) -> Reply<()> {
        for _ in 0..TRIES_MAX {
            let Some(dataset) = self.record_binding(binding).await? else { return Ok(()) };
            if let Err(error) = self.close_everywhere(&dataset).await {
                self.give_up(binding, &dataset).await?;
                return Err(error);
            }
            if self.renumber(binding, &dataset).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Invalid(format!(
            "{} {} is deleted and made again all the time; bind it when it is left alone",
            binding.store, binding.name
        )))
    }

    /// Forgets what a name is bound to. A dataset that exists stays where it is.
    pub async fn unbind_dataset(&self, store: &str, name: &str) -> Reply<()> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        if tx.dataset(&store_of(store), name).await?.is_none() {
            return Err(CatalogError::NoSuchDataset(format!("binding of {store} {name}")));
        }
        tx.forget_dataset(&store_of(store), name).await?;
        tx.commit().await
    }

    /// Records the binding. Answers the dataset that is placed otherwise, if there is one.
    async fn record_binding(&self, binding: &Binding) -> Reply<Option<DatasetRecord>> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        if tx.map(&binding.map).await?.is_none_or(|record| !record.live) {
            return Err(CatalogError::NoSuchMap(binding.map.clone()));
        }
        // A segment is split only while nothing is placed: nothing may come meanwhile, either.
        for running in tx.running(Some(&binding.map)).await? {
            if matches!(&running.op.publish, Publish::Delta(delta) if delta.segments.is_some()) {
                return Err(CatalogError::Busy { op: running.op.id, kind: running.op.kind });
            }
        }
        let (store, name) = (store_of(&binding.store), binding.name.clone());
        let known = tx.dataset(&store, &name).await?;
        let dataset = tx.dataset(&binding.store, &binding.name).await?;
        if known.as_ref().is_none_or(|known| !binding.is(known)) {
            let mut instead_of = None;
            let (id, version) = match known {
                Some(known) => {
                    let done =
                        dataset.as_ref().is_some_and(|one| one.map == known.map && one.rule == known.rule);
                    instead_of = match done {
                        true => Some(InsteadOf { map: known.map, rule: known.rule }),
                        // It was not finished itself.
                        false => Body::of(&known)?.instead_of,
                    };
                    (known.id, known.version + 1)
                }
                None => (tx.next_dataset().await?, 1),
            };
            let (map, rule) = (binding.map.clone(), binding.rule.clone());
            let body = json!(Body { format: 1, instead_of });
            tx.save_dataset(&DatasetRecord { id, store, name, map, rule, body, version }).await?;
        }
        tx.commit().await?;
        Ok(dataset.filter(|dataset| !binding.is_met_by(dataset)))
    }

    /// Closes a dataset's number on every shard, or says which one it cannot be closed on.
    async fn close_everywhere(&self, dataset: &DatasetRecord) -> Reply<()> {
        for record in self.catalog().shards().await? {
            let failed = |shard: &ShardId, error| CatalogError::Shard { shard: shard.clone(), error };
            let shard = self.shard(&record.id).await?;
            let closed = shard.close_dataset(&dataset.name_on_shards()).await;
            if !closed.map_err(|error| failed(&record.id, error))? {
                return Err(CatalogError::HoldsData {
                    what: format!("{} {} has, or had, rows on shard {}", dataset.store, dataset.name, record.id),
                    remedy: "only one that never had a row can be bound: delete it, bind its name, then create it \
                             again"
                        .into(),
                });
            }
        }
        Ok(())
    }

    /// Takes the binding back, so that the one before it holds again, unless a shard cannot be asked now: then it
    /// stays, to be finished or taken back when the shard is there again. Nor is it taken back if somebody else has
    /// made another one since. The catalog stays locked while the number is opened again, so that no other binding
    /// counts on it being closed.
    async fn give_up(&self, binding: &Binding, dataset: &DatasetRecord) -> Reply<()> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let list = store_of(&binding.store);
        let recorded = tx.dataset(&list, &binding.name).await?.filter(|known| binding.is(known));
        let Some(recorded) = recorded else { return Ok(()) };
        let reopened = tokio::time::timeout(REOPEN_MAX, self.reopen_everywhere(dataset)).await;
        let failed: Option<Box<dyn std::fmt::Display + Send>> = match reopened {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Box::new(error)),
            Err(late) => Some(Box::new(late)),
        };
        if let Some(why) = failed {
            let Binding { store, name, .. } = binding;
            tracing::warn!(store, name, %why, "a binding could not be made yet; it is tried again with all shards");
            return Ok(());
        }
        match Body::of(&recorded)?.instead_of {
            Some(InsteadOf { map, rule }) => {
                let (body, version) = (json!(Body { format: 1, instead_of: None }), recorded.version + 1);
                tx.save_dataset(&DatasetRecord { map, rule, body, version, ..recorded }).await?;
            }
            None => tx.forget_dataset(&list, &binding.name).await?,
        }
        tx.commit().await
    }

    async fn reopen_everywhere(&self, dataset: &DatasetRecord) -> Reply<()> {
        for record in self.catalog().shards().await? {
            let reopened = self.shard(&record.id).await?.reopen_dataset(&dataset.name_on_shards()).await;
            reopened.map_err(|error| CatalogError::Shard { shard: record.id.clone(), error })?;
        }
        Ok(())
    }

    /// Gives the dataset its new number and place. False if it is another one by now.
    async fn renumber(&self, binding: &Binding, closed: &DatasetRecord) -> Reply<bool> {
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        if !self.is_recorded(&mut tx, binding).await? {
            let what = format!("the binding of {} {}", binding.store, binding.name);
            return Err(CatalogError::Invalid(format!(
                "{what} was changed meanwhile; look at it and decide again"
            )));
        }
        match tx.dataset(&binding.store, &binding.name).await? {
            // Deleted meanwhile: when it is made again, it is made as it is bound.
            None => return Ok(true),
            Some(now) if now.id != closed.id => return Ok(binding.is_met_by(&now)),
            Some(mut now) => {
                (now.id, now.version) = (tx.next_dataset().await?, 1);
                (now.map, now.rule) = (binding.map.clone(), binding.rule.clone());
                tx.save_dataset(&now).await?;
            }
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn is_recorded(&self, tx: &mut SqlCatalog, binding: &Binding) -> Reply<bool> {
        let known = tx.dataset(&store_of(&binding.store), &binding.name).await?;
        Ok(known.is_some_and(|known| binding.is(&known)))
    }
}

impl SqlCatalog {
    /// The binding that holds for a name of a store.
    pub(crate) async fn binding_for(&mut self, store: &str, name: &str) -> Reply<Option<Binding>> {
        if let Some(own) = self.dataset(&store_of(store), name).await? {
            return Ok(Binding::of(&own));
        }
        let sql = format!(
            "SELECT record FROM {} WHERE store = $1 AND name LIKE '%{FAMILY_MARK}%'",
            self.own("dataset_list")
        );
        let rows = self.rows(Statement::new(sql).bind(store_of(store))).await?;
        let families: Reply<Vec<DatasetRecord>> =
            rows.iter().map(|row| from_json("dataset", row.text(0)?)).collect();
        Ok(Binding::best(families?.iter().filter_map(Binding::of), name))
    }
}

#[cfg(test)]
mod tests {
    use polyshard_map::MapName;

    use super::Binding;
    use crate::datasets::{KeyPart, KeyRule};

    #[test]
    fn the_binding_that_says_most_about_a_name_holds() {
        let names = ["acct/7-jobs", "acct/*", "acct/*-jobs", "acct/7*", "acct/big-*-jobs", "other/*"];
        let of = |name: &str| {
            let rule = KeyRule { attribute: "name".to_owned(), part: KeyPart::Whole };
            let (store, name) = ("queue".to_owned(), name.to_owned());
            Binding { store, name, map: MapName::new("tenants").unwrap(), rule }
        };
        let best = |name| Binding::best(names.iter().map(|name| of(name)), name).map(|binding| binding.name);
        for (name, held) in [
            ("acct/7-jobs", Some("acct/7-jobs")),
            ("acct/8-jobs", Some("acct/*-jobs")),
            ("acct/7-jobs-done", Some("acct/7*")),
            ("acct/big-1-jobs", Some("acct/big-*-jobs")),
            ("acct/big-jobs", Some("acct/*-jobs")),
            ("acct/mail", Some("acct/*")),
            ("other/7-jobs", Some("other/*")),
            ("third/7-jobs", None),
            ("acct/$service", None),
            ("acct/$web", Some("acct/*")),
        ] {
            assert_eq!(best(name).as_deref(), held, "{name}");
        }
    }
}

//! What operators ask about quotas: kept in the catalog's list of datasets, so that every router hears of them at once
//! and has them when it starts without the catalog.

use polyshard_admin::types::{KeyText, QuotaTarget, QuotaView};
use polyshard_admin::{Answer, ErrorCode, Problem, Quotas};
use polyshard_catalog::{CatalogError, DatasetRecord, KeyPart, KeyRule, QUOTA_STORE};
use polyshard_map::{Key, MapName};
use polyshard_store::{QUOTA_FORMAT, QUOTA_MAX, QuotaBody, QuotaOf};

use super::Operations;
use super::datasets::Named;
use crate::problem;

/// Quotas of one cluster: every router has all of them in memory.
const QUOTAS_MAX: usize = 10_000;

/// A quota as the catalog has it: under which name, and on which map.
struct Listed {
    name: String,
    map: MapName,
    of: QuotaOf,
}

impl Operations {
    async fn quota_views(&self) -> Result<Vec<QuotaView>, Problem> {
        self.see().await?;
        let view = self.router.view();
        view.datasets_of(QUOTA_STORE).map(|record| quota_view(record)).collect()
    }

    async fn put_quota(&self, asked: QuotaView) -> Result<QuotaView, Problem> {
        if asked.requests == 0 || asked.requests > QUOTA_MAX {
            let message = format!("{} requests a second are no quota", asked.requests);
            return Err(Problem::invalid("requests", message).with_remedy(format!(
                "say a number from 1 to {QUOTA_MAX}; to let nothing in, set the range offline: 'polyshard map state'"
            )));
        }
        let Listed { name, map, of } = self.listed(&asked.of).await?;
        let view = self.router.view();
        let count = view.datasets_of(QUOTA_STORE).count();
        let is_new = !view.datasets.contains_key(&(QUOTA_STORE.to_owned(), name.clone()));
        if is_new && count >= QUOTAS_MAX {
            let message = format!("there are {count} quotas, which is the most");
            return Err(Problem::new(ErrorCode::Conflict, message)
                .with_remedy("remove some, or set one for each key of a map"));
        }
        let body = QuotaBody { format: QUOTA_FORMAT, of, requests: asked.requests };
        let body = serde_json::to_value(&body).map_err(|error| {
            Problem::new(ErrorCode::Internal, format!("a quota cannot be written: {error}"))
        })?;
        let rule = KeyRule { attribute: "requests".to_owned(), part: KeyPart::Whole };
        let made = self.driver.create_dataset(QUOTA_STORE, &name, &map, rule, body.clone()).await;
        let record = match made {
            Err(CatalogError::Exists(_)) => {
                let change = |old: &mut serde_json::Value| -> Result<(), CatalogError> {
                    *old = body;
                    Ok(())
                };
                self.driver.update_dataset(QUOTA_STORE, &name, change).await
            }
            made => made,
        };
        let record = record.map_err(|error| problem::of_catalog(&error))?;
        self.see().await?;
        quota_view(&record)
    }

    async fn forget_quota(&self, of: QuotaTarget) -> Result<(), Problem> {
        let missing =
            || Problem::not_found(format!("{of} has no quota")).with_remedy("see 'polyshard quota list'");
        // The dataset may be gone.
        let name = match &of {
            QuotaTarget::Dataset { dataset } => dataset_quota(&self.named(dataset)?),
            of => self.listed(of).await?.name,
        };
        let gone = self.driver.delete_dataset(QUOTA_STORE, &name).await;
        self.see().await?;
        gone.map(drop).map_err(|error| match error {
            CatalogError::NoSuchDataset(_) => missing(),
            other => problem::of_catalog(&other),
        })
    }

    async fn listed(&self, of: &QuotaTarget) -> Result<Listed, Problem> {
        match of {
            QuotaTarget::Each { map } => {
                self.known(map).await?;
                Ok(Listed { name: format!("each of {map}"), map: map.clone(), of: QuotaOf::Each })
            }
            QuotaTarget::Key { map, key } => {
                let known = self.known(map).await?;
                let parsed = known.map.definition().key_type().parse(&key.to_string());
                let key: Key =
                    parsed.map_err(|error| Problem::invalid("key", format!("map {map}: {error}")))?;
                let json = key.to_json();
                Ok(Listed { name: format!("key of {map}: {json}"), map: map.clone(), of: QuotaOf::Key(json) })
            }
            QuotaTarget::Dataset { dataset } => {
                let named = self.named(dataset)?;
                let record = self.router.dataset(named.store, &named.name).await;
                let record = record.map_err(|error| problem::of_router(&error))?;
                let record = record.ok_or_else(|| {
                    Problem::not_found(format!("there is no {dataset}"))
                        .with_remedy("see 'polyshard datasets'")
                })?;
                let name = dataset_quota(&named);
                let of = QuotaOf::Dataset(named.store.to_owned(), named.name);
                Ok(Listed { name, map: record.map.clone(), of })
            }
        }
    }
}

fn dataset_quota(named: &Named) -> String {
    format!("dataset {}:{}", named.store, named.name)
}

fn quota_view(record: &DatasetRecord) -> Result<QuotaView, Problem> {
    let body: QuotaBody = serde_json::from_value(record.body.clone()).map_err(|error| {
        Problem::new(ErrorCode::Internal, format!("quota {:?} cannot be read: {error}", record.name))
    })?;
    let of = match body.of {
        QuotaOf::Key(key) => QuotaTarget::Key { map: record.map.clone(), key: KeyText::from(key) },
        QuotaOf::Each => QuotaTarget::Each { map: record.map.clone() },
        QuotaOf::Dataset(store, name) => QuotaTarget::Dataset { dataset: format!("{store}:{name}") },
    };
    Ok(QuotaView { of, requests: body.requests })
}

impl Quotas for Operations {
    fn quotas(&self) -> Answer<'_, Vec<QuotaView>> {
        Box::pin(self.quota_views())
    }

    fn set_quota(&self, quota: QuotaView) -> Answer<'_, QuotaView> {
        Box::pin(self.put_quota(quota))
    }

    fn remove_quota(&self, of: QuotaTarget) -> Answer<'_, ()> {
        Box::pin(self.forget_quota(of))
    }
}

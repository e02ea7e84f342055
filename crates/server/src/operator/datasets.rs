//! What operators ask about datasets.

use std::collections::BTreeMap;

use polyshard_admin::Problem;
use polyshard_admin::types::{BindRequest, DatasetView, KeyRuleText, UnbindRequest};
use polyshard_catalog::{
    BINDING_SUFFIX, Binding, DatasetRecord, FAMILY_MARK, KeyPart, KeyRule, is_account_record, places_nothing,
};
use polyshard_store::Datasets;

use super::Operations;
use crate::problem;
use crate::stores::STORES;

/// What stands for the mark of a family while its name is checked: a part that names of all stores may have.
const FAMILY_SAMPLE: &str = "a0a";

/// A dataset that can be bound, or a family of them, as an operator names it.
pub(super) struct Named {
    pub(super) store: &'static str,
    /// What the catalog calls it.
    pub(super) name: String,
    /// What its store says of all of them.
    of: Datasets,
    /// Whether it stands for a family of names.
    is_family: bool,
}

impl Named {
    /// The attribute that keys are to be derived from: the one that is asked for, if there is such a one.
    fn attribute(&self, asked: Option<&str>) -> Result<&'static str, Problem> {
        let Some(key) = asked else { return Ok(self.of.attribute) };
        let found = self.of.attributes.iter().find(|known| **known == key);
        found.copied().ok_or_else(|| {
            let message = format!("the keys of a {} cannot be derived from {key:?}", self.store);
            Problem::invalid("key", message).with_remedy(format!("say {}", self.of.attributes.join(" or ")))
        })
    }

    /// The text of an attribute, where all items have the same, and it is known.
    fn text(&self, attribute: &str) -> Option<&str> {
        let is_name = self.of.name_attribute == Some(attribute) && !self.is_family;
        is_name.then(|| self.name.split_once('/').map_or(self.name.as_str(), |(_, name)| name))
    }
}

impl Operations {
    pub(super) async fn dataset_views(&self) -> Result<Vec<DatasetView>, Problem> {
        self.see().await?;
        let view = self.router.view();
        let mut found: BTreeMap<(String, String), DatasetView> = BTreeMap::new();
        let families: Vec<Binding> = view
            .datasets
            .values()
            .filter_map(|record| Binding::of(record))
            .filter(Binding::is_family)
            .collect();
        for record in view.datasets.values().filter(|record| is_shown(record)) {
            let bound = families.iter().any(|family| {
                family.store == record.store && family.is_for(&record.name) && family.is_met_by(record)
            });
            found.insert((record.store.clone(), record.name.clone()), dataset_view(record, true, bound));
        }
        for record in view.datasets.values() {
            let Some(binding) = Binding::of(record) else { continue };
            let of = DatasetRecord { store: binding.store.clone(), ..(**record).clone() };
            let key = (binding.store, binding.name);
            found.entry(key).or_insert_with(|| dataset_view(&of, false, true)).bound = true;
        }
        Ok(found.into_values().collect())
    }

    pub(super) async fn bind(&self, asked: BindRequest) -> Result<DatasetView, Problem> {
        let named = self.bindable(&asked.dataset)?;
        let attribute = named.attribute(asked.key.as_deref())?;
        let part = match asked.rule.as_deref().unwrap_or("whole").parse()? {
            KeyRuleText::Whole => KeyPart::Whole,
            KeyRuleText::Before(separator) => KeyPart::Before(separator),
        };
        let rule = KeyRule { attribute: attribute.to_owned(), part };
        let known = self.known(&asked.map).await?;
        if let Some(text) = named.text(attribute) {
            let key = rule.key(known.map.definition().key_type(), text);
            key.map_err(|error| {
                Problem::invalid("dataset", format!("{text:?} has no key in map {}: {error}", asked.map))
                    .with_remedy("choose another rule, or another name")
            })?;
        }
        let binding = Binding { store: named.store.to_owned(), name: named.name, map: asked.map, rule };
        let bound = self.driver.bind_dataset(&binding).await;
        self.see().await?;
        bound.map_err(|error| problem::of_catalog(&error))?;
        self.tell_all().await?;
        let key = (binding.store, binding.name);
        let views = self.dataset_views().await?;
        let full = format!("{}:{}", key.0, key.1);
        let found = views.into_iter().find(|view| view.dataset == full);
        found.ok_or_else(|| Problem::not_found(format!("{full} was unbound meanwhile")))
    }

    pub(super) async fn unbind(&self, asked: UnbindRequest) -> Result<(), Problem> {
        let named = self.bindable(&asked.dataset)?;
        let unbound = self.driver.unbind_dataset(named.store, &named.name).await;
        self.see().await?;
        unbound.map_err(|error| match error {
            polyshard_catalog::CatalogError::NoSuchDataset(_) => {
                Problem::not_found(format!("{} is not bound", asked.dataset))
                    .with_remedy("see 'polyshard datasets'")
            }
            other => problem::of_catalog(&other),
        })?;
        self.tell_all().await
    }

    /// Reads what [`Operations::named`] reads, or the name of a family: `queue:*-jobs`.
    fn bindable(&self, text: &str) -> Result<Named, Problem> {
        let Some((start, end)) = text.split_once(FAMILY_MARK) else { return self.named(text) };
        let sample = self.named(&format!("{start}{FAMILY_SAMPLE}{end}"))?;
        let wrong = || Problem::invalid("dataset", format!("{text:?} names no family"));
        let account = sample.name.split_once('/').ok_or_else(wrong)?.0;
        // An account is one, and is not looked for.
        let name = match text.rsplit_once(['/', ':']) {
            Some((_, name)) if name.contains(FAMILY_MARK) => {
                let same = STORES.find(sample.store).is_some_and(|store| store.ignores_case);
                let name = if same { name.to_ascii_lowercase() } else { name.to_owned() };
                format!("{account}/{name}")
            }
            _ => return Err(wrong()),
        };
        Ok(Named { name, is_family: true, ..sample })
    }

    /// Reads `store:name` or `store:account/name`.
    pub(super) fn named(&self, text: &str) -> Result<Named, Problem> {
        let wrong = |message: String| Problem::invalid("dataset", message).with_remedy(how_to_name());
        let Some((store, rest)) = text.split_once(':') else {
            return Err(wrong(format!("{text:?} names no dataset")));
        };
        let found = STORES.find(store).and_then(|found| Some((found, found.datasets?)));
        let (store, of) =
            found.ok_or_else(|| wrong(format!("there is no store {store:?} of such datasets")))?;
        let owners = store.owners(&self.config.stores);
        let first = owners.first().map_or("", String::as_str);
        let (owner, name) = rest.split_once('/').unwrap_or((first, rest));
        if store.family.is_some() && !owners.iter().any(|known| known == owner) {
            return Err(wrong(format!("there is no account {owner:?}")));
        }
        let parsed = (of.parse)(owner, name).map_err(|error| wrong(error.to_string()))?;
        Ok(Named { store: store.id, name: parsed.as_str().to_owned(), of, is_family: false })
    }
}

/// How datasets are named, of the stores that have some.
fn how_to_name() -> String {
    let ids: Vec<&str> =
        STORES.0.iter().filter(|store| store.datasets.is_some()).map(|store| store.id).collect();
    let names: Vec<String> = ids.iter().map(|id| format!("{id}:NAME")).collect();
    let example = ids.first().copied().unwrap_or_default();
    format!("say {}; of another account than the first, {example}:ACCOUNT/NAME", names.join(" or "))
}

/// Bindings, quotas, what is gone, and what stores keep about accounts are no datasets to an operator.
pub(crate) fn is_shown(record: &DatasetRecord) -> bool {
    let inner = [BINDING_SUFFIX, "-gone", "-service"].iter().any(|suffix| record.store.ends_with(suffix));
    !inner && !places_nothing(&record.store) && !is_account_record(&record.name)
}

fn dataset_view(record: &DatasetRecord, exists: bool, bound: bool) -> DatasetView {
    let rule = match &record.rule.part {
        KeyPart::Whole => KeyRuleText::Whole,
        KeyPart::Before(separator) => KeyRuleText::Before(separator.clone()),
    };
    DatasetView {
        dataset: format!("{}:{}", record.store, record.name),
        map: record.map.clone(),
        key: record.rule.attribute.clone(),
        rule: rule.to_string(),
        exists,
        bound,
    }
}

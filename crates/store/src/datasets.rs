//! Datasets and settings of a store: records of the catalog with a versioned body.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use polyshard_catalog::{
    BINDING_SUFFIX, Binding, CatalogError, DatasetRecord, KeyRule, MapScheme, SETTINGS_STORE,
};
use polyshard_map::MapName;
use polyshard_router::View;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::kit::Kit;

/// What a store keeps about a dataset or an owner. Fields that came later have a default, so that older records are
/// read; records of a newer program are refused.
pub trait Body: Serialize + DeserializeOwned {
    /// The newest format, which is the one that is written.
    const FORMAT: u32;
}

/// The name of a dataset: `owner/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DatasetName {
    full: String,
    slash: usize,
}

impl DatasetName {
    /// Of an owner and a name; the store has checked both.
    pub fn new(owner: &str, name: &str) -> DatasetName {
        debug_assert!(!owner.contains('/'));
        DatasetName { full: format!("{owner}/{name}"), slash: owner.len() }
    }

    /// As the catalog has it.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The account or namespace that it belongs to.
    pub fn owner(&self) -> &str {
        &self.full[..self.slash]
    }

    /// The name within that.
    pub fn name(&self) -> &str {
        &self.full[self.slash + 1..]
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.full)
    }
}

/// Whether a dataset is new.
#[derive(Debug, Clone)]
pub enum Created {
    /// It was created.
    New,
    /// There is one already.
    Already(Arc<DatasetRecord>),
}

/// Reads the body of a record.
pub fn read_body<B: Body>(record: &DatasetRecord) -> Result<B, Error> {
    read_stored(&record.name, &record.body)
}

/// Reads a stored body; `what` names it in an error.
pub fn read_stored<B: Body>(what: &str, stored: &Value) -> Result<B, Error> {
    from_json(stored).map_err(|detail| Error::damaged(&format!("record of {what}"), detail))
}

fn from_json<B: Body>(stored: &Value) -> Result<B, String> {
    match stored.get("format").and_then(Value::as_u64) {
        None => Err("it has no format".to_owned()),
        Some(format) if format > u64::from(B::FORMAT) => Err(format!(
            "its format {format} is of a newer program, which knows more than {}; upgrade this process",
            B::FORMAT
        )),
        Some(_) => B::deserialize(stored).map_err(|error| error.to_string()),
    }
}

fn to_json<B: Body>(body: &B) -> Result<Value, Error> {
    let wrong = |detail: &dyn fmt::Display| Error::new(ErrorKind::Fault, format!("a record: {detail}"));
    let mut value = serde_json::to_value(body).map_err(|error| wrong(&error))?;
    let fields = value.as_object_mut().ok_or_else(|| wrong(&"it is no object"))?;
    fields.insert("format".to_owned(), B::FORMAT.into());
    Ok(value)
}

impl Kit {
    /// A dataset. One that is not in the view may have come since, which only the catalog can say.
    pub async fn dataset(&self, name: &DatasetName) -> Result<Arc<DatasetRecord>, Error> {
        let found = self.router().dataset(self.store().id, name.as_str()).await?;
        found.ok_or_else(|| self.no_dataset(name))
    }

    /// The datasets of an owner from a name on, as far as this process knows them, in the order of their names.
    pub fn datasets<'a>(
        &'a self,
        view: &'a View,
        owner: &'a str,
        from: &str,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<DatasetRecord>)> {
        let from = (self.store().id.to_owned(), format!("{owner}/{from}"));
        let own = move |((store, name), record): (&'a (String, String), &'a Arc<DatasetRecord>)| {
            let name = name.strip_prefix(owner)?.strip_prefix('/')?;
            (store == self.store().id).then_some((name, record))
        };
        view.datasets.range((Bound::Included(from), Bound::Unbounded)).map_while(own)
    }

    /// Creates a dataset on the map that its name is bound to, or else on the store's own map.
    pub async fn create<B: Body>(&self, name: &DatasetName, body: &B) -> Result<Created, Error> {
        self.check_place(name)?;
        let (map, scheme, rule) = self.default_place()?;
        let store = self.store().id;
        let body = to_json(body)?;
        let made = self.driver().create_dataset_on_own_map(store, name.as_str(), (&map, scheme), rule, body);
        // Boxed, here and below: what is seldom asked for must not make every request's future large.
        let made = Box::pin(made).await;
        self.catch_up().await;
        match made {
            Ok(_) => Ok(Created::New),
            Err(CatalogError::Exists(_)) => Ok(Created::Already(self.dataset(name).await?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Rejects a name that has no key in the bound map: the creator can choose another, users of the dataset cannot. A
    /// binding that this process has not heard of yet shows with the first request.
    fn check_place(&self, name: &DatasetName) -> Result<(), Error> {
        let Some(datasets) = self.store().datasets else { return Ok(()) };
        let view = self.router().view();
        if view.datasets.contains_key(&(self.store().id.to_owned(), name.as_str().to_owned())) {
            return Ok(());
        }
        let list = format!("{}{BINDING_SUFFIX}", self.store().id);
        let bindings = view.datasets_of(&list).filter_map(|record| Binding::of(record));
        let Some(binding) = Binding::best(bindings, name.as_str()) else { return Ok(()) };
        if datasets.name_attribute != Some(binding.rule.attribute.as_str()) {
            return Ok(());
        }
        match view.maps.get(&binding.map) {
            Some(known) => {
                let placed = crate::place::key_and_placement(&binding.rule, &known.map, name.name());
                placed.map(drop).map_err(|why| crate::place::misplaced(datasets.noun, name.name(), &why))
            }
            None => Ok(()),
        }
    }

    /// Changes what is kept about a dataset, in one transaction of the catalog.
    pub async fn change<B: Body>(
        &self,
        name: &DatasetName,
        edit: impl FnOnce(&mut B) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let change = |stored: &mut Value| -> Result<(), Error> {
            let mut body: B = read_stored(name.as_str(), stored)?;
            edit(&mut body)?;
            *stored = to_json(&body)?;
            Ok(())
        };
        let changed = self.driver().update_dataset(self.store().id, name.as_str(), change);
        let changed = Box::pin(changed).await;
        self.catch_up().await;
        changed.map(drop).map_err(|error| self.named(name, error))?;
        self.tell_all().await
    }

    /// Deletes a dataset. It is gone at once; its rows are removed in the background.
    pub async fn delete(&self, name: &DatasetName) -> Result<(), Error> {
        let deleted = self.driver().retire_dataset(self.store().id, name.as_str(), self.now_ms());
        let deleted = Box::pin(deleted).await;
        self.catch_up().await;
        deleted.map(drop).map_err(|error| self.named(name, error.into()))?;
        self.tell_all().await
    }

    /// Waits until every process knows of what was changed, or is cut off: one that does not would go on taking items
    /// for what was deleted, and nobody would see them.
    pub async fn tell_all(&self) -> Result<(), Error> {
        Ok(Box::pin(self.router().everybody_knows()).await?)
    }

    /// What the store keeps about an owner, such as an account. The view alone answers: what is not there is not set,
    /// and no request asks the catalog for it.
    pub fn settings<B: Body + Default>(&self, owner: &str) -> Result<B, Error> {
        let view = self.router().view();
        self.settings_record(&view, owner).map_or_else(|| Ok(B::default()), |record| read_body(record))
    }

    fn settings_record<'a>(&self, view: &'a View, owner: &str) -> Option<&'a Arc<DatasetRecord>> {
        let find = |store: &str, name: String| view.datasets.get(&(store.to_owned(), name));
        find(SETTINGS_STORE, self.settings_name(owner)).or_else(|| {
            let former = self.store().former_settings?;
            find(former.store, (former.name)(owner))
        })
    }

    fn settings_name(&self, owner: &str) -> String {
        format!("{}/{owner}", self.store().id)
    }

    /// Changes what is kept about an owner, in one transaction of the catalog.
    pub async fn change_settings<B: Body + Default>(
        &self,
        owner: &str,
        edit: impl FnOnce(&mut B),
    ) -> Result<(), Error> {
        // Settings may be in a record of an earlier program: the view has to know of that.
        Box::pin(self.router().refresh()).await?;
        let before: B = self.settings(owner)?;
        let what = format!("settings of {owner}");
        let change = |stored: Option<Value>| -> Result<Value, Error> {
            let mut body = match stored {
                Some(stored) => read_stored(&what, &stored)?,
                None => before,
            };
            edit(&mut body);
            to_json(&body)
        };
        let catalog = self.driver().catalog();
        let changed = Box::pin(catalog.put_user(SETTINGS_STORE, &self.settings_name(owner), change)).await;
        if changed.is_ok()
            && let Some(former) = self.store().former_settings
        {
            self.forget_former(former.store, &(former.name)(owner)).await;
        }
        self.catch_up().await;
        changed?;
        self.tell_all().await
    }

    /// Removes the record that an earlier program kept: the map that it names could never be dropped.
    async fn forget_former(&self, store: &str, name: &str) {
        if !self.router().view().datasets.contains_key(&(store.to_owned(), name.to_owned())) {
            return;
        }
        match Box::pin(self.driver().delete_dataset(store, name)).await {
            Ok(_) | Err(CatalogError::NoSuchDataset(_)) => {}
            Err(error) => tracing::warn!(store, name, %error, "old settings record not removed; ignored"),
        }
    }

    /// Has this process see what was just changed. If the catalog cannot be asked now, it will by itself, later: what
    /// was committed is not reported as failed.
    pub async fn catch_up(&self) {
        if let Err(error) = Box::pin(self.router().refresh()).await {
            tracing::debug!(%error, "catalog unreachable; dataset list may be stale");
        }
    }

    pub(crate) fn no_dataset(&self, name: &DatasetName) -> Error {
        let noun = self.store().datasets.map_or("dataset", |datasets| datasets.noun);
        Error::new(ErrorKind::NoDataset, format!("{noun} {name} does not exist"))
    }

    /// An error about a dataset, with its name.
    fn named(&self, name: &DatasetName, error: Error) -> Error {
        if error.kind == ErrorKind::NoDataset { self.no_dataset(name) } else { error }
    }

    fn default_place(&self) -> Result<(MapName, MapScheme, KeyRule), Error> {
        let fault = |why: String| Error::new(ErrorKind::Fault, why);
        let datasets = self.store().datasets;
        let datasets = datasets.ok_or_else(|| fault(format!("{} declares no datasets", self.store().id)))?;
        let map = MapName::new(datasets.map.name).map_err(|error| fault(error.to_string()))?;
        Ok((map, datasets.map.scheme, datasets.rule()))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Kept {
        name: String,
        /// Since format 2.
        #[serde(default)]
        limit: u32,
    }

    impl Body for Kept {
        const FORMAT: u32 = 2;
    }

    #[test]
    fn older_formats_are_read_and_newer_ones_refused() {
        let old: Kept = read_stored("acct", &json!({"format": 1, "name": "x"})).unwrap();
        assert_eq!(old, Kept { name: "x".to_owned(), limit: 0 });
        assert_eq!(to_json(&old).unwrap(), json!({"format": 2, "name": "x", "limit": 0}));
        for (stored, words) in [
            (json!({"format": 3, "name": "x"}), "newer program"),
            (json!({"name": "x"}), "no format"),
            (json!({"format": 1, "name": 7}), "invalid type"),
        ] {
            let error = read_stored::<Kept>("acct", &stored).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Fault);
            assert!(error.message.contains(words), "{}", error.message);
        }
    }

    #[test]
    fn a_name_has_an_owner_and_a_rest() {
        let name = DatasetName::new("acct", "a/b");
        assert_eq!((name.as_str(), name.owner(), name.name()), ("acct/a/b", "acct", "a/b"));
    }
}

//! What other stores do inside a client's transaction, called as functions of the schema `polyshard` (H2): the dataset
//! that a call concerns, as rights name it.

use polyshard_store::{OptionValues, Store};

/// The dataset that a call's first argument names, as rights name it: alone, if it is one of the first owner's.
pub(crate) fn dataset_of(store: &Store, values: &OptionValues, arguments: &[Option<String>]) -> String {
    let named = arguments.first().and_then(Option::as_deref).unwrap_or_default();
    let first = store.owners(values).into_iter().next();
    let own = |(owner, name): (&str, &str)| (first.as_deref() == Some(owner)).then(|| name.to_owned());
    let name = named.split_once('/').and_then(own).unwrap_or_else(|| named.to_owned());
    if store.ignores_case { name.to_ascii_lowercase() } else { name }
}

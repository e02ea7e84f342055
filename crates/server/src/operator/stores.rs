//! What operators ask about stores: all of it is declared.

use polyshard_admin::types::{EndpointView, StoreView};
use polyshard_store::Store;

use super::Operations;
use crate::stores::STORES;

impl Operations {
    pub(super) fn store_views(&self) -> Vec<StoreView> {
        STORES.0.iter().map(|store| self.store_view(store)).collect()
    }

    fn store_view(&self, store: &Store) -> StoreView {
        let endpoints = store.endpoints.iter().map(|endpoint| EndpointView {
            name: endpoint.name.to_owned(),
            about: endpoint.about.to_owned(),
            address: self.doors.get(endpoint.name).cloned(),
        });
        let mut attributes = Vec::new();
        if let Some(datasets) = store.datasets {
            attributes.push(datasets.attribute.to_owned());
            let others = datasets.attributes.iter().filter(|one| **one != datasets.attribute);
            attributes.extend(others.map(|one| (*one).to_owned()));
        }
        StoreView {
            id: store.id.to_owned(),
            title: store.title.to_owned(),
            endpoints: endpoints.collect(),
            nouns: store.datasets.iter().map(|datasets| datasets.noun.to_owned()).collect(),
            attributes,
        }
    }
}

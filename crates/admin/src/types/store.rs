//! The stores of a program: what each holds, and where it is spoken to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Store)]
pub struct StoreView {
    /// Its id: the same in the configuration, in rights, in the names of datasets and in metrics.
    pub id: String,
    /// What it holds.
    pub title: String,
    /// Where it is spoken to.
    pub endpoints: Vec<EndpointView>,
    /// What its datasets are called, if it has some that can be bound and have quotas.
    pub nouns: Vec<String>,
    /// The attributes of items that keys can be derived from. The first one is taken if none is given.
    pub attributes: Vec<String>,
}

/// An endpoint of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Endpoint)]
pub struct EndpointView {
    /// Its name, which is also that of its section of the configuration.
    pub name: String,
    /// Whose protocol it speaks.
    pub about: String,
    /// Its address in this process; none if it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// All stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Stores)]
pub struct StoresAnswer {
    /// In the order of the program's list.
    pub stores: Vec<StoreView>,
}

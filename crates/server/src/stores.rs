//! The stores of this program. A new store is one line here.

use std::path::Path;
use std::sync::Arc;

use polyshard_backup::Carriers;
use polyshard_store::{Configured, StartError, Stores};

use crate::RunOptions;
use crate::config::Config;

/// All of them.
#[rustfmt::skip]
pub(crate) static STORES: Stores = Stores(&[
    &polyshard_store_sql::STORE,
    &polyshard_store_blob::STORE,
    &polyshard_store_document::STORE,
    &polyshard_store_queue::STORE,
    &polyshard_store_table::STORE,
]);

/// What the stores are told of the configuration of a process with this data folder.
pub(crate) fn configured(config: &Config, options: &RunOptions, data: &Path) -> Configured {
    let options = options.clone();
    Configured {
        values: config.stores.clone(),
        variable: Arc::new(move |name| options.variable(name)),
        data: data.to_owned(),
    }
}

/// What the stores keep outside the databases of shards.
pub(crate) fn carriers(configured: &Configured) -> Result<Carriers, StartError> {
    let open = STORES.0.iter().filter_map(|store| store.carrier);
    let carriers: Result<Vec<_>, StartError> = open.map(|open| open(configured)).collect();
    Ok(Arc::from(carriers?))
}

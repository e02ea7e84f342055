//! The stores of this program. A new store is one line here.

use polyshard_store::Stores;

/// All of them.
pub(crate) static STORES: Stores =
    Stores(&[&polyshard_store_sql::STORE, &polyshard_store_queue::STORE, &polyshard_store_table::STORE]);

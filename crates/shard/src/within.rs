//! Recording a dataset inside a transaction that its caller goes on with.

use polyshard_engine::{Dialect, Transaction};

use crate::sql_local::SqlLocal;
use crate::{Dataset, LocalTx, ShardError};

/// As [`crate::Shard::bind`], for SQLite, where a transaction that has written is alone and one beside it would wait
/// for it. If it is rolled back, nothing is recorded.
pub async fn bind_within(
    transaction: Transaction,
    dialect: Dialect,
    datasets: &[Dataset],
) -> (Transaction, Result<(), ShardError>) {
    let mut local = SqlLocal::within(transaction, dialect);
    let bound = async {
        local.lock_meta().await?;
        local.put_watched(datasets).await
    };
    let bound = bound.await;
    (local.tx, bound)
}

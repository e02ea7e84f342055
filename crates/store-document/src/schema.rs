//! The table that documents have on every shard.

use polyshard_engine::Dialect;
use polyshard_shard::{SharedTable, StoreSchema, create_own_index};

/// The table of documents, as the dialect's [`Dialect::own_table`] knows it.
pub(crate) const ITEMS: &str = "document_item";

/// The column that holds the text that a document's place is derived from.
pub(crate) const KEY_COLUMN: &str = "key_text";

/// The tables to be made on every shard.
pub fn schema() -> StoreSchema {
    StoreSchema {
        statements,
        shared: &[SharedTable { name: ITEMS, by_placement: |_| "placement, dataset, epk, pk, id" }],
    }
}

/// `epk` is the effective partition key, `pk` a digest of the partition key's values: two keys may have one hash.
/// `rid` stays with a document for as long as it exists, `etag` changes with every change of it, `ts` is when that was,
/// in milliseconds by the shard's clock. `ttl` is the document's own, in seconds. `body` is its JSON without the
/// properties that the system adds. It is last: whoever does not ask for it does not read its pages.
fn statements(dialect: Dialect) -> Vec<String> {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let table = dialect.own_table(ITEMS);
    let strict = match dialect {
        Dialect::Sqlite => " STRICT",
        Dialect::Postgres => "",
    };
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.push(format!(
        "CREATE TABLE IF NOT EXISTS {table} (placement {blob} NOT NULL, dataset {int} NOT NULL, epk {blob} NOT NULL, \
         pk {blob} NOT NULL, id {text} NOT NULL, {KEY_COLUMN} {text} NOT NULL, rid {int} NOT NULL, \
         etag {int} NOT NULL, ts {int} NOT NULL, ttl {int}, body {blob} NOT NULL, \
         PRIMARY KEY (placement, dataset, epk, pk, id)){strict}"
    ));
    out.push(create_own_index(dialect, "document_item_order", &format!("{table} (dataset, epk, pk, id)")));
    out
}

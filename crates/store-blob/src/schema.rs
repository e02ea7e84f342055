//! The tables that blobs have on every shard.

use polyshard_engine::Dialect;
use polyshard_shard::{SharedTable, StoreSchema, create_own_index};

/// Blobs and their snapshots.
pub(crate) const ITEMS: &str = "blob_item";
/// Uncommitted blocks.
pub(crate) const BLOCKS: &str = "blob_block";
/// Committed blocks and appends.
pub(crate) const EXTENTS: &str = "blob_extent";
/// Pages.
pub(crate) const PAGES: &str = "blob_page";
/// What is announced or is to be removed.
pub(crate) const PENDING: &str = "blob_pending";
/// All of them.
pub(crate) const TABLES: [&str; 5] = [ITEMS, BLOCKS, EXTENTS, PAGES, PENDING];

/// What is to be made on every shard.
pub fn schema() -> StoreSchema {
    StoreSchema {
        statements,
        shared: &[
            SharedTable { name: ITEMS, by_placement: |_| "placement, dataset, name, snapshot" },
            SharedTable { name: BLOCKS, by_placement: |_| "placement, dataset, name, stage, block_id, seq" },
            SharedTable { name: EXTENTS, by_placement: |_| "placement, dataset, name, content, start, seq" },
            SharedTable {
                name: PAGES,
                by_placement: |_| "placement, dataset, name, content, page, generation",
            },
            SharedTable { name: PENDING, by_placement: |_| "placement, dataset, id" },
        ],
    }
}

/// Every primary key begins with the placement: it finds what belongs to a range. Lists go by the name, since in a map
/// of hashes placements are in another order.
fn statements(dialect: Dialect) -> Vec<String> {
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.extend([items(dialect), blocks(dialect), extents(dialect), pages(dialect), pending(dialect)]);
    let own = |name| dialect.own_table(name);
    out.push(create_own_index(
        dialect,
        "blob_item_name",
        &format!("{} (dataset, name, snapshot)", own(ITEMS)),
    ));
    out.push(create_own_index(dialect, "blob_pending_due", &format!("{} (kind, at)", own(PENDING))));
    if dialect == Dialect::Postgres {
        // Bytes are seldom made smaller by compression, and a part of them can be read only if they are not.
        for (table, column) in
            [(ITEMS, "body"), (BLOCKS, "body"), (EXTENTS, "body"), (EXTENTS, "blocks"), (PAGES, "bytes")]
        {
            out.push(external(&own(table), column));
        }
    }
    out
}

/// ALTER TABLE waits for all who use the table and others wait behind it, so it is done once only.
fn external(table: &str, column: &str) -> String {
    format!(
        "DO $$ BEGIN IF EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('{table}') \
         AND attname = '{column}' AND attstorage <> 'e') THEN \
         ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL; END IF; END $$"
    )
}

fn table(dialect: Dialect, name: &str, columns: &str, key: &str) -> String {
    let strict = match dialect {
        Dialect::Sqlite => " STRICT",
        Dialect::Postgres => "",
    };
    format!("CREATE TABLE IF NOT EXISTS {} ({columns}, PRIMARY KEY ({key})){strict}", dialect.own_table(name))
}

/// The body is last: whoever does not ask for it does not read its pages. `snapshot` is that of the blob itself in
/// [`crate::store::BASE`], so that it comes after its snapshots.
fn items(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let columns = format!(
        "placement {blob} NOT NULL, dataset {int} NOT NULL, name {text} NOT NULL, snapshot {int} NOT NULL, \
         version {int} NOT NULL, etag {int} NOT NULL, kind {int} NOT NULL, size {int} NOT NULL, \
         created {int} NOT NULL, modified {int} NOT NULL, content {int} NOT NULL, generation {int} NOT NULL, \
         stage {int} NOT NULL, committed {int} NOT NULL, lease_id {text}, lease_s {int} NOT NULL, \
         lease_until {int} NOT NULL, lease_broken {int} NOT NULL, deleted_at {int} NOT NULL, object {text}, \
         props {text} NOT NULL, body {blob}"
    );
    table(dialect, ITEMS, &columns, "placement, dataset, name, snapshot")
}

/// `seq` tells apart blocks that were put under the same id, of which the last one counts.
fn blocks(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let columns = format!(
        "placement {blob} NOT NULL, dataset {int} NOT NULL, name {text} NOT NULL, stage {int} NOT NULL, \
         block_id {blob} NOT NULL, seq {int} NOT NULL, size {int} NOT NULL, at {int} NOT NULL, object {text}, \
         body {blob}"
    );
    table(dialect, BLOCKS, &columns, "placement, dataset, name, stage, block_id, seq")
}

/// `start` is the first byte in the blob; `seq` tells apart extents without bytes. Either `blocks` lists blocks with
/// their objects, or `body` is the bytes of one.
fn extents(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let columns = format!(
        "placement {blob} NOT NULL, dataset {int} NOT NULL, name {text} NOT NULL, content {int} NOT NULL, \
         start {int} NOT NULL, seq {int} NOT NULL, length {int} NOT NULL, blocks {blob}, body {blob}"
    );
    table(dialect, EXTENTS, &columns, "placement, dataset, name, content, start, seq")
}

fn pages(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let columns = format!(
        "placement {blob} NOT NULL, dataset {int} NOT NULL, name {text} NOT NULL, content {int} NOT NULL, \
         page {int} NOT NULL, generation {int} NOT NULL, valid {blob} NOT NULL, written {blob} NOT NULL, \
         bytes {blob} NOT NULL"
    );
    table(dialect, PAGES, &columns, "placement, dataset, name, content, page, generation")
}

/// `number` is that of the content, stage or snapshot that is to be removed; `at` is in milliseconds by the shard's
/// clock.
fn pending(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let columns = format!(
        "placement {blob} NOT NULL, dataset {int} NOT NULL, id {text} NOT NULL, name {text} NOT NULL, \
         kind {int} NOT NULL, number {int} NOT NULL, at {int} NOT NULL"
    );
    table(dialect, PENDING, &columns, "placement, dataset, id")
}

//! The texts of the statements about blobs and what is pending, made once for each engine.

use std::sync::{Arc, LazyLock};

use polyshard_engine::Dialect;

use crate::schema::{BLOCKS, EXTENTS, ITEMS, PAGES, PENDING, TABLES};

/// The snapshot number of the blob itself in its row: it comes after all of its snapshots.
pub(crate) const BASE: i64 = i64::MAX;

/// The columns of a blob without its body, in the order in which they are read.
const COLUMNS: &str = "name, snapshot, version, etag, kind, size, created, modified, content, generation, stage, \
                       committed, lease_id, lease_s, lease_until, lease_broken, deleted_at, object, props";

/// The blob, of the parameters that every statement begins with.
const BLOB: &str = "placement = $2 AND dataset = $1 AND name = $3";

/// The statements of one engine. The first parameters of those about one blob are its dataset, placement and name.
pub(crate) struct Texts {
    pub get: Arc<str>,
    pub head: Arc<str>,
    pub insert: Arc<str>,
    pub update: Arc<str>,
    pub update_body: Arc<str>,
    pub keep: Arc<str>,
    pub delete: Arc<str>,
    pub snapshots: Arc<str>,
    pub restore: Arc<str>,
    pub list: Arc<str>,
    pub announce: Arc<str>,
    pub take: Arc<str>,
    pub condemn: Arc<str>,
    pub pend: Arc<str>,
    pub is_announced: Arc<str>,
    pub due: Arc<str>,
    pub of_content: Arc<str>,
    pub is_used: Arc<str>,
    pub object_state: Arc<str>,
    pub take_noted: Arc<str>,
    pub hold_noted: Arc<str>,
    pub condemn_noted: Arc<str>,
    pub done: Arc<str>,
    pub expire: Arc<str>,
    pub any: [Arc<str>; 5],
    pub remove_some: [Arc<str>; 5],
}

/// The statements for an engine.
pub(crate) fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

fn text(text: String) -> Arc<str> {
    Arc::from(text)
}

/// SQLite prepares a statement anew for every value of a plain parameter after LIMIT, but not of an expression.
fn limit(number: u32) -> String {
    format!("CAST(${number} AS bigint)")
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let item = dialect.own_table(ITEMS);
        let pending = dialect.own_table(PENDING);
        let now = dialect.now_ms();
        let read = format!("SELECT {COLUMNS}, {now}");
        let set = "version = $5, etag = $6, kind = $7, size = $8, created = $9, modified = $10, content = $11, \
                   generation = $12, stage = $13, committed = $14, lease_id = $15, lease_s = $16, lease_until = $17, \
                   lease_broken = $18, deleted_at = $19, object = $20, props = $21";
        let list_limit = limit(5);
        Texts {
            get: text(format!("{read}, body FROM {item} WHERE {BLOB} AND snapshot = $4")),
            head: text(format!("{read} FROM {item} WHERE {BLOB} AND snapshot = $4")),
            insert: text(format!(
                "INSERT INTO {item} (dataset, placement, {COLUMNS}, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, \
                 $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22) ON CONFLICT DO NOTHING"
            )),
            update: text(format!("UPDATE {item} SET {set} WHERE {BLOB} AND snapshot = $4 AND version = $22")),
            update_body: text(format!(
                "UPDATE {item} SET {set}, body = $22 WHERE {BLOB} AND snapshot = $4 AND version = $23"
            )),
            // What is kept of a blob as another row: a snapshot, or a deleted one.
            keep: text(format!(
                "INSERT INTO {item} (dataset, placement, {COLUMNS}, body) SELECT dataset, placement, name, $4, $5, \
                 $6, kind, size, created, $7, content, generation, 0, committed, NULL, 0, 0, 0, $8, object, $9, body \
                 FROM {item} WHERE {BLOB} AND snapshot = {BASE} AND version = $10 ON CONFLICT DO NOTHING"
            )),
            delete: text(format!("DELETE FROM {item} WHERE {BLOB} AND snapshot = $4 AND version = $5")),
            snapshots: text(format!(
                "{read} FROM {item} WHERE {BLOB} AND snapshot > $4 AND snapshot < {BASE} ORDER BY snapshot LIMIT {}",
                limit(5)
            )),
            restore: text(format!(
                "UPDATE {item} SET deleted_at = 0, version = $4 WHERE {BLOB} AND deleted_at > 0 AND committed = 1"
            )),
            list: text(format!(
                "{read}, placement FROM {item} WHERE dataset = $1 AND (name, snapshot) > ($2, $3) AND name < $4 \
                 AND (snapshot = {BASE} OR $6 = 1) AND (deleted_at = 0 OR $7 = 1) AND (committed = 1 OR $8 = 1) \
                 ORDER BY name, snapshot LIMIT {list_limit}"
            )),
            announce: text(format!(
                "INSERT INTO {pending} (dataset, placement, name, id, kind, number, at) \
                 VALUES ($1, $2, $3, $4, 0, 0, {now})"
            )),
            take: text(format!("DELETE FROM {pending} WHERE {BLOB} AND id = $4 AND kind = 0")),
            is_announced: text(format!("SELECT 1 FROM {pending} WHERE {BLOB} AND id = $4 AND kind = 0")),
            condemn: text(format!(
                "UPDATE {pending} SET kind = 1, at = {now} - $5 WHERE {BLOB} AND id = $4 AND kind = 0"
            )),
            // The time changes in any case: a sweep that has found the thing in use does not remove this row then.
            pend: text(format!(
                "INSERT INTO {pending} (dataset, placement, name, id, kind, number, at) \
                 VALUES ($1, $2, $3, $4, $5, $6, {now} + $7) ON CONFLICT (placement, dataset, id) \
                 DO UPDATE SET at = CASE WHEN EXCLUDED.at > {pending}.at THEN EXCLUDED.at ELSE {pending}.at + 1 END"
            )),
            due: text(format!(
                "SELECT placement, dataset, name, id, number, at FROM {pending} WHERE kind = $1 AND at <= {now} - $2 \
                 AND (at, id) > ($3, $4) ORDER BY at, id LIMIT {}",
                limit(5)
            )),
            is_used: text(format!(
                "SELECT count(*) FROM {item} WHERE {BLOB} AND (object = $4 OR (content = $5 AND $5 <> 0) \
                 OR (stage = $6 AND $6 <> 0))"
            )),
            object_state: text(format!(
                "SELECT (SELECT count(*) FROM {pending} WHERE {BLOB} AND id = $4 AND kind = $5 AND at = $6), \
                 (SELECT count(*) FROM {item} WHERE {BLOB} AND object = $4)"
            )),
            of_content: text(format!("{read} FROM {item} WHERE {BLOB} AND content = $4 LIMIT {}", limit(5))),
            take_noted: text(format!("DELETE FROM {pending} WHERE {BLOB} AND id = $4 AND kind = $5")),
            // It is the same row that the sweep changes when it condemns the content: one waits for the other.
            hold_noted: text(format!(
                "UPDATE {pending} SET at = {now} WHERE {BLOB} AND id = $4 AND kind = $5"
            )),
            condemn_noted: text(format!(
                "UPDATE {pending} SET kind = $6, at = {now} - $7 WHERE {BLOB} AND id = $4 AND kind = $5"
            )),
            done: text(format!("DELETE FROM {pending} WHERE {BLOB} AND id = $4 AND kind = $5 AND at = $6")),
            expire: text(format!(
                "DELETE FROM {item} WHERE {BLOB} AND snapshot = $4 AND version = $5 AND deleted_at > 0"
            )),
            any: TABLES.map(|name| {
                text(format!("SELECT 1 FROM {} WHERE dataset = $1 LIMIT 1", dialect.own_table(name)))
            }),
            remove_some: remove_some(dialect),
        }
    }
}

/// Removes rows of a container that is gone, table by table.
fn remove_some(dialect: Dialect) -> [Arc<str>; 5] {
    let keys = [
        (ITEMS, "placement, name, snapshot"),
        (BLOCKS, "placement, name, stage, block_id, seq"),
        (EXTENTS, "placement, name, content, start, seq"),
        (PAGES, "placement, name, content, page, generation"),
        (PENDING, "placement, id"),
    ];
    keys.map(|(name, key)| {
        let table = dialect.own_table(name);
        let skip = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE SKIP LOCKED",
        };
        text(format!(
            "WITH chosen AS MATERIALIZED (SELECT {key} FROM {table} WHERE dataset = $1 LIMIT {} {skip}) \
             DELETE FROM {table} WHERE dataset = $1 AND ({key}) IN (SELECT {key} FROM chosen)",
            limit(2)
        ))
    })
}

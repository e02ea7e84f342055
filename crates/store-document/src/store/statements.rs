//! The texts of the statements about documents, made once for each engine.
//!
//! The parameters of all but the scans begin alike: dataset, placement, effective partition key, digest and id. The
//! sixth is the container's time to live: 0 if documents do not end, -1 if only those do that say so themselves.

use std::sync::{Arc, LazyLock};

use polyshard_engine::Dialect;

use crate::schema::ITEMS;

/// Bytes of a body at most that a scan reads along.
const LONG_BYTES: usize = 16 * 1024;

/// The statements of one engine.
pub(crate) struct Texts {
    pub get: Arc<str>,
    pub heads: Arc<str>,
    pub insert: Arc<str>,
    pub upsert: Arc<str>,
    pub replace: Arc<str>,
    pub delete: Arc<str>,
    pub delete_partition: Arc<str>,
    pub scan_partition: Arc<str>,
    pub scan_range: Arc<str>,
    pub expired: Arc<str>,
    pub remove_expired: Arc<str>,
    pub any: Arc<str>,
    pub remove_some: Arc<str>,
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

/// A parameter that is a number whatever stands beside it; after LIMIT, SQLite prepares a statement anew for each value
/// of a plain one.
fn number(number: u32) -> String {
    format!("CAST(${number} AS bigint)")
}

/// Whether the row `d` has not come to its end, by the container's time to live in a parameter.
fn alive(dialect: Dialect, default_ttl: u32) -> String {
    let (ttl, now) = (number(default_ttl), dialect.now_ms());
    format!("({ttl} = 0 OR coalesce(d.ttl, {ttl}) < 0 OR d.ts + coalesce(d.ttl, {ttl}) * 1000 > {now})")
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let table = dialect.own_table(ITEMS);
        let now = dialect.now_ms();
        let partition = "d.placement = $2 AND d.dataset = $1 AND d.epk = $3 AND d.pk = $4";
        let item = format!("{partition} AND d.id = $5");
        let alive_6 = alive(dialect, 6);
        let ids = match dialect {
            Dialect::Sqlite => "SELECT value FROM json_each($5)",
            Dialect::Postgres => "SELECT json_array_elements_text(CAST($5 AS json))",
        };
        let insert = format!(
            "INSERT INTO {table} AS d (dataset, placement, epk, pk, id, key_text, rid, etag, ts, ttl, body) \
             VALUES ($1, $2, $3, $4, $5, $7, $8, $9, {now}, $10, $11) \
             ON CONFLICT (placement, dataset, epk, pk, id) DO UPDATE SET etag = excluded.etag, ts = excluded.ts, \
             ttl = excluded.ttl, body = excluded.body"
        );
        let is_etag = |parameter: u32| format!("({0} = 0 OR d.etag = {0})", number(parameter));
        let columns = format!(
            "d.epk, d.pk, d.id, d.rid, d.etag, d.ts, d.placement, octet_length(d.body), \
             CASE WHEN octet_length(d.body) <= {LONG_BYTES} THEN d.body END"
        );
        // One of the ids of a list, if there is one.
        let is_id = match dialect {
            Dialect::Sqlite => "($8 = '' OR d.id IN (SELECT value FROM json_each(nullif($8, ''))))",
            Dialect::Postgres => {
                "(CAST($8 AS text) = '' OR d.id IN \
                 (SELECT json_array_elements_text(CAST(nullif(CAST($8 AS text), '') AS json))))"
            }
        };
        let skip = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE SKIP LOCKED",
        };
        let text = |text: String| -> Arc<str> { text.into() };
        Texts {
            get: text(format!(
                "SELECT d.rid, d.etag, d.ts, d.body FROM {table} AS d WHERE {item} AND {alive_6}"
            )),
            heads: text(format!(
                "SELECT d.id, d.rid, d.etag, d.ts, octet_length(d.body) FROM {table} AS d \
                 WHERE {partition} AND d.id IN ({ids}) AND {alive_6}"
            )),
            insert: text(format!("{insert}, rid = excluded.rid WHERE NOT {alive_6} RETURNING rid, ts")),
            upsert: text(format!(
                "{insert}, rid = CASE WHEN {alive_6} THEN d.rid ELSE excluded.rid END \
                 WHERE {} OR NOT {alive_6} RETURNING rid, ts",
                is_etag(12)
            )),
            replace: text(format!(
                "UPDATE {table} AS d SET etag = $7, ts = {now}, ttl = $8, body = $9 \
                 WHERE {item} AND {alive_6} AND {} RETURNING rid, ts",
                is_etag(10)
            )),
            delete: text(format!(
                "DELETE FROM {table} AS d WHERE {item} AND {alive_6} AND {} RETURNING rid, ts",
                is_etag(7)
            )),
            delete_partition: text(format!(
                "DELETE FROM {table} AS d WHERE {partition} AND d.id IN \
                 (SELECT id FROM {table} AS d WHERE {partition} ORDER BY id LIMIT {})",
                number(5)
            )),
            // From an id on, up to another one.
            scan_partition: text(format!(
                "SELECT {columns} FROM {table} AS d WHERE {partition} AND d.id >= $5 AND d.id <= $9 AND {alive_6} \
                 AND {is_id} ORDER BY d.id LIMIT {}",
                number(7)
            )),
            // From a position on, up to an effective partition key, which is not in it.
            scan_range: text(format!(
                "SELECT {columns} FROM {table} AS d WHERE d.dataset = $1 AND (d.epk, d.pk, d.id) >= ($2, $3, $4) \
                 AND d.epk < $5 AND {alive_6} AND {is_id} ORDER BY d.epk, d.pk, d.id LIMIT {}",
                number(7)
            )),
            expired: text(format!(
                "SELECT d.placement, d.epk, d.pk, d.id, d.etag FROM {table} AS d WHERE d.dataset = $1 AND NOT {} \
                 LIMIT {}",
                alive(dialect, 2),
                number(3)
            )),
            remove_expired: text(format!(
                "DELETE FROM {table} AS d WHERE {item} AND NOT {alive_6} AND d.etag = $7"
            )),
            any: text(format!("SELECT 1 FROM {table} WHERE dataset = $1 LIMIT 1")),
            remove_some: text(format!(
                "WITH chosen AS MATERIALIZED (SELECT placement, epk, pk, id FROM {table} WHERE dataset = $1 \
                 LIMIT {} {skip}) DELETE FROM {table} WHERE dataset = $1 AND (placement, epk, pk, id) IN \
                 (SELECT placement, epk, pk, id FROM chosen)",
                number(2)
            )),
        }
    }
}

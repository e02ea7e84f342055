//! The texts of the statements, made once for each engine.

use std::sync::{Arc, LazyLock};

use polyshard_engine::Dialect;

use crate::schema::MESSAGES;

/// The columns of a message, in the order in which they are read.
const COLUMNS: &str = "id, inserted_at, expires_at, visible_at, dequeue_count, receipt, body, due_at";

/// The statements of one engine.
pub(crate) struct Texts {
    pub put: Arc<str>,
    pub any_visible: Arc<str>,
    pub get_one: Arc<str>,
    pub get: Arc<str>,
    pub peek: Arc<str>,
    pub state: Arc<str>,
    pub update: Arc<str>,
    pub update_body: Arc<str>,
    pub delete: Arc<str>,
    pub count: Arc<str>,
    pub clear: Arc<str>,
    pub first_expiry: Arc<str>,
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

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let table = dialect.own_table(MESSAGES);
        // SQLite has one writer. On PostgreSQL another process may be at the same messages: it has them then.
        let skip = match dialect {
            Dialect::Sqlite => "",
            Dialect::Postgres => "FOR UPDATE SKIP LOCKED",
        };
        // SQLite prepares a statement anew for every value of a plain parameter after LIMIT, but not of an expression.
        let limit = |number: u32| format!("CAST(${number} AS bigint)");
        let (limit_2, limit_3, limit_4, limit_6) = (limit(2), limit(3), limit(4), limit(6));
        let text = |text: String| Arc::<str>::from(text);
        let visible = "dataset = $1 AND visible_at <= $2 AND expires_at > $2";
        let taken = "due_at = visible_at, visible_at = $3, receipt = $4, dequeue_count = dequeue_count + 1";
        let one = "dataset = $1 AND placement = $2 AND id = $3";
        let holder = format!("{one} AND receipt = $4 AND expires_at > $5");
        Texts {
            put: text(format!(
                "INSERT INTO {table} (dataset, placement, id, visible_at, expires_at, inserted_at, due_at, \
                 dequeue_count, receipt, body) VALUES ($1, $2, $3, $4, $5, $6, $4, 0, $7, $8)"
            )),
            any_visible: text(format!("SELECT 1 FROM {table} WHERE {visible} ORDER BY visible_at LIMIT 1")),
            // Most consumers take one at a time. A scalar subquery is run once, and spares SQLite a temporary table.
            get_one: text(format!(
                "UPDATE {table} SET {taken} WHERE dataset = $1 AND placement = $5 AND id = (SELECT id FROM {table} \
                 WHERE {visible} ORDER BY visible_at, id LIMIT 1 {skip}) RETURNING {COLUMNS}"
            )),
            // Materialized, so that PostgreSQL chooses and locks the messages once.
            get: text(format!(
                "WITH chosen AS MATERIALIZED (SELECT id FROM {table} WHERE {visible} ORDER BY visible_at, id \
                 LIMIT {limit_6} {skip}) UPDATE {table} SET {taken} \
                 WHERE dataset = $1 AND placement = $5 AND id IN (SELECT id FROM chosen) RETURNING {COLUMNS}"
            )),
            peek: text(format!(
                "SELECT {COLUMNS} FROM {table} WHERE {visible} ORDER BY visible_at, id LIMIT {limit_3}"
            )),
            state: text(format!("SELECT receipt, expires_at FROM {table} WHERE {one}")),
            update: text(format!(
                "UPDATE {table} SET visible_at = $6, receipt = $7 WHERE {holder} AND expires_at > $6"
            )),
            update_body: text(format!(
                "UPDATE {table} SET visible_at = $6, receipt = $7, body = $8 WHERE {holder} AND expires_at > $6"
            )),
            delete: text(format!("DELETE FROM {table} WHERE {holder}")),
            count: text(format!("SELECT count(*) FROM {table} WHERE dataset = $1 AND expires_at > $2")),
            clear: text(format!(
                "WITH chosen AS MATERIALIZED (SELECT id FROM {table} WHERE dataset = $1 AND placement = $2 \
                 AND id <= $3 ORDER BY id LIMIT {limit_4}) \
                 DELETE FROM {table} WHERE dataset = $1 AND placement = $2 AND id IN (SELECT id FROM chosen)"
            )),
            first_expiry: text(format!("SELECT min(expires_at) FROM {table} WHERE dataset = $1")),
            remove_expired: text(format!(
                "WITH chosen AS MATERIALIZED (SELECT placement, id FROM {table} WHERE dataset = $1 \
                 AND expires_at <= $2 ORDER BY expires_at LIMIT {limit_3} {skip}) \
                 DELETE FROM {table} WHERE dataset = $1 AND (placement, id) IN (SELECT placement, id FROM chosen)"
            )),
            any: text(format!("SELECT 1 FROM {table} WHERE dataset = $1 LIMIT 1")),
            remove_some: text(format!(
                "WITH chosen AS MATERIALIZED (SELECT placement, id FROM {table} WHERE dataset = $1 \
                 LIMIT {limit_2} {skip}) \
                 DELETE FROM {table} WHERE dataset = $1 AND (placement, id) IN (SELECT placement, id FROM chosen)"
            )),
        }
    }
}

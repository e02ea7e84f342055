//! How PostgreSQL writes values as text where rows are carried: the same, whatever a database, role or writer has set.

use polyshard_engine::{Dialect, Durable, HookFuture, SessionHandle, SessionHook, Statement};

use crate::filed::Native;
use crate::shape::{Column, Travel};

/// The settings that the text of a value depends on. Two shards may have others by default, and so one row two texts.
const SETTINGS: [(&str, &str); 6] = [
    ("datestyle", "ISO, YMD"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    // With fewer, numbers lose their last digits.
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("lc_monetary", "C"),
];

/// Has every session that carries rows write values in one way, see all rows, and wait for the disk or not.
pub(crate) struct Carrying {
    pub durable: Durable,
}

impl SessionHook for Carrying {
    fn on_session<'a>(&'a self, session: &'a mut SessionHandle<'_>) -> HookFuture<'a> {
        Box::pin(async move {
            let lazily = (self.durable == Durable::WithTheNext).then_some(("synchronous_commit", "off"));
            // Rows that a policy hides would be left behind; this way they are an error.
            let all = SETTINGS.into_iter().chain([("row_security", "off")]).chain(lazily);
            session.run(set(all, false)).await.map(drop)
        })
    }
}

/// Has one transaction on the sessions of requests write and read values in the same way as those that carry rows; a
/// file has only one way.
pub fn one_notation(dialect: Dialect) -> Option<Statement> {
    (dialect == Dialect::Postgres).then(|| set(SETTINGS.into_iter(), true))
}

/// Has one transaction on PostgreSQL read values as the database and its role have it by default, whatever the session
/// has set.
pub fn default_notation() -> Statement {
    let names = SETTINGS.map(|(name, _)| format!("'{name}'")).join(", ");
    Statement::new(format!(
        "SELECT set_config(name, reset_val, true) FROM pg_settings WHERE lower(name) IN ({names})"
    ))
}

fn set(all: impl Iterator<Item = (&'static str, &'static str)>, is_local: bool) -> Statement {
    let set: Vec<String> =
        all.map(|(name, value)| format!("set_config('{name}', '{value}', {is_local})")).collect();
    Statement::new(format!("SELECT {}", set.join(", ")))
}

/// What a function of ours says of the settings if the text of these columns depends on them: it is run with those of
/// whoever writes.
pub(crate) fn of_function(columns: &[&Column]) -> String {
    match columns.iter().any(|column| depends(column)) {
        true => SETTINGS.map(|(name, value)| format!(" SET {name} = '{value}'")).concat(),
        false => String::new(),
    }
}

fn depends(column: &Column) -> bool {
    match (column.travel, column.native) {
        (Travel::Cast, Native::Char | Native::Enum) => false,
        (Travel::Cast, _) => !column.kind.starts_with("numeric"),
        (_, native) => native == Native::Float,
    }
}

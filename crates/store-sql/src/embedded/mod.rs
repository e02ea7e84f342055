//! The door before SQLite shards: the same session, with PostgreSQL's statements translated.

mod across;
mod copy;
mod cursor;
mod enlist;
mod everywhere;
mod explain;
mod held;
mod lock;
mod pages;
mod run;
mod settings;
mod translate;

use polyshard_engine::{Dialect, Options};
use polyshard_shard::StoreSchema;

pub(crate) use cursor::Kept;
pub(crate) use everywhere::LiteTurn;
pub(crate) use run::{Lite, enter_briefly};

/// The tables that SQLite shards keep descriptions of the users' tables in.
pub fn schema() -> StoreSchema {
    StoreSchema { statements, shared: &[] }
}

fn statements(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => polyshard_sql_on_sqlite::BOOKKEEPING.iter().map(|sql| (*sql).to_owned()).collect(),
        Dialect::Postgres => Vec::new(),
    }
}

/// Options of databases, with what translated statements need registered on SQLite.
pub fn with_functions(mut options: Options) -> Options {
    options.functions.extend(polyshard_sql_on_sqlite::functions());
    options.aggregates.extend(polyshard_sql_on_sqlite::aggregates());
    options.collations.extend(polyshard_sql_on_sqlite::collations());
    options
}

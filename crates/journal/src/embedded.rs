//! How the journal speaks with SQLite shards, which know PostgreSQL's SQL only by translation.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use polyshard_engine::{Statement, Transaction};
use polyshard_lite as lite;
use polyshard_sql::{Context, Kind, Schema, SqlError, SqlState};

/// What an SQLite shard's schema is read as.
pub type SchemaFuture<'a> = Pin<Box<dyn Future<Output = Result<Schema, SqlError>> + Send + 'a>>;

/// Translates for SQLite shards.
pub trait Embedded: Send + Sync {
    /// A shard's tables, as PostgreSQL would describe them; placements and position are filled in by the journal.
    fn schema<'a>(&'a self, transaction: &'a mut Transaction) -> SchemaFuture<'a>;

    /// A statement in SQLite's words, on a shard that has this schema, under the settings that it was recorded with.
    fn translate(
        &self,
        sql: &str,
        schema: &Schema,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<Statement>, SqlError>;
}

/// The translation that the SQL door uses, too.
pub struct Lite;

impl Embedded for Lite {
    fn schema<'a>(&'a self, transaction: &'a mut Transaction) -> SchemaFuture<'a> {
        Box::pin(async move {
            let queries = lite::DESCRIPTION_QUERIES.map(Statement::new).to_vec();
            let answers = transaction.run_all(queries).await.map_err(|error| wrong(error.to_string()))?;
            let answers =
                answers.try_into().map_err(|_| wrong("a shard did not answer every query".to_owned()))?;
            lite::schema_from(&answers)
        })
    }

    fn translate(
        &self,
        sql: &str,
        schema: &Schema,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<Statement>, SqlError> {
        let search_path = search_path(settings);
        let context = Context { schema, search_path: &search_path, strict: false };
        let mut out = Vec::new();
        for statement in polyshard_sql::statements(sql)? {
            if matches!(statement.kind(), Kind::Ddl(_) | Kind::Truncate(_) | Kind::Do) {
                out.extend(lite::ddl(&statement, &context)?.into_iter().map(Statement::new));
                continue;
            }
            let zone = settings.iter().find(|(name, _)| name.eq_ignore_ascii_case("timezone"));
            let zone = zone.map_or(Ok(lite::Zone::utc()), |(_, zone)| lite::Zone::parse(zone))?;
            let settings = lite::Settings { zone, ..lite::Settings::default() };
            let prepared = lite::prepare(&statement, &context, &[], &settings)?;
            // What is recorded says its time and its ids itself.
            let moment = lite::Moment::default();
            let values = prepared.bind(&[], &moment)?;
            out.push(values.into_iter().fold(Statement::new(prepared.sql.clone()), Statement::bind));
        }
        Ok(out)
    }
}

/// The schemas of a `search_path` setting.
fn search_path(settings: &BTreeMap<String, String>) -> Vec<String> {
    let Some(path) = settings.get("search_path") else { return vec!["public".to_owned()] };
    path.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

fn wrong(message: String) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, message)
}

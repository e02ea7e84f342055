//! How the journal speaks with SQLite shards, which know PostgreSQL's SQL only by translation.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use polyshard_engine::{Statement, Transaction};
use polyshard_sql::{Context, Kind, Schema, SqlError, SqlState};
use polyshard_sql_on_sqlite as lite;

/// What an SQLite shard's schema is read as.
pub type SchemaFuture<'a> = Pin<Box<dyn Future<Output = Result<Schema, SqlError>> + Send + 'a>>;

/// Translates for SQLite shards.
pub trait Embedded: Send + Sync {
    /// A shard's tables, as PostgreSQL would describe them; placements and position are filled in by the journal.
    fn schema<'a>(&'a self, transaction: &'a mut Transaction) -> SchemaFuture<'a>;

    /// A statement that was decided in SQLite's words, on a shard that has this schema, under the settings that it was
    /// recorded with.
    fn translate(
        &self,
        sql: &str,
        schema: &Schema,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<Statement>, SqlError>;
}

/// The translation that the SQL door uses, too.
pub struct Lite;

impl Lite {
    /// A statement that nobody has decided on yet: whatever is wrong with it is told.
    pub fn translate_new(
        &self,
        sql: &str,
        schema: &Schema,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<Statement>, SqlError> {
        translate(sql, schema, settings, Said::Now)
    }
}

/// When a statement was said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Now,
    Before,
}

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
        translate(sql, schema, settings, Said::Before)
    }
}

fn translate(
    sql: &str,
    schema: &Schema,
    settings: &BTreeMap<String, String>,
    said: Said,
) -> Result<Vec<Statement>, SqlError> {
    let search_path = search_path(settings);
    let context = Context { schema, search_path: &search_path, strict: false };
    let mut out = Vec::new();
    for statement in polyshard_sql::statements(sql)? {
        if matches!(statement.kind(), Kind::Ddl(_) | Kind::Truncate(_) | Kind::Do) {
            let made = match lite::ddl(&statement, &context) {
                // Earlier versions recorded comments without a look at what they are about.
                Err(_) if said == Said::Before && is_comment(&statement) => Vec::new(),
                made => made?,
            };
            out.extend(made.into_iter().map(Statement::new));
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

fn is_comment(statement: &polyshard_sql::Statement) -> bool {
    matches!(statement.kind(), Kind::Ddl(ddl) if ddl.tag == "COMMENT")
}

/// The schemas of a `search_path` setting.
pub(crate) fn search_path(settings: &BTreeMap<String, String>) -> Vec<String> {
    let Some(path) = settings.get("search_path") else { return vec!["public".to_owned()] };
    path.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

fn wrong(message: String) -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, message)
}

//! CREATE SCHEMA: a name that stands before the names of its relations in the file.

use polyshard_sql::ast::SchemaName;
use polyshard_sql::{Context, SqlError};

use super::{literal_text, name_parts};
use crate::fail::{fail, unsupported};

/// Schemas that are there without having been made, and those of our own on PostgreSQL.
const GIVEN: [&str; 3] = ["public", "pg_catalog", "information_schema"];

pub(super) fn create(
    name: &SchemaName,
    if_not_exists: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    // There is one owner of everything.
    let (SchemaName::Simple(name) | SchemaName::NamedAuthorization(name, _)) = name else {
        return Err(unsupported("CREATE SCHEMA without a name"));
    };
    let (_, name) = name_parts(name)?;
    if GIVEN.contains(&name.as_str()) || context.schema.schemas.contains(&name) {
        if if_not_exists {
            return Ok(Vec::new());
        }
        return Err(fail("42P06", format!("schema \"{name}\" already exists")));
    }
    if name.starts_with("pg_") || name == "polyshard" {
        return Err(fail("42939", format!("unacceptable schema name \"{name}\"")));
    }
    if name.is_empty() || name.len() > 63 || name.contains('.') {
        return Err(
            unsupported(format!("the schema name \"{name}\"")).hint("take 1 to 63 bytes without a dot")
        );
    }
    // SQLite does not tell large letters from small ones.
    if context.schema.schemas.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
        return Err(unsupported(format!("the schema \"{name}\" beside one that differs by case alone")));
    }
    let within = format!("{name}.");
    let relations = context.schema.tables.keys().chain(context.schema.views.keys());
    if let Some(other) = relations.map(|known| &known.name).find(|known| known.starts_with(&within)) {
        return Err(unsupported(format!("the schema \"{name}\" beside a relation called \"{other}\"")));
    }
    Ok(vec![format!("INSERT INTO polyshard_sql_schema (name) VALUES ({})", literal_text(&name))])
}

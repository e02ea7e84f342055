//! Schema changes: PostgreSQL's statement in, SQLite's statements and the description of what it made out.

mod alter;
mod comment;
mod constraint;
mod create;
mod drop;
mod enums;
mod generated;
mod referred;
mod schema;
mod trigger;
mod truncate;
mod view;

use std::sync::Arc;

use polyshard_sql::ast::{ObjectName, Statement as Ast};
use polyshard_sql::{Context, Kind, Schema, SqlError, Statement, Table, TableName};

pub(crate) use trigger::check_reference;
pub(crate) use view::in_public;

use crate::fail::{fail, unsupported};
use crate::translate::{file_name, fold, literal, name_parts, no_relation};

/// Names that belong to SQLite or to us.
const RESERVED_PREFIXES: [&str; 3] = ["sqlite_", "polyshard_", "pg_"];

/// SQLite's statements for a schema change, to be run in one transaction after [`crate::BOOKKEEPING`]. An empty list
/// is a change that changes nothing (`IF NOT EXISTS`).
pub fn ddl(statement: &Statement, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    match statement.kind() {
        Kind::Truncate(names) => return truncate::tables(names, statement.text(), context),
        Kind::Do => return guarded(statement.text(), context),
        _ => {}
    }
    if statement.left_out() == Some("SEQUENCE NAME") {
        let hint = "Leave the name out: the sequence is called after its table and column.";
        return Err(unsupported("a name for the sequence of an identity column").hint(hint));
    }
    let ast = match (statement.ast(), statement.failure()) {
        (Some(ast), _) => ast,
        (None, Some(failure)) => return Err(failure.clone()),
        (None, None) => return Err(unsupported("this statement")),
    };
    match ast {
        Ast::CreateTable(table) => create::table(table, context),
        Ast::CreateIndex(index) => create::index(index, context),
        Ast::CreateView(view) => view::create(view, context),
        Ast::AlterTable(table) => alter::table(table, context),
        Ast::Drop { object_type, if_exists, names, cascade, .. } => {
            drop::objects(object_type, *if_exists, names, *cascade, context)
        }
        Ast::Comment { object_type, object_name, comment, .. } => {
            comment::on(object_type, object_name, comment.as_deref(), context)
        }
        Ast::CreateSchema { schema_name, if_not_exists, .. } => {
            schema::create(schema_name, *if_not_exists, context)
        }
        Ast::CreateType { name, representation } => enums::create(name, representation.as_ref(), context),
        Ast::AlterType(alter) => enums::alter(alter, context),
        Ast::CreateExtension(extension) => extended(&fold(&extension.name), extension.if_not_exists),
        other => {
            let shown = other.to_string();
            let words: Vec<&str> = shown.split_whitespace().take(2).collect();
            Err(unsupported(format!("{} on SQLite shards", words.join(" "))))
        }
    }
}

/// A DO block: those that make a type unless it is there.
fn guarded(text: &str, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let Some(inner) = polyshard_sql::guarded_type(text) else {
        return Err(unsupported("DO on SQLite shards, but for a block that makes a type unless it is there"));
    };
    let statements = polyshard_sql::statements(&inner)?;
    let [create] = &statements[..] else { return Err(unsupported("DO on SQLite shards")) };
    match ddl(create, context) {
        Err(error) if error.state.0 == "42710" => Ok(Vec::new()),
        made => made,
    }
}

/// Extensions whose functions are here as far as migration tools ask for them: `uuid_generate_v4`, `gen_random_uuid`.
pub(crate) const EXTENSIONS: [(&str, &str); 3] =
    [("plpgsql", "1.0"), ("uuid-ossp", "1.1"), ("pgcrypto", "1.3")];

/// CREATE EXTENSION: those that are there are there from the beginning.
fn extended(name: &str, if_not_exists: bool) -> Result<Vec<String>, SqlError> {
    if !EXTENSIONS.iter().any(|(known, _)| *known == name) {
        return Err(unsupported(format!("the extension {name} on SQLite shards")));
    }
    if if_not_exists {
        return Ok(Vec::new());
    }
    Err(fail("42710", format!("extension \"{name}\" already exists")))
}

/// Whether there is a schema that users' relations can be in.
fn has_schema(schema: &Schema, name: &str) -> bool {
    name == "public" || schema.schemas.contains(name)
}

/// The full name of a new relation: in the schema that it names, or in the first one of the search path that is there.
fn new_name(name: &ObjectName, context: &Context<'_>) -> Result<TableName, SqlError> {
    let (schema, bare) = name_parts(name)?;
    let schema = match schema {
        Some(schema) if has_schema(context.schema, &schema) => schema,
        Some(schema) if matches!(schema.as_str(), "pg_catalog" | "information_schema") => {
            return Err(fail("42501", format!("permission denied for schema {schema}")));
        }
        Some(schema) => return Err(fail("3F000", format!("schema \"{schema}\" does not exist"))),
        None => {
            let first = context.search_path.iter().find(|schema| has_schema(context.schema, schema));
            first.cloned().ok_or_else(|| fail("3F000", "no schema has been selected to create in"))?
        }
    };
    let bare = allowed(bare)?;
    // In the file it would be called like one of that schema.
    if schema == "public"
        && let Some((before, _)) = bare.split_once('.')
        && context.schema.schemas.contains(before)
    {
        return Err(unsupported(format!("the name \"{bare}\" beside a schema called {before}")));
    }
    Ok(TableName { schema, name: bare })
}

/// A name that may be used.
fn allowed(name: String) -> Result<String, SqlError> {
    if name.is_empty() || name.len() > 63 {
        return Err(fail("42602", format!("the name \"{name}\" must have 1 to 63 bytes")));
    }
    if RESERVED_PREFIXES.iter().any(|prefix| name.to_ascii_lowercase().starts_with(prefix)) {
        return Err(fail(
            "42939",
            format!("names that begin with sqlite_, polyshard_ or pg_ are reserved: {name}"),
        ));
    }
    Ok(name)
}

/// A table that is there.
fn own_table<'c>(name: &ObjectName, context: &Context<'c>) -> Result<&'c Arc<Table>, SqlError> {
    let (schema, bare) = name_parts(name)?;
    let known = context.schema.table(schema.as_deref(), &bare, context.search_path);
    known.ok_or_else(|| no_relation(schema.as_deref(), &bare))
}

/// What an index or constraint of a table is called among all of the file's: PostgreSQL tells them apart by schema.
fn beside(table: &TableName, name: &str) -> String {
    file_name(&TableName { schema: table.schema.clone(), name: name.to_owned() })
}

/// A relation's name in messages and definitions: with its schema, unless that is public.
fn shown_name(name: &TableName) -> String {
    use crate::functions::quote_ident;
    if name.schema == "public" {
        return quote_ident(&name.name);
    }
    format!("{}.{}", quote_ident(&name.schema), quote_ident(&name.name))
}

fn literal_text(text: &str) -> String {
    literal(&polyshard_engine::Value::from(text))
}

fn literal_option(text: Option<&str>) -> String {
    text.map_or_else(|| "NULL".to_owned(), literal_text)
}

/// A JSON array of names.
fn name_list(names: &[String]) -> String {
    use crate::value::json::Json;
    literal_text(&Json::Array(names.iter().cloned().map(Json::String).collect()).to_string())
}

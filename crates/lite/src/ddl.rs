//! Schema changes: PostgreSQL's statement in, SQLite's statements and the description of what it made out.

mod alter;
mod constraint;
mod create;
mod trigger;

use polyshard_sql::ast::{ObjectName, ObjectType, Statement as Ast};
use polyshard_sql::{Context, Kind, RelationName, SqlError, Statement, TableName};

use crate::fail::{fail, unsupported};
use crate::translate::{literal, name_parts, quoted};

/// Names that belong to SQLite or to us.
const RESERVED_PREFIXES: [&str; 3] = ["sqlite_", "polyshard_", "pg_"];

/// SQLite's statements for a schema change, to be run in one transaction after [`crate::BOOKKEEPING`]. An empty list
/// is a change that changes nothing (`IF NOT EXISTS`).
pub fn ddl(statement: &Statement, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    if let Kind::Truncate(names) = statement.kind() {
        let delete = |name: &RelationName| {
            let known = context.schema.table(name.schema.as_deref(), &name.name, context.search_path);
            let table =
                known.ok_or_else(|| fail("42P01", format!("relation \"{}\" does not exist", name.name)))?;
            Ok(format!("DELETE FROM {}", quoted(&table.name.name)))
        };
        return names.iter().map(delete).collect();
    }
    let ast = match (statement.ast(), statement.failure()) {
        (Some(ast), _) => ast,
        (None, Some(failure)) => return Err(failure.clone()),
        (None, None) => return Err(unsupported("this statement")),
    };
    match ast {
        Ast::CreateTable(table) => create::table(table, context),
        Ast::CreateIndex(index) => create::index(index, context),
        Ast::CreateView(view) => create::view(view, context),
        Ast::AlterTable(table) => alter::table(table, context),
        Ast::Drop { object_type, if_exists, names, cascade, .. } => {
            drop_objects(object_type, *if_exists, names, *cascade, context)
        }
        // Nothing of it is kept.
        Ast::Comment { .. } => Ok(Vec::new()),
        Ast::CreateSchema { schema_name, if_not_exists: true, .. } if schema_name.to_string() == "public" => {
            Ok(Vec::new())
        }
        other => {
            let shown = other.to_string();
            let words: Vec<&str> = shown.split_whitespace().take(2).collect();
            Err(unsupported(format!("{} on SQLite shards", words.join(" "))))
        }
    }
}

fn drop_objects(
    kind: &ObjectType,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let mut out = Vec::new();
    for name in referring_first(names, context) {
        let (schema, bare) = name_parts(name)?;
        let full = literal_text(&bare);
        match kind {
            ObjectType::Table => {
                let Some(table) = context.schema.table(schema.as_deref(), &bare, context.search_path) else {
                    if if_exists {
                        continue;
                    }
                    return Err(fail("42P01", format!("table \"{bare}\" does not exist")));
                };
                let others = context.schema.tables.values().filter(|other| {
                    other.name != table.name && !names.iter().any(|name| is_name(name, &other.name))
                });
                for other in others {
                    if other.foreign_keys.iter().any(|key| key.target == table.name) {
                        if cascade {
                            return Err(unsupported("DROP … CASCADE of a table that others refer to"));
                        }
                        return Err(fail(
                            "2BP01",
                            format!("cannot drop table {bare} because other objects depend on it"),
                        ));
                    }
                }
                for key in &table.foreign_keys {
                    out.extend(trigger::drop_reference(&key.name));
                }
                out.push(format!("DROP TABLE {}", quoted(&bare)));
                for kept in ["polyshard_sql_column", "polyshard_sql_constraint", "polyshard_sql_index"] {
                    out.push(format!("DELETE FROM {kept} WHERE table_name = {full}"));
                }
                out.push(format!("DELETE FROM polyshard_sql_table WHERE name = {full}"));
            }
            ObjectType::Index => {
                let exists = if if_exists { "IF EXISTS " } else { "" };
                out.push(format!("DROP INDEX {exists}{}", quoted(&bare)));
                out.push(format!("DELETE FROM polyshard_sql_index WHERE name = {full}"));
            }
            ObjectType::View => {
                if context.schema.view(schema.as_deref(), &bare, context.search_path).is_none() {
                    if if_exists {
                        continue;
                    }
                    return Err(fail("42P01", format!("view \"{bare}\" does not exist")));
                }
                out.push(format!("DELETE FROM polyshard_sql_view WHERE name = {full}"));
            }
            // There can be none.
            ObjectType::Sequence | ObjectType::Type if if_exists => {}
            other => return Err(unsupported(format!("DROP {other} on SQLite shards"))),
        }
    }
    Ok(out)
}

/// Names of tables with those before others that refer to them: SQLite deletes the rows first, and looks at what they
/// refer to. Where they refer to each other, as they are given.
fn referring_first<'n>(names: &'n [ObjectName], context: &Context<'_>) -> Vec<&'n ObjectName> {
    let known = |name: &ObjectName| {
        let (schema, bare) = name_parts(name).ok()?;
        context.schema.table(schema.as_deref(), &bare, context.search_path)
    };
    let refers = |from: &ObjectName, to: &ObjectName| match (known(from), known(to)) {
        (Some(from), Some(to)) => {
            from.name != to.name && from.foreign_keys.iter().any(|key| key.target == to.name)
        }
        _ => false,
    };
    let mut left: Vec<&ObjectName> = names.iter().collect();
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let free = left.iter().position(|name| !left.iter().any(|other| refers(other, name)));
        ordered.push(left.remove(free.unwrap_or(0)));
    }
    ordered
}

fn is_name(name: &ObjectName, full: &TableName) -> bool {
    name_parts(name).is_ok_and(|(_, bare)| bare == full.name)
}

/// The name of a new object, which must be one of the schema public.
fn new_name(name: &ObjectName) -> Result<String, SqlError> {
    let (schema, bare) = name_parts(name)?;
    if schema.as_deref().is_some_and(|schema| schema != "public") {
        return Err(unsupported(format!("schemas other than public ({name})")));
    }
    if bare.is_empty() || bare.len() > 63 {
        return Err(fail("42602", format!("the name \"{bare}\" must have 1 to 63 bytes")));
    }
    if RESERVED_PREFIXES.iter().any(|prefix| bare.to_ascii_lowercase().starts_with(prefix)) {
        return Err(fail(
            "42939",
            format!("names that begin with sqlite_, polyshard_ or pg_ are reserved: {bare}"),
        ));
    }
    Ok(bare)
}

/// The name of a table that is there.
fn own_table(name: &ObjectName, context: &Context<'_>) -> Result<String, SqlError> {
    let (schema, bare) = name_parts(name)?;
    match context.schema.table(schema.as_deref(), &bare, context.search_path) {
        Some(table) => Ok(table.name.name.clone()),
        None => Err(fail("42P01", format!("relation \"{name}\" does not exist"))),
    }
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

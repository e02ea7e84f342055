//! TRUNCATE: the rows of tables, and with CASCADE of those that refer to them.

use std::sync::Arc;

use polyshard_sql::{Context, RelationName, SqlError, Table};

use super::has_schema;
use crate::fail::fail;
use crate::translate::{no_relation, quoted_name};

pub(super) fn tables(
    names: &[RelationName],
    text: &str,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let mut gone: Vec<&Arc<Table>> = Vec::new();
    for name in names {
        if let Some(schema) = name.schema.as_deref().filter(|schema| !has_schema(context.schema, schema)) {
            return Err(fail("3F000", format!("schema \"{schema}\" does not exist")));
        }
        let known = context.schema.table(name.schema.as_deref(), &name.name, context.search_path);
        let table = known.ok_or_else(|| no_relation(name.schema.as_deref(), &name.name))?;
        if !gone.iter().any(|other| other.name == table.name) {
            gone.push(table);
        }
    }
    let cascade =
        text.split_whitespace().next_back().is_some_and(|word| word.eq_ignore_ascii_case("cascade"));
    while let Some((child, parent)) = referring(&gone, context) {
        if !cascade {
            let (child, parent) = (&child.name.name, &parent.name.name);
            let message = "cannot truncate a table referenced in a foreign key constraint";
            return Err(fail("0A000", message)
                .detail(format!("Table \"{child}\" references \"{parent}\"."))
                .hint(format!("Truncate table \"{child}\" at the same time, or use TRUNCATE ... CASCADE.")));
        }
        gone.push(child);
    }
    let mut out = Vec::with_capacity(gone.len());
    while !gone.is_empty() {
        // Rows that refer to others go first; where tables refer to each other, any of them.
        let refers = |child: &Table, parent: &Table| {
            child.name != parent.name && child.foreign_keys.iter().any(|key| key.target == parent.name)
        };
        let free = |table: &&Arc<Table>| !gone.iter().any(|other| refers(other, table));
        let place = gone.iter().position(free).unwrap_or(0);
        out.push(format!("DELETE FROM {}", quoted_name(&gone.remove(place).name)));
    }
    Ok(out)
}

/// A table that refers to one of these without being one of them.
fn referring<'c>(gone: &[&'c Arc<Table>], context: &Context<'c>) -> Option<(&'c Arc<Table>, &'c Arc<Table>)> {
    let others = context.schema.tables.values();
    let mut others = others.filter(|other| !gone.iter().any(|table| table.name == other.name));
    others.find_map(|other| {
        let refers = |table: &&&Arc<Table>| other.foreign_keys.iter().any(|key| key.target == table.name);
        gone.iter().find(refers).map(|table| (other, *table))
    })
}

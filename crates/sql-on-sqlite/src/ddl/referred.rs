//! Foreign keys that go to what is dropped: refused, or dropped too. SQLite would refuse every write of their tables.

use std::collections::BTreeSet;

use polyshard_sql::{Context, ForeignKey, SqlError, Table, TableName};

use super::drop::depended;
use super::{literal_text, shown_name, trigger};
use crate::translate::file_name;

/// The keys of all tables that go to a table; its own are as they are now.
fn keys<'a>(to: &'a Table, context: &Context<'a>) -> Vec<(&'a TableName, &'a ForeignKey)> {
    let others = context.schema.tables.values().map(|other| &**other).filter(|other| other.name != to.name);
    let keys = |table: &'a Table| table.foreign_keys.iter().map(move |key| (&table.name, key));
    others.chain([to]).flat_map(keys).filter(|(_, key)| key.target == to.name).collect()
}

/// What becomes of foreign keys whose target is gone.
fn drop_keys(what: &str, keys: &[(&TableName, &ForeignKey)], cascade: bool) -> Result<Vec<String>, SqlError> {
    if !cascade && !keys.is_empty() {
        let detail = |(own, key): &(&TableName, &ForeignKey)| {
            format!("constraint {} on table {} depends on {what}", key.name, shown_name(own))
        };
        return Err(depended(what, keys.iter().map(detail)));
    }
    Ok(keys.iter().flat_map(|(own, key)| trigger::drop_constraint(own, &key.name, true)).collect())
}

/// Before a column is dropped.
pub(super) fn by_column(
    table: &Table,
    place: usize,
    cascade: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let column = &table.columns[place].name;
    let mut keys = keys(table, context);
    // A key that the column itself is in goes with it.
    keys.retain(|(own, key)| {
        key.target_columns.contains(column) && !(**own == table.name && key.columns.contains(&place))
    });
    drop_keys(&format!("column {column} of table {}", shown_name(&table.name)), &keys, cascade)
}

/// Before a constraint is dropped, or an index: keys to its columns need another one.
pub(super) fn by_unique(
    table: &Table,
    name: &str,
    cascade: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let set = |columns: &[String]| columns.iter().cloned().collect::<BTreeSet<String>>();
    let indexes: Vec<_> = context.schema.indexes.get(&table.name).into_iter().flatten().collect();
    let primary: BTreeSet<String> =
        table.primary_key.iter().map(|place| table.columns[*place].name.clone()).collect();
    let serves = |key: &ForeignKey, but: Option<&str>| {
        let others = indexes.iter().filter(|index| index.is_unique && Some(index.name.as_str()) != but);
        others.map(|index| set(&index.columns)).any(|columns| columns == set(&key.target_columns))
    };
    let mut keys = keys(table, context);
    if let Some(index) = indexes.iter().find(|index| index.is_unique && index.name == name) {
        let columns = set(&index.columns);
        keys.retain(|(_, key)| {
            set(&key.target_columns) == columns && columns != primary && !serves(key, Some(name))
        });
        let kind = if index.is_constraint { "constraint" } else { "index" };
        let what = match kind {
            "index" => format!("index {name}"),
            _ => format!("constraint {name} on table {}", shown_name(&table.name)),
        };
        return drop_keys(&what, &keys, cascade);
    }
    // What the primary key is called is known to the files alone.
    keys.retain(|(_, key)| set(&key.target_columns) == primary && !serves(key, None));
    let Some((own, key)) = keys.first() else { return Ok(Vec::new()) };
    let what = format!("constraint {name} on table {}", shown_name(&table.name));
    let (state, message) = if cascade {
        ("0A000", format!("dropping {what} with what refers to it; drop constraint {} first", key.name))
    } else {
        let why = format!("constraint {} on table {} depends on it", key.name, shown_name(own));
        ("2BP01", format!("cannot drop {what} because other objects depend on it: {why}"))
    };
    Ok(vec![format!(
        "SELECT pg_raise('{state}', {}) FROM polyshard_sql_constraint WHERE table_name = {} AND name = {} \
         AND kind = 'p'",
        literal_text(&message),
        literal_text(&file_name(&table.name)),
        literal_text(name)
    )])
}

//! DROP TABLE, VIEW, INDEX and SCHEMA, with what depends on them.

use std::collections::BTreeSet;

use polyshard_sql::ast::{ObjectName, ObjectType};
use polyshard_sql::{Context, ForeignKey, SqlError, Table, TableName};

use super::{beside, enums, has_schema, literal_text, referred, shown_name, trigger, view};
use crate::fail::{fail, unsupported};
use crate::translate::{file_name, name_parts, quoted, quoted_name};

pub(super) fn objects(
    kind: &ObjectType,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    match kind {
        ObjectType::Table | ObjectType::View => {
            let mut gone = Gone::default();
            for name in names {
                gone.extend(relation(kind, if_exists, name, context)?);
            }
            gone.statements(cascade, context)
        }
        ObjectType::Schema => {
            let mut gone = Gone::default();
            let mut out = Vec::new();
            for name in names {
                let (_, name) = name_parts(name)?;
                if !context.schema.schemas.contains(&name) {
                    if has_schema(context.schema, &name) {
                        return Err(unsupported(format!("DROP SCHEMA {name}")));
                    }
                    if if_exists {
                        continue;
                    }
                    return Err(fail("3F000", format!("schema \"{name}\" does not exist")));
                }
                let own = Gone::schema(&name, context);
                let types = enums::of_schema(&name, context)?;
                let is_empty = own.is_empty() && types.is_empty();
                if !(cascade || is_empty) {
                    let what = format!("schema {name}");
                    return Err(depended(
                        &what,
                        own.shown().map(|other| format!("{other} depends on {what}")),
                    ));
                }
                gone.extend(own);
                out.extend(types);
                out.push(format!("DELETE FROM polyshard_sql_schema WHERE name = {}", literal_text(&name)));
            }
            let mut all = gone.statements(true, context)?;
            all.extend(out);
            Ok(all)
        }
        ObjectType::Index => {
            let mut out = Vec::new();
            for name in names {
                let own = index_name(name, context)?;
                for table in context.schema.tables.values() {
                    let indexes = context.schema.indexes.get(&table.name).into_iter().flatten();
                    let mut named = indexes.filter(|index| index.name == own.name && !index.is_constraint);
                    if table.name.schema == own.schema && named.next().is_some() {
                        out.extend(referred::by_unique(table, &own.name, cascade, context)?);
                    }
                }
                let full = file_name(&own);
                let exists = if if_exists { "IF EXISTS " } else { "" };
                out.push(format!("DROP INDEX {exists}{}", quoted(&full)));
                out.push(format!("DELETE FROM polyshard_sql_index WHERE name = {}", literal_text(&full)));
            }
            Ok(out)
        }
        // There can be none.
        ObjectType::Sequence if if_exists => Ok(Vec::new()),
        ObjectType::Type => enums::drop_types(names, if_exists, cascade, context),
        other => Err(unsupported(format!("DROP {other} on SQLite shards"))),
    }
}

/// Where an index is that is to be dropped. What indexes there are is known to the files alone.
fn index_name(name: &ObjectName, context: &Context<'_>) -> Result<TableName, SqlError> {
    let (schema, name) = name_parts(name)?;
    if let Some(schema) = schema {
        return Ok(TableName { schema, name });
    }
    let mut there = context.search_path.iter().filter(|schema| has_schema(context.schema, schema));
    match (there.next(), there.next()) {
        (Some(schema), None) => Ok(TableName { schema: schema.clone(), name }),
        (None, _) => Ok(TableName::public(name)),
        _ => Err(unsupported(format!("DROP INDEX {name} with several schemas in search_path"))
            .hint("write the index with its schema")),
    }
}

/// The relation of one name, if it is there.
fn relation(
    kind: &ObjectType,
    if_exists: bool,
    name: &ObjectName,
    context: &Context<'_>,
) -> Result<Gone, SqlError> {
    let (schema, bare) = name_parts(name)?;
    let (schema, path) = (schema.as_deref(), context.search_path);
    let table = context.schema.table(schema, &bare, path).map(|table| table.name.clone());
    let view = context.schema.view(schema, &bare, path).map(|view| view.name.clone());
    let word = if *kind == ObjectType::Table { "table" } else { "view" };
    match (kind, table, view) {
        (ObjectType::Table, Some(table), _) => Ok(Gone { tables: [table].into(), ..Gone::default() }),
        (ObjectType::View, _, Some(view)) => Ok(Gone { views: [view].into(), ..Gone::default() }),
        (_, None, None) if if_exists => Ok(Gone::default()),
        (_, None, None) => {
            if let Some(schema) = schema.filter(|schema| !has_schema(context.schema, schema)) {
                return Err(fail("3F000", format!("schema \"{schema}\" does not exist")));
            }
            Err(fail("42P01", format!("{word} \"{bare}\" does not exist")))
        }
        _ => Err(fail("42809", format!("\"{bare}\" is not a {word}"))),
    }
}

/// What a statement takes away.
#[derive(Default)]
struct Gone {
    tables: BTreeSet<TableName>,
    views: BTreeSet<TableName>,
}

impl Gone {
    /// All relations of a schema.
    fn schema(name: &str, context: &Context<'_>) -> Gone {
        let within = |known: &&TableName| known.schema == name;
        Gone {
            tables: context.schema.tables.keys().filter(within).cloned().collect(),
            views: context.schema.views.keys().filter(within).cloned().collect(),
        }
    }

    fn extend(&mut self, other: Gone) {
        self.tables.extend(other.tables);
        self.views.extend(other.views);
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.views.is_empty()
    }

    /// As details of errors call them.
    fn shown(&self) -> impl Iterator<Item = String> {
        let tables = self.tables.iter().map(|name| format!("table {}", shown_name(name)));
        tables.chain(self.views.iter().map(|name| format!("view {}", shown_name(name))))
    }

    fn statements(mut self, cascade: bool, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
        let mut details = Vec::new();
        // Views on what goes, views on those, and so on.
        loop {
            let here = |name: &TableName| self.tables.contains(name) || self.views.contains(name);
            let mut more = Vec::new();
            for (name, other) in context.schema.views.iter().filter(|(name, _)| !self.views.contains(*name)) {
                if let Some(under) = view::relations(&other.definition, context).into_iter().find(here) {
                    let word = if self.tables.contains(&under) { "table" } else { "view" };
                    let (own, under) = (shown_name(name), shown_name(&under));
                    details.push(format!("view {own} depends on {word} {under}"));
                    more.push(name.clone());
                }
            }
            if more.is_empty() {
                break;
            }
            self.views.extend(more);
        }
        let mut references: Vec<(&Table, &ForeignKey)> = Vec::new();
        for other in context.schema.tables.values().filter(|other| !self.tables.contains(&other.name)) {
            for key in other.foreign_keys.iter().filter(|key| self.tables.contains(&key.target)) {
                let (own, target) = (shown_name(&other.name), shown_name(&key.target));
                details.push(format!("constraint {} on table {own} depends on table {target}", key.name));
                references.push((other, key));
            }
        }
        if !cascade && !details.is_empty() {
            let what = details[0].rsplit(" depends on ").next().unwrap_or_default().to_owned();
            return Err(depended(&what, details.into_iter()));
        }
        let mut out = Vec::new();
        for (table, key) in references {
            out.extend(trigger::drop_constraint(&table.name, &key.name, true));
        }
        for name in &self.views {
            let name = literal_text(&file_name(name));
            out.push(format!("DELETE FROM polyshard_sql_view WHERE name = {name}"));
        }
        for table in self.referring_first(context) {
            for key in &table.foreign_keys {
                out.extend(trigger::drop_reference(&beside(&table.name, &key.name)));
            }
            out.push(format!("DROP TABLE {}", quoted_name(&table.name)));
            let full = literal_text(&file_name(&table.name));
            for kept in ["polyshard_sql_column", "polyshard_sql_constraint", "polyshard_sql_index"] {
                out.push(format!("DELETE FROM {kept} WHERE table_name = {full}"));
            }
            out.push(format!("DELETE FROM polyshard_sql_table WHERE name = {full}"));
        }
        Ok(out)
    }

    /// The tables with those before others that refer to them: SQLite deletes the rows first, and looks at what they
    /// refer to. Where they refer to each other, as they come.
    fn referring_first<'c>(&self, context: &Context<'c>) -> Vec<&'c Table> {
        let known = |name: &TableName| context.schema.tables.get(name).map(|table| &**table);
        let mut left: Vec<&Table> = self.tables.iter().filter_map(known).collect();
        let refers = |from: &Table, to: &Table| {
            from.name != to.name && from.foreign_keys.iter().any(|key| key.target == to.name)
        };
        let mut ordered = Vec::new();
        while !left.is_empty() {
            let free = left.iter().position(|table| !left.iter().any(|other| refers(other, table)));
            ordered.push(left.remove(free.unwrap_or(0)));
        }
        ordered
    }
}

pub(super) fn depended(what: &str, details: impl Iterator<Item = String>) -> SqlError {
    fail("2BP01", format!("cannot drop {what} because other objects depend on it"))
        .detail(details.collect::<Vec<_>>().join("\n"))
        .hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

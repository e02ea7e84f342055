//! INSERT, UPDATE and DELETE.

use std::sync::Arc;

use polyshard_sql::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, DoUpdate, Expr, FromTable, Ident, Insert,
    ObjectName, OnConflict, OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Statement as Ast,
    TableFactor, TableObject, TableWithJoins, Update, UpdateTableFromKind,
};
use polyshard_sql::{Column, Generated, SqlError, Table, TypeOid};

use super::from::{base_columns, keeps_order};
use super::scope::Aggregates;
use super::select::query_rows_most;
use super::{Ex, How, Ids, Scope, Translator, collated, fold, kept_value, name_parts, quoted, quoted_name};
use crate::fail::{fail, unsupported};
use crate::prepared::OutColumn;
use crate::types;

type Written = (String, Option<Vec<OutColumn>>);

/// RETURNING * is of all tables, and SQLite returns the columns of the one that is written.
fn check_returned(items: Option<&[SelectItem]>, has_others: bool, what: &str) -> Result<(), SqlError> {
    let all = items.iter().flat_map(|items| items.iter()).any(|item| matches!(item, SelectItem::Wildcard(_)));
    if !has_others || !all {
        return Ok(());
    }
    let hint = "name the table: RETURNING t.*; or read the other table's columns first";
    Err(unsupported(format!("RETURNING * in {what} on SQLite shards")).hint(hint))
}

impl Translator<'_> {
    pub(crate) fn insert(&mut self, insert: &Insert) -> Result<Written, SqlError> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(unsupported("INSERT into anything but a table"));
        };
        if insert.or.is_some() || insert.replace_into || insert.overwrite || !insert.assignments.is_empty() {
            return Err(unsupported("this form of INSERT"));
        }
        let table = self.target(name)?;
        let shown = match &insert.table_alias {
            Some(alias) => fold(&alias.alias),
            None => table.name.name.clone(),
        };
        let mut given = Vec::new();
        for column in &insert.columns {
            let (_, column) = name_parts(column)?;
            let place = table.column(&column).ok_or_else(|| no_column(&table, &column))?;
            if given.contains(&place) {
                return Err(fail("42701", format!("column \"{column}\" specified more than once")));
            }
            given.push(place);
        }
        let all_given = insert.columns.is_empty();
        if all_given {
            given = (0..table.columns.len()).collect();
        }
        let source = insert.source.as_deref();
        let mut with = String::new();
        let (columns, rows) = match source {
            None => {
                let row = self.default_row(&table, &[])?;
                (written_places(&table), Rows::Values(vec![row]))
            }
            Some(query) => match query.body.as_ref() {
                SetExpr::Values(values)
                    if query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() =>
                {
                    let rows: Vec<&Vec<Expr>> = values.rows.iter().map(|row| &row.content).collect();
                    self.insert_values(&table, &given, all_given, &rows)?
                }
                _ => self.insert_query(&table, given, all_given, query)?,
            },
        };
        let names: Vec<String> = columns.iter().map(|place| quoted(&table.columns[*place].name)).collect();
        // SQLite reads `t1` as the table within ON CONFLICT and RETURNING.
        let own = self.alias("t");
        let mut conflict = String::new();
        let mut once = None;
        match &insert.on {
            None => {}
            Some(OnInsert::OnConflict(clause)) => {
                let (text, keys) = self.on_conflict(clause, &table, &own, &shown)?;
                conflict = text;
                once = keys;
            }
            Some(_) => return Err(unsupported("ON DUPLICATE KEY")),
        }
        let body = match rows {
            Rows::Values(rows) if rows.len() > 1 && once.is_some() => {
                // PostgreSQL refuses to update one row twice in a statement; SQLite would do it.
                let keys: Vec<usize> = once.unwrap_or_default();
                let names: Vec<String> = (1..=columns.len()).map(|place| format!("\"c{place}\"")).collect();
                let mut by = Vec::new();
                for key in &keys {
                    let place = columns.iter().position(|column| column == key);
                    let place =
                        place.ok_or_else(|| unsupported("ON CONFLICT on a column that is not inserted"))?;
                    by.push(collated(&names[place], table.columns[*key].type_oid));
                }
                with = format!("WITH \"v\"({}) AS (VALUES {}) ", names.join(", "), rows.join(", "));
                let not_null: Vec<String> = by.iter().map(|key| format!("{key} IS NOT NULL")).collect();
                format!(
                    "SELECT {} FROM \"v\" WHERE NOT EXISTS (SELECT 1 FROM \"v\" WHERE {} GROUP BY {} HAVING \
                     pg_once(count(*)))",
                    names.join(", "),
                    not_null.join(" AND "),
                    by.join(", ")
                )
            }
            Rows::Values(rows) => format!("VALUES {}", rows.join(", ")),
            Rows::Query(sql) => {
                if once.is_some() {
                    return Err(unsupported("INSERT … SELECT … ON CONFLICT DO UPDATE"));
                }
                sql
            }
        };
        let (returning, out) = self.returning(insert.returning.as_deref(), &table, &own, &shown)?;
        let target = quoted_name(&table.name);
        let sql = format!(
            "{with}INSERT INTO {target} AS {} ({}) {body}{conflict}{returning}",
            quoted(&own),
            names.join(", ")
        );
        Ok((sql, out))
    }

    fn insert_values(
        &mut self,
        table: &Arc<Table>,
        given: &[usize],
        all_given: bool,
        rows: &[&Vec<Expr>],
    ) -> Result<(Vec<usize>, Rows), SqlError> {
        let mut made = Vec::with_capacity(rows.len());
        for row in rows {
            if row.len() > given.len() {
                return Err(fail("42601", "INSERT has more expressions than target columns"));
            }
            if row.len() < given.len() && !all_given {
                return Err(fail("42601", "INSERT has more target columns than expressions"));
            }
            if row.len() != rows[0].len() {
                return Err(fail("42601", "VALUES lists must all be the same length"));
            }
            let mut values: Vec<(usize, Ex)> = Vec::new();
            self.scopes.push(Scope { aggregates: Aggregates::Forbidden("VALUES"), ..Scope::new() });
            let result: Result<(), SqlError> = (|| {
                for (expr, place) in row.iter().zip(given) {
                    if is_default(expr) {
                        continue;
                    }
                    let column = &table.columns[*place];
                    refuse_generated(column, self.overriding)?;
                    let ex = self.expr(expr)?;
                    values.push((*place, self.assigned(ex, column)?));
                }
                Ok(())
            })();
            self.scopes.pop();
            result?;
            made.push(self.default_row(table, &values)?);
        }
        Ok((written_places(table), Rows::Values(made)))
    }

    fn insert_query(
        &mut self,
        table: &Arc<Table>,
        given: Vec<usize>,
        all_given: bool,
        query: &Query,
    ) -> Result<(Vec<usize>, Rows), SqlError> {
        let targets: Vec<TypeOid> = given.iter().map(|place| table.columns[*place].type_oid).collect();
        let made = self.query(query, Some(&targets))?;
        if made.columns.len() > given.len() {
            return Err(fail("42601", "INSERT has more expressions than target columns"));
        }
        if made.columns.len() < given.len() && !all_given {
            return Err(fail("42601", "INSERT has more target columns than expressions"));
        }
        let mut columns = given[..made.columns.len()].to_vec();
        let mut items = Vec::new();
        for (place, (column, out)) in columns.iter().zip(&made.columns).enumerate() {
            let mut value = Ex::of(format!("\"s\".\"c{}\"", place + 1), out.type_oid);
            value.type_mod = out.type_mod;
            let column = &table.columns[*column];
            refuse_generated(column, self.overriding)?;
            items.push(self.assigned(value, column)?.sql);
        }
        let ids = query_rows_most(query).map_or(Ids::Held, Ids::Rows);
        let per_row = self.held.as_ref().map_or(0, |held| held.sequences());
        let ids_before = std::mem::replace(&mut self.ids, ids);
        for (place, column) in table.columns.iter().enumerate() {
            if !columns.contains(&place) && column.generated != Generated::Stored {
                let value = self.default_value(column)?;
                if value.sql != "NULL" {
                    columns.push(place);
                    items.push(value.sql);
                }
            }
        }
        self.ids = ids_before;
        let rows = format!("{}{}", made.sql, keeps_order(query));
        let items = items.join(", ");
        // Without WHERE, SQLite would read ON CONFLICT as the ON of a join.
        let sql = match &mut self.held {
            Some(held) if held.sequences() > per_row => held.rows(rows, made.columns.len(), &items),
            _ => format!("SELECT {items} FROM ({rows}) AS \"s\" WHERE true"),
        };
        Ok((columns, Rows::Query(sql)))
    }

    /// A row of all columns: the values given, the defaults of the others.
    fn default_row(&mut self, table: &Table, values: &[(usize, Ex)]) -> Result<String, SqlError> {
        let mut parts = Vec::with_capacity(table.columns.len());
        for place in written_places(table) {
            let column = &table.columns[place];
            parts.push(match values.iter().find(|(own, _)| *own == place) {
                Some((_, value)) => value.sql.clone(),
                None => self.default_value(column)?.sql,
            });
        }
        Ok(format!("({})", parts.join(", ")))
    }

    /// What a column gets when nothing is said.
    fn default_value(&mut self, column: &Column) -> Result<Ex, SqlError> {
        let Some(default) = &column.default else {
            return Ok(Ex::of("NULL", column.type_oid));
        };
        let text = format!("SELECT {default}");
        let statements = polyshard_sql::statements(&text)?;
        let Some(Ast::Query(query)) = statements.first().and_then(|one| one.ast()) else {
            return Err(unsupported(format!("the default of column {}", column.name)));
        };
        let expr = match query.body.as_ref() {
            SetExpr::Select(select) => match &select.projection[..] {
                [SelectItem::UnnamedExpr(expr)] => expr.clone(),
                _ => return Err(unsupported(format!("the default of column {}", column.name))),
            },
            _ => return Err(unsupported(format!("the default of column {}", column.name))),
        };
        self.scopes.push(Scope { aggregates: Aggregates::Forbidden("DEFAULT expressions"), ..Scope::new() });
        let value = self.expr(&expr);
        self.scopes.pop();
        self.assigned(value?, column)
    }

    /// A value as it goes into a column.
    fn assigned(&mut self, value: Ex, column: &Column) -> Result<Ex, SqlError> {
        let found = value.type_oid;
        let made = self.coerce(value, column.type_oid, column.type_mod, How::Assignment);
        let made = made.map(|ex| Ex { sql: kept_value(ex.sql.clone(), column.type_oid), ..ex });
        made.map_err(|error| {
            if error.state.0 == "42804" {
                let message = format!(
                    "column \"{}\" is of type {} but expression is of type {}",
                    column.name,
                    types::display(column.type_oid),
                    types::display(found)
                );
                return fail("42804", message).hint("You will need to rewrite or cast the expression.");
            }
            error
        })
    }

    fn on_conflict(
        &mut self,
        clause: &OnConflict,
        table: &Arc<Table>,
        own: &str,
        shown: &str,
    ) -> Result<(String, Option<Vec<usize>>), SqlError> {
        let keys: Option<Vec<usize>> = match &clause.conflict_target {
            None => None,
            Some(ConflictTarget::Columns(columns)) => {
                let mut keys = Vec::new();
                for column in columns {
                    let name = fold(column);
                    keys.push(table.column(&name).ok_or_else(|| no_column(table, &name))?);
                }
                let same = |unique: &[usize]| {
                    unique.len() == keys.len() && unique.iter().all(|place| keys.contains(place))
                };
                if !same(&table.primary_key) && !table.unique.iter().any(|unique| same(unique)) {
                    return Err(fail(
                        "42P10",
                        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                    ));
                }
                Some(keys)
            }
            Some(ConflictTarget::OnConstraint(name)) => {
                let (_, name) = name_parts(name)?;
                if name != format!("{}_pkey", table.name.name) || table.primary_key.is_empty() {
                    return Err(unsupported(format!("ON CONFLICT ON CONSTRAINT {name}"))
                        .hint("name the columns of the constraint instead"));
                }
                Some(table.primary_key.clone())
            }
        };
        let target = match &keys {
            None => String::new(),
            Some(keys) => {
                let names: Vec<String> =
                    keys.iter().map(|place| quoted(&table.columns[*place].name)).collect();
                format!(" ({})", names.join(", "))
            }
        };
        match &clause.action {
            OnConflictAction::DoNothing => Ok((format!(" ON CONFLICT{target} DO NOTHING"), None)),
            OnConflictAction::DoUpdate(DoUpdate { assignments, selection }) => {
                let Some(keys) = keys else {
                    return Err(fail(
                        "42601",
                        "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                    ));
                };
                let mut scope = Scope { aggregates: Aggregates::Forbidden("UPDATE"), ..Scope::new() };
                let target_columns = base_columns(String::new(), own, shown.to_owned(), table, None)?;
                let excluded = base_columns(String::new(), "excluded", "excluded".to_owned(), table, None)?;
                scope.columns.extend(target_columns.columns);
                // The new row's columns are found by `excluded.` alone.
                scope.columns.extend(excluded.columns.into_iter().map(|mut column| {
                    column.bare = false;
                    column
                }));
                scope.relations.extend(target_columns.relations);
                scope.relations.extend(excluded.relations);
                self.scopes.push(scope);
                let made = self.assignments(assignments, table).and_then(|set| {
                    let filter =
                        selection.as_ref().map(|filter| self.condition(filter, "WHERE")).transpose()?;
                    Ok((set, filter))
                });
                self.scopes.pop();
                let (set, filter) = made?;
                let filter = filter.map_or_else(String::new, |filter| format!(" WHERE {}", filter.sql));
                Ok((format!(" ON CONFLICT{target} DO UPDATE SET {set}{filter}"), Some(keys)))
            }
        }
    }

    fn assignments(&mut self, assignments: &[Assignment], table: &Table) -> Result<String, SqlError> {
        let mut parts = Vec::new();
        let mut seen = Vec::new();
        let mut set =
            |this: &mut Self, name: &ObjectName, value: Option<&Expr>| -> Result<Option<String>, SqlError> {
                let (_, name) = name_parts(name)?;
                let place = table.column(&name).ok_or_else(|| no_column(table, &name))?;
                if seen.contains(&place) {
                    return Err(fail("42601", format!("multiple assignments to same column \"{name}\"")));
                }
                seen.push(place);
                let column = &table.columns[place];
                let value = match value {
                    Some(expr) if !is_default(expr) => {
                        if matches!(column.generated, Generated::Always | Generated::Stored) {
                            return Err(only_default(column, "column", "can only be updated to DEFAULT"));
                        }
                        let ex = this.expr(expr)?;
                        this.assigned(ex, column)?
                    }
                    // It is what it is computed to be.
                    _ if column.generated == Generated::Stored => return Ok(None),
                    _ => {
                        let ids_before = std::mem::replace(&mut this.ids, Ids::None);
                        let value = this.default_value(column);
                        this.ids = ids_before;
                        value?
                    }
                };
                Ok(Some(format!("{} = {}", quoted(&name), value.sql)))
            };
        for assignment in assignments {
            match (&assignment.target, super::compare::unnested(&assignment.value)) {
                (AssignmentTarget::ColumnName(name), _) => {
                    parts.extend(set(self, name, Some(&assignment.value))?)
                }
                (AssignmentTarget::Tuple(names), Expr::Tuple(values)) if names.len() == values.len() => {
                    for (name, value) in names.iter().zip(values) {
                        parts.extend(set(self, name, Some(value))?);
                    }
                }
                (AssignmentTarget::Tuple(names), value) if names.len() == 1 => {
                    parts.extend(set(self, &names[0], Some(value))?);
                }
                _ => return Err(unsupported("assigning several columns from a sub-query")),
            }
        }
        if parts.is_empty() {
            // The row is written all the same.
            let place = written_places(table).first().copied();
            let place = place.ok_or_else(|| unsupported("a table whose columns are all generated"))?;
            let name = quoted(&table.columns[place].name);
            parts.push(format!("{name} = {name}"));
        }
        Ok(parts.join(", "))
    }

    pub(crate) fn update(&mut self, update: &Update) -> Result<Written, SqlError> {
        if update.or.is_some() || update.limit.is_some() || !update.order_by.is_empty() {
            return Err(unsupported("this form of UPDATE"));
        }
        let (table, shown) = self.written(&update.table)?;
        let own = self.alias("t");
        self.ids = Ids::None;
        self.scopes.push(Scope { aggregates: Aggregates::Forbidden("UPDATE"), ..Scope::new() });
        let made = (|| {
            let target = base_columns(String::new(), &own, shown.clone(), &table, None)?;
            self.scope().columns.extend(target.columns);
            self.scope().relations.extend(target.relations);
            let mut uses = Ex::of("", TypeOid::UNKNOWN);
            let from = match &update.from {
                None => String::new(),
                Some(UpdateTableFromKind::AfterSet(tables) | UpdateTableFromKind::BeforeSet(tables)) => {
                    self.from(tables, &mut uses)?
                }
            };
            self.scope().aggregates = Aggregates::Forbidden("UPDATE");
            let set = self.assignments(&update.assignments, &table)?;
            let filter =
                update.selection.as_ref().map(|filter| self.condition(filter, "WHERE")).transpose()?;
            let filter = filter.map_or_else(String::new, |filter| format!(" WHERE {}", filter.sql));
            Ok(format!("UPDATE {} AS {} SET {set}{from}{filter}", quoted_name(&table.name), quoted(&own)))
        })();
        self.scopes.pop();
        check_returned(update.returning.as_deref(), update.from.is_some(), "UPDATE … FROM")?;
        let (returning, out) = self.returning(update.returning.as_deref(), &table, &own, &shown)?;
        Ok((format!("{}{returning}", made?), out))
    }

    pub(crate) fn delete(&mut self, delete: &Delete) -> Result<Written, SqlError> {
        if delete.limit.is_some() || !delete.order_by.is_empty() || !delete.tables.is_empty() {
            return Err(unsupported("this form of DELETE"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [target] = &from[..] else {
            return Err(unsupported("DELETE from several tables"));
        };
        let (table, shown) = self.written(target)?;
        let own = self.alias("t");
        self.ids = Ids::None;
        self.scopes.push(Scope { aggregates: Aggregates::Forbidden("WHERE"), ..Scope::new() });
        let made = (|| {
            let target = base_columns(String::new(), &own, shown.clone(), &table, None)?;
            self.scope().columns.extend(target.columns);
            self.scope().relations.extend(target.relations);
            let name = quoted_name(&table.name);
            let mut uses = Ex::of("", TypeOid::UNKNOWN);
            match &delete.using {
                None => {
                    let filter = delete
                        .selection
                        .as_ref()
                        .map(|filter| self.condition(filter, "WHERE"))
                        .transpose()?;
                    let filter = filter.map_or_else(String::new, |filter| format!(" WHERE {}", filter.sql));
                    Ok(format!("DELETE FROM {name} AS {}{filter}", quoted(&own)))
                }
                Some(using) => {
                    // SQLite has no USING: the rows are found first.
                    let others = self.from(using, &mut uses)?;
                    self.scope().aggregates = Aggregates::Forbidden("WHERE");
                    let filter = delete
                        .selection
                        .as_ref()
                        .map(|filter| self.condition(filter, "WHERE"))
                        .transpose()?;
                    let filter = filter.map_or_else(String::new, |filter| format!(" WHERE {}", filter.sql));
                    let others = others.trim_start_matches(" FROM ").to_owned();
                    let row = row_number(&table)?;
                    Ok(format!(
                        "DELETE FROM {name} AS \"x\" WHERE \"x\".{row} IN (SELECT {0}.{row} FROM {name} AS {0}, \
                         {others}{filter})",
                        quoted(&own)
                    ))
                }
            }
        })();
        self.scopes.pop();
        check_returned(delete.returning.as_deref(), delete.using.is_some(), "DELETE … USING")?;
        let own = if delete.using.is_some() { "x".to_owned() } else { own };
        let (returning, out) = self.returning(delete.returning.as_deref(), &table, &own, &shown)?;
        Ok((format!("{}{returning}", made?), out))
    }

    fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &Arc<Table>,
        own: &str,
        shown: &str,
    ) -> Result<(String, Option<Vec<OutColumn>>), SqlError> {
        let Some(items) = items else {
            return Ok((String::new(), None));
        };
        let mut scope = Scope { aggregates: Aggregates::Forbidden("RETURNING"), ..Scope::new() };
        let target = base_columns(String::new(), own, shown.to_owned(), table, None)?;
        scope.columns = target.columns;
        scope.relations = target.relations;
        self.scopes.push(scope);
        let made = self.items(items);
        self.scopes.pop();
        let (items, names) = made?;
        let mut columns = Vec::new();
        let mut parts = Vec::new();
        for (item, name) in items.into_iter().zip(names) {
            let item = self.known(item)?;
            let sql = match (item.type_oid, item.type_mod) {
                (TypeOid::BPCHAR, size) if size > 4 => format!("pg_pad({}, {})", item.sql, size - 4),
                _ => item.sql.clone(),
            };
            // SQLite knows the table in RETURNING by its columns alone.
            let sql = sql.replace(&format!("{}.", quoted(own)), "");
            parts.push(format!("{sql} AS \"c{}\"", parts.len() + 1));
            columns.push(OutColumn { name, type_oid: item.type_oid, type_mod: item.type_mod });
        }
        Ok((format!(" RETURNING {}", parts.join(", ")), Some(columns)))
    }

    /// The table of an UPDATE or DELETE, and what it is called there.
    fn written(&self, target: &TableWithJoins) -> Result<(Arc<Table>, String), SqlError> {
        match target {
            TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins }
                if joins.is_empty() =>
            {
                let table = self.target(name)?;
                let shown = alias.as_ref().map_or_else(|| table.name.name.clone(), |alias| fold(&alias.name));
                Ok((table, shown))
            }
            _ => Err(unsupported("a write to anything but a table")),
        }
    }

    fn target(&self, name: &ObjectName) -> Result<Arc<Table>, SqlError> {
        let (schema, bare) = name_parts(name)?;
        let context = self.context;
        if let Some(table) = context.schema.table(schema.as_deref(), &bare, context.search_path) {
            return Ok(table.clone());
        }
        if context.schema.view(schema.as_deref(), &bare, context.search_path).is_some() {
            return Err(unsupported(format!("a write to the view {bare}")));
        }
        Err(super::from::no_relation(schema.as_deref(), &bare))
    }
}

/// What is inserted.
enum Rows {
    Values(Vec<String>),
    Query(String),
}

fn is_default(expr: &Expr) -> bool {
    let is_word = |ident: &Ident| ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default");
    matches!(expr, Expr::Identifier(ident) if is_word(ident))
}

fn refuse_generated(column: &Column, overriding: bool) -> Result<(), SqlError> {
    match column.generated {
        Generated::Always if overriding => Ok(()),
        Generated::Always | Generated::Stored => {
            Err(only_default(column, "cannot insert a non-DEFAULT value into column", ""))
        }
        _ => Ok(()),
    }
}

/// A value for a column that makes its own.
fn only_default(column: &Column, before: &str, after: &str) -> SqlError {
    let message = format!("{before} \"{}\" {after}", column.name);
    let error = fail("428C9", message.trim_end().to_owned());
    error.detail(match column.generated {
        Generated::Stored => format!("Column \"{}\" is a generated column.", column.name),
        _ => format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name),
    })
}

/// The columns that a row is written to: generated ones make themselves.
fn written_places(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).filter(|place| table.columns[*place].generated != Generated::Stored).collect()
}

fn no_column(table: &Table, name: &str) -> SqlError {
    fail("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.name.name))
}

/// The name by which SQLite numbers the rows of a table.
fn row_number(table: &Table) -> Result<&'static str, SqlError> {
    ["rowid", "_rowid_", "oid"]
        .into_iter()
        .find(|name| !table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name)))
        .ok_or_else(|| unsupported("a table with the columns rowid, _rowid_ and oid"))
}

//! INSERT: which value each row has for the key, and where the rows stand in the text.

use crate::ast::{Expr, Insert, ObjectName, OnConflictAction, OnInsert, Query, SetExpr, TableObject};
use std::sync::Arc;

use super::analysis::InsertRows;
use super::builder::{Builder, Use};
use super::cte::Env;
use super::formula::{Formula, KeyColumn, Operand};
use super::graph::NodeId;
use super::literal::Literal;
use super::scope::{Columns, Item, Output, Outputs, Scope, name_of, relation_of};
use super::unnest::{ArrayRows, Keys, array_of, keys_of};
use super::value::Family;
use super::write::is_column;
use crate::error::{SqlError, SqlState};
use crate::lexer::{Lexeme, Lexer};
use crate::schema::{Placement, Table, TypeOid};

impl Builder<'_> {
    pub(super) fn insert_into(&mut self, insert: &Insert, env: &Env<'_>) -> Result<Outputs, SqlError> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported("only tables can be written to", "Name a table."));
        };
        let table = self.target(name)?;
        let mut scope = Scope::new(None);
        let Some(table) = table else {
            if let Some(source) = &insert.source {
                self.query(source, None, env)?;
            }
            scope.items.push(Item { name: None, schema: None, columns: Columns::Unknown });
            self.walk(&insert.on, &scope, env)?;
            self.walk(&insert.returning, &scope, env)?;
            return Ok(Outputs::unknown());
        };
        let instance = match &table.placement {
            Placement::Sharded { .. } => self.insert_sharded(insert, &table, env)?,
            Placement::Reference { .. } | Placement::Local(_) => {
                if let Some(source) = &insert.source {
                    self.query(source, None, env)?;
                }
                self.instance(&table, Use::Change { sets_key: None })?
            }
        };
        let alias = insert.table_alias.as_ref().map(|alias| name_of(&alias.alias));
        let schema = if alias.is_some() { None } else { Some(table.name.schema.clone()) };
        let columns = || Columns::Table { instance, renamed: Vec::new() };
        scope.items.push(Item { name: alias.or(Some(table.name.name.clone())), schema, columns: columns() });
        self.walk(&insert.returning, &scope, env)?;
        let returning = insert.returning.as_deref().unwrap_or_default();
        let outputs = self.project(returning, &scope);
        if let Some(OnInsert::OnConflict(conflict)) = &insert.on
            && let OnConflictAction::DoUpdate(update) = &conflict.action
        {
            // The row in the way has the same key: every unique index contains it.
            scope.items.push(Item { name: Some("excluded".to_owned()), schema: None, columns: columns() });
            self.walk(&update.assignments, &scope, env)?;
            self.walk(&update.selection, &scope, env)?;
            self.check_conflict(&table, &update.assignments)?;
        }
        Ok(outputs)
    }

    fn insert_sharded(
        &mut self,
        insert: &Insert,
        table: &Arc<Table>,
        env: &Env<'_>,
    ) -> Result<usize, SqlError> {
        let Some(source) = &insert.source else { return Err(missing_key(table)) };
        let place = key_place(table, &insert.columns).ok_or_else(|| missing_key(table))?;
        if let SetExpr::Values(values) = source.body.as_ref()
            && is_plain(source)
        {
            self.with(source.with.as_ref(), env, |builder, env| {
                builder.walk(values, &Scope::new(None), env)
            })?;
            let mut keys = Vec::with_capacity(values.rows.len());
            for row in &values.rows {
                let value = row.content.get(place).ok_or_else(|| missing_key(table))?;
                keys.push(key_operand(table, value)?);
            }
            let instance = self.instance(table, Use::Add { colocated: false })?;
            if let Some(node) = self.key_node(instance) {
                self.graph.constrain(node, Formula::one_of(keys.clone()));
            }
            self.insert = insert_rows(table, keys);
            return Ok(instance);
        }
        if let Some(rows) = array_rows(table, source, place)? {
            self.query(source, None, env)?;
            let instance = self.instance(table, Use::Add { colocated: false })?;
            if let Some(node) = self.key_node(instance) {
                self.graph.constrain(node, rows.formula());
            }
            self.insert = Some(rows);
            return Ok(instance);
        }
        let outputs = self.query(source, None, env)?;
        self.one_shard_only.get_or_insert_with(|| "INSERT … SELECT".to_owned());
        let output = outputs.columns.get(place).filter(|_| outputs.complete).cloned();
        self.add(table, output.unwrap_or_default())
    }

    /// A row that MERGE adds.
    pub(super) fn add_row(
        &mut self,
        table: &Arc<Table>,
        columns: &[ObjectName],
        row: &[Expr],
        scope: &Scope<'_>,
    ) -> Result<usize, SqlError> {
        let place = key_place(table, columns).ok_or_else(|| missing_key(table))?;
        let value = row.get(place).ok_or_else(|| missing_key(table))?;
        let node = self.column(value, scope);
        let literals = if node.is_none() { Literal::read(value).into_iter().collect() } else { Vec::new() };
        self.add(table, Output { name: None, node, literals })
    }

    /// Rows are added whose key is that of the output.
    fn add(&mut self, table: &Arc<Table>, output: Output) -> Result<usize, SqlError> {
        let colocated = output.node.is_some_and(|node| self.is_key_of_same_map(node, table));
        let instance = self.instance(table, Use::Add { colocated })?;
        let Some(key) = self.key_node(instance) else { return Err(missing_key(table)) };
        let family = self.graph.family(key);
        // A length or precision of the column would change what comes from another one.
        let definition = table.columns.iter().find(|column| column.type_mod >= 0 && is_key(table, column));
        let free = definition.is_none();
        if let Some(node) = output.node.filter(|_| free || colocated) {
            self.graph.connect(node, key);
        }
        for literal in &output.literals {
            // A value with no type of its own takes the column's.
            let operand = literal.operand(family).filter(|operand| fits(table, operand));
            self.graph.constrain(key, operand.map_or(Formula::All, Formula::Equal));
        }
        Ok(instance)
    }

    fn is_key_of_same_map(&mut self, node: NodeId, table: &Table) -> bool {
        let Placement::Sharded { map, column, .. } = &table.placement else { return false };
        let modifier = table.columns[*column].type_mod;
        (0..self.instances.len()).any(|instance| {
            let source = &self.instances[instance].table;
            let same = match &source.placement {
                Placement::Sharded { map: other, column, .. } => {
                    other == map && source.columns[*column].type_mod == modifier
                }
                Placement::Reference { .. } | Placement::Local(_) => false,
            };
            same && self.key_node(instance) == Some(node)
        })
    }

    /// ON CONFLICT DO UPDATE leaves the key alone, or sets it to what it is.
    fn check_conflict(
        &mut self,
        table: &Table,
        assignments: &[crate::ast::Assignment],
    ) -> Result<(), SqlError> {
        let Placement::Sharded { column, .. } = table.placement else { return Ok(()) };
        let key = &table.columns[column].name;
        for assignment in assignments {
            use crate::ast::AssignmentTarget::{ColumnName, Tuple};
            let touched = match &assignment.target {
                ColumnName(name) => is_column(name, key),
                Tuple(names) => names.iter().any(|name| is_column(name, key)),
            };
            let same = match &assignment.value {
                Expr::CompoundIdentifier(path) => path.last().is_some_and(|last| name_of(last) == *key),
                Expr::Identifier(ident) => name_of(ident) == *key,
                _ => false,
            };
            if touched && !same {
                return Err(super::write::changes_key(table));
            }
        }
        Ok(())
    }
}

/// VALUES with nothing around it: no ORDER BY, no LIMIT.
fn is_plain(query: &Query) -> bool {
    query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none()
}

fn is_key(table: &Table, column: &crate::schema::Column) -> bool {
    match table.placement {
        Placement::Sharded { column: key, .. } => std::ptr::eq(&table.columns[key], column),
        Placement::Reference { .. } | Placement::Local(_) => false,
    }
}

/// Where the key stands among a row's values.
fn key_place(table: &Table, columns: &[ObjectName]) -> Option<usize> {
    let Placement::Sharded { column, .. } = table.placement else { return None };
    if columns.is_empty() {
        return Some(column);
    }
    let key = &table.columns[column].name;
    columns
        .iter()
        .position(|name| relation_of(name).is_some_and(|(schema, name)| schema.is_none() && name == *key))
}

fn key_operand(table: &Table, value: &Expr) -> Result<Operand, SqlError> {
    let Placement::Sharded { column, .. } = table.placement else { return Err(missing_key(table)) };
    let definition = &table.columns[column];
    if let Expr::Identifier(ident) = value
        && ident.quote_style.is_none()
        && ident.value.eq_ignore_ascii_case("default")
    {
        return Err(missing_key(table));
    }
    let literal = Literal::read(value);
    if literal.as_ref().is_some_and(Literal::is_null) {
        return Err(super::decide::null_key(&table.name, &definition.name));
    }
    let family = Family::of_column(definition);
    literal
        .zip(family)
        .and_then(|(literal, family)| literal.operand(family))
        .filter(|operand| definition.type_oid == TypeOid::VARCHAR || fits(table, operand))
        .ok_or_else(|| super::decide::unknown_key(&table.name, &definition.name))
}

/// Whether a value is stored as it is: lengths and precisions would change it on the way in.
fn fits(table: &Table, operand: &Operand) -> bool {
    let Placement::Sharded { column, .. } = table.placement else { return false };
    let definition = &table.columns[column];
    if definition.type_mod < 0 {
        return true;
    }
    match (definition.type_oid, operand) {
        // The modifier of varchar(n) is n + 4.
        (TypeOid::VARCHAR, Operand::Constant(super::value::Scalar::Text(text))) => {
            usize::try_from(definition.type_mod - 4).is_ok_and(|length| text.chars().count() <= length)
        }
        _ => false,
    }
}

fn insert_rows(table: &Table, keys: Vec<Operand>) -> Option<InsertRows> {
    let Placement::Sharded { map, column, key_type } = &table.placement else { return None };
    let definition = &table.columns[*column];
    Some(InsertRows {
        table: table.name.clone(),
        map: map.clone(),
        column_name: definition.name.clone(),
        column: KeyColumn { key_type: key_type.clone(), family: Family::of_column(definition)? },
        length: match definition.type_oid {
            TypeOid::VARCHAR => usize::try_from(definition.type_mod - 4).ok(),
            _ => None,
        },
        keys,
        arrays: None,
        others: Vec::new(),
        text: Arc::from(""),
        spans: None,
    })
}

/// Rows that come as arrays, if their keys can be told: where a key is NULL, or there are fewer keys than rows, the
/// column itself must refuse the row.
fn array_rows(table: &Table, source: &Query, place: usize) -> Result<Option<InsertRows>, SqlError> {
    let Placement::Sharded { column, .. } = table.placement else { return Ok(None) };
    let definition = &table.columns[column];
    let free = definition.type_mod < 0 || definition.type_oid == TypeOid::VARCHAR;
    let (Some((array, columns)), Some(family), true, true) =
        (array_of(source, place), Family::of_column(definition), definition.not_null, free)
    else {
        return Ok(None);
    };
    let (keys, parameter) = match keys_of(array, family) {
        None => return Ok(None),
        Some(Keys::Parameter(parameter)) => (Vec::new(), Some(parameter)),
        Some(Keys::Known(keys)) => {
            let known: Option<Vec<Operand>> = keys.into_iter().collect();
            (known.ok_or_else(|| super::decide::null_key(&table.name, &definition.name))?, None)
        }
    };
    let rows = insert_rows(table, keys);
    Ok(rows.map(|rows| InsertRows { arrays: Some(ArrayRows { parameter, columns, cut: None }), ..rows }))
}

/// Where each row of VALUES stands in the text, its parentheses included.
pub(super) fn spans(text: &str, rows: usize) -> Option<Vec<(usize, usize)>> {
    let tokens = Lexer::tokens(text).ok()?;
    let mut found = Vec::with_capacity(rows);
    let (mut depth, mut start, mut seen) = (0_usize, 0, false);
    for token in &tokens {
        match token.lexeme {
            Lexeme::Mark(b'(') => {
                if seen && depth == 0 {
                    start = token.start;
                }
                depth += 1;
            }
            Lexeme::Mark(b')') => {
                depth = depth.checked_sub(1)?;
                if seen && depth == 0 {
                    found.push((start, token.end));
                    if found.len() == rows {
                        return Some(found);
                    }
                }
            }
            Lexeme::Word if depth == 0 && !seen => {
                seen = text[token.start..token.end].eq_ignore_ascii_case("values");
            }
            Lexeme::Mark(b',') => {}
            _ if seen && depth == 0 => return None,
            _ => {}
        }
    }
    None
}

pub(super) fn missing_key(table: &Table) -> SqlError {
    let column = match table.placement {
        Placement::Sharded { column, .. } => table.columns[column].name.as_str(),
        Placement::Reference { .. } | Placement::Local(_) => "",
    };
    SqlError::new(
        SqlState::NOT_NULL_VIOLATION,
        format!("a row for table {} has no value for its key, column \"{column}\"", table.name),
    )
    .detail("The key says which shard the row is on; a default cannot fill it in later.")
    .hint(format!("Name \"{column}\" among the columns, and give it a literal or a parameter."))
}

//! UPDATE, DELETE and MERGE: the table that is written, and the rows that can be meant.

use crate::ast::{
    self, Assignment, AssignmentTarget, Delete, Expr, FromTable, Merge, MergeAction, MergeClauseKind,
    MergeInsertKind, MergeUpdateKind, ObjectName, Statement, TableFactor, TableWithJoins, Update,
    UpdateTableFromKind,
};
use std::sync::Arc;

use super::builder::{Builder, Use};
use super::cte::Env;
use super::from::{alias_of, check_not_own};
use super::literal::Literal;
use super::scope::{Columns, Item, Outputs, Scope, relation_of};
use crate::error::{SqlError, SqlState};
use crate::schema::{Placement, Table};

impl Builder<'_> {
    /// A statement that writes, by itself or in a WITH; what RETURNING gives.
    pub(super) fn write(&mut self, statement: &Statement, env: &Env<'_>) -> Result<Outputs, SqlError> {
        match statement {
            Statement::Insert(insert) => self.insert_into(insert, env),
            Statement::Update(update) => self.update(update, env),
            Statement::Delete(delete) => self.delete(delete, env),
            Statement::Merge(merge) => self.merge_into(merge, env),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "a writing statement was expected")),
        }
    }

    /// The table that is written to: it must be known, and a table.
    pub(super) fn target(&mut self, name: &ObjectName) -> Result<Option<Arc<Table>>, SqlError> {
        let Some((schema, name)) = relation_of(name) else { return Ok(None) };
        let path = self.context.search_path;
        if self.context.schema.view(schema.as_deref(), &name, path).is_some() {
            return Err(SqlError::unsupported(
                format!("writing through view {name} is not supported"),
                "Write to the view's table itself.",
            ));
        }
        match self.context.schema.table(schema.as_deref(), &name, path) {
            Some(table) => Ok(Some(table.clone())),
            None => {
                check_not_own(schema.as_deref(), &name)?;
                let system = schema.as_deref().map_or(name.starts_with("pg_"), |s| s == "pg_catalog");
                if system {
                    self.system.push(name);
                    self.writes_system = true;
                } else {
                    self.unknown.push(name);
                }
                Ok(None)
            }
        }
    }

    /// Puts the written table into the scope; none if it is not known.
    fn target_item(
        &mut self,
        factor: &TableFactor,
        use_: Use,
        scope: &mut Scope<'_>,
    ) -> Result<Option<usize>, SqlError> {
        let TableFactor::Table { name, alias, .. } = factor else {
            return Err(SqlError::unsupported("only tables can be written to", "Name a table."));
        };
        let table = self.target(name)?;
        let (alias, columns) = alias_of(alias.as_ref());
        let own = relation_of(name).map(|(_, name)| name);
        let Some(table) = table else {
            self.step();
            scope.items.push(Item { name: alias.or(own), schema: None, columns: Columns::Unknown });
            return Ok(None);
        };
        let schema = if alias.is_some() { None } else { Some(table.name.schema.clone()) };
        let instance = self.instance(&table, use_)?;
        let columns = Columns::Table { instance, renamed: columns };
        scope.items.push(Item { name: alias.or(own), schema, columns });
        Ok(Some(instance))
    }

    fn update(&mut self, update: &Update, env: &Env<'_>) -> Result<Outputs, SqlError> {
        let start = self.now();
        let mut scope = Scope::new(None);
        let target = self.target_item(&update.table.relation, Use::Change { sets_key: None }, &mut scope)?;
        if !update.table.joins.is_empty() || matches!(update.from, Some(UpdateTableFromKind::BeforeSet(_))) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "syntax error in UPDATE: use UPDATE … SET … FROM",
            ));
        }
        if let Some(UpdateTableFromKind::AfterSet(from)) = &update.from {
            self.using(from, &mut scope, env)?;
        }
        let about = start..self.now();
        if let Some(condition) = &update.selection {
            self.condition(condition, &scope, env, about)?;
        }
        self.walk(&update.assignments, &scope, env)?;
        self.walk(&update.returning, &scope, env)?;
        if let Some(instance) = target {
            self.check_assignments(instance, &update.assignments, &scope)?;
        }
        let returning = update.returning.as_deref().unwrap_or_default();
        Ok(self.project(returning, &scope))
    }

    fn delete(&mut self, delete: &Delete, env: &Env<'_>) -> Result<Outputs, SqlError> {
        let start = self.now();
        let mut scope = Scope::new(None);
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [target] = from.as_slice() else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "DELETE names one table"));
        };
        if !target.joins.is_empty() || !delete.tables.is_empty() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "syntax error in DELETE: use DELETE FROM … USING …",
            ));
        }
        self.target_item(&target.relation, Use::Change { sets_key: None }, &mut scope)?;
        self.using(delete.using.as_deref().unwrap_or_default(), &mut scope, env)?;
        let about = start..self.now();
        if let Some(condition) = &delete.selection {
            self.condition(condition, &scope, env, about)?;
        }
        self.walk(&delete.returning, &scope, env)?;
        let returning = delete.returning.as_deref().unwrap_or_default();
        Ok(self.project(returning, &scope))
    }

    fn using(
        &mut self,
        from: &[TableWithJoins],
        scope: &mut Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        from.iter().try_for_each(|tables| self.tables(tables, scope, env))
    }

    /// MERGE is a join of which the source's rows are kept, unless nothing is done with those that find no match.
    fn merge_into(&mut self, merge: &Merge, env: &Env<'_>) -> Result<Outputs, SqlError> {
        self.one_shard_only.get_or_insert_with(|| "MERGE".to_owned());
        let start = self.now();
        let mut scope = Scope::new(None);
        let target = self.target_item(&merge.table, Use::Change { sets_key: None }, &mut scope)?;
        let middle = self.now();
        let source = TableWithJoins { relation: merge.source.clone(), joins: Vec::new() };
        self.tables(&source, &mut scope, env)?;
        let end = self.now();
        let keeps_source = merge.clauses.iter().any(|clause| clause.clause_kind != MergeClauseKind::Matched);
        let about = if keeps_source { start..middle } else { start..end };
        self.condition(&merge.on, &scope, env, about)?;
        self.walk(&merge.clauses, &scope, env)?;
        let Some(instance) = target else { return Ok(Outputs::unknown()) };
        for clause in &merge.clauses {
            match &clause.action {
                MergeAction::Update(update) => match &update.kind {
                    MergeUpdateKind::Set(assignments) => {
                        self.check_assignments(instance, assignments, &scope)?;
                    }
                    MergeUpdateKind::Wildcard => return Err(self.key_is_fixed(instance)),
                },
                MergeAction::Insert(insert) => {
                    let table = self.instances[instance].table.clone();
                    if !matches!(table.placement, Placement::Sharded { .. }) {
                        continue;
                    }
                    let MergeInsertKind::Values(values) = &insert.kind else {
                        return Err(super::insert::missing_key(&table));
                    };
                    let row = values.rows.first().map_or(&[][..], |row| row.content.as_slice());
                    self.add_row(&table, &insert.columns, row, &scope)?;
                }
                MergeAction::Delete { .. } | MergeAction::DoNothing { .. } => {}
            }
        }
        Ok(Outputs::unknown())
    }

    /// The key of a row stays what it is: set to itself, or to the value that the condition names.
    pub(super) fn check_assignments(
        &mut self,
        instance: usize,
        assignments: &[Assignment],
        scope: &Scope<'_>,
    ) -> Result<(), SqlError> {
        let table = self.instances[instance].table.clone();
        let Placement::Sharded { column, .. } = table.placement else { return Ok(()) };
        let key = &table.columns[column].name;
        for assignment in assignments {
            let value = match &assignment.target {
                AssignmentTarget::ColumnName(name) if is_column(name, key) => Some(&assignment.value),
                AssignmentTarget::Tuple(names) => match names.iter().position(|name| is_column(name, key)) {
                    None => continue,
                    Some(place) => match &assignment.value {
                        Expr::Tuple(values) => values.get(place),
                        _ => None,
                    },
                },
                AssignmentTarget::ColumnName(_) => continue,
            };
            let value = value.ok_or_else(|| self.key_is_fixed(instance))?;
            self.check_key_value(instance, value, scope)?;
        }
        Ok(())
    }

    fn check_key_value(&mut self, instance: usize, value: &Expr, scope: &Scope<'_>) -> Result<(), SqlError> {
        let key = self.key_node(instance).ok_or_else(|| self.key_is_fixed(instance))?;
        if self.column(value, scope) == Some(key) {
            return Ok(());
        }
        let operand = Literal::read(value).and_then(|literal| literal.operand(self.graph.family(key)));
        let operand = operand.ok_or_else(|| self.key_is_fixed(instance))?;
        match &mut self.instances[instance].use_ {
            Use::Change { sets_key } => {
                *sets_key = Some(operand);
                Ok(())
            }
            Use::Read | Use::Add { .. } => Err(self.key_is_fixed(instance)),
        }
    }

    fn key_is_fixed(&self, instance: usize) -> SqlError {
        changes_key(&self.instances[instance].table)
    }
}

/// Whether an assignment's target is this column; `SET a.b = …` is a field of a composite.
pub(super) fn is_column(name: &ObjectName, column: &str) -> bool {
    match name.0.as_slice() {
        [part] => part.as_ident().is_some_and(|ident: &ast::Ident| super::scope::name_of(ident) == column),
        _ => false,
    }
}

/// The key of this table is to be changed.
pub(super) fn changes_key(table: &Table) -> SqlError {
    let column = match table.placement {
        Placement::Sharded { column, .. } => table.columns[column].name.as_str(),
        Placement::Reference { .. } | Placement::Local(_) => "",
    };
    super::decide::changes_key(&table.name, column)
}

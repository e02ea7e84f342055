//! What a write leaves to the defaults of columns: one may give something else on each shard, or whenever it is run.

use std::ops::ControlFlow;

use polyshard_sql::ast::{
    self, Assignment, AssignmentTarget, Expr, MergeAction, MergeInsertKind, MergeUpdateKind, ObjectName,
    OnConflictAction, OnInsert, SetExpr, TableFactor, Visit, Visitor,
};
use polyshard_sql::{Column, Context, Generated, SqlError, Table};

use crate::stable::{Stability, is_default, stored};

/// The assignments of an INSERT … ON CONFLICT DO UPDATE.
pub(crate) fn on_conflict(insert: &mut ast::Insert) -> Option<&mut Vec<Assignment>> {
    match &mut insert.on {
        Some(OnInsert::OnConflict(conflict)) => match &mut conflict.action {
            OnConflictAction::DoUpdate(update) => Some(&mut update.assignments),
            OnConflictAction::DoNothing => None,
        },
        _ => None,
    }
}

/// The table that an UPDATE changes.
pub(crate) fn updated<'a>(table: &ast::TableWithJoins, context: &'a Context<'_>) -> Option<&'a Table> {
    let TableFactor::Table { name, .. } = &table.relation else { return None };
    named(name, context)
}

/// SET column = DEFAULT, where the default would differ, says what the default is now.
pub(crate) fn fix_assignments(
    assignments: &mut [Assignment],
    table: Option<&Table>,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let Some(table) = table else { return Ok(()) };
    for assignment in assignments {
        match (&assignment.target, &mut assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => fix(value, name, table, stability)?,
            (AssignmentTarget::Tuple(names), Expr::Tuple(values)) => {
                for (name, value) in names.iter().zip(values) {
                    fix(value, name, table, stability)?;
                }
            }
            (AssignmentTarget::Tuple(names), value) => {
                let differs = |name: &&ObjectName| {
                    column(table, name).is_some_and(|column| stability.default_differs(column))
                };
                if let Some(name) = names.iter().find(differs).filter(|_| has_default(value)) {
                    return Err(differing(&name.to_string(), stability));
                }
            }
        }
    }
    Ok(())
}

fn fix(
    value: &mut Expr,
    name: &ObjectName,
    table: &Table,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let Some(column) = column(table, name) else { return Ok(()) };
    if is_default(value) && stability.default_differs(column) {
        *value = stability.default_of(table, column)?;
    } else if stability.differs(value, Some(column)) {
        return stability.refuse_unstable(value).and(Err(SqlError::unsupported(
            format!("{value} means the clock, and is another time each time"),
            "write now() or a constant",
        )));
    }
    Ok(())
}

/// Refuses what the parts of a statement leave to defaults that may differ: writes within WITH, and MERGE. Of the whole
/// statement, only that is looked at if it is said; its own rows and assignments are seen to otherwise.
pub(crate) fn refuse_within(
    tree: &ast::Statement,
    context: &Context<'_>,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let mut finder = Finder { context, stability, top: true };
    match tree.visit(&mut finder) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses what an INSERT of a query leaves to defaults that may differ.
pub(crate) fn refuse_omitted(
    insert: &ast::Insert,
    table: &Table,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let width = match insert.source.as_deref().map(|source| &*source.body) {
        None => Some(0),
        Some(SetExpr::Values(values)) => values.rows.first().map(|row| row.content.len()),
        Some(_) => stability.width(insert.source.as_deref()),
    };
    let said = said(&insert.columns, table, width);
    let left = table.columns.iter().filter(|column| !said.contains(&column.name.as_str()));
    refuse_left(left, stability)
}

/// The columns that an INSERT gives values for; with no names, and not told how many, none is known to be given.
fn said<'t>(names: &[ObjectName], table: &'t Table, width: Option<usize>) -> Vec<&'t str> {
    if names.is_empty() {
        let own = table.columns.iter().map(|column| column.name.as_str());
        return own.take(width.unwrap_or_default()).collect();
    }
    names.iter().filter_map(|name| column(table, name)).map(|column| column.name.as_str()).collect()
}

fn refuse_left<'t>(
    mut left: impl Iterator<Item = &'t Column>,
    stability: &Stability<'_>,
) -> Result<(), SqlError> {
    let differs =
        |column: &&Column| column.generated != Generated::Stored && stability.default_differs(column);
    left.find(differs).map_or(Ok(()), |column| Err(differing(&column.name, stability)))
}

fn differing(column: &str, stability: &Stability<'_>) -> SqlError {
    SqlError::unsupported(
        format!("the default of column {column} may give something else {}", stability.otherwise),
        "name the column, and give its value in the statement",
    )
}

/// Looks at the statements within a statement.
struct Finder<'a> {
    context: &'a Context<'a>,
    stability: &'a Stability<'a>,
    /// Whether the next one is the whole statement.
    top: bool,
}

impl Finder<'_> {
    fn insert(&self, insert: &ast::Insert) -> Result<(), SqlError> {
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(()) };
        let Some(table) = named(name, self.context) else { return Ok(()) };
        refuse_omitted(insert, table, self.stability)?;
        if let Some(SetExpr::Values(values)) = insert.source.as_deref().map(|source| &*source.body) {
            let given = said(&insert.columns, table, values.rows.first().map(|row| row.content.len()));
            for row in &values.rows {
                self.row(&given, &row.content, table)?;
            }
        }
        let mut insert = insert.clone();
        match on_conflict(&mut insert) {
            Some(assignments) => self.assignments(assignments, Some(table)),
            None => Ok(()),
        }
    }

    fn row(&self, given: &[&str], values: &[Expr], table: &Table) -> Result<(), SqlError> {
        for (name, value) in given.iter().zip(values) {
            let Some(column) = table.column(name).map(|at| &table.columns[at]) else { continue };
            if is_default(value) {
                refuse_left(std::iter::once(column), self.stability)?;
            } else if self.stability.differs(value, Some(column)) {
                return Err(differing_value(value, self.stability));
            }
        }
        Ok(())
    }

    fn assignments(&self, assignments: &[Assignment], table: Option<&Table>) -> Result<(), SqlError> {
        let mut fixed = assignments.to_vec();
        fix_assignments(&mut fixed, table, self.stability)?;
        if fixed == assignments {
            return Ok(());
        }
        Err(SqlError::unsupported(
            format!("a DEFAULT within the statement may give something else {}", self.stability.otherwise),
            "give the value itself, or write that table by a statement of its own",
        ))
    }

    fn merge(&self, merge: &ast::Merge) -> Result<(), SqlError> {
        let TableFactor::Table { name, .. } = &merge.table else { return Ok(()) };
        let Some(table) = named(name, self.context) else { return Ok(()) };
        for clause in &merge.clauses {
            match &clause.action {
                MergeAction::Insert(insert) => {
                    let rows = match &insert.kind {
                        MergeInsertKind::Values(values) => &values.rows[..],
                        MergeInsertKind::Row | MergeInsertKind::Wildcard => &[],
                    };
                    let width = rows.first().map(|row| row.content.len());
                    let given = said(&insert.columns, table, width);
                    let left = table.columns.iter().filter(|column| !given.contains(&column.name.as_str()));
                    refuse_left(left, self.stability)?;
                    for row in rows {
                        self.row(&given, &row.content, table)?;
                    }
                }
                MergeAction::Update(update) => {
                    if let MergeUpdateKind::Set(assignments) = &update.kind {
                        self.assignments(assignments, Some(table))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Visitor for Finder<'_> {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &ast::Statement) -> ControlFlow<SqlError> {
        let top = std::mem::replace(&mut self.top, false);
        let looked = match statement {
            ast::Statement::Insert(insert) if !top => self.insert(insert),
            ast::Statement::Update(update) if !top => {
                self.assignments(&update.assignments, updated(&update.table, self.context))
            }
            ast::Statement::Merge(merge) => self.merge(merge),
            _ => Ok(()),
        };
        looked.map_or_else(ControlFlow::Break, ControlFlow::Continue)
    }
}

fn differing_value(value: &Expr, stability: &Stability<'_>) -> SqlError {
    SqlError::unsupported(
        format!("{value} may give something else {}", stability.otherwise),
        "compute the value first, and write it as a constant or parameter",
    )
}

fn has_default(value: &Expr) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            if is_default(expression) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    value.visit(&mut Finder).is_break()
}

pub(crate) fn named<'a>(name: &ObjectName, context: &'a Context<'_>) -> Option<&'a Table> {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(stored).collect();
    let table = match parts.as_slice() {
        [name] => context.schema.table(None, name, context.search_path),
        [schema, name] => context.schema.table(Some(schema), name, context.search_path),
        _ => None,
    };
    table.map(|table| &**table)
}

fn column<'t>(table: &'t Table, name: &ObjectName) -> Option<&'t Column> {
    let name = name.0.last().and_then(|part| part.as_ident()).map(stored)?;
    table.column(&name).map(|at| &table.columns[at])
}

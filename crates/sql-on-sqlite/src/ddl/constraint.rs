//! Keys, checks and references of a table.

use std::ops::ControlFlow;

use polyshard_sql::ast::{self, Expr, ForeignKeyConstraint, IndexColumn, ReferentialAction, TableConstraint};
use polyshard_sql::{Context, SqlError, Table, TableName};

use super::create::table_expr;
use super::{beside, shown_name, trigger};
use crate::fail::{fail, unsupported};
use crate::functions::quote_ident;
use crate::translate::{file_name, fold, is_comparable, name_parts, quoted, quoted_name};
use crate::types;

/// A constraint as it was asked for; its name is made up if none was given.
pub(super) enum Constraint {
    Primary {
        name: Option<String>,
        columns: Vec<String>,
    },
    Unique {
        name: Option<String>,
        columns: Vec<String>,
    },
    Check {
        name: Option<String>,
        expr: Box<Expr>,
        /// The columns that it is about.
        about: Vec<String>,
    },
    Foreign {
        name: Option<String>,
        columns: Vec<String>,
        /// Its schema is empty until it is looked up.
        target: TableName,
        target_columns: Vec<String>,
        actions: String,
    },
}

/// Those written after the columns.
pub(super) fn constraints_of(given: &[TableConstraint]) -> Result<Vec<Constraint>, SqlError> {
    given.iter().map(constraint_of).collect()
}

pub(super) fn constraint_of(given: &TableConstraint) -> Result<Constraint, SqlError> {
    Ok(match given {
        TableConstraint::PrimaryKey(key) => {
            Constraint::Primary { name: key.name.as_ref().map(fold), columns: plain(&key.columns)? }
        }
        TableConstraint::Unique(key) => {
            Constraint::Unique { name: key.name.as_ref().map(fold), columns: plain(&key.columns)? }
        }
        TableConstraint::Check(check) => Constraint::Check {
            name: check.name.as_ref().map(fold),
            expr: check.expr.clone(),
            about: Vec::new(),
        },
        TableConstraint::ForeignKey(key) => {
            let columns = key.columns.iter().map(fold).collect();
            Constraint::foreign(key.name.as_ref().map(fold), columns, key)?
        }
        other => return Err(unsupported(format!("the constraint {other}"))),
    })
}

fn plain(columns: &[IndexColumn]) -> Result<Vec<String>, SqlError> {
    let name = |column: &IndexColumn| match &column.column.expr {
        Expr::Identifier(ident) => Ok(fold(ident)),
        other => Err(unsupported(format!("the key column {other}"))),
    };
    columns.iter().map(name).collect()
}

impl Constraint {
    pub fn foreign(
        name: Option<String>,
        columns: Vec<String>,
        key: &ForeignKeyConstraint,
    ) -> Result<Constraint, SqlError> {
        if key.match_kind.is_some() {
            return Err(unsupported("MATCH in a foreign key"));
        }
        let action = |given: &Option<ReferentialAction>, when: &str| match given {
            None | Some(ReferentialAction::NoAction) => Ok(String::new()),
            Some(ReferentialAction::SetDefault) => Err(unsupported("SET DEFAULT in a foreign key")),
            Some(action) => Ok(format!(" ON {when} {action}")),
        };
        let mut actions = action(&key.on_update, "UPDATE")? + &action(&key.on_delete, "DELETE")?;
        if let Some(characteristics) = &key.characteristics {
            let shown = characteristics.to_string().to_ascii_uppercase();
            if shown.contains("INITIALLY DEFERRED") {
                actions.push_str(" DEFERRABLE INITIALLY DEFERRED");
            }
        }
        let (schema, name_of_target) = name_parts(&key.foreign_table)?;
        let target = TableName { schema: schema.unwrap_or_default(), name: name_of_target };
        let target_columns = key.referred_columns.iter().map(fold).collect();
        Ok(Constraint::Foreign { name, columns, target, target_columns, actions })
    }

    pub fn name(&self) -> &str {
        match self {
            Constraint::Primary { name, .. }
            | Constraint::Unique { name, .. }
            | Constraint::Check { name, .. }
            | Constraint::Foreign { name, .. } => name.as_deref().unwrap_or(""),
        }
    }

    /// As PostgreSQL would call it.
    pub fn settle_name(&mut self, table: &str, taken: &mut Vec<String>) -> Result<(), SqlError> {
        let (name, made) = match self {
            Constraint::Primary { name, .. } => (name, format!("{table}_pkey")),
            Constraint::Unique { name, columns } => (name, format!("{table}_{}_key", columns.join("_"))),
            Constraint::Check { name, about, .. } => {
                // As PostgreSQL has it: only one column is worth a mention.
                match &about[..] {
                    [only] => (name, format!("{table}_{only}_check")),
                    _ => (name, format!("{table}_check")),
                }
            }
            Constraint::Foreign { name, columns, .. } => {
                (name, format!("{table}_{}_fkey", columns.join("_")))
            }
        };
        match name {
            Some(given) if taken.contains(given) => {
                return Err(fail(
                    "42710",
                    format!("constraint \"{given}\" for relation \"{table}\" already exists"),
                ));
            }
            Some(given) => taken.push(given.clone()),
            None => {
                let mut free = made.clone();
                let mut number = 0;
                while taken.contains(&free) {
                    number += 1;
                    free = format!("{made}{number}");
                }
                taken.push(free.clone());
                *name = Some(free);
            }
        }
        Ok(())
    }

    /// Whether its columns are there and can be what it says.
    pub fn check(&mut self, table: &Table, context: &Context<'_>) -> Result<(), SqlError> {
        let find = |table: &Table, name: &str| {
            table
                .column(name)
                .ok_or_else(|| fail("42703", format!("column \"{name}\" named in key does not exist")))
        };
        match self {
            Constraint::Primary { columns, .. } | Constraint::Unique { columns, .. } => {
                for name in columns {
                    let type_oid = table.columns[find(table, name)?].type_oid;
                    if !is_comparable(type_oid) {
                        return Err(unsupported(format!("a key of type {}", types::display(type_oid))));
                    }
                }
            }
            Constraint::Check { expr, about, .. } => *about = columns_of(expr, table),
            Constraint::Foreign { columns, target, target_columns, .. } => {
                let schema = Some(target.schema.as_str()).filter(|schema| !schema.is_empty());
                let is_itself =
                    target.name == table.name.name && schema.is_none_or(|schema| schema == table.name.schema);
                let known = match context.schema.table(schema, &target.name, context.search_path) {
                    Some(known) if known.name != table.name => known.as_ref(),
                    _ if is_itself => table,
                    _ => {
                        let within = schema.map_or_else(String::new, |schema| format!("{schema}."));
                        let message = format!("relation \"{within}{}\" does not exist", target.name);
                        return Err(fail("42P01", message));
                    }
                };
                *target = known.name.clone();
                if target_columns.is_empty() {
                    *target_columns =
                        known.primary_key.iter().map(|place| known.columns[*place].name.clone()).collect();
                }
                if target_columns.is_empty() {
                    return Err(fail(
                        "42704",
                        format!("there is no primary key for referenced table \"{}\"", target.name),
                    ));
                }
                if target_columns.len() != columns.len() {
                    return Err(fail(
                        "42830",
                        "number of referencing and referenced columns for foreign key disagree",
                    ));
                }
                for (own, other) in columns.iter().zip(target_columns.iter()) {
                    let (own, other) = (find(table, own)?, find(known, other)?);
                    let (own, other) = (table.columns[own].type_oid, known.columns[other].type_oid);
                    let whole = types::is_integer(own) && types::is_integer(other);
                    let texts = types::is_text(own) && types::is_text(other);
                    if own != other && !whole && !texts {
                        return Err(fail(
                            "42804",
                            "foreign key constraint cannot be implemented: the types differ",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Its part of CREATE TABLE.
    pub fn text(&self, table: &Table, context: &Context<'_>) -> Result<String, SqlError> {
        let names =
            |columns: &[String]| columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let name = quoted(self.name());
        Ok(match self {
            Constraint::Primary { columns, .. } => {
                format!("CONSTRAINT {name} PRIMARY KEY ({})", names(columns))
            }
            Constraint::Unique { columns, .. } => format!("CONSTRAINT {name} UNIQUE ({})", names(columns)),
            Constraint::Check { expr, .. } => {
                format!("CONSTRAINT {name} CHECK ({})", table_expr(table, context, expr, "")?)
            }
            Constraint::Foreign { columns, target, target_columns, actions, .. } => format!(
                "CONSTRAINT {name} FOREIGN KEY ({}) REFERENCES {} ({}){actions}",
                names(columns),
                quoted_name(target),
                names(target_columns)
            ),
        })
    }

    /// The index that keeps a unique constraint.
    pub fn index(&self, table: &Table) -> Option<String> {
        let Constraint::Unique { columns, .. } = self else { return None };
        let list: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
        let index = quoted(&beside(&table.name, self.name()));
        Some(format!("CREATE UNIQUE INDEX {index} ON {} ({})", quoted_name(&table.name), list.join(", ")))
    }

    /// What keeps it on a table that is there: SQLite cannot add it to the table, so triggers do. The rows that
    /// are there are checked first.
    pub fn kept_by_triggers(&self, table: &Table, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
        match self {
            Constraint::Check { expr, .. } => {
                let there = table_expr(table, context, expr, "")?;
                let new = table_expr(table, context, expr, "new.")?;
                Ok(trigger::check(&file_name(&table.name), self.name(), &there, &new))
            }
            Constraint::Foreign { columns, target, target_columns, actions, .. } => {
                let key = trigger::Reference {
                    name: self.name(),
                    key: &beside(&table.name, self.name()),
                    child: &file_name(&table.name),
                    columns,
                    parent: &file_name(target),
                    parent_columns: target_columns,
                    actions,
                };
                // Triggers see a row before the rest of its transaction, and another row of the same statement
                // not at all.
                if actions.contains("DEFERRED") || *target == table.name {
                    return Ok(key.in_table(&self.text(table, context)?));
                }
                Ok(key.statements())
            }
            Constraint::Primary { .. } | Constraint::Unique { .. } => Ok(Vec::new()),
        }
    }

    /// Kind, columns, target and its columns, as they are recorded.
    pub fn facts(&self) -> (char, Vec<String>, Option<String>, Option<Vec<String>>) {
        match self {
            Constraint::Primary { columns, .. } => ('p', columns.clone(), None, None),
            Constraint::Unique { columns, .. } => ('u', columns.clone(), None, None),
            Constraint::Check { about, .. } => ('c', about.clone(), None, None),
            Constraint::Foreign { columns, target, target_columns, .. } => {
                ('f', columns.clone(), Some(file_name(target)), Some(target_columns.clone()))
            }
        }
    }
}

/// The columns of a table that an expression names, in their order.
fn columns_of(expr: &Expr, table: &Table) -> Vec<String> {
    let mut found = vec![false; table.columns.len()];
    let mut see = |name: String| {
        if let Some(place) = table.column(&name) {
            found[place] = true;
        }
    };
    let _: ControlFlow<()> = ast::visit_expressions(expr, |part| {
        match part {
            Expr::Identifier(ident) => see(fold(ident)),
            Expr::CompoundIdentifier(parts) => parts.last().map(fold).into_iter().for_each(&mut see),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    let columns = table.columns.iter().zip(found).filter(|(_, found)| *found);
    columns.map(|(column, _)| column.name.clone()).collect()
}

/// As `pg_get_constraintdef` shows it.
pub(super) fn definition(constraint: &Constraint) -> String {
    let names =
        |columns: &[String]| columns.iter().map(|name| quote_ident(name)).collect::<Vec<_>>().join(", ");
    match constraint {
        Constraint::Primary { columns, .. } => format!("PRIMARY KEY ({})", names(columns)),
        Constraint::Unique { columns, .. } => format!("UNIQUE ({})", names(columns)),
        Constraint::Check { expr, .. } => format!("CHECK (({expr}))"),
        Constraint::Foreign { columns, target, target_columns, actions, .. } => format!(
            "FOREIGN KEY ({}) REFERENCES {}({}){actions}",
            names(columns),
            shown_name(target),
            names(target_columns)
        ),
    }
}

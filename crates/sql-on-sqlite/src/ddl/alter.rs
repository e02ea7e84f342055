//! ALTER TABLE, as far as SQLite can.

use polyshard_sql::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, DataType, DropBehavior, Expr, RenameTableNameKind,
};
use polyshard_sql::{Context, Generated, Placement, SqlError, Table, TableName, TypeOid};

use super::constraint::{Constraint, constraint_of};
use super::create::{Made, check_default, column, column_text, describe_column, describe_constraint, exists};
use super::{allowed, beside, generated, literal_option, literal_text, referred, trigger};
use crate::fail::{fail, unsupported};
use crate::translate::{data_type_in, file_name, fold, name_parts, no_relation, quoted, quoted_name};
use crate::types;

pub(super) fn table(alter: &AlterTable, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let (schema, name) = name_parts(&alter.name)?;
    let Some(table) = context.schema.table(schema.as_deref(), &name, context.search_path) else {
        if alter.if_exists {
            return Ok(Vec::new());
        }
        return Err(no_relation(schema.as_deref(), &name));
    };
    let mut out = Vec::new();
    let mut table = table.as_ref().clone();
    for operation in &alter.operations {
        out.extend(apply(operation, &mut table, context)?);
    }
    Ok(out)
}

fn apply(
    operation: &AlterTableOperation,
    table: &mut Table,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let (full, name, file) = (table.name.clone(), table.name.name.clone(), file_name(&table.name));
    let (own, text) = (quoted(&file), literal_text(&file));
    let find = |table: &Table, column: &str| {
        table.column(column).ok_or_else(|| {
            fail("42703", format!("column \"{column}\" of relation \"{name}\" does not exist"))
        })
    };
    Ok(match operation {
        AlterTableOperation::AddColumn { if_not_exists, column_def, .. } => {
            let Made { column: mut made, constraints, is_identity } = column(&full, column_def, context)?;
            if table.columns.iter().any(|known| known.name.eq_ignore_ascii_case(&made.name)) {
                if *if_not_exists {
                    return Ok(Vec::new());
                }
                return Err(fail(
                    "42701",
                    format!("column \"{}\" of relation \"{name}\" already exists", made.name),
                ));
            }
            check_default(&made, context)?;
            let mut out = Vec::new();
            let is_generated = made.generated == Generated::Stored;
            let fill = made.default.clone().filter(|_| !is_generated);
            let not_null = std::mem::replace(&mut made.not_null, false);
            let mut definition = column_text(&made)?;
            if let Some(expression) = generated::expression(table, &made, context)? {
                if not_null || !constraints.is_empty() {
                    let what = "adding a generated column with constraints to a table that is there";
                    return Err(unsupported(what));
                }
                // Computed for every row first, so that what cannot be is told.
                out.push(format!("SELECT count({expression}) FROM {own}"));
                // SQLite adds none that is kept, but one that is computed when it is read: the value is the same.
                definition.push_str(&format!(" GENERATED ALWAYS AS ({expression}) VIRTUAL"));
            }
            out.push(format!("ALTER TABLE {own} ADD COLUMN {definition}"));
            made.not_null = not_null;
            if let Some(fill) = &fill {
                // The rows that are there get the default too.
                let value = default_constant(&made, fill, context)?;
                out.push(format!("UPDATE {own} SET {} = {value}", quoted(&made.name)));
            }
            let next = format!(
                "(SELECT coalesce(max(position), 0) + 1 FROM polyshard_sql_column WHERE table_name = {text})"
            );
            out.push(describe_column(&full, &made, is_identity, &next));
            if not_null {
                out.extend(trigger::not_null(&file, &made.name));
            }
            table.columns.push(made);
            for mut constraint in constraints {
                out.extend(add_constraint(&mut constraint, table, context)?);
            }
            out
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let cascade = *drop_behavior == Some(DropBehavior::Cascade);
            let mut out = Vec::new();
            for column in column_names {
                let column = fold(column);
                let Some(place) = table.column(&column) else {
                    if *if_exists {
                        continue;
                    }
                    find(table, &column)?;
                    continue;
                };
                if table.primary_key.contains(&place) {
                    return Err(unsupported(format!("dropping the key column {column}")));
                }
                out.extend(referred::by_column(table, place, cascade, context)?);
                out.extend(drop_with_column(table, place, context));
                out.extend(trigger::drop_not_null(&file, &column));
                if table.columns[place].generated != Generated::Stored {
                    out.push(generated::refuse_used(table, &column, "dropping"));
                }
                out.push(format!("ALTER TABLE {own} DROP COLUMN {}", quoted(&column)));
                let column = literal_text(&column);
                out.push(format!(
                    "DELETE FROM polyshard_sql_column WHERE table_name = {text} AND name = {column}"
                ));
                table.columns.remove(place);
                let shift = |places: &mut Vec<usize>| {
                    places.iter_mut().filter(|other| **other > place).for_each(|other| *other -= 1);
                };
                shift(&mut table.primary_key);
                table.unique.iter_mut().for_each(shift);
                table.foreign_keys.iter_mut().for_each(|key| shift(&mut key.columns));
            }
            out
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            let (old, new) = (fold(old_column_name), fold(new_column_name));
            let place = find(table, &old)?;
            if table.columns.iter().any(|known| known.name.eq_ignore_ascii_case(&new) && known.name != old) {
                return Err(fail("42701", format!("column \"{new}\" of relation \"{name}\" already exists")));
            }
            table.columns[place].name.clone_from(&new);
            let (before, after) = (literal_text(&old), literal_text(&new));
            let renamed = |list: &str| {
                format!(
                    "(SELECT json_group_array(CASE value WHEN {before} THEN {after} ELSE value END) \
                     FROM json_each({list}))"
                )
            };
            vec![
                generated::refuse_used(table, &old, "renaming"),
                format!("ALTER TABLE {own} RENAME COLUMN {} TO {}", quoted(&old), quoted(&new)),
                format!(
                    "UPDATE polyshard_sql_column SET name = {after} WHERE table_name = {text} AND name = {before}"
                ),
                format!(
                    "UPDATE polyshard_sql_constraint SET columns = {} WHERE table_name = {text}",
                    renamed("columns")
                ),
                format!(
                    "UPDATE polyshard_sql_constraint SET target_columns = {} WHERE target = {text}",
                    renamed("target_columns")
                ),
                format!(
                    "UPDATE polyshard_sql_index SET columns = {} WHERE table_name = {text}",
                    renamed("columns")
                ),
            ]
        }
        AlterTableOperation::RenameTable { table_name } => {
            let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = table_name;
            let to = TableName { schema: full.schema, name: allowed(name_parts(to)?.1)? };
            if exists(context.schema, &to) {
                return Err(fail("42P07", format!("relation \"{}\" already exists", to.name)));
            }
            table.name = to.clone();
            let after = literal_text(&file_name(&to));
            let mut out = vec![format!("ALTER TABLE {own} RENAME TO {}", quoted_name(&to))];
            for kept in ["polyshard_sql_column", "polyshard_sql_constraint", "polyshard_sql_index"] {
                out.push(format!("UPDATE {kept} SET table_name = {after} WHERE table_name = {text}"));
            }
            out.push(format!("UPDATE polyshard_sql_constraint SET target = {after} WHERE target = {text}"));
            out.push(format!("UPDATE polyshard_sql_table SET name = {after} WHERE name = {text}"));
            out
        }
        AlterTableOperation::AddConstraint { constraint, .. } => {
            let mut constraint = constraint_of(constraint)?;
            add_constraint(&mut constraint, table, context)?
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            let column = fold(column_name);
            let place = find(table, &column)?;
            alter_column(table, place, op, context)?
        }
        AlterTableOperation::DropConstraint { if_exists, name: constraint, drop_behavior } => {
            let (constraint, cascade) = (fold(constraint), *drop_behavior == Some(DropBehavior::Cascade));
            let mut out = referred::by_unique(table, &constraint, cascade, context)?;
            out.extend(trigger::drop_constraint(&full, &constraint, *if_exists));
            table.foreign_keys.retain(|key| key.name != constraint);
            out
        }
        AlterTableOperation::OwnerTo { .. } => Vec::new(),
        other => return Err(unsupported(format!("ALTER TABLE … {other}"))),
    })
}

/// What goes with a column: the indexes, unique constraints and references that it is in.
fn drop_with_column(table: &mut Table, place: usize, context: &Context<'_>) -> Vec<String> {
    let (full, column) = (table.name.clone(), table.columns[place].name.clone());
    let mut out = Vec::new();
    let indexes = context.schema.indexes.get(&full).into_iter().flatten();
    for index in indexes.filter(|index| index.columns.contains(&column)) {
        if index.is_constraint {
            out.extend(trigger::drop_constraint(&full, &index.name, true));
            continue;
        }
        let file = beside(&full, &index.name);
        out.push(format!("DROP INDEX IF EXISTS {}", quoted(&file)));
        out.push(format!("DELETE FROM polyshard_sql_index WHERE name = {}", literal_text(&file)));
    }
    for key in table.foreign_keys.iter().filter(|key| key.columns.contains(&place)) {
        out.extend(trigger::drop_constraint(&full, &key.name, true));
    }
    table.unique.retain(|unique| !unique.contains(&place));
    table.foreign_keys.retain(|key| !key.columns.contains(&place));
    out
}

/// What SQLite cannot add to a table that is there is kept by an index or by triggers.
fn add_constraint(
    constraint: &mut Constraint,
    table: &mut Table,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let (full, name, file) = (table.name.clone(), table.name.name.clone(), file_name(&table.name));
    constraint.check(table, context)?;
    constraint.settle_name(&name, &mut taken_names(constraint, table))?;
    let mut out = Vec::new();
    match constraint {
        Constraint::Primary { columns, .. } | Constraint::Unique { columns, .. } => {
            let columns = columns.clone();
            let is_primary = matches!(constraint, Constraint::Primary { .. });
            if is_primary && !table.primary_key.is_empty() {
                return Err(fail(
                    "42P16",
                    format!("multiple primary keys for table \"{name}\" are not allowed"),
                ));
            }
            let list: Vec<String> = columns.iter().map(|column| quoted(column)).collect();
            let index = quoted(&beside(&full, constraint.name()));
            out.push(format!("CREATE UNIQUE INDEX {index} ON {} ({})", quoted(&file), list.join(", ")));
            let places: Vec<usize> = columns.iter().filter_map(|column| table.column(column)).collect();
            if is_primary {
                for place in &places {
                    let column = &mut table.columns[*place];
                    if !column.not_null {
                        column.not_null = true;
                        out.extend(trigger::not_null(&file, &column.name));
                        out.push(format!(
                            "UPDATE polyshard_sql_column SET not_null = 1 WHERE table_name = {} AND name = {}",
                            literal_text(&file),
                            literal_text(&column.name)
                        ));
                    }
                }
                table.primary_key = places;
            } else {
                table.unique.push(places);
            }
        }
        Constraint::Check { .. } | Constraint::Foreign { .. } => {
            out.extend(constraint.kept_by_triggers(table, context)?);
        }
    }
    out.push(describe_constraint(&full, constraint));
    Ok(out)
}

/// Names of constraints that are there, as far as they bear on the name of a new one: like PostgreSQL, a second one
/// over the same columns gets a number.
fn taken_names(constraint: &Constraint, table: &Table) -> Vec<String> {
    let mut taken: Vec<String> = table.foreign_keys.iter().map(|key| key.name.clone()).collect();
    if let Constraint::Unique { name: None, columns } = constraint {
        let places: Vec<usize> = columns.iter().filter_map(|column| table.column(column)).collect();
        let alike = table.unique.iter().filter(|unique| **unique == places).count();
        let made = format!("{}_{}_key", table.name.name, columns.join("_"));
        let numbered = |number: usize| if number == 0 { made.clone() } else { format!("{made}{number}") };
        taken.extend((0..alike).map(numbered));
    }
    taken
}

fn alter_column(
    table: &mut Table,
    place: usize,
    op: &AlterColumnOperation,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let name = file_name(&table.name);
    let used = generated::refuse_used(table, &table.columns[place].name, "changing the type of");
    let column = &mut table.columns[place];
    let of = format!("table_name = {} AND name = {}", literal_text(&name), literal_text(&column.name));
    if column.generated == Generated::Stored {
        return Err(unsupported(format!("ALTER COLUMN … {op} of a generated column")));
    }
    Ok(match op {
        AlterColumnOperation::SetDefault { value } => {
            column.default = Some(value.to_string());
            check_default(column, context)?;
            let value = literal_option(column.default.as_deref());
            vec![format!("UPDATE polyshard_sql_column SET default_text = {value} WHERE {of}")]
        }
        AlterColumnOperation::DropDefault => {
            column.default = None;
            vec![format!("UPDATE polyshard_sql_column SET default_text = NULL WHERE {of}")]
        }
        AlterColumnOperation::SetNotNull if column.not_null => Vec::new(),
        AlterColumnOperation::SetNotNull => {
            column.not_null = true;
            let mut out = trigger::not_null(&name, &column.name);
            out.push(format!("UPDATE polyshard_sql_column SET not_null = 1 WHERE {of}"));
            out
        }
        AlterColumnOperation::DropNotNull if !column.not_null => Vec::new(),
        AlterColumnOperation::DropNotNull => {
            if table.primary_key.contains(&place) {
                return Err(fail("42P16", format!("column \"{}\" is in a primary key", column.name)));
            }
            let mut out = trigger::drop_not_null(&name, &column.name);
            let text = format!("pg_without_not_null(sql, {})", literal_text(&quoted(&column.name)));
            out.extend(trigger::rewrite(&name, &text));
            out.push(format!("UPDATE polyshard_sql_column SET not_null = 0 WHERE {of}"));
            out
        }
        AlterColumnOperation::SetDataType { data_type, using, .. }
            if using.as_ref().is_none_or(|using| is_itself(using, &column.name, data_type, context)) =>
        {
            let (type_oid, type_mod) = data_type_in(data_type, context)?;
            let is_key = matches!(table.placement, Placement::Sharded { column, .. } if column == place);
            if is_key || !holds((column.type_oid, column.type_mod), (type_oid, type_mod)) {
                let (from, to) = (&column.type_name, types::display_with(type_oid, type_mod));
                return Err(unsupported(format!(
                    "changing the type of column {} from {from} to {to}",
                    column.name
                )));
            }
            (column.type_oid, column.type_mod) = (type_oid, type_mod);
            column.type_name = types::display_with(type_oid, type_mod);
            vec![
                used,
                format!(
                    "UPDATE polyshard_sql_column SET type_oid = {}, type_mod = {type_mod}, type_name = {} WHERE {of}",
                    type_oid.0,
                    literal_text(&column.type_name)
                ),
            ]
        }
        other => return Err(unsupported(format!("ALTER COLUMN … {other}"))),
    })
}

/// Whether an expression is a column's own value as one of this type, as migration tools write it.
fn is_itself(using: &Expr, column: &str, data_type: &DataType, context: &Context<'_>) -> bool {
    match using {
        Expr::Nested(inner) => is_itself(inner, column, data_type, context),
        Expr::Cast { expr, data_type: to, format: None, .. } => {
            let [to, data_type] = [to, data_type].map(|data_type| data_type_in(data_type, context).ok());
            let same = to.is_some() && to == data_type;
            same && matches!(&**expr, Expr::Identifier(ident) if fold(ident) == column)
        }
        _ => false,
    }
}

/// Whether every value of a type is one of another, and kept in the same way.
fn holds((from, from_mod): (TypeOid, i32), (to, to_mod): (TypeOid, i32)) -> bool {
    let wider = to_mod < 0 || from_mod >= 0 && to_mod >= from_mod;
    let whole = |oid| [TypeOid::INT2, TypeOid::INT4, TypeOid::INT8].iter().position(|known| *known == oid);
    match (from, to) {
        (TypeOid::TEXT, TypeOid::VARCHAR) => to_mod < 0,
        (TypeOid::VARCHAR | TypeOid::TEXT, TypeOid::TEXT) => true,
        (TypeOid::VARCHAR, TypeOid::VARCHAR) => wider,
        (from, to) if from == to && from_mod == to_mod => true,
        (from, to) => whole(from).zip(whole(to)).is_some_and(|(from, to)| from <= to),
    }
}

/// The value that the rows of a table get for a new column.
fn default_constant(
    column: &polyshard_sql::Column,
    text: &str,
    context: &Context<'_>,
) -> Result<String, SqlError> {
    let statements = polyshard_sql::statements(&format!("SELECT {text}"))?;
    let expr = statements.first().and_then(|statement| match statement.ast()? {
        polyshard_sql::ast::Statement::Query(query) => match query.body.as_ref() {
            polyshard_sql::ast::SetExpr::Select(select) => match &select.projection[..] {
                [polyshard_sql::ast::SelectItem::UnnamedExpr(expr)] => Some(expr.clone()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let refuse = || {
        unsupported(format!(
            "adding the column {} with the default {text} to rows that are there",
            column.name
        ))
        .hint("add it without a default, fill it, then set the default")
    };
    let expr = expr.ok_or_else(refuse)?;
    let cast = polyshard_sql::ast::Expr::Nested(Box::new(expr));
    let holder = Table {
        name: TableName::public("polyshard_default"),
        columns: Vec::new(),
        primary_key: Vec::new(),
        unique: Vec::new(),
        foreign_keys: Vec::new(),
        row_security: false,
        triggers: false,
        placement: polyshard_sql::Placement::Reference { declared: false },
    };
    super::create::constant(&holder, context, &cast, column).map_err(|_| refuse())
}

//! Columns that are added with a default: the rows that are there get one value, as in one database, and not what each
//! shard works out by itself.

use polyshard_sql::ast::{self, AlterTableOperation, ColumnOption};
use polyshard_sql::{Context, Placement, SqlError, Statement, TableName};

use crate::clock;
use crate::defaults::named;
use crate::quote::identifier;
use crate::stable::{Moment, Stability, stored};

/// How columns are added whose defaults go by the clock, or are another value each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// The statement with the time in place of the clock.
    pub first: String,
    /// What sets the defaults that were asked for.
    pub then: Vec<String>,
    /// The reference table whose rows would differ, and the column. It must have no rows.
    pub differs: Option<(TableName, String)>,
}

impl Added {
    /// The refusal where the table has rows.
    pub fn refusal(table: &TableName, column: &str) -> SqlError {
        SqlError::unsupported(
            format!("the default of column {column} would be another on each shard for the rows of {table}"),
            "add the column without a default, UPDATE it to values that you give, then set the default",
        )
    }
}

/// Reads an ALTER TABLE … ADD COLUMN; nothing if all is the same wherever and whenever it is run.
pub fn added_columns(
    statement: &Statement,
    context: &Context<'_>,
    moment: Moment<'_>,
) -> Result<Option<Added>, SqlError> {
    let Some(ast::Statement::AlterTable(alter)) = statement.ast() else { return Ok(None) };
    let Some(table) = named(&alter.name, context) else { return Ok(None) };
    let is_reference = matches!(table.placement, Placement::Reference { .. });
    let stability = Stability { schema: context.schema, moment, literals: &[], otherwise: "on each shard" };
    let mut alter = alter.clone();
    let (mut then, mut differs) = (Vec::new(), None);
    for operation in &mut alter.operations {
        let AlterTableOperation::AddColumn { column_def, .. } = operation else { continue };
        let column = stored(&column_def.name);
        if table.column(&column).is_some() {
            // It is an error, or nothing is done.
            continue;
        }
        let serial = column_def.data_type.to_string().to_ascii_lowercase().contains("serial");
        let mut counted = serial;
        for option in &mut column_def.options {
            match &mut option.option {
                ColumnOption::Default(default) => {
                    let asked = default.to_string();
                    let by_clock = stability.fix(default)?;
                    let is_time = clock::is_time_type(&column_def.data_type);
                    counted |=
                        stability.differs(default, None) || (is_time && clock::says(default).is_some());
                    if by_clock {
                        let table =
                            format!("{}.{}", identifier(&table.name.schema), identifier(&table.name.name));
                        let column = identifier(&column);
                        then.push(format!("ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {asked}"));
                    }
                }
                ColumnOption::Generated { generation_expr: None, .. } | ColumnOption::Identity(_) => {
                    counted = true;
                }
                _ => {}
            }
        }
        if counted && is_reference {
            differs = Some((table.name.clone(), column));
        }
    }
    if then.is_empty() && differs.is_none() {
        return Ok(None);
    }
    if !then.is_empty() && statement.left_out().is_some() {
        let message = "adding a column whose default goes by the clock, in these words";
        return Err(SqlError::unsupported(message, "leave ONLY and the like out"));
    }
    let first = match then.is_empty() {
        true => statement.text().to_string(),
        false => ast::Statement::AlterTable(alter).to_string(),
    };
    Ok(Some(Added { first, then, differs }))
}

//! COMMENT ON: what people say about tables and their columns is kept beside the descriptions.

use polyshard_sql::ast::{CommentObject, ObjectName};
use polyshard_sql::{Context, SqlError, Table};

use super::literal_text;
use crate::fail::fail;
use crate::translate::{file_name, name_parts, no_relation};

/// Keeps a comment, or forgets it; nothing is done about objects other than tables and their columns.
pub(super) fn on(
    object: &CommentObject,
    name: &ObjectName,
    comment: Option<&str>,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let (table, column) = match object {
        CommentObject::Table => (name.clone(), None),
        CommentObject::Column => {
            let mut table = name.clone();
            let last = table.0.pop().map(|last| ObjectName(vec![last]));
            let column = last.as_ref().map(name_parts).transpose()?.map(|(_, column)| column);
            if table.0.is_empty() {
                return Err(fail("42601", "column name must be qualified"));
            }
            (table, column)
        }
        _ => return Ok(Vec::new()),
    };
    let (schema, bare) = name_parts(&table)?;
    let (of, path) = (context.schema, context.search_path);
    let Some(table) = of.table(schema.as_deref(), &bare, path) else {
        return match (of.view(schema.as_deref(), &bare, path), &column) {
            (None, _) => Err(no_relation(schema.as_deref(), &bare)),
            (Some(_), None) => Err(fail("42809", format!("\"{bare}\" is not a table"))),
            (Some(_), Some(_)) => Ok(Vec::new()),
        };
    };
    check_column(table, column.as_deref())?;
    let relation = literal_text(&file_name(&table.name));
    let column = literal_text(column.as_deref().unwrap_or_default());
    // PostgreSQL forgets a comment that says nothing.
    Ok(vec![match comment.filter(|comment| !comment.is_empty()) {
        None => {
            format!(
                "DELETE FROM polyshard_sql_comment WHERE relation = {relation} AND column_name = {column}"
            )
        }
        Some(comment) => format!(
            "INSERT OR REPLACE INTO polyshard_sql_comment (relation, column_name, description) VALUES \
             ({relation}, {column}, {})",
            literal_text(comment)
        ),
    }])
}

fn check_column(table: &Table, column: Option<&str>) -> Result<(), SqlError> {
    match column {
        Some(column) if table.column(column).is_none() => {
            let relation = &table.name.name;
            Err(fail("42703", format!("column \"{column}\" of relation \"{relation}\" does not exist")))
        }
        _ => Ok(()),
    }
}

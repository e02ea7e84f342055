//! Generated columns: an expression over the row's other columns, which SQLite keeps beside them.

use polyshard_sql::ast::{Expr, SelectItem, SetExpr, Statement as Ast};
use polyshard_sql::{Column, Context, Generated, SqlError, Table};

use super::literal_text;
use crate::fail::{fail, unsupported};
use crate::settings::Settings;
use crate::translate::{
    ENUM_MARK, How, Ids, Scope, Translator, Visible, column_value, file_name, kept_value, quoted,
};

/// What SQLite computes a generated column by; none for another column.
pub(super) fn expression(
    table: &Table,
    column: &Column,
    context: &Context<'_>,
) -> Result<Option<String>, SqlError> {
    let (Generated::Stored, Some(text)) = (column.generated, &column.default) else { return Ok(None) };
    let expr = parsed(text)?;
    let settings = Settings::default();
    let mut translator = Translator::new(context, &settings, Vec::new());
    let mut scope = Scope::new();
    scope.columns = table.columns.iter().map(|other| visible(table, other)).collect();
    translator.scopes.push(scope);
    translator.ids = Ids::None;
    let ex = translator.expr(&expr)?;
    for other in table.columns.iter().filter(|other| other.generated == Generated::Stored) {
        let shown = format!("{}.{}", table.name.name, other.name);
        if ex.ungrouped.iter().any(|(_, used)| *used == shown) {
            let message =
                format!("cannot use generated column \"{}\" in column generation expression", other.name);
            return Err(fail("42P17", message)
                .detail("A generated column cannot reference another generated column."));
        }
    }
    let found = ex.type_oid;
    let ex = translator.coerce(ex, column.type_oid, column.type_mod, How::Assignment).map_err(|error| {
        if error.state.0 != "42804" {
            return error;
        }
        let message = format!(
            "column \"{}\" is of type {} but default expression is of type {}",
            column.name,
            crate::types::display(column.type_oid),
            crate::types::display(found)
        );
        fail("42804", message).hint("You will need to rewrite or cast the expression.")
    })?;
    if ex.sql.contains("SELECT ") {
        return Err(fail("0A000", "cannot use subquery in column generation expression"));
    }
    // The clock, ids, chance: another value each time.
    if !translator.sources.is_empty() || ex.sql.contains("random") {
        return Err(fail("42P17", "generation expression is not immutable"));
    }
    // What depends on the session's time zone is refused by PostgreSQL too, but not all of this is.
    if ex.sql.contains("'UTC'") || ex.sql.contains(ENUM_MARK) {
        return Err(unsupported(format!("the expression {text} in a generated column")));
    }
    Ok(Some(kept_value(ex.sql, column.type_oid)))
}

fn visible(table: &Table, column: &Column) -> Visible {
    Visible {
        relation: Some(table.name.name.clone()),
        name: column.name.clone(),
        sql: column_value(quoted(&column.name), column.type_oid),
        type_oid: column.type_oid,
        type_mod: column.type_mod,
        not_null: column.not_null,
        bare: true,
    }
}

/// An expression from its text.
fn parsed(text: &str) -> Result<Expr, SqlError> {
    let statements = polyshard_sql::statements(&format!("SELECT {text}"))?;
    if let Some(Ast::Query(query)) = statements.first().and_then(|one| one.ast())
        && let SetExpr::Select(select) = query.body.as_ref()
        && let [SelectItem::UnnamedExpr(expr)] = &select.projection[..]
    {
        return Ok(expr.clone());
    }
    Err(unsupported(format!("the expression {text} in a generated column")))
}

/// A statement that fails if a generated column of the table may use this one: what is kept of its text would no longer
/// be true.
pub(super) fn refuse_used(table: &Table, column: &str, change: &str) -> String {
    let message = format!("{change} column {column}, which a generated column may use");
    format!(
        "SELECT pg_raise('0A000', {}) FROM polyshard_sql_column WHERE table_name = {} AND generated = 'stored' \
         AND name <> {2} AND instr(lower(default_text), lower({2})) > 0 LIMIT 1",
        literal_text(&message),
        literal_text(&file_name(&table.name)),
        literal_text(column)
    )
}

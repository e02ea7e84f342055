//! Writes on several shards in words that do the same when a shard runs them again: the clock becomes a constant, and
//! what only the database can say (ids, random values) is asked of the shard once. Pure: the caller asks.

use polyshard_sql::ast::{self, SetExpr};
use polyshard_sql::{Context, Generated, SqlError, Statement, Table};

use crate::reference::{ReferenceWrite, find, plan_insert};
use crate::stable::{self, Stability};

/// Why something must not differ, in a refusal.
const AGAIN: &str =
    "when a shard runs the statement again, which polyshard.multi_shard = 'eventual' may have it do";

/// Turns one shard's part of a write on several shards. `literals` are the parameters as typed SQL literals; `moment`
/// is the time of the statement as PostgreSQL writes it.
pub fn lasting_write(
    statement: &Statement,
    context: &Context<'_>,
    literals: &[String],
    moment: &str,
) -> Result<ReferenceWrite, SqlError> {
    let unparsed = || {
        let message = "this statement could not be read, and a write that is completed later must be";
        statement
            .failure()
            .cloned()
            .unwrap_or_else(|| SqlError::unsupported(message, "write it in plainer words"))
    };
    let mut tree = statement.ast().ok_or_else(unparsed)?.clone();
    let stability = Stability { schema: context.schema, moment, literals, otherwise: AGAIN };
    let changed = stability.fix(&mut tree)?;
    match &mut tree {
        ast::Statement::Insert(insert) if is_values(insert) => {
            let table = find(context, &insert.table)?;
            stability.check_rest(insert)?;
            return plan_insert(insert.clone(), table, &stability, changed, statement);
        }
        ast::Statement::Insert(insert) => {
            let table = find(context, &insert.table)?;
            refuse_defaults(insert, table, &stability)?;
        }
        ast::Statement::Update(update) => {
            for assignment in &mut update.assignments {
                stable::fix_default(assignment, context, &update.table, &stability)?;
            }
        }
        ast::Statement::Delete(_) => {}
        _ => {
            return Err(SqlError::unsupported(
                "only INSERT, UPDATE and DELETE are completed later on a shard that misses them",
                "write rows of one shard at a time",
            ));
        }
    }
    stability.refuse_unstable(&tree)?;
    let sql = if changed || matches!(tree, ast::Statement::Update(_)) {
        tree.to_string()
    } else {
        statement.text().to_string()
    };
    Ok(ReferenceWrite::same(sql))
}

fn is_values(insert: &ast::Insert) -> bool {
    matches!(insert.source.as_deref().map(|source| &*source.body), Some(SetExpr::Values(_)))
}

/// What a query leaves to defaults would be another number the next time.
fn refuse_defaults(insert: &ast::Insert, table: &Table, stability: &Stability<'_>) -> Result<(), SqlError> {
    let said = |name: &str| {
        let names =
            insert.columns.iter().filter_map(|column| column.0.last()?.as_ident().map(stable::stored));
        insert.columns.is_empty() || names.into_iter().any(|said| said == name)
    };
    let mut left = table.columns.iter().filter(|column| !said(&column.name));
    match left.find(|column| column.generated != Generated::Stored && stability.default_differs(column)) {
        None => Ok(()),
        Some(column) => Err(SqlError::unsupported(
            format!("the default of column {} may give something else {AGAIN}", column.name),
            "name the column, and give its value in the query",
        )),
    }
}

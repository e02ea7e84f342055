//! Writes on several shards in words that do the same when a shard runs them again: the clock becomes a constant, and
//! what only the database can say (ids, random values) is asked of the shard once. Pure: the caller asks.

use polyshard_sql::ast::{self, SetExpr};
use polyshard_sql::{Context, SqlError, Statement};

use crate::reference::{ReferenceWrite, find, plan_insert, refuse_differing, rest_of};
use crate::stable::{Moment, Stability};
use crate::{clock, defaults};

/// Why something must not differ, in a refusal.
const AGAIN: &str =
    "when a shard runs the statement again, which polyshard.multi_shard = 'eventual' may have it do";

/// Turns one shard's part of a write on several shards. `literals` are the parameters as typed SQL literals; `moment`
/// is the time that it has.
pub fn lasting_write(
    statement: &Statement,
    context: &Context<'_>,
    literals: &[String],
    moment: Moment<'_>,
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
    let mut changed_conflict = false;
    match &mut tree {
        ast::Statement::Insert(insert) if is_values(insert) => {
            let table = find(context, &insert.table)?;
            if let Some(assignments) = defaults::on_conflict(insert) {
                defaults::fix_assignments(assignments, Some(table), &stability)?;
            }
            stability.check_rest(insert)?;
            clock::refuse(&ast::Statement::Insert(rest_of(insert)), context, &stability)?;
            return plan_insert(insert.clone(), table, &stability, changed, statement);
        }
        ast::Statement::Insert(insert) => {
            let table = find(context, &insert.table)?;
            defaults::refuse_omitted(insert, table, &stability)?;
            if let Some(assignments) = defaults::on_conflict(insert) {
                changed_conflict = true;
                defaults::fix_assignments(assignments, Some(table), &stability)?;
            }
        }
        ast::Statement::Update(update) => {
            let table = defaults::updated(&update.table, context);
            defaults::fix_assignments(&mut update.assignments, table, &stability)?;
        }
        ast::Statement::Delete(_) => {}
        _ => {
            return Err(SqlError::unsupported(
                "only INSERT, UPDATE and DELETE are completed later on a shard that misses them",
                "write rows of one shard at a time",
            ));
        }
    }
    refuse_differing(&tree, context, &stability)?;
    let sql = if changed || changed_conflict || matches!(tree, ast::Statement::Update(_)) {
        tree.to_string()
    } else {
        statement.text().to_string()
    };
    Ok(ReferenceWrite::same(sql))
}

fn is_values(insert: &ast::Insert) -> bool {
    matches!(insert.source.as_deref().map(|source| &*source.body), Some(SetExpr::Values(_)))
}

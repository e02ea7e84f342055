//! First cut of the analysis: every sharded table is on all shards.

use std::ops::ControlFlow;

use sqlparser::ast::{ObjectName, visit_relations};

use super::Context;
use super::analysis::{Action, Analysis, Occurrence, Place};
use super::formula::{Formula, KeyColumn};
use super::value::Family;
use crate::error::SqlError;
use crate::kind::Kind;
use crate::schema::{Collation, Placement, Table};
use crate::statement::Statement;

pub(super) fn build(statement: &Statement, context: &Context<'_>) -> Result<Analysis, SqlError> {
    let writes = !matches!(statement.kind(), Kind::Select);
    let mut occurrences = Vec::new();
    let mut reads_reference = false;
    if let Some(ast) = statement.ast() {
        let _: ControlFlow<()> = visit_relations(ast, |name: &ObjectName| {
            let parts: Vec<String> =
                name.0.iter().map(|part| part.to_string().to_ascii_lowercase()).collect();
            let schema = parts.len().checked_sub(2).map(|at| parts[at].as_str());
            let name = parts.last().map_or("", String::as_str);
            if let Some(table) = context.schema.table(schema, name, context.search_path) {
                match occurrence(table) {
                    Some(occurrence) => occurrences.push(occurrence),
                    None => reads_reference = true,
                }
            }
            ControlFlow::Continue(())
        });
    }
    let action = match (occurrences.is_empty(), reads_reference, writes) {
        (false, _, false) => Action::Placed(occurrences),
        (true, true, false) => Action::ReferenceRead,
        (true, true, true) => Action::ReferenceWrite,
        (true, false, _) if matches!(statement.kind(), Kind::Ddl(_)) => Action::Everywhere,
        (true, false, _) => Action::Anywhere,
        (false, _, true) => return Err(SqlError::unsupported("not routed yet", "")),
    };
    Ok(Analysis { action, writes, reads_reference, strict: context.strict, one_shard_only: None })
}

fn occurrence(table: &Table) -> Option<Occurrence> {
    let place = match &table.placement {
        Placement::Reference { .. } => return None,
        Placement::Local(shard) => Place::Local(shard.clone()),
        Placement::Sharded { map, column, key_type } => {
            let column = &table.columns[*column];
            Place::Sharded {
                map: map.clone(),
                column_name: column.name.clone(),
                column: KeyColumn {
                    key_type: key_type.clone(),
                    family: Family::of_column(column)?,
                    ordered: column.collation == Collation::C,
                },
                formula: Formula::All,
            }
        }
    };
    Some(Occurrence { table: table.name.clone(), place, written: false, sets_key: None })
}

//! What operators ask about SQL tables.

use polyshard_admin::types::{
    DeclareRequest, SchemaCheckAnswer, SchemaDifference, TablePlacement, TableView, Unreachable,
};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_map::{MapName, ShardId};
use polyshard_schema::{Declaration, JournalError};
use polyshard_sql::{Placement, Table, TableName};

use super::Operations;
use crate::problem;

impl Operations {
    pub(super) async fn table_views(&self) -> Result<Vec<TableView>, Problem> {
        self.see().await?;
        let schema = self.journal.schema().await.map_err(|error| of_journal(&error))?;
        Ok(schema.tables.values().map(|table| view(table)).collect())
    }

    pub(super) async fn declare(&self, asked: DeclareRequest) -> Result<TableView, Problem> {
        let table = match asked.table.split_once('.') {
            Some((schema, name)) => TableName { schema: schema.to_owned(), name: name.to_owned() },
            None => TableName::public(asked.table.clone()),
        };
        let declaration = match asked.placement {
            TablePlacement::Sharded => Declaration::Sharded {
                table: table.clone(),
                map: needed::<MapName>("map", asked.map)?,
                column: needed::<String>("key", asked.key)?,
            },
            TablePlacement::Reference => Declaration::Reference { table: table.clone() },
            TablePlacement::Local => {
                Declaration::Local { table: table.clone(), shard: needed::<ShardId>("shard", asked.shard)? }
            }
        };
        self.journal.declare(declaration).await.map_err(|error| of_journal(&error))?;
        self.see().await?;
        let schema = self.journal.schema().await.map_err(|error| of_journal(&error))?;
        let missing = || Problem::not_found(format!("table {table} is gone again"));
        schema.tables.get(&table).map(|table| view(table)).ok_or_else(missing)
    }

    pub(super) async fn compare_shards(&self) -> Result<SchemaCheckAnswer, Problem> {
        self.see().await?;
        let checked = self.journal.check().await.map_err(|error| of_journal(&error))?;
        let differences = checked.differences.into_iter().map(|one| SchemaDifference {
            shard: one.shard,
            object: one.object,
            found: one.found,
            expected: one.expected,
        });
        let away = checked.away.into_iter().map(|(shard, reason)| Unreachable { shard, reason });
        Ok(SchemaCheckAnswer {
            position: checked.position,
            like: checked.like,
            shards: checked.shards,
            objects: checked.objects,
            differences: differences.collect(),
            unreachable: away.collect(),
        })
    }
}

fn needed<T>(field: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::invalid(field, "it is missing").with_remedy(format!("say the {field}")))
}

fn view(table: &Table) -> TableView {
    let (mut map, mut key, mut shard, mut declared) = (None, None, None, true);
    let placement = match &table.placement {
        Placement::Sharded { map: by, column, .. } => {
            map = Some(by.clone());
            key = Some(table.columns[*column].name.clone());
            TablePlacement::Sharded
        }
        Placement::Reference { declared: said } => {
            declared = *said;
            TablePlacement::Reference
        }
        Placement::Local(on) => {
            shard = Some(on.clone());
            TablePlacement::Local
        }
    };
    let name = format!("{}.{}", table.name.schema, table.name.name);
    TableView { table: name, placement, declared, map, key, shard }
}

pub(super) fn of_journal(error: &JournalError) -> Problem {
    let code = match error {
        JournalError::Refused(refused) => {
            let code = match refused.state.0 {
                "42P01" | "42703" | "42704" | "42883" => ErrorCode::NotFound,
                _ => ErrorCode::Conflict,
            };
            let problem = Problem::new(code, refused.message.clone());
            return match &refused.hint {
                Some(hint) => problem.with_remedy(hint.clone()),
                None => problem,
            };
        }
        JournalError::Catalog(error) => return problem::of_catalog(error),
        JournalError::Busy | JournalError::TurnLost => ErrorCode::Busy,
        JournalError::Shard { error, .. } if error.is_retryable() => ErrorCode::Unavailable,
        JournalError::Unknown(_) => ErrorCode::Unavailable,
        JournalError::Shard { .. } | JournalError::Stuck { .. } => ErrorCode::Conflict,
        JournalError::Failpoint(_) | JournalError::Damaged { .. } => ErrorCode::Internal,
    };
    problem::worded(code, &error.to_string())
}

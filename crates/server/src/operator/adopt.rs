//! Taking an existing database in as a shard, with its rows (D10).

use polyshard_admin::convert::read_definition;
use polyshard_admin::types::{AdoptAnswer, AdoptRequest, AdoptedTable, NewMap, TablePlacement};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::{CatalogError, NewShard, ShardLimits};
use polyshard_schema::Adopted;
use polyshard_workflow::{Columns, Procedure, TakeIn, Task};

use super::Operations;
use super::schema::of_journal;
use crate::problem;

impl Operations {
    pub(super) async fn adopt_database(&self, asked: AdoptRequest) -> Result<AdoptAnswer, Problem> {
        self.check_url(&asked.url)?;
        self.see().await?;
        let definition = read_definition(&NewMap {
            name: asked.map.clone(),
            kind: asked.kind,
            key: asked.key.clone(),
            buckets: None,
            seed: None,
            prefix: None,
            shards: None,
        })?;
        let view = self.router.view();
        if view.maps.contains_key(&asked.map) {
            return Err(problem::of_catalog(&CatalogError::Exists(format!("map {}", asked.map))));
        }
        if view.shards.contains_key(&asked.shard) {
            return Err(problem::of_catalog(&CatalogError::Exists(format!("shard {}", asked.shard))));
        }
        let mut columns = columns(&asked.key_columns)?;
        let password = self.password(asked.password_env, asked.password_file)?;
        let new = NewShard {
            id: asked.shard.clone(),
            url: asked.url.clone(),
            password: password.clone(),
            server: None,
            region: asked.region.clone(),
            tier: asked.tier.clone(),
            limits: ShardLimits::default(),
        };
        let opened = self.open(&new).await?;
        let looked = self.journal.look_at_database(&opened, &definition, &(&columns).into()).await;
        opened.close().await;
        let look = looked.map_err(|error| of_journal(&error))?;
        // Once it is a shard, it has the other shards' tables, too.
        columns.tables =
            look.tables.iter().map(|one| (one.table.schema.clone(), one.table.name.clone())).collect();
        let take_in = TakeIn {
            shard: asked.shard.clone(),
            url: asked.url,
            password,
            region: asked.region,
            tier: asked.tier,
        };
        let (map, shard) = (asked.map.clone(), asked.shard);
        let tasks = vec![
            Task::TakeIn(take_in),
            Task::CreateMap {
                definition: Box::new(definition),
                shard: shard.clone(),
                columns: columns.clone(),
            },
            Task::AdoptTables { map: map.clone(), shard: shard.clone(), columns },
        ];
        let undo = vec![Task::DropMap { map: map.clone() }, Task::RemoveShard { shard }];
        let mut answer = AdoptAnswer {
            tables: look.tables.into_iter().map(shown).collect(),
            must_change: look.must_change,
            steps: tasks.iter().map(|task| task.describe(None)).collect(),
            procedure: None,
        };
        if asked.dry_run {
            return Ok(answer);
        }
        if !answer.must_change.is_empty() {
            return Err(Problem::new(ErrorCode::Conflict, answer.must_change.join("; "))
                .with_remedy("change that first, and look again with --dry-run"));
        }
        // One at a time, whatever its map: the tables of one could be taken for those of the other.
        let begun = self.procedures.begin("adopt", None, Procedure::new(tasks).or_else(undo)).await;
        answer.procedure = Some(begun.map_err(|error| problem::of_catalog(&error))?.id.to_string());
        Ok(answer)
    }
}

fn shown(table: polyshard_schema::AdoptTable) -> AdoptedTable {
    let (placement, key) = match table.how {
        Adopted::Sharded(column) => (TablePlacement::Sharded, Some(column)),
        Adopted::Reference => (TablePlacement::Reference, None),
    };
    let name = format!("{}.{}", table.table.schema, table.table.name);
    AdoptedTable { table: name, placement, key, rows: table.rows }
}

/// Reads `tenant_id` and `schema.table=column`.
fn columns(asked: &[String]) -> Result<Columns, Problem> {
    let mut columns = Columns::default();
    for text in asked {
        match text.split_once('=') {
            None if columns.everywhere.is_some() => {
                return Err(Problem::invalid("key_columns", "two columns are the key of every table")
                    .with_remedy("say table=column for all but one"));
            }
            None => columns.everywhere = Some(text.clone()),
            Some((table, column)) => {
                let (schema, table) = table.split_once('.').unwrap_or(("public", table));
                columns.single.push((schema.to_owned(), table.to_owned(), column.to_owned()));
            }
        }
    }
    Ok(columns)
}

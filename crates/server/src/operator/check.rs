//! What operators ask of the checker: rows put right, soft references, what it found by itself.

use std::sync::Arc;

use polyshard_admin::types::{
    BrokenLink, LastCheckAnswer, LinkView, LinksCheckAnswer, NewLink, OldRowsWish, RepairRowsAnswer,
    RepairRowsRequest, RepairedRows, RepairedTable, UncheckedLink, Unreachable,
};
use polyshard_admin::{Answer, Checker, ErrorCode, Problem};
use polyshard_catalog::{CatalogError, REPAIR};
use polyshard_map::{MapName, ShardId};
use polyshard_mover::{OldRows, Repair, Repaired};
use polyshard_schema::JournalError;
use polyshard_schema::Link;
use polyshard_shard::OpId;
use polyshard_sql::{Schema, TableName};
use polyshard_workflow::procedure::TASKS_MAX;
use polyshard_workflow::{Procedure, Task};

use super::Operations;
use super::schema::of_journal;
use crate::problem;

fn fail(error: CatalogError) -> Problem {
    problem::of_catalog(&error)
}

impl Operations {
    async fn repair_found(&self, asked: RepairRowsRequest) -> Result<RepairRowsAnswer, Problem> {
        self.see().await?;
        let maps: Vec<MapName> = match &asked.map {
            Some(map) => vec![self.catalog.map(map).await.map_err(fail)?.definition.name().clone()],
            None => {
                let records = self.catalog.maps().await.map_err(fail)?;
                records.into_iter().map(|record| record.definition.name().clone()).collect()
            }
        };
        let mut answer = RepairRowsAnswer {
            rows: Vec::new(),
            tables: Vec::new(),
            unreachable: Vec::new(),
            procedure: None,
        };
        let old = match asked.old_rows {
            None => OldRows::Leave,
            Some(OldRowsWish::Carry) => OldRows::Carry,
            Some(OldRowsWish::Remove) => OldRows::Remove,
        };
        let how = Repair { dry_run: true, owner_wins: asked.owner_wins, old };
        let mut noted = Vec::new();
        for map in &maps {
            noted.extend(self.look_for_repair(map, how, &mut answer).await?);
        }
        if asked.map.is_none() {
            let mended = self.journal.mend(asked.like.as_ref(), true, asked.confirm).await;
            match mended {
                Ok(mended) => answer.tables = mended.into_iter().map(table).collect(),
                // Rows are put right all the same.
                Err(JournalError::Shard { shard, error }) => {
                    let reason = format!("reference tables were not compared: {error}");
                    answer.unreachable.push(Unreachable { shard, reason });
                }
                Err(error) => return Err(of_journal(&error)),
            }
        }
        if asked.dry_run {
            return Ok(answer);
        }
        let mut tasks: Vec<Task> = Vec::new();
        for one in answer.rows.iter().filter(|one| changes(one)) {
            let (map, shard) = (one.map.clone(), one.shard.clone());
            let task = Task::RepairRows { map, shard, owner_wins: asked.owner_wins, old };
            if tasks.last() != Some(&task) {
                tasks.push(task);
            }
        }
        // What a repair that was stopped and given up has left to be forgotten.
        for (map, shard) in noted {
            let task = Task::RepairRows { map, shard, owner_wins: asked.owner_wins, old };
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
        if answer.tables.iter().any(|one| one.refused.is_none()) {
            tasks.push(Task::RepairReference { like: asked.like, confirmed: asked.confirm });
        }
        if tasks.is_empty() {
            return Ok(answer);
        }
        if tasks.len() > TASKS_MAX {
            return Err(Problem::new(ErrorCode::Conflict, format!("there are more than {TASKS_MAX} tasks"))
                .with_remedy("name one map at a time"));
        }
        // One at a time, whatever the map: reference tables are of all.
        let begun = self.procedures.begin(REPAIR, None, Procedure::new(tasks)).await;
        answer.procedure = Some(begun.map_err(fail)?.id.to_string());
        Ok(answer)
    }

    /// Looks at what would be done for a map. Answers on which shards there is something to do although they have no
    /// rows that are not theirs.
    async fn look_for_repair(
        &self,
        map: &MapName,
        how: Repair,
        answer: &mut RepairRowsAnswer,
    ) -> Result<Vec<(MapName, ShardId)>, Problem> {
        let record = self.catalog.map(map).await.map_err(fail)?;
        let busy = self.driver.busy(map).await.map_err(fail)?;
        let entries = self.catalog.entries(map).await.map_err(fail)?;
        let shards = self.catalog.shards().await.map_err(fail)?;
        let shards: Vec<ShardId> = shards.into_iter().map(|shard| shard.id).collect();
        let mut noted = Vec::new();
        for shard in &shards {
            // A look marks nothing.
            let mark = OpId::new(Default::default());
            match self.mover.repair(&record.definition, (&entries, &busy, &shards), shard, how, mark).await {
                Ok(found) => {
                    let found = found.into_iter().filter(|(_, of)| *of != Repaired::default());
                    answer.rows.extend(found.map(|(dataset, of)| rows(map, shard, dataset, &of)));
                }
                Err(error) => {
                    answer.unreachable.push(Unreachable { shard: shard.clone(), reason: error.to_string() });
                    continue;
                }
            }
            match self.mover.has_notes(&record.definition, shard, &shards).await {
                Ok(true) => noted.push((map.clone(), shard.clone())),
                Ok(false) => {}
                Err(error) => {
                    answer.unreachable.push(Unreachable { shard: shard.clone(), reason: error.to_string() });
                }
            }
        }
        Ok(noted)
    }

    async fn link_list(&self) -> Result<Vec<(OpId, Link)>, Problem> {
        let stored = self.catalog.links().await.map_err(fail)?;
        let read = |(id, body): &(OpId, serde_json::Value)| {
            Link::read(body).map(|link| (*id, link)).map_err(|why| Problem::new(ErrorCode::Internal, why))
        };
        stored.iter().map(read).collect()
    }

    async fn current_schema(&self) -> Result<Arc<Schema>, Problem> {
        self.see().await?;
        self.journal.schema().await.map_err(|error| of_journal(&error))
    }

    async fn record_link(&self, asked: NewLink) -> Result<LinkView, Problem> {
        let schema = self.current_schema().await?;
        let link = Link::new(name(&asked.table), asked.columns, name(&asked.to), asked.to_columns, &schema);
        let link = link.map_err(|why| {
            Problem::invalid("link", why).with_remedy("see 'polyshard table list' for the tables there are")
        })?;
        let id = self.catalog.add_link(&link.write()).await.map_err(fail)?;
        Ok(LinkView { id: id.to_string(), says: link.to_string() })
    }

    async fn forget_link(&self, id: String) -> Result<(), Problem> {
        let none =
            || Problem::not_found(format!("there is no link {id}")).with_remedy("see 'polyshard link list'");
        let link: OpId = id.parse().map_err(|_| none())?;
        match self.catalog.remove_link(link).await {
            Err(CatalogError::NoSuchOperation(_)) => Err(none()),
            other => other.map_err(fail),
        }
    }

    async fn look_into_links(&self) -> Result<LinksCheckAnswer, Problem> {
        let schema = self.current_schema().await?;
        let links = self.link_list().await?;
        let mut answer =
            LinksCheckAnswer { links: links.len() as u64, broken: Vec::new(), unchecked: Vec::new() };
        for (id, link) in links {
            let (id, says) = (id.to_string(), link.to_string());
            match link.check(&self.router, &schema).await {
                Ok(found) if found.rows == 0 => {}
                Ok(found) => {
                    let (rows, keys, examples) = (found.rows, found.keys, found.examples);
                    answer.broken.push(BrokenLink { id, says, rows, keys, examples });
                }
                Err(error) => answer.unchecked.push(UncheckedLink { id, reason: error.to_string() }),
            }
        }
        Ok(answer)
    }

    /// Looks at everything, for the schedule.
    pub(crate) async fn check_all(&self) -> Result<LastCheckAnswer, Problem> {
        let mut found = LastCheckAnswer::default();
        for record in self.catalog.maps().await.map_err(fail)? {
            let rows = self.find_misplaced(record.definition.name().clone()).await?;
            for one in rows.misplaced {
                *found.misplaced.entry(one.shard).or_default() += one.rows;
            }
            let away = rows.unreachable.into_iter();
            found.unchecked.extend(away.map(|one| format!("shard {}: {}", one.shard, one.reason)));
        }
        let schema = self.compare_shards().await?;
        found.differences = schema.differences.len() as u64;
        let away = schema.unreachable.into_iter();
        found.unchecked.extend(away.map(|one| format!("shard {}: {}", one.shard, one.reason)));
        let links = self.look_into_links().await?;
        found.broken = links.broken.iter().map(|one| one.rows).sum();
        found
            .unchecked
            .extend(links.unchecked.into_iter().map(|one| format!("link {}: {}", one.id, one.reason)));
        found.unchecked.sort();
        found.unchecked.dedup();
        Ok(found)
    }

    /// What the checker found when it last ran by itself, in whatever process.
    pub(crate) async fn last_found(&self) -> Result<LastCheckAnswer, Problem> {
        let Some((at_ms, body)) = self.catalog.last_check().await.map_err(fail)? else {
            return Ok(LastCheckAnswer::default());
        };
        let damaged = |error: serde_json::Error| Problem::new(ErrorCode::Internal, error.to_string());
        let found: LastCheckAnswer = serde_json::from_value(body).map_err(damaged)?;
        Ok(LastCheckAnswer { at_ms: Some(at_ms), ..found })
    }
}

fn name(text: &str) -> TableName {
    match text.split_once('.') {
        Some((schema, name)) => TableName { schema: schema.to_owned(), name: name.to_owned() },
        None => TableName::public(text.to_owned()),
    }
}

/// Whether anything is done about them.
fn changes(one: &RepairedRows) -> bool {
    one.moved + one.removed + one.discarded + one.differs + one.old + one.homeless + one.stuck > 0
}

fn rows(map: &MapName, shard: &ShardId, dataset: String, of: &Repaired) -> RepairedRows {
    RepairedRows {
        map: map.clone(),
        shard: shard.clone(),
        dataset,
        moved: of.moved,
        removed: of.removed,
        discarded: of.discarded,
        differs: of.differs,
        old: of.old,
        homeless: of.homeless,
        stuck: of.stuck,
        moving: of.moving,
        examples: of.examples.clone(),
    }
}

fn table(one: polyshard_schema::Mended) -> RepairedTable {
    RepairedTable {
        shard: one.shard,
        table: one.table,
        like: one.like,
        inserted: one.inserted,
        updated: one.updated,
        deleted: one.deleted,
        refused: one.refused,
    }
}

impl Checker for Operations {
    fn repair_rows(&self, request: RepairRowsRequest) -> Answer<'_, RepairRowsAnswer> {
        Box::pin(self.repair_found(request))
    }
    fn links(&self) -> Answer<'_, Vec<LinkView>> {
        Box::pin(async move {
            let links = self.link_list().await?;
            Ok(links
                .into_iter()
                .map(|(id, link)| LinkView { id: id.to_string(), says: link.to_string() })
                .collect())
        })
    }
    fn add_link(&self, link: NewLink) -> Answer<'_, LinkView> {
        Box::pin(self.record_link(link))
    }
    fn remove_link(&self, id: String) -> Answer<'_, ()> {
        Box::pin(self.forget_link(id))
    }
    fn check_links(&self) -> Answer<'_, LinksCheckAnswer> {
        Box::pin(self.look_into_links())
    }
    fn last_check(&self) -> Answer<'_, LastCheckAnswer> {
        Box::pin(self.last_found())
    }
}

//! The task by which a range is moved: part by part, each under a name that is on record before it begins.

use polyshard_catalog::{CatalogError, MoveRequest, OnBehalf, OpState, ProcedureRecord};
use polyshard_map::{KeyRange, MapName, ShardId, State};
use polyshard_shard::OpId;

use super::{Inner, Outcome};
use crate::procedure::Procedure;
use crate::stretch::{Stretch, stretches};
use polyshard_planner::rule::{Rule, Seen};

/// A task that moves a range.
pub(super) struct PlannedMove<'a> {
    pub map: &'a MapName,
    pub range: &'a KeyRange,
    pub to: &'a ShardId,
    pub keep_ms: u64,
    pub arrives: Option<State>,
}

impl Inner {
    /// Gives the next part of a move its name, which is on record before it begins: whoever takes over, or cancels,
    /// knows what to look for.
    pub(super) async fn plan_move(
        &self,
        procedure: &mut Procedure,
        planned: PlannedMove<'_>,
    ) -> Result<Outcome, CatalogError> {
        let Some(stretch) = self.next_part(&planned).await? else {
            if let Err(error) = self.options.router.refresh().await {
                tracing::debug!(%error, "this process hears of the move a little later");
            }
            return Ok(Outcome::Done);
        };
        if let Err(error) = self.options.journal.ready(planned.to).await {
            return Ok(Outcome::Retry(error.to_string()));
        }
        if let Some(why) = self.forbidden(&planned, &stretch.range).await? {
            return Ok(Outcome::Refused(why));
        }
        procedure.note_operation(Some(OpId::new(self.options.driver.catalog().fresh_id())));
        Ok(Outcome::Noted)
    }

    /// Begins the move that was noted, or sees how far it is.
    pub(super) async fn carry(
        &self,
        procedure: &mut Procedure,
        planned: PlannedMove<'_>,
        id: OpId,
        record: &ProcedureRecord,
    ) -> Result<Outcome, CatalogError> {
        let Some(found) = self.operation(id).await? else {
            // What was planned may be so by now.
            let Some(stretch) = self.next_part(&planned).await? else {
                procedure.note_operation(None);
                return Ok(Outcome::Noted);
            };
            let request = MoveRequest {
                map: planned.map.clone(),
                range: stretch.range,
                to: planned.to.clone(),
                keep_ms: planned.keep_ms,
                if_version: None,
                by: None,
            };
            let behalf = OnBehalf { id, procedure: record.id, token: record.token };
            self.options.driver.start_planned_move(&request, planned.arrives, behalf).await?;
            return Ok(Outcome::Waiting);
        };
        Ok(match found.state {
            OpState::Running => Outcome::Waiting,
            OpState::RolledBack => {
                let why = found.message.unwrap_or_else(|| "no reason was recorded".to_owned());
                Outcome::Refused(format!("the move was rolled back: {why}"))
            }
            // There may be another part.
            OpState::Done => {
                procedure.note_operation(None);
                Outcome::Noted
            }
        })
    }

    async fn next_part(&self, planned: &PlannedMove<'_>) -> Result<Option<Stretch>, CatalogError> {
        let catalog = self.options.driver.catalog();
        let definition = catalog.map(planned.map).await?.definition;
        let entries = self.entries(planned.map, planned.range).await?;
        Ok(stretches(definition.scheme(), &entries, planned.range, planned.to).into_iter().next())
    }

    /// Why a move that was planned a while ago may not be made now: somebody has made a rule since, or taken the shard
    /// out of use.
    async fn forbidden(
        &self,
        planned: &PlannedMove<'_>,
        range: &KeyRange,
    ) -> Result<Option<String>, CatalogError> {
        let catalog = self.options.driver.catalog();
        let shard = catalog.shard(planned.to).await?;
        if shard.state != State::Online {
            return Ok(Some(format!("shard {} is {}", shard.id, shard.state)));
        }
        let (rules, others): (Vec<_>, Vec<_>) =
            catalog.rules(None).await?.into_iter().partition(|(_, map, _)| map == planned.map);
        for (_, map, body) in others {
            let rule = Rule::read(&body).map_err(CatalogError::Invalid)?;
            let Rule::Alone { range: of } = &rule else { continue };
            let there = catalog.entries_of(&map, planned.to).await?;
            if there.iter().any(|entry| entry.range.overlaps(of)) {
                let says = rule.describe(Some(&catalog.map(&map).await?.definition));
                return Ok(Some(format!(
                    "{says} by a rule of map {map}, and that would share shard {}",
                    planned.to
                )));
            }
        }
        if rules.is_empty() {
            return Ok(None);
        }
        let definition = catalog.map(planned.map).await?.definition;
        let there = catalog.entries_of(planned.map, planned.to).await?;
        let there: Vec<KeyRange> = there.into_iter().map(|entry| entry.range).collect();
        let seen = Seen { region: shard.region, tier: shard.tier };
        for (_, _, body) in rules {
            let rule = Rule::read(&body).map_err(CatalogError::Invalid)?;
            let why = rule.forbids(range, planned.to, &seen, &there, Some(&definition));
            if why.is_some() {
                return Ok(why);
            }
        }
        Ok(None)
    }
}

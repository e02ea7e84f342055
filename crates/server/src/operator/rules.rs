//! Rules of placement, as operators record and read them.

use std::collections::BTreeMap;

use polyshard_admin::convert::range_view;
use polyshard_admin::types::{NewRule, RangeView, RuleView};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_map::{KeyRange, MapDefinition, MapName, ShardId};
use polyshard_planner::Rule;
use polyshard_planner::plan::Place;

use super::Operations;
use super::moves::moved_range;
use crate::problem;

/// Ranges of one rule that keeps them apart: each is compared with each other, and there are rarely more shards.
const APART_MAX: usize = 1_000;

impl Operations {
    pub(super) async fn rule_views(&self) -> Result<Vec<RuleView>, Problem> {
        self.see().await?;
        let stored = self.catalog.rules(None).await.map_err(|error| problem::of_catalog(&error))?;
        let view = self.router.view();
        let mut views = Vec::with_capacity(stored.len());
        for (id, map, body) in stored {
            let rule = Rule::read(&body).map_err(|why| Problem::new(ErrorCode::Internal, why))?;
            // A map that is gone has left its rules behind; they mean nothing.
            let Some(known) = view.maps.get(&map) else { continue };
            views.push(rule_view(id.to_string(), map, &rule, known.map.definition()));
        }
        Ok(views)
    }

    pub(super) async fn record_rule(&self, name: MapName, asked: NewRule) -> Result<RuleView, Problem> {
        let known = self.known(&name).await?;
        let definition = known.map.definition();
        let read = |range: &RangeView| moved_range(definition, range);
        let rule = match &asked {
            NewRule::Region { range, region } => Rule::Region { range: read(range)?, region: region.clone() },
            NewRule::Tier { range, tier } => Rule::Tier { range: read(range)?, tier: tier.clone() },
            NewRule::Alone { range } => Rule::Alone { range: read(range)? },
            NewRule::Apart { ranges } => {
                if ranges.len() > APART_MAX {
                    let message = format!("{} are more than the {APART_MAX} of one rule", ranges.len());
                    return Err(Problem::invalid("ranges", message).with_remedy("make several rules"));
                }
                let ranges: Vec<KeyRange> = ranges.iter().map(read).collect::<Result<_, _>>()?;
                if ranges.len() < 2 {
                    return Err(Problem::invalid("ranges", "fewer than two cannot be kept apart"));
                }
                let overlap = ranges
                    .iter()
                    .enumerate()
                    .any(|(index, range)| ranges[index + 1..].iter().any(|other| other.overlaps(range)));
                if overlap {
                    return Err(Problem::invalid("ranges", "two of them have a part in common")
                        .with_remedy("keys in one bucket of a hash map cannot be kept apart; name others"));
                }
                Rule::Apart { ranges }
            }
        };
        for (id, _, body) in
            self.catalog.rules(Some(&name)).await.map_err(|error| problem::of_catalog(&error))?
        {
            let other = Rule::read(&body).map_err(|why| Problem::new(ErrorCode::Internal, why))?;
            if rule.contradicts(&other) {
                let says = other.describe(Some(definition));
                return Err(Problem::new(
                    ErrorCode::Conflict,
                    format!("no shard could heed it beside rule {id}: {says}"),
                )
                .with_remedy(format!("remove that one first, with 'polyshard rule remove {id}'")));
            }
        }
        let added = self.catalog.add_rule(&name, &rule.write()).await;
        let id = added.map_err(|error| problem::of_catalog(&error))?;
        Ok(rule_view(id.to_string(), name, &rule, definition))
    }

    /// The shards that a rule gives to keys of its map alone, each with the rule; those of one map are left out.
    pub(super) async fn kept_shards(
        &self,
        but: Option<&MapName>,
    ) -> Result<BTreeMap<ShardId, String>, Problem> {
        let stored = self.catalog.rules(None).await.map_err(|error| problem::of_catalog(&error))?;
        let view = self.router.view();
        let mut kept = BTreeMap::new();
        for (_, map, body) in stored.iter().filter(|(_, map, _)| Some(map) != but) {
            let rule = Rule::read(body).map_err(|why| Problem::new(ErrorCode::Internal, why))?;
            let (Rule::Alone { range }, Some(known)) = (&rule, view.maps.get(map)) else { continue };
            let says = format!("{} by a rule of map {map}", rule.describe(Some(known.map.definition())));
            for located in known.map.located(range) {
                kept.entry(located.shard().clone()).or_insert_with(|| says.clone());
            }
        }
        Ok(kept)
    }

    /// Has these places say which of them another map has to itself.
    pub(super) async fn keep_for_others(&self, map: &MapName, places: &mut [Place]) -> Result<(), Problem> {
        let mut kept = self.kept_shards(Some(map)).await?;
        places.iter_mut().for_each(|place| place.kept = kept.remove(&place.shard));
        Ok(())
    }

    pub(super) async fn forget_rule(&self, id: String) -> Result<(), Problem> {
        let missing =
            || Problem::not_found(format!("there is no rule {id}")).with_remedy("see 'polyshard rule list'");
        let rule = id.parse().map_err(|_| missing())?;
        self.catalog.remove_rule(rule).await.map_err(|error| match error {
            polyshard_catalog::CatalogError::NoSuchOperation(_) => missing(),
            error => problem::of_catalog(&error),
        })
    }
}

fn rule_view(id: String, map: MapName, rule: &Rule, definition: &MapDefinition) -> RuleView {
    let view = |range: &KeyRange| range_view(definition, range);
    let shown = match rule {
        Rule::Region { range, region } => NewRule::Region { range: view(range), region: region.clone() },
        Rule::Tier { range, tier } => NewRule::Tier { range: view(range), tier: tier.clone() },
        Rule::Apart { ranges } => NewRule::Apart { ranges: ranges.iter().map(view).collect() },
        Rule::Alone { range } => NewRule::Alone { range: view(range) },
    };
    RuleView { id, map, says: rule.describe(Some(definition)), rule: shown }
}

//! Rules by which old ranges are archived, dropped or moved on a schedule, as operators record them and as they are
//! carried out.

use std::collections::VecDeque;

use polyshard_admin::convert::range_view;
use polyshard_admin::types::{ArchiveRuleView, ArchiveThen, NewArchiveRule};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::{CatalogError, Policy};
use polyshard_map::{Entry, KeyRange, MapName, ShardId};
use polyshard_rebalance::aging::{self, Age, Every, Old, Period};
use polyshard_rebalance::measure;
use polyshard_rebalance::{Procedure, Task};

use super::archive::{ArchiveDoor, PARTS_MAX, Wanted, of_backup};
use super::moves::of_move;
use super::now_ms;
use crate::problem;

/// The kind of these policies.
pub(super) const POLICY: &str = "archive";
/// Ranges that are looked at in one go: each is counted.
const LOOKED_AT_MAX: usize = 10 * PARTS_MAX;

/// A rule whose words were read.
struct Read {
    age: Age,
    by: Period,
    every: Every,
    at_minutes: i64,
}

fn read(rule: &NewArchiveRule) -> Result<Read, Problem> {
    let invalid = |field: &'static str| move |why: String| Problem::invalid(field, why);
    Ok(Read {
        age: rule.older_than.parse().map_err(invalid("older_than"))?,
        by: rule.by.parse().map_err(invalid("by"))?,
        every: rule.every.parse().map_err(invalid("every"))?,
        at_minutes: rule.at.as_deref().map_or(Ok(0), aging::minutes).map_err(invalid("at"))?,
    })
}

fn fail(error: CatalogError) -> Problem {
    problem::of_catalog(&error)
}

fn stored(policy: &Policy) -> Result<NewArchiveRule, Problem> {
    serde_json::from_value(policy.body.clone()).map_err(|error| {
        Problem::new(ErrorCode::Internal, format!("rule {} cannot be read: {error}", policy.id))
    })
}

/// The first so many together, as far as they are on one shard and one after the other; how many they are.
fn first_of(left: &VecDeque<(Old, ShardId)>, step: usize) -> Option<(KeyRange, ShardId, usize)> {
    let (first, shard) = left.front()?;
    let (mut range, mut together) = (first.range.clone(), 1);
    for (next, of) in left.iter().take(step).skip(1) {
        if of != shard || range.hi() != Some(next.range.lo()) {
            break;
        }
        range = KeyRange::new(range.lo().clone(), next.range.hi().cloned()).ok()?;
        together += 1;
    }
    Some((range, shard.clone(), together))
}

impl ArchiveDoor {
    pub(super) async fn rule_views(&self) -> Result<Vec<ArchiveRuleView>, Problem> {
        self.operations.see().await?;
        let mut views = Vec::new();
        for policy in self.operations.catalog.policies(POLICY).await.map_err(fail)? {
            // A map that is gone has left its rules behind; they mean nothing.
            if self.operations.router.view().maps.contains_key(&policy.map) {
                views.push(self.rule_view(&policy).await?);
            }
        }
        Ok(views)
    }

    async fn rule_view(&self, policy: &Policy) -> Result<ArchiveRuleView, Problem> {
        let rule = stored(policy)?;
        let known = self.operations.known(&policy.map).await?;
        let definition = known.map.definition();
        let (old, _) = self.old(&policy.map, &rule).await?;
        Ok(ArchiveRuleView {
            id: policy.id.to_string(),
            map: policy.map.clone(),
            rule,
            last_ms: (policy.last_ms > 0).then_some(policy.last_ms),
            due: old.iter().map(|old| range_view(definition, &old.range)).collect(),
        })
    }

    pub(super) async fn add_rule(
        &self,
        map: MapName,
        rule: NewArchiveRule,
    ) -> Result<ArchiveRuleView, Problem> {
        read(&rule)?;
        let known = self.operations.known(&map).await?;
        if !aging::is_by_time(known.map.definition()) {
            let message = format!("map {map} is no range map whose keys begin with a date or timestamp");
            return Err(Problem::new(ErrorCode::Unsupported, message)
                .with_remedy("archive its ranges by hand: polyshard archive run"));
        }
        match &rule.then {
            ArchiveThen::Archive { to } => drop(self.keeper.location(to, "name").map_err(of_backup)?),
            ArchiveThen::Tier { tier } => drop(self.of_tier(tier).await?),
            ArchiveThen::Drop => {}
        }
        let body = serde_json::to_value(&rule).expect("a rule has string keys only and always serialises");
        let id = self.operations.catalog.add_policy(&map, POLICY, &body).await.map_err(fail)?;
        let policies = self.operations.catalog.policies(POLICY).await.map_err(fail)?;
        let policy = policies.into_iter().find(|policy| policy.id == id);
        let policy = policy.ok_or_else(|| Problem::not_found("the rule was removed meanwhile"))?;
        tracing::info!(rule = %id, %map, "a rule of archiving was recorded");
        self.wake.notify_one();
        self.rule_view(&policy).await
    }

    pub(super) async fn remove_rule(&self, id: String) -> Result<(), Problem> {
        let missing = || {
            Problem::not_found(format!("there is no rule {id}"))
                .with_remedy("see 'polyshard archive rule list'")
        };
        let rule = id.parse().map_err(|_| missing())?;
        self.operations.catalog.remove_policy(rule, POLICY).await.map_err(|error| match error {
            CatalogError::NoSuchOperation(_) => missing(),
            error => fail(error),
        })
    }

    /// The ranges that are old enough now and hold rows, and whether all that could be were looked at.
    async fn old(&self, map: &MapName, rule: &NewArchiveRule) -> Result<(Vec<Old>, bool), Problem> {
        let asked = read(rule)?;
        let known = self.operations.known(map).await?;
        let definition = known.map.definition();
        let entries: Vec<Entry> = known.map.entries(&KeyRange::all()).collect();
        let cutoff = aging::cutoff(now_ms(), asked.age, asked.by);
        let tier = match &rule.then {
            ArchiveThen::Tier { tier } => self.of_tier(tier).await?,
            _ => Vec::new(),
        };
        let all = aging::old_ranges(definition, &entries, cutoff, asked.by, now_ms()).into_iter();
        let on_shards = all.filter_map(|one| {
            let shard = known.map.entries(&one.range).next()?.shard;
            (!tier.contains(&shard)).then_some((one, shard))
        });
        let mut left: VecDeque<(Old, ShardId)> = on_shards.collect();
        let (mut old, mut step) = (Vec::new(), 1);
        for _ in 0..LOOKED_AT_MAX {
            let Some((range, shard, together)) = first_of(&left, step) else { break };
            let weighed = self.operations.mover.weigh(definition, &range, &shard).await;
            match (weighed.map_err(|error| of_move(&error))? > 0, together) {
                // Long before the first rows there may be many that are empty: always more of them at once.
                (false, _) => {
                    left.drain(..together);
                    step = together * 2;
                }
                (true, 1) => {
                    old.extend(left.pop_front().map(|(one, _)| one));
                    step = 1;
                }
                (true, _) => step = together / 2,
            }
            if old.len() == PARTS_MAX {
                break;
            }
        }
        let is_all = left.is_empty();
        Ok((old, is_all))
    }

    /// The shards of a tier that take something.
    async fn of_tier(&self, tier: &str) -> Result<Vec<ShardId>, Problem> {
        let shards = self.operations.catalog.shards().await.map_err(fail)?;
        let of_tier = shards.into_iter().filter(|shard| shard.tier.as_deref() == Some(tier));
        let found: Vec<ShardId> = of_tier.map(|shard| shard.id).collect();
        if found.is_empty() {
            return Err(Problem::not_found(format!("there is no shard of tier {tier}"))
                .with_remedy(format!("give one that tier: polyshard shard set ID --tier {tier}")));
        }
        Ok(found)
    }

    /// Carries out the rules that are due, each in one process of the cluster.
    pub(crate) async fn carry_out_rules(&self) {
        let policies = match self.operations.catalog.policies(POLICY).await {
            Ok(policies) => policies,
            Err(error) => {
                tracing::debug!(%error, "rules of archiving cannot be looked at just now");
                return;
            }
        };
        for policy in policies {
            if let Err(problem) = self.carry_out(&policy).await {
                let (rule, map) = (&policy.id, &policy.map);
                tracing::warn!(%rule, %map, %problem, "a rule was not carried out; it is tried again");
            }
        }
    }

    async fn carry_out(&self, policy: &Policy) -> Result<(), Problem> {
        let (catalog, rule) = (&self.operations.catalog, stored(policy)?);
        let asked = read(&rule)?;
        let since = aging::due_since(now_ms(), asked.every, asked.at_minutes);
        if policy.last_ms >= since || !self.is_quiet() || self.operations.known(&policy.map).await.is_err() {
            return Ok(());
        }
        if !catalog.claim_policy(policy.id, since).await.map_err(fail)? {
            return Ok(());
        }
        let begun = self.begin_rule(policy, &rule).await;
        if begun.is_err() {
            // Another try comes soon, by whoever looks first.
            catalog.release_policy(policy.id, policy.last_ms).await.map_err(fail)?;
        }
        begun
    }

    async fn begin_rule(&self, policy: &Policy, rule: &NewArchiveRule) -> Result<(), Problem> {
        let map = &policy.map;
        self.operations.see().await?;
        let (old, is_all) = self.old(map, rule).await?;
        if old.is_empty() && !is_all {
            let message = format!("the first {LOOKED_AT_MAX} old parts of map {map} have no rows");
            return Err(Problem::new(ErrorCode::Conflict, message)
                .with_remedy("remove ranges that hold nothing from the map: polyshard map remove"));
        }
        if old.is_empty() {
            return Ok(());
        }
        let place = match &rule.then {
            ArchiveThen::Archive { to } => Some(to.clone()),
            ArchiveThen::Drop => None,
            ArchiveThen::Tier { tier } => return self.begin_moves(map, &old, tier).await,
        };
        let ranges = self.named(map, old).await?;
        let without = rule.without_columns.clone();
        let wanted = Wanted { ranges, place, without, csv: false, dry_run: false };
        let answer = self.archive_ranges(map, wanted).await?;
        tracing::info!(rule = %policy.id, %map, ranges = answer.parts.len(), procedure = answer.procedure,
            "old ranges are archived");
        Ok(())
    }

    /// Names that no archive has.
    async fn named(&self, map: &MapName, old: Vec<Old>) -> Result<Vec<(KeyRange, String)>, Problem> {
        let known = self.operations.catalog.archives().await.map_err(fail)?;
        let mut taken: Vec<String> = known.into_iter().map(|record| record.name).collect();
        let mut named = Vec::with_capacity(old.len());
        for one in old {
            let base = format!("{map}-{}", one.label);
            let mut names =
                std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}")));
            let name = names.find(|name| !taken.contains(name)).unwrap_or(base);
            taken.push(name.clone());
            named.push((one.range, name));
        }
        Ok(named)
    }

    async fn begin_moves(&self, map: &MapName, old: &[Old], tier: &str) -> Result<(), Problem> {
        let shards = self.operations.catalog.shards().await.map_err(fail)?;
        let of_tier: Vec<_> =
            shards.into_iter().filter(|shard| shard.tier.as_deref() == Some(tier)).collect();
        let mut places = measure::places(&self.operations.router, &of_tier).await;
        places.retain(|place| place.takes && place.room() != Some(0));
        places.sort_by_key(|place| place.bytes);
        let emptiest = places.first().ok_or_else(|| {
            Problem::new(ErrorCode::Unavailable, format!("no shard of tier {tier} is online and has room"))
        })?;
        let carry = |one: &Old| Task::Move {
            map: map.clone(),
            range: one.range.clone(),
            to: emptiest.shard.clone(),
            keep_ms: 0,
            arrives: None,
            operation: None,
            why: Some(format!("{} is old, and goes to tier {tier}", one.label)),
        };
        let procedure = Procedure::new(old.iter().map(carry).collect());
        let begun = self.operations.procedures.begin("move old", Some(map), procedure).await.map_err(fail)?;
        tracing::info!(%map, tier, to = %emptiest.shard, procedure = %begun.id, "old ranges are moved");
        Ok(())
    }
}

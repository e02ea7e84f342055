//! Rules by which old ranges are archived, dropped or moved on a schedule, as operators record them and as they are
//! carried out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use polyshard_admin::convert::range_view;
use polyshard_admin::types::{
    ArchiveAnswer, ArchivePart, ArchiveRuleView, ArchiveThen, NewArchiveRule, RunArchiveRule,
};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::{CatalogError, Policy};
use polyshard_map::{Entry, KeyRange, MapName, ShardId};
use polyshard_planner::aging::{self, Age, Every, Old, Period};
use polyshard_planner::measure;
use polyshard_workflow::{Procedure, Task};

use super::archive::{ArchiveDoor, PARTS_MAX, Wanted, of_backup};
use super::moves::of_move;
use super::now_ms;
use crate::problem;

/// The kind of these policies.
pub(crate) const POLICY: &str = "archive";
/// Letters of a rule's id that are enough to name it.
const ID_LETTERS_MIN: usize = 4;
/// Ranges that are looked at in one go: each is counted.
const LOOKED_AT_MAX: usize = 10 * PARTS_MAX;

/// How often rules could not be begun in this process, and why when it was last tried.
#[derive(Default)]
pub(crate) struct RuleFailures(Mutex<BTreeMap<String, (u64, Option<String>)>>);

impl RuleFailures {
    /// How often each rule could not be begun.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(rule, (count, _))| (rule.clone(), *count)).collect()
    }

    fn why(&self, rule: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(rule)?.1.clone()
    }

    fn note(&self, rule: String, outcome: Result<(), &Problem>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry(rule).or_default();
        // Whoever waits for another operation has not failed.
        of.0 += u64::from(outcome.is_err_and(|problem| problem.code != ErrorCode::Busy));
        of.1 = outcome.err().map(ToString::to_string);
    }
}

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
        let (asked, now) = (read(&rule)?, now_ms());
        let since = aging::due_since(now, asked.every, asked.at_minutes);
        let next_ms = match policy.last_ms < since {
            true => since,
            false => aging::due_next(now, asked.every, asked.at_minutes),
        };
        let id = policy.id.to_string();
        Ok(ArchiveRuleView {
            failed: self.operations.rule_failures.why(&id),
            next_ms,
            id,
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

    /// The rule of an id, or of the beginning of one.
    async fn rule_called(&self, id: &str) -> Result<Policy, Problem> {
        let mut policies = self.operations.catalog.policies(POLICY).await.map_err(fail)?;
        let is_long = id.len() >= ID_LETTERS_MIN;
        policies.retain(|policy| is_long && policy.id.to_string().starts_with(&id.to_lowercase()));
        let see = "see 'polyshard archive rule list'";
        match (policies.pop(), policies.is_empty()) {
            (Some(policy), true) => Ok(policy),
            (Some(_), false) => Err(Problem::invalid("id", format!("several rules begin with {id}"))
                .with_remedy("write more of it")),
            (None, _) => Err(Problem::not_found(format!("there is no rule {id}")).with_remedy(see)),
        }
    }

    pub(super) async fn remove_rule(&self, id: String) -> Result<(), Problem> {
        let rule = self.rule_called(&id).await?.id;
        self.operations.catalog.remove_policy(rule, POLICY).await.map_err(|error| match error {
            CatalogError::NoSuchOperation(_) => Problem::not_found(format!("rule {id} is gone")),
            error => fail(error),
        })
    }

    /// Carries a rule out now, at whatever hour, or says what it would do.
    pub(super) async fn run_rule(&self, id: String, asked: RunArchiveRule) -> Result<ArchiveAnswer, Problem> {
        let policy = self.rule_called(&id).await?;
        let rule = stored(&policy)?;
        if asked.dry_run {
            return self.take_old(&policy, &rule, true).await;
        }
        if !self.operations.catalog.claim_policy(policy.id, now_ms()).await.map_err(fail)? {
            return Err(Problem::new(
                ErrorCode::Busy,
                format!("rule {id} was taken up by somebody just now"),
            )
            .with_remedy("see 'polyshard ops list'"));
        }
        self.begin_claimed(&policy, &rule).await
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
        self.begin_claimed(policy, &rule).await.map(drop)
    }

    /// Carries out a rule that this process has claimed; if it cannot, another may.
    async fn begin_claimed(&self, policy: &Policy, rule: &NewArchiveRule) -> Result<ArchiveAnswer, Problem> {
        let begun = self.take_old(policy, rule, false).await;
        self.operations.rule_failures.note(policy.id.to_string(), begun.as_ref().map(|_| ()));
        match &begun {
            Ok(answer) if answer.procedure.is_some() => {
                let (rule, map, ranges) = (&policy.id, &policy.map, answer.parts.len());
                tracing::info!(%rule, %map, ranges, procedure = answer.procedure, "a rule is carried out");
            }
            Ok(_) => {}
            Err(_) => {
                // Another try comes soon, by whoever looks first.
                let released = self.operations.catalog.release_policy(policy.id, policy.last_ms).await;
                released.map_err(fail)?;
            }
        }
        begun
    }

    /// Begins to archive, drop or move what is old enough for a rule, or says what that would be.
    async fn take_old(
        &self,
        policy: &Policy,
        rule: &NewArchiveRule,
        dry_run: bool,
    ) -> Result<ArchiveAnswer, Problem> {
        let map = &policy.map;
        self.operations.see().await?;
        let (old, is_all) = self.old(map, rule).await?;
        let asked = read(rule)?;
        let until = aging::day_text(aging::cutoff(now_ms(), asked.age, asked.by));
        if old.is_empty() && !is_all {
            let message = format!("the first {LOOKED_AT_MAX} old parts of map {map} have no rows");
            return Err(Problem::new(ErrorCode::Conflict, message)
                .with_remedy("remove ranges that hold nothing from the map: polyshard map remove"));
        }
        if old.is_empty() {
            let says = format!("nothing of map {map} from before {until} is online and holds rows");
            return Ok(ArchiveAnswer { map: map.clone(), parts: vec![], steps: vec![says], procedure: None });
        }
        let mut answer = match &rule.then {
            ArchiveThen::Tier { tier } => self.move_old(map, &old, tier, dry_run).await?,
            ArchiveThen::Archive { .. } | ArchiveThen::Drop => {
                let place = match &rule.then {
                    ArchiveThen::Archive { to } => Some(to.clone()),
                    _ => None,
                };
                let (ranges, without) = (self.named(map, old).await?, rule.without_columns.clone());
                self.archive_ranges(map, Wanted { ranges, place, without, csv: false, dry_run }).await?
            }
        };
        for part in &mut answer.parts {
            part.why = Some(format!("it ended before {until}: older than {}", rule.older_than));
        }
        Ok(answer)
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

    /// Begins to move old ranges to the emptiest shard of a tier, or says what that would be.
    async fn move_old(
        &self,
        map: &MapName,
        old: &[Old],
        tier: &str,
        dry_run: bool,
    ) -> Result<ArchiveAnswer, Problem> {
        let shards = self.operations.catalog.shards().await.map_err(fail)?;
        let of_tier: Vec<_> =
            shards.into_iter().filter(|shard| shard.tier.as_deref() == Some(tier)).collect();
        let mut places = measure::places(&self.operations.router, &of_tier).await;
        places.retain(|place| place.takes && place.room() != Some(0));
        places.sort_by_key(|place| place.bytes);
        let to = places.first().map(|place| place.shard.clone()).ok_or_else(|| {
            Problem::new(ErrorCode::Unavailable, format!("no shard of tier {tier} is online and has room"))
        })?;
        let known = self.operations.known(map).await?;
        let definition = known.map.definition();
        let mut answer = ArchiveAnswer { map: map.clone(), parts: vec![], steps: vec![], procedure: None };
        for one in old {
            let Some(entry) = known.map.entries(&one.range).next() else { continue };
            let weight = match dry_run {
                true => Some(self.weigh(definition, &one.range, &entry.shard).await?),
                false => None,
            };
            let says = definition.describe_range(&one.range);
            answer.steps.push(format!("move {says} from {} to {to}, while requests go on", entry.shard));
            answer.parts.push(ArchivePart {
                name: format!("{map}-{}", one.label),
                range: range_view(definition, &one.range),
                shard: entry.shard,
                rows: weight.map(|weight| weight.rows),
                bytes: weight.map(|weight| weight.bytes),
                why: None,
            });
        }
        if dry_run {
            return Ok(answer);
        }
        let carry = |one: &Old| Task::Move {
            map: map.clone(),
            range: one.range.clone(),
            to: to.clone(),
            keep_ms: 0,
            arrives: None,
            operation: None,
            why: Some(format!("{} is old, and goes to tier {tier}", one.label)),
        };
        let procedure = Procedure::new(old.iter().map(carry).collect());
        let begun = self.operations.procedures.begin("move old", Some(map), procedure).await.map_err(fail)?;
        answer.procedure = Some(begun.id.to_string());
        Ok(answer)
    }
}

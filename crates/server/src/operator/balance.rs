//! What operators ask about load: plans, isolation, rules.

use std::collections::{BTreeMap, BTreeSet};

use polyshard_admin::convert::range_view;
use polyshard_admin::types::{
    AdoptAnswer, AdoptRequest, BalanceAnswer, BalanceBy, BalanceRequest, IsolateRequest, MoveAnswer, NewRule,
    PlannedMove, RuleView, ShardLoad,
};
use polyshard_admin::{Answer, Balancer, ErrorCode, Problem};
use polyshard_catalog::{OpState, ProcedureRecord};
use polyshard_map::{KeyRange, MapName, ShardId, State};
use polyshard_planner::Rule;
use polyshard_planner::measure::{self, Measured};
use polyshard_planner::plan::{Aim, By, Place, Plan, Situation};
use polyshard_router::view::KnownMap;
use polyshard_workflow::procedure::TASKS_MAX;
use polyshard_workflow::{Procedure, Task};

use super::moves::{moved_range, steps};
use super::{Operations, now_ms};
use crate::problem;

/// How far a shard may be above the mean unless the operator says otherwise.
pub(super) const SLACK_PERCENT: u64 = 10;

/// How long a shard that was emptied gets nothing from others that are: a day of moving out.
const EMPTIED_FOR_MS: i64 = 24 * 3_600 * 1_000;
/// Procedures looked at for that.
const PROCEDURES_LOOKED_AT: u32 = 100;

/// How a plan is made beside what is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    /// Moves made in one go.
    pub(crate) moves_max: usize,
    /// How far a shard may be above the mean afterwards, if that is less than before.
    pub(crate) goal_percent: Option<u64>,
    /// Fewer requests a second are noise.
    pub(crate) requests_min: u64,
    /// Fewer requests counted so far say nothing yet.
    pub(crate) counted_min: u64,
    /// Fewer bytes are not worth a move.
    pub(crate) bytes_min: u64,
    /// What is not to be moved again yet.
    pub(crate) resting: Vec<KeyRange>,
    /// Shards that are not to be filled yet.
    pub(crate) spared: Vec<ShardId>,
}

impl Default for Manner {
    /// As an operator asks: everything that there is to do.
    fn default() -> Manner {
        Manner {
            moves_max: TASKS_MAX,
            goal_percent: None,
            requests_min: 0,
            counted_min: 0,
            bytes_min: 0,
            resting: Vec::new(),
            spared: Vec::new(),
        }
    }
}

/// What was measured and what should be done.
struct Planned {
    measured: Measured,
    places: Vec<Place>,
    plan: Plan,
}

impl Operations {
    pub(super) async fn plan_balance(
        &self,
        name: MapName,
        asked: BalanceRequest,
    ) -> Result<BalanceAnswer, Problem> {
        let known = self.known(&name).await?;
        let planned = self.planned(&known, &asked, &Manner::default()).await?;
        Ok(BalanceAnswer { by_itself: self.by_itself.get(), ..shown(&known, planned) })
    }

    /// Measures a map, and plans what would even it out or empty a shard.
    async fn planned(
        &self,
        known: &KnownMap,
        asked: &BalanceRequest,
        manner: &Manner,
    ) -> Result<Planned, Problem> {
        let rules = self.rules_of(known).await?;
        let records = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let heat = self.heat.get().map(|heat| heat()).unwrap_or_default();
        let measured = measure::pieces(&self.router, &known.map, &heat, &rules).await;
        let measured = measured.map_err(|error| {
            Problem::unavailable(error.to_string()).with_remedy("bring the shard back, then plan again")
        })?;
        let mut places = measure::places(&self.router, &records).await;
        self.keep_for_others(known.map.definition().name(), &mut places).await?;
        if let Some(drained) = &asked.drain {
            self.catalog.shard(drained).await.map_err(|error| problem::of_catalog(&error))?;
            places.iter_mut().filter(|place| place.shard == *drained).for_each(|place| place.takes = false);
            let emptied = self.emptied().await?;
            let is_left = |place: &Place| place.takes && !emptied.contains(&place.shard);
            // Unless there is no other place at all.
            if places.iter().any(is_left) {
                places.iter_mut().for_each(|place| place.takes = is_left(place));
            }
        }
        places
            .iter_mut()
            .filter(|place| manner.spared.contains(&place.shard))
            .for_each(|place| place.takes = false);
        let by = match asked.by.unwrap_or_default() {
            BalanceBy::Load => By::Load,
            BalanceBy::Requests => By::Requests,
            BalanceBy::Bytes => By::Bytes,
            BalanceBy::Rows => By::Rows,
        };
        let slack_percent = asked.slack.unwrap_or(SLACK_PERCENT);
        let aim = Aim {
            goal_percent: manner.goal_percent.unwrap_or(slack_percent),
            requests_min: if heat.counted < manner.counted_min { u64::MAX } else { manner.requests_min },
            bytes_min: manner.bytes_min,
            ..Aim::new(by, slack_percent)
        };
        let definition = Some(known.map.definition());
        let resting = &manner.resting;
        let situation =
            Situation { pieces: &measured.pieces, places: &places, rules: &rules, resting, definition };
        let plan = match &asked.drain {
            Some(drained) => situation.drain(drained, aim),
            None => situation.even_out(aim),
        };
        Ok(Planned { measured, places, plan })
    }

    /// Shards that are being emptied, or were lately and have nothing since: whoever empties one after the other is
    /// about to take them out.
    async fn emptied(&self) -> Result<BTreeSet<ShardId>, Problem> {
        let latest = self.catalog.procedures(PROCEDURES_LOOKED_AT).await;
        let latest = latest.map_err(|error| problem::of_catalog(&error))?;
        let (ranges, since) = (self.ranges_by_shard(), now_ms() - EMPTIED_FOR_MS);
        let emptied = |one: &ProcedureRecord| {
            let shard = Procedure::read(&one.body).ok()?.drains().cloned()?;
            let is_empty = ranges.get(&shard).copied().unwrap_or(0) == 0;
            match one.state {
                OpState::Running => Some(shard),
                OpState::Done if is_empty && one.ended_ms >= since => Some(shard),
                OpState::Done | OpState::RolledBack => None,
            }
        };
        Ok(latest.iter().filter_map(emptied).collect())
    }

    /// The names of all maps.
    pub(crate) fn map_names(&self) -> Vec<MapName> {
        self.router.view().maps.keys().cloned().collect()
    }

    /// Plans, and begins the procedure that makes the moves.
    pub(super) async fn apply_balance(
        &self,
        name: MapName,
        asked: BalanceRequest,
    ) -> Result<BalanceAnswer, Problem> {
        self.apply_so(name, asked, &Manner::default()).await
    }

    /// Likewise, in this manner.
    pub(crate) async fn apply_so(
        &self,
        name: MapName,
        asked: BalanceRequest,
        manner: &Manner,
    ) -> Result<BalanceAnswer, Problem> {
        let known = self.known(&name).await?;
        let mut planned = self.planned(&known, &asked, manner).await?;
        let plan = &mut planned.plan;
        if asked.drain.is_some() && !plan.notes.is_empty() {
            return Err(Problem::new(ErrorCode::Conflict, plan.notes.join("; "))
                .with_remedy("make room for it elsewhere, or change the rule or limit, then drain again"));
        }
        let most = manner.moves_max.min(TASKS_MAX);
        let left = plan.moves.len().saturating_sub(most);
        if left > 0 {
            plan.moves.truncate(most);
            plan.notes.push(format!("{left} more moves are left for the next time"));
        }
        let carry = |planned: &polyshard_planner::plan::Planned| Task::Move {
            map: name.clone(),
            range: planned.range.clone(),
            to: planned.to.clone(),
            keep_ms: 0,
            arrives: None,
            operation: None,
            why: Some(planned.why.clone()),
        };
        let tasks: Vec<Task> = plan.moves.iter().map(carry).collect();
        let mut answer = shown(&known, planned);
        if !tasks.is_empty() {
            let kind = if asked.drain.is_some() { "drain" } else { "rebalance" };
            let procedure = Procedure::new(tasks).draining(asked.drain.clone());
            let begun = self.procedures.begin(kind, Some(&name), procedure).await;
            answer.procedure = Some(begun.map_err(|error| problem::of_catalog(&error))?.id.to_string());
        }
        Ok(answer)
    }

    async fn isolate_keys(&self, name: MapName, asked: IsolateRequest) -> Result<MoveAnswer, Problem> {
        let known = self.known(&name).await?;
        let definition = known.map.definition();
        let range = moved_range(definition, &asked.range)?;
        let from = known.map.entries(&range).next().map(|entry| entry.shard).ok_or_else(|| {
            Problem::not_found(format!("nothing of map {name} is mapped there"))
                .with_remedy("see 'polyshard map show'")
        })?;
        let mut tasks = Vec::new();
        let mut undo = Vec::new();
        let mut answer = MoveAnswer { map: name.clone(), parts: vec![], steps: vec![], procedure: None };
        let to = match &asked.to {
            Some(to) => {
                self.require_shard(to).await?;
                self.require_to_itself(&name, to, &range)?;
                to.clone()
            }
            None => match self.empty_shard_like(&from).await? {
                Some(to) => to,
                None => {
                    let (made, task) = self.new_shard_like(&from).await?;
                    answer.steps.push(task.describe(None));
                    tasks.push(task);
                    undo.push(Task::RemoveShard { shard: made.clone() });
                    made
                }
            },
        };
        if tasks.is_empty() {
            let parts = self.look_at(&known, &range, &to).await?;
            answer.steps.extend(steps(&parts, None, asked.keep_ms));
            answer.parts = parts.into_iter().map(|(_, part)| part).collect();
        } else {
            answer.steps.push(format!("move {} from {from} to {to}", definition.describe_range(&range)));
        }
        let rule = Rule::Alone { range: range.clone() };
        answer.steps.push(format!("record the rule: {}", rule.describe(Some(definition))));
        tasks.push(Task::Move {
            map: name.clone(),
            range,
            to,
            keep_ms: asked.keep_ms,
            arrives: None,
            operation: None,
            why: Some("a shard of its own".to_owned()),
        });
        tasks.push(Task::AddRule { map: name.clone(), rule });
        if !asked.dry_run {
            let procedure = Procedure::new(tasks).or_else(undo);
            let begun = self.procedures.begin("isolate", Some(&name), procedure).await;
            answer.procedure = Some(begun.map_err(|error| problem::of_catalog(&error))?.id.to_string());
        }
        Ok(answer)
    }

    /// Refuses a shard that has something else.
    fn require_to_itself(&self, name: &MapName, to: &ShardId, range: &KeyRange) -> Result<(), Problem> {
        let (view, all) = (self.router.view(), KeyRange::all());
        for (other, known) in &view.maps {
            let own = |entry: &KeyRange| other == name && range.covers(entry);
            let mut entries = known.map.located(&all);
            if let Some(found) = entries.find(|found| found.shard() == to && !own(&found.range())) {
                let what = known.map.definition().describe_range(&found.range());
                return Err(Problem::new(
                    ErrorCode::Conflict,
                    format!("shard {to} has {what} of map {other}"),
                )
                .with_remedy("name an empty shard, or leave --to out"));
            }
        }
        Ok(())
    }

    /// An online shard without any entry, in the same region and tier.
    async fn empty_shard_like(&self, from: &ShardId) -> Result<Option<ShardId>, Problem> {
        let records = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let ranges = self.ranges_by_shard();
        let Some(like) = records.iter().find(|record| record.id == *from) else { return Ok(None) };
        let fits = |record: &&polyshard_catalog::ShardRecord| {
            record.state == State::Online
                && ranges.get(&record.id).copied().unwrap_or(0) == 0
                && (&record.region, &record.tier) == (&like.region, &like.tier)
        };
        Ok(records.iter().find(fits).map(|record| record.id.clone()))
    }

    /// An embedded shard beside the others, which is only a file.
    async fn new_shard_like(&self, from: &ShardId) -> Result<(ShardId, Task), Problem> {
        let like = self.catalog.shard(from).await.map_err(|error| problem::of_catalog(&error))?;
        if self.has_peers() || !like.url.starts_with("sqlite:") {
            return Err(Problem::new(ErrorCode::Conflict, "there is no empty shard to give")
                .with_remedy("add one with 'polyshard shard add', then name it with --to"));
        }
        let records = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let taken = |id: &str| records.iter().any(|record| record.id.as_str() == id);
        let mut names = (1..=records.len() + 1).map(|number| format!("s{number}"));
        let name = names.find(|name| !taken(name)).expect("there are more names than shards");
        let shard: ShardId = name.parse().map_err(|error: polyshard_map::NameError| {
            Problem::new(ErrorCode::Internal, error.to_string())
        })?;
        let url = format!("sqlite:shards/{shard}.db");
        let task = Task::AddShard { shard: shard.clone(), url, region: like.region, tier: like.tier };
        Ok((shard, task))
    }
}

fn shown(known: &KnownMap, planned: Planned) -> BalanceAnswer {
    let definition = known.map.definition();
    let Planned { measured, places, plan } = planned;
    let mut loads: BTreeMap<ShardId, ShardLoad> = BTreeMap::new();
    let mut load = |shard: &ShardId, change: &dyn Fn(&mut ShardLoad)| {
        let of = loads.entry(shard.clone()).or_insert_with(|| ShardLoad {
            shard: shard.clone(),
            rows: 0,
            rows_after: 0,
            bytes: 0,
            bytes_after: 0,
            requests_per_s: 0.0,
            requests_per_s_after: 0.0,
            room_bytes: places.iter().find(|place| place.shard == *shard).and_then(Place::room),
        });
        change(of);
    };
    // Who looks for the shard that he has just added sees that it has nothing yet.
    places.iter().filter(|place| place.takes).for_each(|place| load(&place.shard, &|_| {}));
    for piece in &measured.pieces {
        load(&piece.shard, &|of| {
            (of.rows, of.rows_after) = (of.rows + piece.rows, of.rows_after + piece.rows);
            (of.bytes, of.bytes_after) = (of.bytes + piece.bytes, of.bytes_after + piece.bytes);
            of.requests_per_s += piece.requests;
            of.requests_per_s_after += piece.requests;
        });
    }
    for planned in &plan.moves {
        load(&planned.from, &|of| {
            of.rows_after -= planned.rows;
            of.bytes_after -= planned.bytes;
            of.requests_per_s_after -= planned.requests;
        });
        load(&planned.to, &|of| {
            of.rows_after += planned.rows;
            of.bytes_after += planned.bytes;
            of.requests_per_s_after += planned.requests;
        });
    }
    let rounded = |rate: f64| (rate * 100.0).round() / 100.0;
    let mut shards: Vec<ShardLoad> = loads.into_values().collect();
    for of in &mut shards {
        of.requests_per_s = rounded(of.requests_per_s);
        of.requests_per_s_after = rounded(of.requests_per_s_after).max(0.0);
    }
    BalanceAnswer {
        map: definition.name().clone(),
        shards,
        moves: plan
            .moves
            .into_iter()
            .map(|planned| PlannedMove {
                range: range_view(definition, &planned.range),
                from: planned.from,
                to: planned.to,
                rows: planned.rows,
                bytes: planned.bytes,
                requests_per_s: rounded(planned.requests),
                why: planned.why,
            })
            .collect(),
        notes: plan.notes,
        estimated: measured.estimated,
        by_itself: None,
        procedure: None,
    }
}

impl Balancer for Operations {
    fn isolate(&self, map: MapName, request: IsolateRequest) -> Answer<'_, MoveAnswer> {
        Box::pin(self.isolate_keys(map, request))
    }
    fn apply(&self, map: MapName, request: BalanceRequest) -> Answer<'_, BalanceAnswer> {
        Box::pin(self.apply_balance(map, request))
    }
    fn adopt(&self, request: AdoptRequest) -> Answer<'_, AdoptAnswer> {
        Box::pin(self.adopt_database(request))
    }
    fn rules(&self) -> Answer<'_, Vec<RuleView>> {
        Box::pin(self.rule_views())
    }
    fn add_rule(&self, map: MapName, rule: NewRule) -> Answer<'_, RuleView> {
        Box::pin(self.record_rule(map, rule))
    }
    fn remove_rule(&self, id: String) -> Answer<'_, ()> {
        Box::pin(self.forget_rule(id))
    }
}

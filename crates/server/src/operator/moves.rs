//! What operators ask about moves.

use polyshard_admin::convert::{range_view, read_range};
use polyshard_admin::types::{
    Meanwhile, MisplacedRows, MoveAnswer, MoveLoad, MovePart, MoveRequest as Asked, MoveWish, OperationView,
    ProgressView, RangeView, RowsCheckAnswer, Unreachable,
};
use polyshard_admin::{Basis, ErrorCode, Problem};
use polyshard_catalog::{CatalogError, MoveRequest, OpRecord, OpState, Wish};
use polyshard_map::{Entry, KeyRange, Map, MapDefinition, MapName, ShardId, State};
use polyshard_mover::{BUSY_SHARE_MIN, Load, MoveError};
use polyshard_router::view::KnownMap;
use polyshard_shard::OpId;
use polyshard_workflow::stretch::{Stretch, stretches};
use polyshard_workflow::{Procedure, Task};

use super::schema::of_journal;
use super::{Operations, version, views};
use crate::problem;

/// Parts of a move that are made at once. Each watches the same tables, so that more of them hinder each other and are
/// made one after the other.
const PARTS_AT_ONCE: usize = 4;

/// Ranges of an operation that are shown; one that takes a group along may have thousands.
const RANGES_SHOWN: usize = 20;

impl Operations {
    pub(super) async fn begin_move(
        &self,
        name: MapName,
        asked: Asked,
        basis: Basis,
    ) -> Result<MoveAnswer, Problem> {
        let known = self.known(&name).await?;
        let definition = known.map.definition().clone();
        let range = moved_range(&definition, &asked.range)?;
        self.require_shard(&asked.to).await?;
        let mut parts = self.look_at(&known, &range, &asked.to).await?;
        let steps = steps(&parts, asked.meanwhile, asked.keep_ms);
        let mut answer = MoveAnswer { map: name.clone(), parts: Vec::new(), steps, procedure: None };
        if let Some(meanwhile) = asked.meanwhile {
            let procedure = offline(&known.map, &range, &asked.to, asked.keep_ms, meanwhile)?;
            if !asked.dry_run && !parts.is_empty() {
                self.require_version(&name, basis).await?;
                let begun = self.procedures.begin("offline move", Some(&name), procedure).await;
                answer.procedure = Some(begun.map_err(|error| problem::of_catalog(&error))?.id.to_string());
            }
        } else if !asked.dry_run && parts.len() > PARTS_AT_ONCE {
            let task = Task::Move {
                map: name.clone(),
                range,
                to: asked.to.clone(),
                keep_ms: asked.keep_ms,
                arrives: None,
                operation: None,
                why: None,
            };
            self.require_version(&name, basis).await?;
            let begun = self.procedures.begin("move in parts", Some(&name), Procedure::new(vec![task])).await;
            answer.procedure = Some(begun.map_err(|error| problem::of_catalog(&error))?.id.to_string());
        } else if !asked.dry_run {
            for (index, (stretch, part)) in parts.iter_mut().enumerate() {
                let request = MoveRequest {
                    map: name.clone(),
                    range: stretch.range.clone(),
                    to: asked.to.clone(),
                    keep_ms: asked.keep_ms,
                    if_version: if index == 0 { version(basis) } else { None },
                    by: None,
                };
                let record = self.driver.start_move(&request).await;
                let record = record.map_err(|error| problem::of_catalog(&error))?;
                part.operation = Some(record.op.id.to_string());
            }
        }
        answer.parts = parts.into_iter().map(|(_, part)| part).collect();
        Ok(answer)
    }

    /// Whoever moves a range already has rows on both shards, which are not leftovers.
    async fn refuse_busy(&self, map: &MapName, range: &KeyRange) -> Result<(), Problem> {
        let running = self.catalog.running().await.map_err(|error| problem::of_catalog(&error))?;
        let touches = |other: &OpRecord| {
            other.op.map == *map && other.op.touches.iter().any(|touched| touched.overlaps(range))
        };
        match running.into_iter().find(touches) {
            None => Ok(()),
            Some(other) => {
                let busy = CatalogError::Busy { op: other.op.id, kind: other.op.kind };
                Err(problem::of_catalog(&busy))
            }
        }
    }

    /// The parts that a move would have, each looked at for everything that can make it fail.
    pub(super) async fn look_at(
        &self,
        known: &KnownMap,
        range: &KeyRange,
        to: &ShardId,
    ) -> Result<Vec<(Stretch, MovePart)>, Problem> {
        let definition = known.map.definition();
        let entries: Vec<Entry> = known.map.entries(range).collect();
        if entries.is_empty() {
            let name = definition.name();
            return Err(Problem::not_found(format!("nothing of map {name} is mapped there"))
                .with_remedy("see 'polyshard map show'"));
        }
        // A shard that was only just added may not have the tables yet.
        self.journal.ready(to).await.map_err(|error| of_journal(&error))?;
        let mut parts = Vec::new();
        let mut bytes = 0;
        for stretch in stretches(definition.scheme(), &entries, range, to) {
            self.refuse_busy(definition.name(), &stretch.range).await?;
            self.check_rights(definition, &stretch.from, to).await?;
            let checked = self.mover.preflight(definition, &stretch.range, &stretch.from, to).await;
            let loads = checked.map_err(|error| of_move(&error))?;
            bytes += loads.iter().map(|load| load.bytes).sum::<u64>();
            let part = MovePart {
                range: range_view(definition, &stretch.range),
                from: stretch.from.clone(),
                to: to.clone(),
                datasets: loads.into_iter().map(load).collect(),
                operation: None,
            };
            parts.push((stretch, part));
        }
        if !parts.is_empty() {
            self.check_room(known, range, bytes, to).await?;
        }
        Ok(parts)
    }

    async fn require_version(&self, name: &MapName, basis: Basis) -> Result<(), Problem> {
        let record = self.catalog.map(name).await.map_err(|error| problem::of_catalog(&error))?;
        match version(basis) {
            Some(seen) if seen != record.version => {
                Err(Problem::changed_meanwhile(format!("map {name}"), record.version))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn require_shard(&self, id: &ShardId) -> Result<(), Problem> {
        let record = self.catalog.shard(id).await.map_err(|error| problem::of_catalog(&error))?;
        match record.state {
            State::Online => Ok(()),
            state => Err(Problem::new(ErrorCode::Conflict, format!("shard {id} is {state}"))
                .with_remedy("set it online, or choose another shard")),
        }
    }

    pub(super) async fn wish_for(&self, id: String, wish: MoveWish) -> Result<OperationView, Problem> {
        let op: OpId = id.parse().map_err(|_| {
            Problem::invalid("id", format!("{id:?} is not the id of an operation"))
                .with_remedy("see 'polyshard ops list'")
        })?;
        let fail = |error: CatalogError| match error {
            CatalogError::Invalid(_) => {
                let problem = problem::of_catalog(&error);
                Problem { code: ErrorCode::Conflict, ..problem }
            }
            error => problem::of_catalog(&error),
        };
        let wished = match wish {
            MoveWish::Undo => {
                let record = self.driver.undo_move(op).await.map_err(fail)?;
                return self.operation_view(&record.op.id.to_string()).await;
            }
            MoveWish::Pause => Wish::Pause,
            MoveWish::Resume => Wish::Run,
            MoveWish::Pace { share_percent } => self.paced(op, share_percent).await?,
            MoveWish::Cancel => Wish::Cancel,
            MoveWish::Clean => Wish::Clean,
        };
        match self.procedure_of(op).await? {
            Some(_) => self.catalog.wish_for_procedure(op, wished).await.map_err(fail)?,
            None => self.driver.wish_for(op, wished).await.map_err(fail)?,
        }
        self.operation_view(&id).await
    }

    /// How much a move is to work. A procedure has moves one after the other, each with its own pace.
    async fn paced(&self, op: OpId, share: u32) -> Result<Wish, Problem> {
        if !(BUSY_SHARE_MIN..=100).contains(&share) {
            let why =
                format!("a move works for {BUSY_SHARE_MIN} to 100 percent of the time, not for {share}");
            return Err(Problem::invalid("share_percent", why).with_remedy("give a number between them"));
        }
        match self.procedure_of(op).await? {
            Some(_) => Err(Problem::new(ErrorCode::Conflict, format!("operation {op} is no single move"))
                .with_remedy("set the pace of the move that it is at; 'polyshard ops list' has its id")),
            None => Ok(Wish::Pace(share)),
        }
    }

    /// An operation as it is shown; of a move also how far it is.
    pub(super) async fn shown(&self, record: &OpRecord) -> Result<OperationView, Problem> {
        let mut view = views::operation(record);
        if let Some(known) = self.router.view().maps.get(&record.op.map) {
            let touched = record.op.carry.as_ref().map_or(&record.op.touches, |carry| &carry.ranges);
            let parts = touched.iter().filter(|range| **range != KeyRange::all()).take(RANGES_SHOWN);
            view.ranges = parts.map(|range| range_view(known.map.definition(), range)).collect();
        }
        let Some(carry) = &record.op.carry else { return Ok(view) };
        view.from = Some(carry.from.clone());
        view.to = Some(carry.to.clone());
        let status =
            self.catalog.move_status(record.op.id).await.map_err(|error| problem::of_catalog(&error))?;
        let Some(status) = status else { return Ok(view) };
        view.paused = status.wish == Wish::Pause && record.state == OpState::Running;
        let progress = status.progress;
        view.progress = Some(ProgressView {
            total_rows: progress.total_rows,
            copied_rows: progress.copied_rows,
            copied_bytes: progress.copied_bytes,
            verified_rows: progress.verified_rows,
            lag_rows: progress.lag_rows,
            cleaned_rows: progress.cleaned_rows,
            pause_ms: progress.pause_ms,
            left_ms: progress.left_ms,
            works_percent: progress.works_percent.filter(|_| record.state == OpState::Running),
            paused: status.wish == Wish::Pause,
        });
        Ok(view)
    }

    pub(super) async fn find_misplaced(&self, name: MapName) -> Result<RowsCheckAnswer, Problem> {
        let fail = |error: CatalogError| problem::of_catalog(&error);
        let record = self.catalog.map(&name).await.map_err(fail)?;
        let busy = self.driver.busy(&name).await.map_err(fail)?;
        let entries = self.catalog.entries(&name).await.map_err(fail)?;
        let (mut misplaced, mut unreachable) = (Vec::new(), Vec::new());
        for shard in self.catalog.shards().await.map_err(fail)? {
            match self.mover.misplaced(&record.definition, &entries, &busy, &shard.id).await {
                // Rows of an operation under way are not there by right yet, or no more: it sees to them.
                Ok(found) => {
                    let found = found.into_iter().filter(|one| one.rows > one.moving);
                    misplaced.extend(found.map(|one| MisplacedRows {
                        shard: one.shard,
                        dataset: one.dataset,
                        rows: one.rows - one.moving,
                    }));
                }
                Err(error) => unreachable.push(Unreachable { shard: shard.id, reason: error.to_string() }),
            }
        }
        Ok(RowsCheckAnswer { map: name, misplaced, unreachable })
    }
}

/// What is to be moved. A key of a map that hashes stands for its bucket: that is the least that can move.
pub(super) fn moved_range(definition: &MapDefinition, range: &RangeView) -> Result<KeyRange, Problem> {
    let RangeView::Key { key } = range else { return read_range(definition, range, "range") };
    if definition.scheme().hash().is_none() {
        return read_range(definition, range, "range");
    }
    let key = definition.key_type().parse(&key.to_string());
    let key = key.map_err(|error| Problem::invalid("range.key", error.to_string()))?;
    let placement = definition.placement(&key)?;
    let found = definition.bucket_of(placement.as_slice()).and_then(|(segment, bucket)| match segment {
        None => definition.buckets(bucket, bucket + 1).ok(),
        Some(segment) => definition.segment_buckets(&segment, bucket, bucket + 1).ok(),
    });
    found.ok_or_else(|| Problem::invalid("range.key", "the key has no bucket"))
}

fn load(load: Load) -> MoveLoad {
    MoveLoad { dataset: load.dataset, rows: load.rows, bytes: load.bytes }
}

/// A mover's refusal.
pub(super) fn of_move(error: &MoveError) -> Problem {
    match error {
        MoveError::Catalog(error) => problem::of_catalog(error),
        MoveError::Shard { shard, error } => {
            problem::of_catalog(&CatalogError::Shard { shard: shard.clone(), error: error.clone() })
        }
        MoveError::Refused(why) => problem::worded(ErrorCode::Conflict, why),
        MoveError::Later(why) => problem::worded(ErrorCode::Unavailable, why),
        error @ MoveError::Behind => problem::worded(ErrorCode::Unavailable, &error.to_string()),
    }
}

/// The offline procedure: requests are kept out, the rows moved and compared, the range comes online on its new shard,
/// and the old rows are removed. If it is given up, the range is online where it was.
fn offline(
    map: &Map,
    range: &KeyRange,
    to: &ShardId,
    keep_ms: u64,
    meanwhile: Meanwhile,
) -> Result<Procedure, Problem> {
    let name = map.definition().name().clone();
    if let Some(entry) = map.entries(range).find(|entry| entry.state != State::Online) {
        let what = map.definition().describe_range(&entry.range);
        return Err(Problem::new(ErrorCode::Conflict, format!("{what} is {} already", entry.state))
            .with_remedy("set it online first, or move it without --offline: then it stays as it is"));
    }
    let state = match meanwhile {
        Meanwhile::ReadOnly => State::ReadOnly,
        Meanwhile::Offline => State::Offline,
    };
    let set = |state| Task::SetState { map: name.clone(), range: range.clone(), state };
    let carry = Task::Move {
        map: name.clone(),
        range: range.clone(),
        to: to.clone(),
        keep_ms,
        arrives: Some(State::Online),
        operation: None,
        why: None,
    };
    Ok(Procedure::new(vec![set(state), carry, set(State::Online)]).or_else(vec![set(State::Online)]))
}

/// What a move does, for people.
pub(super) fn steps(
    parts: &[(Stretch, MovePart)],
    meanwhile: Option<Meanwhile>,
    keep_ms: u64,
) -> Vec<String> {
    let mut steps = Vec::new();
    match meanwhile {
        Some(Meanwhile::Offline) => steps.push("take the range offline".to_owned()),
        Some(Meanwhile::ReadOnly) => steps.push("make the range read-only".to_owned()),
        None => {}
    }
    for (_, part) in parts {
        let (range, from, to) = (&part.range, &part.from, &part.to);
        let rows: u64 = part.datasets.iter().map(|load| load.rows).sum();
        let bytes: u64 = part.datasets.iter().map(|load| load.bytes).sum();
        steps.push(format!("{range}: note on {from} what changes from now on"));
        steps.push(format!("{range}: copy about {rows} rows, {bytes} bytes, from {from} to {to}"));
        steps.push(format!("{range}: carry what has changed meanwhile"));
        steps.push(format!("{range}: compare about {rows} rows on both sides"));
        steps.push(match meanwhile {
            None => format!("{range}: hold requests, carry the rest, switch to {to}, let requests go on"),
            Some(_) => format!("{range}: carry the rest, switch to {to}, bring it online there"),
        });
        if keep_ms > 0 {
            steps.push(format!(
                "{range}: keep the old rows for {} s, so that it can be undone",
                keep_ms / 1000
            ));
        }
        steps.push(format!("{range}: delete about {rows} rows from {from}"));
    }
    steps
}

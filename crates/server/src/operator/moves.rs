//! What operators ask about moves.

use std::collections::BTreeMap;

use polyshard_admin::convert::{range_view, read_range};
use polyshard_admin::types::{
    BalanceAnswer, BalanceRequest, MisplacedRows, MoveAnswer, MoveLoad, MovePart, MoveRequest as Asked,
    MoveWish, OperationView, PlannedMove, ProgressView, RangeView, RowsCheckAnswer, ShardLoad, Unreachable,
};
use polyshard_admin::{Basis, ErrorCode, Problem};
use polyshard_catalog::{CatalogError, MoveRequest, OpRecord, Wish};
use polyshard_map::{Entry, KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_mover::plan::{self, Holding};
use polyshard_mover::{Load, MoveError};
use polyshard_shard::OpId;

use super::{Operations, version, views};
use crate::problem;

/// Entries of a list map that go in one move: each is a condition on what is written meanwhile.
const PART_ENTRIES_MAX: usize = 200;
/// How far a shard may be above the mean unless the operator says otherwise.
const SLACK_PERCENT: u64 = 10;
/// Pieces that an entry of a hash map is thought to be cut into when load is evened out: buckets are alike.
const PIECES_MAX: u32 = 64;

/// A stretch of a map on one shard.
struct Stretch {
    range: KeyRange,
    from: ShardId,
}

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
        let entries: Vec<Entry> = known.map.entries(&range).collect();
        if entries.is_empty() {
            return Err(Problem::not_found(format!("nothing of map {name} is mapped there"))
                .with_remedy("see 'polyshard map show'"));
        }
        let mut parts = Vec::new();
        for stretch in stretches(&entries, &range, &asked.to) {
            let checked = self.mover.preflight(&definition, &stretch.range, &stretch.from, &asked.to).await;
            let loads = checked.map_err(|error| of_move(&error))?;
            parts.push(MovePart {
                range: range_view(&definition, &stretch.range),
                from: stretch.from.clone(),
                to: asked.to.clone(),
                datasets: loads.into_iter().map(load).collect(),
                operation: None,
            });
            if !asked.dry_run {
                let request = MoveRequest {
                    map: name.clone(),
                    range: stretch.range,
                    to: asked.to.clone(),
                    keep_ms: asked.keep_ms,
                    if_version: if parts.len() == 1 { version(basis) } else { None },
                    by: None,
                };
                let record = self.driver.start_move(&request).await;
                let record = record.map_err(|error| problem::of_catalog(&error))?;
                parts.last_mut().expect("it was just put").operation = Some(record.op.id.to_string());
            }
        }
        Ok(MoveAnswer { map: name, parts })
    }

    async fn require_shard(&self, id: &ShardId) -> Result<(), Problem> {
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
            MoveWish::Cancel => Wish::Cancel,
            MoveWish::Clean => Wish::Clean,
        };
        self.driver.wish_for(op, wished).await.map_err(fail)?;
        self.operation_view(&id).await
    }

    /// An operation as it is shown; of a move also how far it is.
    pub(super) async fn shown(&self, record: &OpRecord) -> Result<OperationView, Problem> {
        let mut view = views::operation(record);
        let Some(carry) = &record.op.carry else { return Ok(view) };
        view.from = Some(carry.from.clone());
        view.to = Some(carry.to.clone());
        let status =
            self.catalog.move_status(record.op.id).await.map_err(|error| problem::of_catalog(&error))?;
        let Some(status) = status else { return Ok(view) };
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
            paused: status.wish == Wish::Pause,
        });
        Ok(view)
    }

    pub(super) async fn plan_balance(
        &self,
        name: MapName,
        asked: BalanceRequest,
    ) -> Result<BalanceAnswer, Problem> {
        let known = self.known(&name).await?;
        let definition = known.map.definition().clone();
        let records = self.catalog.shards().await.map_err(|error| problem::of_catalog(&error))?;
        let mut targets: Vec<ShardId> = records
            .into_iter()
            .filter(|record| record.state == State::Online)
            .map(|record| record.id)
            .collect();
        if let Some(drained) = &asked.drain {
            self.catalog.shard(drained).await.map_err(|error| problem::of_catalog(&error))?;
            targets.retain(|target| target != drained);
            if targets.is_empty() {
                return Err(Problem::new(ErrorCode::Conflict, "there is no other shard online")
                    .with_remedy("add one with 'polyshard shard add'"));
            }
        }
        let mut holdings = Vec::new();
        for entry in known.map.entries(&KeyRange::all()) {
            for range in pieces(&definition, &entry.range, asked.drain.is_none()) {
                let weight = self.mover.weigh(&definition, &range, &entry.shard).await;
                let weight = weight.map_err(|error| of_move(&error))?;
                holdings.push(Holding { range, shard: entry.shard.clone(), weight });
            }
        }
        let planned = match &asked.drain {
            Some(drained) => plan::drain(&holdings, drained, &targets),
            None => plan::even_out(&holdings, &targets, asked.slack.unwrap_or(SLACK_PERCENT)),
        };
        let mut loads: BTreeMap<ShardId, (u64, u64)> =
            targets.into_iter().map(|shard| (shard, (0, 0))).collect();
        for holding in &holdings {
            let load = loads.entry(holding.shard.clone()).or_default();
            (load.0, load.1) = (load.0 + holding.weight, load.1 + holding.weight);
        }
        for planned in &planned {
            loads.entry(planned.from.clone()).or_default().1 -= planned.weight;
            loads.entry(planned.to.clone()).or_default().1 += planned.weight;
        }
        Ok(BalanceAnswer {
            map: name,
            shards: loads
                .into_iter()
                .map(|(shard, (rows, rows_after))| ShardLoad { shard, rows, rows_after })
                .collect(),
            moves: planned
                .into_iter()
                .map(|planned| PlannedMove {
                    range: range_view(&definition, &planned.range),
                    from: planned.from,
                    to: planned.to,
                    rows: planned.weight,
                })
                .collect(),
        })
    }

    pub(super) async fn find_misplaced(&self, name: MapName) -> Result<RowsCheckAnswer, Problem> {
        let fail = |error: CatalogError| problem::of_catalog(&error);
        let record = self.catalog.map(&name).await.map_err(fail)?;
        let entries = self.catalog.entries(&name).await.map_err(fail)?;
        let (mut misplaced, mut unreachable) = (Vec::new(), Vec::new());
        for shard in self.catalog.shards().await.map_err(fail)? {
            match self.mover.misplaced(&record.definition, &entries, &shard.id).await {
                Ok(found) => misplaced.extend(found.into_iter().map(|one| MisplacedRows {
                    shard: one.shard,
                    dataset: one.dataset,
                    rows: one.rows,
                })),
                Err(error) => unreachable.push(Unreachable { shard: shard.id, reason: error.to_string() }),
            }
        }
        Ok(RowsCheckAnswer { map: name, misplaced, unreachable })
    }
}

/// What is to be moved. A key of a map that hashes stands for its bucket: that is the least that can move.
fn moved_range(definition: &MapDefinition, range: &RangeView) -> Result<KeyRange, Problem> {
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

/// The parts of a range that are elsewhere, each on one shard.
fn stretches(entries: &[Entry], range: &KeyRange, to: &ShardId) -> Vec<Stretch> {
    let mut out: Vec<(Stretch, usize)> = Vec::new();
    for entry in entries {
        let Some(part) = entry.range.intersect(range) else { continue };
        if entry.shard == *to {
            continue;
        }
        match out.last_mut() {
            Some((last, count))
                if last.from == entry.shard
                    && last.range.hi() == Some(part.lo())
                    && *count < PART_ENTRIES_MAX =>
            {
                let joined = KeyRange::new(last.range.lo().clone(), part.hi().cloned());
                last.range = joined.expect("two that meet are one");
                *count += 1;
            }
            _ => out.push((Stretch { range: part, from: entry.shard.clone() }, 1)),
        }
    }
    out.into_iter().map(|(stretch, _)| stretch).collect()
}

/// The pieces that an entry may be moved in: those of a hash map can be cut anywhere.
fn pieces(definition: &MapDefinition, range: &KeyRange, cut: bool) -> Vec<KeyRange> {
    let bounds = range.hi().and_then(|hi| {
        let (_, from) = definition.bucket_of(range.lo().as_slice())?;
        let (segment, to) = definition.bucket_of(hi.as_slice())?;
        segment.is_none().then_some((from, to))
    });
    match bounds {
        Some((from, to)) if cut => {
            let step = (to - from).div_ceil(PIECES_MAX).max(1);
            let ends = (from..to).step_by(step as usize).map(|first| (first, (first + step).min(to)));
            ends.filter_map(|(first, end)| definition.buckets(first, end).ok()).collect()
        }
        _ => vec![range.clone()],
    }
}

fn load(load: Load) -> MoveLoad {
    MoveLoad { dataset: load.dataset, rows: load.rows, bytes: load.bytes }
}

/// A mover's refusal.
fn of_move(error: &MoveError) -> Problem {
    match error {
        MoveError::Catalog(error) => problem::of_catalog(error),
        MoveError::Shard { shard, error } => {
            problem::of_catalog(&CatalogError::Shard { shard: shard.clone(), error: error.clone() })
        }
        MoveError::Refused(why) => problem::worded(ErrorCode::Conflict, why),
        MoveError::Later(why) => problem::worded(ErrorCode::Unavailable, why),
    }
}

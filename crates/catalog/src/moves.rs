//! Moves in the catalog: how one is begun, undone, paused and cancelled, and what is known of it.

use std::time::Duration;

use polyshard_engine::{Dialect, Row, Statement};
use polyshard_map::{Change, KeyRange, MapName, ShardId, State};
use polyshard_shard::{OpId, Role};

use crate::CatalogError;
use crate::carrier::{Carry, Progress, Wish};
use crate::catalog::Catalog;
use crate::driver::Driver;
use crate::protocol;
use crate::sql_catalog::{SqlCatalog, from_json, to_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::{ChangeRequest, OpRecord, OpState, Operation, Publish, Step};

/// Ranges that one move may carry: each is a condition on every row that is written meanwhile.
const CARRY_RANGES_MAX: usize = 256;

/// How long a move waits to begin for a change of its tables that is decided and not yet on all shards, and how often it
/// looks: a process brings the shards up within a second.
const SETTLE_WAIT: Duration = Duration::from_secs(5);
const SETTLE_LOOK: Duration = Duration::from_millis(50);

/// What an operator asks to be moved.
#[derive(Debug, Clone)]
pub struct MoveRequest {
    /// The map.
    pub map: MapName,
    /// What to move; all of it must be on one shard.
    pub range: KeyRange,
    /// Where to.
    pub to: ShardId,
    /// How long the source keeps its rows afterwards, so that the move can be undone.
    pub keep_ms: u64,
    /// The version of the map that the operator saw, if he insists on it.
    pub if_version: Option<u64>,
    /// The lock owner he acts as.
    pub by: Option<String>,
}

/// A move and what is known of it.
#[derive(Debug, Clone)]
pub struct MoveStatus {
    /// What is wanted of it.
    pub wish: Wish,
    /// How far it was when that was last stored.
    pub progress: Progress,
}

impl Driver {
    /// Begins a move, which goes on by itself.
    pub async fn start_move(&self, request: &MoveRequest) -> Reply<OpRecord> {
        self.start_as(request, None).await
    }

    /// Likewise; what arrives is in this state from the switch on, whatever it was in before. So a range that was
    /// taken offline to be moved is online again before the old rows are removed.
    pub async fn start_move_into(&self, request: &MoveRequest, state: State) -> Reply<OpRecord> {
        self.start_as(request, Some(state)).await
    }

    async fn start_as(&self, request: &MoveRequest, arrives: Option<State>) -> Reply<OpRecord> {
        let mut tx = self.catalog().begin().await?;
        let driver = self.name();
        let change = ChangeRequest {
            map: request.map.clone(),
            change: Change::Assign { range: request.range.clone(), to: request.to.clone() },
            if_version: request.if_version,
            by: request.by.clone(),
        };
        let (mut op, map) = protocol::compute(&mut tx, &change, &driver).await?;
        let fresh = || OpId::new(self.catalog().fresh_id());
        attach_carry(&mut op, "move", fresh(), fresh(), request.keep_ms)?;
        if let Some(state) = arrives {
            arrive_as(&mut op, state);
        }
        let now = tx.now_ms().await?;
        let record = protocol::begin(&mut tx, op, Step::Preparing, map, &driver, now).await?;
        tx.commit().await?;
        self.pass("intent.after")?;
        drop(self.spawn(record.clone()));
        Ok(record)
    }

    /// Begins to take a move back that keeps its old rows: what was written since comes along.
    pub async fn undo_move(&self, id: OpId) -> Reply<OpRecord> {
        self.until_settled(&self.catalog().operation(id).await?.op.map).await?;
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let mut undone = tx.operation(id).await?.ok_or(CatalogError::NoSuchOperation(id))?;
        refuse_unsettled(&mut tx, &undone.op.map).await?;
        let carry = undone.op.carry.clone().ok_or_else(|| wrong(id, "it is no move"))?;
        match (undone.state, undone.step) {
            (OpState::Running, Step::Keeping) => {}
            (OpState::Running, Step::Cleaning) | (OpState::Done, _) => {
                return Err(wrong(id, "its old rows are cleaned away already; move the range back"));
            }
            (OpState::RolledBack, _) => {
                return Err(wrong(id, "it was rolled back, so there is nothing to undo"));
            }
            _ => return Err(wrong(id, "it has not switched yet; cancel it")),
        }
        if carry.keep_ms == 0 {
            return Err(wrong(id, "it was not asked to keep its old rows; move the range back"));
        }
        // It ends here, and its ranges are free for the one that undoes it: in one transaction.
        let driver = self.name();
        undone.state = OpState::Done;
        undone.token += 1;
        undone.message = Some(format!("undone by operation {}", driver.id));
        tx.put_operation(&undone).await?;
        let range = carry.ranges.first().cloned().ok_or_else(|| wrong(id, "it moved nothing"))?;
        let change = ChangeRequest {
            map: undone.op.map.clone(),
            change: Change::Assign { range, to: carry.from.clone() },
            if_version: None,
            by: None,
        };
        let (mut op, map) = protocol::compute(&mut tx, &change, &driver).await?;
        attach_carry(&mut op, "undo", carry.reverse, OpId::new(self.catalog().fresh_id()), 0)?;
        let back = op.carry.as_mut().expect("it was just attached");
        if back.ranges != carry.ranges || back.from != carry.to {
            return Err(wrong(id, "its ranges have changed since; move them back one by one"));
        }
        back.filled = true;
        back.undoes = Some(id);
        back.replaces = Some(carry.forward);
        let now = tx.now_ms().await?;
        let record = protocol::begin(&mut tx, op, Step::Preparing, map, &driver, now).await?;
        tx.commit().await?;
        self.pass("intent.after")?;
        drop(self.spawn(record.clone()));
        Ok(record)
    }

    /// Waits a while for the shards to have all that was decided about a map's tables.
    async fn until_settled(&self, map: &MapName) -> Reply<()> {
        let until = tokio::time::Instant::now() + SETTLE_WAIT;
        while self.catalog().journal_depends().await?.iter().any(|(other, _)| other == map) {
            if tokio::time::Instant::now() >= until {
                break;
            }
            tokio::time::sleep(SETTLE_LOOK).await;
        }
        Ok(())
    }

    /// Says what is wanted of a move under way. Cancelling is refused once its ranges have left; if they leave just
    /// now, it goes on.
    pub async fn wish_for(&self, id: OpId, wish: Wish) -> Reply<()> {
        // Asked before the catalog is locked: a shard may take its time.
        let has_left = wish == Wish::Cancel && self.has_left(id).await?;
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        let record = tx.operation(id).await?.ok_or(CatalogError::NoSuchOperation(id))?;
        if record.op.carry.is_none() {
            return Err(wrong(id, "it is no move, and ends by itself"));
        }
        if record.state != OpState::Running {
            return Err(wrong(id, "it has ended"));
        }
        match (wish, record.step) {
            (Wish::Cancel, Step::RollingBack) => return Ok(()),
            (Wish::Cancel, Step::Departing) if !has_left => {}
            (Wish::Cancel, Step::Departing | Step::Activating | Step::Keeping | Step::Cleaning) => {
                return Err(wrong(
                    id,
                    "it has passed its point of no return; undo it, or move the range back",
                ));
            }
            (Wish::Clean, step) if step != Step::Keeping => {
                return Err(wrong(id, "it keeps no old rows just now"));
            }
            _ => {}
        }
        // One that came too late to be cancelled keeps its old rows, and may be told not to.
        let is_cancelled = tx.wish(id).await?.map(|status| status.wish) == Some(Wish::Cancel);
        if wish != Wish::Cancel && is_cancelled && record.step != Step::Keeping {
            return Err(wrong(id, "it is being cancelled"));
        }
        tx.put_wish(id, wish).await?;
        tx.commit().await
    }

    /// Whether an operation that departs has let ranges go: where it has not, it can still be given up.
    async fn has_left(&self, id: OpId) -> Reply<bool> {
        let record = self.catalog().operation(id).await?;
        if record.step != Step::Departing {
            return Ok(false);
        }
        for loser in record.op.losers() {
            let name = &record.op.edits[loser].0;
            let left = self.shard(name).await?.has_departed(id).await;
            if left.map_err(|error| CatalogError::Shard { shard: name.clone(), error })? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Catalog {
    /// Stores how far an operation is, if that is news, and answers what is wanted of it.
    pub(crate) async fn wish(&self, id: OpId, progress: Option<&Progress>) -> Reply<Wish> {
        let Some(progress) = progress else {
            return Ok(self.move_status(id).await?.map_or(Wish::Run, |status| status.wish));
        };
        let mut tx = self.begin().await?;
        let sql = format!(
            "INSERT INTO {} (id, wish, progress) VALUES ($1, $2, $3) \
             ON CONFLICT (id) DO UPDATE SET progress = excluded.progress RETURNING wish",
            tx.own("operation_wish")
        );
        let statement =
            Statement::new(sql).bind(id.to_string()).bind(to_json(&Wish::Run)).bind(to_json(progress));
        let rows = tx.rows(statement).await?;
        let wish = rows.first().map(|row| from_json("wish", row.text(0)?)).transpose()?.unwrap_or(Wish::Run);
        tx.commit().await?;
        Ok(wish)
    }

    /// What is wanted of an operation, and how far it is.
    pub async fn move_status(&self, id: OpId) -> Reply<Option<MoveStatus>> {
        let db = self.db().await?;
        let rows = db.read(select_status(db.dialect(), id)).await?;
        rows.first().map(read_status).transpose()
    }
}

fn select_status(dialect: Dialect, id: OpId) -> Statement {
    let sql = format!("SELECT wish, progress FROM {} WHERE id = $1", dialect.own_table("operation_wish"));
    Statement::new(sql).bind(id.to_string())
}

fn read_status(row: &Row) -> Reply<MoveStatus> {
    let progress = row.opt_text(1)?.map(|text| from_json("progress", text)).transpose()?;
    Ok(MoveStatus { wish: from_json("wish", row.text(0)?)?, progress: progress.unwrap_or_default() })
}

impl SqlCatalog {
    async fn wish(&mut self, id: OpId) -> Reply<Option<MoveStatus>> {
        let rows = self.rows(select_status(self.dialect(), id)).await?;
        rows.first().map(read_status).transpose()
    }

    async fn put_wish(&mut self, id: OpId, wish: Wish) -> Reply<()> {
        let sql = format!(
            "INSERT INTO {} (id, wish) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET wish = excluded.wish",
            self.own("operation_wish")
        );
        self.done(Statement::new(sql).bind(id.to_string()).bind(to_json(&wish))).await
    }
}

/// A table must be the same on both shards, and the one on the source must not change any more: what was decided must
/// have come everywhere.
async fn refuse_unsettled(tx: &mut SqlCatalog, map: &MapName) -> Reply<()> {
    match tx.journal_quiet_on(map).await? {
        None => Ok(()),
        Some(position) => Err(CatalogError::Invalid(format!(
            "a change of a table of map {map} (journal entry {position}) is not on all shards yet; try again when \
             'polyshard schema check' finds no shard behind"
        ))),
    }
}

/// Asked in the transaction that records the last step before the point of no return.
pub(crate) async fn refuse_cancelled(tx: &mut SqlCatalog, id: OpId) -> Reply<()> {
    tx.lock().await?;
    match tx.wish(id).await? {
        Some(MoveStatus { wish: Wish::Cancel, .. }) => {
            Err(CatalogError::Invalid("cancelled by an operator".into()))
        }
        _ => Ok(()),
    }
}

/// Makes an assignment one that takes its rows along.
fn attach_carry(op: &mut Operation, kind: &str, forward: OpId, reverse: OpId, keep_ms: u64) -> Reply<()> {
    let several = |what: &str| {
        CatalogError::Invalid(format!("the range is {what}; move the part of each shard by itself"))
    };
    let (losers, gainers) = (op.losers(), op.gainers());
    let ([loser], [gainer]) = (losers.as_slice(), gainers.as_slice()) else {
        return Err(several("on several shards"));
    };
    let to = op.edits[*gainer].0.clone();
    let (from, edit) = &mut op.edits[*loser];
    if edit.role != Role::Lose || edit.lost.iter().any(|(_, target, _)| target.as_ref() != Some(&to)) {
        return Err(several("not moved as a whole"));
    }
    edit.carried = Some(forward);
    let ranges = joined(edit.lost.iter().map(|(range, _, _)| range.clone()).collect());
    if ranges.len() > CARRY_RANGES_MAX {
        return Err(CatalogError::Invalid(format!(
            "the group has {} separate ranges, and one move takes at most {CARRY_RANGES_MAX}; move parts of it",
            ranges.len()
        )));
    }
    let from = from.clone();
    op.kind = kind.to_owned();
    op.carry = Some(Carry {
        from,
        to,
        ranges,
        forward,
        reverse,
        keep_ms,
        filled: false,
        undoes: None,
        replaces: None,
    });
    Ok(())
}

/// Has what arrives be in a state of its own.
fn arrive_as(op: &mut Operation, state: State) {
    let Some(to) = op.carry.as_ref().map(|carry| carry.to.clone()) else { return };
    for (shard, edit) in &mut op.edits {
        if *shard == to {
            edit.after.iter_mut().for_each(|entry| entry.state = state);
        }
        edit.lost.iter_mut().for_each(|(_, _, there)| *there = state);
    }
    if let Publish::Delta(delta) = &mut op.publish {
        delta.put.iter_mut().filter(|entry| entry.shard == to).for_each(|entry| entry.state = state);
    }
}

/// The same ranges, with those joined that meet.
fn joined(mut ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.sort();
    let mut out: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.hi() == Some(range.lo()) => {
                *last = KeyRange::new(last.lo().clone(), range.hi().cloned()).expect("two that meet are one");
            }
            _ => out.push(range),
        }
    }
    out
}

fn wrong(id: OpId, why: &str) -> CatalogError {
    CatalogError::Invalid(format!("operation {id}: {why}"))
}

//! The catalog's transactions of moves, over [`CatalogTx`]: how one is begun, undone and steered. No I/O of its own.

use polyshard_map::{Change, KeyRange, State};
use polyshard_shard::{OpId, Role};

use crate::CatalogError;
use crate::carrier::{Carry, Wish};
use crate::moves::MoveRequest;
use crate::protocol::{self, Driver};
use crate::tx::{CatalogTx, Reply};
use crate::types::{ChangeRequest, OpRecord, OpState, Operation, Publish, Step};

/// Ranges that one move may carry: each is a condition on every row that is written meanwhile.
const CARRY_RANGES_MAX: usize = 256;

/// Records the intent to move a range; what arrives may be in a state of its own. The two captures are of source and
/// target.
pub async fn intend_move<T: CatalogTx>(
    tx: &mut T,
    request: &MoveRequest,
    arrives: Option<State>,
    driver: &Driver,
    [forward, reverse]: [OpId; 2],
) -> Reply<OpRecord> {
    let change = ChangeRequest {
        map: request.map.clone(),
        change: Change::Assign { range: request.range.clone(), to: request.to.clone() },
        if_version: request.if_version,
        by: request.by.clone(),
    };
    let (mut op, map) = protocol::compute(tx, &change, driver).await?;
    attach_carry(&mut op, "move", forward, reverse, request.keep_ms)?;
    if let Some(state) = arrives {
        arrive_as(&mut op, state);
    }
    let now = tx.now_ms().await?;
    protocol::begin(tx, op, Step::Preparing, map, driver, now).await
}

/// Ends a move that keeps its old rows, and records the intent to take it back.
pub async fn intend_undo<T: CatalogTx>(
    tx: &mut T,
    id: OpId,
    driver: &Driver,
    reverse: OpId,
) -> Reply<OpRecord> {
    tx.lock().await?;
    let mut undone = tx.operation(id).await?.ok_or(CatalogError::NoSuchOperation(id))?;
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
    let (mut op, map) = protocol::compute(tx, &change, driver).await?;
    attach_carry(&mut op, "undo", carry.reverse, reverse, 0)?;
    let back = op.carry.as_mut().expect("it was just attached");
    if back.ranges != carry.ranges || back.from != carry.to {
        return Err(wrong(id, "its ranges have changed since; move them back one by one"));
    }
    back.filled = true;
    back.undoes = Some(id);
    back.replaces = Some(carry.forward);
    let now = tx.now_ms().await?;
    protocol::begin(tx, op, Step::Preparing, map, driver, now).await
}

/// Records what an operator wants of a move. `has_left` says whether the source has let its ranges go, which was asked
/// before; if that happens just now, it goes on.
pub async fn put_wish<T: CatalogTx>(tx: &mut T, id: OpId, wish: Wish, has_left: bool) -> Reply<()> {
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
            return Err(wrong(id, "it has passed its point of no return; undo it, or move the range back"));
        }
        (Wish::Clean, step) if step != Step::Keeping => {
            return Err(wrong(id, "it keeps no old rows just now"));
        }
        _ => {}
    }
    // One that came too late to be cancelled keeps its old rows, and may be told not to.
    let is_cancelled = tx.wish(id).await? == Wish::Cancel;
    if wish != Wish::Cancel && is_cancelled && record.step != Step::Keeping {
        return Err(wrong(id, "it is being cancelled"));
    }
    tx.put_wish(id, wish).await
}

/// Asked in the transaction that records the last step before the point of no return.
pub async fn refuse_cancelled<T: CatalogTx>(tx: &mut T, id: OpId) -> Reply<()> {
    tx.lock().await?;
    match tx.wish(id).await? {
        Wish::Cancel => Err(CatalogError::Invalid("cancelled by an operator".into())),
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

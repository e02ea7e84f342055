//! The shard's side of the protocol, as transactions over [`LocalTx`]. No I/O of its own.
//!
//! Every function is one transaction, may be repeated, and begins by locking the shard's identity row,
//! so that two of them never interleave. A driver proves with its token that it still owns the operation.

use polyshard_map::{Entry, KeyRange, State};

use crate::{
    Ack, AckPhase, Demand, Departure, Edit, FenceAccess, FenceEpoch, FenceRow, FenceState, HelloReply,
    LocalTx, OpId, OpRef, OpRow, Phase, Role, RouterId, ShardError,
};

type Reply<T> = Result<T, ShardError>;

/// Checks the token and returns the operation's record, with the token raised to the driver's.
pub async fn claim<T: LocalTx>(tx: &mut T, op: OpRef) -> Reply<Option<OpRow>> {
    let meta = tx.lock_meta().await?;
    match tx.op(op.id).await? {
        Some(row) if row.token > op.token => Err(ShardError::Superseded(op.id)),
        Some(mut row) => {
            if row.token < op.token {
                row.token = op.token;
                tx.put_op(&row).await?;
            }
            Ok(Some(row))
        }
        None if op.epoch <= meta.pruned_epoch => Err(ShardError::Superseded(op.id)),
        None => Ok(None),
    }
}

/// Records the operation here and lays ready what can be laid ready before the point of no return.
pub async fn prepare<T: LocalTx>(tx: &mut T, op: OpRef, edit: &Edit) -> Reply<()> {
    match claim(tx, op).await? {
        Some(row) if row.phase == Phase::Undone => return Err(ShardError::Superseded(op.id)),
        Some(_) => return Ok(()),
        None => {}
    }
    match edit.role {
        Role::Gain => {
            for entry in &edit.after {
                if let Some(other) = tx.ranges(edit.map(), &entry.range).await?.first() {
                    return Err(differs(edit, format!("{:?} is already here", other.entry.range)));
                }
            }
            tx.put_ranges(edit.map(), &edit.after, Some(op.id)).await?;
        }
        Role::Keep => replace(tx, edit, &edit.before, &edit.after).await?,
        Role::Lose => check_before(tx, edit, &edit.before).await?,
        Role::Drop => {}
    }
    if edit.role != Role::Drop {
        tx.put_definition(&edit.definition).await?;
    }
    let row = OpRow {
        id: op.id,
        epoch: op.epoch,
        token: op.token,
        phase: Phase::Prepared,
        edit: Some(edit.clone()),
    };
    tx.put_op(&row).await
}

/// Adds more arriving rows to a prepared operation: a large new map comes in pieces.
pub async fn load<T: LocalTx>(tx: &mut T, op: OpRef, edit: &Edit, entries: &[Entry]) -> Reply<()> {
    match claim(tx, op).await? {
        Some(row) if row.phase == Phase::Prepared => tx.put_ranges(edit.map(), entries, Some(op.id)).await,
        Some(row) if row.phase == Phase::Active => Ok(()),
        _ => Err(ShardError::Superseded(op.id)),
    }
}

/// Raises the fence (again). Nothing if the ranges have departed already.
pub async fn raise_fence<T: LocalTx>(tx: &mut T, op: OpRef) -> Reply<Option<FenceRow>> {
    let row = claim(tx, op).await?.ok_or(ShardError::Superseded(op.id))?;
    let edit = match (row.phase, &row.edit) {
        (Phase::Prepared, Some(edit)) if edit.role.needs_fence() => edit,
        (Phase::Departed, _) => return Ok(None),
        _ => return Err(ShardError::Superseded(op.id)),
    };
    tx.delete_acks(op.id, None).await?;
    // A number never given before, also when the fence was taken down in between: what is late for one raising
    // must not count for another.
    let attempt = bump(tx).await?.get();
    let fence = FenceRow {
        op: op.id,
        attempt,
        state: FenceState::Holding,
        map: edit.map().clone(),
        ranges: fenced_ranges(edit),
        access: fenced_access(edit),
    };
    tx.put_fence(&fence).await?;
    Ok(Some(fence))
}

/// A router says how far it is with one raising of a fence. False if that raising is over.
pub async fn acknowledge<T: LocalTx>(
    tx: &mut T,
    id: OpId,
    attempt: u64,
    router: RouterId,
    phase: AckPhase,
) -> Reply<bool> {
    tx.lock_meta().await?;
    match tx.fence(id).await? {
        Some(fence) if fence.stands(attempt) => {
            tx.put_ack(id, Ack { router, phase }).await?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// A router takes its acknowledgement back before it lets requests go on. False if the ranges have
/// departed meanwhile: then the requests must not go on here.
pub async fn withdraw<T: LocalTx>(tx: &mut T, id: OpId, attempt: u64, router: RouterId) -> Reply<bool> {
    tx.lock_meta().await?;
    match tx.fence(id).await? {
        Some(fence) if fence.state == FenceState::Departed => Ok(false),
        Some(mut fence) if fence.attempt == attempt => {
            if fence.state == FenceState::Holding {
                fence.state = FenceState::Broken;
                bump(tx).await?;
                tx.put_fence(&fence).await?;
            }
            tx.delete_acks(id, Some(router)).await?;
            Ok(true)
        }
        Some(_) => Ok(true),
        // Taken down: after a departure, or without one. A record that is no longer kept leaves that open.
        None => Ok(tx.op(id).await?.is_some_and(|row| row.phase != Phase::Departed)),
    }
}

/// Refuses when one of the fenced ranges holds data; asked while the fence stands, to know early.
pub async fn check_empty<T: LocalTx>(tx: &mut T, op: OpRef) -> Reply<()> {
    let row = claim(tx, op).await?.ok_or(ShardError::Superseded(op.id))?;
    match (row.phase, &row.edit) {
        (Phase::Prepared, Some(edit)) => refuse_data(tx, edit).await,
        _ => Ok(()),
    }
}

async fn refuse_data<T: LocalTx>(tx: &mut T, edit: &Edit) -> Reply<()> {
    let leaving: Vec<KeyRange> = match edit.role {
        Role::Drop => vec![KeyRange::all()],
        _ => left_ranges(edit),
    };
    if leaving.is_empty() || edit.destroy {
        return Ok(());
    }
    match tx.holds_data(edit.map(), &leaving).await? {
        Some(dataset) => Err(ShardError::HoldsData { dataset }),
        None => Ok(()),
    }
}

/// The point of no return: the ranges leave, in one transaction, if the fence is intact.
pub async fn depart<T: LocalTx>(tx: &mut T, op: OpRef, attempt: u64) -> Reply<()> {
    let mut row = claim(tx, op).await?.ok_or(ShardError::Superseded(op.id))?;
    match row.phase {
        Phase::Departed => return Ok(()),
        Phase::Prepared => {}
        Phase::Undone | Phase::Active => return Err(ShardError::Superseded(op.id)),
    }
    let Some(mut fence) = tx.fence(op.id).await? else { return Err(ShardError::FenceBroken(op.id)) };
    if !fence.stands(attempt) {
        return Err(ShardError::FenceBroken(op.id));
    }
    let edit = row.edit.clone().ok_or(ShardError::Superseded(op.id))?;
    // Requests may have gone on since it was last asked, if the driver changed or the fence was raised again.
    match edit.carried {
        None => refuse_data(tx, &edit).await?,
        Some(capture) if tx.seal(capture).await? => {}
        Some(_) => return Err(ShardError::TailLeft(op.id)),
    }
    match edit.role {
        Role::Drop => tx.delete_map(edit.map()).await?,
        _ => replace(tx, &edit, &edit.before, &edit.after).await?,
    }
    let number = bump(tx).await?;
    let departures: Vec<Departure> = edit
        .lost
        .iter()
        .map(|(range, to, state)| Departure {
            map: edit.map().clone(),
            range: range.clone(),
            to: to.clone(),
            state: *state,
            epoch: op.epoch,
            op: op.id,
            number,
        })
        .collect();
    tx.put_departures(&departures).await?;
    fence.state = FenceState::Departed;
    tx.put_fence(&fence).await?;
    row.phase = Phase::Departed;
    tx.put_op(&row).await
}

/// Puts what was prepared in force: all of it, or the ranges that one source has let go.
pub async fn activate<T: LocalTx>(tx: &mut T, op: OpRef, inside: Option<&[KeyRange]>) -> Reply<()> {
    let mut row = claim(tx, op).await?.ok_or(ShardError::Superseded(op.id))?;
    match row.phase {
        Phase::Active | Phase::Departed => return Ok(()),
        Phase::Undone => return Err(ShardError::Superseded(op.id)),
        Phase::Prepared => {}
    }
    if tx.activate_incoming(op.id, inside).await? > 0 {
        return Ok(());
    }
    row.phase = Phase::Active;
    tx.put_op(&row).await
}

/// Takes the fence down: held requests go on, here or at the new owner.
pub async fn release<T: LocalTx>(tx: &mut T, op: OpRef) -> Reply<()> {
    claim(tx, op).await?;
    lower(tx, op.id).await
}

/// Undoes a prepared operation for good; also one that never arrived, so that a late driver finds the grave.
pub async fn undo<T: LocalTx>(tx: &mut T, op: OpRef) -> Reply<()> {
    let row = claim(tx, op).await?;
    match &row {
        Some(row) if row.phase == Phase::Undone => return Ok(()),
        Some(row) if row.phase != Phase::Prepared => return Err(ShardError::PastReturn(op.id)),
        _ => {}
    }
    if let Some(edit) = row.as_ref().and_then(|row| row.edit.as_ref()) {
        match edit.role {
            Role::Gain => tx.delete_incoming(op.id).await?,
            Role::Keep => replace(tx, edit, &edit.after, &edit.before).await?,
            Role::Lose | Role::Drop => {}
        }
    }
    lower(tx, op.id).await?;
    let edit = row.and_then(|row| row.edit);
    tx.put_op(&OpRow { id: op.id, epoch: op.epoch, token: op.token, phase: Phase::Undone, edit }).await
}

/// What has left by an operation whose fence still stands: all that is needed to finish the switch without the
/// catalog. None if it has not departed, or is finished.
pub async fn departed<T: LocalTx>(tx: &mut T, id: OpId) -> Reply<Option<(OpRef, Vec<Departure>)>> {
    tx.lock_meta().await?;
    let standing = tx.fence(id).await?.is_some_and(|fence| fence.state == FenceState::Departed);
    let Some(row) = tx.op(id).await?.filter(|row| standing && row.phase == Phase::Departed) else {
        return Ok(None);
    };
    let all = tx.departures_after(FenceEpoch::ZERO).await?;
    let mine = all.into_iter().filter(|departure| departure.op == id).collect();
    Ok(Some((OpRef { id, epoch: row.epoch, token: row.token }, mine)))
}

/// What a session must learn before it may be used. The session's lock is taken first, by the caller, so
/// that a fence raised from now on finds the session in its list.
pub async fn hello<T: LocalTx>(tx: &mut T, known: FenceEpoch) -> Reply<HelloReply> {
    let meta = tx.lock_meta().await?;
    Ok(HelloReply {
        since: known,
        incarnation: meta.incarnation,
        fence_epoch: meta.fence_epoch,
        pruned_epoch: meta.pruned_epoch,
        departures: tx.departures_after(known).await?,
        fences: tx.fences().await?,
        demand: Demand::default(),
    })
}

/// Every change of fences and departures has a number of its own, so that what two sessions read can be put
/// in order.
pub(crate) async fn bump<T: LocalTx>(tx: &mut T) -> Reply<FenceEpoch> {
    let number = tx.lock_meta().await?.fence_epoch.next();
    tx.set_fence_epoch(number).await?;
    Ok(number)
}

async fn lower<T: LocalTx>(tx: &mut T, id: OpId) -> Reply<()> {
    if tx.fence(id).await?.is_some() {
        bump(tx).await?;
        tx.delete_fence(id).await?;
    }
    Ok(())
}

async fn replace<T: LocalTx>(tx: &mut T, edit: &Edit, from: &[Entry], to: &[Entry]) -> Reply<()> {
    check_before(tx, edit, from).await?;
    tx.delete_ranges(edit.map(), from).await?;
    tx.put_ranges(edit.map(), to, None).await
}

/// The rows to be replaced must be exactly those that the catalog believes in.
async fn check_before<T: LocalTx>(tx: &mut T, edit: &Edit, expected: &[Entry]) -> Reply<()> {
    for entry in expected {
        let found = tx.ranges(edit.map(), &entry.range).await?;
        match found.as_slice() {
            [one] if one.entry.range == entry.range && one.incoming.is_none() => {}
            [] => return Err(differs(edit, format!("{:?} is not here", entry.range))),
            [one, ..] => {
                return Err(differs(
                    edit,
                    format!("{:?} is here instead of {:?}", one.entry.range, entry.range),
                ));
            }
        }
    }
    Ok(())
}

fn differs(edit: &Edit, detail: String) -> ShardError {
    ShardError::LocalMapDiffers { map: edit.map().clone(), detail }
}

/// Ranges that leave this shard altogether, as opposed to those that only lose rights on it.
fn left_ranges(edit: &Edit) -> Vec<KeyRange> {
    let stays = |range: &KeyRange| edit.after.iter().any(|entry| entry.range.overlaps(range));
    edit.lost.iter().map(|(range, _, _)| range.clone()).filter(|range| !stays(range)).collect()
}

fn fenced_ranges(edit: &Edit) -> Vec<KeyRange> {
    match edit.role {
        Role::Drop => vec![KeyRange::all()],
        _ => edit.lost.iter().map(|(range, _, _)| range.clone()).collect(),
    }
}

/// A range that only becomes read-only keeps its readers.
fn fenced_access(edit: &Edit) -> FenceAccess {
    let writes_only = edit.role == Role::Lose
        && left_ranges(edit).is_empty()
        && edit.lost.iter().all(|(_, _, state)| *state == State::ReadOnly);
    if writes_only { FenceAccess::Writes } else { FenceAccess::All }
}

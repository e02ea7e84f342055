//! The end of a move: keeps the old rows for a while, then takes away what is left of it. Does without a shard that has
//! left the cluster.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{Carry, CarryTask, OpRecord, Progress, ShardSource};
use polyshard_engine::Statement;
use polyshard_map::{MapDefinition, ShardId};
use polyshard_shard::{OpId, OpRef, Shard};
use tokio::time::Instant;

use crate::clean::{Cleaning, Dirt};
use crate::error::{MoveError, Result, shard};
use crate::pace::Pace;

/// How often a move that keeps its old rows looks whether that is over.
const KEEP_LOOK: Duration = Duration::from_millis(100);

/// One driver's work on the end of one move.
pub(crate) struct Ending {
    op: OpRef,
    carry: Carry,
    definition: MapDefinition,
    /// None if it is lost.
    source: Option<Arc<Shard>>,
    target: Option<Arc<Shard>>,
    cleaning: Cleaning,
    /// Whether the source's capture lets its rows be deleted.
    is_resting: bool,
    keeping_since: Option<Instant>,
    pub progress: Progress,
    pace: Arc<Pace>,
}

impl Ending {
    /// Takes the end of a move up: from now on no earlier driver can do anything for it.
    pub(crate) async fn begin(
        shards: &dyn ShardSource,
        record: &OpRecord,
        lost: &[ShardId],
        pace: Arc<Pace>,
    ) -> Result<Ending> {
        let (carry, definition) = carried(record)?;
        let mut sides = Vec::new();
        for id in [&carry.from, &carry.to] {
            if lost.contains(id) {
                sides.push(None);
                continue;
            }
            let side = shard(shards, id).await?;
            take_up(&side, record.op_ref()).await?;
            sides.push(Some(side));
        }
        let (target, source) = (sides.pop().flatten(), sides.pop().flatten());
        Ok(Ending {
            op: record.op_ref(),
            carry,
            definition,
            source,
            target,
            cleaning: Cleaning::default(),
            is_resting: false,
            keeping_since: None,
            progress: Progress::default(),
            pace,
        })
    }

    /// Does a part of a task. True when it is done.
    pub(crate) async fn go_on(&mut self, task: CarryTask) -> Result<bool> {
        match task {
            CarryTask::Keep => self.keep().await,
            CarryTask::Clean => self.clean_source().await,
            _ => self.clear_target().await,
        }
    }

    /// Keeps the old rows for as long as was asked. A process that takes over begins the time anew.
    async fn keep(&mut self) -> Result<bool> {
        // What is lost is not kept.
        if self.source.is_none() {
            return Ok(true);
        }
        let since = match self.keeping_since {
            Some(since) => since,
            None => {
                // Where copying had come to is of no use any more, also not to whoever undoes it.
                self.forget_carried().await?;
                *self.keeping_since.insert(Instant::now())
            }
        };
        let over = since.elapsed() >= Duration::from_millis(self.carry.keep_ms);
        if !over {
            tokio::time::sleep(KEEP_LOOK).await;
        }
        Ok(over)
    }

    /// Removes the source's rows for a while, and in the end the captures. True when all is clean.
    async fn clean_source(&mut self) -> Result<bool> {
        if let Some(source) = self.source.clone() {
            let capture = self.carry.forward;
            if !self.is_resting {
                source.rest_capture(self.op, capture).await.map_err(MoveError::on(source.id()))?;
                self.is_resting = true;
            }
            if !self.clean(&source, capture).await? {
                return Ok(false);
            }
        }
        self.drop_captures().await?;
        Ok(true)
    }

    /// Removes what was copied to the target for a while, and in the end the captures. True when all is clean.
    async fn clear_target(&mut self) -> Result<bool> {
        if let Some(target) = self.target.clone()
            // Rows that were there before the move are not the move's to remove.
            && (self.carry.filled || is_marked(&target, self.op.id).await?)
        {
            announce(&target, self.op, &self.carry, &self.definition).await?;
            if let Some(replaced) = self.carry.replaces {
                // It would refuse to have its rows deleted.
                target.remove_capture(self.op, replaced).await.map_err(MoveError::on(target.id()))?;
            }
            if !self.clean(&target, self.carry.reverse).await? {
                return Ok(false);
            }
        }
        self.drop_captures().await?;
        Ok(true)
    }

    async fn clean(&mut self, on: &Shard, capture: OpId) -> Result<bool> {
        let (carry, definition, pace) = (&self.carry, &self.definition, self.pace.as_ref());
        let dirt = Dirt { op: self.op, carry, definition, capture, pace };
        self.cleaning.go_on(on, &dirt, &mut self.progress.cleaned_rows).await
    }

    /// Takes away everything that the move has put beside the rows.
    async fn drop_captures(&self) -> Result<()> {
        for (side, captures) in [
            (&self.source, vec![self.carry.forward]),
            (&self.target, [Some(self.carry.reverse), self.carry.replaces].into_iter().flatten().collect()),
        ] {
            let Some(side) = side else { continue };
            for capture in captures {
                side.remove_capture(self.op, capture).await.map_err(MoveError::on(side.id()))?;
            }
        }
        self.forget_carried().await
    }

    /// Forgets how far copying had come.
    async fn forget_carried(&self) -> Result<()> {
        let forget = |side: &Shard, op: OpId| {
            let sql = format!("DELETE FROM {} WHERE op = $1", side.dialect().own_table("carried"));
            vec![Statement::new(sql).bind(op.to_string())]
        };
        // The one that is undone may have ended before it came to this.
        if let (Some(undone), Some(source)) = (self.carry.undoes, &self.source) {
            let written = source.carry_write(self.op, self.carry.forward, forget(source, undone)).await;
            written.map_err(MoveError::on(source.id()))?;
        }
        if let Some(target) = &self.target {
            let written = target.carry_write(self.op, self.carry.reverse, forget(target, self.op.id)).await;
            written.map_err(MoveError::on(target.id()))?;
        }
        Ok(())
    }
}

/// What a move carries, and by which map.
pub(crate) fn carried(record: &OpRecord) -> Result<(Carry, MapDefinition)> {
    let missing = || MoveError::Refused("the operation moves no rows".into());
    let carry = record.op.carry.clone().ok_or_else(missing)?;
    let definition = record.op.edits.first().map(|(_, edit)| edit.definition.clone()).ok_or_else(missing)?;
    Ok((carry, definition))
}

/// Makes this driver the only one who may carry for an operation on a shard.
pub(crate) async fn take_up(side: &Shard, op: OpRef) -> Result<()> {
    side.ensure_move_tables().await.map_err(MoveError::on(side.id()))?;
    side.claim(op).await.map_err(MoveError::on(side.id()))
}

/// Has readers of all shards leave out what the target has of the ranges, for as long as that is not its own. The
/// ranges that arrive say so, too, but a move that is rolled back takes those away before the rows.
pub(crate) async fn announce(
    target: &Shard,
    op: OpRef,
    carry: &Carry,
    definition: &MapDefinition,
) -> Result<()> {
    let announced = target.announce_capture(op, carry.reverse, definition.name(), &carry.ranges).await;
    announced.map_err(MoveError::on(target.id()))
}

/// Whether rows may have come to the target by this move.
pub(crate) async fn is_marked(target: &Shard, op: OpId) -> Result<bool> {
    let wrong = MoveError::engine(target.id());
    let sql = format!("SELECT 1 FROM {} WHERE op = $1 LIMIT 1", target.dialect().own_table("carried"));
    let db = target.carrier().await.map_err(MoveError::on(target.id()))?;
    let rows = db.read(Statement::new(sql).bind(op.to_string())).await.map_err(wrong)?;
    Ok(!rows.is_empty())
}

//! Removes rows that are not of a shard any more, in batches that each prove it.

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_shard::{OpId, Shard};
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::session::Session;

/// Rows removed by one transaction, during which others' protocol waits.
const BATCH_ROWS: usize = 256;
/// How long one part of cleaning may take.
const PART: Duration = Duration::from_millis(300);

impl Session {
    /// Removes the source's rows for a while, and in the end the captures. True when all is clean.
    pub(crate) async fn clean_source(&mut self) -> Result<bool> {
        self.refresh().await?;
        let source = self.source.clone();
        source.rest_capture(self.op, self.carry.forward).await.map_err(MoveError::on(source.id()))?;
        if !self.clean_side(&source, self.carry.forward).await? {
            return Ok(false);
        }
        self.drop_captures().await?;
        Ok(true)
    }

    /// Removes what was copied to the target for a while, and in the end the captures. True when all is clean.
    pub(crate) async fn clear_target(&mut self) -> Result<bool> {
        // Rows that were there before the move are not the move's to remove.
        if self.carry.filled || self.is_marked().await? {
            self.refresh().await?;
            if let Some(replaced) = self.carry.replaces {
                let target = &self.target;
                target.rest_capture(self.op, replaced).await.map_err(MoveError::on(target.id()))?;
            }
            let target = self.target.clone();
            if !self.clean_side(&target, self.carry.reverse).await? {
                return Ok(false);
            }
        }
        self.drop_captures().await?;
        Ok(true)
    }

    /// Removes rows for a while, from the tables that refer to others first. True when there are no more.
    async fn clean_side(&mut self, side: &Arc<Shard>, capture: OpId) -> Result<bool> {
        let until = Instant::now() + PART;
        let map = self.definition.name().clone();
        for unit in self.units.iter().rev() {
            let pair = &self.tables[unit.table];
            let table = if Arc::ptr_eq(side, &self.source) { &pair.from } else { &pair.to };
            loop {
                let batch = table.clean(unit.number, BATCH_ROWS);
                let removed = side.clean(self.op, capture, (&map, &self.carry.ranges), batch).await;
                let removed = removed.map_err(MoveError::on(side.id()))?;
                self.progress.cleaned_rows += removed;
                if removed < BATCH_ROWS as u64 {
                    break;
                }
                if Instant::now() >= until {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes away everything that the move has put beside the rows.
    async fn drop_captures(&self) -> Result<()> {
        for (side, captures) in [
            (&self.source, vec![self.carry.forward]),
            (&self.target, [Some(self.carry.reverse), self.carry.replaces].into_iter().flatten().collect()),
        ] {
            for capture in captures {
                side.remove_capture(self.op, capture).await.map_err(MoveError::on(side.id()))?;
            }
        }
        self.forget_carried().await
    }

    /// Forgets how far copying had come.
    pub(crate) async fn forget_carried(&self) -> Result<()> {
        let forget = |side: &Shard, op: OpId| {
            let sql = format!("DELETE FROM {} WHERE op = $1", side.dialect().own_table("carried"));
            vec![Statement::new(sql).bind(op.to_string())]
        };
        // The one that is undone may have ended before it came to this.
        if let Some(undone) = self.carry.undoes {
            let (source, capture) = (&self.source, self.carry.forward);
            let written = source.carry_write(self.op, capture, forget(source, undone)).await;
            written.map_err(MoveError::on(source.id()))?;
        }
        let (target, capture) = (&self.target, self.carry.reverse);
        let written = target.carry_write(self.op, capture, forget(target, self.op.id)).await;
        written.map(drop).map_err(MoveError::on(target.id()))
    }
}

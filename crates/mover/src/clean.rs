//! Removes rows that are not of a shard any more, in batches that each prove it.

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_shard::{Dataset, OpId, Shape, Shard};
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::Side;

/// Rows removed by one transaction, during which others' protocol waits.
const BATCH_ROWS: usize = 256;
/// How long one part of cleaning may take.
const PART: Duration = Duration::from_millis(300);

impl Session {
    /// Removes the source's rows for a while, and in the end the captures. True when all is clean.
    pub(crate) async fn clean_source(&mut self) -> Result<bool> {
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
            let target = self.target.clone();
            self.announce().await?;
            if let Some(replaced) = self.carry.replaces {
                // It would refuse to have its rows deleted.
                target.remove_capture(self.op, replaced).await.map_err(MoveError::on(target.id()))?;
            }
            if !self.clean_side(&target, self.carry.reverse).await? {
                return Ok(false);
            }
        }
        self.drop_captures().await?;
        Ok(true)
    }

    /// Removes rows for a while, from the tables that refer to others first. True when there are no more. Only this
    /// shard is asked, so that it works whatever has become of the tables on the other.
    async fn clean_side(&mut self, side: &Arc<Shard>, capture: OpId) -> Result<bool> {
        let until = Instant::now() + PART;
        let map = self.definition.name().clone();
        for (dataset, shape) in children_first(self.tables_of(side).await?) {
            let table =
                Side::new(side.dialect(), &dataset, &shape, &shape, &self.definition, &self.carry.ranges)?;
            let number = dataset.rows.as_ref().map(|(_, number)| *number);
            loop {
                let batch = table.clean(number, BATCH_ROWS);
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

    /// The datasets of the map on a shard, with their tables. One without a primary key was never moved.
    async fn tables_of(&self, side: &Shard) -> Result<Vec<(Dataset, Shape)>> {
        let on_side = MoveError::on(side.id());
        let mut tables = Vec::new();
        for dataset in side.datasets(self.definition.name()).await.map_err(&on_side)? {
            let shape = side.shape(&dataset.table).await.map_err(&on_side)?;
            tables.extend(shape.filter(|shape| !shape.primary_key.is_empty()).map(|shape| (dataset, shape)));
        }
        Ok(tables)
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

/// Tables in an order in which each comes before those that it refers to, as far as there is one.
fn children_first(mut left: Vec<(Dataset, Shape)>) -> Vec<(Dataset, Shape)> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_referred_to = |place: usize| {
            let identity = &left[place].1.identity;
            left.iter().any(|(_, other)| other.identity != *identity && other.references.contains(identity))
        };
        let next = (0..left.len()).find(|place| !is_referred_to(*place)).unwrap_or(0);
        sorted.push(left.remove(next));
    }
    sorted
}

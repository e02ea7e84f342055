//! Finds rows on shards that do not own them (the checker): reports, and changes nothing.

use polyshard_map::{Entry, KeyRange, MapDefinition, ShardId};
use polyshard_shard::Shard;

use crate::carry::Mover;
use crate::error::{MoveError, Result, shard};
use crate::table::Side;

/// Ranges asked about in one statement.
const RANGES_AT_ONCE: usize = 64;

/// Rows that are where they should not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The shard that has them.
    pub shard: ShardId,
    /// Of which dataset.
    pub dataset: String,
    /// How many.
    pub rows: u64,
}

impl Mover {
    /// Rows of a map on one shard whose keys that shard does not own. Rows of a move under way are among them: they are
    /// not there by right yet, or no more.
    pub async fn misplaced(
        &self,
        definition: &MapDefinition,
        entries: &[Entry],
        on: &ShardId,
    ) -> Result<Vec<Misplaced>> {
        let opened = shard(self.shards(), on).await?;
        let mut foreign = vec![KeyRange::all()];
        for entry in entries.iter().filter(|entry| entry.shard == *on) {
            foreign = foreign.iter().flat_map(|range| range.subtract(&entry.range)).collect();
        }
        let mut found = Vec::new();
        for dataset in opened.datasets(definition.name()).await.map_err(MoveError::on(on))? {
            let shape = opened.shape(&dataset.table).await.map_err(MoveError::on(on))?;
            let Some(shape) = shape else { continue };
            let number = dataset.rows.as_ref().map(|(_, number)| *number);
            let mut rows = 0;
            for ranges in foreign.chunks(RANGES_AT_ONCE) {
                let side = Side::new(opened.dialect(), &dataset, &shape, &shape, definition, ranges)?;
                rows += count(&opened, &side, number).await?;
            }
            if rows > 0 {
                found.push(Misplaced { shard: on.clone(), dataset: dataset.name, rows });
            }
        }
        Ok(found)
    }

    /// How many rows of a map a shard has in a range.
    pub async fn weigh(&self, definition: &MapDefinition, range: &KeyRange, on: &ShardId) -> Result<u64> {
        let opened = shard(self.shards(), on).await?;
        let mut rows = 0;
        for dataset in opened.datasets(definition.name()).await.map_err(MoveError::on(on))? {
            let Some(shape) = opened.shape(&dataset.table).await.map_err(MoveError::on(on))? else {
                continue;
            };
            let number = dataset.rows.as_ref().map(|(_, number)| *number);
            let ranges = std::slice::from_ref(range);
            let side = Side::new(opened.dialect(), &dataset, &shape, &shape, definition, ranges)?;
            rows += count(&opened, &side, number).await?;
        }
        Ok(rows)
    }
}

async fn count(opened: &Shard, side: &Side, number: Option<i64>) -> Result<u64> {
    let wrong = MoveError::engine(opened.id());
    let db = opened.carrier().await.map_err(MoveError::on(opened.id()))?;
    let mut scan = db.scan(side.count(number), 1).await.map_err(&wrong)?;
    let mut rows = 0;
    while let Some(page) = scan.next().await.map_err(&wrong)? {
        rows += page.one().and_then(|row| row.int(0)).map_err(&wrong)? as u64;
    }
    Ok(rows)
}

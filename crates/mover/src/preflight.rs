//! Looks, before a move begins, at everything that can make it fail, and at how much there is to carry. Writes nothing.

use std::collections::BTreeMap;

use polyshard_catalog::Carry;
use polyshard_engine::Dialect;
use polyshard_map::{KeyRange, MapDefinition, ShardId};
use polyshard_shard::{Dataset, OpId, OpRef, whole_name};

use crate::carry::Mover;
use crate::error::{MoveError, Result};
use crate::session::{Session, Unit, unkeepable};
use crate::table::bytes_of;

/// Counts that come from a scan at once.
const COUNTS_AT_ONCE: usize = 256;
/// Rows whose length is taken for that of all.
const SAMPLE_ROWS: usize = 64;

/// What a move would carry of one dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The dataset.
    pub dataset: String,
    /// Its rows in the range.
    pub rows: u64,
    /// About how many bytes they are.
    pub bytes: u64,
}

impl Mover {
    /// Checks whether a range can be moved, and says what would be carried.
    pub async fn preflight(
        &self,
        definition: &MapDefinition,
        range: &KeyRange,
        from: &ShardId,
        to: &ShardId,
    ) -> Result<Vec<Load>> {
        let none = OpId::new(Default::default());
        let carry = Carry {
            from: from.clone(),
            to: to.clone(),
            ranges: vec![range.clone()],
            forward: none,
            reverse: none,
            keep_ms: 0,
            filled: false,
            undoes: None,
            replaces: None,
        };
        let op = OpRef { id: none, epoch: polyshard_map::Epoch::ZERO, token: 0 };
        let mut session = Session::new(self.shards(), op, carry, definition.clone()).await?;
        let found = session.source.tables(definition.name()).await.map_err(MoveError::on(from))?;
        session.read_what_is_there(found).await?;
        session.refuse_rows_on_target().await?;
        session.look_for_unkeepable().await?;
        session.loads().await
    }
}

impl Session {
    /// Reads the tables that are there on both sides. A table of a store that is not on the target yet is made when
    /// rows are carried.
    pub(crate) async fn read_what_is_there(&mut self, found: Vec<Dataset>) -> Result<()> {
        let mut there = Vec::new();
        for dataset in found {
            let table = self.on_target(&dataset).table;
            let own = table.starts_with("polyshard");
            let shape = self.target.shape(&table).await.map_err(MoveError::on(self.target.id()))?;
            if shape.is_some() || !own {
                there.push(dataset);
            }
        }
        self.read_tables(there).await
    }

    /// Looks for values that the target, a file, cannot keep.
    async fn look_for_unkeepable(&self) -> Result<()> {
        if (self.source.dialect(), self.target.dialect()) != (Dialect::Postgres, Dialect::Sqlite) {
            return Ok(());
        }
        for unit in &self.units {
            let side = &self.tables[unit.table].from;
            for column in &side.columns {
                let Some(condition) = column.unkeepable() else { continue };
                let found = self.page_of(true, side.any_with(unit.number, &condition), 1).await?;
                if !found.is_empty() {
                    return Err(unkeepable(&side.table, column, None));
                }
            }
        }
        Ok(())
    }

    /// What there is of each dataset, in all its tables.
    async fn loads(&self) -> Result<Vec<Load>> {
        let mut loads: Vec<Load> = Vec::new();
        for unit in &self.units {
            let counts = self.counts(unit).await?;
            let page = self.tables[unit.table].from.page(unit.number, None, None, Some(SAMPLE_ROWS));
            let sample = self.page_of(true, page, SAMPLE_ROWS).await?;
            let bytes: u64 = sample.iter().map(|row| bytes_of(row)).sum();
            let of = |rows: u64| bytes.saturating_mul(rows).checked_div(sample.len() as u64).unwrap_or(0);
            for (name, rows) in counts {
                let dataset = whole_name(&name);
                match loads.iter_mut().find(|load| load.dataset == dataset) {
                    Some(load) => {
                        load.rows += rows;
                        load.bytes += of(rows);
                    }
                    None => loads.push(Load { dataset: dataset.to_owned(), rows, bytes: of(rows) }),
                }
            }
        }
        Ok(loads)
    }

    /// How many rows there are of each dataset; of a table that several share, of those that have any.
    async fn counts(&self, unit: &Unit) -> Result<Vec<(String, u64)>> {
        let side = &self.tables[unit.table].from;
        let Some(by_number) = side.count_by_number() else {
            return Ok(vec![(unit.dataset.name.clone(), self.count_unit(unit).await?)]);
        };
        let wrong = MoveError::engine(self.source.id());
        let db = self.source.carrier().await.map_err(MoveError::on(self.source.id()))?;
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        let mut scan = db.scan(by_number, COUNTS_AT_ONCE).await.map_err(&wrong)?;
        while let Some(page) = scan.next().await.map_err(&wrong)? {
            for row in page.rows() {
                counts.insert(row.int(0).map_err(&wrong)?, row.int(1).map_err(&wrong)? as u64);
            }
        }
        let numbers: Vec<i64> = counts.keys().copied().collect();
        let named = self.source.named(&unit.dataset, &numbers).await;
        let named = named.map_err(MoveError::on(self.source.id()))?.into_iter();
        let count = |dataset: Dataset| {
            let rows = dataset.number().and_then(|number| counts.get(&number).copied());
            (dataset.name, rows.unwrap_or(0))
        };
        Ok(named.map(count).collect())
    }
}

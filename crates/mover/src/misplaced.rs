//! Finds rows on shards that do not own them (the checker): reports, and changes nothing.

use std::collections::BTreeMap;

use polyshard_engine::Statement;
use polyshard_map::{Entry, KeyBytes, KeyRange, MapDefinition, ShardId};
use polyshard_shard::{Dataset, Shard, whole_name};

use crate::carry::Mover;
use crate::error::{MoveError, Result, shard};
use crate::table::Side;

/// Placements that come from a scan at once.
const PAGE_ROWS: usize = 1024;
/// Placements of rows that are not a shard's own that are remembered one by one; more are counted, and found by the
/// next look when these have been put right.
pub(crate) const PLACEMENTS_MAX: usize = 10_000;

/// Rows that are where they should not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misplaced {
    /// The shard that has them.
    pub shard: ShardId,
    /// Of which dataset.
    pub dataset: String,
    /// How many.
    pub rows: u64,
    /// How many of them are of a range that an operation under way has to do with: they are not there by right yet, or
    /// no more, and it sees to them.
    pub moving: u64,
}

/// What a shard has of one dataset that it does not own.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    /// Rows by placement; at most [`PLACEMENTS_MAX`] of them.
    pub placements: BTreeMap<Vec<u8>, u64>,
    /// All rows, also those whose placements are not remembered.
    pub rows: u64,
}

impl Mover {
    /// Rows of a map on one shard whose keys that shard does not own. `busy` are the ranges of operations under way.
    pub async fn misplaced(
        &self,
        definition: &MapDefinition,
        entries: &[Entry],
        busy: &[KeyRange],
        on: &ShardId,
    ) -> Result<Vec<Misplaced>> {
        let opened = shard(self.shards(), on).await?;
        let owners = Owners::new(entries);
        let mut found: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for table in opened.tables(definition.name()).await.map_err(MoveError::on(on))? {
            let mut counts: BTreeMap<Option<i64>, (u64, u64)> = BTreeMap::new();
            placements(&opened, &table, definition, |placement, number, count| {
                if owners.of(placement) != Some(on) {
                    let (rows, moving) = counts.entry(number).or_default();
                    *rows += count;
                    if busy.iter().any(|range| range.contains(placement)) {
                        *moving += count;
                    }
                }
            })
            .await?;
            for (number, dataset) in datasets_of(&opened, &table, counts.keys()).await? {
                let (rows, moving) = counts.get(&number).copied().unwrap_or_default();
                let of = found.entry(whole_name(&dataset.name).to_owned()).or_default();
                *of = (of.0 + rows, of.1 + moving);
            }
        }
        let misplaced = |(dataset, (rows, moving))| Misplaced { shard: on.clone(), dataset, rows, moving };
        Ok(found.into_iter().map(misplaced).collect())
    }

    /// How many rows of a map a shard has in a range.
    pub async fn weigh(&self, definition: &MapDefinition, range: &KeyRange, on: &ShardId) -> Result<u64> {
        let opened = shard(self.shards(), on).await?;
        let mut rows = 0;
        for dataset in opened.tables(definition.name()).await.map_err(MoveError::on(on))? {
            let Some(shape) = opened.shape(&dataset.table).await.map_err(MoveError::on(on))? else {
                continue;
            };
            let ranges = std::slice::from_ref(range);
            let side = Side::new(opened.dialect(), &dataset, &shape, &shape, definition, ranges)?;
            rows += count(&opened, &side, dataset.number()).await?;
        }
        Ok(rows)
    }
}

/// Who owns which range, to look placements up in.
pub(crate) struct Owners<'a>(Vec<&'a Entry>);

impl<'a> Owners<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Owners<'a> {
        let mut sorted: Vec<&Entry> = entries.iter().collect();
        sorted.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
        Owners(sorted)
    }

    pub(crate) fn of(&self, placement: &[u8]) -> Option<&'a ShardId> {
        let after = self.0.partition_point(|entry| entry.range.lo().as_slice() <= placement);
        let entry = *self.0.get(after.checked_sub(1)?)?;
        entry.range.contains(placement).then_some(&entry.shard)
    }
}

/// What a shard has in a table that it does not own, by dataset.
pub(crate) async fn strays(
    opened: &Shard,
    table: &Dataset,
    definition: &MapDefinition,
    owners: &Owners<'_>,
) -> Result<Vec<(Dataset, Strays)>> {
    let mut strays: BTreeMap<Option<i64>, Strays> = BTreeMap::new();
    let mut remembered = 0;
    placements(opened, table, definition, |placement, number, count| {
        if owners.of(placement) != Some(opened.id()) {
            let of = strays.entry(number).or_default();
            of.rows += count;
            if remembered < PLACEMENTS_MAX {
                remembered += 1;
                of.placements.insert(placement.to_vec(), count);
            }
        }
    })
    .await?;
    let named = datasets_of(opened, table, strays.keys()).await?;
    Ok(named
        .into_iter()
        .map(|(number, dataset)| (dataset, strays.remove(&number).unwrap_or_default()))
        .collect())
}

/// The datasets of these numbers in a table; the table's own, if it has but one.
async fn datasets_of(
    opened: &Shard,
    table: &Dataset,
    numbers: impl Iterator<Item = &Option<i64>>,
) -> Result<Vec<(Option<i64>, Dataset)>> {
    let numbers: Vec<Option<i64>> = numbers.copied().collect();
    if !table.is_of_map() {
        return Ok(numbers.into_iter().map(|number| (number, table.clone())).collect());
    }
    let numbers: Vec<i64> = numbers.into_iter().flatten().collect();
    let named = opened.named(table, &numbers).await.map_err(MoveError::on(opened.id()))?;
    Ok(named.into_iter().map(|dataset| (dataset.number(), dataset)).collect())
}

/// The range of one placement.
pub(crate) fn point(placement: &[u8]) -> KeyRange {
    KeyRange::point(KeyBytes::new(placement.to_vec()))
}

/// Tells each placement that a shard has rows of in a table, of which dataset if several share it, and how many. Reads
/// the whole table, beside everybody's work. A row without a key has no placement, and is nobody's.
async fn placements(
    opened: &Shard,
    dataset: &Dataset,
    definition: &MapDefinition,
    mut tell: impl FnMut(&[u8], Option<i64>, u64),
) -> Result<()> {
    let wrong = MoveError::engine(opened.id());
    if opened.shape(&dataset.table).await.map_err(MoveError::on(opened.id()))?.is_none() {
        return Ok(());
    }
    let placement = dataset.placement.expression(opened.dialect(), definition, "");
    let placement = placement.map_err(MoveError::on(opened.id()))?;
    let rows = dataset.and_own_rows(opened.dialect());
    let (number, by) = match dataset.rows_column() {
        Some(column) => (column, format!(", {column}")),
        None => ("NULL", String::new()),
    };
    let sql = format!(
        "SELECT {placement}, {number}, count(*) FROM {} WHERE {placement} IS NOT NULL{rows} GROUP BY {placement}{by}",
        dataset.table
    );
    let db = opened.carrier().await.map_err(MoveError::on(opened.id()))?;
    let mut scan = db.scan(Statement::new(sql), PAGE_ROWS).await.map_err(&wrong)?;
    while let Some(page) = scan.next().await.map_err(&wrong)? {
        for row in page.rows() {
            let number = if by.is_empty() { None } else { Some(row.int(1).map_err(&wrong)?) };
            tell(row.blob(0).map_err(&wrong)?, number, row.int(2).map_err(&wrong)? as u64);
        }
    }
    Ok(())
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

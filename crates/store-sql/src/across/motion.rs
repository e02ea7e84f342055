//! Ranges that are being moved: a shard may have rows of them that it does not own, not yet or no more.

use std::collections::BTreeMap;

use polyshard_engine::Dialect;
use polyshard_map::{KeyBytes, KeyRange, MapName, ShardId};
use polyshard_router::View;
use polyshard_shard::Placement as Rule;
use polyshard_sql::{Placement, Schema, SqlError, SqlState, TableName, quoted};

/// Which ranges are in motion, as far as one shard knows: those that leave it or have left it and are not cleaned up,
/// and those that arrive. Read in the snapshot in which the rows are read.
pub(crate) fn question() -> String {
    let own = |table| Dialect::Postgres.own_table(table);
    format!(
        "SELECT map, ranges, NULL, NULL FROM {} UNION ALL SELECT map, NULL, pg_catalog.encode(lo, 'hex'), \
         pg_catalog.encode(hi, 'hex') FROM {} WHERE incoming IS NOT NULL",
        own("capture"),
        own("local_range")
    )
}

/// The condition that holds if [`question`] has an answer.
pub(crate) fn is_any() -> String {
    let own = |table| Dialect::Postgres.own_table(table);
    format!(
        "(EXISTS (SELECT 1 FROM {}) OR EXISTS (SELECT 1 FROM {} WHERE incoming IS NOT NULL))",
        own("capture"),
        own("local_range")
    )
}

/// Which cursors on a session outlive their transactions.
pub(crate) const HELD_CURSORS: &str = "SELECT name FROM pg_catalog.pg_cursors WHERE is_holdable";

/// Ranges in motion, by map.
#[derive(Debug, Default)]
pub(crate) struct Motion(BTreeMap<MapName, Vec<KeyRange>>);

impl Motion {
    /// Whether nothing is in motion.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes in what a shard has answered to [`question`].
    pub fn learn(&mut self, rows: Vec<Vec<Option<String>>>) -> Result<(), SqlError> {
        for row in rows {
            let mut fields = row.into_iter();
            let mut next = || fields.next().flatten();
            let (map, ranges, lo, hi) = (next(), next(), next(), next());
            let map = map.and_then(|map| MapName::new(&map).ok()).ok_or_else(damaged)?;
            let ranges: Vec<KeyRange> = match ranges {
                Some(text) => serde_json::from_str(&text).map_err(|_| damaged())?,
                None => {
                    let lo = lo.as_deref().and_then(bytes).ok_or_else(damaged)?;
                    let hi = hi.as_deref().map(|hi| bytes(hi).ok_or_else(damaged)).transpose()?;
                    vec![KeyRange::new(KeyBytes::new(lo), hi.map(KeyBytes::new)).map_err(|_| damaged())?]
                }
            };
            self.0.entry(map).or_default().extend(ranges);
        }
        Ok(())
    }

    /// Takes in what the files of a query over SQLite shards have answered to
    /// [`polyshard_sql_on_sqlite::Across::question`].
    pub fn learn_from_file(&mut self, answer: &str) -> Result<(), SqlError> {
        let rows: Vec<Vec<Option<String>>> = serde_json::from_str(answer).map_err(|_| damaged())?;
        self.learn(rows.into_iter().map(|row| row.into_iter().skip(1).collect()).collect())
    }

    /// For each table, the condition that holds for rows on this shard that are not its own; none in quiet times.
    pub fn foreign(
        &self,
        dialect: Dialect,
        shard: &ShardId,
        view: &View,
        schema: &Schema,
    ) -> Result<BTreeMap<TableName, String>, SqlError> {
        let mut conditions = BTreeMap::new();
        for (map, ranges) in &self.0 {
            let Some(known) = view.maps.get(map) else { continue };
            let mut foreign = ranges.clone();
            for range in ranges {
                for entry in known.map.entries(range).filter(|entry| entry.shard == *shard) {
                    foreign = foreign.iter().flat_map(|range| range.subtract(&entry.range)).collect();
                }
            }
            if foreign.is_empty() {
                continue;
            }
            for table in schema.tables.values() {
                let Placement::Sharded { map: of, column, .. } = &table.placement else { continue };
                if of != map {
                    continue;
                }
                let rule = Rule::Key(vec![quoted(&table.columns[*column].name)]);
                let condition = rule
                    .in_ranges(dialect, known.map.definition(), &foreign, "")
                    .map_err(|error| SqlError::new(SqlState::SERIALIZATION_FAILURE, error.to_string()))?;
                conditions.insert(table.name.clone(), condition);
            }
        }
        Ok(conditions)
    }
}

fn damaged() -> SqlError {
    SqlError::new(SqlState::INTERNAL_ERROR, "a shard's list of moving ranges cannot be read")
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes().chunks_exact(2);
    if !digits.remainder().is_empty() {
        return None;
    }
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

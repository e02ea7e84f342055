//! Makes the datasets known to the target whose rows come to it, before they come, and no others.
//!
//! A shard has no row of a dataset that is not registered there, or else nobody could tell which map it is of: whoever
//! counts, captures or removes rows of one map passes over those of others that share the table.

use std::collections::BTreeSet;

use polyshard_engine::Value;
use polyshard_shard::Dataset;

use crate::error::{MoveError, Result};
use crate::session::Session;

impl Session {
    /// Registers the datasets of some rows of a table at the target.
    pub(crate) async fn register<'a>(
        &self,
        table: usize,
        rows: impl Iterator<Item = &'a [Value]>,
    ) -> Result<()> {
        let Some(place) = self.tables[table].from.number_place() else { return Ok(()) };
        self.register_numbers(table, rows.filter_map(|row| number_of(row.get(place))).collect()).await
    }

    /// Registers datasets of a table by their numbers. Each is asked for once: it stays registered for as long as a
    /// move has to do with the shard.
    pub(crate) async fn register_numbers(&self, table: usize, mut numbers: BTreeSet<i64>) -> Result<()> {
        let Some(unit) = self.units.iter().find(|unit| unit.table == table && unit.dataset.is_of_map())
        else {
            return Ok(());
        };
        let (source, target) = (&self.source, &self.target);
        if let Some(known) = self.registered.lock().expect("no panic while held").get(&unit.dataset.table) {
            numbers.retain(|number| !known.contains(number));
        }
        if numbers.is_empty() {
            return Ok(());
        }
        let there = Dataset { table: self.tables[table].to.table.clone(), ..unit.dataset.clone() };
        let asked: Vec<i64> = numbers.iter().copied().collect();
        let known = target.named(&there, &asked).await.map_err(MoveError::on(target.id()))?;
        let known: BTreeSet<i64> = known.iter().filter_map(Dataset::number).collect();
        let missing: Vec<i64> = numbers.difference(&known).copied().collect();
        let found = source.named(&unit.dataset, &missing).await.map_err(MoveError::on(source.id()))?;
        if found.len() < missing.len() {
            return Err(MoveError::Later(format!(
                "a dataset in {} on shard {} is being removed",
                unit.dataset.table,
                source.id()
            )));
        }
        let found: Vec<Dataset> =
            found.into_iter().map(|dataset| Dataset { table: there.table.clone(), ..dataset }).collect();
        target.bind_all(&found).await.map_err(MoveError::on(target.id()))?;
        let mut registered = self.registered.lock().expect("no panic while held");
        registered.entry(unit.dataset.table.clone()).or_default().append(&mut numbers);
        Ok(())
    }
}

/// The number of a dataset in a row.
pub(crate) fn number_of(value: Option<&Value>) -> Option<i64> {
    match value {
        Some(Value::Int(number)) => Some(*number),
        _ => None,
    }
}

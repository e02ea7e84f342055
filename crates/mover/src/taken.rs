//! What owners have noted of rows that a repair has carried to them, and the digests by which they are known again.
//!
//! A note is where the row was carried to, and stays there when the range goes on elsewhere: so all shards are asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_catalog::ShardSource;
use polyshard_engine::{Access, Rows, Statement, Value};
use polyshard_map::{KeyBytes, KeyRange, MapDefinition, ShardId};
use polyshard_shard::{Dataset, OpId, RowKey, Shard, Taken};
use sha2::{Digest, Sha256};

use crate::carry::Mover;
use crate::error::{MoveError, Result, shard};
use crate::session::{Session, table_in};
use crate::table::{Side, rows_of};

/// Notes looked at at once.
const PAGE_NOTES: usize = 256;

impl Mover {
    /// Whether any of these shards has noted rows of a map as taken from one, as a repair leaves it that was stopped.
    pub async fn has_notes(
        &self,
        definition: &MapDefinition,
        on: &ShardId,
        shards: &[ShardId],
    ) -> Result<bool> {
        let opened = shard(self.shards(), on).await?;
        let notes = Notes { on: &opened, definition, claim: None };
        Ok(!notes.holders(self.shards(), shards).await?.is_empty())
    }
}

impl Session {
    /// What is noted of a row of the source when the target takes it.
    pub(crate) fn note_of(&self, table: usize, row: &[Value]) -> Taken {
        let key = self.tables[table].from.key_of(row);
        Taken { key_digest: digest(&key), row_digest: digest(&RowKey(row.to_vec())), key }
    }

    /// Asks the target what it has noted of a row of the source.
    pub(crate) fn select_taken(&self, table: usize, row: &[Value]) -> Statement {
        let pair = &self.tables[table];
        self.target.select_taken(self.source.id(), &pair.to.table, &digest(&pair.from.key_of(row)))
    }

    /// Whether the answer says that the target has taken this very row.
    pub(crate) fn is_taken(&self, table: usize, row: &[Value], answer: &Rows) -> bool {
        let noted = answer.rows().first().and_then(|row| row.text(0).ok());
        noted.is_some_and(|noted| noted == self.note_of(table, row).row_digest)
    }

    /// Has the target forget that it has taken rows: the source has them no more.
    pub(crate) async fn forget_taken(&self, mark: OpId, table: usize, rows: &[&[Value]]) -> Result<()> {
        let (target, pair) = (&self.target, &self.tables[table]);
        let forgotten = target
            .forget_taken((self.source.id(), mark), &pair.to.table, &self.key_digests(table, rows))
            .await;
        forgotten.map_err(MoveError::on(target.id()))
    }

    fn key_digests(&self, table: usize, rows: &[&[Value]]) -> Vec<String> {
        rows.iter().map(|row| digest(&self.tables[table].from.key_of(row))).collect()
    }
}

/// A shard that has noted rows of another as taken, whoever owns their ranges now.
pub(crate) struct Holder {
    shard: Arc<Shard>,
    /// What it calls the tables that it has noted rows of, by what the other calls them.
    tables: BTreeMap<String, String>,
}

/// The rows of one shard that all others may have taken.
pub(crate) struct Notes<'a> {
    pub on: &'a Shard,
    pub definition: &'a MapDefinition,
    /// The repair that claims them; none if it only looks.
    pub claim: Option<OpId>,
}

impl Notes<'_> {
    /// Claims the rows on all of these shards, so that no earlier repair goes on, and has each forget those that are
    /// gone, whoever has removed them and was stopped before he could say so. Answers who has noted others. Who only
    /// looks passes over shards that are away.
    pub(crate) async fn holders(&self, shards: &dyn ShardSource, ids: &[ShardId]) -> Result<Vec<Holder>> {
        let on = self.on;
        let wrong = MoveError::on(on.id());
        if let Some(mark) = self.claim {
            on.claim_repair(on.id(), mark).await.map_err(&wrong)?;
        }
        let datasets = on.tables(self.definition.name()).await.map_err(&wrong)?;
        let mut holders = Vec::new();
        for id in ids.iter().filter(|id| *id != on.id()) {
            match self.holder(shards, id, &datasets).await {
                Ok(holder) => holders.extend(holder),
                Err(error) if self.claim.is_none() => {
                    tracing::debug!(shard = %id, %error, "what it has noted of rows is not known");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(holders)
    }

    async fn holder(
        &self,
        shards: &dyn ShardSource,
        id: &ShardId,
        datasets: &[Dataset],
    ) -> Result<Option<Holder>> {
        let (there, on) = (shard(shards, id).await?, self.on);
        let wrong = MoveError::on(id);
        if let Some(mark) = self.claim {
            there.claim_repair(on.id(), mark).await.map_err(&wrong)?;
        }
        let mut noted = there.taken_tables(on.id()).await.map_err(&wrong)?;
        if noted.is_empty() {
            return Ok(None);
        }
        let mut names = BTreeMap::new();
        if there.dialect() != on.dialect() {
            let known = there.tables(self.definition.name()).await.map_err(&wrong)?;
            names.extend(known.into_iter().map(|dataset| (dataset.name, dataset.table)));
        }
        let mut tables = BTreeMap::new();
        for dataset in datasets {
            let name = names.get(&dataset.name).cloned();
            let name = name.unwrap_or_else(|| table_in(on.dialect(), there.dialect(), &dataset.table));
            // Several datasets may be in one table.
            let Some(place) = noted.iter().position(|noted| *noted == name) else { continue };
            noted.swap_remove(place);
            if let Some(mark) = self.claim {
                self.forget_gone(&there, mark, dataset, &name).await?;
            }
            tables.insert(dataset.table.clone(), name);
        }
        Ok((!tables.is_empty()).then_some(Holder { shard: there, tables }))
    }

    /// Has a shard forget rows of a table that are gone.
    async fn forget_gone(&self, there: &Shard, mark: OpId, dataset: &Dataset, name: &str) -> Result<()> {
        let (on, wrong) = (self.on.id(), MoveError::on(there.id()));
        let mut after = String::new();
        loop {
            let noted = there.taken(on, name, &after, PAGE_NOTES).await.map_err(&wrong)?;
            let Some(last) = noted.last() else { return Ok(()) };
            after = last.key_digest.clone();
            let gone = self.gone(dataset, noted).await?;
            there.forget_taken((on, mark), name, &gone).await.map_err(&wrong)?;
        }
    }

    /// Those of the noted rows that are gone, wherever they were in the map.
    async fn gone(&self, dataset: &Dataset, noted: Vec<Taken>) -> Result<Vec<String>> {
        let on = self.on;
        let shape = on.shape(&dataset.table).await.map_err(MoveError::on(on.id()))?;
        let Some(shape) = shape else { return Ok(Vec::new()) };
        let all = [KeyRange::all()];
        let side = Side::new(on.dialect(), dataset, &shape, &shape, self.definition, &all)?;
        let wrong = MoveError::engine(on.id());
        let db = on.carrier().await.map_err(MoveError::on(on.id()))?;
        let mut gone = Vec::new();
        for note in noted {
            let found = db.read(side.by_key(&note.key)).await.map_err(&wrong)?;
            if rows_of(found).is_empty() {
                gone.push(note.key_digest);
            }
        }
        Ok(gone)
    }
}

impl Holder {
    /// Which rows of the session's source this one has taken, if it is not the target, which is asked anyway.
    pub(crate) async fn taken(
        &self,
        session: &Session,
        table: usize,
        rows: &[Vec<Value>],
    ) -> Result<Option<Vec<bool>>> {
        let (shard, from) = (&self.shard, &session.tables[table].from);
        let Some(name) = self.tables.get(&from.table) else { return Ok(None) };
        if shard.id() == session.target.id() {
            return Ok(None);
        }
        let ask =
            |row: &Vec<Value>| shard.select_taken(session.source.id(), name, &digest(&from.key_of(row)));
        let wrong = MoveError::engine(shard.id());
        let db = shard.carrier().await.map_err(MoveError::on(shard.id()))?;
        let mut tx = db.begin(Access::Read).await.map_err(&wrong)?;
        let answers = tx.run_all(rows.iter().map(ask).collect()).await.map_err(&wrong)?;
        tx.rollback().await.map_err(&wrong)?;
        let is_taken = |(row, answer): (&Vec<Value>, Rows)| session.is_taken(table, row, &answer);
        Ok(Some(rows.iter().zip(answers).map(is_taken).collect()))
    }

    /// Has it forget that it has taken rows of the session's source, which has them no more.
    pub(crate) async fn forget(
        &self,
        session: &Session,
        mark: OpId,
        table: usize,
        rows: &[&[Value]],
    ) -> Result<()> {
        let Some(name) = self.tables.get(&session.tables[table].from.table) else { return Ok(()) };
        let digests = session.key_digests(table, rows);
        let forgotten = self.shard.forget_taken((session.source.id(), mark), name, &digests).await;
        forgotten.map_err(MoveError::on(self.shard.id()))
    }
}

/// Stands for values: the same for the same ones, whatever version of the program has noted them.
fn digest(values: &RowKey) -> String {
    KeyBytes::new(Sha256::digest(values.to_text()).to_vec()).to_hex()
}

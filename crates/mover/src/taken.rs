//! What the owner has noted of rows that a repair has carried to it, and the digests by which they are known again.

use polyshard_engine::{Rows, Statement, Value};
use polyshard_map::{KeyBytes, KeyRange};
use polyshard_shard::{RowKey, Taken};
use sha2::{Digest, Sha256};

use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::{Side, rows_of};

/// Notes looked at at once.
const PAGE_NOTES: usize = 256;

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
    pub(crate) async fn forget_taken<'a>(
        &self,
        table: usize,
        rows: impl Iterator<Item = &'a [Value]>,
    ) -> Result<()> {
        let side = &self.tables[table].from;
        let digests: Vec<String> = rows.map(|row| digest(&side.key_of(row))).collect();
        self.forget_digests(table, &digests).await
    }

    async fn forget_digests(&self, table: usize, digests: &[String]) -> Result<()> {
        let target = &self.target;
        let forgotten = target.forget_taken(self.source.id(), &self.tables[table].to.table, digests).await;
        forgotten.map_err(MoveError::on(target.id()))
    }

    /// Has the target forget rows that the source has no more, whoever has removed them and was stopped before he could
    /// say so.
    pub(crate) async fn forget_settled(&self) -> Result<()> {
        let (source, target) = (&self.source, &self.target);
        for table in 0..self.tables.len() {
            let name = self.tables[table].to.table.clone();
            let mut after = String::new();
            loop {
                let noted = target.taken(source.id(), &name, &after, PAGE_NOTES).await;
                let noted = noted.map_err(MoveError::on(target.id()))?;
                let Some(last) = noted.last() else { break };
                after = last.key_digest.clone();
                let gone = self.gone(table, noted).await?;
                self.forget_digests(table, &gone).await?;
            }
        }
        Ok(())
    }

    /// Those of the noted rows that the source has no more, wherever they are in the map.
    async fn gone(&self, table: usize, noted: Vec<Taken>) -> Result<Vec<String>> {
        let (source, pair) = (&self.source, &self.tables[table]);
        let Some(unit) = self.units.iter().find(|unit| unit.table == table) else { return Ok(Vec::new()) };
        let shape = source.shape(&pair.from.table).await.map_err(MoveError::on(source.id()))?;
        let Some(shape) = shape else { return Ok(Vec::new()) };
        let (dataset, all) = (&unit.dataset, [KeyRange::all()]);
        let side = Side::new(source.dialect(), dataset, &shape, &shape, &self.definition, &all)?;
        let wrong = MoveError::engine(source.id());
        let db = source.carrier().await.map_err(MoveError::on(source.id()))?;
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

/// Stands for values: the same for the same ones, whatever version of the program has noted them.
fn digest(values: &RowKey) -> String {
    KeyBytes::new(Sha256::digest(values.to_text()).to_vec()).to_hex()
}

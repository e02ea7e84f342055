//! Copies what the ranges hold, chunk by chunk: the position is saved on the target, together with the rows.

use std::time::Duration;

use polyshard_engine::{Expect, Statement, Value};
use polyshard_shard::RowKey;
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::{bytes_of, rows_of};

/// Rows of the first chunk: it is not known yet how long they are.
pub(crate) const FIRST_ROWS: usize = 64;
/// Rows of a chunk at most: a write of these holds up others for some milliseconds.
const CHUNK_ROWS_MAX: usize = 1024;
/// Bytes that a chunk should not exceed by much.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// How long one part of copying may take, so that leases are renewed and operators heard.
const PART: Duration = Duration::from_millis(300);

/// Rows read ahead.
struct Chunk {
    rows: Vec<Vec<Value>>,
    /// Nothing comes after.
    last: bool,
}

impl Session {
    /// Records on the target that rows may come, after it was seen that there are none. What was recorded is what may
    /// be cleared away again.
    pub(crate) async fn mark_carried(&mut self) -> Result<()> {
        let mut marks = Vec::new();
        for unit in &self.units {
            let sql = format!(
                "INSERT INTO {} (op, dataset, position, done, copied_rows, copied_bytes) \
                 VALUES ($1, $2, NULL, 0, 0, 0) ON CONFLICT (op, dataset) DO NOTHING",
                self.carried_table()
            );
            marks.push(Statement::new(sql).bind(self.op.id.to_string()).bind(unit.dataset.name.clone()));
        }
        // Also when there is nothing to copy: the mark says that the target was looked at.
        let sql = format!(
            "INSERT INTO {} (op, dataset, position, done, copied_rows, copied_bytes) \
             VALUES ($1, '', NULL, 1, 0, 0) ON CONFLICT (op, dataset) DO NOTHING",
            self.carried_table()
        );
        marks.push(Statement::new(sql).bind(self.op.id.to_string()));
        let written = self.target.carry_write(self.op, self.carry.reverse, marks).await;
        written.map(drop).map_err(MoveError::on(self.target.id()))
    }

    pub(crate) fn carried_table(&self) -> String {
        self.target.dialect().own_table("carried")
    }

    /// Copies for a while. True when all is copied.
    pub(crate) async fn copy(&mut self) -> Result<bool> {
        self.refresh().await?;
        if self.copying_since.is_none() {
            self.copying_since = Some((Instant::now(), self.copied_before().await?));
        }
        let until = Instant::now() + PART;
        while self.copy.unit < self.units.len() {
            if !self.copy_unit(until).await? {
                self.estimate();
                return Ok(false);
            }
            self.copy.unit += 1;
        }
        self.progress.left_ms = None;
        Ok(true)
    }

    /// Copies a dataset until the time is up. True when all of it is copied.
    async fn copy_unit(&mut self, until: Instant) -> Result<bool> {
        let (position, done) = self.position().await?;
        if done {
            return Ok(true);
        }
        let mut chunk = self.read_chunk(position.as_ref()).await?;
        loop {
            let last = chunk.last;
            let table = self.units[self.copy.unit].table;
            let position = chunk.rows.last().map(|row| self.tables[table].from.position(row));
            let wanted = self.next_rows(&chunk);
            let write = self.write_chunk(&chunk, position.as_ref());
            // The next one is read while this one is written.
            let (written, next) = match last {
                true => (write.await, None),
                false => {
                    let (written, next) = tokio::join!(write, self.read_rows(position.as_ref(), wanted));
                    (written, Some(next))
                }
            };
            match written {
                Err(error) if error.is_foreign_key() => {
                    // It refers to a row that came after its table was copied: that one was captured.
                    self.catch_up_before(table).await?;
                    self.write_chunk(&chunk, position.as_ref()).await?;
                }
                other => other?,
            }
            self.copy_rows = wanted;
            self.progress.copied_rows += chunk.rows.len() as u64;
            self.progress.copied_bytes += chunk.rows.iter().map(|row| bytes_of(row)).sum::<u64>();
            match next {
                None => return Ok(true),
                Some(next) => chunk = next?,
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    fn next_rows(&self, chunk: &Chunk) -> usize {
        let bytes: u64 = chunk.rows.iter().map(|row| bytes_of(row)).sum();
        match chunk.rows.len() as u64 {
            0 => self.copy_rows,
            count => (CHUNK_BYTES / (bytes / count).max(1)).clamp(1, CHUNK_ROWS_MAX as u64) as usize,
        }
    }

    async fn read_chunk(&self, after: Option<&RowKey>) -> Result<Chunk> {
        self.read_rows(after, self.copy_rows).await
    }

    async fn read_rows(&self, after: Option<&RowKey>, count: usize) -> Result<Chunk> {
        let unit = &self.units[self.copy.unit];
        let page = self.tables[unit.table].from.page(unit.number, after, None, count);
        let rows = self.page_of(true, page, count).await?;
        Ok(Chunk { last: rows.len() < count, rows })
    }

    /// Reads a page from the source or the target.
    pub(crate) async fn page_of(
        &self,
        source: bool,
        page: Statement,
        count: usize,
    ) -> Result<Vec<Vec<Value>>> {
        let side = if source { &self.source } else { &self.target };
        let wrong = MoveError::engine(side.id());
        let db = side.carrier().await.map_err(MoveError::on(side.id()))?;
        let mut scan =
            db.scan(page, count.clamp(1, polyshard_engine::SCAN_PAGE_ROWS_MAX)).await.map_err(&wrong)?;
        let mut rows = Vec::new();
        while let Some(page) = scan.next().await.map_err(&wrong)? {
            rows.extend(rows_of(page));
        }
        Ok(rows)
    }

    async fn write_chunk(&self, chunk: &Chunk, position: Option<&RowKey>) -> Result<()> {
        let unit = &self.units[self.copy.unit];
        let mut statements = self.tables[unit.table].to.inserts(&chunk.rows);
        let sql = format!(
            "UPDATE {} SET position = COALESCE($3, position), done = $4, copied_rows = copied_rows + $5, \
             copied_bytes = copied_bytes + $6 WHERE op = $1 AND dataset = $2",
            self.carried_table()
        );
        let bytes: u64 = chunk.rows.iter().map(|row| bytes_of(row)).sum();
        let mark = Statement::new(sql)
            .bind(self.op.id.to_string())
            .bind(unit.dataset.name.clone())
            .bind(position.map(RowKey::to_text))
            .bind(i64::from(chunk.last))
            .bind(chunk.rows.len() as i64)
            .bind(bytes as i64)
            .expect(Expect::Rows(1));
        statements.push(mark);
        let written = self.target.carry_write(self.op, self.carry.reverse, statements).await;
        written.map(drop).map_err(MoveError::on(self.target.id()))
    }

    /// How far the current dataset is copied.
    async fn position(&self) -> Result<(Option<RowKey>, bool)> {
        let unit = &self.units[self.copy.unit];
        let on_target = MoveError::engine(self.target.id());
        let sql =
            format!("SELECT position, done FROM {} WHERE op = $1 AND dataset = $2", self.carried_table());
        let statement = Statement::new(sql).bind(self.op.id.to_string()).bind(unit.dataset.name.clone());
        let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
        let rows = db.read(statement).await.map_err(&on_target)?;
        // One that came after the capture began has all its rows in there.
        let Some(row) = rows.first() else { return Ok((None, true)) };
        let position = row.opt_text(0).map_err(&on_target)?.map(RowKey::from_text).transpose();
        let position = position.map_err(MoveError::on(self.target.id()))?;
        Ok((position, row.int(1).map_err(&on_target)? == 1))
    }

    async fn copied_before(&mut self) -> Result<u64> {
        let on_target = MoveError::engine(self.target.id());
        let sql = format!(
            "SELECT CAST(COALESCE(sum(copied_rows), 0) AS bigint), CAST(COALESCE(sum(copied_bytes), 0) AS bigint) \
             FROM {} WHERE op = $1",
            self.carried_table()
        );
        let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
        let rows = db.read(Statement::new(sql).bind(self.op.id.to_string())).await.map_err(&on_target)?;
        let row = rows.one().map_err(&on_target)?;
        self.progress.copied_rows = row.int(0).map_err(&on_target)? as u64;
        self.progress.copied_bytes = row.int(1).map_err(&on_target)? as u64;
        Ok(self.progress.copied_rows)
    }

    fn estimate(&mut self) {
        let Some((since, before)) = self.copying_since else { return };
        let copied = self.progress.copied_rows.saturating_sub(before);
        let left = self.progress.total_rows.saturating_sub(self.progress.copied_rows);
        let spent_ms = since.elapsed().as_millis() as u64;
        self.progress.left_ms = (copied > 0).then(|| left.saturating_mul(spent_ms) / copied);
    }
}

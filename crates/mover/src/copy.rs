//! Copies what the ranges hold, chunk by chunk: the position is saved on the target, together with the rows.
//!
//! Nothing that counts as copied can be lost, though only a dataset's last chunk waits for the target's disk:
//! - Rows and position are one transaction, so that a target that was killed has both or neither.
//! - A database recovers what it has committed in that order and without gaps. So the last chunk, which waits for the
//!   disk and says that the dataset is done, has all chunks before it on the disk, too. It is answered, and seen by
//!   others, only when it is there: whoever reads that a dataset is done can rely on it. The catalog is told that all
//!   are copied after that.
//! - A position that was read or written, and lost afterwards, is not the one that the next chunk expects to find
//!   ([`Session::mark`]): that chunk is not written, and copying goes on from the position that is there.
//! - What is changed in a dataset that is done waits for the disk (`write_target`) before its notes are forgotten on
//!   the source; and what has to wait for other rows is noted there, on the disk, before the position passes it.

use std::time::Duration;

use polyshard_engine::{Dialect, Durable, Expect, Scan, Statement, Value};
use polyshard_shard::{RowKey, ShardError};
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::register::number_of;
use crate::session::Session;
use crate::table::{bytes_of, rows_of};

/// Rows of the first chunk: it is not known yet how long they are.
pub(crate) const FIRST_ROWS: usize = 64;
/// Rows of a chunk at most: a write of these holds up others for some milliseconds.
const CHUNK_ROWS_MAX: usize = 1024;
/// The same where one SQLite file is copied into another by the database itself, which is quicker.
pub(crate) const BESIDE_ROWS_MAX: usize = 8192;
/// Bytes that a chunk should not exceed by much.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Rows of a chunk that is put with care, one by one in the worst case.
const CAREFUL_ROWS: usize = 256;
/// How long one part of copying may take before operators are heard. It is one query, which may have to sort all rows
/// first; and what it sees cannot be vacuumed meanwhile.
const PART: Duration = Duration::from_secs(3);
/// The same once more rows were copied than there were when it began: the query does not see what writers add while it
/// runs, so that one query comes to its end however fast they are.
const PART_LATE: Duration = Duration::from_secs(60);

/// Rows read ahead.
#[derive(Default)]
struct Chunk {
    rows: Vec<Vec<Value>>,
    /// Nothing comes after.
    last: bool,
}

/// A query under way for the rows of one dataset, in order. One for each chunk would have to look for its beginning
/// each time, which takes long where no index leads there.
struct Reader {
    scan: Scan,
    /// Rows that come at once.
    page: usize,
    /// What has come, and is not written yet.
    ahead: Chunk,
}

/// Rows that SQLite copies at once: those up to a position, or all that are left.
#[derive(Default)]
struct Stretch {
    upto: Option<RowKey>,
    rows: u64,
    bytes: u64,
}

async fn next(scan: &mut Scan, page: usize) -> std::result::Result<Chunk, polyshard_engine::Error> {
    Ok(match scan.next().await? {
        None => Chunk { rows: Vec::new(), last: true },
        Some(rows) => {
            let rows = rows_of(rows);
            Chunk { last: rows.len() < page, rows }
        }
    })
}

impl Session {
    /// Records on the target that rows may come, after it was seen that there are none, and after the capture began.
    /// What was recorded is what may be cleared away again.
    pub(crate) async fn mark_carried(&mut self) -> Result<()> {
        let mut marks: Vec<Statement> =
            self.units.iter().map(|unit| self.new_mark(&unit.dataset.name)).collect();
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

    /// A process of an earlier version has marked each dataset of a table by itself. What it had copied of the table is
    /// copied again: the rows that are there are put in the place of themselves.
    async fn join_marks(&self) -> Result<()> {
        let (carried, registered) = (self.carried_table(), self.target.dialect().own_table("dataset"));
        for unit in self.units.iter().filter(|unit| unit.dataset.is_of_map()) {
            let there = format!("SELECT name FROM {registered} WHERE map = $2 AND tab = $3");
            let former =
                format!("SELECT dataset FROM {carried} WHERE op = $1 AND dataset IN ({there}) LIMIT 1");
            let table = &self.tables[unit.table].to.table;
            let bind = |sql: String| {
                let statement = Statement::new(sql).bind(self.op.id.to_string());
                statement.bind(self.definition.name().to_string()).bind(table.clone())
            };
            let on_target = MoveError::engine(self.target.id());
            let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
            if db.read(bind(former)).await.map_err(&on_target)?.is_empty() {
                continue;
            }
            let forget = format!("DELETE FROM {carried} WHERE op = $1 AND dataset IN ({there})");
            let statements = vec![bind(forget), self.new_mark(&unit.dataset.name)];
            let written = self.target.carry_write(self.op, self.carry.reverse, statements).await;
            written.map_err(MoveError::on(self.target.id()))?;
        }
        Ok(())
    }

    fn new_mark(&self, dataset: &str) -> Statement {
        let sql = format!(
            "INSERT INTO {} (op, dataset, position, done, copied_rows, copied_bytes) \
             VALUES ($1, $2, NULL, 0, 0, 0) ON CONFLICT (op, dataset) DO NOTHING",
            self.carried_table()
        );
        Statement::new(sql).bind(self.op.id.to_string()).bind(dataset.to_owned())
    }

    pub(crate) fn carried_table(&self) -> String {
        self.target.dialect().own_table("carried")
    }

    /// Copies for a while. True when all is copied.
    pub(crate) async fn copy(&mut self) -> Result<bool> {
        self.refresh().await?;
        if self.progress.total_rows == 0 {
            // Another driver has counted them.
            self.progress.total_rows = self.count_source().await?;
        }
        if self.copying_since.is_none() {
            self.join_marks().await?;
            self.copying_since = Some((Instant::now(), self.copied_before().await?));
        }
        self.keep_ahead(self.progress.copied_rows, self.progress.total_rows);
        let until = Instant::now() + if self.is_late() { PART_LATE } else { PART };
        while self.copied_units < self.units.len() {
            // Whatever went wrong, it is counted anew what is there.
            let counted = self.copying_since.take();
            let is_copied = self.copy_unit(until).await?;
            self.copying_since = counted;
            if !is_copied {
                self.estimate();
                return Ok(false);
            }
            self.copied_units += 1;
        }
        self.progress.left_ms = None;
        Ok(true)
    }

    /// Copies a dataset until the time is up. True when all of it is copied.
    async fn copy_unit(&mut self, until: Instant) -> Result<bool> {
        loop {
            let copied = match self.is_beside() {
                true => self.copy_beside(until).await,
                false => self.copy_through(until).await,
            };
            match copied {
                // A row refers to one that came after its table was copied, or has a value that another had when that
                // was copied.
                Err(error) if error.is_rule() => {
                    self.catch_up_before(self.units[self.copied_units].table).await?;
                    if self.copy_carefully().await? {
                        return Ok(true);
                    }
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                other => return other,
            }
        }
    }

    /// Copies rows by reading them here and writing them there.
    async fn copy_through(&mut self, until: Instant) -> Result<bool> {
        let (mut before, done) = self.position().await?;
        if done {
            return Ok(true);
        }
        let mut reader = self.open_reader(before.clone()).await?;
        let table = self.units[self.copied_units].table;
        loop {
            let chunk = std::mem::take(&mut reader.ahead);
            let position = chunk.rows.last().map(|row| self.tables[table].from.position(row));
            if chunk.last {
                self.write_chunk(&chunk, before.as_ref(), position.as_ref()).await?;
                self.count(&chunk);
                return Ok(true);
            }
            // The next one is read while this one is written.
            let write = self.write_chunk(&chunk, before.as_ref(), position.as_ref());
            let (written, next, took) = self.pace().both(write, next(&mut reader.scan, reader.page)).await;
            written?;
            self.count(&chunk);
            self.copy_bite.learn(chunk.rows.len(), took);
            reader.ahead = next.map_err(MoveError::engine(self.source.id()))?;
            if Instant::now() >= until {
                return Ok(false);
            }
            // Rows are longer or shorter than those before, or there is more or less to do beside.
            let wanted = self.chunk_rows();
            if !self.is_late() && !(wanted / 2..=wanted * 2).contains(&reader.page) {
                reader = self.open_reader(position.clone()).await?;
            }
            before = position;
        }
    }

    async fn open_reader(&self, after: Option<RowKey>) -> Result<Reader> {
        let on_source = MoveError::engine(self.source.id());
        let unit = &self.units[self.copied_units];
        let db = self.source.carrier().await.map_err(MoveError::on(self.source.id()))?;
        let all = self.tables[unit.table].from.page(unit.number, after.as_ref(), None, None);
        let page = self.chunk_rows();
        let mut scan = db.scan(all, page).await.map_err(&on_source)?;
        let ahead = next(&mut scan, page).await.map_err(&on_source)?;
        Ok(Reader { scan, page, ahead })
    }

    /// Rows that are to be read and written at once.
    fn chunk_rows(&self) -> usize {
        self.copy_rows.min(self.copy_bite.rows(self.pace()))
    }

    /// Whether the database itself can copy: both files are of this process.
    fn is_beside(&self) -> bool {
        self.source.dialect() == Dialect::Sqlite && self.target.dialect() == Dialect::Sqlite
    }

    /// Has SQLite copy rows from file to file.
    async fn copy_beside(&mut self, until: Instant) -> Result<bool> {
        let (mut after, done) = self.position().await?;
        if done {
            return Ok(true);
        }
        let mut stretch = self.next_stretch(after.as_ref()).await?;
        loop {
            let write = self.write_stretch(after.as_ref(), &stretch);
            if stretch.upto.is_none() {
                write.await?;
                self.count_stretch(&stretch);
                return Ok(true);
            }
            let (written, next, took) =
                self.pace().both(write, self.next_stretch(stretch.upto.as_ref())).await;
            written?;
            let next = next?;
            self.count_stretch(&stretch);
            self.copy_bite.learn(stretch.rows as usize, took);
            after = stretch.upto;
            stretch = next;
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }

    /// Looks how far the next chunk goes, by the lengths of rows.
    async fn next_stretch(&self, after: Option<&RowKey>) -> Result<Stretch> {
        let unit = &self.units[self.copied_units];
        let side = &self.tables[unit.table].from;
        let damaged = || MoveError::Refused(format!("rows of {} cannot be counted", unit.dataset.name));
        let mut most = self.copy_bite.rows(self.pace());
        loop {
            let sums = self.page_of(true, side.length(unit.number, after, most), 1).await?;
            let [Value::Int(rows), Value::Int(bytes)] = sums.first().ok_or_else(damaged)?.as_slice() else {
                return Err(damaged());
            };
            let (rows, bytes) = (*rows as u64, *bytes as u64);
            // Long rows: fewer of them. One may be as long as it is.
            if bytes > CHUNK_BYTES * 2 && rows > 1 {
                let fit = CHUNK_BYTES * rows / bytes;
                most = fit.clamp(1, (rows / 2).max(1)) as usize;
                continue;
            }
            let mut stretch = Stretch { upto: None, rows, bytes };
            if rows == most as u64 {
                let end = self.page_of(true, side.end(unit.number, after, most), 1).await?;
                stretch.upto = end.into_iter().next().map(RowKey);
            }
            return Ok(stretch);
        }
    }

    /// Rows of a dataset that got its first ones after it was looked at which have some are passed over: they are in
    /// the capture.
    async fn write_stretch(&self, after: Option<&RowKey>, stretch: &Stretch) -> Result<()> {
        let unit = &self.units[self.copied_units];
        let pair = &self.tables[unit.table];
        let upto = stretch.upto.as_ref();
        if let Some(numbers) = pair.from.numbers(after, upto).filter(|_| unit.dataset.is_of_map()) {
            let page = self.page_of(true, numbers, polyshard_engine::SCAN_PAGE_ROWS_MAX).await?;
            let numbers = page.iter().filter_map(|row| number_of(row.first())).collect();
            self.register_numbers(unit.table, numbers).await?;
        }
        let statements = vec![
            pair.to.insert_beside(unit.number, after, upto),
            self.mark(after, upto, upto.is_none(), (stretch.rows, stretch.bytes)),
        ];
        // What is lost with the power is lost together with the position. The last one makes all of them safe.
        let durable = if upto.is_none() { Durable::Now } else { Durable::WithTheNext };
        let written = self.target.carry_write_beside(self.op, &self.source, statements, durable).await;
        written.map(drop).map_err(MoveError::on(self.target.id()))
    }

    fn count_stretch(&mut self, stretch: &Stretch) {
        self.progress.copied_rows += stretch.rows;
        self.progress.copied_bytes += stretch.bytes;
        self.keep_ahead(self.progress.copied_rows, self.progress.total_rows);
    }

    /// Copies some rows that stand in each other's way: those that cannot be put now are noted as changed, and come
    /// with what they wait for. True after the last.
    async fn copy_carefully(&mut self) -> Result<bool> {
        let (before, done) = self.position().await?;
        if done {
            return Ok(true);
        }
        let unit = &self.units[self.copied_units];
        let pair = &self.tables[unit.table];
        let count = CAREFUL_ROWS.min(self.copy_rows);
        // Read now: nothing of this table was carried since, so that nothing newer is there to be overwritten.
        let page = pair.from.page(unit.number, before.as_ref(), None, Some(count));
        let rows = self.page_of(true, page, count).await?;
        self.refuse_unkeepable(unit.table, &rows)?;
        self.register(unit.table, rows.iter().map(Vec::as_slice)).await?;
        let position = rows.last().map(|row| pair.from.position(row));
        let mut parts: Vec<std::ops::Range<usize>> = std::iter::once(0..rows.len()).collect();
        let mut waiting = Vec::new();
        while let Some(part) = parts.pop() {
            let put = rows[part.clone()].iter().map(|row| pair.to.upsert(row)).collect();
            match self.write_target(put).await {
                Err(error) if error.is_rule() && part.len() == 1 => {
                    waiting.push(pair.from.key_of(&rows[part.start]));
                }
                Err(error) if error.is_rule() => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                other => other?,
            }
        }
        let noted = self.source.note(self.op, self.carry.forward, &pair.from.table, &waiting).await;
        noted.map_err(MoveError::on(self.source.id()))?;
        let chunk = Chunk { last: rows.len() < count, rows };
        let mark = vec![self.mark_of(&chunk, before.as_ref(), position.as_ref())];
        let marked = self.target.carry_write(self.op, self.carry.reverse, mark).await;
        marked.map_err(|error| self.is_lost(error))?;
        self.count(&chunk);
        Ok(chunk.last)
    }

    fn count(&mut self, chunk: &Chunk) {
        let bytes: u64 = chunk.rows.iter().map(|row| bytes_of(row)).sum();
        self.copy_rows = match chunk.rows.len() as u64 {
            0 => self.copy_rows,
            rows => (CHUNK_BYTES / (bytes / rows).max(1)).clamp(1, CHUNK_ROWS_MAX as u64) as usize,
        };
        self.progress.copied_rows += chunk.rows.len() as u64;
        self.progress.copied_bytes += bytes;
        self.keep_ahead(self.progress.copied_rows, self.progress.total_rows);
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

    /// Writes rows that come after a position.
    async fn write_chunk(
        &self,
        chunk: &Chunk,
        before: Option<&RowKey>,
        position: Option<&RowKey>,
    ) -> Result<()> {
        let unit = &self.units[self.copied_units];
        self.refuse_unkeepable(unit.table, &chunk.rows)?;
        self.register(unit.table, chunk.rows.iter().map(Vec::as_slice)).await?;
        let mut statements = self.tables[unit.table].to.inserts(&chunk.rows);
        statements.push(self.mark_of(chunk, before, position));
        // What is lost with the server is lost together with the position. The last one makes all of them safe.
        let durable = if chunk.last { Durable::Now } else { Durable::WithTheNext };
        let written = self.target.carry_write_as(self.op, self.carry.reverse, statements, durable).await;
        written.map(drop).map_err(|error| self.is_lost(error))
    }

    /// A position that is not the last one: the server has come back without it.
    fn is_lost(&self, error: ShardError) -> MoveError {
        match error {
            ShardError::Engine(polyshard_engine::Error::Expectation { .. }) => MoveError::Later(format!(
                "shard {} has lost the rows that were copied last; copying goes on from where it is",
                self.target.id()
            )),
            error => MoveError::on(self.target.id())(error),
        }
    }

    fn mark_of(&self, chunk: &Chunk, before: Option<&RowKey>, position: Option<&RowKey>) -> Statement {
        let bytes: u64 = chunk.rows.iter().map(|row| bytes_of(row)).sum();
        self.mark(before, position, chunk.last, (chunk.rows.len() as u64, bytes))
    }

    /// Saves how far the current dataset is copied, if it was so far before: a server may have lost what was not on its
    /// disk yet, and with it the position.
    fn mark(
        &self,
        before: Option<&RowKey>,
        position: Option<&RowKey>,
        done: bool,
        (rows, bytes): (u64, u64),
    ) -> Statement {
        let sql = format!(
            "UPDATE {} SET position = COALESCE($3, position), done = $4, copied_rows = copied_rows + $5, \
             copied_bytes = copied_bytes + $6 WHERE op = $1 AND dataset = $2 AND COALESCE(position, '') = $7",
            self.carried_table()
        );
        Statement::new(sql)
            .bind(self.op.id.to_string())
            .bind(self.units[self.copied_units].dataset.name.clone())
            .bind(position.map(RowKey::to_text))
            .bind(i64::from(done))
            .bind(rows as i64)
            .bind(bytes as i64)
            .bind(before.map(RowKey::to_text).unwrap_or_default())
            .expect(Expect::Rows(1))
    }

    /// How far the current dataset is copied.
    async fn position(&self) -> Result<(Option<RowKey>, bool)> {
        let unit = &self.units[self.copied_units];
        let on_target = MoveError::engine(self.target.id());
        let sql =
            format!("SELECT position, done FROM {} WHERE op = $1 AND dataset = $2", self.carried_table());
        let statement = Statement::new(sql).bind(self.op.id.to_string()).bind(unit.dataset.name.clone());
        let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
        let rows = db.read(statement).await.map_err(&on_target)?;
        // One that was bound after the marks were made has all its rows in the capture, which had begun.
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

//! Reads a content of blocks or appends.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use polyshard_engine::{Dialect, Value};

use super::{ByteStream, ObjectError, PIECE_BYTES, Reader, broken, damaged};
use crate::schema::BLOCKS;
use crate::store::extents::{self, Extent, Holds, ObjectNumber, Piece, object_id, pieces};
use crate::store::rows::Step;

/// Rows of extents that are read together at most.
const ROWS_MAX: usize = 512;
/// Bytes of the blob of which the rows are read together: what is loaded is no more than this and what the rows at both
/// ends have beyond.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Rows of blocks that are read together at most.
const BLOCK_ROWS_MAX: usize = 16;

/// Bytes of the blob in order.
pub(super) fn read(reader: Reader, range: Range<u64>) -> ByteStream {
    let extents = Extents { reader, range, queue: VecDeque::new(), object: None };
    let pieces = stream::try_unfold(extents, |mut extents| async move {
        Ok(extents.next().await?.map(|piece| (piece, extents)))
    });
    pieces.boxed()
}

struct Extents {
    reader: Reader,
    /// What is neither sent nor in the queue yet.
    range: Range<u64>,
    /// What comes next.
    queue: VecDeque<Next>,
    /// The object that is being sent.
    object: Option<ByteStream>,
}

enum Next {
    Piece(Piece),
    Body(Bytes),
}

impl Extents {
    async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        let mut small = BytesMut::new();
        loop {
            if let Some(object) = &mut self.object {
                match object.next().await {
                    Some(piece) => return piece.map(Some),
                    None => self.object = None,
                }
            }
            // Many small appends are sent together.
            let is_next_small = !matches!(self.queue.front(), Some(Next::Piece(Piece::Object { .. })));
            let is_end = self.queue.is_empty() && self.range.is_empty();
            if small.len() >= PIECE_BYTES || (!small.is_empty() && (is_end || !is_next_small)) {
                return Ok(Some(small.freeze()));
            }
            if is_end {
                return Ok(None);
            }
            match self.queue.pop_front() {
                None => self.fill().await?,
                Some(Next::Body(body)) if small.is_empty() && body.len() >= PIECE_BYTES => {
                    return Ok(Some(body));
                }
                Some(Next::Body(body)) => small.extend_from_slice(&body),
                Some(Next::Piece(Piece::Object { object, range })) => self.open(object, range).await?,
                Some(Next::Piece(Piece::Staged { stage, id, seq, range })) => {
                    self.read_staged(stage, Row { id, seq, range }).await?;
                }
            }
        }
    }

    /// Reads the next rows of extents.
    async fn fill(&mut self) -> Result<(), ObjectError> {
        let reader = &self.reader;
        let chunk = self.range.start..self.range.end.min(self.range.start.saturating_add(CHUNK_BYTES));
        let step = extents::read_from(&reader.home, reader.content, &chunk, ROWS_MAX);
        let rows = extents::read(&reader.rows(step).await?).map_err(broken)?;
        let before = self.range.start;
        for extent in rows {
            self.add(extent)?;
        }
        // Every chunk has the byte that comes next, unless the content was removed.
        if self.range.start == before { Err(self.reader.gone()) } else { Ok(()) }
    }

    fn add(&mut self, extent: Extent) -> Result<(), ObjectError> {
        let end = extent.start + extent.length;
        if extent.start > self.range.start {
            return Err(self.reader.gone());
        }
        let wanted = self.range.start..end.min(self.range.end);
        if wanted.is_empty() {
            return Ok(());
        }
        match extent.holds {
            Holds::Body(body) => {
                let (from, to) = (wanted.start - extent.start, wanted.end - extent.start);
                self.queue.push_back(Next::Body(body.slice(from as usize..to as usize)));
            }
            Holds::Blocks(blocks) => {
                self.queue.extend(pieces(extent.start, &blocks, &wanted).into_iter().map(Next::Piece));
            }
        }
        self.range.start = wanted.end;
        Ok(())
    }

    /// Begins to send an object.
    async fn open(&mut self, object: ObjectNumber, range: Range<u64>) -> Result<(), ObjectError> {
        self.object = Some(self.reader.object(object_id(object), range).await?);
        Ok(())
    }

    /// Reads the bodies of a block and of those of the same stage that follow it.
    async fn read_staged(&mut self, stage: i64, first: Row) -> Result<(), ObjectError> {
        let mut bytes = first.range.end;
        let mut wanted = vec![first];
        while let Some(Next::Piece(Piece::Staged { stage: other, id, seq, range })) = self.queue.front() {
            bytes += range.end;
            if *other != stage || wanted.len() == BLOCK_ROWS_MAX || bytes > CHUNK_BYTES {
                break;
            }
            wanted.push(Row { id: id.clone(), seq: *seq, range: range.clone() });
            self.queue.pop_front();
        }
        let rows = self.reader.rows(self.bodies(stage, &wanted)).await?;
        let mut bodies = Vec::with_capacity(rows.len());
        for row in &rows {
            bodies.push((
                row.blob(0).map_err(broken)?,
                row.int(1).map_err(broken)?,
                row.opt_blob(2).map_err(broken)?,
            ));
        }
        for want in wanted.iter().rev() {
            let found = bodies.iter().find(|(id, seq, _)| **id == *want.id && *seq == want.seq);
            let Some((_, _, body)) = found else { return Err(self.reader.gone()) };
            let range = want.range.start as usize..want.range.end as usize;
            let body = body.and_then(|body| body.get(range));
            let body =
                body.ok_or_else(|| damaged("a block has fewer bytes than its list says".to_owned()))?;
            self.queue.push_front(Next::Body(Bytes::copy_from_slice(body)));
        }
        Ok(())
    }

    fn bodies(&self, stage: i64, wanted: &[Row]) -> Step {
        let step = Step::new(&self.reader.home, bodies_text).bind(stage);
        // The text has a fixed number of rows, so that it is prepared once.
        let rows = wanted.iter().map(|row| (Value::Blob(row.id.to_vec()), Value::Int(row.seq)));
        let rows = rows.chain(std::iter::repeat((Value::Null, Value::Null))).take(BLOCK_ROWS_MAX);
        rows.fold(step, |step, (id, seq)| step.bind(id).bind(seq))
    }
}

/// A row of a block whose bytes are wanted.
struct Row {
    id: Box<[u8]>,
    seq: i64,
    range: Range<u64>,
}

fn bodies_text(dialect: Dialect) -> Arc<str> {
    static SQLITE: LazyLock<Arc<str>> = LazyLock::new(|| bodies_of(Dialect::Sqlite));
    static POSTGRES: LazyLock<Arc<str>> = LazyLock::new(|| bodies_of(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => SQLITE.clone(),
        Dialect::Postgres => POSTGRES.clone(),
    }
}

fn bodies_of(dialect: Dialect) -> Arc<str> {
    let table = dialect.own_table(BLOCKS);
    // By its whole key each, which every planner finds at once: a stage may have very many rows, also under one id.
    let row = |at: usize| {
        format!(
            "SELECT block_id, seq, body FROM {table} WHERE placement = $2 AND dataset = $1 AND name = $3 \
             AND stage = $4 AND block_id = ${} AND seq = ${}",
            2 * at + 5,
            2 * at + 6
        )
    };
    let rows: Vec<String> = (0..BLOCK_ROWS_MAX).map(row).collect();
    rows.join(" UNION ALL ").into()
}

#[cfg(test)]
mod tests {
    use polyshard_engine::{Database, Options, Statement, Target};

    use super::*;

    /// A block may be put any number of times under one id. Only those that a list names are read.
    #[tokio::test]
    async fn bodies_are_read_only_of_the_rows_that_are_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::sqlite(folder.path().join("shard.db"));
        let database = Database::open(target, Options::default(), None).await.unwrap();
        for text in (crate::schema().statements)(Dialect::Sqlite) {
            database.write(Statement::new(text).into()).await.unwrap();
        }
        let table = Dialect::Sqlite.own_table(BLOCKS);
        let put = format!(
            "WITH RECURSIVE seqs(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM seqs WHERE seq < 1000) \
             INSERT INTO {table} (placement, dataset, name, stage, block_id, seq, size, at, object, body) \
             SELECT x'01', 1, 'a', 9, ids.id, seq, 1, 0, NULL, x'07' \
             FROM seqs, (SELECT x'aa' AS id UNION SELECT x'bb') ids"
        );
        database.write(Statement::new(put).into()).await.unwrap();
        let statement =
            Statement::new(bodies_text(Dialect::Sqlite)).bind(1_i64).bind(vec![1_u8]).bind("a").bind(9_i64);
        let wanted = [(0xaa_u8, 1000_i64), (0xbb, 3)];
        let rows = wanted.iter().map(|(id, seq)| (Value::Blob(vec![*id]), Value::Int(*seq)));
        let rows = rows.chain(std::iter::repeat((Value::Null, Value::Null))).take(BLOCK_ROWS_MAX);
        let statement = rows.fold(statement, |statement, (id, seq)| statement.bind(id).bind(seq));
        let found = database.read(statement).await.unwrap();
        let mut found: Vec<_> =
            found.iter().map(|row| (row.blob(0).unwrap()[0], row.int(1).unwrap())).collect();
        found.sort_unstable();
        assert_eq!(found, wanted);
        database.close().await;
    }
}

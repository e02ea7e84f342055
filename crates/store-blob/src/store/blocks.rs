//! Block blobs made of blocks: blocks are put into the blob's stage, and a list of them becomes its content.
//!
//! The rows of a stage never change: a block that is put again gets a row of its own, and the last one counts. So a
//! list that is being committed cannot have the bytes under it exchanged. It names the bytes and copies none: the rows
//! of small blocks stay where they are, and the content says which they are.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polyshard_engine::{self as engine, Dialect, Expect, Row};

use super::extents::{self, Entry, EntryPlace, Extent, number, object_number};
use super::home::{Change, Home, Read, TRIES_MAX};
use super::items::{self, check_lease, check_read, fresh, there};
use super::rows::Step;
use super::statements::BASE;
use super::upload::{Received, Stored};
use super::{BlobStore, StoreError};
use crate::checksum::{Digests, Wanted};
use crate::conditions::Conditions;
use crate::model::{
    Blob, BlobKind, Block, BlockId, BlockList, BlockListKind, BlockSource, NewBlob, Props, SnapshotId,
    Upload, Written,
};
use crate::name::BlobName;
use crate::objects::ObjectId;
use crate::schema::{BLOCKS, ITEMS};

/// Bytes of a block at most, as with the service.
pub const BLOCK_BYTES_MAX: u64 = 4000 * 1024 * 1024;
/// Blocks of a blob at most.
pub const COMMITTED_BLOCKS_MAX: usize = 50_000;
/// Uncommitted blocks of a blob at most. They are counted at some of the puts only, so that each need not read all.
pub const UNCOMMITTED_BLOCKS_MAX: usize = 100_000;
/// Of so many puts of a block, one counts the others.
const COUNT_EVERY: u64 = 64;
/// Bytes of a block's id at most.
pub const BLOCK_ID_BYTES_MAX: usize = 64;
/// Rows of blocks that are read together.
const ROWS_MAX: i64 = 2000;
/// Bytes of lists that are written in the transaction that names them; more are written before.
const LIST_BYTES_IN_ONE: usize = 256 * 1024;

struct Texts {
    put: Arc<str>,
    list: Arc<str>,
    count: Arc<str>,
    one: Arc<str>,
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let (table, items) = (dialect.own_table(BLOCKS), dialect.own_table(ITEMS));
        let (now, text) = (dialect.now_ms(), |text: String| Arc::<str>::from(text));
        let stage = "placement = $2 AND dataset = $1 AND name = $3 AND stage = $4";
        let (int, blob) = (dialect.bigint(), dialect.blob());
        Texts {
            // Only into the stage that the blob has now, and only ids as long as those that are there. Of two that put
            // the same block at the same time, one does nothing and tries again.
            put: text(format!(
                "INSERT INTO {table} (dataset, placement, name, stage, block_id, seq, size, at, object, body) \
                 SELECT CAST($1 AS {int}), CAST($2 AS {blob}), CAST($3 AS text), CAST($4 AS {int}), \
                 CAST($5 AS {blob}), coalesce((SELECT max(seq) FROM {table} WHERE {stage} AND block_id = $5), 0) + 1, \
                 CAST($6 AS {int}), {now}, CAST($7 AS text), CAST($8 AS {blob}) \
                 WHERE EXISTS (SELECT 1 FROM {items} WHERE {stage} AND snapshot = {BASE}) \
                 AND coalesce((SELECT CAST(length(block_id) AS {int}) FROM {table} WHERE {stage} LIMIT 1), $9) = $9 \
                 ON CONFLICT DO NOTHING"
            )),
            list: text(format!(
                "SELECT block_id, seq, size, object FROM {table} WHERE {stage} AND (block_id, seq) > ($5, $6) \
                 ORDER BY block_id, seq LIMIT CAST($7 AS bigint)"
            )),
            count: text(format!("SELECT count(*) FROM {table} WHERE {stage}")),
            one: text(format!("SELECT CAST(length(block_id) AS {int}) FROM {table} WHERE {stage} LIMIT 1")),
        }
    }
}

fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

impl BlobStore {
    /// Puts a block, which is part of nothing until a list names it.
    pub async fn put_block(
        &self,
        name: &BlobName,
        id: &BlockId,
        upload: Upload,
        conditions: &Conditions,
    ) -> Result<Digests, StoreError> {
        let home = self.home_of_request(name).await?;
        if id.0.is_empty() || id.0.len() > BLOCK_ID_BYTES_MAX {
            return Err(StoreError::InvalidBlockId);
        }
        if upload.length > BLOCK_BYTES_MAX {
            return Err(StoreError::TooLarge { max: BLOCK_BYTES_MAX });
        }
        // What is refused now need not be sent; what may be stored is looked at again.
        let found = self.row(&home, 0, Read::Head).await?;
        check_block(name, found.as_ref(), conditions)?;
        self.check_room(&home, found.as_ref()).await?;
        let received = self.receive(&home, upload, Wanted::default()).await?;
        match self.add_block(&home, id, &received, conditions).await {
            Ok(()) => Ok(received.digests),
            Err(error) => {
                self.forget_unless_named(&home, &received, &error).await;
                Err(error)
            }
        }
    }

    async fn add_block(
        &self,
        home: &Home,
        id: &BlockId,
        received: &Received,
        conditions: &Conditions,
    ) -> Result<(), StoreError> {
        for _ in 0..TRIES_MAX {
            let found = self.row(home, 0, Read::Head).await?;
            check_block(&home.name, found.as_ref(), conditions)?;
            let put = |stage: i64| {
                let put = [put(home, stage, id, received)];
                put.into_iter().chain(self.take_received(home, received)).collect::<Vec<Step>>()
            };
            let stage = found.as_ref().map_or(0, |found| found.stage);
            let is_done = if stage != 0 {
                self.write(home, put(stage)).await?.is_some()
            } else {
                let stage = self.new_number();
                let change = self.begin_stage(home, found.as_ref(), stage)?.after(put(stage));
                self.put_row(home, found.as_ref(), change).await?.is_some()
            };
            if is_done {
                return Ok(());
            }
            if stage != 0 {
                self.check_id_length(home, stage, id).await?;
            }
        }
        Err(StoreError::Contended(home.name.to_string()))
    }

    /// Gives a blob a stage. One that is not there, or deleted, becomes one that has uncommitted blocks only.
    fn begin_stage(&self, home: &Home, found: Option<&Blob>, stage: i64) -> Result<Change, StoreError> {
        if let Some(found) = found.filter(|found| found.deleted == 0) {
            return Ok(Change::new(Blob { stage, ..found.clone() }));
        }
        let blob = fresh(&home.name, BlobKind::Block, found, self.next_time(found));
        self.replace(home, found, Blob { stage, is_committed: false, ..blob }, &Conditions::default())
    }

    async fn check_id_length(&self, home: &Home, stage: i64, id: &BlockId) -> Result<(), StoreError> {
        let one = Step::new(home, |dialect| texts(dialect).one.clone()).bind(stage);
        let rows = self.read(home, &one).await?;
        match rows.first().map(|row| number(row, 0)).transpose()? {
            Some(length) if length != id.0.len() as u64 => Err(StoreError::InvalidBlockId),
            _ => Ok(()),
        }
    }

    async fn check_room(&self, home: &Home, found: Option<&Blob>) -> Result<(), StoreError> {
        let stage = found.map_or(0, |found| found.stage);
        if stage == 0 || !self.kit().random().is_multiple_of(COUNT_EVERY) {
            return Ok(());
        }
        let count = Step::new(home, |dialect| texts(dialect).count.clone()).bind(stage);
        let rows = self.read(home, &count).await?;
        match number(rows.one()?, 0)? < UNCOMMITTED_BLOCKS_MAX as u64 {
            true => Ok(()),
            false => Err(StoreError::TooManyBlocks(UNCOMMITTED_BLOCKS_MAX)),
        }
    }

    /// Makes a list of blocks the content of a blob, in the order given. All other uncommitted blocks are discarded.
    pub async fn put_block_list(
        &self,
        name: &BlobName,
        list: &[(BlockSource, BlockId)],
        new: &NewBlob,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        if list.len() > COMMITTED_BLOCKS_MAX {
            return Err(StoreError::TooManyBlocks(COMMITTED_BLOCKS_MAX));
        }
        for _ in 0..TRIES_MAX {
            let found = self.row(&home, 0, Read::Head).await?;
            self.check_replace(&home, found.as_ref(), conditions)?;
            check_kind(name, there(found.as_ref()))?;
            let entries = match self.resolve(&home, found.as_ref(), list).await? {
                Ok(entries) => entries,
                // Blocks may have been committed or discarded since the row was read.
                Err(missing) => match self.is_unchanged(&home, found.as_ref()).await? {
                    true => return Err(StoreError::InvalidBlockList(missing)),
                    false => continue,
                },
            };
            let now = self.next_time(found.as_ref());
            let mut blob = fresh(name, BlobKind::Block, found.as_ref(), now);
            blob.props = Props::of_new(new, now);
            blob.props.blocks = entries.len() as i64;
            blob.size = entries.iter().map(|entry| entry.size).sum();
            let mut change = self.replace(&home, found.as_ref(), blob, conditions)?;
            if entries.is_empty() {
                change = change.body(Some(Bytes::new()));
            } else {
                change.blob.content = self.new_number();
                let lists = self.write_lists(&home, change.blob.content, &entries).await?;
                change = change.after(lists);
            }
            let content = change.blob.content;
            match self.put_row(&home, found.as_ref(), change).await {
                Ok(Some(blob)) => return Ok(Written { blob, digests: None }),
                Ok(None) if is_long(&entries) => self.forget_content(&home, content).await,
                Ok(None) => {}
                Err(error) => {
                    let announced = is_long(&entries).then_some(content);
                    self.forget_content_unless_named(&home, announced, &error).await;
                    return Err(error);
                }
            }
        }
        Err(StoreError::Contended(name.to_string()))
    }

    /// What writes the rows of a content of blocks, with the row that names it. Many are written now, announced.
    pub(super) async fn write_lists(
        &self,
        home: &Home,
        content: i64,
        entries: &[Entry],
    ) -> Result<Vec<Step>, StoreError> {
        let extents = Extent::of_blocks(entries);
        let steps: Vec<Step> = extents.iter().map(|extent| extents::insert(home, content, extent)).collect();
        if !is_long(entries) {
            return Ok(steps);
        }
        let rows_in_one = (LIST_BYTES_IN_ONE * extents.len() / bytes_about(entries)).max(1);
        match self.write_announced(home, content, steps.chunks(rows_in_one)).await {
            Ok(()) => Ok(vec![self.take_content(home, content)]),
            Err(error) => {
                self.forget_content(home, content).await;
                Err(error)
            }
        }
    }

    async fn write_announced(
        &self,
        home: &Home,
        content: i64,
        parts: impl Iterator<Item = &[Step]>,
    ) -> Result<(), StoreError> {
        let lost = || StoreError::Contended(home.name.to_string());
        self.write(home, vec![self.announce_content(home, content)]).await?.ok_or_else(lost)?;
        for part in parts {
            let steps = std::iter::once(self.hold_content(home, content)).chain(part.iter().cloned());
            self.write(home, steps.collect::<Vec<Step>>()).await?.ok_or_else(lost)?;
        }
        Ok(())
    }

    /// The blocks that a list names, or the first that there is not.
    async fn resolve(
        &self,
        home: &Home,
        found: Option<&Blob>,
        list: &[(BlockSource, BlockId)],
    ) -> Result<Result<Vec<Entry>, String>, StoreError> {
        let stage = found.map_or(0, |found| found.stage);
        let staged = match stage != 0 && list.iter().any(|(source, _)| *source != BlockSource::Committed) {
            true => self.staged(home, stage).await?,
            false => Vec::new(),
        };
        let staged: HashMap<&[u8], &Entry> = staged.iter().map(|entry| (&*entry.id, entry)).collect();
        let is_old = |(source, id): &(BlockSource, BlockId)| match source {
            BlockSource::Uncommitted => false,
            BlockSource::Committed => true,
            BlockSource::Latest => !staged.contains_key(&id.0[..]),
        };
        let committed = match found.filter(|found| found.is_there()) {
            Some(found) if list.iter().any(is_old) => self.committed(home, found).await?,
            _ => Vec::new(),
        };
        let mut old: HashMap<&[u8], &Entry> = HashMap::with_capacity(committed.len());
        for entry in &committed {
            old.entry(&entry.id).or_insert(entry);
        }
        let mut entries = Vec::with_capacity(list.len());
        for (source, id) in list {
            let id = &id.0[..];
            let entry = match source {
                BlockSource::Latest => staged.get(id).or_else(|| old.get(id)),
                BlockSource::Committed => old.get(id),
                BlockSource::Uncommitted => staged.get(id),
            };
            match entry {
                Some(entry) => entries.push((*entry).clone()),
                None => {
                    return Ok(Err(format!(
                        "the list names block {}, which does not exist",
                        STANDARD.encode(id)
                    )));
                }
            }
        }
        Ok(Ok(entries))
    }

    /// The blocks of a stage by id: of each the one put last.
    async fn staged(&self, home: &Home, stage: i64) -> Result<Vec<Entry>, StoreError> {
        let (mut entries, mut after) = (Vec::<Entry>::new(), (Vec::new(), -1));
        loop {
            let step = Step::new(home, |dialect| texts(dialect).list.clone());
            let step = step.bind(stage).bind(after.0.as_slice()).bind(after.1).bind(ROWS_MAX);
            let rows = self.read(home, &step).await?;
            for row in &rows {
                let (entry, seq) = read_staged(row, stage)?;
                after = (entry.id.to_vec(), seq);
                match entries.last_mut() {
                    Some(last) if last.id == entry.id => *last = entry,
                    _ => entries.push(entry),
                }
            }
            if rows.len() < ROWS_MAX as usize {
                return Ok(entries);
            }
        }
    }

    /// The blocks that a blob or snapshot consists of.
    pub(super) async fn committed(&self, home: &Home, blob: &Blob) -> Result<Vec<Entry>, StoreError> {
        let (mut entries, mut after) = (Vec::new(), (-1, -1));
        if blob.content == 0 {
            return Ok(entries);
        }
        loop {
            let rows = self.read(home, &extents::read_lists(home, blob.content, after)).await?;
            let (some, last) = extents::listed(&rows)?;
            entries.extend(some);
            match last {
                Some(last) if rows.len() == extents::LIST_ROWS_MAX as usize => after = last,
                _ => return Ok(entries),
            }
        }
    }

    async fn is_unchanged(&self, home: &Home, found: Option<&Blob>) -> Result<bool, StoreError> {
        let snapshot = found.map_or(0, |found| found.snapshot);
        let now = self.row(home, snapshot, Read::Head).await?;
        Ok(now.map(|now| now.version) == found.map(|found| found.version))
    }

    /// The blocks of a blob or snapshot, and those that were put since.
    pub async fn block_list(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        kind: BlockListKind,
        conditions: &Conditions,
    ) -> Result<BlockList, StoreError> {
        let home = self.home_of_request(name).await?;
        for _ in 0..TRIES_MAX {
            let row = self.row(&home, items::number(snapshot), Read::Head).await?;
            let found = row.filter(|found| found.deleted == 0).ok_or_else(|| StoreError::no_blob(name))?;
            check_read(conditions, &found)?;
            check_kind(name, Some(&found))?;
            let committed = match kind {
                BlockListKind::Committed | BlockListKind::All => self.committed(&home, &found).await?,
                BlockListKind::Uncommitted => Vec::new(),
            };
            let uncommitted = match kind {
                BlockListKind::Uncommitted | BlockListKind::All if found.stage != 0 => {
                    self.staged(&home, found.stage).await?
                }
                _ => Vec::new(),
            };
            // What was read in several parts is whole if the blob still had all of it afterwards.
            if self.is_unchanged(&home, Some(&found)).await? {
                let block = |entry: Entry| Block { id: BlockId(entry.id.into_vec()), size: entry.size };
                let blob = found.is_committed.then_some(found);
                let (committed, uncommitted) = (
                    committed.into_iter().map(block).collect(),
                    uncommitted.into_iter().map(block).collect(),
                );
                return Ok(BlockList { blob, committed, uncommitted });
            }
        }
        Err(StoreError::Contended(name.to_string()))
    }
}

/// Whether so many blocks are written before the transaction that names them, announced.
pub(super) fn is_long(entries: &[Entry]) -> bool {
    bytes_about(entries) > LIST_BYTES_IN_ONE
}

fn bytes_about(entries: &[Entry]) -> usize {
    // An object's number and an id of usual length; only the order of magnitude matters.
    entries.iter().map(|entry| entry.id.len() + 24).sum()
}

/// Writes a block's row. It does nothing if the blob has another stage, or blocks with ids of another length.
fn put(home: &Home, stage: i64, id: &BlockId, received: &Received) -> Step {
    let (object, body) = match &received.stored {
        Stored::Inline(body) => (None, Some(body.to_vec())),
        Stored::Object(object) => (Some(object.as_str().to_owned()), None),
    };
    Step::new(home, |dialect| texts(dialect).put.clone())
        .bind(stage)
        .bind(id.0.as_slice())
        .bind(extents::stored(received.length))
        .bind(object)
        .bind(body)
        .bind(id.0.len() as i64)
        .expect(Expect::Rows(1))
}

/// A row of a stage, and its number among those with the same id.
fn read_staged(row: &Row, stage: i64) -> Result<(Entry, i64), engine::Error> {
    let (id, seq, size) = (row.blob(0)?, row.int(1)?, number(row, 2)?);
    let place = match row.opt_text(3)? {
        Some(object) => {
            let object = ObjectId::parse(object);
            let object =
                object.ok_or_else(|| engine::Error::invalid("stored object of a block is damaged"))?;
            EntryPlace::Object { object: object_number(&object), offset: 0 }
        }
        None => EntryPlace::Staged { stage, seq },
    };
    Ok((Entry { id: id.into(), size, place }, seq))
}

/// Whether a block may be put.
fn check_block(name: &BlobName, found: Option<&Blob>, conditions: &Conditions) -> Result<(), StoreError> {
    let found = found.filter(|found| found.deleted == 0);
    check_kind(name, found)?;
    found.map_or(Ok(()), |found| check_lease(conditions, found))
}

fn check_kind(name: &BlobName, found: Option<&Blob>) -> Result<(), StoreError> {
    match found {
        Some(found) if found.kind != BlobKind::Block => Err(StoreError::WrongKind(name.to_string())),
        _ => Ok(()),
    }
}

//! What stores keep outside the databases: their objects in a backup, and how they come back.
//!
//! Objects lie in the pool of chunks like everything else. A part of the backup lists the chunks of all objects, so
//! that they are verified and pruned as those of any copy; another one, the index, has a line for each object. An
//! object is never changed, so one that the last backup in the same place has is not read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::future::try_join_all;
use futures_util::stream::{self, FuturesOrdered, FuturesUnordered};
use futures_util::{Stream, StreamExt, TryStreamExt};
use polyshard_engine::{self as engine, Dialect, Snapshot, Statement, Value};
use polyshard_map::{KeyRange, MapName};
use polyshard_shard::{
    Carrier, CarrierError, NamedIn, OfflineClaim, Pieces, Shape, Shard, ShardError, Unnamed, own_table_exists,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use uuid::Uuid;

use crate::depot::{Depot, Location};
use crate::lines::Line;
use crate::manifest::{JSON, Manifest, ObjectsPart};
use crate::pool::{self, Chunk, Pool};
use crate::progress::Progress;
use crate::take::put_part;
use crate::{BackupError, keep, shardlet};

/// What objects are written as in the list of parts.
const OBJECTS: &str = "objects";
/// Rows of a database that are looked at together for the objects they name.
const PAGE_ROWS: usize = 256;
/// Objects read or written at once.
const AT_ONCE: usize = 4;
/// Objects deleted at once, for which it is proved each time that they may be: a process that slept after the proof has
/// so many to do harm with.
const DELETED_AT_ONCE: usize = 16;
/// Bytes of lines of an index that wait for the pool.
const INDEX_BYTES: usize = 256 * 1024;
/// How long a deletion may still be under way of an object that was condemned when rows that name it were put back: an
/// object store is asked again for 10 seconds.
const DELETION_WAIT: Duration = Duration::from_secs(10);

/// The objects of all stores of a program.
pub type Carriers = Arc<[Arc<dyn Carrier>]>;

/// The keys of objects, by store.
#[derive(Debug, Default)]
pub(crate) struct Keys(HashMap<&'static str, BTreeSet<String>>);

impl Keys {
    fn add(&mut self, carrier: &dyn Carrier, keys: impl IntoIterator<Item = String>) {
        self.0.entry(carrier.store()).or_default().extend(keys);
    }

    /// Adds what a row names.
    pub(crate) fn add_row(&mut self, naming: &[NamingColumn], row: &[Value]) -> Result<(), BackupError> {
        for one in naming.iter().filter(|one| !one.is_pending) {
            let found = one.keys(row)?;
            self.add(&*one.carrier, found);
        }
        Ok(())
    }

    /// Adds what a row names that is removed, and what it announces or condemns.
    pub(crate) fn add_removed_row(
        &mut self,
        naming: &[NamingColumn],
        row: &[Value],
    ) -> Result<(), BackupError> {
        for one in naming {
            let found = one.keys(row)?;
            self.add(&*one.carrier, found);
        }
        Ok(())
    }

    /// The keys of one store, in their order.
    pub(crate) fn of<'k>(&'k self, carrier: &dyn Carrier) -> impl Iterator<Item = &'k String> {
        self.0.get(carrier.store()).into_iter().flatten()
    }

    /// Adds those of another shard.
    pub(crate) fn join(&mut self, other: Keys) {
        for (store, keys) in other.0 {
            self.0.entry(store).or_default().extend(keys);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.values().all(BTreeSet::is_empty)
    }

    fn has(&self, store: &str, key: &str) -> bool {
        self.0.get(store).is_some_and(|keys| keys.contains(key))
    }
}

/// The objects that rows named which are removed in a transaction, and where these rows belonged.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    objects: HashMap<&'static str, BTreeMap<String, Vec<Value>>>,
    /// Those of them that the store may be deleting just now.
    pending: Keys,
}

impl Removed {
    /// Adds what a row names, announces or condemns.
    pub(crate) fn add_row(&mut self, naming: &[NamingColumn], row: &[Value]) -> Result<(), BackupError> {
        for one in naming {
            let found = one.keys(row)?;
            if one.is_pending {
                self.pending.add(&*one.carrier, found.iter().cloned());
            }
            let objects = self.objects.entry(one.carrier.store()).or_default();
            for key in found {
                objects.entry(key).or_insert_with(|| one.place(row));
            }
        }
        Ok(())
    }

    /// Whether the store may be deleting one of these objects just now.
    pub(crate) fn has_pending(&self, named: &Keys) -> bool {
        self.pending.0.iter().any(|(store, keys)| keys.iter().any(|key| named.has(store, key)))
    }

    /// Statements that have the stores delete the objects that rows which were put in place of the removed ones do not
    /// name.
    pub(crate) fn condemn(
        &self,
        carriers: &Carriers,
        dialect: Dialect,
        named: &Keys,
    ) -> Result<Vec<Statement>, BackupError> {
        let mut statements = Vec::new();
        for carrier in carriers.iter() {
            let store = carrier.store();
            let objects = self.objects.get(store).into_iter().flatten();
            let unnamed: Vec<Unnamed> = objects
                .filter(|(key, _)| !named.has(store, key))
                .map(|(key, place)| Unnamed { key: key.clone(), place: place.clone() })
                .collect();
            statements.extend(carrier.condemn(dialect, &unnamed).map_err(|error| failed(store, &error))?);
        }
        Ok(statements)
    }
}

/// An object in the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Object {
    key: String,
    /// Digest and bytes of each chunk.
    chunks: Vec<(String, u64)>,
}

impl Object {
    fn chunks(&self) -> Vec<Chunk> {
        let chunk = |(digest, bytes): &(String, u64)| Chunk { digest: digest.clone(), bytes: *bytes };
        self.chunks.iter().map(chunk).collect()
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|(_, bytes)| bytes).sum()
    }
}

pub(crate) fn failed(store: &str, error: &CarrierError) -> BackupError {
    match error {
        CarrierError::NotOurs(_) => BackupError::Refused(format!("{store}: {error}")),
        _ => BackupError::Failed(format!("{store}: {error}")),
    }
}

/// The objects that a database names at a moment.
pub(crate) async fn named_at(
    mut moment: Snapshot,
    dialect: Dialect,
    carriers: &Carriers,
) -> Result<(Snapshot, Keys), BackupError> {
    let mut named = Keys::default();
    for carrier in carriers.iter() {
        for column in carrier.named_in() {
            let NamedIn { table, column: name, dataset, .. } = column;
            let mut is_there = false;
            let asked = own_table_exists(dialect, table);
            let look = |rows: engine::Rows| {
                is_there |= !rows.is_empty();
                Ok(())
            };
            moment = moment.read(&format!("{table}_{name}_exists"), &asked, 1, look).await?;
            if !is_there {
                continue;
            }
            let own = dialect.own_table(table);
            let query = format!("SELECT {dataset}, {name} FROM {own} WHERE {name} IS NOT NULL");
            let mut found = Vec::new();
            let look = |rows: engine::Rows| {
                for row in rows.iter() {
                    let looked = carrier.keys(column, row.int(0)?, row.get(1), &mut found);
                    looked.map_err(|error| engine::Error::invalid(error.to_string()))?;
                }
                named.add(&**carrier, found.drain(..));
                Ok(())
            };
            moment = moment.read(&format!("{table}_{name}"), &query, PAGE_ROWS, look).await?;
        }
    }
    Ok((moment, named))
}

/// A column that names objects, and which of a row's values it is.
pub(crate) struct NamingColumn {
    carrier: Arc<dyn Carrier>,
    column: &'static NamedIn,
    /// Whether it names objects that are announced or condemned.
    pub(crate) is_pending: bool,
    at: usize,
    dataset_at: usize,
    place_at: Vec<usize>,
}

impl NamingColumn {
    /// The keys of the objects that a row names.
    fn keys(&self, row: &[Value]) -> Result<Vec<String>, BackupError> {
        let mut found = Vec::new();
        let Some(value) = row.get(self.at).filter(|value| **value != Value::Null) else { return Ok(found) };
        let Some(Value::Int(dataset)) = row.get(self.dataset_at) else {
            let why = format!("a row of {} has no number of a dataset", self.column.table);
            return Err(BackupError::Damaged(why));
        };
        let looked = self.carrier.keys(self.column, *dataset, value, &mut found);
        looked.map_err(|error| failed(self.carrier.store(), &error))?;
        Ok(found)
    }

    /// The values that tell where a row belongs.
    fn place(&self, row: &[Value]) -> Vec<Value> {
        self.place_at.iter().filter_map(|at| row.get(*at).cloned()).collect()
    }
}

/// The columns of a table that name objects.
pub(crate) fn columns(carriers: &Carriers, table: &str, shape: &Shape) -> Vec<NamingColumn> {
    columns_among(carriers, table, shape.columns.iter().map(|column| column.name.as_str()))
}

fn columns_among<'c>(
    carriers: &Carriers,
    table: &str,
    names: impl Iterator<Item = &'c str> + Clone,
) -> Vec<NamingColumn> {
    let own = crate::archive::own_table(table);
    let mut found = Vec::new();
    for carrier in carriers.iter() {
        let named = carrier.named_in().iter().map(|column| (column, false));
        let pending = carrier.pending_in().iter().map(|column| (column, true));
        for (column, is_pending) in named.chain(pending).filter(|(column, _)| own == Some(column.table)) {
            let find = |wanted: &str| names.clone().position(|name| name.trim_matches('"') == wanted);
            if let (Some(at), Some(dataset_at)) = (find(column.column), find(column.dataset)) {
                let place_at = column.place.iter().filter_map(|name| find(name)).collect();
                let carrier = carrier.clone();
                found.push(NamingColumn { carrier, column, is_pending, at, dataset_at, place_at });
            }
        }
    }
    found
}

/// The objects that the rows of a file of lines name.
pub(crate) fn named_in_lines(lines: &Path, carriers: &Carriers) -> Result<Keys, BackupError> {
    let (mut named, mut naming) = (Keys::default(), Vec::new());
    for line in shardlet::read_lines(lines)? {
        match line? {
            Line::Head(head) => {
                let names = head.columns.iter().map(|(name, _)| name.as_str());
                naming = columns_among(carriers, &head.table, names);
            }
            Line::Row(row) => named.add_row(&naming, &row)?,
        }
    }
    Ok(named)
}

/// Stores objects with a backup.
pub(crate) async fn store(
    to: &Location,
    pool: &Pool,
    carriers: &Carriers,
    named: &Keys,
    progress: &Progress,
) -> Result<Vec<ObjectsPart>, BackupError> {
    let mut parts = Vec::new();
    for carrier in carriers.iter() {
        let mut keys = named.of(&**carrier).peekable();
        if keys.peek().is_none() {
            continue;
        }
        let store = carrier.store();
        let known = &tokio::sync::Mutex::new(last_index(&to.depot, store).await?);
        let mut chunks = Vec::new();
        let mut count = 0;
        let (lines, mut writing) = tokio::io::duplex(INDEX_BYTES);
        let objects = async {
            let mut reading = FuturesOrdered::new();
            loop {
                while reading.len() < AT_ONCE
                    && let Some(key) = keys.next()
                {
                    reading.push_back(store_one(pool, carrier, known, key, progress));
                }
                let Some(object) = reading.try_next().await? else { break };
                chunks.extend(object.chunks());
                let mut line = serde_json::to_vec(&object).expect("an object has a JSON form");
                line.push(b'\n');
                let ended =
                    |error| BackupError::Failed(format!("the index of objects was not written: {error}"));
                writing.write_all(&line).await.map_err(ended)?;
                count += 1;
            }
            // The reader ends with it.
            drop(writing);
            Ok(())
        };
        let ((), index) = tokio::try_join!(objects, pool.store(lines, progress))?;
        let name = |what: &str| format!("{OBJECTS}/{store}{what}");
        parts.push(ObjectsPart {
            store: store.to_owned(),
            count,
            content: put_part(to, &name(""), (OBJECTS, ""), &chunks).await?,
            index: put_part(to, &name("-index"), (JSON, ""), &index).await?,
        });
    }
    Ok(parts)
}

/// Stores an object, unless the last backup has it. The index of that is in the same order as the keys, so it is read
/// beside them.
async fn store_one(
    pool: &Pool,
    carrier: &Arc<dyn Carrier>,
    known: &tokio::sync::Mutex<Known>,
    key: &str,
    progress: &Progress,
) -> Result<Object, BackupError> {
    let before = known.lock().await.find(key).await;
    if let Some(object) = before.filter(|object| object.chunks().iter().all(|one| pool.has(one))) {
        return Ok(object);
    }
    let pieces = carrier.read(key).await.map_err(|error| failed(carrier.store(), &error))?;
    let chunks = pool.store(Reading::new(pieces), progress).await?;
    let chunks = chunks.into_iter().map(|chunk| (chunk.digest, chunk.bytes)).collect();
    Ok(Object { key: key.to_owned(), chunks })
}

/// The objects that the latest backup in a place has. One that cannot be read is none: then objects are read.
async fn last_index(depot: &Depot, store: &str) -> Result<Known, BackupError> {
    let mut latest: Option<(Location, i64, ObjectsPart)> = None;
    for found in keep::list(depot).await? {
        let keep::Found::Whole(at, manifest) = found else { continue };
        let part = manifest.objects.iter().find(|part| part.store == store);
        if let Some(part) = part.filter(|_| manifest.catalog.is_some())
            && latest.as_ref().is_none_or(|(_, moment_ms, _)| *moment_ms < manifest.moment_ms)
        {
            latest = Some((at, manifest.moment_ms, part.clone()));
        }
    }
    let Some((at, _, part)) = latest else { return Ok(Known::default()) };
    match Index::open(&at, &part).await {
        Ok(index) => Ok(Known { index: Some((at, index)), next: None }),
        Err(error) => Ok(Known::unreadable(&at, &error)),
    }
}

/// The objects of an earlier backup, which are asked for in the order of their keys.
#[derive(Default)]
struct Known {
    index: Option<(Location, Index)>,
    /// The object that was read last.
    next: Option<Object>,
}

impl Known {
    fn unreadable(at: &Location, error: &BackupError) -> Known {
        tracing::warn!(backup = at.url(), %error, "the objects of an earlier backup cannot be listed; reading all");
        Known::default()
    }

    /// The object with a key that comes after those that were asked for before.
    async fn find(&mut self, key: &str) -> Option<Object> {
        loop {
            if let Some(next) = &self.next
                && *next.key >= *key
            {
                return self.next.take_if(|next| *next.key == *key);
            }
            let (at, index) = self.index.as_mut()?;
            match index.next().await {
                Ok(Some(object)) => self.next = Some(object),
                Ok(None) => *self = Known::default(),
                Err(error) => *self = Known::unreadable(at, &error),
            }
        }
    }
}

/// The index of a backup's objects, read line by line.
struct Index {
    depot: Depot,
    file: String,
    chunks: std::vec::IntoIter<Chunk>,
    text: BytesMut,
}

impl Index {
    async fn open(from: &Location, part: &ObjectsPart) -> Result<Index, BackupError> {
        let chunks = part.index.list(from).await?.into_iter();
        let file = part.index.file.clone();
        Ok(Index { depot: from.depot.clone(), file, chunks, text: BytesMut::new() })
    }

    async fn next(&mut self) -> Result<Option<Object>, BackupError> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line = self.text.split_to(end + 1);
                let damaged = |error| BackupError::Damaged(format!("{}: {error}", self.file));
                return serde_json::from_slice(&line).map(Some).map_err(damaged);
            }
            let Some(chunk) = self.chunks.next() else {
                return match self.text.is_empty() {
                    true => Ok(None),
                    false => Err(BackupError::Damaged(format!("{} ends in the middle of a line", self.file))),
                };
            };
            self.text.extend_from_slice(&pool::read(&self.depot, &chunk).await?);
        }
    }
}

/// What of a backup's objects is wanted.
pub(crate) enum Wanted<'k> {
    /// All.
    All,
    /// Those of a shardlet.
    Named(&'k Keys),
}

/// Refuses to restore objects into the place of another cluster.
pub(crate) async fn check_places(
    carriers: &Carriers,
    named: &Keys,
    cluster: Uuid,
) -> Result<(), BackupError> {
    for carrier in carriers.iter().filter(|carrier| named.of(&***carrier).next().is_some()) {
        carrier.check_place(cluster).await.map_err(|error| failed(carrier.store(), &error))?;
    }
    Ok(())
}

/// Writes the objects of a backup where their store keeps them. Those that are there as a whole are kept.
pub(crate) async fn restore(
    from: &Location,
    manifest: &Manifest,
    carriers: &Carriers,
    wanted: Wanted<'_>,
) -> Result<(), BackupError> {
    if let Wanted::Named(named) = &wanted {
        for carrier in carriers.iter().filter(|carrier| named.of(&***carrier).next().is_some()) {
            if !manifest.objects.iter().any(|part| part.store == carrier.store()) {
                return Err(BackupError::Damaged(format!(
                    "{} has rows of store {}, and none of the objects that they name",
                    from.url(),
                    carrier.store()
                )));
            }
        }
    }
    for part in &manifest.objects {
        let Some(carrier) = carriers.iter().find(|carrier| carrier.store() == part.store) else {
            return Err(BackupError::Refused(format!(
                "the backup has objects of store {}, which this program does not have",
                part.store
            )));
        };
        let wanted = match &wanted {
            Wanted::All => None,
            Wanted::Named(named) => Some(*named),
        };
        if wanted.is_some_and(|named| named.of(&**carrier).next().is_none()) {
            continue;
        }
        let mut missing: BTreeSet<&String> = match wanted {
            None => BTreeSet::new(),
            Some(named) => named.of(&**carrier).collect(),
        };
        let mut index = Index::open(from, part).await?;
        let mut writing = FuturesUnordered::new();
        while let Some(object) = index.next().await? {
            if wanted.is_some() && !missing.remove(&object.key) {
                continue;
            }
            writing.push(put(from, carrier, object));
            if writing.len() >= AT_ONCE {
                writing.try_next().await?;
            }
        }
        while writing.try_next().await?.is_some() {}
        if let Some(key) = missing.first() {
            return Err(BackupError::Damaged(format!("{} does not have object {key}", part.index.file)));
        }
    }
    Ok(())
}

/// Looks once more that the objects are there, when rows that name them have been committed: a store that judged before
/// that nobody needs an object may have deleted it meanwhile. From the commit on it does not.
pub(crate) async fn restore_again(
    from: &Location,
    manifest: &Manifest,
    carriers: &Carriers,
    named: &Keys,
    is_pending: bool,
) -> Result<(), BackupError> {
    let mut look = restore(from, manifest, carriers, Wanted::Named(named)).await;
    if look.is_ok() && is_pending {
        tokio::time::sleep(DELETION_WAIT).await;
        look = restore(from, manifest, carriers, Wanted::Named(named)).await;
    }
    look.map_err(|error| {
        BackupError::Failed(format!(
            "the rows are restored, but objects that they name may be missing; restore again: {error}"
        ))
    })
}

/// Writes an object, unless it is there. One of another length was left by a program that did not write objects as a
/// whole: it is written anew.
async fn put(from: &Location, carrier: &Arc<dyn Carrier>, object: Object) -> Result<(), BackupError> {
    let wrong = |error: CarrierError| failed(carrier.store(), &error);
    let length = object.bytes();
    match carrier.length(&object.key).await.map_err(wrong)? {
        Some(found) if found == length => return Ok(()),
        Some(found) => {
            tracing::warn!(object = object.key, found, length, "an object is not whole and is written anew");
            carrier.delete(&object.key).await.map_err(wrong)?;
        }
        None => {}
    }
    // The first chunk that cannot be read ends the writing, and its reason is what is reported.
    let reason: Arc<std::sync::Mutex<Option<BackupError>>> = Arc::default();
    let (depot, key, told) = (from.depot.clone(), object.key.clone(), reason.clone());
    let pieces: Pieces = stream::iter(object.chunks())
        .then(move |chunk| {
            let (depot, key, told) = (depot.clone(), key.clone(), told.clone());
            async move {
                pool::read(&depot, &chunk).await.map(Bytes::from).map_err(|error| {
                    let why = error.to_string();
                    *told.lock().expect("no panic while held") = Some(error);
                    CarrierError::Failed { key, why }
                })
            }
        })
        .boxed();
    let written = carrier.write(&object.key, length, pieces).await;
    written
        .map_err(|error| reason.lock().expect("no panic while held").take().unwrap_or_else(|| wrong(error)))
}

/// What proves that objects of a range may be deleted: it is offline on its shard, and nobody has taken it over.
pub(crate) struct Proof<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) claim: &'a OfflineClaim,
    pub(crate) map: &'a MapName,
    pub(crate) range: &'a KeyRange,
}

impl Proof<'_> {
    async fn check(&self) -> Result<(), BackupError> {
        let wrong = |error: ShardError| BackupError::of_shard(self.shard.id(), error);
        let begun = self.shard.offline_transaction(self.claim, self.map, self.range).await;
        Ok(begun.map_err(wrong)?.rollback().await?)
    }
}

/// Deletes objects that no row names any more, a few at a time, each time after a proof. What is left when the process
/// dies meanwhile stays: nothing names it, and nothing looks for it.
pub(crate) async fn delete(carriers: &Carriers, keys: &Keys, proof: &Proof<'_>) -> Result<(), BackupError> {
    for carrier in carriers.iter() {
        let keys: Vec<String> = keys.of(&**carrier).cloned().collect();
        for group in keys.chunks(DELETED_AT_ONCE) {
            delete_group(carrier, group, proof).await?;
        }
    }
    Ok(())
}

async fn delete_group(
    carrier: &Arc<dyn Carrier>,
    keys: &[String],
    proof: &Proof<'_>,
) -> Result<(), BackupError> {
    proof.check().await?;
    let deleted = try_join_all(keys.iter().map(|key| carrier.delete(key))).await;
    deleted.map(drop).map_err(|error| failed(carrier.store(), &error))
}

/// Deletes the objects that a backup of a range has, whose rows are gone. It can be repeated.
pub(crate) async fn delete_listed(
    from: &Location,
    manifest: &Manifest,
    carriers: &Carriers,
    proof: &Proof<'_>,
) -> Result<(), BackupError> {
    for part in &manifest.objects {
        let Some(carrier) = carriers.iter().find(|carrier| carrier.store() == part.store) else { continue };
        let mut index = Index::open(from, part).await?;
        let mut group: Vec<String> = Vec::with_capacity(DELETED_AT_ONCE);
        loop {
            let next = index.next().await?;
            let is_last = next.is_none();
            group.extend(next.map(|object| object.key));
            if group.len() == DELETED_AT_ONCE || (is_last && !group.is_empty()) {
                delete_group(carrier, &group, proof).await?;
                group.clear();
            }
            if is_last {
                break;
            }
        }
    }
    Ok(())
}

/// Pieces as something that is read.
struct Reading {
    pieces: Pieces,
    rest: Bytes,
}

impl Reading {
    fn new(pieces: Pieces) -> Reading {
        Reading { pieces, rest: Bytes::new() }
    }
}

impl AsyncRead for Reading {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.rest.is_empty() {
            match Pin::new(&mut self.pieces).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Ok(piece))) => self.rest = piece,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(std::io::Error::other(error))),
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

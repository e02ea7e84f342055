//! The chunks that all backups of a depot share, each under the checksum of its content and stored once.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::chunker::{Chunker, PIECE_BYTES_MAX};
use crate::depot::Depot;
use crate::progress::Progress;
use crate::{BackupError, files};

/// The folder of a depot that holds them.
pub(crate) const CHUNKS: &str = "chunks";

/// Chunks written at once: enough to hide an object store's delay, few enough for memory.
const WRITTEN_AT_ONCE: usize = 8;
/// Chunks read at once.
const READ_AT_ONCE: usize = 8;
/// Bytes read at once from a database's copy.
const READ_BYTES: usize = 256 * 1024;
/// First bytes of a stored chunk: as it is, or compressed.
const PLAIN: u8 = 0;
const LZ4: u8 = 1;

/// A chunk, as a list names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Chunk {
    /// SHA-256 of its content.
    pub(crate) digest: String,
    /// Bytes of its content.
    pub(crate) bytes: u64,
}

impl Chunk {
    /// Where it is in a depot.
    pub(crate) fn path(&self) -> String {
        format!("{CHUNKS}/{}/{}", &self.digest[..2], self.digest)
    }
}

/// What one depot holds already, and what is added.
pub(crate) struct Pool {
    depot: Depot,
    known: Mutex<HashSet<String>>,
    new_bytes: AtomicU64,
}

impl Pool {
    /// Reads what is there.
    pub(crate) async fn open(depot: &Depot) -> Result<Pool, BackupError> {
        let digest = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let known = depot.list(CHUNKS).await?.iter().map(|item| digest(&item.path)).collect();
        Ok(Pool { depot: depot.clone(), known: Mutex::new(known), new_bytes: AtomicU64::new(0) })
    }

    /// Bytes that were added, as stored.
    pub(crate) fn new_bytes(&self) -> u64 {
        self.new_bytes.load(Ordering::Relaxed)
    }

    /// Whether a chunk is there.
    pub(crate) fn has(&self, chunk: &Chunk) -> bool {
        self.known.lock().expect("no panic while held").contains(&chunk.digest)
    }

    /// Cuts what is read into chunks and stores those that are new; the chunks in order.
    pub(crate) async fn store(
        &self,
        mut from: impl AsyncRead + Unpin,
        progress: &Progress,
    ) -> Result<Vec<Chunk>, BackupError> {
        let wrong = |error: std::io::Error| BackupError::Failed(format!("a copy could not be read: {error}"));
        let (mut chunker, mut buffer) = (Chunker::default(), vec![0; READ_BYTES]);
        let (mut chunks, mut waiting) = (Vec::new(), VecDeque::new());
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        loop {
            let read = from.read(&mut buffer).await.map_err(wrong)?;
            progress.add_bytes(read as u64);
            chunker.feed(&buffer[..read], |piece| pieces.push(piece));
            if read == 0 {
                pieces.extend(std::mem::take(&mut chunker).finish());
            }
            for piece in pieces.drain(..) {
                waiting.push_back(summed(piece));
                if waiting.len() >= WRITTEN_AT_ONCE {
                    self.write_all(&mut waiting, &mut chunks).await?;
                }
            }
            if read == 0 {
                self.write_all(&mut waiting, &mut chunks).await?;
                return Ok(chunks);
            }
        }
    }

    async fn write_all(
        &self,
        waiting: &mut VecDeque<JoinHandle<(Chunk, Vec<u8>)>>,
        chunks: &mut Vec<Chunk>,
    ) -> Result<(), BackupError> {
        let works = std::mem::take(waiting).into_iter().map(|summed| async move {
            let stopped = |error| BackupError::Failed(format!("a checksum was not made: {error}"));
            let (chunk, stored) = summed.await.map_err(stopped)?;
            if self.has(&chunk) {
                return Ok::<_, BackupError>(chunk);
            }
            let bytes = stored.len() as u64;
            self.depot.put(&chunk.path(), Bytes::from(stored)).await?;
            self.known.lock().expect("no panic while held").insert(chunk.digest.clone());
            self.new_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(chunk)
        });
        let works: Vec<_> = works.collect();
        chunks.extend(futures_util::future::try_join_all(works).await?);
        Ok(())
    }
}

/// A piece's checksum and stored form, made where it holds up nobody.
fn summed(piece: Vec<u8>) -> JoinHandle<(Chunk, Vec<u8>)> {
    tokio::task::spawn_blocking(move || {
        let chunk = Chunk { digest: files::hex(&Sha256::digest(&piece)), bytes: piece.len() as u64 };
        let packed = lz4_flex::block::compress_prepend_size(&piece);
        let (mark, body) = if packed.len() < piece.len() { (LZ4, packed) } else { (PLAIN, piece) };
        let mut stored = Vec::with_capacity(body.len() + 1);
        stored.push(mark);
        stored.extend_from_slice(&body);
        (chunk, stored)
    })
}

/// Reads a chunk's content, if it is what its name says.
pub(crate) async fn read(depot: &Depot, chunk: &Chunk) -> Result<Vec<u8>, BackupError> {
    let path = chunk.path();
    let damaged = |why: &str| {
        BackupError::Damaged(format!(
            "{} {why}; use another backup. Once the file is removed, the next backup writes it anew",
            depot.address(&path)
        ))
    };
    let stored = depot.get(&path).await?.ok_or_else(|| damaged("is missing"))?;
    let content = unpacked(&stored).ok_or_else(|| damaged("is not as it was written"))?;
    let same = content.len() as u64 == chunk.bytes && files::hex(&Sha256::digest(&content)) == chunk.digest;
    if same { Ok(content) } else { Err(damaged("is not as it was written")) }
}

fn unpacked(stored: &[u8]) -> Option<Vec<u8>> {
    match stored.split_first()? {
        (&PLAIN, body) => Some(body.to_vec()),
        (&LZ4, body) => {
            // The size is believed only as far as a chunk can be large.
            let size = u32::from_le_bytes(body.get(..4)?.try_into().ok()?);
            (size as usize <= PIECE_BYTES_MAX)
                .then(|| lz4_flex::block::decompress_size_prepended(body).ok())?
        }
        _ => None,
    }
}

/// Writes the content of chunks in order, each compared before a byte of it is written.
pub(crate) async fn fetch(
    depot: &Depot,
    chunks: &[Chunk],
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), BackupError> {
    for group in chunks.chunks(READ_AT_ONCE) {
        let reading: Vec<_> = group.iter().map(|chunk| read(depot, chunk)).collect();
        for content in futures_util::future::try_join_all(reading).await? {
            let written = to.write_all(&content).await;
            let wrong = |error| BackupError::Failed(format!("what was restored cannot be written: {error}"));
            written.map_err(wrong)?;
        }
    }
    Ok(())
}

/// A list of chunks, as it is stored: a line for each.
pub(crate) fn list_text(chunks: &[Chunk]) -> String {
    chunks.iter().map(|chunk| format!("{} {}\n", chunk.digest, chunk.bytes)).collect()
}

/// Reads such a list.
pub(crate) fn list_from(text: &[u8]) -> Option<Vec<Chunk>> {
    let text = std::str::from_utf8(text).ok()?;
    let chunk = |line: &str| {
        let (digest, bytes) = line.split_once(' ')?;
        let good = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Chunk { digest: good.then(|| digest.to_owned())?, bytes: bytes.parse().ok()? })
    };
    text.lines().map(chunk).collect()
}

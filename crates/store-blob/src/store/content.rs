//! Reads a range of bytes of a blob, whatever its content is made of: a body in the row, one object, extents or pages.
//!
//! Rows are read in chunks, each with a ticket of its own, and none is held while bytes are sent. The content's number
//! makes the chunks fit together: the rows of a content stay as they are until it is removed, and then the stream
//! fails.

mod extents;
mod pages;

use std::ops::Range;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use polyshard_engine::{self as engine, Rows};
use polyshard_router::{Access, Ticket};
use polyshard_store::Kit;

use super::BlobStore;
use super::home::Home;
use super::rows::Step;
use crate::model::{Blob, BlobKind, Hole};
use crate::objects::{ByteStream, ObjectError, ObjectId, Objects};

/// Bytes that a piece of a stream should have.
const PIECE_BYTES: usize = 256 * 1024;

/// What a reader waits for. It has all it needs.
type Answer<T> = BoxFuture<'static, Result<T, ObjectError>>;

/// What a stream of bytes reads from. It owns all it needs: it goes on long after the request was answered.
#[derive(Clone)]
pub(super) struct Reader {
    kit: Kit,
    objects: Objects,
    home: Home,
    snapshot: i64,
    content: i64,
    generation: i64,
    holes: Vec<Hole>,
}

impl BlobStore {
    /// The bytes of a blob or snapshot that was just read, with its body if its content is one.
    pub(super) fn bytes(&self, home: &Home, blob: &Blob, range: Range<u64>) -> ByteStream {
        let range = range.start..range.end.min(blob.size);
        if range.is_empty() {
            return stream::empty().boxed();
        }
        if let Some(body) = &blob.body {
            let (from, to) = (range.start as usize, range.end as usize);
            let piece = match to <= body.len() {
                true => Ok(body.slice(from..to)),
                false => Err(damaged(format!("it has {} bytes, {to} are expected", body.len()))),
            };
            return stream::once(std::future::ready(piece)).boxed();
        }
        let reader = Reader {
            kit: self.kit().clone(),
            objects: self.options.objects.clone(),
            home: home.clone(),
            snapshot: blob.snapshot,
            content: blob.content,
            generation: blob.generation,
            holes: blob.props.holes.clone(),
        };
        match (&blob.object, blob.kind) {
            (Some(object), _) => {
                let opened = reader.object(object.clone(), range);
                stream::once(opened).try_flatten().boxed()
            }
            (None, BlobKind::Page) => pages::read(reader, range),
            (None, BlobKind::Block | BlobKind::Append) if blob.content != 0 => extents::read(reader, range),
            (None, BlobKind::Block | BlobKind::Append) => {
                let nothing = damaged("its row has neither a body nor the number of a content".to_owned());
                stream::once(std::future::ready(Err(nothing))).boxed()
            }
        }
    }
}

impl Reader {
    /// A range of an object: so many bytes or an error.
    fn object(&self, object: ObjectId, range: Range<u64>) -> Answer<ByteStream> {
        let (objects, dataset) = (self.objects.clone(), self.home.dataset_id());
        let read = async move {
            let length = range.end - range.start;
            let bytes = objects.read(dataset, &object, range).await?;
            Ok(exactly(bytes, length, object.as_str().to_owned()))
        };
        read.boxed()
    }

    /// Runs a reading statement with a ticket of its own.
    fn rows(&self, step: Step) -> Answer<Rows> {
        let (kit, home) = (self.kit.clone(), self.home.clone());
        let read = async move {
            let work = async move |ticket: &Ticket| ticket.read(step.statement(ticket.dialect())).await;
            let answer = kit.run(&home.placed, Access::Read, work).await;
            answer.map_err(|error| ObjectError::Rows(error.to_string()))
        };
        read.boxed()
    }

    /// The content was removed while it was read.
    fn gone(&self) -> ObjectError {
        ObjectError::Gone(format!("content {:x}", self.content))
    }
}

/// Lets so many bytes through, neither more nor fewer.
fn exactly(bytes: ByteStream, length: u64, what: String) -> ByteStream {
    let counted = stream::try_unfold((bytes, length, what), |(mut bytes, left, what)| async move {
        match bytes.next().await {
            Some(piece) => {
                let piece = piece?;
                let left = left
                    .checked_sub(piece.len() as u64)
                    .ok_or_else(|| damaged(format!("object {what} answers more than was asked for")))?;
                Ok(Some((piece, (bytes, left, what))))
            }
            None if left == 0 => Ok(None),
            None => Err(damaged(format!("object {what} ends {left} bytes too soon"))),
        }
    });
    counted.boxed()
}

fn damaged(detail: String) -> ObjectError {
    ObjectError::Failed(format!("stored content is damaged: {detail}"))
}

fn broken(error: engine::Error) -> ObjectError {
    ObjectError::Rows(error.to_string())
}

/// Zeros to send for what was never written.
fn zeros(length: usize) -> Bytes {
    static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    Bytes::from_static(&ZEROS[..length.min(PIECE_BYTES)])
}

//! Bodies in pieces: what a store reads a large request from, and what it gives a large answer as.

use std::fmt;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::sync::{mpsc, oneshot};

use crate::ServiceError;

/// A piece of a body is never longer: each is held in memory at once.
pub(crate) const PIECE_BYTES_MAX: usize = 1024 * 1024;

/// Pieces that are read ahead of the store: enough that it does not wait for the network, and memory stays bounded.
const PIECES_IN_FLIGHT_MAX: usize = 4;

/// The end of a body is sent as a piece, too: a channel that closes without it is a body that was cut off.
type Piece = Result<Option<Bytes>, Box<ServiceError>>;

/// The body of a request, read in pieces as it arrives. What is not read is never kept.
#[derive(Debug)]
pub struct BodyStream {
    length: Option<u64>,
    pieces: Pieces,
}

#[derive(Debug)]
enum Pieces {
    /// All that is left is in memory.
    Held(Bytes),
    /// The connection sends them. `wanted` is told of the first call: the client may wait for that.
    Sent { pieces: mpsc::Receiver<Piece>, wanted: Option<oneshot::Sender<()>> },
}

impl BodyStream {
    /// A body that is in memory already.
    pub fn whole(body: impl Into<Bytes>) -> BodyStream {
        let body = body.into();
        BodyStream { length: Some(body.len() as u64), pieces: Pieces::Held(body) }
    }

    /// A body that a connection sends.
    pub(crate) fn sent(length: Option<u64>) -> (BodySender, BodyStream) {
        let (to, pieces) = mpsc::channel(PIECES_IN_FLIGHT_MAX);
        let (wanted, is_wanted) = oneshot::channel();
        let pieces = Pieces::Sent { pieces, wanted: Some(wanted) };
        (BodySender { pieces: to, is_wanted }, BodyStream { length, pieces })
    }

    /// The `Content-Length`; none for a body in chunks. If there is one, exactly so many bytes come, or an error.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece, of at most 1 MiB and usually 64 KiB or more; none at the end of the body. An error if the client
    /// went away or was too slow, or if the body is malformed or too long: return it as the answer. Nothing is lost if
    /// the call is dropped.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        let (pieces, wanted) = match &mut self.pieces {
            Pieces::Held(rest) if rest.is_empty() => return Ok(None),
            Pieces::Held(rest) => return Ok(Some(rest.split_to(rest.len().min(PIECE_BYTES_MAX)))),
            Pieces::Sent { pieces, wanted } => (pieces, wanted),
        };
        if let Some(wanted) = wanted.take() {
            // A connection that does not wait for it has dropped the other end.
            let _ignored = wanted.send(());
        }
        match pieces.recv().await {
            Some(Ok(Some(piece))) => Ok(Some(piece)),
            Some(Ok(None)) => {
                self.pieces = Pieces::Held(Bytes::new());
                Ok(None)
            }
            Some(Err(error)) => Err(*error),
            None => Err(ServiceError::body_cut_off()),
        }
    }
}

/// The connection's end of a [`BodyStream`].
pub(crate) struct BodySender {
    pieces: mpsc::Sender<Piece>,
    is_wanted: oneshot::Receiver<()>,
}

impl BodySender {
    /// Waits until the store asks for the first piece; false if it dropped the body instead.
    pub(crate) async fn is_wanted(&mut self) -> bool {
        (&mut self.is_wanted).await.is_ok()
    }

    /// Sends a piece, or none for the end; false if the store dropped the body.
    pub(crate) async fn send(&self, piece: Result<Option<Bytes>, ServiceError>) -> bool {
        self.pieces.send(piece.map_err(Box::new)).await.is_ok()
    }
}

/// The body of a response, produced in pieces while it is sent. Pieces of 256 KiB and more are sent fastest.
pub struct BodySource {
    /// The `Content-Length`.
    pub length: u64,
    /// The pieces. If they fail or are not `length` bytes together, the connection is closed: the client sees a body
    /// that is too short, and never a wrong one. An error of the first piece is answered as one.
    pub source: BoxStream<'static, Result<Bytes, ServiceError>>,
}

impl fmt::Debug for BodySource {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("BodySource").field("length", &self.length).finish_non_exhaustive()
    }
}

impl BodySource {
    /// The next piece, which is not empty; none when `length` bytes have come. The length is counted down, so that
    /// neither more nor fewer bytes are sent than the head says.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        while self.length > 0 {
            match self.source.next().await {
                Some(Ok(piece)) if piece.is_empty() => {}
                Some(Ok(piece)) => {
                    let left = self.length.checked_sub(piece.len() as u64);
                    self.length = left.ok_or_else(|| wrong_length("longer"))?;
                    return Ok(Some(piece));
                }
                Some(Err(error)) => return Err(error),
                None => return Err(wrong_length("shorter")),
            }
        }
        Ok(None)
    }
}

/// A bug of the store, which the client cannot be told about: it is for the log.
fn wrong_length(how: &str) -> ServiceError {
    ServiceError::new(500, "InternalError", format!("The body is {how} than its Content-Length."))
}

#[cfg(test)]
mod tests {
    use super::{BodySource, BodyStream, PIECE_BYTES_MAX};
    use bytes::Bytes;
    use futures_util::StreamExt;
    use futures_util::stream;

    #[tokio::test]
    async fn a_body_in_memory_comes_in_pieces_of_bounded_size() {
        let mut body = BodyStream::whole(vec![7; PIECE_BYTES_MAX + 5]);
        assert_eq!(body.length(), Some(PIECE_BYTES_MAX as u64 + 5));
        assert_eq!(body.next().await.unwrap().unwrap().len(), PIECE_BYTES_MAX);
        assert_eq!(body.next().await.unwrap().unwrap().len(), 5);
        assert_eq!(body.next().await, Ok(None));
        assert_eq!(body.next().await, Ok(None));
    }

    #[tokio::test]
    async fn a_body_ends_only_where_its_sender_says_so() {
        let (sender, mut body) = BodyStream::sent(None);
        assert!(sender.send(Ok(Some(Bytes::from_static(b"a")))).await);
        assert!(sender.send(Ok(None)).await);
        drop(sender);
        assert_eq!(body.next().await.unwrap().unwrap(), "a");
        assert_eq!(body.next().await, Ok(None));
        let (sender, mut body) = BodyStream::sent(Some(2));
        assert!(sender.send(Ok(Some(Bytes::from_static(b"a")))).await);
        drop(sender);
        assert!(body.next().await.is_ok());
        assert!(body.next().await.is_err() && body.next().await.is_err());
        let (mut sender, body) = BodyStream::sent(Some(2));
        drop(body);
        assert!(!sender.is_wanted().await && !sender.send(Ok(None)).await);
    }

    #[tokio::test]
    async fn a_source_of_another_length_is_an_error() {
        let source = |length, pieces: &[&'static str]| {
            let pieces: Vec<_> =
                pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
            BodySource { length, source: stream::iter(pieces).boxed() }
        };
        let mut exact = source(3, &["", "ab", "", "c"]);
        assert_eq!(exact.next().await.unwrap().unwrap(), "ab");
        assert_eq!(exact.next().await.unwrap().unwrap(), "c");
        assert_eq!(exact.next().await, Ok(None));
        assert_eq!(source(0, &[]).next().await, Ok(None));
        assert!(source(2, &["abc"]).next().await.is_err());
        let mut short = source(4, &["abc"]);
        assert!(short.next().await.is_ok() && short.next().await.is_err());
    }
}

//! Bodies of one connection in pieces: a request's handed to the store as it arrives, a response's sent as it is made.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::{Closed, Stream};
use crate::ServiceError;
use crate::http::{BodySender, BodySource, CONTINUE, Chunked, Framing, PIECE_BYTES_MAX};

/// What is laid ready for a piece. The kernel's buffers hold about as much, so more would rarely be filled.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;

/// A piece is handed on from here on: below, the calls cost more than the bytes.
const PIECE_BYTES_MIN: usize = 64 * 1024;

/// A request's body that is read in pieces, and how far it was read.
pub(crate) struct Incoming {
    left: Left,
    piece: BytesMut,
    /// The client waits for an interim answer before it sends the body.
    pub(crate) is_held_back: bool,
    pub(crate) end: End,
}

enum Left {
    Length(u64),
    Chunked(Chunks),
}

struct Chunks {
    reader: Chunked,
    length: u64,
    length_max: u64,
}

/// Whether a body was read to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// There is more of it.
    Open,
    /// It was read whole: the next request follows.
    Reached,
    /// It is malformed or too long: where the next request starts is not known.
    Lost,
    /// The connection cannot be used any more.
    Closed(Closed),
}

/// What the next bytes of a body are.
enum Next {
    Piece(Bytes),
    End,
    Refused(ServiceError),
}

impl Incoming {
    pub(crate) fn new(framing: Framing, is_held_back: bool, bytes_max: u64) -> Incoming {
        let left = match framing {
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => {
                Left::Chunked(Chunks { reader: Chunked::new(), length: 0, length_max: bytes_max })
            }
        };
        Incoming { left, piece: BytesMut::new(), is_held_back, end: End::Open }
    }

    /// What is left of it; none if it is in chunks.
    pub(crate) fn length(&self) -> Option<u64> {
        match &self.left {
            Left::Length(length) => Some(*length),
            Left::Chunked(_) => None,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    /// Hands a body on until it ends or the store drops it. This may be dropped at any time: `body` then knows how far
    /// it was read.
    pub(crate) async fn feed(&mut self, body: &mut Incoming, mut sender: BodySender) {
        if body.is_held_back {
            if !sender.is_wanted().await {
                return;
            }
            // If it is dropped in the middle of this, no answer can follow.
            body.end = End::Closed(Closed::Broken);
            body.is_held_back = false;
            if let Err(closed) = self.write(CONTINUE).await {
                body.end = End::Closed(closed);
                return;
            }
            body.end = End::Open;
        }
        loop {
            let piece = match timeout(self.limits.piece_time, self.next_piece(body)).await {
                Ok(Ok(Next::Piece(piece))) => Ok(Some(piece)),
                Ok(Ok(Next::End)) => {
                    body.end = End::Reached;
                    Ok(None)
                }
                Ok(Ok(Next::Refused(error))) => {
                    body.end = End::Lost;
                    Err(error)
                }
                Ok(Err(closed)) => {
                    body.end = End::Closed(closed);
                    Err(ServiceError::body_cut_off())
                }
                Err(_) => {
                    body.end = End::Closed(Closed::TooSlow);
                    Err(ServiceError::body_cut_off())
                }
            };
            if !sender.send(piece).await || !matches!(body.end, End::Open) {
                return;
            }
        }
    }

    /// Reads and drops what is left of a body, if it is little; false if the connection is better closed.
    pub(crate) async fn skip(&mut self, body: &mut Incoming) -> bool {
        let bytes_max = self.limits.body_bytes_max;
        let is_long = matches!(body.left, Left::Length(left) if left > bytes_max as u64);
        if is_long || body.is_held_back {
            return false;
        }
        let body_time = self.limits.body_time;
        let skip = async {
            let mut skipped = 0;
            while skipped <= bytes_max {
                match self.next_piece(body).await {
                    Ok(Next::Piece(piece)) => skipped += piece.len(),
                    Ok(Next::End) => return true,
                    Ok(Next::Refused(_)) | Err(_) => return false,
                }
            }
            false
        };
        timeout(body_time, skip).await.unwrap_or(false)
    }

    async fn next_piece(&mut self, body: &mut Incoming) -> Result<Next, Closed> {
        match &mut body.left {
            Left::Length(left) => self.piece_of_length(left, &mut body.piece).await,
            Left::Chunked(chunks) => self.piece_of_chunks(chunks, &mut body.piece).await,
        }
    }

    async fn piece_of_length(&mut self, left: &mut u64, piece: &mut BytesMut) -> Result<Next, Closed> {
        let within = |left: u64, bytes: usize| usize::try_from(left).map_or(bytes, |left| left.min(bytes));
        if *left == 0 && piece.is_empty() {
            return Ok(Next::End);
        }
        let least = within(piece.len() as u64 + *left, PIECE_BYTES_MIN);
        // What is left of the last piece's memory is used up first.
        if piece.capacity() < least {
            piece.reserve(within(*left, PIECE_BYTES));
        }
        let buffered = within(*left, self.buffer.len());
        piece.extend_from_slice(&self.buffer[..buffered]);
        self.buffer.advance(buffered);
        *left -= buffered as u64;
        while piece.len() < least {
            let read = (&mut self.socket).take(*left).read_buf(piece).await?;
            if read == 0 {
                return Err(Closed::Broken);
            }
            *left -= read as u64;
        }
        Ok(Next::Piece(piece.split().freeze()))
    }

    async fn piece_of_chunks(&mut self, chunks: &mut Chunks, piece: &mut BytesMut) -> Result<Next, Closed> {
        while !chunks.reader.is_done() && piece.len() < PIECE_BYTES_MIN {
            if self.buffer.is_empty() {
                self.buffer.reserve(PIECE_BYTES_MIN);
                if self.socket.read_buf(&mut self.buffer).await? == 0 {
                    return Err(Closed::Broken);
                }
            }
            let before = piece.len();
            let Ok(taken) = chunks.reader.feed(&self.buffer, |data| piece.extend_from_slice(data)) else {
                return Ok(Next::Refused(ServiceError::bad_chunks()));
            };
            self.buffer.advance(taken);
            chunks.length += (piece.len() - before) as u64;
            if chunks.length > chunks.length_max {
                return Ok(Next::Refused(ServiceError::body_too_large(chunks.length_max)));
            }
        }
        if piece.is_empty() { Ok(Next::End) } else { Ok(Next::Piece(piece.split().freeze())) }
    }

    /// Writes a response whose body is produced in pieces, of which the first is there: it goes out with the head. The
    /// next piece is made while one is sent. The inner error is the source's: the connection must be closed then.
    pub(crate) async fn write_source(
        &mut self,
        head: &[u8],
        first: Bytes,
        mut source: BodySource,
    ) -> Result<Result<(), ServiceError>, Closed> {
        let made = async { Ok(source.next().await) };
        let (_, mut next) = tokio::try_join!(self.write_piece(Buf::chain(head, first)), made)?;
        loop {
            match next {
                Ok(Some(piece)) => {
                    let made = async { Ok(source.next().await) };
                    ((), next) = tokio::try_join!(self.write_piece(piece), made)?;
                }
                Ok(None) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        timeout(self.limits.write_time, self.socket.flush()).await.map_err(|_| Closed::TooSlow)??;
        Ok(Ok(()))
    }

    /// Writes a piece; each MiB of it has its own time.
    async fn write_piece(&mut self, mut piece: impl Buf) -> Result<(), Closed> {
        while piece.has_remaining() {
            let mut part = (&mut piece).take(PIECE_BYTES_MAX);
            let written = self.socket.write_all_buf(&mut part);
            timeout(self.limits.write_time, written).await.map_err(|_| Closed::TooSlow)??;
        }
        Ok(())
    }
}

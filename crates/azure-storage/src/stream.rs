//! The bytes of one connection: heads and bodies read within limits of size and time, responses written.

mod pieces;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use polyshard_wire::Shutdown;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

pub(crate) use pieces::{End, Incoming, PIECE_BYTES};

use crate::ServiceError;
use crate::http::{Chunked, Framing, Head, Limits, Parsed, parse_head};

/// What is asked of the socket at a time. A request of the usual size is one read.
const READ_BYTES: usize = 16 * 1024;

/// What is laid ready for a body before its bytes are there.
const BODY_BYTES_FIRST: usize = 128 * 1024;

/// What a closing connection still reads and drops, so that a client that is sending sees the answer instead of a
/// reset. Beyond it the client is not listening.
const DRAIN_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How long a closing connection waits for the client to notice.
const DRAIN_MS_MAX: u64 = 10_000;

/// Why nothing more can be done with a connection.
#[derive(Debug)]
pub(crate) enum Closed {
    /// The client closed it, or was idle for too long, or the process stops: nothing was in hand.
    Quiet,
    /// The client took too long for a request or for taking a response.
    TooSlow,
    /// It was closed or failed in the middle of something.
    Broken,
}

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Self {
        Closed::Broken
    }
}

/// Whether a body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    Nothing,
}

/// A socket with what was read from it and not yet used.
pub(crate) struct Stream<S> {
    socket: S,
    buffer: BytesMut,
    limits: Limits,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream<S> {
    pub(crate) fn new(socket: S, limits: Limits) -> Stream<S> {
        Stream { socket, buffer: BytesMut::new(), limits }
    }

    /// Whether nothing was read that is not yet used.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Waits for the next request and reads its head; the inner error is to be told to the client. `stop` ends when the
    /// shutdown starts: one for the whole connection, since to begin waiting anew for each request would cost.
    pub(crate) async fn head(
        &mut self,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Result<Box<Head>, ServiceError>, Closed> {
        if self.buffer.is_empty() {
            let idle_time = self.limits.idle_time;
            tokio::select! {
                biased;
                () = stop => return Err(Closed::Quiet),
                read = timeout(idle_time, self.read()) => match read {
                    Ok(Ok(0)) | Err(_) => return Err(Closed::Quiet),
                    Ok(read) => read?,
                },
            };
        }
        let head_time = self.limits.head_time;
        timeout(head_time, self.rest_of_head()).await.map_err(|_| Closed::TooSlow)?
    }

    async fn rest_of_head(&mut self) -> Result<Result<Box<Head>, ServiceError>, Closed> {
        // Parsing starts from the front each time, so a head that comes byte by byte is only parsed when it may have
        // ended, or has doubled.
        let (mut parsed_bytes, mut scanned_bytes) = (0, 0);
        loop {
            let length = self.buffer.len();
            if length >= parsed_bytes * 2 || ends_head(&self.buffer[scanned_bytes..]) {
                match parse_head(&self.buffer, &self.limits) {
                    Ok(Parsed::Whole(head, length)) => {
                        self.buffer.advance(length);
                        return Ok(Ok(head));
                    }
                    Ok(Parsed::Partial) => parsed_bytes = length,
                    Err(error) => return Ok(Err(error)),
                }
            }
            scanned_bytes = length.saturating_sub(b"\r\n\r".len());
            if length > self.limits.head_bytes_max {
                // Not parsed since it doubled, and yet too long: parsing says so.
                return match parse_head(&self.buffer, &self.limits) {
                    Err(error) => Ok(Err(error)),
                    Ok(_) => Err(Closed::Broken),
                };
            }
            if self.read().await? == 0 {
                return Err(Closed::Broken);
            }
        }
    }

    /// Reads a body; the inner error is to be told to the client, and the connection then closed.
    pub(crate) async fn body(
        &mut self,
        framing: Framing,
        keep: Keep,
    ) -> Result<Result<Vec<u8>, ServiceError>, Closed> {
        let body_time = self.limits.body_time;
        let read = async {
            match framing {
                Framing::Length(length) => self.body_of_length(length, keep).await,
                Framing::Chunked => self.chunks(keep).await,
            }
        };
        timeout(body_time, read).await.map_err(|_| Closed::TooSlow)?
    }

    async fn body_of_length(
        &mut self,
        length: u64,
        keep: Keep,
    ) -> Result<Result<Vec<u8>, ServiceError>, Closed> {
        let bytes_max = self.limits.body_bytes_max;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= bytes_max) else {
            return Ok(Err(ServiceError::body_too_large(bytes_max as u64)));
        };
        let first = length.min(self.buffer.len());
        let mut left = length - first;
        // As much at once as a read brings, or a few: a client may announce more than it sends.
        let mut body = Vec::with_capacity(if keep == Keep::All { length.min(BODY_BYTES_FIRST) } else { 0 });
        if keep == Keep::All {
            body.extend_from_slice(&self.buffer[..first]);
        }
        self.buffer.advance(first);
        while left > 0 {
            let read = match keep {
                // To where it stays, and nothing of what follows it.
                Keep::All => {
                    body.reserve(left.min(READ_BYTES));
                    (&mut self.socket).take(left as u64).read_buf(&mut body).await?
                }
                Keep::Nothing => {
                    let read = self.read().await?;
                    self.buffer.advance(read.min(left));
                    read.min(left)
                }
            };
            if read == 0 {
                return Err(Closed::Broken);
            }
            left -= read;
        }
        Ok(Ok(body))
    }

    async fn chunks(&mut self, keep: Keep) -> Result<Result<Vec<u8>, ServiceError>, Closed> {
        let bytes_max = self.limits.body_bytes_max;
        let mut chunked = Chunked::new();
        let (mut body, mut length) = (Vec::new(), 0usize);
        while !chunked.is_done() {
            if self.buffer.is_empty() && self.read().await? == 0 {
                return Err(Closed::Broken);
            }
            // One buffer's worth at a time, so the body is past its limit by that much at most when it is noticed.
            let taken = chunked.feed(&self.buffer, |data| {
                length += data.len();
                if keep == Keep::All {
                    body.extend_from_slice(data);
                }
            });
            match taken {
                Ok(taken) => self.buffer.advance(taken),
                Err(_) => {
                    return Ok(Err(ServiceError::bad_chunks()));
                }
            }
            if length > bytes_max {
                return Ok(Err(ServiceError::body_too_large(bytes_max as u64)));
            }
        }
        Ok(Ok(body))
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        let written = async {
            self.socket.write_all(bytes).await?;
            self.socket.flush().await
        };
        timeout(self.limits.write_time, written).await.map_err(|_| Closed::TooSlow)??;
        Ok(())
    }

    /// Closes: says that no more comes.
    pub(crate) async fn close(mut self) {
        // A client that is gone has closed already, and a slow one is not waited for.
        let _ended = timeout(self.limits.write_time, self.socket.shutdown()).await;
    }

    /// Closes in a way that lets the client read the last answer: says that no more comes, then reads and drops what
    /// the client still sends until it closes too, or the process stops.
    pub(crate) async fn drain(mut self, shutdown: &Shutdown) {
        let drain = async {
            self.socket.shutdown().await?;
            let mut drained = 0;
            while drained < DRAIN_BYTES_MAX {
                self.buffer.clear();
                match self.read().await? {
                    0 => break,
                    read => drained += read,
                }
            }
            Ok::<_, io::Error>(())
        };
        // Whichever way it ends, the connection is over, and all that could be done for the client was done.
        tokio::select! {
            () = shutdown.started() => {}
            _ended = timeout(Duration::from_millis(DRAIN_MS_MAX), drain) => {}
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ_BYTES);
        self.socket.read_buf(&mut self.buffer).await
    }
}

/// Whether a head may end in these bytes: an empty line, with or without carriage returns.
fn ends_head(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|two| two == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

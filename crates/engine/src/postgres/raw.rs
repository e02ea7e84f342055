//! A PostgreSQL session spoken to in protocol messages: for a front door that passes its clients' bytes on.
//!
//! It frames and buffers, and understands nothing: what the messages say is between its user and the server.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio_rustls::client::TlsStream;

use super::raw_connect::RawCancel;
use crate::Error;

/// Room made for each read: large enough for a page of rows, small enough for a thousand idle sessions.
const READ_BYTES: usize = 16 * 1024;
/// A buffer that has grown beyond this is given back once it is empty.
const BUFFER_KEPT_BYTES_MAX: usize = 256 * 1024;
/// How long a session that is thrown away may take to end its statement.
const ABANDON_WAIT: Duration = Duration::from_secs(10);
/// When it is told again to stop: first after so long, and at last as rarely as that.
const CANCEL_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A session in protocol messages. Messages to the server are appended to [`RawSession::outgoing`] and leave with
/// [`RawSession::flush`]; what came from it is in [`RawSession::incoming`].
pub struct RawSession {
    pub(super) stream: RawStream,
    pub(super) incoming: BytesMut,
    pub(super) outgoing: BytesMut,
    pub(super) generation: u64,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) cancel: RawCancel,
    pub(super) target: std::sync::Arc<str>,
    /// What its user wants to remember of it while it is pooled: prepared statements, settings.
    pub notes: Option<Box<dyn Any + Send + Sync>>,
}

/// One message in the buffer: its type, and its length with type and length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// The message's type.
    pub kind: u8,
    /// Bytes from its type to its end.
    pub bytes: usize,
}

impl RawSession {
    /// A session with whoever answers at the other end of a pipe in this process.
    pub(super) fn piped(
        stream: DuplexStream,
        target: std::sync::Arc<str>,
        stop: std::sync::Arc<Notify>,
    ) -> RawSession {
        RawSession {
            stream: RawStream::Pipe(stream),
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            generation: 0,
            parameters: Vec::new(),
            cancel: RawCancel::here(stop),
            target,
            notes: None,
        }
    }

    /// What is to be sent.
    pub fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// What has come and was not taken yet.
    pub fn incoming(&mut self) -> &mut BytesMut {
        &mut self.incoming
    }

    /// The parameters that the server reported when the session began.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// What stops the statement that runs on it.
    pub fn cancel(&self) -> &RawCancel {
        &self.cancel
    }

    /// The server's process.
    pub fn process(&self) -> i32 {
        self.cancel.process()
    }

    /// The head of the next message, if it has come; the body may still be on its way.
    pub fn head(&self) -> Result<Option<RawFrame>, Error> {
        let buffer = &self.incoming[..];
        if buffer.len() < 5 {
            return Ok(None);
        }
        let length = u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]) as usize;
        if length < 4 {
            return Err(self.broken("it sent a message of an impossible length"));
        }
        Ok(Some(RawFrame { kind: buffer[0], bytes: length + 1 }))
    }

    /// The next message, if it is there as a whole.
    pub fn whole(&self) -> Result<Option<RawFrame>, Error> {
        Ok(self.head()?.filter(|frame| frame.bytes <= self.incoming.len()))
    }

    /// Takes a message that [`RawSession::whole`] has found: its type and body.
    pub fn take(&mut self, frame: RawFrame) -> (u8, BytesMut) {
        let mut message = self.incoming.split_to(frame.bytes);
        message.advance(5);
        (frame.kind, message)
    }

    /// The next message: its type and body.
    pub async fn next(&mut self) -> Result<(u8, BytesMut), Error> {
        loop {
            if let Some(frame) = self.whole()? {
                return Ok(self.take(frame));
            }
            self.fill().await?;
        }
    }

    /// Reads what has come; an error if the server is gone. Dropping it loses nothing.
    pub async fn fill(&mut self) -> Result<(), Error> {
        self.incoming.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.incoming).await {
            Ok(0) => Err(self.broken("it closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    /// Sends all of [`RawSession::outgoing`]. While the server does not take it, what it says is read, so that
    /// neither waits for the other.
    pub async fn flush(&mut self) -> Result<(), Error> {
        let RawSession { stream, outgoing, incoming, .. } = self;
        let result = send(stream, outgoing, incoming).await;
        if self.outgoing.is_empty() && self.outgoing.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.outgoing = BytesMut::new();
        }
        if self.incoming.is_empty() && self.incoming.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.incoming = BytesMut::new();
        }
        result.map_err(|error| self.broken(&error.to_string()))
    }

    /// Whether an idle session can be used: nothing that ends it has come. What else has come is dropped.
    pub(super) fn is_alive(&mut self) -> bool {
        loop {
            self.incoming.reserve(READ_BYTES);
            match self.stream.read_now(&mut self.incoming) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        while let Ok(Some(frame)) = self.whole() {
            // Notices, notifications and changed parameters may come at any time; an error is a farewell.
            if !matches!(frame.kind, b'N' | b'A' | b'S') {
                return false;
            }
            self.incoming.advance(frame.bytes);
        }
        self.incoming.is_empty() && self.outgoing.is_empty()
    }

    /// Stops what runs on the session and waits until the server has ended it, so that nothing it does comes later.
    ///
    /// A server does not hear a word to stop that comes between two messages, and then runs the second to its end
    /// though nobody is there any more: it is said again until the session is over.
    pub async fn abandon(mut self) {
        let cancel = self.cancel.clone();
        let saying = async {
            let mut pause = CANCEL_AGAIN.0;
            loop {
                if let Err(error) = cancel.send().await {
                    tracing::debug!(%error, "a session that is thrown away cannot be told to stop");
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(CANCEL_AGAIN.1);
            }
        };
        let ending = async {
            self.outgoing.clear();
            self.outgoing.extend_from_slice(b"X\0\0\0\x04");
            // It may have ended already; what counts is that the connection is over. A message of which the server has
            // only a part would take these bytes for its own: the end of the stream is an end to that, too.
            let _ = self.flush().await;
            let _ = self.stream.shutdown().await;
            while self.fill().await.is_ok() {
                self.incoming.clear();
            }
        };
        tokio::select! {
            () = ending => {}
            () = saying => {}
            () = tokio::time::sleep(ABANDON_WAIT) => {
                tracing::warn!(target = %self.target, "a session did not end its statement when it was asked to");
            }
        }
    }

    fn broken(&self, why: &str) -> Error {
        Error::Unavailable {
            message: format!("the connection to PostgreSQL at {} is lost: {why}", self.target),
        }
    }
}

/// Writes all; reads meanwhile if the other side does not take it.
async fn send(stream: &mut RawStream, out: &mut BytesMut, incoming: &mut BytesMut) -> io::Result<()> {
    while !out.is_empty() {
        let sent = std::future::poll_fn(|context| {
            match Pin::new(&mut *stream).poll_write(context, out) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(result) => return Poll::Ready(result),
                Poll::Pending => {}
            }
            incoming.reserve(READ_BYTES);
            let room = incoming.spare_capacity_mut();
            let mut buffer = ReadBuf::uninit(room);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    let filled = buffer.filled().to_vec();
                    if filled.is_empty() {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    incoming.extend_from_slice(&filled);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await?;
        out.advance(sent);
    }
    stream.flush().await
}

/// What the bytes travel by.
pub(super) enum RawStream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// To whoever answers in this process.
    Pipe(DuplexStream),
}

impl RawStream {
    /// Reads what is there without waiting. A TLS session is not looked into: its end is found when it is used.
    fn read_now(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            RawStream::Tcp(stream) => stream.try_read_buf(into),
            RawStream::Unix(stream) => stream.try_read_buf(into),
            // Nobody lends it twice.
            RawStream::Pipe(_) => Err(io::ErrorKind::WouldBlock.into()),
            RawStream::Tls(stream) => {
                let mut context = Context::from_waker(std::task::Waker::noop());
                let mut bytes = [0_u8; 1024];
                let mut buffer = ReadBuf::new(&mut bytes);
                match Pin::new(&mut **stream).poll_read(&mut context, &mut buffer) {
                    Poll::Ready(Ok(())) => {
                        into.extend_from_slice(buffer.filled());
                        Ok(buffer.filled().len())
                    }
                    Poll::Ready(Err(error)) => Err(error),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            RawStream::Tcp($stream) => $call,
            RawStream::Unix($stream) => $call,
            RawStream::Tls($stream) => $call,
            RawStream::Pipe($stream) => $call,
        }
    };
}

impl AsyncRead for RawStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for RawStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}

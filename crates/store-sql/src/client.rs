//! The client's side of a connection: its stream, and what was read and is to be written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::codec::{self, Head, Malformed};

/// Room made for reads when there is little left.
const READ_BYTES: usize = 8 * 1024;
/// Room made for reads while the client sends more than fits: a load.
const LOAD_READ_BYTES: usize = 64 * 1024;
/// With less room than this a read is too short to be worth a call; with more, no new buffer is made while a message
/// taken from this one is still in use.
const READ_BYTES_MIN: usize = 2 * 1024;
/// Bytes of answers gathered before they are sent; fewer when the client waits.
pub(crate) const OUT_BYTES: usize = 32 * 1024;
/// A buffer that has grown beyond this is given back once it is empty.
const BUFFER_KEPT_BYTES_MAX: usize = 256 * 1024;
/// Bytes read ahead of a client that sends while it is being answered.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A client's connection.
pub(crate) struct Client {
    stream: ClientStream,
    /// What was read and not taken yet.
    pub incoming: BytesMut,
    /// What is to be sent.
    pub out: BytesMut,
    /// Whether the last read took all the room there was.
    filled: bool,
    sent: u64,
    heard: u64,
    settled: u64,
}

/// What the bytes travel by.
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// From another session of this process, for whose shard this one answers.
    Pipe(DuplexStream),
}

/// The client is gone, or speaks no protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Gone {
    #[error("the connection ended: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The end of a connection in whose stream a shard's message broke off.
pub(crate) fn broken_off(why: &str) -> Gone {
    let message = format!("a shard was lost in the middle of a message: {why}");
    Gone::Io(io::Error::new(io::ErrorKind::ConnectionAborted, message))
}

impl Client {
    pub fn new(stream: ClientStream) -> Client {
        Client {
            stream,
            incoming: BytesMut::new(),
            out: BytesMut::new(),
            filled: false,
            sent: 0,
            heard: 0,
            settled: 0,
        }
    }

    pub fn into_stream(self) -> ClientStream {
        self.stream
    }

    /// The next message, if it is there as a whole.
    pub fn whole(&self) -> Result<Option<Head>, Malformed> {
        Ok(codec::head(&self.incoming)?.filter(|head| head.bytes <= self.incoming.len()))
    }

    /// Whether the next message is there, and is the end of a series.
    pub fn has_sync(&self) -> bool {
        self.incoming.first() == Some(&b'S')
    }

    /// Takes a message that [`Client::whole`] has found: its body.
    pub fn take(&mut self, head: Head) -> BytesMut {
        self.heard += head.bytes as u64;
        let mut message = self.incoming.split_to(head.bytes);
        message.advance(5);
        message
    }

    /// Passes over messages that were read where they lie.
    pub fn skip(&mut self, bytes: usize) {
        self.heard += bytes as u64;
        self.incoming.advance(bytes);
    }

    /// The next message, after sending what is to be sent.
    pub async fn next(&mut self) -> Result<(u8, BytesMut), Gone> {
        let head = self.arrived().await?;
        Ok((head.kind, self.take(head)))
    }

    /// Waits until the next message is there as a whole, after sending what is to be sent.
    pub async fn arrived(&mut self) -> Result<Head, Gone> {
        loop {
            if let Some(head) = self.whole()? {
                return Ok(head);
            }
            self.flush().await?;
            self.fill().await?;
        }
    }

    /// Reads what has come. Dropping it loses nothing.
    pub async fn fill(&mut self) -> Result<(), Gone> {
        if self.incoming.is_empty() && self.incoming.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.incoming = BytesMut::new();
        }
        if self.incoming.capacity() - self.incoming.len() < READ_BYTES_MIN {
            self.incoming.reserve(if self.filled { LOAD_READ_BYTES } else { READ_BYTES });
        }
        let read = self.stream.read_buf(&mut self.incoming).await?;
        self.filled = self.incoming.len() == self.incoming.capacity();
        if read == 0 { Err(Gone::Io(io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }

    /// Reads while an answer is being waited for: to hear that the client is gone. Returns only then.
    pub async fn gone(&mut self) -> Gone {
        loop {
            if self.incoming.len() >= AHEAD_BYTES_MAX {
                // It is there, and busy sending.
                std::future::pending::<()>().await;
            }
            if let Err(gone) = self.fill().await {
                return gone;
            }
        }
    }

    /// Sends all.
    pub async fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await?;
        self.sent += self.out.len() as u64;
        if self.out.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.out = BytesMut::new();
        } else {
            self.out.clear();
        }
        Ok(())
    }

    /// How much was said to it so far, sent or not.
    pub fn said(&self) -> u64 {
        self.sent + self.out.len() as u64
    }

    /// How much was said by it and to it so far.
    pub fn exchanged(&self) -> u64 {
        self.heard + self.said()
    }

    /// An answer is complete.
    pub fn settle(&mut self) {
        self.settled = self.exchanged();
    }

    /// How much had been said by it and to it before what it asks now.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// What was said to it beyond this count and is not sent yet; nothing if some of it was sent.
    pub fn unsent(&self, said: u64) -> Option<&[u8]> {
        self.out.get(usize::try_from(said.checked_sub(self.sent)?).ok()?..)
    }

    /// Takes back what [`Client::unsent`] has found.
    pub fn take_back(&mut self, said: u64) {
        if let Some(keep) = said.checked_sub(self.sent) {
            self.out.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        }
    }

    /// Sends if there is much to send.
    pub async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.out.len() >= OUT_BYTES { self.flush().await } else { Ok(()) }
    }
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            ClientStream::Plain($stream) => $call,
            ClientStream::Tls($stream) => $call,
            ClientStream::Pipe($stream) => $call,
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientStream {
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

//! A connection that sends signed requests one after the other and reads the answers: as little as that takes, so that
//! the servers are measured and not an SDK.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

const VERSION: &str = "2021-12-02";
/// How long a date may be used for further requests: a signature may be a quarter of an hour old.
const DATE_S: u64 = 300;
/// Heads of requests that are kept: more than there are entities that are read again and again.
const HEADS_MAX: usize = 20_000;

/// What is asked of the socket at a time, at least.
const READ_BYTES: usize = 16 * 1024;

/// Which protocol a request is signed for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// Queues.
    Queue,
    /// Tables.
    Table,
    /// Containers of blobs.
    Blob,
}

/// A request. Its path is without the account and as it is sent.
#[derive(Clone, Copy, Default)]
pub struct Ask<'a> {
    /// The verb.
    pub method: &'static str,
    /// The path.
    pub path: &'a str,
    /// The query without its question mark.
    pub query: &'a str,
    /// The type of the body, if there is one.
    pub content_type: &'a str,
    /// The body.
    pub body: &'a str,
    /// Whether it is sent again, maybe with another body of the same length.
    pub is_repeated: bool,
}

/// What signs requests, for all connections. The head of a request that is sent again is signed once: the load shares
/// its cores with the servers.
pub struct Signer {
    key: AccountKey,
    kept: Mutex<Kept>,
}

struct Kept {
    date: String,
    since: Instant,
    /// By a hash of all that is signed.
    heads: HashMap<u64, Arc<str>>,
}

/// How a connection waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Asleep, as one of many on the same thread.
    Asleep,
    /// Looking for it again and again: one connection alone would otherwise measure how long its own thread takes to
    /// wake, which is a third of the time of a quick answer.
    Looking,
}

enum Stream {
    Asleep(TcpStream),
    Looking(std::net::TcpStream),
}

/// A connection.
pub struct Client {
    stream: Stream,
    door: Door,
    signer: Arc<Signer>,
    send: Vec<u8>,
    read: Vec<u8>,
    /// How much of what was read belongs to the last answer.
    used: usize,
    /// The body of an answer in chunks.
    joined: Vec<u8>,
}

/// An answer.
pub struct Reply<'a> {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: &'a [u8],
}

impl Signer {
    /// Signs for the development account.
    pub fn new() -> Result<Signer, Failure> {
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).ok_or("the development key is base64")?;
        let kept = Kept { date: date()?, since: Instant::now(), heads: HashMap::new() };
        Ok(Signer { key, kept: Mutex::new(kept) })
    }

    /// The head of a request but for the length of its body, which comes last.
    pub fn head(&self, door: Door, ask: &Ask<'_>) -> Result<Arc<str>, Failure> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.since.elapsed().as_secs() >= DATE_S || kept.heads.len() >= HEADS_MAX {
            *kept = Kept { date: date()?, since: Instant::now(), heads: HashMap::new() };
        }
        let mut hasher = DefaultHasher::new();
        (door, ask.method, ask.path, ask.query, ask.content_type, ask.body.len()).hash(&mut hasher);
        let known = hasher.finish();
        if let Some(head) = kept.heads.get(&known) {
            return Ok(head.clone());
        }
        let head: Arc<str> = self.write_head(door, ask, &kept.date).into();
        // What has a name of its own comes once.
        if ask.is_repeated {
            kept.heads.insert(known, head.clone());
        }
        Ok(head)
    }

    fn write_head(&self, door: Door, ask: &Ask<'_>, date: &str) -> String {
        let Ask { method, path, query, content_type, .. } = *ask;
        let signature = self.key.sign(&text_to_sign(door, ask, date));
        let mut out = String::with_capacity(512);
        out.push_str(&format!("{method} /{DEVELOPMENT_ACCOUNT}{path}"));
        if !query.is_empty() {
            out.push('?');
            out.push_str(query);
        }
        out.push_str(&format!(
            " HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-date: {date}\r\nx-ms-version: {VERSION}\r\n\
             Authorization: SharedKey {DEVELOPMENT_ACCOUNT}:{signature}\r\n"
        ));
        if !content_type.is_empty() {
            out.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        if is_put_blob(door, ask) {
            out.push_str(&format!("{BLOB_TYPE}\r\n"));
        }
        if door == Door::Table {
            out.push_str("Accept: application/json;odata=nometadata\r\nPrefer: return-no-content\r\n");
            out.push_str("DataServiceVersion: 3.0\r\n");
        }
        if method == "PATCH" || method == "DELETE" && door == Door::Table {
            out.push_str("If-Match: *\r\n");
        }
        out.push_str("Content-Length: ");
        out
    }
}

impl Client {
    /// Connects.
    pub async fn connect(
        address: SocketAddr,
        door: Door,
        signer: Arc<Signer>,
        wait: Wait,
    ) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = match wait {
            Wait::Asleep => Stream::Asleep(stream),
            // It stays as it is: whoever asks it does not wait.
            Wait::Looking => Stream::Looking(stream.into_std()?),
        };
        Ok(Client { stream, door, signer, send: Vec::new(), read: Vec::new(), used: 0, joined: Vec::new() })
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply<'_>, Failure> {
        let head = self.signer.head(self.door, ask)?;
        self.send.clear();
        self.send.extend_from_slice(head.as_bytes());
        write!(self.send, "{}\r\n\r\n", ask.body.len())?;
        self.send.extend_from_slice(ask.body.as_bytes());
        match &mut self.stream {
            Stream::Asleep(stream) => stream.write_all(&self.send).await?,
            Stream::Looking(stream) => {
                let mut left = self.send.as_slice();
                while !left.is_empty() {
                    left = &left[look(|| stream.write(left))?..];
                }
            }
        }
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Reply<'_>, Failure> {
        self.read.drain(..self.used);
        let head = loop {
            if let Some(at) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.more(READ_BYTES).await?;
        };
        let text = std::str::from_utf8(&self.read[..head])?;
        let status: u16 = text.get(9..12).ok_or("no status")?.parse()?;
        let (mut is_chunked, mut length) = (false, 0);
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            // Only these two count, and few others begin like them.
            match name.as_bytes()[..] {
                [b'T' | b't', ..] if name.eq_ignore_ascii_case("transfer-encoding") => {
                    is_chunked = value.trim().eq_ignore_ascii_case("chunked");
                }
                [b'C' | b'c', ..] if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse()?
                }
                _ => {}
            }
        }
        if is_chunked {
            self.used = self.chunks(head).await?;
            return Ok(Reply { status, body: &self.joined });
        }
        self.used = head + if status == 204 { 0 } else { length };
        while self.read.len() < self.used {
            self.more(self.used - self.read.len()).await?;
        }
        Ok(Reply { status, body: &self.read[head..self.used] })
    }

    /// Joins the chunks that begin there; answers with where they end.
    async fn chunks(&mut self, mut at: usize) -> Result<usize, Failure> {
        self.joined.clear();
        loop {
            let line = loop {
                if let Some(length) = memchr::memmem::find(&self.read[at..], b"\r\n") {
                    break at + length;
                }
                self.more(READ_BYTES).await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.read[at..line])?.trim(), 16)?;
            let (begin, end) = (line + 2, line + 2 + size);
            while self.read.len() < end + 2 {
                self.more(READ_BYTES).await?;
            }
            self.joined.extend_from_slice(&self.read[begin..end]);
            at = end + 2;
            if size == 0 {
                return Ok(at);
            }
        }
    }

    /// Reads what is there, and lays room ready for so much.
    async fn more(&mut self, bytes: usize) -> Result<(), Failure> {
        self.read.reserve(bytes);
        let read = match &mut self.stream {
            Stream::Asleep(stream) => stream.read_buf(&mut self.read).await?,
            Stream::Looking(stream) => {
                let (length, room) = (self.read.len(), self.read.capacity());
                self.read.resize(room, 0);
                let read = look(|| stream.read(&mut self.read[length..]))?;
                self.read.truncate(length + read);
                read
            }
        };
        match read {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

/// Tries until there is something to be had.
pub(super) fn look(mut attempt: impl FnMut() -> std::io::Result<usize>) -> std::io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            done => return done,
        }
    }
}

/// The header of a request that puts a blob.
const BLOB_TYPE: &str = "x-ms-blob-type:BlockBlob";

fn is_put_blob(door: Door, ask: &Ask<'_>) -> bool {
    door == Door::Blob && ask.method == "PUT" && ask.query.is_empty()
}

fn text_to_sign(door: Door, ask: &Ask<'_>, date: &str) -> String {
    let Ask { method, path, query, content_type, body, .. } = *ask;
    let resource = format!("/{DEVELOPMENT_ACCOUNT}/{DEVELOPMENT_ACCOUNT}{path}");
    match door {
        Door::Table => format!("{method}\n\n{content_type}\n{date}\n{resource}"),
        Door::Queue | Door::Blob => {
            let blob_type = if is_put_blob(door, ask) { format!("{BLOB_TYPE}\n") } else { String::new() };
            let length = if body.is_empty() { String::new() } else { body.len().to_string() };
            let mut parameters: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).collect();
            parameters.sort_unstable();
            let parameters: String = parameters
                .iter()
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| format!("\n{name}:{}", decode(value)))
                .collect();
            format!(
                "{method}\n\n\n{length}\n\n{content_type}\n\n\n\n\n\n\n{blob_type}x-ms-date:{date}\n\
                 x-ms-version:{VERSION}\n{resource}{parameters}"
            )
        }
    }
}

fn date() -> Result<String, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let ticks = i64::try_from(since.as_nanos() / 100)?;
    Ok(Timestamp::from_ticks(ticks).ok_or("the clock is within the calendar")?.rfc1123())
}

/// A query's value decoded, for the few characters that are encoded here.
fn decode(value: &str) -> String {
    value.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")
}

//! A connection that sends signed requests one after the other and reads the answers: as little as that takes, so that
//! the servers are measured and not an SDK.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use polyshard_azure_http::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

const VERSION: &str = "2021-12-02";
/// How long a date may be used for further requests: a signature may be a quarter of an hour old.
const DATE_S: u64 = 300;
/// Heads of requests that are kept: more than there are entities that are read again and again.
const HEADS_MAX: usize = 20_000;

/// Which protocol a request is signed for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// Queues.
    Queue,
    /// Tables.
    Table,
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

/// A connection.
pub struct Client {
    stream: TcpStream,
    door: Door,
    signer: Arc<Signer>,
    send: Vec<u8>,
    read: Vec<u8>,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

impl Signer {
    /// Signs for the development account.
    pub fn new() -> Result<Signer, Failure> {
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).ok_or("the development key is base64")?;
        let kept = Kept { date: date()?, since: Instant::now(), heads: HashMap::new() };
        Ok(Signer { key, kept: Mutex::new(kept) })
    }

    /// The head of a request but for the length of its body, which comes last.
    fn head(&self, door: Door, ask: &Ask<'_>) -> Result<Arc<str>, Failure> {
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
    pub async fn connect(address: SocketAddr, door: Door, signer: Arc<Signer>) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, door, signer, send: Vec::new(), read: Vec::new() })
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply, Failure> {
        let head = self.signer.head(self.door, ask)?;
        self.send.clear();
        self.send.extend_from_slice(head.as_bytes());
        write!(self.send, "{}\r\n\r\n", ask.body.len())?;
        self.send.extend_from_slice(ask.body.as_bytes());
        self.stream.write_all(&self.send).await?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Reply, Failure> {
        let head = loop {
            if let Some(at) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
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
        self.read.drain(..head);
        let body = match status {
            _ if is_chunked => self.chunks().await?,
            204 => Vec::new(),
            _ => self.take(length).await?,
        };
        Ok(Reply { status, body })
    }

    async fn chunks(&mut self) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = self.read.windows(2).position(|two| two == b"\r\n") {
                    break at;
                }
                self.more().await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.read[..line])?.trim(), 16)?;
            self.read.drain(..line + 2);
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        while self.read.len() < length {
            self.more().await?;
        }
        let rest = self.read.split_off(length);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    async fn more(&mut self) -> Result<(), Failure> {
        self.read.reserve(16 * 1024);
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err("the server closed the connection".into()),
            _ => Ok(()),
        }
    }
}

fn text_to_sign(door: Door, ask: &Ask<'_>, date: &str) -> String {
    let Ask { method, path, query, content_type, body, .. } = *ask;
    let resource = format!("/{DEVELOPMENT_ACCOUNT}/{DEVELOPMENT_ACCOUNT}{path}");
    match door {
        Door::Table => format!("{method}\n\n{content_type}\n{date}\n{resource}"),
        Door::Queue => {
            let length = if body.is_empty() { String::new() } else { body.len().to_string() };
            let mut parameters: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).collect();
            parameters.sort_unstable();
            let parameters: String = parameters
                .iter()
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| format!("\n{name}:{}", decode(value)))
                .collect();
            format!(
                "{method}\n\n\n{length}\n\n{content_type}\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{VERSION}\n\
                 {resource}{parameters}"
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

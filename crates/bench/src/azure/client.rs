//! A connection that sends signed requests one after the other and reads the answers: as little as that takes, so that
//! the servers are measured and not an SDK.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use polyshard_azure_http::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

const VERSION: &str = "2021-12-02";
/// How long a date may be used for further requests: a signature may be a quarter of an hour old.
const DATE_S: u64 = 60;

/// Which protocol a request is signed for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// Queues.
    Queue,
    /// Tables.
    Table,
}

/// A request. Its path is without the account and as it is sent.
#[derive(Clone, Copy)]
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
}

/// A connection.
pub struct Client {
    stream: TcpStream,
    door: Door,
    key: Arc<AccountKey>,
    date: (String, Instant),
    read: Vec<u8>,
}

/// An answer.
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr, door: Door) -> Result<Client, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).ok_or("the development key is base64")?;
        Ok(Client { stream, door, key: Arc::new(key), date: (date()?, Instant::now()), read: Vec::new() })
    }

    /// Sends a request and reads its answer.
    pub async fn ask(&mut self, ask: &Ask<'_>) -> Result<Reply, Failure> {
        if self.date.1.elapsed().as_secs() >= DATE_S {
            self.date = (date()?, Instant::now());
        }
        let request = self.request(ask);
        self.stream.write_all(request.as_bytes()).await?;
        self.reply().await
    }

    fn request(&self, ask: &Ask<'_>) -> String {
        let Ask { method, path, query, content_type, body } = *ask;
        let (date, length) = (&self.date.0, body.len());
        let signature = self.key.sign(&self.text_to_sign(ask));
        let mut out = String::with_capacity(512 + length);
        out.push_str(&format!("{method} /{DEVELOPMENT_ACCOUNT}{path}"));
        if !query.is_empty() {
            out.push('?');
            out.push_str(query);
        }
        out.push_str(&format!(
            " HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-date: {date}\r\nx-ms-version: {VERSION}\r\n\
             Authorization: SharedKey {DEVELOPMENT_ACCOUNT}:{signature}\r\nContent-Length: {length}\r\n"
        ));
        if !content_type.is_empty() {
            out.push_str(&format!("Content-Type: {content_type}\r\n"));
        }
        if self.door == Door::Table {
            out.push_str("Accept: application/json;odata=nometadata\r\nPrefer: return-no-content\r\n");
            out.push_str("DataServiceVersion: 3.0\r\n");
        }
        if method == "PATCH" || method == "DELETE" && self.door == Door::Table {
            out.push_str("If-Match: *\r\n");
        }
        out.push_str("\r\n");
        out.push_str(body);
        out
    }

    fn text_to_sign(&self, ask: &Ask<'_>) -> String {
        let Ask { method, path, query, content_type, body } = *ask;
        let date = &self.date.0;
        let resource = format!("/{DEVELOPMENT_ACCOUNT}/{DEVELOPMENT_ACCOUNT}{path}");
        match self.door {
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

    async fn reply(&mut self) -> Result<Reply, Failure> {
        let head = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await?;
        };
        let text = String::from_utf8_lossy(&self.read[..head]).to_ascii_lowercase();
        let status: u16 = text.get(9..12).ok_or("no status")?.parse()?;
        let header = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        self.read.drain(..head);
        let body = if header("transfer-encoding") == Some("chunked") {
            self.chunks().await?
        } else {
            let length = header("content-length").map_or(Ok(0), str::parse)?;
            let length = if status == 204 { 0 } else { length };
            self.take(length).await?
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

fn date() -> Result<String, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let ticks = i64::try_from(since.as_nanos() / 100)?;
    Ok(Timestamp::from_ticks(ticks).ok_or("the clock is within the calendar")?.rfc1123())
}

/// A query's value decoded, for the few characters that are encoded here.
fn decode(value: &str) -> String {
    value.replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")
}

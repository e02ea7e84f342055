//! Measures a queue door: so many connections put, get and delete messages on one queue for some seconds.
//!
//! `cargo run --release -p polyshard-store-queue --example queue_load -- 127.0.0.1:10001 64 10`

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_azure_http::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What every message says: the size of a small job.
const TEXT_BYTES: usize = 200;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, seconds] = args.as_slice() else {
        return Err("give the door's address, the number of connections, and seconds".into());
    };
    let (connections, seconds): (usize, u64) = (connections.parse()?, seconds.parse()?);
    let sas: Arc<str> = account_sas()?.into();
    let mut first = Client::connect(address, &sas).await?;
    let (status, _) = first.ask("PUT", "/load", "", "").await?;
    if status != 201 && status != 204 {
        return Err(format!("the queue was not made: {status}").into());
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let mut client = Client::connect(address, &sas).await?;
        tasks.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let began = Instant::now();
                client.cycle().await?;
                times.push(began.elapsed());
            }
            Fallible::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(done) = tasks.join_next().await {
        times.extend(done??);
    }
    times.sort();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    println!(
        "{connections} connections: {} messages/s put, got and deleted; p50 {:.1?}, p99 {:.1?} for the three",
        times.len() as u64 / seconds,
        at(0.5),
        at(0.99)
    );
    Ok(())
}

struct Client {
    stream: TcpStream,
    sas: Arc<str>,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: &str, sas: &Arc<str>) -> Fallible<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, sas: sas.clone(), buffer: Vec::new() })
    }

    /// Puts a message, gets one (its own or another's) and deletes that.
    async fn cycle(&mut self) -> Fallible<()> {
        let text = "x".repeat(TEXT_BYTES);
        let body = format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>");
        let (status, _) = self.ask("POST", "/load/messages", "", &body).await?;
        if status != 201 {
            return Err(format!("put: {status}").into());
        }
        loop {
            let (status, answer) = self.ask("GET", "/load/messages", "&visibilitytimeout=60", "").await?;
            if status != 200 {
                return Err(format!("get: {status}").into());
            }
            // Another connection may have been quicker; then its message is still to come.
            let (Some(id), Some(receipt)) = (between(&answer, "MessageId"), between(&answer, "PopReceipt"))
            else {
                continue;
            };
            let receipt = receipt.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
            let (status, _) = self
                .ask("DELETE", &format!("/load/messages/{id}"), &format!("&popreceipt={receipt}"), "")
                .await?;
            return if status == 204 { Ok(()) } else { Err(format!("delete: {status}").into()) };
        }
    }

    async fn ask(&mut self, verb: &str, path: &str, query: &str, body: &str) -> Fallible<(u16, String)> {
        let request = format!(
            "{verb} /{DEVELOPMENT_ACCOUNT}{path}?{}{query} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.sas,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
            let text = std::str::from_utf8(&self.buffer)?;
            let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if rest.len() >= length.map_or(Ok(0), str::parse)? {
                let status = head.split(' ').nth(1).unwrap_or_default().parse()?;
                return Ok((status, rest.to_owned()));
            }
        }
    }
}

fn between<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once('<').map(|(value, _)| value)
}

/// An account SAS for everything about queues, in the layout of versions before 2020-12-06.
fn account_sas() -> Fallible<String> {
    let key = AccountKey::from_base64(DEVELOPMENT_KEY).ok_or("the development key is base64")?;
    let (permissions, expiry, version) = ("raupdcwl", "2099-01-01", "2019-02-02");
    let signed = format!("{DEVELOPMENT_ACCOUNT}\n{permissions}\nq\nsco\n\n{expiry}\n\n\n{version}\n");
    let signature = key.sign(&signed).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    Ok(format!("sv={version}&ss=q&srt=sco&sp={permissions}&se={expiry}&sig={signature}"))
}

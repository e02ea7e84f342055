//! Sends batches over several connections, and finds the rows that are refused.

use std::io::Write;
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio::sync::mpsc;
use tokio_postgres::Client;

use super::batch::{Batch, Span};

/// Bytes of one message to the server.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Times that a batch is sent again after an answer that says it may be.
const TRIES_MAX: u32 = 8;
/// The first wait before that; each later one is twice as long.
const WAIT: Duration = Duration::from_millis(50);
/// Bad rows that are told one by one.
const BAD_TOLD_MAX: usize = 20;

/// A row that was refused.
#[derive(Debug, Clone, serde::Serialize)]
pub struct BadRow {
    pub row: u64,
    pub line: u64,
    pub code: String,
    pub message: String,
}

/// What has become of the rows so far.
#[derive(Debug, Default)]
pub struct Tally {
    pub loaded: AtomicU64,
    pub bad: AtomicU64,
    /// Set when no more is to be sent.
    pub stop: AtomicBool,
    ended: Mutex<Ended>,
}

/// Why it stopped, and which rows were treated.
#[derive(Debug, Default)]
pub struct Ended {
    pub bad_rows: Vec<BadRow>,
    /// Loaded, or refused and counted.
    pub treated: Vec<Span>,
    /// Rows of which nobody knows.
    pub unknown: Vec<Span>,
    pub failure: Option<String>,
}

impl Tally {
    fn with<T>(&self, work: impl FnOnce(&mut Ended) -> T) -> T {
        work(&mut self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes what it ended with.
    pub fn end(&self) -> Ended {
        self.with(std::mem::take)
    }

    fn fail(&self, message: String) {
        self.stop.store(true, Ordering::Relaxed);
        self.with(|ended| {
            ended.failure.get_or_insert(message);
        });
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Where refused rows are written, as they stood.
pub type BadFile = Option<Mutex<Box<dyn Write + Send>>>;

/// What all senders share.
pub struct Sending {
    pub copy: String,
    pub max_bad: u64,
    pub tally: Arc<Tally>,
    pub bad_file: BadFile,
    pub batches: tokio::sync::Mutex<mpsc::Receiver<Batch>>,
}

/// What came of sending rows.
enum Outcome {
    Done,
    /// The rows, or one of them, are refused; nothing of them is there.
    Refused(String, String),
    /// It is not about the rows.
    Failed(String),
    /// Nobody knows whether they are there.
    Unknown(String),
}

/// Sends batches until there are none.
pub async fn run(sending: Arc<Sending>, client: Client) {
    loop {
        let batch = sending.batches.lock().await.recv().await;
        let Some(batch) = batch else { return };
        if sending.tally.is_stopped() {
            // Taken and not sent: they are reported as not loaded.
            continue;
        }
        sending.send(&client, &batch).await;
    }
}

impl Sending {
    async fn send(&self, client: &Client, batch: &Batch) {
        let mut parts = vec![batch.rows()];
        while let Some(rows) = parts.pop() {
            if self.tally.is_stopped() {
                return;
            }
            match self.send_rows(client, batch, &rows).await {
                Outcome::Done => {
                    self.tally.loaded.fetch_add(rows.len() as u64, Ordering::Relaxed);
                    self.tally.with(|ended| ended.treated.push(batch.span(&rows)));
                }
                Outcome::Refused(..) if rows.len() > 1 => {
                    // One half after the other: what is good goes in, and what is bad is found.
                    let middle = rows.start + rows.len() / 2;
                    parts.push(middle..rows.end);
                    parts.push(rows.start..middle);
                }
                Outcome::Refused(code, message) => self.refuse(batch, &rows, code, message),
                Outcome::Failed(message) => self.tally.fail(message),
                Outcome::Unknown(message) => {
                    self.tally.with(|ended| ended.unknown.push(batch.span(&rows)));
                    self.tally.fail(message);
                }
            }
        }
    }

    fn refuse(&self, batch: &Batch, rows: &Range<usize>, code: String, message: String) {
        let span = batch.span(rows);
        let bad = self.tally.bad.fetch_add(1, Ordering::Relaxed) + 1;
        let (row, line) = (span.first, batch.lines[rows.start]);
        let too_many = bad > self.max_bad;
        self.tally.with(|ended| {
            if ended.bad_rows.len() < BAD_TOLD_MAX {
                ended.bad_rows.push(BadRow { row, line, code, message: message.clone() });
            }
        });
        if too_many {
            return self.tally.fail(format!("line {line}: {message}"));
        }
        if let Some(file) = &self.bad_file {
            let written =
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&batch.bytes_of(rows.clone()));
            if let Err(error) = written {
                // The row is nowhere: it is told as one that is left to load.
                return self.tally.fail(format!("the file for bad rows cannot be written: {error}"));
            }
        }
        self.tally.with(|ended| ended.treated.push(span));
    }

    async fn send_rows(&self, client: &Client, batch: &Batch, rows: &Range<usize>) -> Outcome {
        let mut wait = WAIT;
        let mut tries = 0;
        loop {
            let error = match copy(client, &self.copy, batch.bytes_of(rows.clone())).await {
                Ok(count) if count == rows.len() as u64 => return Outcome::Done,
                Ok(count) => {
                    let rows = rows.len();
                    return Outcome::Unknown(format!(
                        "the server took {count} of {rows} rows: is there a line \"\\.\"?"
                    ));
                }
                Err(error) => error,
            };
            let Some(told) = error.as_db_error() else {
                return Outcome::Unknown(format!("the connection to the SQL door is lost: {error}"));
            };
            let code = told.code().code().to_owned();
            let message = match (told.column(), told.hint()) {
                (_, Some(hint)) => format!("{} ({hint})", told.message()),
                (Some(column), None) => format!("{} (column {column})", told.message()),
                (None, None) => told.message().to_owned(),
            };
            match code.as_str() {
                // Nothing happened, and it may go well the next time: a move, a lock, a shard that starts.
                "40001" | "40P01" | "55P03" | "53300" | "57P03" if tries < TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                code_of if code_of.starts_with("22") || code_of.starts_with("23") => {
                    return Outcome::Refused(code, message);
                }
                "08007" => return Outcome::Unknown(message),
                _ => return Outcome::Failed(message),
            }
        }
    }
}

async fn copy(client: &Client, sql: &str, mut bytes: Bytes) -> Result<u64, tokio_postgres::Error> {
    let mut sink = pin!(client.copy_in::<_, Bytes>(sql).await?);
    while !bytes.is_empty() {
        let part = bytes.split_to(bytes.len().min(MESSAGE_BYTES));
        if let Err(error) = sink.feed(part).await {
            // The server said why before it stopped listening; finish() has its words.
            return sink.finish().await.and(Err(error));
        }
    }
    sink.finish().await
}

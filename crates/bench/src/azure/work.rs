//! What is measured: a few operations that programs do again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::client::{Ask, Client, Door, Signer, Wait};
use super::servers::Server;
use crate::Failure;
use crate::measure::Random;

const TABLE: &str = "Bench";
const TABLE_PATH: &str = "/Bench";
const QUEUE: &str = "bench";
const CONTAINER: &str = "bench";
/// Bytes of a small blob.
const BLOB_BYTES: usize = 4096;
/// Small blobs that are read by name, and those with a prefix of their own, which are listed.
const READ_BLOBS: u64 = 2_000;
const LISTED_BLOBS: u64 = 100;
/// Entities that are read by key.
const READ_ENTITIES: u64 = 5_000;
/// Partitions that new entities go to.
const PARTITIONS: u64 = 1_000;
/// Entities in a partition that is scanned, and how many of them the filter lets through.
const SCAN_ENTITIES: u64 = 1_000;
const SCAN_FOUND: u64 = 100;
/// Entities in a batch: the most there can be.
const BATCH_ENTITIES: u64 = 100;
/// The text of a small job or entity.
pub const TEXT: &str = "an order of three small things, to be sent to a street in a town, by a customer who has been \
    here before, with a remark about the door and the neighbours, paid in advance; and so on until it is two \
    hundred bytes long.";
const JSON: &str = "application/json";

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Insert,
    Get,
    Batch,
    Scan,
    Queue,
    PutBlob,
    GetBlob,
    ListBlobs,
}

impl Kind {
    /// All, in the order of the report.
    pub const ALL: [Kind; 8] = [
        Kind::Get,
        Kind::Insert,
        Kind::Batch,
        Kind::Scan,
        Kind::Queue,
        Kind::GetBlob,
        Kind::PutBlob,
        Kind::ListBlobs,
    ];

    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Insert => "insert entity",
            Kind::Get => "get entity",
            Kind::Batch => "batch of 100 inserts",
            Kind::Scan => "scan of a partition: 100 of 1,000",
            Kind::Queue => "put, get, delete message",
            Kind::GetBlob => "get blob of 4 KiB",
            Kind::PutBlob => "put blob of 4 KiB",
            Kind::ListBlobs => "list blobs: 100 of a prefix",
        }
    }

    /// How many commits one takes that waits for each of its answers.
    pub fn commits(self) -> usize {
        match self {
            Kind::Get | Kind::Scan | Kind::GetBlob | Kind::ListBlobs => 0,
            Kind::Insert | Kind::Batch | Kind::PutBlob => 1,
            Kind::Queue => 3,
        }
    }

    /// How many requests one takes.
    pub fn requests(self) -> usize {
        if self == Kind::Queue { 3 } else { 1 }
    }

    fn door(self) -> Door {
        match self {
            Kind::Queue => Door::Queue,
            Kind::PutBlob | Kind::GetBlob | Kind::ListBlobs => Door::Blob,
            Kind::Insert | Kind::Get | Kind::Batch | Kind::Scan => Door::Table,
        }
    }
}

/// Numbers that no two requests share.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// One connection at its work.
pub struct Worker {
    client: Client,
    kind: Kind,
    random: Random,
    batch: Option<BatchText>,
}

/// Makes the table, the queue, and what is read.
pub async fn prepare(server: &Server, signer: &Arc<Signer>) -> Result<(), Failure> {
    let mut queue = Client::connect(server.queue, Door::Queue, signer.clone(), Wait::Asleep).await?;
    let create = Ask { method: "PUT", path: "/bench", ..Ask::default() };
    let made = queue.ask(&create).await?;
    expect(made.status, &[201, 204], "creating the queue", made.body)?;
    let mut table = Client::connect(server.table, Door::Table, signer.clone(), Wait::Asleep).await?;
    let body = format!("{{\"TableName\":\"{TABLE}\"}}");
    let create = Ask { method: "POST", path: "/Tables", content_type: JSON, body: &body, ..Ask::default() };
    let made = table.ask(&create).await?;
    expect(made.status, &[201, 204], "creating the table", made.body)?;
    for first in (0..READ_ENTITIES).step_by(BATCH_ENTITIES as usize) {
        let rows: Vec<_> = (first..first + BATCH_ENTITIES).map(|n| (format!("{n:06}"), n)).collect();
        batch(&mut table, &format!("read{}", first / BATCH_ENTITIES), &rows).await?;
    }
    for first in (0..SCAN_ENTITIES).step_by(BATCH_ENTITIES as usize) {
        let rows: Vec<_> = (first..first + BATCH_ENTITIES).map(|n| (format!("{n:06}"), n)).collect();
        batch(&mut table, "scan", &rows).await?;
    }
    let mut blobs = Client::connect(server.blob, Door::Blob, signer.clone(), Wait::Asleep).await?;
    let create = Ask { method: "PUT", path: "/bench", query: "restype=container", ..Ask::default() };
    let made = blobs.ask(&create).await?;
    expect(made.status, &[201], "creating the container", made.body)?;
    for n in 0..READ_BLOBS {
        put_blob(&mut blobs, &format!("read/{n:06}"), n).await?;
    }
    for n in 0..LISTED_BLOBS {
        put_blob(&mut blobs, &format!("list/{n:06}"), n).await?;
    }
    Ok(())
}

/// The content of a small blob.
fn blob(n: u64) -> String {
    let mut text = format!("{n:012} ").repeat(BLOB_BYTES / 13 + 1);
    text.truncate(BLOB_BYTES);
    text
}

async fn put_blob(client: &mut Client, name: &str, n: u64) -> Result<(), Failure> {
    let (path, body) = (format!("/{CONTAINER}/{name}"), blob(n));
    let content_type = "application/octet-stream";
    let ask = Ask { method: "PUT", path: &path, content_type, body: &body, ..Ask::default() };
    let reply = client.ask(&ask).await?;
    expect(reply.status, &[201], "putting a blob", reply.body)
}

impl Worker {
    /// Connects.
    pub async fn connect(
        server: &Server,
        kind: Kind,
        signer: &Arc<Signer>,
        wait: Wait,
    ) -> Result<Worker, Failure> {
        let address = match kind.door() {
            Door::Queue => server.queue,
            Door::Table => server.table,
            Door::Blob => server.blob,
        };
        let client = Client::connect(address, kind.door(), signer.clone(), wait).await?;
        let random = Random::new(NEXT.fetch_add(1, Ordering::Relaxed));
        let batch = (kind == Kind::Batch).then(BatchText::new);
        Ok(Worker { client, kind, random, batch })
    }

    /// Does it once, and sees that the answer is right.
    pub async fn step(&mut self) -> Result<(), Failure> {
        match self.kind {
            Kind::Insert => self.insert().await,
            Kind::Get => self.get().await,
            Kind::Batch => self.batch().await,
            Kind::Scan => self.scan().await,
            Kind::Queue => self.cycle().await,
            Kind::PutBlob => {
                let n = NEXT.fetch_add(1, Ordering::Relaxed);
                put_blob(&mut self.client, &format!("put/{n:012}"), n).await
            }
            Kind::GetBlob => self.get_blob().await,
            Kind::ListBlobs => self.list_blobs().await,
        }
    }

    async fn get_blob(&mut self) -> Result<(), Failure> {
        let n = self.random.below(READ_BLOBS);
        let path = format!("/{CONTAINER}/read/{n:06}");
        let ask = Ask { method: "GET", path: &path, is_repeated: true, ..Ask::default() };
        let reply = self.client.ask(&ask).await?;
        expect(reply.status, &[200], "getting a blob", reply.body)?;
        match reply.body == blob(n).as_bytes() {
            true => Ok(()),
            false => Err(format!("blob {n} has other bytes").into()),
        }
    }

    async fn list_blobs(&mut self) -> Result<(), Failure> {
        let query = "restype=container&comp=list&prefix=list%2F&maxresults=100";
        let path = format!("/{CONTAINER}");
        let ask = Ask { method: "GET", path: &path, query, is_repeated: true, ..Ask::default() };
        let reply = self.client.ask(&ask).await?;
        expect(reply.status, &[200], "listing blobs", reply.body)?;
        found(reply.body, "<Blob>", LISTED_BLOBS as usize)
    }

    async fn insert(&mut self) -> Result<(), Failure> {
        let (partition, row) = (self.random.below(PARTITIONS), NEXT.fetch_add(1, Ordering::Relaxed));
        let body = entity(&format!("p{partition:04}"), &format!("{row:012}"), row);
        let ask = Ask {
            method: "POST",
            path: TABLE_PATH,
            content_type: JSON,
            body: &body,
            is_repeated: true,
            ..Ask::default()
        };
        let reply = self.client.ask(&ask).await?;
        expect(reply.status, &[201, 204], "inserting", reply.body)
    }

    async fn get(&mut self) -> Result<(), Failure> {
        let n = self.random.below(READ_ENTITIES);
        let path = format!("/{TABLE}(PartitionKey='read{}',RowKey='{n:06}')", n / BATCH_ENTITIES);
        let ask = Ask { method: "GET", path: &path, is_repeated: true, ..Ask::default() };
        let reply = self.client.ask(&ask).await?;
        expect(reply.status, &[200], "getting", reply.body)?;
        found(reply.body, &format!("{n:06}"), 1)
    }

    async fn batch(&mut self) -> Result<(), Failure> {
        let first = NEXT.fetch_add(BATCH_ENTITIES, Ordering::Relaxed);
        let text = self.batch.as_mut().ok_or("a worker for batches has one")?;
        send_batch(&mut self.client, text.of(first)?, BATCH_ENTITIES as usize).await
    }

    async fn scan(&mut self) -> Result<(), Failure> {
        let from = self.random.below(SCAN_ENTITIES - SCAN_FOUND);
        let query = format!(
            "$filter=PartitionKey%20eq%20'scan'%20and%20n%20ge%20{from}%20and%20n%20lt%20{}",
            from + SCAN_FOUND
        );
        let path = format!("/{TABLE}()");
        let ask = Ask { method: "GET", path: &path, query: &query, is_repeated: true, ..Ask::default() };
        let reply = self.client.ask(&ask).await?;
        expect(reply.status, &[200], "scanning", reply.body)?;
        found(reply.body, "\"RowKey\"", SCAN_FOUND as usize)
    }

    async fn cycle(&mut self) -> Result<(), Failure> {
        let path = format!("/{QUEUE}/messages");
        let body = format!("<QueueMessage><MessageText>{TEXT}</MessageText></QueueMessage>");
        let put = Ask {
            method: "POST",
            path: &path,
            content_type: "application/xml",
            body: &body,
            is_repeated: true,
            ..Ask::default()
        };
        let reply = self.client.ask(&put).await?;
        expect(reply.status, &[201], "putting", reply.body)?;
        let query = "visibilitytimeout=300";
        let get = Ask { method: "GET", path: &path, query, is_repeated: true, ..Ask::default() };
        let reply = self.client.ask(&get).await?;
        expect(reply.status, &[200], "getting", reply.body)?;
        let text = std::str::from_utf8(reply.body)?;
        let (id, receipt) = (element(text, "MessageId")?, element(text, "PopReceipt")?);
        let path = format!("/{QUEUE}/messages/{id}");
        let query =
            format!("popreceipt={}", receipt.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"));
        let delete = Ask { method: "DELETE", path: &path, query: &query, ..Ask::default() };
        let reply = self.client.ask(&delete).await?;
        expect(reply.status, &[204], "deleting", reply.body)
    }
}

/// A batch that is sent again and again with other keys. Only these are written anew: the load shares its cores with
/// the servers.
struct BatchText {
    text: Vec<u8>,
    /// Where each entity has its partition, its row, and its number.
    places: Vec<[usize; 3]>,
}

/// Digits of a row and of a number in a batch: each has so many, so that another fits into its place.
const ROW_DIGITS: usize = 12;
const NUMBER_DIGITS: usize = 9;

impl BatchText {
    fn new() -> BatchText {
        let rows: Vec<_> =
            (0..BATCH_ENTITIES).map(|n| (format!("{n:0ROW_DIGITS$}"), 100_000_000 + n)).collect();
        let text = batch_text("b0000", &rows).into_bytes();
        let find =
            |what: &str| memchr::memmem::find_iter(&text, what).map(|at| at + what.len()).collect::<Vec<_>>();
        let (partitions, rows, numbers) =
            (find("\"PartitionKey\":\"b"), find("\"RowKey\":\""), find("\"n\":"));
        let places = partitions.iter().zip(&rows).zip(&numbers);
        let places = places.map(|((partition, row), number)| [*partition, *row, *number]).collect();
        BatchText { text, places }
    }

    /// The batch of the rows from `first` on.
    fn of(&mut self, first: u64) -> Result<&str, Failure> {
        let partition = format!("{:04}", first % PARTITIONS);
        for (&[at_partition, at_row, at_number], n) in self.places.iter().zip(first..) {
            self.text[at_partition..at_partition + partition.len()].copy_from_slice(partition.as_bytes());
            write_digits(&mut self.text[at_row..at_row + ROW_DIGITS], n);
            write_digits(&mut self.text[at_number..at_number + NUMBER_DIGITS], 100_000_000 + n);
        }
        Ok(std::str::from_utf8(&self.text)?)
    }
}

/// The last digits of a number, as many as there is room for.
fn write_digits(room: &mut [u8], mut number: u64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

async fn batch(client: &mut Client, partition: &str, rows: &[(String, u64)]) -> Result<(), Failure> {
    send_batch(client, &batch_text(partition, rows), rows.len()).await
}

fn batch_text(partition: &str, rows: &[(String, u64)]) -> String {
    let mut body = String::with_capacity(rows.len() * 700);
    body.push_str("--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n");
    for (row, n) in rows {
        let entity = entity(partition, row, *n);
        body.push_str(&format!(
            "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             POST http://127.0.0.1/devstoreaccount1/{TABLE} HTTP/1.1\r\nContent-Type: application/json\r\n\
             Accept: application/json;odata=minimalmetadata\r\nPrefer: return-no-content\r\n\
             DataServiceVersion: 3.0\r\nContent-Length: {}\r\n\r\n{entity}\r\n",
            entity.len()
        ));
    }
    body.push_str("--changeset_c--\r\n--batch_b--\r\n");
    body
}

async fn send_batch(client: &mut Client, body: &str, rows: usize) -> Result<(), Failure> {
    let content_type = "multipart/mixed; boundary=batch_b";
    let ask =
        Ask { method: "POST", path: "/$batch", content_type, body, is_repeated: true, ..Ask::default() };
    let reply = client.ask(&ask).await?;
    expect(reply.status, &[202], "the batch", reply.body)?;
    found(reply.body, "HTTP/1.1 204", rows)
}

fn entity(partition: &str, row: &str, n: u64) -> String {
    format!("{{\"PartitionKey\":\"{partition}\",\"RowKey\":\"{row}\",\"n\":{n},\"text\":\"{TEXT}\"}}")
}

fn expect(status: u16, good: &[u16], what: &str, body: &[u8]) -> Result<(), Failure> {
    if good.contains(&status) {
        return Ok(());
    }
    Err(format!("{what}: status {status}: {}", String::from_utf8_lossy(body)).into())
}

/// An answer that lacks what was asked for would be quick, and wrong.
fn found(body: &[u8], what: &str, times: usize) -> Result<(), Failure> {
    match memchr::memmem::find_iter(body, what).count() {
        count if count == times => Ok(()),
        count => {
            let text = String::from_utf8_lossy(body);
            Err(format!("{what} is there {count} times, not {times}: {text:.400}").into())
        }
    }
}

fn element<'a>(xml: &'a str, name: &str) -> Result<&'a str, Failure> {
    let begin = xml.split_once(&format!("<{name}>")).ok_or_else(|| format!("no {name} in {xml}"))?.1;
    Ok(begin.split_once('<').ok_or("the element does not end")?.0)
}

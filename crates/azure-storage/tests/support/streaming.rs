//! A store for tests that reads requests in pieces and answers in pieces, as the query says, and tells how it went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use polyshard_azure_storage::{
    AccountName, Answer, BodyStream, Context, Limits, Policies, Request, Response, Service, ServiceError,
    StoreKind, StoredPolicy, Transport,
};
use tokio::sync::Semaphore;

use super::{Running, WAIT};

pub const MIB: usize = 1024 * 1024;
const PIECE: usize = 256 * 1024;
/// All bytes of a block are the same, so that bodies are quickly made and compared.
const BLOCK: usize = 4096;

/// The bytes of every body in these tests, from a place on.
pub fn content(from: usize, length: usize) -> Vec<u8> {
    assert!(from.is_multiple_of(BLOCK));
    let mut bytes = Vec::with_capacity(length + BLOCK);
    for block in from / BLOCK..(from + length).div_ceil(BLOCK) {
        bytes.resize(bytes.len() + BLOCK, (block % 251) as u8);
    }
    bytes.truncate(length);
    bytes
}

/// Compares bytes that come in parts with [`content`].
#[derive(Default)]
pub struct Compare {
    pub length: usize,
}

impl Compare {
    pub fn part(&mut self, bytes: &[u8]) {
        let from = self.length / BLOCK * BLOCK;
        let expected = content(from, self.length - from + bytes.len());
        assert!(expected[self.length - from..] == *bytes, "other bytes after {}", self.length);
        self.length += bytes.len();
    }
}

/// What became of a request's or a response's body.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The store was asked for something.
    Called,
    /// A body was read to its end: so many bytes.
    Read(usize),
    /// Reading a body failed with this code.
    Failed(&'static str),
    /// A source was dropped after so many bytes.
    Dropped(u64),
}

pub struct Store {
    events: SyncSender<Event>,
    /// How many pieces may be read.
    gate: Arc<Semaphore>,
}

/// What the test sees of the store.
pub struct Seen {
    events: Mutex<Receiver<Event>>,
    gate: Arc<Semaphore>,
}

impl Seen {
    pub fn event(&self) -> Event {
        self.events.lock().unwrap().recv_timeout(WAIT).unwrap()
    }

    /// Nothing more has happened.
    pub fn is_quiet(&self) -> bool {
        self.events.lock().unwrap().try_recv().is_err()
    }

    /// From here on requests with `gate` are read to their end.
    pub fn open_gate(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }
}

pub fn start(limits: Limits, transport: Transport) -> (Running, Seen) {
    let (events, seen) = sync_channel(1000);
    let gate = Arc::new(Semaphore::new(0));
    let store = Store { events, gate: Arc::clone(&gate) };
    (Running::serve(Arc::new(store), limits, transport), Seen { events: Mutex::new(seen), gate })
}

impl Policies for Store {
    fn policies<'a>(&'a self, _: &'a AccountName, _: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Service for Store {
    fn kind(&self) -> StoreKind {
        StoreKind::Table
    }

    fn streams(&self, head: &Request) -> bool {
        assert!(head.body.is_empty() && head.stream.is_none());
        head.query("whole").is_none()
    }

    fn call(&self, _: Context, mut request: Request) -> Answer<'_> {
        Box::pin(async move {
            self.tell(Event::Called);
            let Some(body) = request.stream.take() else {
                assert!(request.query("whole").is_some());
                return Ok(Response::new(200).with_body(request.body));
            };
            let number = |name| request.query(name).and_then(|text| text.parse().ok());
            match request.query("do") {
                Some("refuse") => Err(ServiceError::new(412, "ConditionNotMet", "It was changed.")),
                Some("first") => {
                    let mut body = body;
                    let first = body.next().await?.map_or(0, |piece| piece.len());
                    Ok(Response::new(201).header("First", first.to_string()))
                }
                Some("make") => Ok(self.make(number("length").unwrap(), number("made"), number("pieces"))),
                Some("fail") => {
                    let error = ServiceError::server_busy("the file cannot be read");
                    Ok(Response::new(200).with_stream(10, stream::iter([Err(error)]).boxed()))
                }
                _ => self.read(body, request.query("gate").is_some()).await,
            }
        })
    }
}

impl Store {
    fn tell(&self, event: Event) {
        self.events.send(event).unwrap();
    }

    async fn read(&self, mut body: BodyStream, gated: bool) -> Result<Response, ServiceError> {
        let announced = body.length();
        let (mut compare, mut pieces) = (Compare::default(), 0);
        loop {
            if gated {
                self.gate.acquire().await.unwrap().forget();
            }
            match body.next().await {
                Ok(Some(piece)) => {
                    assert!(!piece.is_empty() && piece.len() <= MIB);
                    pieces += 1;
                    compare.part(&piece);
                }
                Ok(None) => break,
                Err(error) => {
                    self.tell(Event::Failed(error.code()));
                    return Err(error);
                }
            }
        }
        assert_eq!(body.next().await, Ok(None));
        assert!(announced.is_none_or(|announced| announced == compare.length as u64));
        self.tell(Event::Read(compare.length));
        Ok(Response::new(201)
            .header("Length", compare.length.to_string())
            .header("Pieces", pieces.to_string())
            .header("Announced", format!("{announced:?}")))
    }

    /// A response of `length` bytes, of which `made` are really produced, and then, if there are fewer, an error or,
    /// with `pieces`, the end.
    fn make(&self, length: u64, made: Option<u64>, pieces: Option<u64>) -> Response {
        let dropped = Dropped { events: self.events.clone(), made: Arc::default() };
        let end = made.unwrap_or(length);
        let source: BoxStream<'static, Result<Bytes, ServiceError>> =
            stream::unfold((0, dropped), move |(at, dropped)| {
                let next = if at < end {
                    let piece = content(at as usize, PIECE.min((end - at) as usize));
                    dropped.made.fetch_add(piece.len() as u64, Ordering::SeqCst);
                    let after = at + piece.len() as u64;
                    Some((Ok(Bytes::from(piece)), (after, dropped)))
                } else if at < length && pieces.is_none() {
                    Some((Err(ServiceError::internal()), (length, dropped)))
                } else {
                    None
                };
                std::future::ready(next)
            })
            .boxed();
        Response::new(200).with_stream(length, source)
    }
}

/// Tells when a source is no longer used, and how much of it was.
struct Dropped {
    events: SyncSender<Event>,
    made: Arc<AtomicU64>,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let _test_is_over = self.events.try_send(Event::Dropped(self.made.load(Ordering::SeqCst)));
    }
}

//! A door for tests: a store that tells what it was asked, on a free port, with a clock that the test sets.

#![allow(dead_code, reason = "each test program uses its part of it")]

pub mod streaming;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use polyshard_azure_storage::{
    AccountName, Accounts, Answer, Context, Door, Identity, Limits, Need, Policies, Request, ResourceType,
    Response, ResponseOverrides, SasOperation, Service, StoreKind, StoredPolicy, Surroundings, Timestamp,
    Transport, serve,
};
use polyshard_wire::{Listener, Served, Shutdown, ShutdownTrigger};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// How long a test waits for bytes that must come; it fails then, and never passes because of it.
pub const WAIT: Duration = Duration::from_secs(30);

/// A clock that stands still until it is set, and ids that count.
#[derive(Debug, Default)]
pub struct Fixed {
    now_ms: AtomicI64,
    ids: AtomicU64,
}

impl Fixed {
    pub fn set_s(&self, unix_s: i64) {
        self.now_ms.store(unix_s * 1000, Ordering::SeqCst);
    }
}

impl Surroundings for Fixed {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.now_ms.load(Ordering::SeqCst)).unwrap()
    }

    fn request_id(&self) -> uuid::Uuid {
        uuid::Uuid::from_u64_pair(0, self.ids.fetch_add(1, Ordering::SeqCst))
    }
}

/// A store that answers with what it was asked.
pub struct Echo(StoreKind);

impl Echo {
    pub fn new(kind: StoreKind) -> Echo {
        Echo(kind)
    }
}

impl Policies for Echo {
    fn policies<'a>(&'a self, account: &'a AccountName, resource: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
        Box::pin(async move {
            assert_eq!(account.as_str(), "devstoreaccount1");
            let expiry = Timestamp::parse_iso("2099-01-01");
            let policy = StoredPolicy {
                id: "read-only".to_owned(),
                start: None,
                expiry,
                permission: Some("r".to_owned()),
            };
            Ok(if matches!(resource, "orders" | "jobs") { vec![policy] } else { Vec::new() })
        })
    }
}

impl Service for Echo {
    fn kind(&self) -> StoreKind {
        self.0
    }

    fn call(&self, context: Context, request: Request) -> Answer<'_> {
        Box::pin(async move {
            if let Some(need) = request.headers.get("need") {
                let list = SasOperation::new(ResourceType::Container, Need::All("l"), Need::All("l"));
                let operation = match need {
                    "read" | "public" => SasOperation::object(Need::All("r")),
                    "object" => SasOperation::object(Need::Any("xr")),
                    "list" => list,
                    _ => SasOperation::object(Need::All("d")),
                };
                context.identity.require_unless_public(operation, need == "public")?;
            }
            request.check_content_md5()?;
            let who = who(&context.identity);
            let mut response = Response::new(200).header("Who", who.escape_default().to_string());
            for (name, value) in request.headers.metadata() {
                response = response.header(format!("x-ms-meta-{name}"), value.to_owned());
            }
            let response = response.header("Resource", context.resource.as_str().to_owned());
            let response = match context.identity.response_overrides() {
                Some(of) => response.header("Overrides", overrides(of)),
                None => response,
            };
            match request.query("answer") {
                Some("none") => Ok(Response::new(204).header("Who", "x").with_body("not sent")),
                Some("bad") => Ok(response.header("Bad", "two\r\nlines")),
                _ => Ok(response.with_body(request.body)),
            }
        })
    }
}

fn overrides(of: &ResponseOverrides) -> String {
    let values = [
        &of.cache_control,
        &of.content_disposition,
        &of.content_encoding,
        &of.content_language,
        &of.content_type,
    ];
    values.map(|value| value.as_deref().unwrap_or_default()).join("|")
}

/// Who asks, in the words of the vectors.
fn who(identity: &Identity) -> String {
    match identity {
        Identity::SharedKey => "SharedKey".to_owned(),
        Identity::Anonymous => "Anonymous".to_owned(),
        Identity::Sas(sas) => {
            let debug = format!("{sas:?}");
            let between = |start: &str| {
                debug.split_once(start).map(|(_, rest)| rest.split('"').next().unwrap_or_default().to_owned())
            };
            let scope = match (between("resource_types: \""), between("resource: \"")) {
                (Some(types), _) => format!("account {types}"),
                (None, Some(resource)) => format!("service {resource}"),
                (None, None) => panic!("{debug}"),
            };
            let mut letters: Vec<char> = sas.permissions().chars().collect();
            letters.sort_unstable();
            let keys = if identity.table_keys().is_some() { " keys" } else { "" };
            format!("{scope} {}{keys}", letters.into_iter().collect::<String>())
        }
    }
}

/// A door that is being served, and is closed when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub clock: Arc<Fixed>,
    counters: Arc<polyshard_wire::Counters>,
    trigger: Option<ShutdownTrigger>,
    task: Option<JoinHandle<Served>>,
    runtime: Runtime,
}

impl Running {
    pub fn start(kind: StoreKind) -> Running {
        Running::start_with(kind, Limits::default(), Transport::Plain)
    }

    pub fn start_with(kind: StoreKind, limits: Limits, transport: Transport) -> Running {
        Running::serve(Arc::new(Echo(kind)), limits, transport)
    }

    pub fn serve(service: Arc<dyn Service>, limits: Limits, transport: Transport) -> Running {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let clock = Arc::new(Fixed::default());
        let mut accounts = Accounts::development();
        accounts.add("twokeys", "Zmlyc3Q=", Some("c2Vjb25k")).unwrap();
        let door = Door {
            service,
            accounts: Arc::new(accounts),
            surroundings: Arc::clone(&clock) as Arc<dyn Surroundings>,
            transport,
            limits,
        };
        let any = "127.0.0.1:0".parse().unwrap();
        let listener =
            runtime.block_on(Listener::bind("echo", any, polyshard_wire::Limits::default())).unwrap();
        let address = listener.address();
        let counters = listener.counters();
        let task = runtime.spawn(serve(listener, shutdown, door));
        Running { address, clock, counters, trigger: Some(trigger), task: Some(task), runtime }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// One request on a connection of its own.
    pub fn ask(&self, request: &[u8]) -> Reply {
        let mut client = self.connect();
        client.send(request);
        client.reply()
    }

    /// How many connections ended in a panic.
    pub fn panicked(&self) -> u64 {
        self.counters.counts().panicked
    }

    /// Stops the door, and says how its connections ended.
    pub fn wait(&mut self) -> Served {
        drop(self.trigger.take());
        let task = self.task.take().unwrap();
        self.runtime.block_on(task).unwrap()
    }
}

/// One response as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header, whose name must have exactly this case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// A client that writes and reads bytes.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends as much as the other side takes: it may close in the middle.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _closed = self.stream.write_all(bytes);
    }

    /// Reads a response to anything but `HEAD`.
    pub fn reply(&mut self) -> Reply {
        let (status, head) = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.buffer.len() < length {
            assert!(self.read() > 0, "closed in the middle of a body");
        }
        let rest = self.buffer.split_off(length);
        let body = std::mem::replace(&mut self.buffer, rest);
        Reply { status, head, body }
    }

    /// The next bytes of a body, at most so many; none once the other side has closed.
    pub fn part(&mut self, bytes_max: usize) -> Vec<u8> {
        if self.buffer.is_empty() && self.read() == 0 {
            return Vec::new();
        }
        let rest = self.buffer.split_off(self.buffer.len().min(bytes_max));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Sends until the other side has taken nothing for this time; says how many bytes it took.
    pub fn send_for(&mut self, bytes: &[u8], time: Duration) -> usize {
        self.stream.set_write_timeout(Some(time)).unwrap();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.stream.set_write_timeout(None).unwrap();
        sent
    }

    /// Reads a response's head.
    pub fn head(&mut self) -> (u16, String) {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.read() > 0,
                "closed in the middle of a head: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let rest = self.buffer.split_off(end);
        let head = String::from_utf8(std::mem::replace(&mut self.buffer, rest)).unwrap();
        let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        (status, head)
    }

    /// Waits until the other side has closed, with nothing more sent.
    pub fn closed(&mut self) {
        assert_eq!(self.buffer, b"");
        match self.stream.read(&mut [0; 16]) {
            Ok(0) => {}
            Ok(_) => panic!("there are more bytes"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }

    /// Reads whatever comes until the other side has closed.
    pub fn until_closed(&mut self, round: usize) {
        loop {
            match self.stream.read(&mut [0; 4096]) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("round {round}: {error}"),
            }
        }
    }

    fn read(&mut self) -> usize {
        let mut bytes = [0; 64 * 1024];
        let read = self.stream.read(&mut bytes).unwrap();
        self.buffer.extend_from_slice(&bytes[..read]);
        read
    }
}

//! The accept loop of a front door: bind, accept within a limit, hand over, and stop in good order.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use polyshard_meter::Requests;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::{Counters, Shutdown};

/// Connections one door serves at once unless told otherwise: well under the 1024 open files a shell commonly allows,
/// of which shards and catalog need their part.
pub const CONNECTIONS_MAX: usize = 512;

/// How long handlers may take to finish after the shutdown has started: a supervisor commonly kills after 30 s or, in
/// containers, 10 s, so this leaves time to close the shards.
pub const GRACE_MS: u64 = 5_000;

/// Pause after a failed accept. The usual cause, no file descriptor left, lasts until a connection closes; retrying at
/// once would keep a core busy meanwhile.
const ACCEPT_RETRY_MS: u64 = 100;

/// What one listener may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections served at once; one more is closed as soon as it is accepted.
    pub connections_max: usize,
    /// How long handlers may take to finish once the shutdown has started, before they are aborted.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections_max: CONNECTIONS_MAX, grace: Duration::from_millis(GRACE_MS) }
    }
}

/// A door that cannot be opened; the operator must choose another address or free this one.
#[derive(Debug, thiserror::Error)]
#[error("the {door} door cannot listen on {address}: {source}; free that address or configure another one")]
pub struct BindError {
    door: String,
    address: SocketAddr,
    source: io::Error,
}

/// One accepted connection, as the handler gets it.
#[derive(Debug)]
pub struct Connection {
    /// The socket, with Nagle's algorithm off: every door answers requests one by one.
    pub stream: TcpStream,
    /// The other end.
    pub peer: SocketAddr,
    /// When to stop: finish the request in hand, take no new one, return.
    pub shutdown: Shutdown,
    /// The connection's place under the limit; keep it as long as the connection is in use.
    pub guard: ConnectionGuard,
}

/// A connection's place under the limit, given back when it is dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    counters: Arc<Counters>,
    _place: OwnedSemaphorePermit,
}

impl ConnectionGuard {
    /// Where the door counts the requests that it answers.
    pub fn requests(&self) -> &Requests {
        self.counters.requests()
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.counters.close();
    }
}

/// How a listener's handlers ended after the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Handlers that returned by themselves after the shutdown had started.
    pub finished: usize,
    /// Handlers that did not return within the grace and were aborted.
    pub aborted: usize,
}

/// A bound socket that is not yet serving.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    door: Door,
}

/// What outlives the socket while the last handlers finish.
#[derive(Debug)]
struct Door {
    name: String,
    limits: Limits,
    places: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Listener {
    /// Binds `address`; port 0 takes a free port, which [`Listener::address`] then tells. `door` names it in logs.
    pub async fn bind(door: &str, address: SocketAddr, limits: Limits) -> Result<Listener, BindError> {
        let refused = |source| BindError { door: door.to_owned(), address, source };
        let socket = TcpListener::bind(address).await.map_err(refused)?;
        let bound = socket.local_addr().map_err(refused)?;
        let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        let door = Door { name: door.to_owned(), limits, places, counters: Arc::new(Counters::default()) };
        Ok(Listener { socket, address: bound, door })
    }

    /// The door's name, as given to [`Listener::bind`].
    pub fn door(&self) -> &str {
        &self.door.name
    }

    /// The address bound, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counters, to keep and read while the listener serves.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.door.counters)
    }

    /// Accepts connections and runs `handler` on each, until `shutdown` starts. Then it stops accepting, gives the
    /// handlers the grace of its limits to finish, aborts the rest and returns. Dropping the future aborts them all.
    pub async fn serve<H, F>(self, shutdown: Shutdown, handler: H) -> Served
    where
        H: Fn(Connection) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let Listener { socket, door, .. } = self;
        let mut handlers = JoinSet::new();
        loop {
            tokio::select! {
                // In order: a busy door must still hear the shutdown, and forget handlers that ended.
                biased;
                () = shutdown.started() => break,
                Some(ended) = handlers.join_next() => door.note(ended),
                accepted = socket.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Some(connection) = door.admit(stream, peer, &shutdown) {
                            let span = info_span!("connection", door = door.name, %peer);
                            handlers.spawn(handler(connection).instrument(span));
                        }
                    }
                    Err(error) => door.accept_failed(error).await,
                },
            }
        }
        // Closed at once, so that clients which come now go elsewhere instead of waiting in its queue.
        drop(socket);
        door.finish(handlers).await
    }
}

impl Door {
    /// Gives a new connection its place, or closes it when all are taken.
    fn admit(&self, stream: TcpStream, peer: SocketAddr, shutdown: &Shutdown) -> Option<Connection> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.counters.refuse();
            let limit = self.limits.connections_max;
            warn!(door = self.name, %peer, limit, "connection refused: the door's limit of connections is reached");
            return None;
        };
        if let Err(error) = stream.set_nodelay(true) {
            debug!(door = self.name, %peer, %error, "connection closed before it could be served");
            return None;
        }
        self.counters.accept();
        let guard = ConnectionGuard { counters: Arc::clone(&self.counters), _place: place };
        Some(Connection { stream, peer, shutdown: shutdown.clone(), guard })
    }

    async fn accept_failed(&self, error: io::Error) {
        // The client gave up while it was queued: its own affair, and the next one may be fine.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            debug!(door = self.name, %error, "a connection was gone before it was accepted");
            return;
        }
        warn!(door = self.name, %error, "cannot accept connections now; trying again");
        tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
    }

    fn note(&self, ended: Result<(), JoinError>) {
        if let Err(failure) = ended
            && failure.is_panic()
        {
            self.counters.panic();
            error!(door = self.name, %failure, "a connection's handler panicked; only that connection is lost");
        }
    }

    async fn finish(&self, mut handlers: JoinSet<()>) -> Served {
        let open = handlers.len();
        info!(door = self.name, open, "no longer accepting connections");
        let all = async {
            while let Some(ended) = handlers.join_next().await {
                self.note(ended);
            }
        };
        let _late = tokio::time::timeout(self.limits.grace, all).await;
        let aborted = handlers.len();
        if aborted > 0 {
            warn!(door = self.name, aborted, "connections did not finish within the grace and were cut off");
            handlers.shutdown().await;
        }
        Served { finished: open - aborted, aborted }
    }
}

//! How sessions come to be: connect, set up, identify, run the hook; and what happens while the server is
//! away.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_postgres::{AsyncMessage, Config, Notification};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::translate;
use super::session::{End, Identity, ServerRun, Session};
use crate::group::Counters;
use crate::session::{SessionHandle, SessionInner};
use crate::{Error, Options, PostgresTarget, SessionHook, SslMode};

/// The oldest PostgreSQL that is tested.
const SERVER_VERSION_MIN: u32 = 150_000;

/// The first pause after a failed attempt to connect; it doubles with each.
const BACK_OFF_FIRST: Duration = Duration::from_millis(25);

/// The longest pause between attempts, so that a server that is back is found within a second.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// A silent peer is probed after this long, so that a vanished host is noticed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

/// How long sent data may go unacknowledged.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long the server waits for the next statement of a transaction that writes: a process that was stopped must not
/// hold its locks for ever. Long enough for any that lives.
const IDLE_IN_WRITE_MAX: Duration = Duration::from_secs(60);

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Writing,
    /// Refuses writes.
    Reading,
    Listening,
}

/// Receives notifications on the connection's own task; must not block.
pub(crate) type OnNotice = Arc<dyn Fn(Notification) + Send + Sync>;

pub(crate) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    pub(super) raw_target: Arc<PostgresTarget>,
    pub(super) raw_tls: Arc<rustls::ClientConfig>,
    pub target: Arc<str>,
    pub options: Arc<Options>,
    pub(super) hook: Option<Arc<dyn SessionHook>>,
    pub counters: Arc<Counters>,
    generation: AtomicU64,
    generation_changed: watch::Sender<u64>,
    /// One attempt at a time: a server that comes back is not stormed.
    gate: tokio::sync::Mutex<()>,
    away: Mutex<Option<Away>>,
    connections: Mutex<JoinSet<()>>,
}

/// The server could not be reached.
#[derive(Clone)]
struct Away {
    error: Error,
    next_try: Instant,
    back_off: Duration,
}

/// A role of the name of our own schema would have that one first in its search path (`"$user"`), and make users'
/// tables in it, where nobody looks for them.
pub(super) fn start_options(target: &PostgresTarget) -> Option<&'static str> {
    (target.user == "polyshard").then_some("-c search_path=public")
}

impl Connector {
    pub fn new(
        target: &PostgresTarget,
        options: Arc<Options>,
        hook: Option<Arc<dyn SessionHook>>,
        counters: Arc<Counters>,
    ) -> Result<Connector, Error> {
        let mut config = Config::new();
        config
            .host(&target.host)
            .port(target.port)
            .user(&target.user)
            .dbname(&target.database)
            .application_name(&options.application_name)
            .connect_timeout(options.connect_timeout)
            .keepalives_idle(KEEPALIVE_IDLE)
            .tcp_user_timeout(TCP_USER_TIMEOUT)
            .ssl_mode(match target.ssl {
                SslMode::Disable => tokio_postgres::config::SslMode::Disable,
                SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
                SslMode::Require | SslMode::VerifyFull { .. } => tokio_postgres::config::SslMode::Require,
            });
        if let Some(words) = start_options(target) {
            config.options(words);
        }
        if !target.password.is_empty() {
            config.password(target.password.reveal());
        }
        let tls = super::tls::config(&target.ssl)?;
        Ok(Connector {
            config,
            tls: MakeRustlsConnect::new(tls.clone()),
            raw_target: Arc::new(target.clone()),
            raw_tls: Arc::new(tls),
            target: target.to_string().into(),
            options,
            hook,
            counters,
            generation: AtomicU64::new(1),
            generation_changed: watch::Sender::new(1),
            gate: tokio::sync::Mutex::new(()),
            away: Mutex::new(None),
            connections: Mutex::new(JoinSet::new()),
        })
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    pub fn next_generation(&self) {
        let next = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        self.generation_changed.send_replace(next);
    }

    pub fn watch_generation(&self) -> watch::Receiver<u64> {
        self.generation_changed.subscribe()
    }

    /// Whether a session may be used for something new.
    pub fn is_current(&self, session: &Session) -> bool {
        !session.is_closed() && session.generation == self.generation()
    }

    /// A session ready for use. While the server is away it waits for it, within limits.
    pub async fn connect(&self, purpose: Purpose) -> Result<Session, Error> {
        self.connect_with(purpose, None).await
    }

    pub async fn connect_with(&self, purpose: Purpose, notices: Option<OnNotice>) -> Result<Session, Error> {
        let deadline = self.deadline();
        loop {
            let _turn = self.turn(deadline).await?;
            match self.connect_once(purpose, notices.clone()).await {
                Err(error @ Error::Unavailable { .. }) => self.note_away(error),
                result => return self.note_here(result),
            }
        }
    }

    /// Until when a caller waits for a server that is away.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.options.unavailable_wait
    }

    /// One attempt at a time; while the server is away it waits for it, within limits.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<tokio::sync::MutexGuard<'_, ()>, Error> {
        loop {
            let gate = match timeout_at(deadline + self.options.connect_timeout, self.gate.lock()).await {
                Ok(gate) => gate,
                Err(_) => return Err(self.away_error()),
            };
            let Some(away) = self.away_until() else { return Ok(gate) };
            drop(gate);
            if away.next_try > deadline {
                return Err(away.error);
            }
            sleep_until(away.next_try).await;
        }
    }

    pub(super) fn note_here<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_ok() {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        result
    }

    /// A session for the engine's own questions: no hook, no waiting.
    pub async fn connect_bare(&self) -> Result<Session, Error> {
        let connect = self.connect_session(None);
        match tokio::time::timeout(self.options.connect_timeout, connect).await {
            Ok(result) => result,
            Err(_) => Err(self.too_slow()),
        }
    }

    async fn connect_once(&self, purpose: Purpose, notices: Option<OnNotice>) -> Result<Session, Error> {
        let connect = async {
            let session = self.connect_session(notices).await?;
            if let Some(hook) = &self.hook {
                let mut handle = SessionHandle { inner: SessionInner::Postgres(&session) };
                hook.on_session(&mut handle).await?;
            }
            match purpose {
                Purpose::Reading => session.simple("SET default_transaction_read_only = on").await?,
                Purpose::Writing => {
                    let idle = IDLE_IN_WRITE_MAX.as_millis();
                    session.simple(&format!("SET idle_in_transaction_session_timeout = {idle}")).await?
                }
                Purpose::Listening => Vec::new(),
            };
            Ok(session)
        };
        // The hook's statements have their own limit; twice the time to connect covers an idle server.
        let limit = self.options.connect_timeout * 2 + self.options.lock_timeout;
        match tokio::time::timeout(limit, connect).await {
            Ok(result) => result,
            Err(_) => Err(self.too_slow()),
        }
    }

    async fn connect_session(&self, notices: Option<OnNotice>) -> Result<Session, Error> {
        // Read first: a session that begins while the generation changes belongs to the old one.
        let generation = self.generation();
        let connected = self.config.connect(self.tls.clone()).await;
        let (client, mut connection) = connected.map_err(|error| translate(&error, &self.target).error)?;
        Counters::add(&self.counters.sessions_opened, 1);
        let (end, ended) = watch::channel(End::NotYet);
        let target = self.target.clone();
        let task = async move {
            let mut reason = End::Quiet;
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                match (message, &notices) {
                    (Ok(AsyncMessage::Notification(notice)), Some(on_notice)) => on_notice(notice),
                    (Ok(_), _) => {}
                    (Err(error), _) => {
                        tracing::debug!(%target, %error, "a PostgreSQL connection ended");
                        reason = End::Because(translate(&error, &target).error);
                        break;
                    }
                }
            }
            // Told before the connection is dropped, so that whoever finds it closed finds the reason.
            end.send_replace(reason);
        };
        let abort = {
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            while connections.try_join_next().is_some() {}
            connections.spawn(task)
        };
        let options = &self.options;
        let mut session = Session::new(
            client,
            abort,
            ended,
            self.target.clone(),
            generation,
            options.statement_timeout,
            options.statement_cache_max,
        );
        session.identity = self.set_up(&session).await?;
        Ok(session)
    }

    /// Settings go by SET, not in the start-up packet, which poolers refuse.
    ///
    /// Whatever a database or role has by default: whoever takes a lock here and then looks must see what was committed
    /// before he had it. With one snapshot for the whole transaction he would not.
    async fn set_up(&self, session: &Session) -> Result<Identity, Error> {
        let options = &self.options;
        let rows = session
            .simple(&format!(
                "SET statement_timeout = {}; SET lock_timeout = {}; SET client_min_messages = warning; \
                 SET default_transaction_isolation = 'read committed'; \
                 SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') = 'off'; {LOOKS_FOR_US}; {IDENTITY}",
                options.statement_timeout.as_millis(),
                options.lock_timeout.as_millis(),
            ))
            .await?;
        let mut identity = Identity::default();
        let row = rows.into_iter().last().unwrap_or_default();
        let mut fields = row.into_iter().map(Option::unwrap_or_default);
        let mut field = || fields.next().unwrap_or_default();
        let version: u32 = field().parse().unwrap_or(0);
        if version < SERVER_VERSION_MIN {
            return Err(Error::invalid(format!(
                "PostgreSQL at {} is version {}, 15 or later is needed: upgrade the server",
                self.target,
                version / 10_000
            )));
        }
        identity.pid = field().parse().unwrap_or(0);
        identity.backend_start = field();
        identity.server = ServerRun { timeline: field(), statistics_reset: field() };
        Ok(identity)
    }

    fn away_until(&self) -> Option<Away> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.clone().filter(|away| away.next_try > Instant::now())
    }

    fn away_error(&self) -> Error {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.as_ref().map_or_else(|| self.too_slow(), |away| away.error.clone())
    }

    pub(super) fn note_away(&self, error: Error) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let back_off = away.as_ref().map_or(BACK_OFF_FIRST, |away| (away.back_off * 2).min(BACK_OFF_MAX));
        *away = Some(Away { error, next_try: Instant::now() + back_off, back_off });
    }

    pub(super) fn too_slow(&self) -> Error {
        Error::Unavailable {
            message: format!(
                "PostgreSQL at {} did not take a connection within {:?}",
                self.target, self.options.connect_timeout
            ),
        }
    }

    /// Waits for the connections of sessions dropped before; what is still busy after `wait` is cut.
    pub async fn close(&self, wait: Duration) {
        let mut connections =
            std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(wait, all).await.is_err() {
            connections.shutdown().await;
        }
    }
}

/// Has the server look every second whether we are still there, so that a statement does not go on for nobody when this
/// process is killed; where its system cannot tell it that, asking for it would be an error.
pub(super) const LOOKS_FOR_US: &str =
    "SELECT set_config('client_connection_check_interval', '1s', false) WHERE version() LIKE '%linux%'";

/// The version, then the fields of [`Identity`]; a standby has no current log position.
pub(crate) const IDENTITY: &str = "SELECT current_setting('server_version_num'), pg_backend_pid(), \
     (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()), \
     CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END, \
     (SELECT stats_reset FROM pg_stat_wal)";

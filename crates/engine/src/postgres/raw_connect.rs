//! How a raw session begins: connect, encrypt, prove the password, introduce itself; and how one is cancelled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::authentication::{md5_hash, sasl};
use postgres_protocol::message::{backend, frontend};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use super::connect::{Connector, LOOKS_FOR_US};
use super::raw::{RawSession, RawStream};
use crate::session::{SessionHandle, SessionInner};
use crate::{Error, PostgresTarget, SslMode};

/// How long a cancel request may take.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Who is asked to stop a statement.
#[derive(Clone)]
enum Whom {
    Server(Arc<PostgresTarget>, Arc<rustls::ClientConfig>),
    /// Somebody in this process.
    Here(Arc<Notify>),
}

/// What stops the statement that runs on a session; clones are cheap, and outlive it.
#[derive(Clone)]
pub struct RawCancel {
    whom: Whom,
    process: i32,
    secret: i32,
}

impl RawCancel {
    /// Asks the server to stop. An answer comes on the session itself: the statement's end, or its error.
    pub async fn send(&self) -> Result<(), Error> {
        let (target, tls) = match &self.whom {
            Whom::Server(target, tls) => (target, tls),
            Whom::Here(stop) => {
                stop.notify_waiters();
                return Ok(());
            }
        };
        let ask = async {
            let mut stream = open(target, tls).await?;
            let mut message = BytesMut::new();
            frontend::cancel_request(self.process, self.secret, &mut message);
            stream.write_all(&message).await?;
            stream.flush().await?;
            // The server closes when it has passed the word on.
            let mut end = [0; 1];
            let _ = stream.read(&mut end).await?;
            Ok::<(), io::Error>(())
        };
        let fail = |why: String| Error::Unavailable { message: format!("cancel at {target}: {why}") };
        match tokio::time::timeout(CANCEL_WAIT, ask).await {
            Ok(result) => result.map_err(|error| fail(error.to_string())),
            Err(_) => Err(fail(format!("no answer within {CANCEL_WAIT:?}"))),
        }
    }

    /// For a session with somebody in this process, who stops what he runs when this is notified.
    pub(super) fn here(stop: Arc<Notify>) -> RawCancel {
        RawCancel { whom: Whom::Here(stop), process: 0, secret: 0 }
    }

    pub(super) fn process(&self) -> i32 {
        self.process
    }
}

impl Connector {
    /// A raw session that has introduced itself, in turn with all others.
    pub async fn connect_raw(&self) -> Result<RawSession, Error> {
        let deadline = self.deadline();
        loop {
            let _turn = self.turn(deadline).await?;
            let limit = self.options.connect_timeout * 2 + self.options.lock_timeout;
            let connected = match tokio::time::timeout(limit, self.connect_raw_once()).await {
                Ok(result) => result,
                Err(_) => Err(self.too_slow()),
            };
            match connected {
                Err(error @ Error::Unavailable { .. }) => self.note_away(error),
                result => return self.note_here(result),
            }
        }
    }

    async fn connect_raw_once(&self) -> Result<RawSession, Error> {
        // Read first: a session that begins while the generation changes belongs to the old one.
        let generation = self.generation();
        let mut session = self.log_in(generation).await?;
        crate::group::Counters::add(&self.counters.sessions_opened, 1);
        // A client's statements have the server's own limits; but what is acknowledged is durable.
        session
            .run_simple(&format!(
                "SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') = 'off'; {LOOKS_FOR_US}"
            ))
            .await?;
        if let Some(hook) = &self.hook {
            let mut handle = SessionHandle { inner: SessionInner::Raw(&mut session) };
            hook.on_session(&mut handle).await?;
        }
        Ok(session)
    }

    async fn log_in(&self, generation: u64) -> Result<RawSession, Error> {
        let target = &self.raw_target;
        let away = |why: &dyn std::fmt::Display| Error::Unavailable {
            message: format!("PostgreSQL at {}: {why}", self.target),
        };
        let stream = open(target, &self.raw_tls).await.map_err(|error| away(&error))?;
        let whom = Whom::Server(target.clone(), self.raw_tls.clone());
        let cancel = RawCancel { whom, process: 0, secret: 0 };
        let mut session = RawSession {
            stream,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            generation,
            parameters: Vec::new(),
            cancel,
            target: self.target.clone(),
            notes: None,
        };
        let parameters = [
            ("user", target.user.as_str()),
            ("database", target.database.as_str()),
            ("application_name", self.options.application_name.as_str()),
            ("client_encoding", "UTF8"),
        ];
        let options = super::connect::start_options(target).map(|words| ("options", words));
        let parameters = parameters.into_iter().chain(options);
        frontend::startup_message(parameters, &mut session.outgoing).map_err(|error| away(&error))?;
        session.flush().await?;
        self.authenticate(&mut session).await?;
        loop {
            match self.message(&mut session).await? {
                backend::Message::BackendKeyData(key) => {
                    session.cancel.process = key.process_id();
                    session.cancel.secret = key.secret_key();
                }
                backend::Message::ParameterStatus(status) => {
                    let name = status.name().map_err(|error| away(&error))?.to_owned();
                    let value = status.value().map_err(|error| away(&error))?.to_owned();
                    session.parameters.push((name, value));
                }
                backend::Message::ReadyForQuery(_) => return Ok(session),
                _ => {}
            }
        }
    }

    async fn authenticate(&self, session: &mut RawSession) -> Result<(), Error> {
        let target = &self.raw_target;
        let password = target.password.reveal().as_bytes();
        let wrong = |why: &dyn std::fmt::Display| {
            Error::invalid(format!("PostgreSQL at {}: {why}: check user, password and sslmode", self.target))
        };
        loop {
            match self.message(session).await? {
                backend::Message::AuthenticationOk => return Ok(()),
                backend::Message::AuthenticationCleartextPassword => {
                    frontend::password_message(password, &mut session.outgoing)
                        .map_err(|error| wrong(&error))?;
                }
                backend::Message::AuthenticationMd5Password(body) => {
                    let hash = md5_hash(target.user.as_bytes(), password, body.salt());
                    frontend::password_message(hash.as_bytes(), &mut session.outgoing)
                        .map_err(|error| wrong(&error))?;
                }
                backend::Message::AuthenticationSasl(_) => {
                    let mut scram = sasl::ScramSha256::new(password, sasl::ChannelBinding::unsupported());
                    frontend::sasl_initial_response(
                        sasl::SCRAM_SHA_256,
                        scram.message(),
                        &mut session.outgoing,
                    )
                    .map_err(|error| wrong(&error))?;
                    session.flush().await?;
                    let backend::Message::AuthenticationSaslContinue(body) = self.message(session).await?
                    else {
                        return Err(wrong(&"it does not speak SCRAM-SHA-256"));
                    };
                    scram.update(body.data()).map_err(|error| wrong(&error))?;
                    frontend::sasl_response(scram.message(), &mut session.outgoing)
                        .map_err(|error| wrong(&error))?;
                    session.flush().await?;
                    let backend::Message::AuthenticationSaslFinal(body) = self.message(session).await? else {
                        return Err(wrong(&"it does not speak SCRAM-SHA-256"));
                    };
                    scram.finish(body.data()).map_err(|error| wrong(&error))?;
                }
                _ => return Err(wrong(&"it asks for a kind of authentication that is not known here")),
            }
            session.flush().await?;
        }
    }

    /// The next message; the server's error as ours.
    async fn message(&self, session: &mut RawSession) -> Result<backend::Message, Error> {
        loop {
            while session.whole()?.is_none() {
                session.fill().await?;
            }
            let parsed = backend::Message::parse(&mut session.incoming).map_err(|error| {
                Error::Unavailable { message: format!("PostgreSQL at {}: {error}", self.target) }
            })?;
            match parsed {
                Some(backend::Message::ErrorResponse(body)) => {
                    return Err(super::error::from_fields(body.fields(), &self.target));
                }
                Some(message) => return Ok(message),
                None => session.fill().await?,
            }
        }
    }
}

/// Opens the connection, encrypted if the target asks for it.
async fn open(target: &PostgresTarget, tls: &Arc<rustls::ClientConfig>) -> io::Result<RawStream> {
    if target.host.starts_with('/') {
        let path = format!("{}/.s.PGSQL.{}", target.host, target.port);
        return Ok(RawStream::Unix(UnixStream::connect(path).await?));
    }
    let mut stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
    stream.set_nodelay(true)?;
    if target.ssl == SslMode::Disable {
        return Ok(RawStream::Tcp(stream));
    }
    let mut ask = BytesMut::new();
    frontend::ssl_request(&mut ask);
    stream.write_all(&ask).await?;
    let mut answer = [0_u8; 1];
    stream.read_exact(&mut answer).await?;
    match (answer[0], &target.ssl) {
        (b'S', _) => {
            let name = ServerName::try_from(target.host.clone())
                .map_err(|_| io::Error::other("its host name cannot be checked against a certificate"))?;
            let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
            Ok(RawStream::Tls(Box::new(stream)))
        }
        (_, SslMode::Prefer) => Ok(RawStream::Tcp(stream)),
        _ => Err(io::Error::other("it offers no TLS, which sslmode demands")),
    }
}

//! The beginning of a connection: encryption, who it is, and what the session has.

use std::sync::Arc;

use bytes::{Buf, BufMut};
use polyshard_sql::{SqlError, SqlState};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{Client, ClientStream, Gone};
use crate::codec::{self, Startup};
use crate::door::Door;
use crate::reply::{self, Severity, state};
use crate::scram::{Exchange, Verifier};
use crate::session::{Session, Who};

/// SCRAM's name in the protocol.
const MECHANISM: &str = "SCRAM-SHA-256";
/// Codes of the messages of authentication.
const AUTH_OK: u32 = 0;
const AUTH_SASL: u32 = 10;
const AUTH_SASL_CONTINUE: u32 = 11;
const AUTH_SASL_FINAL: u32 = 12;

/// Lets a client in. Nothing, if it only wanted something cancelled, or is not let in and has been told so.
pub(crate) async fn login(stream: TcpStream, door: &Arc<Door>) -> Result<Option<Session>, Gone> {
    let mut client = Client::new(ClientStream::Plain(stream));
    let mut encrypted = false;
    let (minor, parameters) = loop {
        match packet(&mut client).await? {
            Startup::Tls => match (&door.login.tls, encrypted) {
                (Some(acceptor), false) => {
                    // Bytes that came before the handshake would be taken for encrypted ones: somebody put them there.
                    if !client.incoming.is_empty() {
                        return Err(Gone::Malformed(codec::Malformed::Form));
                    }
                    let ClientStream::Plain(mut stream) = client.into_stream() else { return Ok(None) };
                    stream.write_all(b"S").await?;
                    let stream = acceptor.accept(stream).await?;
                    client = Client::new(ClientStream::Tls(Box::new(stream)));
                    encrypted = true;
                }
                _ => {
                    client.out.put_u8(b'N');
                    client.flush().await?;
                }
            },
            Startup::Gss => {
                client.out.put_u8(b'N');
                client.flush().await?;
            }
            Startup::Cancel { process, secret } => {
                door.cancels.cancel(process, secret).await;
                return Ok(None);
            }
            Startup::Session { minor, parameters } => break (minor, parameters),
            Startup::Unknown => {
                let error = SqlError::unsupported(
                    "this protocol is not known here",
                    "Use a client that speaks PostgreSQL's protocol 3.0.",
                );
                return refuse(client, error).await;
            }
        }
    };
    if door.login.tls_only && !encrypted {
        let error = SqlError::new(state::INVALID_AUTHORIZATION, "connections must be encrypted")
            .hint("Connect with sslmode=require.");
        return refuse(client, error).await;
    }
    negotiate(&mut client, minor, &parameters);
    let value =
        |name: &str| parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let user = value("user").unwrap_or_default();
    let who = match authenticate(&mut client, door, user).await? {
        Ok(who) => who,
        Err(error) => {
            tracing::info!(user, "a login was refused");
            return refuse(client, error).await;
        }
    };
    let database = value("database").filter(|name| !name.is_empty()).unwrap_or(user);
    if database != door.login.database {
        let error = SqlError::new(state::INVALID_CATALOG, format!("database \"{database}\" does not exist"))
            .hint(format!("The database here is called {}.", door.login.database));
        return refuse(client, error).await;
    }
    if value("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
        let error =
            SqlError::unsupported("replication is not offered", "Connect to the shard itself for that.");
        return refuse(client, error).await;
    }
    reply::authentication(&mut client.out, AUTH_OK, &[]);
    Session::begin(client, door, who, &parameters).await
}

/// The next start-up packet.
async fn packet(client: &mut Client) -> Result<Startup, Gone> {
    loop {
        if let Some(length) = codec::startup_length(&client.incoming)?
            && client.incoming.len() >= length
        {
            let mut packet = client.incoming.split_to(length);
            packet.advance(4);
            return Ok(codec::startup(&packet)?);
        }
        client.fill().await?;
    }
}

/// Tells a client that wants more than protocol 3.0 what there is.
fn negotiate(client: &mut Client, minor: u16, parameters: &[(String, String)]) {
    let unknown: Vec<&String> =
        parameters.iter().map(|(name, _)| name).filter(|name| name.starts_with("_pq_.")).collect();
    if minor == 0 && unknown.is_empty() {
        return;
    }
    reply::message(&mut client.out, b'v', |out| {
        out.put_u32(3 << 16);
        out.put_u32(u32::try_from(unknown.len()).unwrap_or(0));
        for name in unknown {
            reply::text(out, name);
        }
    });
}

/// Asks for a proof of the password. Somebody unknown is asked just the same, so that names cannot be found out.
///
/// Of a user that the catalog has, it is said who; the one of the configuration has all rights.
async fn authenticate(
    client: &mut Client,
    door: &Door,
    user: &str,
) -> Result<Result<Option<Who>, SqlError>, Gone> {
    let wrong = || {
        let message = format!("password authentication failed for user \"{user}\"");
        Ok(Err(SqlError::new(state::INVALID_PASSWORD, message)))
    };
    let known = known(door, user);
    let verifier = match &known {
        Some((verifier, _)) => verifier.clone(),
        // The salt must be the same every time, and nobody's password fits.
        None => Verifier::unknown(user, &door.login.verifier),
    };
    let mut mechanisms = bytes::BytesMut::new();
    reply::text(&mut mechanisms, MECHANISM);
    mechanisms.put_u8(0);
    reply::authentication(&mut client.out, AUTH_SASL, &mechanisms);
    let (kind, body) = client.next().await?;
    if kind != b'p' {
        return Err(Gone::Malformed(codec::Malformed::Form));
    }
    let (mechanism, first) = codec::sasl_initial(&body)?;
    if mechanism != MECHANISM {
        return wrong();
    }
    let Ok((exchange, answer)) = Exchange::start(verifier, first, door.random()) else { return wrong() };
    reply::authentication(&mut client.out, AUTH_SASL_CONTINUE, answer.as_bytes());
    let (kind, body) = client.next().await?;
    if kind != b'p' {
        return Err(Gone::Malformed(codec::Malformed::Form));
    }
    match (exchange.finish(&answer, &body), known) {
        (Ok(last), Some((_, who))) => {
            reply::authentication(&mut client.out, AUTH_SASL_FINAL, last.as_bytes());
            Ok(Ok(who))
        }
        _ => wrong(),
    }
}

/// What a user's password is checked with, and who that is.
fn known(door: &Door, user: &str) -> Option<(Verifier, Option<Who>)> {
    if user == door.login.user {
        return Some((door.login.verifier.clone(), None));
    }
    let users = door.host.users();
    let known = users.user(user)?;
    let verifier = Verifier::parse(known.scram.as_deref()?)?;
    Some((verifier, Some(Who { name: known.name.clone(), id: known.id })))
}

async fn refuse(mut client: Client, error: SqlError) -> Result<Option<Session>, Gone> {
    reply::error(&mut client.out, Severity::Fatal, &error);
    client.flush().await?;
    Ok(None)
}

/// Settings that a client asks for when it begins, as `name → value`; what is no setting is left out.
pub(crate) fn settings(parameters: &[(String, String)]) -> Result<Vec<(String, String)>, SqlError> {
    let mut found = Vec::new();
    for (name, value) in parameters {
        match name.as_str() {
            "user" | "database" | "replication" => {}
            name if name.starts_with("_pq_.") => {}
            "options" => options(value, &mut found)?,
            name => found.push((name.to_lowercase(), value.clone())),
        }
    }
    Ok(found)
}

/// `-c name=value` and `--name=value`, with blanks escaped by a backslash, as PostgreSQL reads them.
fn options(text: &str, found: &mut Vec<(String, String)>) -> Result<(), SqlError> {
    let mut words: Vec<String> = Vec::new();
    let (mut word, mut escaped) = (String::new(), false);
    for letter in text.chars() {
        match letter {
            _ if escaped => {
                word.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            blank if blank.is_ascii_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let pair = match word.as_str() {
            "-c" => words.next().unwrap_or_default(),
            other => match other.strip_prefix("-c").or_else(|| other.strip_prefix("--")) {
                Some(pair) => pair.to_owned(),
                None => {
                    let message = format!("the start-up option {other} is not known here");
                    return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                        .hint("Settings are given as -c name=value."));
                }
            },
        };
        let (name, value) = pair.split_once('=').unwrap_or((pair.as_str(), ""));
        found.push((name.replace('-', "_").to_lowercase(), value.to_owned()));
    }
    Ok(())
}

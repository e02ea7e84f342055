//! The listening session: one for all channels, made again whenever it is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::connect::{Connector, OnNotice, Purpose};
use super::session::Session;
use crate::listener::LISTENER_EVENTS_MAX;
use crate::{Error, Event, Listener};

/// Subscriptions that may wait while the session is being made.
const COMMANDS_MAX: usize = 64;

type Channels = Arc<Mutex<HashMap<String, broadcast::Sender<Event>>>>;

/// Asks for a channel to be listened to; the answer comes once it is.
struct Subscribe {
    channel: String,
    reply: oneshot::Sender<Result<Listener, Error>>,
}

pub(crate) struct Listening {
    connector: Arc<Connector>,
    state: Mutex<State>,
}

enum State {
    /// Nobody has listened yet.
    Idle,
    Running {
        commands: mpsc::Sender<Subscribe>,
        task: JoinHandle<()>,
    },
    Closed,
}

impl Listening {
    pub fn new(connector: Arc<Connector>) -> Listening {
        Listening { connector, state: Mutex::new(State::Idle) }
    }

    pub async fn listen(&self, channel: &str) -> Result<Listener, Error> {
        let commands = self.commands()?;
        let (reply, answer) = oneshot::channel();
        let ask = Subscribe { channel: channel.to_owned(), reply };
        commands.send(ask).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    fn commands(&self) -> Result<mpsc::Sender<Subscribe>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Running { commands, .. } => Ok(commands.clone()),
            State::Closed => Err(Error::Closed),
            State::Idle => {
                let (commands, queue) = mpsc::channel(COMMANDS_MAX);
                let task = tokio::spawn(run(self.connector.clone(), queue));
                *state = State::Running { commands: commands.clone(), task };
                Ok(commands)
            }
        }
    }

    pub async fn close(&self) {
        let state = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, State::Closed)
        };
        if let State::Running { commands, task } = state {
            drop(commands);
            if task.await.is_err() {
                tracing::error!("the listening task panicked");
            }
        }
    }
}

/// Ends when the last sender of subscriptions is gone.
async fn run(connector: Arc<Connector>, mut queue: mpsc::Receiver<Subscribe>) {
    let channels: Channels = Arc::default();
    let mut generation = connector.watch_generation();
    let mut session: Option<Session> = None;
    let mut lost = false;
    loop {
        let ended = session.as_ref().is_some_and(|session| !connector.is_current(session));
        if ended {
            session = None;
            lost = true;
        }
        if session.is_none() && !channels.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            tokio::select! {
                made = connect(&connector, &channels) => match made {
                    Ok(made) => {
                        session = Some(made);
                        if std::mem::take(&mut lost) {
                            send_to_all(&channels, &Event::Reconnected);
                        }
                    }
                    Err(error) => {
                        lost = true;
                        tracing::warn!(target = %connector.target, %error, "listening is interrupted");
                        // `connect` has waited for the server already; a refusal deserves a pause, too.
                        tokio::time::sleep(connector.options.unavailable_wait).await;
                    }
                },
                // Nobody is left to listen, or somebody new must be told that it does not work.
                command = queue.recv() => match command {
                    Some(subscribe) => {
                        let result = subscribe_new(&connector, &channels, &mut session, &subscribe.channel).await;
                        let _ = subscribe.reply.send(result);
                    }
                    None => return,
                },
            }
            continue;
        }
        let session_ended = async {
            match &session {
                Some(session) => session.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = session_ended => {}
            // The sender lives as long as the connector, which we hold.
            _ = generation.changed() => {}
            command = queue.recv() => match command {
                Some(subscribe) => {
                    let result = subscribe_new(&connector, &channels, &mut session, &subscribe.channel).await;
                    let _ = subscribe.reply.send(result);
                }
                None => return,
            },
        }
    }
}

/// Adds a channel, making the session if it is the first.
async fn subscribe_new(
    connector: &Arc<Connector>,
    channels: &Channels,
    session: &mut Option<Session>,
    channel: &str,
) -> Result<Listener, Error> {
    let listener = {
        let mut channels = channels.lock().unwrap_or_else(PoisonError::into_inner);
        // A channel nobody listens to any more is not asked for by the next session.
        channels.retain(|_, sender| sender.receiver_count() > 0);
        let sender =
            channels.entry(channel.to_owned()).or_insert_with(|| broadcast::Sender::new(LISTENER_EVENTS_MAX));
        Listener::new(sender.subscribe())
    };
    match session {
        Some(session) => session.simple(&format!("LISTEN {}", quoted(channel))).await.map(drop)?,
        None => *session = Some(connect(connector, channels).await?),
    }
    Ok(listener)
}

async fn connect(connector: &Arc<Connector>, channels: &Channels) -> Result<Session, Error> {
    let receivers = channels.clone();
    let on_notice: OnNotice = Arc::new(move |notice| {
        let channels = receivers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = channels.get(notice.channel()) {
            // An error means that nobody listens any more.
            let _ = sender.send(Event::Notice(notice.payload().to_owned()));
        }
    });
    let session = connector.connect_with(Purpose::Listening, Some(on_notice)).await?;
    let names: Vec<String> =
        channels.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
    for name in names {
        session.simple(&format!("LISTEN {}", quoted(&name))).await?;
    }
    Ok(session)
}

fn send_to_all(channels: &Channels, event: &Event) {
    for sender in channels.lock().unwrap_or_else(PoisonError::into_inner).values() {
        let _ = sender.send(event.clone());
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

//! Traces: requests told to a collector of OpenTelemetry over HTTP, behind a queue with an end.

mod json;
mod layer;
mod protobuf;

use std::sync::Arc;
use std::time::Duration;

use polyshard_meter::Counter;
use polyshard_meter::trace::Share;
use polyshard_wire::{Shutdown, ShutdownTrigger};
use reqwest::header::CONTENT_TYPE;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::{TraceConfig, TraceProtocol};
use crate::error::ServerError;
use layer::Ended;
pub(crate) use layer::Export;

/// Spans that wait to be sent; more are dropped and counted. A few hundred bytes each.
const QUEUED_MAX: usize = 8 * 1024;
/// Spans sent at once: a few hundred kilobytes, well under what collectors accept.
const BATCH_MAX: usize = 512;
/// How long spans wait for others to be sent with.
const GATHER: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long a server that stops may take to send what it has.
const STOP_WAIT: Duration = Duration::from_secs(3);

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    /// Taken by the collector.
    pub(crate) sent: Counter,
    /// Lost: the queue was full, or the collector did not take them.
    pub(crate) dropped: Counter,
}

/// What sends spans, before it has begun.
pub(crate) struct Traces {
    spans: mpsc::Receiver<Ended>,
    post: Post,
}

/// What sends spans.
pub(crate) struct Sending {
    task: JoinHandle<()>,
    stop: ShutdownTrigger,
}

/// The way to the collector.
struct Post {
    client: reqwest::Client,
    endpoint: String,
    protocol: TraceProtocol,
    counts: Arc<SpanCounts>,
    /// Spans on their way.
    in_hand: u64,
    /// Whether the last batch was not taken: only the first failure of many is logged.
    failing: bool,
}

impl Traces {
    /// What is told of requests, and what sends it.
    pub(crate) fn new(config: &TraceConfig) -> Result<(Export, Traces), ServerError> {
        // The one TLS library of this program; if somebody installed it before, it is the same.
        let _same = rustls::crypto::ring::default_provider().install_default();
        // A collector is near; a proxy for the outside world is not asked.
        let client = reqwest::Client::builder().timeout(ANSWER_WAIT).no_proxy().build();
        let client =
            client.map_err(|error| ServerError::System(format!("traces cannot be sent: {error}")))?;
        let (queue, spans) = mpsc::channel(QUEUED_MAX);
        let counts = Arc::new(SpanCounts::default());
        let export = Export::new(Share::new(config.sample), queue, counts.clone());
        let (endpoint, protocol) = (config.endpoint.clone(), config.protocol);
        let post = Post { client, endpoint, protocol, counts, in_hand: 0, failing: false };
        Ok((export, Traces { spans, post }))
    }

    /// What became of spans so far.
    pub(crate) fn counts(&self) -> Arc<SpanCounts> {
        self.post.counts.clone()
    }

    /// Sends until it is stopped.
    pub(crate) fn start(self) -> Sending {
        let (stop, stopping) = Shutdown::new();
        Sending { task: tokio::spawn(run(self.spans, self.post, stopping)), stop }
    }
}

impl Sending {
    /// Sends what there is, for [`STOP_WAIT`] at most, and ends.
    pub(crate) async fn stop(self) {
        self.stop.start();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that sends traces failed");
        }
    }
}

async fn run(mut spans: mpsc::Receiver<Ended>, mut post: Post, stopping: Shutdown) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    // From the moment it is told to stop, also if it waits for an answer then.
    let late = async {
        stopping.started().await;
        tokio::time::sleep(STOP_WAIT).await;
    };
    let in_time = tokio::select! {
        () = send_all(&mut spans, &mut batch, &mut post, &stopping) => true,
        () = late => false,
    };
    if !in_time {
        spans.close();
        let dropped = post.in_hand + (batch.len() + spans.len()) as u64;
        post.counts.dropped.add(dropped);
        tracing::info!(dropped, "the collector of traces is slow; the last spans are dropped");
    }
}

async fn send_all(
    spans: &mut mpsc::Receiver<Ended>,
    batch: &mut Vec<Ended>,
    post: &mut Post,
    stopping: &Shutdown,
) {
    while gather(spans, batch, stopping).await {
        if !batch.is_empty() {
            post.send(batch).await;
        }
    }
    while !batch.is_empty() {
        post.send(batch).await;
        while batch.len() < BATCH_MAX
            && let Ok(span) = spans.try_recv()
        {
            batch.push(span);
        }
    }
}

/// Takes spans until there are enough to send, or it is time; false when it is to end.
async fn gather(spans: &mut mpsc::Receiver<Ended>, batch: &mut Vec<Ended>, stopping: &Shutdown) -> bool {
    let mut time = std::pin::pin!(tokio::time::sleep(GATHER));
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        tokio::select! {
            biased;
            () = stopping.started() => {
                while batch.len() < BATCH_MAX && let Ok(span) = spans.try_recv() {
                    batch.push(span);
                }
                return false;
            }
            () = &mut time => break,
            // Nobody is left who makes any.
            taken = spans.recv_many(batch, room) => if taken == 0 { return false },
        }
    }
    true
}

impl Post {
    /// Sends a batch and empties it, whatever becomes of it.
    async fn send(&mut self, batch: &mut Vec<Ended>) {
        let (body, content_type) = match self.protocol {
            TraceProtocol::Protobuf => (protobuf::document(batch), "application/x-protobuf"),
            TraceProtocol::Json => (json::document(batch).into_bytes(), "application/json"),
        };
        let count = batch.len() as u64;
        batch.clear();
        self.in_hand = count;
        let request = self.client.post(&self.endpoint).header(CONTENT_TYPE, content_type).body(body);
        let refused = match request.send().await {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            // Without the address, which the log line has.
            Err(error) => Some(error.without_url().to_string()),
        };
        self.in_hand = 0;
        match refused {
            None => {
                self.counts.sent.add(count);
                if std::mem::take(&mut self.failing) {
                    tracing::info!(endpoint = self.endpoint, "the collector of traces is back");
                }
            }
            Some(why) => {
                self.counts.dropped.add(count);
                if !std::mem::replace(&mut self.failing, true) {
                    let endpoint = &self.endpoint;
                    tracing::warn!(endpoint, why, "traces are not taken by the collector, and are dropped");
                }
            }
        }
    }
}

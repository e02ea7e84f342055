//! From the program's spans to OpenTelemetry's: which are kept, how they hang together, what is told of them.
//!
//! A request is a trace of its own, or a part of the client's if the client says so, with a link to its connection: a
//! connection of a pool lasts for days, and its span is told only when it ends.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_meter::trace::{Parent, Share, TARGET};
use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context as Surroundings;
use tracing_subscriber::registry::LookupSpan;

use super::SpanCounts;

/// Where `wire` makes the span of a connection.
const CONNECTION: (&str, &str) = ("polyshard_wire::listener", "connection");

/// Which trace a span is in, and which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub trace: u128,
    pub span: u64,
}

/// What a span is, in the numbers of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub context: Context,
    pub parent: Option<u64>,
    pub link: Option<Context>,
    pub name: String,
    pub kind: Kind,
    pub start_ns: u64,
    pub end_ns: u64,
    pub attributes: Vec<(&'static str, String)>,
    pub failed: bool,
}

/// Makes OpenTelemetry's spans of the program's, and puts them into the queue.
pub(crate) struct Export {
    share: Share,
    queue: mpsc::Sender<Ended>,
    counts: Arc<SpanCounts>,
}

/// What is remembered of a span of the program.
struct Seen {
    /// Of a connection and its requests.
    door: Option<Box<str>>,
    /// If its trace is kept, and it has not ended.
    open: Option<Ended>,
    context: Option<Context>,
}

impl Export {
    pub(super) fn new(share: Share, queue: mpsc::Sender<Ended>, counts: Arc<SpanCounts>) -> Export {
        Export { share, queue, counts }
    }

    /// How many of all requests are traced.
    pub(crate) fn share(&self) -> Share {
        self.share
    }

    /// Whether it is to be looked at.
    pub(crate) fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && (metadata.target() == TARGET || (metadata.target(), metadata.name()) == CONNECTION)
    }

    /// The trace of a new request, which was chosen to be told, and what it is a part of.
    fn trace(&self, told: Option<Parent>) -> (u128, Option<u64>) {
        match told {
            Some(parent) => (parent.trace, Some(parent.span)),
            None => (self.share.kept(rand::random()), None),
        }
    }

    fn put(&self, mut span: Ended) {
        span.end_ns = now_ns().max(span.start_ns);
        if self.queue.try_send(span).is_err() {
            self.counts.dropped.add_one();
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Export {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, surroundings: Surroundings<'_, S>) {
        let Some(span) = surroundings.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let above = || span.scope().skip(1);
        let seen = match span.name() {
            "request" => {
                let connection = above().find_map(|above| {
                    let seen = above.extensions();
                    let seen = seen.get::<Seen>()?;
                    Some((seen.door.clone()?, seen.context))
                });
                let (door, link) = connection.map_or((None, None), |(door, link)| (Some(door), link));
                let (trace, parent) = self.trace(fields.traceparent.as_deref().and_then(Parent::read));
                let word = door.as_deref().unwrap_or("request");
                let mut open = opened(trace, parent, word, Kind::Server);
                open.link = link;
                open.attributes.extend(door.as_ref().map(|door| ("polyshard.door", door.to_string())));
                Seen { door, context: Some(open.context), open: Some(open) }
            }
            "shard" => {
                // Of requests only: those of a connection that is not in one are of nobody's interest.
                let request = above().find(|above| above.name() == "request");
                let request =
                    request.and_then(|above| above.extensions().get::<Seen>().and_then(|seen| seen.context));
                let open = request.map(|request| {
                    let mut open = opened(request.trace, Some(request.span), "shard", Kind::Client);
                    open.attributes = fields.attributes;
                    open
                });
                Seen { door: None, context: open.as_ref().map(|open| open.context), open }
            }
            _ => {
                let trace = Some(rand::random()).filter(|trace| self.share.keeps(*trace));
                let open = trace.map(|trace| {
                    let mut open = opened(trace, None, "connection", Kind::Internal);
                    open.attributes = fields.attributes;
                    open
                });
                Seen { door: fields.door, context: open.as_ref().map(|open| open.context), open }
            }
        };
        span.extensions_mut().insert(seen);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, surroundings: Surroundings<'_, S>) {
        let Some(span) = surroundings.span(id) else { return };
        let mut extensions = span.extensions_mut();
        let Some(open) = extensions.get_mut::<Seen>().and_then(|seen| seen.open.as_mut()) else { return };
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(operation) = &fields.operation {
            open.name = format!("{} {operation}", open.name);
        }
        open.attributes.append(&mut fields.attributes);
        let Some(outcome) = fields.outcome else { return };
        open.failed = matches!(outcome.as_str(), "error" | "5xx");
        // It ends with its answer: a ticket of an open transaction may outlive it, and keep it from being closed.
        let ended = extensions.get_mut::<Seen>().and_then(|seen| seen.open.take());
        drop(extensions);
        if let Some(ended) = ended {
            self.put(ended);
        }
    }

    fn on_close(&self, id: Id, surroundings: Surroundings<'_, S>) {
        let Some(span) = surroundings.span(&id) else { return };
        let seen = span.extensions_mut().remove::<Seen>();
        if let Some(open) = seen.and_then(|seen| seen.open) {
            self.put(open);
        }
    }
}

fn opened(trace: u128, parent: Option<u64>, name: &str, kind: Kind) -> Ended {
    let start_ns = now_ns();
    Ended {
        // Zero would be no id; nobody will see it.
        context: Context { trace, span: rand::random::<u64>().max(1) },
        parent,
        link: None,
        name: name.to_owned(),
        kind,
        start_ns,
        end_ns: start_ns,
        attributes: Vec::new(),
        failed: false,
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What a span of the program says of itself.
#[derive(Default)]
struct Fields {
    door: Option<Box<str>>,
    traceparent: Option<String>,
    operation: Option<String>,
    outcome: Option<String>,
    attributes: Vec<(&'static str, String)>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let name = match field.name() {
            "traceparent" => {
                self.traceparent = Some(value.to_owned());
                return;
            }
            "door" => {
                self.door = Some(value.into());
                "polyshard.door"
            }
            "operation" => {
                self.operation = Some(value.to_owned());
                "polyshard.operation"
            }
            "outcome" => {
                self.outcome = Some(value.to_owned());
                "polyshard.outcome"
            }
            "shard" => "polyshard.shard",
            "map" => "polyshard.map",
            "access" => "polyshard.access",
            "peer" => "network.peer.address",
            _ => return,
        };
        self.attributes.push((name, value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

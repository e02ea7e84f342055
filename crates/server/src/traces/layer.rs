//! From the program's spans to OpenTelemetry's: which are kept, how they hang together, what is told of them.
//!
//! A request is a trace of its own, or a part of the client's if the client says so, with a link to its connection: a
//! connection of a pool lasts for days, and its span is told only when it ends.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_meter::trace::TARGET;
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
/// How many of the low bits of a trace's id decide whether it is kept, as W3C's Trace Context has it: all who see it
/// decide alike.
const DECIDING_BITS: u32 = 56;

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
    /// Traces whose deciding bits are below this are kept.
    threshold: u64,
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
    pub(super) fn new(sample: f64, queue: mpsc::Sender<Ended>, counts: Arc<SpanCounts>) -> Export {
        // Beyond 52 bits a fraction has no more digits, which nobody notices.
        let threshold = (sample.clamp(0.0, 1.0) * (1_u64 << DECIDING_BITS) as f64) as u64;
        Export { threshold, queue, counts }
    }

    /// Whether it is to be looked at.
    pub(crate) fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && (metadata.target() == TARGET || (metadata.target(), metadata.name()) == CONNECTION)
    }

    fn keeps(&self, trace: u128) -> bool {
        let deciding = (trace as u64) & ((1 << DECIDING_BITS) - 1);
        deciding < self.threshold
    }

    /// The trace of a new request, and what it is a part of; none if it is not kept.
    fn trace(&self, told: Option<(Context, bool)>) -> Option<(u128, Option<u64>)> {
        match told {
            Some((parent, kept)) => kept.then_some((parent.trace, Some(parent.span))),
            None => {
                let trace = rand::random::<u128>();
                self.keeps(trace).then_some((trace, None))
            }
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
                let told = fields.traceparent.as_deref().and_then(parse_parent);
                let open = self.trace(told).map(|(trace, parent)| {
                    let word = door.as_deref().unwrap_or("request");
                    let mut open = opened(trace, parent, word, Kind::Server);
                    open.link = link;
                    open.attributes.extend(door.as_ref().map(|door| ("polyshard.door", door.to_string())));
                    open
                });
                Seen { door, context: open.as_ref().map(|open| open.context), open }
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
                let open = self.trace(None).map(|(trace, _)| {
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

/// What a client is a part of, and whether that is kept: `00-trace-span-flags` in hexadecimal.
fn parse_parent(text: &str) -> Option<(Context, bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let wrong = [(version, 2), (trace, 32), (span, 16), (flags, 2)]
        .iter()
        .any(|(part, length)| part.len() != *length || !part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    // Later versions may have more parts, this one has not.
    if wrong || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
    let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some((Context { trace, span }, flags & 1 == 1))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::{Context, Export, SpanCounts, parse_parent};

    #[test]
    fn a_clients_trace_is_read_and_nonsense_is_not() {
        let context =
            Context { trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, span: 0x00f0_67aa_0ba9_02b7 };
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        assert_eq!(parse_parent(&format!("{given}-01")), Some((context, true)));
        assert_eq!(parse_parent(&format!("{given}-00")), Some((context, false)));
        assert_eq!(parse_parent(&format!("cc{}-01-more", &given[2..])), Some((context, true)));
        let wrong = [
            "",
            "00",
            given,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ];
        for wrong in wrong {
            assert_eq!(parse_parent(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_none_or_a_share_of_traces_is_kept() {
        let export = |sample| Export::new(sample, mpsc::channel(1).0, Arc::new(SpanCounts::default()));
        let ids = || (0..1000_u64).map(|at| u128::from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!(ids().filter(|id| export(0.0).keeps(*id)).count(), 0);
        assert_eq!(ids().filter(|id| export(1.0).keeps(*id)).count(), 1000);
        let kept = ids().filter(|id| export(0.1).keeps(*id)).count();
        assert!((80..=120).contains(&kept), "{kept}");
    }
}

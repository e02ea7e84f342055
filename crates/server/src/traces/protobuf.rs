//! Spans in the protobuf form of OTLP. The numbers are those of its schema, `opentelemetry/proto/trace/v1/trace.proto`;
//! a dozen fields are written here, which is less than a library for it.

use super::layer::{Context, Ended};

/// A message being written, field by field in the order of their numbers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            // The low seven bits, and that there are more.
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// What a field begins with: its number, and how its value is written.
    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Message {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    fn messages(self, field: u64, messages: impl IntoIterator<Item = Message>) -> Message {
        messages.into_iter().fold(self, |all, message| all.message(field, &message))
    }

    fn number(mut self, field: u64, number: u64) -> Message {
        self.tag(field, 0);
        self.varint(number);
        self
    }

    fn fixed64(mut self, field: u64, number: u64) -> Message {
        self.tag(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// The ids of a span: its trace and itself.
    fn ids(self, context: Context) -> Message {
        self.bytes(1, &context.trace.to_be_bytes()).bytes(2, &context.span.to_be_bytes())
    }
}

/// The body of a request to `/v1/traces`: an `ExportTraceServiceRequest`.
pub(super) fn document(spans: &[Ended]) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let about = [("service.name", "polyshard"), ("service.version", version)];
    let resource = Message::default().messages(1, about.map(|(key, value)| attribute(key, value)));
    let scope = Message::default().text(1, "polyshard").text(2, version);
    let of_scope = Message::default().message(1, &scope).messages(2, spans.iter().map(span));
    let of_resource = Message::default().message(1, &resource).message(2, &of_scope);
    Message::default().message(1, &of_resource).0
}

fn span(span: &Ended) -> Message {
    let mut told = Message::default().ids(span.context);
    if let Some(parent) = span.parent {
        told = told.bytes(4, &parent.to_be_bytes());
    }
    told = told
        .text(5, &span.name)
        .number(6, span.kind as u64)
        .fixed64(7, span.start_ns)
        .fixed64(8, span.end_ns)
        .messages(9, span.attributes.iter().map(|(key, value)| attribute(key, value)))
        .messages(13, span.link.map(|link| Message::default().ids(link)));
    if span.failed {
        // STATUS_CODE_ERROR.
        told = told.message(15, &Message::default().number(3, 2));
    }
    told
}

fn attribute(key: &str, value: &str) -> Message {
    Message::default().text(1, key).message(2, &Message::default().text(1, value))
}

//! The spans of a traced request: made here, so that all doors tell the same; who exports them is elsewhere.
//!
//! Without an exporter nobody asks for them: making one is then a look at a number, and nothing else.

use tracing::field::Empty;
use tracing::{Span, info_span};

/// What all of them are under. The log leaves it out.
pub const TARGET: &str = "polyshard_trace";

/// A request of the connection that is being served, which knows its door. `traceparent` is what the client says it is
/// a part of, in the words of W3C's Trace Context.
pub fn request(traceparent: Option<&str>) -> Span {
    info_span!(target: TARGET, "request", traceparent, operation = Empty, outcome = Empty)
}

/// A request was answered: what it was, and how it ended.
pub fn answered(span: &Span, operation: &'static str, outcome: &'static str) {
    if !span.is_disabled() {
        span.record("operation", operation);
        span.record("outcome", outcome);
    }
}

/// The part of a request that is on one shard. Ends when it is dropped. No key is told.
pub fn on_shard(shard: &str, map: &str, access: &'static str) -> Span {
    info_span!(target: TARGET, "shard", shard, map, access)
}

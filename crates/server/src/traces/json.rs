//! Spans in the JSON form of OTLP: ids in hexadecimal, times as text, as its specification has it.

use serde_json::{Value, json};

use super::layer::{Context, Ended};

/// The body of a request to `/v1/traces`.
pub(super) fn document(spans: &[Ended]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [text("service.name", "polyshard"), text("service.version", version)];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "polyshard", "version": version },
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }] })
    .to_string()
}

fn span(span: &Ended) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(|(key, value)| text(key, value)).collect();
    let mut told = json!({
        "traceId": trace_id(span.context),
        "spanId": span_id(span.context.span),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = span_id(parent).into();
    }
    if let Some(link) = span.link {
        told["links"] = json!([{ "traceId": trace_id(link), "spanId": span_id(link.span) }]);
    }
    if span.failed {
        // STATUS_CODE_ERROR.
        told["status"] = json!({ "code": 2 });
    }
    told
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn trace_id(context: Context) -> String {
    format!("{:032x}", context.trace)
}

fn span_id(span: u64) -> String {
    format!("{span:016x}")
}

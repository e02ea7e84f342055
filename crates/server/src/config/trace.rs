//! The configuration's part on traces.

use super::build::number;
use super::error::ConfigErrors;
use super::settings::Values;
use super::{TraceConfig, TraceProtocol};

/// What the values say; every mistake is in `errors`.
pub(super) fn build(values: &Values, errors: &mut ConfigErrors) -> Option<Option<TraceConfig>> {
    let sample = number(values, "trace.sample")?;
    let Some(setting) = values.get("trace.endpoint") else { return Some(None) };
    let parsed = reqwest::Url::parse(&setting.text).ok();
    let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut endpoint) = parsed else {
        let message = "trace.endpoint is no address of a collector";
        errors.push(&setting.origin, message, "write it as http://127.0.0.1:4318");
        return Some(None);
    };
    if !endpoint.username().is_empty() || endpoint.password().is_some() {
        // It is shown in logs.
        errors.push(&setting.origin, "trace.endpoint holds a secret", "send to a collector that needs none");
    }
    if endpoint.path() == "/" {
        endpoint.set_path("/v1/traces");
    }
    let protocol = match values.get("trace.protocol")?.text.as_str() {
        "http/json" => TraceProtocol::Json,
        _ => TraceProtocol::Protobuf,
    };
    Some(Some(TraceConfig { endpoint: endpoint.to_string(), protocol, sample }))
}

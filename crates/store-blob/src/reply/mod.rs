//! Answers as the blob clients read them: the only part that knows how they are written on the wire.

pub(crate) mod blob;
pub(crate) mod container;
pub(crate) mod errors;
pub(crate) mod list;
pub(crate) mod parts;
pub(crate) mod service;

use polyshard_azure_storage::{Response, Timestamp};

use crate::model::{Etag, Lease, LeaseAction, LeaseAnswer, Metadata, Ticks};

const XML: &str = "application/xml";

/// An answer whose body is XML.
fn document(status: u16, xml: String) -> Response {
    Response::new(status).header("Content-Type", XML).with_body(xml)
}

fn rfc1123(ticks: Ticks) -> String {
    // Times are within the calendar when they are stored.
    Timestamp::from_ticks(ticks).map_or_else(String::new, Timestamp::rfc1123)
}

/// `ETag` and `Last-Modified`.
fn state(response: Response, etag: Etag, modified: Ticks) -> Response {
    response.header("ETag", quoted(etag)).header("Last-Modified", rfc1123(modified))
}

fn quoted(etag: Etag) -> String {
    format!("\"{etag}\"")
}

/// `x-ms-meta-*`, in the case they were given.
fn metadata(response: Response, metadata: &Metadata) -> Response {
    metadata
        .iter()
        .fold(response, |response, (name, value)| response.header(format!("x-ms-meta-{name}"), value.clone()))
}

/// `x-ms-lease-*` of something that is read.
fn lease_state(response: Response, lease: &Lease, now_ms: i64) -> Response {
    let state = lease.state(now_ms);
    let response = match lease.duration(now_ms) {
        Some(duration) => response.header("x-ms-lease-duration", duration),
        None => response,
    };
    response.header("x-ms-lease-state", state.as_str()).header("x-ms-lease-status", state.status())
}

/// The answer to a verb of a lease.
pub(crate) fn leased(action: LeaseAction, answer: &LeaseAnswer) -> Response {
    let status = match action {
        LeaseAction::Acquire { .. } => 201,
        LeaseAction::Renew { .. } | LeaseAction::Change { .. } | LeaseAction::Release { .. } => 200,
        LeaseAction::Break { .. } => 202,
    };
    let mut response = state(Response::new(status), answer.etag, answer.modified);
    if let Some(id) = answer.id {
        response = response.header("x-ms-lease-id", id.hyphenated().to_string());
    }
    match answer.seconds_left {
        Some(seconds) => response.header("x-ms-lease-time", seconds.to_string()),
        None => response,
    }
}

#[cfg(test)]
mod tests;

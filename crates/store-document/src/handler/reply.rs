//! Answers: JSON with the headers of the service.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Value, json};

use crate::charge;
use crate::document::{append, etag_text};
use crate::failure::Failure;
use crate::http::Reply;
use crate::store::{Container, Item};

/// What a path in a header cannot have.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%').add(b'<').add(b'>');

/// The one range of partition keys.
pub(crate) const RANGE: &str = "0";

impl Reply {
    /// With a status and nothing else.
    pub fn new(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    /// Adds what it cost.
    pub fn charge(self, charge: f64) -> Reply {
        self.header("x-ms-request-charge", charge::text(charge))
    }

    /// Adds a body in JSON.
    pub fn body(mut self, body: Vec<u8>) -> Reply {
        self.body = body;
        self.header("content-type", "application/json")
    }

    /// Adds what a client keeps about a container: where it is, and how far it has read.
    pub fn of(self, container: &Container, now_ms: i64) -> Reply {
        let alt = format!("dbs/{}/colls/{}", container.database, container.id);
        self.header("x-ms-session-token", format!("{RANGE}:-1#{now_ms}"))
            .header("x-ms-alt-content-path", utf8_percent_encode(&alt, PATH).to_string())
            .header("x-ms-content-path", container.rid.clone())
            .header("x-ms-documentdb-partitionkeyrangeid", RANGE)
            .header("lsn", now_ms.to_string())
    }
}

/// A database, container or offer.
pub(crate) fn resource(status: u16, etag: &str, shown: &Value) -> Reply {
    Reply::new(status).header("etag", etag).charge(charge::RESOURCE).body(shown.to_string().into_bytes())
}

/// A list under the name that clients look for it by.
pub(crate) fn list(rid: &str, name: &str, rows: &[u8], count: usize) -> Reply {
    let mut body = format!(r#"{{"_rid":{},"{name}":["#, json!(rid)).into_bytes();
    body.extend(rows);
    body.extend(format!(r#"],"_count":{count}}}"#).bytes());
    Reply::new(200).header("x-ms-item-count", count.to_string()).body(body)
}

/// A document, or what was done with it.
pub(crate) fn item(status: u16, item: &Item, with_body: bool) -> Reply {
    let reply = Reply::new(status).header("etag", etag_text(item.stamp.etag));
    if !with_body {
        return reply;
    }
    let mut body = Vec::with_capacity(item.body.len() + 256);
    append(&mut body, &item.body, &item.stamp);
    reply.body(body)
}

/// A refusal.
pub(crate) fn refused(failure: &Failure) -> Reply {
    let body = json!({"code": failure.code, "message": failure.message});
    let mut reply = Reply::new(failure.status).charge(charge::REFUSED);
    if let Some(substatus) = failure.substatus {
        reply = reply.header("x-ms-substatus", substatus.to_string());
    }
    if let Some(after) = failure.retry_after {
        reply = reply.header("x-ms-retry-after-ms", after.as_millis().max(1).to_string());
    }
    reply.body(body.to_string().into_bytes())
}

//! One response, and how it is written: names in exactly the case they were given.

use std::borrow::Cow;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use uuid::Uuid;

use crate::{ApiVersion, BodySource, Method, ServiceError, Timestamp};

/// The interim answer to `Expect: 100-continue`.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A response without what every response has: the writer adds `Content-Length`, `Date`, `Server`, `x-ms-request-id`,
/// `x-ms-version` and `x-ms-client-request-id`.
#[derive(Debug)]
pub struct Response {
    /// The status, such as 201.
    pub status: u16,
    /// The headers in order; names are written in this case.
    pub headers: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// The body. It is not sent with 204 and 304, nor to `HEAD`; to that, a `Content-Length` among the headers stays.
    pub body: Vec<u8>,
    /// The body in pieces, in place of `body`; the same rules hold for it.
    pub stream: Option<BodySource>,
}

impl Response {
    /// A response with nothing but a status.
    pub fn new(status: u16) -> Response {
        // Room for as many as most have, at once.
        Response { status, headers: Vec::with_capacity(8), body: Vec::new(), stream: None }
    }

    /// Adds a header.
    pub fn header(
        mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Response {
        self.body = body.into();
        self
    }

    /// Sets a body of `length` bytes that is produced while it is sent: see [`BodySource`].
    pub fn with_stream(
        mut self,
        length: u64,
        source: BoxStream<'static, Result<Bytes, ServiceError>>,
    ) -> Response {
        self.stream = Some(BodySource { length, source });
        self
    }

    /// The first value of that header, in whatever case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// The first header that would not stay one header on the wire; it is a bug of whoever made it.
    pub(crate) fn unwritable_header(&self) -> Option<&str> {
        let bad_name = |name: &str| name.is_empty() || !name.bytes().all(is_token_byte);
        let bad_value =
            |value: &str| value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
        let bad = self.headers.iter().find(|(name, value)| bad_name(name) || bad_value(value));
        bad.map(|(name, _)| name.as_ref())
    }
}

/// What the writer adds to a response.
pub(crate) struct Finish<'a> {
    pub(crate) method: Option<Method>,
    pub(crate) request_id: Uuid,
    pub(crate) client_request_id: Option<&'a str>,
    pub(crate) version: ApiVersion,
    pub(crate) now: Timestamp,
    /// Bytes of the body.
    pub(crate) length: u64,
    pub(crate) close: bool,
}

/// What is laid ready for a head; most are shorter.
const HEAD_BYTES: usize = 768;

/// Whether a body follows the head.
pub(crate) fn has_body(status: u16, method: Option<Method>) -> bool {
    !matches!(status, 100..200 | 204 | 304) && method != Some(Method::Head)
}

/// The bytes of a whole response; of its head, if its body is produced in pieces.
pub(crate) fn encode(response: &Response, finish: &Finish<'_>) -> Vec<u8> {
    let bodiless = matches!(response.status, 100..200 | 204 | 304);
    let mut head = String::with_capacity(HEAD_BYTES + if bodiless { 0 } else { response.body.len() });
    head.push_str("HTTP/1.1 ");
    head.push_str(&response.status.to_string());
    head.push(' ');
    head.push_str(reason(response.status));
    head.push_str("\r\n");
    let mut add = |name: &str, value: &str| {
        head.push_str(name);
        head.push_str(": ");
        head.push_str(value);
        head.push_str("\r\n");
    };
    let is_head = finish.method == Some(Method::Head);
    let mut length_given = false;
    for (name, value) in &response.headers {
        let length = name.eq_ignore_ascii_case("content-length");
        // For `HEAD` it tells of the body that `GET` would have; otherwise only the real length may be written.
        if length && !is_head {
            continue;
        }
        length_given |= length;
        add(name, value);
    }
    if !bodiless && !length_given {
        add("Content-Length", &finish.length.to_string());
    }
    add("Server", "Polyshard");
    add("x-ms-request-id", finish.request_id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    if let Some(id) = finish.client_request_id {
        add("x-ms-client-request-id", id);
    }
    add("x-ms-version", &finish.version.to_string());
    add("Date", &finish.now.rfc1123());
    if finish.close {
        add("Connection", "close");
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    if has_body(response.status, finish.method) {
        bytes.extend_from_slice(&response.body);
    }
    bytes
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The reason phrase. Clients show it where there is no body, so it is written for every status the services use.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

//! One request: its head, and its body, whole or in pieces.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::{BodyStream, Headers, Method, RawPath, ServiceError};

/// One request, as the store gets it.
#[derive(Debug)]
pub struct Request {
    /// The verb.
    pub method: Method,
    /// The request target byte for byte, path and query.
    pub target: String,
    /// The path, account included, as it was sent.
    pub path: RawPath,
    /// The query, decoded once, in order.
    pub query: Vec<(String, String)>,
    /// The headers, in order, names as they came.
    pub headers: Headers,
    /// The body, unframed; empty if it comes in pieces.
    pub body: Vec<u8>,
    /// The body in pieces, if [`Service::streams`](crate::Service::streams) asked for it so.
    pub stream: Option<BodyStream>,
    /// The client's address.
    pub peer: SocketAddr,
}

impl Request {
    /// The first query parameter of that name, whose case does not matter, as where it is signed: one that is passed
    /// over (`PeekOnly`) would have the request mean something else. OData's (`$filter`) are compared exactly.
    pub fn query(&self, name: &str) -> Option<&str> {
        let is_odata = name.starts_with('$');
        let is_named = |own: &str| own == name || !is_odata && own.eq_ignore_ascii_case(name);
        self.query.iter().find(|(own, _)| is_named(own)).map(|(_, value)| value.as_str())
    }

    /// The query as it was sent, without its question mark.
    pub fn raw_query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Compares the body with the `Content-MD5` header, if there is one.
    pub fn check_content_md5(&self) -> Result<(), ServiceError> {
        let Some(given) = self.headers.get("content-md5") else { return Ok(()) };
        let invalid =
            || ServiceError::new(400, "InvalidMd5", "The MD5 value specified in the request is invalid.");
        let expected = STANDARD.decode(given).map_err(|_| invalid())?;
        let actual = Md5::digest(&self.body);
        if expected.len() != actual.len() {
            return Err(invalid());
        }
        if expected[..] == actual[..] {
            return Ok(());
        }
        let message = "The MD5 value specified in the request did not match with the MD5 value calculated by the \
                       server.";
        Err(ServiceError::new(400, "Md5Mismatch", message)
            .detail("UserSpecifiedMd5", given)
            .detail("ServerCalculatedMd5", STANDARD.encode(actual)))
    }
}

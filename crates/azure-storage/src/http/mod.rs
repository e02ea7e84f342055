//! HTTP/1.1 as bytes and values: heads parsed, bodies unframed, responses written. Does no I/O.

mod body;
mod chunked;
mod head;
mod headers;
mod limits;
mod method;
mod request;
mod response;
mod target;

pub(crate) use body::{BodySender, PIECE_BYTES_MAX};
pub use body::{BodySource, BodyStream};
pub(crate) use chunked::Chunked;
pub(crate) use head::{Framing, Head, Parsed, parse_head};
pub use headers::Headers;
pub use limits::Limits;
pub use method::Method;
pub use request::Request;
pub use response::Response;
pub(crate) use response::{CONTINUE, Finish, encode, has_body};
pub use target::{RawPath, decode_query, percent_decode};

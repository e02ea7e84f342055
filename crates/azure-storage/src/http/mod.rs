//! HTTP/1.1 as bytes and values: heads parsed, bodies unframed, responses written. Does no I/O.

mod chunked;
mod head;
mod headers;
mod limits;
mod method;
mod request;
mod response;
mod target;

pub(crate) use chunked::Chunked;
pub(crate) use head::{Framing, Head, Parsed, parse_head};
pub use headers::Headers;
pub use limits::Limits;
pub use method::Method;
pub use request::Request;
pub use response::Response;
pub(crate) use response::{CONTINUE, Finish, encode};
pub use target::{RawPath, decode_query, percent_decode};

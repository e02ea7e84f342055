//! Request heads: from bytes to a head, or to the answer that says what is wrong with them.

use std::borrow::Cow;

use crate::http::Limits;
use crate::{Headers, Method, RawPath, ServiceError, decode_query};

/// Headers that there is always room for; no SDK sends more, but for metadata.
const HEADERS_FEW: usize = 32;

/// A request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) path: RawPath,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Headers,
    pub(crate) framing: Framing,
    /// The client waits for leave to send the body.
    pub(crate) expects_continue: bool,
    /// The client wants the connection closed after the response.
    pub(crate) close: bool,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many bytes.
    Length(u64),
    /// Where its chunks end.
    Chunked,
}

/// What some bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The beginning of a head: more must be read.
    Partial,
    /// A head, and how many bytes it took.
    Whole(Box<Head>, usize),
}

/// Parses the head at the start of `bytes`. After an error the connection cannot be used any more: nobody knows where
/// the next request starts.
pub(crate) fn parse_head(bytes: &[u8], limits: &Limits) -> Result<Parsed, ServiceError> {
    let mut few = [httparse::EMPTY_HEADER; HEADERS_FEW];
    let few = &mut few[..limits.headers_max.min(HEADERS_FEW)];
    if let Some(parsed) = parse_within(bytes, limits, few)? {
        return Ok(parsed);
    }
    let mut many = vec![httparse::EMPTY_HEADER; limits.headers_max];
    let too_many = || head_too_large(&format!("it has more than {} headers", limits.headers_max));
    parse_within(bytes, limits, &mut many)?.ok_or_else(too_many)
}

/// The same with so many places for headers; none if there are more of them.
fn parse_within<'b>(
    bytes: &'b [u8],
    limits: &Limits,
    slots: &mut [httparse::Header<'b>],
) -> Result<Option<Parsed>, ServiceError> {
    let mut parsed = httparse::Request::new(slots);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= limits.head_bytes_max => length,
        Ok(httparse::Status::Partial) if bytes.len() <= limits.head_bytes_max => {
            return Ok(Some(Parsed::Partial));
        }
        Ok(_) => return Err(head_too_large(&format!("it is longer than {} bytes", limits.head_bytes_max))),
        Err(httparse::Error::TooManyHeaders) => return Ok(None),
        Err(httparse::Error::Version) => {
            return Err(ServiceError::new(505, "UnsupportedHttpVersion", "Only HTTP/1.1 is spoken here."));
        }
        Err(error) => return Err(bad_request(&format!("this is no HTTP/1.1 request ({error})"))),
    };
    let mut headers = Headers::with_capacity(parsed.headers.len(), length);
    for header in parsed.headers.iter() {
        headers.push(header.name, text(header.value));
    }
    let minor = parsed.version.unwrap_or(1);
    let method = parsed.method.and_then(Method::parse).ok_or_else(ServiceError::unsupported_verb)?;
    let target = origin_form(parsed.path.unwrap_or_default())?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = RawPath::new(path)
        .ok_or_else(|| ServiceError::invalid_uri("the request target must be a path that starts with '/'"))?;
    let hosts = headers.get_all("host").count();
    if hosts > 1 || (hosts == 0 && minor == 1) {
        return Err(bad_request("there must be one Host header"));
    }
    let framing = framing(&headers)?;
    let expects_continue = match headers.get("expect") {
        None => false,
        Some(value) if value.eq_ignore_ascii_case("100-continue") => minor == 1,
        Some(_) => {
            let message = "The only expectation met here is 100-continue.";
            return Err(ServiceError::new(417, "ExpectationFailed", message));
        }
    };
    let head = Head {
        method,
        query: decode_query(query)?,
        path,
        target: target.to_owned(),
        framing,
        expects_continue,
        close: minor == 0 || asks_to_close(&headers),
        headers,
    };
    Ok(Some(Parsed::Whole(Box::new(head), length)))
}

/// The path and query of a target. Proxies send absolute URLs, of which these are the end (RFC 9112, section 3.2.2).
fn origin_form(target: &str) -> Result<&str, ServiceError> {
    let prefix =
        |scheme: &str| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    let Some(scheme) = ["http://", "https://"].into_iter().find(|scheme| prefix(scheme)) else {
        return Ok(target);
    };
    let rest = &target[scheme.len()..];
    // A slash in the query begins no path.
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => Ok(&rest[at..]),
        _ => Err(ServiceError::invalid_uri("the URL has no path")),
    }
}

/// How the body is framed. Whatever could be read in two ways is refused: a proxy in front may have read it in the
/// other one (RFC 9112, section 6.3).
fn framing(headers: &Headers) -> Result<Framing, ServiceError> {
    let codings: Vec<&str> = headers.get_all("transfer-encoding").collect();
    let lengths: Vec<&str> = headers.get_all("content-length").collect();
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(Framing::Length(0)),
        ([], [length]) if is_digits(length) => match length.parse() {
            Ok(length) => Ok(Framing::Length(length)),
            Err(_) => Err(ServiceError::invalid_header("Content-Length", length)),
        },
        ([], [length]) => Err(ServiceError::invalid_header("Content-Length", length)),
        ([], _) => Err(bad_request("there is more than one Content-Length")),
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => Ok(Framing::Chunked),
        (_, []) => {
            Err(ServiceError::new(501, "UnsupportedHeader", "The only transfer coding read here is chunked.")
                .detail("HeaderName", "Transfer-Encoding"))
        }
        _ => Err(bad_request("there are both Content-Length and Transfer-Encoding")),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn asks_to_close(headers: &Headers) -> bool {
    let words = headers.get_all("connection").flat_map(|value| value.split(','));
    words.into_iter().any(|word| word.trim().eq_ignore_ascii_case("close"))
}

/// A header's value: UTF-8 as most clients send it, otherwise ISO 8859-1 as Python's `http.client` does. Either way
/// nothing is lost, and the signature is over the same characters.
fn text(value: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(value) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => value.iter().map(|byte| char::from(*byte)).collect(),
    }
}

fn bad_request(reason: &str) -> ServiceError {
    ServiceError::invalid_input(reason)
}

fn head_too_large(reason: &str) -> ServiceError {
    let message = format!("The head of the request is too large: {reason}.");
    ServiceError::new(431, "RequestHeaderFieldsTooLarge", message)
}

#[cfg(test)]
mod tests {
    use super::{Framing, Head, Parsed, parse_head};
    use crate::{Limits, Method};
    use proptest::prelude::*;

    fn whole(text: &str) -> Head {
        match parse_head(text.as_bytes(), &Limits::default()) {
            Ok(Parsed::Whole(head, length)) => {
                assert_eq!(length, text.len());
                *head
            }
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn refused(text: &str) -> (u16, &'static str) {
        let error = parse_head(text.as_bytes(), &Limits::default()).unwrap_err();
        (error.status(), error.code())
    }

    #[test]
    fn a_head_is_kept_as_it_came() {
        let head = whole(
            "MERGE /acct/t(PartitionKey='a%20b')?x=1%2B1 HTTP/1.1\r\nHost: h\r\nX-Ms-Meta-AbC:  v \r\n\r\n",
        );
        assert_eq!(head.method, Method::Merge);
        assert_eq!(head.target, "/acct/t(PartitionKey='a%20b')?x=1%2B1");
        assert_eq!(head.path.as_str(), "/acct/t(PartitionKey='a%20b')");
        assert_eq!(head.query, [("x".to_owned(), "1+1".to_owned())]);
        assert_eq!(head.headers.iter().nth(1), Some(("X-Ms-Meta-AbC", "v")));
        assert_eq!((head.framing, head.expects_continue, head.close), (Framing::Length(0), false, false));
    }

    #[test]
    fn framing_and_connection_are_understood() {
        let head = whole("PUT http://h:1/a?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assert_eq!((head.framing, head.target.as_str()), (Framing::Chunked, "/a?b"));
        let head = whole("PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\nExpect: 100-Continue\r\n\r\n");
        assert_eq!((head.framing, head.expects_continue), (Framing::Length(12), true));
        assert!(whole("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n").close);
        assert!(whole("GET / HTTP/1.0\r\n\r\n").close);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for headers in [
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: +1",
            "Content-Length: 1, 1",
            "Content-Length: 99999999999999999999",
            "Host: second",
            "A: folded\r\n line",
            "A : spaced",
        ] {
            let text = format!("PUT / HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n");
            assert_eq!(refused(&text).0, 400, "{headers}");
        }
        assert_eq!(refused("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n").0, 501);
        assert_eq!(refused("PUT / HTTP/1.1\r\n\r\n").0, 400);
        assert_eq!(refused("PUT / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n").0, 417);
        assert_eq!(refused("BREW / HTTP/1.1\r\nHost: h\r\n\r\n"), (405, "UnsupportedHttpVerb"));
        for target in ["*", "http://h", "http://h?x=/acct/c/b"] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            assert_eq!(refused(&text), (400, "InvalidUri"), "{target}");
        }
        assert_eq!(refused("GET / HTTP/2.0\r\nHost: h\r\n\r\n").0, 505);
        assert_eq!(refused("\u{16}\u{3}\u{1}\u{2}").0, 400);
    }

    #[test]
    fn long_heads_are_refused_before_they_end() {
        let limits = Limits { head_bytes_max: 64, headers_max: 2, ..Limits::default() };
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100));
        assert_eq!(parse_head(long.as_bytes(), &limits).unwrap_err().status(), 431);
        let many = "GET / HTTP/1.1\r\nHost: h\r\na: 1\r\nb: 2\r\n";
        assert_eq!(parse_head(many.as_bytes(), &limits).unwrap_err().status(), 431);
        assert_eq!(parse_head(b"GET / HT", &limits), Ok(Parsed::Partial));
    }

    #[test]
    fn values_in_iso_8859_1_lose_nothing() {
        let bytes = b"GET / HTTP/1.1\r\nHost: h\r\nx-ms-meta-a: caf\xe9\r\n\r\n";
        let Ok(Parsed::Whole(head, _)) = parse_head(bytes, &Limits::default()) else { panic!("not parsed") };
        assert_eq!(head.headers.get("x-ms-meta-a"), Some("café"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _any = parse_head(&bytes, &Limits::default());
        }

        #[test]
        fn no_almost_right_head_makes_the_parser_panic(
            method in "GET|PUT|[A-Z]{1,9}",
            target in "(http://[a-z]{0,3})?/[ -~]{0,30}",
            headers in proptest::collection::vec(
                "(Host|Content-Length|Expect|Transfer-Encoding|[ -~]{1,9}): ?[ -~]{0,9}",
                0..5,
            ),
        ) {
            let text = format!("{method} {target} HTTP/1.1\r\n{}\r\n\r\n", headers.join("\r\n"));
            let _any = parse_head(text.as_bytes(), &Limits::default());
        }
    }
}

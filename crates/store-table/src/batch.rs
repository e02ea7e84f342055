//! `$batch`: requests inside a request, as `multipart/mixed`, and the answers in the same form.

use polyshard_azure_storage::{Headers, Method, RawPath, Request, Response, decode_query};

/// Parts of a change set that are read at all; more than the service allows, so that it can say so.
const PARTS_MAX: usize = 200;
/// Headers of one part, which are a handful.
const HEADERS_MAX: usize = 32;
/// What is laid ready for each answer; most are shorter.
const ANSWER_BYTES: usize = 768;

/// Why a batch cannot be read; the client must send another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchError {
    /// The outer request says nothing of its parts.
    #[error("the Content-Type of a batch is multipart/mixed; boundary=…")]
    ContentType,
    /// It has far more parts than a change set may have changes.
    #[error("a change set has at most 100 changes")]
    TooManyParts,
    /// A part is not what it must be.
    #[error("{0}")]
    Part(&'static str),
}

/// The requests of a batch.
#[derive(Debug)]
pub(crate) enum Batch<'a> {
    /// Changes that are made together.
    Changes(Vec<Part<'a>>),
    /// One query.
    Query(Part<'a>),
}

/// One request of a batch.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// What the client calls it.
    pub content_id: Option<String>,
    /// All but its body; none if that is, to the letter, as in the part before. Most change sets are many inserts of
    /// one kind: nothing of them but their bodies need be read more than once.
    pub head: Option<Box<PartHead>>,
    /// Its body.
    pub body: &'a [u8],
}

/// A request of a batch without its body.
#[derive(Debug)]
pub(crate) struct PartHead {
    /// Its path after the account.
    pub resource: RawPath,
    /// The request; only its verb, query and headers are its own.
    pub request: Request,
}

/// Reads a batch. `base_path` is the path of the account's URL: `/account`, or nothing where the host names it.
pub(crate) fn parse<'a>(outer: &'a Request, base_path: &'a str) -> Result<Batch<'a>, BatchError> {
    let boundary = outer.headers.get("content-type").and_then(boundary).ok_or(BatchError::ContentType)?;
    let parts = split(&outer.body, &boundary)?;
    let [part] = parts.as_slice() else {
        return Err(BatchError::Part("a batch has one change set or one query"));
    };
    let (headers, content) = split_head(part)?;
    let mut reader = Reader { outer, base_path, last: None };
    match headers.get("content-type").and_then(boundary_if_multipart) {
        Some(Some(boundary)) => {
            let parts = split(content, &boundary)?;
            let parts: Result<_, _> = parts.into_iter().map(|part| reader.part(part)).collect();
            Ok(Batch::Changes(parts?))
        }
        Some(None) => Err(BatchError::Part("the change set has no boundary")),
        None => reader.part(part).map(Batch::Query),
    }
}

/// Reads one part after the other.
struct Reader<'a> {
    outer: &'a Request,
    base_path: &'a str,
    last: Option<Last<'a>>,
}

/// The part before, as far as its body.
struct Last<'a> {
    /// The head of the part.
    outer: &'a [u8],
    outer_id: Option<String>,
    /// The head of the request in it.
    inner: &'a [u8],
    inner_id: Option<String>,
}

impl<'a> Reader<'a> {
    fn part(&mut self, part: &'a [u8]) -> Result<Part<'a>, BatchError> {
        // A head ends with its empty line: what begins with the same bytes has the same head.
        let is_same = |head: &[u8], bytes: &[u8]| ends_with_empty_line(head) && bytes.starts_with(head);
        let last = self.last.take();
        let same_outer = last.as_ref().filter(|last| is_same(last.outer, part));
        let (outer, outer_id, content) = match same_outer {
            Some(last) => (last.outer, last.outer_id.clone(), &part[last.outer.len()..]),
            None => {
                let (headers, content) = split_head(part)?;
                check_content_type(&headers)?;
                let id = headers.get("content-id").map(str::to_owned);
                (&part[..part.len() - content.len()], id, content)
            }
        };
        let (inner, inner_id, head) = match last.filter(|last| is_same(last.inner, content)) {
            Some(last) => (last.inner, last.inner_id, None),
            None => {
                let (head, body) = parse_head(self.outer, self.base_path, content)?;
                let id = head.request.headers.get("content-id").map(str::to_owned);
                (&content[..content.len() - body.len()], id, Some(Box::new(head)))
            }
        };
        let content_id = outer_id.clone().or_else(|| inner_id.clone());
        self.last = Some(Last { outer, outer_id, inner, inner_id });
        Ok(Part { content_id, head, body: content[inner.len()..].trim_ascii_end() })
    }
}

fn boundary_if_multipart(content_type: &str) -> Option<Option<String>> {
    let is_multipart = content_type.trim_start().to_ascii_lowercase().starts_with("multipart/mixed");
    is_multipart.then(|| boundary(content_type))
}

/// The boundary that a content type names; with or without quotes.
fn boundary(content_type: &str) -> Option<String> {
    /// RFC 2046, section 5.1.1.
    const BOUNDARY_CHARS_MAX: usize = 70;
    let mut parts = content_type.split(';');
    parts.next().filter(|kind| kind.trim().eq_ignore_ascii_case("multipart/mixed"))?;
    let mut params = parts.filter_map(|param| param.split_once('='));
    let (_, value) = params.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim().trim_matches('"');
    (1..=BOUNDARY_CHARS_MAX).contains(&value.len()).then(|| value.to_owned())
}

/// The contents between the boundaries. Lines end with CR LF, or with LF alone.
fn split<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<&'a [u8]>, BatchError> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts = Vec::new();
    let mut start = None;
    for at in memchr::memmem::find_iter(body, open.as_bytes()) {
        if at > 0 && body[at - 1] != b'\n' {
            continue;
        }
        let length = memchr::memchr(b'\n', &body[at..]).map_or(body.len() - at, |end| end + 1);
        let line = body[at..at + length].trim_ascii_end();
        let is_close = line == close.as_bytes();
        if is_close || line == open.as_bytes() {
            if let Some(start) = start {
                parts.push(&body[start..at]);
            }
            if is_close {
                return Ok(parts);
            }
            if parts.len() >= PARTS_MAX {
                return Err(BatchError::TooManyParts);
            }
            start = Some(at + length);
        }
    }
    Err(BatchError::Part("a boundary at the end is missing"))
}

/// The headers of a part, and what follows the empty line after them.
fn split_head(part: &[u8]) -> Result<(Headers, &[u8]), BatchError> {
    let mut headers = Headers::new();
    let mut rest = part;
    for _ in 0..=HEADERS_MAX {
        let (line, after) = next_line(rest)?;
        rest = after;
        if line.is_empty() {
            return Ok((headers, rest));
        }
        let (name, value) =
            line.split_once(':').ok_or(BatchError::Part("a part has a header without a colon"))?;
        headers.push(name.trim(), value.trim());
    }
    Err(BatchError::Part("a part has too many headers"))
}

/// Whether a head has its own end, and not only that of its part.
fn ends_with_empty_line(head: &[u8]) -> bool {
    head.ends_with(b"\n\n") || head.ends_with(b"\n\r\n")
}

fn next_line(bytes: &[u8]) -> Result<(&str, &[u8]), BatchError> {
    let (line, rest) = match memchr::memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &bytes[bytes.len()..]),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| BatchError::Part("a part's head is not UTF-8"))?;
    Ok((line, rest))
}

fn check_content_type(head: &Headers) -> Result<(), BatchError> {
    let is_http = head.get("content-type").is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/http"))
    });
    if is_http { Ok(()) } else { Err(BatchError::Part("a part's Content-Type is application/http")) }
}

/// The head of a request inside a part, and its body.
fn parse_head<'a>(
    outer: &Request,
    base_path: &str,
    content: &'a [u8],
) -> Result<(PartHead, &'a [u8]), BatchError> {
    let (line, rest) = next_line(content)?;
    let mut words = line.split_ascii_whitespace();
    let (Some(verb), Some(url), Some(protocol), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(BatchError::Part("a part begins with a verb, a URL and HTTP/1.1"));
    };
    let method = Method::parse(verb).ok_or(BatchError::Part("a part has an unknown verb"))?;
    if !protocol.starts_with("HTTP/1.") {
        return Err(BatchError::Part("a part begins with a verb, a URL and HTTP/1.1"));
    }
    let (headers, body) = split_head(rest)?;
    let target = target(url, base_path).ok_or(BatchError::Part("a part's URL is not one of this account"))?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let resource = RawPath::new(path).ok_or(BatchError::Part("a part's URL is not one of this account"))?;
    let query = decode_query(query).map_err(|_| BatchError::Part("a part's query cannot be decoded"))?;
    let request = Request {
        method,
        target: target.to_owned(),
        path: resource.clone(),
        query,
        headers,
        body: Vec::new(),
        stream: None,
        peer: outer.peer,
    };
    Ok((PartHead { resource, request }, body))
}

/// The part of a URL after the account: with or without scheme and host, which are not compared.
fn target<'a>(url: &'a str, base_path: &str) -> Option<&'a str> {
    let path = match url.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => url,
    };
    match path.strip_prefix(base_path) {
        Some(rest) if rest.starts_with('/') => Some(rest),
        // Within a change set, paths may be given from the account on.
        _ if path.starts_with('/') => Some(path),
        _ => None,
    }
}

/// The answers to a change set, written one after the other.
pub(crate) struct Answers {
    id: uuid::Uuid,
    next: String,
    body: Vec<u8>,
}

impl Answers {
    /// Begins with none, and lays room ready for so many.
    pub fn new(id: uuid::Uuid, count: usize) -> Answers {
        let mut body = Vec::with_capacity((count + 1) * ANSWER_BYTES);
        let open = format!(
            "--batchresponse_{id}\r\nContent-Type: multipart/mixed; boundary=changesetresponse_{id}\r\n\r\n"
        );
        body.extend_from_slice(open.as_bytes());
        Answers { id, next: format!("--changesetresponse_{id}\r\n"), body }
    }

    /// Adds one.
    pub fn push(&mut self, content_id: Option<&str>, response: &Response) {
        self.body.extend_from_slice(self.next.as_bytes());
        write_answer(content_id, response, &mut self.body);
    }

    /// Adds one that is like others but for the entity that it names by this URL.
    pub fn push_alike(&mut self, content_id: Option<&str>, alike: &Alike, url: &str) {
        self.body.extend_from_slice(self.next.as_bytes());
        write_status(content_id, alike.status, &mut self.body);
        for (at, piece) in alike.pieces.iter().enumerate() {
            if at > 0 {
                self.body.extend_from_slice(url.as_bytes());
            }
            self.body.extend_from_slice(piece.as_bytes());
        }
    }

    /// The whole answer.
    pub fn finish(mut self) -> Response {
        let id = self.id;
        let close = format!("--changesetresponse_{id}--\r\n--batchresponse_{id}--\r\n");
        self.body.extend_from_slice(close.as_bytes());
        accepted(id, self.body)
    }
}

/// What answers have in common that differ in the URL of an entity: the text of one before, between and after the
/// places where it has that.
pub(crate) struct Alike {
    status: u16,
    pieces: Vec<String>,
}

impl Alike {
    /// Those that are like an answer without a body, of which this is the URL.
    pub fn new(response: &Response, url: &str) -> Alike {
        debug_assert!(response.body.is_empty());
        let mut pieces = Vec::new();
        let mut piece = String::new();
        for (name, value) in &response.headers {
            piece.push_str(name);
            piece.push_str(": ");
            if value == url {
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece.push_str(value);
            }
            piece.push_str("\r\n");
        }
        piece.push_str("\r\n\r\n");
        pieces.push(piece);
        Alike { status: response.status, pieces }
    }
}

/// The answer to a query.
pub(crate) fn query_response(id: uuid::Uuid, content_id: Option<&str>, answer: &Response) -> Response {
    let mut body = format!("--batchresponse_{id}\r\n").into_bytes();
    write_answer(content_id, answer, &mut body);
    body.extend_from_slice(format!("--batchresponse_{id}--\r\n").as_bytes());
    accepted(id, body)
}

fn accepted(id: uuid::Uuid, body: Vec<u8>) -> Response {
    Response::new(202)
        .header("Cache-Control", "no-cache")
        .header("X-Content-Type-Options", "nosniff")
        .header("Content-Type", format!("multipart/mixed; boundary=batchresponse_{id}"))
        .with_body(body)
}

fn write_answer(content_id: Option<&str>, response: &Response, body: &mut Vec<u8>) {
    write_status(content_id, response.status, body);
    for (name, value) in &response.headers {
        add(body, &[name, ": ", value, "\r\n"]);
    }
    add(body, &["\r\n"]);
    body.extend_from_slice(&response.body);
    body.extend_from_slice(b"\r\n");
}

fn write_status(content_id: Option<&str>, status: u16, body: &mut Vec<u8>) {
    add(body, &["Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 "]);
    add(body, &[&status.to_string(), " ", reason(status), "\r\n"]);
    if let Some(id) = content_id {
        add(body, &["Content-ID: ", id, "\r\n"]);
    }
}

fn add(body: &mut Vec<u8>, words: &[&str]) {
    words.iter().for_each(|word| body.extend_from_slice(word.as_bytes()));
}

/// The reason phrases of what parts are answered with.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests;

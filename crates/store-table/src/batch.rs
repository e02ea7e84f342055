//! `$batch`: requests inside a request, as `multipart/mixed`, and the answers in the same form.

use polyshard_azure_http::{Headers, Method, RawPath, Request, Response, decode_query};

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
    /// A part is not what it must be.
    #[error("{0}")]
    Part(&'static str),
}

/// The requests of a batch.
#[derive(Debug)]
pub(crate) enum Batch {
    /// Changes that are made together.
    Changes(Vec<Part>),
    /// One query.
    Query(Box<Part>),
}

/// One request of a batch.
#[derive(Debug)]
pub(crate) struct Part {
    /// What the client calls it.
    pub content_id: Option<String>,
    /// Its path after the account.
    pub resource: RawPath,
    /// The request; only its verb, query, headers and body are its own.
    pub request: Request,
}

/// Reads a batch. `base_path` is the path of the account's URL: `/account`, or nothing where the host names it.
pub(crate) fn parse(outer: &Request, base_path: &str) -> Result<Batch, BatchError> {
    let boundary = outer.headers.get("content-type").and_then(boundary).ok_or(BatchError::ContentType)?;
    let parts = split(&outer.body, &boundary)?;
    let [part] = parts.as_slice() else {
        return Err(BatchError::Part("a batch has one change set or one query"));
    };
    let (headers, content) = split_head(part)?;
    match headers.get("content-type").and_then(boundary_if_multipart) {
        Some(Some(boundary)) => {
            let parts = split(content, &boundary)?;
            let parts = parts.iter().map(|part| {
                let (headers, content) = split_head(part)?;
                parse_part(outer, base_path, &headers, content)
            });
            Ok(Batch::Changes(parts.collect::<Result<_, _>>()?))
        }
        Some(None) => Err(BatchError::Part("the change set has no boundary")),
        None => parse_part(outer, base_path, &headers, content).map(|part| Batch::Query(Box::new(part))),
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
    let mut at = 0;
    while at < body.len() {
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
                return Err(BatchError::Part("the batch has far too many parts"));
            }
            start = Some(at + length);
        }
        at += length;
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

fn next_line(bytes: &[u8]) -> Result<(&str, &[u8]), BatchError> {
    let (line, rest) = match memchr::memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &bytes[bytes.len()..]),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| BatchError::Part("a part's head is not UTF-8"))?;
    Ok((line, rest))
}

/// A request inside a part.
fn parse_part(outer: &Request, base_path: &str, head: &Headers, content: &[u8]) -> Result<Part, BatchError> {
    let is_http = head.get("content-type").is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/http"))
    });
    if !is_http {
        return Err(BatchError::Part("a part's Content-Type is application/http"));
    }
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
    let content_id = head.get("content-id").or_else(|| headers.get("content-id")).map(str::to_owned);
    let request = Request {
        method,
        target: target.to_owned(),
        path: resource.clone(),
        query,
        headers,
        body: body.trim_ascii_end().to_vec(),
        peer: outer.peer,
    };
    Ok(Part { content_id, resource, request })
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

/// One answer of a batch.
pub(crate) struct Answered {
    /// What the client called the request.
    pub content_id: Option<String>,
    /// The answer.
    pub response: Response,
}

/// The answers to a change set, or the one error that undid it all.
pub(crate) fn changes_response(id: uuid::Uuid, answers: &[Answered]) -> Response {
    let mut body = Vec::with_capacity((answers.len() + 1) * ANSWER_BYTES);
    let open = format!(
        "--batchresponse_{id}\r\nContent-Type: multipart/mixed; boundary=changesetresponse_{id}\r\n\r\n"
    );
    body.extend_from_slice(open.as_bytes());
    let next = format!("--changesetresponse_{id}\r\n");
    for answer in answers {
        body.extend_from_slice(next.as_bytes());
        write_answer(answer, &mut body);
    }
    body.extend_from_slice(format!("--changesetresponse_{id}--\r\n--batchresponse_{id}--\r\n").as_bytes());
    accepted(id, body)
}

/// The answer to a query.
pub(crate) fn query_response(id: uuid::Uuid, answer: &Answered) -> Response {
    let mut body = format!("--batchresponse_{id}\r\n").into_bytes();
    write_answer(answer, &mut body);
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

fn write_answer(answer: &Answered, body: &mut Vec<u8>) {
    let response = &answer.response;
    let mut add = |words: &[&str]| words.iter().for_each(|word| body.extend_from_slice(word.as_bytes()));
    add(&["Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 "]);
    add(&[&response.status.to_string(), " ", reason(response.status), "\r\n"]);
    if let Some(id) = &answer.content_id {
        add(&["Content-ID: ", id, "\r\n"]);
    }
    for (name, value) in &response.headers {
        add(&[name, ": ", value, "\r\n"]);
    }
    add(&["\r\n"]);
    body.extend_from_slice(&response.body);
    body.extend_from_slice(b"\r\n");
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

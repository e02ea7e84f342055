//! A batch: requests inside a request, as `multipart/mixed`, and the answers in the same form.

use polyshard_azure_storage::{
    BodyFormat, Context, Headers, Method, RawPath, Request, Response, ServiceError, decode_query,
};
use uuid::Uuid;

use crate::reply::errors::invalid_input;

/// Parts of a batch: the service's limit.
const PARTS_MAX: usize = 256;
/// Headers of one part, which are a handful.
const HEADERS_MAX: usize = 64;
/// RFC 2046, section 5.1.1.
const BOUNDARY_CHARS_MAX: usize = 70;

/// One request of a batch.
#[derive(Debug)]
pub(crate) struct Part {
    /// What the client calls it.
    pub content_id: Option<String>,
    /// The request; it has no body.
    pub request: Request,
}

/// A part that is no request; the others are carried out all the same.
#[derive(Debug)]
pub(crate) struct Refused {
    /// What the client calls it.
    pub content_id: Option<String>,
    /// What it is answered.
    pub error: ServiceError,
}

/// Reads a batch. An error is about all of it; a part that cannot be read is answered by itself.
pub(crate) fn parse(outer: &Request) -> Result<Vec<Result<Part, Refused>>, ServiceError> {
    let content_type = outer.headers.get("content-type").unwrap_or_default();
    let boundary =
        boundary(content_type).ok_or_else(|| ServiceError::invalid_header("Content-Type", content_type))?;
    let texts = split(&outer.body, &boundary)?;
    if texts.is_empty() {
        return Err(invalid_input("a batch has at least one part"));
    }
    Ok(texts.into_iter().map(|text| part(outer, text)).collect())
}

/// An operation that a batch cannot have.
pub(crate) fn not_allowed() -> ServiceError {
    invalid_input("a part of a batch deletes a blob or sets its tier")
}

/// The boundary that a content type names; with or without quotes.
fn boundary(content_type: &str) -> Option<String> {
    let mut parts = content_type.split(';');
    parts.next().filter(|kind| kind.trim().eq_ignore_ascii_case("multipart/mixed"))?;
    let mut params = parts.filter_map(|param| param.split_once('='));
    let (_, value) = params.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim().trim_matches('"');
    (1..=BOUNDARY_CHARS_MAX).contains(&value.len()).then(|| value.to_owned())
}

/// The texts between the boundaries. Lines end with CR LF, or with LF alone.
fn split<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<&'a str>, ServiceError> {
    let text = std::str::from_utf8(body).map_err(|_| invalid_input("the batch is not UTF-8"))?;
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts = Vec::new();
    let (mut at, mut start) = (0, None);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let content = line.trim_end();
        if content == open || content == close {
            if let Some(start) = start {
                parts.push(&text[start..at]);
            }
            if content == close {
                return Ok(parts);
            }
            if parts.len() >= PARTS_MAX {
                return Err(invalid_input("a batch has at most 256 parts"));
            }
            start = Some(end);
        }
        at = end;
    }
    Err(invalid_input("the boundary at the end of the batch is missing"))
}

fn part(outer: &Request, text: &str) -> Result<Part, Refused> {
    let (headers, rest) =
        head(text).map_err(|error| Refused { content_id: None, error: invalid_input(error) })?;
    let content_id = headers.get("content-id").map(str::to_owned);
    match request(outer, &headers, rest) {
        Ok(request) => Ok(Part { content_id, request }),
        Err(error) => Err(Refused { content_id, error }),
    }
}

fn request(outer: &Request, headers: &Headers, text: &str) -> Result<Request, ServiceError> {
    let kind = headers.get("content-type").unwrap_or_default();
    if !kind.trim().to_ascii_lowercase().starts_with("application/http") {
        return Err(invalid_input("a part of a batch has the content type application/http"));
    }
    let (line, rest) = next_line(text);
    let mut words = line.split(' ').filter(|word| !word.is_empty());
    let method = words.next().and_then(Method::parse).ok_or_else(ServiceError::unsupported_verb)?;
    let target = words.next().ok_or_else(|| invalid_input("a part of a batch has no target"))?;
    // Some clients write the whole URL.
    let target = match target.split_once("://") {
        Some((_, rest)) => rest.find(['/', '?']).map_or("/", |at| &rest[at..]),
        None => target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (headers, _body) = head(rest).map_err(invalid_input)?;
    Ok(Request {
        method,
        target: target.to_owned(),
        path: RawPath::new(path).ok_or_else(|| ServiceError::invalid_uri("it must start with a slash"))?,
        query: decode_query(query)?,
        headers,
        body: Vec::new(),
        stream: None,
        peer: outer.peer,
    })
}

/// The headers of a text, and what follows the empty line after them. The last of them may end the text.
fn head(text: &str) -> Result<(Headers, &str), &'static str> {
    let mut headers = Headers::new();
    let mut rest = text;
    for _ in 0..=HEADERS_MAX {
        let (line, after) = next_line(rest);
        rest = after;
        if line.is_empty() {
            return Ok((headers, rest));
        }
        let (name, value) = line.split_once(':').ok_or("a part of a batch has a header without a colon")?;
        headers.push(name.trim(), value.trim());
    }
    Err("a part of a batch has too many headers")
}

fn next_line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.strip_suffix('\r').unwrap_or(line), rest)
}

/// The answers to the parts, in their order.
pub(crate) struct Answers {
    boundary: String,
    body: String,
    count: usize,
}

impl Answers {
    /// No answer yet. The boundary has to be one that is in none of them.
    pub fn new(id: Uuid) -> Answers {
        Answers { boundary: format!("batchresponse_{}", id.hyphenated()), body: String::new(), count: 0 }
    }

    /// Adds the answer to the next part.
    pub fn push(
        &mut self,
        content_id: Option<&str>,
        answer: Result<Response, ServiceError>,
        context: &Context,
    ) {
        let (response, message) = match answer {
            Ok(response) => (response, String::new()),
            Err(error) => {
                let response = error.to_response(BodyFormat::Xml, context.request_id, context.now);
                let body = String::from_utf8_lossy(&response.body).into_owned();
                (response, body)
            }
        };
        let mut line = |text: &str| {
            self.body.push_str(text);
            self.body.push_str("\r\n");
        };
        line(&format!("--{}", self.boundary));
        line("Content-Type: application/http");
        // A client finds the part again by what it called it, or else by its place.
        line(&format!("Content-ID: {}", content_id.map_or_else(|| self.count.to_string(), clean)));
        line("");
        line(&format!("HTTP/1.1 {} {}", response.status, reason(response.status)));
        for (name, value) in &response.headers {
            line(&format!("{name}: {value}"));
        }
        line(&format!("x-ms-request-id: {}", context.request_id));
        line(&format!("x-ms-version: {}", context.version));
        if !message.is_empty() {
            line(&format!("Content-Length: {}", message.len()));
        }
        line("");
        line(&message);
        self.count += 1;
    }

    /// The answer to the whole batch.
    pub fn finish(mut self) -> Response {
        self.body.push_str(&format!("--{}--\r\n", self.boundary));
        Response::new(202)
            .header("Content-Type", format!("multipart/mixed; boundary={}", self.boundary))
            .with_body(self.body)
    }
}

/// A client's own id, as far as it can be a header.
fn clean(id: &str) -> String {
    id.chars().filter(|char| !char.is_control()).take(128).collect()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "The specified blob does not exist.",
        405 => "Method Not Allowed",
        409 => "Conflict",
        412 => "Precondition Failed",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests;

//! From HTTP to checked values: bodies, paths, queries, If-Match. Every refusal names the field.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::operator::Basis;
use crate::problem::{ErrorCode, Problem};

/// Most bytes of an ordinary body: a change of the 10,000 entries one change may have fits.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes of an imported map: about a million list entries.
pub const IMPORT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A JSON body. The content type is not asked for: `curl -d` sends another, and the token keeps web pages out.
pub(crate) struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Raw(bytes) = Raw::from_request(request, state).await?;
        read_json(&bytes).map(Body)
    }
}

/// A body as it came, within the route's limit.
pub(crate) struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        Bytes::from_request(request, state).await.map(Raw).map_err(|e| {
            if e.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let message = format!(
                    "the body is too large: at most {BODY_BYTES_MAX} bytes, {IMPORT_BYTES_MAX} for an imported map"
                );
                Problem::new(ErrorCode::TooLarge, message).with_remedy("split it into several requests")
            } else {
                Problem::new(ErrorCode::Invalid, "the body ended early")
            }
        })
    }
}

fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde would also take an array of values in the order of the fields, which nobody means.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Problem::new(ErrorCode::Invalid, "the body is not a JSON object")
            .with_remedy("see /v1/openapi.json for the fields and their types"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        let problem = Problem::new(ErrorCode::Invalid, format!("the body is not as expected: {}", e.inner()))
            .with_remedy("see /v1/openapi.json for the fields and their types");
        // '.' is the whole body, '?' a place whose name was not read yet.
        if path == "." || path.starts_with('?') { problem } else { problem.with_field(path) }
    })?;
    json.end().map_err(|_| Problem::new(ErrorCode::Invalid, "the body goes on after the JSON value"))?;
    Ok(value)
}

/// The query string.
pub(crate) struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let Query(params) = Query::<T>::try_from_uri(&parts.uri).map_err(|e| {
            Problem::invalid("query", format!("the query string is not as expected: {}", inmost(&e)))
        })?;
        Ok(Params(params))
    }
}

/// What a chain of errors began with: the words that name the field, without the framework's around them.
fn inmost(error: &dyn std::error::Error) -> String {
    let mut inmost = error;
    while let Some(source) = inmost.source() {
        inmost = source;
    }
    inmost.to_string()
}

/// A checked name from the path.
pub(crate) struct Named<T>(pub T);

impl<S, T> FromRequestParts<S> for Named<T>
where
    S: Send + Sync,
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|e| Problem::invalid("path", e.body_text()))?;
        text.parse().map(Named).map_err(|e: T::Err| Problem::invalid("path", e.to_string()))
    }
}

/// What If-Match asks for: `"<version>"`, `*` or nothing.
pub(crate) struct IfMatch(pub Basis);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all(IF_MATCH).iter();
        let Some(value) = values.next() else { return Ok(IfMatch(Basis::Current)) };
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" && values.next().is_none() {
            return Ok(IfMatch(Basis::Current));
        }
        let version = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).and_then(|t| t.parse().ok());
        match (version, values.next()) {
            (Some(version), None) => Ok(IfMatch(Basis::Version(version))),
            _ => Err(Problem::invalid("If-Match", "If-Match is not one version in quotes")
                .with_remedy("send the ETag of the last answer, for example If-Match: \"7\"")),
        }
    }
}

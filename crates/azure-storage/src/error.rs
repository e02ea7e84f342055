//! Errors as the Azure Storage clients read them: a status, a code in a header, and a body in XML or JSON.

use uuid::Uuid;

use crate::xml::Writer;
use crate::{Headers, Response, StoreKind, Timestamp};

/// An error a client is told about. Its code is one that the SDKs know; its message names the thing and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceError {
    status: u16,
    code: &'static str,
    message: String,
    details: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
}

/// How an error's body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFormat {
    /// `<Error>`, as blobs and queues have it, and tables where the client does not ask for JSON.
    Xml,
    /// `odata.error`, as tables have it.
    Json,
}

impl BodyFormat {
    /// What a client of this kind of store can read, by its `Accept` header and, for tables, `$format`.
    pub fn of(kind: StoreKind, headers: &Headers, query: &[(String, String)]) -> BodyFormat {
        let asked = query.iter().find(|(name, _)| name == "$format").map(|(_, value)| value.as_str());
        let asked = asked.or_else(|| headers.get("accept")).unwrap_or_default().to_ascii_lowercase();
        // Requests on a table's access policies and on the service's properties are in XML even for tables.
        if kind == StoreKind::Table && (asked.contains("json") || !asked.contains("xml")) {
            BodyFormat::Json
        } else {
            BodyFormat::Xml
        }
    }
}

impl ServiceError {
    /// An error with its HTTP status, the service's code and a message.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> ServiceError {
        assert!((300..600).contains(&status), "an error has a status of 3xx, 4xx or 5xx");
        ServiceError { status, code, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    /// Adds an element beside code and message, such as `AuthenticationErrorDetail`.
    pub fn detail(mut self, name: &'static str, value: impl Into<String>) -> ServiceError {
        self.details.push((name, value.into()));
        self
    }

    /// Adds a header to the response, such as `Retry-After`.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> ServiceError {
        self.headers.push((name, value.into()));
        self
    }

    /// The names of the headers that were added.
    pub(crate) fn header_names(&self) -> impl Iterator<Item = &'static str> {
        self.headers.iter().map(|(name, _)| *name)
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The service's code, such as `ResourceNotFound`.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The message, without request id and time.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why it is so in this case, where the message is the service's own.
    pub fn reason(&self) -> Option<&str> {
        self.details.iter().find(|(name, _)| *name == REASON).map(|(_, value)| value.as_str())
    }

    /// Says why it is so in this case, and what to do: beside the message, which is the service's own to the letter,
    /// since SDKs and their users compare it.
    pub fn because(self, reason: impl Into<String>) -> ServiceError {
        self.detail(REASON, reason)
    }

    /// The same error with another message, as an entity group transaction puts the operation's number before it.
    pub fn with_message(mut self, message: impl Into<String>) -> ServiceError {
        self.message = message.into();
        self
    }

    /// The whole response. For a `HEAD` request the writer leaves out the body; the code is always in a header.
    pub fn to_response(&self, format: BodyFormat, request_id: Uuid, now: Timestamp) -> Response {
        let mut response = Response::new(self.status).header("x-ms-error-code", self.code);
        for (name, value) in &self.headers {
            response = response.header(*name, value.clone());
        }
        // A 304 has no body, and so no type of one.
        if self.status == 304 {
            return response;
        }
        let (content_type, body) = self.body(format, request_id, now);
        response.header("Content-Type", content_type).with_body(body)
    }

    /// The body and its content type; also what a part of a `$batch` answer holds.
    pub fn body(&self, format: BodyFormat, request_id: Uuid, now: Timestamp) -> (&'static str, Vec<u8>) {
        let tail = format!("RequestId:{request_id}\nTime:{now}");
        match format {
            BodyFormat::Xml => {
                let mut xml = Writer::document();
                xml.open("Error");
                xml.element("Code", self.code);
                xml.element("Message", &format!("{}\n{tail}", self.message));
                for (name, value) in &self.details {
                    xml.element(name, value);
                }
                xml.close("Error");
                ("application/xml", xml.finish().into_bytes())
            }
            BodyFormat::Json => {
                // The SDKs read nothing but code and message here, so the details go into the message.
                let mut message = self.message.clone();
                for (name, value) in &self.details {
                    message.push_str(&format!("\n{name}:{value}"));
                }
                let value = serde_json::json!({"odata.error": {
                    "code": self.code,
                    "message": {"lang": "en-US", "value": format!("{message}\n{tail}")},
                }});
                (
                    "application/json;odata=minimalmetadata;streaming=true;charset=utf-8",
                    value.to_string().into_bytes(),
                )
            }
        }
    }
}

/// The element that says why.
const REASON: &str = "Reason";

/// The errors that every store needs, in the service's own words.
impl ServiceError {
    /// The signature, or what it covers, is not right: the client must sign with the account's key.
    pub fn authentication_failed(detail: impl Into<String>) -> ServiceError {
        let message = "Server failed to authenticate the request. Make sure the value of Authorization header is \
                       formed correctly including the signature.";
        ServiceError::new(403, "AuthenticationFailed", message).detail("AuthenticationErrorDetail", detail)
    }

    /// A header is not what it must be.
    pub fn invalid_header(name: &str, value: &str) -> ServiceError {
        let message = "The value for one of the HTTP headers is not in the correct format.";
        ServiceError::new(400, "InvalidHeaderValue", message)
            .detail("HeaderName", name)
            .detail("HeaderValue", shortened(value))
    }

    /// A header that the operation needs is not there.
    pub fn missing_header(name: &str) -> ServiceError {
        let message = "An HTTP header that's mandatory for this request is not specified.";
        ServiceError::new(400, "MissingRequiredHeader", message).detail("HeaderName", name)
    }

    /// A query parameter is not what it must be; `reason` says what it must be.
    pub fn invalid_query(name: &str, value: &str, reason: &str) -> ServiceError {
        let message = "Value for one of the query parameters specified in the request URI is invalid.";
        ServiceError::new(400, "InvalidQueryParameterValue", message)
            .detail("QueryParameterName", name)
            .detail("QueryParameterValue", shortened(value))
            .because(reason)
    }

    /// Something in the request is not what it must be; `reason` says what.
    pub fn invalid_input(reason: impl Into<String>) -> ServiceError {
        ServiceError::new(400, "InvalidInput", "One of the request inputs is not valid.").because(reason)
    }

    /// The request's URL names nothing.
    pub fn invalid_uri(reason: &str) -> ServiceError {
        let message = "The requested URI does not represent any resource on the server.";
        ServiceError::new(400, "InvalidUri", message).because(reason)
    }

    /// The body is not the XML it must be.
    pub fn invalid_xml(reason: &str) -> ServiceError {
        let message = "XML specified is not syntactically valid.";
        ServiceError::new(400, "InvalidXmlDocument", message).because(reason)
    }

    /// The body is longer than the door reads.
    pub fn body_too_large(bytes_max: u64) -> ServiceError {
        let message = "The request body is too large and exceeds the maximum permissible limit.";
        ServiceError::new(413, "RequestBodyTooLarge", message).detail("MaxLimit", bytes_max.to_string())
    }

    /// A request to the secondary endpoint that would write.
    pub(crate) fn secondary_is_read_only() -> ServiceError {
        ServiceError::new(403, "InsufficientAccountPermissions", "Write operations are not allowed.")
            .because("the secondary endpoint is for reading; use the primary one")
    }

    /// A resource's name is too short or too long; `reason` says how long it may be.
    pub fn name_length(reason: impl Into<String>) -> ServiceError {
        let message = "The specified resource name length is not within the permissible limits.";
        ServiceError::new(400, "OutOfRangeInput", message).because(reason)
    }

    /// A resource's name has characters that no such name has; `reason` says which it may have.
    pub fn name_characters(reason: impl Into<String>) -> ServiceError {
        let message = "The specified resource name contains invalid characters.";
        ServiceError::new(400, "InvalidResourceName", message).because(reason)
    }

    /// The body is in chunks, and these are malformed.
    pub(crate) fn bad_chunks() -> ServiceError {
        ServiceError::invalid_input("the body's chunks are malformed")
    }

    /// The client closed the connection or stopped sending in the middle of the body, so that this is for the log.
    pub(crate) fn body_cut_off() -> ServiceError {
        ServiceError::invalid_input("the body ended too early, or came too slowly")
    }

    /// A verb that the resource does not know.
    pub fn unsupported_verb() -> ServiceError {
        ServiceError::new(405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.")
    }

    /// Something that is our fault; what it was is in the log, under the request's id.
    pub fn internal() -> ServiceError {
        let message = "Server encountered an internal error. Please try again after some time.";
        ServiceError::new(500, "InternalError", message)
    }

    /// Not now: the client should try again after a while, as the SDKs do by themselves.
    pub fn server_busy(reason: &str) -> ServiceError {
        ServiceError::new(
            503,
            "ServerBusy",
            format!("The server is currently unable to receive requests: {reason}"),
        )
        .header("Retry-After", "1")
    }

    /// It took too long, or its end is unknown: the SDKs do not send it again by themselves.
    pub fn timed_out(why: &str) -> ServiceError {
        let message = format!("The operation could not be completed within the permitted time. {why}");
        ServiceError::new(500, "OperationTimedOut", message)
    }

    /// More requests than a quota allows. The SDKs wait for as long as they are told, in whole seconds.
    pub fn too_many(reason: &str, after: std::time::Duration) -> ServiceError {
        let seconds = after.as_millis().div_ceil(1_000).max(1).to_string();
        let message = format!("Too many requests: {reason}");
        ServiceError::new(503, "ServerBusy", message).header("Retry-After", seconds)
    }
}

/// The client's own value, as far as it helps to recognise it.
fn shortened(value: &str) -> String {
    /// Enough for any name, and too little to make error bodies a burden.
    const SHOWN_CHARS_MAX: usize = 256;
    value.chars().take(SHOWN_CHARS_MAX).collect()
}

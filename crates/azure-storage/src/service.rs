//! The boundary between this crate and a store: what the store is given with a request, and what it gives back.

use std::future::Future;
use std::pin::Pin;

use uuid::Uuid;

use crate::{
    AccountName, ApiVersion, Identity, Policies, RawPath, Request, Response, ServiceError, Timestamp,
};

/// What a store gives back for a request. An error is written as the store's clients expect it.
pub type Answer<'a, T = Response> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// A store behind a door.
pub trait Service: Policies {
    /// Which of the three protocols it speaks: this decides how requests are signed and errors written.
    fn kind(&self) -> StoreKind;

    /// Whether the body of this request is handed over in pieces, as [`Request::stream`], instead of being read whole
    /// into [`Request::body`]. Asked once the request is authenticated, before its body is read.
    fn streams(&self, head: &Request) -> bool {
        let _whole = head;
        false
    }

    /// Carries out one request. It has been authenticated, but for a shared access signature (and for an anonymous
    /// request) the store still has to ask [`Identity::require`] with the operation it recognised.
    fn call(&self, context: Context, request: Request) -> Answer<'_>;
}

/// Clock and randomness, passed in so that this crate reads neither.
pub trait Surroundings: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
    /// A new random id for a request.
    fn request_id(&self) -> Uuid;
}

/// The three protocols of Azure Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreKind {
    /// Containers and blobs.
    Blob,
    /// Queues of messages.
    Queue,
    /// Tables of entities.
    Table,
}

impl StoreKind {
    /// The word for it in host names and in signatures: `blob`, `queue`, `table`.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreKind::Blob => "blob",
            StoreKind::Queue => "queue",
            StoreKind::Table => "table",
        }
    }

    /// Its letter in the signed services (`ss`) of an account SAS.
    pub fn letter(self) -> char {
        match self {
            StoreKind::Blob => 'b',
            StoreKind::Queue => 'q',
            StoreKind::Table => 't',
        }
    }
}

/// Which of an account's two endpoints was addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The account itself.
    Primary,
    /// Its read-only replica, `{account}-secondary`. Requests that write were refused before they got here.
    Secondary,
}

/// How the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain.
    Http,
    /// Inside TLS.
    Https,
}

impl Scheme {
    /// As at the start of a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// All a store needs to know of a request besides the request.
#[derive(Clone, Debug)]
pub struct Context {
    /// The id the client is told in `x-ms-request-id`; for logs.
    pub request_id: Uuid,
    /// The account addressed; it is configured.
    pub account: AccountName,
    /// Who asks.
    pub identity: Identity,
    /// The path after the account, still percent-encoded: `/` or `/queue/messages`.
    pub resource: RawPath,
    /// The version of the protocol the client speaks.
    pub version: ApiVersion,
    /// Which endpoint was addressed.
    pub endpoint: Endpoint,
    /// When the request came.
    pub now: Timestamp,
    /// How it came.
    pub scheme: Scheme,
    /// The account's URL as the client wrote it, without a slash at the end: `http://127.0.0.1:10002/devstoreaccount1`.
    pub base_url: String,
}

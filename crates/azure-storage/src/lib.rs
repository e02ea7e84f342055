//! What the Azure Storage doors share: HTTP/1.1, SharedKey and SAS, versions, dates and error bodies. Knows no store.
//!
//! A store implements [`Service`] and is served by [`serve`]. Before a request reaches it, the request has been read
//! within [`Limits`], its account found, its signature checked; the store gets a [`Context`] and a [`Request`], asks
//! [`Identity::require`] whether a shared access signature allows the operation, and answers with a [`Response`] or a
//! [`ServiceError`]. Request ids, versions, dates, lengths and the error's body are written here.

mod account;
mod acl;
mod admission;
mod auth;
mod connection;
mod cors;
mod date;
mod error;
mod failure;
mod family;
mod http;
mod properties;
mod serve;
mod service;
mod stream;
mod version;
pub mod xml;

pub use account::{
    AccountError, AccountKey, AccountKeys, AccountName, Accounts, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY,
};
pub use acl::{POLICIES_MAX, POLICY_ID_CHARS_MAX, Policies, StoredPolicy, parse_policies, write_policies};
pub use admission::Admission;
pub use auth::{
    CLOCK_SKEW_MAX_S, Identity, Need, ResourceType, ResponseOverrides, Sas, SasOperation, TableKeyRange,
};
pub use date::{TICKS_PER_SECOND, Timestamp};
pub use error::{BodyFormat, ServiceError};
pub use failure::failure;
pub use family::{FAMILY, handler, resolve_accounts};
pub use http::{
    BodySource, BodyStream, Headers, Limits, Method, RawPath, Request, Response, decode_query, percent_decode,
};
pub use properties::{CorsRule, Logging, Metrics, PropertiesPatch, ServiceProperties};
pub use serve::{Door, TlsError, Transport, serve};
pub use service::{Answer, Context, Endpoint, Scheme, Service, StoreKind, Surroundings};
pub use version::{API_VERSION_DEFAULT, API_VERSION_MIN, ApiVersion};

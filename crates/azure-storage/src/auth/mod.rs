//! Who asks: the account of a request found, and its signature checked. Reads no clock and does no I/O of its own.

mod collation;
mod identity;
mod locate;
mod sas;
mod sas_layout;
mod shared_key;
mod signed_blob;

pub(crate) use identity::SasScope;
pub use identity::{Identity, Need, ResourceType, ResponseOverrides, Sas, SasOperation, TableKeyRange};
pub(crate) use locate::{Located, Reading, locate};

use crate::{
    API_VERSION_DEFAULT, AccountKeys, ApiVersion, Method, Policies, RawPath, Request, Scheme, ServiceError,
    StoreKind, Timestamp,
};

/// How far a client's clock may be from ours in a signed request: the service's own limit.
pub const CLOCK_SKEW_MAX_S: u64 = 15 * 60;

/// What a request is checked against.
pub(crate) struct Check<'a> {
    pub(crate) kind: StoreKind,
    pub(crate) located: &'a Located,
    pub(crate) keys: &'a AccountKeys,
    pub(crate) version: ApiVersion,
    pub(crate) scheme: Scheme,
    pub(crate) now: Timestamp,
}

/// The version a request is in: its header's, its query's, that of its shared access signature, or the default.
pub(crate) fn version(request: &Request) -> Result<ApiVersion, ServiceError> {
    if let Some(text) = request.headers.get("x-ms-version") {
        return ApiVersion::parse(text).ok_or_else(|| ServiceError::invalid_header("x-ms-version", text));
    }
    let Some(text) = request.query("api-version").or_else(|| request.query("sv")) else {
        return Ok(API_VERSION_DEFAULT);
    };
    let reason = "it must be a date from 2009-09-19 on, as YYYY-MM-DD";
    ApiVersion::parse(text).ok_or_else(|| ServiceError::invalid_query("sv", text, reason))
}

/// Finds out who asks, and for which resource. The body need not be there yet: no signature covers it.
pub(crate) async fn authenticate<P: Policies + ?Sized>(
    check: &Check<'_>,
    request: &Request,
    policies: &P,
) -> Result<(Identity, RawPath), ServiceError> {
    if let Some(authorization) = request.headers.get("authorization") {
        let resource = shared_key::verify(check, request, authorization)?;
        return Ok((Identity::SharedKey, resource));
    }
    // Browsers ask about other origins without credentials, though with the whole URL.
    if request.method != Method::Options && request.query("sig").is_some() {
        // Which of them counts could be read in two ways.
        if request.query.iter().filter(|(name, _)| name.eq_ignore_ascii_case("sig")).count() > 1 {
            return Err(sas::refused("it has more than one sig"));
        }
        let sas = sas::verify(check, request, policies).await?;
        return Ok((Identity::Sas(sas), check.located.resource.clone()));
    }
    let open = match check.kind {
        StoreKind::Blob => request.method.is_read(),
        StoreKind::Queue | StoreKind::Table => request.method == Method::Options,
    };
    // Refused here, so that nobody without credentials makes us keep a large body, or finds a store that forgot to ask.
    if !open {
        return Err(identity::no_credentials());
    }
    Ok((Identity::Anonymous, check.located.resource.clone()))
}

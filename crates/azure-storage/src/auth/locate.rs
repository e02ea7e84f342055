//! Which account and resource a request is for: by its path, or by the name of the host.

use std::net::IpAddr;

use crate::{
    AccountKeys, AccountName, Accounts, Endpoint, RawPath, Request, Scheme, ServiceError, StoreKind,
};

const SECONDARY: &str = "-secondary";

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) account: AccountName,
    pub(crate) endpoint: Endpoint,
    /// The path after the account.
    pub(crate) resource: RawPath,
    /// What the client may have signed, as sent first.
    pub(crate) readings: Vec<Reading>,
    pub(crate) base_url: String,
}

/// A path that a client may have signed, and the resource that it then means.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) signed_path: String,
    pub(crate) resource: RawPath,
}

/// Finds the account in `{account}.table.host` if the host's name is so, otherwise in `/{account}/…`.
pub(crate) fn locate<'a>(
    kind: StoreKind,
    accounts: &'a Accounts,
    scheme: Scheme,
    request: &Request,
) -> Result<(Located, &'a AccountKeys), ServiceError> {
    let host = request.headers.get("host").unwrap_or_default();
    if let Some(label) = account_label(kind, host)
        && let Some((account, endpoint, keys)) = find(accounts, label)
    {
        let located = Located {
            account: account.clone(),
            endpoint,
            resource: request.path.clone(),
            readings: vec![Reading {
                signed_path: request.path.as_str().to_owned(),
                resource: request.path.clone(),
            }],
            base_url: format!("{}://{host}", scheme.as_str()),
        };
        return Ok((located, keys));
    }
    let (first, resource) = request.path.split_first();
    if first.is_empty() {
        let reason = "it names no storage account; the path must start with '/{account}/'";
        return Err(ServiceError::invalid_uri(reason));
    }
    let Some((account, endpoint, keys)) = find(accounts, first) else {
        let message = "The specified resource does not exist: the storage account in the URL is not served here. Check \
                       its name, or configure it.";
        return Err(ServiceError::new(404, "ResourceNotFound", message));
    };
    let mut readings = vec![reading(request.path.as_str(), &resource)];
    if endpoint == Endpoint::Secondary {
        readings.extend(secondary_readings(account, &resource));
    }
    let base_url = format!("{}://{host}/{first}", scheme.as_str());
    Ok((Located { account: account.clone(), endpoint, resource, readings, base_url }, keys))
}

fn reading(signed_path: &str, resource: &RawPath) -> Reading {
    Reading { signed_path: signed_path.to_owned(), resource: resource.clone() }
}

/// On a secondary endpoint some clients sign the primary's path. Those for Python moreover put the secondary's URL in
/// front of a path that has the account already, `/{account}-secondary/{account}/…`, and sign that path alone. A
/// table may be called like the account, so only the signature tells which is meant.
fn secondary_readings(account: &AccountName, resource: &RawPath) -> Vec<Reading> {
    let mut readings = vec![reading(&format!("/{account}{}", resource.as_str()), resource)];
    let (first, rest) = resource.split_first();
    if first == account.as_str() {
        readings.push(reading(resource.as_str(), &rest));
    }
    readings
}

/// The first label of a host name like `{account}.table.localhost:10002`.
fn account_label(kind: StoreKind, host: &str) -> Option<&str> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    if name.parse::<IpAddr>().is_ok() {
        return None;
    }
    let (label, rest) = name.split_once('.')?;
    let (service, _) = rest.split_once('.')?;
    service.eq_ignore_ascii_case(kind.as_str()).then_some(label)
}

/// The account of that name, with or without `-secondary`.
fn find<'a>(accounts: &'a Accounts, name: &str) -> Option<(&'a AccountName, Endpoint, &'a AccountKeys)> {
    if let Some((account, keys)) = accounts.get(name) {
        return Some((account, Endpoint::Primary, keys));
    }
    let (account, keys) = accounts.get(name.strip_suffix(SECONDARY)?)?;
    Some((account, Endpoint::Secondary, keys))
}

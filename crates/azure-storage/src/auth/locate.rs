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
        let message = "The specified resource does not exist.";
        let reason = "the storage account in the URL is not served here; check its name, or configure it";
        return Err(ServiceError::new(404, "ResourceNotFound", message).because(reason));
    };
    let mut readings = vec![reading(request.path.as_str(), &resource)];
    if endpoint == Endpoint::Secondary {
        readings.extend(secondary_readings(account, &resource));
    }
    let mut resource = resource;
    if let Some(inner) =
        without_account(kind, account, &resource, request).filter(|_| endpoint == Endpoint::Secondary)
    {
        readings.iter_mut().for_each(|reading| reading.resource = inner.clone());
        resource = inner;
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

/// The resource of `/{account}-secondary/{account}/…` where that cannot mean a table, queue or container with the name
/// of the account: some clients sign the path as they send it, so that the signature does not tell.
fn without_account(
    kind: StoreKind,
    account: &AccountName,
    resource: &RawPath,
    request: &Request,
) -> Option<RawPath> {
    let (first, rest) = resource.split_first();
    if first != account.as_str() {
        return None;
    }
    let restype = request.query("restype");
    let (second, third) = rest.split_first();
    let of_service = restype == Some("service") || restype.is_none() && request.query("comp") == Some("list");
    let is_inner = match kind {
        _ if second.is_empty() => of_service,
        StoreKind::Table => true,
        StoreKind::Queue => second != "messages",
        // A blob in a container called like the account could be meant, but hardly is.
        StoreKind::Blob => restype == Some("container") || third.as_str() != "/",
    };
    is_inner.then_some(rest)
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

#[cfg(test)]
mod tests {
    use super::{locate, without_account};
    use crate::{
        AccountName, Accounts, Endpoint, Headers, Method, RawPath, Request, Scheme, StoreKind, decode_query,
    };

    fn request(target: &str) -> Request {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Headers::new();
        headers.push("Host", "h");
        Request {
            method: Method::Get,
            target: target.to_owned(),
            path: RawPath::new(path).unwrap(),
            query: decode_query(query).unwrap(),
            headers,
            body: Vec::new(),
            stream: None,
            peer: ([127, 0, 0, 1], 1).into(),
        }
    }

    #[test]
    fn an_account_that_is_twice_in_the_path_is_passed_over() {
        use StoreKind::{Blob, Queue, Table};
        let account = AccountName::new("acct").unwrap();
        for (kind, target, expected) in [
            (Queue, "/acct/?restype=service&comp=stats", Some("/")),
            (Queue, "/acct?comp=list", Some("/")),
            (Queue, "/acct/jobs?comp=metadata", Some("/jobs")),
            (Queue, "/acct/jobs/messages", Some("/jobs/messages")),
            (Queue, "/acct?comp=metadata", None),
            (Queue, "/acct/messages?peekonly=true", None),
            (Queue, "/jobs/messages", None),
            (Table, "/acct/?restype=service&comp=stats", Some("/")),
            (Table, "/acct/Tables", Some("/Tables")),
            (Table, "/acct", None),
            (Blob, "/acct/?comp=list", Some("/")),
            (Blob, "/acct/c?restype=container&comp=list", Some("/c")),
            (Blob, "/acct/c/d/b", Some("/c/d/b")),
            (Blob, "/acct/b", None),
            (Blob, "/acct?restype=container&comp=list", None),
        ] {
            let request = request(target);
            let found = without_account(kind, &account, &request.path, &request);
            assert_eq!(found.as_ref().map(RawPath::as_str), expected, "{kind:?} {target}");
        }
    }

    #[test]
    fn on_the_primary_endpoint_nothing_is_passed_over() {
        let accounts = Accounts::development();
        for (target, resource, endpoint) in [
            ("/devstoreaccount1/devstoreaccount1/c/b", "/devstoreaccount1/c/b", Endpoint::Primary),
            ("/devstoreaccount1-secondary/devstoreaccount1/c/b", "/c/b", Endpoint::Secondary),
        ] {
            let (located, _) = locate(StoreKind::Blob, &accounts, Scheme::Http, &request(target)).unwrap();
            assert_eq!((located.resource.as_str(), located.endpoint), (resource, endpoint));
        }
    }
}

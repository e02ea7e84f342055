//! Requests that come inside another one, such as the parts of a batch and the source of a copy: each is authorised by
//! itself, as if it had come alone.

use std::sync::Arc;

use crate::auth::{Check, Located, Reading, authenticate};
use crate::{Accounts, Context, Policies, RawPath, Request, ServiceError, StoreKind};

/// Decides about requests inside others, with the accounts of the door that these came through.
#[derive(Clone, Debug)]
pub struct Admission {
    kind: StoreKind,
    accounts: Arc<Accounts>,
}

impl Admission {
    /// With the accounts of a door.
    pub fn new(kind: StoreKind, accounts: Arc<Accounts>) -> Admission {
        Admission { kind, accounts }
    }

    /// Authorises a part of a request for the same account. If the path of the whole request names the account, that of
    /// the part begins with it or does not: clients differ, and sign what they send. If the host names the account, the
    /// first segment is always a container, even if it is called like the account.
    pub async fn part<P: Policies + ?Sized>(
        &self,
        outer: &Context,
        request: &Request,
        policies: &P,
    ) -> Result<Context, ServiceError> {
        let (first, rest) = request.path.split_first();
        let mut refused = None;
        if first == outer.account.as_str() && is_path_style(outer) {
            match self.admit(outer, request, rest, policies).await {
                Err(error) => refused = Some(error),
                admitted => return admitted,
            }
        }
        let whole = self.admit(outer, request, request.path.clone(), policies).await;
        whole.map_err(|error| refused.unwrap_or(error))
    }

    /// Authorises a read of a resource of any account that is served here.
    pub async fn source<P: Policies + ?Sized>(
        &self,
        outer: &Context,
        account: &str,
        request: &Request,
        resource: RawPath,
        policies: &P,
    ) -> Result<Context, ServiceError> {
        let Some((account, _)) = self.accounts.get(account) else {
            let message =
                "The specified resource does not exist: the storage account in the URL is not served here.";
            return Err(ServiceError::new(404, "ResourceNotFound", message));
        };
        let of_account = Context { account: account.clone(), ..outer.clone() };
        self.admit(&of_account, request, resource, policies).await
    }

    async fn admit<P: Policies + ?Sized>(
        &self,
        outer: &Context,
        request: &Request,
        resource: RawPath,
        policies: &P,
    ) -> Result<Context, ServiceError> {
        let Some((account, keys)) = self.accounts.get(outer.account.as_str()) else {
            return Err(ServiceError::authentication_failed("The account is not served here any more."));
        };
        let reading = Reading { signed_path: request.path.as_str().to_owned(), resource: resource.clone() };
        let located = Located {
            account: account.clone(),
            endpoint: outer.endpoint,
            resource,
            readings: vec![reading],
            base_url: outer.base_url.clone(),
        };
        let (version, scheme, now) = (outer.version, outer.scheme, outer.now);
        let check = Check { kind: self.kind, located: &located, keys, version, scheme, now };
        let (identity, resource) = authenticate(&check, request, policies).await?;
        Ok(Context { identity, resource, ..outer.clone() })
    }
}

/// Whether the path of a request named the account, and not its host.
fn is_path_style(context: &Context) -> bool {
    context.base_url.split_once("://").is_some_and(|(_, rest)| rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AccountKey, AccountName, Answer, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Endpoint, Headers, Identity,
        Method, Scheme, StoredPolicy, Timestamp,
    };

    struct NoPolicies;

    impl Policies for NoPolicies {
        fn policies<'a>(&'a self, _: &'a AccountName, _: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    /// The resource of a part with this path, in a request to this URL.
    async fn resource(base_url: &str, path: &str) -> String {
        let date = "Thu, 01 Jan 1970 00:00:00 GMT";
        let key = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap();
        let text = format!("DELETE\n\n\n\nx-ms-date:{date}\n/{DEVELOPMENT_ACCOUNT}{path}");
        let mut headers = Headers::new();
        headers.push("x-ms-date", date);
        headers.push("Authorization", format!("SharedKeyLite {DEVELOPMENT_ACCOUNT}:{}", key.sign(&text)));
        let part = Request {
            method: Method::Delete,
            target: path.to_owned(),
            path: RawPath::new(path).unwrap(),
            query: Vec::new(),
            headers,
            body: Vec::new(),
            stream: None,
            peer: ([127, 0, 0, 1], 1).into(),
        };
        let outer = Context {
            request_id: uuid::Uuid::nil(),
            account: AccountName::new(DEVELOPMENT_ACCOUNT).unwrap(),
            identity: Identity::SharedKey,
            resource: RawPath::new("/").unwrap(),
            version: crate::API_VERSION_DEFAULT,
            endpoint: Endpoint::Primary,
            now: Timestamp::from_ticks(0).unwrap(),
            scheme: Scheme::Http,
            base_url: base_url.to_owned(),
        };
        let admission = Admission::new(StoreKind::Blob, Arc::new(Accounts::development()));
        let admitted = admission.part(&outer, &part, &NoPolicies).await.unwrap();
        admitted.resource.as_str().to_owned()
    }

    #[tokio::test]
    async fn a_part_names_the_account_only_where_the_whole_request_does() {
        let own = format!("/{DEVELOPMENT_ACCOUNT}/c/b");
        let by_path = format!("http://127.0.0.1:10000/{DEVELOPMENT_ACCOUNT}");
        assert_eq!(resource(&by_path, &own).await, "/c/b");
        assert_eq!(resource(&by_path, "/c/b").await, "/c/b");
        // The account is in the host: the first segment is a container that is called like it.
        let by_host = format!("http://{DEVELOPMENT_ACCOUNT}.blob.localhost:10000");
        assert_eq!(resource(&by_host, &own).await, own);
        assert_eq!(resource(&by_host, "/c/b").await, "/c/b");
    }
}

//! Requests as the door hands them over: who may read without a key, and that answers are streams.

use std::sync::Arc;

use futures_util::TryStreamExt;
use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, Accounts, BodyStream, Context, DEVELOPMENT_KEY, Endpoint, Identity,
    Method, RawPath, Request, Response, Scheme, Service, ServiceError, Timestamp, decode_query,
};
use polyshard_store_blob::BlobService;

use crate::place::Place;
use crate::tools::{LARGE, Tried, pattern};

on_both_engines! {
    strangers_read_what_is_open_and_nothing_else
    bytes_stream_in_and_out
}

pub type Given<'a> = &'a [(&'a str, &'a str)];

pub struct Door {
    pub service: BlobService,
    pub identity: Identity,
}

/// A request to the account of the tests, as it comes through the door.
pub fn context(path: &str, identity: Identity) -> Context {
    Context {
        request_id: uuid::Uuid::nil(),
        account: AccountName::new("acct").unwrap(),
        identity,
        resource: RawPath::new(path).unwrap(),
        version: API_VERSION_DEFAULT,
        endpoint: Endpoint::Primary,
        now: Timestamp::from_ticks(0).unwrap(),
        scheme: Scheme::Http,
        base_url: "http://h:1/acct".to_owned(),
    }
}

pub fn accounts() -> Arc<Accounts> {
    let mut accounts = Accounts::new();
    accounts.add("acct", DEVELOPMENT_KEY, None).unwrap();
    Arc::new(accounts)
}

impl Door {
    pub fn new(tried: &Tried, identity: Identity, is_public_allowed: bool) -> Door {
        let service = BlobService::new(tried.store.clone(), accounts());
        Door { service: service.with_public_access(is_public_allowed), identity }
    }

    pub async fn send(
        &self,
        method: Method,
        target: &str,
        headers: Given<'_>,
        body: &[u8],
    ) -> Result<Response, ServiceError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let context = context(path, self.identity.clone());
        let mut request = Request {
            method,
            target: target.to_owned(),
            path: RawPath::new(&format!("/acct{path}")).unwrap(),
            query: decode_query(query).unwrap(),
            headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            body: Vec::new(),
            stream: None,
            peer: ([127, 0, 0, 1], 1).into(),
        };
        if self.service.streams(&request) {
            request.stream = Some(BodyStream::whole(body.to_vec()));
        } else {
            request.body = body.to_vec();
        }
        self.service.call(context, request).await
    }

    pub async fn code(&self, method: Method, target: &str, headers: Given<'_>) -> (u16, &'static str) {
        match self.send(method, target, headers, b"").await {
            Ok(response) => (response.status, ""),
            Err(error) => (error.status(), error.code()),
        }
    }
}

pub async fn content(response: Response) -> Vec<u8> {
    match response.stream {
        None => response.body,
        Some(body) => body
            .source
            .try_fold(Vec::new(), |mut whole, piece| async move {
                whole.extend_from_slice(&piece);
                Ok(whole)
            })
            .await
            .unwrap(),
    }
}

async fn strangers_read_what_is_open_and_nothing_else(place: Place) {
    let tried = Tried::new(&place).await;
    tried.put("a", "content").await;
    let owner = Door::new(&tried, Identity::SharedKey, true);
    let stranger = Door::new(&tried, Identity::Anonymous, true);
    let list = "/box?restype=container&comp=list";
    let acl = "/box?restype=container&comp=acl";
    let refused = (401, "NoAuthenticationInformation");
    for (access, blob, listed) in
        [("", refused, refused), ("blob", (200, ""), refused), ("container", (200, ""), (200, ""))]
    {
        let headers = [("x-ms-blob-public-access", access)];
        let headers = if access.is_empty() { &[][..] } else { &headers[..] };
        assert_eq!(owner.code(Method::Put, acl, headers).await, (200, ""));
        assert_eq!(stranger.code(Method::Get, "/box/a", &[]).await, blob, "{access}");
        assert_eq!(stranger.code(Method::Head, "/box/a", &[]).await, blob, "{access}");
        assert_eq!(stranger.code(Method::Get, list, &[]).await, listed, "{access}");
        let committed = "/box/a?comp=blocklist";
        assert_eq!(stranger.code(Method::Get, committed, &[]).await, blob, "{access}");
        // Nothing else is open: neither tags, nor uncommitted blocks, nor policies, nor any change.
        for (method, target) in [
            (Method::Get, "/box/a?comp=tags"),
            (Method::Get, acl),
            (Method::Delete, "/box/a"),
            (Method::Put, "/box/a?comp=metadata"),
            (Method::Get, "/?comp=list"),
            (Method::Get, "/other/a"),
            (Method::Get, "/box/a?comp=blocklist&blocklisttype=all"),
            (Method::Get, "/box/a?comp=blocklist&blocklisttype=uncommitted"),
            (Method::Get, "/box?restype=container&comp=list&include=metadata,tags"),
        ] {
            assert_eq!(stranger.code(method, target, &[]).await, refused, "{access} {target}");
        }
    }
    // Where it is not allowed, nothing is open, whatever was set before, and nothing can be opened.
    let closed = Door::new(&tried, Identity::Anonymous, false);
    assert_eq!(closed.code(Method::Get, "/box/a", &[]).await, refused);
    let owner = Door::new(&tried, Identity::SharedKey, false);
    let open = [("x-ms-blob-public-access", "blob")];
    assert_eq!(owner.code(Method::Put, acl, &open).await, (409, "PublicAccessNotPermitted"));
    assert_eq!(
        owner.code(Method::Put, "/new?restype=container", &open).await,
        (409, "PublicAccessNotPermitted")
    );
    drop((owner, stranger, closed));
    tried.close().await;
}

async fn bytes_stream_in_and_out(place: Place) {
    let tried = Tried::new(&place).await;
    let owner = Door::new(&tried, Identity::SharedKey, false);
    let block = [("x-ms-blob-type", "BlockBlob")];
    for length in [0, 10, LARGE] {
        let bytes = pattern(length, 1);
        let put = owner.send(Method::Put, "/box/a", &block, &bytes).await.unwrap();
        assert_eq!(put.status, 201);
        let got = owner.send(Method::Get, "/box/a", &[], b"").await.unwrap();
        assert!(got.stream.as_ref().is_some_and(|stream| stream.length == length as u64));
        assert_eq!(content(got).await, bytes);
    }
    let range = [("x-ms-range", "bytes=100000-100099"), ("x-ms-range-get-content-md5", "true")];
    let got = owner.send(Method::Get, "/box/a", &range, b"").await.unwrap();
    assert_eq!((got.status, got.get("Content-Range")), (206, Some("bytes 100000-100099/200000")));
    assert!(got.get("Content-MD5").is_some());
    assert_eq!(content(got).await, &pattern(LARGE, 1)[100_000..100_100]);
    // A list of blocks comes in pieces too, and is read as a document.
    let block = "/box/b?comp=block&blockid=YQ%3D%3D";
    assert_eq!(owner.send(Method::Put, block, &[], b"block").await.unwrap().status, 201);
    let list = b"<BlockList><Latest>YQ==</Latest></BlockList>";
    assert_eq!(owner.send(Method::Put, "/box/b?comp=blocklist", &[], list).await.unwrap().status, 201);
    let got = owner.send(Method::Get, "/box/b", &[], b"").await.unwrap();
    assert_eq!(content(got).await, b"block");
    let own = [("x-ms-copy-source", "http://h:1/acct/box/b")];
    let copied = owner.send(Method::Put, "/box/c", &own, b"").await.unwrap();
    assert_eq!((copied.status, copied.get("x-ms-copy-status")), (202, Some("success")));
    let other = [("x-ms-copy-source", "http://elsewhere/acct/box/b")];
    assert_eq!(owner.code(Method::Put, "/box/c", &other).await, (403, "CannotVerifyCopySource"));
    let got = owner.send(Method::Get, "/box/c", &[], b"").await.unwrap();
    assert_eq!(content(got).await, b"block");
    drop(owner);
    tried.close().await;
}

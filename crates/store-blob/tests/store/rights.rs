//! Who may do what: accounts whose rights are limited to some keys, sources of copies, and signatures.

use polyshard_azure_storage::{
    AccountKey, Admission, Context, DEVELOPMENT_KEY, Identity, Method, RawPath, Request, StoreKind,
};
use polyshard_catalog::{Binding, CatalogError, KeyPart, KeyRule, USER_STORE};
use polyshard_map::MapName;
use polyshard_store::Stores;
use polyshard_store::rights::{Grant, GrantedKeys, Right, USER_FORMAT, UserBody};
use polyshard_store_blob::{DEFAULT_MAP, STORE};
use serde_json::json;

use crate::place::Place;
use crate::protocol::{Door, Given, accounts, content, context};
use crate::tools::Tried;

on_both_engines! {
    an_account_has_the_blobs_of_its_keys_and_no_others
    the_key_of_a_right_is_the_one_that_places_the_blob
    a_source_of_a_copy_must_be_readable_for_the_account
    tags_are_for_those_who_may_see_tags
    only_signed_headers_change_an_answer
    a_signature_for_a_snapshot_does_not_change_the_blob
    the_tags_of_a_snapshot_are_its_own
}

static STORES: Stores = Stores(&[&STORE]);
const BLOCK: Given<'static> = &[("x-ms-blob-type", "BlockBlob")];
const OK: (u16, &str) = (200, "");
const REFUSED: (u16, &str) = (403, "AuthorizationFailure");
const MISMATCH: (u16, &str) = (403, "AuthorizationPermissionMismatch");

fn on_keys(right: Right, keys: GrantedKeys) -> Grant {
    let map = Some(MapName::new(DEFAULT_MAP).unwrap());
    Grant { right, store: STORES.id(STORE.id).ok(), map, keys: Some(keys), table: None }
}

fn range(from: &str, to: &str) -> GrantedKeys {
    GrantedKeys::Range(Some(json!(from)), Some(json!(to)))
}

/// From now on the account has these rights and no others.
async fn limit(tried: &Tried, grants: &[Grant]) {
    let body = UserBody { format: USER_FORMAT, scram: None, account: true, grants: grants.to_vec() };
    let change = |_| Ok::<_, CatalogError>(serde_json::to_value(&body).unwrap());
    tried.cluster.driver.catalog().put_user(USER_STORE, "acct", change).await.unwrap();
    tried.cluster.router.refresh().await.unwrap();
}

/// Makes a container whose blobs have their keys from this attribute.
async fn bound(tried: &Tried, owner: &Door, name: &str, attribute: &str, part: KeyPart) {
    let rule = KeyRule { attribute: attribute.to_owned(), part };
    let (store, map) = (STORE.id.to_owned(), MapName::new(DEFAULT_MAP).unwrap());
    let binding = Binding { store, name: format!("acct/{name}"), map, rule };
    tried.cluster.driver.bind_dataset(&binding).await.unwrap();
    tried.cluster.router.refresh().await.unwrap();
    assert_eq!(owner.code(Method::Put, &format!("/{name}?restype=container"), &[]).await, (201, ""));
}

async fn put(door: &Door, target: &str) {
    assert_eq!(door.send(Method::Put, target, BLOCK, b"content").await.unwrap().status, 201, "{target}");
}

/// Somebody with a signature of these fields for this path.
async fn signed(door: &Door, path: &str, fields: Given<'_>) -> Identity {
    let field = |wanted: &str| {
        fields.iter().find(|(name, _)| *name == wanted).map_or("", |(_, value)| *value).to_owned()
    };
    let (sv, se) = ("2020-12-06".to_owned(), "1970-01-02".to_owned());
    let text = if field("ss").is_empty() {
        let container = path.split('/').nth(1).unwrap();
        let resource = match field("sr").as_str() {
            "c" => format!("/blob/acct/{container}"),
            _ => format!("/blob/acct{path}"),
        };
        let mut lines = vec![field("sp"), String::new(), se.clone(), resource];
        lines.extend([String::new(), String::new(), String::new(), sv.clone()]);
        lines.extend(["sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct"].map(&field));
        lines.join("\n")
    } else {
        let (sp, ss, srt, ses) = (field("sp"), field("ss"), field("srt"), field("ses"));
        format!("acct\n{sp}\n{ss}\n{srt}\n\n{se}\n\n\n{sv}\n{ses}\n")
    };
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&text);
    let mut query: Vec<(String, String)> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    query.extend([("sv".to_owned(), sv), ("se".to_owned(), se), ("sig".to_owned(), signature)]);
    let request = Request {
        method: Method::Get,
        target: path.to_owned(),
        path: RawPath::new(path).unwrap(),
        query,
        headers: Default::default(),
        body: Vec::new(),
        stream: None,
        peer: ([127, 0, 0, 1], 1).into(),
    };
    let outer = Context { base_url: "http://acct.blob.h".to_owned(), ..context("/", Identity::SharedKey) };
    let admission = Admission::new(StoreKind::Blob, accounts());
    admission.part(&outer, &request, &door.service).await.unwrap().identity
}

async fn an_account_has_the_blobs_of_its_keys_and_no_others(place: Place) {
    let tried = Tried::new(&place).await;
    let door = Door::new(&tried, Identity::SharedKey, false);
    for name in ["a", "m", "z"] {
        put(&door, &format!("/box/{name}")).await;
    }
    limit(&tried, &[on_keys(Right::Write, range("acct/box/a", "acct/box/n"))]).await;
    for name in ["a", "m"] {
        let blob = format!("/box/{name}");
        assert_eq!(door.code(Method::Get, &blob, &[]).await, OK, "{name}");
        put(&door, &blob).await;
    }
    for (method, target) in [
        (Method::Get, "/box/z"),
        (Method::Head, "/box/z"),
        (Method::Put, "/box/z"),
        (Method::Delete, "/box/z"),
        (Method::Get, "/box/z?comp=tags"),
        (Method::Put, "/box/zz?comp=block&blockid=YQ%3D%3D"),
        // A list may show any of the container.
        (Method::Get, "/box?restype=container&comp=list"),
        (Method::Get, "/box?restype=container"),
    ] {
        assert_eq!(door.code(method, target, BLOCK).await, REFUSED, "{method} {target}");
    }
    // The name of the container is no key of it.
    limit(&tried, &[on_keys(Right::Write, range("box", "boy"))]).await;
    for target in ["/box/a", "/box/z", "/box?restype=container&comp=list"] {
        assert_eq!(door.code(Method::Get, target, &[]).await, REFUSED, "{target}");
    }
    // With a signature it has no more rights than the account.
    let identity = signed(&door, "/box/a", &[("sr", "b"), ("sp", "r")]).await;
    assert_eq!(Door { identity, ..door }.code(Method::Get, "/box/a", &[]).await, REFUSED);
    tried.close().await;
}

async fn the_key_of_a_right_is_the_one_that_places_the_blob(place: Place) {
    let tried = Tried::new(&place).await;
    let door = Door::new(&tried, Identity::SharedKey, false);
    bound(&tried, &door, "t1-files", "container", KeyPart::Before("-".to_owned())).await;
    bound(&tried, &door, "t2-files", "container", KeyPart::Before("-".to_owned())).await;
    bound(&tried, &door, "shared", "name", KeyPart::Before("/".to_owned())).await;
    for target in ["/t1-files/x", "/t2-files/x", "/shared/t1/x", "/shared/t2/x", "/box/t1"] {
        put(&door, target).await;
    }
    limit(&tried, &[on_keys(Right::Write, GrantedKeys::Key(json!("t1")))]).await;
    for (target, expected) in [
        ("/t1-files/x", OK),
        ("/t2-files/x", REFUSED),
        ("/shared/t1/x", OK),
        ("/shared/t1/x?comp=tags", OK),
        ("/shared/t2/x", REFUSED),
        ("/box/t1", REFUSED),
        // The whole container has this key, so that its list is of nothing else.
        ("/t1-files?restype=container&comp=list", OK),
        ("/t1-files?restype=container", OK),
        ("/t2-files?restype=container&comp=list", REFUSED),
        ("/shared?restype=container&comp=list", REFUSED),
        ("/missing/t1", REFUSED),
    ] {
        assert_eq!(door.code(Method::Get, target, &[]).await, expected, "{target}");
    }
    drop(door);
    tried.close().await;
}

async fn a_source_of_a_copy_must_be_readable_for_the_account(place: Place) {
    let tried = Tried::new(&place).await;
    let door = Door::new(&tried, Identity::SharedKey, false);
    for container in ["mine", "secret"] {
        assert_eq!(door.code(Method::Put, &format!("/{container}?restype=container"), &[]).await, (201, ""));
        put(&door, &format!("/{container}/x")).await;
        let page = [("x-ms-blob-type", "PageBlob"), ("x-ms-blob-content-length", "512")];
        assert_eq!(door.code(Method::Put, &format!("/{container}/pages"), &page).await, (201, ""));
    }
    assert_eq!(door.code(Method::Put, "/mine/log", &[("x-ms-blob-type", "AppendBlob")]).await, (201, ""));
    limit(
        &tried,
        &[Grant { keys: None, table: Some("mine".to_owned()), ..on_keys(Right::Write, range("", "")) }],
    )
    .await;
    assert_eq!(door.code(Method::Get, "/secret/x", &[]).await, REFUSED);
    let pages =
        [("x-ms-range", "bytes=0-511"), ("x-ms-page-write", "update"), ("x-ms-source-range", "bytes=0-511")];
    let cases: [(&str, Given<'_>, &str); 6] = [
        ("/mine/copy", &[], "x"),
        ("/mine/copy", &[("x-ms-requires-sync", "true")], "x"),
        ("/mine/copy", BLOCK, "x"),
        ("/mine/copy?comp=block&blockid=YQ%3D%3D", &[], "x"),
        ("/mine/log?comp=appendblock", &[], "x"),
        ("/mine/pages?comp=page", &pages, "pages"),
    ];
    // The right of the account counts, also where the source has a signature of its own.
    let token = token_of("/secret/x", "r");
    for (target, headers, source) in cases {
        for (container, query) in [("mine", ""), ("secret", ""), ("secret", token.as_str())] {
            let url = format!("http://h:1/acct/{container}/{source}{query}");
            let headers = [headers, &[("x-ms-copy-source", url.as_str())]].concat();
            let (status, code) = door.code(Method::Put, target, &headers).await;
            if container == "mine" {
                assert!(code.is_empty(), "{target} {url}: {status} {code}");
            } else {
                assert_eq!((status, code), (403, "CannotVerifyCopySource"), "{target} {url}");
            }
        }
    }
    drop(door);
    tried.close().await;
}

async fn tags_are_for_those_who_may_see_tags(place: Place) {
    let tried = Tried::new(&place).await;
    let owner = Door::new(&tried, Identity::SharedKey, true);
    let tagged = [BLOCK, &[("x-ms-tags", "secret=tag")]].concat();
    assert_eq!(owner.code(Method::Put, "/box/a", &tagged).await, (201, ""));
    let list = "/box?restype=container&comp=list&include=tags";
    let untagged = "/box?restype=container&comp=list";
    let cases: [(Given<'_>, (u16, &str)); 4] = [
        (&[("sr", "c"), ("sp", "l")], MISMATCH),
        (&[("sr", "c"), ("sp", "lt")], OK),
        (&[("ss", "b"), ("sp", "rl"), ("srt", "sco")], MISMATCH),
        (&[("ss", "b"), ("sp", "lt"), ("srt", "c")], OK),
    ];
    for (fields, expected) in cases {
        let identity = signed(&owner, "/box/a", fields).await;
        let door = Door { identity, ..Door::new(&tried, Identity::SharedKey, true) };
        assert_eq!(door.code(Method::Get, list, &[]).await, expected, "{fields:?}");
        assert_eq!(door.code(Method::Get, untagged, &[]).await, OK, "{fields:?}");
    }
    // A copy may take the tags along only if the source's own may be read.
    let open = [("x-ms-blob-public-access", "container")];
    assert_eq!(owner.code(Method::Put, "/box?restype=container&comp=acl", &open).await, OK);
    let identity = signed(&owner, "/box/a", &[("sr", "c"), ("sp", "rwt")]).await;
    let writer = Door { identity, ..Door::new(&tried, Identity::SharedKey, true) };
    for (source, option, expected) in [
        ("", "REPLACE", (202, "")),
        ("", "COPY", (401, "CannotVerifyCopySource")),
        ("?r", "REPLACE", (202, "")),
        ("?r", "COPY", (403, "CannotVerifyCopySource")),
        ("?rt", "COPY", (202, "")),
    ] {
        let query = source.strip_prefix('?').map_or_else(String::new, |sp| token_of("/box/a", sp));
        let url = format!("http://h:1/acct/box/a{query}");
        let headers = [("x-ms-copy-source", url.as_str()), ("x-ms-copy-source-tag-option", option)];
        assert_eq!(writer.code(Method::Put, "/box/copy", &headers).await, expected, "{source} {option}");
    }
    drop((owner, writer));
    tried.close().await;
}

async fn only_signed_headers_change_an_answer(place: Place) {
    let tried = Tried::new(&place).await;
    let owner = Door::new(&tried, Identity::SharedKey, false);
    put(&owner, "/box/a").await;
    let html = "/box/a?rsct=text/html&rscd=a%0D%0Ab&sig=x";
    let account = signed(&owner, "/box/a", &[("ss", "b"), ("srt", "o"), ("sp", "r")]).await;
    let beside =
        signed(&owner, "/box/a", &[("ss", "b"), ("srt", "o"), ("sp", "r"), ("rsct", "text/html")]).await;
    let blob = signed(&owner, "/box/a", &[("sr", "b"), ("sp", "r"), ("rsct", "image/png")]).await;
    for (identity, expected) in
        [(account, "application/octet-stream"), (beside, "application/octet-stream"), (blob, "image/png")]
    {
        let door = Door { identity, ..Door::new(&tried, Identity::SharedKey, false) };
        for method in [Method::Get, Method::Head] {
            let answer = door.send(method, html, &[], b"").await.unwrap();
            assert_eq!(answer.get("Content-Type"), Some(expected), "{method}");
            assert_eq!(answer.get("Content-Disposition"), None, "{method}");
        }
    }
    // A signature with an encryption scope is not one without.
    let scoped = signed(&owner, "/box/a", &[("sr", "b"), ("sp", "rw"), ("ses", "mine")]).await;
    let door = Door { identity: scoped, ..Door::new(&tried, Identity::SharedKey, false) };
    assert_eq!(door.code(Method::Put, "/box/a", BLOCK).await, (501, "NotImplemented"));
    let scope = [("x-ms-default-encryption-scope", "mine")];
    assert_eq!(owner.code(Method::Put, "/new?restype=container", &scope).await, (501, "NotImplemented"));
    drop((owner, door));
    tried.close().await;
}

async fn a_signature_for_a_snapshot_does_not_change_the_blob(place: Place) {
    let tried = Tried::new(&place).await;
    let owner = Door::new(&tried, Identity::SharedKey, false);
    put(&owner, "/box/a").await;
    let taken = owner.send(Method::Put, "/box/a?comp=snapshot", &[], b"").await.unwrap();
    let snapshot = taken.get("x-ms-snapshot").unwrap().to_owned();
    let fields = [("sr", "bs"), ("snapshot", snapshot.as_str()), ("sp", "rwd")];
    let identity = signed(&owner, "/box/a", &fields).await;
    let writer = Door { identity, ..Door::new(&tried, Identity::SharedKey, false) };
    let target = format!("/box/a?snapshot={snapshot}");
    let refused = writer.send(Method::Put, &target, BLOCK, b"other").await.unwrap_err();
    assert_eq!((refused.status(), refused.code()), (400, "InvalidOperation"));
    let got = owner.send(Method::Get, "/box/a", &[], b"").await.unwrap();
    assert_eq!(content(got).await, b"content");
    drop((owner, writer));
    tried.close().await;
}

async fn the_tags_of_a_snapshot_are_its_own(place: Place) {
    let tried = Tried::new(&place).await;
    let owner = Door::new(&tried, Identity::SharedKey, false);
    put(&owner, "/box/a").await;
    let taken = owner.send(Method::Put, "/box/a?comp=snapshot", &[], b"").await.unwrap();
    let snapshot = taken.get("x-ms-snapshot").unwrap();
    let of_snapshot = format!("/box/a?comp=tags&snapshot={snapshot}");
    let tags = b"<Tags><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tags>";
    assert_eq!(owner.send(Method::Put, &of_snapshot, &[], tags).await.unwrap().status, 204);
    for (target, is_tagged) in [(of_snapshot.as_str(), true), ("/box/a?comp=tags", false)] {
        let got = owner.send(Method::Get, target, &[], b"").await.unwrap();
        let text = String::from_utf8(got.body).unwrap();
        assert_eq!(text.contains("<Key>a</Key>"), is_tagged, "{target}: {text}");
    }
    drop(owner);
    tried.close().await;
}

/// The query of a signature that allows this for a blob.
fn token_of(path: &str, sp: &str) -> String {
    let empty = "\n".repeat(4);
    let text = format!("{sp}\n\n1970-01-02\n/blob/acct{path}{empty}2020-12-06\nb{}", "\n".repeat(7));
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&text).replace('+', "%2B");
    format!("?sv=2020-12-06&sr=b&sp={sp}&se=1970-01-02&sig={signature}")
}

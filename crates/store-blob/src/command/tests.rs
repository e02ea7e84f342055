//! What requests are read as, and what is refused.

use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, Context, Endpoint, Identity, Method, RawPath, Request, Scheme,
    Timestamp, decode_query,
};
use polyshard_testkit::mutate::mutate;
use proptest::prelude::*;

use super::{BlobCommand, Command, ContainerCommand, PropertiesChange, Put, ServiceCommand};
use crate::conditions::Etags;
use crate::model::{
    BlockListKind, ByteRange, ContentHeaders, CopyTags, DeleteSnapshots, LeaseAction, PublicAccess, Tier,
};

type Given<'a> = &'a [(&'a str, &'a str)];

fn context(path: &str) -> Option<Context> {
    Some(Context {
        request_id: uuid::Uuid::nil(),
        account: AccountName::new("acct").unwrap(),
        identity: Identity::SharedKey,
        resource: RawPath::new(path)?,
        version: API_VERSION_DEFAULT,
        endpoint: Endpoint::Primary,
        now: Timestamp::from_ticks(0).unwrap(),
        scheme: Scheme::Http,
        base_url: "http://h:1/acct".to_owned(),
    })
}

/// Nothing if the target could not even come through the door.
fn read_bytes(
    method: Method,
    target: &str,
    headers: Given<'_>,
    body: &[u8],
) -> Option<Result<Command, &'static str>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let context = context(path)?;
    let request = Request {
        method,
        target: target.to_owned(),
        path: RawPath::new(path)?,
        query: decode_query(query).ok()?,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.to_vec(),
        stream: None,
        peer: ([127, 0, 0, 1], 1).into(),
    };
    let command = Command::parse(&context, &request);
    if let Ok(command) = &command {
        let _any = (command.needs(), command.target(), command.sets_tags());
    }
    Some(command.map_err(|error| error.code()))
}

fn read(method: Method, target: &str, headers: Given<'_>) -> Result<Command, &'static str> {
    read_bytes(method, target, headers, b"").expect("a target that can be read")
}

fn blob(method: Method, target: &str, headers: Given<'_>) -> Result<BlobCommand, &'static str> {
    match read(method, target, headers)? {
        Command::Blob(_, command) => Ok(*command),
        other => panic!("{other:?}"),
    }
}

fn container(method: Method, target: &str, headers: Given<'_>) -> Result<ContainerCommand, &'static str> {
    match read(method, target, headers)? {
        Command::Container(_, command) => Ok(*command),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_decoded_once_and_never_normalised() {
    let name = |path: &str| match read(Method::Get, path, &[]).unwrap() {
        Command::Blob(name, _) => (name.container().name().to_owned(), name.name().to_owned()),
        other => panic!("{other:?}"),
    };
    let of = |container: &str, blob: &str| (container.to_owned(), blob.to_owned());
    assert_eq!(name("/box/a%2Fb//c%2520d/../e/"), of("box", "a/b//c%20d/../e/"));
    assert_eq!(name("/$web/index.html"), of("$web", "index.html"));
    // Without a container it is one of the root container.
    assert_eq!(name("/logo.png"), of("$root", "logo.png"));
    assert_eq!(read(Method::Get, "/Box/a", &[]).unwrap_err(), "InvalidResourceName");
    assert_eq!(read(Method::Get, "/b/a", &[]).unwrap_err(), "OutOfRangeInput");
    let long = format!("/box/{}", "x".repeat(1025));
    assert_eq!(read(Method::Get, &long, &[]).unwrap_err(), "InvalidUri");
    assert_eq!(read(Method::Get, "/box/%FF", &[]).unwrap_err(), "InvalidUri");
}

#[test]
fn the_service_and_containers_have_their_operations() {
    use ContainerCommand as C;
    let service = |method, target| match read(method, target, &[]) {
        Ok(Command::Service(command)) => Ok(command),
        Ok(other) => panic!("{other:?}"),
        Err(code) => Err(code),
    };
    let Ok(ServiceCommand::List { query, asked }) =
        service(Method::Get, "/?comp=list&prefix=a&maxresults=9999&include=metadata,deleted")
    else {
        panic!()
    };
    assert_eq!(
        (query.prefix.as_str(), query.max, asked.max, asked.has_metadata),
        ("a", 5000, Some(9999), true)
    );
    let properties = service(Method::Get, "/?restype=service&comp=properties");
    assert!(matches!(properties, Ok(ServiceCommand::GetProperties)));
    for target in ["/?comp=batch", "/?restype=container&comp=batch"] {
        assert!(matches!(service(Method::Post, target), Ok(ServiceCommand::Batch)), "{target}");
    }
    let find = service(Method::Get, "/?comp=blobs&where=a%3D'b'");
    assert!(matches!(find, Ok(ServiceCommand::Find(find)) if find.text == "a='b'"));
    assert_eq!(service(Method::Get, "/?comp=blobs").unwrap_err(), "MissingRequiredQueryParameter");
    assert_eq!(service(Method::Get, "/?comp=blobs&where=a").unwrap_err(), "InvalidQueryParameterValue");
    let key = service(Method::Post, "/?restype=service&comp=userdelegationkey");
    assert_eq!(key.unwrap_err(), "NotImplemented");

    let create = container(Method::Put, "/box?restype=container", &[("x-ms-blob-public-access", "blob")]);
    assert!(matches!(create, Ok(C::Create { access: PublicAccess::Blob, .. })));
    assert!(matches!(container(Method::Head, "/box?restype=container", &[]), Ok(C::GetProperties { .. })));
    assert!(matches!(container(Method::Delete, "/box?restype=container", &[]), Ok(C::Delete { .. })));
    let acl = container(Method::Get, "/box?restype=container&comp=acl", &[]);
    assert!(matches!(acl, Ok(C::GetPolicies { .. })));
    let Ok(C::List(list)) = container(
        Method::Get,
        "/box?restype=container&comp=list&delimiter=/&include=tags,uncommittedblobs,deleted",
        &[],
    ) else {
        panic!()
    };
    assert_eq!(list.query.delimiter.as_deref(), Some("/"));
    assert!(list.query.include.uncommitted && list.query.include.deleted && list.asked.has_tags);
    for (target, code) in [
        ("/box?restype=container&comp=list&include=everything", "InvalidQueryParameterValue"),
        ("/box?restype=container&comp=list&include=snapshots&delimiter=/", "InvalidQueryParameterValue"),
        ("/box?restype=container&comp=list&maxresults=0", "OutOfRangeQueryParameterValue"),
        ("/box?restype=container&comp=other", "InvalidQueryParameterValue"),
        ("/box?restype=other", "InvalidQueryParameterValue"),
    ] {
        assert_eq!(container(Method::Get, target, &[]).unwrap_err(), code, "{target}");
    }
}

#[test]
fn a_container_is_named_by_its_restype_alone() {
    for method in [Method::Get, Method::Head, Method::Put, Method::Delete] {
        for target in ["/$web", "/$web/", "/$root/", "/$web?comp=list", "/$logs/?comp=metadata"] {
            let refused = container(method, target, &[]).unwrap_err();
            assert_eq!(refused, "MissingRequiredQueryParameter", "{method} {target}");
        }
    }
    assert!(matches!(
        container(Method::Delete, "/$web?restype=container", &[]),
        Ok(ContainerCommand::Delete { .. })
    ));
    // Of another name it is a blob of the root container, which has no list.
    assert!(matches!(blob(Method::Delete, "/box/", &[]), Ok(BlobCommand::Delete { .. })));
    assert_eq!(blob(Method::Get, "/box?comp=list", &[]).unwrap_err(), "InvalidQueryParameterValue");
}

#[test]
fn blobs_are_put_in_three_kinds() {
    let put = |headers: Given<'_>| blob(Method::Put, "/box/a", headers);
    let kind = |headers: Given<'_>| match put(headers)? {
        BlobCommand::Put { kind, .. } => Ok::<_, &str>(kind),
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(&[("x-ms-blob-type", "BlockBlob")]), Ok(Put::Block));
    assert_eq!(kind(&[("x-ms-blob-type", "AppendBlob")]), Ok(Put::Append));
    let page = [
        ("x-ms-blob-type", "PageBlob"),
        ("x-ms-blob-content-length", "1024"),
        ("x-ms-blob-sequence-number", "7"),
    ];
    assert_eq!(kind(&page), Ok(Put::Page { size: 1024, sequence: 7 }));
    assert_eq!(kind(&page[..1]).unwrap_err(), "MissingRequiredHeader");
    assert_eq!(kind(&[page[0], ("x-ms-blob-content-length", "100")]).unwrap_err(), "InvalidHeaderValue");
    assert_eq!(kind(&[]).unwrap_err(), "MissingRequiredHeader");
    assert_eq!(kind(&[("x-ms-blob-type", "Other")]).unwrap_err(), "InvalidHeaderValue");
    let with_body =
        read_bytes(Method::Put, "/box/a", &[("x-ms-blob-type", "AppendBlob")], b"x").unwrap().unwrap_err();
    assert_eq!(with_body, "InvalidHeaderValue");
    // The sum that is kept with the blob is the one that is checked.
    let sum = [
        ("x-ms-blob-type", "BlockBlob"),
        ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ("x-ms-blob-content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ("If-None-Match", "*"),
    ];
    let Ok(BlobCommand::Put { expected, new, conditions, .. }) = put(&sum) else { panic!() };
    assert_eq!(expected.md5, new.headers.content_md5);
    assert_eq!(conditions.if_none_match, Some(Etags::Any));
    assert_eq!(put(&[sum[0], ("x-ms-structured-body", "XSM/1.0")]).unwrap_err(), "NotImplemented");
}

#[test]
fn parts_of_blobs_are_put() {
    let put = |target: &str, headers: Given<'_>, body: &[u8]| {
        read_bytes(Method::Put, target, headers, body).unwrap().map(|command| match command {
            Command::Blob(_, command) => *command,
            other => panic!("{other:?}"),
        })
    };
    let block = put("/box/a?comp=block&blockid=YQ%3D%3D", &[], b"x");
    assert!(matches!(block, Ok(BlobCommand::PutBlock { id, .. }) if id.0 == b"a"));
    assert_eq!(put("/box/a?comp=block&blockid=%3F", &[], b"x").unwrap_err(), "InvalidQueryParameterValue");
    assert_eq!(put("/box/a?comp=block", &[], b"x").unwrap_err(), "MissingRequiredQueryParameter");
    let list = put("/box/a?comp=blocklist", &[], b"<BlockList><Latest>YQ==</Latest></BlockList>");
    assert!(matches!(list, Ok(BlobCommand::PutBlockList { blocks, .. }) if blocks.len() == 1));
    let wrong = [("x-ms-content-crc64", "AQAAAAAAAAA=")];
    assert_eq!(put("/box/a?comp=blocklist", &wrong, b"<BlockList/>").unwrap_err(), "Crc64Mismatch");
    let append = put("/box/a?comp=appendblock", &[("x-ms-blob-condition-appendpos", "5")], b"x");
    assert!(
        matches!(append, Ok(BlobCommand::Append { conditions, .. }) if conditions.append_position == Some(5))
    );
    assert_eq!(put("/box/a?comp=appendblock", &[], b"").unwrap_err(), "InvalidHeaderValue");
    let pages = |range, write, body: &[u8]| {
        put("/box/a?comp=page", &[("x-ms-range", range), ("x-ms-page-write", write)], body)
    };
    let written = pages("bytes=512-1023", "update", &[0; 512]);
    assert!(matches!(written, Ok(BlobCommand::PutPages { first: 512, .. })));
    assert!(matches!(pages("bytes=0-511", "clear", b""), Ok(BlobCommand::ClearPages { .. })));
    assert_eq!(pages("bytes=0-510", "update", &[0; 511]).unwrap_err(), "InvalidPageRange");
    assert_eq!(pages("bytes=0-511", "update", &[0; 512 * 2]).unwrap_err(), "InvalidHeaderValue");
    assert_eq!(pages("bytes=0-4194815", "update", b"").unwrap_err(), "RequestBodyTooLarge");
    assert_eq!(pages("bytes=0-511", "erase", b"").unwrap_err(), "InvalidHeaderValue");
    // The last page that a blob can have, and those beyond: their end may not even be a number.
    assert!(matches!(
        pages("bytes=8796093021696-8796093022207", "clear", b""),
        Ok(BlobCommand::ClearPages { .. })
    ));
    for range in ["bytes=8796093022208-8796093022719", "bytes=0-18446744073709551615"] {
        for write in ["update", "clear"] {
            assert_eq!(pages(range, write, b"").unwrap_err(), "InvalidPageRange", "{range} {write}");
        }
    }
}

#[test]
fn reads_have_ranges_and_sums_of_ranges() {
    let get = |target: &str, headers: Given<'_>| match blob(Method::Get, target, headers)? {
        BlobCommand::Get(read) => Ok::<_, &str>(read),
        other => panic!("{other:?}"),
    };
    let range = ("x-ms-range", "bytes=0-4194303");
    let sum = ("x-ms-range-get-content-md5", "true");
    let read = get("/box/a?snapshot=2026-11-15T07:25:16.2221997Z", &[range, sum]).unwrap();
    assert_eq!(read.range, Some(ByteRange { first: 0, last: Some(4_194_303) }));
    assert!(read.has_md5 && !read.has_crc64 && read.snapshot.is_some());
    assert_eq!(get("/box/a", &[sum]).unwrap_err(), "InvalidHeaderValue");
    assert_eq!(get("/box/a", &[("x-ms-range", "bytes=0-4194304"), sum]).unwrap_err(), "OutOfRangeInput");
    assert_eq!(get("/box/a?snapshot=x", &[]).unwrap_err(), "InvalidQueryParameterValue");
    assert_eq!(get("/box/a?versionid=2026-11-15T07:25:16.2221997Z", &[]).unwrap_err(), "NotImplemented");
    // Only what a signature covers sets what is answered: not whatever stands beside one.
    for target in ["/box/a?rsct=text/html", "/box/a?rsct=text/html&sig=x", "/box/a?ss=b&sig=x&rscd=a%0D%0Ab"]
    {
        assert_eq!(get(target, &[]).unwrap().overrides, ContentHeaders::default(), "{target}");
    }
    let list = blob(Method::Get, "/box/a?comp=blocklist&blocklisttype=all", &[]);
    assert!(matches!(list, Ok(BlobCommand::GetBlockList { kind: BlockListKind::All, .. })));
}

#[test]
fn the_rest_of_a_blob_is_changed() {
    let put = |target: &str, headers: Given<'_>| blob(Method::Put, target, headers);
    let delete = blob(Method::Delete, "/box/a", &[("x-ms-delete-snapshots", "include")]);
    assert!(matches!(delete, Ok(BlobCommand::Delete { snapshots: DeleteSnapshots::Include, .. })));
    let tier = put("/box/a?comp=tier", &[("x-ms-access-tier", "Cool")]);
    assert!(matches!(tier, Ok(BlobCommand::SetTier { tier: Tier::Cool, .. })));
    assert_eq!(put("/box/a?comp=tier", &[]).unwrap_err(), "MissingRequiredHeader");
    let size = put("/box/a?comp=properties", &[("x-ms-blob-content-length", "512")]);
    assert!(matches!(size, Ok(BlobCommand::SetProperties { change: PropertiesChange::Size(512), .. })));
    let acquire = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
    let leased = put("/box/a?comp=lease", &acquire);
    assert!(matches!(
        leased,
        Ok(BlobCommand::Lease { action: LeaseAction::Acquire { proposed: None, seconds: 15 }, .. })
    ));
    for (headers, code) in [
        (&[acquire[0], ("x-ms-lease-duration", "14")][..], "InvalidHeaderValue"),
        (&[acquire[0], ("x-ms-proposed-lease-id", "x")][..], "InvalidHeaderValue"),
        (&[("x-ms-lease-action", "renew")][..], "MissingRequiredHeader"),
        (&[("x-ms-lease-action", "break"), ("x-ms-lease-break-period", "61")][..], "InvalidHeaderValue"),
        (&[][..], "MissingRequiredHeader"),
    ] {
        assert_eq!(put("/box/a?comp=lease", headers).unwrap_err(), code, "{headers:?}");
    }
    // Of a snapshot, tier and tags can be set and nothing else; all of these would change the blob itself.
    let with = |snapshot: &str, comp: &str| format!("/box/a?{snapshot}&{comp}");
    let snapshot = "snapshot=2026-11-15T07:25:16.2221997Z";
    let block = [("x-ms-blob-type", "BlockBlob"), ("x-ms-lease-action", "break")];
    for comp in [
        "",
        "comp=metadata",
        "comp=properties",
        "comp=lease",
        "comp=snapshot",
        "comp=block&blockid=YQ%3D%3D",
        "comp=blocklist",
        "comp=appendblock",
        "comp=page",
        "comp=seal",
        "comp=undelete",
    ] {
        assert_eq!(put(&with(snapshot, comp), &block).unwrap_err(), "InvalidOperation", "{comp}");
        let version = with("versionid=2026-11-15T07:25:16.2221997Z", comp);
        assert_eq!(put(&version, &block).unwrap_err(), "NotImplemented", "{comp}");
    }
    let copied = [("x-ms-copy-source", "http://h:1/acct/box/b")];
    assert_eq!(put(&with(snapshot, ""), &copied).unwrap_err(), "InvalidOperation");
    let tier = put(&with(snapshot, "comp=tier"), &[("x-ms-access-tier", "Cool")]);
    assert!(matches!(tier, Ok(BlobCommand::SetTier { snapshot: Some(_), .. })));
    let tags = b"<Tags><TagSet/></Tags>";
    let tags = read_bytes(Method::Put, &with(snapshot, "comp=tags"), &[], tags).unwrap().unwrap();
    let Command::Blob(_, tags) = tags else { panic!() };
    assert!(matches!(*tags, BlobCommand::SetTags { snapshot: Some(_), .. }));
    // Account information is for reading.
    let account = "/box/a?restype=account&comp=properties";
    assert!(matches!(blob(Method::Head, account, &[]), Ok(BlobCommand::GetAccountInfo)));
    for method in [Method::Put, Method::Post, Method::Delete, Method::Patch] {
        assert_eq!(blob(method, account, &block).unwrap_err(), "UnsupportedHttpVerb", "{method}");
    }
    for comp in ["expiry", "legalhold", "immutabilityPolicies", "incrementalcopy"] {
        assert_eq!(put(&format!("/box/a?comp={comp}"), &[]).unwrap_err(), "NotImplemented", "{comp}");
    }
    assert_eq!(blob(Method::Post, "/box/a?comp=query", &[]).unwrap_err(), "NotImplemented");
}

#[test]
fn copies_name_their_source() {
    let put = |headers: Given<'_>| blob(Method::Put, "/box/a", headers);
    let source =
        ("x-ms-copy-source", "http://h:1/acct/box/b%20c?snapshot=2026-11-15T07%3A25%3A16.2221997Z&sig=x");
    let Ok(BlobCommand::Copy { copy, is_sync: false }) = put(&[source]) else { panic!() };
    let own = copy.source.own(&context("/box/a").unwrap()).unwrap().unwrap();
    assert_eq!((own.name.container().dataset(), own.name.name()), ("acct/box", "b c"));
    assert!(own.snapshot.is_some() && copy.options.tags == CopyTags::None);
    let sync = put(&[source, ("x-ms-requires-sync", "true"), ("x-ms-copy-source-tag-option", "COPY")]);
    assert!(
        matches!(sync, Ok(BlobCommand::Copy { is_sync: true, copy }) if copy.options.tags == CopyTags::OfSource)
    );
    assert!(matches!(put(&[source, ("x-ms-blob-type", "BlockBlob")]), Ok(BlobCommand::PutFromUrl(_))));
    let both = [source, ("x-ms-copy-source-tag-option", "COPY"), ("x-ms-tags", "a=1")];
    assert_eq!(put(&both).unwrap_err(), "BothUserTagsAndSourceTagsCopyPresentException");
    let other = put(&[("x-ms-copy-source", "http://other/acct/box/b")]);
    let Ok(BlobCommand::Copy { copy, .. }) = other else { panic!() };
    assert_eq!(copy.source.own(&context("/box/a").unwrap()).unwrap(), None);
    assert_eq!(put(&[("x-ms-copy-source", "box/b")]).unwrap_err(), "InvalidHeaderValue");
    let id = "6b2a3b6c-0000-4000-8000-00000000000a";
    let abort = [("x-ms-copy-action", "abort")];
    let target = format!("/box/a?comp=copy&copyid={id}");
    assert!(matches!(blob(Method::Put, &target, &abort), Ok(BlobCommand::AbortCopy { .. })));
    assert_eq!(blob(Method::Put, "/box/a?comp=copy", &abort).unwrap_err(), "MissingRequiredQueryParameter");
}

#[test]
fn what_a_signature_must_have() {
    let needs = |method, target: &str, headers: Given<'_>| read(method, target, headers).unwrap().needs();
    use polyshard_azure_storage::{Need, ResourceType, SasOperation};
    let object = SasOperation::object;
    assert_eq!(needs(Method::Get, "/box/a", &[]), object(Need::All("r")));
    assert_eq!(needs(Method::Put, "/box/a", &[("x-ms-blob-type", "BlockBlob")]), object(Need::Any("cw")));
    assert_eq!(needs(Method::Delete, "/box/a", &[]), object(Need::All("d")));
    assert_eq!(needs(Method::Get, "/box/a?comp=tags", &[]), object(Need::All("t")));
    let list = needs(Method::Get, "/box?restype=container&comp=list", &[]);
    assert_eq!(list, SasOperation::new(ResourceType::Container, Need::All("l"), Need::All("l")));
    let tagged = needs(Method::Get, "/box?restype=container&comp=list&include=metadata,tags", &[]);
    assert_eq!(tagged, SasOperation::new(ResourceType::Container, Need::All("lt"), Need::All("lt")));
    let acl = needs(Method::Get, "/box?restype=container&comp=acl", &[]);
    assert_eq!(acl, SasOperation::container(Need::Never));
    let tagged = [("x-ms-blob-type", "BlockBlob"), ("x-ms-tags", "a=1")];
    assert!(read(Method::Put, "/box/a", &tagged).unwrap().sets_tags());
}

const TARGETS: [&str; 8] = [
    "/box/a?comp=block&blockid=YQ%3D%3D&timeout=5",
    "/box/a?comp=blocklist&blocklisttype=all&snapshot=2026-11-15T07:25:16.2221997Z",
    "/box/a?comp=page",
    "/box/a?comp=properties",
    "/box?restype=container&comp=list&prefix=a&marker=b&maxresults=5&include=metadata,tags&delimiter=/",
    "/box?restype=container&comp=lease",
    "/?comp=blobs&where=%22a%22%3D'b'",
    "/?restype=service&comp=properties",
];

const HEADERS: [(&str, &str); 14] = [
    ("x-ms-blob-type", "PageBlob"),
    ("x-ms-blob-content-length", "1024"),
    ("x-ms-range", "bytes=0-511"),
    ("x-ms-page-write", "update"),
    ("If-Match", "\"0x8D\""),
    ("If-Modified-Since", "Sun, 15 Nov 2026 07:25:16 GMT"),
    ("x-ms-if-tags", "\"a\" = 'b' OR (c > 'd')"),
    ("x-ms-lease-id", "6b2a3b6c-0000-4000-8000-00000000000a"),
    ("x-ms-lease-action", "acquire"),
    ("x-ms-tags", "a=1&b=%20"),
    ("x-ms-copy-source", "http://h:1/acct/box/b?sig=1"),
    ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
    ("x-ms-meta-Name", "value"),
    ("x-ms-access-tier", "P10"),
];

proptest! {
    #[test]
    fn changed_requests_are_read_or_refused(
        which in 0..TARGETS.len(),
        header in 0..HEADERS.len(),
        seed in any::<u64>(),
    ) {
        let target = mutate(TARGETS[which].as_bytes(), seed);
        let body = mutate(b"<BlockList><Latest>YQ==</Latest><Committed>Yg==</Committed></BlockList>", seed);
        let value = String::from_utf8_lossy(&mutate(HEADERS[header].1.as_bytes(), seed)).into_owned();
        let mut headers = HEADERS.to_vec();
        headers[header].1 = &value;
        for method in [Method::Get, Method::Put, Method::Post, Method::Delete, Method::Head] {
            for headers in [&headers[..], &headers[..10], &[]] {
                let _any = read_bytes(method, TARGETS[which], headers, &body);
                if let Ok(target) = std::str::from_utf8(&target) {
                    let _any = read_bytes(method, target, headers, &body);
                }
            }
        }
    }

    #[test]
    fn no_request_makes_the_reader_panic(
        path in "/[a-z$]{0,5}/?[a-z%/. -]{0,20}",
        query in "(&?(comp|restype|snapshot|where|blockid|copyid|include|maxresults)=[a-z0-9+%-]{0,12}){0,4}",
        header in "[ -~]{0,20}",
    ) {
        let given: Vec<(&str, &str)> = HEADERS.iter().map(|(name, _)| (*name, header.as_str())).collect();
        for method in [Method::Get, Method::Put, Method::Post, Method::Delete, Method::Head, Method::Patch] {
            let _any = read_bytes(method, &format!("{path}?{query}"), &given, b"");
            let _any = read_bytes(method, &format!("{path}?{query}"), &[], b"");
        }
    }
}

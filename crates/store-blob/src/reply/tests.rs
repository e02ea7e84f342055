//! Answers as they are on the wire: names of headers in their case, and XML to the letter.

use polyshard_azure_storage::Response;
use uuid::Uuid;

use super::{blob, container, leased, list, parts};
use crate::checksum::{Digests, Wanted};
use crate::command::{AskedBlobs, AskedContainers};
use crate::model::{
    Blob, BlobKind, BlobPage, BlobQuery, Block, BlockId, BlockList, BlockListKind, Container, ContainerPage,
    ContainerQuery, ContentHeaders, CopyState, CopyStatus, Deleted, Etag, Lease, LeaseAction, LeaseAnswer,
    Listed, PageRange, PageRanges, Policy, Props, PublicAccess, SnapshotId, Tier, Written,
};

/// 2026-11-15T07:25:16.2221997Z
const TIME: i64 = 17_947_275_162_221_997;
const DATE: &str = "Sun, 15 Nov 2026 07:25:16 GMT";

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn a_blob(name: &str, kind: BlobKind) -> Blob {
    let headers = ContentHeaders {
        content_type: Some("text/plain".to_owned()),
        content_md5: Some([1; 16]),
        ..ContentHeaders::default()
    };
    let props = Props {
        headers,
        metadata: pairs(&[("MixedCase", "a<b")]),
        tags: pairs(&[("t", "1")]),
        ..Props::default()
    };
    Blob {
        name: name.to_owned(),
        snapshot: 0,
        version: 1,
        etag: Etag(TIME),
        kind,
        size: 10,
        created: TIME,
        modified: TIME,
        content: 0,
        generation: 0,
        stage: 0,
        is_committed: true,
        lease: Lease::default(),
        deleted: 0,
        object: None,
        props,
        body: None,
        now_ms: 1_000,
    }
}

fn text(response: &Response) -> &str {
    std::str::from_utf8(&response.body).unwrap()
}

fn has(response: &Response, name: &str) -> bool {
    response.headers.iter().any(|(own, _)| own == name)
}

#[test]
fn a_read_tells_all_of_a_blob() {
    let own = a_blob("a", BlobKind::Block);
    let overrides = ContentHeaders::default();
    let bytes = |range| blob::Bytes { blob: &own, range, digests: Digests::default(), overrides: &overrides };
    let whole = bytes(None).head();
    assert_eq!(whole.status, 200);
    for (name, value) in [
        ("ETag", ""),
        ("Last-Modified", DATE),
        ("Content-Type", "text/plain"),
        ("Content-MD5", "AQEBAQEBAQEBAQEBAQEBAQ=="),
        ("Accept-Ranges", "bytes"),
        ("x-ms-blob-type", "BlockBlob"),
        ("x-ms-creation-time", DATE),
        ("x-ms-meta-MixedCase", "a<b"),
        ("x-ms-lease-state", "available"),
        ("x-ms-lease-status", "unlocked"),
        ("x-ms-tag-count", "1"),
    ] {
        let found = whole.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_ref());
        if name == "ETag" {
            // Counted from the year 1, as the service does.
            assert_eq!(found, Some(format!("\"0x{:X}\"", TIME + 621_355_968_000_000_000).as_str()));
        } else {
            assert_eq!(found, Some(value), "{name}");
        }
    }
    let part = bytes(Some((2, 3))).head();
    assert_eq!((part.status, part.get("Content-Range")), (206, Some("bytes 2-4/10")));
    // The sum of the blob is not that of the part.
    assert_eq!(part.get("x-ms-blob-content-md5"), Some("AQEBAQEBAQEBAQEBAQEBAQ=="));
    assert!(!has(&part, "Content-MD5"));
    let overrides = ContentHeaders { content_type: Some("image/png".to_owned()), ..overrides };
    let head = blob::properties(&own, &overrides);
    assert_eq!((head.get("Content-Type"), head.get("Content-Length")), (Some("image/png"), Some("10")));
    assert_eq!(
        (head.get("x-ms-access-tier"), head.get("x-ms-access-tier-inferred")),
        (Some("Hot"), Some("true"))
    );
}

#[test]
fn kinds_leases_and_copies_are_told() {
    let mut own = a_blob("a", BlobKind::Append);
    own.props.blocks = 3;
    own.props.is_sealed = true;
    own.lease = Lease { id: Some(Uuid::nil()), seconds: -1, until_ms: i64::MAX, broken_ms: 0 };
    own.props.copy = Some(CopyState {
        id: Uuid::nil(),
        status: CopyStatus::Success,
        source: "http://h/acct/box/b".to_owned(),
        progress: (10, 10),
        completed: Some(TIME),
        description: None,
    });
    let head = blob::properties(&own, &ContentHeaders::default());
    for (name, value) in [
        ("x-ms-blob-committed-block-count", "3"),
        ("x-ms-blob-sealed", "true"),
        ("x-ms-lease-duration", "infinite"),
        ("x-ms-lease-state", "leased"),
        ("x-ms-copy-status", "success"),
        ("x-ms-copy-progress", "10/10"),
        ("x-ms-copy-completion-time", DATE),
    ] {
        assert_eq!(head.get(name), Some(value), "{name}");
    }
    own.kind = BlobKind::Page;
    own.props.sequence = 7;
    own.props.tier = Some(Tier::Premium(10));
    let head = blob::properties(&own, &ContentHeaders::default());
    assert_eq!(
        (head.get("x-ms-blob-sequence-number"), head.get("x-ms-access-tier")),
        (Some("7"), Some("P10"))
    );
    // A snapshot has no lease.
    own.snapshot = TIME;
    assert!(!has(&blob::properties(&own, &ContentHeaders::default()), "x-ms-lease-state"));
}

#[test]
fn writes_tell_sums_and_the_verbs_of_leases_their_own() {
    let sums = Digests::of(b"123456789", Wanted { md5: true, crc64: true });
    let written = Written { blob: a_blob("a", BlobKind::Block), digests: Some(sums) };
    let answer = blob::written(&written);
    assert_eq!((answer.status, answer.get("Content-MD5")), (201, Some("JfnnlDI7RTiF9RgfG2JNCw==")));
    assert_eq!(answer.get("x-ms-content-crc64"), Some("iJh5CoYUi64="));
    assert_eq!(blob::deleted(Deleted::Kept).get("x-ms-delete-type-permanent"), Some("false"));
    let answer = |id, seconds_left| LeaseAnswer { id, seconds_left, etag: Etag(TIME), modified: TIME };
    let acquired = LeaseAction::Acquire { proposed: None, seconds: 15 };
    let got = leased(acquired, &answer(Some(Uuid::from_u128(10)), None));
    assert_eq!((got.status, got.get("x-ms-lease-id")), (201, Some("00000000-0000-0000-0000-00000000000a")));
    let broken = leased(LeaseAction::Break { seconds: None }, &answer(None, Some(5)));
    assert_eq!((broken.status, broken.get("x-ms-lease-time")), (202, Some("5")));
    assert!(!has(&broken, "x-ms-lease-id"));
}

#[test]
fn blobs_are_listed() {
    let query = BlobQuery {
        prefix: "p/".to_owned(),
        delimiter: Some("/".to_owned()),
        marker: None,
        max: 5,
        ..BlobQuery::default()
    };
    let asked = AskedBlobs { max: Some(5), has_metadata: true, has_tags: true, has_copy: true };
    let mut old = a_blob("p/a&b", BlobKind::Block);
    old.snapshot = TIME;
    old.deleted = TIME;
    old.props.kept_until_ms = old.now_ms + 3 * 24 * 3600 * 1000 + 5;
    let entries = vec![
        Listed::Prefix("p/x/".to_owned()),
        Listed::Blob(Box::new(old)),
        Listed::Blob(Box::new(a_blob("p/\u{1}ü%", BlobKind::Block))),
    ];
    let page = BlobPage { entries, next: None };
    let answer = list::blobs("http://h/acct", "box", &query, &asked, &page);
    let etag = Etag(TIME).to_string();
    let properties = |lease: &str| {
        format!(
            "<Properties><Creation-Time>{DATE}</Creation-Time><Last-Modified>{DATE}</Last-Modified><Etag>{etag}</Etag>\
             <Content-Length>10</Content-Length><Content-Type>text/plain</Content-Type>\
             <Content-MD5>AQEBAQEBAQEBAQEBAQEBAQ==</Content-MD5><BlobType>BlockBlob</BlobType>\
             <AccessTier>Hot</AccessTier><AccessTierInferred>true</AccessTierInferred>{lease}\
             <ServerEncrypted>false</ServerEncrypted><TagCount>1</TagCount>"
        )
    };
    let tail = "<Metadata><MixedCase>a&lt;b</MixedCase></Metadata><Tags><TagSet><Tag><Key>t</Key><Value>1</Value>\
                </Tag></TagSet></Tags><OrMetadata /></Blob>";
    let expected = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"http://h/acct/\" \
         ContainerName=\"box\"><Prefix>p/</Prefix><Marker /><MaxResults>5</MaxResults><Delimiter>/</Delimiter><Blobs>\
         <BlobPrefix><Name>p/x/</Name></BlobPrefix>\
         <Blob><Name>p/a&amp;b</Name><Deleted>true</Deleted><Snapshot>2026-11-15T07:25:16.2221997Z</Snapshot>{}\
         <DeletedTime>{DATE}</DeletedTime><RemainingRetentionDays>3</RemainingRetentionDays></Properties>{tail}\
         <Blob><Name Encoded=\"true\">p/%01%C3%BC%25</Name>{}</Properties>{tail}</Blobs><NextMarker />\
         </EnumerationResults>",
        properties(""),
        properties("<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState>")
    );
    assert_eq!(text(&answer), expected);
    assert_eq!(SnapshotId(TIME).to_string(), "2026-11-15T07:25:16.2221997Z");
}

#[test]
fn containers_are_listed_and_described() {
    let own = Container {
        name: "box".to_owned(),
        etag: Etag(TIME),
        modified: TIME,
        metadata: pairs(&[("A", "b")]),
        access: PublicAccess::Blob,
        policies: Vec::new(),
        lease: Lease::default(),
        now_ms: 0,
    };
    let head = container::properties(&own);
    assert_eq!(head.get("x-ms-blob-public-access"), Some("blob"));
    assert_eq!(head.get("x-ms-meta-A"), Some("b"));
    let page = ContainerPage { containers: vec![own], next: Some("next".to_owned()) };
    let asked = AskedContainers { max: None, has_metadata: true };
    let answer = list::containers("http://h/acct", &ContainerQuery::default(), &asked, &page);
    let expected = format!("<Last-Modified>{DATE}</Last-Modified><Etag>&quot;{}&quot;</Etag>", Etag(TIME));
    assert!(text(&answer).contains(&expected), "{}", text(&answer));
    assert!(
        text(&answer)
            .contains("<Metadata><A>b</A></Metadata></Container></Containers><NextMarker>next</NextMarker>")
    );
}

#[test]
fn blocks_and_pages_are_listed() {
    let block = |id: &[u8]| Block { id: BlockId(id.to_vec()), size: 3 };
    let blocks = BlockList { blob: None, committed: Vec::new(), uncommitted: vec![block(b"a")] };
    let answer = parts::block_list(&blocks, BlockListKind::All);
    let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><CommittedBlocks /><UncommittedBlocks><Block>\
                    <Name>YQ==</Name><Size>3</Size></Block></UncommittedBlocks></BlockList>";
    assert_eq!(text(&answer), expected);
    assert!(!has(&answer, "ETag"));
    let committed = parts::block_list(&blocks, BlockListKind::Committed);
    assert!(text(&committed).ends_with("<BlockList><CommittedBlocks /></BlockList>"));
    let range = |first, is_cleared| PageRange { first, last: first + 511, is_cleared };
    let pages = PageRanges {
        blob: a_blob("a", BlobKind::Page),
        ranges: vec![range(0, false), range(1024, true)],
        next: None,
    };
    let answer = parts::page_list(&pages);
    let expected = "<PageList><PageRange><Start>0</Start><End>511</End></PageRange><ClearRange><Start>1024</Start>\
                    <End>1535</End></ClearRange></PageList>";
    assert!(text(&answer).ends_with(expected), "{}", text(&answer));
    assert_eq!(answer.get("x-ms-blob-content-length"), Some("10"));
}

#[test]
fn a_time_of_a_policy_that_cannot_be_read_is_no_missing_limit() {
    let policy = |start: Option<&str>, expiry: Option<&str>| Policy {
        id: "p".to_owned(),
        start: start.map(str::to_owned),
        expiry: expiry.map(str::to_owned),
        permission: None,
    };
    let day = Some("2026-11-15");
    let stored = container::stored_policies(&[policy(None, day)]).unwrap();
    assert!(stored[0].start.is_none() && stored[0].expiry.is_some());
    for damaged in [policy(None, Some("soon")), policy(Some(""), day)] {
        let error = container::stored_policies(&[damaged]).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}

//! What requests are read as, and what is refused.

use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, Context, Endpoint, Headers, Identity, Method, RawPath, Request, Scheme,
    Timestamp, decode_query,
};
use polyshard_testkit::mutate::mutate;
use proptest::prelude::*;

use super::{Command, Include};
use crate::message::{MESSAGE_BYTES_MAX, MessageId, PopReceipt, Ttl};

fn read(method: Method, target: &str, body: &str) -> Result<Command, &'static str> {
    read_bytes(method, target, body.as_bytes()).expect("a target that can be read")
}

/// Nothing if the target could not even come through the door.
fn read_bytes(method: Method, target: &str, body: &[u8]) -> Option<Result<Command, &'static str>> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let context = Context {
        request_id: uuid::Uuid::nil(),
        account: AccountName::new("acct").unwrap(),
        identity: Identity::SharedKey,
        resource: RawPath::new(path)?,
        version: API_VERSION_DEFAULT,
        endpoint: Endpoint::Primary,
        now: Timestamp::from_ticks(0).unwrap(),
        scheme: Scheme::Http,
        base_url: "http://x/acct".to_owned(),
    };
    let request = Request {
        method,
        target: target.to_owned(),
        path: RawPath::new(path)?,
        query: decode_query(query).ok()?,
        headers: Headers::new(),
        body: body.to_vec(),
        stream: None,
        peer: ([127, 0, 0, 1], 1).into(),
    };
    Some(Command::parse(&context, &request).map_err(|error| error.code()))
}

fn text(text: &str) -> String {
    format!("<QueueMessage><MessageText>{text}</MessageText></QueueMessage>")
}

#[test]
fn a_put_has_defaults_and_limits() {
    let put = |query: &str| read(Method::Post, &format!("/jobs/messages{query}"), &text("a&lt;b&#x41; "));
    let Ok(Command::Put { queue, message }) = put("") else { panic!("{:?}", put("")) };
    assert_eq!((queue.name(), message.body.as_str()), ("jobs", "a<bA "));
    assert_eq!((message.invisible_ms, message.ttl), (0, Ttl::Ms(7 * 24 * 3600 * 1000)));
    let Ok(Command::Put { message, .. }) = put("?messagettl=-1&visibilitytimeout=604800") else { panic!() };
    assert_eq!((message.invisible_ms, message.ttl), (604_800_000, Ttl::Never));
    for query in ["?messagettl=0", "?messagettl=-2", "?visibilitytimeout=-1", "?visibilitytimeout=604801"] {
        assert_eq!(put(query), Err("OutOfRangeQueryParameterValue"), "{query}");
    }
    assert_eq!(put("?messagettl=5&visibilitytimeout=5"), Err("OutOfRangeQueryParameterValue"));
    assert_eq!(put("?messagettl=x"), Err("InvalidQueryParameterValue"));
    // Any positive time to live: clients have their own words for "for ever".
    for (query, ms) in [
        ("?messagettl=2147483648", 2_147_483_648_000),
        ("?messagettl=9007199254740991", 9_007_199_254_740_991_000),
        ("?messagettl=99999999999999999999", i64::MAX),
    ] {
        let Ok(Command::Put { message, .. }) = put(query) else { panic!("{query}") };
        assert_eq!(message.ttl, Ttl::Ms(ms));
        let end = 253_402_300_799_000.min(1_800_000_000_000_i64.saturating_add(ms));
        assert_eq!(message.ttl.expires_ms(1_800_000_000_000), end, "{query}");
    }
    // In whichever case it is written: it would otherwise stay for a week.
    let Ok(Command::Put { message, .. }) = put("?MessageTTL=5") else { panic!() };
    assert_eq!(message.ttl, Ttl::Ms(5000));
}

#[test]
fn a_text_is_measured_in_bytes_after_decoding() {
    let put = |body: &str| read(Method::Post, "/jobs/messages", body).map(drop);
    assert_eq!(put(&text(&"&amp;".repeat(65_536))), Ok(()));
    assert_eq!(put(&text(&"x".repeat(65_537))), Err("RequestBodyTooLarge"));
    assert_eq!(put(&text(&"ü".repeat(32_769))), Err("RequestBodyTooLarge"));
    assert_eq!(put(&text("")), Ok(()));
    assert_eq!(put("<QueueMessage/>"), Err("MissingRequiredXmlNode"));
    assert_eq!(put("<Other/>"), Err("InvalidXmlDocument"));
    // Nothing is left out of a text.
    assert_eq!(put(&text("<b>x</b>y")), Err("InvalidXmlDocument"));
    assert_eq!(put(&text("a</MessageText><MessageText>b")), Err("InvalidXmlDocument"));
    assert_eq!(put(&text("<![CDATA[<b>x</b>]]>")), Ok(()));
    assert_eq!(put(""), Err("InvalidXmlDocument"));
}

#[test]
fn gets_and_peeks_take_one_to_thirty_two() {
    let get = |query: &str| read(Method::Get, &format!("/jobs/messages{query}"), "");
    assert!(matches!(get(""), Ok(Command::Get { count: 1, invisible_ms: 30_000, .. })));
    assert!(matches!(
        get("?numofmessages=32&visibilitytimeout=1"),
        Ok(Command::Get { count: 32, invisible_ms: 1000, .. })
    ));
    assert!(matches!(get("?peekonly=true&numofmessages=2"), Ok(Command::Peek { count: 2, .. })));
    for query in
        ["?numofmessages=0", "?numofmessages=33", "?visibilitytimeout=0", "?peekonly=true&numofmessages=33"]
    {
        assert_eq!(get(query), Err("OutOfRangeQueryParameterValue"), "{query}");
    }
}

#[test]
fn a_message_is_named_by_id_and_receipt() {
    let id = MessageId::parse("019a86d5-0000-8000-8000-000000000001").unwrap();
    let target = format!("/jobs/messages/{id}?popreceipt=gAAAAAAAAAE%3D");
    let receipt = PopReceipt::from_bytes(&[128, 0, 0, 0, 0, 0, 0, 1], &id).unwrap();
    let Ok(Command::DeleteMessage { receipt: read_receipt, .. }) = read(Method::Delete, &target, "") else {
        panic!()
    };
    assert_eq!(read_receipt, receipt);
    assert_eq!(read(Method::Put, &target, ""), Err("MissingRequiredQueryParameter"));
    let update = read(Method::Put, &format!("{target}&visibilitytimeout=0"), "");
    assert!(matches!(update, Ok(Command::Update { body: None, invisible_ms: 0, .. })));
    let update = read(Method::Put, &format!("{target}&visibilitytimeout=3"), &text("new"));
    assert!(matches!(update, Ok(Command::Update { body: Some(text), .. }) if text == "new"));
    assert_eq!(
        read(Method::Delete, &format!("/jobs/messages/{id}"), ""),
        Err("MissingRequiredQueryParameter")
    );
    assert_eq!(read(Method::Delete, "/jobs/messages/x?popreceipt=x", ""), Err("MessageNotFound"));
    assert_eq!(
        read(Method::Delete, &format!("/jobs/messages/{id}?popreceipt=x"), ""),
        Err("InvalidQueryParameterValue")
    );
}

#[test]
fn queues_and_the_service_have_their_components() {
    assert!(matches!(read(Method::Put, "/jobs", ""), Ok(Command::CreateQueue { .. })));
    assert!(matches!(read(Method::Head, "/jobs?comp=metadata", ""), Ok(Command::GetMetadata { .. })));
    assert!(matches!(read(Method::Get, "/jobs?comp=acl", ""), Ok(Command::GetPolicies { .. })));
    assert!(matches!(read(Method::Get, "/?restype=service&comp=properties", ""), Ok(Command::GetProperties)));
    let list = read(Method::Get, "/?comp=list&include=metadata&prefix=a&maxresults=9", "").unwrap();
    let expected = Command::ListQueues {
        prefix: "a".to_owned(),
        marker: None,
        max: Some(9),
        include: Include::Metadata,
    };
    assert_eq!(list, expected);
    for (method, target, code) in [
        (Method::Get, "/?comp=list&maxresults=0", "OutOfRangeQueryParameterValue"),
        (Method::Get, "/jobs", "InvalidQueryParameterValue"),
        (Method::Get, "/?restype=service&comp=stats", "InvalidQueryParameterValue"),
        (Method::Patch, "/jobs", "UnsupportedHttpVerb"),
        (Method::Put, "/jobs/messages", "UnsupportedHttpVerb"),
        (Method::Get, "/jobs/other", "InvalidUri"),
        (Method::Put, "/Jobs", "InvalidResourceName"),
        (Method::Put, "/jo", "OutOfRangeInput"),
        (Method::Put, "/a%2Fb", "InvalidResourceName"),
    ] {
        assert_eq!(read(method, target, ""), Err(code), "{target}");
    }
}

const TARGETS: [&str; 5] = [
    "/jobs/messages?visibilitytimeout=30&messagettl=-1&numofmessages=5",
    "/jobs/messages/6b2a3b6c-0000-4000-8000-000000000000?popreceipt=AAAAAAAAAAA%3D&visibilitytimeout=0",
    "/jobs?comp=metadata",
    "/?comp=list&prefix=a&marker=b&maxresults=5&include=metadata",
    "/?restype=service&comp=properties",
];

proptest! {
    #[test]
    fn changed_requests_are_read_or_refused(which in 0..TARGETS.len(), seed in any::<u64>()) {
        let target = mutate(TARGETS[which].as_bytes(), seed);
        let body = mutate(text("a&lt;b&#x41;").as_bytes(), seed);
        for method in [Method::Get, Method::Put, Method::Post, Method::Delete, Method::Head] {
            let _any = read_bytes(method, TARGETS[which], &body);
            if let Ok(target) = std::str::from_utf8(&target) {
                let _any = read_bytes(method, target, &body);
            }
            if let Some(Ok(Command::Put { message, .. })) = read_bytes(method, "/jobs/messages", &body) {
                prop_assert!(message.body.len() <= MESSAGE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn no_request_makes_the_reader_panic(
        path in "/[a-z%/-]{0,20}",
        query in "(&?(comp|restype|popreceipt|visibilitytimeout|messagettl|numofmessages)=[a-z0-9+-]{0,20}){0,4}",
        body in "[<>/QueueMsagTxt&;]{0,60}",
    ) {
        for method in [Method::Get, Method::Put, Method::Post, Method::Delete, Method::Head] {
            if !path.contains('%') {
                let _any = read(method, &format!("{path}?{query}"), &body);
            }
        }
    }
}

//! Batches as the SDKs send them, with other line ends and boundaries, and broken ones.

use std::net::{Ipv4Addr, SocketAddr};

use polyshard_azure_storage::{Headers, Method, RawPath, Request};
use proptest::prelude::*;

use super::*;

fn request(content_type: &str, body: &str) -> Request {
    let mut headers = Headers::new();
    headers.push("Content-Type", content_type);
    Request {
        method: Method::Post,
        target: "/acct/$batch".into(),
        path: RawPath::new("/acct/$batch").unwrap(),
        query: Vec::new(),
        headers,
        body: body.as_bytes().to_vec(),
        stream: None,
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
    }
}

const BODY: &str = "--b 1\nContent-Type: multipart/mixed; boundary=\"c=2\"\n\n\
    --c=2\nContent-Type: application/http\nContent-Transfer-Encoding: binary\nContent-ID: 7\n\n\
    PATCH http://h:1/acct/tab(PartitionKey='p',RowKey='r')?a=b HTTP/1.1\nIf-Match: *\nContent-Length: 9\n\n\
    {\"a\": 1}\n\n\
    --c=2\nContent-Type: application/http\n\n\
    DELETE /tab(PartitionKey='p',RowKey='s') HTTP/1.1\nif-match: *\n\n\
    --c=2--\n--b 1--\n";

#[test]
fn change_sets_are_read_with_any_line_ends_and_boundaries() {
    for body in [BODY.to_owned(), BODY.replace('\n', "\r\n")] {
        let outer = request("multipart/mixed; boundary=\"b 1\"", &body);
        let Batch::Changes(parts) = parse(&outer, "/acct").unwrap() else { panic!("a change set") };
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].content_id.as_deref(), Some("7"));
        let head = |at: usize| parts[at].head.as_ref().unwrap();
        assert_eq!(head(0).request.method, Method::Patch);
        assert_eq!(head(0).resource.as_str(), "/tab(PartitionKey='p',RowKey='r')");
        assert_eq!(head(0).request.query("a"), Some("b"));
        assert_eq!(head(0).request.headers.get("If-Match"), Some("*"));
        assert_eq!(parts[0].body, b"{\"a\": 1}");
        assert_eq!(parts[1].content_id, None);
        assert_eq!(head(1).resource.as_str(), "/tab(PartitionKey='p',RowKey='s')");
        assert!(parts[1].body.is_empty());
    }
}

#[test]
fn a_head_is_read_once_for_the_parts_that_share_it() {
    let part = |id: &str, url: &str, rest: &str| {
        format!("--c\r\nContent-Type: application/http\r\n{id}\r\nPOST {url} HTTP/1.1\r\n{rest}\r\n")
    };
    let parts = [
        part("Content-ID: 1\r\n", "/tab", "a: b\r\n\r\n{1}"),
        part("Content-ID: 2\r\n", "/tab", "a: b\r\n\r\n{2}"),
        part("", "/tab", "a: b\r\n\r\n{3}"),
        part("", "/tab", "a: bc\r\n\r\n{4}"),
        part("", "/tac", "a: bc\r\n\r\n{5}"),
        // Their heads end with the parts: the second begins like the first, and goes on.
        part("", "/tad", "a: b"),
        part("", "/tad", "a: b\r\nContent-ID: 7\r\n\r\n{7}"),
    ];
    let body =
        format!("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{}--c--\r\n--b--", parts.concat());
    let outer = request("multipart/mixed; boundary=b", &body);
    let Batch::Changes(parts) = parse(&outer, "/acct").unwrap() else { panic!("a change set") };
    let seen: Vec<_> = parts
        .iter()
        .map(|part| {
            let head = part.head.as_ref().map(|head| (head.resource.as_str(), head.request.headers.get("a")));
            (part.content_id.as_deref(), head, std::str::from_utf8(part.body).unwrap())
        })
        .collect();
    let expected = [
        (Some("1"), Some(("/tab", Some("b"))), "{1}"),
        (Some("2"), None, "{2}"),
        (None, None, "{3}"),
        (None, Some(("/tab", Some("bc"))), "{4}"),
        (None, Some(("/tac", Some("bc"))), "{5}"),
        (None, Some(("/tad", Some("b"))), ""),
        (Some("7"), Some(("/tad", Some("b"))), "{7}"),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_query_is_read_outside_of_a_change_set() {
    let body = "--b\r\nContent-Type: application/http\r\n\r\nGET http://h/acct/tab()?$top=1 HTTP/1.1\r\n\r\n\r\n--b--";
    let outer = request("multipart/mixed; boundary=b", body);
    let Batch::Query(part) = parse(&outer, "/acct").unwrap() else { panic!("a query") };
    let head = part.head.unwrap();
    assert_eq!(head.request.query("$top"), Some("1"));
    assert_eq!(head.resource.as_str(), "/tab()");
}

#[test]
fn broken_batches_are_refused() {
    let kind = "multipart/mixed; boundary=\"b 1\"";
    assert_eq!(parse(&request("application/json", BODY), "/acct").unwrap_err(), BatchError::ContentType);
    assert_eq!(parse(&request("multipart/mixed", BODY), "/acct").unwrap_err(), BatchError::ContentType);
    for (from, to) in [
        ("--b 1--", ""),
        ("--c=2--", ""),
        ("PATCH", "PAT CH"),
        ("PATCH", "FETCH"),
        ("HTTP/1.1", ""),
        ("application/http", "text/plain"),
        ("If-Match: *", "If-Match *"),
        ("http://h:1/acct/tab", "http://h:1"),
    ] {
        let body = BODY.replace(from, to);
        assert!(matches!(parse(&request(kind, &body), "/acct"), Err(BatchError::Part(_))), "{from} {to}");
    }
}

#[test]
fn answers_are_written_as_the_sdks_read_them() {
    let id = uuid::Uuid::nil();
    let mut answers = Answers::new(id, 1);
    answers.push(Some("7"), &Response::new(204).header("ETag", "W/\"x\""));
    let response = answers.finish();
    assert_eq!(response.status, 202);
    let expected = format!(
        "--batchresponse_{id}\r\nContent-Type: multipart/mixed; boundary=changesetresponse_{id}\r\n\r\n\
         --changesetresponse_{id}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         HTTP/1.1 204 No Content\r\nContent-ID: 7\r\nETag: W/\"x\"\r\n\r\n\r\n\
         --changesetresponse_{id}--\r\n--batchresponse_{id}--\r\n"
    );
    assert_eq!(String::from_utf8(response.body).unwrap(), expected);
}

proptest! {
    #[test]
    fn garbage_never_panics(cut in 0usize..400, insert in "[\\x00-\\x7f]{0,6}", len in 0usize..8) {
        let at = cut.min(BODY.len());
        let end = (at + len).min(BODY.len());
        let body = format!("{}{insert}{}", &BODY[..at], &BODY[end..]);
        let _any = parse(&request("multipart/mixed; boundary=\"b 1\"", &body), "/acct");
    }
}

//! Batches as the SDKs send them, with other line ends and boundaries, and broken ones.

use std::net::{Ipv4Addr, SocketAddr};

use polyshard_azure_http::{Headers, Method, RawPath, Request};
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
        assert_eq!(parts[0].request.method, Method::Patch);
        assert_eq!(parts[0].resource.as_str(), "/tab(PartitionKey='p',RowKey='r')");
        assert_eq!(parts[0].request.query("a"), Some("b"));
        assert_eq!(parts[0].request.headers.get("If-Match"), Some("*"));
        assert_eq!(parts[0].request.body, b"{\"a\": 1}");
        assert_eq!(parts[1].resource.as_str(), "/tab(PartitionKey='p',RowKey='s')");
        assert!(parts[1].request.body.is_empty());
    }
}

#[test]
fn a_query_is_read_outside_of_a_change_set() {
    let body = "--b\r\nContent-Type: application/http\r\n\r\nGET http://h/acct/tab()?$top=1 HTTP/1.1\r\n\r\n\r\n--b--";
    let Batch::Query(part) = parse(&request("multipart/mixed; boundary=b", body), "/acct").unwrap() else {
        panic!("a query")
    };
    assert_eq!(part.request.query("$top"), Some("1"));
    assert_eq!(part.resource.as_str(), "/tab()");
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
    let response = Response::new(204).header("ETag", "W/\"x\"");
    let answer = Answered { content_id: Some("7".into()), response };
    let id = uuid::Uuid::nil();
    let response = changes_response(id, &[answer]);
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

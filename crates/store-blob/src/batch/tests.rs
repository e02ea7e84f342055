//! Batches as two SDKs write them, and what is wrong with others.

use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, Context, Endpoint, Headers, Identity, Method, RawPath, Request,
    Response, Scheme, ServiceError, Timestamp,
};
use polyshard_testkit::mutate::mutate;
use proptest::prelude::*;
use uuid::Uuid;

use super::{Answers, Part, Refused, parse};

fn outer(content_type: &str, body: &[u8]) -> Request {
    let mut headers = Headers::new();
    headers.push("Content-Type", content_type);
    Request {
        method: Method::Post,
        target: "/acct/?comp=batch".to_owned(),
        path: RawPath::new("/acct/").unwrap(),
        query: vec![("comp".to_owned(), "batch".to_owned())],
        headers,
        body: body.to_vec(),
        stream: None,
        peer: ([127, 0, 0, 1], 1).into(),
    }
}

const KIND: &str = "multipart/mixed; boundary=batch_1";

const BODY: &str = "--batch_1\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\
    Content-ID: 0\r\n\r\n\
    DELETE /box/a%20b?snapshot=x HTTP/1.1\r\nx-ms-date: now\r\nAuthorization: SharedKey acct:x\r\n\
    Content-Length: 0\r\n\r\n\
    --batch_1\r\nContent-Type: application/http\r\nContent-ID: 1\r\n\r\n\
    PUT http://h:1/acct/box/b?comp=tier HTTP/1.1\r\nx-ms-access-tier: Cool\r\n\r\n\
    --batch_1\r\nContent-Type: text/plain\r\nContent-ID: 2\r\n\r\n\r\n\
    --batch_1--\r\n";

fn read(kind: &str, body: &str) -> Result<Vec<Result<Part, Refused>>, &'static str> {
    parse(&outer(kind, body.as_bytes())).map_err(|error| error.code())
}

#[test]
fn parts_are_requests_of_their_own() {
    for body in [BODY.to_owned(), BODY.replace("\r\n", "\n")] {
        let parts = read(KIND, &body).unwrap();
        let [Ok(first), Ok(second), Err(third)] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(first.request.method, Method::Delete);
        assert_eq!(first.request.target, "/box/a%20b?snapshot=x");
        assert_eq!(first.request.query("snapshot"), Some("x"));
        assert_eq!(first.request.headers.get("authorization"), Some("SharedKey acct:x"));
        assert_eq!(first.content_id.as_deref(), Some("0"));
        assert_eq!(second.request.target, "/acct/box/b?comp=tier");
        assert_eq!((third.content_id.as_deref(), third.error.code()), (Some("2"), "InvalidInput"));
    }
    assert_eq!(read("multipart/mixed; boundary=\"batch_1\"", BODY).unwrap().len(), 3);
}

#[test]
fn a_slash_in_the_query_of_a_url_begins_no_path() {
    let parts =
        read(KIND, &BODY.replace("http://h:1/acct/box/b?comp=tier", "http://h:1?x=/acct/box/b")).unwrap();
    let Err(refused) = &parts[1] else { panic!("{parts:?}") };
    assert_eq!(refused.error.code(), "InvalidUri");
}

#[test]
fn what_is_no_batch_is_refused_whole() {
    assert_eq!(read("text/plain", BODY).unwrap_err(), "InvalidHeaderValue");
    assert_eq!(read("multipart/mixed", BODY).unwrap_err(), "InvalidHeaderValue");
    assert_eq!(read("multipart/mixed; boundary=other", BODY).unwrap_err(), "InvalidInput");
    assert_eq!(read(KIND, "--batch_1--\r\n").unwrap_err(), "InvalidInput");
    let many = |count: usize| {
        let part = "--batch_1\r\nContent-Type: application/http\r\n\r\nDELETE /box/a HTTP/1.1\r\n\r\n";
        format!("{}--batch_1--\r\n", part.repeat(count))
    };
    assert_eq!(read(KIND, &many(256)).unwrap().len(), 256);
    assert_eq!(read(KIND, &many(257)).unwrap_err(), "InvalidInput");
}

#[test]
fn answers_are_in_the_order_of_the_parts() {
    let context = Context {
        request_id: Uuid::nil(),
        account: AccountName::new("acct").unwrap(),
        identity: Identity::SharedKey,
        resource: RawPath::new("/").unwrap(),
        version: API_VERSION_DEFAULT,
        endpoint: Endpoint::Primary,
        now: Timestamp::from_ticks(0).unwrap(),
        scheme: Scheme::Http,
        base_url: "http://h:1/acct".to_owned(),
    };
    let mut answers = Answers::new(Uuid::nil());
    answers.push(Some("7"), Ok(Response::new(202).header("x-ms-delete-type-permanent", "true")), &context);
    let missing = ServiceError::new(404, "BlobNotFound", "The specified blob does not exist.");
    answers.push(None, Err(missing), &context);
    let response = answers.finish();
    assert_eq!(response.status, 202);
    let boundary = response.get("Content-Type").unwrap().split('=').nth(1).unwrap().to_owned();
    let body = String::from_utf8(response.body).unwrap();
    let parts: Vec<&str> = body.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "{body}");
    assert!(
        parts[1].starts_with(
            "\r\nContent-Type: application/http\r\nContent-ID: 7\r\n\r\nHTTP/1.1 202 Accepted\r\n"
        )
    );
    assert!(parts[2].contains("Content-ID: 1\r\n\r\nHTTP/1.1 404 The specified blob does not exist.\r\n"));
    assert!(
        parts[2].contains("x-ms-error-code: BlobNotFound\r\n")
            && parts[2].contains("<Code>BlobNotFound</Code>")
    );
    assert_eq!(parts[3], "--\r\n");
}

proptest! {
    #[test]
    fn no_batch_makes_the_reader_panic(seed in any::<u64>(), any in any::<Vec<u8>>()) {
        let _any = parse(&outer(KIND, &mutate(BODY.as_bytes(), seed)));
        let _any = parse(&outer(KIND, &any));
        let kind = mutate(KIND.as_bytes(), seed);
        let _any = parse(&outer(&String::from_utf8_lossy(&kind), BODY.as_bytes()));
    }
}

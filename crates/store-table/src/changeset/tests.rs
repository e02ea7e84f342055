//! Answers that are written from what they have in common are those that would be written one by one.

use polyshard_azure_storage::{
    API_VERSION_DEFAULT, AccountName, Context, Endpoint, Headers, Identity, Method, RawPath, Request, Scheme,
    Timestamp,
};
use uuid::Uuid;

use super::{ChangeSet, answer};
use crate::batch::{self, Answers, Batch};
use crate::handler::changed_reply;
use crate::reply;

fn context() -> Context {
    Context {
        request_id: Uuid::nil(),
        account: AccountName::new("acct").unwrap(),
        identity: Identity::SharedKey,
        resource: RawPath::new("/$batch").unwrap(),
        version: API_VERSION_DEFAULT,
        endpoint: Endpoint::Primary,
        now: Timestamp::from_ticks(0).unwrap(),
        scheme: Scheme::Http,
        base_url: "http://h:1/acct".to_owned(),
    }
}

fn part(id: &str, line: &str, prefer: &str, body: &str) -> String {
    format!(
        "--c\r\nContent-Type: application/http\r\n{id}\r\n{line} HTTP/1.1\r\nContent-Type: application/json\r\n\
         Prefer: {prefer}\r\n\r\n{body}\r\n"
    )
}

fn insert(id: &str, prefer: &str, row: &str) -> String {
    part(id, "POST /acct/tab", prefer, &format!("{{\"PartitionKey\":\"p'q\",\"RowKey\":\"{row}\",\"a\":1}}"))
}

fn batch(parts: &[String]) -> Request {
    let mut headers = Headers::new();
    headers.push("Content-Type", "multipart/mixed; boundary=b");
    let body =
        format!("--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{}--c--\r\n--b--", parts.concat());
    Request {
        method: Method::Post,
        target: "/acct/$batch".into(),
        path: RawPath::new("/acct/$batch").unwrap(),
        query: Vec::new(),
        headers,
        body: body.into_bytes(),
        stream: None,
        peer: ([127, 0, 0, 1], 1).into(),
    }
}

fn read(request: &Request) -> Result<ChangeSet, polyshard_azure_storage::ServiceError> {
    let Batch::Changes(parts) = batch::parse(request, "/acct").unwrap() else { panic!("a change set") };
    ChangeSet::parse(&context(), parts)
}

#[test]
fn answers_that_are_alike_are_as_if_each_were_written_by_itself() {
    let quiet = "return-no-content";
    let request = batch(&[
        insert("", quiet, "1"),
        insert("", quiet, "2 '"),
        insert("Content-ID: 5\r\n", quiet, "3"),
        insert("", "return-content", "4"),
        insert("", quiet, "5"),
        part("", "PUT /acct/tab(PartitionKey='p''q',RowKey='6')", quiet, "{\"a\":2}"),
        part("", "DELETE /acct/tab(PartitionKey='p''q',RowKey='7')", "x\r\nIf-Match: *", ""),
        insert("", quiet, "8"),
    ]);
    let ChangeSet { table, partition, changes, asked } = read(&request).unwrap();
    assert_eq!(changes.len(), 8);
    assert_eq!(changes[1].row.as_str(), "2 '");
    let times: Vec<_> = [5, 5, 5, 5, 5, 5, 5, 6].map(|ticks| Timestamp::from_ticks(ticks).unwrap()).into();
    let context = context();
    let written = answer(&context, &table, &partition, &changes, &asked, &times).finish();

    let mut expected = Answers::new(context.request_id, 0);
    for (at, change) in changes.iter().enumerate() {
        let url = format!(
            "{}/tab(PartitionKey='p%27%27q',RowKey='{}')",
            context.base_url,
            match at {
                1 => "2%20%27%27",
                _ => change.row.as_str(),
            }
        );
        let response = changed_reply(
            &context,
            &table,
            partition.clone(),
            change,
            times[at],
            asked[at].level,
            asked[at].prefer,
        );
        let response = reply::with_location(response, &url);
        assert_eq!(response.get("DataServiceId").or(response.get("Location")), Some(url.as_str()));
        expected.push(asked[at].content_id.as_deref(), &response);
    }
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    assert_eq!(text(written.body), text(expected.finish().body));
}

#[test]
fn parts_that_share_a_head_are_checked_one_by_one() {
    let quiet = "return-no-content";
    let twice = read(&batch(&[insert("", quiet, "1"), insert("", quiet, "2"), insert("", quiet, "1")]));
    assert!(twice.err().unwrap().message().starts_with("2:The batch request contains multiple changes"));
    let other = insert("", quiet, "2").replace("p'q", "other");
    let other = read(&batch(&[insert("", quiet, "1"), other]));
    assert!(other.err().unwrap().message().starts_with("1:All commands in a batch must operate on same"));
    let broken = insert("", quiet, "2").replace("\"a\":1", "\"a\":");
    let twice_first = read(&batch(&[insert("", quiet, "1"), insert("", quiet, "1"), broken.clone()]));
    assert!(twice_first.err().unwrap().message().starts_with("1:The batch request contains multiple"));
    let broken = read(&batch(&[insert("", quiet, "1"), broken]));
    assert!(broken.err().unwrap().message().starts_with("1:An error occurred"));
    let many: Vec<_> = (0..101).map(|row| insert("", quiet, &row.to_string())).collect();
    assert!(
        read(&batch(&many)).err().unwrap().message().starts_with("99:The batch request operation exceeds")
    );
    assert_eq!(read(&batch(&many[1..])).unwrap().changes.len(), 100);
    assert_eq!(read(&batch(&[])).err().unwrap().reason(), Some("the change set is empty"));
}

//! Input of clients with a few bytes changed: it is read or refused, within the limits, and what was read can be kept.

use std::net::{Ipv4Addr, SocketAddr};

use polyshard_azure_storage::{Headers, Method, RawPath, Request, decode_query};
use polyshard_testkit::mutate::mutate;
use proptest::prelude::*;

use crate::batch::{self, Batch};
use crate::command::Command;
use crate::edm::Scalar;
use crate::entity::PROPERTIES_MAX;
use crate::etag::IfMatch;
use crate::filter::{COMPARISONS_MAX, Filter};
use crate::odata::Draft;
use crate::{continuation, stored};

const FILTERS: [&str; 5] = [
    "PartitionKey eq 'a''b' and (RowKey ge '1' or not (n lt 5L)) and d gt datetime'2026-01-02T03:04:05.1234567Z'",
    "g eq guid'c9da6455-213d-42c9-9a79-3e9149a57833' or x ne X'00ff' or b eq binary'0a' or ok",
    "v le -1.5e10 and w ge 1.0 and t eq true and not u eq false",
    "((((PartitionKey eq 'p'))))",
    "PartitionKey gt '' and PartitionKey lt '\u{10ffff}'",
];

const ENTITY: &str = "{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"a\":1,\"b@odata.type\":\"Edm.Int64\",\"b\":\"5\",\
    \"c\":1.5,\"d@odata.type\":\"Edm.DateTime\",\"d\":\"2026-01-02T03:04:05.1234567Z\",\"e\":\"\\u00e9\\n\",\
    \"f@odata.type\":\"Edm.Binary\",\"f\":\"AAH/\",\"g@odata.type\":\"Edm.Guid\",\
    \"g\":\"c9da6455-213d-42c9-9a79-3e9149a57833\",\"h\":null,\"i\":true}";

const BATCH: &str = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n\
    --c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: 7\r\n\r\n\
    PATCH http://h:1/acct/tab(PartitionKey='p',RowKey='r')?a=b HTTP/1.1\r\nIf-Match: *\r\nContent-Length: 8\r\n\r\n\
    {\"a\": 1}\r\n--c\r\nContent-Type: application/http\r\n\r\n\
    DELETE /tab(PartitionKey='p',RowKey='s') HTTP/1.1\r\nIf-Match: *\r\n\r\n\r\n--c--\r\n--b--\r\n";

const TARGETS: [&str; 5] = [
    "/tab(PartitionKey='a''b',RowKey='c%20d')",
    "/tab()?$filter=PartitionKey%20eq%20'p'&$select=a,b&$top=5&NextPartitionKey=1!YQ&NextRowKey=1!Yg",
    "/Tables('tab')",
    "/Tables?$filter=TableName%20ge%20'a'&NextTableName=1!YQ",
    "/tab?comp=acl",
];

fn request(method: Method, target: &str, body: Vec<u8>) -> Option<Request> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Headers::new();
    headers.push("Content-Type", "multipart/mixed; boundary=b");
    headers.push("If-Match", "*");
    let path = RawPath::new(path)?;
    let (query, peer) = (decode_query(query).ok()?, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let target = target.to_owned();
    Some(Request { method, target, path, query, headers, body, stream: None, peer })
}

/// Reads a request as the door does, whatever it is.
fn read(target: &[u8], body: &[u8]) {
    let Ok(target) = std::str::from_utf8(target) else { return };
    for method in [Method::Get, Method::Put, Method::Post, Method::Patch, Method::Delete] {
        if let Some(request) = request(method, target, body.to_vec()) {
            let _any = Command::parse("acct", &request.path, &request);
        }
    }
}

proptest! {
    #[test]
    fn changed_filters_are_read_or_refused(which in 0..FILTERS.len(), seed in any::<u64>()) {
        let changed = String::from_utf8_lossy(&mutate(FILTERS[which].as_bytes(), seed)).into_owned();
        if let Ok(filter) = Filter::parse(&changed) {
            let _any = filter.matches(&|name| (name == "n").then_some(Scalar::Int(5)));
            let _any = filter.bounds();
            let _any = filter.pushed_condition();
            if let Some(condition) = filter.whole_condition() {
                let (sql, values) = condition.to_sql(5);
                // Values are parameters: nothing of what a client wrote is in the text.
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" $()=<>.".contains(&byte);
                prop_assert!(sql.bytes().all(plain), "{sql}");
                prop_assert!(values.len() <= COMPARISONS_MAX * 2);
            }
        }
    }

    #[test]
    fn changed_entities_are_read_or_refused(seed in any::<u64>()) {
        if let Ok(draft) = Draft::read(&mutate(ENTITY.as_bytes(), seed)) {
            prop_assert!(draft.properties.iter().count() <= PROPERTIES_MAX);
            let again = stored::read(&stored::write(&draft.properties)).unwrap();
            // Written once more it is the same: no number is itself that is none.
            prop_assert_eq!(stored::write(&again), stored::write(&draft.properties));
        }
        let _any = stored::read(&String::from_utf8_lossy(&mutate(b"{\"a\":{\"Int64\":\"5\"},\"b\":1.0}", seed)));
    }

    #[test]
    fn changed_batches_are_read_or_refused(seed in any::<u64>()) {
        let body = mutate(BATCH.as_bytes(), seed);
        let outer = request(Method::Post, "/acct/$batch", body).unwrap();
        if let Ok(Batch::Changes(parts)) = batch::parse(&outer, "/acct") {
            prop_assert!(parts.first().is_none_or(|part| part.head.is_some()));
            for head in parts.into_iter().filter_map(|part| part.head) {
                let _any = Command::parse("acct", &head.resource, &head.request);
            }
        }
    }

    #[test]
    fn changed_requests_are_read_or_refused(which in 0..TARGETS.len(), seed in any::<u64>()) {
        read(&mutate(TARGETS[which].as_bytes(), seed), ENTITY.as_bytes());
        read(TARGETS[which].as_bytes(), &mutate(ENTITY.as_bytes(), seed));
        let text = mutate(b"W/\"datetime'2026-11-15T07%3A25%3A16.2221997Z'\"", seed);
        let _any = IfMatch::parse(&String::from_utf8_lossy(&text));
        let _any = continuation::read(&String::from_utf8_lossy(&mutate(b"1!b3JkZXJz", seed)));
    }
}

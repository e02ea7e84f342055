//! Requests of the real SDKs with a few bytes changed: the door answers or closes, and goes on.

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use polyshard_azure_storage::{
    PropertiesPatch, StoreKind, decode_query, parse_policies, percent_decode, xml,
};
use polyshard_testkit::mutate::mutate;
use proptest::prelude::*;
use support::Running;

/// Requests as they came over the wire, by the door they came to.
static REQUESTS: LazyLock<Vec<(String, i64, Vec<u8>)>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for text in
        [include_str!("vectors/requests_python.json"), include_str!("vectors/requests_javascript.json")]
    {
        let vectors: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
        all.extend(vectors.iter().map(|vector| {
            let chars = vector["request"].as_str().unwrap().chars();
            let bytes = chars.map(|char| u8::try_from(u32::from(char)).unwrap()).collect();
            (vector["kind"].as_str().unwrap().to_owned(), vector["unix_s"].as_i64().unwrap(), bytes)
        }));
    }
    assert!(all.len() > 100);
    all
});

static DOORS: LazyLock<Vec<(StoreKind, Running)>> = LazyLock::new(|| {
    let kinds = [StoreKind::Blob, StoreKind::Queue, StoreKind::Table];
    kinds.into_iter().map(|kind| (kind, Running::start(kind))).collect()
});

/// Held while a door has the time of a request: tests run side by side, and requests were signed on different days.
static CLOCKS: Mutex<()> = Mutex::new(());

fn door(kind: &str) -> &'static Running {
    &DOORS.iter().find(|(own, _)| own.as_str() == kind).unwrap().1
}

/// All that comes back when the bytes are sent and nothing more.
fn ask(door: &Running, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(door.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The door may close in the middle of what it refuses.
    let _refused = stream.write_all(bytes);
    let _closed = stream.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    reply
}

proptest! {
    #[test]
    fn changed_requests_are_answered_or_refused(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let _clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let (kind, unix_s, request) = which.get(&REQUESTS);
        let door = door(kind);
        door.clock.set_s(*unix_s);
        let reply = ask(door, &mutate(request, seed));
        // Nothing is an answer too, where what came is no whole request.
        prop_assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 "), "{}", String::from_utf8_lossy(&reply));
        prop_assert_eq!(door.panicked(), 0);
        let whole = ask(door, request);
        prop_assert!(whole.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&whole));
    }

    #[test]
    fn random_bytes_are_answered_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let reply = ask(door("queue"), &bytes);
        prop_assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 4") || reply.starts_with(b"HTTP/1.1 5"));
        prop_assert_eq!(door("queue").panicked(), 0);
    }

    /// Signatures in the query: nothing that was changed in it is let in as it was signed.
    #[test]
    fn a_changed_signature_is_never_let_in(which in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let _clocks = CLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        let signed: Vec<_> = REQUESTS.iter().filter(|(_, _, request)| find(request, b"sig=").is_some()).collect();
        let (kind, unix_s, request) = *which.get(&signed);
        let start = find(request, b"sig=").unwrap() + 4;
        let length = request[start..].iter().position(|byte| b"& ".contains(byte)).unwrap();
        let signature = mutate(&request[start..start + length], seed);
        // Other bytes end the query, and are for the test of whole requests.
        let signature: Vec<u8> =
            signature.into_iter().filter(|byte| byte.is_ascii_graphic() && !b"&#=".contains(byte)).collect();
        if decoded(&signature) == decoded(&request[start..start + length]) {
            return Ok(());
        }
        let changed = [&request[..start], &signature, &request[start + length..]].concat();
        let door = door(kind);
        door.clock.set_s(*unix_s);
        let reply = ask(door, &changed);
        prop_assert!(!reply.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&changed));
    }

    #[test]
    fn changed_documents_are_read_or_refused(seed in any::<u64>()) {
        for document in [POLICIES, PROPERTIES] {
            let bytes = mutate(document.as_bytes(), seed);
            let _any = xml::parse(&bytes);
            let _any = parse_policies(&bytes);
            if let Ok(patch) = PropertiesPatch::parse(&bytes) {
                let mut set = polyshard_azure_storage::ServiceProperties::default();
                patch.apply(&mut set);
                // What was taken can be written, and read again as it is.
                let mut again = polyshard_azure_storage::ServiceProperties::default();
                PropertiesPatch::parse(set.to_xml().as_bytes()).unwrap().apply(&mut again);
                prop_assert_eq!(set, again);
            }
        }
        let query = mutate(b"restype=service&comp=properties&prefix=a%20b&marker=%2F", seed);
        if let Ok(query) = std::str::from_utf8(&query) {
            let _any = decode_query(query);
            let _any = percent_decode(query);
        }
    }
}

const POLICIES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier><Id>one</Id>\
    <AccessPolicy><Start>2026-01-02T03:04:05.0000000Z</Start><Expiry>2030-01-01</Expiry><Permission>raup</Permission>\
    </AccessPolicy></SignedIdentifier></SignedIdentifiers>";
const PROPERTIES: &str = "<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete>\
    <Read>false</Read><Write>true</Write><RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy>\
    </Logging><Cors><CorsRule><AllowedOrigins>https://a.example</AllowedOrigins>\
    <AllowedMethods>GET,PUT</AllowedMethods><MaxAgeInSeconds>60</MaxAgeInSeconds>\
    <ExposedHeaders>x-ms-*</ExposedHeaders><AllowedHeaders>*</AllowedHeaders>\
    </CorsRule></Cors></StorageServiceProperties>";

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// What a base64 text in a URL stands for, whatever is not base64 left out: two spellings may mean the same bytes.
fn decoded(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let text = percent_decode(&text).unwrap_or_else(|_| text.into_owned());
    text.trim_end_matches('=').to_owned()
}

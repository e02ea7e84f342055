//! Requests of the real SDKs, caught on the wire, are let in as whom they were signed by; altered ones are not.

mod support;

use std::collections::BTreeMap;

use polyshard_azure_storage::{AccountKey, StoreKind};
use serde::Deserialize;
use support::{Reply, Running};

#[derive(Deserialize)]
struct Vector {
    name: String,
    kind: String,
    unix_s: i64,
    identity: String,
    request: String,
}

fn vectors() -> Vec<Vector> {
    let python = include_str!("vectors/requests_python.json");
    let javascript = include_str!("vectors/requests_javascript.json");
    let read = |text: &str| serde_json::from_str::<Vec<Vector>>(text).unwrap();
    let (python, javascript) = (read(python), read(javascript));
    assert!(python.len() > 100 && javascript.len() > 30, "the vectors were not found");
    python.into_iter().chain(javascript).collect()
}

struct Doors(BTreeMap<&'static str, Running>);

impl Doors {
    fn start() -> Doors {
        let kinds = [StoreKind::Blob, StoreKind::Queue, StoreKind::Table];
        Doors(kinds.into_iter().map(|kind| (kind.as_str(), Running::start(kind))).collect())
    }

    /// Sends a request so many seconds after it was signed.
    fn ask(&self, vector: &Vector, request: &str, late_s: i64) -> Reply {
        let door = &self.0[vector.kind.as_str()];
        door.clock.set_s(vector.unix_s + late_s);
        let bytes: Vec<u8> = request.chars().map(|char| u8::try_from(u32::from(char)).unwrap()).collect();
        if request.starts_with("HEAD ") {
            let mut client = door.connect();
            client.send(&bytes);
            let (status, head) = client.head();
            return Reply { status, head, body: Vec::new() };
        }
        door.ask(&bytes)
    }
}

#[test]
fn requests_of_the_sdks_are_let_in() {
    let (doors, vectors) = (Doors::start(), vectors());
    for vector in &vectors {
        let reply = doors.ask(vector, &vector.request, 0);
        assert_eq!(reply.status, 200, "{}: {}{}", vector.name, reply.head, reply.text());
        let identity = vector.identity.escape_default().to_string();
        assert_eq!(reply.header("Who"), Some(identity.as_str()), "{}", vector.name);
    }
}

/// The SDKs for Python put the account's path behind that of the secondary endpoint.
#[test]
fn statistics_are_asked_for_at_the_secondary_endpoint() {
    let doors = Doors::start();
    let vectors: Vec<_> =
        vectors().into_iter().filter(|vector| vector.name.ends_with("secondary stats")).collect();
    assert_eq!(vectors.len(), 2);
    for vector in &vectors {
        assert!(vector.request.starts_with("GET /devstoreaccount1-secondary/devstoreaccount1/?"));
        assert_eq!(doors.ask(vector, &vector.request, 0).header("Resource"), Some("/"), "{}", vector.name);
    }
}

#[test]
fn altered_signatures_are_refused() {
    let doors = Doors::start();
    for vector in &vectors() {
        let mark = if vector.identity == "SharedKey" { " devstoreaccount1:" } else { "sig=" };
        let (start, signature) = vector.request.split_once(mark).unwrap();
        let altered = format!("{start}{mark}{}", flip(signature));
        let reply = doors.ask(vector, &altered, 0);
        assert_eq!(reply.status, 403, "{}: {}", vector.name, reply.head);
        assert_eq!(reply.header("x-ms-error-code"), Some("AuthenticationFailed"), "{}", vector.name);
    }
}

#[test]
fn another_path_or_verb_than_the_signed_one_is_refused() {
    let doors = Doors::start();
    let keyed = |vector: &&Vector| vector.identity == "SharedKey";
    for vector in vectors().iter().filter(keyed) {
        let (method, rest) = vector.request.split_once(' ').unwrap();
        let at = rest.find(['?', ' ']).unwrap();
        let path = format!("{method} {}x{}", &rest[..at], &rest[at..]);
        assert_eq!(doors.ask(vector, &path, 0).status, 403, "{}", vector.name);
        // SharedKeyLite for tables, which the clients for JavaScript use, covers nothing but date and resource.
        if vector.kind != "table" || !vector.request.contains("SharedKeyLite") {
            let other = if method == "PATCH" { "PUT" } else { "PATCH" };
            let status = doors.ask(vector, &format!("{other} {rest}"), 0).status;
            assert_eq!(status, 403, "{}", vector.name);
        }
    }
}

#[test]
fn queues_and_blobs_cover_their_headers_and_queries() {
    let doors = Doors::start();
    let covered = |vector: &&Vector| vector.kind != "table" && vector.identity == "SharedKey";
    for vector in vectors().iter().filter(covered) {
        let added = vector.request.replacen("\r\n\r\n", "\r\nX-MS-Meta-New: 1\r\n\r\n", 1);
        assert_eq!(doors.ask(vector, &added, 0).status, 403, "{}", vector.name);
        if vector.request.contains("SharedKeyLite") {
            continue;
        }
        let (head, rest) = vector.request.split_once(" HTTP/1.1\r\n").unwrap();
        let mark = if head.contains('?') { '&' } else { '?' };
        let added = format!("{head}{mark}new=1 HTTP/1.1\r\n{rest}");
        assert_eq!(doors.ask(vector, &added, 0).status, 403, "{}", vector.name);
    }
}

#[test]
fn a_clock_more_than_fifteen_minutes_off_is_refused() {
    let doors = Doors::start();
    for vector in vectors().iter().filter(|vector| vector.identity == "SharedKey") {
        for (late_s, status) in [(-905, 403), (-890, 200), (890, 200), (905, 403)] {
            let reply = doors.ask(vector, &vector.request, late_s);
            assert_eq!(reply.status, status, "{} at {late_s}", vector.name);
        }
    }
}

#[test]
fn either_key_of_an_account_signs() {
    let door = Running::start(StoreKind::Table);
    for (key, status) in [("Zmlyc3Q=", 200), ("c2Vjb25k", 200), ("dGhpcmQ=", 403)] {
        let date = "Thu, 01 Jan 1970 00:00:00 GMT";
        let signature = AccountKey::from_base64(key).unwrap().sign(&format!("{date}\n/twokeys/twokeys/t"));
        let request = format!(
            "GET /twokeys/t HTTP/1.1\r\nHost: h\r\nx-ms-date: {date}\r\nAuthorization: SharedKeyLite \
             twokeys:{signature}\r\n\r\n"
        );
        assert_eq!(door.ask(request.as_bytes()).status, status, "{key}");
    }
}

/// The same text with its first character changed to another of base64.
fn flip(text: &str) -> String {
    let other = if text.starts_with('A') { 'B' } else { 'A' };
    // A percent-encoded character is three.
    let skip = if text.starts_with('%') { 3 } else { 1 };
    format!("{other}{}", &text[skip..])
}

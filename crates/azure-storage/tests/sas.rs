//! Shared access signatures, each thing that can be wrong with one, and the code it has.

mod support;

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, StoreKind};
use support::{Reply, Running};

/// 2026-11-15T00:00:00Z.
const NOW_S: i64 = 1_794_700_800;

/// The fields of an account SAS that works for tables, and its text to sign by the documentation.
fn account(changes: &[(&str, &str)]) -> String {
    let names = ["sp", "ss", "srt", "st", "se", "sip", "spr", "sv"];
    let good = ["r", "t", "so", "", "2026-11-16", "", "", "2019-02-02"];
    let mut values: Vec<(&str, &str)> = names.into_iter().zip(good).collect();
    for (name, value) in changes {
        values.iter_mut().find(|(own, _)| own == name).unwrap().1 = value;
    }
    let text: String = values.iter().map(|(_, value)| format!("{value}\n")).collect();
    token(&values, &format!("devstoreaccount1\n{text}"))
}

/// The fields of a SAS for the queue `jobs`.
fn queue(changes: &[(&str, &str)]) -> String {
    let mut values =
        vec![("sp", ""), ("st", ""), ("se", ""), ("si", ""), ("sip", ""), ("spr", ""), ("sv", "2019-02-02")];
    for (name, value) in changes {
        values.iter_mut().find(|(own, _)| own == name).unwrap().1 = value;
    }
    let mut lines: Vec<&str> = values.iter().map(|(_, value)| *value).collect();
    lines.insert(3, "/queue/devstoreaccount1/jobs");
    token(&values, &lines.join("\n"))
}

fn token(values: &[(&str, &str)], text: &str) -> String {
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(text);
    let given = values.iter().filter(|(_, value)| !value.is_empty());
    let query: String = given.map(|(name, value)| format!("{name}={value}&")).collect();
    format!("{query}sig={}", signature.replace('+', "%2B"))
}

fn ask(door: &Running, path: &str, token: &str, headers: &str) -> Reply {
    door.clock.set_s(NOW_S);
    door.ask(format!("GET /devstoreaccount1/{path}?{token} HTTP/1.1\r\nHost: h\r\n{headers}\r\n").as_bytes())
}

fn codes(door: &Running, path: &str, cases: &[(String, &str, Option<&str>)]) {
    for (token, headers, code) in cases {
        let reply = ask(door, path, token, headers);
        assert_eq!(reply.header("x-ms-error-code"), *code, "{token}: {}", reply.text());
        let status = if code.is_none() { 200 } else { 403 };
        assert_eq!(reply.status, status, "{token}");
    }
}

#[test]
fn each_thing_wrong_with_an_account_signature_has_its_code() {
    let door = Running::start(StoreKind::Table);
    codes(
        &door,
        "Orders()",
        &[
            (account(&[]), "need: read\r\n", None),
            (account(&[]), "need: delete\r\n", Some("AuthorizationPermissionMismatch")),
            (account(&[("srt", "sc")]), "need: read\r\n", Some("AuthorizationResourceTypeMismatch")),
            (account(&[("ss", "bq")]), "", Some("AuthorizationServiceMismatch")),
            (account(&[("spr", "https")]), "", Some("AuthorizationProtocolMismatch")),
            (account(&[("spr", "https,http")]), "", None),
            (account(&[("spr", "http")]), "", Some("AuthenticationFailed")),
            (account(&[("sip", "127.0.0.1")]), "", None),
            (account(&[("sip", "10.0.0.0-127.0.0.255")]), "", None),
            (account(&[("sip", "10.0.0.1")]), "", Some("AuthorizationSourceIPMismatch")),
            (account(&[("sip", "here")]), "", Some("AuthenticationFailed")),
            (account(&[("se", "2026-11-15")]), "", Some("AuthenticationFailed")),
            (account(&[("se", "2026-11-15T00:00:01Z")]), "", None),
            (account(&[("st", "2026-11-15T00:00:01Z")]), "", Some("AuthenticationFailed")),
            (account(&[("st", "2026-11-15T00:00Z")]), "", None),
            (account(&[("se", "")]), "", Some("AuthenticationFailed")),
            (account(&[("se", "tomorrow")]), "", Some("AuthenticationFailed")),
            (account(&[("sp", "")]), "", Some("AuthenticationFailed")),
            (account(&[]).replace("sp=r", "sp=rd"), "", Some("AuthenticationFailed")),
            (account(&[]) + "&skoid=x", "", Some("AuthenticationFailed")),
        ],
    );
    let expired =
        ask(&door, "Orders()", &account(&[("se", "2026-11-14")]), "Accept: application/xml\r\n").text();
    assert!(
        expired.contains("<AuthenticationErrorDetail>Signature not valid in the specified time frame: "),
        "{expired}"
    );
}

#[test]
fn versions_that_sign_an_encryption_scope_do_so() {
    let door = Running::start(StoreKind::Table);
    let text = "devstoreaccount1\nr\nt\no\n\n2026-11-16\n\n\n2020-12-06\n";
    let values = [("sp", "r"), ("ss", "t"), ("srt", "o"), ("se", "2026-11-16"), ("sv", "2020-12-06")];
    assert_eq!(ask(&door, "t", &token(&values, text), "").status, 403);
    assert_eq!(ask(&door, "t", &token(&values, &format!("{text}\n")), "").status, 200);
    let scoped = [values.as_slice(), &[("ses", "scope")]].concat();
    assert_eq!(ask(&door, "t", &token(&scoped, &format!("{text}scope\n")), "").status, 200);
}

#[test]
fn a_queues_signature_is_for_that_queue_and_may_name_a_policy() {
    let door = Running::start(StoreKind::Queue);
    let good = [("sp", "r"), ("se", "2026-11-16")];
    codes(
        &door,
        "jobs/messages",
        &[
            (queue(&good), "need: read\r\n", None),
            (queue(&good), "need: delete\r\n", Some("AuthorizationPermissionMismatch")),
            (queue(&[("si", "read-only")]), "need: read\r\n", None),
            (queue(&[("si", "read-only")]), "need: delete\r\n", Some("AuthorizationPermissionMismatch")),
            (queue(&[("si", "read-only"), ("sp", "d")]), "", Some("AuthenticationFailed")),
            (queue(&[("si", "read-only"), ("se", "2026-11-16")]), "", Some("AuthenticationFailed")),
            (queue(&[("si", "unknown")]), "", Some("AuthenticationFailed")),
            (queue(&[("sp", "r")]), "", Some("AuthenticationFailed")),
            (queue(&[("se", "2026-11-16")]), "", Some("AuthenticationFailed")),
        ],
    );
    assert_eq!(ask(&door, "other/messages", &queue(&good), "").status, 403);
    assert_eq!(ask(&door, "", &queue(&good), "").status, 403);
}

#[test]
fn a_tables_signature_is_for_that_table() {
    let door = Running::start(StoreKind::Table);
    let text = "r\n\n2026-11-16\n/table/devstoreaccount1/orders\n\n\n\n2019-02-02\n\n\n\n";
    let values = [("sp", "r"), ("se", "2026-11-16"), ("sv", "2019-02-02"), ("tn", "Orders")];
    let token = token(&values, text);
    for path in ["Orders", "orders()", "ORDERS(PartitionKey='a',RowKey='b')", "%4Frders", "$batch"] {
        assert_eq!(ask(&door, path, &token, "").status, 200, "{path}");
    }
    for path in ["Orders2", "Tables", "Tables('Orders')", "", "Order"] {
        assert_eq!(ask(&door, path, &token, "").status, 403, "{path}");
    }
}

#[test]
fn a_plus_sign_that_was_not_encoded_is_understood() {
    let door = Running::start(StoreKind::Queue);
    // One of these signatures surely has a plus sign.
    let tokens: Vec<String> = (1..60)
        .map(|minute| queue(&[("sp", "r"), ("se", &format!("2026-11-16T00:{minute:02}Z"))]))
        .filter(|token| token.contains("%2B"))
        .collect();
    assert!(!tokens.is_empty());
    for token in tokens {
        assert_eq!(ask(&door, "jobs", &token.replace("%2B", "+"), "").status, 200, "{token}");
    }
}

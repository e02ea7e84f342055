//! Bad input over HTTP and the command line: a code, the field, a remedy, and nothing changed.

use polyshard_testkit::process::{Server, Setup, StartFailure};
use serde_json::{Value, json as value};

use crate::support::{Reply, TOKEN, assert_agreed, everything, refused, run, send, session, version_of};

/// A server with a map of each kind, whose versions must not move.
fn server() -> Server {
    let server = Setup::new().start();
    session(
        &server,
        "map create tenants --kind hash --key bigint --buckets 16
         map create orders --kind range --key bigint
         map add orders --range 0..1000 --to s1
         map create customers --kind list --key text
         map add customers --key acme --to s1
         map create events --kind range_hash --key '(date, bigint)' --buckets 4
         map add-segment events --range 2024-01-01..2024-02-01 --shards s1,s2",
    );
    server
}

fn post(server: &Server, path: &str, body: &str) -> Reply {
    let headers = format!("{TOKEN}content-type: application/json\r\n");
    send(server, &format!("POST {path}"), &headers, body.as_bytes())
}

#[track_caller]
fn change(server: &Server, map: &str, body: Value) -> Reply {
    post(server, &format!("/v1/maps/{map}/changes"), &body.to_string())
}

/// The message or the remedy names this.
#[track_caller]
fn assert_says(error: &Value, words: &[&str]) {
    let text = format!("{} {} {}", error["message"], error["remedy"], error["field"]);
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {error}");
    }
}

#[test]
fn bodies_that_are_no_request_are_refused_with_the_field_and_change_nothing() {
    let server = server();
    let before = everything(&server);
    for body in [
        "",
        "{",
        "[]",
        "null",
        "7",
        "\"text\"",
        "{\"split\": {\"at\": 5}} trailing",
        "\u{feff}{}",
        "{\"split\":",
    ] {
        let error = post(&server, "/v1/maps/orders/changes", body).error(400, "invalid");
        assert_says(&error, &["body"]);
    }
    let not_utf8 = send(&server, "POST /v1/maps", TOKEN, b"{\"name\": \"\xff\xfe\"}");
    not_utf8.error(400, "invalid");
    let wrong_types = [
        (value!({"split": {"at": []}}), "at"),
        (value!({"split": {}}), "at"),
        (value!({"split": {"at": 5, "elsewhere": 1}}), "elsewhere"),
        (value!({"cut": {"at": 5}}), "cut"),
        (value!({"add": {"entries": {"range": 5}}}), "entries"),
        (value!({"add": {"entries": [{"shard": "s1"}]}}), "range"),
        (value!({"add": {"entries": [{"range": {"from": 0, "key": 5}, "shard": "s1"}]}}), "range"),
        (value!({"add": {"entries": [{"range": {}, "shard": "s1"}]}}), "range"),
        (value!({"add": {"entries": [{"range": {"from": 2000}, "shard": "S 1"}]}}), "shard"),
        (value!({"set_state": {"range": {"from": 0}, "state": "asleep"}}), "state"),
        (value!({"lock": {"range": {"from": 0}, "owner": 5, "lease_ms": 1}}), "owner"),
        (value!({"lock": {"range": {"from": 0}, "owner": "a", "lease_ms": -1}}), "lease_ms"),
        (value!({"assign": {"to": "s2"}}), "range"),
        (value!({"split": {"at": 5}, "merge": {"at": 5}}), "body"),
    ];
    for (body, field) in wrong_types {
        let error = change(&server, "orders", body.clone()).error(400, "invalid");
        assert_says(&error, &[field]);
    }
    let new_maps = [
        (value!({"name": "Bad Name", "kind": "hash", "key": "bigint"}), "name"),
        (value!({"name": "x", "kind": "tree", "key": "bigint"}), "kind"),
        (value!({"name": "x", "kind": "hash", "key": "float"}), "key"),
        (value!({"name": "x", "kind": "hash", "key": "(int"}), "key"),
        (value!({"name": "x", "kind": "hash", "key": "bigint", "buckets": 0}), "buckets"),
        (value!({"name": "x", "kind": "hash", "key": "bigint", "buckets": "many"}), "buckets"),
        (value!({"name": "x", "kind": "list", "key": "bigint", "buckets": 8}), "buckets"),
        (value!({"name": "x", "kind": "range_hash", "key": "bigint"}), "key"),
        (value!({"name": "x", "kind": "hash", "key": "bigint", "colour": "red"}), "colour"),
        (value!({"kind": "hash", "key": "bigint"}), "name"),
    ];
    for (body, field) in new_maps {
        let error = post(&server, "/v1/maps", &body.to_string()).error(400, "invalid");
        assert_says(&error, &[field]);
    }
    assert_eq!(everything(&server), before);
    assert_agreed(&server);
    server.assert_clean_log(&[]);
}

#[test]
fn a_body_that_is_too_large_is_refused_unread() {
    let server = server();
    let before = everything(&server);
    let big = format!("{{\"name\": \"{}\"}}", "a".repeat(8 << 20));
    let error = post(&server, "/v1/maps", &big).error(413, "too_large");
    assert!(error["remedy"].is_string(), "{error}");
    // Whatever part of the API it is for.
    for path in ["/v1/query", "/v1/backups", "/v1/adopt"] {
        post(&server, path, &big).error(413, "too_large");
    }
    let headers = format!("{TOKEN}transfer-encoding: chunked\r\n");
    let answer = send(&server, "POST /v1/maps", &headers, b"zz\r\n");
    assert_eq!(answer.status, 400, "both lengths at once are no request: {answer:?}");
    assert_eq!(everything(&server), before);
}

#[test]
fn keys_that_do_not_fit_their_type_are_refused_with_what_would() {
    let server = Setup::new().start();
    let bad = [
        ("int", vec!["2147483648", "-2147483649", "1.5", "", "x", "0x10"]),
        ("bigint", vec!["9223372036854775808", "1e3", "nan"]),
        ("uuid", vec!["42", "6f1c7f6e-2c5e-4a7c-9d0b-0d6e5b0a7c1", "zf1c7f6e-2c5e-4a7c-9d0b-0d6e5b0a7c11"]),
        ("binary", vec!["\\xf", "\\xzz", "plain"]),
        ("date", vec!["2024-02-30", "2024-13-01", "yesterday", "2024"]),
        ("timestamp", vec!["2024-01-01T25:00:00Z", "soon"]),
        ("'(text, bigint)'", vec!["7", "[\"eu\"]", "[\"eu\", \"x\"]", "[\"eu\", 1, 2]", "[", "[1, 1]"]),
    ];
    for (index, (key_type, keys)) in bad.iter().enumerate() {
        run(&server, &format!("map create m{index} --kind list --key {key_type}")).ok();
        for key in keys {
            let error = refused(&server, &format!("map locate m{index} '{key}'"), 2);
            assert_eq!(
                (&error["code"], &error["field"]),
                (&value!("invalid"), &value!("key")),
                "{key_type} {key}"
            );
            let add = refused(&server, &format!("map add m{index} --key '{key}' --to s1"), 2);
            assert_eq!(add["code"], "invalid", "{key_type} {key}");
        }
        assert_eq!(version_of(&server, &format!("m{index}")), 1);
    }
    let long = format!("map locate m3 '\\x{}'", "00".repeat(129));
    assert_says(&refused(&server, &long, 2), &["128"]);
}

#[test]
fn ranges_that_make_no_sense_are_refused_and_nothing_is_half_applied() {
    let server = server();
    let before = everything(&server);
    let refusals = [
        ("map add orders --range 2000..1500 --to s1", 2, "invalid"),
        ("map add orders --range 2000..2000 --to s1", 2, "invalid"),
        ("map add orders --range 500..2000 --to s1", 4, "conflict"),
        ("map add orders --range 5000..6000 --to nowhere", 3, "not_found"),
        ("map add orders --buckets 0..4 --to s1", 2, "invalid"),
        ("map add orders --key acme --to s1", 2, "invalid"),
        ("map add customers --range a..b --to s1", 2, "invalid"),
        ("map split orders --at 0", 4, "conflict"),
        ("map split orders --at 1000", 4, "conflict"),
        ("map split orders --at x", 2, "invalid"),
        ("map split customers --at acme", 2, "invalid"),
        ("map merge orders --at 500", 4, "conflict"),
        ("map assign orders --range 500..2000 --to s2", 4, "conflict"),
        ("map assign tenants --buckets 0..17 --to s2", 2, "invalid"),
        ("map assign tenants --buckets 4..4 --to s2", 2, "invalid"),
        ("map assign tenants --key 42 --to s2", 2, "invalid"),
        ("map assign customers --group nobody --to s2", 4, "conflict"),
        ("map add-segment events --range 2024-01-15..2024-03-01 --shards s1", 2, "invalid"),
        ("map add-segment events --range 2024-03-01..2024-04-01 --shards nowhere", 3, "not_found"),
        ("map add-segment orders --range 2000..3000 --shards s1", 2, "invalid"),
        ("map split-segment events --segment 2024-01-01 --at 2024-05-01", 4, "conflict"),
        ("map remove-segment events --segment 2023-01-01", 2, "invalid"),
        ("map state orders online --range 5000..6000", 4, "conflict"),
        ("map remove nothing --key 1", 3, "not_found"),
        ("map create tenants --kind list --key text", 4, "exists"),
        ("map create more --kind hash --key bigint --shards s1,s9", 3, "not_found"),
        ("map create more --kind hash --key bigint --buckets 9999999", 2, "invalid"),
        ("map drop tenants --if-version 99", 4, "changed_meanwhile"),
        ("shard add s1 --url sqlite:shards/other.db", 4, "exists"),
        ("shard add S9 --url sqlite:shards/s9.db", 2, "invalid"),
        ("shard add s9 --url mysql://host/db", 2, "invalid"),
        ("shard add s9 --url postgres://me:hunter2@host/db", 2, "invalid"),
        ("shard set s9 --region eu", 3, "not_found"),
        ("shard set s1 --state asleep", 2, "invalid"),
        ("map entries tenants --limit 0", 2, "invalid"),
        ("map entries tenants --after nonsense", 2, "invalid"),
        ("ops show nonsense", 2, "invalid"),
        ("ops cancel ''", 2, "invalid"),
        ("ops show 00000000-0000-0000-0000-000000000000", 3, "not_found"),
    ];
    let mut wrong = Vec::new();
    for (line, exit, code) in refusals {
        let output = run(&server, &format!("{line} --json"));
        let body: Value = serde_json::from_str(&output.stderr).unwrap_or(Value::Null);
        let error = &body["error"];
        if output.code != Some(exit)
            || error["code"] != code
            || error["message"].as_str().is_none_or(str::is_empty)
        {
            wrong.push(format!("{line}: exit {:?}, {}", output.code, output.stderr));
        }
        assert!(!output.stderr.contains("hunter2"), "{line}: {}", output.stderr);
    }
    assert!(wrong.is_empty(), "answered otherwise:\n{}", wrong.join("\n"));
    assert_eq!(everything(&server), before);
    assert_agreed(&server);
}

/// One bad entry among good ones: none of them is added.
#[test]
fn a_change_of_many_entries_is_made_whole_or_not_at_all() {
    let server = server();
    let before = everything(&server);
    let entry = |key: &str, shard: &str| value!({"range": {"key": key}, "shard": shard});
    let twice = value!({"add": {"entries": [entry("a", "s1"), entry("b", "s2"), entry("a", "s2")]}});
    assert!([400, 409].contains(&change(&server, "customers", twice).status));
    let exists = value!({"add": {"entries": [entry("a", "s1"), entry("acme", "s2")]}});
    change(&server, "customers", exists).error(409, "conflict");
    let nowhere = value!({"add": {"entries": [entry("a", "s1"), entry("b", "s9")]}});
    change(&server, "customers", nowhere).error(404, "not_found");
    let many: Vec<Value> = (0..10_001).map(|n| entry(&format!("k{n}"), "s1")).collect();
    let many = change(&server, "customers", value!({"add": {"entries": many}}));
    assert_says(&many.error(400, "invalid"), &["10001"]);
    assert_eq!(everything(&server), before);
}

#[test]
fn documents_that_are_no_map_are_not_imported() {
    let server = server();
    run(&server, "map export tenants --output tenants.json").ok();
    let exported = server.get("/v1/maps/tenants/export").body;
    let document: Value = serde_json::from_str(&exported).unwrap();
    let before = everything(&server);
    let mut newer = document.clone();
    newer["format"] = value!(99);
    let mut other = document.clone();
    other["name"] = value!("copy");
    let mut gone = other.clone();
    let text = gone.to_string().replace("\"s1\"", "\"s9\"");
    gone = serde_json::from_str(&text).unwrap();
    assert_says(&post(&server, "/v1/maps/import", &newer.to_string()).error(400, "invalid"), &["99"]);
    assert_says(&post(&server, "/v1/maps/import", &gone.to_string()).error(404, "not_found"), &["s9"]);
    post(&server, "/v1/maps/import", "{}").error(400, "invalid");
    post(&server, "/v1/maps/import", &exported[..exported.len() / 2]).error(400, "invalid");
    post(&server, "/v1/maps/import", &exported).error(409, "exists");
    assert_eq!(everything(&server), before);
}

/// B3: the version that a change is based on is the one that counts.
#[test]
fn a_change_based_on_an_old_version_is_refused_and_told_the_current_one() {
    let server = server();
    run(&server, "map split orders --at 500").ok();
    let version = version_of(&server, "orders");
    let before = everything(&server);
    let old = refused(&server, &format!("map split orders --at 250 --if-version {}", version - 1), 4);
    assert_eq!((&old["code"], &old["current_version"]), (&value!("changed_meanwhile"), &value!(version)));
    let body = value!({"split": {"at": 250}}).to_string();
    let ask = |tag: &str| {
        let headers = format!("{TOKEN}if-match: {tag}\r\n");
        send(&server, "POST /v1/maps/orders/changes", &headers, body.as_bytes())
    };
    assert_eq!(ask("\"1\"").error(412, "changed_meanwhile")["current_version"], version);
    for malformed in ["1", "\"x\"", "W/\"1\"", "\"1\", \"2\"", "\"-1\""] {
        assert_eq!(ask(malformed).error(400, "invalid")["field"], "If-Match", "{malformed}");
    }
    assert_eq!(refused(&server, "shard set s1 --region eu --if-version 9", 4)["current_version"], 1);
    assert_eq!(everything(&server), before);
    assert_eq!(ask(&format!("\"{version}\"")).status, 200);
    assert_eq!(version_of(&server, "orders"), version + 1);
}

#[test]
fn without_the_token_nothing_is_told_or_done() {
    let setup =
        Setup::new().env("POLYSHARD__ADMIN__TOKEN", "a-token-of-some-length").token("a-token-of-some-length");
    let server = setup.start();
    run(&server, "map create tenants --kind hash --key bigint").ok();
    let body = value!({"name": "x", "kind": "hash", "key": "bigint"}).to_string();
    for headers in ["", TOKEN, "authorization: Bearer \r\n", "authorization: Basic cG9seXNoYXJk\r\n"] {
        for request in ["GET /v1/status", "GET /v1/maps/tenants", "POST /v1/maps", "DELETE /v1/maps/tenants"]
        {
            let error = send(&server, request, headers, body.as_bytes()).error(401, "unauthorized");
            assert!(error["remedy"].is_string(), "{error}");
        }
    }
    assert_eq!(crate::support::maps(&server), ["tenants"]);
    let output = run(&server, "status --token wrong --json");
    assert_eq!(crate::support::error_of(output, 1)["code"], "unauthorized");
    assert!(!server.log().text().contains("a-token-of-some-length"));
}

#[test]
fn paths_and_methods_that_do_not_exist_are_named() {
    let server = server();
    assert_eq!(send(&server, "GET /v1/nonsense", TOKEN, b"").status, 404);
    send(&server, "PUT /v1/maps", TOKEN, b"{}").error(405, "method_not_allowed");
    send(&server, "GET /v1/maps/No%20Map", TOKEN, b"").error(400, "invalid");
    send(&server, "GET /v1/maps/tenants/locate", TOKEN, b"").error(400, "invalid");
    send(&server, "GET /v1/maps/tenants/locate?key=1&colour=red", TOKEN, b"").error(400, "invalid");
    send(&server, "GET /v1/maps/tenants/locate?key=%ff", TOKEN, b"").error(400, "invalid");
    send(&server, "GET /v1/maps/none/locate?key=1", TOKEN, b"").error(404, "not_found");
    send(&server, "GET /v1/maps/tenants/entries?limit=100000", TOKEN, b"").error(400, "invalid");
    // Garbage instead of HTTP harms nobody.
    assert_eq!(send(&server, "\u{1}\u{2}garbage /", TOKEN, b"").status, 400);
    run(&server, "map locate tenants 1").ok();
}

/// E6, E7: doors that others can reach need keys of their own, and a certificate must be one.
#[test]
fn doors_are_not_opened_with_a_public_key_or_a_wrong_certificate() {
    let public = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "no certificate").expect("a file");
    let garbage = garbage.display();
    let tls = |certificate: &str| {
        format!("[azure]\ncertificate_file = \"{certificate}\"\ncertificate_key_file = \"{garbage}\"\n")
    };
    for (config, words) in [
        (
            "[[accounts]]\nname = \"mine\"\nkey_env = \"KEY\"\n[queue]\nlisten = \"0.0.0.0:0\"\n".to_owned(),
            "the emulators' well-known key",
        ),
        ("[[accounts]]\nname = \"mine\"\nkey = \"no base64\"\n".to_owned(), "is not base64"),
        (tls("/nowhere.pem"), "/nowhere.pem cannot be read"),
        (tls(&garbage.to_string()), "no certificate in PEM form"),
    ] {
        let setup = Setup::new().config(&config).env("KEY", public);
        // What the configuration file says about the address counts here.
        let setup = if config.contains("0.0.0.0") {
            setup.env("POLYSHARD__QUEUE__LISTEN", "0.0.0.0:0")
        } else {
            setup
        };
        let failure = setup.try_start().expect_err(&config);
        let StartFailure::Ended(status, log) = failure else { panic!("{failure}") };
        assert_ne!(status.code(), Some(0), "{log}");
        assert!(log.contains(words), "{words}: {log}");
        assert!(!log.contains(&public[..8]), "{log}");
    }
}

//! What a client sees: statuses, headers, and errors that name the field and the remedy.

mod memory;

use memory::{Server, TOKEN};
use polyshard_admin::ErrorCode;
use serde_json::{Value, json};

struct Reply {
    status: u16,
    headers: ureq::http::HeaderMap,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Status, code, and field of an error.
    fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty(), "{}", self.body);
        (self.status, text("code"), text("field"))
    }
}

/// Sends a request as any HTTP client would, with headers as `name: value`.
fn send(server: &Server, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", server.url()));
    for header in headers {
        let (name, value) = header.split_once(": ").unwrap();
        request = request.header(name, value);
    }
    let response = match body {
        [] => agent.run(request.body(()).unwrap()),
        body => agent.run(request.body(body).unwrap()),
    };
    let mut response = response.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
    let body = response.body_mut().read_to_string().unwrap();
    Reply { status: response.status().as_u16(), headers: response.headers().clone(), body }
}

fn authorization() -> String {
    format!("authorization: Bearer {TOKEN}")
}

fn get(server: &Server, path: &str) -> Reply {
    send(server, "GET", path, &[&authorization()], b"")
}

fn post(server: &Server, path: &str, body: Value) -> Reply {
    send(server, "POST", path, &[&authorization()], body.to_string().as_bytes())
}

fn error(status: u16, code: &str, field: &str) -> (u16, String, String) {
    (status, code.to_owned(), field.to_owned())
}

fn orders(server: &Server) {
    let made = post(server, "/v1/maps", json!({"name": "orders", "kind": "range", "key": "bigint"}));
    assert_eq!(made.status, 201, "{}", made.body);
    let range = json!({"from": null, "to": null});
    let added = post(
        server,
        "/v1/maps/orders/changes",
        json!({"add": {"entries": [{"range": range, "shard": "s1"}]}}),
    );
    assert_eq!(added.status, 200, "{}", added.body);
}

/// A body that nobody asks for may come after the head. The connection serves the next request all the same: whoever
/// keeps it would otherwise not know what became of that one.
#[test]
fn a_connection_goes_on_after_a_body_that_nobody_reads() {
    use std::io::{BufRead, BufReader, Read, Write};

    let server = Server::start();
    let stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for round in 0..3 {
        let head =
            format!("PUT /v1/shards HTTP/1.1\r\nhost: x\r\n{}\r\ncontent-length: 4\r\n\r\n", authorization());
        (&stream).write_all(head.as_bytes()).unwrap();
        // Long enough that a server that does not wait for the body has answered.
        std::thread::sleep(std::time::Duration::from_millis(50));
        (&stream).write_all(b"null").unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut line = String::new();
        answers.read_line(&mut line).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(line.starts_with("HTTP/1.1 405 "), "round {round}: {line:?}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[test]
fn everything_but_health_needs_the_token() {
    let server = Server::start();
    for path in ["/v1/status", "/v1/openapi.json", "/v1/maps/import", "/v1/nothing"] {
        for wrong in
            ["x-nothing: 1", "authorization: Bearer wrong", "authorization: Basic dTpw", "authorization: B"]
        {
            let refused = send(&server, "GET", path, &[wrong], b"");
            assert_eq!(refused.error(), error(401, "unauthorized", ""), "{path} with {wrong}");
            assert_eq!(refused.header("www-authenticate"), "Bearer");
            assert!(!refused.body.contains(TOKEN));
        }
    }
    assert_eq!(get(&server, "/v1/status").status, 200);
    let lower = format!("authorization: bearer {TOKEN}");
    assert_eq!(send(&server, "GET", "/v1/status", &[&lower], b"").status, 200);
    assert_eq!(send(&server, "GET", "/healthz", &[], b"").body, "ok\n");
    let unready = send(&server, "GET", "/readyz", &[], b"");
    assert_eq!(unready.error(), error(503, "unavailable", ""));
    assert_eq!(unready.header("retry-after"), "1");
}

#[test]
fn paths_and_methods_that_do_not_exist_are_named() {
    let server = Server::start();
    assert_eq!(get(&server, "/v1/nothing").error(), error(404, "not_found", ""));
    let refused = send(&server, "PUT", "/v1/shards", &[&authorization()], b"{}");
    assert_eq!(refused.error(), error(405, "method_not_allowed", ""));
    assert_eq!(get(&server, "/v1/maps/No%20Map").error(), error(400, "invalid", "path"));
    assert_eq!(get(&server, "/v1/maps/none").error(), error(404, "not_found", ""));
    assert_eq!(get(&server, "/v1/operations/op2").error(), error(404, "not_found", ""));
    assert_eq!(get(&server, "/v1/operations/op1").json()["state"], "rolled_back");
}

#[test]
fn a_body_that_is_wrong_names_the_field() {
    let server = Server::start();
    orders(&server);
    let shard =
        |body: &str| send(&server, "POST", "/v1/shards", &[&authorization()], body.as_bytes()).error();
    assert_eq!(shard("{"), error(400, "invalid", ""));
    assert_eq!(shard(r#"["s3", "sqlite:x"]"#), error(400, "invalid", ""));
    assert_eq!(shard("\u{0}\u{1}"), error(400, "invalid", ""));
    assert_eq!(shard(r#"{"id": "s3", "url": "sqlite:x"} extra"#), error(400, "invalid", ""));
    assert_eq!(shard(r#"{"id": "S 3", "url": "sqlite:x"}"#), error(400, "invalid", "id"));
    assert_eq!(shard(r#"{"id": "s3", "url": 5}"#), error(400, "invalid", "url"));
    assert_eq!(shard(r#"{"id": "s3", "url": "sqlite:x", "colour": 1}"#), error(400, "invalid", "colour"));
    let limits = r#"{"id": "s3", "url": "sqlite:x", "limits": {"bytes_max": 0}}"#;
    assert_eq!(shard(limits), error(400, "invalid", "limits.bytes_max"));
    assert_eq!(shard(r#"{"id": "s3", "url": "postgres://me:secret@host/db"}"#), error(400, "invalid", "url"));
    assert_eq!(shard(&"[".repeat(5000)), error(400, "invalid", ""));

    let change = |body: Value| post(&server, "/v1/maps/orders/changes", body).error();
    let unknown = post(&server, "/v1/maps/orders/changes", json!({"explode": {}}));
    assert_eq!(unknown.error(), error(400, "invalid", ""));
    assert!(unknown.body.contains("unknown variant `explode`, expected one of"), "{}", unknown.body);
    assert_eq!(change(json!({"assign": {"range": {}, "to": "s1"}})), error(400, "invalid", "assign.range"));
    assert_eq!(change(json!({"split": {"at": "soon"}})), error(400, "invalid", "split.at"));
    assert_eq!(change(json!({"assign": {"to": "s1"}})), error(400, "invalid", "assign"));
    let upside_down = json!({"range": {"from": 9, "to": 3}});
    assert_eq!(change(json!({"remove": upside_down})), error(400, "invalid", "remove.range.to"));
    let buckets = json!({"range": {"buckets": [0, 3]}});
    assert_eq!(change(json!({"remove": buckets})), error(400, "invalid", "remove.range"));
    let lease = json!({"range": {"from": 1}, "owner": "me", "lease_ms": 0});
    assert_eq!(change(json!({"lock": lease})), error(400, "invalid", "lock.lease_ms"));
}

#[test]
fn a_query_that_is_wrong_is_refused() {
    let server = Server::start();
    orders(&server);
    assert_eq!(get(&server, "/v1/maps/orders/locate").error(), error(400, "invalid", "query"));
    assert_eq!(get(&server, "/v1/maps/orders/locate?key=soon").error(), error(400, "invalid", "key"));
    assert_eq!(get(&server, "/v1/maps/orders/entries?limit=0").error(), error(400, "invalid", "limit"));
    assert_eq!(get(&server, "/v1/maps/orders/entries?limit=10001").error(), error(400, "invalid", "limit"));
    let unknown = get(&server, "/v1/maps/orders/entries?colour=blue");
    assert_eq!(unknown.error(), error(400, "invalid", "query"));
    assert!(unknown.body.contains("colour"), "{}", unknown.body);
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = Server::start();
    let name = "x".repeat(1024 * 1024);
    let refused = post(&server, "/v1/maps", json!({"name": name, "kind": "list", "key": "text"}));
    assert_eq!(refused.error(), error(413, "too_large", ""));
    // An import may be larger; this one is refused for what it is, not for its size.
    let refused = post(&server, "/v1/maps/import", json!({"format": 1, "name": name}));
    assert_eq!(refused.error().0, 400, "{}", refused.body);
}

#[test]
fn a_change_is_based_on_a_version() {
    let server = Server::start();
    orders(&server);
    let shown = get(&server, "/v1/maps/orders");
    assert_eq!(shown.header("etag"), "\"2\"");
    let split = |at: i64, if_match: &str| {
        let body = json!({"split": {"at": at}}).to_string();
        send(&server, "POST", "/v1/maps/orders/changes", &[&authorization(), if_match], body.as_bytes())
    };
    let first = split(10, "if-match: \"2\"");
    assert_eq!((first.status, first.header("etag")), (200, "\"3\""));
    let second = split(20, "if-match: \"2\"");
    assert_eq!(second.error(), error(412, "changed_meanwhile", ""));
    assert_eq!(second.json()["error"]["current_version"], 3);
    assert_eq!(split(20, "if-match: *").status, 200);
    for wrong in ["if-match: 4", "if-match: \"four\"", "if-match: \"4\", \"5\""] {
        assert_eq!(split(30, wrong).error(), error(400, "invalid", "If-Match"), "{wrong}");
    }
    let body = json!({"region": "eu"}).to_string();
    let stale =
        send(&server, "PATCH", "/v1/shards/s1", &[&authorization(), "if-match: \"9\""], body.as_bytes());
    assert_eq!(stale.error(), error(412, "changed_meanwhile", ""));
}

#[test]
fn what_the_map_refuses_is_a_conflict_with_a_remedy() {
    let server = Server::start();
    orders(&server);
    let change = |path: &str, body: Value| post(&server, &format!("/v1/maps/orders/changes{path}"), body);
    let again = json!({"add": {"entries": [{"range": {"from": 1, "to": 2}, "shard": "s2"}]}});
    let refused = change("", again);
    assert_eq!(refused.error(), error(409, "conflict", ""));
    assert!(refused.json()["error"]["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()));

    let lock = json!({"lock": {"range": {"from": 0, "to": 100}, "owner": "alice", "lease_ms": 60_000}});
    assert_eq!(change("", lock).status, 200);
    let assign = json!({"assign": {"range": {"from": 10, "to": 20}, "to": "s2"}});
    assert_eq!(change("", assign.clone()).error(), error(409, "locked", ""));
    assert_eq!(change("?owner=alice", assign).status, 200);
    let located = get(&server, "/v1/maps/orders/locate?key=15").json();
    assert_eq!((&located["shard"], &located["range"]), (&json!("s2"), &json!({"from": 10, "to": 20})));
}

#[test]
fn a_shard_that_holds_data_needs_the_explicit_word() {
    let server = Server::start();
    let delete = |path: &str| send(&server, "DELETE", path, &[&authorization()], b"");
    assert_eq!(delete("/v1/shards/s1").error(), error(409, "holds_data", ""));
    assert_eq!(delete("/v1/shards/s1?destroy=s2").error(), error(400, "invalid", "destroy"));
    assert_eq!(delete("/v1/shards/s1?destroy=yes").error(), error(400, "invalid", "destroy"));
    assert_eq!(delete("/v1/shards/s1?destroy=s1").status, 204);
    assert_eq!(delete("/v1/shards/s1?destroy=s1").error(), error(404, "not_found", ""));
}

#[test]
fn a_patch_tells_a_cleared_value_from_one_not_given() {
    let server = Server::start();
    let patch = |body: Value| {
        let body = body.to_string();
        let patched = send(&server, "PATCH", "/v1/shards/s1", &[&authorization()], body.as_bytes());
        patched.json()["region"].clone()
    };
    assert_eq!(patch(json!({"region": "eu"})), json!("eu"));
    assert_eq!(patch(json!({"state": "read_only"})), json!("eu"));
    assert_eq!(patch(json!({"region": null})), Value::Null);
}

#[test]
fn garbage_instead_of_http_does_not_stop_the_server() {
    use std::io::{Read, Write};
    let server = Server::start();
    for garbage in [
        &b"\x00\xff\x16\x03\x01"[..],
        b"GET\r\n\r\n",
        b"POST /v1/maps HTTP/1.1\r\ncontent-length: 99\r\n\r\n{",
    ] {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // The server may answer or just close; both are fine, a hang is not.
        let _closed = stream.read_to_end(&mut answer);
    }
    assert_eq!(get(&server, "/v1/status").status, 200);
}

#[test]
fn every_code_is_in_the_document() {
    let document = polyshard_admin::document_text();
    for code in ErrorCode::ALL {
        let word = serde_json::to_string(&code).unwrap();
        assert!(document.contains(&word), "{word} is not in the OpenAPI document");
    }
}

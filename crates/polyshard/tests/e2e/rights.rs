//! Users, rights and tokens of a real process, from the command line, over HTTP and with psql. E7.

use std::io::Write;
use std::process::{Command, Stdio};

use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;

use crate::support::{json, refused, run, send, session};

const PASSWORD: &str = "correct horse";

/// Runs a command that reads a password.
fn with_password(server: &Server, arguments: &[&str], password: &str) -> (bool, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_polyshard"))
        .args(arguments)
        .env("POLYSHARD_SERVER", format!("http://{}", server.door("admin")))
        .env("POLYSHARD_TOKEN", "polyshard")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It is closed at once, which ends the password.
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Runs SQL with psql, as a user.
fn psql(server: &Server, user: &str, password: &str, sql: &str) -> (bool, String) {
    let address = server.door("sql").rsplit_once('@').map_or(server.door("sql"), |(_, rest)| rest);
    let address = address.split('/').next().unwrap();
    let (host, port) = address.rsplit_once(':').unwrap();
    let output = Command::new("psql")
        .args(["-At", "-c", sql])
        .envs([("PGHOST", host), ("PGPORT", port), ("PGUSER", user), ("PGPASSWORD", password)])
        .envs([("PGDATABASE", "polyshard"), ("PSQLRC", "/dev/null")])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).trim_end().to_owned())
}

fn owner(server: &Server, sql: &str) -> String {
    let (done, said) = psql(server, "polyshard", "polyshard", sql);
    assert!(done, "{sql}: {said}");
    said
}

#[test]
fn users_come_and_go_while_the_server_runs_and_keep_their_rights_when_it_starts_again() {
    let mut server = Setup::new().start();
    session(&server, "map create tenants --kind hash --key bigint");
    for sql in [
        "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('orders', 'tenants', 'tenant')",
        "INSERT INTO orders VALUES (42, 1, 'of 42')",
        "INSERT INTO orders VALUES (43, 1, 'of 43')",
    ] {
        owner(&server, sql);
    }
    let (done, said) = with_password(&server, &["user", "add", "alice", "--password-stdin"], PASSWORD);
    assert!(done && said.contains("without rights"), "{said}");
    let alice = |server: &Server, sql: &str| psql(server, "alice", PASSWORD, sql);
    assert_eq!(alice(&server, "SELECT current_user").1, "alice");
    assert!(
        alice(&server, "SELECT note FROM orders WHERE tenant = 42").1.contains("alice may not read orders")
    );
    run(&server, "user grant alice read --map tenants --key 42").ok();
    assert_eq!(alice(&server, "SELECT note FROM orders WHERE tenant = 42"), (true, "of 42".to_owned()));
    let (done, said) = alice(&server, "SELECT note FROM orders WHERE tenant = 43");
    assert!(!done && said.contains("alice may not read orders of key 43"), "{said}");
    assert!(said.contains("polyshard user grant alice read"), "the refusal names the remedy: {said}");

    let shown = json(&server, "user show alice");
    assert_eq!(shown["grants"][0]["key"], 42);
    assert_eq!(shown["password"], true);
    let everything = run(&server, "user list --json").ok();
    assert!(!everything.contains("SCRAM") && !everything.contains(PASSWORD), "{everything}");
    for (line, exit, words) in [
        ("user show bob", 3, "no user bob"),
        ("user grant bob read", 3, "no user bob"),
        ("user grant alice read --map nowhere", 3, "nowhere"),
        ("user grant alice read --map tenants --key abc", 2, "abc"),
        ("user grant alice admin --store sql", 2, "admin is a right on everything"),
        ("user grant alice schema --table orders", 2, "schema is a right on a store"),
        ("user revoke alice write", 3, "was not granted"),
        ("user add alice --account", 3, "no account alice"),
        ("user add polyshard --account", 4, "configuration"),
    ] {
        let error = refused(&server, line, exit);
        assert!(error["message"].as_str().unwrap().contains(words), "{line}: {error}");
    }
    let (done, said) = with_password(&server, &["user", "add", "bob", "--password-stdin"], "short");
    assert!(!done && said.contains("characters"), "{said}");

    // Everything is there again after a start, and nobody has read a password anywhere.
    let (done, said) =
        with_password(&server, &["user", "passwd", "alice", "--password-stdin"], "another horse");
    assert!(done, "{said}");
    assert!(!alice(&server, "SELECT 1").0);
    assert!(server.stop().success());
    for file in ["map-snapshot.json", "catalog.db", "catalog.db-wal"] {
        let bytes = std::fs::read(server.setup().data_path().join(file)).unwrap_or_default();
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has(PASSWORD) && !has("another horse"), "a password is in {file}");
    }
    let log = server.log().text();
    assert!(
        !log.contains(PASSWORD) && !log.contains("another horse") && !log.contains("SCRAM-SHA-256$"),
        "{log}"
    );
    assert!(log.contains("right granted"), "{log}");
    let mut server = server.setup().start();
    let alice = |sql: &str| psql(&server, "alice", "another horse", sql);
    assert_eq!(alice("SELECT note FROM orders WHERE tenant = 42"), (true, "of 42".to_owned()));
    assert!(!alice("SELECT note FROM orders WHERE tenant = 43").0);
    run(&server, "user revoke alice read --map tenants --key 42").ok();
    assert!(!alice("SELECT note FROM orders WHERE tenant = 42").0);
    // Users are no datasets.
    assert!(!run(&server, "datasets").ok().contains("alice"));
    run(&server, "user remove alice").ok();
    assert!(!alice("SELECT 1").0);
    assert!(server.stop().success());
}

/// A request with a token, and its status.
fn asked(server: &Server, token: &str, request: &str, body: &str) -> (u16, Value) {
    let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
    let reply = send(server, request, &headers, body.as_bytes());
    (reply.status, serde_json::from_str(&reply.body).unwrap_or(Value::Null))
}

#[test]
fn a_token_reaches_as_far_as_its_role() {
    let mut server = Setup::new().start();
    session(&server, "map create tenants --kind hash --key bigint");
    let token = |role: &str| {
        let made = json(&server, &format!("token add {role}-one --role {role}"));
        made["token"].as_str().unwrap().to_owned()
    };
    let [viewer, operator, admin] = ["viewer", "operator", "admin"].map(token);
    let query = r#"{"sql":"SELECT 1"}"#;
    let new = r#"{"name":"bob","password":"long enough"}"#;
    let quota = r#"{"of":{"kind":"each","map":"tenants"},"requests":5}"#;
    for (token, statuses) in
        [(&viewer, [200, 200, 403, 403, 403, 403]), (&operator, [200, 200, 200, 200, 403, 403])]
    {
        let answers = [
            asked(&server, token, "GET /v1/status", ""),
            asked(&server, token, "GET /v1/whoami", ""),
            asked(&server, token, "POST /v1/query", query),
            asked(&server, token, "POST /v1/quotas", quota),
            asked(&server, token, "GET /v1/users", ""),
            asked(&server, token, "POST /v1/users", new),
        ];
        assert_eq!(answers.each_ref().map(|(status, _)| *status), statuses, "{answers:?}");
        assert_eq!(answers[5].1["error"]["code"], "forbidden");
        assert!(answers[5].1["error"]["remedy"].as_str().unwrap().contains("--role admin"));
        let by_sql = r#"{"sql":"SELECT 1; CREATE USER eve PASSWORD 'long enough'"}"#;
        assert_eq!(asked(&server, token, "POST /v1/query", by_sql).0, 403);
    }
    let by_sql = r#"{"sql":"CREATE USER zoe PASSWORD 'long enough'"}"#;
    assert_eq!(asked(&server, &admin, "POST /v1/query", by_sql).0, 200);
    assert_eq!(asked(&server, &viewer, "GET /v1/whoami", "").1["role"], "viewer");
    assert_eq!(asked(&server, &admin, "POST /v1/users", new).0, 200);
    assert_eq!(asked(&server, "polyshard", "GET /v1/users", "").1["users"][0]["name"], "bob");
    for wrong in ["", "ps_", "nobody", &viewer[..viewer.len() - 1]] {
        assert_eq!(asked(&server, wrong, "GET /v1/status", "").0, 401, "{wrong:?}");
    }
    // The command line says it in the same words, and a token that is gone is gone at once.
    let said = server.cli(&["--token", &viewer, "user", "list"]).fails_with(1);
    assert!(said.contains("viewer-one") && said.contains("role admin"), "{said}");
    let listed = run(&server, "token list --json").ok();
    assert!(!listed.contains(&viewer) && listed.contains("operator-one"), "{listed}");
    run(&server, "token remove viewer-one").ok();
    assert_eq!(asked(&server, &viewer, "GET /v1/status", "").0, 401);
    assert!(server.stop().success());
    let log = server.log().text();
    assert!(!log.contains(&viewer) && !log.contains(&operator) && !log.contains("long enough"), "{log}");
    assert!(log.contains("operator-one"), "who changed something is in the log: {log}");
}

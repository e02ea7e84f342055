//! What the scenarios share: commands as one line, answers as JSON, waiting with an end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use polyshard_testkit::process::{Output, Server};
use serde_json::Value;

/// How long something that must come by itself may take; only a hang reaches it, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The words of a line as a shell would give them, for single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Runs an operator's command, written as in a shell.
pub fn run(server: &Server, line: &str) -> Output {
    let words = words(line);
    server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What a command answered in JSON, having succeeded.
#[track_caller]
pub fn json(server: &Server, line: &str) -> Value {
    run(server, &format!("{line} --json")).json()
}

/// The commands of a session, all of which succeed.
#[track_caller]
pub fn session(server: &Server, lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        run(server, line).ok();
    }
}

/// The error in JSON of a command that ends with this exit code.
#[track_caller]
pub fn refused(server: &Server, line: &str, exit: i32) -> Value {
    error_of(run(server, &format!("{line} --json")), exit)
}

/// The error in JSON of a command that ended with this exit code.
#[track_caller]
pub fn error_of(output: Output, exit: i32) -> Value {
    let text = output.fails_with(exit);
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
    body["error"].clone()
}

/// The shard of a key.
#[track_caller]
pub fn shard_of(server: &Server, map: &str, key: &str) -> String {
    json(server, &format!("map locate {map} '{key}'"))["shard"].as_str().expect("a shard").to_owned()
}

/// The version of a map.
#[track_caller]
pub fn version_of(server: &Server, map: &str) -> u64 {
    json(server, &format!("map show {map}"))["version"].as_u64().expect("a version")
}

/// The names of all maps.
#[track_caller]
pub fn maps(server: &Server) -> Vec<String> {
    let list = json(server, "map list");
    let names = list["maps"].as_array().expect("a list").iter();
    names.map(|map| map["name"].as_str().expect("a name").to_owned()).collect()
}

/// Everything that must outlive the process: maps, their entries with epochs and states, and shards.
#[track_caller]
pub fn everything(server: &Server) -> Value {
    let mut out = json(server, "map list");
    for map in maps(server) {
        out[format!("entries of {map}")] = json(server, &format!("map entries {map} --limit 10000"));
    }
    out["shards"] = json(server, "shard list")["shards"].clone();
    out["cluster"] = json(server, "status")["cluster"].clone();
    out
}

/// Fails unless catalog and shards agree about every map.
#[track_caller]
pub fn assert_agreed(server: &Server) {
    for map in maps(server) {
        run(server, &format!("map check {map}")).ok();
    }
}

/// The operations that have not ended.
#[track_caller]
pub fn running(server: &Server) -> Vec<Value> {
    let list = json(server, "ops list");
    let all = list["operations"].as_array().expect("a list").clone();
    all.into_iter().filter(|operation| operation["state"] == "running").collect()
}

/// Asks until the answer is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "this did not come: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until every operation has ended.
#[track_caller]
pub fn await_quiet(server: &Server) {
    await_quiet_for(server, PATIENCE);
}

/// Likewise, for so long.
#[track_caller]
pub fn await_quiet_for(server: &Server, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        let left = running(server);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "these did not end: {left:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: String,
}

impl Reply {
    /// The error in the body, with this status and code.
    #[track_caller]
    pub fn error(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body));
        assert_eq!(body["error"]["code"], code, "{body}");
        body["error"].clone()
    }
}

/// Sends a request as bytes, so that nothing on this side corrects it. `headers` end with a line end each.
#[track_caller]
pub fn send(server: &Server, request: &str, headers: &str, body: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(server.door("admin")).expect("the door is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let head = format!(
        "{request} HTTP/1.1\r\nhost: e2e\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the head can be sent");
    // A server that refuses a body by its length need not read it; the answer is what counts.
    let _unread = stream.write_all(body);
    let mut answer = Vec::new();
    // The same server may close with the rest of the body unread, which this side sees as a reset.
    let _reset = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).expect("an answer in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Reply { status: status.unwrap_or_else(|| panic!("no status: {head}")), body: body.to_owned() }
}

/// The header that the development setup asks for.
pub const TOKEN: &str = "authorization: Bearer polyshard\r\n";

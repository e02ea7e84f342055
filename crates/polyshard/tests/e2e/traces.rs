//! Traces and counts of requests: what a real process tells a collector of OpenTelemetry, and its metrics. E2.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, Timestamp};
use polyshard_testkit::process::{Server, Setup};
use serde_json::Value;
use tokio_postgres::NoTls;

use crate::support::eventually;

const ACCOUNT: &str = "devstoreaccount1";

/// A collector: it takes what is posted to `/v1/traces`, and keeps it.
struct Collector {
    address: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = bodies.clone();
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                std::thread::spawn(move || take(stream.unwrap(), &kept));
            }
        });
        Collector { address, bodies }
    }

    fn text(&self) -> String {
        self.bodies.lock().unwrap().join("\n")
    }

    /// All spans so far.
    fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for body in self.bodies.lock().unwrap().iter() {
            let body: Value = serde_json::from_str(body).unwrap();
            for resource in body["resourceSpans"].as_array().unwrap() {
                let service = &resource["resource"]["attributes"][0];
                assert_eq!(
                    (service["key"].as_str(), service["value"]["stringValue"].as_str()),
                    (Some("service.name"), Some("polyshard"))
                );
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
                }
            }
        }
        spans
    }

    /// The span that this is true of, once it is there.
    #[track_caller]
    fn find(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || self.spans().into_iter().find(|span| is(span)))
    }
}

/// Takes the requests of one connection.
fn take(stream: TcpStream, kept: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        assert_eq!(first.trim_end(), "POST /v1/traces HTTP/1.1");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if let Some(value) = line.strip_prefix("content-type: ") {
                assert_eq!(value, "application/json");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        kept.lock().unwrap().push(String::from_utf8(body).unwrap());
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
    }
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let all = span["attributes"].as_array()?.iter();
    all.clone().find(|one| one["key"] == key).and_then(|one| one["value"]["stringValue"].as_str())
}

/// Asks an Azure door, as a client that is itself traced; the status of the answer. The queue door wants the method,
/// type and version signed as well, the table door only date and resource.
fn ask_azure(server: &Server, door: &str, method: &str, path: &str, body: &str) -> u16 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let date = Timestamp::from_unix_ms(now as i64).unwrap().rfc1123();
    let content_type = if door == "table" { "application/json" } else { "application/xml" };
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{path}");
    let text = match door {
        "table" => format!("{date}\n{resource}"),
        _ => format!("{method}\n\n{content_type}\n\nx-ms-date:{date}\nx-ms-version:2021-12-02\n{resource}"),
    };
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&text);
    let url = format!("http://{}/{ACCOUNT}/{path}", server.door(door).trim_start_matches("http://"));
    let request = if method == "PUT" { ureq::put(url) } else { ureq::post(url) };
    let request = request
        .header("x-ms-date", &date)
        .header("x-ms-version", "2021-12-02")
        .header("Accept", "application/json;odata=nometadata")
        .header("Content-Type", content_type)
        .header("Authorization", &format!("SharedKeyLite {ACCOUNT}:{signature}"))
        .header("traceparent", &format!("00-{TRACE}-{PARENT}-01"));
    request.send(body).unwrap().status().as_u16()
}

/// Runs statements one by one through the SQL door; how many failed.
fn run_sql(server: &Server, statements: &[&str]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = server.door("sql");
    let address = address.rsplit('@').next().unwrap().split('/').next().unwrap();
    let address = format!("postgres://polyshard:polyshard@{address}/polyshard");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&address, NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut failed = 0;
        for statement in statements {
            failed += usize::from(client.simple_query(statement).await.is_err());
        }
        // A series: prepared, bound, run.
        let row = client.query_one("SELECT $1::text", &[&"secret-value"]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), "secret-value");
        drop(client);
        connection.await.unwrap().unwrap();
        failed
    })
}

fn sample(page: &str, start: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(start));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

#[test]
fn requests_of_all_doors_are_traced_from_accept_to_reply_and_no_key_is_told() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let setup =
        Setup::new().env("POLYSHARD__TRACE__ENDPOINT", &endpoint).env("POLYSHARD__TRACE__SAMPLE", "1");
    // As text, which can be read here; the other form is read by the Python tests, with OpenTelemetry's own decoder.
    let mut server = setup.env("POLYSHARD__TRACE__PROTOCOL", "http/json").start();
    let message = "<QueueMessage><MessageText>secret</MessageText></QueueMessage>";
    assert_eq!(ask_azure(&server, "queue", "PUT", "secret-queue", ""), 201);
    assert_eq!(ask_azure(&server, "queue", "POST", "secret-queue/messages", message), 201);
    assert_eq!(ask_azure(&server, "table", "POST", "Tables", r#"{"TableName":"secrets"}"#), 201);
    let entity = r#"{"PartitionKey":"secret","RowKey":"secret"}"#;
    assert_eq!(ask_azure(&server, "table", "POST", "secrets", entity), 201);
    assert_eq!(run_sql(&server, &["SELECT 'secret-value'", "SELEC 'secret-value'"]), 1);

    // A client's own trace is carried on, down to the shard.
    let on_shard = |span: &Value, door: &str| {
        let parent = collector.spans().into_iter().find(|one| one["spanId"] == span["parentSpanId"]);
        span["name"] == "shard" && parent.is_some_and(|one| one["name"] == format!("{door} POST"))
    };
    collector.find("the table door's part on a shard", |span| on_shard(span, "table"));
    let shard = collector.find("the queue door's part on a shard", |span| on_shard(span, "queue"));
    let queue = collector.find("its request", |span| span["spanId"] == shard["parentSpanId"]);
    assert_eq!((queue["traceId"].as_str(), queue["parentSpanId"].as_str()), (Some(TRACE), Some(PARENT)));
    assert_eq!(attribute(&queue, "polyshard.door"), Some("queue"));
    assert_eq!(attribute(&queue, "polyshard.outcome"), Some("2xx"));
    assert_eq!(shard["traceId"], TRACE);
    assert!(attribute(&shard, "polyshard.shard").is_some_and(|shard| shard.starts_with('s')), "{shard}");
    let time = |span: &Value, of: &str| span[of].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(&queue, "startTimeUnixNano") <= time(&shard, "startTimeUnixNano"));
    assert!(time(&shard, "startTimeUnixNano") <= time(&shard, "endTimeUnixNano"));

    // Those of the SQL door have traces of their own, and name their connection.
    let asked = |operation: &'static str, outcome: &'static str| {
        collector.find(&format!("{operation}, {outcome}"), move |span| {
            span["name"] == format!("sql {operation}")
                && attribute(span, "polyshard.outcome") == Some(outcome)
        })
    };
    let select = asked("select", "ok");
    assert!(select["parentSpanId"].is_null() && select["status"].is_null(), "{select}");
    let wrong = asked("other", "error");
    assert_eq!(wrong["status"]["code"], 2);
    assert_ne!(wrong["traceId"], select["traceId"]);
    let link = &select["links"][0];
    let connection = collector.find("the connection, once it has ended", |span| {
        span["name"] == "connection" && span["spanId"] == link["spanId"]
    });
    assert_eq!(connection["traceId"], link["traceId"]);
    assert_eq!(attribute(&connection, "polyshard.door"), Some("sql"));
    assert_eq!(wrong["links"][0], *link);

    let page = server.get("/metrics").body;
    assert!(sample(&page, "polyshard_trace_spans_total{outcome=\"sent\"}") >= 5.0, "{page}");
    assert_eq!(sample(&page, "polyshard_trace_spans_total{outcome=\"dropped\"}"), 0.0);
    server.stop();
    assert!(!collector.text().contains("secret"), "no key, no statement");
    server.assert_clean_log(&[]);
}

#[test]
fn a_collector_that_is_away_costs_spans_and_no_request() {
    // Nobody listens there: the port was free a moment ago, and is of a socket that takes no connection.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let setup = Setup::new().env("POLYSHARD__TRACE__ENDPOINT", &format!("http://{closed}"));
    let setup = setup.env("POLYSHARD__TRACE__SAMPLE", "1");
    let mut server = setup.start();
    assert_eq!(run_sql(&server, &["SELECT 1"]), 0);
    eventually("spans that were dropped", || {
        let page = server.get("/metrics").body;
        (sample(&page, "polyshard_trace_spans_total{outcome=\"dropped\"}") > 0.0).then_some(())
    });
    server.stop();
    let complaints = server.log().complaints(&[]);
    assert_eq!(complaints.len(), 1, "said once: {complaints:?}");
    assert!(complaints[0].contains("traces are not taken"), "{complaints:?}");
}

#[test]
fn requests_of_the_sql_and_the_admin_door_are_counted_and_timed() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let setup =
        Setup::new().env("POLYSHARD__TRACE__ENDPOINT", &endpoint).env("POLYSHARD__TRACE__SAMPLE", "0");
    let mut server = setup.start();
    assert_eq!(run_sql(&server, &["SELECT 1", "select 2", "SELEC", "SHOW server_version"]), 1);
    assert_eq!(server.get("/v1/maps/none/window").status, 404);
    let page = server.get("/metrics").body;
    let count = |door: &str, operation: &str, outcome: &str| {
        let labels = format!("{{door=\"{door}\",operation=\"{operation}\",outcome=\"{outcome}\"}}");
        sample(&page, &format!("polyshard_door_requests_total{labels}"))
    };
    // Two texts, and the run of the series.
    assert_eq!(count("sql", "select", "ok"), 3.0, "{page}");
    assert_eq!((count("sql", "other", "error"), count("sql", "show", "ok")), (1.0, 1.0), "{page}");
    assert!(count("admin", "GET", "4xx") >= 1.0, "{page}");
    let timed =
        |door: &str| sample(&page, &format!("polyshard_door_request_seconds_count{{door=\"{door}\"}}"));
    assert!(timed("sql") >= 5.0 && timed("admin") >= 1.0, "{page}");
    server.stop();
    // A share of nothing.
    assert_eq!(collector.text(), "");
}

/// What is not traced has no part that is: neither its shards, nor its connection. A client that traces is followed
/// whatever the share is.
#[test]
fn a_request_that_is_not_chosen_leaves_nothing_and_one_that_its_client_traces_is_told() {
    let collector = Collector::start();
    let endpoint = format!("http://{}", collector.address);
    let setup =
        Setup::new().env("POLYSHARD__TRACE__ENDPOINT", &endpoint).env("POLYSHARD__TRACE__SAMPLE", "0");
    let mut server = setup.env("POLYSHARD__TRACE__PROTOCOL", "http/json").start();
    let write = "CREATE TABLE notes (id bigint PRIMARY KEY)";
    assert_eq!(run_sql(&server, &[write, "INSERT INTO notes VALUES (1)", "SELECT * FROM notes"]), 0);
    // With its message: what is put on a shard.
    assert_eq!(ask_azure(&server, "queue", "PUT", "jobs", ""), 201);
    let message = "<QueueMessage><MessageText>text</MessageText></QueueMessage>";
    assert_eq!(ask_azure(&server, "queue", "POST", "jobs/messages", message), 201);
    collector.find("the message's part on a shard", |span| span["name"] == "shard");
    server.stop();
    let told = collector.spans();
    assert!(told.iter().all(|span| span["traceId"] == TRACE), "{told:?}");
    let requests: Vec<_> = told.iter().filter(|span| span["name"] != "shard").collect();
    assert_eq!(requests.len(), 2, "{told:?}");
    assert!(requests.iter().all(|span| span["links"].is_null()), "its connection is not told: {told:?}");
    server.assert_clean_log(&[]);
}

#[test]
fn a_collector_that_never_answers_does_not_hold_up_a_server_that_stops() {
    // Connections are taken by the system, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let setup =
        Setup::new().env("POLYSHARD__TRACE__ENDPOINT", &endpoint).env("POLYSHARD__TRACE__SAMPLE", "1");
    let mut server = setup.start();
    assert_eq!(run_sql(&server, &["SELECT 1"]), 0);
    // From here on it waits for an answer, for ten seconds if nobody stops it.
    let (connection, _) = silent.accept().unwrap();
    server.stop();
    drop(connection);
    // The last ones when it stops, or all that wait if the round before has just ended.
    assert!(server.log().text().contains("dropped"), "{}", server.log().text());
}

//! Bodies in pieces over a real socket, both ways: memory stays bounded, what is cut off is noticed, and connections
//! stay in step.

mod support;

use std::time::Duration;

use polyshard_azure_storage::{AccountKey, DEVELOPMENT_KEY, Limits, Transport};
use support::streaming::{Compare, Event, MIB, Seen, content, start};
use support::{Client, Running};

const LARGE: usize = 64 * MIB;
/// What the kernel's buffers of both sides may hold of a connection, and then some.
const BUFFERED_MAX: usize = 32 * MIB;

fn door() -> (Running, Seen) {
    start(Limits::default(), Transport::Plain)
}

fn head(method: &str, query: &str, headers: &str) -> Vec<u8> {
    let date = "Thu, 01 Jan 1970 00:00:00 GMT";
    let path = "/devstoreaccount1/large";
    let text = format!("{date}\n/devstoreaccount1{path}");
    let signature = AccountKey::from_base64(DEVELOPMENT_KEY).unwrap().sign(&text);
    format!(
        "{method} {path}?{query} HTTP/1.1\r\nHost: h\r\nx-ms-date: {date}\r\nAuthorization: SharedKeyLite \
         devstoreaccount1:{signature}\r\n{headers}\r\n"
    )
    .into_bytes()
}

fn put(query: &str, length: usize) -> Vec<u8> {
    head("PUT", query, &format!("Content-Length: {length}\r\n"))
}

/// Sends a whole body, however slowly it is taken.
fn send_content(client: &mut Client, from: usize, length: usize) {
    for at in (from..from + length).step_by(MIB) {
        client.send(&content(at, MIB.min(from + length - at)));
    }
}

/// Reads a body; fewer bytes if the other side closes before.
fn receive(client: &mut Client, length: usize) -> usize {
    let mut compare = Compare::default();
    while compare.length < length {
        let part = client.part(length - compare.length);
        if part.is_empty() {
            break;
        }
        compare.part(&part);
    }
    compare.length
}

#[test]
fn large_bodies_go_both_ways_on_one_connection() {
    let (door, seen) = door();
    let mut client = door.connect();
    for _ in 0..2 {
        client.send(&put("", LARGE));
        send_content(&mut client, 0, LARGE);
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("Length")), (201, Some("67108864")));
        assert_eq!(reply.header("Announced"), Some("Some(67108864)"));
        let pieces: usize = reply.header("Pieces").unwrap().parse().unwrap();
        assert!((64..=1024).contains(&pieces), "{pieces} pieces");
        assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Read(LARGE)));

        client.send(&head("GET", &format!("do=make&length={LARGE}"), ""));
        let (status, head) = client.head();
        assert!(status == 200 && head.contains("\r\nContent-Length: 67108864\r\n"), "{head}");
        assert_eq!(receive(&mut client, LARGE), LARGE);
        assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Dropped(LARGE as u64)));
    }
}

#[test]
fn small_bodies_and_none_are_streams_too() {
    let (door, _seen) = door();
    let mut client = door.connect();
    for length in [0, 1, 5, 300_000] {
        client.send(&put("", length));
        client.send(&content(0, length));
        let reply = client.reply();
        assert_eq!(reply.header("Announced"), Some(format!("Some({length})").as_str()));
        assert_eq!(reply.header("Length"), Some(length.to_string().as_str()));
        client.send(&head("GET", &format!("do=make&length={length}"), ""));
        assert_eq!(client.reply().body, content(0, length));
    }
    client.send(&[put("whole", 5), b"hello".to_vec()].concat());
    assert_eq!(client.reply().text(), "hello");
}

#[test]
fn a_store_that_does_not_read_holds_the_client_back() {
    let (door, seen) = door();
    let mut client = door.connect();
    client.send(&put("gate", LARGE));
    let body = content(0, LARGE);
    let sent = client.send_for(&body, Duration::from_millis(500));
    assert!((MIB..BUFFERED_MAX).contains(&sent), "{sent} bytes were taken though none was read");
    seen.open_gate();
    client.send(&body[sent..]);
    assert_eq!(client.reply().header("Length"), Some("67108864"));
}

#[test]
fn a_client_that_does_not_read_holds_the_store_back_and_is_closed() {
    let limits = Limits { write_time: Duration::from_millis(300), ..Limits::default() };
    let (door, seen) = start(limits, Transport::Plain);
    let mut client = door.connect();
    client.send(&head("GET", &format!("do=make&length={LARGE}"), ""));
    assert_eq!(seen.event(), Event::Called);
    let Event::Dropped(made) = seen.event() else { panic!("the source was not dropped") };
    assert!((made as usize) < BUFFERED_MAX, "{made} bytes were made though none was read");
    client.head();
    assert!(receive(&mut client, LARGE) < LARGE);
}

#[test]
fn a_body_that_is_cut_off_is_an_error_of_the_store() {
    let (door, seen) = door();
    let mut client = door.connect();
    client.send(&put("", LARGE));
    send_content(&mut client, 0, 3 * MIB);
    drop(client);
    assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Failed("InvalidInput")));

    let limits = Limits { piece_time: Duration::from_millis(50), ..Limits::default() };
    let (door, seen) = start(limits, Transport::Plain);
    let mut client = door.connect();
    client.send(&put("", LARGE));
    send_content(&mut client, 0, 3 * MIB);
    assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Failed("InvalidInput")));
    client.closed();
    assert_eq!(door.panicked(), 0);
}

#[test]
fn the_time_of_a_piece_does_not_run_while_the_store_is_busy() {
    let limits = Limits { piece_time: Duration::from_millis(200), ..Limits::default() };
    let (door, seen) = start(limits, Transport::Plain);
    let mut client = door.connect();
    client.send(&put("gate", LARGE));
    let body = content(0, LARGE);
    let sent = client.send_for(&body, Duration::from_millis(600));
    seen.open_gate();
    client.send(&body[sent..]);
    assert_eq!(client.reply().status, 201);
}

#[test]
fn an_early_answer_leaves_the_connection_in_step_or_closes_it() {
    let (door, _seen) = door();
    let mut client = door.connect();
    for query in ["do=refuse", "do=first"] {
        client.send(&put(query, 3 * MIB));
        send_content(&mut client, 0, 3 * MIB);
        let reply = client.reply();
        assert_eq!(reply.header("Connection"), None, "{query}");
        assert_eq!(reply.status, if query == "do=refuse" { 412 } else { 201 });
    }
    client.send(&head("PUT", "do=refuse", "Transfer-Encoding: chunked\r\n"));
    client.send(b"5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 412);
    client.send(&put("", 5));
    client.send(&content(0, 5));
    assert_eq!(client.reply().header("Length"), Some("5"));
    // More than is worth reading for nothing.
    client.send(&put("do=refuse", LARGE));
    client.send(&content(0, MIB));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("Connection")), (412, Some("close")));
    client.closed();
}

#[test]
fn a_client_that_asks_first_is_told_when_the_store_reads() {
    let (door, _seen) = door();
    for length in [5, MIB] {
        let expect = format!("Expect: 100-continue\r\nContent-Length: {length}\r\n");
        let mut client = door.connect();
        client.send(&head("PUT", "", &expect));
        assert_eq!(client.head().0, 100);
        client.send(&content(0, length));
        assert_eq!(client.reply().header("Length"), Some(length.to_string().as_str()));
        client.send(&head("PUT", "do=refuse", &expect));
        let reply = client.reply();
        assert_eq!((reply.status, reply.header("Connection")), (412, Some("close")));
        client.closed();
    }
}

#[test]
fn bodies_in_chunks_are_streamed() {
    let (door, _seen) = door();
    let mut client = door.connect();
    for chunk in [1000, 70_000, 2 * MIB] {
        client.send(&head("PUT", "", "Transfer-Encoding: chunked\r\n"));
        let body = content(0, 3 * MIB);
        for part in body.chunks(chunk) {
            client.send(&[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
        }
        client.send(b"0\r\n\r\n");
        let reply = client.reply();
        assert_eq!((reply.header("Length"), reply.header("Announced")), (Some("3145728"), Some("None")));
    }
    client.send(&head("PUT", "", "Transfer-Encoding: chunked\r\n"));
    client.send(b"5\r\n\0\0\0\0\0X");
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("Connection")), (400, Some("close")));
    client.closed();
}

#[test]
fn streams_over_the_limit_are_refused() {
    let limits = Limits { stream_bytes_max: MIB as u64, ..Limits::default() };
    let (door, seen) = start(limits, Transport::Plain);
    let mut client = door.connect();
    client.send(&put("", MIB + 1));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("x-ms-error-code")), (413, Some("RequestBodyTooLarge")));
    assert!(seen.is_quiet(), "the store was called");
    let mut client = door.connect();
    client.send(&head("PUT", "", "Transfer-Encoding: chunked\r\n"));
    client.send(b"100001\r\n");
    client.send(&content(0, MIB + 1));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("Connection")), (413, Some("close")));
    assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Failed("RequestBodyTooLarge")));
    let mut client = door.connect();
    client.send(&put("", MIB));
    client.send(&content(0, MIB));
    assert_eq!(client.reply().status, 201);
}

#[test]
fn head_has_the_length_and_no_body() {
    let (door, seen) = door();
    let mut client = door.connect();
    client.send(&head("HEAD", &format!("do=make&length={LARGE}"), ""));
    let (status, text) = client.head();
    assert!(status == 200 && text.contains("\r\nContent-Length: 67108864\r\n"), "{text}");
    assert_eq!((seen.event(), seen.event()), (Event::Called, Event::Dropped(0)));
    client.send(&head("GET", "do=make&length=5", ""));
    assert_eq!(client.reply().body, content(0, 5));
}

#[test]
fn a_source_that_fails_never_gives_a_whole_body() {
    let (door, _seen) = door();
    for query in ["do=make&length=3000000&made=1048576", "do=make&length=3000000&made=1048576&pieces=1"] {
        let mut client = door.connect();
        client.send(&head("GET", query, ""));
        let (status, text) = client.head();
        assert!(status == 200 && text.contains("\r\nContent-Length: 3000000\r\n"), "{text}");
        assert_eq!(receive(&mut client, 3_000_000), MIB, "{query}");
    }
    // More than announced: what was not sent yet stays unsent.
    let mut client = door.connect();
    client.send(&head("GET", "do=make&length=300000&made=1048576", ""));
    client.head();
    assert!(receive(&mut client, 300_000) < 300_000);
    // An error before the first piece is an answer like others.
    let mut client = door.connect();
    client.send(&head("GET", "do=fail", ""));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("x-ms-error-code")), (503, Some("ServerBusy")));
    client.send(&head("GET", "do=make&length=5", ""));
    assert_eq!(client.reply().body, content(0, 5));
    assert_eq!(door.panicked(), 0);
}

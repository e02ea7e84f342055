//! The process helpers against a small shell program that behaves as a server does, and as it should not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use polyshard_testkit::process::{Setup, StartFailure};

/// The program is a file of the checkout: one written by a test could still be open in a process another test forks.
fn setup(mode: &str) -> Setup {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program.sh");
    Setup::new().program(&program).env("MODE", mode)
}

#[test]
fn a_server_is_started_asked_and_stopped() {
    let mut server = setup("good").start();
    assert_eq!(server.door("admin"), "127.0.0.1:1");
    let output = server.cli(&["map", "list"]);
    assert_eq!(output.stdout, "map list\n");
    assert_eq!(output.fails_with(3), "http://127.0.0.1:1 polyshard \n");
    assert_eq!(server.stop().code(), Some(0));
    assert!(server.log().text().contains("bye"), "the log is complete once the process has ended");
    server.assert_clean_log(&["a little slow"]);
    assert_eq!(server.log().complaints(&[]), ["now  WARN shard: a little slow"]);
}

#[test]
fn a_killed_server_starts_again_on_its_data_and_everything_is_deleted_at_the_end() {
    let setup = setup("good");
    let mut server = setup.start();
    assert_eq!(server.kill9().signal(), Some(9));
    drop(server);
    let again = setup.start();
    let data = setup.data_path().to_owned();
    assert_eq!(fs::read_to_string(data.join("starts")).unwrap(), "started\nstarted\n");
    let process = PathBuf::from(format!("/proc/{}", again.id()));
    assert!(process.exists());
    drop((again, setup));
    assert!(!process.exists());
    assert!(!data.exists());
}

#[test]
fn a_paused_server_does_nothing_until_it_is_resumed() {
    let mut server = setup("good").start();
    server.pause();
    let is_paused = |id: u32| fs::read_to_string(format!("/proc/{id}/stat")).unwrap().contains(") T ");
    // The signal reaches a running process a moment after it was sent.
    while !is_paused(server.id()) {
        std::thread::yield_now();
    }
    server.signal("TERM");
    assert!(is_paused(server.id()), "even a request to stop has to wait");
    server.resume();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_ends_early_says_why() {
    let failure = setup("early").try_start();
    match failure.expect_err("it ended") {
        StartFailure::Ended(status, log) => {
            assert_eq!(status.code(), Some(7));
            assert_eq!(log, "error: in use\n");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_the_remedy() {
    let failure =
        setup("good").program(Path::new("/nothing/here")).try_start().expect_err("there is no program");
    assert!(failure.to_string().contains("cargo build -p polyshard"), "{failure}");
}

#[test]
fn config_and_environment_reach_the_program() {
    let server = setup("configured").config("a = 1\n").env("EXTRA", "more").start();
    assert_eq!(server.log().text(), "--config\na = 1\nmore 127.0.0.1:0\nready\n");
}

#[test]
fn the_admin_door_is_asked_with_the_token_whatever_it_answers() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = door.accept().unwrap();
        let mut request = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        while !request.ends_with("\r\n\r\n") {
            lines.read_line(&mut request).unwrap();
        }
        stream
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            .unwrap();
        request
    });
    let server = setup("good").token("secret").env("DOOR", &address).start();
    let answer = server.get("/v1/status");
    assert_eq!((answer.status, answer.body.as_str()), (404, "{}"));
    let request = answering.join().unwrap();
    assert!(request.starts_with("GET /v1/status HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{request}");
}

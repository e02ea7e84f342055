//! D2: whoever looks on at an operation may go, and knows what becomes of it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use polyshard_testkit::process::Setup;

use crate::support::{eventually, json, run, running, session, shard_of};

#[test]
fn ctrl_c_ends_the_looking_on_and_not_the_move() {
    let mut server = Setup::new().start();
    session(&server, "map create tenants --kind list --key bigint\nmap add tenants --key 1 --to s1");
    let begun = json(&server, "move tenants --key 1 --to s2 --keep 1h");
    let id = begun["parts"][0]["operation"].as_str().expect("an operation").to_owned();
    eventually("the old rows to be kept", || (running(&server)[0]["step"] == "keeping").then_some(()));
    let mut looking = Command::new(env!("CARGO_BIN_EXE_polyshard"))
        .args(["ops", "follow", &id])
        .env("POLYSHARD_SERVER", format!("http://{}", server.door("admin")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut shown = BufReader::new(looking.stdout.take().expect("its output"));
    let mut line = String::new();
    shown.read_line(&mut line).expect("it says how far it is");
    assert!(line.contains("keeping"), "{line}");
    let interrupt = Command::new("sh").args(["-c", "kill -s INT \"$0\"", &looking.id().to_string()]).status();
    assert!(interrupt.expect("there is a shell").success());
    let ended = looking.wait().expect("it ends");
    assert_eq!(ended.code(), Some(130), "{ended:?}");
    let mut said = String::new();
    looking.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    assert!(said.contains("goes on without this command") && said.contains(&id[..8]), "{said}");

    // What it is about is shown, and it is still there to be undone.
    let listed = run(&server, "ops list").ok();
    let line = listed.lines().find(|line| line.contains(&id)).expect("it is listed").to_owned();
    assert!(line.contains("tenants  1 ") && line.contains("keeping"), "{listed}");
    assert_eq!(json(&server, &format!("ops show {id}"))["ranges"], serde_json::json!([{ "key": 1 }]));
    run(&server, &format!("ops undo {}", &id[..8])).ok();
    eventually("the move to be undone", || (shard_of(&server, "tenants", "1") == "s1").then_some(()));
    eventually("all to be done", || running(&server).is_empty().then_some(()));
    server.stop();
}

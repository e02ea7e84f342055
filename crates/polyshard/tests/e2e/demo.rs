//! `polyshard demo` to its end: moves under traffic, every acknowledged write found, nothing left. D3, E8.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A small demonstration whose temporary folder is in this one.
fn demo(folder: &Path, seconds: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(["demo", "--seconds", seconds, "--rows", "2000", "--tenants", "20", "--clients", "4"]);
    command.env("TMPDIR", folder);
    for door in ["ADMIN", "QUEUE", "TABLE", "SQL"] {
        command.env(format!("POLYSHARD__{door}__LISTEN"), "127.0.0.1:0");
    }
    command
}

#[test]
fn the_demonstration_ends_with_every_acknowledged_write_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(folder.path(), "8");
    let ran = command.arg("--json").output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}\n{wrong}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["errors"], &said["whole"]), (&0.into(), &true.into()), "{said}");
    assert!(said["orders_acknowledged"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder goes with the server");
}

#[test]
fn a_demonstration_that_is_interrupted_stops_its_server_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = demo(folder.path(), "600").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let up = lines.find(|line| line.starts_with("A server is up")).unwrap();
    let console = up.rsplit(' ').next().unwrap().to_owned();
    assert!(ureq::get(format!("{console}/healthz")).call().is_ok(), "{up}");
    // The shell's own `kill`: the program of that name is missing on small systems.
    let told =
        Command::new("sh").args(["-c", "kill -s INT \"$0\"", &demo.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(lines.any(|line| line.starts_with("Stopped")), "it says that it was stopped");
    assert!(demo.wait().unwrap().success());
    assert!(ureq::get(format!("{console}/healthz")).call().is_err(), "its server is down");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder goes with the server");
}

//! `polyshard demo` to its end: moves under traffic, every acknowledged write found, nothing left. D3, E8.

use std::fs;
use std::process::Command;

#[test]
fn the_demonstration_ends_with_every_acknowledged_write_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(["demo", "--seconds", "8", "--rows", "2000", "--tenants", "20", "--clients", "4", "--json"]);
    command.env("TMPDIR", folder.path());
    for door in ["ADMIN", "QUEUE", "TABLE", "SQL"] {
        command.env(format!("POLYSHARD__{door}__LISTEN"), "127.0.0.1:0");
    }
    let ran = command.output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}\n{wrong}");
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["errors"], &said["whole"]), (&0.into(), &true.into()), "{said}");
    assert!(said["orders_acknowledged"].as_u64().unwrap() > 0, "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder goes with the server");
}

//! Backups of a real process: taken, checked, restored and served again; killed in the middle of both. E1.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polyshard_testkit::process::{Server, Setup};

fn with_map() -> Server {
    let server = Setup::new().start();
    server.cli(&["map", "create", "tenants", "--kind", "hash", "--key", "bigint"]).ok();
    server
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The program on its own, as a supervisor would start it.
fn program(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_backed_up_is_restored_elsewhere_and_served() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("monday"), folder.path().join("restored"));
    let taken = server.cli(&["backup", "take", text(&backup)]).ok();
    assert!(taken.contains("5 databases"), "{taken}");
    // What comes after the moment is not in it.
    server.cli(&["map", "create", "later", "--kind", "hash", "--key", "text"]).ok();
    let listed = server.cli(&["backup", "list"]).ok();
    assert!(listed.contains("done") && listed.contains("monday"), "{listed}");
    let again = server.cli(&["backup", "take", text(&backup)]).fails_with(5);
    assert!(again.contains("there already"), "{again}");
    server.cli(&["backup", "take", "/"]).fails_with(2);
    server.cli(&["backup", "check", text(&backup)]).ok();
    server.cli(&["restore", text(&backup), "--data", text(&data)]).ok();
    server.stop();

    let restored = Setup::new().data(&data);
    let mut server = restored.start();
    let maps = server.cli(&["map", "list"]).ok();
    assert!(maps.contains("tenants") && !maps.contains("later"), "{maps}");
    let check = server.cli(&["map", "check", "tenants"]).ok();
    assert!(check.contains("agree"), "{check}");
    server.stop();
    let refused = restored.run(&["restore", text(&backup), "--data", text(&data)]).fails_with(2);
    assert!(refused.contains("not empty"), "{refused}");
}

#[test]
fn one_shard_is_copied_alone_and_is_not_taken_for_everything() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("s2");
    server.cli(&["backup", "take", text(&backup), "--shard", "s2"]).ok();
    assert!(backup.join("shards/s2.sqlite").exists() && !backup.join("catalog.sqlite").exists());
    let data = folder.path().join("restored");
    let refused = server.cli(&["restore", text(&backup), "--data", text(&data)]).fails_with(2);
    assert!(refused.contains("single shards"), "{refused}");
    let unknown = folder.path().join("s9");
    let refused = server.cli(&["backup", "take", text(&unknown), "--shard", "s9"]).fails_with(5);
    assert!(refused.contains("no shard s9"), "{refused}");
    assert!(!unknown.exists());
    server.stop();
}

#[test]
fn a_process_killed_while_it_takes_a_backup_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = with_map();
    let setup = server.setup().clone();
    let mut interrupted = 0;
    for round in 0..10 {
        let backup = folder.path().join(format!("round-{round}"));
        let partial = folder.path().join(format!("round-{round}.partial"));
        let address = format!("http://{}", server.door("admin").trim_start_matches("http://"));
        let mut taking = program(&["--server", &address, "backup", "take", text(&backup)]);
        wait_for(if round % 2 == 0 { &partial } else { folder.path() });
        std::thread::sleep(Duration::from_millis(4 * round));
        server.kill9();
        taking.wait().unwrap();
        if backup.exists() {
            // It was quicker, and so it is whole.
            setup.run(&["backup", "check", text(&backup)]).ok();
        } else {
            interrupted += 1;
            let unfinished = if partial.exists() { &partial } else { &backup };
            let refused = setup.run(&["backup", "check", text(unfinished)]).fails_with(2);
            assert!(refused.contains("not a whole one"), "{refused}");
        }
        server = setup.start();
    }
    assert!(interrupted > 0, "no round was interrupted: kill earlier");
    let backup = folder.path().join("last");
    server.cli(&["backup", "take", text(&backup)]).ok();
    server.stop();
}

#[test]
fn a_restoration_killed_in_the_middle_leaves_nothing_to_serve() {
    let mut server = with_map();
    let folder = tempfile::tempdir().unwrap();
    let (backup, data) = (folder.path().join("backup"), folder.path().join("restored"));
    server.cli(&["backup", "take", text(&backup)]).ok();
    let setup = server.setup().clone();
    server.stop();
    // A pipe that nobody writes to: the restoration waits in the middle.
    let (last, kept) = (backup.join("shards/s4.sqlite"), folder.path().join("kept"));
    std::fs::rename(&last, &kept).unwrap();
    assert!(Command::new("mkfifo").arg(&last).status().unwrap().success());
    let mut restoring = program(&["restore", text(&backup), "--data", text(&data)]);
    let staging = PathBuf::from(format!("{}.restoring", text(&data)));
    wait_for(&staging.join("shards/s3.db"));
    restoring.kill().unwrap();
    restoring.wait().unwrap();
    assert!(staging.exists() && !data.exists());

    std::fs::remove_file(&last).unwrap();
    std::fs::rename(&kept, &last).unwrap();
    setup.run(&["restore", text(&backup), "--data", text(&data)]).ok();
    assert!(!staging.exists());
    let mut server = Setup::new().data(&data).start();
    assert!(server.cli(&["map", "list"]).ok().contains("tenants"));
    server.stop();
}

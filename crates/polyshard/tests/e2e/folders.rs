//! The data directory: in use, read-only, not a directory, on a full disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use polyshard_testkit::process::{Setup, StartFailure};
use tempfile::TempDir;

use crate::support::{assert_agreed, await_quiet, eventually, everything, json, refused, run, session};

/// Room on the small disk: enough for the databases, little enough to be filled at once.
const DISK_BYTES: usize = 48 << 20;

/// A small disk of its own, gone when dropped.
struct Disk {
    folder: TempDir,
}

impl Disk {
    /// None where this may not be done: only root can mount.
    fn mount() -> Option<Disk> {
        let disk = Disk { folder: TempDir::with_prefix("polyshard-disk-").expect("a temporary folder") };
        let size = format!("size={DISK_BYTES}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(disk.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(disk),
            other => {
                println!("skipped: a disk cannot be mounted here ({other:?})");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn remount(&self, option: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{option}")]).arg(self.path()).status();
        assert!(done.expect("mount runs").success(), "the disk cannot be mounted again with {option}");
    }

    /// Takes all room that is left.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("ballast");
        let mut file = File::create(&path).expect("a file");
        for block in [vec![1; 65_536], vec![1; 512]] {
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that a failed test left is killed a moment later. A disk that was never mounted is no
        // disk to take away, so a failure means nothing here.
        let _gone = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

/// How a server that could not start ended, and what it said.
#[track_caller]
fn start_fails(setup: &Setup) -> (Option<i32>, String) {
    match setup.try_start().expect_err("it must not start") {
        StartFailure::Ended(status, log) => (status.code(), log),
        other => panic!("{other}"),
    }
}

#[test]
fn a_second_server_on_a_data_directory_is_refused_and_the_first_goes_on() {
    let setup = Setup::new();
    let server = setup.start();
    let (code, log) = start_fails(&setup);
    assert_eq!(code, Some(5), "{log}");
    for words in ["another server is running", &server.id().to_string(), "--data"] {
        assert!(log.contains(words), "{words:?} is not in\n{log}");
    }
    run(&server, "map create tenants --kind hash --key bigint").ok();
    assert_agreed(&server);
}

#[test]
fn a_file_in_place_of_the_data_directory_is_a_clear_error() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("data");
    fs::write(&file, "not a directory").unwrap();
    let (code, log) = start_fails(&Setup::new().data(&file));
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains(&file.display().to_string()) && log.contains("hint:"), "{log}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a directory");
}

#[test]
fn a_file_that_is_no_database_is_a_clear_error() {
    let folder = TempDir::new().unwrap();
    let catalog = folder.path().join("catalog.db");
    fs::write(&catalog, "this is not a database, but long enough to be looked at".repeat(100)).unwrap();
    let (code, log) = start_fails(&Setup::new().data(folder.path()));
    assert!(code.is_some_and(|code| code != 0), "{log}");
    for words in ["catalog", "damaged", "restore it from a backup"] {
        assert!(log.contains(words), "{words:?} is not in\n{log}");
    }
    assert!(fs::read_to_string(&catalog).unwrap().starts_with("this is not"), "it is left as it was");
}

#[test]
fn a_read_only_data_directory_is_a_clear_error() {
    let Some(disk) = Disk::mount() else { return };
    let setup = Setup::new().data(&disk.path().join("data"));
    disk.remount("ro");
    let (code, log) = start_fails(&setup);
    assert_eq!(code, Some(2), "{log}");
    assert!(log.contains("Read-only file system") && log.contains("hint:"), "{log}");
    disk.remount("rw");
    let mut server = setup.start();
    run(&server, "map create tenants --kind hash --key bigint --buckets 8").ok();
    assert_eq!(server.stop().code(), Some(0));
}

/// Nothing is half-applied, what is known is still answered, and room made is enough to go on.
#[test]
fn a_full_disk_refuses_changes_clearly_and_room_is_all_it_takes_to_go_on() {
    let Some(disk) = Disk::mount() else { return };
    let setup = Setup::new().data(&disk.path().join("data"));
    let mut server = setup.start();
    session(
        &server,
        "map create tenants --kind hash --key bigint --buckets 1024
         map create orders --kind range --key bigint
         map add orders --range 0..1000000 --to s1",
    );
    let ballast = disk.fill();
    let mut acknowledged = 0;
    // Files written before have some room left inside them.
    let error = loop {
        let at = 10 * (acknowledged + 1);
        let output = run(&server, &format!("map split orders --at {at} --json"));
        if output.code != Some(0) {
            break crate::support::error_of(output, 5);
        }
        acknowledged += 1;
        assert!(acknowledged < 5000, "the disk does not fill up");
    };
    assert_eq!(error["code"], "unavailable", "{error}");
    let shown = error.to_string();
    assert!(shown.contains("full") || shown.contains("room") || shown.contains("space"), "{shown}");
    assert_eq!(json(&server, "map locate tenants 42")["state"], "online");
    let refused_again = run(&server, "map create more --kind hash --key uuid");
    assert!(refused_again.code.is_some_and(|code| code != 0), "{refused_again:?}");

    fs::remove_file(ballast).unwrap();
    await_quiet(&server);
    eventually("room to be noticed", || {
        (run(&server, "map create after --kind hash --key uuid").code == Some(0)).then_some(())
    });
    assert_agreed(&server);
    let entries = json(&server, "map show orders")["entries"].as_u64().unwrap();
    // The one that was refused may have been finished when there was room again, or rolled back; never a half.
    assert!(
        [acknowledged + 1, acknowledged + 2].contains(&entries),
        "{entries}, {acknowledged} acknowledged"
    );
    let before = everything(&server);
    server.kill9();
    let server = setup.start();
    assert_eq!(everything(&server), before);
    assert_eq!(refused(&server, "map create after --kind hash --key uuid", 4)["code"], "exists");
}

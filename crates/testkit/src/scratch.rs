//! Where tests keep their files: in memory where there is room, as nothing here cuts the machine's power.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Where Linux keeps files in memory.
const MEMORY: &str = "/dev/shm";

/// Files are kept in memory only where this much is free: several servers run at once, and some are filled.
const MEMORY_BYTES_MIN: u64 = 8 * 1024 * 1024 * 1024;

/// A new folder, gone with all that is in it when it is dropped. Waiting for a disk takes most of the time of a test
/// that writes; one that kills processes, and never the machine, learns nothing from it.
///
/// # Panics
/// If no folder can be made.
pub fn folder(prefix: &str) -> TempDir {
    tempfile::Builder::new().prefix(prefix).tempdir_in(base()).expect("a temporary folder")
}

/// The folder for temporary files if one was chosen, which `scripts/test.sh` looks through in the end; else memory.
fn base() -> PathBuf {
    let memory = Path::new(MEMORY);
    let is_chosen = std::env::var_os("TMPDIR").is_some();
    if !is_chosen && free_bytes(memory).is_some_and(|free| free >= MEMORY_BYTES_MIN) {
        return memory.to_owned();
    }
    std::env::temp_dir()
}

fn free_bytes(path: &Path) -> Option<u64> {
    let output = Command::new("df").args(["--output=avail", "--block-size=1"]).arg(path).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().nth(1)?.trim().parse().ok()
}

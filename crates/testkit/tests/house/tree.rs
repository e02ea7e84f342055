//! The files of the checkout, read once for a test.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours: built, downloaded or made by running.
const FOREIGN: &[&str] = &["target", ".git", ".venv", "node_modules", "polyshard-data"];

/// One text file of the checkout.
pub struct File {
    /// Its path from the root of the checkout, with `/` between the parts.
    pub path: String,
    pub text: String,
}

impl File {
    /// The folder under `crates/` it is in, if any.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout has a root")
}

/// Every text file of the checkout whose name ends in `suffix`, in order of path.
pub fn files(suffix: &str) -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, suffix, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(suffix.is_empty() || !found.is_empty(), "no {suffix} file was found: is the walk broken?");
    found
}

/// The Rust files of the checkout.
pub fn rust_files() -> Vec<File> {
    files(".rs")
}

fn walk(root: &Path, folder: &Path, suffix: &str, found: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("a folder of the checkout can be listed") {
        let path = entry.expect("a folder of the checkout can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || FOREIGN.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, suffix, found);
        } else if name.ends_with(suffix)
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).expect("the walk starts at the root");
            found.push(File { path: path.to_string_lossy().replace('\\', "/"), text });
        }
    }
}

//! The repository's rules about itself: layers, source files and documents. Each test lists every offender.

mod dependencies;
mod documents;
mod layers;
mod sources;
mod tree;

/// Fails with all the offences found, each on its line, and with the reason the rule is there.
#[track_caller]
fn no_offences(rule: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{rule}\n  {}\n", offences.join("\n  "));
}

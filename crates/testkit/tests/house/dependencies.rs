//! Every dependency from outside has a reason, and the whole tree of them a size: builds stay short on purpose.

use std::collections::BTreeSet;
use std::fs;

use toml::Table;

use crate::no_offences;
use crate::tree::root;

/// Packages of the lock file, ours among them. One more is a decision: see what it costs with `cargo build --timings`
/// (CONTRIBUTING.md, "What a build costs"), and raise the number in the commit that says why.
const LOCKED_PACKAGES_MAX: usize = 390;

/// What each dependency is for.
const REASONS: &[(&str, &str)] = &[
    ("arc-swap", "the map and other snapshots, swapped without a lock"),
    ("async-recursion", "futures of slow functions, boxed so that they are compiled once"),
    ("axum", "routes of the admin API"),
    ("base64", "keys, signatures and messages"),
    ("bytes", "buffers that are shared without a copy"),
    ("clap", "the command line"),
    ("clap_complete", "completions of the command line"),
    ("comfy-table", "tables for people"),
    ("fallible-iterator", "the rows that postgres-protocol hands out"),
    ("flate2", "gzip of files that are loaded"),
    ("futures-util", "streams and joined futures"),
    ("goldenscript", "tests kept as scripts"),
    ("hmac", "signatures and SCRAM"),
    ("httparse", "heads of HTTP/1.1 requests at the Azure Storage endpoints"),
    ("hyper", "HTTP of the admin API"),
    ("hyper-util", "the same, on tokio"),
    ("lz4_flex", "compressed backups"),
    ("md-5", "Content-MD5, and md5() on SQLite"),
    ("memchr", "searching bytes"),
    ("mimalloc", "many small allocations on many threads"),
    ("object_store", "backups in S3 and Azure"),
    ("parquet", "files that are loaded"),
    ("percent-encoding", "addresses"),
    ("postgres-protocol", "messages of PostgreSQL"),
    ("proptest", "tests of properties"),
    ("quick-xml", "bodies of Azure Storage"),
    ("rand", "randomness, passed down from the server"),
    ("regex", "regular expressions of SQL on SQLite"),
    ("reqwest", "HTTP to collectors of traces and, below object_store, to object stores"),
    ("rusqlite", "SQLite"),
    ("rustix", "free space of a disk"),
    ("rustls", "TLS"),
    ("serde", "JSON and TOML of our own types"),
    ("serde_json", "JSON"),
    ("serde_path_to_error", "where a body of the admin API is wrong"),
    ("sha2", "SHA-256"),
    ("sqlparser", "statements of SQL, for routing"),
    ("stringprep", "passwords, before they are proven"),
    ("strsim", "suggestions for a misspelt option"),
    ("subtle", "comparing secrets in constant time"),
    ("tempfile", "folders of tests, and rows that do not fit into memory"),
    ("terminal_size", "the width of a terminal"),
    ("thiserror", "error types"),
    ("tokio", "the asynchronous runtime"),
    ("tokio-postgres", "PostgreSQL"),
    ("tokio-postgres-rustls", "PostgreSQL over TLS"),
    ("tokio-rustls", "TLS on tokio"),
    ("toml", "the configuration file"),
    ("tower", "tests of the admin API"),
    ("tracing", "events and spans"),
    ("tracing-subscriber", "the log"),
    ("unicode-ident", "letters of every script in property names"),
    ("ureq", "the client of the admin API"),
    ("url", "addresses of object stores"),
    ("utoipa", "the OpenAPI document"),
    ("uuid", "ids"),
];

#[test]
fn every_outside_dependency_has_a_reason() {
    let manifest: Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("a manifest").parse().expect("it is TOML");
    let listed = manifest["workspace"]["dependencies"].as_table().expect("a table of dependencies");
    let outside: BTreeSet<&str> =
        listed.iter().filter(|(_, what)| what.get("path").is_none()).map(|(name, _)| name.as_str()).collect();
    let explained: BTreeSet<&str> = REASONS.iter().map(|(name, _)| *name).collect();
    let mut offences = Vec::new();
    offences
        .extend(outside.difference(&explained).map(|name| format!("{name}: say in REASONS what it is for")));
    offences
        .extend(explained.difference(&outside).map(|name| format!("{name}: it is gone; so is its reason")));
    no_offences("a dependency is maintained, made for this, and cheaper than our own code:", offences);
}

#[test]
fn the_tree_of_dependencies_grows_on_purpose_only() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file is part of the checkout");
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    assert!(packages > 100, "the lock file was not understood");
    assert!(
        packages <= LOCKED_PACKAGES_MAX,
        "Cargo.lock has {packages} packages, more than {LOCKED_PACKAGES_MAX}: see LOCKED_PACKAGES_MAX"
    );
}

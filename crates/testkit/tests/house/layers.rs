//! Dependencies point down only, and some crates know no other.

use std::collections::BTreeSet;
use std::fs;

use toml::Table;

use crate::no_offences;
use crate::tree::root;

/// The layers from the bottom up; a crate may depend on those before it, and a `store-*` never on another store.
const LAYERS: &[&str] = &[
    "testkit",
    "meter",
    // Files without code: low, so that the server can serve them.
    "console",
    "map",
    "sqlite-wal",
    "engine",
    "shard",
    "catalog",
    "router",
    "mover",
    "wire",
    "store",
    "azure-storage",
    "sql",
    "sql-on-sqlite",
    "schema",
    "document-query",
    "store-*",
    "planner",
    "workflow",
    "check",
    "backup",
    "index",
    "admin",
    "server",
    "polyshard",
    "bench",
];

/// Crates that may know fewer of the others than their layer allows, with the reason.
const NARROW: &[(&str, &[&str], &str)] = &[
    (
        "testkit",
        &[],
        "every crate tests with it, and one it depended on would be built twice and differ from itself",
    ),
    ("meter", &[], "everything counts with it"),
    ("console", &[], "its pages use the admin API as any other client does, and no code of ours"),
    ("map", &[], "it is the pure core"),
    ("sqlite-wal", &[], "it is a file system, and knows SQLite alone"),
    ("engine", &["sqlite-wal"], "a database knows nothing of maps"),
    ("wire", &["meter"], "a listener knows no protocol and no store"),
    (
        "azure-storage",
        &["meter", "wire", "store"],
        "it is a protocol over the kit, and knows no store and no shard",
    ),
    ("sql", &["map"], "it is pure: it parses and plans, and calls nobody"),
    ("document-query", &[], "it is pure: it parses and evaluates, and calls nobody"),
    ("sql-on-sqlite", &["map", "engine", "sql"], "it translates and computes, and calls nobody"),
    (
        "admin",
        &["map", "meter", "wire"],
        "its handlers work over a trait, so that it can be served from anywhere",
    ),
    ("polyshard", &["map", "admin", "server"], "the command line has no private door: the admin API only"),
];

/// All that `map` may use from outside: crates that only compute.
const MAP_OUTSIDE: &[&str] = &["serde", "serde_json", "thiserror", "uuid", "chrono"];

/// The one crate that may have unsafe code, where a measured need for it is written down.
const UNSAFE: (&str, &str) = ("sqlite-wal", "docs/decisions/0014-a-commit-is-written-with-one-call.md");

/// The crates that put the whole together, and so may name more than one store.
const WHOLE: &[&str] = &["server", "polyshard", "bench", "testkit"];

struct Manifest {
    folder: String,
    table: Table,
}

impl Manifest {
    fn dependencies(&self, section: &str) -> BTreeSet<String> {
        match self.table.get(section) {
            Some(section) => section.as_table().expect("a table of dependencies").keys().cloned().collect(),
            None => BTreeSet::new(),
        }
    }

    /// The folders of our own crates among the dependencies of one section.
    fn ours(&self, section: &str) -> Vec<String> {
        let names = self.dependencies(section);
        names.iter().filter_map(|name| name.strip_prefix("polyshard-")).map(str::to_owned).collect()
    }
}

fn manifests() -> Vec<Manifest> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates can be listed") {
        let path = entry.expect("the crates can be listed").path();
        let folder = path.file_name().expect("a folder has a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(path.join("Cargo.toml")).expect("every folder in crates/ is a crate");
        found.push(Manifest { folder, table: text.parse().expect("a manifest is TOML") });
    }
    assert!(found.len() > 5, "the crates were not found");
    found
}

fn layer(folder: &str) -> Option<usize> {
    let name = if folder.starts_with("store-") { "store-*" } else { folder };
    LAYERS.iter().position(|layer| *layer == name)
}

#[test]
fn every_crate_depends_only_on_the_layers_below_it() {
    let mut offences = Vec::new();
    for manifest in manifests() {
        let folder = &manifest.folder;
        let Some(own) = layer(folder) else {
            offences.push(format!("crates/{folder} is not in the table of layers: give it a place"));
            continue;
        };
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for other in manifest.ours(section) {
                match layer(&other) {
                    None => offences.push(format!("{folder} names polyshard-{other}, which has no layer")),
                    Some(other_layer) if other_layer >= own => {
                        offences.push(format!("{folder} depends on {other}, which is not below it"));
                    }
                    Some(_) if other == "testkit" && section != "dev-dependencies" && folder != "bench" => {
                        offences.push(format!("{folder} has testkit in [{section}]: it is for tests only"));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    no_offences("dependencies point down only:", offences);
}

#[test]
fn crates_that_should_know_little_know_little() {
    let mut offences = Vec::new();
    for manifest in manifests() {
        for (folder, allowed, why) in NARROW {
            if *folder == manifest.folder {
                let others = manifest.ours("dependencies").into_iter();
                let others = others.filter(|other| !allowed.contains(&other.as_str()));
                offences.extend(others.map(|other| format!("{folder} depends on {other}, but {why}")));
            }
        }
    }
    no_offences("these crates are kept narrow:", offences);
}

#[test]
fn the_map_only_computes() {
    let manifests = manifests();
    let map = manifests.iter().find(|manifest| manifest.folder == "map").expect("there is a map crate");
    let outside = map.dependencies("dependencies").into_iter();
    let outside = outside.filter(|name| !MAP_OUTSIDE.contains(&name.as_str()));
    no_offences("map does no I/O and reads no clock, so it may not depend on:", outside.collect());
}

#[test]
fn only_the_whole_names_more_than_one_store() {
    let mut offences = Vec::new();
    for manifest in manifests().iter().filter(|manifest| !WHOLE.contains(&manifest.folder.as_str())) {
        let stores: Vec<_> =
            manifest.ours("dependencies").into_iter().filter(|name| name.starts_with("store-")).collect();
        if stores.len() > 1 {
            offences.push(format!("{} names {}", manifest.folder, stores.join(", ")));
        }
    }
    no_offences("only these may name several stores: server and what is built of it:", offences);
}

/// A store is its crate, its page and one line in `server/src/stores.rs`.
#[test]
fn every_declared_store_is_known_to_server_alone_and_has_a_page() {
    let mut offences = Vec::new();
    let mut stores = 0;
    for manifest in manifests() {
        let folder = &manifest.folder;
        for other in manifest.ours("dependencies").iter().filter(|other| other.starts_with("store-")) {
            if folder != "server" {
                offences
                    .push(format!("{folder} depends on {other}: only server knows which stores there are"));
            }
        }
        let Some(id) = folder.strip_prefix("store-") else { continue };
        stores += 1;
        let declares = crate::tree::rust_files().iter().any(|file| {
            file.crate_folder() == Some(folder) && file.text.contains(&format!("Store::new(\"{id}\""))
        });
        if !declares {
            offences.push(format!("{folder} declares no store {id:?}"));
        }
        // SQL is more than a store: it runs what the others do in its clients' transactions, on sessions of its own.
        let names_it = |file: &&crate::tree::File| {
            let path = file.path.as_str();
            path.starts_with("crates/server/src/")
                && path != "crates/server/src/stores.rs"
                && file.text.contains(&format!("polyshard_store_{id}"))
        };
        if id != "sql" {
            let named = crate::tree::rust_files();
            offences
                .extend(named.iter().filter(names_it).map(|file| format!("{} names {folder}", file.path)));
        }
        if !root().join(format!("docs/stores/{id}.md")).exists() {
            offences.push(format!("docs/stores/{id}.md is missing: a store has a page"));
        }
        let list = fs::read_to_string(root().join("crates/server/src/stores.rs")).expect("there is a list");
        if !list.contains(&format!("&polyshard_store_{id}::STORE")) {
            offences.push(format!("{folder} is not in the list of server/src/stores.rs"));
        }
    }
    assert!(stores > 2, "the stores were not found");
    no_offences("a store is one folder, one page and one line:", offences);
}

#[test]
fn every_crate_follows_the_lints_and_the_one_list_of_dependencies() {
    let root_text = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let workspace: Table = root_text.parse().expect("the manifest is TOML");
    let forbidden = &workspace["workspace"]["lints"]["rust"]["unsafe_code"];
    assert_eq!(forbidden.as_str(), Some("forbid"), "the workspace forbids unsafe code");

    let mut offences = Vec::new();
    for manifest in manifests() {
        let folder = &manifest.folder;
        let lints = manifest.table.get("lints");
        let is_lawful = if folder == UNSAFE.0 {
            assert!(root().join(UNSAFE.1).exists(), "{folder} has unsafe code, and no reason for it");
            lints == Some(&lints_with_unsafe(&workspace))
        } else {
            lints.and_then(|lints| lints.get("workspace")?.as_bool()) == Some(true)
        };
        if !is_lawful {
            offences.push(format!("{folder} does not take the workspace's lints"));
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in manifest.dependencies(section) {
                let from_list =
                    manifest.table[section][&name].get("workspace").and_then(toml::Value::as_bool);
                if from_list != Some(true) {
                    offences.push(format!("{folder} does not take {name} from the workspace's list"));
                }
            }
        }
    }
    no_offences("lints and versions are set once, in the root manifest:", offences);
}

/// The workspace's lints, but that unsafe code is allowed where a comment says why it is sound.
fn lints_with_unsafe(workspace: &Table) -> toml::Value {
    let mut lints = workspace["workspace"]["lints"].clone();
    let set = |lints: &mut toml::Value, kind: &str, name: &str, level: &str| {
        let kind = lints[kind].as_table_mut().expect("lints are tables");
        kind.insert(name.to_owned(), level.into());
    };
    set(&mut lints, "rust", "unsafe_code", "allow");
    set(&mut lints, "rust", "unsafe_op_in_unsafe_fn", "deny");
    set(&mut lints, "clippy", "undocumented_unsafe_blocks", "warn");
    lints
}

#[test]
fn every_locked_dependency_comes_from_the_public_registry() {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("the lock file is part of the checkout");
    let sources = text.lines().filter_map(|line| line.strip_prefix("source = "));
    let odd: BTreeSet<_> = sources
        .filter(|source| *source != "\"registry+https://github.com/rust-lang/crates.io-index\"")
        .collect();
    no_offences("a fresh clone can fetch only from crates.io:", odd.into_iter().map(str::to_owned).collect());
}

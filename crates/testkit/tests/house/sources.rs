//! What every source file keeps to: how it opens, how long it is, what it never calls.

use crate::no_offences;
use crate::tree::{File, files, rust_files};

/// A file longer than this has more than one subject.
const FILE_LINES_MAX: usize = 700;
/// rustfmt wraps code at 110 and leaves long texts alone; this is where those become unreadable side by side.
const LINE_CHARS_MAX: usize = 120;

/// Never in any code, with the reason. Written in two parts so that this file does not accuse itself.
const BANNED: &[(&str, &str)] = &[
    (concat!("todo", "!("), "unfinished code is not merged"),
    (concat!("unimplemented", "!("), "unfinished code is not merged"),
    (concat!("dbg", "!("), "left over from debugging"),
    (concat!("unbounded", "_channel"), "every queue has a limit"),
    (concat!("mpsc::", "unbounded"), "every queue has a limit"),
];

/// Never outside tests, with the reason.
const BANNED_OUTSIDE_TESTS: &[(&str, &str)] = &[
    (".unwrap()", "handle the error, or `expect` with the reason it cannot happen"),
    ("mpsc::channel()", "every queue has a limit: std's is without one, use `sync_channel`"),
];

/// What only `server` and the crates above it may read; below, it is passed in.
const SURROUNDINGS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "env::var",
    "Utc::now",
    "Local::now",
    "thread_rng",
    "rand::rng",
    "new_v4",
];

/// Crates at the top or outside of the layers, which may read their surroundings.
const TOP: &[&str] = &["server", "polyshard", "console", "bench", "testkit"];

/// The exceptions: path prefix, what it may read, why. One that is no longer needed fails the test.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "crates/backup/src/marks.rs",
        "new_v4",
        "the name of a mark, to be told from those of other machines; nothing else depends on it",
    ),
    (
        "crates/engine/src/",
        "Instant::now",
        "deadlines and pauses of connections, measured in this process; nothing of it is stored",
    ),
    (
        "crates/catalog/src/driver.rs",
        "Instant::now",
        "how long the driver itself has waited; leases are by the catalog's clock, the saga reads none",
    ),
    (
        "crates/mover/src/",
        "Instant::now",
        "how long one part of a task may take before the driver is answered, on tokio's clock; nothing of it is stored",
    ),
    (
        "crates/store/src/quota.rs",
        "Instant::now",
        "what a quota has left since the process started, on tokio's clock; nothing of it is stored",
    ),
    (
        "crates/store-blob/src/carrier.rs",
        "new_v4",
        "the mark of a place of objects, to be told from all others; a restore has no kit to ask for randomness",
    ),
    (
        "crates/store-blob/src/objects/folder.rs",
        "SystemTime::now",
        "how old a partial file is, by the clock that dated it; nothing of it is stored",
    ),
    (
        "crates/store-blob/src/store/limits.rs",
        "Instant::now",
        "what an account or blob may still take since the process started, on tokio's clock; nothing of it is stored",
    ),
    (
        "crates/router/src/",
        "Instant::now",
        "deadlines of waiting callers and times of metrics, on tokio's clock, which tests can stop; who may enter is \
         no matter of time",
    ),
];

/// Names that only one file may use, with the reason.
const ONLY_IN: &[(&str, &str, &str)] = &[(
    "sqlparser::ast",
    "crates/sql/src/ast.rs",
    "use `polyshard_sql::ast`: the parser's own `visit` compiles the walk over all nodes again for each visitor",
)];

/// The lines of a file that are not tests: all before its test module, none if the whole file is a test.
fn production(file: &File) -> &str {
    let parts: Vec<_> = file.path.split('/').collect();
    let folder = parts.get(2).copied().unwrap_or_default();
    if folder != "src" || parts.iter().any(|part| *part == "tests" || *part == "tests.rs") {
        return "";
    }
    let mut from = 0;
    while let Some(at) = file.text[from..].find("\n#[cfg(test)]\nmod ") {
        let module = &file.text[from + at + 1..];
        let declaration = module.lines().nth(1).unwrap_or_default();
        if !declaration.ends_with(';') {
            return &file.text[..from + at + 1];
        }
        from += at + 1;
    }
    &file.text
}

/// A line without its comment. (A `//` inside a text literal cuts it short as well, which hides little.)
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn places<'a>(file: &'a File, text: &'a str, needle: &'a str) -> impl Iterator<Item = String> + 'a {
    let lines = text.lines().enumerate().filter(move |(_, line)| code(line).contains(needle));
    lines.map(move |(number, line)| format!("{}:{}: {}", file.path, number + 1, line.trim()))
}

#[test]
fn every_file_opens_with_a_sentence_saying_what_it_is() {
    let silent = rust_files().into_iter().filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        !first.starts_with("//! ") || first.len() < "//! A sentence.".len()
    });
    no_offences("the first line of a file is a `//!` sentence:", silent.map(|file| file.path).collect());
}

#[test]
fn files_and_lines_are_short() {
    let mut offences = Vec::new();
    for file in rust_files().iter().chain(&files(".sh")) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            offences.push(format!(
                "{}: {lines} lines, more than {FILE_LINES_MAX}: give its parts files",
                file.path
            ));
        }
        for (number, line) in file.text.lines().enumerate() {
            let chars = line.chars().count();
            if chars > LINE_CHARS_MAX {
                offences.push(format!("{}:{}: {chars} characters in a line", file.path, number + 1));
            }
        }
    }
    no_offences("small files and lines are read:", offences);
}

#[test]
fn nothing_banned_is_called() {
    let mut offences = Vec::new();
    for file in rust_files() {
        for (needle, why) in BANNED {
            offences.extend(places(&file, &file.text, needle).map(|place| format!("{place}  ({why})")));
        }
        for (needle, why) in BANNED_OUTSIDE_TESTS {
            offences
                .extend(places(&file, production(&file), needle).map(|place| format!("{place}  ({why})")));
        }
    }
    no_offences("these are not called here:", offences);
}

#[test]
fn names_kept_to_one_file_stay_there() {
    let mut offences = Vec::new();
    let files = rust_files();
    for (needle, home, why) in ONLY_IN {
        let is_home = |file: &&File| file.path == *home;
        assert!(files.iter().any(|file| is_home(&file) && file.text.contains(needle)), "{home}: no {needle}");
        let others = files.iter().filter(|file| !is_home(file) && file.crate_folder() != Some("testkit"));
        offences.extend(others.flat_map(|file| {
            places(file, &file.text, needle).map(|place| format!("{place}  ({why})")).collect::<Vec<_>>()
        }));
    }
    no_offences("these names are used in one file only:", offences);
}

#[test]
fn below_the_server_nothing_reads_clock_randomness_or_environment() {
    let mut offences = Vec::new();
    let mut used = vec![false; ALLOWED.len()];
    let files = rust_files();
    let below = files.iter().filter(|file| file.crate_folder().is_some_and(|folder| !TOP.contains(&folder)));
    for file in below {
        for needle in SURROUNDINGS {
            let allowance =
                ALLOWED.iter().position(|(path, what, _)| file.path.starts_with(path) && what == needle);
            let mut found = places(file, production(file), needle).peekable();
            match allowance {
                Some(allowance) => used[allowance] |= found.peek().is_some(),
                None => offences.extend(found),
            }
        }
    }
    for ((path, needle, _), _) in ALLOWED.iter().zip(used).filter(|(_, used)| !used) {
        offences.push(format!("{path} is allowed {needle} but does not use it: remove the allowance"));
    }
    no_offences(
        "pass the clock, the randomness and the environment in (or add an allowance with its reason):",
        offences,
    );
}

#[test]
fn every_source_file_is_part_of_its_crate() {
    let files = rust_files();
    let mut offences = Vec::new();
    for file in &files {
        let Some((folder, inner)) = file.path.split_once("/src/") else { continue };
        let name =
            inner.trim_end_matches(".rs").trim_end_matches("/mod").rsplit('/').next().unwrap_or_default();
        if matches!(inner, "lib.rs" | "main.rs") || inner.starts_with("bin/") {
            continue;
        }
        let declaration = format!("mod {name};");
        let siblings = files.iter().filter(|other| other.path.starts_with(folder));
        if !siblings.into_iter().any(|other| other.text.contains(&declaration)) {
            offences.push(format!("{}: nothing says `{declaration}`", file.path));
        }
    }
    no_offences("a file that is not compiled is dead:", offences);
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let homes = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let mut offences = Vec::new();
    for file in files("").iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(home) = homes.iter().find(|home| line.contains(*home)) {
                offences.push(format!("{}:{}: {home}", file.path, number + 1));
            }
        }
    }
    no_offences("a path that exists on one machine only:", offences);
}

#[test]
fn the_rules_can_fail() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let source = file(
        "crates/x/src/a.rs",
        "//! A.\nlet a = b.unwrap();\n#[cfg(test)]\nmod tests {\n    c.unwrap();\n}\n",
    );
    assert_eq!(places(&source, production(&source), ".unwrap()").count(), 1);
    assert_eq!(places(&source, &source.text, ".unwrap()").count(), 2);
    let split = file("crates/x/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests;\nlet a = b.unwrap(); // why\n");
    assert_eq!(places(&split, production(&split), ".unwrap()").count(), 1);
    assert_eq!(places(&split, production(&split), "why").count(), 0);
    assert_eq!(production(&file("crates/x/tests/a.rs", "a.unwrap()")), "");
    assert_eq!(production(&file("crates/x/src/a/tests.rs", "a.unwrap()")), "");
}

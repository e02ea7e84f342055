//! What the documents keep to: links lead somewhere, every page is listed, changes are noted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::no_offences;
use crate::tree::{File, files, root, rust_files};

/// A text outside code blocks and code spans, where a bracket is a bracket.
fn prose(text: &str) -> String {
    let mut in_block = false;
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            for (index, part) in line.split('`').enumerate() {
                out.push_str(if index % 2 == 0 { part } else { "code" });
            }
        }
        out.push('\n');
    }
    out
}

/// The targets of the links on a page, with the line of each.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text).lines().enumerate() {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            found.push((number + 1, rest[..end].split_whitespace().next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// The anchors a page offers: its headings as the usual viewers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_block = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        if !in_block && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

/// Where a link on a page leads, from the root of the checkout.
fn resolve(page: &str, link: &str) -> PathBuf {
    let mut path = Path::new(page).parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

fn is_outside(link: &str) -> bool {
    link.starts_with("https://") || link.starts_with("http://") || link.starts_with("mailto:")
}

fn page(path: &str) -> File {
    let text = fs::read_to_string(root().join(path)).unwrap_or_else(|_| panic!("there is no {path}"));
    File { path: path.to_owned(), text }
}

#[test]
fn every_link_leads_somewhere() {
    let mut offences = Vec::new();
    for page in files(".md") {
        for (line, link) in links(&page.text).into_iter().filter(|(_, link)| !is_outside(link)) {
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path =
                if target.is_empty() { PathBuf::from(&page.path) } else { resolve(&page.path, target) };
            let there = root().join(&path);
            let has_anchor = || fs::read_to_string(&there).is_ok_and(|text| anchors(&text).contains(anchor));
            if !there.exists() || (!anchor.is_empty() && !has_anchor()) {
                offences.push(format!("{}:{line}: {link}", page.path));
            }
        }
    }
    no_offences("a link that leads nowhere:", offences);
}

#[test]
fn every_page_of_docs_is_listed_in_its_index() {
    let index_of = |index: &str| -> BTreeSet<PathBuf> {
        links(&page(index).text)
            .iter()
            .map(|(_, link)| resolve(index, link.split('#').next().unwrap_or("")))
            .collect()
    };
    let mut listed = index_of("docs/README.md");
    let lower: Vec<_> = listed.iter().filter(|path| path.ends_with("README.md")).cloned().collect();
    for index in lower.iter().filter(|path| path.starts_with("docs")) {
        listed.extend(index_of(&index.to_string_lossy()));
    }
    // The index names the folder of the stores' pages: a new store has one without a line there.
    assert!(listed.contains(Path::new("docs/stores")), "docs/README.md has no link to stores");
    let pages = files(".md").into_iter().filter(|page| page.path.starts_with("docs/"));
    let pages = pages.filter(|page| !page.path.starts_with("docs/stores/"));
    let unlisted =
        pages.filter(|page| page.path != "docs/README.md" && !listed.contains(Path::new(&page.path)));
    no_offences("a page nobody finds:", unlisted.map(|page| page.path).collect());
}

#[test]
fn the_documents_a_newcomer_looks_for_are_there() {
    let expected = ["README.md", "ARCHITECTURE.md", "STYLE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"];
    let missing = expected.iter().filter(|path| !root().join(path).exists());
    no_offences("a document that is missing:", missing.map(|path| (*path).to_owned()).collect());
}

#[test]
fn the_changelog_has_a_place_for_what_is_not_released_yet() {
    let changelog = page("CHANGELOG.md");
    assert!(
        changelog.text.lines().any(|line| line == "## [Unreleased]"),
        "CHANGELOG.md needs `## [Unreleased]`"
    );
}

#[test]
fn the_architecture_names_every_crate_and_no_other() {
    let architecture = page("ARCHITECTURE.md");
    let rows = architecture.text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let named: BTreeSet<String> = rows.map(str::to_owned).collect();
    let folders = fs::read_dir(root().join("crates")).expect("the crates can be listed");
    let there: BTreeSet<String> =
        folders.map(|entry| entry.expect("a crate").file_name().to_string_lossy().into_owned()).collect();
    // Stores are the one kind that comes by a list of its own, and each has a page.
    let is_store = |name: &&String| name.starts_with("store-");
    let there: BTreeSet<String> = there.iter().filter(|name| !is_store(name)).cloned().collect();
    let named: BTreeSet<String> = named.iter().filter(|name| !is_store(name)).cloned().collect();
    let unnamed =
        there.difference(&named).map(|name| format!("crates/{name} is not in ARCHITECTURE.md's table"));
    let gone =
        named.difference(&there).map(|name| format!("ARCHITECTURE.md's table names {name}, which is gone"));
    no_offences("the table of crates is the list of crates:", unnamed.chain(gone).collect());
}

/// The paths that one with a list in braces stands for.
fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (list, after))) => list.split(',').map(|one| format!("{before}{one}{after}")).collect(),
        None => vec![path.to_owned()],
    }
}

#[test]
fn every_test_that_is_said_to_show_something_is_there() {
    let sources = rust_files();
    let functions: BTreeSet<&str> = sources
        .iter()
        .flat_map(|file| file.text.split("fn ").skip(1))
        .filter_map(|rest| rest.split(['(', '<']).next())
        .collect();
    let page = page("docs/moves-tests.md");
    let mut offences = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|name| !name.contains(' ')) {
            let is_there = if name.contains('/') {
                expanded(name).iter().all(|path| root().join("crates").join(path).exists())
            } else if let Some(beginning) = name.strip_suffix('…') {
                functions.range(beginning..).next().is_some_and(|found| found.starts_with(beginning))
            } else {
                !name.contains('_') || functions.contains(name)
            };
            if !is_there {
                offences.push(format!("{}:{}: {name}", page.path, number + 1));
            }
        }
    }
    no_offences("a test that is not there:", offences);
}

#[test]
fn links_are_found_and_resolved() {
    let text = "see [a](b.md#c) and `[no](x)`\n```\n[no](y)\n```\n[d](../e.md \"title\")\n";
    assert_eq!(links(text), [(1, "b.md#c".to_owned()), (5, "../e.md".to_owned())]);
    assert_eq!(resolve("docs/a/b.md", "../c.md"), Path::new("docs/c.md"));
    assert!(anchors("# One: `two` & three\n").contains("one-two--three"));
}

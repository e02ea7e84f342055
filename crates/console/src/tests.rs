//! What every file of the console keeps to, so that it runs under the strict policy it is served with.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::ASSETS;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets")
}

fn files(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_file_is_embedded() {
    let mut there = BTreeSet::new();
    files(&folder(), &mut there);
    let embedded: BTreeSet<String> =
        ASSETS.iter().map(|asset| String::from_utf8(asset.bytes.to_vec()).unwrap()).collect();
    assert_eq!(there.len(), ASSETS.len());
    assert!(there == embedded, "a file in assets/ is not in ASSETS");
}

#[test]
fn every_import_and_reference_is_served() {
    let paths: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.path).collect();
    for asset in ASSETS {
        let text = std::str::from_utf8(asset.bytes).unwrap();
        for part in text.split("from \"").skip(1) {
            let name = part.split('"').next().unwrap();
            let base = Path::new(asset.path).parent().unwrap();
            let target = match name.strip_prefix("../") {
                Some(rest) => base.parent().unwrap().join(rest),
                None => base.join(name.trim_start_matches("./")),
            };
            assert!(paths.contains(target.to_str().unwrap()), "{} imports {name}", asset.path);
        }
        for part in text.split("\"/console/").skip(1) {
            let path = format!("/console/{}", part.split('"').next().unwrap());
            assert!(paths.contains(path.as_str()), "{} names {path}", asset.path);
        }
    }
}

#[test]
fn nothing_comes_from_elsewhere_and_no_text_becomes_markup() {
    for asset in ASSETS {
        let text = std::str::from_utf8(asset.bytes).unwrap();
        for banned in
            ["https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", " style=\"", "onclick=\""]
        {
            assert!(!text.contains(banned), "{} has {banned}", asset.path);
        }
        let long = text.lines().find(|line| line.chars().count() > 120 && !line.contains("<svg"));
        assert_eq!(long, None, "{} has a long line", asset.path);
    }
}

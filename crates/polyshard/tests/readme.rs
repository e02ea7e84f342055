//! The documents' examples are tried: the README's tour is typed into a shell, and what pages show is what there is.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polyshard_admin::ErrorCode;
use polyshard_testkit::process::{Server, Setup};

const TOUR: &str = "## Five-minute tour";

/// A block between fences: its language, its text, and the line of the page it begins on.
struct Block {
    language: String,
    text: String,
    line: usize,
}

/// What a reader of the tour does next.
enum Step {
    /// Types commands and, if the page shows an answer, sees just that.
    Type { line: usize, commands: String, shown: Option<String> },
    /// Stops the server and starts it again: `<!-- restart -->` on the page.
    Restart,
}

fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        match (open, line.strip_prefix("```")) {
            (false, Some(language)) => {
                blocks.push(Block { language: language.to_owned(), text: String::new(), line: index + 2 });
                open = true;
            }
            (true, Some(_)) => open = false,
            (true, None) => blocks.last_mut().expect("a block is open").text += &format!("{line}\n"),
            (false, None) => {}
        }
    }
    assert!(!open, "a block is not closed");
    blocks
}

/// The steps of the tour, in order. An answer belongs to the commands above it.
fn steps(readme: &str) -> Vec<Step> {
    let (before, tour) = readme.split_once(TOUR).expect("the README has a tour");
    let tour = tour.split("\n## ").next().expect("a split has a first part");
    let mut steps = Vec::new();
    let offset = before.lines().count();
    for (index, part) in tour.split("<!-- restart -->").enumerate() {
        if index > 0 {
            steps.push(Step::Restart);
        }
        for block in blocks(part) {
            match (block.language.as_str(), steps.last_mut()) {
                ("sh", _) => {
                    steps.push(Step::Type { line: offset + block.line, commands: block.text, shown: None });
                }
                ("text", Some(Step::Type { shown, .. })) if shown.is_none() => *shown = Some(block.text),
                (language, _) => panic!("the tour has a {language:?} block that follows no commands"),
            }
        }
    }
    steps
}

/// Types commands as a reader would: with the program in the path, in a folder, asking this server.
fn type_in(server: &Server, folder: &Path, commands: &str) -> (bool, String) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_polyshard"));
    let programs = program.parent().expect("a program is in a folder").display();
    let path = std::env::var("PATH").expect("a test has a path");
    let output = Command::new("sh")
        // One stream, as on a terminal: an error stands where it happened.
        .args(["-c", &format!("exec 2>&1\n{commands}")])
        .env("PATH", format!("{programs}:{path}"))
        .env("POLYSHARD_SERVER", format!("http://{}", server.door("admin")))
        .env_remove("POLYSHARD_TOKEN")
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    (output.status.success(), String::from_utf8(output.stdout).expect("the program prints UTF-8"))
}

#[test]
fn the_five_minute_tour_shows_what_happens() {
    let steps = steps(&page("README.md"));
    let commands = steps.iter().filter(|step| matches!(step, Step::Type { .. })).count();
    assert!(commands >= 10, "only {commands} blocks of commands were found: is the README read wrongly?");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let setup = Setup::new();
    let mut server = setup.start();
    for step in steps {
        match step {
            Step::Restart => {
                assert!(server.stop().success(), "{}", server.log().text());
                server.assert_clean_log(&[]);
                server = setup.start();
            }
            Step::Type { line, commands, shown } => {
                let (success, printed) = type_in(&server, folder.path(), &commands);
                match shown {
                    Some(shown) => assert_eq!(printed, shown, "README.md:{line}: {commands}"),
                    None => assert!(success, "README.md:{line}: {commands}\n{printed}"),
                }
            }
        }
    }
    assert!(server.stop().success(), "{}", server.log().text());
    server.assert_clean_log(&[]);
}

#[test]
fn every_make_command_of_the_readme_is_there() {
    let makefile = page("Makefile");
    let readme = page("README.md");
    let blocks = blocks(&readme);
    let lines = blocks.iter().flat_map(|block| block.text.lines());
    let named: Vec<&str> =
        lines.filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect();
    assert!(named.len() >= 2, "the README names two commands: {named:?}");
    for target in named {
        assert!(makefile.contains(&format!("\n{target}:")), "the Makefile has no {target}");
    }
}

#[test]
fn the_operators_configuration_is_right() {
    let operate = page("docs/operate.md");
    let examples: Vec<Block> =
        blocks(&operate).into_iter().filter(|block| block.language == "toml").collect();
    assert!(!examples.is_empty(), "docs/operate.md shows a configuration");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for example in examples {
        let file = folder.path().join("polyshard.toml");
        std::fs::write(&file, &example.text).expect("a file can be written");
        let ran = Setup::new().run(&["config", "check", &file.to_string_lossy()]);
        assert_eq!(ran.code, Some(0), "docs/operate.md:{}: {}{}", example.line, ran.stdout, ran.stderr);
    }
}

#[test]
fn every_error_code_is_explained() {
    let errors = page("docs/errors.md");
    for code in ErrorCode::ALL {
        let name = serde_json::to_value(code).expect("a code is a word");
        let name = name.as_str().expect("a code is a word");
        assert!(
            errors.lines().any(|line| line.starts_with(&format!("| `{name}` |"))),
            "docs/errors.md does not explain {name}"
        );
    }
}

#[test]
fn the_library_page_quotes_the_example_that_compiles() {
    let example = page("crates/router/examples/notes.rs");
    let there: Vec<&str> = example.lines().map(str::trim).collect();
    let quoted = blocks(&page("docs/library.md"));
    let quoted: Vec<&Block> = quoted.iter().filter(|block| block.language == "rust").collect();
    assert!(!quoted.is_empty(), "docs/library.md quotes the example");
    for block in quoted {
        for (number, line) in block.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            assert!(
                there.contains(&line.trim()),
                "docs/library.md:{}: not in the example: {line}",
                block.line + number
            );
        }
    }
}

//! The command line's shape: that it holds together, is documented, and reads what people type.

use std::ffi::OsString;
use std::path::Path;

use polyshard_admin::types::ChangeRequest;
use serde_json::{Value, json};

use crate::args::{Command, parse, shape};
use crate::command::map::MapCommand;

/// Every command with its words, the program itself first.
fn commands(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
    found.push((words.to_owned(), command.clone()));
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        commands(inner, &format!("{words} {}", inner.get_name()), found);
    }
}

fn all_commands(mut shape: clap::Command) -> Vec<(String, clap::Command)> {
    shape.build();
    let mut found = Vec::new();
    commands(&shape, "polyshard", &mut found);
    found
}

#[test]
fn the_shape_holds_together() {
    shape().debug_assert();
}

#[test]
fn every_command_has_examples_that_can_be_typed() {
    for (words, command) in
        all_commands(shape()).into_iter().filter(|(_, command)| !command.has_subcommands())
    {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<&str> =
            after.lines().filter_map(|line| line.strip_prefix("  polyshard ")).collect();
        assert!(!examples.is_empty(), "'{words} --help' has no example");
        for example in examples {
            // What follows the command is a remark, a redirection or a pipe.
            let typed = example.split("   ").next().unwrap_or_default();
            let typed = typed.split(['>', '<', '|']).next().unwrap_or_default();
            if let Err(refused) = parse(shell_words(&format!("polyshard {typed}"))) {
                panic!("the example 'polyshard {typed}' of '{words}' is refused: {refused:?}");
            }
        }
    }
}

#[test]
fn the_documents_reference_is_the_help() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- help -->\n", "<!-- end of help -->");
    let (before, rest) = text.split_once(begin).expect("docs/cli.md has the opening mark");
    let (_, after) = rest.split_once(end).expect("docs/cli.md has the closing mark");
    // The global options are shown once, with the program itself.
    let quiet =
        ["server", "token", "json"].iter().fold(shape(), |shape, name| shape.mut_arg(name, |a| a.hide(true)));
    let mut help = String::new();
    let with_globals = all_commands(shape()).into_iter().take(1);
    for (words, command) in with_globals.chain(all_commands(quiet).into_iter().skip(1)) {
        let rendered = command.term_width(100).render_long_help().to_string();
        let lines: Vec<&str> = rendered.lines().map(str::trim_end).collect();
        help.push_str(&format!("\n## {words}\n\n```text\n{}\n```\n", lines.join("\n").trim_end()));
    }
    let expected = format!("{before}{begin}{help}\n{end}{after}");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected, "UPDATE_GOLDENFILES=1 writes docs/cli.md");
}

/// The change a command line stands for.
fn change(line: &str) -> Value {
    let cli = parse(shell_words(line)).unwrap_or_else(|refused| panic!("{line}: {refused:?}"));
    let Command::Map(command) = cli.command else { panic!("{line} is no map command") };
    let request: ChangeRequest = match *command {
        MapCommand::Add(args) => args.request(),
        MapCommand::Remove(args) => args.request(),
        MapCommand::Split(args) => args.split(),
        MapCommand::Merge(args) => args.merge(),
        MapCommand::Assign(args) => args.request(),
        MapCommand::State(args) => args.request(),
        MapCommand::Lock(args) => args.request(),
        MapCommand::Unlock(args) => args.request(),
        MapCommand::AddSegment(args) => args.request(),
        MapCommand::SplitSegment(args) => args.request(),
        MapCommand::RemoveSegment(args) => args.request(),
        other => panic!("{other:?} is no change"),
    };
    serde_json::to_value(request).unwrap()
}

#[test]
fn flags_become_changes() {
    let cases = [
        (
            "polyshard map add m --key -42 --to s1 --group g",
            json!({"add": {"entries": [{"range": {"key": "-42"}, "shard": "s1", "group": "g"}]}}),
        ),
        (
            "polyshard map add m --range -5..5 --to s1 --state read_only",
            json!({"add": {"entries": [{"range": {"from": "-5", "to": "5"}, "shard": "s1", "state": "read_only"}]}}),
        ),
        ("polyshard map remove m --range ..", json!({"remove": {"range": {"from": null, "to": null}}})),
        ("polyshard map split m --at -1", json!({"split": {"at": "-1"}})),
        ("polyshard map merge m --at 3 --segment eu", json!({"merge": {"at": "3", "segment": "eu"}})),
        (
            "polyshard map assign m --buckets 0..64 --to s3",
            json!({"assign": {"range": {"buckets": [0, 64]}, "to": "s3"}}),
        ),
        (
            "polyshard map assign m --buckets 0..64 --segment '' --to s3",
            json!({"assign": {"range": {"buckets": [0, 64], "segment": null}, "to": "s3"}}),
        ),
        ("polyshard map assign m --group g --to s3", json!({"assign": {"group": "g", "to": "s3"}})),
        (
            "polyshard map state m offline --key a",
            json!({"set_state": {"range": {"key": "a"}, "state": "offline"}}),
        ),
        (
            "polyshard map lock m --key a --owner me --lease 2h",
            json!({"lock": {"range": {"key": "a"}, "owner": "me", "lease_ms": 7_200_000}}),
        ),
        ("polyshard map unlock m --key a --force", json!({"unlock": {"range": {"key": "a"}}})),
        (
            "polyshard map unlock m --key a --owner me",
            json!({"unlock": {"range": {"key": "a"}, "owner": "me"}}),
        ),
        (
            "polyshard map add-segment m --range 2024-01-01.. --shards s1,s2",
            json!({"add_segment": {"segment": {"from": "2024-01-01", "to": null}, "shards": ["s1", "s2"]}}),
        ),
        (
            "polyshard map split-segment m --segment '' --at b",
            json!({"split_segment": {"segment": null, "at": "b"}}),
        ),
        ("polyshard map remove-segment m --segment a", json!({"remove_segment": {"segment": "a"}})),
    ];
    for (line, expected) in cases {
        assert_eq!(change(line), expected, "{line}");
    }
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    for line in [
        "polyshard",
        "polyshard map",
        "polyshard map create Upper --kind hash --key bigint",
        "polyshard map create m --kind tree --key bigint",
        "polyshard map add m --to s1",
        "polyshard map add m --key a --range b..c --to s1",
        "polyshard map assign m --to s1",
        "polyshard map assign m --key a --group g --to s1",
        "polyshard map assign m --buckets 5..2 --to s1",
        "polyshard map state m sleepy --key a",
        "polyshard map lock m --key a",
        "polyshard map unlock m --key a",
        "polyshard map lock m --key a --owner me --lease soon",
        "polyshard map remove-segment m",
        "polyshard map repair m",
        "polyshard shard add s1",
        "polyshard shard set s1 --bytes-max 0",
        "polyshard up --set router.poll_ms",
        "polyshard status --if-version 3",
    ] {
        assert!(parse(shell_words(line)).is_err(), "'{line}' is accepted");
    }
}

/// The words of a line as a shell would give them, for the quoting the examples use.
fn shell_words(line: &str) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from).collect()
}

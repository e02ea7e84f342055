//! Files with mistakes and the words they get, precedence, and that secrets stay secret.

use std::path::{Path, PathBuf};

use super::{File, LogFormat, OPTIONS, SecretSource, load, reference};

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn file(text: &str) -> Option<File<'_>> {
    Some(File { name: "polyshard.toml", text })
}

fn errors(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    load(file(text), env(environment), &env(flags)).expect_err("the configuration has a mistake").to_string()
}

/// Compares with the file beside, or writes it when `UPDATE_GOLDENFILES=1`, as goldenscript does.
fn golden(path: &Path, text: &str) {
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(text, expected, "{} differs; UPDATE_GOLDENFILES=1 writes it", path.display());
}

#[test]
fn every_mistake_of_a_file_is_named_with_its_line_and_remedy() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    files.sort();
    assert!(files.len() >= 5, "the files are in {}", folder.display());
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = match load(file(&text), Vec::new(), &[]) {
            Ok(loaded) => loaded.settings.to_toml(),
            Err(errors) => format!("{errors}\n"),
        };
        assert!(!found.contains("hunter2"), "{} shows a secret:\n{found}", path.display());
        golden(&path.with_extension("expected"), &found);
    }
}

#[test]
fn the_documents_reference_is_the_list_of_options() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- options -->\n", "<!-- end of options -->");
    let (before, rest) = text.split_once(begin).expect("docs/config.md has the opening mark");
    let (_, after) = rest.split_once(end).expect("docs/config.md has the closing mark");
    golden(&path, &format!("{before}{begin}{}{end}{after}", reference()));
}

#[test]
fn the_documents_example_is_a_right_configuration() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        load(file(example), Vec::new(), &[]).unwrap_or_else(|errors| panic!("{errors}\nin\n{example}"));
    }
}

#[test]
fn without_a_file_there_are_four_embedded_shards_on_loopback() {
    let config = load(None, Vec::new(), &[]).unwrap().config;
    let shards: Vec<_> =
        config.shards.iter().map(|shard| (shard.id.to_string(), shard.url.clone())).collect();
    let expected = ["s1", "s2", "s3", "s4"].map(|id| (id.to_owned(), format!("sqlite:shards/{id}.db")));
    assert_eq!(shards, expected);
    assert_eq!(config.catalog.url, "sqlite:catalog.db");
    assert_eq!(config.data, PathBuf::from("./polyshard-data"));
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:7070");
    assert_eq!(config.admin.token, SecretSource::None);
    assert!(config.router.snapshot);
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let text = "[router]\npoll_ms = 1\nhold_ms_max = 2\nshard_deadline_ms = 3\n";
    let environment = env(&[
        ("POLYSHARD__ROUTER__HOLD_MS_MAX", "20"),
        ("POLYSHARD__ROUTER__SHARD_DEADLINE_MS", "30"),
        ("POLYSHARD__LOG__FORMAT", "json"),
        ("POLYSHARD_TOKEN", "of the command line"),
        ("HOME", "/nowhere"),
    ]);
    let flags = env(&[("router.shard_deadline_ms", "300"), ("data", "elsewhere")]);
    let config = load(file(text), environment, &flags).unwrap().config;
    assert_eq!(config.router.poll.as_millis(), 1);
    assert_eq!(config.router.hold_max.as_millis(), 20);
    assert_eq!(config.router.shard_deadline.as_millis(), 300);
    assert_eq!(config.router.overall_deadline.as_millis(), 30_000);
    assert_eq!(config.data, PathBuf::from("elsewhere"));
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn every_option_can_be_overridden_by_its_variable() {
    for option in OPTIONS.iter() {
        let value = if option.default.is_empty() { "word-of-sixteen-letters" } else { option.default };
        let loaded = load(None, vec![(option.variable(), value.to_owned())], &[]);
        if option.path.starts_with("catalog.password") {
            let refused = loaded.unwrap_err().to_string();
            assert!(refused.contains("the catalog is an SQLite file and has a password"), "{refused}");
        } else if option.path.contains(".certificate") {
            let refused = loaded.unwrap_err().to_string();
            assert!(refused.contains("give the one that is missing"), "{refused}");
        } else if option.path == "trace.endpoint" {
            let refused = loaded.unwrap_err().to_string();
            assert!(refused.contains("no address of a collector"), "{refused}");
        } else {
            loaded.unwrap_or_else(|errors| panic!("{}: {errors}", option.path));
        }
    }
}

#[test]
fn mistakes_in_the_environment_and_flags_are_named() {
    assert_eq!(
        errors(
            "",
            &[("POLYSHARD__ROUTER__HOLD_MS", "1"), ("POLYSHARD__SHARDS__0__URL", "x")],
            &[("log.lvl", "x")]
        ),
        "environment POLYSHARD__ROUTER__HOLD_MS: there is no option router.hold_ms; did you mean router.hold_ms_max?\n\
         environment POLYSHARD__SHARDS__0__URL: shards cannot be set by the environment; write them into the file, \
         with password_env where a password comes from the environment\n\
         command line: there is no option log.lvl; did you mean log.level?"
    );
    assert_eq!(
        errors("", &[("POLYSHARD__ROUTER__POLL_MS", "soon")], &[]),
        "environment POLYSHARD__ROUTER__POLL_MS: router.poll_ms is \"soon\"; it takes a whole number, 1 to 3600000"
    );
}

#[test]
fn an_override_of_a_secret_replaces_the_files_way_of_giving_it() {
    let text = "[admin]\ntoken_file = \"/run/token\"\n";
    let environment = env(&[("POLYSHARD__ADMIN__TOKEN", "hunter2hunter2hunter2")]);
    let config = load(file(text), environment, &[]).unwrap().config;
    assert_eq!(config.admin.token, SecretSource::Given("hunter2hunter2hunter2".into()));
}

#[test]
fn a_password_in_an_address_is_taken_out_and_never_shown() {
    let text = "[catalog]\nurl = \"postgres://me:p%40ss@host:5432/db?sslmode=require\"\n";
    let loaded = load(file(text), Vec::new(), &[]).unwrap();
    assert_eq!(loaded.config.catalog.url, "postgres://me@host:5432/db?sslmode=require");
    assert_eq!(loaded.config.catalog.password, SecretSource::Given("p@ss".into()));
    assert!(loaded.config.shards.is_empty(), "a catalog that can be shared starts without embedded shards");
    let settings = &loaded.settings;
    for shown in [format!("{loaded:?}"), settings.to_toml(), settings.to_json().to_string()] {
        assert!(!shown.contains("p@ss") && !shown.contains("p%40ss"), "{shown}");
    }
}

#[test]
fn traces_go_to_the_usual_path_of_a_collector_unless_another_is_named() {
    let endpoint = |text: &str| {
        let config = load(None, env(&[("POLYSHARD__TRACE__ENDPOINT", text)]), &[]).unwrap().config;
        config.trace.unwrap().endpoint
    };
    assert_eq!(endpoint("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
    assert_eq!(endpoint("https://collector/otlp/v1/traces"), "https://collector/otlp/v1/traces");
    assert!(load(None, Vec::new(), &[]).unwrap().config.trace.is_none());
    let secret = errors("", &[("POLYSHARD__TRACE__ENDPOINT", "http://me:hunter2@collector:4318")], &[]);
    assert!(secret.contains("holds a secret") && !secret.contains("hunter2"), "{secret}");
    let none = errors("", &[("POLYSHARD__TRACE__SAMPLE", ".5")], &[]);
    assert!(none.ends_with("it takes a number, 0 to 1"), "{none}");
}

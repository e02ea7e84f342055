//! The program as people and scripts run it, against the admin API over maps in memory.

#[path = "../../admin/tests/memory/mod.rs"]
mod memory;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use memory::{Server, TOKEN};
use serde_json::Value;

struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs the program with only what it is given: no variables of the developer's own, and an input.
fn run_with_input(arguments: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    command.args(arguments).env_clear().envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn run(arguments: &[&str]) -> Ran {
    run_with_input(arguments, &[], b"")
}

fn ask(server: &Server, arguments: &[&str]) -> Ran {
    let url = server.url();
    run_with_input(arguments, &[("POLYSHARD_SERVER", &url), ("POLYSHARD_TOKEN", TOKEN)], b"")
}

fn json(ran: &Ran) -> Value {
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {}", ran.stdout))
}

/// Every line of a session that starts with `$ polyshard` is run; what follows must be what it printed.
#[test]
fn sessions_read_as_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let server = Server::start();
        let session = std::fs::read_to_string(&path).unwrap();
        let mut replayed = String::new();
        for line in session.lines().filter(|line| line.starts_with('$') || line.starts_with('#')) {
            replayed.push_str(&format!("{line}\n"));
            let Some(words) = line.strip_prefix("$ polyshard ") else { continue };
            let ran = ask(&server, &shell_words(words).iter().map(String::as_str).collect::<Vec<_>>());
            replayed.push_str(&ran.stdout);
            replayed.push_str(&ran.stderr);
            if ran.code != 0 {
                replayed.push_str(&format!("exit {}\n", ran.code));
            }
            replayed.push('\n');
        }
        if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            std::fs::write(&path, &replayed).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(replayed, expected, "{} differs; UPDATE_GOLDENFILES=1 writes it", path.display());
    }
}

#[test]
fn json_answers_are_the_apis() {
    let server = Server::start();
    let made =
        json(&ask(&server, &["map", "create", "tenants", "--kind", "hash", "--key", "bigint", "--json"]));
    assert_eq!(made["name"], "tenants");
    let located = json(&ask(&server, &["--json", "map", "locate", "tenants", "42"]));
    for field in ["shard", "range", "epoch"] {
        assert!(!located[field].is_null(), "{located}");
    }
    let status = json(&ask(&server, &["status", "--json"]));
    for field in ["id", "engine", "state"] {
        assert!(status["shards"][0][field].is_string(), "{status}");
    }
    assert_eq!(status["maps"][0]["name"], "tenants");
    assert!(status["doors"]["admin"].is_string());
    assert_eq!(json(&ask(&server, &["map", "drop", "tenants", "--json"]))["dropped"], "tenants");
}

#[test]
fn json_errors_are_json_too() {
    let server = Server::start();
    let error = |ran: Ran| -> (i32, String) {
        assert_eq!(ran.stdout, "");
        let body: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|e| panic!("{e}: {}", ran.stderr));
        (ran.code, body["error"]["code"].as_str().unwrap().to_owned())
    };
    assert_eq!(error(ask(&server, &["map", "show", "none", "--json"])), (3, "not_found".to_owned()));
    assert_eq!(error(ask(&server, &["map", "show", "No", "--json"])), (2, "invalid".to_owned()));
    assert_eq!(error(ask(&server, &["--json", "nonsense"])), (2, "invalid".to_owned()));
    assert_eq!(
        error(ask(&server, &["status", "--json", "--token", "wrong"])),
        (1, "unauthorized".to_owned())
    );
    let nobody = format!("http://{}", free_address());
    assert_eq!(error(run(&["status", "--json", "--server", &nobody])), (5, "unavailable".to_owned()));
}

#[test]
fn a_map_goes_through_files_and_pipes() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("map.json");
    let file = file.to_str().unwrap();
    assert_eq!(ask(&server, &["map", "create", "tenants", "--kind", "hash", "--key", "uuid"]).code, 0);
    let piped = ask(&server, &["map", "export", "tenants"]).stdout;
    assert_eq!(ask(&server, &["map", "export", "tenants", "--output", file]).code, 0);
    assert_eq!(std::fs::read_to_string(file).unwrap(), piped);
    assert_eq!(ask(&server, &["map", "drop", "tenants"]).code, 0);
    assert_eq!(ask(&server, &["map", "import", file]).code, 0);
    let url = server.url();
    let variables = [("POLYSHARD_SERVER", url.as_str()), ("POLYSHARD_TOKEN", TOKEN)];
    assert_eq!(run_with_input(&["map", "import", "-"], &variables, piped.as_bytes()).code, 0);
    let missing = ask(&server, &["map", "import", "/no/such/file"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("error: file: /no/such/file cannot be read"), "{}", missing.stderr);
}

#[test]
fn a_configuration_is_checked_and_shown_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("polyshard.toml");
    let file = file.to_str().unwrap();
    std::fs::write(file, "[router]\npoll_ms = 5\n").unwrap();
    let right = run(&["config", "check", file]);
    assert_eq!((right.code, right.stdout), (0, format!("{file}: OK\n")));
    let shown = run(&["config", "show", "--config", file, "--set", "log.level=debug", "--data", "/d"]);
    for line in [
        "data = \"/d\" # command line",
        "level = \"debug\" # command line",
        &format!("poll_ms = 5 # {file}:2"),
    ] {
        assert!(shown.stdout.contains(line), "{line} is not in\n{}", shown.stdout);
    }
    let variables = [("POLYSHARD__ROUTER__POLL_MS", "7"), ("POLYSHARD__ADMIN__TOKEN", "hunter2")];
    let shown = run_with_input(&["config", "show", "--config", file, "--json"], &variables, b"");
    assert_eq!(json(&shown)["options"]["router.poll_ms"]["value"], 7);
    assert!(!shown.stdout.contains("hunter2"));

    std::fs::write(file, "[router]\npoll_ms = 0\nhold_ms = 5\n").unwrap();
    let wrong = run(&["config", "check", file]);
    assert_eq!(wrong.code, 2);
    for words in ["2 mistakes", &format!("{file}:2: router.poll_ms"), "did you mean router.hold_ms_max?"] {
        assert!(wrong.stderr.contains(words), "{words} is not in\n{}", wrong.stderr);
    }
    let wrong = run(&["config", "check", file, "--json"]);
    let errors: Value = serde_json::from_str(&wrong.stdout).unwrap();
    assert_eq!((wrong.code, errors["errors"].as_array().unwrap().len()), (2, 2));
    assert_eq!(run(&["up", "--config", file]).code, 2);
    assert_eq!(run(&["up", "--config", "/no/such/file"]).code, 3);
}

#[test]
fn completions_know_the_nouns() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, 0);
        assert!(script.stdout.contains("remove-segment"), "{shell}");
    }
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyshard"));
    let mut child =
        command.args(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The words of a line as a shell would give them, for single quotes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, part) in line.split('\'').enumerate() {
        match i % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

//! What a command printed, and what the admin API answered.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

/// How long an answer over HTTP may take; only a hang reaches it.
const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it printed as errors.
    pub stderr: String,
}

impl Output {
    pub(super) fn of(command: &mut Command) -> Output {
        let arguments: Vec<_> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let shown = format!("{} {}", command.get_program().to_string_lossy(), arguments.join(" "));
        let output = command.output().unwrap_or_else(|error| {
            panic!("`{shown}` cannot be started ({error}); build it first: cargo build -p polyshard")
        });
        Output {
            command: shown,
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).expect("a command prints UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("a command prints UTF-8"),
        }
    }

    /// What it printed, having succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "`{}` failed:\n{}{}", self.command, self.stdout, self.stderr);
        self.stdout
    }

    /// What it printed as JSON, having succeeded.
    #[track_caller]
    pub fn json(self) -> Value {
        let command = self.command.clone();
        let text = self.ok();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("`{command}` printed no JSON ({error}):\n{text}"))
    }

    /// What it printed as errors, having failed with this exit code.
    #[track_caller]
    pub fn fails_with(self, code: i32) -> String {
        assert_eq!(
            self.code,
            Some(code),
            "`{}` ended otherwise:\n{}{}",
            self.command,
            self.stdout,
            self.stderr
        );
        self.stderr
    }
}

/// An answer of the admin API, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub(super) fn get(address: &str, path: &str, token: &str) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(ANSWER_PATIENCE))
            .build()
            .into();
        let url = format!("http://{address}{path}");
        let answer = agent.get(&url).header("authorization", format!("Bearer {token}")).call();
        let mut answer = answer.unwrap_or_else(|error| panic!("GET {url}: {error}"));
        let body = answer.body_mut().read_to_string().unwrap_or_else(|error| panic!("GET {url}: {error}"));
        Answer { status: answer.status().as_u16(), body }
    }

    /// The body as JSON, the request having succeeded.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.body))
    }
}

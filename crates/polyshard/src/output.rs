//! What the command says: tables for people on stdout, JSON for programs, errors on stderr.

use std::io::{self, Write};

use polyshard_admin::{ErrorBody, ErrorCode, Problem};
use serde::Serialize;

use crate::exit::{Exit, Failure};

/// For whom the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables and sentences.
    People,
    /// One JSON value.
    Json,
}

/// Where answers go.
#[derive(Debug)]
pub struct Output {
    format: Format,
}

impl Output {
    pub fn new(format: Format) -> Output {
        Output { format }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// An answer: as it is for programs, or as `people` words it.
    pub fn answer<T: Serialize>(
        &self,
        value: &T,
        people: impl FnOnce(&T) -> String,
    ) -> Result<Exit, Failure> {
        match self.format {
            Format::People => self.text(&people(value))?,
            Format::Json => {
                let json = serde_json::to_string_pretty(value)
                    .map_err(|e| Failure::new(format!("the answer has no JSON form: {e}"), "report this"))?;
                self.text(&json)?;
            }
        }
        Ok(Exit::Ok)
    }

    /// Text as it is, with a line end.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        let end: &[u8] = if text.ends_with('\n') || text.is_empty() { b"" } else { b"\n" };
        self.bytes(&[text.as_bytes(), end].concat())
    }

    /// Bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::new(format!("the output cannot be written: {e}"), "check where it goes"),
        })
    }

    /// Says why the command did not do its work.
    pub fn fail(&self, failure: Failure) -> Exit {
        match failure {
            Failure::OutputClosed => Exit::Ok,
            Failure::Problem(problem) => {
                let exit = Exit::from(problem.code);
                say(self.format, problem);
                exit
            }
        }
    }
}

/// Prints a problem on stderr.
pub fn say(format: Format, problem: Problem) {
    let text = match format {
        Format::People => for_people(&problem),
        Format::Json => serde_json::to_string(&ErrorBody { error: problem }).unwrap_or_default() + "\n",
    };
    // When stderr is gone as well there is nobody left to tell; the exit code still says it.
    let _gone = io::stderr().write_all(text.as_bytes());
}

fn for_people(problem: &Problem) -> String {
    let mut text = String::from("error: ");
    if let Some(field) = &problem.field {
        text.push_str(&format!("{field}: "));
    }
    text.push_str(&problem.message);
    text.push('\n');
    if let Some(remedy) = &problem.remedy {
        text.push_str(&format!("hint: {remedy}\n"));
    } else if problem.code == ErrorCode::Internal {
        text.push_str("hint: the server's log says more\n");
    }
    text
}

//! Exit codes, and the failure that leads to one.

use std::process::ExitCode;

use polyshard_admin::{ClientError, ErrorCode, Problem};

/// How the command ended; documented in `docs/cli.md` and `polyshard --help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// It failed.
    Failure = 1,
    /// The command line, or a value in it, is wrong.
    Usage = 2,
    /// What it names does not exist.
    NotFound = 3,
    /// Changed meanwhile, or the state of things does not allow it; also differences found by a check.
    Conflict = 4,
    /// The server, catalog or a shard cannot be reached now.
    Unavailable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

impl From<ErrorCode> for Exit {
    fn from(code: ErrorCode) -> Exit {
        match code {
            ErrorCode::Invalid => Exit::Usage,
            ErrorCode::NotFound => Exit::NotFound,
            ErrorCode::Exists
            | ErrorCode::ChangedMeanwhile
            | ErrorCode::Conflict
            | ErrorCode::Locked
            | ErrorCode::HoldsData => Exit::Conflict,
            ErrorCode::Busy | ErrorCode::Unavailable => Exit::Unavailable,
            ErrorCode::Unauthorized
            | ErrorCode::Forbidden
            | ErrorCode::MethodNotAllowed
            | ErrorCode::TooLarge
            | ErrorCode::Unsupported
            | ErrorCode::Internal => Exit::Failure,
        }
    }
}

/// Why a command did not do its work.
#[derive(Debug)]
pub enum Failure {
    /// What went wrong, and the code to end with.
    Problem(Problem),
    /// Nobody reads the output any more, as with `| head`; nothing to say.
    OutputClosed,
}

impl Failure {
    /// It failed here, not at the server.
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> Failure {
        Failure::Problem(Problem::new(ErrorCode::Internal, message).with_remedy(remedy))
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Failure {
        Failure::Problem(problem)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Problem(error.into_problem())
    }
}

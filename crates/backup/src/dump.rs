//! PostgreSQL databases are written and read by PostgreSQL's own programs: they know everything a database can hold.

use std::process::Stdio;
use std::time::Duration;

use polyshard_engine::{PostgresTarget, Snapshot, SslMode};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::BackupError;
use crate::depot::Location;
use crate::manifest::Part;
use crate::pool::{Chunk, Pool};
use crate::progress::Progress;

/// How often the session that holds the moment is spoken to, well within the time after which a silent one is ended.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// Bytes of a program's complaint that are read, and characters that are passed on.
const COMPLAINT_BYTES_MAX: u64 = 64 * 1024;
const COMPLAINT_CHARS_MAX: usize = 500;

/// Stores a database as it was at the moment that is held. Uncompressed, so that what is the same as last time is found
/// to be; the chunks are compressed.
pub(crate) async fn dump(
    target: &PostgresTarget,
    mut moment: Snapshot,
    pool: &Pool,
    progress: &Progress,
) -> Result<Vec<Chunk>, BackupError> {
    let name = moment.name().unwrap_or_default().to_owned();
    let mut command = program("pg_dump", target);
    command.args(["--format=custom", "--compress=0"]).arg(format!("--snapshot={name}"));
    let mut child = start("pg_dump", command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let output = child.stdout.take().expect("it is a pipe");
    let complaint = complaint(&mut child);
    let mut stored = std::pin::pin!(pool.store(output, progress));
    let chunks = loop {
        tokio::select! {
            done = &mut stored => break done?,
            () = tokio::time::sleep(KEEP_EVERY) => moment.keep().await?,
        }
    };
    end("pg_dump", child, complaint).await?;
    Ok(chunks)
}

/// Fills an empty database, in one transaction. Nothing that differs from its checksum reaches it.
pub(crate) async fn load(target: &PostgresTarget, from: &Location, part: &Part) -> Result<(), BackupError> {
    let mut command = program("pg_restore", target);
    command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]);
    // Named once more: without it the program prints instead of connecting.
    command.arg("--dbname").arg(&target.database);
    let mut child = start("pg_restore", command.stdin(Stdio::piped()).stdout(Stdio::null()))?;
    let mut input = child.stdin.take().expect("it is a pipe");
    let complaint = complaint(&mut child);
    match part.fetch(from, &mut input).await {
        Ok(()) => drop(input),
        Err(error) => {
            // Before it sees an end of what it reads: it must not take a part for the whole.
            child.kill().await.map_err(|error| BackupError::Failed(format!("pg_restore: {error}")))?;
            drop(input);
            let said = complaint.await.unwrap_or_default();
            return Err(match error {
                // It has ended, and its own words say why.
                BackupError::Failed(_) if !said.is_empty() => failed("pg_restore", &said),
                error => error,
            });
        }
    }
    end("pg_restore", child, complaint).await
}

fn program(name: &str, target: &PostgresTarget) -> Command {
    let mut command = Command::new(name);
    // Not as arguments, which everybody on the machine can see.
    command.env("PGHOST", &target.host).env("PGPORT", target.port.to_string()).env("PGUSER", &target.user);
    command.env("PGDATABASE", &target.database).env("PGPASSWORD", target.password.reveal());
    match &target.ssl {
        SslMode::Disable => command.env("PGSSLMODE", "disable"),
        SslMode::Prefer => command.env("PGSSLMODE", "prefer"),
        SslMode::Require => command.env("PGSSLMODE", "require"),
        SslMode::VerifyFull { root_certificate } => {
            command.env("PGSSLMODE", "verify-full").env("PGSSLROOTCERT", root_certificate)
        }
    };
    command.arg("--no-password").kill_on_drop(true);
    command
}

fn start(name: &str, command: &mut Command) -> Result<Child, BackupError> {
    command.stderr(Stdio::piped()).spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BackupError::Refused(format!(
            "{name} was not found; install PostgreSQL's client programs on the machine of the server, of its version \
             or newer"
        )),
        _ => BackupError::Failed(format!("{name} cannot be started: {error}")),
    })
}

/// Reads what a program complains of while it works, so that it never waits for a reader.
fn complaint(child: &mut Child) -> tokio::task::JoinHandle<String> {
    let mut errors = child.stderr.take().expect("it is a pipe");
    tokio::spawn(async move {
        let mut said = Vec::new();
        // What cannot be read is not said; the program's exit tells that it failed.
        let _ = (&mut errors).take(COMPLAINT_BYTES_MAX).read_to_end(&mut said).await;
        let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
        String::from_utf8_lossy(&said).trim().to_owned()
    })
}

async fn end(
    name: &str,
    mut child: Child,
    complaint: tokio::task::JoinHandle<String>,
) -> Result<(), BackupError> {
    let status = child.wait().await.map_err(|error| BackupError::Failed(format!("{name}: {error}")))?;
    let said = complaint.await.unwrap_or_default();
    if status.success() { Ok(()) } else { Err(failed(name, &said)) }
}

fn failed(name: &str, said: &str) -> BackupError {
    let said: String = said.chars().take(COMPLAINT_CHARS_MAX).collect();
    BackupError::Failed(format!("{name} failed: {said}"))
}

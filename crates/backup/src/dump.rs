//! PostgreSQL databases are written and read by PostgreSQL's own programs: they know everything a database can hold.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use polyshard_engine::{PostgresTarget, Snapshot, SslMode};
use tokio::process::Command;

use crate::BackupError;

/// How often the session that holds the moment is spoken to, well within the time after which a silent one is ended.
const KEEP_EVERY: Duration = Duration::from_secs(2);
/// Characters of a program's complaint that are passed on.
const COMPLAINT_CHARS_MAX: usize = 500;

/// Writes a database as it was at the moment that is held.
pub(crate) async fn dump(
    target: &PostgresTarget,
    mut moment: Snapshot,
    path: &Path,
) -> Result<(), BackupError> {
    let name = moment.name().unwrap_or_default().to_owned();
    let mut command = program("pg_dump", target);
    command.arg("--format=custom").arg(format!("--snapshot={name}")).arg("--file").arg(path);
    let mut finished = std::pin::pin!(finish("pg_dump", command));
    loop {
        tokio::select! {
            done = &mut finished => {
                done?;
                break;
            }
            () = tokio::time::sleep(KEEP_EVERY) => moment.keep().await?,
        }
    }
    let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| BackupError::of_file(path, &error))
}

/// Fills an empty database, in one transaction.
pub(crate) async fn load(target: &PostgresTarget, path: &Path) -> Result<(), BackupError> {
    let mut command = program("pg_restore", target);
    command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]);
    // Named once more: without it the program prints instead of connecting.
    command.arg("--dbname").arg(&target.database).arg(path);
    finish("pg_restore", command).await
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
    command.arg("--no-password").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command
}

async fn finish(name: &str, mut command: Command) -> Result<(), BackupError> {
    let output = command.stderr(Stdio::piped()).output().await.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => BackupError::Refused(format!(
            "{name} was not found; install PostgreSQL's client programs on the machine of the server, of its version \
             or newer"
        )),
        _ => BackupError::Failed(format!("{name} cannot be started: {error}")),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(COMPLAINT_CHARS_MAX).collect();
    Err(BackupError::Failed(format!("{name} failed: {said}")))
}

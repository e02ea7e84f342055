//! The copy of one shard, opened to be looked into: a file in a folder of its own, or a database beside its owner.

use std::fs;
use std::path::{Path, PathBuf};

use polyshard_engine::{Database, Dialect, Options, Statement, Target};
use polyshard_shard::{Shard, ShardOptions};

use crate::depot::Location;
use crate::manifest::ShardPart;
use crate::progress::Progress;
use crate::shardlet::{self, RunName};
use crate::{BackupError, dump, restore};

/// What databases are called that are needed only meanwhile; cluster and run follow.
const DATABASE_PREFIX: &str = "polyshard_restore_";

/// An opened copy. Close it, which removes it.
pub(crate) struct Copy {
    shard: Shard,
    kind: Kind,
}

enum Kind {
    Folder(PathBuf),
    Database { owner: Target, name: String },
}

/// Fetches and opens the copy of a shard. A PostgreSQL copy becomes a database on the server of the shard that owns the
/// key now. Its name is this run's alone: one that slept through another's beginning finds its own gone, and never
/// reads the other's. Those left by processes that were killed are dropped.
pub(crate) async fn open(
    from: &Location,
    part: &ShardPart,
    owner: &Shard,
    run: &RunName,
    scratch: &Path,
    options: &ShardOptions,
    progress: &Progress,
) -> Result<Copy, BackupError> {
    let wrong = |error| BackupError::of_shard(&part.id, error);
    match part.copy.dialect()? {
        Dialect::Sqlite => {
            let folder = scratch.join(format!("copy-{}", run.text()));
            remove_folder(&folder)?;
            let path = folder.join("shard.db");
            let filled = async {
                restore::write_file(from, &part.copy, &path).await?;
                Shard::open(part.id.clone(), Target::sqlite(&path), options.clone()).await.map_err(wrong)
            };
            match progress.unless_cancelled(filled).await {
                Ok(shard) => Ok(Copy { shard, kind: Kind::Folder(folder) }),
                Err(error) => {
                    remove_folder(&folder)?;
                    Err(error)
                }
            }
        }
        Dialect::Postgres => {
            let name = format!("{DATABASE_PREFIX}{}", run.text());
            let Some(target) = shardlet::beside(owner, &name) else {
                return Err(BackupError::Refused(format!(
                    "the key is on the embedded shard {} now, and the backup is of PostgreSQL; restore it elsewhere",
                    owner.id()
                )));
            };
            let kind = Kind::Database { owner: owner.address().clone(), name: name.clone() };
            drop_left(owner.address(), run).await?;
            execute(owner.address(), &format!("CREATE DATABASE {name}")).await.map_err(|error| match error {
                polyshard_engine::Error::Unavailable { .. } => BackupError::Failed(error.to_string()),
                other => BackupError::Refused(format!(
                    "a database for the copy cannot be made beside shard {}: {other}; give its role the right to \
                     (ALTER ROLE … CREATEDB)",
                    owner.id()
                )),
            })?;
            let filled = async {
                if let Target::Postgres(target) = &target {
                    dump::load(target, from, &part.copy).await?;
                }
                Shard::open(part.id.clone(), target, options.clone()).await.map_err(wrong)
            };
            match progress.unless_cancelled(filled).await {
                Ok(shard) => Ok(Copy { shard, kind }),
                Err(error) => {
                    drop_database(owner.address(), &name).await?;
                    Err(error)
                }
            }
        }
    }
}

impl Copy {
    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Closes and removes it.
    pub(crate) async fn close(self) -> Result<(), BackupError> {
        self.shard.close().await;
        drop(self.shard);
        match self.kind {
            Kind::Folder(folder) => remove_folder(&folder),
            Kind::Database { owner, name } => drop_database(&owner, &name).await,
        }
    }
}

fn remove_folder(folder: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BackupError::of_file(folder, &error))
        }
        _ => Ok(()),
    }
}

async fn drop_database(owner: &Target, name: &str) -> Result<(), BackupError> {
    Ok(execute(owner, &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?)
}

/// Drops what runs of this cluster have left; there is one at a time.
async fn drop_left(owner: &Target, run: &RunName) -> Result<(), BackupError> {
    let options = Options { postgres_readers: 1, postgres_pool_max: 1, ..Options::default() };
    let database = Database::open(owner.clone(), options, None).await?;
    let sql = "SELECT datname::text FROM pg_database WHERE starts_with(datname::text, $1)";
    let beginning = format!("{DATABASE_PREFIX}{}_", run.cluster());
    let found = database.read(Statement::new(sql).bind(beginning)).await;
    database.close().await;
    for row in found?.rows() {
        drop_database(owner, row.text(0)?).await?;
    }
    Ok(())
}

/// Runs a statement that PostgreSQL runs outside of transactions only.
async fn execute(target: &Target, sql: &str) -> Result<(), polyshard_engine::Error> {
    let options = Options { postgres_readers: 1, postgres_pool_max: 1, ..Options::default() };
    let database = Database::open(target.clone(), options, None).await?;
    let done = async {
        let mut session = database.raw().await?;
        let done = session.run_simple(sql).await;
        session.finish();
        done.map(drop)
    };
    let done = done.await;
    database.close().await;
    done
}

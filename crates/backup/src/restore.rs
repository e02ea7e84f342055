//! Restoring a backup into an empty place: everything is compared with the manifest before anything can be served.

use std::fs;
use std::path::{Path, PathBuf};

use polyshard_engine::{Database, Dialect, Options, PostgresTarget, Statement, Target};
use polyshard_map::ShardId;
use tokio::io::AsyncWriteExt;

use crate::carried::{self, Carriers, Wanted};
use crate::depot::Location;
use crate::manifest::{Manifest, Part};
use crate::{BackupError, dump, files, keep};

/// What a data folder is called until everything is in it.
const RESTORING: &str = ".restoring";
/// Marks a folder as ours, so that only those are ever removed.
const MARK: &str = "polyshard-restoring";

/// Restores a whole backup.
pub struct Restore<'a> {
    /// The backup.
    pub backup: &'a Location,
    /// The data folder to make; it may not exist, or must be empty.
    pub data: &'a Path,
    /// Opens the places where stores keep what is outside the databases, for a data folder.
    #[allow(clippy::type_complexity, reason = "one function, said once")]
    pub carriers: &'a (dyn Fn(&Path) -> Result<Carriers, BackupError> + Sync),
    /// The catalog's address in the configuration that will serve it.
    pub catalog_url: &'a str,
    /// Finds a database's address with its password: none is the catalog's.
    #[allow(clippy::type_complexity, reason = "one function, said once")]
    pub target: &'a (dyn Fn(Option<&ShardId>, &str) -> Result<Target, BackupError> + Sync),
}

impl Restore<'_> {
    /// Restores it. PostgreSQL databases must be empty, and each is filled in one transaction, the catalog last:
    /// without it nothing is served. Files go to a folder beside the data folder, which gets its name at the end.
    pub async fn run(&self) -> Result<Manifest, BackupError> {
        let manifest = Manifest::read(self.backup).await?;
        let Some(catalog) = &manifest.catalog else {
            return Err(BackupError::Refused(format!(
                "this is a backup of {}, without the catalog; restore shardlets of it with --map and --key, or restore \
                 a backup of everything",
                manifest.shardlet.as_ref().map_or("single shards", |_| "one shardlet")
            )));
        };
        if catalog.url != self.catalog_url {
            return Err(BackupError::Refused(format!(
                "the catalog was at {}, and the configuration has {}; set catalog.url to where it was",
                catalog.url, self.catalog_url
            )));
        }
        self.check_place()?;
        let databases = self.empty_databases(&manifest).await?;
        if !databases.is_empty() {
            // Before the first database is filled: it would have to be emptied again.
            keep::verify(self.backup).await?;
        }
        let staging = files::beside(self.data, RESTORING);
        self.stage(&manifest, &staging).await?;
        // Also without objects: a copy of a cluster must not take the place for its own.
        let carriers = (self.carriers)(&staging)?;
        for carrier in carriers.iter() {
            let begun = carrier.begin_restore(manifest.cluster).await;
            begun.map_err(|error| carried::failed(carrier.store(), &error))?;
        }
        carried::restore(self.backup, &manifest, &carriers, Wanted::All).await?;
        for carrier in carriers.iter() {
            let ended = carrier.end_restore(manifest.cluster).await;
            ended.map_err(|error| carried::failed(carrier.store(), &error))?;
        }
        // The catalog is the last part: a start before it is there finds nothing to serve.
        for (part, target) in databases {
            dump::load(&target, self.backup, part).await?;
        }
        if self.data.exists() {
            fs::remove_dir(self.data).map_err(|error| BackupError::of_file(self.data, &error))?;
        }
        let mark = staging.join(MARK);
        fs::remove_file(&mark).map_err(|error| BackupError::of_file(&mark, &error))?;
        files::sync_folder(&staging)?;
        files::rename_folder(&staging, self.data)?;
        Ok(manifest)
    }

    fn check_place(&self) -> Result<(), BackupError> {
        match fs::read_dir(self.data) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(BackupError::of_file(self.data, &error)),
            Ok(mut entries) => match entries.next() {
                None => Ok(()),
                Some(_) => Err(BackupError::Refused(format!(
                    "{} is not empty; restore into a new folder, and move the old one away first",
                    self.data.display()
                ))),
            },
        }
    }

    /// The PostgreSQL databases to fill, which must be empty.
    async fn empty_databases<'m>(
        &self,
        manifest: &'m Manifest,
    ) -> Result<Vec<(&'m Part, PostgresTarget)>, BackupError> {
        let shards = manifest.shards.iter().map(|shard| (Some(&shard.id), &shard.copy));
        let mut databases = Vec::new();
        for (id, part) in shards.chain(manifest.catalog.iter().map(|part| (None, part))) {
            if part.dialect()? != Dialect::Postgres {
                continue;
            }
            let target = (self.target)(id, &part.url)?;
            check_empty(&target, &part.url).await?;
            if let Target::Postgres(target) = target {
                databases.push((part, target));
            }
        }
        Ok(databases)
    }

    /// Writes the SQLite files beside the data folder, comparing what is written.
    async fn stage(&self, manifest: &Manifest, staging: &Path) -> Result<(), BackupError> {
        if staging.exists() {
            // Of a restoration that did not end. Somebody else's folder is not touched.
            if !staging.join(MARK).exists() {
                let staging = staging.display();
                return Err(BackupError::Refused(format!("{staging} is in the way; move it away first")));
            }
            fs::remove_dir_all(staging).map_err(|error| BackupError::of_file(staging, &error))?;
        }
        fs::create_dir_all(staging).map_err(|error| BackupError::of_file(staging, &error))?;
        files::write_new(&staging.join(MARK), b"")?;
        let mut folders: Vec<PathBuf> = Vec::new();
        for part in manifest.shards.iter().map(|shard| &shard.copy).chain(&manifest.catalog) {
            if part.dialect()? == Dialect::Sqlite {
                let place = staging.join(part.place()?);
                write_file(self.backup, part, &place).await?;
                folders.push(files::parent(&place).to_owned());
            }
        }
        folders.iter().try_for_each(|folder| files::sync_folder(folder))
    }
}

/// Writes the copy of one shard into an empty database or a new file, to be attached in the shard's place.
pub async fn restore_shard(from: &Location, id: &ShardId, to: &Target) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(from).await?;
    let part = manifest.shards.iter().find(|part| part.id == *id).ok_or_else(|| {
        BackupError::Refused(format!("the backup is of {}, and has no shard {id}", manifest.what()))
    })?;
    match (part.copy.dialect()?, to) {
        (Dialect::Sqlite, Target::Sqlite(file)) => {
            if file.path.exists() {
                let path = file.path.display();
                return Err(BackupError::Refused(format!("{path} is there already; name a new file")));
            }
            // It gets its name when it is whole.
            let beside = files::beside(&file.path, RESTORING);
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(BackupError::of_file(&beside, &error));
                }
                _ => write_file(from, &part.copy, &beside).await?,
            }
            files::rename_folder(&beside, &file.path)?;
        }
        (Dialect::Postgres, Target::Postgres(database)) => {
            check_empty(to, &database.database).await?;
            dump::load(database, from, &part.copy).await?;
        }
        (engine, _) => {
            return Err(BackupError::Refused(format!(
                "shard {id} was on {}, and is restored onto the same engine only",
                engine.name()
            )));
        }
    }
    Ok(manifest)
}

/// Writes a part durably into a new file.
pub(crate) async fn write_file(from: &Location, part: &Part, to: &Path) -> Result<(), BackupError> {
    let wrong = |error: std::io::Error| BackupError::of_file(to, &error);
    fs::create_dir_all(files::parent(to)).map_err(wrong)?;
    let mut file = tokio::fs::File::create_new(to).await.map_err(wrong)?;
    part.fetch(from, &mut file).await?;
    file.flush().await.map_err(wrong)?;
    file.sync_all().await.map_err(wrong)
}

/// Whether a database holds no tables.
pub(crate) async fn check_empty(target: &Target, url: &str) -> Result<(), BackupError> {
    let options = Options { postgres_readers: 1, postgres_pool_max: 1, ..Options::default() };
    let database = Database::open(target.clone(), options, None).await?;
    let sql = "SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace \
               WHERE relkind IN ('r', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema') \
               AND nspname NOT LIKE 'pg_toast%'";
    let counted = database.read(Statement::new(sql)).await.and_then(|rows| rows.one()?.int(0));
    database.close().await;
    match counted? {
        0 => Ok(()),
        tables => Err(BackupError::Refused(format!(
            "{url} is not empty, it has {tables} tables; make an empty database of this name first"
        ))),
    }
}

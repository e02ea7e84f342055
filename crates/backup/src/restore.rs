//! Restoring a backup into an empty place: everything is compared with the manifest before anything can be served.

use std::fs;
use std::path::{Path, PathBuf};

use polyshard_engine::{Database, Dialect, Options, PostgresTarget, Statement, Target};
use polyshard_map::ShardId;

use crate::manifest::{Manifest, Part};
use crate::{BackupError, dump, files};

/// What a data folder is called until everything is in it.
const RESTORING: &str = ".restoring";
/// Marks a folder as ours, so that only those are ever removed.
const MARK: &str = "polyshard-restoring";

/// Compares every file of a backup with its checksum.
pub fn check(backup: &Path) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(backup)?;
    for part in manifest.parts() {
        compare(part, files::checksum(&backup.join(&part.file))?)?;
    }
    Ok(manifest)
}

fn compare(part: &Part, (bytes, sha256): (u64, String)) -> Result<(), BackupError> {
    if bytes == part.bytes && sha256 == part.sha256 {
        return Ok(());
    }
    Err(BackupError::Damaged(format!("{} is not as it was when it was made; use another backup", part.file)))
}

/// Restores a whole backup.
pub struct Restore<'a> {
    /// The backup.
    pub backup: &'a Path,
    /// The data folder to make; it may not exist, or must be empty.
    pub data: &'a Path,
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
        let manifest = Manifest::read(self.backup)?;
        let Some(catalog) = &manifest.catalog else {
            return Err(BackupError::Refused(
                "this is a backup of single shards, without the catalog; copy the files you need by hand, or restore a \
                 backup of everything"
                    .to_owned(),
            ));
        };
        if catalog.url != self.catalog_url {
            return Err(BackupError::Refused(format!(
                "the catalog was at {}, and the configuration has {}; set catalog.url to where it was",
                catalog.url, self.catalog_url
            )));
        }
        self.check_place()?;
        let databases = self.empty_databases(&manifest).await?;
        let staging = files::beside(self.data, RESTORING);
        self.stage(&manifest, &staging)?;
        // The catalog is the last part: a start before it is there finds nothing to serve.
        for (part, target) in databases {
            dump::load(&target, &self.backup.join(&part.file)).await?;
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

    /// The PostgreSQL databases to fill, which must be empty, and the files that go with them, which must be whole.
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
            compare(part, files::checksum(&self.backup.join(&part.file))?)?;
            let target = (self.target)(id, &part.url)?;
            check_empty(&target, &part.url).await?;
            if let Target::Postgres(target) = target {
                databases.push((part, target));
            }
        }
        Ok(databases)
    }

    /// Copies the SQLite files beside the data folder, comparing what is copied.
    fn stage(&self, manifest: &Manifest, staging: &Path) -> Result<(), BackupError> {
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
        for part in manifest.parts() {
            if part.dialect()? == Dialect::Sqlite {
                let place = staging.join(part.place()?);
                compare(part, files::copy_into(&self.backup.join(&part.file), &place)?)?;
                folders.push(files::parent(&place).to_owned());
            }
        }
        folders.iter().try_for_each(|folder| files::sync_folder(folder))
    }
}

/// Whether a database holds no tables.
async fn check_empty(target: &Target, url: &str) -> Result<(), BackupError> {
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

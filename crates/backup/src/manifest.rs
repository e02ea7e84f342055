//! What a backup consists of, with the checksum of each file. Its presence says that the backup is whole.

use std::path::{Component, Path, PathBuf};

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::BackupError;

/// The version of the folder's form. A restoring program refuses one it does not know.
pub const FORMAT: u32 = 1;

/// The file that holds it.
pub const MANIFEST: &str = "manifest.json";

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the folder's form.
    pub format: u32,
    /// The version of the program that took it.
    pub program: String,
    /// The cluster it is of.
    pub cluster: Uuid,
    /// The moment it is of, in milliseconds since 1970.
    pub moment_ms: i64,
    /// The last change of a map, shard or dataset that is in it.
    pub seq: u64,
    /// The catalog; none in a backup of single shards.
    pub catalog: Option<Part>,
    /// The shards, in the order of their names.
    pub shards: Vec<ShardPart>,
}

/// The copy of one database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The file, from the folder of the backup.
    pub file: String,
    /// `sqlite`: the database file itself. `postgres`: what pg_dump wrote in its custom format.
    pub engine: String,
    /// Where the database was, without a password.
    pub url: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
}

/// The copy of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardPart {
    /// The shard.
    pub id: ShardId,
    /// Its copy.
    pub copy: Part,
}

impl Part {
    /// Which engine it is for.
    pub fn dialect(&self) -> Result<Dialect, BackupError> {
        match self.engine.as_str() {
            "sqlite" => Ok(Dialect::Sqlite),
            "postgres" => Ok(Dialect::Postgres),
            other => Err(BackupError::Damaged(format!("{} is for {other:?}, which is no engine", self.file))),
        }
    }

    /// The place of an SQLite file inside a data folder.
    pub fn place(&self) -> Result<PathBuf, BackupError> {
        let path = self.url.strip_prefix("sqlite:").map(Path::new);
        let inside = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        path.filter(inside).map(Path::to_owned).ok_or_else(|| {
            BackupError::Refused(format!(
                "{} was at {}, which is not inside a data folder; copy {} there by hand",
                self.file, self.url, self.file
            ))
        })
    }
}

/// The word for an engine.
pub(crate) fn engine_word(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "sqlite",
        Dialect::Postgres => "postgres",
    }
}

impl Manifest {
    /// Reads the manifest of a backup.
    pub fn read(backup: &Path) -> Result<Manifest, BackupError> {
        let path = backup.join(MANIFEST);
        let text = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => BackupError::Damaged(format!(
                "{} is not a backup, or not a whole one: it has no {MANIFEST}",
                backup.display()
            )),
            _ => BackupError::of_file(&path, &error),
        })?;
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let damaged = |error: serde_json::Error| BackupError::Damaged(format!("{}: {error}", path.display()));
        let form: Form = serde_json::from_slice(&text).map_err(damaged)?;
        if form.format != FORMAT {
            return Err(BackupError::Refused(format!(
                "{} has format {}, and this program reads {FORMAT}; use the program that took it",
                backup.display(),
                form.format
            )));
        }
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// All copies: the shards', and the catalog's last, so that what is begun is not complete without it.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.shards.iter().map(|shard| &shard.copy).chain(&self.catalog)
    }
}

#[cfg(test)]
mod tests {
    use super::{FORMAT, MANIFEST, Manifest, Part};
    use crate::BackupError;

    fn part(url: &str) -> Part {
        let (file, engine, sha256) = ("x".to_owned(), "sqlite".to_owned(), String::new());
        Part { file, engine, url: url.to_owned(), bytes: 0, sha256 }
    }

    #[test]
    fn a_file_is_restored_inside_the_data_folder_or_not_at_all() {
        assert_eq!(part("sqlite:shards/s1.db").place().unwrap().to_str(), Some("shards/s1.db"));
        for outside in ["sqlite:/etc/passwd", "sqlite:../s1.db", "sqlite:a/../../b", "postgres://h/d"] {
            assert!(matches!(part(outside).place(), Err(BackupError::Refused(_))), "{outside}");
        }
    }

    #[test]
    fn another_format_is_refused_and_half_a_manifest_is_damage() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join(MANIFEST), text).unwrap();
            Manifest::read(folder.path())
        };
        assert!(matches!(read("{\"format\": 99}"), Err(BackupError::Refused(_))));
        assert!(matches!(read(&format!("{{\"format\": {FORMAT}, \"prog")), Err(BackupError::Damaged(_))));
        std::fs::remove_file(folder.path().join(MANIFEST)).unwrap();
        assert!(matches!(Manifest::read(folder.path()), Err(BackupError::Damaged(_))));
    }

    #[test]
    fn a_manifest_of_format_1_is_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(MANIFEST), include_str!("../tests/manifest-1.json")).unwrap();
        let manifest = Manifest::read(folder.path()).unwrap();
        assert_eq!(manifest.shards[0].copy.place().unwrap().to_str(), Some("shards/s1.db"));
        assert_eq!(manifest.parts().count(), 2);
    }
}

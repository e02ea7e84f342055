//! What a backup consists of, with the checksum of each part. Its presence says that the backup is whole.

use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use polyshard_engine::Dialect;
use polyshard_map::{KeyRange, MapName, ShardId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWrite;
use uuid::Uuid;

use crate::depot::Location;
use crate::pool::{self, Chunk};
use crate::{BackupError, files};

/// The version of the form that is written. Format 1, a folder with whole files, can still be restored.
pub const FORMAT: u32 = 2;
const FORMAT_OF_FILES: u32 = 1;

/// The object that holds it.
pub const MANIFEST: &str = "manifest.json";
/// The object that holds its checksum.
const MANIFEST_SUM: &str = "manifest.sha256";

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the form.
    pub format: u32,
    /// The version of the program that took it.
    pub program: String,
    /// The cluster it is of.
    pub cluster: Uuid,
    /// The moment it is of, in milliseconds since 1970.
    pub moment_ms: i64,
    /// The last change of a map, shard or dataset that is in it.
    pub seq: u64,
    /// The class of the schedule that took it; none if somebody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The shardlet, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shardlet: Option<Shardlet>,
    /// The range, if it is an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchivedRange>,
    /// Bytes that were new in the depot, as stored; the rest was there from earlier backups.
    #[serde(default)]
    pub new_bytes: u64,
    /// The catalog; none in a backup of single shards.
    pub catalog: Option<Part>,
    /// The shards, in the order of their names.
    pub shards: Vec<ShardPart>,
    /// The maps as they were, in their JSON form: they tell which shard had which keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<MapPart>,
    /// The rows of a shardlet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Part>,
    /// What stores keep outside the databases, such as the bytes of blobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectsPart>,
}

/// The objects of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectsPart {
    /// The id of the store.
    pub store: String,
    /// How many there are.
    pub count: u64,
    /// The chunks of all objects, one object after the other.
    pub content: Part,
    /// Which chunks each object has: a line for each.
    pub index: Part,
}

/// A shardlet that was backed up alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shardlet {
    /// Its map.
    pub map: MapName,
    /// Its key, as people write it.
    pub key: String,
}

/// A range whose rows are here instead of on a shard. It is never pruned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchivedRange {
    /// Tells the archive from another of the same name.
    pub id: Uuid,
    /// Its map.
    pub map: MapName,
    /// The range of the map.
    pub range: KeyRange,
    /// The same for people.
    pub says: String,
    /// Columns that were left out, as `table.column`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Rows by dataset, in the order in which they are put back.
    pub datasets: Vec<(String, u64)>,
}

impl ArchivedRange {
    /// Rows of all datasets.
    pub fn rows(&self) -> u64 {
        self.datasets.iter().map(|(_, rows)| rows).sum()
    }
}

/// The copy of one database, map or shardlet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The object, from the folder of the backup: a list of chunks, or in format 1 the copy itself.
    pub file: String,
    /// `sqlite`: the database file. `postgres`: what pg_dump wrote in its custom format. `json`: lines of JSON.
    pub engine: String,
    /// Where the database was, without a password; empty if it is none.
    pub url: String,
    /// Bytes of the copy.
    pub bytes: u64,
    /// SHA-256 of the object, in hexadecimal digits.
    pub sha256: String,
    /// Chunks of the copy; none in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
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

/// One map as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapPart {
    /// The map.
    pub name: MapName,
    /// Its JSON form.
    pub copy: Part,
}

/// What engine a part of JSON lines is for.
pub(crate) const JSON: &str = "json";

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

    fn damaged(&self, from: &Location, why: &str) -> BackupError {
        let at = from.depot.address(&from.path(&self.file));
        BackupError::Damaged(format!("{at} {why}; use another backup"))
    }

    /// The chunks it consists of, after a comparison of the list with its checksum.
    pub(crate) async fn list(&self, from: &Location) -> Result<Vec<Chunk>, BackupError> {
        let text = from.depot.get(&from.path(&self.file)).await?;
        let text = text.ok_or_else(|| self.damaged(from, "is missing"))?;
        if files::hex(&Sha256::digest(&text)) != self.sha256 {
            return Err(self.damaged(from, "is not as it was written"));
        }
        let chunks = pool::list_from(&text).ok_or_else(|| self.damaged(from, "is no list of chunks"))?;
        let bytes: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
        if bytes != self.bytes || self.chunks != Some(chunks.len() as u64) {
            return Err(self.damaged(from, "does not fit the manifest"));
        }
        Ok(chunks)
    }

    /// Compares a copy of format 1 with its checksum.
    pub(crate) async fn check_file(&self, from: &Location) -> Result<PathBuf, BackupError> {
        let Some(path) = from.depot.file(&from.path(&self.file)) else {
            return Err(BackupError::Refused(
                "a backup of format 1 is in a folder; copy it into one".to_owned(),
            ));
        };
        let summed = path.clone();
        let summed = tokio::task::spawn_blocking(move || files::checksum(&summed)).await;
        let summed =
            summed.map_err(|error| BackupError::Failed(format!("a checksum was not made: {error}")))??;
        if summed != (self.bytes, self.sha256.clone()) {
            return Err(self.damaged(from, "is not as it was when it was made"));
        }
        Ok(path)
    }

    /// Writes the copy, each chunk of it compared with its checksum before it is written.
    pub(crate) async fn fetch(
        &self,
        from: &Location,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), BackupError> {
        if self.chunks.is_some() {
            return pool::fetch(&from.depot, &self.list(from).await?, to).await;
        }
        let path = self.check_file(from).await?;
        let wrong = |error: std::io::Error| BackupError::of_file(&path, &error);
        let mut file = tokio::fs::File::open(&path).await.map_err(wrong)?;
        tokio::io::copy(&mut file, to).await.map(drop).map_err(wrong)
    }

    /// The copy as a whole; for small ones.
    pub(crate) async fn fetch_all(&self, from: &Location) -> Result<Vec<u8>, BackupError> {
        let mut content = Vec::new();
        self.fetch(from, &mut content).await?;
        Ok(content)
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
    pub async fn read(from: &Location) -> Result<Manifest, BackupError> {
        let text = from.depot.get(&from.path(MANIFEST)).await?.ok_or_else(|| {
            BackupError::Damaged(format!(
                "{} is not a backup, or not a whole one: it has no {MANIFEST}",
                from.url()
            ))
        })?;
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let at = from.depot.address(&from.path(MANIFEST));
        let damaged = |error: serde_json::Error| BackupError::Damaged(format!("{at}: {error}"));
        let form: Form = serde_json::from_slice(&text).map_err(damaged)?;
        match form.format {
            FORMAT_OF_FILES => {}
            FORMAT => {
                let sum = from.depot.get(&from.path(MANIFEST_SUM)).await?.unwrap_or_default();
                if sum != files::hex(&Sha256::digest(&text)).as_bytes() {
                    let why = "is not as it was written; use another backup";
                    return Err(BackupError::Damaged(format!("{at} {why}")));
                }
            }
            other => {
                return Err(BackupError::Refused(format!(
                    "{} has format {other}, and this program reads up to {FORMAT}; use the program that took it",
                    from.url()
                )));
            }
        }
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// As it is written.
    pub(crate) fn text(&self) -> Bytes {
        Bytes::from(serde_json::to_vec_pretty(self).expect("a manifest has a JSON form"))
    }

    /// Makes the backup whole.
    pub(crate) async fn write(to: &Location, text: Bytes) -> Result<(), BackupError> {
        let sum = files::hex(&Sha256::digest(&text));
        to.put(MANIFEST_SUM, Bytes::from(sum)).await?;
        to.put(MANIFEST, text).await
    }

    /// Makes it whole, unless somebody else has.
    pub(crate) async fn write_new(to: &Location, text: Bytes) -> Result<bool, BackupError> {
        let sum = files::hex(&Sha256::digest(&text));
        let depot = &to.depot;
        Ok(depot.put_new(&to.path(MANIFEST_SUM), Bytes::from(sum)).await?
            && depot.put_new(&to.path(MANIFEST), text).await?)
    }

    /// Takes back what was written, if it is there still, and nobody else's.
    pub(crate) async fn take_back(at: &Location, text: &Bytes) -> Result<(), BackupError> {
        if at.depot.get(&at.path(MANIFEST)).await?.as_ref() != Some(text) {
            return Ok(());
        }
        at.depot.delete(&at.path(MANIFEST)).await?;
        at.depot.delete(&at.path(MANIFEST_SUM)).await
    }

    /// All parts: the catalog last, so that what is restored is not complete without it.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        let shards = self.shards.iter().map(|shard| &shard.copy);
        let maps = self.maps.iter().map(|map| &map.copy);
        let objects = self.objects.iter().flat_map(|part| [&part.content, &part.index]);
        shards.chain(maps).chain(&self.rows).chain(objects).chain(&self.catalog)
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> u64 {
        self.parts().map(|part| part.bytes).sum()
    }

    /// What it is of, for people.
    pub fn what(&self) -> String {
        if let Some(archive) = &self.archive {
            return format!("{} {}, archived", archive.map, archive.says);
        }
        match (&self.shardlet, &self.catalog) {
            (Some(Shardlet { map, key }), _) => format!("{map} {key}"),
            (None, Some(_)) => "everything".to_owned(),
            (None, None) => self.shards.iter().map(|shard| shard.id.as_str()).collect::<Vec<_>>().join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FORMAT, MANIFEST, Manifest, Part};
    use crate::{BackupError, Location};

    fn part(url: &str) -> Part {
        let (file, engine, sha256) = ("x".to_owned(), "sqlite".to_owned(), String::new());
        Part { file, engine, url: url.to_owned(), bytes: 0, sha256, chunks: None }
    }

    #[test]
    fn a_file_is_restored_inside_the_data_folder_or_not_at_all() {
        assert_eq!(part("sqlite:shards/s1.db").place().unwrap().to_str(), Some("shards/s1.db"));
        for outside in ["sqlite:/etc/passwd", "sqlite:../s1.db", "sqlite:a/../../b", "postgres://h/d"] {
            assert!(matches!(part(outside).place(), Err(BackupError::Refused(_))), "{outside}");
        }
    }

    #[tokio::test]
    async fn another_format_is_refused_half_a_manifest_is_damage_and_format_1_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("monday");
        std::fs::create_dir(&at).unwrap();
        let location = Location::open(at.to_str().unwrap(), &(Arc::new(|_: &str| None) as _)).unwrap();
        let read = |text: &str| std::fs::write(at.join(MANIFEST), text).unwrap();
        read("{\"format\": 99}");
        assert!(matches!(Manifest::read(&location).await, Err(BackupError::Refused(_))));
        let old = include_str!("../tests/manifest-1.json");
        read(&old[..old.len() / 2]);
        assert!(matches!(Manifest::read(&location).await, Err(BackupError::Damaged(_))));
        read(old);
        let found = Manifest::read(&location).await.unwrap();
        assert_eq!((found.format, found.shards.len(), found.what().as_str()), (1, 1, "everything"));
        // The same text as format 2 has no checksum beside it.
        read(&old.replace("\"format\": 1", &format!("\"format\": {FORMAT}")));
        assert!(matches!(Manifest::read(&location).await, Err(BackupError::Damaged(_))));
    }
}

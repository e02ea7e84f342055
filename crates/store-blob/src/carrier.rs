//! The objects of blobs in backups, restorations and archives.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use polyshard_engine::{Dialect, Statement, Value};
use polyshard_shard::{Carrier, CarrierError, NamedIn, Pieces, Unnamed};
use polyshard_store::{Configured, StartError};
use uuid::Uuid;

use crate::objects::{Mark, ObjectError, ObjectId, Objects};
use crate::options;
use crate::schema::{BLOCKS, EXTENTS, ITEMS, PENDING};
use crate::store::objects_of;

/// The columns that tell where a row belongs.
const PLACE: &[&str] = &["placement", "name"];
/// The columns that name objects: the object of a blob or of a block that is not committed, and lists of blocks.
const NAMED_IN: &[NamedIn] = &[
    NamedIn { table: ITEMS, column: "object", dataset: "dataset", place: PLACE },
    NamedIn { table: BLOCKS, column: "object", dataset: "dataset", place: PLACE },
    NamedIn { table: EXTENTS, column: "blocks", dataset: "dataset", place: PLACE },
];
/// Announced and condemned objects; contents and blocks are there too.
const PENDING_IN: &[NamedIn] = &[NamedIn { table: PENDING, column: "id", dataset: "dataset", place: PLACE }];
/// The file in the data folder of a restored cluster with the mark of the place that was restored for it. Another
/// cluster with the same catalog, such as the one that was backed up, does not have it.
const CLAIM: &str = "blob-objects";

/// Opens the objects of a process.
pub(crate) fn open(configured: &Configured) -> Result<Arc<dyn Carrier>, StartError> {
    let (objects, data) = (options::objects(configured)?, configured.data.clone());
    Ok(Arc::new(BlobCarrier { objects, data }))
}

/// The mark of the place that a restoration has made for the process with this data folder.
pub(crate) fn claimed(data: &Path) -> Option<Mark> {
    fs::read_to_string(data.join(CLAIM)).ok().map(|text| Mark::parse(&text))
}

/// Forgets it, once the catalog knows the mark.
pub(crate) fn forget_claim(data: &Path) {
    match fs::remove_file(data.join(CLAIM)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::debug!(%error, "the mark of a restored place is left in the data folder");
        }
        _ => {}
    }
}

struct BlobCarrier {
    objects: Objects,
    data: PathBuf,
}

impl BlobCarrier {
    async fn look(&self) -> Result<Option<Mark>, CarrierError> {
        self.objects.mark().await.map_err(|error| self.of_place(&error))
    }

    fn of_place(&self, error: &ObjectError) -> CarrierError {
        failed(self.objects.url(), error)
    }

    fn not_ours(&self, why: &str, remedy: &str) -> CarrierError {
        CarrierError::NotOurs(format!("{} {why}; {remedy}", self.objects.url()))
    }

    async fn begin(&self, cluster: Uuid) -> Result<(), CarrierError> {
        const REMEDY: &str = "set blob.objects to another place, or, if nobody else uses it, write the text take-over \
                              into its object polyshard-objects";
        let new = || Mark::new(cluster, Uuid::new_v4().as_u64_pair().0, Uuid::new_v4().as_u64_pair().0);
        let marked = match self.look().await? {
            None => {
                let datasets = self.objects.datasets().await.map_err(|error| self.of_place(&error))?;
                if !datasets.is_empty() {
                    return Err(self.not_ours("has objects, and no mark that says whose they are", REMEDY));
                }
                self.objects.set_mark(&new().restoring()).await
            }
            Some(mark) if mark.is_given_away() => self.objects.replace_mark(&new().restoring()).await,
            Some(mark) => Ok(mark),
        };
        let mark = marked.map_err(|error| self.of_place(&error))?;
        if !mark.is_of(cluster) {
            return Err(self.not_ours("belongs to another cluster", REMEDY));
        }
        if !mark.is_restoring() {
            return Err(self.not_ours("belongs to the cluster that was backed up", REMEDY));
        }
        Ok(())
    }

    async fn end(&self, cluster: Uuid) -> Result<(), CarrierError> {
        let mark = self.look().await?.filter(|mark| mark.is_of(cluster) && mark.is_restoring());
        let Some(mark) = mark.map(Mark::restored) else {
            return Err(self.not_ours("was taken by somebody else", "restore again into another place"));
        };
        let (path, text) = (self.data.join(CLAIM), mark.as_str().to_owned());
        let written = File::create(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| failed(CLAIM, error))?;
        self.objects.replace_mark(&mark).await.map(drop).map_err(|error| self.of_place(&error))
    }
}

/// The number of a dataset and the id of an object, which its key is made of.
fn parts(key: &str) -> Result<(u64, ObjectId), CarrierError> {
    let parts =
        key.split_once('/').and_then(|(dataset, id)| Some((dataset.parse().ok()?, ObjectId::parse(id)?)));
    parts.ok_or_else(|| failed(key, "it is not the key of an object"))
}

fn failed(key: &str, why: impl std::fmt::Display) -> CarrierError {
    CarrierError::Failed { key: key.to_owned(), why: why.to_string() }
}

fn of_object(key: &str, error: ObjectError) -> CarrierError {
    match error {
        ObjectError::Gone(_) => CarrierError::Missing(key.to_owned()),
        other => failed(key, other),
    }
}

impl Carrier for BlobCarrier {
    fn store(&self) -> &'static str {
        crate::store::STORE.id
    }

    fn named_in(&self) -> &'static [NamedIn] {
        NAMED_IN
    }

    fn pending_in(&self) -> &'static [NamedIn] {
        PENDING_IN
    }

    fn keys(
        &self,
        column: &NamedIn,
        dataset: i64,
        value: &Value,
        found: &mut Vec<String>,
    ) -> Result<(), CarrierError> {
        let damaged = |why: String| CarrierError::Damaged { table: column.table, why };
        let ids = match value {
            Value::Text(id) if column.table == PENDING => ObjectId::parse(id).into_iter().collect(),
            Value::Text(id) => {
                vec![
                    ObjectId::parse(id)
                        .ok_or_else(|| damaged(format!("{id:?} is not the id of an object")))?,
                ]
            }
            Value::Blob(blocks) => objects_of(blocks).map_err(damaged)?,
            other => return Err(damaged(format!("a value of another type: {other:?}"))),
        };
        found.extend(ids.iter().map(|id| format!("{dataset}/{}", id.as_str())));
        Ok(())
    }

    fn condemn(&self, dialect: Dialect, objects: &[Unnamed]) -> Result<Vec<Statement>, CarrierError> {
        let pending = dialect.own_table(PENDING);
        // As the store notes what a blob does not need any more. What is noted already was removed with the rows, and
        // is here again only if the rows that were put in its place had it.
        let text: Arc<str> = Arc::from(format!(
            "INSERT INTO {pending} (dataset, placement, name, id, kind, number, at) \
             VALUES ($1, $2, $3, $4, 1, 0, {now}) ON CONFLICT (placement, dataset, id) DO UPDATE SET kind = 1, \
             at = CASE WHEN EXCLUDED.at > {pending}.at THEN EXCLUDED.at ELSE {pending}.at + 1 END",
            now = dialect.now_ms()
        ));
        let statement = |object: &Unnamed| {
            let (dataset, id) = parts(&object.key)?;
            let dataset = i64::try_from(dataset).map_err(|error| failed(&object.key, error))?;
            let [placement, name] = object.place.as_slice() else {
                return Err(failed(&object.key, "it is not known where its row belongs"));
            };
            let statement = Statement::with_room(text.clone(), 4).bind(dataset);
            Ok(statement.bind(placement.clone()).bind(name.clone()).bind(id.as_str()))
        };
        objects.iter().map(statement).collect()
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Pieces, CarrierError>> {
        Box::pin(async move {
            let (dataset, id) = parts(key)?;
            let length = self.objects.length(dataset, &id).await.map_err(|error| of_object(key, error))?;
            let length = length.ok_or_else(|| CarrierError::Missing(key.to_owned()))?;
            let bytes = self.objects.read(dataset, &id, 0..length).await;
            let (bytes, key) = (bytes.map_err(|error| of_object(key, error))?, key.to_owned());
            Ok(bytes.map_err(move |error| of_object(&key, error)).boxed())
        })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        length: u64,
        mut pieces: Pieces,
    ) -> BoxFuture<'a, Result<(), CarrierError>> {
        Box::pin(async move {
            let (dataset, id) = parts(key)?;
            let wrong = |error| of_object(key, error);
            let mut writer = self.objects.create(dataset, &id, length).await.map_err(wrong)?;
            while let Some(piece) = pieces.next().await {
                writer.write(piece?).await.map_err(wrong)?;
            }
            writer.finish().await.map_err(wrong)
        })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, CarrierError>> {
        Box::pin(async move {
            let (dataset, id) = parts(key)?;
            self.objects.length(dataset, &id).await.map_err(|error| of_object(key, error))
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), CarrierError>> {
        Box::pin(async move {
            let (dataset, id) = parts(key)?;
            self.objects.delete(dataset, &id).await.map_err(|error| of_object(key, error))
        })
    }

    fn check_place(&self, cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(async move {
            match self.look().await? {
                Some(mark) if !mark.is_of(cluster) && !mark.names_nobody() => Err(self.not_ours(
                    "belongs to another cluster, so objects cannot be restored into it",
                    "set blob.objects to the place of this cluster",
                )),
                _ => Ok(()),
            }
        })
    }

    fn begin_restore(&self, cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(self.begin(cluster))
    }

    fn end_restore(&self, cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(self.end(cluster))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bytes::Bytes;
    use futures_util::stream;
    use polyshard_engine::{Database, Options, Secret, Target};
    use polyshard_testkit::postgres::PgServer;

    use super::*;
    use crate::objects::Folder;

    /// E1: what a row names is found again under its key, byte for byte.
    #[tokio::test]
    async fn objects_are_written_read_and_deleted_by_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let backend = Arc::new(Folder::new(PathBuf::from(folder.path())));
        let carrier = BlobCarrier { objects: Objects::new(backend, "here"), data: folder.path().to_owned() };
        let id = ObjectId::new(1, 2);
        let mut found = Vec::new();
        carrier.keys(&NAMED_IN[0], 7, &Value::Text(id.as_str().to_owned()), &mut found).unwrap();
        let [key] = found.as_slice() else { panic!("one key: {found:?}") };
        assert_eq!(carrier.length(key).await.unwrap(), None);
        assert_eq!(carrier.read(key).await.err(), Some(CarrierError::Missing(key.clone())));
        let pieces =
            stream::iter([Ok(Bytes::from_static(b"some ")), Ok(Bytes::from_static(b"bytes"))]).boxed();
        carrier.write(key, 10, pieces).await.unwrap();
        assert_eq!(carrier.length(key).await.unwrap(), Some(10));
        let read: Vec<Bytes> = carrier.read(key).await.unwrap().try_collect().await.unwrap();
        assert_eq!(read.concat(), b"some bytes");
        carrier.delete(key).await.unwrap();
        carrier.delete(key).await.unwrap();
        assert_eq!(carrier.length(key).await.unwrap(), None);
        assert!(carrier.length("7/../../etc").await.is_err(), "a key is no path");
        assert!(carrier.keys(&NAMED_IN[2], 7, &Value::Blob(b"\x09".to_vec()), &mut Vec::new()).is_err());
    }

    fn carrier(objects: &Path, data: &Path) -> BlobCarrier {
        let backend = Arc::new(Folder::new(objects.to_owned()));
        BlobCarrier { objects: Objects::new(backend, "here"), data: data.to_owned() }
    }

    /// Only the restored cluster has the place, and only when the restoration is whole.
    #[tokio::test]
    async fn a_restored_place_belongs_to_the_restored_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let (place, data) = (dir.path().join("objects"), dir.path().join("data"));
        fs::create_dir(&data).unwrap();
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let carrier = carrier(&place, &data);
        carrier.check_place(ours).await.unwrap();
        carrier.begin_restore(ours).await.unwrap();
        assert!(carrier.begin_restore(other).await.is_err(), "somebody restores into it");
        assert!(carrier.check_place(other).await.is_err());
        // Killed, and begun anew.
        carrier.begin_restore(ours).await.unwrap();
        carrier.end_restore(ours).await.unwrap();
        let mark = carrier.look().await.unwrap().unwrap();
        assert!(mark.is_of(ours) && !mark.is_restoring());
        assert_eq!(claimed(&data), Some(mark));
        // A drill with the same configuration, while this one is served.
        let drill = carrier.begin_restore(ours).await;
        assert!(matches!(&drill, Err(CarrierError::NotOurs(why)) if why.contains("take-over")), "{drill:?}");
        fs::write(place.join("polyshard-objects"), "take-over\n").unwrap();
        carrier.begin_restore(other).await.unwrap();
        forget_claim(&data);
        assert_eq!(claimed(&data), None);
    }

    #[tokio::test]
    async fn a_place_with_objects_of_nobody_known_is_not_restored_into() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("7")).unwrap();
        let refused = carrier(dir.path(), dir.path()).begin_restore(Uuid::from_u128(1)).await;
        assert!(matches!(refused, Err(CarrierError::NotOurs(_))), "{refused:?}");
    }

    /// As the sweep looks for it, whatever was noted of the object before.
    async fn is_condemned(target: Target) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(target, Options::default(), None).await.unwrap();
        let dialect = db.dialect();
        for sql in (crate::schema().statements)(dialect) {
            db.write(Statement::new(sql).into()).await.unwrap();
        }
        let (id, other) = (ObjectId::new(1, 2), ObjectId::new(1, 3));
        let object = |id: &ObjectId| Unnamed {
            key: format!("7/{}", id.as_str()),
            place: vec![Value::Blob(vec![1]), Value::Text("a".to_owned())],
        };
        let announce = format!(
            "INSERT INTO {} (dataset, placement, name, id, kind, number, at) VALUES (7, $1, 'a', $2, 0, 0, 5)",
            dialect.own_table(PENDING)
        );
        let announce = Statement::new(announce).bind(vec![1_u8]).bind(id.as_str());
        db.write(announce.into()).await.unwrap();
        for _ in 0..2 {
            let carrier = carrier(dir.path(), dir.path());
            for statement in carrier.condemn(dialect, &[object(&id), object(&other)]).unwrap() {
                db.write(statement.into()).await.unwrap();
            }
        }
        let sql = format!(
            "SELECT id, placement FROM {} WHERE dataset = 7 AND kind = 1 AND number = 0 AND name = 'a' AND at > 5 \
             ORDER BY id",
            dialect.own_table(PENDING)
        );
        let rows = db.read(Statement::new(sql)).await.unwrap();
        let found: Vec<&str> = rows.iter().map(|row| row.text(0).unwrap()).collect();
        assert_eq!(found, [id.as_str(), other.as_str()]);
        assert!(rows.iter().all(|row| row.blob(1).unwrap() == [1]));
        db.close().await;
    }

    #[tokio::test]
    async fn an_object_is_condemned_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        is_condemned(Target::sqlite(dir.path().join("shard.db"))).await;
    }

    #[tokio::test]
    async fn an_object_is_condemned_on_postgres() {
        let server = PgServer::start();
        server.create_database("s1");
        let url = format!("postgres://{}@{}:{}/s1", server.user(), server.host(), server.port());
        let target = Target::parse(&url).unwrap();
        is_condemned(target.with_password(Secret::new(server.password().to_owned()))).await;
    }

    #[test]
    fn an_announced_object_is_pending_and_a_content_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let carrier = carrier(dir.path(), dir.path());
        let keys = |value: &str| {
            let mut found = Vec::new();
            carrier.keys(&PENDING_IN[0], 7, &Value::Text(value.to_owned()), &mut found).unwrap();
            found
        };
        let id = ObjectId::new(1, 2);
        assert_eq!(keys(id.as_str()), [format!("7/{}", id.as_str())]);
        assert!(keys("c0000000000000001").is_empty());
    }
}

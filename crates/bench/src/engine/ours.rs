//! The engine crate, as it is set up by default.

use std::path::Path;
use std::sync::Arc;

use polyshard_engine::{Batch, Database, Expect, Options, Statement, Target};
use polyshard_testkit::postgres::PgServer;

use super::work::{Store, shard_of};
use super::{BODY_BYTES, ROWS};
use crate::Failure;

/// Statements in a batch when the tables are filled.
const FILL_BATCH: usize = 1000;

/// Several open databases.
#[derive(Clone)]
pub struct Ours {
    shards: Arc<[Database]>,
    read: Arc<str>,
    insert: Arc<str>,
    update: Arc<str>,
}

impl Ours {
    /// So many SQLite files in the folder, filled.
    pub async fn sqlite(directory: &Path, shards: usize) -> Result<Ours, Failure> {
        let targets = (0..shards).map(|shard| Target::sqlite(directory.join(format!("{shard}.db"))));
        let ours = Ours::open(targets).await?;
        for shard in ours.shards.iter() {
            let create = "CREATE TABLE item (id INTEGER PRIMARY KEY, body BLOB NOT NULL)";
            shard.write(Statement::new(create).into()).await?;
        }
        for (number, shard) in ours.shards.iter().enumerate() {
            let ids: Vec<i64> = (0..ROWS).filter(|id| shard_of(*id, shards) == number).collect();
            for some in ids.chunks(FILL_BATCH) {
                let insert =
                    |id: &i64| Statement::new(ours.insert.clone()).bind(*id).bind(vec![b'x'; BODY_BYTES]);
                shard.write(some.iter().map(insert).collect()).await?;
            }
        }
        Ok(ours)
    }

    /// These databases of a server, filled already.
    pub async fn postgres(server: &PgServer, databases: &[String]) -> Result<Ours, Failure> {
        let targets: Result<Vec<Target>, _> =
            databases.iter().map(|name| Target::parse(&server.url(name))).collect();
        Ours::open(targets?.into_iter()).await
    }

    async fn open(targets: impl Iterator<Item = Target>) -> Result<Ours, Failure> {
        let mut shards = Vec::new();
        for target in targets {
            shards.push(Database::open(target, Options::default(), None).await?);
        }
        Ok(Ours {
            shards: shards.into(),
            read: "SELECT body FROM item WHERE id = $1".into(),
            insert: "INSERT INTO item (id, body) VALUES ($1, $2)".into(),
            update: "UPDATE item SET body = $2 WHERE id = $1".into(),
        })
    }

    /// Ends all sessions.
    pub async fn close(&self) {
        for shard in self.shards.iter() {
            shard.close().await;
        }
    }

    async fn write(&self, shard: usize, text: &Arc<str>, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        let statement = Statement::new(text.clone()).bind(id).bind(body).expect(Expect::Rows(1));
        self.shards[shard].write(Batch::from(statement)).await?;
        Ok(())
    }
}

impl Store for Ours {
    async fn read(&self, shard: usize, id: i64) -> Result<usize, Failure> {
        let rows = self.shards[shard].read(Statement::new(self.read.clone()).bind(id)).await?;
        Ok(rows.one()?.blob(0)?.len())
    }

    async fn insert(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, &self.insert, id, body).await
    }

    async fn update(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, &self.update, id, body).await
    }
}

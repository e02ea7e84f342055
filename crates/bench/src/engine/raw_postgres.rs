//! The same on tokio-postgres alone, as one would write it for one program: a writer task that sends BEGIN, all
//! statements and COMMIT in one go, and reads spread over connections without waiting for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join_all, join3};
use polyshard_testkit::postgres::PgServer;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

use super::work::Store;
use crate::Failure;

/// As the engine's defaults.
const QUEUE_MAX: usize = 4096;
const GROUP_MAX: usize = 512;
const READERS: usize = 8;

#[derive(Clone, Copy)]
enum Kind {
    Insert,
    Update,
}

struct Write {
    kind: Kind,
    id: i64,
    body: Vec<u8>,
    done: oneshot::Sender<Result<(), String>>,
}

struct Shard {
    readers: Vec<(Client, Statement)>,
    next: AtomicUsize,
    queue: mpsc::Sender<Write>,
}

/// Several databases.
#[derive(Clone)]
pub struct Raw {
    shards: Arc<[Shard]>,
    tasks: Arc<Mutex<JoinSet<()>>>,
}

impl Raw {
    /// These databases of a server, filled already.
    pub async fn connect(server: &PgServer, databases: &[String]) -> Result<Raw, Failure> {
        let mut tasks = JoinSet::new();
        let mut shards = Vec::new();
        for name in databases {
            let address = server.connect_string(name);
            let mut readers = Vec::new();
            for _ in 0..READERS {
                let client = connect(&address, &mut tasks).await?;
                let read = client.prepare("SELECT body FROM item WHERE id = $1").await?;
                readers.push((client, read));
            }
            let client = connect(&address, &mut tasks).await?;
            let insert = client.prepare("INSERT INTO item (id, body) VALUES ($1, $2)").await?;
            let update = client.prepare("UPDATE item SET body = $2 WHERE id = $1").await?;
            let (queue, writes) = mpsc::channel(QUEUE_MAX);
            tasks.spawn(write_all(client, insert, update, writes));
            shards.push(Shard { readers, next: AtomicUsize::new(0), queue });
        }
        Ok(Raw { shards: shards.into(), tasks: Arc::new(Mutex::new(tasks)) })
    }

    /// Ends the sessions and waits for them.
    pub async fn close(self) {
        drop(self.shards);
        while self.tasks.lock().await.join_next().await.is_some() {}
    }

    async fn write(&self, shard: usize, kind: Kind, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        let (done, answer) = oneshot::channel();
        self.shards[shard]
            .queue
            .try_send(Write { kind, id, body, done })
            .map_err(|error| error.to_string())?;
        Ok(answer.await??)
    }
}

impl Store for Raw {
    async fn read(&self, shard: usize, id: i64) -> Result<usize, Failure> {
        let shard = &self.shards[shard];
        let (client, read) = &shard.readers[shard.next.fetch_add(1, Ordering::Relaxed) % READERS];
        let body: Vec<u8> = client.query_one(read, &[&id]).await?.try_get(0)?;
        Ok(body.len())
    }

    async fn insert(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, Kind::Insert, id, body).await
    }

    async fn update(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, Kind::Update, id, body).await
    }
}

async fn connect(address: &str, tasks: &mut JoinSet<()>) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
    tasks.spawn(async move {
        // The callers get the same error on their own requests.
        let _ = connection.await;
    });
    Ok(client)
}

async fn write_all(client: Client, insert: Statement, update: Statement, mut queue: mpsc::Receiver<Write>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while queue.recv_many(&mut group, GROUP_MAX).await > 0 {
        let statements = group.iter().map(|write| {
            let statement = match write.kind {
                Kind::Insert => &insert,
                Kind::Update => &update,
            };
            client.execute_raw(
                statement,
                [&write.id as &(dyn tokio_postgres::types::ToSql + Sync), &write.body],
            )
        });
        // Polled in this order, and each sends its request when first polled.
        let (begin, all, commit) =
            join3(client.batch_execute("BEGIN"), join_all(statements), client.batch_execute("COMMIT")).await;
        let result = begin.and(commit).map_err(|error| error.to_string()).and_then(|()| {
            all.into_iter().try_for_each(|changed| match changed {
                Ok(1) => Ok(()),
                Ok(changed) => Err(format!("{changed} rows changed instead of one")),
                Err(error) => Err(error.to_string()),
            })
        });
        for write in group.drain(..) {
            // A caller who has gone does not mind.
            let _ = write.done.send(result.clone());
        }
    }
}

//! Callers of the SQL door: each puts, deletes, counts and reads rows of all tenants, and tells the ledger.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_postgres::{Client, NoTls, Statement};

use crate::ledger::{Fate, Ledger};

/// Tenants that there are: the first half begins on the first shard, the second on the second.
pub const TENANTS: i64 = 40;

/// How long one statement may take; only a hang reaches it.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(60);
/// How long a caller waits before he knocks again where nobody opened.
const AGAIN: Duration = Duration::from_millis(20);
/// How long a caller rests between two statements: a thousand a second of all of them is enough to be in the way of a
/// move, and leaves it, and the tests beside it, some of the machine.
const REST: Duration = Duration::from_millis(4);

/// Where the doors of the processes are just now: a process that was started again has others.
#[derive(Clone, Default)]
pub struct Addresses(Arc<Mutex<Vec<String>>>);

impl Addresses {
    /// The door of this process is here.
    pub fn set(&self, process: usize, address: &str) {
        let mut addresses = self.0.lock().unwrap();
        let count = addresses.len().max(process + 1);
        addresses.resize(count, String::new());
        addresses[process] = address.to_owned();
    }

    /// Where the door of this process is.
    pub fn get(&self, process: usize) -> String {
        self.0.lock().unwrap()[process].clone()
    }
}

/// Callers at work; they end with this, also when a test fails.
pub struct Writers {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts so many callers of these processes in turns.
    pub fn start(ledger: &Arc<Ledger>, addresses: &Addresses, processes: &[usize], count: usize) -> Writers {
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..count)
            .map(|number| {
                let process = processes[number % processes.len()];
                let (ledger, addresses, over) = (ledger.clone(), addresses.clone(), over.clone());
                std::thread::spawn(move || {
                    let mut writer = Writer {
                        ledger,
                        process,
                        random: StdRng::seed_from_u64(number as u64),
                        mine: Vec::new(),
                        over,
                    };
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(writer.work(&addresses));
                })
            })
            .collect();
        Writers { over, threads }
    }

    /// Stops them, and waits for them.
    pub fn stop(mut self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("a caller does not panic");
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

struct Writer {
    ledger: Arc<Ledger>,
    process: usize,
    random: StdRng,
    /// Entries of its own that are there.
    mine: Vec<(i64, i64)>,
    over: Arc<AtomicBool>,
}

/// Statements of one connection.
struct Prepared {
    put: Statement,
    delete: Statement,
    bump: Statement,
    read: Statement,
}

/// A client of the SQL door, and its connection.
pub async fn connect(address: &str) -> Result<(Client, tokio::task::JoinHandle<()>), tokio_postgres::Error> {
    // As the program prints it: with the user before and the database after.
    let address = address.rsplit('@').next().unwrap_or(address).split('/').next().unwrap_or_default();
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port.parse().unwrap_or(0));
    config.user("polyshard").password("polyshard").dbname("polyshard");
    let (client, connection) = config.connect(NoTls).await?;
    let connection = tokio::spawn(async move {
        // Its end is seen by the client.
        let _ended = connection.await;
    });
    Ok((client, connection))
}

/// Uses up one connection to a process after the other until it is over. What went wrong with each is noted.
pub async fn on_connections(
    ledger: &Ledger,
    process: usize,
    addresses: &Addresses,
    over: &AtomicBool,
    mut use_up: impl AsyncFnMut(&Client) -> Result<(), String>,
) {
    while !over.load(Ordering::SeqCst) {
        let Ok((client, connection)) = connect(&addresses.get(process)).await else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        if let Err(error) = use_up(&client).await {
            ledger.failed(process, error);
            tokio::time::sleep(AGAIN).await;
        }
        drop(client);
        connection.abort();
    }
}

impl Writer {
    async fn work(&mut self, addresses: &Addresses) {
        let (ledger, over, process) = (self.ledger.clone(), self.over.clone(), self.process);
        on_connections(&ledger, process, addresses, &over, async |client| self.use_up(client).await).await;
    }

    /// Works on one connection until something fails; then a new one is made.
    async fn use_up(&mut self, client: &Client) -> Result<(), String> {
        let prepare = async |sql: &str| {
            let prepared = tokio::time::timeout(STATEMENT_PATIENCE, client.prepare(sql)).await;
            prepared.map_err(|_| "no answer".to_owned())?.map_err(|error| said(&error))
        };
        let prepared = Prepared {
            put: prepare("INSERT INTO entry (tenant, id, body) VALUES ($1, $2, $3)").await?,
            delete: prepare("DELETE FROM entry WHERE tenant = $1 AND id = $2").await?,
            bump: prepare("UPDATE counter SET n = n + 1 WHERE tenant = $1 RETURNING n").await?,
            read: prepare("SELECT n FROM counter WHERE tenant = $1").await?,
        };
        while !self.over.load(Ordering::SeqCst) {
            let doing = self.deed(client, &prepared);
            tokio::time::timeout(STATEMENT_PATIENCE, doing).await.map_err(|_| "no answer".to_owned())??;
            tokio::time::sleep(REST).await;
        }
        Ok(())
    }

    async fn deed(&mut self, client: &Client, prepared: &Prepared) -> Result<(), String> {
        let tenant = self.random.random_range(0..TENANTS);
        let from = Instant::now();
        match self.random.random_range(0..10) {
            0..4 => {
                let id = self.ledger.number();
                let item = ("entry", tenant, id);
                // Noted before it is known: a caller who is never answered does not know either.
                self.ledger.note(item, Fate::Unknown);
                let put = client.execute(&prepared.put, &[&tenant, &id, &format!("body {id}")]).await;
                put.map_err(|error| said(&error))?;
                self.ledger.note(item, Fate::There);
                self.mine.push((tenant, id));
            }
            4..6 if !self.mine.is_empty() => {
                let (tenant, id) = self.mine.swap_remove(self.random.random_range(0..self.mine.len()));
                self.ledger.note(("entry", tenant, id), Fate::Unknown);
                let deleted = client.execute(&prepared.delete, &[&tenant, &id]).await;
                let deleted = deleted.map_err(|error| said(&error))?;
                if deleted != 1 {
                    self.ledger.note(("entry", tenant, id), Fate::There);
                    return Err(format!("LOST: entry {id} of {tenant} is not there to be deleted"));
                }
                self.ledger.note(("entry", tenant, id), Fate::Gone);
            }
            4..9 => {
                let bumped = client.query_one(&prepared.bump, &[&tenant]).await;
                let value = bumped.as_ref().ok().map(|row| row.get(0));
                self.ledger.bumped(("counter", tenant), from, value);
                bumped.map_err(|error| said(&error))?;
            }
            _ => {
                let seen = client.query_one(&prepared.read, &[&tenant]).await;
                let value = seen.map_err(|error| said(&error))?.get(0);
                self.ledger.seen(("counter", tenant), from, value);
            }
        }
        Ok(())
    }
}

/// An error with its code, as a caller sees it.
pub fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} {}", db.code().code(), db.message()),
        None => error.to_string(),
    }
}

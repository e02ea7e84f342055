//! Customers at work: reads, orders with a message in one transaction, totals as entities, and reports over all shards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::{connect, sample};
use crate::exit::Failure;

/// The tenant that gets a third of the requests.
const HOT: u64 = 7;
/// Ids of new orders begin here, and those of each client this far apart.
const IDS_APART: u64 = 1_000_000_000;
/// Times that a transaction is tried again before it counts as failed.
const TRIES_MAX: u32 = 20;
/// A client rests this long between requests: the machine is left for others.
const REST: Duration = Duration::from_millis(2);
/// Durations kept, of which the 99th part is told.
const KEPT_MAX: usize = 200_000;

/// Clients at work.
pub struct Traffic {
    counts: Arc<Counts>,
    tasks: Vec<JoinHandle<()>>,
    said: Mutex<(Instant, u64)>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    requests: AtomicU64,
    errors: AtomicU64,
    retries: AtomicU64,
    acknowledged: AtomicU64,
    unknown: AtomicU64,
    times: Mutex<Vec<Duration>>,
    first_error: Mutex<Option<String>>,
}

impl Counts {
    fn note(&self, took: Duration, error: Option<tokio_postgres::Error>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() < KEPT_MAX {
            times.push(took);
        }
        if let Some(error) = error {
            self.errors.fetch_add(1, Ordering::Relaxed);
            let said =
                error.as_db_error().map_or_else(|| error.to_string(), |told| told.message().to_owned());
            self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(said);
        }
    }
}

/// What they did.
pub struct Done {
    pub requests: u64,
    pub errors: u64,
    pub retries: u64,
    pub acknowledged: u64,
    /// Orders of which nobody knows.
    pub unknown: u64,
    pub p99: Duration,
    pub longest: Duration,
    pub first_error: Option<String>,
}

impl Traffic {
    /// Sends the clients to work.
    pub async fn start(sql: &str, tenants: u64, clients: u64) -> Result<Traffic, Failure> {
        let counts = Arc::new(Counts::default());
        let mut tasks = Vec::new();
        for number in 0..clients {
            let client = connect(sql).await?;
            let worker = Worker {
                client,
                counts: counts.clone(),
                tenants,
                next_id: (number + 1) * IDS_APART,
                chance: 0x9e37_79b9_7f4a_7c15 ^ (number + 1),
            };
            tasks.push(tokio::spawn(worker.run()));
        }
        Ok(Traffic { counts, tasks, said: Mutex::new((Instant::now(), 0)) })
    }

    /// The tenant that is busier than all others.
    pub fn hot_tenant(&self) -> u64 {
        HOT
    }

    /// How it goes, in words.
    pub fn line(&self) -> String {
        let requests = self.counts.requests.load(Ordering::Relaxed);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = (requests - said.1) as f64 / said.0.elapsed().as_secs_f64().max(0.001);
        *said = (Instant::now(), requests);
        format!(
            "{rate:5.0} requests/s, {} errors, {} new orders",
            self.counts.errors.load(Ordering::Relaxed),
            self.counts.acknowledged.load(Ordering::Relaxed)
        )
    }

    /// Has the clients stop, and says what they did.
    pub async fn stop(self) -> Result<Done, Failure> {
        self.counts.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.map_err(|error| Failure::new(format!("a client failed: {error}"), "report this"))?;
        }
        let mut times =
            std::mem::take(&mut *self.counts.times.lock().unwrap_or_else(PoisonError::into_inner));
        times.sort_unstable();
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Ok(Done {
            requests: count(&self.counts.requests),
            errors: count(&self.counts.errors),
            retries: count(&self.counts.retries),
            acknowledged: count(&self.counts.acknowledged),
            unknown: count(&self.counts.unknown),
            p99: times.get(times.len() * 99 / 100).copied().unwrap_or_default(),
            longest: times.last().copied().unwrap_or_default(),
            first_error: self.counts.first_error.lock().unwrap_or_else(PoisonError::into_inner).take(),
        })
    }
}

struct Worker {
    client: Arc<Client>,
    counts: Arc<Counts>,
    tenants: u64,
    next_id: u64,
    chance: u64,
}

impl Worker {
    async fn run(mut self) {
        while !self.counts.stop.load(Ordering::Relaxed) {
            let tenant = match self.roll(3) {
                0 => HOT,
                _ => self.roll(self.tenants),
            };
            let began = Instant::now();
            let done = match self.roll(100) {
                0..60 => self.read(tenant).await,
                60..88 => self.order(tenant).await,
                88..97 => self.total(tenant).await,
                _ => self.best_tenants().await,
            };
            self.counts.note(began.elapsed(), done.err());
            tokio::time::sleep(REST).await;
        }
    }

    /// A number below `below`: a plain generator is enough to vary the work.
    fn roll(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % below
    }

    async fn read(&mut self, tenant: u64) -> Result<(), tokio_postgres::Error> {
        let id = self.roll(1_000) * self.tenants + tenant;
        let asked = format!(
            "SELECT o.amount, c.name FROM orders o JOIN countries c ON c.code = o.country \
             WHERE o.tenant = {tenant} AND o.id = {id}"
        );
        self.client.simple_query(&asked).await.map(drop)
    }

    /// An order, and a message about it, in one transaction.
    async fn order(&mut self, tenant: u64) -> Result<(), tokio_postgres::Error> {
        self.next_id += 1;
        let (id, amount) = (self.next_id, self.roll(10_000));
        let country = sample::COUNTRIES[self.roll(sample::COUNTRIES.len() as u64) as usize];
        let steps = [
            "BEGIN".to_owned(),
            format!(
                "INSERT INTO orders (tenant, id, country, amount) VALUES ({tenant}, {id}, '{country}', {amount})"
            ),
            format!("SELECT polyshard.enqueue('{}', 'order {id}')", sample::outbox(tenant)),
            "COMMIT".to_owned(),
        ];
        let mut tries = 0;
        loop {
            let error = match self.all(&steps).await {
                Ok(()) => {
                    self.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => error,
            };
            let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
            if code == "08007" || error.as_db_error().is_none() {
                self.counts.unknown.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
            self.client.simple_query("ROLLBACK").await?;
            tries += 1;
            // A transaction that a move has caught is tried again, as any client of a database does.
            if code != "40001" || tries >= TRIES_MAX {
                return Err(error);
            }
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(REST).await;
        }
    }

    async fn all(&self, steps: &[String]) -> Result<(), tokio_postgres::Error> {
        for step in steps {
            self.client.simple_query(step).await?;
        }
        Ok(())
    }

    async fn total(&mut self, tenant: u64) -> Result<(), tokio_postgres::Error> {
        let count = self.roll(1_000);
        let asked = format!(
            "SELECT polyshard.entity_upsert('{}', '{tenant}', 'orders', '{{\"count\": {count}}}')",
            sample::TOTALS
        );
        self.client.simple_query(&asked).await.map(drop)
    }

    async fn best_tenants(&mut self) -> Result<(), tokio_postgres::Error> {
        let asked = "SELECT tenant, sum(amount) FROM orders GROUP BY tenant ORDER BY 2 DESC, 1 LIMIT 5";
        self.client.simple_query(asked).await.map(drop)
    }
}

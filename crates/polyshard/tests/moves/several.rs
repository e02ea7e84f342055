//! Callers who write on several shards by one statement or transaction, to be completed whatever happens: each write is
//! on all of its shards in the end, once, or on none (C3, D4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::cluster::Cluster;
use crate::ledger::{Fate, Item, Ledger};
use crate::support::json;
use crate::writers::{Addresses, TENANTS, on_connections, said};

/// How long one statement may take; only a hang reaches it.
const STATEMENT_PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take until all shards have all writes: parts that find rows of a kept move wait for its end.
const COMPLETE_PATIENCE: Duration = Duration::from_secs(120);
/// How long a caller waits before he tries again.
const AGAIN: Duration = Duration::from_millis(20);
/// What is said where nothing was written: a range moves, others are in the way, a file's only writer is not free.
const NOT_DONE: [&str; 5] = ["40001", "40P01", "53300", "55P03", "57P03"];

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// So many rows were written.
    Done(u64),
    NotDone,
    /// Nobody knows; it is on all shards in the end or on none.
    Unknown,
}

/// What must be in the tables in the end.
#[derive(Default)]
pub struct Account {
    /// Increases of every row of `tally`: known ones, and those that nobody knows of.
    tally: (i64, i64),
    /// What is known of each row of `purse`.
    purse: BTreeMap<i64, i64>,
    /// Units that nobody knows the way of: from whom to whom.
    unknown: Vec<(i64, i64)>,
}

/// Callers at work; they end with this, also when a test fails.
pub struct Several {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    account: Arc<Mutex<Account>>,
}

impl Several {
    /// Stops them, and waits for them; answers what must be found.
    pub fn stop(mut self) -> Account {
        self.over.store(true, Ordering::SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a caller does not panic"));
        std::mem::take(&mut *self.account.lock().unwrap())
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Cluster {
    /// Makes the tables that such callers use beside the others' `entry`.
    pub fn open_several(&self) {
        let rows: Vec<String> = (0..TENANTS).map(|tenant| format!("({tenant}, 0)")).collect();
        let rows = rows.join(", ");
        self.sql(&[
            "CREATE TABLE tally (tenant bigint PRIMARY KEY, n bigint NOT NULL)",
            "CREATE TABLE purse (tenant bigint PRIMARY KEY, n bigint NOT NULL)",
            "SELECT polyshard.shard_table('tally', 'tenants', 'tenant')",
            "SELECT polyshard.shard_table('purse', 'tenants', 'tenant')",
            "SET polyshard.multi_shard = 'eventual'",
            &format!("INSERT INTO tally (tenant, n) VALUES {rows}"),
            &format!("INSERT INTO purse (tenant, n) VALUES {rows}"),
        ]);
    }

    /// So many callers of these processes.
    pub fn several_writers(&self, processes: &[usize], count: usize) -> Several {
        let (over, account) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Account>>::default());
        let threads = (0..count)
            .map(|number| {
                let mut caller = Caller {
                    ledger: self.ledger.clone(),
                    account: account.clone(),
                    process: processes[number % processes.len()],
                    random: StdRng::seed_from_u64(1000 + number as u64),
                    mine: Vec::new(),
                    transactions: self.fleet.is_none(),
                    over: over.clone(),
                };
                let addresses = self.addresses.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(caller.work(&addresses));
                })
            })
            .collect();
        Several { over, threads, account }
    }

    /// Waits until every shard has every write.
    #[track_caller]
    pub fn await_complete(&self) {
        let deadline = Instant::now() + COMPLETE_PATIENCE;
        loop {
            let answer = json(self.any(), "writes list");
            let writes = answer["writes"].as_array().expect("a list");
            let left: Vec<_> = writes.iter().filter(|write| write["completed"] != true).collect();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "these are not completed: {left:#?}");
            std::thread::sleep(AGAIN);
        }
    }

    /// Every write is there once, on all of its shards.
    #[track_caller]
    pub fn assert_several(&self, account: &Account) {
        let read = |table: &str| -> BTreeMap<i64, i64> {
            let rows = self.sql(&[&format!("SELECT tenant, n FROM {table}")]);
            assert_eq!(rows.len(), TENANTS as usize, "rows of {table}");
            rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
        };
        let tally = read("tally");
        let (known, unknown) = account.tally;
        assert!(known > 0 && !account.purse.is_empty(), "nothing was written on all shards");
        let values: BTreeSet<i64> = tally.values().copied().collect();
        assert_eq!(values.len(), 1, "a write is on some shards and not on others: {tally:?}");
        let is_right = values.iter().all(|n| (known..=known + unknown).contains(n));
        assert!(is_right, "{values:?} after {known} increases and {unknown} unknown ones");
        let purse = read("purse");
        assert_eq!(purse.values().sum::<i64>(), 0, "what one has lost, another one has: {purse:?}");
        for (tenant, n) in purse {
            let known = account.purse.get(&tenant).copied().unwrap_or(0);
            let lost = account.unknown.iter().filter(|(from, _)| *from == tenant).count() as i64;
            let won = account.unknown.iter().filter(|(_, to)| *to == tenant).count() as i64;
            let may = known - lost..=known + won;
            assert!(may.contains(&n), "the purse of {tenant} has {n}, and may have {may:?}");
        }
    }
}

struct Caller {
    ledger: Arc<Ledger>,
    account: Arc<Mutex<Account>>,
    process: usize,
    random: StdRng,
    /// Entries of its own that were put together, and the name of the write.
    mine: Vec<(Vec<Item>, String)>,
    /// Whether transactions of several statements are such writes, too.
    transactions: bool,
    over: Arc<AtomicBool>,
}

impl Caller {
    async fn work(&mut self, addresses: &Addresses) {
        let (ledger, over, process) = (self.ledger.clone(), self.over.clone(), self.process);
        on_connections(&ledger, process, addresses, &over, async |client| self.use_up(client).await).await;
    }

    async fn use_up(&mut self, client: &Client) -> Result<(), String> {
        let settings = "SET polyshard.multi_shard = 'eventual'; SET polyshard.strict = off";
        let set = tokio::time::timeout(STATEMENT_PATIENCE, client.batch_execute(settings)).await;
        set.map_err(|_| "no answer".to_owned())?.map_err(|error| said(&error))?;
        while !self.over.load(Ordering::SeqCst) {
            match self.random.random_range(0..10) {
                0..4 => self.put(client).await?,
                4..6 if !self.mine.is_empty() => self.delete(client).await?,
                4..7 => self.count(client).await?,
                _ => self.pass_on(client).await?,
            }
        }
        Ok(())
    }

    /// Puts entries of several tenants by one statement.
    async fn put(&mut self, client: &Client) -> Result<(), String> {
        let mut tenants = BTreeSet::new();
        for _ in 0..self.random.random_range(2..6) {
            tenants.insert(self.random.random_range(0..TENANTS));
        }
        let items: Vec<Item> =
            tenants.iter().map(|tenant| ("entry", *tenant, self.ledger.number())).collect();
        items.iter().for_each(|item| self.ledger.note(*item, Fate::Unknown));
        let rows: Vec<String> =
            items.iter().map(|(_, tenant, id)| format!("({tenant}, {id}, 'body {id}')")).collect();
        let sql = format!("INSERT INTO entry (tenant, id, body) VALUES {}", rows.join(", "));
        let (end, error) = write(client, &sql).await;
        match end {
            End::Done(rows) if rows == items.len() as u64 => {
                self.ledger.note_together(&items, Fate::There);
                let name = ask(client, "SHOW polyshard.last_write").await?;
                self.mine.push((items, name));
            }
            End::Done(rows) => return Err(format!("LOST: {rows} rows put of {items:?}")),
            End::NotDone => self.ledger.note_together(&items, Fate::Gone),
            End::Unknown => self.ledger.note_together(&items, Fate::Unknown),
        }
        error.map_or(Ok(()), Err)
    }

    /// Deletes entries that were put together, once all shards have them.
    async fn delete(&mut self, client: &Client) -> Result<(), String> {
        let at = self.random.random_range(0..self.mine.len());
        if !self.mine[at].1.is_empty() {
            let asked =
                ask(client, &format!("SELECT polyshard.write_completed('{}')", self.mine[at].1)).await?;
            if !asked.starts_with('t') {
                tokio::time::sleep(AGAIN).await;
                return Ok(());
            }
        }
        let (items, name) = self.mine.swap_remove(at);
        items.iter().for_each(|item| self.ledger.note(*item, Fate::Unknown));
        let tenants: Vec<String> = items.iter().map(|(_, tenant, _)| tenant.to_string()).collect();
        let ids: Vec<String> = items.iter().map(|(_, _, id)| id.to_string()).collect();
        let (tenants, ids) = (tenants.join(", "), ids.join(", "));
        let sql = format!("DELETE FROM entry WHERE tenant IN ({tenants}) AND id IN ({ids})");
        let (end, error) = write(client, &sql).await;
        match end {
            End::Done(rows) if rows == items.len() as u64 => self.ledger.note_together(&items, Fate::Gone),
            End::Done(rows) => return Err(format!("LOST: {rows} rows deleted of {items:?}")),
            End::NotDone => {
                self.ledger.note_together(&items, Fate::There);
                self.mine.push((items, name));
            }
            End::Unknown => self.ledger.note_together(&items, Fate::Unknown),
        }
        error.map_or(Ok(()), Err)
    }

    /// Increases every row of all shards.
    async fn count(&mut self, client: &Client) -> Result<(), String> {
        // Counted as unknown before it is known.
        self.account.lock().unwrap().tally.1 += 1;
        let (end, error) = write(client, "UPDATE tally SET n = n + 1").await;
        let mut account = self.account.lock().unwrap();
        match end {
            End::Done(rows) => {
                account.tally.1 -= 1;
                account.tally.0 += 1;
                if rows != TENANTS as u64 {
                    return Err(format!("LOST: {rows} rows of tally are there to be increased"));
                }
            }
            End::NotDone => account.tally.1 -= 1,
            End::Unknown => {}
        }
        error.map_or(Ok(()), Err)
    }

    /// Takes a unit from one tenant and gives it to another.
    async fn pass_on(&mut self, client: &Client) -> Result<(), String> {
        let from = self.random.random_range(0..TENANTS);
        let to = (from + self.random.random_range(1..TENANTS)) % TENANTS;
        let (end, error) = if self.transactions && self.random.random_range(0..2) == 0 {
            in_transaction(client, from, to).await
        } else {
            let sql = format!(
                "UPDATE purse SET n = n + CASE WHEN tenant = {from} THEN -1 ELSE 1 END WHERE tenant IN ({from}, {to})"
            );
            write(client, &sql).await
        };
        let mut account = self.account.lock().unwrap();
        match end {
            End::Done(rows) => {
                *account.purse.entry(from).or_default() -= 1;
                *account.purse.entry(to).or_default() += 1;
                if rows != 2 {
                    return Err(format!("LOST: {rows} purses of {from} and {to}"));
                }
            }
            End::NotDone => {}
            End::Unknown => account.unknown.push((from, to)),
        }
        error.map_or(Ok(()), Err)
    }
}

fn undone() -> String {
    "the transaction was undone".to_owned()
}

/// The same as one transaction of two statements.
async fn in_transaction(client: &Client, from: i64, to: i64) -> (End, Option<String>) {
    let mut rows = 0;
    for sql in [
        "BEGIN".to_owned(),
        format!("UPDATE purse SET n = n - 1 WHERE tenant = {from}"),
        format!("UPDATE purse SET n = n + 1 WHERE tenant = {to}"),
    ] {
        match write(client, &sql).await {
            (End::Done(some), _) => rows += some,
            // Nothing is decided before COMMIT.
            (_, error) => return (End::NotDone, Some(error.unwrap_or_else(undone))),
        }
    }
    match write(client, "COMMIT").await {
        (End::Done(_), error) => (End::Done(rows), error),
        (end, error) => (end, Some(error.unwrap_or_else(undone))),
    }
}

/// Runs a write; says what became of it, and the error after which the connection is not used any more.
async fn write(client: &Client, sql: &str) -> (End, Option<String>) {
    match tokio::time::timeout(STATEMENT_PATIENCE, client.simple_query(sql)).await {
        Err(_) => (End::Unknown, Some("no answer".to_owned())),
        Ok(Err(error)) => {
            let code = error.code().map_or("", |code| code.code());
            // It may be tried again by the same connection.
            if NOT_DONE.contains(&code) {
                tokio::time::sleep(AGAIN).await;
                return (End::NotDone, None);
            }
            // Something is away: a process, a shard, the catalog. Anything else must not be.
            let away = code.is_empty() || code.starts_with("08") || code.starts_with("57P");
            let wrong = if away { "" } else { "LOST: refused: " };
            (End::Unknown, Some(format!("{wrong}{}", said(&error))))
        }
        Ok(Ok(messages)) => {
            let count = |message: &SimpleQueryMessage| match message {
                SimpleQueryMessage::CommandComplete(rows) => *rows,
                _ => 0,
            };
            (End::Done(messages.iter().map(count).sum()), None)
        }
    }
}

/// The only value of an answer.
async fn ask(client: &Client, sql: &str) -> Result<String, String> {
    let asked = tokio::time::timeout(STATEMENT_PATIENCE, client.simple_query(sql)).await;
    let messages = asked.map_err(|_| "no answer".to_owned())?.map_err(|error| said(&error))?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}

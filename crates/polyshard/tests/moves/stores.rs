//! Callers of the table and queue doors at work, and what must be found of theirs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::azure::{Azure, TABLE, queue};
use crate::cluster::Cluster;
use crate::ledger::{Fate, Ledger};
use crate::support::run;
use crate::writers::{Addresses, TENANTS};

/// Tenants that have a queue: every fourth.
fn with_queue() -> impl Iterator<Item = i64> {
    (0..TENANTS).step_by(4)
}

/// How long a caller waits before he knocks again.
const AGAIN: Duration = Duration::from_millis(20);

/// Callers at work; they end with this, also when a test fails.
pub struct StoreWriters {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl StoreWriters {
    /// Stops them, and waits for them.
    pub fn stop(mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().expect("a caller does not panic"));
    }
}

impl Drop for StoreWriters {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Cluster {
    /// Binds a table and some queues to the map, and makes them.
    pub fn open_stores(&self) {
        let server = self.process(0);
        run(server, &format!("bind table:{TABLE} --map tenants --rule before:-")).ok();
        let mut queues = Azure::connect(server.door("queue")).expect("the door is open");
        for tenant in with_queue() {
            let name = queue(tenant);
            run(server, &format!("bind queue:{name} --map tenants --rule before:-")).ok();
            let made = queues.queue("PUT", &format!("/devstoreaccount1/{name}"), "", "");
            assert_eq!(made.expect("an answer").status, 201);
        }
        let mut tables = Azure::connect(server.door("table")).expect("the door is open");
        let body = format!(r#"{{"TableName":"{TABLE}"}}"#);
        let made = tables.table("POST", "/devstoreaccount1/Tables", &body).expect("an answer");
        assert_eq!(made.status, 201, "{made:?}");
    }

    /// Callers of both doors of these processes.
    pub fn store_writers(&self, processes: &[usize]) -> StoreWriters {
        let over = Arc::new(AtomicBool::new(false));
        let threads = processes
            .iter()
            .flat_map(|process| [(*process, "entity"), (*process, "message")])
            .map(|(process, kind)| {
                let doors = if kind == "entity" { &self.tables } else { &self.queues };
                let (ledger, doors, over) = (self.ledger.clone(), doors.clone(), over.clone());
                std::thread::spawn(move || work(&ledger, &doors, process, kind, &over))
            })
            .collect();
        StoreWriters { over, threads }
    }

    /// Everything acknowledged is there once.
    #[track_caller]
    pub fn assert_stores(&self) {
        let server = self.any();
        let mut tables = Azure::connect(server.door("table")).expect("the door is open");
        self.ledger.assert_found("entity", &tables.entities().expect("an answer"));
        let mut queues = Azure::connect(server.door("queue")).expect("the door is open");
        let messages: Vec<(i64, i64)> =
            with_queue().flat_map(|tenant| queues.messages(tenant).expect("an answer")).collect();
        self.ledger.assert_found("message", &messages);
    }
}

fn work(ledger: &Ledger, doors: &Addresses, process: usize, kind: &'static str, over: &AtomicBool) {
    let mut random = StdRng::seed_from_u64(process as u64);
    let tenants: Vec<i64> = if kind == "entity" { (0..TENANTS).collect() } else { with_queue().collect() };
    while !over.load(Ordering::SeqCst) {
        let Ok(mut azure) = Azure::connect(&doors.get(process)) else {
            std::thread::sleep(AGAIN);
            continue;
        };
        while !over.load(Ordering::SeqCst) {
            let tenant = tenants[random.random_range(0..tenants.len())];
            let id = ledger.number();
            ledger.note((kind, tenant, id), Fate::Unknown);
            match put(&mut azure, kind, tenant, id) {
                Ok(()) => ledger.note((kind, tenant, id), Fate::There),
                Err(error) => {
                    ledger.failed(process, format!("{kind} {id} of {tenant}: {error}"));
                    std::thread::sleep(AGAIN);
                    break;
                }
            }
        }
    }
}

fn put(azure: &mut Azure, kind: &str, tenant: i64, id: i64) -> io::Result<()> {
    let reply = if kind == "entity" { azure.put_entity(tenant, id) } else { azure.put_message(tenant, id) }?;
    match reply.status {
        201 | 204 => Ok(()),
        status => Err(io::Error::other(format!("{status} {}", reply.body))),
    }
}

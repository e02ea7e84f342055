//! Callers of the table and queue doors at work, and what must be found of theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::azure::{Azure, TABLE, queue};
use crate::cluster::Cluster;
use crate::store_callers::{COUNTS, entity, work};
use crate::support::run;
use crate::writers::TENANTS;

/// How long it may take until messages that were handed out and not deleted are there again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tenants that have a queue: every fourth.
pub fn with_queue() -> impl Iterator<Item = i64> {
    (0..TENANTS).step_by(4)
}

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
        for table in [TABLE, COUNTS] {
            run(server, &format!("bind table:{table} --map tenants --rule before:-")).ok();
        }
        let mut queues = Azure::connect(server.door("queue")).expect("the door is open");
        for tenant in with_queue() {
            let name = queue(tenant);
            run(server, &format!("bind queue:{name} --map tenants --rule before:-")).ok();
            let made = queues.queue("PUT", &format!("/devstoreaccount1/{name}"), "", "");
            assert_eq!(made.expect("an answer").status, 201);
        }
        let mut tables = Azure::connect(server.door("table")).expect("the door is open");
        for table in [TABLE, COUNTS] {
            let body = format!(r#"{{"TableName":"{table}"}}"#);
            let made = tables.table("POST", "/devstoreaccount1/Tables", &body).expect("an answer");
            assert_eq!(made.status, 201, "{made:?}");
        }
        for tenant in 0..TENANTS {
            let body = format!(r#"{{"PartitionKey":"{tenant}-n","RowKey":"n","n":0}}"#);
            let made = tables.table("POST", &format!("/devstoreaccount1/{COUNTS}"), &body);
            assert_eq!(made.expect("an answer").status, 201);
        }
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

    /// Everything acknowledged is there once, and every counter has one history.
    #[track_caller]
    pub fn assert_stores(&self) {
        let server = self.any();
        let mut tables = Azure::connect(server.door("table")).expect("the door is open");
        self.ledger.assert_found("entity", &tables.entities().expect("an answer"));
        let count = |tenant: i64, tables: &mut Azure| {
            let reply = tables.table("GET", &entity(COUNTS, tenant, "n"), "").expect("an answer");
            crate::store_callers::count(&reply).unwrap_or_else(|| panic!("the count of {tenant}: {reply:?}"))
        };
        let last: BTreeMap<i64, i64> =
            (0..TENANTS).map(|tenant| (tenant, count(tenant, &mut tables))).collect();
        self.ledger.assert_linear("count", &last);
        let mut queues = Azure::connect(server.door("queue")).expect("the door is open");
        // Those that somebody has, or that were on their way to somebody who died, are there again after a while.
        let (mut messages, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        loop {
            for tenant in with_queue() {
                messages.extend(queues.messages(tenant).expect("an answer"));
            }
            if self.ledger.missing("message", &messages) == 0 || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.ledger.assert_found("message", &messages);
    }
}

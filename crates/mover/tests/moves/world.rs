//! Rows that writers put, change and delete, and what must be found of them: each exactly once, on its owner.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use polyshard_engine::{Batch, Dialect, Expect, Statement};
use polyshard_map::{Key, MapDefinition};
use polyshard_router::{Access, Router, RouterError, Ticket};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{Cluster, customers, dataset, tenants};

/// A row's table, tenant and number.
pub type RowId = (&'static str, i64, i64);

/// What is known of the rows: the last value that was acknowledged, or that nobody knows.
#[derive(Default)]
pub struct World {
    rows: Mutex<BTreeMap<RowId, State>>,
    stop: AtomicBool,
    pub writes: AtomicU64,
    /// How long writers rest between two writes: without a rest they may note changes faster than a mover on a busy
    /// machine can carry them.
    pub rest_ms: AtomicU64,
    /// Errors that callers saw.
    pub errors: Mutex<Vec<String>>,
}

/// Writers at work; they end with this, also when a test fails.
pub struct Writers {
    world: Arc<World>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    /// Stops the writers, and waits for them.
    pub async fn stop(mut self) {
        self.world.stop.store(true, Ordering::SeqCst);
        for writer in std::mem::take(&mut self.tasks) {
            writer.await.unwrap();
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.world.stop.store(true, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Is(i64),
    Gone,
    Unknown,
}

impl World {
    /// Another world that knows the same rows.
    pub fn known(&self) -> World {
        World { rows: Mutex::new(self.rows.lock().unwrap().clone()), ..World::default() }
    }

    /// Puts rows of all tenants.
    pub async fn fill(self: &Arc<World>, cluster: &Cluster, tenants: i64, each: i64) {
        for tenant in 0..tenants {
            for id in 0..each {
                self.put(cluster, ("thing", tenant, id)).await;
            }
        }
    }

    /// Writers that go on until they are stopped; each has tenants of its own, so that it knows what to expect.
    pub fn start(
        self: &Arc<World>,
        clusters: &[Arc<Cluster>],
        writers: u64,
        tables: &'static [&'static str],
    ) -> Writers {
        self.stop.store(false, Ordering::SeqCst);
        let tasks = (0..writers)
            .map(|writer| {
                let world = self.clone();
                let router = clusters[writer as usize % clusters.len()].router.clone();
                let runtime = tokio::runtime::Handle::current();
                tokio::task::spawn_blocking(move || {
                    runtime.block_on(async move {
                        let mut random = StdRng::seed_from_u64(writer);
                        while !world.stop.load(Ordering::SeqCst) {
                            let rest = world.rest_ms.load(Ordering::SeqCst);
                            tokio::time::sleep(std::time::Duration::from_millis(rest)).await;
                            let tenant = (random.random_range(0..40) * writers + writer) as i64;
                            let tenant = if tables[0] == "thing" { tenant } else { tenant % 300 };
                            if tenant as u64 % writers != writer {
                                continue;
                            }
                            let table = tables[random.random_range(0..tables.len())];
                            let row = (table, tenant, random.random_range(0..30));
                            let router = router.clone();
                            let known = world.rows.lock().unwrap().get(&row).copied();
                            match known {
                                Some(State::Unknown) => continue,
                                None | Some(State::Gone) => {
                                    world.deed(router, row, Deed::Put, State::Is(0)).await
                                }
                                Some(State::Is(_)) if random.random_range(0..4) == 0 => {
                                    world.deed(router, row, Deed::Delete, State::Gone).await
                                }
                                Some(State::Is(n)) => {
                                    world.deed(router, row, Deed::Change(n), State::Is(n + 1)).await
                                }
                            }
                        }
                    })
                })
            })
            .collect();
        Writers { world: self.clone(), tasks }
    }

    /// Waits until the writers have done so many more writes.
    pub async fn until_written(&self, more: u64) {
        let from = self.writes.load(Ordering::SeqCst);
        let come = async {
            while self.writes.load(Ordering::SeqCst) < from + more {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(crate::cluster::PATIENCE, come).await.expect("the writers go on");
    }

    pub async fn put(&self, cluster: &Cluster, row: RowId) {
        self.deed(cluster.router.clone(), row, Deed::Put, State::Is(0)).await;
    }

    /// Changes a row that was put and not changed yet.
    pub async fn change(&self, cluster: &Cluster, row: RowId) {
        self.deed(cluster.router.clone(), row, Deed::Change(0), State::Is(1)).await;
    }

    pub async fn delete(&self, cluster: &Cluster, row: RowId) {
        self.deed(cluster.router.clone(), row, Deed::Delete, State::Gone).await;
    }

    async fn deed(&self, router: Arc<Router>, row: RowId, deed: Deed, state: State) {
        let definition = definition(row.0);
        let keys = [Key::BigInt(row.1)];
        let binder = router.clone();
        let work = async move |ticket: &Ticket| write(&binder, ticket, row, deed).await;
        let result = router.call(definition.name(), &keys, Access::Write, work).await;
        self.note(row, result, state);
    }

    fn note(&self, row: RowId, result: Result<(), RouterError>, state: State) {
        let mut rows = self.rows.lock().unwrap();
        match result {
            Ok(()) => {
                rows.insert(row, state);
                self.writes.fetch_add(1, Ordering::SeqCst);
            }
            Err(RouterError::Engine(polyshard_engine::Error::OutcomeUnknown { .. })) => {
                rows.insert(row, State::Unknown);
            }
            Err(error) => self.errors.lock().unwrap().push(format!("{row:?}: {error}")),
        }
    }

    /// Every row is found once, as it was acknowledged, on the shard that owns it.
    pub async fn assert_found(&self, cluster: &Cluster) {
        let errors = self.errors.lock().unwrap().clone();
        assert_eq!(errors, Vec::<String>::new(), "nobody sees anything of a move");
        let mut found: BTreeMap<RowId, i64> = BTreeMap::new();
        let owners: BTreeMap<&str, _> = BTreeMap::from([
            ("tenants", cluster.owners("tenants").await),
            ("customers", cluster.owners("customers").await),
        ]);
        for record in cluster.catalog.shards().await.unwrap() {
            let on = record.id.as_str();
            let things = cluster
                .rows(on, |d| format!("SELECT dataset, tenant, id, n, body FROM {}", d.own_table("thing")))
                .await;
            for row in things {
                let table = if row.int(0).unwrap() == 1 { "thing" } else { "other" };
                let (tenant, id) = (row.int(1).unwrap(), row.int(2).unwrap());
                assert_eq!(row.text(4).unwrap(), format!("body of {tenant} ä {id}"));
                let twice = found.insert((table, tenant, id), row.int(3).unwrap());
                assert_eq!(twice, None, "{table} {tenant} {id} is found twice, on {on} too");
                assert_owner(&owners["tenants"], &tenants(), tenant, on);
            }
            let entries = cluster
                .rows(on, |_| "SELECT customer, id, CAST(amount AS bigint) FROM entry".to_owned())
                .await;
            for row in entries {
                let (customer, id) = (row.int(0).unwrap(), row.int(1).unwrap());
                let twice = found.insert(("entry", customer, id), row.int(2).unwrap());
                assert_eq!(twice, None, "entry {customer} {id} is found twice, on {on} too");
                assert_owner(&owners["customers"], &customers(), customer, on);
            }
        }
        for (row, state) in self.rows.lock().unwrap().iter() {
            match (state, found.remove(row)) {
                (State::Is(expected), Some(n)) => assert_eq!(n, *expected, "{row:?}"),
                (State::Gone, None) | (State::Unknown, _) => {}
                (state, found) => panic!("{row:?} should be {state:?} and is {found:?}"),
            }
        }
        assert_eq!(found, BTreeMap::new(), "rows that nobody wrote");
    }
}

fn assert_owner(
    owners: &BTreeMap<polyshard_map::KeyRange, polyshard_map::ShardId>,
    definition: &MapDefinition,
    key: i64,
    on: &str,
) {
    let placement = definition.placement(&Key::BigInt(key)).unwrap();
    let owner = owners.iter().find(|(range, _)| range.contains(placement.as_slice())).map(|(_, owner)| owner);
    assert_eq!(owner.map(|owner| owner.as_str()), Some(on), "key {key} of {}", definition.name());
}

async fn write(
    router: &Router,
    ticket: &Ticket,
    row: RowId,
    deed: Deed,
) -> Result<(), polyshard_engine::Error> {
    let dialect = ticket.dialect();
    if deed == Deed::Put {
        let tables: &[&str] = if row.0 == "entry" { &["account", "entry"] } else { &[row.0] };
        for table in tables {
            let bind = router.bind(ticket, &dataset(dialect, table)).await;
            bind.map_err(|error| polyshard_engine::Error::Unavailable { message: error.to_string() })?;
        }
    }
    ticket.write(statements(dialect, row, deed).into_iter().collect::<Batch>()).await.map(drop)
}

/// What a writer does to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Put,
    Change(i64),
    Delete,
}

fn statements(dialect: Dialect, (table, tenant, id): RowId, deed: Deed) -> Vec<Statement> {
    let own = dialect.own_table("thing");
    let number = if table == "thing" { 1 } else { 2 };
    let one = |sql: &str| Statement::new(sql.to_owned());
    let statement = match (table == "entry", deed) {
        (false, Deed::Put) => {
            let placement = tenants().placement(&Key::BigInt(tenant)).unwrap().into_vec();
            let sql = format!(
                "INSERT INTO {own} (dataset, tenant, id, placement, n, body) VALUES ($1, $2, $3, $4, 0, $5)"
            );
            let body = format!("body of {tenant} ä {id}");
            one(&sql).bind(number).bind(tenant).bind(id).bind(placement).bind(body)
        }
        (false, Deed::Change(n)) => {
            let sql = format!(
                "UPDATE {own} SET n = n + 1 WHERE dataset = $1 AND tenant = $2 AND id = $3 AND n = $4"
            );
            one(&sql).bind(number).bind(tenant).bind(id).bind(n)
        }
        (false, Deed::Delete) => {
            let sql = format!("DELETE FROM {own} WHERE dataset = $1 AND tenant = $2 AND id = $3");
            one(&sql).bind(number).bind(tenant).bind(id)
        }
        (true, Deed::Put) => {
            let account = "INSERT INTO account (customer, id, note) VALUES ($1, $2, 'n') \
                           ON CONFLICT (customer, id) DO NOTHING";
            let entry = "INSERT INTO entry (customer, account, id, amount) VALUES ($1, $2, $3, 0)";
            return vec![
                one(account).bind(tenant).bind(id % 3),
                one(entry).bind(tenant).bind(id % 3).bind(id).expect(Expect::Rows(1)),
            ];
        }
        (true, Deed::Change(_)) => {
            let sql = "UPDATE entry SET amount = amount + 1, at = '2026-11-15 12:00:00+00' \
                       WHERE customer = $1 AND account = $2 AND id = $3";
            one(sql).bind(tenant).bind(id % 3).bind(id)
        }
        (true, Deed::Delete) => {
            let sql = "DELETE FROM entry WHERE customer = $1 AND account = $2 AND id = $3";
            one(sql).bind(tenant).bind(id % 3).bind(id)
        }
    };
    vec![statement.expect(Expect::Rows(1))]
}

fn definition(table: &str) -> MapDefinition {
    if table == "entry" { customers() } else { tenants() }
}

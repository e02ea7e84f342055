//! The endpoints of the stores: all are bound before any serves, and every store runs, whether it has one open or not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_schema::{Journal, Keeper};
use polyshard_shard::StoreSchema;
use polyshard_store::{Endpoint, Handler, Host, Kit, PeriodicTask, Started, Store};
use polyshard_wire::{Limits, Listener, Served, Shutdown};
use tokio::task::JoinHandle;

use crate::RunOptions;
use crate::config::Config;
use crate::error::ServerError;
use crate::sql_door;
use crate::stores::STORES;
use crate::watch::DoorCounters;

/// The tables that the stores keep on every shard.
pub(crate) fn schemas() -> Vec<StoreSchema> {
    let stores = STORES.0.iter().filter_map(|store| store.schema).map(|schema| schema());
    std::iter::once(polyshard_schema::schema()).chain(stores).collect()
}

/// The listeners of the endpoints that are open, before anybody serves them.
pub(crate) struct Bound(Vec<(&'static Endpoint, Listener)>);

/// The stores that run, and the endpoints that are open.
pub(crate) struct Doors {
    tasks: Vec<JoinHandle<Served>>,
    upkeep: Vec<PeriodicTask>,
    /// What keeps tables alike on all shards, and its tasks.
    pub(crate) journal: Arc<Journal>,
    keeper: Option<Keeper>,
    /// What each endpoint counts.
    pub(crate) counters: Vec<DoorCounters>,
    /// Name → address.
    pub(crate) addresses: BTreeMap<String, String>,
}

impl Bound {
    /// Binds all endpoints that the configuration has open. If one cannot be, none stays bound.
    pub(crate) async fn bind(config: &Config) -> Result<Bound, ServerError> {
        let mut bound = Vec::new();
        for endpoint in STORES.0.iter().flat_map(|store| store.endpoints) {
            if let Some(listen) = config.stores.listen(endpoint.name) {
                let listener = Listener::bind(endpoint.name, listen, Limits::default()).await?;
                bound.push((endpoint, listener));
            }
        }
        Ok(Bound(bound))
    }

    fn take(&mut self, endpoint: &Endpoint) -> Option<Listener> {
        let at = self.0.iter().position(|(bound, _)| bound.name == endpoint.name)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl Doors {
    /// Starts all stores, and then serves the endpoints. They close when the shutdown starts.
    pub(crate) fn open(
        mut bound: Bound,
        config: &Config,
        options: &RunOptions,
        host: &Arc<Host>,
        shutdown: &Shutdown,
    ) -> Result<Doors, ServerError> {
        let journal = sql_door::journal(host.router(), host.driver());
        let mut started: Vec<(&'static Store, Started)> = Vec::new();
        for store in STORES.0.iter().copied() {
            if let Some(start) = store.start {
                started.push((store, start(Kit::new(host, store))?));
            }
        }
        // SQL calls the others in its transactions, and so comes last.
        let (sql, address) = sql_door::start(config, options, host, &journal, &started)?;
        started.push(sql);
        let mut doors = Doors {
            tasks: Vec::new(),
            upkeep: Vec::new(),
            journal: journal.clone(),
            keeper: Some(journal.keep_up()),
            counters: Vec::new(),
            addresses: BTreeMap::new(),
        };
        for (store, started) in started {
            for (endpoint, handler) in store.endpoints.iter().zip(started.handlers) {
                if let Some(listener) = bound.take(endpoint) {
                    doors.serve(endpoint.name, listener, handler, shutdown);
                }
            }
            doors.upkeep.extend(started.jobs);
        }
        address.show(&mut doors.addresses);
        Ok(doors)
    }

    fn serve(&mut self, name: &str, listener: Listener, handler: Handler, shutdown: &Shutdown) {
        self.counters.push((name.to_owned(), listener.counters()));
        self.addresses.insert(name.to_owned(), format!("{}://{}", handler.scheme, listener.address()));
        self.tasks.push(tokio::spawn(handler.serve(listener, shutdown.clone())));
    }

    /// Waits until all endpoints are closed.
    pub(crate) async fn closed(self) {
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a front door failed");
            }
        }
        for rounds in self.upkeep {
            rounds.stop().await;
        }
        if let Some(keeper) = self.keeper {
            keeper.stop().await;
        }
        self.journal.close().await;
    }
}

/// The time in ticks of 100 ns since 1970.
pub(crate) fn ticks() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos() / 100).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::Bound;
    use crate::config::load;
    use crate::error::ServerError;

    #[tokio::test]
    async fn if_one_endpoint_cannot_be_bound_none_stays_bound() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let flag = |path: &str, value: String| (path.to_owned(), value);
        let flags = [
            flag("sql.open", "false".to_owned()),
            flag("blob.listen", "127.0.0.1:0".to_owned()),
            flag("queue.listen", free.to_string()),
            flag("table.listen", taken.local_addr().unwrap().to_string()),
        ];
        let config = load(None, Vec::new(), &flags).unwrap().config;
        let Some(ServerError::Bind(refused)) = Bound::bind(&config).await.err() else {
            panic!("an address that is taken is not bound");
        };
        assert!(refused.to_string().contains(&taken.local_addr().unwrap().to_string()), "{refused}");
        TcpListener::bind(free).expect("what was bound before is given up");
    }
}

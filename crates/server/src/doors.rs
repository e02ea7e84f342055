//! The front doors: which stores are served where.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_azure_http::{
    Accounts, DEVELOPMENT_KEY, Door, Limits, Service, Surroundings, Timestamp, Transport,
};
use polyshard_catalog::Driver;
use polyshard_router::{Rounds, Router};
use polyshard_shard::StoreSchema;
use polyshard_store_queue::{QueueService, QueueStore};
use polyshard_store_table::{TableService, TableStore};
use polyshard_wire::{Limits as ListenerLimits, Listener, Served, Shutdown};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::RunOptions;
use crate::config::Config;
use crate::error::ServerError;

/// The tables that the stores keep on every shard.
pub(crate) fn schemas() -> Vec<StoreSchema> {
    vec![polyshard_store_queue::schema(), polyshard_store_table::schema()]
}

/// The doors that are open, and what keeps their stores tidy.
pub(crate) struct Doors {
    tasks: Vec<JoinHandle<Served>>,
    upkeep: Vec<Rounds>,
    /// Name → address.
    pub(crate) addresses: BTreeMap<String, String>,
}

impl Doors {
    /// Opens the doors that the configuration asks for. They close when the shutdown starts.
    pub(crate) async fn open(
        config: &Config,
        options: &RunOptions,
        router: &Arc<Router>,
        driver: &Arc<Driver>,
        shutdown: &Shutdown,
    ) -> Result<Doors, ServerError> {
        let mut doors = Doors { tasks: Vec::new(), upkeep: Vec::new(), addresses: BTreeMap::new() };
        let accounts = Arc::new(accounts(config, options)?);
        if let Some(listen) = config.queue {
            let random = Arc::new(rand::random::<u64>);
            let store = Arc::new(QueueStore::new(router.clone(), driver.clone(), Arc::new(ticks), random));
            doors.upkeep.push(store.keep_tidy());
            let service = Arc::new(QueueService::new(store));
            doors.serve("queue", listen, service, accounts.clone(), shutdown).await?;
        }
        if let Some(listen) = config.table {
            let store = Arc::new(TableStore::new(router.clone(), driver.clone(), Arc::new(ticks)));
            doors.upkeep.push(store.keep_tidy());
            let service = Arc::new(TableService::new(store));
            doors.serve("table", listen, service, accounts, shutdown).await?;
        }
        Ok(doors)
    }

    async fn serve(
        &mut self,
        name: &str,
        listen: SocketAddr,
        service: Arc<dyn Service>,
        accounts: Arc<Accounts>,
        shutdown: &Shutdown,
    ) -> Result<(), ServerError> {
        let listener = Listener::bind(name, listen, ListenerLimits::default()).await?;
        self.addresses.insert(name.to_owned(), format!("http://{}", listener.address()));
        let door = Door {
            service,
            accounts,
            surroundings: Arc::new(Machine),
            transport: Transport::Plain,
            limits: Limits::default(),
        };
        self.tasks.push(tokio::spawn(polyshard_azure_http::serve(listener, shutdown.clone(), door)));
        Ok(())
    }

    /// Waits until all doors are closed.
    pub(crate) async fn closed(self) {
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a front door failed");
            }
        }
        for rounds in self.upkeep {
            rounds.stop().await;
        }
    }
}

/// The account of the Azure Storage doors.
fn accounts(config: &Config, options: &RunOptions) -> Result<Accounts, ServerError> {
    let key = config.azure.key.resolve(|name| options.variable(name))?;
    let key = key.as_ref().map_or(DEVELOPMENT_KEY, |key| key.reveal());
    let mut accounts = Accounts::new();
    accounts
        .add(&config.azure.account, key, None)
        .map_err(|error| ServerError::Config(format!("azure.account {}: {error}", config.azure.account)))?;
    Ok(accounts)
}

/// The machine's clock and randomness.
struct Machine;

impl Surroundings for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(ticks()).expect("the machine's clock is within the calendar")
    }

    fn request_id(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// The time in ticks of 100 ns since 1970.
fn ticks() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos() / 100).unwrap_or(i64::MAX)
}

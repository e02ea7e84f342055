//! The front doors: which stores are served where.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_azure_storage::{
    Accounts, DEVELOPMENT_KEY, Door, Limits, Service, Surroundings, Timestamp, Transport,
};
use polyshard_schema::{Journal, Keeper};
use polyshard_shard::StoreSchema;
use polyshard_store::{Host, Kit, PeriodicTask};
use polyshard_store_queue::{QueueService, QueueStore};
use polyshard_store_table::{TableService, TableStore};
use polyshard_wire::{Limits as ListenerLimits, Listener, Served, Shutdown};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::RunOptions;
use crate::config::{Config, SecretSource};
use crate::enlist::OtherStores;
use crate::error::ServerError;
use crate::sql_door;
use crate::stores::STORES;
use crate::watch::DoorCounters;

/// The tables that the stores keep on every shard.
pub(crate) fn schemas() -> Vec<StoreSchema> {
    let stores = STORES.0.iter().filter_map(|store| store.schema).map(|schema| schema());
    std::iter::once(polyshard_schema::schema()).chain(stores).collect()
}

/// The doors that are open, and what keeps their stores tidy.
pub(crate) struct Doors {
    tasks: Vec<JoinHandle<Served>>,
    upkeep: Vec<PeriodicTask>,
    /// What keeps tables alike on all shards, and its tasks.
    pub(crate) journal: Arc<Journal>,
    keeper: Option<Keeper>,
    /// What each counts.
    pub(crate) counters: Vec<DoorCounters>,
    /// Name → address.
    pub(crate) addresses: BTreeMap<String, String>,
}

impl Doors {
    /// Opens the doors that the configuration asks for. They close when the shutdown starts.
    pub(crate) async fn open(
        config: &Config,
        options: &RunOptions,
        host: &Arc<Host>,
        shutdown: &Shutdown,
    ) -> Result<Doors, ServerError> {
        let journal = sql_door::journal(host.router(), host.driver());
        let mut doors = Doors {
            tasks: Vec::new(),
            upkeep: Vec::new(),
            journal: journal.clone(),
            keeper: None,
            counters: Vec::new(),
            addresses: BTreeMap::new(),
        };
        let (accounts, well_known) = accounts(config, options)?;
        let (accounts, transport) = (Arc::new(accounts), transport(config)?);
        let mut stores = OtherStores { queues: None, tables: None, azure: config.azure.clone() };
        if let Some(listen) = config.queue {
            let store = Arc::new(QueueStore::new(Kit::new(host, &polyshard_store_queue::STORE)));
            doors.upkeep.push(store.keep_tidy());
            stores.queues = Some(store.clone());
            let service = Arc::new(QueueService::new(store));
            let door = azure_door(service, &accounts, &transport);
            doors.serve("queue", listen, door, well_known.as_ref(), shutdown).await?;
        }
        if let Some(listen) = config.table {
            let store = Arc::new(TableStore::new(Kit::new(host, &polyshard_store_table::STORE)));
            doors.upkeep.push(store.keep_tidy());
            stores.tables = Some(store.clone());
            let service = Arc::new(TableService::new(store));
            let door = azure_door(service, &accounts, &transport);
            doors.serve("table", listen, door, well_known.as_ref(), shutdown).await?;
        }
        if let Some(sql) = &config.sql {
            let door = sql_door::door(sql, options, host, &journal, stores)?;
            doors.upkeep.push(door.keep_outcomes());
            let listener = Listener::bind("sql", sql.listen, ListenerLimits::default()).await?;
            let (user, address) = (&sql.user, listener.address());
            doors.counters.push(("sql".to_owned(), listener.counters()));
            doors.addresses.insert("sql".to_owned(), format!("postgres://{user}@{address}/{}", sql.database));
            doors.tasks.push(tokio::spawn(door.serve(listener, shutdown.clone())));
        }
        doors.keeper = Some(journal.keep_up());
        Ok(doors)
    }

    async fn serve(
        &mut self,
        name: &str,
        listen: SocketAddr,
        door: Door,
        well_known: Option<&String>,
        shutdown: &Shutdown,
    ) -> Result<(), ServerError> {
        check_key(listen, well_known)?;
        let listener = Listener::bind(name, listen, ListenerLimits::default()).await?;
        let scheme = if matches!(door.transport, Transport::Plain) { "http" } else { "https" };
        self.counters.push((name.to_owned(), listener.counters()));
        self.addresses.insert(name.to_owned(), format!("{scheme}://{}", listener.address()));
        self.tasks.push(tokio::spawn(polyshard_azure_storage::serve(listener, shutdown.clone(), door)));
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
        if let Some(keeper) = self.keeper {
            keeper.stop().await;
        }
        self.journal.close().await;
    }
}

/// Rejects the well-known key at a listener that others can reach.
fn check_key(listen: SocketAddr, well_known: Option<&String>) -> Result<(), ServerError> {
    match well_known.filter(|_| !listen.ip().is_loopback()) {
        None => Ok(()),
        Some(name) => Err(ServerError::Config(format!(
            "account {name} has the emulators' well-known key, which opens doors on loopback addresses only; give it \
             a key of its own, made with 'openssl rand -base64 64'"
        ))),
    }
}

fn azure_door(service: Arc<dyn Service>, accounts: &Arc<Accounts>, transport: &Transport) -> Door {
    Door {
        service,
        accounts: accounts.clone(),
        surroundings: Arc::new(Machine),
        transport: transport.clone(),
        limits: Limits::default(),
    }
}

/// The accounts of the Azure Storage doors. A key given in words that are the well-known ones is as public as they are.
/// Also tells which account has one of these.
fn accounts(config: &Config, options: &RunOptions) -> Result<(Accounts, Option<String>), ServerError> {
    let (mut accounts, mut well_known) = (Accounts::new(), None);
    for account in &config.azure.accounts {
        let resolve = |source: &SecretSource| source.resolve(|name| options.variable(name));
        let (key, key2) = (resolve(&account.key)?, resolve(&account.key2)?);
        let key = key.as_ref().map_or(DEVELOPMENT_KEY, |key| key.reveal());
        let key2 = key2.as_ref().map(|key| key.reveal());
        if key == DEVELOPMENT_KEY || key2 == Some(DEVELOPMENT_KEY) {
            well_known = Some(account.name.clone());
        }
        accounts
            .add(&account.name, key, key2)
            .map_err(|error| ServerError::Config(format!("account {}: {error}", account.name)))?;
    }
    Ok((accounts, well_known))
}

/// How the Azure Storage doors are spoken to.
fn transport(config: &Config) -> Result<Transport, ServerError> {
    let Some(tls) = &config.azure.tls else { return Ok(Transport::Plain) };
    let read = |path: &Path| {
        let read = std::fs::read(path);
        read.map_err(|error| ServerError::Config(format!("{} cannot be read: {error}", path.display())))
    };
    let (certificate, key) = (read(&tls.certificate)?, read(&tls.key)?);
    Transport::tls_from_pem(&certificate, &key).map_err(|error| {
        let (certificate, key) = (tls.certificate.display(), tls.key.display());
        ServerError::Config(format!(
            "the certificate {certificate} and its key {key} cannot be used: {error}"
        ))
    })
}

/// The machine's clock and randomness.
struct Machine;

impl Surroundings for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(ticks()).expect("the machine's clock is within the calendar")
    }

    fn request_id(&self) -> Uuid {
        // Not `new_v4`, which asks the kernel each time.
        uuid::Builder::from_random_bytes(rand::random()).into_uuid()
    }
}

/// The time in ticks of 100 ns since 1970.
pub(crate) fn ticks() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos() / 100).unwrap_or(i64::MAX)
}

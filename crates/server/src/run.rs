//! Starts everything in order, says so, waits for a signal, and ends everything in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use polyshard_admin::{Auth, DEVELOPMENT_TOKEN, PageFile};
use polyshard_catalog::{
    Catalog, CatalogError, Driver, FenceLimits, NewShard, PasswordSource, Resolver, Texts,
};
use polyshard_engine::Options;
use polyshard_mover::Mover;
use polyshard_router::{Router, RouterOptions};
use polyshard_shard::{RouterId, ShardOptions};
use polyshard_store::{Host, HostParts};
use polyshard_wire::{Limits, Listener, Shutdown};
use polyshard_workflow::{Procedures, RunnerOptions};
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use crate::archives::{Hands, Keeper};
use crate::backups::{self, Scheduling, Taking};
use crate::config::{Config, ShardConfig};
use crate::data_dir::DataDir;
use crate::doors::{Bound, Doors};
use crate::error::ServerError;
use crate::operator::{ArchiveDoor, Bearers, Operations};
use crate::stores::STORES;
use crate::traces::Traces;
use crate::watch::{Sources, SqlClient, Watcher};
use crate::{RunOptions, checking, connect, doors, failpoint, logging, rebalancing, sql_door};

/// A request that waits for a fence gives up after so many times the hold limit: a few attempts, and the time
/// that another process needs to take over from one that died.
const WAIT_HOLDS: u32 = 40;

/// Runs a server until it is told to stop.
pub async fn run(config: Config, options: RunOptions) -> Result<(), ServerError> {
    let traces = config.trace.as_ref().map(Traces::new).transpose()?;
    let (export, traces) = traces.unzip();
    logging::start(&config.log, export)?;
    if !config.metrics.count {
        polyshard_meter::switch_off();
    }
    let data = DataDir::open(&config.data)?;
    let token = config.admin.token.resolve(|name| options.variable(name))?;
    let auth =
        Auth::new(token.as_ref().map_or(DEVELOPMENT_TOKEN, |token| token.reveal()), config.admin.listen)?;
    let mut terminate = signals()?;

    let server = Server::start(&config, &options, &data).await?;
    let (trigger, shutdown) = Shutdown::new();
    let opened = async {
        let carriers = crate::stores::carriers(server.host.configured())?;
        let (listener, doors) = open_doors(&config, &options, &server, &shutdown).await?;
        Ok((carriers, listener, doors))
    };
    let (carriers, listener, doors) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            server.stop().await;
            return Err(error);
        }
    };
    let mut addresses = doors.addresses.clone();
    addresses.insert("admin".to_owned(), format!("http://{}", listener.address()));
    let procedures = Procedures::start(RunnerOptions {
        driver: server.driver.clone(),
        router: server.router.clone(),
        journal: doors.journal.clone(),
        failpoint: failpoint::from_variable(|name| options.variable(name)),
    });
    let operator = Arc::new(Operations::new(
        config.clone(),
        addresses.clone(),
        server.catalog.clone(),
        server.host.clone(),
        doors.journal.clone(),
        procedures.clone(),
    ));
    let mut counters = doors.counters.clone();
    counters.push(("admin".to_owned(), listener.counters()));
    let sql = sql_client(&config, &options, addresses.get("sql"))?;
    let sources = Sources { doors: counters, sql, spans: traces.as_ref().map(Traces::counts) };
    let (watcher, watching) =
        Watcher::start(operator.clone(), server.router.clone(), sources, shutdown.clone());
    let sending = traces.map(Traces::start);
    // Weakly, since the watcher has the operator.
    let measured = Arc::downgrade(&watcher);
    operator.set_heat(move || measured.upgrade().map(|watcher| watcher.heat()).unwrap_or_default());
    let balancing =
        tokio::spawn(rebalancing::run(operator.clone(), config.rebalance.clone(), shutdown.clone()));
    let checking = tokio::spawn(checking::run(operator.clone(), config.check_every, shutdown.clone()));
    let shard_options = shard_options(&config);
    let backups = Taking::new(
        server.router.clone(),
        server.catalog.clone(),
        &config,
        &options,
        shard_options,
        carriers.clone(),
    );
    backups.mark_left().await;
    let scheduling = Scheduling::start(&backups);
    let keeper = Keeper::new(server.router.clone(), server.catalog.clone(), &config, &options, carriers);
    procedures.set_archiver(Box::new(Hands(keeper.clone())));
    let archives = ArchiveDoor::new(operator.clone(), keeper);
    let aging = archives.start();
    let auth = auth.with_tokens(Arc::new(Bearers(server.host.clone())));
    let archive_auth = auth.clone();
    let routes = polyshard_admin::router(operator.clone(), auth.clone())
        .merge(polyshard_admin::checker_router(operator.clone(), auth.clone()))
        .merge(polyshard_admin::quota_router(operator.clone(), auth.clone()))
        .merge(polyshard_admin::write_router(operator.clone(), auth.clone()))
        .merge(polyshard_admin::user_router(operator.clone(), auth.clone()))
        .merge(polyshard_admin::balancer_router(operator, auth.clone()))
        .merge(polyshard_admin::watch_router(watcher, auth.clone()))
        .merge(polyshard_admin::backup_router(Arc::new(backups::Door(backups.clone())), auth))
        .merge(polyshard_admin::archive_router(archives, archive_auth))
        .merge(polyshard_admin::page_router(pages()));
    let admin = tokio::spawn(polyshard_admin::serve(listener, shutdown, routes, running_for));

    announce(&config, &addresses, &server.router);
    terminate.recv().await;
    tracing::info!("stopping");
    trigger.start();
    if let Err(error) = admin.await {
        tracing::error!(%error, "the admin door failed");
    }
    if let Err(error) = balancing.await {
        tracing::error!(%error, "rebalancer task failed");
    }
    if let Err(error) = checking.await {
        tracing::error!(%error, "the task that checks failed");
    }
    aging.stop().await;
    procedures.stop().await;
    scheduling.stop().await;
    backups.stop().await;
    doors.closed().await;
    for task in watching {
        if let Err(error) = task.await {
            tracing::error!(%error, "a task that measures failed");
        }
    }
    server.stop().await;
    if let Some(sending) = sending {
        sending.stop().await;
    }
    println!("stopped");
    Ok(())
}

/// The console's way to the SQL door, if that is open.
fn sql_client(
    config: &Config,
    options: &RunOptions,
    address: Option<&String>,
) -> Result<Option<SqlClient>, ServerError> {
    let Some(address) = address else { return Ok(None) };
    let password = sql_door::password(&config.sql, options)?;
    Ok(SqlClient::new(address, &password))
}

/// How long it is since this was asked first.
fn running_for() -> Duration {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}

/// The web console's files.
fn pages() -> impl Iterator<Item = PageFile> {
    polyshard_console::ASSETS.iter().map(|asset| PageFile {
        path: asset.path,
        content_type: asset.content_type,
        bytes: asset.bytes,
    })
}

/// Opens the admin endpoint and those of the stores: all are bound before any serves, so that none is left open if one
/// cannot be.
async fn open_doors(
    config: &Config,
    options: &RunOptions,
    server: &Server,
    shutdown: &Shutdown,
) -> Result<(Listener, Doors), ServerError> {
    let listener = Listener::bind("admin", config.admin.listen, Limits::default()).await?;
    let bound = Bound::bind(config).await?;
    let doors = Doors::open(bound, config, options, &server.host, shutdown)?;
    Ok((listener, doors))
}

/// The parts behind the front doors.
struct Server {
    catalog: Arc<Catalog>,
    router: Arc<Router>,
    driver: Arc<Driver>,
    host: Arc<Host>,
    resolver: Resolver,
}

impl Server {
    async fn start(config: &Config, options: &RunOptions, data: &DataDir) -> Result<Server, ServerError> {
        let target = connect::catalog(config, options)?;
        let engine = engine_options(config);
        // A new name for every start: leases of an earlier life are somebody else's.
        let owner = format!("process {} ({})", std::process::id(), Uuid::new_v4());
        let catalog = Arc::new(Catalog::new(target, engine.clone(), owner, Arc::new(Uuid::new_v4)));
        let router_options = RouterOptions {
            router: RouterId::new(rand::random()),
            shard: shard_options(config),
            hold_max: config.router.hold_max * 2 + Duration::from_secs(1),
            wait_max: config.router.hold_max * WAIT_HOLDS,
            poll: config.router.poll,
            saved: config.router.snapshot.then(|| data.path().join("map-snapshot.json")),
        };
        let connect = connect::shards(config, options);
        let router = Arc::new(Router::start(catalog.clone(), connect, router_options).await?);
        let hold = config.router.hold_max;
        let limits = FenceLimits { silent: hold / 2, hold };
        let failpoint = failpoint::from_variable(|name| options.variable(name));
        let driver = Arc::new(Driver::new(catalog.clone(), router.shard_source(), limits, failpoint));
        let served = router.clone();
        let mover = Mover::new(router.shard_source())
            .paced(Arc::new(move || served.requests()), config.move_busy_share);
        driver.set_carrier(Arc::new(mover));
        if router.status().fresh
            && let Err(error) = first_shards(config, &catalog, &router, &driver).await
        {
            driver.close().await;
            router.close().await;
            catalog.close().await;
            return Err(error);
        }
        let resolver = Resolver::start(driver.clone());
        let host = Host::new(HostParts {
            stores: STORES,
            router: router.clone(),
            driver: driver.clone(),
            clock: Arc::new(doors::ticks),
            random: Arc::new(rand::random::<u64>),
        });
        let host = host.with_options(crate::stores::configured(config, options, &config.data));
        Ok(Server { catalog, router, driver, host: Arc::new(host), resolver })
    }

    async fn stop(self) {
        self.resolver.stop().await;
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }
}

/// Gives a new catalog the shards of the configuration.
async fn first_shards(
    config: &Config,
    catalog: &Arc<Catalog>,
    router: &Arc<Router>,
    driver: &Arc<Driver>,
) -> Result<(), ServerError> {
    if !catalog.shards().await?.is_empty() {
        return Ok(());
    }
    let mut all = Vec::new();
    for shard in &config.shards {
        let new = new_shard(shard);
        let opened = router.open_candidate(&new.candidate()).await;
        let opened = opened.map_err(|error| CatalogError::Shard { shard: shard.id.clone(), error })?;
        all.push((new, opened));
    }
    // Before the first is taken in: a cluster of some of them is not what was asked for.
    let mut first = None;
    for (_, opened) in &all {
        let Some(texts) = Texts::of(opened).await? else { continue };
        texts.check_like(first.get_or_insert_with(|| texts.clone()))?.tell();
    }
    for (new, opened) in all {
        match driver.add_shard(new, &opened).await {
            Ok(record) => router.adopt(record, opened).await,
            // Another process of the cluster started at the same time.
            Err(CatalogError::Exists(_)) => opened.close().await,
            Err(error) => return Err(error.into()),
        }
    }
    router.refresh().await?;
    Ok(())
}

fn new_shard(shard: &ShardConfig) -> NewShard {
    NewShard {
        id: shard.id.clone(),
        url: shard.url.clone(),
        password: PasswordSource::Config,
        server: shard.server.clone(),
        region: shard.region.clone(),
        tier: shard.tier.clone(),
        limits: polyshard_catalog::ShardLimits {
            bytes_max: shard.limits.bytes_max.map(Into::into),
            connections_max: shard.limits.connections_max.map(Into::into),
            shardlets_max: shard.limits.shardlets_max.map(Into::into),
        },
    }
}

fn shard_options(config: &Config) -> ShardOptions {
    ShardOptions { data: engine_options(config), stores: doors::schemas(), ..ShardOptions::default() }
}

fn engine_options(config: &Config) -> Options {
    let options = Options {
        sqlite_readers: config.engine.sqlite_readers,
        postgres_pool_max: config.engine.postgres_pool_max,
        queue_max: config.engine.queue_max,
        statement_cache_max: config.engine.statement_cache_max,
        postgres_raw_max: config.sql.listen.map_or(1, |_| config.sql.sessions_max),
        ..Options::default()
    };
    polyshard_store_sql::with_functions(options)
}

/// SIGTERM and SIGINT, in one channel.
fn signals() -> Result<tokio::sync::mpsc::Receiver<()>, ServerError> {
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let asked = Arc::new(AtomicBool::new(false));
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)
            .map_err(|error| ServerError::System(format!("signals cannot be received: {error}")))?;
        let (send, asked) = (send.clone(), asked.clone());
        // Ends with the process: there is nothing to wait for.
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if asked.swap(true, Ordering::SeqCst) {
                    // The first is being obeyed; who asks twice does not want to wait.
                    std::process::exit(130);
                }
                // The channel has room for the one.
                let _ = send.try_send(());
            }
        });
    }
    Ok(receive)
}

/// Tells people and programs where the front doors are, and that they are open.
fn announce(config: &Config, doors: &BTreeMap<String, String>, router: &Router) {
    let view = router.view();
    println!("polyshard {}  data {}", env!("CARGO_PKG_VERSION"), config.data.display());
    for (door, address) in doors {
        println!("  {door:<9}{address}");
    }
    let (shards, maps) = (view.shards.len(), view.maps.len());
    println!("ready: {} and {}", count(shards, "shard"), count(maps, "map"));
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

//! The configuration: one TOML file, overridden by the environment, overridden by flags; every mistake is reported.
//!
//! Nothing here reads the environment or a file by itself: [`load`] takes what was read.

mod backup;
mod build;
mod document;
mod error;
mod options;
mod settings;
mod shard_secrets;
mod sql;
mod stores;
mod toml_file;
mod trace;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use polyshard_map::{MapName, ShardId};
use polyshard_store::OptionValues;

pub use document::reference;
pub use error::{ConfigError, ConfigErrors, Origin};
pub use options::{BACKUP_OPTIONS, ENV_PREFIX, Kind, OPTIONS, OptionSpec, SHARD_OPTIONS};
pub use polyshard_store::{SECRET_BYTES_MAX, SecretError, SecretSource};
pub use settings::Settings;
pub use shard_secrets::{NotForShards, ShardSecrets};

/// Everything a server process is told before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where embedded shards, the catalog and the snapshot are kept.
    pub data: PathBuf,
    /// Which processes there are.
    pub cluster: ClusterConfig,
    /// The catalog.
    pub catalog: CatalogConfig,
    /// The shards that a new catalog starts with, and whose passwords come from here.
    pub shards: Vec<ShardConfig>,
    /// Where passwords of shards may be that operators add.
    pub shard_secrets: ShardSecrets,
    /// The admin API.
    pub admin: AdminConfig,
    /// What stores and their families declare.
    pub stores: OptionValues,
    /// SQL, which is more than a store: it opens sessions of its own.
    pub sql: SqlConfig,
    /// Backups.
    pub backup: BackupConfig,
    /// The router.
    pub router: RouterConfig,
    /// Load that is evened out by itself.
    pub rebalance: RebalanceConfig,
    /// How much of the time a move works while requests are served, in percent.
    pub move_busy_share: u32,
    /// How often the checker runs by itself; never if zero.
    pub check_every: Duration,
    /// The databases.
    pub engine: EngineConfig,
    /// What is logged and how.
    pub log: LogConfig,
    /// What is counted.
    pub metrics: MetricsConfig,
    /// Where traces go, if requests are traced.
    pub trace: Option<TraceConfig>,
}

/// Which processes there are.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterConfig {
    /// Promises that no other server process uses a PostgreSQL catalog, so that SQLite shards may be used with it.
    pub single_process: bool,
}

/// The catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogConfig {
    /// Its address, without a password; an SQLite path is relative to the data directory.
    pub url: String,
    /// Its password.
    pub password: SecretSource,
}

/// One shard.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardConfig {
    /// Its id.
    pub id: ShardId,
    /// Its address, without a password; an SQLite path is relative to the data directory.
    pub url: String,
    /// Its password.
    pub password: SecretSource,
    /// The region it is in.
    pub region: Option<String>,
    /// The tier it belongs to.
    pub tier: Option<String>,
    /// The machine it is on.
    pub server: Option<String>,
    /// How much it may take.
    pub limits: ShardLimits,
}

/// How much a shard may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardLimits {
    /// Bytes of data.
    pub bytes_max: Option<NonZeroU64>,
    /// Database connections of one server process.
    pub connections_max: Option<NonZeroU64>,
    /// Shardlets that may be placed here.
    pub shardlets_max: Option<NonZeroU64>,
}

/// The admin API.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its token; [`SecretSource::None`] is the development token, accepted on loopback only.
    pub token: SecretSource,
}

/// Where a certificate and its key are, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// The certificate, and those of its issuers.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The SQL door.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlConfig {
    /// Where it listens, if it is open.
    pub listen: Option<SocketAddr>,
    /// The user who may come in.
    pub user: String,
    /// His password; [`SecretSource::None`] is the development password, accepted on loopback only.
    pub password: SecretSource,
    /// What the database is called.
    pub database: String,
    /// With it, clients may ask for encryption.
    pub tls: Option<TlsConfig>,
    /// Whether they must.
    pub require_tls: bool,
    /// How long a transaction may wait for its client.
    pub idle_in_transaction: Duration,
    /// Sessions to each PostgreSQL shard.
    pub sessions_max: usize,
    /// What happens to tables that nobody has declared.
    pub undeclared: polyshard_store_sql::Undeclared,
}

/// Backups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupConfig {
    /// Where they are kept unless one is told otherwise.
    pub to: Option<String>,
    /// When they are taken without being asked for.
    pub schedules: Vec<ScheduleConfig>,
}

/// A schedule of backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// The class of criticality.
    pub class: String,
    /// From one to the next.
    pub every: Duration,
    /// How many are kept.
    pub keep: usize,
    /// Only shards of this tier.
    pub tier: Option<String>,
    /// Only shards that hold keys of this map.
    pub map: Option<MapName>,
}

/// The router.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterConfig {
    /// How long a request may wait at a fence.
    pub hold_max: Duration,
    /// How often the catalog is asked for changes, beside its notifications.
    pub poll: Duration,
    /// Whether the map is saved, to start from when the catalog is unreachable.
    pub snapshot: bool,
    /// Shards one fan-out asks at once.
    pub fanout_concurrency_max: usize,
    /// How long one shard may take in a fan-out.
    pub shard_deadline: Duration,
    /// How long a whole fan-out may take.
    pub overall_deadline: Duration,
}

/// Load that is evened out by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebalanceConfig {
    /// Whether it is.
    pub auto: bool,
    /// How often load is looked at.
    pub every: Duration,
    /// The hours in which moves may be begun, as minutes of the day in UTC; they may go over midnight.
    pub hours: (u32, u32),
    /// How long what was moved stays where it is.
    pub cooldown: Duration,
    /// Moves made in one go.
    pub moves_max: usize,
    /// How far a shard may be above the mean, in percent.
    pub slack_percent: u64,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Whether requests are.
    pub count: bool,
}

/// The databases.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineConfig {
    /// Idle read connections kept for each SQLite database.
    pub sqlite_readers: usize,
    /// Sessions for transactions and scans to each PostgreSQL database.
    pub postgres_pool_max: usize,
    /// Write batches that may wait for each database's writer.
    pub queue_max: usize,
    /// Prepared statements kept for each connection.
    pub statement_cache_max: usize,
}

/// What is logged and how.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// A level, or directives such as `info,polyshard_router=debug`.
    pub level: String,
    /// For people or for programs.
    pub format: LogFormat,
}

/// Traces of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// The address that takes them.
    pub endpoint: String,
    /// How they are written.
    pub protocol: TraceProtocol,
    /// How many of all requests are traced, from 0 to 1.
    pub sample: f64,
}

/// How traces are written for the collector, in the words of OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    /// `http/protobuf`.
    Protobuf,
    /// `http/json`.
    Json,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The text of a configuration file and the name to call it by.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// For messages.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// A configuration and where each value came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The checked values.
    pub config: Config,
    /// Every option with its value and origin; secrets are not among the values.
    pub settings: Settings,
}

/// Reads, overrides and checks: flags (option path, value) over environment over file over defaults.
pub fn load(
    file: Option<File<'_>>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &[(String, String)],
) -> Result<Loaded, ConfigErrors> {
    let mut settings = Settings::defaults();
    let mut errors = ConfigErrors::default();
    if let Some(file) = file {
        settings.read_file(file, &mut errors);
    }
    settings.read_environment(environment, &mut errors);
    settings.read_flags(flags, &mut errors);
    let config = build::build(&settings, &mut errors);
    match config {
        Some(config) if errors.is_empty() => Ok(Loaded { config, settings }),
        _ => Err(errors.sorted()),
    }
}

#[cfg(test)]
mod tests;

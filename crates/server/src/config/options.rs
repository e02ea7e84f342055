//! Every option once: the parser, the suggestions, the defaults and `docs/config.md` are made from these lists.

use std::sync::LazyLock;

use polyshard_store::ListSpec;
pub use polyshard_store::{ENV_PREFIX, Kind, OptionSpec};

use crate::stores::STORES;

const fn option(path: &'static str, kind: Kind, default: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec::new(path, kind, default, about)
}

/// A duration in milliseconds: from 1 ms to an hour, beyond which nobody waits on purpose.
const MILLISECONDS: Kind = Kind::Integer { min: 1, max: 3_600_000 };

/// How many of something a process opens or keeps: the upper bound only catches typing errors.
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000 };

/// A limit on a shard.
const LIMIT: Kind = Kind::Integer { min: 1, max: i64::MAX as u64 };

/// Every option outside of the lists.
pub static OPTIONS: LazyLock<Vec<OptionSpec>> =
    LazyLock::new(|| [FIRST_OPTIONS, &STORE_OPTIONS, OTHER_OPTIONS].concat());

/// Those that stores and their families declare.
pub(super) static STORE_OPTIONS: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| STORES.options());

/// The lists of tables that a file may have.
pub(super) static LISTS: LazyLock<Vec<ListSpec>> = LazyLock::new(|| {
    let instead = "write them into the file, with password_env where a password comes from the environment";
    let shards = ListSpec { name: "shards", options: SHARD_OPTIONS, instead };
    let backups = ListSpec { name: "backups", options: BACKUP_OPTIONS, instead: "write them into the file" };
    let declared = STORES.families().into_iter().flat_map(|family| family.lists).copied();
    std::iter::once(shards).chain(declared).chain([backups]).collect()
});

/// The options of a list's tables.
pub(super) fn declared_in(list: &str) -> &'static [OptionSpec] {
    LISTS.iter().find(|known| known.name == list).map_or(&[], |known| known.options)
}

/// The options of what every process has, before those of the stores.
const FIRST_OPTIONS: &[OptionSpec] = &[
    option(
        "data",
        Kind::Path,
        "./polyshard-data",
        "Folder of the embedded shards, the catalog and the saved snapshot.",
    ),
    option(
        "cluster.single_process",
        Kind::Bool,
        "false",
        "Promises that no other server process uses this PostgreSQL catalog; only then may SQLite shards, which belong \
         to one process, be used with it.",
    ),
    option(
        "catalog.url",
        Kind::Url,
        "sqlite:catalog.db",
        "Address of the catalog: `sqlite:path`, relative to `data`, or `postgres://user@host:port/database`.",
    ),
    option("catalog.password", Kind::Secret, "", "Password of the catalog; better use one of the next two."),
    option(
        "catalog.password_env",
        Kind::Variable,
        "",
        "Environment variable that holds the catalog's password.",
    ),
    option("catalog.password_file", Kind::Path, "", "File that holds the catalog's password."),
    option(
        "secrets.shard_variables",
        Kind::Text,
        "POLYSHARD_SHARD_*",
        "Environment variables that operators may name as those with a shard's password (`password_env`), with commas \
         between; `*` at the end of one stands for any end. No other can be named, nor one that holds another secret.",
    ),
    option(
        "secrets.shard_folder",
        Kind::Path,
        "",
        "Folder of the files that operators may name as those with a shard's password (`password_file`). Without it \
         none can be named. `[[shards]]` of this file are free of both.",
    ),
    option(
        "admin.listen",
        Kind::Address,
        "127.0.0.1:7070",
        "Address of the admin API; port 0 takes a free port.",
    ),
    option(
        "admin.token",
        Kind::Secret,
        "",
        "Token of the admin API. Without one it is `polyshard`, which is accepted on loopback addresses only.",
    ),
    option("admin.token_env", Kind::Variable, "", "Environment variable that holds the token."),
    option("admin.token_file", Kind::Path, "", "File that holds the token."),
];

/// The options of the rest of the process.
const OTHER_OPTIONS: &[OptionSpec] = &[
    option(
        "router.hold_ms_max",
        MILLISECONDS,
        "500",
        "How long a request may wait while its range is switched.",
    ),
    option(
        "router.poll_ms",
        MILLISECONDS,
        "1000",
        "How often the catalog is asked for changes, in case a notification was lost; every 500 ms at least.",
    ),
    option(
        "router.snapshot",
        Kind::Bool,
        "true",
        "Keep the last known maps in `data`, to start from when the catalog is unreachable.",
    ),
    option(
        "router.fanout_concurrency_max",
        COUNT,
        "64",
        "Shards that one request over many shards asks at once.",
    ),
    option(
        "router.shard_deadline_ms",
        MILLISECONDS,
        "10000",
        "How long one shard may take in such a request.",
    ),
    option(
        "router.overall_deadline_ms",
        MILLISECONDS,
        "30000",
        "How long such a request may take as a whole.",
    ),
    option(
        "backup.to",
        Kind::Text,
        "",
        "Where backups are kept unless one is told otherwise: a folder from the root, `s3://bucket/prefix` or \
         `az://container/prefix`. Secrets of object stores come from the environment, see [backup.md](backup.md).",
    ),
    option(
        "rebalance.auto",
        Kind::Bool,
        "false",
        "Whether load is evened out by itself, as `polyshard rebalance --apply` would. One process at a time does it.",
    ),
    option(
        "rebalance.every_s",
        Kind::Integer { min: 1, max: 604_800 },
        "3600",
        "How often load is looked at, in seconds. After an attempt that failed it waits longer, up to a day.",
    ),
    option(
        "rebalance.hours",
        Kind::Text,
        "00:00-24:00",
        "The quiet hours in which moves may be begun, in UTC: `22:00-05:30` goes over midnight.",
    ),
    option(
        "rebalance.cooldown_s",
        Kind::Integer { min: 0, max: 31_536_000 },
        "21600",
        "How long keys that were moved by it stay where they are, in seconds, so that nothing goes to and fro.",
    ),
    option("rebalance.moves_max", COUNT, "10", "Moves made in one go."),
    option(
        "rebalance.slack_percent",
        Kind::Integer { min: 1, max: 1000 },
        "20",
        "How far a shard may be above the mean before anything is moved, in percent.",
    ),
    option(
        "moves.busy_share_percent",
        Kind::Integer { min: 1, max: 100 },
        "10",
        "How much of the time a move works while this process serves requests, in percent: it rests after each bite of \
         rows, so that others do not wait for it. Alone, while it carries the last changes, and with 100 it rests \
         never.",
    ),
    option(
        "check.every_s",
        Kind::Integer { min: 0, max: 31_536_000 },
        "0",
        "How often the checker runs by itself, in seconds: 86400 is daily, 0 never. It reads all tables, in one \
         process of the cluster at a time; what it finds is in the log, in the metrics, and in the console as a \
         warning.",
    ),
    option("engine.sqlite_readers", COUNT, "4", "Idle read connections kept for each SQLite database."),
    option(
        "engine.postgres_pool_max",
        COUNT,
        "16",
        "Sessions for transactions and scans to each PostgreSQL database.",
    ),
    option(
        "engine.queue_max",
        COUNT,
        "4096",
        "Writes that may wait for each database; more are told to slow down.",
    ),
    option("engine.statement_cache_max", COUNT, "256", "Prepared statements kept for each connection."),
    option(
        "log.level",
        Kind::Text,
        "info",
        "`error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,polyshard_router=debug`.",
    ),
    option("log.format", Kind::Choice(&["text", "json"]), "text", "Log lines for people or for programs."),
    option(
        "metrics.count",
        Kind::Bool,
        "true",
        "Whether requests are counted and timed. Without, metrics, `hot` and `top` know of none, and load is evened \
         out by size alone.",
    ),
    option(
        "trace.endpoint",
        Kind::Text,
        "",
        "Where a collector of OpenTelemetry takes traces over HTTP, as `http://127.0.0.1:4318`; `/v1/traces` is added \
         if it names no path. Without it nothing is traced.",
    ),
    option(
        "trace.protocol",
        Kind::Choice(&["http/protobuf", "http/json"]),
        "http/protobuf",
        "How traces are written for the collector; every collector takes `http/protobuf`.",
    ),
    option(
        "trace.sample",
        Kind::Ratio,
        "0.01",
        "How many of all requests are traced: 1 all, 0.01 one in a hundred. Those that their client traces are traced \
         in any case, and those that it does not are not.",
    ),
];

/// Every option of one `[[shards]]` table.
pub const SHARD_OPTIONS: &[OptionSpec] = &[
    option(
        "id",
        Kind::Text,
        "",
        "Its name: a lower-case letter, then up to 62 of a-z, 0-9, `_` and `-`. Required.",
    ),
    option("url", Kind::Url, "", "Its address, as for the catalog. Required."),
    option("password", Kind::Secret, "", "Its password; better use one of the next two."),
    option("password_env", Kind::Variable, "", "Environment variable that holds its password."),
    option("password_file", Kind::Path, "", "File that holds its password."),
    option("region", Kind::Text, "", "The region it is in."),
    option("tier", Kind::Text, "", "The tier it belongs to."),
    option("server", Kind::Text, "", "The machine it is on."),
    option("limits.bytes_max", LIMIT, "", "Bytes of data it may hold."),
    option("limits.connections_max", LIMIT, "", "Connections one server process may open to it."),
    option("limits.shardlets_max", LIMIT, "", "Shardlets that may be placed on it."),
];

/// Every option of one `[[backups]]` table: a schedule.
pub const BACKUP_OPTIONS: &[OptionSpec] = &[
    option(
        "class",
        Kind::Text,
        "",
        "The class of criticality it is for: up to 30 lower-case letters, digits and `-`. Names of its backups begin \
         with it. Required.",
    ),
    option(
        "every_seconds",
        Kind::Integer { min: 1, max: 366 * 24 * 3600 },
        "",
        "Seconds from one backup to the next, as 3600. Required.",
    ),
    option("keep", Kind::Integer { min: 1, max: 100_000 }, "", "How many of its backups are kept. Required."),
    option("tier", Kind::Text, "", "Only the shards of this tier; without it, or `map`, everything."),
    option("map", Kind::Text, "", "Only the shards that hold keys of this map."),
];

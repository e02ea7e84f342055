//! From single values to a configuration: the rules that look at more than one value.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use polyshard_engine::{Secret, Target};
use polyshard_map::ShardId;

use super::SecretSource;
use super::error::{ConfigErrors, Origin};
use super::settings::{Setting, Settings, Values};
use super::sql;
use super::{
    AdminConfig, CatalogConfig, ClusterConfig, Config, EngineConfig, LogConfig, LogFormat, MetricsConfig,
    RebalanceConfig, RouterConfig, ShardConfig, ShardLimits, ShardSecrets,
};
use super::{backup, stores, trace};

/// How many embedded shards there are when nobody names any: enough to see data spread, few enough to look into.
const EMBEDDED_SHARDS: u32 = 4;

/// The configuration, or nothing when a value it cannot do without is wrong; every mistake is in `errors`.
pub(super) fn build(settings: &Settings, errors: &mut ConfigErrors) -> Option<Config> {
    let values = &settings.values;
    let (catalog_url, catalog_password) =
        database(values, "catalog.url", "catalog.password", "the catalog", errors);
    let catalog = CatalogConfig { url: catalog_url?, password: catalog_password };
    let shared = is_postgres(&catalog.url) && values.get("cluster.single_process")?.text != "true";
    let shards = match settings.list("shards") {
        Some(shards) => shards.iter().filter_map(|(origin, values)| shard(origin, values, errors)).collect(),
        // A catalog that several processes share cannot start with files of one of them.
        None if is_postgres(&catalog.url) => Vec::new(),
        None => (1..=EMBEDDED_SHARDS).filter_map(embedded_shard).collect(),
    };
    if let Some(listed) = settings.list("shards") {
        check_shards(listed, &catalog.url, shared, errors);
    }
    let shard_secrets = ShardSecrets::build(values, errors)?;
    let admin = AdminConfig {
        listen: values.get("admin.listen")?.text.parse().ok()?,
        token: secret(values, "admin.token", "admin.token_env", "admin.token_file", None, errors),
    };
    check_token(&admin, values.get("admin.listen")?, errors);
    let stores = stores::build(settings, errors);
    let sql = sql::build(values, errors)?;
    let backup = backup::build(settings, errors);
    let trace = trace::build(values, errors)?;
    check_deadlines(values, errors);
    Some(Config {
        data: PathBuf::from(&values.get("data")?.text),
        cluster: ClusterConfig { single_process: values.get("cluster.single_process")?.text == "true" },
        catalog,
        shards,
        shard_secrets,
        admin,
        stores,
        sql,
        backup,
        router: RouterConfig {
            hold_max: milliseconds(values, "router.hold_ms_max")?,
            poll: milliseconds(values, "router.poll_ms")?,
            snapshot: values.get("router.snapshot")?.text == "true",
            fanout_concurrency_max: number(values, "router.fanout_concurrency_max")?,
            shard_deadline: milliseconds(values, "router.shard_deadline_ms")?,
            overall_deadline: milliseconds(values, "router.overall_deadline_ms")?,
        },
        rebalance: RebalanceConfig {
            auto: values.get("rebalance.auto")?.text == "true",
            every: number(values, "rebalance.every_s").map(Duration::from_secs)?,
            hours: hours(values.get("rebalance.hours")?, errors).unwrap_or_default(),
            cooldown: number(values, "rebalance.cooldown_s").map(Duration::from_secs)?,
            moves_max: number(values, "rebalance.moves_max")?,
            slack_percent: number(values, "rebalance.slack_percent")?,
        },
        move_busy_share: number(values, "moves.busy_share_percent")?,
        check_every: number(values, "check.every_s").map(Duration::from_secs)?,
        engine: EngineConfig {
            sqlite_readers: number(values, "engine.sqlite_readers")?,
            postgres_pool_max: number(values, "engine.postgres_pool_max")?,
            queue_max: number(values, "engine.queue_max")?,
            statement_cache_max: number(values, "engine.statement_cache_max")?,
        },
        log: LogConfig {
            level: values.get("log.level")?.text.clone(),
            format: if values.get("log.format")?.text == "json" { LogFormat::Json } else { LogFormat::Text },
        },
        metrics: MetricsConfig { count: values.get("metrics.count")?.text == "true" },
        trace,
    })
}

/// A door, or none if it is not to be opened.
pub(super) fn door(values: &Values, name: &str) -> Option<Option<SocketAddr>> {
    let listen = values.get(format!("{name}.listen").as_str())?.text.parse().ok()?;
    Some((values.get(format!("{name}.open").as_str())?.text == "true").then_some(listen))
}

pub(super) fn number<T: std::str::FromStr>(values: &Values, path: &str) -> Option<T> {
    values.get(path)?.text.parse().ok()
}

pub(super) fn milliseconds(values: &Values, path: &str) -> Option<Duration> {
    number(values, path).map(Duration::from_millis)
}

/// Reads `22:00-05:30`.
fn hours(setting: &Setting, errors: &mut ConfigErrors) -> Option<(u32, u32)> {
    let minutes = |text: &str| -> Option<u32> {
        let (hour, minute) = text.trim().split_once(':')?;
        let (hour, minute): (u32, u32) = (hour.parse::<u8>().ok()?.into(), minute.parse::<u8>().ok()?.into());
        (minute < 60 && hour * 60 + minute <= 24 * 60).then_some(hour * 60 + minute)
    };
    let read = setting.text.split_once('-').and_then(|(from, until)| Some((minutes(from)?, minutes(until)?)));
    if read.is_none() {
        errors.push(
            &setting.origin,
            format!("rebalance.hours {:?} is no span of hours", setting.text),
            "write it as 22:00-05:30, in UTC",
        );
    }
    read
}

fn embedded_shard(number: u32) -> Option<ShardConfig> {
    let id: ShardId = format!("s{number}").parse().ok()?;
    Some(ShardConfig {
        url: format!("sqlite:shards/{id}.db"),
        id,
        password: SecretSource::None,
        region: None,
        tier: None,
        server: None,
        limits: ShardLimits::default(),
    })
}

fn shard(origin: &Origin, values: &Values, errors: &mut ConfigErrors) -> Option<ShardConfig> {
    let id = match values.get("id") {
        Some(setting) => setting.text.parse::<ShardId>().map_err(|e| {
            errors.push(&setting.origin, format!("shard id: {e}"), "choose another id");
        }),
        None => {
            errors.push(origin, "the shard has no id", "give it one, for example id = \"s1\"");
            Err(())
        }
    };
    let what = values.get("id").map_or("the shard".to_owned(), |id| format!("shard {}", id.text));
    let (url, password) = database(values, "url", "password", &what, errors);
    if !values.contains_key("url") {
        let remedy = "give it one, for example url = \"postgres://user@host:5432/database\"";
        errors.push(origin, format!("{what} has no url"), remedy);
    }
    let text = |path: &str| values.get(path).map(|setting| setting.text.clone());
    let limit = |path: &str| values.get(path).and_then(|setting| setting.text.parse::<NonZeroU64>().ok());
    Some(ShardConfig {
        id: id.ok()?,
        url: url?,
        password,
        region: text("region"),
        tier: text("tier"),
        server: text("server"),
        limits: ShardLimits {
            bytes_max: limit("limits.bytes_max"),
            connections_max: limit("limits.connections_max"),
            shardlets_max: limit("limits.shardlets_max"),
        },
    })
}

/// The address of a database and its password, wherever that is.
fn database(
    values: &Values,
    url: &str,
    password: &str,
    what: &str,
    errors: &mut ConfigErrors,
) -> (Option<String>, SecretSource) {
    let Some(setting) = values.get(url) else { return (None, SecretSource::None) };
    let (address, in_url) = match split_password(&setting.text) {
        Ok(split) => split,
        Err(reason) => {
            errors.push(&setting.origin, format!("the url of {what} is wrong: {reason}"), "correct the url");
            return (None, SecretSource::None);
        }
    };
    let (variable, file) = (format!("{password}_env"), format!("{password}_file"));
    let secret = secret(values, password, &variable, &file, in_url, errors);
    if !is_postgres(&address) && secret != SecretSource::None {
        errors.push(
            &setting.origin,
            format!("{what} is an SQLite file and has a password"),
            "leave the password out",
        );
    }
    (Some(address), secret)
}

/// The one place a secret is in; two places would leave open which one counts.
pub(super) fn secret(
    values: &Values,
    given: &str,
    variable: &str,
    file: &str,
    in_url: Option<Secret>,
    errors: &mut ConfigErrors,
) -> SecretSource {
    let mut places: Vec<&Setting> =
        [given, variable, file].iter().filter_map(|path| values.get(*path)).collect();
    // What was said last, for example by the environment over the file, replaces what was said before.
    if let Some(last) = places.iter().map(|setting| rank(&setting.origin)).max() {
        places.retain(|setting| rank(&setting.origin) == last);
    }
    if places.len() + usize::from(in_url.is_some()) > 1 {
        let origin = places.last().map_or(Origin::Default, |setting| setting.origin.clone());
        let message = format!("{given} is given in more than one way");
        errors.push(&origin, message, format!("keep one of {given}, {variable} and {file}"));
    }
    let is = |path: &str| values.get(path).filter(|setting| places.contains(setting));
    if let Some(setting) = is(given) {
        SecretSource::Given(Secret::new(setting.text.as_str()))
    } else if let Some(setting) = is(variable) {
        SecretSource::Variable(setting.text.clone())
    } else if let Some(setting) = is(file) {
        SecretSource::File(PathBuf::from(&setting.text))
    } else {
        in_url.map_or(SecretSource::None, SecretSource::Given)
    }
}

fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::Line { .. } => 1,
        Origin::Environment(_) => 2,
        Origin::Flag => 3,
    }
}

fn is_postgres(url: &str) -> bool {
    !url.starts_with("sqlite:")
}

/// An address without its password, and the password; or what is wrong, without showing the address.
pub(super) fn split_password(url: &str) -> Result<(String, Option<Secret>), String> {
    let target = Target::parse(url).map_err(|e| e.to_string())?;
    let password = match &target {
        Target::Postgres(postgres) if !postgres.password.is_empty() => Some(postgres.password.clone()),
        _ => None,
    };
    Ok((target.to_string(), password))
}

fn check_shards(listed: &[(Origin, Values)], catalog: &str, shared: bool, errors: &mut ConfigErrors) {
    let mut ids: BTreeMap<&str, &Origin> = BTreeMap::new();
    let mut urls: BTreeMap<String, String> = BTreeMap::from([(catalog.to_owned(), "the catalog".to_owned())]);
    for (_, values) in listed {
        if let Some(id) = values.get("id")
            && let Some(first) = ids.insert(&id.text, &id.origin)
        {
            let message = format!("shard id {} is used twice, first at {first}", id.text);
            errors.push(&id.origin, message, "give each shard its own id");
        }
        let name = values.get("id").map_or("a shard".to_owned(), |id| format!("shard {}", id.text));
        let Some(setting) = values.get("url") else { continue };
        let Ok((url, _)) = split_password(&setting.text) else { continue };
        if shared && !is_postgres(&url) {
            errors.push(
                &setting.origin,
                format!("{name} is an SQLite file and so of one process, but a PostgreSQL catalog can be shared"),
                "use a PostgreSQL shard, or set cluster.single_process = true if there is one server process only",
            );
        }
        if let Some(other) = urls.insert(url, name.clone()) {
            let message = format!("{name} has the same url as {other}");
            errors.push(&setting.origin, message, "give each its own database");
        }
    }
}

fn check_token(admin: &AdminConfig, listen: &Setting, errors: &mut ConfigErrors) {
    let token = match &admin.token {
        SecretSource::None => polyshard_admin::DEVELOPMENT_TOKEN,
        SecretSource::Given(secret) => secret.reveal(),
        // Known only where the server runs; it checks them when it starts.
        SecretSource::Variable(_) | SecretSource::File(_) => return,
    };
    if let Err(weak) = polyshard_admin::Auth::new(token, admin.listen) {
        let text = weak.to_string();
        let (message, remedy) = text.split_once("; ").unwrap_or((&text, "choose another token"));
        errors.push(&listen.origin, message, format!("{remedy} (admin.token_env or admin.token_file)"));
    }
}

fn check_deadlines(values: &Values, errors: &mut ConfigErrors) {
    let of = |path| Some((values.get(path)?, number::<u64>(values, path)?));
    let (Some((_, overall)), Some((setting, shard))) =
        (of("router.overall_deadline_ms"), of("router.shard_deadline_ms"))
    else {
        return;
    };
    if shard > overall {
        let message = format!(
            "router.shard_deadline_ms is {shard}, longer than router.overall_deadline_ms, which is {overall}"
        );
        errors.push(&setting.origin, message, "make it shorter, or the overall deadline longer");
    }
}

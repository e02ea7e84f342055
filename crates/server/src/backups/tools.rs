//! What can be done with backups without a server: looking, comparing, removing, restoring into an empty place.

use std::path::Path;
use std::sync::Arc;

use polyshard_backup::{
    BackupError, Clock, Depot, Dry, Found, Location, Manifest, Pruned, Restore, Retention, Variables,
};
use polyshard_engine::Secret;
use polyshard_map::ShardId;
use serde::Serialize;

use crate::config::Config;
use crate::error::ServerError;
use crate::operator::now_ms;
use crate::{RunOptions, connect};

fn variables(options: &RunOptions) -> Variables {
    let options = options.clone();
    Arc::new(move |name: &str| options.variable(name))
}

/// What a backup holds, after a comparison with its checksums; for people and programs.
pub async fn check_backup(options: &RunOptions, backup: &str) -> Result<Manifest, ServerError> {
    let at = Location::open(backup, &variables(options))?;
    Ok(polyshard_backup::verify(&at).await?)
}

/// One backup of a depot.
#[derive(Debug, Clone, Serialize)]
pub struct DepotBackup {
    /// Its address.
    pub at: String,
    /// Whether it is `whole`, `unfinished` or `damaged`.
    pub state: &'static str,
    /// What it is of.
    pub what: String,
    /// The class of the schedule that took it.
    pub class: Option<String>,
    /// The cluster it is of; none if it cannot be read.
    pub cluster: Option<String>,
    /// The moment it is of, in milliseconds since 1970.
    pub moment_ms: i64,
    /// Bytes of its copies.
    pub bytes: u64,
    /// Bytes that were new with it, as stored.
    pub new_bytes: u64,
    /// What is wrong with it.
    pub message: Option<String>,
}

/// The backups in a place.
pub async fn list_backups(options: &RunOptions, depot: &str) -> Result<Vec<DepotBackup>, ServerError> {
    let depot = Depot::open(depot, &variables(options))?;
    let found = polyshard_backup::list(&depot).await?;
    let bare = |at: &Location, state: &'static str, message: Option<String>| DepotBackup {
        at: at.url(),
        state,
        what: String::new(),
        class: None,
        cluster: None,
        moment_ms: 0,
        bytes: 0,
        new_bytes: 0,
        message,
    };
    let view = |found: Found| match found {
        Found::Whole(at, manifest) => DepotBackup {
            what: manifest.what(),
            class: manifest.class.clone(),
            cluster: Some(manifest.cluster.to_string()),
            moment_ms: manifest.moment_ms,
            bytes: manifest.bytes(),
            new_bytes: manifest.new_bytes,
            ..bare(&at, "whole", None)
        },
        Found::Unfinished(at) => bare(&at, "unfinished", None),
        Found::Damaged(at, error) => bare(&at, "damaged", Some(error.to_string())),
    };
    Ok(found.into_iter().map(view).collect())
}

/// Removes old and unfinished backups, and what none of them needs any more; the latest `keep` of each class, or of one
/// class, stay.
pub async fn prune_backups(
    options: &RunOptions,
    depot: &str,
    class: Option<&str>,
    keep: Option<usize>,
    dry: bool,
) -> Result<Pruned, ServerError> {
    let depot = Depot::open(depot, &variables(options))?;
    let retention = Retention { class: class.map(|class| Some(class.to_owned())), keep, cluster: None };
    let dry = if dry { Dry::Yes } else { Dry::No };
    let clock: Clock = Arc::new(now_ms);
    Ok(polyshard_backup::prune(&depot, &retention, &clock, dry).await?)
}

/// Restores a backup of everything into the place that a configuration names, which must be empty.
pub async fn restore(config: &Config, options: &RunOptions, backup: &str) -> Result<Manifest, ServerError> {
    let refuse = |error: String| BackupError::Refused(error);
    let target = |id: Option<&ShardId>, url: &str| {
        let source = match id {
            None => config.catalog.password.clone(),
            Some(id) => {
                let named = config.shards.iter().find(|shard| shard.id == *id);
                named.map_or(crate::config::SecretSource::None, |shard| shard.password.clone())
            }
        };
        let password =
            source.resolve(|name| options.variable(name)).map_err(|error| refuse(error.to_string()))?;
        connect::target(url, &config.data, password).map_err(|error| refuse(error.to_string()))
    };
    let backup = Location::open(backup, &variables(options))?;
    let carriers = |data: &Path| {
        let configured = crate::stores::configured(config, options, data);
        crate::stores::carriers(&configured).map_err(|error| refuse(error.to_string()))
    };
    let restore = Restore {
        backup: &backup,
        data: &config.data,
        carriers: &carriers,
        catalog_url: &config.catalog.url,
        target: &target,
    };
    Ok(restore.run().await?)
}

/// Writes one shard's copy into an empty database or a new file, to be attached in the shard's place.
pub async fn restore_shard(
    options: &RunOptions,
    backup: &str,
    id: &ShardId,
    to: &str,
    password_variable: Option<&str>,
) -> Result<Manifest, ServerError> {
    let backup = Location::open(backup, &variables(options))?;
    let password = match password_variable {
        None => None,
        Some(name) => Some(options.variable(name).ok_or_else(|| {
            ServerError::Config(format!("the variable {name} is not set; set it to the database's password"))
        })?),
    };
    let to = connect::target(to, Path::new("/"), password.map(Secret::new))
        .map_err(|error| ServerError::Config(error.to_string()))?;
    let manifest = polyshard_backup::restore_shard(&backup, id, &to).await?;
    for part in &manifest.objects {
        tracing::warn!(
            shard = %id,
            store = part.store,
            objects = part.count,
            "objects are not restored with a single shard, and the backup has some; if objects are missing where they \
             are kept, restore the shardlets that name them: polyshard restore BACKUP --map MAP --key KEY --replace"
        );
    }
    Ok(manifest)
}

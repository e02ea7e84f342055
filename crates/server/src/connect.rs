//! From a shard's or catalog's address to one that can be opened: paths under the data directory, passwords found.

use std::path::Path;
use std::sync::Arc;

use polyshard_catalog::ShardRecord;
use polyshard_engine::{Error, Secret, Target};
use polyshard_router::Connect;
use polyshard_shard::ShardError;

use crate::RunOptions;
use crate::config::{Config, SecretSource};
use crate::error::ServerError;

/// The catalog's address, with its password.
pub(crate) fn catalog(config: &Config, options: &RunOptions) -> Result<Target, ServerError> {
    let password = config.catalog.password.resolve(|name| options.variable(name))?;
    target(&config.catalog.url, &config.data, password)
        .map_err(|error| ServerError::Config(error.to_string()))
}

/// How the router opens shards. Secrets are read each time, so that a changed password file works at the next
/// connection.
pub(crate) fn shards(config: &Config, options: &RunOptions) -> Connect {
    let (config, options) = (config.clone(), options.clone());
    Arc::new(move |record: &ShardRecord| {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::invalid(format!("password of shard {}: {error}", record.id))
        };
        // Asked here and not only when a shard is added: whoever named the place, and whenever.
        let source = config.shard_password(&record.password).map_err(|error| wrong(&error))?;
        let source = source.unwrap_or_else(|| {
            let named = config.shards.iter().find(|shard| shard.id == record.id);
            named.map_or(SecretSource::None, |shard| shard.password.clone())
        });
        let password = source.resolve(|name| options.variable(name)).map_err(|error| wrong(&error))?;
        Ok::<Target, ShardError>(target(&record.url, &config.data, password)?)
    })
}

/// Reads an address; an SQLite path is relative to the data directory, whose folders are made.
pub(crate) fn target(url: &str, data: &Path, password: Option<Secret>) -> Result<Target, Error> {
    let mut target = Target::parse(url)?;
    if let Target::Sqlite(sqlite) = &mut target {
        sqlite.path = data.join(&sqlite.path);
        if let Some(folder) = sqlite.path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Error::invalid(format!("the folder {} cannot be made: {error}", folder.display()))
            })?;
        }
    }
    Ok(match password {
        Some(password) => target.with_password(password),
        None => target,
    })
}

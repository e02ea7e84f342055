//! The SQL door: its journal, its login, its certificate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_catalog::Driver;
use polyshard_router::Router;
use polyshard_schema::{Journal, JournalOptions};
use polyshard_store::{AllCalls, Handler, Host, Started, Store};
use polyshard_store_sql::{Door, Limits, Login, Parts, Random, TlsAcceptor};

use crate::RunOptions;
use crate::config::{Config, SqlConfig, TlsConfig};
use crate::error::ServerError;
use crate::failpoint;

/// The password of development setups, which is accepted on loopback addresses only.
const DEVELOPMENT_PASSWORD: &str = "polyshard";

/// What keeps tables alike on all shards.
pub(crate) fn journal(router: &Arc<Router>, driver: &Arc<Driver>) -> Arc<Journal> {
    Arc::new(Journal::new(router.clone(), driver.clone(), JournalOptions::default()))
}

/// The password of its user.
pub(crate) fn password(sql: &SqlConfig, options: &RunOptions) -> Result<String, ServerError> {
    let password = sql.password.resolve(|name| options.variable(name))?;
    Ok(password.as_ref().map_or(DEVELOPMENT_PASSWORD, |password| password.reveal()).to_owned())
}

/// The address of the SQL endpoint as clients are told it: with user and database.
pub(crate) struct SqlAddress {
    user: String,
    database: String,
}

impl SqlAddress {
    /// Completes what is listed.
    pub(crate) fn show(&self, addresses: &mut BTreeMap<String, String>) {
        let name = polyshard_store_sql::STORE.id;
        let Some(address) = addresses.get_mut(name) else { return };
        let SqlAddress { user, database } = self;
        *address = address.replacen("://", &format!("://{user}@"), 1) + "/" + database;
    }
}

/// Starts the store of SQL tables, which is special: it shares the journal with operators, and calls the other stores
/// inside the transactions of its clients.
pub(crate) fn start(
    config: &Config,
    options: &RunOptions,
    host: &Arc<Host>,
    journal: &Arc<Journal>,
    others: &[(&'static Store, Started)],
) -> Result<((&'static Store, Started), SqlAddress), ServerError> {
    let calls = others.iter().filter_map(|(store, started)| Some((*store, started.calls.clone()?)));
    let door = door(&config.sql, options, host, journal, AllCalls::new(calls.collect()))?;
    let outcomes = door.keep_outcomes();
    let handler = Handler::new("postgres", |listener, shutdown| door.serve(listener, shutdown));
    let started = Started { handlers: vec![handler], jobs: vec![outcomes], calls: None };
    let address = SqlAddress { user: config.sql.user.clone(), database: config.sql.database.clone() };
    Ok(((&polyshard_store_sql::STORE, started), address))
}

/// The door as it is configured. One that is closed needs no password.
fn door(
    sql: &SqlConfig,
    options: &RunOptions,
    host: &Arc<Host>,
    journal: &Arc<Journal>,
    calls: AllCalls,
) -> Result<Arc<Door>, ServerError> {
    let password = match sql.listen {
        Some(_) => password(sql, options)?,
        None => DEVELOPMENT_PASSWORD.to_owned(),
    };
    let is_open_to_others = sql.listen.is_some_and(|listen| !listen.ip().is_loopback());
    if is_open_to_others && password == DEVELOPMENT_PASSWORD {
        return Err(ServerError::Config(
            "sql.password is the well-known one, which opens the SQL door on loopback addresses only; give it another"
                .to_owned(),
        ));
    }
    let random: Random = Arc::new(|bytes: &mut [u8]| rand::fill(bytes));
    let login = Login {
        user: sql.user.clone(),
        verifier: Door::verifier(&password, &random),
        database: sql.database.clone(),
        tls: sql.tls.as_ref().filter(|_| sql.listen.is_some()).map(tls).transpose()?,
        tls_only: sql.require_tls,
    };
    let limits = Limits {
        idle_in_transaction: sql.idle_in_transaction,
        undeclared: sql.undeclared,
        sessions_max: sql.sessions_max,
        ..Limits::default()
    };
    Ok(Arc::new(Door::new(Parts {
        host: host.clone(),
        journal: journal.clone(),
        catalog: host.driver().catalog().clone(),
        login,
        limits,
        random,
        clock: Arc::new(micros),
        failpoint: failpoint::from_variable(|name| options.variable(name)),
        calls,
    })))
}

/// The time in microseconds since 1970.
fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn tls(tls: &TlsConfig) -> Result<TlsAcceptor, ServerError> {
    let (certificate, key) = (read(&tls.certificate)?, read(&tls.key)?);
    polyshard_store_sql::tls_from_pem(&certificate, &key).map_err(|error| {
        let (certificate, key) = (tls.certificate.display(), tls.key.display());
        ServerError::Config(format!(
            "the certificate {certificate} and its key {key} cannot be used: {error}"
        ))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ServerError> {
    std::fs::read(path)
        .map_err(|error| ServerError::Config(format!("{} cannot be read: {error}", path.display())))
}

//! The SQL door: its journal, its login, its certificate.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use polyshard_catalog::Driver;
use polyshard_router::Router;
use polyshard_schema::{Journal, JournalOptions};
use polyshard_store::Host;
use polyshard_store_sql::{Door, Limits, Login, Parts, Random, TlsAcceptor};

use crate::RunOptions;
use crate::config::{SqlConfig, TlsConfig};
use crate::enlist::OtherStores;
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

/// The door as it is configured.
pub(crate) fn door(
    sql: &SqlConfig,
    options: &RunOptions,
    host: &Arc<Host>,
    journal: &Arc<Journal>,
    stores: OtherStores,
) -> Result<Arc<Door>, ServerError> {
    let password = password(sql, options)?;
    if !sql.listen.ip().is_loopback() && password == DEVELOPMENT_PASSWORD {
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
        tls: sql.tls.as_ref().map(tls).transpose()?,
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
        stores: Some(Arc::new(stores)),
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

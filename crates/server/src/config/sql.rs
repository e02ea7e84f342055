//! The SQL door's part of the configuration.

use std::path::PathBuf;

use polyshard_store_sql::Undeclared;

use super::build::{door, milliseconds, number, secret};
use super::error::ConfigErrors;
use super::settings::Values;
use super::{SecretSource, SqlConfig, TlsConfig};

/// What the values say; every mistake is in `errors`.
pub(super) fn build(values: &Values, errors: &mut ConfigErrors) -> Option<SqlConfig> {
    let listen = door(values, "sql")?;
    let password = secret(values, "sql.password", "sql.password_env", "sql.password_file", None, errors);
    if let Some(listen) = listen.filter(|listen| !listen.ip().is_loopback())
        && password == SecretSource::None
    {
        errors.push(
            &values.get("sql.listen")?.origin,
            format!("sql.listen {listen} is not a loopback address, and sql.password is the well-known one"),
            "set sql.password_env or sql.password_file, or listen on 127.0.0.1",
        );
    }
    let tls = tls(values, errors);
    let require_tls = values.get("sql.require_tls")?;
    if listen.is_some() && require_tls.text == "true" && tls.is_none() {
        errors.push(
            &require_tls.origin,
            "sql.require_tls is true, and there is no certificate",
            "give sql.certificate_file and sql.certificate_key_file",
        );
    }
    Some(SqlConfig {
        listen,
        user: values.get("sql.user")?.text.clone(),
        password,
        database: values.get("sql.database")?.text.clone(),
        tls,
        require_tls: require_tls.text == "true",
        idle_in_transaction: milliseconds(values, "sql.idle_in_transaction_ms_max")?,
        sessions_max: number(values, "sql.sessions_max")?,
        undeclared: match values.get("sql.undeclared")?.text.as_str() {
            "refuse" => Undeclared::Refuse,
            "local" => Undeclared::Local,
            _ => Undeclared::Reference,
        },
    })
}

fn tls(values: &Values, errors: &mut ConfigErrors) -> Option<TlsConfig> {
    match (values.get("sql.certificate_file"), values.get("sql.certificate_key_file")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(TlsConfig { certificate: PathBuf::from(&certificate.text), key: PathBuf::from(&key.text) })
        }
        (Some(alone), None) | (None, Some(alone)) => {
            errors.push(
                &alone.origin,
                "set sql.certificate_file and sql.certificate_key_file together",
                "give the one that is missing, or leave out both",
            );
            None
        }
    }
}

//! The accounts and the certificate of the Azure Storage doors.

use std::collections::BTreeSet;
use std::path::PathBuf;

use polyshard_azure_storage::AccountName;

use super::build::{door, secret};
use super::error::{ConfigErrors, Origin};
use super::secret::SecretSource;
use super::settings::{Settings, Values};
use super::{AccountConfig, AzureConfig, TlsConfig};
use crate::stores::STORES;

/// What the values say; every mistake is in `errors`.
pub(super) fn build(settings: &Settings, errors: &mut ConfigErrors) -> Option<AzureConfig> {
    let values = &settings.values;
    let name = values.get("azure.account")?;
    let key = secret(values, "azure.key", "azure.key_env", "azure.key_file", None, errors);
    let mut accounts = Vec::new();
    // Beside accounts of one's own, the one with the well-known key would be a door left open.
    if settings.accounts.is_none() || key != SecretSource::None {
        accounts
            .push((&name.origin, AccountConfig { name: name.text.clone(), key, key2: SecretSource::None }));
    }
    for (origin, values) in settings.accounts.iter().flatten() {
        accounts.extend(account(origin, values, errors).map(|account| (origin, account)));
    }
    let mut names = BTreeSet::new();
    for (origin, account) in &accounts {
        if let Err(error) = AccountName::new(&account.name) {
            let text = error.to_string();
            let (message, remedy) = text.split_once("; ").unwrap_or((&text, "choose another name"));
            errors.push(origin, message, remedy);
        } else if !names.insert(account.name.clone()) {
            errors.push(
                origin,
                format!("account {} is configured twice", account.name),
                "remove one of them",
            );
        }
    }
    if accounts.is_empty() {
        errors.push(
            &name.origin,
            "there is no account",
            "write an [[accounts]] table, or leave accounts out",
        );
    }
    let accounts = accounts.into_iter().map(|(_, account)| account).collect();
    Some(AzureConfig { accounts, tls: tls(values, errors) })
}

fn account(origin: &Origin, values: &Values, errors: &mut ConfigErrors) -> Option<AccountConfig> {
    let Some(name) = values.get("name") else {
        errors.push(origin, "the account has no name", "give it one, for example name = \"orders\"");
        return None;
    };
    let key = secret(values, "key", "key_env", "key_file", None, errors);
    let key2 = secret(values, "key2", "key2_env", "key2_file", None, errors);
    if key == SecretSource::None {
        errors.push(
            origin,
            format!("account {} has no key", name.text),
            "give it one with key_env or key_file",
        );
    }
    Some(AccountConfig { name: name.text.clone(), key, key2 })
}

fn tls(values: &Values, errors: &mut ConfigErrors) -> Option<TlsConfig> {
    let of = |path: &str| values.get(path);
    match (of("azure.certificate_file"), of("azure.certificate_key_file")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(TlsConfig { certificate: PathBuf::from(&certificate.text), key: PathBuf::from(&key.text) })
        }
        (Some(alone), None) | (None, Some(alone)) => {
            let message = "set azure.certificate_file and azure.certificate_key_file together";
            errors.push(&alone.origin, message, "give the one that is missing, or leave out both");
            None
        }
    }
}

/// The emulators' key is public: it opens doors on loopback only.
pub(super) fn check_keys(azure: &AzureConfig, values: &Values, errors: &mut ConfigErrors) {
    for name in STORES.of_family(polyshard_azure_storage::FAMILY).map(|store| store.id) {
        let (Some(Some(listen)), Some(setting)) =
            (door(values, name), values.get(format!("{name}.listen").as_str()))
        else {
            continue;
        };
        let well_known = azure.accounts.iter().any(|account| account.key == SecretSource::None);
        if !listen.ip().is_loopback() && well_known {
            errors.push(
                &setting.origin,
                format!(
                    "{name}.listen {listen} is not a loopback address, and azure.key is the well-known one"
                ),
                "set azure.key_env or azure.key_file, or listen on 127.0.0.1",
            );
        }
    }
}

impl AzureConfig {
    /// The account that is meant when none is named.
    pub fn first_account(&self) -> &str {
        self.accounts.first().map_or("", |account| &account.name)
    }

    /// Whether there is an account of that name.
    pub fn has_account(&self, name: &str) -> bool {
        self.accounts.iter().any(|account| account.name == name)
    }
}

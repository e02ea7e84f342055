//! The options of the store, and how it is started with them.

use std::net::SocketAddr;
use std::sync::Arc;

use polyshard_store::{
    Handler, Kind, Kit, Mistake, OptionSpec, OptionValues, SecretSource, StartError, Started,
};

use crate::auth::MasterKey;
use crate::handler::DocumentService;
use crate::http::serve;
use crate::store::DocumentStore;

/// The key of the service's emulator, which is public.
pub(crate) const WELL_KNOWN_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqsAJ5oeP4K1r0Mn9wA==";

const ACCOUNT: &str = "document.account";
const ACCOUNT_DEFAULT: &str = "cosmos";
const KEY: &str = "document.key";
const LISTEN: &str = "document.listen";
const REGION: &str = "document.region";

/// Characters of an account's name at most.
const ACCOUNT_CHARS: std::ops::RangeInclusive<usize> = 3..=44;

/// The options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        ACCOUNT,
        Kind::Text,
        ACCOUNT_DEFAULT,
        "Account that owns all databases: 3 to 44 lower-case letters, digits and hyphens, and not `localhost`.",
    ),
    OptionSpec::new(
        KEY,
        Kind::Secret,
        "",
        "Key of the account in base64. Without one it is the emulator's well-known key, which is accepted on loopback \
         addresses only.",
    ),
    OptionSpec::new(
        "document.key_env",
        Kind::Variable,
        "",
        "Environment variable that holds the account's key.",
    ),
    OptionSpec::new("document.key_file", Kind::Path, "", "File that holds the account's key."),
    OptionSpec::new(REGION, Kind::Text, "Local", "Region that the account is shown in."),
];

/// The name of the account.
pub(crate) fn account(values: &OptionValues) -> String {
    values.text(ACCOUNT).unwrap_or(ACCOUNT_DEFAULT).to_owned()
}

/// What is wrong with the values together.
pub(crate) fn check(values: &OptionValues, endpoints: &[&'static str]) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let account = account(values);
    if !is_account(&account) {
        mistakes.push(Mistake::at_option(
            ACCOUNT,
            format!("{account:?} cannot be the name of an account"),
            "choose 3 to 44 lower-case letters, digits and hyphens; SDKs treat localhost in a way of its own",
        ));
    }
    let listens = endpoints.iter().filter_map(|name| values.listen(name));
    for listen in listens.filter(|listen| !listen.ip().is_loopback()) {
        if values.secret(KEY) == SecretSource::None {
            mistakes.push(Mistake::at_option(
                LISTEN,
                format!("{LISTEN} {listen} is not a loopback address, and {KEY} is the well-known one"),
                "set document.key_env or document.key_file, or listen on 127.0.0.1",
            ));
        }
    }
    mistakes
}

fn is_account(name: &str) -> bool {
    let is_lawful = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ACCOUNT_CHARS.contains(&name.len()) && name.chars().all(is_lawful) && name != "localhost"
}

/// Rejects the well-known key at a listener that others can reach.
fn check_key(listen: Option<SocketAddr>, key: &str) -> Result<(), StartError> {
    if key == WELL_KNOWN_KEY && listen.is_some_and(|listen| !listen.ip().is_loopback()) {
        return Err(StartError::new(
            "document.key is the emulator's well-known key, which is accepted on loopback addresses only; give the \
             account a key of its own, made with 'openssl rand -base64 64 | tr -d \"\\n\"'",
        ));
    }
    Ok(())
}

/// Starts the store in a process.
pub(crate) fn start(kit: Kit) -> Result<Started, StartError> {
    let secret = kit.secret(KEY)?;
    let key = secret.as_ref().map_or(WELL_KNOWN_KEY, |secret| secret.reveal());
    check_key(kit.listen("document"), key)?;
    let key = MasterKey::new(key).ok_or_else(|| StartError::new("document.key is not base64"))?;
    let account: String = kit.option(ACCOUNT)?;
    let region: String = kit.option(REGION)?;
    let store = Arc::new(DocumentStore::new(kit, &account));
    let service = Arc::new(DocumentService::new(store.clone(), key, region));
    let handler = Handler::new("http", move |listener, shutdown| serve(listener, shutdown, service));
    Ok(Started { handlers: vec![handler], jobs: store.keep_tidy(), ..Started::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_key_is_accepted_on_loopback_addresses_only() {
        let outside: SocketAddr = "0.0.0.0:8081".parse().unwrap();
        assert!(check_key(Some(outside), WELL_KNOWN_KEY).is_err());
        assert!(check_key(Some(outside), "b3duIGtleQ==").is_ok());
        assert!(check_key("127.0.0.1:8081".parse().ok(), WELL_KNOWN_KEY).is_ok());
        assert!(check_key(None, WELL_KNOWN_KEY).is_ok());
        let mut values = OptionValues::default();
        values.set("document.open", "true");
        values.set(LISTEN, "0.0.0.0:8081");
        assert_eq!(check(&values, &["document"]).len(), 1);
    }

    #[test]
    fn an_account_is_not_called_localhost() {
        assert!(is_account("cosmos") && is_account("my-account-1"));
        assert!(!is_account("localhost") && !is_account("A") && !is_account("a/b"));
    }
}

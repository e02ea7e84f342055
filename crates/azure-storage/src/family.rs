//! The protocol family: the accounts and the certificate that its stores share, and how their endpoints are served.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use polyshard_store::{
    Family, Handler, Kind, Kit, ListSpec, Mistake, MistakeAt, OptionSpec, OptionValues, SecretSource,
    StartError,
};
use uuid::Uuid;

use crate::serve::{Door, Transport, serve};
use crate::{
    AccountName, Accounts, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Limits, Service, Surroundings, Timestamp,
};

/// What the Azure Storage stores share.
pub static FAMILY: Family = Family {
    id: "azure",
    options: OPTIONS,
    lists: &[ListSpec {
        name: ACCOUNTS,
        options: ACCOUNT_OPTIONS,
        instead: "write them into the file, with key_env",
    }],
    owners,
    check,
};

/// The list of accounts in the configuration file.
const ACCOUNTS: &str = "accounts";
const CERTIFICATE: &str = "azure.certificate_file";
const CERTIFICATE_KEY: &str = "azure.certificate_key_file";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new(
        "azure.account",
        Kind::Text,
        DEVELOPMENT_ACCOUNT,
        "Account of the Azure Storage endpoints. For more than one, see `[[accounts]]`: this one is then there only if \
         it has a key.",
    ),
    OptionSpec::new(
        "azure.key",
        Kind::Secret,
        "",
        "Key of the account in base64. Without one it is the emulators' well-known key, which is accepted on loopback \
         addresses only.",
    ),
    OptionSpec::new(
        "azure.key_env",
        Kind::Variable,
        "",
        "Environment variable that holds the account's key.",
    ),
    OptionSpec::new("azure.key_file", Kind::Path, "", "File that holds the account's key."),
    OptionSpec::new(
        CERTIFICATE,
        Kind::Path,
        "",
        "File with the certificate of the Azure Storage endpoints, and those of its issuers, in PEM. With it, and \
         `azure.certificate_key_file`, they speak HTTPS only.",
    ),
    OptionSpec::new(CERTIFICATE_KEY, Kind::Path, "", "File with the certificate's private key in PEM."),
];

const ACCOUNT_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("name", Kind::Text, "", "Its name: 3 to 24 lower-case letters and digits. Required."),
    OptionSpec::new(
        "key",
        Kind::Secret,
        "",
        "Its key in base64; better use one of the next two. One of them is required.",
    ),
    OptionSpec::new("key_env", Kind::Variable, "", "Environment variable that holds its key."),
    OptionSpec::new("key_file", Kind::Path, "", "File that holds its key."),
    OptionSpec::new(
        "key2",
        Kind::Secret,
        "",
        "A second key, so that clients can be taken from one to the other without a pause.",
    ),
    OptionSpec::new("key2_env", Kind::Variable, "", "Environment variable that holds the second key."),
    OptionSpec::new("key2_file", Kind::Path, "", "File that holds the second key."),
];

/// An account as it is configured.
struct Account {
    name: String,
    key: SecretSource,
    key2: SecretSource,
    at: MistakeAt,
}

/// The accounts: that of the options, and those of the list. Beside accounts of one's own, the one with the well-known
/// key would be a door left open.
fn accounts(values: &OptionValues) -> Vec<Account> {
    let mut accounts = Vec::new();
    let (list, key) = (values.list(ACCOUNTS), values.secret("azure.key"));
    if list.is_none() || key != SecretSource::None {
        let name = values.text("azure.account").unwrap_or(DEVELOPMENT_ACCOUNT).to_owned();
        let at = MistakeAt::Option("azure.account".to_owned());
        accounts.push(Account { name, key, key2: SecretSource::None, at });
    }
    for (number, item) in list.unwrap_or_default().iter().enumerate() {
        let Some(name) = item.text("name") else { continue };
        let (key, key2) = (item.secret("key"), item.secret("key2"));
        accounts.push(Account { name: name.to_owned(), key, key2, at: MistakeAt::Item(ACCOUNTS, number) });
    }
    accounts
}

fn owners(values: &OptionValues) -> Vec<String> {
    accounts(values).into_iter().map(|account| account.name).collect()
}

fn check(values: &OptionValues, endpoints: &[&'static str]) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut wrong = |at: MistakeAt, message: &str, remedy: &str| {
        mistakes.push(Mistake { at, message: message.to_owned(), remedy: remedy.to_owned() });
    };
    for (number, item) in values.list(ACCOUNTS).unwrap_or_default().iter().enumerate() {
        let at = MistakeAt::Item(ACCOUNTS, number);
        match item.text("name") {
            None => wrong(at, "the account has no name", "give it one, for example name = \"orders\""),
            Some(name) if item.secret("key") == SecretSource::None => {
                wrong(at, &format!("account {name} has no key"), "give it one with key_env or key_file");
            }
            Some(_) => {}
        }
    }
    let accounts = accounts(values);
    let mut names = BTreeSet::new();
    for account in &accounts {
        if let Err(error) = AccountName::new(&account.name) {
            wrong(account.at.clone(), &error.message(), error.remedy());
        } else if !names.insert(&account.name) {
            let message = format!("account {} is configured twice", account.name);
            wrong(account.at.clone(), &message, "remove one of them");
        }
    }
    if accounts.is_empty() {
        let at = MistakeAt::Option("azure.account".to_owned());
        wrong(at, "there is no account", "write an [[accounts]] table, or leave accounts out");
    }
    let alone = match (values.text(CERTIFICATE), values.text(CERTIFICATE_KEY)) {
        (Some(_), None) => Some(CERTIFICATE),
        (None, Some(_)) => Some(CERTIFICATE_KEY),
        _ => None,
    };
    if let Some(alone) = alone {
        wrong(
            MistakeAt::Option(alone.to_owned()),
            "set azure.certificate_file and azure.certificate_key_file together",
            "give the one that is missing, or leave out both",
        );
    }
    // The emulators' key is public: it opens doors on loopback only. A key that is looked up when the process starts is
    // compared then.
    if accounts.iter().any(|account| account.key == SecretSource::None) {
        for name in endpoints {
            let Some(listen) = values.listen(name).filter(|listen| !listen.ip().is_loopback()) else {
                continue;
            };
            wrong(
                MistakeAt::Option(format!("{name}.listen")),
                &format!(
                    "{name}.listen {listen} is not a loopback address, and azure.key is the well-known one"
                ),
                "set azure.key_env or azure.key_file, or listen on 127.0.0.1",
            );
        }
    }
    mistakes
}

/// Serves an endpoint of the family: with its accounts, its certificate, and the clock of the process.
pub fn handler(kit: &Kit, endpoint: &str, service: Arc<dyn Service>) -> Result<Handler, StartError> {
    let (accounts, well_known) = accounts_and_well_known(kit)?;
    if let Some(listen) = kit.listen(endpoint) {
        check_key(listen, well_known.as_ref())?;
    }
    let transport = transport(kit.options())?;
    let scheme = if matches!(transport, Transport::Plain) { "http" } else { "https" };
    let surroundings = Arc::new(OfKit(kit.clone()));
    let door =
        Door { service, accounts: Arc::new(accounts), surroundings, transport, limits: Limits::default() };
    Ok(Handler::new(scheme, |listener, shutdown| serve(listener, shutdown, door)))
}

/// Rejects the well-known key at a listener that others can reach.
fn check_key(listen: SocketAddr, well_known: Option<&String>) -> Result<(), StartError> {
    match well_known.filter(|_| !listen.ip().is_loopback()) {
        None => Ok(()),
        Some(name) => Err(StartError::new(format!(
            "account {name} has the emulators' well-known key, which opens doors on loopback addresses only; give it \
             a key of its own, made with 'openssl rand -base64 64'"
        ))),
    }
}

/// The accounts with their keys, for a service that checks the parts of a request by itself.
pub fn resolve_accounts(kit: &Kit) -> Result<Arc<Accounts>, StartError> {
    Ok(Arc::new(accounts_and_well_known(kit)?.0))
}

/// The accounts with their keys. A key given in words that are the well-known ones is as public as they are. Also tells
/// which account has one of these.
fn accounts_and_well_known(kit: &Kit) -> Result<(Accounts, Option<String>), StartError> {
    let (mut resolved, mut well_known) = (Accounts::new(), None);
    for account in accounts(kit.options()) {
        let (key, key2) = (kit.resolve(&account.key)?, kit.resolve(&account.key2)?);
        let key = key.as_ref().map_or(DEVELOPMENT_KEY, |key| key.reveal());
        let key2 = key2.as_ref().map(|key| key.reveal());
        if key == DEVELOPMENT_KEY || key2 == Some(DEVELOPMENT_KEY) {
            well_known = Some(account.name.clone());
        }
        let added = resolved.add(&account.name, key, key2);
        added.map_err(|error| StartError::new(format!("account {}: {error}", account.name)))?;
    }
    Ok((resolved, well_known))
}

/// How the family is spoken to.
fn transport(values: &OptionValues) -> Result<Transport, StartError> {
    let (Some(certificate), Some(key)) = (values.text(CERTIFICATE), values.text(CERTIFICATE_KEY)) else {
        return Ok(Transport::Plain);
    };
    let read = |path: &str| {
        std::fs::read(path).map_err(|error| StartError::new(format!("{path} cannot be read: {error}")))
    };
    Transport::tls_from_pem(&read(certificate)?, &read(key)?).map_err(|error| {
        StartError::new(format!("the certificate {certificate} and its key {key} cannot be used: {error}"))
    })
}

/// The clock and the randomness of the kit.
struct OfKit(Kit);

impl Surroundings for OfKit {
    fn now(&self) -> Timestamp {
        Timestamp::from_ticks(self.0.now_ticks()).expect("the machine's clock is within the calendar")
    }

    fn request_id(&self) -> Uuid {
        // Not `new_v4`, which asks the kernel each time.
        let bytes = u128::from(self.0.random()) << 64 | u128::from(self.0.random());
        uuid::Builder::from_random_bytes(bytes.to_ne_bytes()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with the key at an endpoint that others can reach.
    fn mistakes(endpoints: &[&'static str], key: SecretSource) -> Vec<String> {
        let mut values = OptionValues::default();
        values.set_secret("azure.key", key);
        for (path, value) in [("blob.open", "true"), ("blob.listen", "0.0.0.0:10000"), ("queue.open", "true")]
        {
            values.set(path, value);
        }
        values.set("queue.listen", "127.0.0.1:10001");
        check(&values, endpoints).into_iter().map(|mistake| mistake.message).collect()
    }

    #[test]
    fn the_well_known_key_is_refused_at_every_endpoint_of_the_family_that_others_can_reach() {
        let said = mistakes(&["blob", "queue"], SecretSource::None);
        assert_eq!(
            said,
            ["blob.listen 0.0.0.0:10000 is not a loopback address, and azure.key is the well-known one"]
        );
        assert_eq!(mistakes(&["queue"], SecretSource::None), [""; 0]);
        assert_eq!(mistakes(&["blob"], SecretSource::Given("other".into())), [""; 0]);
    }

    #[test]
    fn a_key_that_turns_out_to_be_the_well_known_one_is_refused_when_it_is_known() {
        let name = DEVELOPMENT_ACCOUNT.to_owned();
        let refused = check_key("0.0.0.0:10000".parse().unwrap(), Some(&name)).unwrap_err();
        assert!(refused.to_string().contains("openssl rand"), "{refused}");
        assert!(check_key("127.0.0.1:10000".parse().unwrap(), Some(&name)).is_ok());
        assert!(check_key("0.0.0.0:10000".parse().unwrap(), None).is_ok());
    }

    #[test]
    fn a_bad_name_is_told_whole() {
        let mut values = OptionValues::default();
        values.set_secret("azure.key", SecretSource::Given("other".into()));
        values.set("azure.account", "a; b");
        let [mistake] = &check(&values, &[])[..] else { panic!() };
        assert_eq!(mistake.message, "account name 'a; b' must be 3 to 24 lower-case letters and digits");
        assert_eq!(mistake.remedy, "choose another name");
    }

    #[test]
    fn beside_accounts_of_ones_own_there_is_none_with_the_well_known_key() {
        let mut values = OptionValues::default();
        assert_eq!(owners(&values), [DEVELOPMENT_ACCOUNT]);
        let mut own = OptionValues::default();
        own.set("name", "orders");
        values.set_list(ACCOUNTS, vec![own]);
        assert_eq!(owners(&values), ["orders"]);
    }
}

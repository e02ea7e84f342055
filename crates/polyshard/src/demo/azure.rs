//! Makes tables and queues as an Azure SDK would, with the development account.

use std::time::{SystemTime, UNIX_EPOCH};

// The account and key of every development setup; they work on loopback only.
use polyshard_server::{AccountKey, DEVELOPMENT_ACCOUNT as ACCOUNT, DEVELOPMENT_KEY, Timestamp};

use crate::exit::Failure;

const VERSION: &str = "2021-12-02";

/// Makes a queue.
pub fn make_queue(door: &str, name: &str) -> Result<(), Failure> {
    let date = now()?;
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{name}");
    let headers = format!("x-ms-date:{date}\nx-ms-version:{VERSION}\n");
    let text = format!("PUT\n\n\n\n{headers}{resource}");
    let call = ureq::put(format!("{}/{ACCOUNT}/{name}", base(door)))
        .header("x-ms-date", &date)
        .header("x-ms-version", VERSION)
        .header("Authorization", &format!("SharedKeyLite {ACCOUNT}:{}", signature(&text)));
    answered(call.send_empty(), &format!("queue {name}"))
}

/// Makes a table.
pub fn make_table(door: &str, name: &str) -> Result<(), Failure> {
    let date = now()?;
    let text = format!("{date}\n/{ACCOUNT}/{ACCOUNT}/Tables");
    let call = ureq::post(format!("{}/{ACCOUNT}/Tables", base(door)))
        .header("x-ms-date", &date)
        .header("x-ms-version", VERSION)
        .header("Accept", "application/json;odata=nometadata")
        .header("Content-Type", "application/json")
        .header("Authorization", &format!("SharedKeyLite {ACCOUNT}:{}", signature(&text)));
    answered(call.send(format!("{{\"TableName\":\"{name}\"}}")), &format!("table {name}"))
}

fn base(door: &str) -> String {
    if door.starts_with("http") { door.to_owned() } else { format!("http://{door}") }
}

fn answered<T>(answer: Result<T, ureq::Error>, what: &str) -> Result<(), Failure> {
    answer.map(drop).map_err(|error| Failure::new(format!("{what} cannot be made: {error}"), "report this"))
}

fn signature(text: &str) -> String {
    AccountKey::from_base64(DEVELOPMENT_KEY).expect("the published key is a key").sign(text)
}

/// The date of a request made now.
fn now() -> Result<String, Failure> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let now = since.and_then(|since| Timestamp::from_unix_ms(i64::try_from(since.as_millis()).ok()?));
    let now = now.ok_or_else(|| Failure::new("the clock of this machine is wrong", "set it"))?;
    Ok(now.rfc1123())
}

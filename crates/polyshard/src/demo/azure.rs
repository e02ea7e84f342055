//! Makes tables and queues as an Azure SDK would, with the development account.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::exit::Failure;

/// The account and key of every development setup; they work on loopback only.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const VERSION: &str = "2021-12-02";

/// Makes a queue.
pub fn make_queue(door: &str, name: &str) -> Result<(), Failure> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/{name}");
    let headers = format!("x-ms-date:{date}\nx-ms-version:{VERSION}\n");
    let text = format!("PUT\n\n\n\n{headers}{resource}");
    let call = ureq::put(format!("{}/{ACCOUNT}/{name}", base(door)))
        .header("x-ms-date", &date)
        .header("x-ms-version", VERSION)
        .header("Authorization", &format!("SharedKeyLite {ACCOUNT}:{}", signature(&text)?));
    answered(call.send_empty(), &format!("queue {name}"))
}

/// Makes a table.
pub fn make_table(door: &str, name: &str) -> Result<(), Failure> {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let text = format!("{date}\n/{ACCOUNT}/{ACCOUNT}/Tables");
    let call = ureq::post(format!("{}/{ACCOUNT}/Tables", base(door)))
        .header("x-ms-date", &date)
        .header("x-ms-version", VERSION)
        .header("Accept", "application/json;odata=nometadata")
        .header("Content-Type", "application/json")
        .header("Authorization", &format!("SharedKeyLite {ACCOUNT}:{}", signature(&text)?));
    answered(call.send(format!("{{\"TableName\":\"{name}\"}}")), &format!("table {name}"))
}

fn base(door: &str) -> String {
    if door.starts_with("http") { door.to_owned() } else { format!("http://{door}") }
}

fn answered<T>(answer: Result<T, ureq::Error>, what: &str) -> Result<(), Failure> {
    answer.map(drop).map_err(|error| Failure::new(format!("{what} cannot be made: {error}"), "report this"))
}

fn signature(text: &str) -> Result<String, Failure> {
    let wrong = |what: String| Failure::new(what, "report this");
    let key = STANDARD.decode(KEY).map_err(|error| wrong(error.to_string()))?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|error| wrong(error.to_string()))?;
    mac.update(text.as_bytes());
    Ok(STANDARD.encode(mac.finalize().into_bytes()))
}

//! The account's key: whether a request was signed with it.
//!
//! <https://learn.microsoft.com/rest/api/cosmos-db/access-control-on-cosmosdb-resources>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::percent_decode_str;
use sha2::Sha256;

use crate::failure::Failure;

/// How far the clock of a client may be off, in seconds.
const CLOCK_SKEW_MAX_S: i64 = 15 * 60;

/// The key that requests are signed with.
pub(crate) struct MasterKey(Vec<u8>);

/// What of a request is signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed<'a> {
    pub method: &'a str,
    /// `dbs`, `colls`, `docs` …; nothing for the account.
    pub kind: &'a str,
    /// The path of what is asked for, or of what a feed is in.
    pub link: &'a str,
    /// `x-ms-date`.
    pub ms_date: Option<&'a str>,
    /// `date`.
    pub date: Option<&'a str>,
}

impl MasterKey {
    /// Of a key in base64; none if it is not.
    pub fn new(text: &str) -> Option<MasterKey> {
        STANDARD.decode(text.trim()).ok().filter(|key| !key.is_empty()).map(MasterKey)
    }

    /// Checks the `authorization` header of a request, now being in seconds since 1970.
    pub fn check(&self, authorization: Option<&str>, signed: Signed<'_>, now_s: i64) -> Result<(), Failure> {
        let header =
            authorization.ok_or_else(|| Failure::unauthorized("the header authorization is missing"))?;
        let text = percent_decode_str(header).decode_utf8_lossy();
        let (mut kind, mut signature) = ("", "");
        for part in text.split('&') {
            match part.split_once('=') {
                Some(("type", value)) => kind = value,
                Some(("sig", value)) => signature = value,
                _ => {}
            }
        }
        if kind != "master" {
            let message = "only the account's key is accepted: resource tokens and Entra ID are not built";
            return Err(Failure::unauthorized(message));
        }
        let date = signed.ms_date.or(signed.date);
        let date =
            date.ok_or_else(|| Failure::unauthorized("one of the headers x-ms-date and date is needed"))?;
        let time =
            parse_date(date).ok_or_else(|| Failure::unauthorized("x-ms-date is no date of RFC 1123"))?;
        if (time - now_s).abs() > CLOCK_SKEW_MAX_S {
            return Err(Failure::forbidden("x-ms-date is more than 15 minutes away from the server's clock"));
        }
        let signature = STANDARD.decode(signature).map_err(|_| not_signed())?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).map_err(|_| not_signed())?;
        mac.update(text_of(signed).as_bytes());
        mac.verify_slice(&signature).map_err(|_| not_signed())
    }
}

/// The text that is signed.
fn text_of(signed: Signed<'_>) -> String {
    let Signed { method, kind, link, ms_date, date } = signed;
    let (ms_date, date) = match ms_date {
        Some(ms_date) => (ms_date.to_lowercase(), String::new()),
        None => (String::new(), date.unwrap_or_default().to_lowercase()),
    };
    format!("{}\n{}\n{link}\n{ms_date}\n{date}\n", method.to_lowercase(), kind.to_lowercase())
}

fn not_signed() -> Failure {
    Failure::unauthorized(
        "The input authorization token can't serve the request. Please check that the expected payload is built as per \
         the protocol, and check the key being used.",
    )
}

/// A date such as `Tue, 15 Nov 1994 08:12:31 GMT`, in seconds since 1970; of any case.
fn parse_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let text = text.to_ascii_lowercase();
    let mut words = text.split_ascii_whitespace().skip(1);
    let day: i64 = words.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut time =
        words.next()?.split(':').map(|part| part.parse::<i64>().ok().filter(|part| (0..=60).contains(part)));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    // Days since 1970 in a calendar whose years begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let of_era = shifted.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::WELL_KNOWN_KEY;

    #[test]
    fn dates_are_read() {
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_date("Tue, 15 Nov 1994 08:12:31 GMT"), Some(784_887_151));
        assert_eq!(parse_date("thu, 29 feb 2024 23:59:59 gmt"), Some(1_709_251_199));
        assert_eq!(parse_date("yesterday"), None);
    }

    #[test]
    fn a_request_that_is_signed_with_the_key_is_let_in() {
        let key = MasterKey::new(WELL_KNOWN_KEY).unwrap();
        let date = "Thu, 27 Apr 2017 00:51:12 GMT";
        // The example of the service's documentation, with its own key.
        let example = MasterKey::new(
            "dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==",
        )
        .unwrap();
        let signed =
            Signed { method: "GET", kind: "dbs", link: "dbs/ToDoList", ms_date: Some(date), date: None };
        let header = "type%3dmaster%26ver%3d1.0%26sig%3dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2bc%2bc%3d";
        let now = parse_date(date).unwrap();
        example.check(Some(header), signed, now).unwrap();
        assert_eq!(key.check(Some(header), signed, now).unwrap_err().status, 401);
        assert_eq!(example.check(Some(header), signed, now + 3600).unwrap_err().status, 403);
        assert_eq!(example.check(None, signed, now).unwrap_err().status, 401);
        let other = Signed { link: "dbs/todolist", ..signed };
        assert_eq!(example.check(Some(header), other, now).unwrap_err().status, 401);
    }
}

//! SharedKey and SharedKeyLite: the texts a client may have signed, and whether it signed one of them.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{CLOCK_SKEW_MAX_S, Check, Reading, collation};
use crate::{ApiVersion, RawPath, Request, ServiceError, StoreKind, Timestamp, decode_query};

/// From this version on an empty body is signed as no length; before, as `0`.
const EMPTY_LENGTH_SINCE: ApiVersion = ApiVersion::known(2015, 2, 21);

/// The headers of blobs and queues that are signed, in order; the date has its own rule.
const SIGNED_HEADERS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Full,
    Lite,
}

/// One way to make the text, where clients differ.
#[derive(Clone, Copy, Debug)]
struct Variant<'a> {
    reading: &'a Reading,
    headers: HeaderOrder,
    date: DateLine,
    plus: Plus,
}

/// The order of the `x-ms-*` headers: the service's, or that of the bytes, which simple clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderOrder {
    Collated,
    Bytes,
}

/// Whether `Date` is signed when `x-ms-date` is there too: the service says no, some SDKs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DateLine {
    Empty,
    AsSent,
}

/// What a `+` in the query was signed as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plus {
    Space,
    Kept,
}

/// Checks an `Authorization` header, and says which resource was meant by what was signed. The error's detail tells the
/// text that should have been signed, as the service's does: it holds nothing the client did not send.
pub(super) fn verify(
    check: &Check<'_>,
    request: &Request,
    authorization: &str,
) -> Result<RawPath, ServiceError> {
    let (form, account, signature) = parse(authorization)?;
    if account != check.located.account.as_str() {
        return Err(ServiceError::authentication_failed(
            "The account in the Authorization header is not the one in the URL.",
        ));
    }
    check_date(check, request)?;
    let signed =
        STANDARD.decode(signature).map_err(|_| ServiceError::invalid_header("Authorization", "SharedKey"))?;
    let mut expected = None;
    for variant in variants(check, request) {
        let text = string_to_sign(check, request, form, variant);
        if check.keys.iter().any(|key| key.verifies(&text, &signed)) {
            return Ok(variant.reading.resource.clone());
        }
        expected.get_or_insert(text);
    }
    let expected = expected.unwrap_or_default();
    Err(ServiceError::authentication_failed(format!(
        "The MAC signature found in the HTTP request '{signature}' is not the same as any computed signature. Server \
         used following string to sign: '{expected}'."
    )))
}

fn parse(authorization: &str) -> Result<(Form, &str, &str), ServiceError> {
    let malformed = || {
        // The value is not repeated: whatever it is, it may be a secret.
        ServiceError::new(
            400,
            "InvalidAuthenticationInfo",
            "Authentication information is not given in the correct \
                          format. Check the value of Authorization header.",
        )
    };
    let (scheme, credential) = authorization.split_once(' ').ok_or_else(malformed)?;
    let form = match scheme {
        _ if scheme.eq_ignore_ascii_case("SharedKey") => Form::Full,
        _ if scheme.eq_ignore_ascii_case("SharedKeyLite") => Form::Lite,
        _ if scheme.eq_ignore_ascii_case("Bearer") => {
            let detail =
                "Bearer tokens are not accepted here; use an account key or a shared access signature.";
            return Err(ServiceError::authentication_failed(detail));
        }
        _ => return Err(malformed()),
    };
    let (account, signature) = credential.trim().split_once(':').ok_or_else(malformed)?;
    Ok((form, account, signature))
}

fn check_date(check: &Check<'_>, request: &Request) -> Result<(), ServiceError> {
    let Some(text) = request.headers.get("x-ms-date").or_else(|| request.headers.get("date")) else {
        return Err(ServiceError::authentication_failed(
            "The request has neither an x-ms-date nor a Date header.",
        ));
    };
    let Some(date) = Timestamp::parse_rfc1123(text) else {
        return Err(ServiceError::authentication_failed(
            "The date header of the request is not in RFC 1123 form.",
        ));
    };
    if date.distance(check.now) > Duration::from_secs(CLOCK_SKEW_MAX_S) {
        return Err(ServiceError::authentication_failed(format!(
            "Request date header too old or too new: '{}', while the server's time is '{}'. Set the client's clock.",
            date.rfc1123(),
            check.now.rfc1123()
        )));
    }
    Ok(())
}

/// The ways to try, the service's own first. Those that would give the same text again are left out.
fn variants<'a>(check: &Check<'a>, request: &Request) -> impl Iterator<Item = Variant<'a>> + use<'a> {
    let table = check.kind == StoreKind::Table;
    let both_dates = request.headers.get("date").is_some() && request.headers.get("x-ms-date").is_some();
    let orders: &[HeaderOrder] =
        if table { &[HeaderOrder::Collated] } else { &[HeaderOrder::Collated, HeaderOrder::Bytes] };
    let dates: &[DateLine] =
        if !table && both_dates { &[DateLine::Empty, DateLine::AsSent] } else { &[DateLine::Empty] };
    let pluses: &[Plus] =
        if !table && request.raw_query().contains('+') { &[Plus::Space, Plus::Kept] } else { &[Plus::Space] };
    let readings = check.located.readings.iter();
    readings.flat_map(move |reading| {
        orders.iter().flat_map(move |headers| {
            dates.iter().flat_map(move |date| {
                pluses.iter().map(move |plus| Variant {
                    reading,
                    headers: *headers,
                    date: *date,
                    plus: *plus,
                })
            })
        })
    })
}

fn string_to_sign(check: &Check<'_>, request: &Request, form: Form, variant: Variant<'_>) -> String {
    let header = |name: &str| request.headers.get(name).unwrap_or_default();
    let resource = format!("/{}{}", check.located.account, variant.reading.signed_path);
    let comp = request.query("comp").map(|comp| format!("?comp={comp}")).unwrap_or_default();
    match (check.kind, form) {
        (StoreKind::Table, form) => {
            let date = request.headers.get("x-ms-date").unwrap_or_else(|| header("date"));
            match form {
                Form::Full => format!(
                    "{}\n{}\n{}\n{date}\n{resource}{comp}",
                    request.method,
                    header("content-md5"),
                    header("content-type")
                ),
                Form::Lite => format!("{date}\n{resource}{comp}"),
            }
        }
        (StoreKind::Blob | StoreKind::Queue, Form::Lite) => format!(
            "{}\n{}\n{}\n{}\n{}{resource}{comp}",
            request.method,
            header("content-md5"),
            header("content-type"),
            date_line(request, variant.date),
            canonical_headers(request, variant.headers)
        ),
        (StoreKind::Blob | StoreKind::Queue, Form::Full) => {
            let mut text = format!("{}\n", request.method);
            for name in SIGNED_HEADERS {
                let value = match name {
                    "date" => date_line(request, variant.date),
                    "content-length" if header(name) == "0" && check.version >= EMPTY_LENGTH_SINCE => "",
                    _ => header(name),
                };
                text.push_str(value);
                text.push('\n');
            }
            text.push_str(&canonical_headers(request, variant.headers));
            text.push_str(&resource);
            text.push_str(&canonical_query(request, variant.plus));
            text
        }
    }
}

fn date_line(request: &Request, date: DateLine) -> &str {
    match date {
        DateLine::Empty if request.headers.get("x-ms-date").is_some() => "",
        _ => request.headers.get("date").unwrap_or_default(),
    }
}

/// `name:value` of every `x-ms-*` header, each on its line.
fn canonical_headers(request: &Request, order: HeaderOrder) -> String {
    let mut signed: Vec<(String, String)> = Vec::new();
    for (name, value) in request.headers.iter() {
        let name = name.to_ascii_lowercase();
        if !name.starts_with("x-ms-") {
            continue;
        }
        match signed.iter_mut().find(|(own, _)| *own == name) {
            Some((_, values)) => {
                values.push(',');
                values.push_str(value);
            }
            None => signed.push((name, value.to_owned())),
        }
    }
    match order {
        HeaderOrder::Collated => signed.sort_by(|(left, _), (right, _)| collation::compare(left, right)),
        HeaderOrder::Bytes => signed.sort(),
    }
    signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect()
}

/// `name:value` of every query parameter, each after a line feed, repeated ones joined with commas.
fn canonical_query(request: &Request, plus: Plus) -> String {
    let pairs = match plus {
        Plus::Space => request.query.clone(),
        // It was decoded once when the request was read, so it can be decoded.
        Plus::Kept => decode_query(&request.raw_query().replace('+', "%2B")).unwrap_or_default(),
    };
    let mut pairs: Vec<_> = pairs.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    pairs.sort();
    let mut text = String::new();
    let mut previous: Option<&str> = None;
    for (name, value) in &pairs {
        if previous == Some(name) {
            text.push(',');
        } else {
            text.push_str(&format!("\n{name}:"));
        }
        text.push_str(value);
        previous = Some(name);
    }
    text
}

//! Headers that mean the same for many operations: numbers, dates, leases, ranges, checksums and content headers.

use std::str::FromStr;

use uuid::Uuid;

use polyshard_azure_storage::{Headers, Request, ServiceError};

use super::metadata::read_metadata;
use super::tags::tags_of_header;
use crate::checksum::{Digests, Wanted, parse_crc64, parse_md5};
use crate::lease_rules::parse_lease_id;
use crate::model::{ByteRange, ContentHeaders, Expected, NewBlob, Tier};
use crate::reply::errors;

/// What the content of a blob is if its client does not say.
const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";
/// The sizes of premium page blobs.
const PREMIUM: [u8; 12] = [1, 2, 3, 4, 6, 10, 15, 20, 30, 40, 50, 60];
const PREMIUM_LARGE: [u8; 2] = [70, 80];

/// A header that says something.
pub(super) fn text<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    headers.get(name).map(str::trim).filter(|value| !value.is_empty())
}

/// A header that must be there.
pub(super) fn required<'h>(headers: &'h Headers, name: &str) -> Result<&'h str, ServiceError> {
    text(headers, name).ok_or_else(|| ServiceError::missing_header(name))
}

/// A header that is a number.
pub(super) fn number<N: FromStr>(headers: &Headers, name: &str) -> Result<Option<N>, ServiceError> {
    let Some(value) = text(headers, name) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| ServiceError::invalid_header(name, value))
}

/// A header that is `true` or `false`.
pub(super) fn flag(headers: &Headers, name: &str) -> Result<bool, ServiceError> {
    match text(headers, name) {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
        Some(value) => Err(ServiceError::invalid_header(name, value)),
    }
}

/// A header that is the id of a lease.
pub(super) fn lease_id(headers: &Headers, name: &str) -> Result<Option<Uuid>, ServiceError> {
    let Some(value) = text(headers, name) else { return Ok(None) };
    parse_lease_id(value).map(Some).ok_or_else(|| ServiceError::invalid_header(name, value))
}

/// The range of a read: `x-ms-range`, or else `Range`. The latter is passed over if it is of a form that is not known,
/// as HTTP has it.
pub(super) fn range(headers: &Headers) -> Result<Option<ByteRange>, ServiceError> {
    if let Some(own) = text(headers, "x-ms-range") {
        return parse_range(own).map(Some).ok_or_else(|| ServiceError::invalid_header("x-ms-range", own));
    }
    Ok(text(headers, "Range").and_then(parse_range))
}

/// The range of pages that are written: it must be there, and have both ends.
pub(super) fn page_range(headers: &Headers) -> Result<(u64, u64), ServiceError> {
    let (name, value) = match text(headers, "x-ms-range") {
        Some(value) => ("x-ms-range", value),
        None => ("Range", required(headers, "Range")?),
    };
    match parse_range(value) {
        Some(ByteRange { first, last: Some(last) }) => Ok((first, last)),
        _ => Err(ServiceError::invalid_header(name, value)),
    }
}

/// The part of a source that is read.
pub(super) fn source_range(headers: &Headers) -> Result<Option<ByteRange>, ServiceError> {
    let Some(value) = text(headers, "x-ms-source-range") else { return Ok(None) };
    parse_range(value).map(Some).ok_or_else(|| ServiceError::invalid_header("x-ms-source-range", value))
}

/// `bytes=5-9` or `bytes=5-`.
fn parse_range(text: &str) -> Option<ByteRange> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let first: u64 = digits(first)?;
    let last: Option<u64> = if last.is_empty() { None } else { Some(digits(last)?) };
    last.is_none_or(|last| last >= first).then_some(ByteRange { first, last })
}

/// What the body must add up to. Both sums at once are refused, as the service does.
pub(super) fn expected(headers: &Headers) -> Result<Expected, ServiceError> {
    sums(headers, "Content-MD5", "x-ms-content-crc64")
}

/// Compares a body that was read whole with the sums that the client gave.
pub(super) fn check_body(request: &Request) -> Result<(), ServiceError> {
    let expected = expected(&request.headers)?;
    let digests = Digests::of(&request.body, expected.wanted(Wanted::default()));
    expected.check(&digests).map_err(|error| errors::checksum(&error))
}

/// What the bytes of a source must add up to.
pub(super) fn source_expected(headers: &Headers) -> Result<Expected, ServiceError> {
    sums(headers, "x-ms-source-content-md5", "x-ms-source-content-crc64")
}

fn sums(headers: &Headers, md5: &'static str, crc64: &'static str) -> Result<Expected, ServiceError> {
    let given = text(headers, crc64);
    let expected = Expected {
        md5: text(headers, md5).map(|text| parse_md5(text).ok_or_else(errors::invalid_md5)).transpose()?,
        crc64: given
            .map(|text| parse_crc64(text).ok_or_else(|| ServiceError::invalid_header(crc64, text)))
            .transpose()?,
    };
    if expected.md5.is_some() && expected.crc64.is_some() {
        return Err(errors::both_sums());
    }
    Ok(expected)
}

/// The headers that a blob is to be answered with: `x-ms-blob-*` alone.
pub(super) fn content_headers(headers: &Headers) -> Result<ContentHeaders, ServiceError> {
    let own = |name: &str| text(headers, name).map(str::to_owned);
    let md5 = text(headers, "x-ms-blob-content-md5");
    Ok(ContentHeaders {
        content_type: own("x-ms-blob-content-type"),
        content_encoding: own("x-ms-blob-content-encoding"),
        content_language: own("x-ms-blob-content-language"),
        content_disposition: own("x-ms-blob-content-disposition"),
        cache_control: own("x-ms-blob-cache-control"),
        content_md5: md5.map(|text| parse_md5(text).ok_or_else(errors::invalid_md5)).transpose()?,
    })
}

/// What a new blob is made with. Where the request's own body is the blob, its own headers say what it is.
pub(super) fn new_blob(headers: &Headers, is_body_blob: bool) -> Result<NewBlob, ServiceError> {
    let mut content = content_headers(headers)?;
    if is_body_blob {
        let own = |name: &str| text(headers, name).map(str::to_owned);
        content.content_type = content.content_type.or_else(|| own("Content-Type"));
        content.content_encoding = content.content_encoding.or_else(|| own("Content-Encoding"));
        content.content_language = content.content_language.or_else(|| own("Content-Language"));
        content.cache_control = content.cache_control.or_else(|| own("Cache-Control"));
    }
    content.content_type.get_or_insert_with(|| CONTENT_TYPE_DEFAULT.to_owned());
    Ok(NewBlob {
        headers: content,
        metadata: read_metadata(headers)?,
        tags: tags_of_header(headers)?.unwrap_or_default(),
        tier: tier(headers)?,
    })
}

/// `x-ms-access-tier`
pub(super) fn tier(headers: &Headers) -> Result<Option<Tier>, ServiceError> {
    const NAME: &str = "x-ms-access-tier";
    let Some(value) = text(headers, NAME) else { return Ok(None) };
    let known = [Tier::Hot, Tier::Cool, Tier::Cold, Tier::Archive];
    if let Some(tier) = known.into_iter().find(|tier| tier.to_string().eq_ignore_ascii_case(value)) {
        return Ok(Some(tier));
    }
    let premium = value.strip_prefix(['P', 'p']).and_then(|number| number.parse().ok());
    let premium = premium.filter(|number| PREMIUM.contains(number) || PREMIUM_LARGE.contains(number));
    premium.map(|number| Some(Tier::Premium(number))).ok_or_else(|| ServiceError::invalid_header(NAME, value))
}

/// Headers by which a client asks for what is not there yet. To pass them over would store something else than the
/// client believes.
pub(super) fn refuse_unbuilt(headers: &Headers) -> Result<(), ServiceError> {
    const UNBUILT: [(&str, &str); 9] = [
        ("x-ms-encryption-key", "customer-provided encryption keys"),
        ("x-ms-encryption-scope", "encryption scopes"),
        ("x-ms-default-encryption-scope", "encryption scopes"),
        ("x-ms-deny-encryption-scope-override", "encryption scopes"),
        ("x-ms-source-encryption-key", "customer-provided encryption keys"),
        ("x-ms-immutability-policy-until-date", "immutability policies"),
        ("x-ms-immutability-policy-mode", "immutability policies"),
        ("x-ms-legal-hold", "legal holds"),
        ("x-ms-structured-body", "structured bodies (x-ms-structured-body)"),
    ];
    let asked = |name: &str| text(headers, name).is_some_and(|value| !value.eq_ignore_ascii_case("false"));
    match UNBUILT.into_iter().find(|(name, _)| asked(name)) {
        Some((_, what)) => Err(errors::not_built(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn ranges_are_of_two_forms() {
        let range = |text| parse_range(text).map(|range| (range.first, range.last));
        assert_eq!(range("bytes=0-"), Some((0, None)));
        assert_eq!(range("bytes=5-9"), Some((5, Some(9))));
        for bad in ["bytes=9-5", "bytes=-5", "bytes=a-b", "bytes=1-2,4-5", "5-9", "", "bytes=+1-2"] {
            assert_eq!(range(bad), None, "{bad}");
        }
        let both = headers(&[("Range", "bytes=0-1"), ("x-ms-range", "bytes=2-3")]);
        assert_eq!(super::range(&both).unwrap(), Some(ByteRange { first: 2, last: Some(3) }));
        assert_eq!(super::range(&headers(&[("Range", "lines=1")])).unwrap(), None);
        assert!(super::range(&headers(&[("x-ms-range", "lines=1")])).is_err());
        assert!(page_range(&headers(&[("x-ms-range", "bytes=0-")])).is_err());
        assert_eq!(page_range(&headers(&[("Range", "bytes=0-511")])).unwrap(), (0, 511));
    }

    #[test]
    fn sums_and_tiers_are_read_or_refused() {
        let md5 = ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==");
        let crc64 = ("x-ms-content-crc64", "iJh5CoYUi64=");
        assert!(expected(&headers(&[md5])).unwrap().md5.is_some());
        assert!(expected(&headers(&[crc64])).unwrap().crc64.is_some());
        let code = |pairs: &[(&str, &str)]| expected(&headers(pairs)).unwrap_err().code();
        assert_eq!(code(&[md5, crc64]), "BothCrc64AndMd5HeaderPresent");
        assert_eq!(code(&[("Content-MD5", "x")]), "InvalidMd5");
        assert_eq!(code(&[("x-ms-content-crc64", "x")]), "InvalidHeaderValue");
        let tier = |text| tier(&headers(&[("x-ms-access-tier", text)]));
        assert_eq!(tier("cool").unwrap(), Some(Tier::Cool));
        assert_eq!(tier("P10").unwrap(), Some(Tier::Premium(10)));
        assert_eq!(tier("P11").unwrap_err().code(), "InvalidHeaderValue");
        assert_eq!(tier("").unwrap(), None);
    }

    #[test]
    fn a_new_blob_takes_the_headers_of_its_request() {
        let given = headers(&[
            ("Content-Type", "text/plain"),
            ("x-ms-blob-content-encoding", "gzip"),
            ("Content-Encoding", "br"),
            ("x-ms-meta-MixedCase", "1"),
            ("x-ms-tags", "a=1"),
        ]);
        let blob = new_blob(&given, true).unwrap();
        assert_eq!(blob.headers.content_type.as_deref(), Some("text/plain"));
        assert_eq!(blob.headers.content_encoding.as_deref(), Some("gzip"));
        assert_eq!(blob.metadata, [("MixedCase".to_owned(), "1".to_owned())]);
        assert_eq!(blob.tags, [("a".to_owned(), "1".to_owned())]);
        let blob = new_blob(&given, false).unwrap();
        assert_eq!(blob.headers.content_type.as_deref(), Some(CONTENT_TYPE_DEFAULT));
        assert!(refuse_unbuilt(&headers(&[("x-ms-legal-hold", "false")])).is_ok());
        for (name, value) in [
            ("x-ms-structured-body", "XSM/1.0"),
            ("x-ms-encryption-scope", "mine"),
            ("x-ms-default-encryption-scope", "mine"),
            ("x-ms-deny-encryption-scope-override", "true"),
        ] {
            assert_eq!(refuse_unbuilt(&headers(&[(name, value)])).unwrap_err().status(), 501, "{name}");
        }
    }
}

//! Conditions as headers have them, of the blob itself and of the source of a copy.

use polyshard_azure_storage::{Headers, ServiceError, Timestamp};

use super::headers::{lease_id, number, text};
use crate::conditions::{Conditions, Etags};
use crate::model::Ticks;
use crate::reply::errors;
use crate::tag_filter::{TagFilter, TagUse};

/// ETags that one header may name; more than anybody has.
const ETAGS_MAX: usize = 64;

/// The conditions of a read.
pub(super) fn of_read(headers: &Headers) -> Result<Conditions, ServiceError> {
    Ok(Conditions { lease: lease_id(headers, "x-ms-lease-id")?, ..read(headers, "", "x-ms-if-tags")? })
}

/// The conditions of a change. Of ETags and dates it can have one, or a pair of which the ETag decides.
pub(super) fn of_write(headers: &Headers) -> Result<Conditions, ServiceError> {
    let conditions = of_read(headers)?;
    let is_list = |etags: &Option<Etags>| matches!(etags, Some(Etags::These(these)) if these.len() > 1);
    let given = [
        conditions.if_match.is_some(),
        conditions.if_none_match.is_some(),
        conditions.modified_since.is_some(),
        conditions.unmodified_since.is_some(),
    ];
    let is_known = match given {
        [_, _, false, false] => !(given[0] && given[1]),
        [false, _, true, false] | [_, false, false, true] => true,
        _ => false,
    };
    if !is_known || is_list(&conditions.if_match) || is_list(&conditions.if_none_match) {
        return Err(errors::many_conditions());
    }
    Ok(conditions)
}

/// The conditions of an append.
pub(super) fn of_append(headers: &Headers) -> Result<Conditions, ServiceError> {
    Ok(Conditions {
        append_position: number(headers, "x-ms-blob-condition-appendpos")?,
        size_max: number(headers, "x-ms-blob-condition-maxsize")?,
        ..of_write(headers)?
    })
}

/// The conditions of a write of pages.
pub(super) fn of_pages(headers: &Headers) -> Result<Conditions, ServiceError> {
    Ok(Conditions {
        sequence_most: number(headers, "x-ms-if-sequence-number-le")?,
        sequence_less: number(headers, "x-ms-if-sequence-number-lt")?,
        sequence_equal: number(headers, "x-ms-if-sequence-number-eq")?,
        ..of_write(headers)?
    })
}

/// The conditions on the blob whose tags are read or set: newer clients call them so, since tags may one day have an
/// ETag of their own.
pub(super) fn of_tags(headers: &Headers) -> Result<Conditions, ServiceError> {
    let common = of_write(headers)?;
    let own = read(headers, "x-ms-blob-", "x-ms-if-tags")?;
    Ok(Conditions {
        if_match: own.if_match.or(common.if_match),
        if_none_match: own.if_none_match.or(common.if_none_match),
        modified_since: own.modified_since.or(common.modified_since),
        unmodified_since: own.unmodified_since.or(common.unmodified_since),
        ..common
    })
}

/// The conditions on the source of a copy.
pub(super) fn of_source(headers: &Headers) -> Result<Conditions, ServiceError> {
    read(headers, "x-ms-source-", "x-ms-source-if-tags")
}

fn read(headers: &Headers, prefix: &str, tags: &str) -> Result<Conditions, ServiceError> {
    let name = |own: &str| format!("{prefix}{own}");
    Ok(Conditions {
        if_match: etags(headers, &name("If-Match"))?,
        if_none_match: etags(headers, &name("If-None-Match"))?,
        modified_since: date(headers, &name("If-Modified-Since"))?,
        unmodified_since: date(headers, &name("If-Unmodified-Since"))?,
        tags: match text(headers, tags) {
            None => None,
            Some(text) => {
                let parsed = TagFilter::parse(text, TagUse::Condition);
                let bad = |error: crate::tag_filter::TagFilterError| {
                    ServiceError::invalid_header(tags, text).detail("Reason", error.to_string())
                };
                Some(parsed.map_err(bad)?)
            }
        },
        ..Conditions::default()
    })
}

fn date(headers: &Headers, name: &str) -> Result<Option<Ticks>, ServiceError> {
    let Some(text) = text(headers, name) else { return Ok(None) };
    let time = Timestamp::parse_rfc1123(text).ok_or_else(|| ServiceError::invalid_header(name, text))?;
    Ok(Some(time.ticks()))
}

/// ETags with or without quotes. A header that is there and says nothing is not taken for one that is not there: the
/// client meant to be careful.
fn etags(headers: &Headers, name: &str) -> Result<Option<Etags>, ServiceError> {
    let Some(text) = headers.get(name).map(str::trim) else { return Ok(None) };
    if text.is_empty() {
        return Err(ServiceError::invalid_header(name, text));
    }
    let unquoted = |text: &str| {
        let text = text.trim();
        text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).to_owned()
    };
    let these: Vec<String> = text.split(',').take(ETAGS_MAX + 1).map(unquoted).collect();
    if these.len() > ETAGS_MAX {
        let reason = format!("it names more than {ETAGS_MAX} ETags");
        return Err(ServiceError::invalid_header(name, text).because(reason));
    }
    let is_any = these.iter().any(|etag| etag == "*");
    Ok(Some(if is_any { Etags::Any } else { Etags::These(these) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const DATE: &str = "Sun, 15 Nov 2026 07:25:16 GMT";

    #[test]
    fn etags_come_with_quotes_and_without() {
        let of = |text| of_read(&headers(&[("If-Match", text)])).map(|conditions| conditions.if_match);
        let these =
            |texts: &[&str]| Some(Etags::These(texts.iter().map(|text| (*text).to_owned()).collect()));
        assert_eq!(of("\"0x8D\"").unwrap(), these(&["0x8D"]));
        assert_eq!(of("0x8D").unwrap(), these(&["0x8D"]));
        assert_eq!(of("\"0x8D\", \"0x8E\"").unwrap(), these(&["0x8D", "0x8E"]));
        assert_eq!(of("*").unwrap(), Some(Etags::Any));
        // It never was an ETag of ours, so that it does not match: no error of its form.
        assert_eq!(of("W/\"wrong\"").unwrap(), these(&["W/\"wrong\""]));
        assert_eq!(of(" ").unwrap_err().code(), "InvalidHeaderValue");
        // More of them are refused: the last ones are not passed over.
        let code = |count: usize, last: &str| {
            let text = format!("{}{last}", "\"0x8D\",".repeat(count - 1));
            of_read(&headers(&[("If-None-Match", &text)])).err().map(|error| error.code())
        };
        assert_eq!(code(ETAGS_MAX, "\"0x8E\""), None);
        assert_eq!(code(ETAGS_MAX + 1, "\"0x8E\""), Some("InvalidHeaderValue"));
        assert_eq!(code(ETAGS_MAX + 1, "*"), Some("InvalidHeaderValue"));
    }

    #[test]
    fn writes_have_one_condition_or_a_pair() {
        let names = ["If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"];
        let allowed = [0b0000, 0b0001, 0b0010, 0b0100, 0b1000, 0b0110, 0b1001];
        for given in 0..16 {
            let pairs: Vec<(&str, &str)> = (0..4)
                .filter(|at| given >> at & 1 == 1)
                .map(|at| (names[at], if at < 2 { "\"0x8D\"" } else { DATE }))
                .collect();
            let headers = headers(&pairs);
            assert!(of_read(&headers).is_ok(), "{given:04b}");
            let refused = of_write(&headers).err().map(|error| error.code());
            let expected = (!allowed.contains(&given)).then_some("MultipleConditionHeadersNotSupported");
            assert_eq!(refused, expected, "{given:04b}");
        }
        let list = headers(&[("If-Match", "\"a\",\"b\"")]);
        assert_eq!(of_write(&list).unwrap_err().code(), "MultipleConditionHeadersNotSupported");
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for (name, value) in [
            ("If-Modified-Since", "yesterday"),
            ("x-ms-lease-id", "mine"),
            ("x-ms-if-tags", "a=b"),
            ("x-ms-blob-condition-appendpos", "-1"),
            ("x-ms-blob-condition-maxsize", "x"),
        ] {
            assert_eq!(
                of_append(&headers(&[(name, value)])).unwrap_err().code(),
                "InvalidHeaderValue",
                "{name}"
            );
        }
        let source = headers(&[("x-ms-source-if-match", "\"a\""), ("If-Match", "\"b\"")]);
        assert_eq!(of_source(&source).unwrap().if_match, Some(Etags::These(vec!["a".to_owned()])));
        let tags = headers(&[("x-ms-blob-if-match", "\"a\""), ("x-ms-if-tags", "a='1'")]);
        let tags = of_tags(&tags).unwrap();
        assert!(tags.if_match == Some(Etags::These(vec!["a".to_owned()])) && tags.tags.is_some());
        let pages = of_pages(&headers(&[("x-ms-if-sequence-number-le", "7")])).unwrap();
        assert_eq!(pages.sequence_most, Some(7));
    }
}

//! ETags: an entity's timestamp, as the service writes it, and the conditions that clients make of them.

use percent_encoding::percent_decode_str;
use polyshard_azure_storage::Timestamp;

/// The ETag of an entity that was last changed then: `W/"datetime'2026-11-15T07%3A25%3A16.2221997Z'"`.
pub fn etag(timestamp: Timestamp) -> String {
    let iso = timestamp.iso();
    let mut out = String::with_capacity(iso.len() + 20);
    out.push_str("W/\"datetime'");
    let mut parts = iso.split(':');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        out.push_str("%3A");
        out.push_str(part);
    }
    out.push_str("'\"");
    out
}

/// Which version of an entity a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfMatch {
    /// Whichever there is.
    Any,
    /// The one that was last changed then; none, if that is [`IfMatch::NEVER`].
    At(Timestamp),
}

impl IfMatch {
    /// No entity was changed at the beginning of the calendar.
    pub const NEVER: Timestamp = Timestamp::MIN;

    /// Reads an `If-Match` header: `*`, or a weak ETag. One that no entity ever had is one that does not match. Colons
    /// need not be encoded, as several clients send them.
    pub fn parse(text: &str) -> Option<IfMatch> {
        let text = text.trim();
        if text == "*" {
            return Some(IfMatch::Any);
        }
        let tag = text.strip_prefix("W/").or_else(|| text.strip_prefix("w/"))?;
        let tag = tag.strip_prefix('"')?.strip_suffix('"')?;
        Some(IfMatch::At(time_of(tag).unwrap_or(IfMatch::NEVER)))
    }

    /// Whether a version that was last changed then is meant.
    pub fn is_met_by(self, timestamp: Timestamp) -> bool {
        match self {
            IfMatch::Any => true,
            IfMatch::At(meant) => meant == timestamp,
        }
    }
}

/// The time in an ETag; none if this service did not make it.
fn time_of(tag: &str) -> Option<Timestamp> {
    let inner = tag.strip_prefix("datetime'")?.strip_suffix('\'')?;
    let decoded = percent_decode_str(inner).decode_utf8().ok()?;
    Timestamp::parse_iso(&decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_read_as_it_was_written() {
        let time = Timestamp::parse_iso("2026-11-15T07:25:16.2221997Z").unwrap();
        assert_eq!(etag(time), "W/\"datetime'2026-11-15T07%3A25%3A16.2221997Z'\"");
        assert_eq!(IfMatch::parse(&etag(time)), Some(IfMatch::At(time)));
        assert_eq!(IfMatch::parse("W/\"datetime'2026-11-15T07:25:16.2221997Z'\""), Some(IfMatch::At(time)));
        assert_eq!(IfMatch::parse("*"), Some(IfMatch::Any));
        assert_eq!(IfMatch::parse(&etag(time).replacen('W', "w", 1)), Some(IfMatch::At(time)));
        for text in ["W/\"wrong\"", "w/\"wrong\"", "W/\"datetime'x'\"", "W/\"datetime'%FF'\"", "W/\"\""] {
            assert_eq!(IfMatch::parse(text), Some(IfMatch::At(IfMatch::NEVER)), "{text}");
        }
        // Entities have weak ETags: a strong one is a mistake.
        let strong = etag(time)[2..].to_owned();
        for text in ["", "\"", "wrong", "\"wrong\"", "W/wrong", "W/\"", "W/\"datetime'2026-11-15", &strong] {
            assert_eq!(IfMatch::parse(text), None, "{text}");
        }
    }
}

//! Versions of the Azure Storage protocols: dates, compared as dates.

use std::fmt;

use crate::Timestamp;

/// The oldest version served: the first with the signatures and headers that today's clients use.
pub const API_VERSION_MIN: ApiVersion = ApiVersion { year: 2009, month: 9, day: 19 };

/// The version of a request that names none: the one that the table clients of all languages send.
pub const API_VERSION_DEFAULT: ApiVersion = ApiVersion { year: 2019, month: 2, day: 2 };

/// A version of the protocol, such as `2019-02-02`. Every version from [`API_VERSION_MIN`] on is accepted, also those
/// not yet published: clients name a newer one with every release, and use nothing of it in ordinary requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    year: u16,
    month: u8,
    day: u8,
}

impl ApiVersion {
    /// Reads `YYYY-MM-DD`; nothing for what is no date or is before [`API_VERSION_MIN`].
    pub fn parse(text: &str) -> Option<ApiVersion> {
        if text.len() != "YYYY-MM-DD".len() || Timestamp::parse_iso(text).is_none() {
            return None;
        }
        let mut parts = text.split('-');
        let version = ApiVersion {
            year: parts.next()?.parse().ok()?,
            month: parts.next()?.parse().ok()?,
            day: parts.next()?.parse().ok()?,
        };
        (version >= API_VERSION_MIN).then_some(version)
    }

    /// A version known when this was written; for comparisons.
    pub(crate) const fn known(year: u16, month: u8, day: u8) -> ApiVersion {
        ApiVersion { year, month, day }
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::ApiVersion;

    #[test]
    fn any_later_date_is_a_version_and_nothing_else_is() {
        for text in ["2009-09-19", "2019-02-02", "2026-10-06", "2099-12-31"] {
            assert_eq!(ApiVersion::parse(text).unwrap().to_string(), text);
        }
        for text in ["2009-07-17", "2019-02-30", "2019-2-2", "latest", "", "2019-02-02T00:00Z"] {
            assert_eq!(ApiVersion::parse(text), None, "{text}");
        }
        assert!(ApiVersion::parse("2020-12-06") > ApiVersion::parse("2020-10-02"));
    }
}

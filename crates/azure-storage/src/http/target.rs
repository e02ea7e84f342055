//! The request target: kept byte for byte for signatures, decoded once for everybody else.

use percent_encoding::percent_decode_str;

use crate::ServiceError;

/// A path as it was sent: percent-encoded, not normalised. It starts with a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPath(String);

impl RawPath {
    /// Takes a path that starts with a slash.
    pub fn new(path: &str) -> Option<RawPath> {
        path.starts_with('/').then(|| RawPath(path.to_owned()))
    }

    /// The path as it was sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The whole path decoded once, without its first slash. What was `%2F` is a slash now: decode before splitting
    /// only where slashes are part of the name, as in blob names, or cannot occur.
    pub fn decoded(&self) -> Result<String, ServiceError> {
        percent_decode(&self.0[1..])
    }

    /// The parts between the slashes, each decoded once. `/` has none; an empty part is kept.
    pub fn segments(&self) -> Result<Vec<String>, ServiceError> {
        if self.0 == "/" {
            return Ok(Vec::new());
        }
        self.0[1..].split('/').map(percent_decode).collect()
    }

    /// The first part, still encoded, and the rest as a path.
    pub(crate) fn split_first(&self) -> (&str, RawPath) {
        match self.0[1..].split_once('/') {
            Some((first, rest)) => (first, RawPath(format!("/{rest}"))),
            None => (&self.0[1..], RawPath("/".to_owned())),
        }
    }
}

/// Decodes `%XX` once; bytes that are no UTF-8 are refused rather than guessed at.
pub fn percent_decode(text: &str) -> Result<String, ServiceError> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(ServiceError::invalid_uri("its percent-encoding does not decode to UTF-8")),
    }
}

/// Takes a query apart and decodes names and values once, order and repetitions kept. A `+` is a space, as the service
/// and web forms have it.
pub fn decode_query(query: &str) -> Result<Vec<(String, String)>, ServiceError> {
    let decode = |text: &str| percent_decode(&text.replace('+', " "));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{RawPath, decode_query};

    #[test]
    fn paths_are_decoded_once_and_never_normalised() {
        let path = RawPath::new("/a%2Fb//c%2520d/../e/").unwrap();
        assert_eq!(path.segments().unwrap(), ["a/b", "", "c%20d", "..", "e", ""]);
        assert_eq!(path.decoded().unwrap(), "a/b//c%20d/../e/");
        assert_eq!(path.split_first().0, "a%2Fb");
        assert_eq!(path.split_first().1.as_str(), "//c%2520d/../e/");
        assert_eq!(RawPath::new("/acct").unwrap().split_first().1.as_str(), "/");
        assert!(RawPath::new("/").unwrap().segments().unwrap().is_empty());
        assert_eq!(RawPath::new("/%FF").unwrap().decoded().unwrap_err().code(), "InvalidUri");
        assert_eq!(RawPath::new("acct"), None);
    }

    #[test]
    fn queries_keep_order_and_repetitions() {
        let pairs = decode_query("b=1&a=x%26y+z&&flag&b=%C3%BC&e=a=b").unwrap();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("b", "1"), ("a", "x&y z"), ("flag", ""), ("b", "ü"), ("e", "a=b")]);
        assert!(decode_query("a=%FF").is_err());
    }
}

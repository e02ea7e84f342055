//! The path of a request: what it names, and what of it is signed.

use percent_encoding::percent_decode_str;

use crate::failure::Failure;

/// Segments of a path at most; the longest one of the service has eight.
const SEGMENTS_MAX: usize = 10;

/// The names of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// Reads `/dbs/…`; a slash at the end says nothing.
    pub fn parse(path: &str) -> Result<Path, Failure> {
        let wrong = || Failure::bad_request("the path is not UTF-8, or has too many segments");
        let names = path.split('/').filter(|name| !name.is_empty());
        let names: Option<Vec<String>> = names
            .map(|name| percent_decode_str(name).decode_utf8().ok().map(|name| name.into_owned()))
            .collect();
        let names = names.ok_or_else(wrong)?;
        if names.len() > SEGMENTS_MAX { Err(wrong()) } else { Ok(Path(names)) }
    }

    /// Its names.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// The type of what is asked for and the path of it, or of what a feed is in, as they are signed.
    pub fn signed(&self) -> (String, String) {
        let names = &self.0;
        match names.len() {
            0 => (String::new(), String::new()),
            2 if names[0] == "offers" => ("offers".to_owned(), names[1].to_lowercase()),
            6 if names[4] == "operations" => ("colls".to_owned(), names[..4].join("/")),
            length if length % 2 == 1 => (names[length - 1].clone(), names[..length - 1].join("/")),
            length => (names[length - 2].clone(), names.join("/")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_the_path_as_it_is_meant() {
        for (path, kind, link) in [
            ("/", "", ""),
            ("/dbs", "dbs", ""),
            ("/dbs/a%20b+%C3%A9%2541&=/", "dbs", "dbs/a b+é%41&="),
            ("/dbs/d/colls/c/docs/", "docs", "dbs/d/colls/c"),
            ("/dbs/d/colls/c/docs/1", "docs", "dbs/d/colls/c/docs/1"),
            ("/offers", "offers", ""),
            ("/offers/AbC=", "offers", "abc="),
            ("/dbs/d/colls/c/operations/partitionkeydelete", "colls", "dbs/d/colls/c"),
        ] {
            let (found_kind, found_link) = Path::parse(path).unwrap().signed();
            assert_eq!((found_kind.as_str(), found_link.as_str()), (kind, link), "{path}");
        }
        assert!(Path::parse("/%FF").is_err());
        assert!(Path::parse(&"/a".repeat(11)).is_err());
    }
}

//! The user's metadata in headers, checked as the service checks it.

use polyshard_azure_storage::{Headers, ServiceError};

use crate::reply;
use crate::store::Metadata;

/// Names and values together: the service's limit.
const METADATA_BYTES_MAX: usize = 8 * 1024;

/// Reads `x-ms-meta-*`. Names keep their case; they are the identifiers of C#, as far as headers can hold them.
pub(super) fn read_metadata(headers: &Headers) -> Result<Metadata, ServiceError> {
    let mut metadata = Metadata::new();
    let mut bytes = 0;
    for (name, value) in headers.metadata() {
        if name.is_empty() {
            return Err(reply::empty_metadata_name());
        }
        let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let identifier = name.bytes().all(|byte| starts(byte) || byte.is_ascii_digit());
        let twice = metadata.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        // Clients disagree about how a header says anything else, so it could not be given back as it came.
        if !identifier || !name.bytes().next().is_some_and(starts) || twice || !value.is_ascii() {
            return Err(reply::invalid_metadata(name));
        }
        bytes += name.len() + value.len();
        if bytes > METADATA_BYTES_MAX {
            return Err(reply::metadata_too_large(METADATA_BYTES_MAX));
        }
        metadata.push((name.to_owned(), value.to_owned()));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Metadata, &'static str> {
        let headers =
            pairs.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), (*value).to_owned())).collect();
        read_metadata(&headers).map_err(|error| error.code())
    }

    #[test]
    fn names_keep_their_case_and_must_be_identifiers() {
        let read_back = read(&[("MixedCase", "a b"), ("_x1", "")]).unwrap();
        assert_eq!(
            read_back,
            [("MixedCase".to_owned(), "a b".to_owned()), ("_x1".to_owned(), String::new())]
        );
        for name in ["1a", "a-b", "a.b", "a b"] {
            assert_eq!(read(&[(name, "x")]), Err("InvalidMetadata"), "{name}");
        }
        assert_eq!(read(&[("a", "1"), ("A", "2")]), Err("InvalidMetadata"));
        assert_eq!(read(&[("a", "ü")]), Err("InvalidMetadata"));
        assert_eq!(read(&[("", "x")]), Err("EmptyMetadataKey"));
        assert_eq!(read(&[("a", "x".repeat(8191).as_str())]).unwrap().len(), 1);
        assert_eq!(read(&[("a", "x".repeat(8192).as_str())]), Err("MetadataTooLarge"));
    }
}

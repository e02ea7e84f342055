//! The user's metadata in headers, checked as the service checks it.

use polyshard_azure_storage::{Headers, ServiceError};

use crate::model::Metadata;
use crate::reply::errors;

/// Names and values together: the service's limit.
const METADATA_BYTES_MAX: usize = 8 * 1024;

/// Reads `x-ms-meta-*`. Names keep their case; they are the identifiers of C#, as far as headers can hold them.
pub(super) fn read_metadata(headers: &Headers) -> Result<Metadata, ServiceError> {
    let mut metadata = Metadata::new();
    let mut bytes = 0;
    for (name, value) in headers.metadata() {
        if name.is_empty() {
            return Err(errors::empty_metadata_name());
        }
        let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_identifier = name.bytes().all(|byte| starts(byte) || byte.is_ascii_digit());
        let is_twice = metadata.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        // Clients disagree about how a header says anything else, so it could not be given back as it came.
        if !is_identifier || !name.bytes().next().is_some_and(starts) || is_twice || !value.is_ascii() {
            return Err(errors::invalid_metadata());
        }
        bytes += name.len() + value.len();
        if bytes > METADATA_BYTES_MAX {
            return Err(errors::metadata_too_large(METADATA_BYTES_MAX));
        }
        metadata.push((name.to_owned(), value.to_owned()));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_case_and_are_identifiers() {
        let read = |pairs: &[(&str, &str)]| {
            let headers = pairs
                .iter()
                .map(|(name, value)| (format!("X-Ms-Meta-{name}"), (*value).to_owned()))
                .collect();
            read_metadata(&headers).map_err(|error| error.code())
        };
        assert_eq!(read(&[("MixedCase", "1")]), Ok(vec![("MixedCase".to_owned(), "1".to_owned())]));
        assert_eq!(read(&[("", "1")]), Err("EmptyMetadataKey"));
        for bad in ["1a", "a-b", "a.b"] {
            assert_eq!(read(&[(bad, "1")]), Err("InvalidMetadata"), "{bad}");
        }
        assert_eq!(read(&[("a", "1"), ("A", "2")]), Err("InvalidMetadata"));
        assert_eq!(read(&[("a", &"x".repeat(8192))]), Err("MetadataTooLarge"));
        assert!(read(&[("a", &"x".repeat(8191))]).is_ok());
    }
}

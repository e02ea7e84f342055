//! Errors in the service's own words: the only place that knows their codes and texts.

use polyshard_azure_storage::ServiceError;

use crate::checksum::ChecksumError;
use crate::conditions::ConditionError;
use crate::lease_rules::LeaseError;
use crate::name::NameError;
use crate::store::StoreError;

/// What an error is about: leases of containers and of blobs have other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Container,
    Blob,
}

/// The store's refusal or failure as the client is told.
pub(crate) fn failure(error: &StoreError, thing: Thing) -> ServiceError {
    match error {
        StoreError::NoSuchContainer(_) => {
            ServiceError::new(404, "ContainerNotFound", "The specified container does not exist.")
        }
        StoreError::ContainerExists(_) => {
            ServiceError::new(409, "ContainerAlreadyExists", "The specified container already exists.")
        }
        StoreError::NoSuchBlob(_) => blob_not_found(),
        StoreError::WrongKind(_) => {
            ServiceError::new(409, "InvalidBlobType", "The blob type is invalid for this operation.")
        }
        StoreError::Condition(error) => condition(*error, thing),
        StoreError::ContainerLease(error) => lease(*error, Thing::Container),
        StoreError::BlobLease(error) => lease(*error, Thing::Blob),
        StoreError::Checksum(error) => checksum(error),
        StoreError::SnapshotsPresent => {
            let message = "This operation is not permitted while the blob has snapshots.";
            ServiceError::new(409, "SnapshotsPresent", message)
        }
        StoreError::InvalidRange { size } => invalid_range(*size),
        StoreError::SnapshotUnchangeable => {
            ServiceError::new(400, "InvalidOperation", "Invalid operation against a blob snapshot.")
        }
        StoreError::Archived(_) => {
            ServiceError::new(409, "BlobArchived", "This operation is not permitted on an archived blob.")
        }
        StoreError::Source(error) => source(error),
        StoreError::Kit(error) => polyshard_azure_storage::failure(error),
        other => write_failure(other),
    }
}

/// Refusals of writes.
fn write_failure(error: &StoreError) -> ServiceError {
    match error {
        StoreError::InvalidBlockList(_) => invalid_block_list(),
        StoreError::InvalidBlockId => {
            ServiceError::new(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.")
        }
        StoreError::TooManyBlocks(max) => ServiceError::new(
            409,
            "BlockCountExceedsLimit",
            format!("The block count cannot exceed the maximum limit of {} blocks.", grouped(*max)),
        ),
        StoreError::TooLarge { max } => too_large(*max),
        StoreError::AppendPosition => condition(ConditionError::AppendPosition, Thing::Blob),
        StoreError::MaxSize => condition(ConditionError::MaxSize, Thing::Blob),
        StoreError::SequenceNumber => condition(ConditionError::Sequence, Thing::Blob),
        StoreError::Sealed => {
            let message = "The specified blob is sealed and its contents can't be modified unless the blob is \
                           re-created after a delete.";
            ServiceError::new(409, "BlobIsSealed", message)
        }
        StoreError::InvalidPageRange { size } => {
            ServiceError::new(416, "InvalidPageRange", "The page range specified is invalid.")
                .header("Content-Range", format!("bytes */{size}"))
        }
        StoreError::InvalidSnapshot => {
            ServiceError::new(409, "PreviousSnapshotNotFound", "The previous snapshot is not found.")
        }
        StoreError::NoPendingCopy => {
            let message = "There is currently no pending copy operation.";
            ServiceError::new(409, "NoPendingCopyOperation", message)
        }
        StoreError::Client(reason) => invalid_input(reason),
        StoreError::Misplaced { name, error } => ServiceError::new(
            400,
            "InvalidResourceName",
            format!("The specified resource name {name} does not fit the map it is bound to: {error}"),
        ),
        StoreError::Contended(_) => {
            ServiceError::server_busy("the blob is changed by too many at once; try again")
        }
        StoreError::InvalidMarker => {
            ServiceError::invalid_query("marker", "", "it must be one that an earlier part of the list gave")
        }
        StoreError::NotBuilt(what) => not_built(what),
        // All others are in the first half.
        other => invalid_input(&other.to_string()),
    }
}

fn source(error: &StoreError) -> ServiceError {
    match error {
        StoreError::Condition(
            ConditionError::NotMet | ConditionError::NotModified | ConditionError::Unsatisfiable,
        ) => {
            let message = "The source condition specified using HTTP conditional header(s) is not met.";
            ServiceError::new(412, "SourceConditionNotMet", message)
        }
        StoreError::NoSuchBlob(_) => cannot_verify_source(404, "The specified blob does not exist."),
        StoreError::NoSuchContainer(_) => {
            cannot_verify_source(404, "The specified container does not exist.")
        }
        StoreError::WrongKind(_) => {
            let message = "The copy source blob type is invalid for this operation.";
            ServiceError::new(409, "InvalidSourceBlobType", message)
        }
        other => failure(other, Thing::Blob),
    }
}

/// A source that cannot be read, with the status that its own server would answer.
pub(crate) fn cannot_verify_source(status: u16, why: &str) -> ServiceError {
    ServiceError::new(status, "CannotVerifyCopySource", why.to_owned())
}

fn condition(error: ConditionError, thing: Thing) -> ServiceError {
    const NOT_MET: &str = "The condition specified using HTTP conditional header(s) is not met.";
    match error {
        ConditionError::NotModified => ServiceError::new(304, "ConditionNotMet", NOT_MET),
        ConditionError::NotMet => ServiceError::new(412, "ConditionNotMet", NOT_MET),
        ConditionError::Exists => {
            ServiceError::new(409, "BlobAlreadyExists", "The specified blob already exists.")
        }
        ConditionError::Unsatisfiable => {
            let message = "The request includes an unsatisfiable condition for this operation.";
            ServiceError::new(400, "UnsatisfiableCondition", message)
        }
        ConditionError::AppendPosition => {
            let message = "The append position condition specified was not met.";
            ServiceError::new(412, "AppendPositionConditionNotMet", message)
        }
        ConditionError::MaxSize => {
            let message = "The max blob size condition specified was not met.";
            ServiceError::new(412, "MaxBlobSizeConditionNotMet", message)
        }
        ConditionError::Sequence => {
            let message = "The sequence number condition specified was not met.";
            ServiceError::new(412, "SequenceNumberConditionNotMet", message)
        }
        ConditionError::Lease(error) => lease(error, thing),
    }
}

fn lease(error: LeaseError, thing: Thing) -> ServiceError {
    let (noun, mismatch, not_present) = match thing {
        Thing::Container => {
            ("container", "LeaseIdMismatchWithContainerOperation", "LeaseNotPresentWithContainerOperation")
        }
        Thing::Blob => ("blob", "LeaseIdMismatchWithBlobOperation", "LeaseNotPresentWithBlobOperation"),
    };
    let (status, code, message) = match error {
        LeaseError::AlreadyPresent => {
            (409, "LeaseAlreadyPresent", "There is already a lease present.".to_owned())
        }
        LeaseError::NotPresent => (
            409,
            "LeaseNotPresentWithLeaseOperation",
            format!("There is currently no lease on the {noun}."),
        ),
        LeaseError::Mismatch => (
            409,
            "LeaseIdMismatchWithLeaseOperation",
            format!("The lease ID specified did not match the lease ID for the {noun}."),
        ),
        LeaseError::BreakingNotAcquired => (
            409,
            "LeaseIsBreakingAndCannotBeAcquired",
            "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is \
             broken."
                .to_owned(),
        ),
        LeaseError::BreakingNotChanged => (
            409,
            "LeaseIsBreakingAndCannotBeChanged",
            "The lease ID matched, but the lease is currently in breaking state and cannot be changed.".to_owned(),
        ),
        LeaseError::BrokenNotRenewed => (
            409,
            "LeaseIsBrokenAndCannotBeRenewed",
            "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.".to_owned(),
        ),
        LeaseError::UseMissing => (
            412,
            "LeaseIdMissing",
            format!("There is currently a lease on the {noun} and no lease ID was specified in the request."),
        ),
        LeaseError::UseMismatch => {
            (412, mismatch, format!("The lease ID specified did not match the lease ID for the {noun}."))
        }
        LeaseError::UseNotPresent => (412, not_present, format!("There is currently no lease on the {noun}.")),
        LeaseError::UseLost => (
            412,
            "LeaseLost",
            format!("A lease ID was specified, but the lease for the {noun} has expired."),
        ),
    };
    ServiceError::new(status, code, message)
}

pub(crate) fn checksum(error: &ChecksumError) -> ServiceError {
    let (given, computed) = error.texts();
    let message = |name| {
        format!(
            "The {name} value specified in the request did not match with the {name} value calculated by the server."
        )
    };
    match error {
        ChecksumError::Md5 { .. } => ServiceError::new(400, "Md5Mismatch", message("MD5"))
            .detail("UserSpecifiedMd5", given)
            .detail("ServerCalculatedMd5", computed),
        ChecksumError::Crc64 { .. } => ServiceError::new(400, "Crc64Mismatch", message("CRC64"))
            .detail("UserSpecifiedCrc64", given)
            .detail("ServerCalculatedCrc64", computed),
    }
}

pub(crate) fn blob_not_found() -> ServiceError {
    ServiceError::new(404, "BlobNotFound", "The specified blob does not exist.")
}

pub(crate) fn invalid_range(size: u64) -> ServiceError {
    let message = "The range specified is invalid for the current size of the resource.";
    ServiceError::new(416, "InvalidRange", message).header("Content-Range", format!("bytes */{size}"))
}

pub(crate) fn bad_name(error: NameError) -> ServiceError {
    match error {
        NameError::ContainerLength => ServiceError::new(
            400,
            "OutOfRangeInput",
            "The specified resource name length is not within the permissible limits.",
        ),
        NameError::ContainerCharacters => ServiceError::new(
            400,
            "InvalidResourceName",
            "The specified resource name contains invalid characters.",
        ),
        NameError::BlobLength | NameError::BlobCharacters => ServiceError::invalid_uri(&error.to_string()),
    }
}

/// An operation that does not exist here yet: told by its name, so that nobody searches for the mistake on their side.
pub(crate) fn not_built(what: &str) -> ServiceError {
    let message = format!("The requested operation is not implemented on the specified resource: {what}.");
    ServiceError::new(501, "NotImplemented", message)
}

pub(crate) fn invalid_input(reason: &str) -> ServiceError {
    ServiceError::new(400, "InvalidInput", format!("One of the request inputs is not valid: {reason}."))
}

pub(crate) fn out_of_range(name: &'static str, value: &str, min: &str, max: &str) -> ServiceError {
    let message =
        "One of the query parameters specified in the request URI is outside the permissible range.";
    ServiceError::new(400, "OutOfRangeQueryParameterValue", message)
        .detail("QueryParameterName", name)
        .detail("QueryParameterValue", value)
        .detail("MinimumAllowed", min)
        .detail("MaximumAllowed", max)
}

pub(crate) fn missing_parameter(name: &'static str) -> ServiceError {
    let message = "A query parameter that's mandatory for this request is not specified.";
    ServiceError::new(400, "MissingRequiredQueryParameter", message).detail("QueryParameterName", name)
}

pub(crate) fn missing_node(name: &'static str) -> ServiceError {
    let message = "A required XML node was not specified in the request body.";
    ServiceError::new(400, "MissingRequiredXmlNode", message).detail("XmlNodeName", name)
}

pub(crate) fn missing_length() -> ServiceError {
    ServiceError::new(411, "MissingContentLengthHeader", "The Content-Length header was not specified.")
}

pub(crate) fn many_conditions() -> ServiceError {
    let message = "Multiple condition headers are not supported.";
    ServiceError::new(400, "MultipleConditionHeadersNotSupported", message)
}

pub(crate) fn invalid_md5() -> ServiceError {
    let message = "The MD5 value specified in the request is invalid. The MD5 value must be 128 bits and \
                   Base64-encoded.";
    ServiceError::new(400, "InvalidMd5", message)
}

pub(crate) fn both_sums() -> ServiceError {
    let message = "Both x-ms-content-crc64 header and Content-MD5 header are present.";
    ServiceError::new(400, "BothCrc64AndMd5HeaderPresent", message)
}

pub(crate) fn invalid_block_id() -> ServiceError {
    let message = "The specified block ID is invalid. The block ID must be Base64-encoded.";
    ServiceError::new(400, "InvalidBlockId", message)
}

pub(crate) fn invalid_block_list() -> ServiceError {
    ServiceError::new(400, "InvalidBlockList", "The specified block list is invalid.")
}

pub(crate) fn block_list_too_long() -> ServiceError {
    ServiceError::new(400, "BlockListTooLong", "The block list may not contain more than 50,000 blocks.")
}

pub(crate) fn empty_metadata_name() -> ServiceError {
    ServiceError::new(400, "EmptyMetadataKey", "The key for one of the metadata key-value pairs is empty.")
}

pub(crate) fn invalid_metadata() -> ServiceError {
    let message = "The metadata specified is invalid. It has characters that are not permitted.";
    ServiceError::new(400, "InvalidMetadata", message)
}

pub(crate) fn metadata_too_large(bytes_max: usize) -> ServiceError {
    let message = "The metadata specified exceeds the maximum permissible limit (8K).";
    ServiceError::new(400, "MetadataTooLarge", message).detail("MaxLimit", bytes_max.to_string())
}

pub(crate) fn empty_tag_name() -> ServiceError {
    ServiceError::new(400, "EmptyTagName", "The name of one of the tag key-value pairs is empty.")
}

pub(crate) fn duplicate_tag_names() -> ServiceError {
    ServiceError::new(400, "DuplicateTagNames", "The tags specified contain duplicate names.")
}

pub(crate) fn tags_too_large() -> ServiceError {
    ServiceError::new(400, "TagsTooLarge", "The tags specified exceed the maximum permissible limit.")
}

pub(crate) fn invalid_tag() -> ServiceError {
    let message = "The tags specified are invalid. It contains characters that are not permitted.";
    ServiceError::new(400, "InvalidTag", message)
}

pub(crate) fn too_large(max: u64) -> ServiceError {
    let message = format!("The request body is too large and exceeds the maximum permissible limit ({max}).");
    ServiceError::new(413, "RequestBodyTooLarge", message).detail("MaxLimit", max.to_string())
}

/// `50000` as `50,000`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + 4);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_conditions_have_the_services_codes() {
        let told = |error: StoreError, thing| {
            let told = failure(&error, thing);
            (told.status(), told.code())
        };
        use StoreError::{BlobLease, Condition, ContainerLease};
        for (error, thing, expected) in [
            (Condition(ConditionError::NotModified), Thing::Blob, (304, "ConditionNotMet")),
            (Condition(ConditionError::NotMet), Thing::Blob, (412, "ConditionNotMet")),
            (Condition(ConditionError::Exists), Thing::Blob, (409, "BlobAlreadyExists")),
            (BlobLease(LeaseError::UseMismatch), Thing::Blob, (412, "LeaseIdMismatchWithBlobOperation")),
            (
                ContainerLease(LeaseError::UseMismatch),
                Thing::Blob,
                (412, "LeaseIdMismatchWithContainerOperation"),
            ),
            (
                Condition(ConditionError::Lease(LeaseError::UseNotPresent)),
                Thing::Container,
                (412, "LeaseNotPresentWithContainerOperation"),
            ),
            (StoreError::InvalidRange { size: 0 }, Thing::Blob, (416, "InvalidRange")),
            (
                StoreError::Source(Box::new(Condition(ConditionError::NotMet))),
                Thing::Blob,
                (412, "SourceConditionNotMet"),
            ),
            (StoreError::NotBuilt("x"), Thing::Blob, (501, "NotImplemented")),
        ] {
            assert_eq!(told(error.clone(), thing), expected, "{error:?}");
        }
        assert_eq!(grouped(50_000), "50,000");
        assert_eq!([grouped(7), grouped(100), grouped(1_000_000)], ["7", "100", "1,000,000"]);
    }
}

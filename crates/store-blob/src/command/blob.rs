//! What is asked of a blob: reads, and changes of all but its content.

use polyshard_azure_storage::{Context, Headers, Method, Request, ResponseOverrides, ServiceError};

use super::conditions::{of_append, of_read, of_tags, of_write};
use super::headers::{
    check_body, content_headers, flag, lease_id, number, range, refuse_unbuilt, required, text, tier,
};
use super::metadata::read_metadata;
use super::parameters::{LIST_MAX, given, max_results, parse_snapshot, snapshot};
use super::tags::tags_of_body;
use super::{BlobCommand, PropertiesChange, Read, copy, unknown_comp, write};
use crate::conditions::Conditions;
use crate::lease_rules::{is_break_time, is_lease_time};
use crate::model::{
    BlockListKind, ByteRange, ContentHeaders, DeleteSnapshots, LeaseAction, PageQuery, SequenceAction,
    SnapshotId, Tier,
};
use crate::reply::errors::{self, Thing};
use crate::store::StoreError;

/// Bytes of a range whose sums can be asked for: the service's limit.
const SUMMED_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How long a lease is if its client does not say; the service makes it infinite.
const LEASE_DEFAULT: i64 = -1;

pub(super) fn parse(context: &Context, request: &Request) -> Result<BlobCommand, ServiceError> {
    let comp = request.query("comp");
    if request.query("restype") == Some("account") && comp == Some("properties") {
        return match request.method {
            Method::Get | Method::Head => Ok(BlobCommand::GetAccountInfo),
            _ => Err(ServiceError::unsupported_verb()),
        };
    }
    match request.method {
        Method::Get => get(context, request, comp),
        Method::Head if comp.is_none() || comp == Some("metadata") => properties(context, request),
        Method::Delete if comp == Some("immutabilityPolicies") => {
            Err(errors::not_built("Delete Blob Immutability Policy"))
        }
        Method::Delete => delete(request, comp),
        Method::Put => put(request, comp),
        Method::Post if comp == Some("query") => Err(errors::not_built("Query Blob Contents")),
        Method::Head | Method::Post => Err(unknown_comp(comp)),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn get(context: &Context, request: &Request, comp: Option<&str>) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    match comp {
        None => read(context, request).map(BlobCommand::Get),
        Some("metadata") => properties(context, request),
        Some("tags") => {
            Ok(BlobCommand::GetTags { snapshot: snapshot(request)?, conditions: of_tags(headers)? })
        }
        Some("blocklist") => {
            let kind = match given(request, "blocklisttype") {
                None => BlockListKind::Committed,
                Some(kind) if kind.eq_ignore_ascii_case("committed") => BlockListKind::Committed,
                Some(kind) if kind.eq_ignore_ascii_case("uncommitted") => BlockListKind::Uncommitted,
                Some(kind) if kind.eq_ignore_ascii_case("all") => BlockListKind::All,
                Some(kind) => {
                    let reason = "it must be committed, uncommitted or all";
                    return Err(ServiceError::invalid_query("blocklisttype", kind, reason));
                }
            };
            let conditions = of_read(headers)?;
            Ok(BlobCommand::GetBlockList { snapshot: snapshot(request)?, kind, conditions })
        }
        Some("pagelist") => pages(request),
        comp => Err(unknown_comp(comp)),
    }
}

fn properties(context: &Context, request: &Request) -> Result<BlobCommand, ServiceError> {
    refuse_unbuilt(&request.headers)?;
    let conditions = of_read(&request.headers)?;
    let snapshot = snapshot(request)?;
    Ok(BlobCommand::GetProperties { snapshot, conditions, overrides: overrides(context) })
}

fn read(context: &Context, request: &Request) -> Result<Read, ServiceError> {
    let headers = &request.headers;
    refuse_unbuilt(headers)?;
    let range = range(headers)?;
    let sum = |name: &'static str| -> Result<bool, ServiceError> {
        let is_asked = flag(headers, name)?;
        match range {
            _ if !is_asked => Ok(false),
            None => Err(ServiceError::invalid_header(name, "true")),
            Some(ByteRange { first, last: Some(last) }) if last - first >= SUMMED_BYTES_MAX => {
                Err(ServiceError::new(400, "OutOfRangeInput", "One of the request inputs is out of range.")
                    .detail("Reason", format!("{name} is for ranges of at most 4 MiB")))
            }
            Some(_) => Ok(true),
        }
    };
    let (has_md5, has_crc64) = (sum("x-ms-range-get-content-md5")?, sum("x-ms-range-get-content-crc64")?);
    if has_md5 && has_crc64 {
        return Err(ServiceError::invalid_header("x-ms-range-get-content-crc64", "true"));
    }
    Ok(Read {
        snapshot: snapshot(request)?,
        range,
        has_md5,
        has_crc64,
        conditions: of_read(headers)?,
        overrides: overrides(context),
    })
}

/// Content headers that a shared access signature sets. They count only where they are part of what was signed:
/// otherwise anybody with a signature could have a blob shown as something else.
fn overrides(context: &Context) -> ContentHeaders {
    let Some(signed) = context.identity.response_overrides() else { return ContentHeaders::default() };
    let ResponseOverrides {
        cache_control,
        content_disposition,
        content_encoding,
        content_language,
        content_type,
    } = signed.clone();
    ContentHeaders {
        content_type,
        content_encoding,
        content_language,
        content_disposition,
        cache_control,
        content_md5: None,
    }
}

fn pages(request: &Request) -> Result<BlobCommand, ServiceError> {
    if text(&request.headers, "x-ms-previous-snapshot-url").is_some() {
        return Err(errors::not_built("Get Page Ranges of managed disks (x-ms-previous-snapshot-url)"));
    }
    let query = PageQuery {
        range: range(&request.headers)?,
        since: parse_snapshot(request, "prevsnapshot")?,
        marker: given(request, "marker").map(str::to_owned),
        max: max_results(request)?.unwrap_or(LIST_MAX * 2).min(LIST_MAX * 2),
    };
    let conditions = of_read(&request.headers)?;
    Ok(BlobCommand::GetPages { snapshot: snapshot(request)?, query, conditions })
}

fn delete(request: &Request, comp: Option<&str>) -> Result<BlobCommand, ServiceError> {
    const NAME: &str = "x-ms-delete-snapshots";
    if comp.is_some() {
        return Err(unknown_comp(comp));
    }
    if given(request, "deletetype").is_some_and(|kind| kind.eq_ignore_ascii_case("permanent")) {
        return Err(errors::not_built("permanent deletion of blobs (deletetype=permanent)"));
    }
    for name in ["x-ms-access-tier-if-modified-since", "x-ms-access-tier-if-unmodified-since"] {
        if text(&request.headers, name).is_some() {
            return Err(errors::not_built(name));
        }
    }
    let snapshot = snapshot(request)?;
    let snapshots = match text(&request.headers, NAME) {
        None => DeleteSnapshots::Refuse,
        // Either is about the snapshots of a blob, and what is deleted is one of them.
        Some(value) if snapshot.is_some() => return Err(ServiceError::invalid_header(NAME, value)),
        Some(value) if value.eq_ignore_ascii_case("include") => DeleteSnapshots::Include,
        Some(value) if value.eq_ignore_ascii_case("only") => DeleteSnapshots::Only,
        Some(value) => return Err(ServiceError::invalid_header(NAME, value)),
    };
    Ok(BlobCommand::Delete { snapshot, snapshots, conditions: of_write(&request.headers)? })
}

fn put(request: &Request, comp: Option<&str>) -> Result<BlobCommand, ServiceError> {
    let headers = &request.headers;
    // Unlike customers' keys and holds, what these set would not be seen to be missing.
    refuse_unbuilt(headers)?;
    let snapshot = snapshot(request)?;
    if snapshot.is_some() && !matches!(comp, Some("tier" | "tags")) {
        return Err(errors::failure(&StoreError::SnapshotUnchangeable, Thing::Blob));
    }
    match comp {
        None if text(headers, "x-ms-copy-source").is_some() => copy::whole(request),
        None => write::put(request),
        Some("copy") => copy::abort(request),
        Some("block") => write::block(request),
        Some("blocklist") => write::block_list(request),
        Some("appendblock") => write::append(request),
        Some("page") => write::pages(request),
        Some("seal") => Ok(BlobCommand::Seal { conditions: of_append(headers)? }),
        Some("metadata") => {
            Ok(BlobCommand::SetMetadata { metadata: read_metadata(headers)?, conditions: of_write(headers)? })
        }
        Some("properties") => set_properties(headers),
        Some("tags") => {
            check_body(request)?;
            let tags = tags_of_body(&request.body)?;
            Ok(BlobCommand::SetTags { snapshot, tags, conditions: of_tags(headers)? })
        }
        Some("tier") => set_tier(headers, snapshot),
        Some("snapshot") => {
            let metadata = Some(read_metadata(headers)?).filter(|metadata| !metadata.is_empty());
            Ok(BlobCommand::Snapshot { metadata, conditions: of_write(headers)? })
        }
        Some("lease") => {
            Ok(BlobCommand::Lease { action: lease_action(headers)?, conditions: lease_conditions(headers)? })
        }
        Some("undelete") => Ok(BlobCommand::Undelete),
        Some("incrementalcopy") => Err(errors::not_built("Incremental Copy Blob")),
        Some("expiry") => Err(errors::not_built("Set Blob Expiry")),
        Some("immutabilityPolicies") => Err(errors::not_built("Set Blob Immutability Policy")),
        Some("legalhold") => Err(errors::not_built("Set Blob Legal Hold")),
        comp => Err(unknown_comp(comp)),
    }
}

fn set_properties(headers: &Headers) -> Result<BlobCommand, ServiceError> {
    let conditions = of_write(headers)?;
    let size: Option<u64> = number(headers, "x-ms-blob-content-length")?;
    let sequence = sequence_action(headers)?;
    let change = match (size, sequence) {
        (None, None) => PropertiesChange::Headers(content_headers(headers)?),
        (Some(size), None) => PropertiesChange::Size(size),
        (None, Some(action)) => PropertiesChange::Sequence(action),
        (Some(_), Some(_)) => {
            return Err(errors::invalid_input("size and sequence number cannot be set by one request"));
        }
    };
    Ok(BlobCommand::SetProperties { change, conditions })
}

/// `x-ms-sequence-number-action`, and the number that goes with it.
fn sequence_action(headers: &Headers) -> Result<Option<SequenceAction>, ServiceError> {
    const NAME: &str = "x-ms-sequence-number-action";
    const NUMBER: &str = "x-ms-blob-sequence-number";
    let Some(action) = text(headers, NAME) else { return Ok(None) };
    let given: Option<i64> = number(headers, NUMBER)?;
    let of = |make: fn(i64) -> SequenceAction| match given {
        Some(number) if number >= 0 => Ok(Some(make(number))),
        Some(number) => Err(ServiceError::invalid_header(NUMBER, &number.to_string())),
        None => Err(ServiceError::missing_header(NUMBER)),
    };
    match action.to_ascii_lowercase().as_str() {
        "max" => of(SequenceAction::Max),
        "update" => of(SequenceAction::Update),
        // The number that results is the blob's own affair.
        "increment" if given.is_none() => Ok(Some(SequenceAction::Increment)),
        "increment" => Err(ServiceError::invalid_header(NUMBER, required(headers, NUMBER)?)),
        _ => Err(ServiceError::invalid_header(NAME, action)),
    }
}

fn set_tier(headers: &Headers, snapshot: Option<SnapshotId>) -> Result<BlobCommand, ServiceError> {
    let tier: Tier = tier(headers)?.ok_or_else(|| ServiceError::missing_header("x-ms-access-tier"))?;
    let conditions = Conditions { lease: lease_id(headers, "x-ms-lease-id")?, ..of_write(headers)? };
    Ok(BlobCommand::SetTier { snapshot, tier, conditions })
}

/// The verb of a lease, of a container or of a blob.
pub(super) fn lease_action(headers: &Headers) -> Result<LeaseAction, ServiceError> {
    const ACTION: &str = "x-ms-lease-action";
    let id = || {
        let id = lease_id(headers, "x-ms-lease-id")?;
        id.ok_or_else(|| ServiceError::missing_header("x-ms-lease-id"))
    };
    let proposed = || lease_id(headers, "x-ms-proposed-lease-id");
    let seconds = |name: &str, is_allowed: fn(i64) -> bool| -> Result<Option<i64>, ServiceError> {
        match number(headers, name)? {
            Some(seconds) if !is_allowed(seconds) => {
                Err(ServiceError::invalid_header(name, &seconds.to_string()))
            }
            seconds => Ok(seconds),
        }
    };
    let action = required(headers, ACTION)?;
    match action.to_ascii_lowercase().as_str() {
        "acquire" => {
            let seconds = seconds("x-ms-lease-duration", is_lease_time)?.unwrap_or(LEASE_DEFAULT);
            Ok(LeaseAction::Acquire { proposed: proposed()?, seconds })
        }
        "renew" => Ok(LeaseAction::Renew { id: id()? }),
        "change" => {
            let missing = || ServiceError::missing_header("x-ms-proposed-lease-id");
            Ok(LeaseAction::Change { id: id()?, proposed: proposed()?.ok_or_else(missing)? })
        }
        "release" => Ok(LeaseAction::Release { id: id()? }),
        "break" => Ok(LeaseAction::Break { seconds: seconds("x-ms-lease-break-period", is_break_time)? }),
        _ => Err(ServiceError::invalid_header(ACTION, action)),
    }
}

/// The conditions of a verb of a lease: the lease that it names is the verb's own affair.
pub(super) fn lease_conditions(headers: &Headers) -> Result<Conditions, ServiceError> {
    Ok(Conditions { lease: None, ..of_write(headers)? })
}

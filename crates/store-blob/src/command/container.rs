//! What is asked of a container.

use polyshard_azure_storage::{Headers, Method, Request, ServiceError, parse_policies};

use super::conditions::{of_read, of_write};
use super::headers::{refuse_unbuilt, text};
use super::metadata::read_metadata;
use super::parameters::{LIST_MAX, given, has, include, max_results};
use super::service::find;
use super::{AskedBlobs, ContainerCommand, List, blob, unknown_comp};
use crate::model::{BlobQuery, Include, Policy, PublicAccess};
use crate::reply::errors;

/// What a list of blobs can show. There are no policies and holds, so that there is nothing to show of them.
const INCLUDES: [&str; 10] = [
    "copy",
    "deleted",
    "metadata",
    "snapshots",
    "uncommittedblobs",
    "tags",
    "versions",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
];

pub(super) fn parse(request: &Request) -> Result<ContainerCommand, ServiceError> {
    let headers = &request.headers;
    let restype = request.query("restype");
    match (request.method, request.query("comp")) {
        (Method::Get | Method::Head, Some("properties")) if restype == Some("account") => {
            Ok(ContainerCommand::GetAccountInfo)
        }
        _ if restype.is_none() => {
            Err(errors::missing_parameter("restype")
                .because("a container is addressed with restype=container"))
        }
        _ if restype != Some("container") => {
            let reason = "it must be 'container'";
            Err(ServiceError::invalid_query("restype", restype.unwrap_or_default(), reason))
        }
        (Method::Put, None) => {
            refuse_unbuilt(headers)?;
            Ok(ContainerCommand::Create { metadata: read_metadata(headers)?, access: access(headers)? })
        }
        (Method::Delete, None) => Ok(ContainerCommand::Delete { conditions: of_write(headers)? }),
        (Method::Get | Method::Head, None | Some("metadata")) => {
            Ok(ContainerCommand::GetProperties { conditions: of_read(headers)? })
        }
        (Method::Put, Some("metadata")) => Ok(ContainerCommand::SetMetadata {
            metadata: read_metadata(headers)?,
            conditions: of_write(headers)?,
        }),
        (Method::Get | Method::Head, Some("acl")) => {
            Ok(ContainerCommand::GetPolicies { conditions: of_read(headers)? })
        }
        (Method::Put, Some("acl")) => {
            request.check_content_md5()?;
            Ok(ContainerCommand::SetPolicies {
                access: access(headers)?,
                policies: policies(&request.body)?,
                conditions: of_write(headers)?,
            })
        }
        (Method::Put, Some("lease")) => Ok(ContainerCommand::Lease {
            action: blob::lease_action(headers)?,
            conditions: blob::lease_conditions(headers)?,
        }),
        (Method::Get, Some("list")) => Ok(ContainerCommand::List(Box::new(list(request)?))),
        (Method::Get, Some("blobs")) => Ok(ContainerCommand::Find(Box::new(find(request)?))),
        (Method::Post, Some("batch")) => Ok(ContainerCommand::Batch),
        (Method::Put, Some("undelete")) => Err(errors::not_built("Restore Container")),
        (Method::Put, Some("rename")) => Err(errors::not_built("Rename Container")),
        (Method::Get | Method::Head | Method::Put | Method::Post | Method::Delete, comp) => {
            Err(unknown_comp(comp))
        }
        _ => Err(ServiceError::unsupported_verb()),
    }
}

/// `x-ms-blob-public-access`
fn access(headers: &Headers) -> Result<PublicAccess, ServiceError> {
    const NAME: &str = "x-ms-blob-public-access";
    match text(headers, NAME) {
        None => Ok(PublicAccess::None),
        Some(value) if value.eq_ignore_ascii_case("container") => Ok(PublicAccess::Container),
        Some(value) if value.eq_ignore_ascii_case("blob") => Ok(PublicAccess::Blob),
        Some(value) => Err(ServiceError::invalid_header(NAME, value)),
    }
}

fn policies(body: &[u8]) -> Result<Vec<Policy>, ServiceError> {
    let policies = parse_policies(body)?.into_iter().map(|policy| Policy {
        id: policy.id,
        start: policy.start.map(|time| time.iso()),
        expiry: policy.expiry.map(|time| time.iso()),
        permission: policy.permission,
    });
    Ok(policies.collect())
}

fn list(request: &Request) -> Result<List, ServiceError> {
    let words = include(request, &INCLUDES)?;
    if has(&words, "versions") || has(&words, "deletedwithversions") {
        return Err(errors::not_built("blob versions (include=versions)"));
    }
    let delimiter = given(request, "delimiter").map(str::to_owned);
    let include = Include {
        snapshots: has(&words, "snapshots"),
        uncommitted: has(&words, "uncommittedblobs"),
        deleted: has(&words, "deleted"),
    };
    if include.snapshots && delimiter.is_some() {
        let reason = "snapshots cannot be listed together with a delimiter";
        return Err(ServiceError::invalid_query("include", "snapshots", reason));
    }
    let max = max_results(request)?;
    let query = BlobQuery {
        prefix: request.query("prefix").unwrap_or_default().to_owned(),
        delimiter,
        marker: given(request, "marker").map(str::to_owned),
        start_from: given(request, "startFrom").map(str::to_owned),
        max: max.unwrap_or(LIST_MAX).min(LIST_MAX),
        include,
    };
    let asked = AskedBlobs {
        max,
        has_metadata: has(&words, "metadata"),
        has_tags: has(&words, "tags"),
        has_copy: has(&words, "copy"),
    };
    Ok(List { query, asked })
}

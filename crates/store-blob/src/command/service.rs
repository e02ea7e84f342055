//! What is asked of an account's service.

use polyshard_azure_storage::{Context, Endpoint, Method, Request, ServiceError};

use super::parameters::{LIST_MAX, given, has, include, max_results};
use super::properties::parse_properties;
use super::{AskedContainers, Find, ServiceCommand, unknown_comp};
use crate::model::ContainerQuery;
use crate::reply::errors;
use crate::tag_filter::{TagFilter, TagUse};

/// What a list of containers can show. System containers are ordinary ones here, and none is kept when it is deleted.
const INCLUDES: [&str; 3] = ["metadata", "deleted", "system"];

pub(super) fn parse(context: &Context, request: &Request) -> Result<ServiceCommand, ServiceError> {
    match (request.method, request.query("restype"), request.query("comp")) {
        (Method::Get, None, Some("list")) => list(request),
        (Method::Get, Some("service"), Some("properties")) => Ok(ServiceCommand::GetProperties),
        (Method::Put, Some("service"), Some("properties")) => {
            request.check_content_md5()?;
            Ok(ServiceCommand::SetProperties(Box::new(parse_properties(&request.body)?)))
        }
        (Method::Get, Some("service"), Some("stats")) if context.endpoint == Endpoint::Secondary => {
            Ok(ServiceCommand::GetStats)
        }
        (Method::Get, Some("service"), Some("stats")) => {
            Err(ServiceError::invalid_query("comp", "stats", "statistics are at the secondary endpoint"))
        }
        (Method::Get | Method::Head, Some("account"), Some("properties")) => {
            Ok(ServiceCommand::GetAccountInfo)
        }
        (Method::Get, None, Some("blobs")) => Ok(ServiceCommand::Find(Box::new(find(request)?))),
        // The client for JavaScript takes the account in a path-style address for a container.
        (Method::Post, None | Some("service" | "container"), Some("batch")) => Ok(ServiceCommand::Batch),
        (Method::Post, Some("service"), Some("userdelegationkey")) => {
            Err(errors::not_built("Get User Delegation Key"))
        }
        (Method::Get | Method::Head | Method::Put | Method::Post, _, comp) => Err(unknown_comp(comp)),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn list(request: &Request) -> Result<ServiceCommand, ServiceError> {
    let words = include(request, &INCLUDES)?;
    let max = max_results(request)?;
    let query = ContainerQuery {
        prefix: request.query("prefix").unwrap_or_default().to_owned(),
        marker: given(request, "marker").map(str::to_owned),
        max: max.unwrap_or(LIST_MAX).min(LIST_MAX),
    };
    let asked = AskedContainers { max, has_metadata: has(&words, "metadata") };
    Ok(ServiceCommand::List { query, asked })
}

/// A search by tags, of an account or a container.
pub(super) fn find(request: &Request) -> Result<Find, ServiceError> {
    let text = request.query("where").ok_or_else(|| errors::missing_parameter("where"))?;
    let filter = TagFilter::parse(text, TagUse::Find)
        .map_err(|error| ServiceError::invalid_query("where", text, &error.to_string()))?;
    if has(&include(request, &["none", "versions"])?, "versions") {
        return Err(errors::not_built("blob versions (include=versions)"));
    }
    let max = max_results(request)?.unwrap_or(LIST_MAX).min(LIST_MAX);
    let marker = given(request, "marker").map(str::to_owned);
    Ok(Find { filter, text: text.to_owned(), marker, max })
}

//! Maps: list, show, create, drop, look inside, change, carry over, check and repair.

use axum::extract::State;
use axum::response::Response;
use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::Shared;
use super::shards::explicit_word;
use crate::extract::{Body, IfMatch, Named, Params, Raw};
use crate::operator::Page;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    ChangeAnswer, ChangeRequest, CheckAnswer, EntriesAnswer, Located, MapView, MapsAnswer, NewMap,
    PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX, PageRequest, Removal, RepairAnswer, RepairRequest,
};

/// All maps.
#[utoipa::path(get, path = "/v1/maps", tag = "maps", operation_id = "list_maps", responses(
    (status = 200, description = "All maps", body = MapsAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(MapsAnswer { maps: operator.maps().await? }))
}

/// Make a map.
#[utoipa::path(post, path = "/v1/maps", tag = "maps", operation_id = "create_map", request_body = NewMap, responses(
    (status = 201, description = "The new map", body = MapView),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn create(State(operator): Shared, Body(map): Body<NewMap>) -> Result<Response, Problem> {
    Ok(new_map(operator.create_map(map).await?))
}

/// One map.
#[utoipa::path(get, path = "/v1/maps/{name}", tag = "maps", operation_id = "show_map",
    params(("name" = String, Path, description = "The map")),
    responses(
        (status = 200, description = "The map", body = MapView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(operator): Shared, Named(name): Named<MapName>) -> Result<Response, Problem> {
    let map = operator.map(name).await?;
    let version = map.version;
    Ok(reply::versioned(map, version))
}

/// Drop a map; one whose ranges hold data needs the explicit word.
#[utoipa::path(delete, path = "/v1/maps/{name}", tag = "maps", operation_id = "drop_map",
    params(
        ("name" = String, Path, description = "The map"),
        ("If-Match" = Option<String>, Header, description = "The version the change is based on, in quotes"),
        Removal,
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove(
    State(operator): Shared,
    Named(name): Named<MapName>,
    IfMatch(basis): IfMatch,
    Params(removal): Params<Removal>,
) -> Result<Response, Problem> {
    let data = explicit_word(&removal, name.as_str())?;
    operator.drop_map(name, data, basis).await?;
    Ok(reply::nothing())
}

/// One page of a map's entries, in order.
#[utoipa::path(get, path = "/v1/maps/{name}/entries", tag = "maps", operation_id = "list_entries",
    params(("name" = String, Path, description = "The map"), PageRequest),
    responses(
        (status = 200, description = "One page", body = EntriesAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn entries(
    State(operator): Shared,
    Named(name): Named<MapName>,
    Params(request): Params<PageRequest>,
) -> Result<Response, Problem> {
    let limit = request.limit.unwrap_or(PAGE_ENTRIES_DEFAULT);
    if !(1..=PAGE_ENTRIES_MAX).contains(&limit) {
        return Err(Problem::invalid(
            "limit",
            format!("limit is {limit}, but a page has 1 to {PAGE_ENTRIES_MAX} entries"),
        ));
    }
    let page = operator.entries(name, Page { after: request.after, limit }).await?;
    let version = page.version;
    Ok(reply::versioned(page, version))
}

/// The key to look for.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocateParams {
    /// The key in its text form.
    key: String,
}

/// Where a key is.
#[utoipa::path(get, path = "/v1/maps/{name}/locate", tag = "maps", operation_id = "locate_key",
    params(("name" = String, Path, description = "The map"), LocateParams),
    responses(
        (status = 200, description = "Its shard", body = Located),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn locate(
    State(operator): Shared,
    Named(name): Named<MapName>,
    Params(params): Params<LocateParams>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.locate(name, params.key).await?))
}

/// Who asks for a change.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeParams {
    /// The lock owner whose locks the change may pass.
    owner: Option<String>,
}

/// One change of a map.
#[utoipa::path(post, path = "/v1/maps/{name}/changes", tag = "maps", operation_id = "change_map",
    params(
        ("name" = String, Path, description = "The map"),
        ("If-Match" = Option<String>, Header, description = "The version the change is based on, in quotes"),
        ChangeParams,
    ),
    request_body = ChangeRequest,
    responses(
        (status = 200, description = "The map after it", body = ChangeAnswer),
        (status = 412, description = "Changed meanwhile; `current_version` is the version there is", body = ErrorBody),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn change(
    State(operator): Shared,
    Named(name): Named<MapName>,
    IfMatch(basis): IfMatch,
    Params(params): Params<ChangeParams>,
    Body(change): Body<ChangeRequest>,
) -> Result<Response, Problem> {
    let answer = operator.change(name, change, params.owner, basis).await?;
    let version = answer.map.version;
    Ok(reply::versioned(answer, version))
}

/// The map as a document that can be imported.
#[utoipa::path(get, path = "/v1/maps/{name}/export", tag = "maps", operation_id = "export_map",
    params(("name" = String, Path, description = "The map")),
    responses(
        (status = 200, description = "The document, with its `format`", content_type = "application/json"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn export(
    State(operator): Shared,
    Named(name): Named<MapName>,
) -> Result<Response, Problem> {
    let exported = operator.export_map(name).await?;
    Ok(reply::json_document(exported.document, exported.version))
}

/// Make a map from an exported document.
#[utoipa::path(post, path = "/v1/maps/import", tag = "maps", operation_id = "import_map",
    request_body(content_type = "application/json", description = "An exported map"),
    responses(
        (status = 201, description = "The new map", body = MapView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn import(State(operator): Shared, Raw(document): Raw) -> Result<Response, Problem> {
    Ok(new_map(operator.import_map(document.into()).await?))
}

/// Compare the catalog with the shards' local maps.
#[utoipa::path(get, path = "/v1/maps/{name}/check", tag = "maps", operation_id = "check_map",
    params(("name" = String, Path, description = "The map")),
    responses(
        (status = 200, description = "The differences", body = CheckAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn check(State(operator): Shared, Named(name): Named<MapName>) -> Result<Response, Problem> {
    Ok(reply::ok(operator.check_map(name).await?))
}

/// Rebuild the catalog from the shards' local maps, or the other way round.
#[utoipa::path(post, path = "/v1/maps/{name}/repair", tag = "maps", operation_id = "repair_map",
    params(("name" = String, Path, description = "The map")),
    request_body = RepairRequest,
    responses(
        (status = 200, description = "What was, or would be, changed", body = RepairAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn repair(
    State(operator): Shared,
    Named(name): Named<MapName>,
    Body(repair): Body<RepairRequest>,
) -> Result<Response, Problem> {
    let answer = operator.repair_map(name, repair).await?;
    let version = answer.version;
    Ok(reply::versioned(answer, version))
}

fn new_map(map: MapView) -> Response {
    let (version, place) = (map.version, format!("/v1/maps/{}", map.name));
    reply::created(map, version, place)
}

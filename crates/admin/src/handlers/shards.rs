//! Shards: list, show, add, set, remove, attach, detach.

use axum::extract::State;
use axum::response::Response;
use polyshard_map::ShardId;

use super::Shared;
use crate::extract::{Body, IfMatch, Named, Params};
use crate::operator::Data;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{NewShard, Removal, ShardPatch, ShardView, ShardsAnswer};

/// All shards.
#[utoipa::path(get, path = "/v1/shards", tag = "shards", operation_id = "list_shards", responses(
    (status = 200, description = "All shards", body = ShardsAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(ShardsAnswer { shards: operator.shards().await? }))
}

/// Add an empty shard.
#[utoipa::path(post, path = "/v1/shards", tag = "shards", operation_id = "add_shard",
    request_body = NewShard,
    responses(
        (status = 201, description = "The new shard", body = ShardView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add(State(operator): Shared, Body(shard): Body<NewShard>) -> Result<Response, Problem> {
    refuse_password(&shard.url)?;
    let shard = operator.add_shard(shard).await?;
    let (version, place) = (shard.version, format!("/v1/shards/{}", shard.id));
    Ok(reply::created(shard, version, place))
}

/// One shard.
#[utoipa::path(get, path = "/v1/shards/{id}", tag = "shards", operation_id = "show_shard",
    params(("id" = String, Path, description = "The shard")),
    responses(
        (status = 200, description = "The shard", body = ShardView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(operator): Shared, Named(id): Named<ShardId>) -> Result<Response, Problem> {
    let shard = operator.shard(id).await?;
    let version = shard.version;
    Ok(reply::versioned(shard, version))
}

/// Change what is known about a shard, its address included.
#[utoipa::path(patch, path = "/v1/shards/{id}", tag = "shards", operation_id = "set_shard",
    params(
        ("id" = String, Path, description = "The shard"),
        ("If-Match" = Option<String>, Header, description = "The version the change is based on, in quotes"),
    ),
    request_body = ShardPatch,
    responses(
        (status = 200, description = "The shard after it", body = ShardView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn set(
    State(operator): Shared,
    Named(id): Named<ShardId>,
    IfMatch(basis): IfMatch,
    Body(patch): Body<ShardPatch>,
) -> Result<Response, Problem> {
    refuse_password(patch.url.as_deref().unwrap_or_default())?;
    let shard = operator.set_shard(id, patch, basis).await?;
    let version = shard.version;
    Ok(reply::versioned(shard, version))
}

/// Take a shard out; one that holds data needs the explicit word.
#[utoipa::path(delete, path = "/v1/shards/{id}", tag = "shards", operation_id = "remove_shard",
    params(("id" = String, Path, description = "The shard"), Removal),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove(
    State(operator): Shared,
    Named(id): Named<ShardId>,
    Params(removal): Params<Removal>,
) -> Result<Response, Problem> {
    let data = explicit_word(&removal, id.as_str())?;
    operator.remove_shard(id, data).await?;
    Ok(reply::nothing())
}

/// Bring in a database that was a shard before, with the ranges its local map holds.
#[utoipa::path(post, path = "/v1/shards/{id}/attach", tag = "shards", operation_id = "attach_shard",
    params(("id" = String, Path, description = "The shard; the same as in the body")),
    request_body = NewShard,
    responses(
        (status = 200, description = "The shard after it", body = ShardView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn attach(
    State(operator): Shared,
    Named(id): Named<ShardId>,
    Body(shard): Body<NewShard>,
) -> Result<Response, Problem> {
    refuse_password(&shard.url)?;
    if shard.id != id {
        return Err(Problem::invalid(
            "id",
            format!("the body names shard {}, the path shard {id}", shard.id),
        ));
    }
    let shard = operator.attach_shard(shard).await?;
    let version = shard.version;
    Ok(reply::versioned(shard, version))
}

/// Let a shard go with its data; its ranges leave the maps.
#[utoipa::path(post, path = "/v1/shards/{id}/detach", tag = "shards", operation_id = "detach_shard",
    params(("id" = String, Path, description = "The shard")),
    responses(
        (status = 204, description = "It was let go"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn detach(State(operator): Shared, Named(id): Named<ShardId>) -> Result<Response, Problem> {
    operator.detach_shard(id).await?;
    Ok(reply::nothing())
}

/// The explicit word is the name once more, so that a script cannot destroy by a flag left in it.
pub(super) fn explicit_word(removal: &Removal, name: &str) -> Result<Data, Problem> {
    match removal.destroy.as_deref() {
        None => Ok(Data::Keep),
        Some(word) if word == name => Ok(Data::Destroy),
        Some(word) => {
            Err(Problem::invalid("destroy", format!("destroy says {word:?}, but {name:?} is being removed"))
                .with_remedy(format!("repeat the name, destroy={name}, or leave it out")))
        }
    }
}

/// A password in an address would end in shell histories, access logs and answers.
fn refuse_password(url: &str) -> Result<(), Problem> {
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let in_query = query.split('&').any(|pair| pair.split('=').next() == Some("password"));
    if user.contains(':') || in_query {
        return Err(Problem::invalid("url", "the address has a password in it").with_remedy(
            "leave it out, and name the server's variable or file that holds it: password_env, password_file",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::refuse_password;

    #[test]
    fn a_password_in_an_address_is_found() {
        for bad in [
            "postgres://me:secret@host:5432/db",
            "postgres://me:@host/db",
            "postgres://me:a@b@host/db",
            "postgres://me@host/db?sslmode=require&password=x",
        ] {
            assert_eq!(refuse_password(bad).unwrap_err().field.as_deref(), Some("url"), "{bad}");
        }
        for good in
            ["postgres://me@host:5432/db", "sqlite:shards/a:b@c.db", "postgres://host/db?sslmode=require"]
        {
            refuse_password(good).unwrap();
        }
    }
}

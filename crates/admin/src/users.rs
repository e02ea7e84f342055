//! Users, rights and tokens (E7): the boundary, free of HTTP, and routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::{delete, get, post};

use crate::auth::{Auth, Bearer};
use crate::extract::{Body, Named};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    GrantView, MadeToken, NewPassword, NewToken, NewUser, Role, TokenView, TokensAnswer, UserName, UserView,
    UsersAnswer,
};

/// Everything about users and tokens that an administrator can ask for.
pub trait Users: Send + Sync + 'static {
    /// All users.
    fn users(&self) -> Answer<'_, Vec<UserView>>;
    /// One user.
    fn user(&self, name: UserName) -> Answer<'_, UserView>;
    /// Makes a user, without rights.
    fn add_user(&self, user: NewUser) -> Answer<'_, UserView>;
    /// Gives a user another password.
    fn set_password(&self, name: UserName, password: NewPassword) -> Answer<'_, UserView>;
    /// Removes a user with all rights.
    fn remove_user(&self, name: UserName) -> Answer<'_, ()>;
    /// Gives a user a right; on the same things it takes the place of the one there is.
    fn grant(&self, name: UserName, grant: GrantView) -> Answer<'_, UserView>;
    /// Takes a right away.
    fn revoke(&self, name: UserName, grant: GrantView) -> Answer<'_, UserView>;
    /// All tokens.
    fn tokens(&self) -> Answer<'_, Vec<TokenView>>;
    /// Makes a token.
    fn add_token(&self, token: NewToken) -> Answer<'_, MadeToken>;
    /// Removes a token.
    fn remove_token(&self, name: UserName) -> Answer<'_, ()>;
}

/// The routes, to be merged with those of the operator.
pub fn user_router(users: Arc<dyn Users>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/users", get(list).post(add))
        .route("/v1/users/{name}", get(show).delete(remove))
        .route("/v1/users/{name}/password", post(password))
        .route("/v1/users/{name}/grant", post(grant))
        .route("/v1/users/{name}/revoke", post(revoke))
        .route("/v1/tokens", get(tokens).post(add_token))
        .route("/v1/tokens/{name}", delete(remove_token));
    let anybody = guarded(Router::new().route("/v1/whoami", get(whoami)), auth.clone());
    guarded(routes, auth.at_least(Role::Admin)).with_state(users).merge(anybody)
}

type Shared = State<Arc<dyn Users>>;

/// All users. Takes the role admin, as do all requests about users and tokens.
#[utoipa::path(get, path = "/v1/users", tag = "users", operation_id = "list_users", responses(
    (status = 200, description = "The users", body = UsersAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(users): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(UsersAnswer { users: users.users().await? }))
}

/// One user.
#[utoipa::path(get, path = "/v1/users/{name}", tag = "users", operation_id = "show_user",
    params(("name" = String, Path, description = "The user's name")),
    responses(
        (status = 200, description = "The user", body = UserView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(users): Shared, Named(name): Named<UserName>) -> Result<Response, Problem> {
    Ok(reply::ok(users.user(name).await?))
}

/// Make a user, without rights.
#[utoipa::path(post, path = "/v1/users", tag = "users", operation_id = "add_user", request_body = NewUser,
    responses(
        (status = 200, description = "The user", body = UserView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add(State(users): Shared, Body(user): Body<NewUser>) -> Result<Response, Problem> {
    Ok(reply::ok(users.add_user(user).await?))
}

/// Give a user another password. Sessions that are open stay so.
#[utoipa::path(post, path = "/v1/users/{name}/password", tag = "users", operation_id = "set_password",
    params(("name" = String, Path, description = "The user's name")), request_body = NewPassword,
    responses(
        (status = 200, description = "The user", body = UserView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn password(
    State(users): Shared,
    Named(name): Named<UserName>,
    Body(password): Body<NewPassword>,
) -> Result<Response, Problem> {
    Ok(reply::ok(users.set_password(name, password).await?))
}

/// Remove a user with all rights. Its next statement is refused.
#[utoipa::path(delete, path = "/v1/users/{name}", tag = "users", operation_id = "remove_user",
    params(("name" = String, Path, description = "The user's name")),
    responses(
        (status = 204, description = "The user is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove(State(users): Shared, Named(name): Named<UserName>) -> Result<Response, Problem> {
    users.remove_user(name).await?;
    Ok(reply::nothing())
}

/// Give a user a right; on the same things it takes the place of the one there is.
#[utoipa::path(post, path = "/v1/users/{name}/grant", tag = "users", operation_id = "grant",
    params(("name" = String, Path, description = "The user's name")), request_body = GrantView,
    responses(
        (status = 200, description = "The user", body = UserView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn grant(
    State(users): Shared,
    Named(name): Named<UserName>,
    Body(grant): Body<GrantView>,
) -> Result<Response, Problem> {
    Ok(reply::ok(users.grant(name, grant).await?))
}

/// Take a right away, as it was granted. The next statement or request is judged without it.
#[utoipa::path(post, path = "/v1/users/{name}/revoke", tag = "users", operation_id = "revoke",
    params(("name" = String, Path, description = "The user's name")), request_body = GrantView,
    responses(
        (status = 200, description = "The user", body = UserView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn revoke(
    State(users): Shared,
    Named(name): Named<UserName>,
    Body(grant): Body<GrantView>,
) -> Result<Response, Problem> {
    Ok(reply::ok(users.revoke(name, grant).await?))
}

/// All tokens, without the secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "users", operation_id = "list_tokens", responses(
    (status = 200, description = "The tokens", body = TokensAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn tokens(State(users): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(TokensAnswer { tokens: users.tokens().await? }))
}

/// Make a token for a role. It is told this once.
#[utoipa::path(post, path = "/v1/tokens", tag = "users", operation_id = "add_token", request_body = NewToken,
    responses(
        (status = 200, description = "The token", body = MadeToken),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add_token(
    State(users): Shared,
    Body(token): Body<NewToken>,
) -> Result<Response, Problem> {
    Ok(reply::ok(users.add_token(token).await?))
}

/// Remove a token. Its bearer's next request is refused.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "users", operation_id = "remove_token",
    params(("name" = String, Path, description = "The token's name")),
    responses(
        (status = 204, description = "The token is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove_token(
    State(users): Shared,
    Named(name): Named<UserName>,
) -> Result<Response, Problem> {
    users.remove_token(name).await?;
    Ok(reply::nothing())
}

/// Who the bearer of this request's token is.
#[utoipa::path(get, path = "/v1/whoami", tag = "users", operation_id = "whoami", responses(
    (status = 200, description = "The token's name and role", body = TokenView),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn whoami(Extension(bearer): Extension<Bearer>) -> Response {
    reply::ok(TokenView { name: bearer.name, role: bearer.role })
}

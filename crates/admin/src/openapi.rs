//! The OpenAPI document, made from the handlers and types; `docs/openapi.json` is a copy that a test keeps equal.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::handlers::{datasets, health, maps, moves, operations, schema, shards, stores};
use crate::{archives, backups, balancer, checker, quotas, users, watch, writes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Polyshard operator API",
        description = "Everything the command line and the console do. Errors are \
            `{\"error\": {\"code\", \"message\", \"field\"?, \"remedy\"?, \"current_version\"?}}`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        health::healthz,
        health::readyz,
        health::status,
        health::openapi,
        shards::list,
        shards::add,
        shards::show,
        shards::set,
        shards::remove,
        shards::attach,
        shards::detach,
        maps::list,
        maps::create,
        maps::show,
        maps::remove,
        maps::entries,
        maps::locate,
        maps::change,
        maps::export,
        maps::import,
        maps::check,
        maps::repair,
        stores::list,
        datasets::list,
        datasets::bind,
        datasets::unbind,
        schema::list,
        schema::declare,
        schema::check,
        moves::begin,
        moves::balance,
        moves::rows,
        moves::wish,
        balancer::isolate,
        balancer::apply,
        balancer::adopt,
        balancer::rules,
        balancer::add_rule,
        balancer::remove_rule,
        checker::last,
        checker::repair,
        checker::links,
        checker::add_link,
        checker::check_links,
        checker::remove_link,
        quotas::list,
        quotas::set,
        quotas::remove,
        writes::list,
        writes::show,
        writes::retry,
        writes::skip,
        users::list,
        users::show,
        users::add,
        users::password,
        users::remove,
        users::grant,
        users::revoke,
        users::tokens,
        users::add_token,
        users::remove_token,
        users::whoami,
        operations::list,
        archives::begin,
        archives::list,
        archives::show,
        archives::verify,
        archives::restore,
        archives::forget,
        archives::rules,
        archives::add_rule,
        archives::run_rule,
        archives::remove_rule,
        archives::spill,
        backups::begin,
        backups::list,
        backups::show,
        backups::cancel,
        backups::restore,
        watch::metrics,
        watch::traffic,
        watch::hot,
        watch::large,
        watch::events,
        watch::query,
        watch::window,
        watch::shardlet,
        operations::show
    ),
    security(("token" = [])),
    modifiers(&Token)
)]
struct Document;

struct Token;

impl Modify for Token {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("The admin token")).build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

/// The OpenAPI document as it is served and committed.
pub fn document_text() -> String {
    let mut text =
        document().to_pretty_json().expect("a document made of our own types has only string keys");
    text.push('\n');
    text
}

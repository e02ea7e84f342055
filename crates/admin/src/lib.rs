//! The operator API: types, client, OpenAPI document, handlers over a trait.
//!
//! `server` implements [`Operator`] and serves it with [`serve`]; the command line talks to it with [`Client`].

mod archives;
mod auth;
mod backups;
mod balancer;
mod checker;
mod client;
pub mod convert;
mod extract;
mod handlers;
mod openapi;
mod operator;
mod pages;
mod problem;
mod quotas;
mod reply;
mod serve;
pub mod types;
mod users;
mod watch;
mod writes;

pub use archives::{Archives, archive_router};
pub use auth::{Auth, AuthError, Bearer, DEVELOPMENT_TOKEN, TOKEN_BYTES_MIN, Tokens};
pub use backups::{Backups, backup_router};
pub use balancer::{Balancer, balancer_router};
pub use checker::{Checker, checker_router};
pub use client::{Client, ClientError};
pub use extract::{BODY_BYTES_MAX, IMPORT_BYTES_MAX};
pub use handlers::router;
pub use openapi::{document, document_text};
pub use operator::{Answer, Basis, Data, Exported, Operator, Page};
pub use pages::{PageFile, page_router};
pub use problem::{ErrorBody, ErrorCode, Problem};
pub use quotas::{Quotas, quota_router};
pub use reply::RETRY_AFTER_S;
pub use serve::{Clock, serve};
pub use users::{Users, user_router};
pub use watch::{Events, Watch, watch_router};
pub use writes::{Writes, write_router};

//! SQL tables: the PostgreSQL protocol over the router.

// A session is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod across;
mod backend;
mod cache;
mod cancel;
mod client;
pub mod codec;
mod door;
mod embedded;
mod enlist;
mod options;
mod out_form;
mod recover;
mod refuse;
mod reply;
pub mod rows;
mod scram;
mod session;
mod settings;
mod startup;
mod tls;
mod type_ids;

pub use door::{Clock, Door, Limits, Login, Parts, Random, Serving, Undeclared};
pub use embedded::{schema, with_functions};
pub use reply::{of_router, of_store};
pub use scram::{Verifier, kept_password};
pub use tls::{TlsError, tls_from_pem};
pub use tokio_rustls::TlsAcceptor;

use polyshard_store::Store;

/// The store, as it describes itself.
pub static STORE: Store = Store {
    schema: Some(schema),
    endpoints: options::ENDPOINTS,
    options: options::OPTIONS,
    ..Store::new("sql", "SQL tables")
};

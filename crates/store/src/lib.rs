//! What every store shares: its declaration, rights, quotas and the upkeep of datasets. This crate names no store.
//!
//! A store hands over one [`Store`] value that says what it is, and works through a [`Kit`]. The stores of a process
//! share one [`Host`], which knows the users and their rights, and counts requests against quotas.

mod calls;
mod datasets;
mod declaration;
mod error;
mod host;
mod kit;
mod options;
mod periodic;
mod place;
mod quota;
pub mod rights;
mod secret;
mod start;
mod upkeep;

pub use calls::{AllCalls, Call, Calls, Function, Parameter, ParameterKind, Preparing, Step};
pub use datasets::{Body, Created, DatasetName, read_body, read_stored};
pub use declaration::{
    Datasets, DefaultMap, FormerSettings, KeyColumn, NameError, OpenCarrier, Store, StoreId, Stores,
    UnknownStore,
};
pub use error::{Error, ErrorKind, Reason};
pub use host::{Clock, Host, HostParts, Random};
pub use kit::Kit;
pub use options::{ENV_PREFIX, Kind, ListSpec, Mistake, MistakeAt, OptionSpec, OptionValues};
pub use periodic::PeriodicTask;
pub use place::{Placed, Target};
pub use polyshard_catalog::MapScheme;
pub use polyshard_engine::Secret;
pub use quota::{OverQuota, QUOTA_FORMAT, QUOTA_MAX, QuotaBody, QuotaOf, Quotas};
pub use secret::{SECRET_BYTES_MAX, SecretError, SecretSource};
pub use start::{Configured, Endpoint, Family, Handler, LookUp, Serving, StartError, Started};
pub use upkeep::{Removal, Upkeep, descriptor, registration};

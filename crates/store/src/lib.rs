//! What every store shares: its declaration, rights, quotas and the upkeep of datasets. This crate names no store.
//!
//! A store hands over one [`Store`] value that says what it is, and works through a [`Kit`]. The stores of a process
//! share one [`Host`], which knows the users and their rights, and counts requests against quotas.

mod datasets;
mod declaration;
mod error;
mod host;
mod kit;
mod periodic;
mod place;
mod quota;
pub mod rights;
mod upkeep;

pub use datasets::{Body, Created, DatasetName, read_body, read_stored};
pub use declaration::{Datasets, FormerSettings, Store, StoreId, Stores, UnknownStore};
pub use error::{Error, ErrorKind, Reason};
pub use host::{Clock, Host, HostParts, Random};
pub use kit::Kit;
pub use periodic::PeriodicTask;
pub use place::{Placed, Target};
pub use quota::{OverQuota, QUOTA_FORMAT, QUOTA_MAX, QuotaBody, QuotaOf, Quotas};
pub use upkeep::{Upkeep, descriptor, register_dataset};

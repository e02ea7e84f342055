//! What every store shares: its declaration, rights, quotas and the upkeep of datasets. This crate names no store.
//!
//! A store hands over one [`Store`] value that says what it is, and works through a [`Kit`]. The stores of a process
//! share one [`Host`], which knows the users and their rights, and counts requests against quotas.

mod declaration;
mod host;
mod kit;
mod periodic;
mod quota;
pub mod rights;
mod upkeep;

pub use declaration::{Store, StoreId, Stores, UnknownStore};
pub use host::{Clock, Host, HostParts, Random};
pub use kit::Kit;
pub use periodic::PeriodicTask;
pub use quota::{OverQuota, QUOTA_FORMAT, QUOTA_MAX, QuotaBody, QuotaOf, Quotas};
pub use upkeep::{Upkeep, descriptor, register_dataset};

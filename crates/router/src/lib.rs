//! Map snapshot, tickets, hold and drain, retry, fan-out: how every store reaches the shards.
//!
//! [`Router::enter`] is the only way to a shard handle. There is no check in the database for each request:
//! to take a range away, the coordinator asks every router to hold and drain it, and cuts off those that do
//! not answer (PROTOCOL §2, §5).

mod attached;
mod barrier;
mod enter;
mod error;
mod fanout;
mod fences;
mod follow;
pub mod gate;
mod known;
pub mod meter;
mod register;
mod rescue;
mod router;
mod saved;
mod shards;
pub mod state;
mod ticket;
pub mod view;

pub use barrier::Barrier;
pub use error::RouterError;
pub use fanout::{FanOut, FanOutOptions, Policy};
pub use gate::Access;
pub use router::{Router, RouterOptions, RouterStatus};
pub use shards::Connect;
pub use ticket::Ticket;
pub use view::View;

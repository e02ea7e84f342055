//! What every front door shares: a listener with limits, counters and an orderly shutdown. Knows no protocol.
//!
//! A front door binds a [`Listener`], gives it a handler and runs [`Listener::serve`] until the [`Shutdown`] it was
//! handed has started:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), polyshard_wire::BindError> {
//! use polyshard_wire::{Limits, Listener, Shutdown};
//!
//! let (trigger, shutdown) = Shutdown::new();
//! let listener = Listener::bind("echo", "127.0.0.1:0".parse().unwrap(), Limits::default()).await?;
//! let door = tokio::spawn(listener.serve(shutdown, |mut connection| async move {
//!     let (mut from, mut to) = connection.stream.split();
//!     let _closed = tokio::io::copy(&mut from, &mut to).await;
//! }));
//! trigger.start();
//! assert_eq!(door.await.unwrap().aborted, 0);
//! # Ok(()) }
//! ```

mod counters;
mod listener;
mod shutdown;

pub use counters::{Counters, Counts};
pub use listener::{
    BindError, CONNECTIONS_MAX, Connection, ConnectionGuard, GRACE_MS, Limits, Listener, Served,
};
pub use shutdown::{Shutdown, ShutdownTrigger};

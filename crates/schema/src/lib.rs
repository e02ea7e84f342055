//! What every shard must have alike: schema changes and writes to reference tables in one order; declared tables; ids.
//!
//! A change is run on all shards in open transactions, decided by one transaction in the catalog, and then committed on
//! all shards. A shard that misses the commit is brought there from the journal before it serves again.

// A declaration is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod added;
mod adopt;
mod blocks;
mod bound;
mod bring_up;
mod catch_up;
mod changing;
mod checks;
mod clock;
mod counts;
mod declaration;
mod declare;
mod defaults;
mod drift;
mod embedded;
mod entry;
mod error;
pub mod ids;
mod introspect;
mod journal;
mod keep;
mod kept_key;
mod lasting;
pub mod link;
mod mend;
mod names;
mod other_engine;
mod quote;
mod read;
mod reference;
mod review;
mod run;
mod sequences;
mod stable;
mod tables;
mod triggers;
mod turn;
mod writes;

pub use added::{Added, added_columns};
pub use adopt::{AdoptTable, Adopted, KeyColumns, Look};
pub use declaration::{Declaration, STORE};
pub use drift::{Checked, Difference};
pub use embedded::{Embedded, Lite, SchemaFuture};
pub use entry::{Entry, EntryKind, Recorded};
pub use error::JournalError;
pub use journal::{Journal, JournalOptions};
pub use keep::Keeper;
pub use lasting::lasting_write;
pub use link::Link;
pub use mend::Mended;
pub use reference::{Ask, REFERENCE_ROWS_MAX, ReferenceWrite, Written, reference_write};
pub use stable::Moment;
pub use tables::schema;
pub use turn::{Change, Decided, Turn};
pub use writes::{LastingStatement, LastingWrite, WRITE_BYTES_MAX, too_large};

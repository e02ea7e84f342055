//! Counting, cheaply: counters, histograms of time, the heaviest keys, and the text Prometheus reads.
//!
//! Everything here only computes. Who counts passes the time in; who is asked reads what was counted.

mod counter;
mod histogram;
mod requests;
mod stripes;
mod switch;
mod text;
mod top;
pub mod trace;

pub use counter::Counter;
pub use histogram::{BUCKETS, Histogram, Times};
pub use requests::{OPERATIONS_MAX, Requests, Tally};
pub use switch::{is_counting, switch_off};
pub use text::{Kind, Text};
pub use top::{Heavy, Top};

//! What a query across shards makes sure of while it reads.

use polyshard_engine::{ScalarFunction, Value};

use super::plain;
use crate::fail::fail;

/// Refuses the statement unless both arguments are the same.
pub(crate) const UNMOVED: &str = "pg_unmoved";

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.push(plain(UNMOVED, 2, |arguments| match arguments {
        [found, expected] if found == expected => Ok(Value::Int(1)),
        _ => Err(fail("40001", "ranges began or ended to be moved while their rows were read")),
    }));
}

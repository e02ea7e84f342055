//! What is added to SQLite's own language: functions, aggregates and orders of text, written in Rust.

use std::cmp::Ordering;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::Value;

/// The body of a [`ScalarFunction`]: values in, a value or a message out.
pub type ScalarBody = dyn Fn(&[Value]) -> Result<Value, String> + Send + Sync;

/// A deterministic SQL function for SQLite, so that both engines compute the same (a hash, say).
#[derive(Clone)]
pub struct ScalarFunction {
    pub(crate) name: String,
    pub(crate) arity: i32,
    pub(crate) body: Arc<ScalarBody>,
}

impl ScalarFunction {
    /// A function called `name` of exactly `arity` arguments.
    pub fn new(
        name: impl Into<String>,
        arity: u8,
        body: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> ScalarFunction {
        ScalarFunction { name: name.into(), arity: arity.into(), body: Arc::new(body) }
    }

    /// A function called `name` of any number of arguments.
    pub fn variadic(
        name: impl Into<String>,
        body: impl Fn(&[Value]) -> Result<Value, String> + Send + Sync + 'static,
    ) -> ScalarFunction {
        ScalarFunction { name: name.into(), arity: -1, body: Arc::new(body) }
    }
}

impl fmt::Debug for ScalarFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.arity)
    }
}

/// What an [`Aggregate`] has gathered of one group or window frame.
pub trait Accumulator: Send + UnwindSafe + RefUnwindSafe {
    /// Takes a row in.
    fn step(&mut self, arguments: &[Value]) -> Result<(), String>;

    /// Takes out the row that was taken in first, as a moving window frame needs.
    fn inverse(&mut self, arguments: &[Value]) -> Result<(), String>;

    /// The aggregate of what is in now.
    fn value(&self) -> Result<Value, String>;
}

/// Makes an empty [`Accumulator`].
pub type AccumulatorMaker = dyn Fn() -> Box<dyn Accumulator> + Send + Sync + UnwindSafe + RefUnwindSafe;

/// An SQL aggregate for SQLite, also usable over windows.
#[derive(Clone)]
pub struct Aggregate {
    pub(crate) name: String,
    pub(crate) arity: i32,
    pub(crate) make: Arc<AccumulatorMaker>,
}

impl Aggregate {
    /// An aggregate called `name` of exactly `arity` arguments.
    pub fn new(
        name: impl Into<String>,
        arity: u8,
        make: impl Fn() -> Box<dyn Accumulator> + Send + Sync + UnwindSafe + RefUnwindSafe + 'static,
    ) -> Aggregate {
        Aggregate { name: name.into(), arity: arity.into(), make: Arc::new(make) }
    }
}

impl fmt::Debug for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.arity)
    }
}

/// An order of text for SQLite.
#[derive(Clone)]
pub struct Collation {
    pub(crate) name: String,
    pub(crate) compare: fn(&str, &str) -> Ordering,
}

impl Collation {
    /// An order called `name`; it must be total.
    pub fn new(name: impl Into<String>, compare: fn(&str, &str) -> Ordering) -> Collation {
        Collation { name: name.into(), compare }
    }
}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

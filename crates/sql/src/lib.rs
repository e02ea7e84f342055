//! PostgreSQL statements: parse, resolve, route, plan across shards. Pure: no I/O, no clock.

pub mod ast;
mod call;
mod copy;
mod cursor;
mod ddl;
mod error;
mod guarded;
mod kind;
mod lexer;
mod literals;
mod param;
mod plan;
mod point;
mod rewrite;
mod route;
mod schema;
mod shape;
mod statement;
mod utility;

pub use error::{About, SqlError, SqlState};
pub use guarded::guarded_type;
pub use kind::{
    Argument, Copy, CopyOther, CopyWhat, Ddl, Declare, Direction, Discard, Execute, Explain, Fetch,
    Isolation, Kind, PolyshardCall, Prepare, RelationName, Setting, TransactionModes,
};
pub use literals::{is_literal, with_literals};
pub use param::{Param, ParamValue};
pub use plan::{
    Fold, Fragment, GivenColumn, Merge, Mode, Plan, Quick, SortedBy, Source, folded, plan, quoted,
};
pub use route::{
    Analysis, Called, Context, Maps, Part, ReferenceLock, Rekey, Route, analyse, is_describing,
    sets_jit_alone,
};
pub use schema::{
    Collation, Column, Enum, ForeignKey, Function, Generated, NamedIndex, Placement, Schema, Table,
    TableName, TypeOid, View, Volatility,
};
pub use shape::{Lane, Shape};
pub use statement::{Statement, statements};

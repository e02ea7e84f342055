//! PostgreSQL statements: parse, resolve, route, plan across shards. Pure: no I/O, no clock.

mod error;
mod schema;

pub use error::{SqlError, SqlState};
pub use schema::{
    Collation, Column, ForeignKey, Function, Generated, Placement, Schema, Table, TableName, TypeOid, View,
    Volatility,
};

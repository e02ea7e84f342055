//! Real clusters for tests: PostgreSQL instances on free ports, server processes, fault injection.

pub mod mutate;
pub mod postgres;
pub mod process;
pub mod scratch;

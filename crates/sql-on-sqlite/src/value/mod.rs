//! Values: as PostgreSQL writes and reads them, and as they are kept in SQLite.

pub(crate) mod array;
pub(crate) mod big;
pub(crate) mod binary;
pub(crate) mod calendar;
pub(crate) mod float;
pub(crate) mod interval;
pub(crate) mod json;
pub(crate) mod numeric;
pub(crate) mod text;

//! SQL tables: the PostgreSQL protocol over the router.

//! PostgreSQL's SQL on SQLite shards: the proven subset, its functions and its system catalog.

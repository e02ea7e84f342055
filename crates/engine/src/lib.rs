//! A database to run batches and transactions on: SQLite and PostgreSQL behind one interface.

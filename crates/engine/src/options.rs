//! Limits and sizes of one open database, each with its default and where the number comes from.

use std::time::Duration;

use crate::{Aggregate, Collation, ScalarFunction};

/// How one database is opened. `Options::default()` suits a server with a few dozen shards.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shown in PostgreSQL's `pg_stat_activity`. Default `polyshard`.
    pub application_name: String,
    /// Write batches that may wait for the writer; more get [`crate::Error::Busy`]. Default 4096: at 20
    /// thousand writes a second that is a wait of 200 ms, beyond which waiting helps nobody.
    pub queue_max: usize,
    /// Reads that may be under way at once on PostgreSQL; more get [`crate::Error::Busy`]. Default 4096.
    pub reads_max: usize,
    /// Batches committed together. Default 512, where the cost of one sync is spread thin already.
    pub group_ops_max: usize,
    /// Prepared statements kept for each connection. Default 256.
    pub statement_cache_max: usize,
    /// How long one attempt to connect may take. Default 5 s.
    pub connect_timeout: Duration,
    /// How long to wait for a free session, transaction or scan slot. Default 5 s.
    pub acquire_timeout: Duration,
    /// How long one statement may run. Default 30 s. Scans are exempt.
    pub statement_timeout: Duration,
    /// How long a statement waits for another transaction's lock. Default 2 s. The group writer waits a tenth of a
    /// second at most; a batch that meets a lock waits by itself from then on, so that it holds up no other.
    pub lock_timeout: Duration,
    /// How long a call waits for a lost PostgreSQL server to come back before it gets
    /// [`crate::Error::Unavailable`]. Default 1 s.
    pub unavailable_wait: Duration,
    /// How long to try to learn whether a commit happened after its connection was lost, before
    /// [`crate::Error::OutcomeUnknown`]. Default 10 s, the length of an ordinary restart.
    pub outcome_wait: Duration,
    /// How long a transaction may sit idle before it is rolled back. Default 10 s.
    pub transaction_idle_max: Duration,
    /// Idle read connections kept for each SQLite database. Default 4.
    pub sqlite_readers: usize,
    /// Scans and read transactions open at once on one SQLite database. Default 16.
    pub sqlite_long_reads_max: usize,
    /// Page cache of an SQLite writer in KiB. Default 8192; it is only taken as pages are changed.
    pub sqlite_writer_cache_kib: u32,
    /// Page cache of each SQLite reader in KiB. Default 1024: readers see the file through memory mapping.
    pub sqlite_reader_cache_kib: u32,
    /// How much of an SQLite file is mapped into memory. Default 1 GiB of address space, not of memory.
    pub sqlite_mmap_bytes: u64,
    /// Write-ahead log pages after which an SQLite checkpoint moves them, and waits for readers, so that the log starts
    /// over. Default 16,384 (64 MiB): overwriting what is there is quicker than making the file longer, and each time
    /// the log starts over the writer reads its pages anew.
    pub sqlite_wal_pages_max: u32,
    /// How long an SQLite database without commits keeps the file of its write-ahead log. Default 30 s: it makes the
    /// next commits quicker, and takes up space.
    pub sqlite_wal_keep: Duration,
    /// Pipelined read sessions to each PostgreSQL database. Default 8, as measured to saturate two cores.
    pub postgres_readers: usize,
    /// Sessions for transactions and scans to each PostgreSQL database. Default 16.
    pub postgres_pool_max: usize,
    /// Sessions in protocol messages to each PostgreSQL database, each for one client transaction at a time.
    /// Default 20: a machine of a few cores does no more work with more.
    pub postgres_raw_max: usize,
    /// SQL functions registered on every SQLite connection. Default none.
    pub functions: Vec<ScalarFunction>,
    /// Aggregates registered on every SQLite connection. Default none.
    pub aggregates: Vec<Aggregate>,
    /// Orders of text registered on every SQLite connection. Default none.
    pub collations: Vec<Collation>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            application_name: "polyshard".to_owned(),
            queue_max: 4096,
            reads_max: 4096,
            group_ops_max: 512,
            statement_cache_max: 256,
            connect_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(2),
            unavailable_wait: Duration::from_secs(1),
            outcome_wait: Duration::from_secs(10),
            transaction_idle_max: Duration::from_secs(10),
            sqlite_readers: 4,
            sqlite_long_reads_max: 16,
            sqlite_writer_cache_kib: 8192,
            sqlite_reader_cache_kib: 1024,
            sqlite_mmap_bytes: 1 << 30,
            sqlite_wal_pages_max: 16_384,
            sqlite_wal_keep: Duration::from_secs(30),
            postgres_readers: 8,
            postgres_pool_max: 16,
            postgres_raw_max: 20,
            functions: Vec::new(),
            aggregates: Vec::new(),
            collations: Vec::new(),
        }
    }
}

//! One open database: the interface everything above this crate is written against.

use std::sync::Arc;

use crate::guard::{self, Guard, Guarded};
use crate::transaction::check_no_control;
use crate::{
    Access, Batch, Dialect, Error, Listener, Look, Options, RawLent, Rows, Scan, SessionHook, Statement,
    Target, Transaction, postgres, sqlite,
};
use async_recursion::async_recursion as boxed;

/// How many SQLite files a query can see beside its own: the most that SQLite can be built for. The number
/// is given to its build in `.cargo/config.toml`.
pub const ATTACHED_MAX: usize = 125;

/// A handle to one open database; clones share it.
///
/// The last clone dropped closes it without waiting; [`Database::close`] waits.
#[derive(Clone)]
pub struct Database {
    inner: Inner,
}

#[derive(Clone)]
enum Inner {
    Sqlite(Arc<sqlite::Engine>),
    Postgres(Arc<postgres::Engine>),
}

/// When what is written is safe from a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// When it is answered.
    Now,
    /// With the next write that is durable when it is answered: until then all of it may be lost, and never a part
    /// without what was written before.
    WithTheNext,
}

/// What a database has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches answered, with success or not.
    pub writes: u64,
    /// Commits that answered them; `writes / groups` is the mean group size.
    pub groups: u64,
    /// Groups run again batch by batch because one of them failed.
    pub groups_rerun: u64,
    /// Reads answered.
    pub reads: u64,
    /// Batches waiting for the writer now.
    pub queued: usize,
    /// Connections opened.
    pub sessions_opened: u64,
}

impl Database {
    /// Opens the database, checks that it is fit for use, and runs the hook.
    #[boxed]
    pub async fn open(
        target: Target,
        options: Options,
        hook: Option<Arc<dyn SessionHook>>,
    ) -> Result<Database, Error> {
        let inner = match target {
            Target::Sqlite(target) => Inner::Sqlite(sqlite::Engine::open(target, options, hook).await?),
            Target::Postgres(target) => Inner::Postgres(postgres::Engine::open(target, options, hook).await?),
        };
        Ok(Database { inner })
    }

    /// The SQL it speaks.
    pub fn dialect(&self) -> Dialect {
        match &self.inner {
            Inner::Sqlite(_) => Dialect::Sqlite,
            Inner::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Applies a batch atomically and durably, together with whatever else is waiting. Returns one answer
    /// per statement. Dropping the future does not stop a batch that has been queued.
    pub async fn write(&self, batch: Batch) -> Result<Vec<Rows>, Error> {
        for statement in &batch.statements {
            check_no_control(statement)?;
        }
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match &self.inner {
            Inner::Sqlite(engine) => engine.write(batch).await,
            Inner::Postgres(engine) => engine.write(batch).await,
        }
    }

    /// As [`Database::write`]. On SQLite it is applied by itself and need not be durable when it is answered: it is
    /// with the next one that is, and never without those before it. PostgreSQL has sessions for that.
    pub async fn write_lazily(&self, batch: Batch) -> Result<Vec<Rows>, Error> {
        match &self.inner {
            Inner::Sqlite(engine) if !batch.is_empty() => {
                for statement in &batch.statements {
                    check_no_control(statement)?;
                }
                engine.write_lazily(batch).await
            }
            _ => self.write(batch).await,
        }
    }

    /// Applies a batch to this SQLite database, by itself, that sees `other` beside it under a name and may read it.
    /// The writers of the other go on.
    pub async fn write_beside(
        &self,
        other: (&str, &Database),
        batch: Batch,
        durable: Durable,
    ) -> Result<Vec<Rows>, Error> {
        for statement in &batch.statements {
            check_no_control(statement)?;
        }
        match (&self.inner, &other.1.inner) {
            (Inner::Sqlite(engine), Inner::Sqlite(beside)) => {
                engine.write_beside((other.0, beside), batch, durable).await
            }
            _ => Err(Error::invalid("only SQLite databases can be used beside each other")),
        }
    }

    /// Runs one query on a snapshot of its own; it sees every write acknowledged before. Meant for few rows:
    /// SQLite runs it on the calling thread. For many, use [`Database::scan`].
    pub async fn read(&self, statement: Statement) -> Result<Rows, Error> {
        self.read_under(statement, None, None).await
    }

    /// The same, where rows that nobody wants are not copied: `look` sees each row of a file where it lies, and those
    /// it does not want are not among the answer's, though [`Rows::affected`] counts them. A server sends what it
    /// finds: there `look` is not asked.
    pub async fn read_wanted(&self, statement: Statement, look: &mut Look<'_>) -> Result<Rows, Error> {
        self.read_under(statement, Some(look), None).await
    }

    pub(crate) async fn read_under(
        &self,
        statement: Statement,
        look: Option<&mut Look<'_>>,
        guard: Option<&Guard>,
    ) -> Result<Rows, Error> {
        check_no_control(&statement)?;
        match &self.inner {
            Inner::Sqlite(engine) => {
                // The read itself never waits: a caller in a loop would keep its thread from all others.
                tokio::task::coop::consume_budget().await;
                guard::check(guard)?;
                match look {
                    Some(look) => engine.read_wanted(&statement, look),
                    None => engine.read(&statement),
                }
            }
            Inner::Postgres(engine) => engine.read(&statement, guard).await,
        }
    }

    /// The same database for a caller whose leave may be taken back.
    pub fn guarded<'a>(&'a self, guard: &'a Guard) -> Guarded<'a> {
        Guarded { db: self, guard }
    }

    /// Starts a query whose rows come in pages of `page_rows`.
    pub async fn scan(&self, statement: Statement, page_rows: usize) -> Result<Scan, Error> {
        self.scan_under(statement, page_rows, None).await
    }

    #[boxed]
    pub(crate) async fn scan_under(
        &self,
        statement: Statement,
        page_rows: usize,
        guard: Option<&Guard>,
    ) -> Result<Scan, Error> {
        check_no_control(&statement)?;
        crate::scan::check_page_rows(page_rows)?;
        match &self.inner {
            Inner::Sqlite(engine) => {
                let scan = engine.scan(statement, page_rows).await?;
                // After the wait for a place; it has read ahead, but the caller has seen nothing.
                guard::check(guard)?;
                Ok(Scan::sqlite(scan))
            }
            Inner::Postgres(engine) => engine.scan(statement, page_rows, guard).await.map(Scan::postgres),
        }
    }

    /// Starts a query on this SQLite database that sees `others` beside it, each under its name: one snapshot
    /// of every file. At most [`ATTACHED_MAX`] others.
    pub async fn scan_attached(
        &self,
        others: &[(String, Database)],
        statement: Statement,
        page_rows: usize,
    ) -> Result<Scan, Error> {
        check_no_control(&statement)?;
        crate::scan::check_page_rows(page_rows)?;
        if others.len() > ATTACHED_MAX {
            return Err(Error::invalid(format!(
                "a query can see {ATTACHED_MAX} SQLite files beside its own, not {}: use fewer shards",
                others.len()
            )));
        }
        let only_sqlite = || Error::invalid("only SQLite databases can be read beside each other");
        let Inner::Sqlite(engine) = &self.inner else {
            return Err(only_sqlite());
        };
        let mut engines = Vec::with_capacity(others.len());
        for (name, other) in others {
            let Inner::Sqlite(other) = &other.inner else {
                return Err(only_sqlite());
            };
            engines.push((name.clone(), other.clone()));
        }
        engine.scan_attached(&engines, statement, page_rows).await.map(Scan::sqlite)
    }

    /// Begins an interactive transaction.
    pub async fn begin(&self, access: Access) -> Result<Transaction, Error> {
        self.begin_under(access, None).await
    }

    pub(crate) async fn begin_under(
        &self,
        access: Access,
        guard: Option<&Guard>,
    ) -> Result<Transaction, Error> {
        match (&self.inner, access) {
            (Inner::Sqlite(engine), Access::Read) => {
                let transaction = engine.begin_read().await?;
                // After the wait for a place or for the writer; an error drops it, which rolls back.
                guard::check(guard)?;
                Ok(Transaction::sqlite_read(transaction))
            }
            (Inner::Sqlite(engine), Access::Write) => {
                let transaction = engine.begin_write().await?;
                guard::check(guard)?;
                Ok(Transaction::sqlite_write(transaction))
            }
            (Inner::Postgres(engine), access) => engine.begin(access, guard).await.map(Transaction::postgres),
        }
    }

    /// Lends a session in protocol messages; PostgreSQL only.
    pub async fn raw(&self) -> Result<RawLent, Error> {
        self.raw_under(None).await
    }

    #[boxed]
    pub(crate) async fn raw_under(&self, guard: Option<&Guard>) -> Result<RawLent, Error> {
        match &self.inner {
            Inner::Sqlite(_) => Err(Error::invalid("an SQLite file has no sessions in protocol messages")),
            Inner::Postgres(engine) => engine.raw(guard).await,
        }
    }

    /// Subscribes to the notifications of a channel sent from now on: by any process on PostgreSQL, by this
    /// one on SQLite.
    #[boxed]
    pub async fn listen(&self, channel: &str) -> Result<Listener, Error> {
        Statement::notify(channel, "").check()?;
        match &self.inner {
            Inner::Sqlite(engine) => engine.listen(channel),
            Inner::Postgres(engine) => engine.listen(channel).await,
        }
    }

    /// Grows with every [`Database::disconnect_all`].
    pub fn session_generation(&self) -> u64 {
        match &self.inner {
            Inner::Sqlite(engine) => engine.session_generation(),
            Inner::Postgres(engine) => engine.session_generation(),
        }
    }

    /// Has every session replaced by a new one, which meets the hook again, before it is used next.
    /// Statements and transactions under way end on the old ones. SQLite has no sessions: only the
    /// generation grows.
    pub fn disconnect_all(&self) {
        match &self.inner {
            Inner::Sqlite(engine) => engine.disconnect_all(),
            Inner::Postgres(engine) => engine.disconnect_all(),
        }
    }

    pub(crate) fn sqlite_engine(&self) -> Option<&Arc<sqlite::Engine>> {
        match &self.inner {
            Inner::Sqlite(engine) => Some(engine),
            Inner::Postgres(_) => None,
        }
    }

    /// Answers if the database does.
    #[boxed]
    pub async fn ping(&self) -> Result<(), Error> {
        self.read(Statement::new("SELECT 1")).await.map(drop)
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        match &self.inner {
            Inner::Sqlite(engine) => engine.stats(),
            Inner::Postgres(engine) => engine.stats(),
        }
    }

    /// Finishes what is queued, ends all sessions and waits until they are gone; later calls on any clone
    /// get [`Error::Closed`].
    #[boxed]
    pub async fn close(&self) {
        match &self.inner {
            Inner::Sqlite(engine) => engine.close().await,
            Inner::Postgres(engine) => engine.close().await,
        }
    }
}

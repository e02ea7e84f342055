//! A moment of a database, held so that it can be copied while writes go on.

use std::path::Path;

use crate::{Access, Error, Rows, Statement, Transaction, sqlite};

/// A moment of a database. Dropping it lets go of it.
pub struct Snapshot {
    inner: Inner,
}

enum Inner {
    Sqlite(Box<sqlite::Moment>),
    Postgres { transaction: Box<Transaction>, name: String },
}

/// Which content a database had at some time. Two that are the same say that nothing was committed in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub(crate) watch: u64,
    pub(crate) data: i64,
}

/// How far a copy is: pages copied, pages of all.
pub type CopyProgress = dyn Fn(u64, u64) + Send + Sync;

impl crate::Database {
    /// Holds this moment: everything committed before is in it, and nothing that is committed later.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        if let Some(engine) = self.sqlite_engine() {
            return Ok(Snapshot { inner: Inner::Sqlite(Box::new(engine.moment().await?)) });
        }
        let mut transaction = self.begin(Access::Read).await?;
        // Others may be copied first, for hours; it ends with its connection.
        transaction.run(Statement::new("SET LOCAL idle_in_transaction_session_timeout = 0")).await?;
        let rows = transaction.run(Statement::new("SELECT pg_export_snapshot()")).await?;
        let name = rows.one()?.text(0)?.to_owned();
        Ok(Snapshot { inner: Inner::Postgres { transaction: Box::new(transaction), name } })
    }
}

impl Snapshot {
    /// The name under which other sessions of the same PostgreSQL database can take this moment up
    /// (`SET TRANSACTION SNAPSHOT`, `pg_dump --snapshot`), as long as it is held.
    pub fn name(&self) -> Option<&str> {
        match &self.inner {
            Inner::Sqlite(_) => None,
            Inner::Postgres { name, .. } => Some(name),
        }
    }

    /// The versions of an SQLite database just before and just after this moment. If the later of one moment is the
    /// earlier of a moment before it, both have the same content. PostgreSQL has nothing that proves as much.
    pub fn versions(&self) -> Option<(&Version, &Version)> {
        match &self.inner {
            Inner::Sqlite(moment) => Some((&moment.before, &moment.after)),
            Inner::Postgres { .. } => None,
        }
    }

    /// Shows the server that somebody is there: a session that is silent in a transaction is ended. SQLite has none.
    pub async fn keep(&mut self) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sqlite(_) => Ok(()),
            Inner::Postgres { transaction, .. } => {
                transaction.run(Statement::new("SELECT 1")).await.map(drop)
            }
        }
    }

    /// Hands out the rows of a query as they are at this moment, in pages. `name` tells queries of different columns
    /// apart: lower-case letters, digits and underscores.
    pub async fn read(
        self,
        name: &str,
        query: &str,
        page_rows: usize,
        mut page: impl FnMut(Rows) -> Result<(), Error> + Send,
    ) -> Result<Snapshot, Error> {
        match self.inner {
            Inner::Sqlite(moment) => {
                let moment = moment.read(query, page_rows, &mut page).await?;
                Ok(Snapshot { inner: Inner::Sqlite(Box::new(moment)) })
            }
            Inner::Postgres { mut transaction, name: exported } => {
                let declare = format!("DECLARE polyshard_{name} NO SCROLL CURSOR FOR {query}");
                transaction.run(Statement::new(declare)).await?;
                let fetch = format!("FETCH {page_rows} FROM polyshard_{name}");
                loop {
                    let rows = transaction.run(Statement::new(fetch.as_str())).await?;
                    if rows.is_empty() {
                        break;
                    }
                    page(rows)?;
                }
                transaction.run(Statement::new(format!("CLOSE polyshard_{name}"))).await?;
                Ok(Snapshot { inner: Inner::Postgres { transaction, name: exported } })
            }
        }
    }

    /// Copies an SQLite database into a new file, durably.
    pub async fn copy_to(
        self,
        path: &Path,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> Result<(), Error> {
        match self.inner {
            Inner::Sqlite(moment) => moment.copy_to(path.to_owned(), Box::new(progress)).await,
            Inner::Postgres { .. } => {
                Err(Error::invalid("a PostgreSQL database is copied by pg_dump, under the snapshot's name"))
            }
        }
    }
}

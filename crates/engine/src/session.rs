//! The hook that meets every new database session before anybody uses it.

use std::future::Future;
use std::pin::Pin;

use crate::{Dialect, Error, Rows, Statement, postgres, sqlite};

/// What a hook answers.
pub type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Runs on every new PostgreSQL session before its first use, and once when an SQLite file is opened.
///
/// An error refuses the session: the caller who needed it gets that error. Answer [`Error::refused`] for a
/// reason of your own.
pub trait SessionHook: Send + Sync {
    /// Prepares or refuses one session.
    fn on_session<'a>(&'a self, session: &'a mut SessionHandle<'_>) -> HookFuture<'a>;
}

/// A session that is not in use yet.
pub struct SessionHandle<'s> {
    pub(crate) inner: SessionInner<'s>,
}

pub(crate) enum SessionInner<'s> {
    Sqlite(&'s sqlite::Engine),
    Postgres(&'s postgres::Session),
    Raw(&'s mut postgres::RawSession),
}

impl SessionHandle<'_> {
    /// The SQL it speaks.
    pub fn dialect(&self) -> Dialect {
        match self.inner {
            SessionInner::Sqlite(_) => Dialect::Sqlite,
            SessionInner::Postgres(_) | SessionInner::Raw(_) => Dialect::Postgres,
        }
    }

    /// Runs one statement in a transaction of its own.
    pub async fn run(&mut self, statement: Statement) -> Result<Rows, Error> {
        match &mut self.inner {
            SessionInner::Sqlite(engine) => {
                let mut answers = engine.write(statement.into()).await?;
                Ok(answers.pop().unwrap_or_else(Rows::none))
            }
            SessionInner::Postgres(session) => session.run_autocommit(&statement).await,
            SessionInner::Raw(session) => session.run(&statement).await,
        }
    }
}

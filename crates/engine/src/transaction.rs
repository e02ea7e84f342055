//! An interactive transaction: statements decided one after the other, applied together.

use std::sync::Arc;

use crate::statement::Action;
use crate::{Error, Rows, Statement, postgres, sqlite};
use async_recursion::async_recursion as boxed;

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read one snapshot.
    Read,
    /// Read and write. On SQLite it is alone: all other writes wait. On PostgreSQL it is READ COMMITTED:
    /// lock what you decide on with [`crate::Dialect::for_update`].
    Write,
}

/// What statements that run together may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// What earlier ones among them make.
    Earlier,
    /// Only what there is.
    Nothing,
}

/// An open transaction; dropping it rolls it back.
pub struct Transaction {
    inner: Inner,
    /// Set by the first error: as on PostgreSQL, nothing but a rollback (to a savepoint) may follow.
    failed: bool,
}

/// Stops the statement that a transaction runs at the moment: it fails as one that ran for too long.
pub struct Stopper(Arc<sqlite::StatementStopper>);

impl Stopper {
    /// Stops it; nothing happens if none runs.
    pub fn stop(&self) {
        self.0.stop();
    }
}

enum Inner {
    SqliteRead(sqlite::ReadTransaction),
    SqliteWrite(sqlite::WriteTransaction),
    Postgres(Box<postgres::PostgresTransaction>),
}

impl Transaction {
    pub(crate) fn sqlite_read(inner: sqlite::ReadTransaction) -> Transaction {
        Transaction { inner: Inner::SqliteRead(inner), failed: false }
    }

    pub(crate) fn sqlite_write(inner: sqlite::WriteTransaction) -> Transaction {
        Transaction { inner: Inner::SqliteWrite(inner), failed: false }
    }

    pub(crate) fn postgres(inner: postgres::PostgresTransaction) -> Transaction {
        Transaction { inner: Inner::Postgres(Box::new(inner)), failed: false }
    }

    /// What stops the statement that it runs at the moment; nothing where that cannot be stopped so. A write that is
    /// stopped may take the whole transaction with it.
    pub fn stopper(&self) -> Option<Stopper> {
        match &self.inner {
            Inner::SqliteWrite(transaction) => Some(Stopper(transaction.stopper())),
            Inner::SqliteRead(_) | Inner::Postgres(_) => None,
        }
    }

    /// Runs one statement.
    pub async fn run(&mut self, statement: Statement) -> Result<Rows, Error> {
        let mut answers = self.run_all(vec![statement]).await?;
        Ok(answers.pop().unwrap_or_else(Rows::none))
    }

    /// Runs statements in order; stops at the first that fails. On PostgreSQL in one round trip, once the session knows
    /// all of them.
    pub async fn run_all(&mut self, statements: Vec<Statement>) -> Result<Vec<Rows>, Error> {
        self.run_as(statements, Needs::Earlier).await
    }

    /// As [`Transaction::run_all`], where no statement needs a table or column that an earlier one makes: those that
    /// are new to the session are made known to it all at once.
    pub async fn run_known(&mut self, statements: Vec<Statement>) -> Result<Vec<Rows>, Error> {
        self.run_as(statements, Needs::Nothing).await
    }

    #[boxed]
    async fn run_as(&mut self, statements: Vec<Statement>, needs: Needs) -> Result<Vec<Rows>, Error> {
        for statement in &statements {
            statement.check()?;
            check_control(statement)?;
        }
        let recovers = statements.first().is_some_and(is_rollback_to);
        if self.failed && !recovers {
            return Err(failed_before());
        }
        let result = match &mut self.inner {
            Inner::SqliteRead(transaction) => transaction.run_all(&statements).await,
            Inner::SqliteWrite(transaction) => transaction.run_all(statements).await,
            Inner::Postgres(transaction) => transaction.run_all(&statements, needs).await,
        };
        self.failed = result.is_err();
        result
    }

    /// Starts a query whose rows come in pages of `page_rows`. Only a transaction that reads an SQLite database can
    /// have a part of an answer: from all others it comes as one page.
    pub async fn scan(
        &mut self,
        statement: Statement,
        page_rows: usize,
    ) -> Result<TransactionScan<'_>, Error> {
        statement.check()?;
        check_control(&statement)?;
        crate::scan::check_page_rows(page_rows)?;
        if self.failed {
            return Err(failed_before());
        }
        let pages = match &mut self.inner {
            Inner::SqliteRead(transaction) => Pages::Scan(transaction.scan(statement, page_rows).await?),
            _ => Pages::Whole(Some(self.run(statement).await?)),
        };
        Ok(TransactionScan { transaction: self, pages })
    }

    /// Makes the changes durable. After an earlier error it rolls back and says so.
    #[boxed]
    pub async fn commit(self) -> Result<(), Error> {
        if self.failed {
            self.rollback().await?;
            return Err(failed_before());
        }
        match self.inner {
            Inner::SqliteRead(transaction) => transaction.finish().await,
            Inner::SqliteWrite(transaction) => transaction.commit().await,
            Inner::Postgres(transaction) => transaction.commit().await,
        }
    }

    /// Undoes everything.
    #[boxed]
    pub async fn rollback(self) -> Result<(), Error> {
        match self.inner {
            Inner::SqliteRead(transaction) => transaction.finish().await,
            Inner::SqliteWrite(transaction) => transaction.rollback().await,
            Inner::Postgres(transaction) => transaction.rollback().await,
        }
    }
}

/// A query under way in a transaction. At most two pages are in memory; dropping it ends the query.
pub struct TransactionScan<'t> {
    transaction: &'t mut Transaction,
    pages: Pages,
}

enum Pages {
    Scan(sqlite::SqliteScan),
    Whole(Option<Rows>),
}

impl TransactionScan<'_> {
    /// The next page, never empty; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        let page = match &mut self.pages {
            Pages::Scan(scan) => scan.next().await,
            Pages::Whole(rows) => Ok(rows.take().filter(|rows| !rows.is_empty())),
        };
        self.transaction.failed |= page.is_err();
        page
    }
}

fn failed_before() -> Error {
    Error::invalid("an earlier statement of this transaction failed: roll it back and start again")
}

/// Savepoints may be used in a transaction, its beginning and end not: the engine must know of them.
fn check_control(statement: &Statement) -> Result<(), Error> {
    if is_transaction_control(statement) && !is_savepoint(statement) && !is_rollback_to(statement) {
        return Err(control_refused(statement));
    }
    Ok(())
}

/// Outside a transaction not even savepoints may be used.
pub(crate) fn check_no_control(statement: &Statement) -> Result<(), Error> {
    statement.check()?;
    if is_transaction_control(statement) { Err(control_refused(statement)) } else { Ok(()) }
}

fn control_refused(statement: &Statement) -> Error {
    Error::invalid(format!(
        "{:?} begins or ends a transaction: use Database::begin, Transaction::commit or rollback",
        statement.text().trim()
    ))
}

fn is_transaction_control(statement: &Statement) -> bool {
    const WORDS: [&str; 8] = ["begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"];
    let word = first_word(statement);
    WORDS.iter().any(|control| word.eq_ignore_ascii_case(control))
}

fn is_savepoint(statement: &Statement) -> bool {
    let word = first_word(statement);
    word.eq_ignore_ascii_case("savepoint") || word.eq_ignore_ascii_case("release")
}

fn is_rollback_to(statement: &Statement) -> bool {
    first_word(statement).eq_ignore_ascii_case("rollback")
        && statement.text().split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("to"))
}

fn first_word(statement: &Statement) -> &str {
    let Action::Sql { text, .. } = &statement.action else {
        return "";
    };
    let text = text.trim_start();
    &text[..text.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_savepoints_pass_inside_a_transaction_and_nothing_outside() {
        for sql in ["BEGIN", " commit ;", "Rollback", "END;", "START TRANSACTION"] {
            assert!(check_control(&Statement::new(sql)).is_err(), "{sql}");
            assert!(check_no_control(&Statement::new(sql)).is_err(), "{sql}");
        }
        for sql in ["SAVEPOINT a", "release a", "ROLLBACK TO a", "rollback work to savepoint a"] {
            assert!(check_control(&Statement::new(sql)).is_ok(), "{sql}");
            assert!(check_no_control(&Statement::new(sql)).is_err(), "{sql}");
        }
        for sql in ["SELECT 1", "INSERT INTO beginning VALUES (1)", "", "(SELECT 1)"] {
            assert!(check_no_control(&Statement::new(sql)).is_ok(), "{sql}");
        }
    }
}

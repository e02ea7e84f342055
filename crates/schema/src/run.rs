//! Runs an entry's statements in a shard's transaction, and a whole change on all shards.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use polyshard_catalog::Decision;
use polyshard_engine::{self as engine, Dialect, Statement, Transaction};
use polyshard_map::ShardId;
use polyshard_sql::Kind;

use crate::JournalError;
use crate::embedded::search_path;
use crate::entry::{EntryKind, Recorded};
use crate::journal::{Inner, Journal};
use crate::turn::{Change, Decided, Turn};

/// Who runs an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// A shard that has the rows that statements are about.
    Has,
    /// A shard that has none yet, and gets them otherwise.
    Lacks,
}

/// Whether all processes know of what was decided; it counts in any case.
pub(crate) type Told = Result<(), JournalError>;

/// A shard's transaction in which a change has been run.
pub(crate) struct Open {
    pub shard: ShardId,
    pub dialect: Dialect,
    pub tx: Transaction,
}

impl Journal {
    /// Runs statements on all shards, all or none. Each must give the same result wherever and whenever it is run.
    pub async fn apply(&self, statements: &[String]) -> Result<u64, JournalError> {
        let statements = statements.iter().map(Recorded::new).collect();
        let change = Change { kind: EntryKind::Schema, statements, settings: BTreeMap::new() };
        Ok(self.apply_change(change).await?.position)
    }

    /// Likewise, with the settings under which they are to be understood.
    pub async fn apply_change(&self, change: Change) -> Result<Decided, JournalError> {
        let mut turn = self.turn().await?;
        match self.inner.open_and_review(&mut turn, &change).await {
            Ok(open) => {
                let (statements, decision) = turn.take_review();
                let change = Change { statements: [change.statements, statements].concat(), ..change };
                let (decided, told) = self.inner.decide_and_commit(turn, change, decision, open).await?;
                told.map(|()| decided)
            }
            Err(error) => {
                turn.give_up().await;
                Err(error)
            }
        }
    }
}

impl Inner {
    /// Begins a transaction on every shard of a turn and runs a change there: on the first one first, so that a mistake
    /// in the statement is found there alone.
    pub(crate) async fn open_everywhere(
        &self,
        turn: &Turn,
        change: &Change,
    ) -> Result<Vec<Open>, JournalError> {
        let mut open = Vec::with_capacity(turn.shards().len());
        let Some((first, rest)) = turn.shards().split_first() else { return Ok(open) };
        open.push(self.open_one(first, change).await?);
        for other in join_all(rest.iter().map(|shard| self.open_one(shard, change))).await {
            open.push(other?);
        }
        Ok(open)
    }

    async fn open_and_review(&self, turn: &mut Turn, change: &Change) -> Result<Vec<Open>, JournalError> {
        let mut open = self.open_everywhere(turn, change).await?;
        if change.kind == EntryKind::Schema
            && let Some(first) = open.first_mut()
        {
            let search_path = search_path(&change.settings);
            let said = (&change.statements[..], &search_path[..]);
            let follows = turn.review_on(first.dialect, &mut first.tx, said).await?;
            for on in &mut open {
                self.run(&on.shard, on.dialect, &mut on.tx, &follows, &BTreeMap::new(), Rows::Has).await?;
            }
        }
        Ok(open)
    }

    async fn open_one(&self, id: &ShardId, change: &Change) -> Result<Open, JournalError> {
        self.pass(&format!("run:{id}.before"))?;
        let shard = self.shard(id).await?;
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
        let dialect = shard.dialect();
        self.run(id, dialect, &mut tx, &change.statements, &change.settings, Rows::Has).await?;
        Ok(Open { shard: id.clone(), dialect, tx })
    }

    /// Marks, decides, commits, and tells everybody. If not all could be told, it is decided all the same.
    pub(crate) async fn decide_and_commit(
        &self,
        turn: Turn,
        change: Change,
        decision: Decision,
        mut open: Vec<Open>,
    ) -> Result<(Decided, Told), JournalError> {
        for on in &mut open {
            let marked = on.tx.run(turn.mark(on.dialect)).await;
            if let Err(error) = marked {
                let error = JournalError::on(&on.shard, error);
                drop(open);
                turn.give_up().await;
                return Err(error);
            }
        }
        let kind = change.kind;
        let decided = turn.decide_with(change, decision).await?;
        for on in open {
            self.pass(&format!("commit:{}.before", on.shard))?;
            match on.tx.commit().await {
                Ok(()) => self.learn_applied(&on.shard, decided.position),
                Err(error) => {
                    // It is decided: whoever uses the shard next brings it there.
                    let shard = &on.shard;
                    tracing::warn!(%shard, %error, position = decided.position, "a shard is brought up later");
                }
            }
        }
        self.pass("commit.after")?;
        let told = match kind {
            EntryKind::Rows => Ok(()),
            EntryKind::Schema | EntryKind::Placement => self.tell_everybody().await,
        };
        Ok((decided, told))
    }

    pub(crate) async fn tell_everybody(&self) -> Told {
        self.pass("commit.tell.before")?;
        Ok(self.router.everybody_knows().await?)
    }

    /// Runs statements in a shard's transaction.
    pub(crate) async fn run(
        &self,
        id: &ShardId,
        dialect: Dialect,
        tx: &mut Transaction,
        statements: &[Recorded],
        settings: &BTreeMap<String, String>,
        rows: Rows,
    ) -> Result<(), JournalError> {
        let fail = |error: engine::Error| JournalError::on(id, error);
        if dialect == Dialect::Postgres {
            for (name, value) in settings {
                let set = Statement::new("SELECT set_config($1, $2, true)").bind(name.clone());
                tx.run(set.bind(value.clone())).await.map_err(fail)?;
            }
        }
        for recorded in statements {
            if !recorded.concerns(id, dialect) || (recorded.rows && rows == Rows::Lacks) {
                continue;
            }
            if dialect == Dialect::Postgres || recorded.engine.is_some() {
                let sql = if dialect == Dialect::Postgres { unanswered(&recorded.sql) } else { None };
                tx.run(Statement::new(sql.as_deref().unwrap_or(&recorded.sql))).await.map_err(fail)?;
                continue;
            }
            let embedded = self.embedded();
            let schema = embedded.schema(tx).await?;
            for statement in embedded.translate(&recorded.sql, &schema, settings)? {
                tx.run(statement).await.map_err(fail)?;
            }
        }
        Ok(())
    }
}

/// A write with RETURNING, so that PostgreSQL answers nothing: its client was answered, and rows may have types that
/// are not read here.
fn unanswered(sql: &str) -> Option<String> {
    if !sql.to_ascii_lowercase().contains("returning") {
        return None;
    }
    let statements = polyshard_sql::statements(sql).ok()?;
    let [statement] = statements.as_slice() else { return None };
    if !matches!(statement.kind(), Kind::Insert | Kind::Update | Kind::Delete) {
        return None;
    }
    let words = statement.text().trim().trim_end_matches(';');
    // A line of its own for what follows: there may be a comment before.
    Some(format!("WITH polyshard_write AS ({words}\n) SELECT 1"))
}

#[cfg(test)]
mod tests {
    use super::unanswered;

    #[test]
    fn only_writes_that_answer_are_kept_from_it() {
        assert_eq!(unanswered("INSERT INTO t VALUES (1)"), None);
        assert_eq!(unanswered("CREATE FUNCTION f() AS 'DELETE FROM t RETURNING a'"), None);
        let delete = unanswered("DELETE FROM t RETURNING a; ").unwrap();
        assert_eq!(delete, "WITH polyshard_write AS (DELETE FROM t RETURNING a\n) SELECT 1");
        let update = unanswered("/* app */ UPDATE t SET a = 1 -- now\n RETURNING a").unwrap();
        assert!(update.starts_with("WITH") && update.ends_with("RETURNING a\n) SELECT 1"), "{update}");
    }
}

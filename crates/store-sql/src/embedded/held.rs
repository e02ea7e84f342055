//! Statements before which something is laid ready on their shard: the rows of a query that get ids, and those of
//! writes within WITH.

use std::sync::Arc;

use polyshard_engine::{Rows, Transaction};
use polyshard_map::ShardId;
use polyshard_router::Access;
use polyshard_sql::{Param, Schema, SqlError, SqlState};
use polyshard_sql_on_sqlite::{HELD_ROWS_MAX, Held, Prepared, WITH_ROWS_MAX};

use super::pages::run_stoppable;
use super::run::Solo;
use crate::reply;
use crate::session::{Done, Session, Stop, write_ticket};

/// A statement wants more than it may have.
const LIMIT_EXCEEDED: SqlState = SqlState("54000");
/// Rows laid ready at once.
const ROWS_AT_ONCE: usize = 1_000;

impl Session {
    /// New ids of a sequence, for rows of a shard.
    pub(super) async fn new_ids(
        &self,
        sequence: &str,
        count: usize,
        shard: &ShardId,
    ) -> Result<Vec<i64>, SqlError> {
        let journal = &self.door.journal;
        let given = if sequence == polyshard_sql_on_sqlite::NEXT_ID {
            journal.next_ids(shard, count, self.door.now_unix_ms()).await
        } else {
            journal.allocate(sequence, count as u64, 1).await.map(|ids| ids.collect())
        };
        given.map_err(|error| error.to_sql())
    }

    /// Runs a prepared statement on the shard that was entered, after what it needs is laid ready there.
    pub(super) async fn run_held(
        &mut self,
        prepared: &Prepared,
        held: &Held,
        params: &[Param<'_>],
        (schema, shard): (&Schema, &ShardId),
    ) -> Done {
        if self.under.is_some() {
            // Whoever runs its words again on a shard that has missed them would get other ids.
            return Err(SqlError::unsupported(
                "an id for each row of a query, or a write within WITH, where writes on several shards are completed, \
                 or beside PostgreSQL shards",
                "Insert the rows with VALUES, or give the ids yourself. Where all shards are SQLite files, SET \
                 polyshard.multi_shard = 'refuse' has it carried out.",
            )
            .into());
        }
        let wrong =
            |error: polyshard_engine::Error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema));
        let inside = !self.transaction.is_none();
        if inside {
            self.begin_lite(schema, true).await?;
        }
        let Some(lite) = &mut self.lite else { return Ok(()) };
        let mut solo = match lite.transaction.take() {
            Some(solo) => solo,
            None => {
                let ticket = match write_ticket(&lite.tickets) {
                    Some(ticket) => ticket.clone(),
                    None => {
                        let entered = self.door.router.enter_unmapped(&lite.shard, Access::Write).await;
                        Arc::new(entered.map_err(|error| reply::of_router(&error))?)
                    }
                };
                Solo::new(ticket.begin().await.map_err(wrong)?)
            }
        };
        let ran = self.lay_and_run(prepared, held, params, (schema, shard), solo.get()).await;
        if !inside {
            let rows = ran?;
            solo.into_inner().commit().await.map_err(wrong)?;
            return self.answer(prepared, &rows);
        }
        if let Some(lite) = &mut self.lite {
            lite.transaction = Some(solo);
        }
        let rows = ran?;
        self.transaction.wrote = true;
        self.answer(prepared, &rows)
    }

    /// What fails half-way is undone with its transaction, or with the savepoint before it.
    async fn lay_and_run(
        &mut self,
        prepared: &Prepared,
        held: &Held,
        params: &[Param<'_>],
        (schema, shard): (&Schema, &ShardId),
        transaction: &mut Transaction,
    ) -> Result<Rows, Stop> {
        let running = self.running();
        let moment = self.moment(prepared, shard).await?;
        let steps = held.steps(prepared, params, &moment)?;
        for (place, write) in steps.writes.into_iter().enumerate() {
            let mut returned = None;
            for statement in write {
                returned = Some(run_stoppable(transaction, statement, &running, schema).await?);
            }
            let Some(returned) = returned else { continue };
            if returned.len() > WITH_ROWS_MAX {
                let message =
                    format!("a write within WITH returns {} rows, and may {WITH_ROWS_MAX}", returned.len());
                return Err(SqlError::new(LIMIT_EXCEEDED, message).hint("Write them in parts.").into());
            }
            for rows in held.put(place, &returned).chunks(ROWS_AT_ONCE) {
                let put = transaction.run_all(rows.to_vec()).await;
                put.map_err(|error| polyshard_sql_on_sqlite::error(&error, schema))?;
            }
        }
        let mut count = 0;
        for statement in steps.lay {
            let laid = run_stoppable(transaction, statement, &running, schema).await?;
            count = usize::try_from(laid.affected()).unwrap_or(usize::MAX);
        }
        if count > HELD_ROWS_MAX {
            let message =
                format!("a query gives {count} rows that need ids, and {HELD_ROWS_MAX} can have them");
            return Err(SqlError::new(LIMIT_EXCEEDED, message).hint("Insert them in parts.").into());
        }
        for (place, sequence) in held.sequences().iter().enumerate() {
            let ids = self.new_ids(sequence, count, shard).await?;
            run_stoppable(transaction, held.give(place, &ids), &running, schema).await?;
        }
        let rows = run_stoppable(transaction, steps.main, &running, schema).await?;
        for statement in steps.clear {
            run_stoppable(transaction, statement, &running, schema).await?;
        }
        Ok(rows)
    }
}

//! COPY on SQLite shards: rows are read into one INSERT each, or written from a SELECT.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_engine::{Statement as EngineStatement, Transaction};
use polyshard_map::ShardId;
use polyshard_router::{Access, Ticket};
use polyshard_sql::{Context, Copy, CopyWhat, Param, ParamValue, Route, Schema, SqlError, SqlState, quoted};
use polyshard_sql_on_sqlite::Prepared;

use super::run::savepoint;
use super::translate::statement_of;
use crate::cache::Analysed;
use crate::door::ViewMaps;
use crate::out_form::OutForm;
use crate::reply::{self, state};
use crate::rows::Form;
use crate::session::{
    CopyTarget, Done, Session, Spool, Stop, Wanted, check_client, check_plain, given_columns, only,
    only_files, table_called,
};

/// Rows given to a shard at once.
const ROWS_AT_ONCE: usize = 256;
/// How often shards whose turn has not come hear something: a transaction in which nothing runs is ended after a while.
const HEARD_EVERY_MICROS: i64 = 2_000_000;

/// A shard's transaction, and rows that wait for it.
struct Open {
    _tickets: Vec<Ticket>,
    transaction: Transaction,
    rows: Vec<(u64, EngineStatement)>,
}

impl Session {
    /// COPY, on SQLite shards.
    pub(super) async fn copy_lite(&mut self, copy: &Copy, route: &Route) -> Done {
        check_client(copy)?;
        if !copy.from {
            return self.copy_out_lite(copy).await;
        }
        self.check_not_read_only("COPY FROM")?;
        check_plain(copy)?;
        let form = Form::of(copy)?;
        let into = self.copy_target(copy).await?;
        let mut spool = self.receive(into.names.len(), form).await?;
        let alone = self.begin_alone();
        let copied = match route {
            Route::ReferenceWrite => self.copy_reference_lite(&into, &mut spool).await,
            _ if alone && self.under.is_none() => self.copy_shards_lite(&into, &mut spool, route).await,
            _ => self.copy_inside_lite(&into, &mut spool).await,
        };
        match copied {
            Ok(count) => {
                self.end_alone(alone, Ok(())).await?;
                reply::complete(&mut self.client.out, &format!("COPY {count}"));
                Ok(())
            }
            Err(stop) => self.end_alone(alone, Err(stop)).await,
        }
    }

    /// Into several shards, each in a transaction of its own: they are committed one after the other.
    async fn copy_shards_lite(
        &mut self,
        into: &CopyTarget,
        spool: &mut Spool,
        route: &Route,
    ) -> Result<u64, Stop> {
        let schema = self.current_schema().await?;
        let prepared = self.lite_prepared(&into.insert, &schema, &into.types)?;
        let mut tickets = self.copy_tickets(route).await?;
        only_files(tickets.values().flatten())?;
        // Which shards there are is known first, so that all who copy take them in the same order.
        let mut wanted = BTreeSet::new();
        let mut rows = spool.rows()?;
        while let Some((line, fields)) = rows.next()? {
            let fields = into.checked(fields, line)?;
            wanted.insert(self.copy_place(into, &fields).await.map_err(|error| into.at(error, line))?);
        }
        let mut open = BTreeMap::new();
        for shard in wanted {
            let Some(tickets) = tickets.remove(&shard) else { return Err(moved().into()) };
            self.door.journal.ready(&shard).await.map_err(|error| error.to_sql())?;
            let Some(first) = tickets.first() else { return Err(moved().into()) };
            let transaction = first.begin().await.map_err(|error| reply::of_engine(&error))?;
            open.insert(shard, Open { _tickets: tickets, transaction, rows: Vec::new() });
        }
        let mut count = 0;
        let mut heard = self.door.now_micros();
        let mut rows = spool.rows()?;
        while let Some((line, fields)) = rows.next()? {
            if self.door.now_micros() - heard >= HEARD_EVERY_MICROS {
                for shard in open.values_mut() {
                    run_rows(&mut shard.transaction, std::mem::take(&mut shard.rows), into, &schema).await?;
                    let sign = shard.transaction.run(EngineStatement::new("SELECT 1")).await;
                    sign.map_err(|error| polyshard_sql_on_sqlite::error(&error, &schema))?;
                }
                heard = self.door.now_micros();
            }
            let fields = into.checked(fields, line)?;
            let shard = self.copy_place(into, &fields).await.map_err(|error| into.at(error, line))?;
            let row = self.copy_row(into, &prepared, &fields, &shard).await;
            let row = row.map_err(|error| into.at(error, line))?;
            let Some(shard) = open.get_mut(&shard) else { return Err(moved().into()) };
            shard.rows.push((line, row));
            if shard.rows.len() >= ROWS_AT_ONCE {
                run_rows(&mut shard.transaction, std::mem::take(&mut shard.rows), into, &schema).await?;
            }
            count += 1;
        }
        for shard in open.values_mut() {
            run_rows(&mut shard.transaction, std::mem::take(&mut shard.rows), into, &schema).await?;
        }
        let mut done: Vec<String> = Vec::new();
        for (shard, open) in open {
            if let Err(error) = open.transaction.commit().await {
                let error = polyshard_sql_on_sqlite::error(&error, &schema);
                if done.is_empty() {
                    return Err(error.into());
                }
                let done = done.join(", ");
                let message =
                    format!("the rows of {done} are copied, those of {shard} and later ones are not");
                let error = SqlError::new(state::OUTCOME_UNKNOWN, message).detail(error.message);
                return Err(error.hint("Delete what was copied, or copy the rest.").into());
            }
            done.push(shard.to_string());
        }
        Ok(count)
    }

    /// Leave for all that a COPY may concern.
    async fn copy_tickets(&mut self, route: &Route) -> Result<BTreeMap<ShardId, Vec<Ticket>>, Stop> {
        let router = self.door.router.clone();
        match route {
            Route::Many { ranges, .. } => {
                let entered = router.enter_ranges(ranges, Access::Write).await;
                Ok(entered.map_err(|error| reply::of_router(&error))?)
            }
            Route::One { shard, ranges, .. } => {
                let entered = router.enter_ranges(ranges, Access::Write).await;
                let mut tickets = entered.map_err(|error| reply::of_router(&error))?;
                tickets.retain(|known, _| known == shard);
                Ok(tickets)
            }
            Route::Local(shard) => {
                let ticket = router.enter_unmapped(shard, Access::Write).await;
                Ok([(shard.clone(), vec![ticket.map_err(|error| reply::of_router(&error))?])].into())
            }
            _ => Err(SqlError::new(SqlState::INTERNAL_ERROR, "COPY into a table that is nowhere").into()),
        }
    }

    /// Inside a transaction: all rows belong to its shard.
    async fn copy_inside_lite(&mut self, into: &CopyTarget, spool: &mut Spool) -> Result<u64, Stop> {
        let schema = self.current_schema().await?;
        let prepared = self.lite_prepared(&into.insert, &schema, &into.types)?;
        let mut count = 0;
        let mut waiting = Vec::new();
        let mut rows = spool.rows()?;
        while let Some((line, fields)) = rows.next()? {
            let fields = into.checked(fields, line)?;
            let (route, _) = self.route(&into.insert, &params(&fields, &into.types)).await?;
            let wanted = Wanted::of(&route).ok_or_else(moved)?;
            self.enter_lite(&wanted, Access::Write).await?;
            // Once it has begun, no row of another shard is let in.
            self.begin_lite(&schema, true).await?;
            let Some(shard) = self.lite.as_ref().map(|lite| lite.shard.clone()) else { return Ok(count) };
            let row = self.copy_row(into, &prepared, &fields, &shard).await;
            waiting.push((line, row.map_err(|error| into.at(error, line))?));
            count += 1;
            if waiting.len() >= ROWS_AT_ONCE {
                self.run_waiting(&mut waiting, into, &schema).await?;
            }
        }
        self.run_waiting(&mut waiting, into, &schema).await?;
        Ok(count)
    }

    async fn run_waiting(
        &mut self,
        waiting: &mut Vec<(u64, EngineStatement)>,
        into: &CopyTarget,
        schema: &Schema,
    ) -> Done {
        if waiting.is_empty() {
            return Ok(());
        }
        self.transaction.wrote = true;
        let Some(transaction) = self.lite.as_mut().and_then(|lite| lite.transaction.as_mut()) else {
            return Ok(());
        };
        run_rows(transaction.get(), std::mem::take(waiting), into, schema).await
    }

    /// Into a reference table: journalled, on every shard or none.
    async fn copy_reference_lite(&mut self, into: &CopyTarget, spool: &mut Spool) -> Result<u64, Stop> {
        let mut count = 0;
        for (rows, insert) in into.inserts(spool)? {
            let said = self.client.out.len();
            let extended = std::mem::take(&mut self.extended);
            let done = self.change_everywhere(&insert, &Route::ReferenceWrite, &[]).await;
            self.extended = extended;
            // The client hears of the whole.
            self.client.out.truncate(said);
            done?;
            count += rows;
        }
        Ok(count)
    }

    /// The shard of a row.
    async fn copy_place(
        &mut self,
        into: &CopyTarget,
        fields: &[Option<Vec<u8>>],
    ) -> Result<ShardId, SqlError> {
        let schema = self.current_schema().await?;
        let basis = self.basis(schema.position);
        let analysis = into.insert.analysis(&basis, |statement| {
            let search_path = &basis.search_path;
            polyshard_sql::analyse(statement, &Context { schema: &schema, search_path, strict: true })
        })?;
        let view = self.door.router.view();
        match analysis.route(&params(fields, &into.types), &ViewMaps(&view))? {
            Route::One { shard, .. } | Route::Local(shard) => Ok(shard),
            _ => Err(SqlError::new(state::BAD_COPY, "the row does not say which shard it belongs to")),
        }
    }

    async fn copy_row(
        &mut self,
        into: &CopyTarget,
        prepared: &Prepared,
        fields: &[Option<Vec<u8>>],
        shard: &ShardId,
    ) -> Result<EngineStatement, SqlError> {
        let moment = self.moment(prepared, shard).await?;
        Ok(statement_of(prepared, prepared.bind(&params(fields, &into.types), &moment)?))
    }

    /// COPY … TO STDOUT: the rows of a SELECT.
    async fn copy_out_lite(&mut self, copy: &Copy) -> Done {
        let form = OutForm::of(copy)?;
        let statement = match &copy.what {
            CopyWhat::Query(query) => query.clone(),
            CopyWhat::Table { name, columns } => {
                let schema = self.current_schema().await?;
                let table = table_called(&schema, name, &self.search_path)?;
                let columns: Vec<String> = given_columns(table, columns).into_iter().map(quoted).collect();
                let (within, name) = (quoted(&table.name.schema), quoted(&table.name.name));
                let text = format!("SELECT {} FROM {within}.{name}", columns.join(", "));
                only(polyshard_sql::statements(&text)?)?
            }
        };
        self.copy_out = Some(Arc::new(form));
        let extended = std::mem::take(&mut self.extended);
        let done = Box::pin(self.run_lite(&Analysed::new(statement), &[], &[])).await;
        self.extended = extended;
        self.copy_out = None;
        done
    }
}

/// Gives rows to a shard. If one is refused, they are given again one by one, to say which.
async fn run_rows(
    transaction: &mut Transaction,
    rows: Vec<(u64, EngineStatement)>,
    into: &CopyTarget,
    schema: &Schema,
) -> Done {
    const MARK: &str = "polyshard copy";
    let wrong = |error: polyshard_engine::Error| polyshard_sql_on_sqlite::error(&error, schema);
    if rows.is_empty() {
        return Ok(());
    }
    transaction.run(savepoint("SAVEPOINT", MARK)).await.map_err(wrong)?;
    let statements = rows.iter().map(|(_, statement)| statement.clone()).collect();
    let Err(error) = transaction.run_all(statements).await else {
        transaction.run(savepoint("RELEASE", MARK)).await.map_err(wrong)?;
        return Ok(());
    };
    transaction.run(savepoint("ROLLBACK TO", MARK)).await.map_err(wrong)?;
    for (line, statement) in rows {
        if let Err(error) = transaction.run(statement).await {
            return Err(into.at(wrong(error), line).into());
        }
    }
    // It went well the second time, but nobody knows why not the first.
    Err(wrong(error).into())
}

fn params<'f>(fields: &'f [Option<Vec<u8>>], types: &[u32]) -> Vec<Param<'f>> {
    let value = |field: &'f Option<Vec<u8>>| field.as_deref().map_or(ParamValue::Null, ParamValue::Text);
    let of = |(field, oid): (&'f Option<Vec<u8>>, &u32)| Param {
        type_oid: polyshard_sql::TypeOid(*oid),
        value: value(field),
    };
    fields.iter().zip(types).map(of).collect()
}

fn moved() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "a range was moved while its rows were copied")
        .hint("Try again.")
}

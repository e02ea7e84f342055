//! A transaction on every SQLite shard: schema changes, and writes to reference tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_router::{Access, Ticket};
use polyshard_schema::{Change, Embedded, EntryKind, Lite, Moment, Recorded, Turn};
use polyshard_sql::{Context, Kind, Param, Route, Schema, SqlError, SqlState, Statement, TableName, quoted};
use polyshard_sql_on_sqlite::{REFERENCES_QUERY, Writes};

use super::run::{Solo, savepoint};
use super::translate::statement_of;
use crate::cache::Analysed;
use crate::reply::{self, Severity};
use crate::session::{Done, Extent, Session, Stop, only_files};

/// What a transaction on every shard has done.
pub(crate) struct LiteTurn {
    turn: Turn,
    statements: Vec<Recorded>,
    kind: EntryKind,
    open: Vec<(ShardId, Ticket, Solo)>,
    /// What it has written, for the references that are checked in the end.
    writes: Writes,
}

impl LiteTurn {
    /// The tables that it has made.
    pub fn made(&self) -> Vec<TableName> {
        self.turn.made()
    }

    /// How much it has recorded.
    pub fn extent(&self) -> Extent {
        Extent { statements: self.statements.len(), kind: self.kind }
    }

    /// Forgets what was recorded since.
    pub fn cut_to(&mut self, extent: Extent) {
        self.statements.truncate(extent.statements);
        self.kind = extent.kind;
    }

    /// Says something about a savepoint on every shard.
    pub async fn savepoint(&mut self, verb: &str, name: &str) -> Result<(), polyshard_engine::Error> {
        for (_, _, transaction) in &mut self.open {
            transaction.get().run(savepoint(verb, name)).await?;
        }
        Ok(())
    }
}

impl Session {
    /// Changes the schema or a reference table, on every shard.
    pub(super) async fn change_everywhere(
        &mut self,
        analysed: &Analysed,
        route: &Route,
        params: &[Param<'_>],
    ) -> Done {
        let statement = analysed.statement.clone();
        if *statement.kind() == Kind::Vacuum {
            reply::complete(&mut self.client.out, upkeep_tag(&statement));
            return Ok(());
        }
        self.check_not_read_only("a change of what every shard has")?;
        self.door.journal.check_ddl(&statement)?;
        self.open_everywhere().await?;
        let (sql, after, kind) = match route {
            Route::ReferenceWrite => {
                let (sql, after) = self.same_everywhere(&statement, params).await?;
                (sql, after, EntryKind::Rows)
            }
            _ => (statement.text().to_string(), Vec::new(), EntryKind::Schema),
        };
        let shown = polyshard_sql::statements(&sql)?.into_iter().next();
        let schema = self.current_schema().await?;
        let context = Context { schema: &schema, search_path: &self.search_path, strict: false };
        let prepared = match (&shown, kind) {
            (Some(write), EntryKind::Rows) if !matches!(write.kind(), Kind::Truncate(_)) => {
                Some(polyshard_sql_on_sqlite::prepare(write, &context, &[], &self.lite_settings)?)
            }
            _ => None,
        };
        let wrong =
            |error: polyshard_engine::Error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, &schema));
        let mut rows = None;
        let statements = match &prepared {
            Some(prepared) => vec![statement_of(prepared, prepared.bind(&[], &Default::default())?)],
            None => Lite.translate_new(&sql, &schema, &self.recorded_settings())?,
        };
        let Some(turn) = &mut self.transaction.lite_turn else { return Ok(()) };
        for (_, _, transaction) in &mut turn.open {
            let answers = transaction.get().run_all(statements.clone()).await.map_err(wrong)?;
            if rows.is_none() {
                rows = answers.into_iter().next();
            }
        }
        let forgotten = statements.is_empty();
        turn.statements.push(Recorded::new(sql));
        if let (Some(_), Some(write)) = (&prepared, &shown) {
            turn.writes.note(write, &context);
        }
        for recorded in after {
            for (shard, _, transaction) in &mut turn.open {
                if recorded.concerns(shard, Dialect::Sqlite) {
                    transaction
                        .get()
                        .run(polyshard_engine::Statement::new(recorded.sql.as_str()))
                        .await
                        .map_err(wrong)?;
                }
            }
            turn.statements.push(recorded);
        }
        if kind == EntryKind::Schema {
            turn.kind = EntryKind::Schema;
            let Some((_, _, first)) = turn.open.first_mut() else { return Ok(()) };
            let said = (&turn.statements[..], &self.search_path[..]);
            let within = turn.turn.schema_within_on(Dialect::Sqlite, first.get(), said).await;
            let mut within = within.map_err(|error| error.to_sql())?;
            within.position = self.door.cache.passing_position();
            self.transaction.schema = Some(Arc::new(within));
        }
        match (&prepared, rows) {
            (Some(prepared), Some(rows)) => self.answer(prepared, &rows),
            _ => {
                let tag = match statement.kind() {
                    Kind::Ddl(ddl) => ddl.tag.clone(),
                    Kind::Do => "DO".to_owned(),
                    _ => "TRUNCATE TABLE".to_owned(),
                };
                if forgotten && tag == "COMMENT" {
                    let message = "SQLite shards keep comments of tables and columns; this one is not kept";
                    let warning = SqlError::new(reply::state::WARNING, message);
                    reply::error(&mut self.client.out, Severity::Warning, &warning);
                }
                reply::complete(&mut self.client.out, &tag);
                Ok(())
            }
        }
    }

    /// Changes the schema of the shard that it answers for, in the transaction of a session that does so everywhere.
    pub(super) async fn change_here(&mut self, analysed: &Analysed) -> Done {
        let statement = analysed.statement.clone();
        let tag = match statement.kind() {
            Kind::Vacuum => {
                reply::complete(&mut self.client.out, upkeep_tag(&statement));
                return Ok(());
            }
            Kind::Ddl(ddl) => ddl.tag.clone(),
            Kind::Do => "DO".to_owned(),
            _ => "TRUNCATE TABLE".to_owned(),
        };
        if self.transaction.is_none() {
            let message = "what every shard has is changed by a transaction on all of them";
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, message).into());
        }
        let schema = self.current_schema().await?;
        let statements = Lite.translate_new(statement.text(), &schema, &self.recorded_settings())?;
        self.take_leave();
        self.begin_lite(&schema, true).await?;
        let Some(transaction) = self.lite.as_mut().and_then(|lite| lite.transaction.as_mut()) else {
            return Ok(());
        };
        let ran = transaction.get().run_all(statements).await;
        ran.map_err(|error| polyshard_sql_on_sqlite::error(&error, &schema))?;
        // As it is now, for the statements that follow; where rows are is not this session's to know.
        let mut within = Lite.schema(transaction.get()).await?;
        within.position = self.door.cache.passing_position();
        self.transaction.schema = Some(Arc::new(within));
        self.transaction.wrote = true;
        reply::complete(&mut self.client.out, &tag);
        Ok(())
    }

    /// Begins the transaction on every shard.
    async fn open_everywhere(&mut self) -> Done {
        if self.transaction.lite_turn.is_some() {
            return Ok(());
        }
        let locked = self.let_go_of_locks().await?;
        self.lite = None;
        let turn = self.door.journal.turn().await.map_err(|error| error.to_sql())?;
        let mut open = Vec::new();
        for shard in turn.shards() {
            let ticket = self.door.router.enter_unmapped(shard, Access::Write).await;
            let ticket = ticket.map_err(|error| reply::of_router(&error))?;
            only_files([&ticket])?;
            let wrong = |error: polyshard_engine::Error| reply::of_engine(&error);
            let mut transaction = ticket.begin().await.map_err(wrong)?;
            for name in self.transaction.savepoint_names() {
                transaction.run(savepoint("SAVEPOINT", &name)).await.map_err(wrong)?;
            }
            open.push((shard.clone(), ticket, Solo::new(transaction)));
        }
        if let Some((shard, position)) = locked
            && let Some((_, _, transaction)) = open.iter_mut().find(|(open, ..)| *open == shard)
            && applied(transaction).await? != position
        {
            drop(open);
            turn.give_up().await;
            let message =
                "rows that were locked may have changed since, as something that every shard has did";
            return Err(SqlError::new(SqlState("40001"), message).hint("Try the transaction again.").into());
        }
        let (statements, kind, writes) = (Vec::new(), EntryKind::Rows, Writes::default());
        self.transaction.lite_turn = Some(Box::new(LiteTurn { turn, statements, kind, open, writes }));
        Ok(())
    }

    /// Leaves the shard where rows of reference tables were locked (FOR UPDATE) and nothing else was done; the position
    /// in the journal up to which it had everything then. Whoever changes these rows changes the position.
    async fn let_go_of_locks(&mut self) -> Result<Option<(ShardId, Option<i64>)>, Stop> {
        let Some(lite) = self.lite.as_mut().filter(|lite| lite.transaction.is_some()) else {
            return Ok(None);
        };
        let bound = !lite.anywhere || self.transaction.wrote || self.transaction.has_one_snapshot();
        let shard = lite.shard.clone();
        let Some(mut transaction) = lite.transaction.take_if(|_| !bound) else {
            return Err(SqlError::unsupported(
                "a transaction that works on one shard cannot change what every shard has",
                "Change schema and reference tables in a transaction of their own.",
            )
            .into());
        };
        let position = applied(&mut transaction).await?;
        transaction.into_inner().rollback().await.map_err(|error| reply::of_engine(&error))?;
        Ok(Some((shard, position)))
    }

    /// A write to a reference table in words that give the same rows on every shard.
    async fn same_everywhere(
        &mut self,
        statement: &Statement,
        params: &[Param<'_>],
    ) -> Result<(String, Vec<Recorded>), Stop> {
        let schema = self.current_schema().await?;
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: false };
        let literals = self.lite_literals(params)?;
        let asked = self.ask_lite("SELECT now()::text, clock_timestamp()::text", &schema).await?;
        let mut times = asked.into_iter().flatten().flatten();
        let (transaction, clock) = (times.next().unwrap_or_default(), times.next().unwrap_or_default());
        let moment = Moment { transaction: &transaction, statement: &clock };
        let write = polyshard_schema::reference_write(statement, &context, &literals, moment)?;
        let mut answers = Vec::new();
        for ask in write.asks() {
            let mut rows = Vec::new();
            if let Some(sequence) = &ask.sequence {
                let least = match &ask.highest {
                    Some(highest) => {
                        let rows = self.ask_lite(highest, &schema).await?;
                        let highest =
                            rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
                        highest
                            .and_then(|highest| highest.parse::<i64>().ok())
                            .map_or(1, |id| id.saturating_add(1))
                    }
                    None => 1,
                };
                let ids = self.door.journal.allocate(sequence, ask.times as u64, least).await;
                rows.extend(ids.map_err(|error| error.to_sql())?.map(|id| vec![Some(id.to_string())]));
            } else {
                for _ in 0..ask.times {
                    rows.extend(self.ask_lite(&ask.query, &schema).await?);
                }
            }
            answers.push(rows);
        }
        let written = write.fill(answers)?;
        Ok((written.sql, written.after))
    }

    /// Each parameter as an SQL literal with its type.
    pub(crate) fn lite_literals(&self, params: &[Param<'_>]) -> Result<Vec<String>, Stop> {
        let literal = |param| polyshard_sql_on_sqlite::parameter_literal(param, &self.lite_settings);
        Ok(params.iter().map(literal).collect::<Result<_, _>>()?)
    }

    /// Asks the first shard, within the transaction: rows as texts.
    async fn ask_lite(&mut self, sql: &str, schema: &Schema) -> Result<Vec<Vec<Option<String>>>, Stop> {
        let context = Context { schema, search_path: &self.search_path, strict: false };
        let Some(statement) = polyshard_sql::statements(sql)?.into_iter().next() else {
            return Ok(Vec::new());
        };
        let prepared = polyshard_sql_on_sqlite::prepare(&statement, &context, &[], &self.lite_settings)?;
        let first = self.transaction.lite_turn.as_ref().and_then(|turn| turn.open.first());
        let Some(shard) = first.map(|(shard, ..)| shard.clone()) else { return Ok(Vec::new()) };
        let moment = self.moment(&prepared, &shard).await?;
        let statement = statement_of(&prepared, prepared.bind(&[], &moment)?);
        let Some(turn) = &mut self.transaction.lite_turn else { return Ok(Vec::new()) };
        let Some((_, _, transaction)) = turn.open.first_mut() else { return Ok(Vec::new()) };
        let rows = transaction.get().run(statement).await;
        let rows = rows.map_err(|error| polyshard_sql_on_sqlite::error(&error, schema))?;
        let columns = prepared.columns.as_deref().unwrap_or_default();
        let mut out = Vec::new();
        for row in rows.iter() {
            let mut texts = Vec::new();
            for (value, column) in row.values().iter().zip(columns) {
                if value.is_null() {
                    texts.push(None);
                    continue;
                }
                let mut bytes = Vec::new();
                let format = polyshard_sql_on_sqlite::Format::Text;
                polyshard_sql_on_sqlite::encode(
                    column.type_oid,
                    value,
                    format,
                    &self.lite_settings,
                    &mut bytes,
                )?;
                let text = String::from_utf8(bytes);
                texts.push(Some(
                    text.map_err(|_| SqlError::new(SqlState::INTERNAL_ERROR, "a text is not UTF-8"))?,
                ));
            }
            out.push(texts);
        }
        Ok(out)
    }

    /// Reads within a transaction on every shard, on one of them.
    pub(super) async fn read_in_turn(
        &mut self,
        prepared: &polyshard_sql_on_sqlite::Prepared,
        params: &[Param<'_>],
        schema: &Schema,
        shard: &ShardId,
    ) -> Done {
        let moment = self.moment(prepared, shard).await?;
        let statement = statement_of(prepared, prepared.bind(params, &moment)?);
        let Some(turn) = &mut self.transaction.lite_turn else { return Ok(()) };
        let Some((_, _, transaction)) = turn.open.iter_mut().find(|(open, ..)| open == shard) else {
            let message = format!("shard {shard} does not take part in this transaction");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
        };
        let rows = transaction.get().run(statement).await;
        let rows = rows.map_err(|error| polyshard_sql_on_sqlite::error(&error, schema))?;
        self.answer(prepared, &rows)
    }

    /// The settings that recorded statements depend on.
    fn recorded_settings(&self) -> BTreeMap<String, String> {
        let path: Vec<String> = self.search_path.iter().map(|name| quoted(name)).collect();
        [("search_path".to_owned(), path.join(", "))].into()
    }

    /// Commits on every shard, once it is decided.
    pub(crate) async fn commit_lite_turn(&mut self, turn: Box<LiteTurn>) -> Done {
        let LiteTurn { mut turn, statements, kind, mut open, writes } = *turn;
        if statements.is_empty() {
            drop(open);
            turn.give_up().await;
            return Ok(());
        }
        let wrong = |error: polyshard_engine::Error| reply::of_engine(&error);
        let ready = async {
            if kind == EntryKind::Schema
                && let Some((_, _, first)) = open.first_mut()
            {
                let said = (&statements[..], &self.search_path[..]);
                let follows = turn.review_on(Dialect::Sqlite, first.get(), said).await;
                let follows = follows.map_err(|error| error.to_sql())?;
                for recorded in follows {
                    for (shard, _, transaction) in &mut open {
                        if recorded.concerns(shard, Dialect::Sqlite) {
                            let statement = polyshard_engine::Statement::new(recorded.sql.as_str());
                            transaction.get().run(statement).await.map_err(wrong)?;
                        }
                    }
                }
            }
            // What is checked in the end is checked now: after the decision nothing may be refused. The tables are the
            // same on every shard.
            if let Some((_, _, first)) = open.first_mut().filter(|_| !writes.is_empty()) {
                let references = polyshard_engine::Statement::new(REFERENCES_QUERY);
                let references = first.get().run(references).await.map_err(wrong)?;
                for check in writes.checks(&references)? {
                    let held = first.get().run(polyshard_engine::Statement::new(check)).await;
                    held.map_err(|error| polyshard_sql_on_sqlite::error(&error, &Schema::default()))?;
                }
            }
            for (_, _, transaction) in &mut open {
                transaction.get().run(turn.mark(Dialect::Sqlite)).await.map_err(wrong)?;
            }
            Ok::<(), SqlError>(())
        };
        if let Err(error) = ready.await {
            drop(open);
            turn.give_up().await;
            return Err(error.into());
        }
        let settings = self.recorded_settings();
        let decided = turn.decide(Change { kind, statements, settings }).await;
        let decided = decided.map_err(|error| error.to_sql())?;
        for (shard, ticket, transaction) in open {
            match transaction.into_inner().commit().await {
                Ok(()) => self.door.journal.committed(&shard, decided),
                Err(error) => {
                    // It is decided: whoever uses the shard next brings it there.
                    tracing::warn!(%shard, %error, position = decided.position, "a shard is brought up later");
                }
            }
            drop(ticket);
        }
        Ok(())
    }

    /// Undoes it on every shard.
    pub(crate) async fn roll_back_lite_turn(&mut self, turn: Box<LiteTurn>) {
        let LiteTurn { turn, open, .. } = *turn;
        for (shard, _, transaction) in open {
            if let Err(error) = transaction.into_inner().rollback().await {
                tracing::debug!(%shard, %error, "a transaction was rolled back by its end");
            }
        }
        turn.give_up().await;
    }
}

/// The position in the journal up to which a shard has everything.
async fn applied(transaction: &mut Solo) -> Result<Option<i64>, Stop> {
    let wrong = |error: polyshard_engine::Error| Stop::Refused(reply::of_engine(&error));
    let table = Dialect::Sqlite.own_table("journal_applied");
    let statement = polyshard_engine::Statement::new(format!("SELECT position FROM {table}"));
    let rows = transaction.get().run(statement).await.map_err(wrong)?;
    rows.first().map(|row| row.int(0)).transpose().map_err(wrong)
}

/// How the answer to the upkeep of a database ends: files need none.
fn upkeep_tag(statement: &Statement) -> &'static str {
    let text = statement.text().trim_start().to_ascii_lowercase();
    match text.as_str() {
        text if text.starts_with("analy") => "ANALYZE",
        text if text.starts_with("checkpoint") => "CHECKPOINT",
        _ => "VACUUM",
    }
}

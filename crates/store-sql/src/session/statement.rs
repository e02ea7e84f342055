//! Carries out one statement of the simple protocol, and those of the extended one that the door answers itself.

use std::sync::Arc;

use polyshard_router::Access;
use polyshard_schema::EntryKind;
use polyshard_sql::{
    Analysis, Called, Context, Ddl, Kind, Param, Route, Schema, SqlError, SqlState, Statement, TableName,
    Volatility,
};

use super::place::{RoutedBy, Wanted, is_outdated, no_files, unknown_outcome};
use super::transaction::failed_transaction;
use super::{Done, Session, Stop};
use crate::cache::Analysed;
use crate::door::{Undeclared, ViewMaps};
use crate::reply::{self, state};

/// PostgreSQL's own functions whose answer is another each time, but that change nothing.
const HARMLESS_FUNCTIONS: [&str; 8] = [
    "random",
    "gen_random_uuid",
    "clock_timestamp",
    "timeofday",
    "pg_sleep",
    "pg_sleep_for",
    "currval",
    "lastval",
];

/// How often a statement is looked at again because tables were changed while it waited for its shard.
const OUTDATED_TRIES_MAX: u32 = 5;

impl Session {
    /// The tables as they are now, or as the transaction itself has made them.
    pub(crate) async fn current_schema(&self) -> Result<Arc<Schema>, SqlError> {
        if let Some(schema) = &self.transaction.schema {
            return Ok(schema.clone());
        }
        let schema = self.schema_by_engine().await?;
        for name in &self.transaction.temporary {
            check_hides(name, &schema)?;
        }
        Ok(schema)
    }

    /// The tables as the engine tells them that the session speaks to: each has words of its own for defaults.
    ///
    /// One that speaks to files keeps to them when the first PostgreSQL shard comes, until it takes that up: it may
    /// have the only writer of a file, for which others wait, and is not to wait for that shard to be brought up.
    pub(super) async fn schema_by_engine(&self) -> Result<Arc<Schema>, SqlError> {
        let journal = &self.door.journal;
        let by_files = || self.under.is_some() || (self.embedded && journal.has_postgres());
        if !by_files() {
            let schema = self.door.schema().await?;
            // A server may have come while the tables were read, and told what they are like.
            if !by_files() {
                return Ok(schema);
            }
        }
        // Whoever has a file's writer is waited for by those who change a table there, and waits for nobody.
        let begun = self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some());
        let on_writer = begun || self.transaction.lite_turn.is_some() || self.is_on_backends();
        let schema = journal.schema_of_files(self.under.is_some() || on_writer).await;
        schema.map_err(|error| error.to_sql())?.ok_or_else(no_files)
    }

    /// Where a statement goes with these parameters.
    pub(crate) async fn route(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
    ) -> Result<(Route, Arc<Analysis>), Stop> {
        let mut schema = self.current_schema().await?;
        if let Kind::Ddl(ddl) = analysed.statement.kind()
            && ddl.temporary
        {
            let name = self.check_temporary(ddl, &schema)?;
            // From now on under a basis of its own: the same words mean other tables to others.
            self.transaction.temporary.push(name);
            self.transaction.apart = self.door.cache.passing_position();
        }
        let analysis = loop {
            let basis = self.basis(schema.position);
            let analysis = analysed.analysis(&basis, |statement| {
                let search_path = &basis.search_path;
                polyshard_sql::analyse(
                    statement,
                    &Context { schema: &schema, search_path, strict: basis.strict },
                )
            })?;
            if !self.may_be_new(&analysis)
                || !Box::pin(self.look_for_new(&analysed.statement, &analysis, &schema)).await?
            {
                break analysis;
            }
            schema = self.current_schema().await?;
        };
        let view = self.door.router.view();
        let maps = ViewMaps(&view);
        if let Some(leave) = &self.under {
            return Ok((leave.route(analysed.statement.kind(), &analysis, params, &maps), analysis));
        }
        let route = match self.own.move_rows {
            true => analysis.route_with_moves(params, &maps)?,
            false => analysis.route(params, &maps)?,
        };
        let routed_by = self.routed_by(schema.clone());
        self.judge(&analysed.statement, &analysis, &route, &schema)?;
        let route = self.pinned(route, analysed.statement.kind(), &analysis, &schema)?;
        self.check_declared(&analysis)?;
        if self.transaction.schema.is_none() {
            self.routed_by = Some(routed_by);
        }
        Ok((route, analysis))
    }

    /// Refuses what a failed transaction does not allow.
    pub(super) fn check_transaction(&self, kind: &Kind) -> Done {
        let allowed = matches!(kind, Kind::Commit { .. } | Kind::Rollback { .. } | Kind::RollbackTo(_));
        if self.transaction.failed && !allowed { Err(failed_transaction().into()) } else { Ok(()) }
    }

    /// Carries out one statement; its answer goes to the client, without the final word.
    pub(super) async fn run_statement(&mut self, analysed: &Analysed) -> Done {
        let statement = &analysed.statement;
        self.check_transaction(statement.kind())?;
        if self.under.is_some() && Box::pin(self.answer_inside(statement.text())).await? {
            return Ok(());
        }
        let plain = matches!(statement.kind(), Kind::Select | Kind::Insert | Kind::Update | Kind::Delete);
        if !plain && Box::pin(self.run_own(analysed)).await? {
            return Ok(());
        }
        if self.embedded {
            let said = self.client.said();
            match Box::pin(self.run_lite_again(analysed, &[], &[])).await {
                // The shard came to another engine while the statement waited: nothing was sent.
                Err(Stop::Refused(error))
                    if self.client.said() == said && Box::pin(self.is_elsewhere(&error)).await => {}
                done => return done,
            }
        }
        if let Some(refusal) = &analysed.refusal {
            return Err(refusal.clone().into());
        }
        let mut tries = 0;
        loop {
            match self.run_routed(analysed).await {
                // Nothing was sent: it is looked at again as things are now.
                Err(Stop::Refused(error))
                    if is_outdated(&error) && self.transaction.is_none() && tries < OUTDATED_TRIES_MAX =>
                {
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    /// Carries out a statement on SQLite shards; looks at it again if its keys were moved apart while it waited.
    pub(super) async fn run_lite_again(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        let (said, mut tries) = (self.client.said(), 0);
        loop {
            match self.run_lite(analysed, params, types).await {
                Err(Stop::Refused(error))
                    if is_outdated(&error)
                        && self.transaction.is_none()
                        && self.client.said() == said
                        && tries < OUTDATED_TRIES_MAX =>
                {
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    async fn run_routed(&mut self, analysed: &Analysed) -> Done {
        let statement = &analysed.statement;
        let (route, analysis) = self.route(analysed, &[]).await?;
        match Wanted::of(&route) {
            Some(wanted) => {
                self.check_global(&analysis)?;
                self.order_locks(&wanted, &analysis).await?;
                let done = self.run_here(&wanted, statement.text(), statement, &analysis).await;
                if done.is_ok() {
                    self.tell_explained(statement, &route, &analysis);
                }
                self.note_movable(statement, &route, &analysis);
                done
            }
            None => Box::pin(self.run_elsewhere(analysed, route, &[])).await,
        }
    }

    /// Carries out a statement that the door answers by itself; false if it is none.
    pub(super) async fn run_own(&mut self, analysed: &Analysed) -> Result<bool, Stop> {
        let statement = &analysed.statement;
        match statement.kind() {
            Kind::Begin(modes) => self.begin_explicitly(statement, modes).await?,
            Kind::Commit { chain } => self.commit(*chain).await?,
            Kind::Rollback { chain } => self.rollback(*chain).await?,
            Kind::Savepoint(_) | Kind::Release(_) | Kind::RollbackTo(_) => self.savepoint(statement).await?,
            Kind::PrepareTransaction(_) | Kind::CommitPrepared(_) | Kind::RollbackPrepared(_) => {
                return Err(SqlError::unsupported(
                    "transactions cannot be prepared through the door",
                    "SET polyshard.multi_shard = 'two_phase' has a transaction over several shards committed as one.",
                )
                .into());
            }
            Kind::Set(setting) => self.set(statement, setting).await?,
            Kind::SetConfig(setting) => Box::pin(self.set_config(setting)).await?,
            Kind::SetTransaction { session, modes } => {
                self.set_transaction(statement, *session, modes).await?
            }
            Kind::SetConstraints => self.in_transaction(statement, "SET CONSTRAINTS").await?,
            Kind::Reset(name) => self.reset(statement, name.as_deref()).await?,
            Kind::Show(name) => return self.show(name).await,
            Kind::Discard(what) => self.discard(*what).await?,
            Kind::Declare(cursor) if self.held.has(&cursor.name) => {
                let message = format!("cursor \"{}\" already exists", cursor.name);
                return Err(SqlError::new(state::DUPLICATE_CURSOR, message).into());
            }
            kind if !self.extended && self.outlives_statement(kind) => {
                self.begin_implicitly();
                let done = Box::pin(self.run_statement(analysed)).await;
                Box::pin(self.end_alone(true, done)).await?;
            }
            Kind::Declare(cursor) => {
                if cursor.hold {
                    self.check_room()?;
                }
                return Ok(false);
            }
            Kind::Fetch(fetch) if self.held.has(&fetch.name) => self.fetch_cursor(fetch, statement).await?,
            Kind::Close(Some(name)) if self.held.has(name) => {
                self.close_held(name).await?;
                reply::complete(&mut self.client.out, "CLOSE CURSOR");
            }
            Kind::Close(None) => {
                self.close_all_held().await?;
                for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
                    backend.cursors.clear();
                }
                if self.backend.is_some() || !self.parked.is_empty() {
                    return Ok(false);
                }
                reply::complete(&mut self.client.out, "CLOSE CURSOR ALL");
            }
            Kind::Close(Some(name)) => {
                if self.backend.is_none() && self.parked.is_empty() {
                    return Err(no_cursor(name).into());
                }
                for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
                    backend.cursors.retain(|known| known != name);
                }
                return Ok(false);
            }
            Kind::Fetch(fetch) => {
                if self.backend.is_none() && self.parked.is_empty() {
                    return Err(no_cursor(&fetch.name).into());
                }
                return Ok(false);
            }
            Kind::Listen(_) | Kind::Unlisten(Some(_)) => {
                return Err(SqlError::unsupported(
                    "LISTEN is not offered: sessions of shards are shared",
                    "Connect to a shard itself to listen there.",
                )
                .into());
            }
            Kind::Unlisten(None) => reply::complete(&mut self.client.out, "UNLISTEN"),
            Kind::Deallocate(name) => self.deallocate(name.as_deref())?,
            Kind::Prepare(prepare) => Box::pin(self.prepare_statement(prepare)).await?,
            Kind::Execute(execute) => Box::pin(self.execute_statement(execute)).await?,
            Kind::Explain(explain) => {
                let Kind::Execute(execute) = explain.statement.kind() else { return Ok(false) };
                Box::pin(self.explain_execute(explain, execute)).await?;
            }
            Kind::Polyshard(call) => self.command(call, &[]).await?,
            Kind::Ddl(ddl) if self.under.is_none() && super::users::is_about_users(ddl) => {
                Box::pin(self.user_statement(statement, ddl)).await?;
            }
            Kind::Copy(copy) => {
                Box::pin(self.check_binary(copy)).await?;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs a statement on one shard, by a text that says it.
    pub(super) async fn run_here(
        &mut self,
        wanted: &Wanted<'_>,
        text: &str,
        statement: &Statement,
        analysis: &Analysis,
    ) -> Done {
        if self.asks_home(wanted, analysis) {
            return Box::pin(self.run_at_home(text)).await;
        }
        let alone = self.backend.is_none() && self.transaction.is_none();
        let access = if analysis.writes() { Access::Write } else { Access::Read };
        let writes = may_change(analysis);
        let said = self.client.said();
        let mut again = true;
        loop {
            self.acquire(wanted, access).await?;
            self.note_effects(statement, analysis);
            if writes && self.is_beginning() {
                Box::pin(self.begun()).await?;
            }
            match self.pass_query(text).await {
                // The session was dead already, or died of this: a read that has said nothing can be repeated.
                Err(Stop::Refused(_)) if alone && again && !writes && self.client.said() == said => {
                    again = false
                }
                Err(Stop::Refused(error)) if alone && writes && self.cut => {
                    return Err(unknown_outcome(&error).into());
                }
                other => {
                    if self.transaction.is_none() {
                        self.release().await;
                    }
                    return other;
                }
            }
        }
    }

    /// Whether a statement outside a transaction makes a cursor that outlives it.
    pub(super) fn outlives_statement(&self, kind: &Kind) -> bool {
        self.transaction.is_none() && matches!(kind, Kind::Declare(cursor) if cursor.hold)
    }

    /// Whether the shard that works for us has not answered BEGIN yet.
    pub(super) fn is_beginning(&self) -> bool {
        self.backend.as_ref().is_some_and(|backend| backend.is_beginning())
    }

    /// Waits until the transaction has begun on its shard: what follows a BEGIN that failed would count by itself.
    pub(super) async fn begun(&mut self) -> Done {
        self.settle().await?;
        let failure = self.backend.as_mut().and_then(|backend| backend.take_quiet_error());
        let Some(body) = failure else { return Ok(()) };
        self.show_error(&body);
        self.transaction.failed = true;
        Err(Stop::Told)
    }

    /// Sends a text to the shard that works for us, and passes the answer on.
    pub(super) async fn pass_query(&mut self, text: &str) -> Done {
        let said_error = self.client.said();
        if let Some(backend) = &mut self.backend {
            backend.query(text, false);
        }
        self.drain().await?;
        let failure = self.backend.as_mut().and_then(|backend| backend.take_quiet_error());
        if let Some(body) = failure {
            // BEGIN or a savepoint failed before it: nothing of the statement counts.
            debug_assert!(self.client.said() >= said_error);
            self.show_error(&body);
            self.transaction.failed = true;
            return Err(Stop::Told);
        }
        Ok(())
    }

    /// Notes what a statement may do to the shard that works for us, and to its session.
    pub(super) fn note_effects(&mut self, statement: &Statement, analysis: &Analysis) {
        self.note_write(may_change(analysis));
        self.note_configs(statement, analysis);
        if let (Kind::Declare(cursor), Some(backend)) = (statement.kind(), &mut self.backend)
            && cursor.hold
            && !backend.cursors.contains(&cursor.name)
        {
            backend.cursors.push(cursor.name.clone());
        }
        let unseen = matches!(statement.kind(), Kind::Do | Kind::Call | Kind::Unparsed);
        if (unseen || analysis.is_aside() || analysis.writes_system())
            && let Some(backend) = &mut self.backend
        {
            // Code that is not looked into may leave settings and temporary tables behind.
            backend.closing = true;
        }
    }

    /// Refuses a temporary table that would be somewhere else than its transaction, or hide another.
    fn check_temporary(&self, ddl: &Ddl, schema: &Schema) -> Result<String, SqlError> {
        if self.embedded || !self.transaction.is_explicit() || self.transaction.global.is_some() {
            return Err(SqlError::unsupported(
                "a temporary table is on one PostgreSQL shard, in a transaction",
                "BEGIN first, then name a key, so that the transaction is on its shard.",
            ));
        }
        let name = ddl.name.as_ref().map(|name| name.name.clone()).unwrap_or_default();
        check_hides(&name, schema)?;
        Ok(name)
    }

    /// Notes that the shard that works for us is written to.
    pub(super) fn note_write(&mut self, writes: bool) {
        self.transaction.wrote |= writes;
        if let Some(backend) = &mut self.backend {
            backend.wrote |= writes;
        }
    }

    /// A transaction on every shard writes nothing that is on one.
    pub(super) fn check_global(&self, analysis: &Analysis) -> Done {
        self.check_declared(analysis)?;
        if self.transaction.global.is_some() && analysis.writes() {
            return Err(SqlError::unsupported(
                "a transaction that changes what every shard has cannot write what one shard has",
                "Change schema and reference tables in a transaction of their own.",
            )
            .into());
        }
        Ok(())
    }

    /// Refuses tables that nobody has declared, where that is how they are to be treated.
    pub(super) fn check_declared(&self, analysis: &Analysis) -> Result<(), SqlError> {
        match analysis.undeclared() {
            Some(table) if self.door.limits.undeclared == Undeclared::Refuse => Err(undeclared(table)),
            _ => Ok(()),
        }
    }

    /// Runs a text on the shard that works for us, in the protocol that the client uses.
    pub(super) async fn pass_alone(&mut self, text: &str) -> Done {
        if !self.extended {
            return self.pass_query(text).await;
        }
        self.begun().await?;
        if let Some(backend) = &mut self.backend {
            backend.run_unnamed(text, &self.formats);
        }
        self.drain().await?;
        let told = self.told;
        if let Some(backend) = &mut self.backend {
            backend.sync();
        }
        self.drain().await?;
        self.told |= told;
        if self.told { Err(Stop::Told) } else { Ok(()) }
    }

    /// Carries out a statement that concerns several shards.
    pub(crate) async fn run_elsewhere(
        &mut self,
        analysed: &Analysed,
        route: Route,
        params: &[Param<'_>],
    ) -> Done {
        let routed_by = self.routed_by.take();
        if self.transaction.is_none() && self.backend.is_some() && !reads(analysed.statement.kind()) {
            // What the series did so far is on a session that is in no transaction, and could not be prepared in one.
            self.told = false;
            self.end_series().await?;
            if self.told {
                return Err(Stop::Told);
            }
        }
        match route {
            Route::Many { .. } if reads(analysed.statement.kind()) => {
                self.run_across(&analysed.statement, &route, params, routed_by.as_ref()).await
            }
            Route::Many { ranges, .. } if matches!(analysed.statement.kind(), Kind::Copy(_)) => {
                let statement = analysed.statement.clone();
                let Kind::Copy(copy) = statement.kind() else { return Ok(()) };
                self.copy_many(&statement, copy, &ranges, routed_by.as_ref()).await
            }
            Route::Many { shards, ranges } => {
                self.write_many(analysed, shards.len(), &ranges, params, routed_by).await
            }
            Route::Split(parts) => self.insert_split(parts, params, routed_by).await,
            Route::Rekey(rekey) => Box::pin(self.move_rows(analysed, &rekey, params, routed_by)).await,
            Route::ReferenceWrite => {
                let alone = self.begin_alone();
                let done = match self.go_global_as_routed(routed_by).await {
                    Ok(()) => self.write_reference(analysed, params).await,
                    Err(stop) => Err(stop),
                };
                self.end_and_tell(alone, done).await
            }
            Route::Everywhere => {
                let alone = self.begin_alone();
                let ready = match analysed.statement.kind() {
                    // In no transaction.
                    Kind::Vacuum => Ok(()),
                    _ => self.go_global_as_routed(routed_by).await,
                };
                let done = match ready {
                    Ok(()) => self.change_schema(analysed, params).await,
                    Err(stop) => Err(stop),
                };
                self.end_and_tell(alone, done).await
            }
            _ => Err(SqlError::new(SqlState::INTERNAL_ERROR, "a statement for one shard was not sent to it")
                .into()),
        }
    }
}

impl Session {
    /// Begins a transaction for one statement, if there is none; true if so.
    pub(crate) fn begin_alone(&mut self) -> bool {
        let alone = self.transaction.is_none();
        if alone {
            self.begin_implicitly();
        }
        alone
    }

    /// Ends a transaction that was begun for one statement.
    pub(crate) async fn end_alone(&mut self, alone: bool, done: Done) -> Done {
        if !alone {
            return done;
        }
        let commit = done.is_ok() && !self.transaction.failed;
        let ended = self.end_transaction(commit).await;
        done.and(ended)
    }

    /// Likewise; how its answer ends is told only when it is certain.
    pub(super) async fn end_and_tell(&mut self, alone: bool, done: Result<Option<String>, Stop>) -> Done {
        let (done, tag) = match done {
            Ok(tag) => (Ok(()), tag),
            Err(stop) => (Err(stop), None),
        };
        self.end_alone(alone, done).await?;
        if let Some(tag) = tag {
            reply::complete(&mut self.client.out, &tag);
        }
        Ok(())
    }

    /// For users whose rights are limited, looks at these again once the transaction has its sessions on all shards.
    async fn go_global_as_routed(&mut self, routed_by: Option<RoutedBy>) -> Done {
        if self.who.is_none() || self.transaction.global.is_some() {
            return Ok(());
        }
        self.go_global().await?;
        self.check_routed(routed_by.as_ref()).await
    }

    /// A schema change, on every shard; how its answer ends, if that was not told.
    async fn change_schema(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
    ) -> Result<Option<String>, Stop> {
        let statement = &analysed.statement;
        if *statement.kind() == Kind::Vacuum {
            return self.on_each_shard(statement.text()).await.map(|()| None);
        }
        self.door.journal.check_ddl(statement)?;
        let text = self.literal_text(analysed, params).await?;
        let added = self.added_columns(statement).await?;
        let text = added.as_ref().map_or(&text, |added| &added.first);
        let tag = self.run_everywhere(text, EntryKind::Schema).await?;
        for then in added.iter().flat_map(|added| &added.then) {
            self.run_everywhere(then, EntryKind::Schema).await?;
        }
        if *statement.kind() == Kind::Do {
            // Code that is not looked into may leave settings and temporary tables behind.
            for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
                backend.closing = true;
            }
        }
        Ok(Some(tag))
    }

    /// VACUUM and its like: on one shard after the other, in no transaction.
    async fn on_each_shard(&mut self, text: &str) -> Done {
        if self.transaction.is_explicit() {
            let message = "upkeep of all shards cannot run inside a transaction block";
            return Err(SqlError::new(state::ACTIVE_TRANSACTION, message).into());
        }
        let outside = self.step_outside();
        let shards: Vec<_> = self.door.router.view().shards.keys().cloned().collect();
        let mut done = Ok(());
        for (at, shard) in shards.iter().enumerate() {
            done = self.acquire(&Wanted::Shard(shard), Access::Write).await;
            if done.is_ok() {
                done = if at == 0 { self.pass_alone(text).await } else { self.pass_quietly(text).await };
            }
            self.release().await;
            if done.is_err() || self.told {
                break;
            }
        }
        self.step_inside(outside);
        done
    }

    /// Runs a text on the shard that works for us; only its failure is shown.
    pub(super) async fn pass_quietly(&mut self, text: &str) -> Done {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        backend.query(text, true);
        super::global::quietly(backend, &mut self.client).await.map_err(Stop::from)
    }
}

/// Whether a statement may change something, by itself or by a function that it calls: it is not done twice.
pub(super) fn may_change(analysis: &Analysis) -> bool {
    let harmless = |name: &str| {
        HARMLESS_FUNCTIONS.contains(&name) || name.starts_with("pg_is_") || name.ends_with("_size")
    };
    let changes = |called: &Called| {
        called.volatility == Volatility::Volatile && (called.reads_tables || !harmless(&called.name))
    };
    analysis.writes() || analysis.called().iter().any(changes)
}

/// Whether a statement over several shards is one that they answer together.
pub(super) fn reads(kind: &Kind) -> bool {
    match kind {
        Kind::Select | Kind::Declare(_) => true,
        Kind::Copy(copy) => !copy.from,
        Kind::Explain(explain) => reads(explain.statement.kind()),
        _ => false,
    }
}

/// Refuses the name of a temporary table that is also another's.
fn check_hides(name: &str, schema: &Schema) -> Result<(), SqlError> {
    let hides = |known: &TableName| known.name == name;
    if !schema.tables.keys().any(hides) && !schema.views.keys().any(hides) {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("a temporary table {name} would hide the table or view of that name"),
        "Choose another name.",
    ))
}

fn undeclared(table: &TableName) -> SqlError {
    let message = format!("table {table} was not declared, and sql.undeclared is \"refuse\"");
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint(format!(
        "SELECT polyshard.shard_table('{table}', map, column), polyshard.reference_table('{table}') or \
         polyshard.local_table('{table}', shard) says where its rows are."
    ))
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

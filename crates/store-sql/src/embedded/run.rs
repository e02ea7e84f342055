//! Statements of one SQLite shard: prepared by translation, run on the engine, answered as PostgreSQL would.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use polyshard_engine::{Rows, Transaction, Value};
use polyshard_map::{Key, MapName, ShardId};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_sql::{Context, Kind, Param, Route, Schema, SqlError, SqlState, TypeOid, quoted};
use polyshard_sql_on_sqlite::{Across, Attached, Format, Moment, Prepared, QUIET, Tag, prepare_across};

use super::pages::{PAGE_ROWS, run_stoppable};
use super::translate::statement_of;
use crate::cache::{Analysed, Description, Prepared as Known};
use crate::out_form::OutForm;
use crate::reply::{self, Field};
use crate::session::{Done, Session, Stop, Wanted, locks_rows, only_files, write_ticket};

/// How long a transaction that has begun on a file waits for a range: as long as a switch that goes well takes.
const HELD_WAIT: Duration = Duration::from_millis(500);

/// A shard at work for a client.
pub(crate) struct Lite {
    pub shard: ShardId,
    pub tickets: Vec<Arc<Ticket>>,
    keys: Vec<(MapName, Vec<Key>, Access)>,
    /// Once something was written, or one snapshot is wanted. Before, each statement sees what is there.
    pub transaction: Option<Solo>,
    /// Whether it can only read, though the client did not say so.
    reads_alone: bool,
    /// Whether it has been about nothing but what every shard has.
    pub anywhere: bool,
}

impl Lite {
    /// A shard under leave that somebody else has.
    pub fn new(shard: ShardId, tickets: Vec<Arc<Ticket>>) -> Lite {
        Lite { shard, tickets, keys: Vec::new(), transaction: None, reads_alone: false, anywhere: false }
    }
}

/// A transaction that a session can hold while it is looked at from several threads, one after the other.
pub(crate) struct Solo(Mutex<Transaction>);

impl Solo {
    pub fn new(transaction: Transaction) -> Solo {
        Solo(Mutex::new(transaction))
    }

    /// The transaction, for its only user.
    pub fn get(&mut self) -> &mut Transaction {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> Transaction {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Carries out a statement that concerns tables, or nothing, on SQLite shards.
    pub(crate) async fn run_lite(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        if let Some(refusal) = &analysed.refusal {
            return Err(refusal.clone().into());
        }
        if let Kind::Show(name) = analysed.statement.kind() {
            return self.show_lite(name);
        }
        self.check_zone()?;
        self.check_recorded(analysed.statement.kind())?;
        if let Kind::Declare(cursor) = analysed.statement.kind() {
            return Box::pin(self.declare_lite(cursor, params, types)).await;
        }
        if let Some(asked) = self.portal_asked()
            && !(self.records() && (self.is_on_backends() || locks_rows(analysed)))
            && *analysed.statement.kind() == Kind::Select
        {
            return Box::pin(self.begin_portal_lite(asked, analysed, params, types)).await;
        }
        let (route, analysis) = self.route(analysed, params).await?;
        let route = self.sized_on(&analysed.statement, &route).unwrap_or(route);
        if let Some(wanted) = Wanted::of(&route) {
            self.check_lite_locks(&wanted, &analysis)?;
        }
        if self.records() && Box::pin(self.run_recorded(analysed, &route, analysis.writes(), params)).await? {
            return Ok(());
        }
        if Wanted::of(&route).is_none()
            || matches!(analysed.statement.kind(), Kind::Explain(_) | Kind::Copy(_))
        {
            self.commit_series().await?;
        }
        if let Kind::Explain(explain) = analysed.statement.kind() {
            let told = analysis.describe();
            return Box::pin(self.explain_lite(explain, &route, told, params, types)).await;
        }
        if let Kind::Copy(copy) = analysed.statement.kind() {
            return Box::pin(self.copy_lite(copy, &route)).await;
        }
        if let Kind::Lock(_) = analysed.statement.kind() {
            return Box::pin(self.lock_lite(&route)).await;
        }
        match &route {
            Route::Everywhere if self.under.is_some() => return self.change_here(analysed).await,
            Route::Everywhere | Route::ReferenceWrite => {
                let alone = self.begin_alone();
                let before = self.client.out.len();
                let done = self.change_everywhere(analysed, &route, params).await;
                let ended = self.end_alone(alone, done).await;
                if ended.is_err() {
                    // It is not said to be done before that is certain; nothing of it was sent so far.
                    self.client.out.truncate(before);
                }
                return ended;
            }
            Route::Many { .. } if *analysed.statement.kind() == Kind::Select => {
                return self.run_lite_across(analysed, &route, params, types).await;
            }
            _ => {}
        }
        let Some(wanted) = Wanted::of(&route) else {
            return self.run_elsewhere(analysed, route, params).await;
        };
        self.check_lite_global(analysis.writes())?;
        let schema = self.current_schema().await?;
        let prepared = self.prepared_here(analysed, &schema, types).await?;
        if prepared.wants_activity() {
            self.note_query(analysed.statement.text());
        }
        let writes = prepared.writes() || prepared.locks;
        if writes {
            let word = analysed.statement.text().split_whitespace().next().unwrap_or_default();
            self.check_not_read_only(&word.to_ascii_uppercase())?;
        }
        let access = if writes { Access::Write } else { Access::Read };
        self.enter_lite(&wanted, access).await?;
        let done = self.run_entered(&prepared, params, &schema, writes).await;
        if self.transaction.is_none() {
            self.count_lite();
            self.lite = None;
        }
        done
    }

    /// A statement in SQLite's words; for a shard among others, without the rows that are here and not its own.
    async fn prepared_here(
        &mut self,
        analysed: &Analysed,
        schema: &Arc<Schema>,
        types: &[u32],
    ) -> Result<Arc<Prepared>, Stop> {
        let foreign = self.under.as_ref().map(|leave| leave.foreign()).filter(|foreign| !foreign.is_empty());
        let (Some(foreign), Kind::Select) = (foreign, analysed.statement.kind()) else {
            return Ok(self.lite_prepared(analysed, schema, types)?);
        };
        let wrong = |error: polyshard_engine::Error| Stop::Refused(reply::of_engine(&error));
        let database = "main".to_owned();
        let question = polyshard_engine::Statement::new(Across::question(std::slice::from_ref(&database)));
        let said = self.run_native(question).await.map_err(wrong)?;
        let said = said.first().map(|row| row.text(0).map(str::to_owned)).transpose().map_err(wrong)?;
        let file = Attached { database, foreign: (*foreign).clone() };
        let across = Across::new(vec![(file, said.unwrap_or_else(|| QUIET.to_owned()))]);
        let search_path = self.search_path.clone();
        let context = Context { schema, search_path: &search_path, strict: false };
        let types: Vec<Option<TypeOid>> =
            types.iter().map(|oid| (*oid != 0).then_some(TypeOid(*oid))).collect();
        let settings = &self.lite_settings;
        Ok(Arc::new(prepare_across(&analysed.statement, &context, &types, settings, &across)?))
    }

    /// A statement in SQLite's words.
    pub(super) fn lite_prepared(
        &self,
        analysed: &Analysed,
        schema: &Arc<Schema>,
        types: &[u32],
    ) -> Result<Arc<Prepared>, SqlError> {
        let basis = self.basis(schema.position);
        analysed.lite(&basis, &self.lite_settings, types, |statement| {
            let context = Context { schema, search_path: &basis.search_path, strict: basis.strict };
            let types: Vec<Option<TypeOid>> =
                types.iter().map(|oid| (*oid != 0).then_some(TypeOid(*oid))).collect();
            polyshard_sql_on_sqlite::prepare(statement, &context, &types, &self.lite_settings)
        })
    }

    /// What a prepared statement is like.
    pub(crate) async fn describe_lite(
        &mut self,
        known: &Known,
        analysed: &Analysed,
    ) -> Result<Description, Stop> {
        let schema = self.current_schema().await?;
        let prepared = match analysed.statement.kind() {
            Kind::Select | Kind::Insert | Kind::Update | Kind::Delete => {
                self.lite_prepared(analysed, &schema, &known.types)?
            }
            Kind::Declare(cursor) => {
                let query =
                    self.lite_prepared(&Analysed::new(cursor.query.clone()), &schema, &known.types)?;
                return Ok(Description::of_columns(&[], &query.parameters));
            }
            Kind::Explain(_) => return Ok(Description::of_columns(&[Field::text("QUERY PLAN")], &[])),
            Kind::Show(name) => return Ok(Description::of_columns(&super::settings::show_fields(name), &[])),
            _ => return Ok(Description::of_columns(&[], &[])),
        };
        let columns = prepared.columns.as_deref().map(fields).unwrap_or_default();
        Ok(Description::of_columns(&columns, &prepared.parameters))
    }

    /// Leave for the shard, beside what the transaction has already.
    pub(super) async fn enter_lite(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        if self.under.is_some() {
            self.take_leave();
            return Ok(());
        }
        if let Some(lite) = &mut self.lite {
            let shard = match wanted {
                Wanted::Anywhere => return Ok(()),
                Wanted::Shard(shard) | Wanted::Keys { shard, .. } => *shard,
            };
            lite.anywhere = false;
            if lite.shard == *shard {
                return self.enter_more(wanted, access).await;
            }
            if lite.transaction.is_some() && !self.transaction.is_in_series() {
                return Err(crate::session::other_file(&lite.shard, shard).into());
            }
            if lite.transaction.is_some() {
                // What the series did on one file is one transaction, what it does on the next another.
                self.commit_series().await?;
                self.begin_in_series_lite();
            }
            // Nothing was done there that counts.
            self.lite = None;
        }
        self.admit(wanted)?;
        let router = self.door.router.clone();
        let mut tries = 0;
        let tickets = loop {
            match self.enter(wanted, access).await {
                Ok(tickets) => break tickets,
                Err(error) => {
                    tries += 1;
                    if tries >= 8 || matches!(error, RouterError::Moving(_)) || !router.heal(&error).await {
                        return Err(reply::of_router(&error).into());
                    }
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(5 << tries.min(6))).await;
        };
        let shard = tickets[0].shard().clone();
        only_files(&tickets)?;
        // In a turn of our own the shard has everything, and asking would wait for ourselves.
        if self.transaction.lite_turn.is_none() {
            self.door.journal.ready(&shard).await.map_err(|error| error.to_sql())?;
        }
        let keys = match wanted {
            Wanted::Keys { keys, .. } => {
                keys.iter().map(|(map, keys)| (map.clone(), keys.clone(), access)).collect()
            }
            _ => Vec::new(),
        };
        let routed_by = self.routed_by.take();
        self.check_routed(routed_by.as_ref()).await?;
        tickets[0].begin_at(self.client.settled());
        let tickets = tickets.into_iter().map(Arc::new).collect();
        let anywhere = matches!(wanted, Wanted::Anywhere);
        self.lite = Some(Lite { keys, anywhere, ..Lite::new(shard, tickets) });
        Ok(())
    }

    async fn enter_more(&mut self, wanted: &Wanted<'_>, access: Access) -> Done {
        let (Some(lite), Wanted::Keys { keys, ranges, shard }) = (&mut self.lite, wanted) else {
            return Ok(());
        };
        let enough = |mine: Access| mine == access || mine == Access::Write;
        for (map, keys) in keys.iter() {
            let covered = lite.keys.iter().any(|(known, mine, with)| {
                known == map && enough(*with) && keys.iter().all(|key| mine.contains(key))
            });
            if covered {
                continue;
            }
            self.door.host.quotas().charge(map, keys);
            let entered = self.door.router.enter_within_map(&lite.tickets[0], map, keys, access).await;
            lite.tickets.push(Arc::new(entered.map_err(|error| reply::of_router(&error))?));
            lite.keys.push((map.clone(), keys.clone(), access));
        }
        for (map, ranges) in ranges.iter() {
            for range in ranges {
                let entering = self.door.router.enter_shard(map, range, shard, access);
                let entered = match lite.transaction {
                    Some(_) => enter_briefly(entering, map).await,
                    None => entering.await,
                };
                lite.tickets.push(Arc::new(entered.map_err(|error| reply::of_router(&error))?));
            }
        }
        Ok(())
    }

    /// Runs a prepared statement on the shard that was entered.
    async fn run_entered(
        &mut self,
        prepared: &Prepared,
        params: &[Param<'_>],
        schema: &Schema,
        writes: bool,
    ) -> Done {
        let Some(shard) = self.lite.as_ref().map(|lite| lite.shard.clone()) else { return Ok(()) };
        if self.transaction.lite_turn.is_some() {
            return self.read_in_turn(prepared, params, schema, &shard).await;
        }
        if let Some(held) = prepared.held() {
            return Box::pin(self.run_held(prepared, held, params, (schema, &shard))).await;
        }
        let moment = self.moment(prepared, &shard).await?;
        let statement = statement_of(prepared, prepared.bind(params, &moment)?);
        let wrong =
            |error: polyshard_engine::Error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema));
        let inside = !self.transaction.is_none();
        if inside && (writes || self.transaction.has_one_snapshot()) {
            self.begin_lite(schema, writes).await?;
        }
        let reads =
            |lite: &Lite| lite.transaction.is_some() && (self.transaction.read_only || lite.reads_alone);
        if self.under.is_some() && !writes && self.lite.as_ref().is_some_and(reads) {
            return self.run_in_pages(prepared, statement, schema).await;
        }
        let running = self.running();
        let Some(lite) = &mut self.lite else { return Ok(()) };
        if let Some(transaction) = &mut lite.transaction {
            let rows = run_stoppable(transaction.get(), statement, &running, schema).await?;
            self.transaction.wrote |= prepared.writes();
            return self.answer(prepared, &rows);
        }
        if writes {
            let ticket = match write_ticket(&lite.tickets) {
                Some(ticket) => ticket.clone(),
                None => {
                    let entered = self.door.router.enter_unmapped(&lite.shard, Access::Write).await;
                    Arc::new(entered.map_err(|error| reply::of_router(&error))?)
                }
            };
            let mut transaction = ticket.begin().await.map_err(wrong)?;
            let rows = run_stoppable(&mut transaction, statement, &running, schema).await?;
            transaction.commit().await.map_err(wrong)?;
            return self.answer(prepared, &rows);
        }
        let ticket = lite.tickets[0].clone();
        self.pass_pages(ticket.scan(statement, PAGE_ROWS), prepared, schema, &mut false).await
    }

    /// Reads in the transaction a page at a time, so that no answer is in memory as a whole.
    async fn run_in_pages(
        &mut self,
        prepared: &Prepared,
        statement: polyshard_engine::Statement,
        schema: &Schema,
    ) -> Done {
        let taken = self.lite.as_mut().and_then(|lite| lite.transaction.take());
        let Some(mut transaction) = taken else { return Ok(()) };
        let scan = transaction.get().scan(statement, PAGE_ROWS);
        let done = self.pass_pages(scan, prepared, schema, &mut false).await;
        if let Some(lite) = &mut self.lite {
            lite.transaction = Some(transaction);
        }
        done
    }

    /// Begins the transaction on the shard, if it has not begun, with the savepoints so far.
    pub(super) async fn begin_lite(&mut self, schema: &Schema, writes: bool) -> Done {
        let begun = self.begin_solo().await;
        begun.map_err(|error| match error {
            RouterError::Engine(error) => Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema)),
            error => reply::of_router(&error).into(),
        })?;
        match &self.lite {
            Some(lite) if writes && lite.reads_alone => Err(only_reads(&lite.shard).into()),
            _ => Ok(()),
        }
    }

    /// Likewise, as the shard says why not.
    pub(crate) async fn begin_solo(&mut self) -> Result<(), RouterError> {
        let savepoints = self.transaction.savepoint_names();
        let Some(lite) = &mut self.lite else { return Ok(()) };
        if lite.transaction.is_some() {
            return Ok(());
        }
        // A ticket to write, whatever the first one was for: the transaction may write yet.
        let read_only = self.transaction.read_only;
        let reads = read_only || self.under.as_ref().is_some_and(|leave| leave.is_snapshot_alone());
        let ticket = match lite.tickets.iter().find(|ticket| reads || ticket.access() == Access::Write) {
            Some(ticket) => ticket,
            None => {
                let entered = self.door.router.enter_unmapped(&lite.shard, Access::Write).await?;
                lite.tickets.push(Arc::new(entered));
                &lite.tickets[lite.tickets.len() - 1]
            }
        };
        let mut transaction = ticket.begin().await.map_err(RouterError::Engine)?;
        for name in savepoints {
            transaction.run(savepoint("SAVEPOINT", &name)).await.map_err(RouterError::Engine)?;
        }
        lite.transaction = Some(Solo::new(transaction));
        lite.reads_alone = reads && !read_only;
        Ok(())
    }

    /// SAVEPOINT, RELEASE or ROLLBACK TO, where the transaction has begun.
    pub(crate) async fn savepoint_lite(&mut self, verb: &str, name: &str) -> Done {
        if let Some(turn) = &mut self.transaction.lite_turn {
            turn.savepoint(verb, name).await.map_err(|error| of_savepoint(&error))?;
        }
        if let Some(transaction) = self.lite.as_mut().and_then(|lite| lite.transaction.as_mut()) {
            let ran = transaction.get().run(savepoint(verb, name)).await;
            ran.map_err(|error| of_savepoint(&error))?;
        }
        Ok(())
    }

    /// Has what was exchanged with the client counted for its keys.
    fn count_lite(&self) {
        if let (Some(lite), None) = (&self.lite, &self.under) {
            lite.tickets[0].end_at(self.client.exchanged());
        }
    }

    /// Ends the transaction on its shard.
    pub(crate) async fn end_lite(&mut self, commit: bool) -> Done {
        self.count_lite();
        let Some(lite) = self.lite.take() else { return Ok(()) };
        if let Some(transaction) = lite.transaction {
            let transaction = transaction.into_inner();
            let ended = if commit { transaction.commit().await } else { transaction.rollback().await };
            if commit {
                ended.map_err(|error| polyshard_sql_on_sqlite::error(&error, &Schema::default()))?;
            }
        }
        Ok(())
    }

    /// The time, and the ids that a statement needs.
    pub(super) async fn moment(&mut self, prepared: &Prepared, shard: &ShardId) -> Result<Moment, SqlError> {
        let now = self.door.now_micros();
        let began = self.transaction.began(now);
        let mut ids = BTreeMap::new();
        for (sequence, count) in prepared.ids() {
            let given = self.new_ids(&sequence, count, shard).await?;
            ids.insert(sequence, given);
        }
        let activity = prepared.wants_activity().then(|| self.activity(now));
        let process = self.process();
        Ok(Moment { transaction_micros: began, statement_micros: now, ids, process, activity })
    }

    pub(super) fn tell_columns(&mut self, prepared: &Prepared) {
        if let Some(kept) = &mut self.keeping {
            return kept.describe(prepared.columns.as_deref().unwrap_or_default());
        }
        if let (Some(form), Some(columns)) = (&self.copy_out, &prepared.columns) {
            form.begin(&mut self.client.out, columns.iter().map(|column| column.name.as_str()));
        } else if let Some(columns) = &prepared.columns
            && !self.extended
        {
            reply::row_description(&mut self.client.out, &fields(columns), |_| false);
        }
    }

    /// Rows of an answer, or of a COPY.
    pub(super) fn put_rows(
        &mut self,
        prepared: &Prepared,
        rows: &Rows,
        formats: &[bool],
    ) -> Result<(), SqlError> {
        if let Some(kept) = &mut self.keeping {
            return kept.add(rows);
        }
        let out = &mut self.client.out;
        match &self.copy_out {
            None => put_rows(out, prepared, rows, formats, self.extended, &self.lite_settings),
            Some(form) => put_copy(out, prepared, rows, form, &self.lite_settings),
        }
    }

    /// The end of rows that were selected.
    pub(super) fn tell_selected(&mut self, count: u64) {
        if self.keeping.is_some() {
            return;
        }
        let tag = if self.copy_out.is_some() {
            self.client.out.put_slice(b"c\0\0\0\x04");
            format!("COPY {count}")
        } else {
            format!("SELECT {count}")
        };
        reply::complete(&mut self.client.out, &tag);
    }

    /// An answer that is there as a whole.
    pub(super) fn answer(&mut self, prepared: &Prepared, rows: &Rows) -> Done {
        self.tell_columns(prepared);
        if prepared.columns.is_some() {
            let formats = self.formats.clone();
            self.put_rows(prepared, rows, &formats)?;
        }
        let count = if prepared.columns.is_some() { rows.len() as u64 } else { rows.affected() };
        if self.copy_out.is_some() || self.keeping.is_some() {
            self.tell_selected(count);
            return Ok(());
        }
        let tag = match prepared.tag {
            Tag::Select => format!("SELECT {count}"),
            Tag::Insert => format!("INSERT 0 {count}"),
            Tag::Update => format!("UPDATE {count}"),
            Tag::Delete => format!("DELETE {count}"),
        };
        reply::complete(&mut self.client.out, &tag);
        Ok(())
    }

    fn check_lite_global(&self, writes: bool) -> Done {
        if self.transaction.lite_turn.is_some() && writes {
            return Err(SqlError::unsupported(
                "a transaction that changes what every shard has cannot write what one shard has",
                "Change schema and reference tables in a transaction of their own.",
            )
            .into());
        }
        Ok(())
    }
}

/// Enters a range for a transaction that has begun on a file. If it is being switched, there is no waiting for the end
/// of that: whoever switches it may be waiting for the file's only writer.
pub(crate) async fn enter_briefly(
    entering: impl Future<Output = Result<Ticket, RouterError>>,
    map: &MapName,
) -> Result<Ticket, RouterError> {
    let entered = tokio::time::timeout(HELD_WAIT, entering).await;
    entered.unwrap_or_else(|_| Err(RouterError::Moving(map.clone())))
}

/// What is said where a savepoint cannot be made, given up or gone back to. It was made, so that one that is not there
/// has gone with a statement that was stopped.
fn of_savepoint(error: &polyshard_engine::Error) -> SqlError {
    if error.to_string().contains("no such savepoint") {
        let message = "the transaction was rolled back when its statement was stopped";
        return SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Begin it again.");
    }
    polyshard_sql_on_sqlite::error(error, &Schema::default())
}

/// A savepoint's statement.
pub(super) fn savepoint(verb: &str, name: &str) -> polyshard_engine::Statement {
    polyshard_engine::Statement::new(format!("{verb} {}", quoted(name)))
}

/// Columns as the protocol tells them.
pub(super) fn fields(columns: &[polyshard_sql_on_sqlite::OutColumn]) -> Vec<Field> {
    let field = |column: &polyshard_sql_on_sqlite::OutColumn| Field {
        name: column.name.clone(),
        type_oid: column.type_oid,
        type_mod: column.type_mod,
    };
    columns.iter().map(field).collect()
}

/// The answer to a write where the transaction has a snapshot that it shares with all shards.
fn only_reads(shard: &ShardId) -> SqlError {
    SqlError::unsupported(
        format!("shard {shard} is an SQLite file, of which the transaction has only a snapshot to read"),
        "Write there before the first query across shards, or do not ask for one snapshot of all shards.",
    )
}

/// Rows as DataRow messages.
pub(super) fn put_rows(
    out: &mut BytesMut,
    prepared: &Prepared,
    rows: &Rows,
    formats: &[bool],
    extended: bool,
    settings: &polyshard_sql_on_sqlite::Settings,
) -> Result<(), SqlError> {
    let columns = prepared.columns.as_deref().unwrap_or_default();
    let formats = if extended { formats } else { &[] };
    rows.iter().try_for_each(|row| put_row(out, columns, row.values(), formats, settings))
}

/// A row as a DataRow message, in these forms: none for text, one for all, or one each; true is binary.
pub(super) fn put_row(
    out: &mut BytesMut,
    columns: &[polyshard_sql_on_sqlite::OutColumn],
    values: &[Value],
    formats: &[bool],
    settings: &polyshard_sql_on_sqlite::Settings,
) -> Result<(), SqlError> {
    let binary = |at: usize| match formats {
        [] => false,
        [one] => *one,
        many => many.get(at).copied().unwrap_or(false),
    };
    let mut bytes = Vec::new();
    let mut failure = None;
    let start = out.len();
    reply::message(out, b'D', |out| {
        out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
        for (at, (value, column)) in values.iter().zip(columns).enumerate() {
            if value.is_null() {
                out.put_i32(-1);
                continue;
            }
            bytes.clear();
            let format = if binary(at) { Format::Binary } else { Format::Text };
            if let Err(error) =
                polyshard_sql_on_sqlite::encode(column.type_oid, value, format, settings, &mut bytes)
            {
                failure = Some(error);
                return;
            }
            out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            out.put_slice(&bytes);
        }
    });
    match failure {
        None => Ok(()),
        Some(error) => {
            // Half a message must not be sent.
            out.truncate(start);
            Err(error)
        }
    }
}

/// Rows as COPY writes them.
fn put_copy(
    out: &mut BytesMut,
    prepared: &Prepared,
    rows: &Rows,
    form: &OutForm,
    settings: &polyshard_sql_on_sqlite::Settings,
) -> Result<(), SqlError> {
    let columns = prepared.columns.as_deref().unwrap_or_default();
    for row in rows.iter() {
        let mut values = Vec::with_capacity(columns.len());
        for (value, column) in row.values().iter().zip(columns) {
            if value.is_null() {
                values.push(None);
                continue;
            }
            let mut bytes = Vec::new();
            polyshard_sql_on_sqlite::encode(column.type_oid, value, Format::Text, settings, &mut bytes)?;
            values.push(Some(bytes));
        }
        form.data(out, values.iter().map(Option::as_deref));
    }
    Ok(())
}

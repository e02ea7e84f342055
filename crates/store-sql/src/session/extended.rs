//! The extended protocol: statements prepared once, bound to values as portals, and run in series up to a Sync.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use polyshard_router::Access;
use polyshard_sql::{Kind, Param, ParamValue, SqlError, TypeOid};

use super::kinds::{is_described, is_own};
use super::named::Named;
use super::place::Wanted;
use super::series::undo_series;
use super::{Done, Session, Stop, inline};
use crate::backend::{Broken, Translated};
use crate::cache::{Analysed, Description, Prepared};
use crate::codec::{self, Values};
use crate::reply::{self, Field, state};

/// Bytes sent to a shard in one series before its answers are taken, so that neither waits for the other.
const SERIES_BYTES: usize = 64 * 1024;

/// ParameterDescription of none.
const NO_PARAMETERS: &[u8] = b"t\0\0\0\x06\0\0";

/// A statement with its values.
pub(super) enum Portal {
    /// On the shard's session, under the same name.
    Shard,
    /// Carried out by the door.
    Own(Arc<Bound>),
}

/// What a portal of the door's own is for.
pub(super) struct Bound {
    pub prepared: Arc<Prepared>,
    /// The values as the client sent them.
    pub rest: Bytes,
    pub description: Arc<Description>,
}

impl Bound {
    /// Whether it is for a statement that writes rows.
    fn writes(&self) -> bool {
        let kind = self.prepared.analysed.as_ref().map(|analysed| analysed.statement.kind());
        matches!(kind, Some(Kind::Insert | Kind::Update | Kind::Delete))
    }

    /// The values with their types.
    pub fn values(&self) -> Result<Values<'_>, codec::Malformed> {
        codec::Bind { portal: "", statement: "", rest: &self.rest }.values()
    }
}

/// Values with the types that the server reported.
pub(super) fn params<'a>(values: &Values<'a>, types: &[TypeOid]) -> Vec<Param<'a>> {
    let value = |(binary, value): (bool, Option<&'a [u8]>)| match (binary, value) {
        (_, None) => ParamValue::Null,
        (true, Some(value)) => ParamValue::Binary(value),
        (false, Some(value)) => ParamValue::Text(value),
    };
    let pairs = types.iter().zip(&values.values);
    pairs.map(|(type_oid, given)| Param { type_oid: *type_oid, value: value(*given) }).collect()
}

impl Session {
    /// Words of the door's own, after the answers that are still to come.
    fn say(&mut self, words: &[u8]) {
        match &mut self.backend {
            Some(backend) if !backend.is_settled() => backend.own(words),
            _ => self.client.out.extend_from_slice(words),
        }
    }

    /// `P`.
    pub(super) async fn parse(&mut self, body: &[u8]) -> Done {
        let mut parse = codec::Parse::read(body)?;
        let own_name = self.own_name(parse.text);
        parse.text = own_name.as_deref().unwrap_or(parse.text);
        if !parse.name.is_empty() && self.statements.contains_key(parse.name) {
            let message = format!("prepared statement \"{}\" already exists", parse.name);
            return Err(SqlError::new(state::DUPLICATE_STATEMENT, message).into());
        }
        self.check_names(self.statements.len())?;
        // The unnamed statement is commonly sent again and again.
        let same = |known: &&Arc<Prepared>| *known.text == *parse.text && *known.types == *parse.types;
        let prepared = match self.statements.get("").map(|named| &named.prepared).filter(same) {
            Some(known) if parse.name.is_empty() => known.clone(),
            // Many texts that differ in their literals alone come without a name.
            _ if parse.name.is_empty() && parse.types.is_empty() => {
                match Box::pin(self.parse_inline(parse.text)).await? {
                    Some(inline) => inline,
                    None => self.door.cache.prepared(parse.text, &parse.types)?,
                }
            }
            _ => self.door.cache.prepared(parse.text, &parse.types)?,
        };
        let run = prepared.inline.as_ref().map_or(&prepared, |inline| &inline.of);
        if let Some(analysed) = &run.analysed {
            self.check_transaction(analysed.statement.kind())?;
        }
        let told = self.description(run).await?;
        let named = Named { prepared, told };
        match self.statements.get_mut(parse.name) {
            Some(known) => *known = named,
            None => drop(self.statements.insert(parse.name.into(), named)),
        }
        self.say(reply::PARSE_COMPLETE);
        Ok(())
    }

    pub(super) fn check_names(&self, count: usize) -> Done {
        if count < self.door.limits.names_max {
            return Ok(());
        }
        let message = format!("the session has {count} prepared statements or portals already");
        Err(SqlError::new(state::PROGRAM_LIMIT, message).hint("Close those that are not needed.").into())
    }

    /// What a prepared statement is like; asked of a shard once for all sessions.
    pub(super) async fn description(&mut self, prepared: &Arc<Prepared>) -> Result<Arc<Description>, Stop> {
        if let Some(analysed) = &prepared.analysed
            && let Kind::Execute(execute) = analysed.statement.kind()
        {
            // Not kept: the same words may mean another statement in another session.
            return Box::pin(self.describe_execute(execute)).await;
        }
        let cursor = prepared.analysed.as_ref().and_then(|analysed| match analysed.statement.kind() {
            Kind::Fetch(fetch) => Some(&fetch.name),
            _ => None,
        });
        if let Some(name) = cursor {
            // Another session's cursor of the same name has other columns: this is not remembered.
            return self.description_of_fetch(prepared, name).await.map(Arc::new);
        }
        let schema = self.current_schema().await?;
        let basis = self.basis(schema.position);
        if let Some(known) = prepared.description(&basis) {
            return Ok(known);
        }
        let description = match &prepared.analysed {
            Some(analysed) if is_described(analysed.statement.kind(), &self.own) => {
                if let Some(refusal) = &analysed.refusal {
                    return Err(refusal.clone().into());
                }
                let description = if self.embedded {
                    Box::pin(self.describe_lite(prepared, analysed)).await?
                } else {
                    Box::pin(self.ask_description(prepared)).await?
                };
                Arc::new(description)
            }
            _ => Arc::new(self.own_description(prepared)),
        };
        prepared.describe(basis, description.clone());
        Ok(description)
    }

    /// What FETCH is like: as its cursor.
    async fn description_of_fetch(&mut self, prepared: &Prepared, name: &str) -> Result<Description, Stop> {
        let mut description = Description::of_columns(&[], &[]);
        match self.columns_of_held(name).await? {
            Some(columns) if !columns.is_empty() => description.row_message = columns.into(),
            Some(_) => {}
            None if self.embedded => {}
            None => description = self.ask_description(prepared).await?,
        }
        Ok(description)
    }

    async fn ask_description(&mut self, prepared: &Prepared) -> Result<Description, Stop> {
        match self.described_by_shard(prepared, &Wanted::Anywhere).await? {
            Ok(description) => Ok(description),
            Err(body) => {
                self.show_error(&body);
                self.told = true;
                if let Some(backend) = &mut self.backend
                    && backend.is_inside()
                {
                    // It was not the one to refuse.
                    undo_series(backend, &self.transaction);
                }
                Err(Stop::Told)
            }
        }
    }

    /// What a shard says that a statement is like, or the body of the error by which it refuses it. It is asked there,
    /// unless a session of ours is there to ask.
    pub(super) async fn described_by_shard(
        &mut self,
        prepared: &Prepared,
        on: &Wanted<'_>,
    ) -> Result<Result<Description, BytesMut>, Stop> {
        let id = self.door.cache.next_id();
        // What the transaction itself has made is known where the transaction is.
        match self.first_shard() {
            Some(first) => drop(self.switch_to(&first)),
            None => self.take_up(),
        }
        // PostgreSQL says what statements are like: whoever answers for an SQLite shard would say it for that alone.
        // But a cursor is known only where it was declared.
        let kind = prepared.analysed.as_ref().map(|analysed| analysed.statement.kind());
        if self.backend.as_ref().is_some_and(|backend| backend.is_inside())
            && !matches!(kind, Some(Kind::Fetch(_)))
        {
            self.settle().await?;
            let aside = (self.backend.take(), std::mem::take(&mut self.portals));
            let described = Box::pin(self.described_by_shard(prepared, &Wanted::Anywhere)).await;
            (self.backend, self.portals) = aside;
            return described;
        }
        let inside = self.backend.is_some();
        let outside = if inside {
            self.settle().await?;
            None
        } else {
            let outside = self.step_outside();
            if let Err(stop) = self.acquire(on, Access::Read).await {
                self.step_inside(outside);
                return Err(stop);
            }
            Some(outside)
        };
        let Some(backend) = &mut self.backend else { return Err(Stop::Told) };
        let described = match backend.types_here(&prepared.types).await {
            Ok(types) => {
                backend.ask_description(id, &prepared.text, &types, !inside);
                backend.described(id, !inside).await
            }
            Err(error) => Err(Broken::Ended(error)),
        };
        if let Some(outside) = outside {
            self.release().await;
            self.step_inside(outside);
        }
        let (parameter_message, row_message) = match described {
            Ok(Ok(messages)) => messages,
            Ok(Err(body)) => return Ok(Err(body)),
            Err(Broken::Client(gone)) => return Err(Stop::Gone(gone)),
            Err(Broken::Ended(error)) => return Err(self.lose(error, false).await),
            Err(Broken::Cut(error)) => return Err(self.lose(error, true).await),
        };
        let parameters = parameter_message.get(7..).unwrap_or_default();
        let parameters = parameters
            .chunks_exact(4)
            .map(|oid| TypeOid(u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]])));
        let parameters: Vec<TypeOid> = parameters.collect();
        let own_types = crate::type_ids::are_own(&parameters, &row_message);
        Ok(Ok(Description { id, parameters, parameter_message, row_message, own_types }))
    }

    /// What a statement that the door carries out is like.
    fn own_description(&self, prepared: &Prepared) -> Description {
        let mut columns = Vec::new();
        let mut parameters = Vec::new();
        if let Some(analysed) = &prepared.analysed {
            let count = analysed.statement.parameters() as usize;
            let given = |at: usize| prepared.types.get(at).copied().filter(|oid| *oid != 0);
            let natural = |at: usize| match analysed.statement.kind() {
                Kind::Polyshard(call) => self.parameter_type(call, at),
                _ => TypeOid::TEXT,
            };
            parameters = (0..count).map(|at| given(at).map_or_else(|| natural(at), TypeOid)).collect();
            match analysed.statement.kind() {
                Kind::Show(name) => columns.push(Field::text(name)),
                Kind::Polyshard(call) => columns.push(Field::text(call.column())),
                Kind::SetConfig(_) => columns.push(Field::text("set_config")),
                _ => {}
            }
        }
        Description::of_columns(&columns, &parameters)
    }

    /// `B`.
    pub(super) async fn bind(&mut self, body: &[u8]) -> Done {
        let mut bind = codec::Bind::read(body)?;
        let Some(mut named) = self.statements.get(bind.statement).cloned() else {
            return Err(no_statement(bind.statement).into());
        };
        let with_literals;
        let inlined = named.prepared.clone();
        if let Some(inline) = &inlined.inline {
            let values = bind.values()?;
            check_count(&bind, &values, 0)?;
            with_literals = inline::with_values(inline, &values)?;
            bind.rest = &with_literals;
            named.prepared = inline.of.clone();
        }
        if !bind.portal.is_empty() && self.portals.contains_key(bind.portal) {
            let message = format!("cursor \"{}\" already exists", bind.portal);
            return Err(SqlError::new(state::DUPLICATE_CURSOR, message).into());
        }
        if bind.portal.is_empty() {
            self.close_held("").await?;
        }
        self.check_names(self.portals.len())?;
        if let Some(analysed) = &named.prepared.analysed {
            self.check_transaction(analysed.statement.kind())?;
        }
        // What stands there for literals has a name of its own.
        let name = if inlined.inline.is_some() { None } else { Some(bind.statement) };
        let Named { prepared, told: description } = self.as_told(name, named).await?;
        let values = bind.values()?;
        check_count(&bind, &values, description.parameters.len())?;
        if let Some(analysed) = &prepared.analysed
            && !is_own(analysed.statement.kind(), &self.own)
            && !self.held.concerns(analysed.statement.kind())
            && !self.embedded
            && self.bind_on_shard(&bind, &values, analysed, &prepared, &description).await?
        {
            self.put_portal(bind.portal, Portal::Shard);
            return Ok(());
        }
        let rest = Bytes::copy_from_slice(bind.rest);
        let bound = Bound { prepared, rest, description };
        self.put_portal(bind.portal, Portal::Own(Arc::new(bound)));
        self.say(reply::BIND_COMPLETE);
        Ok(())
    }

    fn put_portal(&mut self, name: &str, portal: Portal) {
        match self.portals.get_mut(name) {
            Some(known) => *known = portal,
            None => drop(self.portals.insert(name.into(), portal)),
        }
    }

    /// Binds on the one shard that the values say; false if they say several.
    async fn bind_on_shard(
        &mut self,
        bind: &codec::Bind<'_>,
        values: &Values<'_>,
        analysed: &Analysed,
        prepared: &Prepared,
        description: &Description,
    ) -> Result<bool, Stop> {
        let params = params(values, &description.parameters);
        let (route, analysis) = self.route(analysed, &params).await?;
        let Some(wanted) = Wanted::of(&route) else { return Ok(false) };
        if self.asks_home(&wanted, &analysis) {
            return Ok(false);
        }
        let access = if analysis.writes() { Access::Write } else { Access::Read };
        self.check_global(&analysis)?;
        self.order_locks(&wanted, &analysis).await?;
        self.acquire(&wanted, access).await?;
        self.note_movable(&analysed.statement, &route, &analysis);
        self.note_effects(&analysed.statement, &analysis);
        if self.is_beginning() {
            Box::pin(self.begun()).await?;
        }
        let Some(backend) = &mut self.backend else { return Ok(false) };
        if description.own_types && !backend.is_home() {
            let bound = Translated {
                portal: bind.portal,
                id: description.id,
                text: &prepared.text,
                types: &prepared.types,
                parameters: &description.parameters,
                row_message: &description.row_message,
                rest: bind.rest,
                results: &values.results,
            };
            Box::pin(backend.bind_translated(bound)).await?;
            return Ok(true);
        }
        backend.prepare_as(description.id, &prepared.text, &prepared.types, &description.parameters);
        backend.bind(bind.portal, description.id, bind.rest);
        Ok(true)
    }

    /// `D`.
    pub(super) async fn describe(&mut self, body: &[u8]) -> Done {
        let named = codec::Named::read(body)?;
        if named.what == b'S' {
            let Some(Named { prepared, .. }) = self.statements.get(named.name).cloned() else {
                return Err(no_statement(named.name).into());
            };
            let inline = prepared.inline.as_ref();
            let description = self.description(inline.map_or(&prepared, |inline| &inline.of)).await?;
            match inline {
                // As the client wrote it.
                Some(_) => self.say(NO_PARAMETERS),
                None => self.say(&description.parameter_message),
            }
            self.say(&description.row_message);
            return Ok(());
        }
        match self.portals.get(named.name) {
            None => self.describe_cursor(named.name).await,
            Some(Portal::Shard) => {
                if let Some(backend) = &mut self.backend {
                    backend.describe_portal(named.name);
                }
                Ok(())
            }
            Some(Portal::Own(bound)) => {
                let message = with_formats(&bound.description.row_message, &bound.values()?.results);
                self.say(&message);
                Ok(())
            }
        }
    }

    /// What the columns of a cursor are that SQL has declared.
    async fn describe_cursor(&mut self, name: &str) -> Done {
        if let Some(columns) = self.columns_of_held(name).await? {
            self.say(&columns);
            return Ok(());
        }
        match &mut self.backend {
            // It knows if there is one.
            Some(backend) if !self.transaction.is_none() => {
                backend.describe_portal(name);
                Ok(())
            }
            _ => Err(no_portal(name).into()),
        }
    }

    /// `E`.
    pub(super) async fn execute(&mut self, body: &[u8]) -> Done {
        let execute = codec::Execute::read(body)?;
        self.check_still_there()?;
        match self.portals.get(execute.portal) {
            None => Err(no_portal(execute.portal).into()),
            Some(Portal::Shard) => {
                let Some(backend) = &mut self.backend else { return Err(no_portal(execute.portal).into()) };
                backend.execute(execute.portal, execute.rows_max);
                if backend.waiting_bytes() > SERIES_BYTES { Box::pin(self.settle()).await } else { Ok(()) }
            }
            Some(Portal::Own(bound)) => {
                let bound = bound.clone();
                self.settle().await?;
                if self.held.has(execute.portal) {
                    return self.more_of_portal(execute.portal, execute.rows_max).await;
                }
                if self.embedded && bound.writes() && !self.client.has_sync() {
                    self.begin_in_series_lite();
                }
                self.asked = Some((execute.portal.to_owned(), execute.rows_max));
                let done = Box::pin(self.run_bound(&bound)).await;
                self.asked = None;
                done
            }
        }
    }

    /// Carries out a portal of the door's own.
    async fn run_bound(&mut self, bound: &Bound) -> Done {
        let Some(analysed) = &bound.prepared.analysed else {
            self.client.out.extend_from_slice(reply::EMPTY_QUERY);
            return Ok(());
        };
        self.check_transaction(analysed.statement.kind())?;
        let values = bound.values()?;
        let params = params(&values, &bound.description.parameters);
        self.extended = true;
        self.formats.clone_from(&values.results);
        self.types = bound.prepared.types.clone();
        let done = Box::pin(self.run_extended(analysed, &params)).await;
        self.extended = false;
        done
    }

    pub(super) async fn run_extended(&mut self, analysed: &Analysed, params: &[Param<'_>]) -> Done {
        if let Kind::Polyshard(call) = analysed.statement.kind() {
            self.commit_series().await?;
            return self.command(call, params).await;
        }
        if self.outlives_statement(analysed.statement.kind()) {
            self.begin_implicitly();
            let done = Box::pin(self.run_extended(analysed, params)).await;
            return self.end_alone(true, done).await;
        }
        if self.run_own(analysed).await? {
            return if self.told && self.transaction.is_none() { Err(Stop::Told) } else { Ok(()) };
        }
        if self.embedded {
            let (types, said) = (self.types.clone(), self.client.said());
            match self.run_lite_again(analysed, params, &types).await {
                // The shard came to another engine while the statement waited: nothing was sent.
                Err(Stop::Refused(error))
                    if self.client.said() == said && Box::pin(self.is_elsewhere(&error)).await => {}
                done => return done,
            }
        }
        if let Some(refusal) = &analysed.refusal {
            return Err(refusal.clone().into());
        }
        let (route, analysis) = self.route(analysed, params).await?;
        match Wanted::of(&route) {
            // It was of several shards when it was bound, or is one that the door carries out: COPY, TRUNCATE.
            Some(wanted) if self.asks_home(&wanted, &analysis) => {
                let text = self.literal_text(analysed, params).await?;
                Box::pin(self.run_at_home(&text)).await
            }
            Some(wanted) => {
                self.check_global(&analysis)?;
                self.order_locks(&wanted, &analysis).await?;
                let access = if analysis.writes() { Access::Write } else { Access::Read };
                self.acquire(&wanted, access).await?;
                self.note_effects(&analysed.statement, &analysis);
                self.note_movable(&analysed.statement, &route, &analysis);
                let text = self.literal_text(analysed, params).await?;
                self.pass_alone(&text).await
            }
            None => self.run_elsewhere(analysed, route, params).await,
        }
    }

    /// `C`.
    pub(super) async fn close(&mut self, body: &[u8]) -> Done {
        let named = codec::Named::read(body)?;
        if named.what != b'S' {
            self.close_held(named.name).await?;
        }
        if named.what == b'S' {
            self.statements.remove(named.name);
        } else if let Some(Portal::Shard) = self.portals.remove(named.name)
            && let Some(backend) = &mut self.backend
        {
            backend.close_portal(named.name);
            return Ok(());
        }
        self.say(reply::CLOSE_COMPLETE);
        Ok(())
    }
}

/// Refuses values that are more or fewer than a statement has parameters.
fn check_count(bind: &codec::Bind<'_>, values: &Values<'_>, count: usize) -> Result<(), SqlError> {
    if values.values.len() == count {
        return Ok(());
    }
    let message = format!(
        "bind message supplies {} parameters, but prepared statement \"{}\" requires {count}",
        values.values.len(),
        bind.statement,
    );
    Err(SqlError::new(state::PROTOCOL_VIOLATION, message))
}

/// A RowDescription with the forms that a portal's values come in: of the statement alone they are not known.
fn with_formats(message: &[u8], formats: &[bool]) -> Vec<u8> {
    let mut message = message.to_vec();
    if message.first() != Some(&b'T') || formats.is_empty() {
        return message;
    }
    let mut at = 7;
    let mut column = 0;
    while let Some(end) = message.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) {
        // Table, column, type, length and modifier; then the form.
        let format = at + end + 1 + 16;
        let binary =
            if formats.len() == 1 { formats[0] } else { formats.get(column).copied().unwrap_or(false) };
        if let Some(place) = message.get_mut(format..format + 2) {
            place.copy_from_slice(&u16::from(binary).to_be_bytes());
        }
        at = format + 2;
        column += 1;
    }
    message
}

fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(state::INVALID_STATEMENT_NAME, message)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new(state::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
}

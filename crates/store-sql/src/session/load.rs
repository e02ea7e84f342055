//! COPY into several shards: each row goes to the shard of its key.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{Buf, BufMut, BytesMut};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::{Access, Ticket, View};
use polyshard_sql::{
    Analysis, Context, Copy, CopyOther, CopyWhat, Param, ParamValue, Placement, SqlError, SqlState,
    Statement, Table, TypeOid, quoted,
};

use super::numbers::Numbers;
use super::place::{RoutedBy, is_outdated};
use super::{Done, Session, Stop};
use crate::backend::{Broken, Drained};
use crate::door::ViewMaps;
use crate::reply::{self, state};
use crate::rows::{Form, ROW_BYTES_MAX};

/// Bytes gathered for a shard before they are sent.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where rows go.
struct Keyed {
    analysis: Analysis,
    /// The table's name, for errors.
    table: String,
    type_oid: TypeOid,
    /// The key's place among the fields.
    field: usize,
    columns: usize,
    /// Whether keys come in binary form.
    binary: bool,
    /// The last key, and the place of its shard: rows often come in runs.
    last: (Vec<u8>, Option<usize>),
}

impl Keyed {
    /// The place of the shard that a row with this key belongs to.
    fn place(
        &mut self,
        key: Option<Cow<'_, [u8]>>,
        view: &View,
        numbers: &mut Numbers,
    ) -> Result<usize, SqlError> {
        if let (Some(key), (last, Some(place))) = (&key, &self.last)
            && **key == **last
        {
            return Ok(*place);
        }
        let form = if self.binary { ParamValue::Binary } else { ParamValue::Text };
        let value = key.as_deref().map_or(ParamValue::Null, form);
        let param = Param { type_oid: self.type_oid, value };
        let place = numbers.place(self.analysis.shard_of_row(&[param], &ViewMaps(view))?);
        if let Some(key) = &key {
            self.last.0.clear();
            self.last.0.extend_from_slice(key);
            self.last.1 = Some(place);
        }
        Ok(place)
    }
}

impl Session {
    /// COPY into a table whose rows are on several shards.
    pub(super) async fn copy_many(
        &mut self,
        statement: &Statement,
        copy: &Copy,
        ranges: &[(MapName, Vec<KeyRange>)],
        routed_by: Option<&RoutedBy>,
    ) -> Done {
        check_client(copy)?;
        if self.backend.is_some() || !self.parked.is_empty() {
            return Err(SqlError::unsupported(
                "COPY into several shards does not join a transaction that is on a shard already",
                "Run it first, or outside a transaction.",
            )
            .into());
        }
        let tickets = self.door.router.enter_ranges(ranges, Access::Write).await;
        let tickets = tickets.map_err(|error| reply::of_router(&error))?;
        if self.transaction.is_explicit() && !self.is_two_phase() {
            return Err(SqlError::unsupported(
                "COPY into several shards is not part of a transaction",
                "Run it outside a transaction, or SET polyshard.multi_shard = 'two_phase'.",
            )
            .into());
        }
        let alone = self.begin_alone();
        let mut copied = self.copy_into(statement, copy, tickets).await;
        if copied.is_ok()
            && let Err(stop) = self.check_routed(routed_by).await
        {
            // The client has sent its rows: it is not asked for them once more.
            copied = Err(match stop {
                Stop::Refused(error) if is_outdated(&error) => {
                    let message =
                        "tables or rights were changed while rows were copied; none of them was kept";
                    SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again.").into()
                }
                stop => stop,
            });
        }
        match copied {
            Ok(count) => {
                if alone {
                    self.commit_copy().await?;
                }
                reply::complete(&mut self.client.out, &format!("COPY {count}"));
                Ok(())
            }
            Err(stop) => self.end_alone(alone, Err(stop)).await,
        }
    }

    /// Commits what was copied: in two phases if the session asks for it, else on one shard after the other, once all
    /// have taken their rows.
    async fn commit_copy(&mut self) -> Done {
        self.park();
        if self.is_two_phase() || self.parked.len() < 2 {
            return self.end_alone(true, Ok(())).await;
        }
        let shards: Vec<ShardId> = self.parked.keys().cloned().collect();
        let mut done: Vec<ShardId> = Vec::new();
        for shard in &shards {
            self.switch_to(shard);
            let said = self.client.out.len();
            if let Err(stop) = self.commit_backend(true).await {
                if done.is_empty() {
                    return self.end_alone(true, Err(stop)).await;
                }
                // The shard's own words would say that nothing happened.
                self.client.out.truncate(said);
                let names = done.iter().map(ShardId::to_string).collect::<Vec<_>>().join(", ");
                let unknown = matches!(&stop, Stop::Refused(error) if error.state == state::OUTCOME_UNKNOWN);
                let message = if unknown {
                    format!("the rows of {names} are copied, of {shard}'s nobody knows, later ones' are not")
                } else {
                    format!("the rows of {names} are copied, those of {shard} and later ones are not")
                };
                let error = SqlError::new(state::OUTCOME_UNKNOWN, message)
                    .hint("SET polyshard.multi_shard = 'two_phase' makes it all or nothing.");
                return self.end_alone(true, Err(error.into())).await;
            }
            done.push(shard.clone());
        }
        self.end_alone(true, Ok(())).await
    }

    /// Takes the client's rows to their shards; how many were taken.
    async fn copy_into(
        &mut self,
        statement: &Statement,
        copy: &Copy,
        mut tickets: BTreeMap<ShardId, Vec<Ticket>>,
    ) -> Result<u64, Stop> {
        let form = Form::of(copy)?;
        let mut keyed = self.keyed(copy).await?;
        keyed.binary = form.binary;
        self.ask_for_data(keyed.columns, form.binary);
        let mut numbers = Numbers::default();
        let mut header: Option<Vec<u8>> = None;
        let mut buffer = BytesMut::new();
        // Rows that wait to be sent, by the place of their shard.
        let mut waiting: Vec<BytesMut> = Vec::new();
        let (mut ended, mut over) = (false, false);
        while !over {
            let (kind, body) = self.client.next().await?;
            match kind {
                b'd' => buffer.extend_from_slice(&body),
                b'c' => {
                    over = true;
                    if !form.binary && !buffer.is_empty() && !buffer.ends_with(b"\n") {
                        buffer.put_u8(b'\n');
                    }
                }
                kind => other_than_data(kind, &body)?,
            }
            if form.binary && header.is_none() {
                let Some(end) = Form::binary_header(&buffer)? else { continue };
                header = Some(buffer.split_to(end).to_vec());
            }
            // Tickets keep the ranges where they are: one look at the map is good for all rows at hand.
            let view = self.door.router.view();
            let mut taken = 0;
            while let Some(length) = form.row_end(&buffer[taken..]) {
                let row = &buffer[taken..taken + length];
                taken += length;
                if form.header && header.is_none() {
                    numbers.header(row);
                    header = Some(row.to_vec());
                    continue;
                }
                if ended || form.is_end(row) {
                    ended = true;
                    continue;
                }
                let key = form.key(row, keyed.field);
                let place = key.and_then(|key| keyed.place(key, &view, &mut numbers));
                let place = place.map_err(|error| numbers.here(error, &keyed.table))?;
                numbers.row(row, place);
                if waiting.len() <= place {
                    waiting.resize_with(place + 1, BytesMut::new);
                }
                let rows = &mut waiting[place];
                rows.extend_from_slice(row);
                if rows.len() >= CHUNK_BYTES {
                    let shard = numbers.shard(place).clone();
                    let fed = self.feed(statement, &shard, &mut tickets, rows, header.as_deref()).await;
                    fed.map_err(|stop| placed(stop, &numbers, &shard))?;
                    rows.clear();
                }
            }
            buffer.advance(taken);
            if buffer.len() > ROW_BYTES_MAX {
                let message = "a row of COPY is longer than 64 MiB: most likely a quote is left open";
                return Err(SqlError::new(state::BAD_COPY, message).into());
            }
        }
        if buffer.has_remaining() {
            return Err(SqlError::new(state::BAD_COPY, "the last row of COPY is not whole").into());
        }
        for (place, rows) in waiting.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let shard = numbers.shard(place).clone();
            let fed = self.feed(statement, &shard, &mut tickets, rows, header.as_deref()).await;
            fed.map_err(|stop| placed(stop, &numbers, &shard))?;
        }
        self.end_feeding(if form.binary { b"\xff\xff" } else { b"" }, &numbers).await
    }

    /// Tells the client to send its data.
    pub(crate) fn ask_for_data(&mut self, columns: usize, binary: bool) {
        reply::message(&mut self.client.out, b'G', |out| {
            out.put_u8(u8::from(binary));
            out.put_u16(u16::try_from(columns).unwrap_or(u16::MAX));
            for _ in 0..columns {
                out.put_u16(u16::from(binary));
            }
        });
    }

    async fn keyed(&mut self, copy: &Copy) -> Result<Keyed, Stop> {
        let CopyWhat::Table { name, columns } = &copy.what else {
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, "COPY of no table").into());
        };
        let schema = self.current_schema().await?;
        let table = super::target::table_called(&schema, name, &self.search_path)?;
        let Placement::Sharded { column, .. } = &table.placement else {
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, "COPY by key of a table without one").into());
        };
        let names = given_columns(table, columns);
        let key = &table.columns[*column];
        let field = names.iter().position(|name| *name == key.name).ok_or_else(|| {
            SqlError::new(state::NOT_NULL_VIOLATION, format!("COPY leaves out the key column {}", key.name))
                .hint("Every row needs its key, to be placed by it.")
        })?;
        let text = insert_of(table, &key.name);
        let parsed = polyshard_sql::statements(&text)?;
        let context = Context { schema: &schema, search_path: &self.search_path, strict: true };
        let insert = parsed.first().ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "no statement"))?;
        let analysis = polyshard_sql::analyse(insert, &context)?;
        Ok(Keyed {
            analysis,
            table: name.name.clone(),
            type_oid: key.type_oid,
            field,
            columns: names.len(),
            binary: false,
            last: (Vec::new(), None),
        })
    }

    /// Gives rows to their shard, which begins its COPY with the first.
    async fn feed(
        &mut self,
        statement: &Statement,
        shard: &ShardId,
        tickets: &mut BTreeMap<ShardId, Vec<Ticket>>,
        rows: &[u8],
        header: Option<&[u8]>,
    ) -> Done {
        if !self.switch_to(shard) {
            let Some(tickets) = tickets.remove(shard) else {
                let message = "a range was moved while its rows were copied";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message)
                    .hint("Try again.")
                    .into());
            };
            self.park();
            self.open_with(tickets, Vec::new(), true).await?;
            self.note_write(true);
            let Some(backend) = &mut self.backend else { return Ok(()) };
            backend.gather(true);
            backend.query(statement.text(), true);
            let mut failed = false;
            match backend.drain(&mut self.client, &mut failed).await {
                Ok(Drained::CopyIn) => {}
                Ok(Drained::Done) => return Err(self.feeding_failed(shard)),
                Err(Broken::Client(gone)) => return Err(Stop::Gone(gone)),
                Err(Broken::Ended(error) | Broken::Cut(error)) => return Err(error.into()),
            }
            if let Some(header) = header {
                backend.pass(b'd', header);
            }
        }
        let Some(backend) = &mut self.backend else { return Ok(()) };
        // Many rows in one message: the server spends less on them.
        backend.pass(b'd', rows);
        if let Err(broken) = backend.flush().await {
            return Err(super::global::of_broken(broken, shard).into());
        }
        if backend.has_said() {
            let mut failed = false;
            if !matches!(backend.drain(&mut self.client, &mut failed).await, Ok(Drained::CopyIn)) {
                return Err(self.feeding_failed(shard));
            }
        }
        Ok(())
    }

    /// The error of the shard that just refused a row.
    fn feeding_failed(&mut self, shard: &ShardId) -> Stop {
        let body = self.backend.as_mut().and_then(|backend| backend.take_quiet_error());
        match body {
            Some(body) => super::global::of_body(&body, shard).into(),
            None => SqlError::new(state::BAD_COPY, format!("shard {shard} ended COPY early")).into(),
        }
    }

    /// Ends the COPY of every shard; how many rows they took.
    async fn end_feeding(&mut self, trailer: &[u8], numbers: &Numbers) -> Result<u64, Stop> {
        self.park();
        for backend in self.parked.values_mut() {
            if !trailer.is_empty() {
                backend.pass(b'd', trailer);
            }
            backend.pass(b'c', b"");
            if let Err(broken) = backend.flush().await {
                return Err(super::global::of_broken(broken, &backend.shard).into());
            }
        }
        let mut count = 0;
        for backend in self.parked.values_mut() {
            let ended = super::global::quietly(backend, &mut self.client).await;
            ended.map_err(|error| numbers.placed(error, &backend.shard))?;
            count += backend.gathered().map_or(0, |(_, count)| count);
        }
        Ok(count)
    }
}

/// Refuses files and programs of a server.
pub(crate) fn check_client(copy: &Copy) -> Result<(), SqlError> {
    if copy.other == CopyOther::Client {
        return Ok(());
    }
    Err(SqlError::unsupported(
        "COPY from or to files of a server is not offered",
        "Use STDIN and STDOUT, as psql's \\copy does.",
    ))
}

/// What a message other than data and its end means while data is copied.
pub(crate) fn other_than_data(kind: u8, body: &[u8]) -> Done {
    match kind {
        b'f' => {
            let why = crate::codec::text(body).unwrap_or_default();
            Err(SqlError::new(state::QUERY_CANCELED, format!("COPY from stdin failed: {why}")).into())
        }
        b'H' | b'S' => Ok(()),
        _ => {
            let message = "another message came while data was copied";
            Err(Stop::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)))
        }
    }
}

fn placed(stop: Stop, numbers: &Numbers, shard: &ShardId) -> Stop {
    match stop {
        Stop::Refused(error) => Stop::Refused(numbers.placed(error, shard)),
        stop => stop,
    }
}

/// The columns that COPY gives values, in order.
pub(crate) fn given_columns<'t>(table: &'t Table, named: &'t [String]) -> Vec<&'t str> {
    match named {
        [] => {
            let given = table.columns.iter().filter(|column| is_given(column));
            given.map(|column| column.name.as_str()).collect()
        }
        named => named.iter().map(String::as_str).collect(),
    }
}

/// Whether COPY gives a column a value: those that are computed get none.
pub(super) fn is_given(column: &polyshard_sql::Column) -> bool {
    column.generated != polyshard_sql::Generated::Stored
}

/// An INSERT that names the key alone: where it goes, the row goes.
fn insert_of(table: &Table, key: &str) -> String {
    let (schema, name) = (quoted(&table.name.schema), quoted(&table.name.name));
    format!("INSERT INTO {schema}.{name} ({}) VALUES ($1)", quoted(key))
}

//! Questions of the door's own to a shard's session, when nothing else is under way.

use bytes::{BufMut, Bytes, BytesMut};
use polyshard_sql::{SqlError, SqlState};

use super::words::{lost, parse, put_name, texts, whole};
use super::{Backend, Broken, Step};
use crate::reply;

impl Backend {
    /// Asks something of our own, when nothing else is under way: the first field of its first row.
    pub async fn ask(&mut self, sql: &str) -> Result<String, polyshard_engine::Error> {
        self.calm().await?;
        let rows = self.lent().run_simple(sql).await?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten().unwrap_or_default())
    }

    /// Likewise, the first row.
    pub async fn ask_row(&mut self, sql: &str) -> Result<Vec<Option<String>>, polyshard_engine::Error> {
        self.calm().await?;
        Ok(self.lent().run_simple(sql).await?.into_iter().next().unwrap_or_default())
    }

    /// Likewise, all rows.
    pub async fn ask_all(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, polyshard_engine::Error> {
        self.calm().await?;
        self.lent().run_simple(sql).await
    }

    /// Likewise, the first field of every row.
    pub async fn ask_rows(&mut self, sql: &str) -> Result<Vec<String>, polyshard_engine::Error> {
        self.calm().await?;
        let rows = self.lent().run_simple(sql).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
    }

    /// Runs a statement of our own, when nothing else is under way.
    pub async fn run(
        &mut self,
        statement: &polyshard_engine::Statement,
    ) -> Result<(), polyshard_engine::Error> {
        self.run_rows(statement).await.map(drop)
    }

    /// Likewise, with its rows.
    pub async fn run_rows(
        &mut self,
        statement: &polyshard_engine::Statement,
    ) -> Result<polyshard_engine::Rows, polyshard_engine::Error> {
        self.calm().await?;
        let Some(leave) = self.leave().cloned() else { return self.lent().run(statement).await };
        leave.ask(statement.clone());
        self.lent().outgoing().put_slice(b"F\0\0\0\x04");
        self.lent().flush().await?;
        loop {
            let (kind, body) = self.lent().next().await?;
            if kind == b'Z' {
                self.status = body.first().copied().unwrap_or(b'I');
                break;
            }
        }
        let silent = || polyshard_engine::Error::invalid("a session inside did not answer");
        leave.take_answer().unwrap_or_else(|| Err(silent()))
    }

    /// Runs a statement that was recorded for this shard's engine.
    pub async fn run_recorded(&mut self, sql: &str) -> Result<(), polyshard_engine::Error> {
        match self.is_inside() {
            true => self.run(&polyshard_engine::Statement::new(sql)).await,
            false => self.ask_row(sql).await.map(drop),
        }
    }

    /// Waits for the answers to what was sent quietly, so that something of our own can be asked.
    async fn calm(&mut self) -> Result<(), polyshard_engine::Error> {
        debug_assert!(self.steps.iter().all(|step| matches!(step, Step::Query { quiet: true })));
        self.lent().flush().await?;
        while !self.steps.is_empty() {
            let (kind, body) = self.lent().next().await?;
            match kind {
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    self.steps.pop_front();
                }
                b'E' => drop(self.quiet_error.get_or_insert(body)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Prepares a statement and asks what it is like; [`Backend::described`] has the answer. The name is noted only
    /// once the server has taken it.
    pub fn ask_description(&mut self, id: u64, text: &str, types: &[u32], end: bool) {
        self.in_series = !end;
        let id = self.number(id);
        // Its answer is passed over with everything else that is no description.
        self.make_room();
        let out = self.lent().outgoing();
        parse(out, id, text, types);
        reply::message(out, b'D', |out| {
            out.put_u8(b'S');
            put_name(out, id);
        });
        out.put_slice(if end { b"S\0\0\0\x04" } else { b"H\0\0\0\x04" });
    }

    /// The answer to [`Backend::ask_description`], when nothing else is under way: the two messages, or the error's
    /// body.
    pub async fn described(
        &mut self,
        id: u64,
        end: bool,
    ) -> Result<Result<(Bytes, Bytes), BytesMut>, Broken> {
        self.flush().await?;
        let (mut parameters, mut row, mut failure) = (None, None, None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b't' => parameters = Some(whole(kind, &body)),
                b'T' | b'n' => row = Some(whole(kind, &body)),
                b'E' => {
                    self.check_fatal(&body)?;
                    failure = Some(body);
                    if !end {
                        return Ok(Err(failure.unwrap_or_default()));
                    }
                }
                b'Z' => self.status = body.first().copied().unwrap_or(b'I'),
                _ => {}
            }
            let over = if end { kind == b'Z' } else { row.is_some() };
            if !over {
                continue;
            }
            return match (failure, parameters, row) {
                (Some(failure), ..) => Ok(Err(failure)),
                (None, Some(parameters), Some(row)) => {
                    let id = self.number(id);
                    let notes = self.notes();
                    notes.uses += 1;
                    let uses = notes.uses;
                    notes.prepared.insert(id, uses);
                    let told = self.translate_description(parameters, row).await;
                    Ok(Ok(told.map_err(Broken::Ended)?))
                }
                _ => Err(Broken::Cut(SqlError::new(
                    SqlState::INTERNAL_ERROR,
                    "the shard did not describe a statement",
                ))),
            };
        }
    }

    /// Asks how the server writes these values as literals, each with its type; or the error's body.
    ///
    /// A value is written by its type's output, under settings by which nothing of it is lost. A type
    /// stands there with the modifier -1: `character` and `bit` by themselves mean a length of one.
    pub async fn ask_literals(
        &mut self,
        params: &[polyshard_sql::Param<'_>],
    ) -> Result<Result<Vec<String>, BytesMut>, Broken> {
        let own = self.params_here(params).await.map_err(Broken::Ended)?;
        let own: Option<Vec<_>> = own.as_ref().map(|own| own.iter().map(|own| own.param()).collect());
        let params = own.as_deref().unwrap_or(params);
        let part = |at| format!("format('%L', ${at}), format_type(pg_typeof(${at}), -1)");
        let text = format!("SELECT {}", (1..=params.len()).map(part).collect::<Vec<_>>().join(", "));
        self.calm().await.map_err(lost)?;
        let inside = self.status != b'I';
        if inside {
            let set = format!("SAVEPOINT polyshard_literals; SELECT {EXACT}");
            if let Err(body) = self.ask_openly(&set).await? {
                return Ok(Err(body));
            }
        }
        let out = self.lent().outgoing();
        if !inside {
            // Until the Sync it is one transaction, and what is set for it ends with it.
            put_unnamed(out, &format!("SELECT {EXACT}"), &[]);
        }
        put_unnamed(out, &text, params);
        out.put_slice(b"S\0\0\0\x04");
        let asked = self.last_row().await?;
        if inside && asked.is_ok() {
            let reset = "ROLLBACK TO polyshard_literals; RELEASE polyshard_literals";
            if let Err(body) = self.ask_openly(reset).await? {
                return Ok(Err(body));
            }
        }
        Ok(asked.map(|row| row.chunks_exact(2).map(|pair| format!("{}::{}", pair[0], pair[1])).collect()))
    }

    /// The last row of a series that was just written, up to its end; or the error's body.
    async fn last_row(&mut self) -> Result<Result<Vec<String>, BytesMut>, Broken> {
        self.flush().await?;
        let (mut row, mut failure) = (Vec::new(), None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b'D' => row = texts(&body),
                b'E' => {
                    self.check_fatal(&body)?;
                    failure = Some(body);
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    return Ok(failure.map_or(Ok(row), Err));
                }
                _ => {}
            }
        }
    }
}

/// Settings under which a value that is written is just this value when it is read. None of them changes what a text
/// from the client means: `DateStyle` keeps the order of day and month.
const EXACT: &str = "set_config('DateStyle', 'ISO', true), set_config('extra_float_digits', '1', true), \
    set_config('bytea_output', 'hex', true)";

/// Runs a text with these values, without a name: Parse, Bind and Execute.
fn put_unnamed(out: &mut BytesMut, text: &str, params: &[polyshard_sql::Param<'_>]) {
    use polyshard_sql::ParamValue;
    let count = u16::try_from(params.len()).unwrap_or(u16::MAX);
    reply::message(out, b'P', |out| {
        out.put_u8(0);
        out.put_slice(text.as_bytes());
        out.put_u8(0);
        out.put_u16(count);
        for param in params {
            out.put_u32(param.type_oid.0);
        }
    });
    reply::message(out, b'B', |out| {
        out.put_slice(&[0, 0]);
        out.put_u16(count);
        for param in params {
            out.put_u16(u16::from(matches!(param.value, ParamValue::Binary(_))));
        }
        out.put_u16(count);
        for param in params {
            match param.value {
                ParamValue::Null => out.put_i32(-1),
                ParamValue::Text(bytes) | ParamValue::Binary(bytes) => {
                    out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    out.put_slice(bytes);
                }
            }
        }
        out.put_u16(0);
    });
    reply::message(out, b'E', |out| out.put_slice(&[0, 0, 0, 0, 0]));
}

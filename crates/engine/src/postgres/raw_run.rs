//! Statements of our own on a raw session, for its introduction and for its user's housekeeping.

use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::{backend, frontend};
use tokio_postgres::types::{ToSql, Type};

use super::raw::RawSession;
use super::types::{self, Bound};
use crate::statement::Action;
use crate::{Error, Row, Rows, Statement, Value};

impl RawSession {
    /// Runs SQL without parameters, and waits until it is done; its rows are returned as text. Nothing else may be
    /// under way on the session.
    pub async fn run_simple(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        frontend::query(sql, &mut self.outgoing).map_err(|error| Error::invalid(error.to_string()))?;
        self.flush().await?;
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            match self.message().await? {
                backend::Message::DataRow(body) => {
                    let mut row = Vec::new();
                    let mut ranges = body.ranges();
                    while let Some(range) = ranges.next().map_err(unreadable)? {
                        let text = range.map(|range| {
                            String::from_utf8_lossy(&body.buffer()[range.start..range.end]).into_owned()
                        });
                        row.push(text);
                    }
                    rows.push(row);
                }
                backend::Message::ErrorResponse(body) => {
                    failure.get_or_insert(super::error::from_fields(body.fields(), &self.target));
                }
                backend::Message::ReadyForQuery(_) => return failure.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Runs one statement in a transaction of its own.
    pub async fn run(&mut self, statement: &Statement) -> Result<Rows, Error> {
        let Action::Sql { text, params } = &statement.action else {
            return Err(Error::invalid("a notification is not sent by a raw session"));
        };
        frontend::parse("", text, [], &mut self.outgoing).map_err(unreadable)?;
        frontend::describe(b'S', "", &mut self.outgoing).map_err(unreadable)?;
        frontend::sync(&mut self.outgoing);
        self.flush().await?;
        let (parameters, columns) = self.description().await?;
        if parameters.len() != params.len() {
            return Err(Error::invalid(format!(
                "the statement has {} parameters, but {} values are bound",
                parameters.len(),
                params.len()
            )));
        }
        let write = |(value, ty): (&Value, &Type), out: &mut BytesMut| {
            Bound(value).to_sql(ty, out).map(|null| match null {
                tokio_postgres::types::IsNull::Yes => IsNull::Yes,
                tokio_postgres::types::IsNull::No => IsNull::No,
            })
        };
        let values = params.iter().zip(&parameters);
        frontend::bind("", "", [1], values, write, [1], &mut self.outgoing).map_err(|error| match error {
            frontend::BindError::Conversion(error) => Error::invalid(error.to_string()),
            frontend::BindError::Serialization(error) => unreadable(error),
        })?;
        frontend::execute("", 0, &mut self.outgoing).map_err(unreadable)?;
        frontend::sync(&mut self.outgoing);
        self.flush().await?;
        let names: Arc<[String]> = columns.iter().map(|(name, _)| name.clone()).collect();
        let (rows, changed) = self.rows(&names, &columns).await?;
        let affected = if columns.is_empty() { changed } else { rows.len() as u64 };
        crate::group::check(0, statement.expect, affected)?;
        Ok(Rows { columns: names, rows, affected })
    }

    async fn description(&mut self) -> Result<(Vec<Type>, Vec<(String, Type)>), Error> {
        let mut parameters = Vec::new();
        let mut columns = Vec::new();
        let mut failure = None;
        let of = |oid| Type::from_oid(oid).unwrap_or(Type::UNKNOWN);
        loop {
            match self.message().await? {
                backend::Message::ParameterDescription(body) => {
                    parameters = body.parameters().map(|oid| Ok(of(oid))).collect().map_err(unreadable)?;
                }
                backend::Message::RowDescription(body) => {
                    let fields =
                        body.fields().map(|field| Ok((field.name().to_owned(), of(field.type_oid()))));
                    columns = fields.collect().map_err(unreadable)?;
                }
                backend::Message::ErrorResponse(body) => {
                    failure.get_or_insert(super::error::from_fields(body.fields(), &self.target));
                }
                backend::Message::ReadyForQuery(_) => {
                    return failure.map_or(Ok((parameters, columns)), Err);
                }
                _ => {}
            }
        }
    }

    async fn rows(
        &mut self,
        names: &Arc<[String]>,
        columns: &[(String, Type)],
    ) -> Result<(Vec<Row>, u64), Error> {
        let mut rows = Vec::new();
        let mut changed = 0;
        let mut failure = None;
        loop {
            match self.message().await? {
                // `UPDATE 3`, `INSERT 0 1`: the last word is how many.
                backend::Message::CommandComplete(body) => {
                    let tag = body.tag().map_err(unreadable)?;
                    changed = tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
                }
                backend::Message::DataRow(body) => {
                    let mut values = Vec::with_capacity(columns.len());
                    let mut ranges = body.ranges();
                    let mut types = columns.iter();
                    while let Some(range) = ranges.next().map_err(unreadable)? {
                        let ty = types.next().map_or(&Type::UNKNOWN, |(_, ty)| ty);
                        let bytes = range.map(|range| &body.buffer()[range.start..range.end]);
                        values.push(types::value(ty, bytes)?);
                    }
                    rows.push(Row { columns: names.clone(), values });
                }
                backend::Message::ErrorResponse(body) => {
                    failure.get_or_insert(super::error::from_fields(body.fields(), &self.target));
                }
                backend::Message::ReadyForQuery(_) => return failure.map_or(Ok((rows, changed)), Err),
                _ => {}
            }
        }
    }

    async fn message(&mut self) -> Result<backend::Message, Error> {
        loop {
            if self.whole()?.is_some()
                && let Some(message) = backend::Message::parse(&mut self.incoming).map_err(unreadable)?
            {
                return Ok(message);
            }
            self.fill().await?;
        }
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::Unavailable {
        message: format!("a message of PostgreSQL's protocol cannot be read or written: {error}"),
    }
}

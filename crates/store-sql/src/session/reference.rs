//! Writes to reference tables: made the same for every shard, whenever it runs them.

use polyshard_router::Access;
use polyshard_schema::{Added, EntryKind, Moment};
use polyshard_sql::{Context, Kind, Param, ParamValue, SqlError, SqlState, Statement, TypeOid, ast};

use super::place::Wanted;
use super::{Session, Stop};
use crate::backend::Broken;
use crate::cache::Analysed;
use crate::reply;
use crate::settings::quoted;

/// When the transaction began, and what time it is: in the one form that is read alike whatever is set.
pub(super) const TIMES: &str = "SELECT pg_catalog.replace(pg_catalog.to_json(now()) #>> '{}', 'T', ' '), \
    pg_catalog.replace(pg_catalog.to_json(clock_timestamp()) #>> '{}', 'T', ' ')";

impl Session {
    /// Refuses to ask for values that are to be written: as texts some would not be read as the same.
    pub(super) fn check_exact(&self) -> Result<(), SqlError> {
        if self.texts_are_exact() {
            return Ok(());
        }
        Err(SqlError::unsupported(
            "a value cannot be worked out under these settings: as a text it would be read as another",
            "SET DateStyle = 'ISO', IntervalStyle = 'postgres' and extra_float_digits = 1, or give the value itself.",
        ))
    }

    /// Writes to reference tables, on every shard; how its answer ends.
    pub(super) async fn write_reference(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
    ) -> Result<Option<String>, Stop> {
        if let Kind::Copy(copy) = analysed.statement.kind() {
            return Box::pin(self.copy_reference(copy)).await;
        }
        self.go_global().await?;
        let Some(first) = self.first_shard() else { return Ok(None) };
        self.switch_to(&first);
        let literals = self.literals(params).await?;
        let asked = |error: polyshard_engine::Error| Stop::Refused(reply::of_engine(&error));
        let schema = self.current_schema().await?;
        let Some(backend) = &mut self.backend else { return Ok(None) };
        let times = backend.ask_row(TIMES).await.map_err(asked)?;
        let mut times = times.into_iter().flatten();
        let (transaction, clock) = (times.next().unwrap_or_default(), times.next().unwrap_or_default());
        let moment = Moment { transaction: &transaction, statement: &clock };
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: self.own.strict };
        let write = polyshard_schema::reference_write(&analysed.statement, &context, &literals, moment)?;
        if write.depends_on_styles() {
            self.check_exact()?;
        }
        let Some(backend) = &mut self.backend else { return Ok(None) };
        let mut answers = Vec::new();
        for ask in write.asks() {
            let rows = backend.ask_all(&ask.query_for_all()).await.map_err(asked)?;
            answers.push(rows);
        }
        let written = write.fill(answers)?;
        let tag = self.run_everywhere(&written.sql, EntryKind::Rows).await?;
        self.run_after(written.after).await?;
        Ok(Some(tag))
    }

    /// Columns that a statement adds, whose default goes by the clock or would be another on each shard.
    pub(super) async fn added_columns(&mut self, statement: &Statement) -> Result<Option<Added>, Stop> {
        if !matches!(statement.ast(), Some(ast::Statement::AlterTable(_))) {
            return Ok(None);
        }
        let schema = self.current_schema().await?;
        let search_path = self.search_path.clone();
        let context = Context { schema: &schema, search_path: &search_path, strict: self.own.strict };
        let nothing = Moment { transaction: "", statement: "" };
        if polyshard_schema::added_columns(statement, &context, nothing)?.is_none() {
            return Ok(None);
        }
        self.go_global().await?;
        let Some(first) = self.first_shard() else { return Ok(None) };
        self.switch_to(&first);
        let Some(backend) = &mut self.backend else { return Ok(None) };
        let asked = |error: polyshard_engine::Error| Stop::Refused(reply::of_engine(&error));
        let times = backend.ask_row(TIMES).await.map_err(asked)?;
        let mut times = times.into_iter().flatten();
        let (transaction, clock) = (times.next().unwrap_or_default(), times.next().unwrap_or_default());
        let moment = Moment { transaction: &transaction, statement: &clock };
        let added = polyshard_schema::added_columns(statement, &context, moment)?;
        if let Some(Added { differs: Some((table, column)), .. }) = &added {
            let (schema, name) = (polyshard_sql::quoted(&table.schema), polyshard_sql::quoted(&table.name));
            let question = format!("SELECT EXISTS (SELECT 1 FROM {schema}.{name})");
            if backend.ask(&question).await.map_err(asked)? == "t" {
                return Err(Added::refusal(table, column).into());
            }
        }
        Ok(added)
    }

    /// A statement's text with the values in place of its parameters.
    pub(super) async fn literal_text(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
    ) -> Result<String, Stop> {
        let statement = &analysed.statement;
        if params.is_empty() {
            return Ok(statement.text().to_string());
        }
        let literals = self.literals(params).await?;
        Ok(polyshard_sql::with_literals(statement.text(), &literals)?)
    }

    /// Each parameter as an SQL literal with its type.
    pub(super) async fn literals(&mut self, params: &[Param<'_>]) -> Result<Vec<String>, Stop> {
        if self.embedded {
            return self.lite_literals(params);
        }
        let mut literals: Vec<Option<String>> = params.iter().map(local_literal).collect();
        if literals.iter().any(Option::is_none) {
            let asked = self.ask_literals(params).await?;
            for (literal, asked) in literals.iter_mut().zip(asked) {
                literal.get_or_insert(asked);
            }
        }
        Ok(literals.into_iter().flatten().collect())
    }

    /// The server itself says how it writes the values that are not plain.
    async fn ask_literals(&mut self, params: &[Param<'_>]) -> Result<Vec<String>, Stop> {
        if self.backend.as_ref().is_some_and(|backend| backend.is_inside()) {
            // Whoever answers for an SQLite shard knows its types alone: a server is asked, beside the transaction.
            self.settle().await?;
            let aside = (self.backend.take(), std::mem::take(&mut self.portals));
            let asked = Box::pin(self.ask_literals(params)).await;
            (self.backend, self.portals) = aside;
            return asked;
        }
        let lent_for_this = self.backend.is_none();
        let outside = lent_for_this.then(|| self.step_outside());
        if lent_for_this && let Err(stop) = self.acquire(&Wanted::Anywhere, Access::Read).await {
            if let Some(outside) = outside {
                self.step_inside(outside);
            }
            return Err(stop);
        }
        let told = match &mut self.backend {
            Some(backend) => backend.ask_literals(params).await,
            None => Err(Broken::Cut(SqlError::new(SqlState::INTERNAL_ERROR, "no session was lent"))),
        };
        if lent_for_this {
            self.release().await;
        }
        if let Some(outside) = outside {
            self.step_inside(outside);
        }
        match told {
            Ok(Ok(literals)) => Ok(literals),
            Ok(Err(body)) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
            Err(broken) => Err(self.lose_broken(broken).await),
        }
    }
}

/// A parameter of a plain type as a literal; the server is asked for others.
pub(crate) fn local_literal(param: &Param<'_>) -> Option<String> {
    let (name, whole): (&str, usize) = match param.type_oid {
        TypeOid::INT2 => ("smallint", 2),
        TypeOid::INT4 => ("integer", 4),
        TypeOid::INT8 => ("bigint", 8),
        TypeOid::TEXT => ("text", 0),
        TypeOid::VARCHAR => ("varchar", 0),
        TypeOid::UUID => ("uuid", 16),
        TypeOid::BOOL => ("boolean", 1),
        _ => return None,
    };
    let text = match param.value {
        ParamValue::Null => return Some(format!("NULL::{name}")),
        ParamValue::Text(text) => std::str::from_utf8(text).ok()?.to_owned(),
        ParamValue::Binary(text) if whole == 0 => std::str::from_utf8(text).ok()?.to_owned(),
        ParamValue::Binary(bytes) => match (param.type_oid, bytes.len() == whole) {
            (TypeOid::BOOL, true) => (bytes[0] != 0).to_string(),
            (TypeOid::INT2, true) => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
            (TypeOid::INT4, true) => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
            (TypeOid::INT8, true) => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
            _ => return None,
        },
    };
    Some(format!("{}::{name}", quoted(&text)))
}

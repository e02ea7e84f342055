//! Writes to reference tables: made the same for every shard, whenever it runs them.

use std::ops::ControlFlow;

use polyshard_journal::EntryKind;
use polyshard_router::Access;
use polyshard_sql::ast::{self, Expr, visit_expressions_mut};
use polyshard_sql::{Analysis, Kind, Param, ParamValue, SqlError, SqlState, TypeOid, Volatility};

use super::place::Wanted;
use super::{Done, Session, Stop};
use crate::backend::Broken;
use crate::cache::Analysed;
use crate::reply;
use crate::settings::quoted;

/// Functions that tell the time, as the statement's own text may call them, with the type of their answer.
const TIMES: [(&str, &str); 8] = [
    ("now", "timestamptz"),
    ("current_timestamp", "timestamptz"),
    ("transaction_timestamp", "timestamptz"),
    ("statement_timestamp", "timestamptz"),
    ("localtimestamp", "timestamp"),
    ("current_date", "date"),
    ("current_time", "timetz"),
    ("localtime", "time"),
];

impl Session {
    /// Writes to reference tables, on every shard.
    pub(super) async fn write_reference(
        &mut self,
        analysed: &Analysed,
        analysis: &Analysis,
        params: &[Param<'_>],
    ) -> Done {
        if let Kind::Copy(_) = analysed.statement.kind() {
            return Err(SqlError::unsupported(
                "COPY into a reference table is not offered",
                "Use INSERT, with several rows at a time.",
            )
            .into());
        }
        let mut times = false;
        for called in analysis.called() {
            let is_time = TIMES.iter().any(|(name, _)| *name == called.name);
            times |= is_time;
            if called.volatility == Volatility::Volatile || called.reads_tables {
                return Err(SqlError::unsupported(
                    format!("{}() may answer differently on each shard", called.name),
                    "Work the value out first, and write it as a constant.",
                )
                .into());
            }
        }
        self.go_global().await?;
        let Some(first) = self.first_shard() else { return Ok(()) };
        self.switch_to(&first);
        let mut text = self.literal_text(analysed, params).await?;
        if times {
            text = self.with_constant_times(analysed, &text).await?;
        }
        if *analysed.statement.kind() == Kind::Insert {
            text = self.with_defaults(&text).await?;
        }
        self.run_everywhere(&text, EntryKind::Rows).await
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
        let Some(tree) = statement.ast() else {
            return Err(SqlError::unsupported(
                "this statement cannot be run with parameters on several shards",
                "Write the values into the statement.",
            )
            .into());
        };
        let mut tree = tree.clone();
        let mut missing = None;
        let _: ControlFlow<()> = visit_expressions_mut(&mut tree, |expression| {
            if let Expr::Value(value) = expression
                && let ast::Value::Placeholder(name) = &value.value
            {
                let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                match number.and_then(|number| literals.get(number.wrapping_sub(1))) {
                    Some(literal) => *expression = raw(literal),
                    None => missing = Some(name.clone()),
                }
            }
            ControlFlow::Continue(())
        });
        match missing {
            None => Ok(tree.to_string()),
            Some(name) => {
                Err(SqlError::new(SqlState("42P02"), format!("there is no parameter {name}")).into())
            }
        }
    }

    /// Each parameter as an SQL literal with its type.
    pub(super) async fn literals(&mut self, params: &[Param<'_>]) -> Result<Vec<String>, Stop> {
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
            Err(Broken::Client(gone)) => Err(Stop::Gone(gone)),
            Err(Broken::Ended(error)) => Err(self.lose(error, false).await),
            Err(Broken::Cut(error)) => Err(self.lose(error, true).await),
        }
    }

    /// The text with the transaction's time in place of the functions that tell it.
    async fn with_constant_times(&mut self, analysed: &Analysed, text: &str) -> Result<String, Stop> {
        let parsed = polyshard_sql::statements(text)?;
        let Some(mut tree) = parsed.first().and_then(|statement| statement.ast().cloned()) else {
            return Err(SqlError::unsupported(
                format!("the time in {} cannot be made the same on every shard", analysed.statement.text()),
                "Write the time as a constant.",
            )
            .into());
        };
        let mut times = Vec::new();
        if let Some(backend) = &mut self.backend {
            for (_, kind) in TIMES {
                let now = backend.ask(&format!("SELECT now()::{kind}::text")).await;
                let now = now.map_err(|error| Stop::Refused(reply::of_engine(&error)))?;
                times.push(format!("{}::{kind}", quoted(&now)));
            }
        }
        let _: ControlFlow<()> = visit_expressions_mut(&mut tree, |expression| {
            if let Expr::Function(function) = expression {
                let name = function.name.to_string().to_lowercase();
                let name = name.trim_start_matches("pg_catalog.");
                if let Some(at) = TIMES.iter().position(|(known, _)| *known == name)
                    && let Some(time) = times.get(at)
                {
                    *expression = raw(time);
                }
            }
            ControlFlow::Continue(())
        });
        Ok(tree.to_string())
    }

    /// An INSERT that gives every column whose default may differ from shard to shard the first shard's value.
    async fn with_defaults(&mut self, text: &str) -> Result<String, Stop> {
        let parsed = polyshard_sql::statements(text)?;
        let Some(ast::Statement::Insert(insert)) = parsed.first().and_then(|statement| statement.ast())
        else {
            return Ok(text.to_owned());
        };
        let ast::TableObject::TableName(name) = &insert.table else { return Ok(text.to_owned()) };
        let parts: Vec<String> = name.0.iter().map(|part| ident(&part.to_string())).collect();
        let (schema_name, table_name) = match parts.as_slice() {
            [schema, table] => (Some(schema.as_str()), table.as_str()),
            [table] => (None, table.as_str()),
            _ => return Ok(text.to_owned()),
        };
        let schema = self.door.schema().await?;
        let Some(table) = schema.table(schema_name, table_name, &self.search_path) else {
            return Ok(text.to_owned());
        };
        let given: Vec<String> = insert.columns.iter().map(|column| ident(&column.to_string())).collect();
        let volatile = table.columns.iter().filter(|column| {
            (!given.is_empty() && !given.contains(&column.name)) && crate::determine::differs(column, &schema)
        });
        let volatile: Vec<_> = volatile.collect();
        let uses_default = text.to_lowercase().contains("default");
        if volatile.is_empty() && !(given.is_empty() || uses_default) {
            return Ok(text.to_owned());
        }
        crate::determine::check_positions(insert, table, &given, &schema, uses_default)?;
        if volatile.is_empty() {
            return Ok(text.to_owned());
        }
        let mut insert = insert.clone();
        let expressions = volatile.iter().map(|column| crate::determine::default_of(column, table));
        let ask = format!("SELECT {}", expressions.collect::<Vec<_>>().join(", "));
        for column in &volatile {
            insert.columns.push(crate::determine::object_name(&column.name));
        }
        let Some(rows) = crate::determine::rows_of(&mut insert) else {
            return Err(SqlError::unsupported(
                "rows of a query cannot be inserted into a reference table whose defaults differ from shard to shard",
                "Name every column, and give it a value.",
            )
            .into());
        };
        for row in rows {
            let Some(backend) = &mut self.backend else { break };
            let values = backend.ask_row(&ask).await;
            let values = values.map_err(|error| Stop::Refused(reply::of_engine(&error)))?;
            for (value, column) in values.iter().zip(&volatile) {
                let literal = match value {
                    None => "NULL".to_owned(),
                    Some(value) => format!("{}::{}", quoted(value), column.type_name),
                };
                row.content.push(raw(&literal));
            }
        }
        Ok(ast::Statement::Insert(insert).to_string())
    }
}

/// A piece of text as an expression, which is written as it is.
fn raw(text: &str) -> Expr {
    Expr::Identifier(ast::Ident::new(text))
}

/// A name as it is stored.
fn ident(written: &str) -> String {
    match written.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => written.to_lowercase(),
    }
}

/// A parameter of a plain type as a literal; the server is asked for others.
fn local_literal(param: &Param<'_>) -> Option<String> {
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

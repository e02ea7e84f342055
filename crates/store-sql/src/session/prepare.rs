//! PREPARE, EXECUTE and DEALLOCATE as SQL statements: kept by the door, beside those of the protocol, so that they
//! outlive the sharing of sessions; each EXECUTE goes where its own values say.

use std::sync::Arc;

use polyshard_router::Access;
use polyshard_sql::{Context, Execute, Explain, Kind, Prepare, SqlError, SqlState, TypeOid};

use super::named::Named;
use super::place::Wanted;
use super::{Done, Session, Stop};
use crate::backend::Broken;
use crate::cache::{Description, Prepared};
use crate::reply::{self, state};

/// Types by the names that PREPARE is given, the first of each being the one that is written back.
const TYPES: [(&str, u32); 46] = [
    ("boolean", 16),
    ("bool", 16),
    ("bytea", 17),
    ("name", 19),
    ("bigint", 20),
    ("int8", 20),
    ("smallint", 21),
    ("int2", 21),
    ("integer", 23),
    ("int4", 23),
    ("int", 23),
    ("text", 25),
    ("oid", 26),
    ("json", 114),
    ("real", 700),
    ("float4", 700),
    ("double precision", 701),
    ("float8", 701),
    ("float", 701),
    ("bpchar", 1042),
    ("character", 1042),
    ("char", 1042),
    ("varchar", 1043),
    ("character varying", 1043),
    ("date", 1082),
    ("time", 1083),
    ("time without time zone", 1083),
    ("timestamp", 1114),
    ("timestamp without time zone", 1114),
    ("timestamptz", 1184),
    ("timestamp with time zone", 1184),
    ("interval", 1186),
    ("numeric", 1700),
    ("decimal", 1700),
    ("uuid", 2950),
    ("jsonb", 3802),
    ("boolean[]", 1000),
    ("bool[]", 1000),
    ("integer[]", 1007),
    ("int[]", 1007),
    ("int4[]", 1007),
    ("text[]", 1009),
    ("varchar[]", 1015),
    ("bigint[]", 1016),
    ("int8[]", 1016),
    ("uuid[]", 2951),
];

/// Whether how a value of a type is written is the same under all settings, as far as is known.
fn is_plain(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        TypeOid::BOOL
            | TypeOid::INT2
            | TypeOid::INT4
            | TypeOid::INT8
            | TypeOid::NUMERIC
            | TypeOid::TEXT
            | TypeOid::VARCHAR
            | TypeOid::BPCHAR
            | TypeOid::NAME
            | TypeOid::OID
            | TypeOid::UUID
    )
}

impl Session {
    /// PREPARE.
    pub(super) async fn prepare_statement(&mut self, prepare: &Prepare) -> Done {
        let kind = prepare.statement.kind();
        if !matches!(kind, Kind::Select | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge) {
            let message = "only SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES can be prepared";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into());
        }
        if self.statements.contains_key(prepare.name.as_str()) {
            let message = format!("prepared statement \"{}\" already exists", prepare.name);
            return Err(SqlError::new(state::DUPLICATE_STATEMENT, message).into());
        }
        self.check_names(self.statements.len())?;
        let mut types = Vec::with_capacity(prepare.types.len());
        for name in &prepare.types {
            types.push(self.type_number(name).await?);
        }
        let prepared = self.door.cache.prepared(prepare.statement.text(), &types)?;
        let told = self.description(&prepared).await?;
        self.statements.insert(prepare.name.as_str().into(), Named { prepared, told });
        reply::complete(&mut self.client.out, "PREPARE");
        Ok(())
    }

    /// EXECUTE: the statement with its values, as if the client had sent it so.
    pub(super) async fn execute_statement(&mut self, execute: &Execute) -> Done {
        let text = self.executed_text(execute).await?;
        self.run_text(&text).await
    }

    /// EXPLAIN EXECUTE.
    pub(super) async fn explain_execute(&mut self, explain: &Explain, execute: &Execute) -> Done {
        let text = self.executed_text(execute).await?;
        self.run_text(&format!("{} {text}", explain.prefix)).await
    }

    async fn run_text(&mut self, text: &str) -> Done {
        let query = self.door.cache.query(text)?;
        let Some(analysed) = query.statements.first() else { return Ok(()) };
        if self.extended {
            Box::pin(self.run_extended(analysed, &[])).await
        } else {
            Box::pin(self.run_statement(analysed)).await
        }
    }

    /// What EXECUTE answers, for the extended protocol.
    pub(super) async fn describe_execute(&mut self, execute: &Execute) -> Result<Arc<Description>, Stop> {
        let prepared = self.prepared_by_name(&execute.name)?;
        let said = self.description(&prepared).await?;
        let row_message = said.row_message.clone();
        Ok(Arc::new(Description { row_message, ..Description::of_columns(&[], &[]) }))
    }

    fn prepared_by_name(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        self.statements.get(name).map(|named| named.prepared.clone()).ok_or_else(|| {
            let message = format!("prepared statement \"{name}\" does not exist");
            SqlError::new(state::INVALID_STATEMENT_NAME, message)
        })
    }

    async fn executed_text(&mut self, execute: &Execute) -> Result<String, Stop> {
        let prepared = self.prepared_by_name(&execute.name)?;
        let description = self.description(&prepared).await?;
        let (wanted, given) = (description.parameters.len(), execute.arguments.len());
        if wanted != given {
            let message = format!("wrong number of parameters for prepared statement \"{}\"", execute.name);
            let detail = format!("Expected {wanted} parameters but got {given}.");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).detail(detail).into());
        }
        let mut literals = Vec::with_capacity(given);
        for (argument, type_oid) in execute.arguments.iter().zip(&description.parameters) {
            literals.push(self.argument_literal(argument, *type_oid).await?);
        }
        Ok(polyshard_sql::with_literals(&prepared.text, &literals)?)
    }

    /// An argument as a literal of its parameter's type. It is worked out once, however often the statement uses it.
    async fn argument_literal(&mut self, argument: &str, type_oid: TypeOid) -> Result<String, Stop> {
        let type_name = self.type_name(type_oid).await?;
        if polyshard_sql::is_literal(argument) {
            // With parentheses: a sign binds less than the cast.
            return Ok(if argument.starts_with(['-', '+']) {
                format!("({argument})::{type_name}")
            } else {
                format!("{argument}::{type_name}")
            });
        }
        self.check_argument(argument).await?;
        if !is_plain(type_oid) {
            self.check_exact()?;
        }
        let worked_out = self.ask_any(&format!("SELECT CAST({argument} AS {type_name})::text")).await?;
        Ok(match worked_out {
            None => format!("NULL::{type_name}"),
            Some(value) => format!("{}::{type_name}", crate::settings::quoted(&value)),
        })
    }

    /// Arguments use no tables: on a shard they would see a part.
    async fn check_argument(&mut self, argument: &str) -> Done {
        if self.embedded {
            return Err(SqlError::unsupported(
                format!("the argument {argument} of EXECUTE is no literal"),
                "On SQLite shards, write the value itself.",
            )
            .into());
        }
        let parsed = polyshard_sql::statements(&format!("SELECT {argument}"))?;
        let [statement] = parsed.as_slice() else {
            return Err(
                SqlError::new(SqlState::SYNTAX_ERROR, "an argument of EXECUTE is no expression").into()
            );
        };
        // It is worked out on a session that others use next.
        if let Some(refusal) = crate::refuse::refusal(statement) {
            return Err(refusal.into());
        }
        let schema = self.current_schema().await?;
        let context = Context { schema: &schema, search_path: &self.search_path, strict: self.own.strict };
        let analysis = polyshard_sql::analyse(statement, &context)?;
        self.judge(statement, &analysis, &polyshard_sql::Route::Anywhere, &schema)?;
        if analysis.tables().is_empty() && *statement.kind() == Kind::Select {
            return Ok(());
        }
        Err(SqlError::unsupported("cannot use subquery in EXECUTE parameter", "Read the value first.").into())
    }

    /// The number of a type that PREPARE names.
    async fn type_number(&mut self, name: &str) -> Result<u32, Stop> {
        let plain = name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        // A length makes no difference to a parameter.
        let plain = match (plain.find('('), plain.find(')')) {
            (Some(open), Some(close)) if open < close => {
                format!("{}{}", plain[..open].trim_end(), &plain[close + 1..])
            }
            _ => plain,
        };
        if plain == "unknown" {
            return Ok(0);
        }
        if let Some((_, number)) = TYPES.iter().find(|(known, _)| *known == plain) {
            return Ok(*number);
        }
        if self.embedded {
            let message = format!("type \"{name}\" does not exist on SQLite shards");
            return Err(SqlError::new(SqlState("42704"), message).into());
        }
        let asked = format!("SELECT {}::pg_catalog.regtype::oid", crate::settings::quoted(name));
        let number = self.ask_any(&asked).await?.and_then(|number| number.parse().ok());
        let number = number
            .ok_or_else(|| SqlError::new(SqlState("42704"), format!("type \"{name}\" does not exist")))?;
        Ok(match &self.backend {
            Some(backend) => backend.type_for_client(number).await?,
            None => number,
        })
    }

    async fn type_name(&mut self, type_oid: TypeOid) -> Result<String, Stop> {
        if let Some((name, _)) = TYPES.iter().find(|(_, known)| *known == type_oid.0) {
            return Ok((*name).to_owned());
        }
        self.take_up();
        let here = match &self.backend {
            Some(backend) => backend.types_here(&[type_oid.0]).await?[0],
            None => type_oid.0,
        };
        let asked = format!("SELECT pg_catalog.format_type({here}, -1)");
        let name = if self.embedded { None } else { self.ask_any(&asked).await? };
        name.ok_or_else(|| {
            let message = format!("a parameter of type {} cannot be written as a literal", type_oid.0);
            SqlError::unsupported(message, "Use your driver's prepared statements.").into()
        })
    }

    /// Asks the shard that works for us, or any: the first field of the first row.
    async fn ask_any(&mut self, sql: &str) -> Result<Option<String>, Stop> {
        self.settle().await?;
        let outside = if self.backend.is_none() && self.parked.is_empty() {
            let outside = self.step_outside();
            if let Err(stop) = self.acquire(&Wanted::Anywhere, Access::Read).await {
                self.step_inside(outside);
                return Err(stop);
            }
            Some(outside)
        } else {
            self.take_up();
            None
        };
        let asked = match &mut self.backend {
            Some(backend) => backend.ask_openly(sql).await,
            None => Err(Broken::Cut(SqlError::new(SqlState::INTERNAL_ERROR, "no session was lent"))),
        };
        if let Some(outside) = outside {
            self.release().await;
            self.step_inside(outside);
        }
        match asked {
            Ok(Ok(rows)) => Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten()),
            Ok(Err(body)) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
            Err(broken) => Err(self.lose_broken(broken).await),
        }
    }
}

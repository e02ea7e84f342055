//! Commands called as functions of the schema `polyshard`.

use polyshard_map::{MapName, ShardId};
use polyshard_schema::Declaration;
use polyshard_sql::{Argument, Param, ParamValue, PolyshardCall, SqlError, SqlState, TableName};

use super::{Done, Session};
use crate::door::Undeclared;
use crate::reply::{self, Field};

/// The commands, for those who mistype one.
const COMMANDS: &str = "shard_table(table, map, column), reference_table(table), local_table(table, shard), \
     table_free(function), create_map(name, scheme, key type) and write_completed(name) are known, entity_upsert, \
     entity_merge, entity_insert, entity_delete, entity_get, enqueue and message_delete where tables and queues \
     are served, and next_id() in any expression";

impl Session {
    /// Carries out a command; its answer is one row of one text.
    pub(super) async fn command(&mut self, call: &PolyshardCall, params: &[Param<'_>]) -> Done {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(match argument {
                Argument::Null => None,
                Argument::Text(text) => Some(text.clone()),
                Argument::Parameter(number) => parameter(params, *number)?,
            });
        }
        let function = self.store_function(call);
        let asks = call.function == "write_completed";
        if function.is_none() && !asks {
            self.read_rights().await?;
            self.check_schema_right()?;
        }
        let answer = match function {
            Some(function) => Box::pin(self.call_store(function, call, &arguments)).await?,
            None if asks => self.write_completed(&arguments).await?,
            None => self.carry_out(call, &arguments).await?,
        };
        self.columns(&[Field::text(call.column())]);
        reply::data_row(&mut self.client.out, [answer.as_deref()].into_iter());
        reply::complete(&mut self.client.out, "SELECT 1");
        Ok(())
    }

    /// Tells the columns of an answer, where the protocol wants it.
    pub(crate) fn columns(&mut self, fields: &[Field]) {
        if !self.extended {
            reply::row_description(&mut self.client.out, fields, |_| false);
        }
    }

    async fn carry_out(
        &mut self,
        call: &PolyshardCall,
        arguments: &[Option<String>],
    ) -> Result<Option<String>, SqlError> {
        let wrong = |message: String| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message);
        let texts: Option<Vec<&str>> = arguments.iter().map(|argument| argument.as_deref()).collect();
        let texts = texts.ok_or_else(|| wrong(format!("polyshard.{} takes no NULL", call.function)))?;
        let map = |name: &str| MapName::new(name).map_err(|error| wrong(error.to_string()));
        let declaration = match (call.function.as_str(), texts.as_slice()) {
            ("shard_table", [table, by, column]) => {
                let table = self.table_name(table).await?;
                let column = self.column_name(&table, column).await?;
                Declaration::Sharded { table, map: map(by)?, column }
            }
            ("reference_table", [table]) => Declaration::Reference { table: self.table_name(table).await? },
            ("local_table", [table, shard]) => Declaration::Local {
                table: self.table_name(table).await?,
                shard: ShardId::new(shard).map_err(|error| wrong(error.to_string()))?,
            },
            ("table_free", [function]) => Declaration::TableFree { function: qualified(function) },
            ("create_map", [name, scheme, key_type]) => {
                let made = self.door.journal.create_map(name, scheme, key_type).await;
                made.map_err(|error| error.to_sql())?;
                return Ok(Some(String::new()));
            }
            (function, texts) => {
                let message =
                    format!("function polyshard.{function} with {} arguments does not exist", texts.len());
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).hint(COMMANDS));
            }
        };
        if self.transaction.global.is_some() || self.transaction.lite_turn.is_some() {
            // The table may be new in this very transaction.
            self.transaction.after.push(declaration);
        } else {
            self.door.journal.declare(declaration).await.map_err(|error| error.to_sql())?;
        }
        Ok(Some(String::new()))
    }

    /// Declarations for the new tables of a transaction that has none for them, where they are to be on one shard.
    pub(super) async fn placed_by_default(&self) -> Result<Vec<Declaration>, SqlError> {
        if self.door.limits.undeclared != Undeclared::Local {
            return Ok(Vec::new());
        }
        let made = match (&self.transaction.global, &self.transaction.lite_turn) {
            (Some(global), _) => global.made(),
            (None, Some(turn)) => turn.made(),
            // A transaction on one shard makes temporary tables alone.
            (None, None) => return Ok(Vec::new()),
        };
        let Some(within) = &self.transaction.schema else { return Ok(Vec::new()) };
        let shard = self.door.home()?;
        let said = |table: &TableName| {
            self.transaction.after.iter().any(|declaration| declaration.table() == Some(table))
        };
        // Those that a savepoint has undone are gone.
        let new = made.into_iter().filter(|table| within.tables.contains_key(table) && !said(table));
        Ok(new.map(|table| Declaration::Local { table, shard: shard.clone() }).collect())
    }

    /// Declares what a transaction has left for its end.
    pub(super) async fn declare_after(&mut self, declarations: Vec<Declaration>) -> Result<(), SqlError> {
        for declaration in declarations {
            if let Err(error) = self.door.journal.declare(declaration).await {
                let mut error = error.to_sql();
                error.message = format!("the transaction was committed, but then: {}", error.message).into();
                return Err(error);
            }
        }
        Ok(())
    }

    /// A table's full name: as it is found along the search path, or in the first schema of it.
    async fn table_name(&self, written: &str) -> Result<TableName, SqlError> {
        let written = written.trim();
        if written.contains('.') {
            return Ok(qualified(written));
        }
        let name = folded(written);
        let schema = self.current_schema().await?;
        // As SQL reads it, else just as it is written: tools that quote every name make tables called "Orders".
        for name in [name.as_str(), written] {
            if let Some(table) = schema.table(None, name, &self.search_path) {
                return Ok(table.name.clone());
            }
        }
        let schema = self.search_path.first().cloned().unwrap_or_else(|| "public".to_owned());
        Ok(TableName { schema, name })
    }

    /// A column's name, likewise.
    async fn column_name(&self, table: &TableName, written: &str) -> Result<String, SqlError> {
        let (name, written) = (folded(written), written.trim());
        let schema = self.current_schema().await?;
        let has = |name: &str| schema.tables.get(table).is_some_and(|table| table.column(name).is_some());
        Ok(if !has(&name) && has(written) { written.to_owned() } else { name })
    }
}

/// `schema.name`, each as SQL reads it; `public` if no schema is said.
fn qualified(written: &str) -> TableName {
    match written.split_once('.') {
        Some((schema, name)) => TableName { schema: folded(schema), name: folded(name) },
        None => TableName::public(folded(written)),
    }
}

/// A name as SQL reads it: in small letters, unless it is quoted.
fn folded(name: &str) -> String {
    let name = name.trim();
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

fn parameter(params: &[Param<'_>], number: u32) -> Result<Option<String>, SqlError> {
    let wrong = |why: &'static str| SqlError::new(SqlState::INVALID_PARAMETER_VALUE, why);
    let given = number.checked_sub(1).and_then(|at| params.get(at as usize));
    match given.map(|param| param.value) {
        None => Err(wrong("a parameter is missing")),
        Some(ParamValue::Null) => Ok(None),
        Some(ParamValue::Binary(bytes)) if !is_text(given) => binary(given, bytes)
            .map(Some)
            .ok_or_else(|| wrong("a parameter's type cannot be read in its binary form; send it as text")),
        // The door says that all of them are texts, whose two forms are the same.
        Some(ParamValue::Text(text) | ParamValue::Binary(text)) => {
            let text = std::str::from_utf8(text).map_err(|_| wrong("a parameter is not UTF-8"))?;
            Ok(Some(text.to_owned()))
        }
    }
}

/// Whether a type's binary form is its text: text, varchar, bpchar, name, json, and what has no type.
fn is_text(param: Option<&Param<'_>>) -> bool {
    param.is_none_or(|param| [0, 25, 1043, 1042, 19, 114, 705].contains(&param.type_oid.0))
}

/// A value in the binary form of a type that drivers choose by themselves, as text.
fn binary(param: Option<&Param<'_>>, bytes: &[u8]) -> Option<String> {
    Some(match param?.type_oid.0 {
        16 => (bytes == [1]).to_string(),
        20 => i64::from_be_bytes(bytes.try_into().ok()?).to_string(),
        21 => i16::from_be_bytes(bytes.try_into().ok()?).to_string(),
        23 => i32::from_be_bytes(bytes.try_into().ok()?).to_string(),
        2950 => uuid::Uuid::from_slice(bytes).ok()?.to_string(),
        // jsonb: a version, and then the text.
        3802 => String::from_utf8(bytes.strip_prefix(&[1])?.to_vec()).ok()?,
        _ => return None,
    })
}

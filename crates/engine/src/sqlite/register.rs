//! Registers the functions, aggregates and orders of text that the options name on a connection.

use rusqlite::functions::{Aggregate as RawAggregate, Context, FunctionFlags, WindowAggregate};

use super::connection::value;
use crate::{Accumulator, Aggregate, Options, ScalarFunction, Value};

/// Innocuous: they may be used in the triggers and indexes of the schema.
const FLAGS: FunctionFlags = FunctionFlags::SQLITE_UTF8
    .union(FunctionFlags::SQLITE_DETERMINISTIC)
    .union(FunctionFlags::SQLITE_INNOCUOUS);

pub(super) fn register(raw: &rusqlite::Connection, options: &Options) -> rusqlite::Result<()> {
    for function in &options.functions {
        scalar(raw, function)?;
    }
    for aggregate in &options.aggregates {
        raw.create_window_function(aggregate.name.as_str(), aggregate.arity, FLAGS, Made(aggregate.clone()))?;
    }
    for collation in &options.collations {
        raw.create_collation(collation.name.as_str(), collation.compare)?;
    }
    Ok(())
}

fn scalar(raw: &rusqlite::Connection, function: &ScalarFunction) -> rusqlite::Result<()> {
    let body = function.body.clone();
    raw.create_scalar_function(function.name.as_str(), function.arity, FLAGS, move |context| {
        body(&arguments(context)?).map(raw_value).map_err(failed)
    })
}

/// An aggregate as SQLite calls it.
struct Made(Aggregate);

impl RawAggregate<Box<dyn Accumulator>, rusqlite::types::Value> for Made {
    fn init(&self, _: &mut Context<'_>) -> rusqlite::Result<Box<dyn Accumulator>> {
        Ok((self.0.make)())
    }

    fn step(&self, context: &mut Context<'_>, gathered: &mut Box<dyn Accumulator>) -> rusqlite::Result<()> {
        gathered.step(&arguments(context)?).map_err(failed)
    }

    fn finalize(
        &self,
        _: &mut Context<'_>,
        gathered: Option<Box<dyn Accumulator>>,
    ) -> rusqlite::Result<rusqlite::types::Value> {
        let gathered = gathered.unwrap_or_else(|| (self.0.make)());
        gathered.value().map(raw_value).map_err(failed)
    }
}

impl WindowAggregate<Box<dyn Accumulator>, rusqlite::types::Value> for Made {
    fn value(&self, gathered: Option<&mut Box<dyn Accumulator>>) -> rusqlite::Result<rusqlite::types::Value> {
        let value = match gathered {
            Some(gathered) => gathered.value(),
            None => (self.0.make)().value(),
        };
        value.map(raw_value).map_err(failed)
    }

    fn inverse(
        &self,
        context: &mut Context<'_>,
        gathered: &mut Box<dyn Accumulator>,
    ) -> rusqlite::Result<()> {
        gathered.inverse(&arguments(context)?).map_err(failed)
    }
}

fn arguments(context: &Context<'_>) -> rusqlite::Result<Vec<Value>> {
    let mut arguments = Vec::with_capacity(context.len());
    for index in 0..context.len() {
        arguments.push(value(context.get_raw(index)).map_err(|error| failed(error.to_string()))?);
    }
    Ok(arguments)
}

fn failed(message: String) -> rusqlite::Error {
    rusqlite::Error::UserFunctionError(message.into())
}

fn raw_value(value: Value) -> rusqlite::types::Value {
    match value {
        Value::Null => rusqlite::types::Value::Null,
        Value::Bool(value) => rusqlite::types::Value::Integer(value.into()),
        Value::Int(value) => rusqlite::types::Value::Integer(value),
        Value::Real(value) => rusqlite::types::Value::Real(value),
        Value::Text(value) => rusqlite::types::Value::Text(value),
        Value::Blob(value) => rusqlite::types::Value::Blob(value),
    }
}

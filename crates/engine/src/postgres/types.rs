//! Values to and from PostgreSQL's binary form.

use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::Row as PgRow;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::{Error, Value};

/// A value that does not fit the parameter it is bound to.
#[derive(Debug)]
pub(crate) struct Unfit(String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unfit {}

/// A borrowed parameter.
#[derive(Debug)]
pub(crate) struct Bound<'a>(pub &'a Value);

type Written = Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

impl ToSql for Bound<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Written {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Bool(value) if *ty == Type::BOOL => out.put_u8((*value).into()),
            Value::Int(value) => return int(*value, ty, out),
            Value::Real(value) if *ty == Type::FLOAT8 => out.put_f64(*value),
            Value::Real(value) if *ty == Type::FLOAT4 => out.put_f32(*value as f32),
            Value::Text(value) if *ty == Type::UUID => {
                let uuid = uuid::Uuid::parse_str(value).map_err(|_| unfit(self.0, ty))?;
                out.put_slice(uuid.as_bytes());
            }
            Value::Text(value) if *ty == Type::JSONB => {
                // Version 1 of its binary form is the text behind this byte.
                out.put_u8(1);
                out.put_slice(value.as_bytes());
            }
            Value::Text(value) if is_text(ty) => {
                if value.contains('\0') {
                    let why = "a text with a zero byte cannot be stored in PostgreSQL: use a blob";
                    return Err(Box::new(Unfit(why.to_owned())));
                }
                out.put_slice(value.as_bytes());
            }
            Value::Blob(value) if *ty == Type::BYTEA => out.put_slice(value),
            other => return Err(unfit(other, ty)),
        }
        Ok(IsNull::No)
    }

    /// Everything is looked at in `to_sql`, where the value is known, too.
    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn int(value: i64, ty: &Type, out: &mut BytesMut) -> Written {
    let too_large = || Unfit(format!("{value} is out of range for {ty}"));
    match *ty {
        Type::INT8 => out.put_i64(value),
        Type::INT4 => out.put_i32(i32::try_from(value).map_err(|_| too_large())?),
        Type::INT2 => out.put_i16(i16::try_from(value).map_err(|_| too_large())?),
        Type::OID => out.put_u32(u32::try_from(value).map_err(|_| too_large())?),
        Type::FLOAT8 => out.put_f64(value as f64),
        // SQLite's booleans are numbers; a program written for both may bind one.
        Type::BOOL if value == 0 || value == 1 => out.put_u8(value as u8),
        _ => return Err(unfit(&Value::Int(value), ty)),
    }
    Ok(IsNull::No)
}

fn unfit(value: &Value, ty: &Type) -> Box<dyn std::error::Error + Sync + Send> {
    let name = value.type_name();
    Box::new(Unfit(format!("a value of type {name} was bound where {ty} is needed: cast the parameter")))
}

/// `unknown` is what a parameter is when the statement does not say.
fn is_text(ty: &Type) -> bool {
    matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UNKNOWN)
}

pub(crate) fn values(row: &PgRow) -> Result<Vec<Value>, Error> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        let value: Option<Column> = row.try_get(index).map_err(|error| {
            let column = &row.columns()[index];
            let cause = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            Error::invalid(format!("column {index} ({}): {cause}", column.name()))
        })?;
        values.push(value.map_or(Value::Null, |column| column.0));
    }
    Ok(values)
}

/// One value in binary form.
pub(crate) fn value(ty: &Type, raw: Option<&[u8]>) -> Result<Value, Error> {
    match raw {
        None => Ok(Value::Null),
        Some(raw) => Column::from_sql(ty, raw)
            .map(|column| column.0)
            .map_err(|error| Error::invalid(error.to_string())),
    }
}

/// A column read by its own type.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Column, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Column(match *ty {
            Type::BOOL => Value::Bool(bool::from_sql(ty, raw)?),
            Type::INT8 => Value::Int(i64::from_sql(ty, raw)?),
            Type::INT4 => Value::Int(i32::from_sql(ty, raw)?.into()),
            Type::INT2 => Value::Int(i16::from_sql(ty, raw)?.into()),
            Type::OID => Value::Int(u32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            Type::FLOAT4 => Value::Real(f32::from_sql(ty, raw)?.into()),
            Type::BYTEA => Value::Blob(raw.to_vec()),
            Type::UUID => Value::Text(uuid::Uuid::from_slice(raw)?.to_string()),
            Type::JSONB => match raw.split_first() {
                Some((1, text)) => Value::Text(std::str::from_utf8(text)?.to_owned()),
                _ => return Err("an unknown version of jsonb: cast it to text".into()),
            },
            // `SELECT pg_notify(…)` and other functions called for their effect.
            Type::VOID => Value::Null,
            _ if is_text(ty) => Value::Text(std::str::from_utf8(raw)?.to_owned()),
            _ => return Err(format!("type {ty} is not read directly: cast it to text or bigint").into()),
        }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

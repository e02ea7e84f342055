//! Conversions between types, and the checks of lengths and precisions.

use std::cmp::Ordering;

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::{SqlError, TypeOid};

use super::{Answer, int, plain, strict, text, variadic, zone};
use crate::fail::fail;
use crate::settings::{Settings, Zone};
use crate::types;
use crate::value::json::Json;
use crate::value::text::{Fit, input, limit, output};
use crate::value::{array, calendar};

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        // text, type, modifier, zone
        strict("pg_in", 4, |a| input(type_oid(&a[1])?, int(&a[2])? as i32, text(&a[0])?, &settings(&a[3])?)),
        // value, type, zone
        strict("pg_out", 3, |a| {
            let type_oid = type_oid(&a[1])?;
            Ok(output(type_oid, &a[0], &settings(&a[2])?)?.map_or(Value::Null, Value::Text))
        }),
        // value, type, modifier, whether to cut
        strict("pg_limit", 4, |a| {
            let fit = if int(&a[3])? != 0 { Fit::Cut } else { Fit::Strict };
            limit(type_oid(&a[1])?, int(&a[2])? as i32, a[0].clone(), fit)
        }),
        strict("pg_trim_char", 1, |a| Ok(Value::from(text(&a[0])?.trim_end_matches(' ')))),
        strict("pg_pad", 2, |a| {
            let (text, size) = (text(&a[0])?, int(&a[1])? as usize);
            let missing = size.saturating_sub(text.chars().count());
            Ok(Value::Text(format!("{text}{}", " ".repeat(missing))))
        }),
        strict("pg_jsonb_to", 2, jsonb_to),
        strict("pg_date_ts", 1, |a| calendar::date_to_timestamp(int(&a[0])?).map(Value::Int)),
        strict("pg_date_tstz", 2, |a| {
            let local = calendar::date_to_timestamp(int(&a[0])?)?;
            calendar::from_local(local, &zone(&a[1])?).map(Value::Int)
        }),
        strict("pg_ts_date", 1, |a| Ok(Value::Int(calendar::timestamp_to_date(int(&a[0])?)))),
        strict("pg_ts_time", 1, |a| match int(&a[0])? {
            micros if calendar::is_infinite(micros) => Ok(Value::Null),
            micros => Ok(Value::Int(micros.rem_euclid(calendar::DAY))),
        }),
        strict("pg_to_local", 2, |a| calendar::to_local(int(&a[0])?, &zone(&a[1])?).map(Value::Int)),
        strict("pg_from_local", 2, |a| calendar::from_local(int(&a[0])?, &zone(&a[1])?).map(Value::Int)),
        strict("pg_at_zone", 2, |a| {
            calendar::to_local(int(&a[0])?, &Zone::parse_posix(text(&a[1])?)?).map(Value::Int)
        }),
        strict("pg_in_zone", 2, |a| {
            calendar::from_local(int(&a[0])?, &Zone::parse_posix(text(&a[1])?)?).map(Value::Int)
        }),
        variadic("pg_array", |a| Ok(array::pack(a))),
        // Fails if it is ever reached: (state, message).
        plain("pg_raise", 2, |a| {
            let state = text(&a[0])?;
            Err(crate::fail::unpack(&format!("SQLSTATE {state}: {}", text(&a[1])?))
                .unwrap_or_else(|| fail("XX000", "an unknown class of error")))
        }),
        // value, column, table
        plain("pg_not_null", 3, |a| match &a[0] {
            Value::Null => Err(fail(
                "23502",
                format!(
                    "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                    text(&a[1])?,
                    text(&a[2])?
                ),
            )),
            value => Ok(value.clone()),
        }),
        // A number of rows with the same key, of which there may be one.
        strict("pg_once", 1, |a| match int(&a[0])? {
            0 | 1 => Ok(Value::Int(0)),
            _ => Err(fail("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")),
        }),
        strict("pg_oid", 1, |a| Ok(Value::Int(crate::system::number(text(&a[0])?).into()))),
        strict("pg_regclass", 1, |a| Ok(crate::system::input(types::oid::REGCLASS, text(&a[0])?).into())),
        // A relation's name, and the schema that it is in if it says none.
        strict("pg_regclass_in", 2, |a| Ok(crate::system::number_within(text(&a[0])?, text(&a[1])?).into())),
        strict("pg_bare", 1, |a| Ok(crate::system::written_parts(text(&a[0])?).pop().into())),
        // Table as it is written, column.
        strict("pg_serial_sequence", 2, |a| {
            let mut parts = crate::system::written_parts(text(&a[0])?);
            let table = parts.pop().unwrap_or_default();
            let schema = parts.pop().unwrap_or_else(|| "public".to_owned());
            let sequence = format!("{table}_{}_seq", text(&a[1])?);
            Ok(Value::Text(format!("{}.{}", super::quote_ident(&schema), super::quote_ident(&sequence))))
        }),
        strict("pg_regtype", 1, |a| Ok(crate::system::input(types::oid::REGTYPE, text(&a[0])?).into())),
        plain("pg_format_type", 2, |a| {
            if a[0].is_null() {
                return Ok(Value::Null);
            }
            let type_mod = if a[1].is_null() { -1 } else { int(&a[1])? as i32 };
            Ok(match types::info(type_oid(&a[0])?) {
                Some(known) => Value::Text(types::display_with(known.oid, type_mod)),
                None if int(&a[0])? == 0 => Value::from("-"),
                None => Value::from("???"),
            })
        }),
        strict("pg_type_name", 1, |a| {
            Ok(types::info(type_oid(&a[0])?).map(|known| known.name.to_owned()).into())
        }),
        strict("pg_type_length", 1, |a| {
            Ok(Value::Int(types::info(type_oid(&a[0])?).map_or(-1, |known| known.len.into())))
        }),
        plain("pg_limit_rows", 1, |a| rows(&a[0], "2201W", "LIMIT must not be negative", -1)),
        plain("pg_offset_rows", 1, |a| rows(&a[0], "2201X", "OFFSET must not be negative", 0)),
        variadic("pg_greatest", |a| extreme(a, Ordering::Greater, order)),
        variadic("pg_least", |a| extreme(a, Ordering::Less, order)),
        variadic("pg_greatestn", |a| extreme(a, Ordering::Greater, numeric_order)),
        variadic("pg_leastn", |a| extreme(a, Ordering::Less, numeric_order)),
        // array, element type, target array type, zone
        strict("pg_array_cast", 4, |a| {
            let (from, to) = (type_oid(&a[1])?, type_oid(&a[2])?);
            let settings = settings(&a[3])?;
            let mut values = Vec::new();
            for element in array::elements(text(&a[0])?)? {
                let value = array::from_json(from, &element)?;
                values.push(match output(from, &value, &settings)? {
                    None => Value::Null,
                    Some(text) => input(to, -1, &text, &settings)?,
                });
            }
            Ok(array::pack(&values))
        }),
    ]);
}

fn type_oid(value: &Value) -> Result<TypeOid, SqlError> {
    u32::try_from(int(value)?).map(TypeOid).map_err(|_| fail("XX000", "a type's number is out of range"))
}

fn settings(value: &Value) -> Result<Settings, SqlError> {
    Ok(Settings { zone: zone(value)?, ..Settings::default() })
}

/// A number of rows; none given is `none`.
fn rows(value: &Value, state: &'static str, message: &'static str, none: i64) -> Answer {
    match value {
        Value::Null => Ok(Value::Int(none)),
        value if int(value)? < 0 => Err(fail(state, message)),
        value => Ok(value.clone()),
    }
}

/// The greatest or least that is not NULL.
fn extreme(a: &[Value], wanted: Ordering, order: fn(&Value, &Value) -> Result<Ordering, SqlError>) -> Answer {
    let mut best: Option<&Value> = None;
    for value in a.iter().filter(|value| !value.is_null()) {
        match best {
            Some(known) if order(value, known)? != wanted => {}
            _ => best = Some(value),
        }
    }
    Ok(best.cloned().unwrap_or(Value::Null))
}

fn order(a: &Value, b: &Value) -> Result<Ordering, SqlError> {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Blob(a), Value::Blob(b)) => a.cmp(b),
        (a, b) => super::real(a)?.total_cmp(&super::real(b)?),
    })
}

fn numeric_order(a: &Value, b: &Value) -> Result<Ordering, SqlError> {
    Ok(super::numeric(a)?.cmp(&super::numeric(b)?))
}

fn jsonb_to(a: &[Value]) -> Answer {
    let (value, to) = (Json::parse(text(&a[0])?)?, type_oid(&a[1])?);
    let cannot = || {
        let what = match &value {
            Json::Null => "null".to_owned(),
            Json::Number(_) => "numeric".to_owned(),
            other => other.type_name().to_owned(),
        };
        fail("22023", format!("cannot cast jsonb {what} to type {}", types::display(to)))
    };
    match (&value, to) {
        (Json::Bool(value), TypeOid::BOOL) => Ok(Value::Int((*value).into())),
        (Json::Number(number), TypeOid::NUMERIC) => Ok(Value::Text(number.to_string())),
        (Json::Number(number), TypeOid::FLOAT8) => Ok(Value::Real(number.to_f64())),
        (Json::Number(number), TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8) => {
            let size = types::info(to).map_or(8, |known| i32::from(known.len));
            let bound = 1i128 << (8 * size - 1);
            match number.to_i128() {
                Some(value) if (-bound..bound).contains(&value) => Ok(Value::Int(value as i64)),
                _ => Err(fail("22003", format!("{} out of range", types::display(to)))),
            }
        }
        _ => Err(cannot()),
    }
}

//! What arrays have in common, and where an element is; the labels of enums.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;

use super::{plain, strict, text};
use crate::fail::fail;
use crate::translate::check_label;
use crate::value::array;
use crate::value::json::Json;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        // Whether every element of the second is one of the first; NULL is no element.
        strict("pg_array_contains", 2, |a| {
            let (all, some) = (elements(&a[0])?, elements(&a[1])?);
            Ok(Value::Int(some.iter().all(|one| *one != Json::Null && all.contains(one)).into()))
        }),
        strict("pg_array_overlap", 2, |a| {
            let (all, some) = (elements(&a[0])?, elements(&a[1])?);
            Ok(Value::Int(some.iter().any(|one| *one != Json::Null && all.contains(one)).into()))
        }),
        // NULL is found here.
        plain("pg_array_remove", 2, |a| {
            if a[0].is_null() {
                return Ok(Value::Null);
            }
            let (mut left, gone) = (elements(&a[0])?, array::to_json(&a[1]));
            left.retain(|one| *one != gone);
            Ok(Value::Text(Json::Array(left).to_string()))
        }),
        plain("pg_array_position", 2, |a| {
            if a[0].is_null() {
                return Ok(Value::Null);
            }
            let (all, wanted) = (elements(&a[0])?, array::to_json(&a[1]));
            Ok(all.iter().position(|one| *one == wanted).map_or(Value::Null, |at| Value::Int(at as i64 + 1)))
        }),
        // A label, the enum's name, its labels.
        strict("pg_enum_value", 3, |a| {
            check_label(text(&a[0])?, text(&a[1])?, |label| is_label(&a[2], label))?;
            Ok(a[0].clone())
        }),
        strict("pg_enum_array", 3, |a| {
            for element in elements(&a[0])? {
                if let Json::String(label) = &element {
                    check_label(label, text(&a[1])?, |label| is_label(&a[2], label))?;
                }
            }
            Ok(a[0].clone())
        }),
        strict("pg_enum_place", 2, |a| {
            let label = Json::String(text(&a[0])?.to_owned());
            let place = elements(&a[1])?.iter().position(|known| *known == label);
            let place =
                place.ok_or_else(|| fail("XX001", "an enum has a value that is none of its labels"))?;
            Ok(Value::Int(place as i64))
        }),
    ]);
}

fn is_label(labels: &Value, label: &str) -> bool {
    let is_this = |known: &Json| matches!(known, Json::String(known) if known == label);
    elements(labels).is_ok_and(|labels| labels.iter().any(is_this))
}

fn elements(value: &Value) -> Result<Vec<Json>, SqlError> {
    array::elements(text(value)?)
}

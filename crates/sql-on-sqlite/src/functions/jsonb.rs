//! Documents: their parts, what they contain, how they are built.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::{SqlError, TypeOid};

use super::{int, numeric, plain, strict, text, variadic, zone};
use crate::fail::fail;
use crate::settings::Settings;
use crate::types;
use crate::value::json::{Json, key_order};
use crate::value::{array, text as codec};

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_json_key", 2, |a| Ok(document(json(&a[0])?.get(text(&a[1])?)))),
        strict("pg_json_key_text", 2, |a| Ok(json(&a[0])?.get(text(&a[1])?).and_then(Json::to_text).into())),
        strict("pg_json_at", 2, |a| Ok(document(json(&a[0])?.at(int(&a[1])?)))),
        strict("pg_json_at_text", 2, |a| Ok(json(&a[0])?.at(int(&a[1])?).and_then(Json::to_text).into())),
        strict("pg_json_path", 2, |a| Ok(document(follow(&json(&a[0])?, &steps(&a[1])?)))),
        strict("pg_json_path_text", 2, |a| {
            Ok(follow(&json(&a[0])?, &steps(&a[1])?).and_then(Json::to_text).into())
        }),
        strict("pg_jsonb_contains", 2, |a| Ok(Value::Int(json(&a[0])?.contains(&json(&a[1])?).into()))),
        strict("pg_jsonb_has", 2, |a| Ok(Value::Int(json(&a[0])?.has_key(text(&a[1])?).into()))),
        strict("pg_jsonb_has_any", 2, |a| {
            let (own, keys) = (json(&a[0])?, steps(&a[1])?);
            Ok(Value::Int(keys.iter().flatten().any(|key| own.has_key(key)).into()))
        }),
        strict("pg_jsonb_has_all", 2, |a| {
            let (own, keys) = (json(&a[0])?, steps(&a[1])?);
            Ok(Value::Int(keys.iter().flatten().all(|key| own.has_key(key)).into()))
        }),
        strict("pg_jsonb_eq", 2, |a| Ok(Value::Int((json(&a[0])? == json(&a[1])?).into()))),
        strict("pg_jsonb_cat", 2, |a| Ok(Value::Text(cat(json(&a[0])?, json(&a[1])?).to_string()))),
        strict("pg_jsonb_without", 2, |a| match json(&a[0])? {
            Json::Object(members) => {
                let key = text(&a[1])?;
                Ok(kept(Json::Object(members.into_iter().filter(|(name, _)| name != key).collect())))
            }
            Json::Array(elements) => {
                let key = Json::String(text(&a[1])?.to_owned());
                Ok(kept(Json::Array(elements.into_iter().filter(|element| *element != key).collect())))
            }
            _ => Err(fail("22023", "cannot delete from scalar")),
        }),
        strict("pg_jsonb_without_at", 2, |a| match json(&a[0])? {
            Json::Object(_) => Err(fail("22023", "cannot delete from object using integer index")),
            Json::Array(mut elements) => {
                let index = int(&a[1])?;
                let place = if index < 0 { elements.len() as i64 + index } else { index };
                if let Ok(place) = usize::try_from(place)
                    && place < elements.len()
                {
                    elements.remove(place);
                }
                Ok(kept(Json::Array(elements)))
            }
            _ => Err(fail("22023", "cannot delete from scalar")),
        }),
        strict("pg_jsonb_set", 4, |a| {
            let (mut own, path, value) = (json(&a[0])?, steps(&a[1])?, json(&a[2])?);
            if !matches!(own, Json::Array(_) | Json::Object(_)) {
                return Err(fail("22023", "cannot set path in scalar"));
            }
            let is_empty = own == Json::Array(Vec::new()) || own == Json::Object(Vec::new());
            if is_empty && int(&a[3])? == 0 {
                return Ok(a[0].clone());
            }
            let path: Option<Vec<String>> = path.into_iter().collect();
            let path = path.ok_or_else(|| fail("22004", "path element at position 1 is null"))?;
            set(&mut own, &path, value, int(&a[3])? != 0, 1)?;
            Ok(kept(own))
        }),
        strict("pg_jsonb_typeof", 1, |a| Ok(Value::from(json(&a[0])?.type_name()))),
        strict("pg_jsonb_array_length", 1, |a| match json(&a[0])? {
            Json::Array(elements) => Ok(Value::Int(elements.len() as i64)),
            Json::Object(_) => Err(fail("22023", "cannot get array length of a non-array")),
            _ => Err(fail("22023", "cannot get array length of a scalar")),
        }),
        strict("pg_jsonb_strip_nulls", 1, |a| Ok(kept(strip(json(&a[0])?)))),
        strict("pg_jsonb_pretty", 1, |a| Ok(Value::Text(json(&a[0])?.pretty()))),
        strict("pg_jsonb_keys", 1, |a| match json(&a[0])? {
            Json::Object(members) => {
                let keys: Vec<Value> = members.into_iter().map(|(key, _)| Value::Text(key)).collect();
                Ok(array::pack(&keys))
            }
            Json::Array(_) => Err(fail("22023", "cannot call jsonb_object_keys on an array")),
            _ => Err(fail("22023", "cannot call jsonb_object_keys on a scalar")),
        }),
        // The elements as texts: documents, or their `->>`.
        strict("pg_jsonb_elements", 2, |a| match json(&a[0])? {
            Json::Array(elements) => {
                let as_text = int(&a[1])? != 0;
                let shown = |element: Json| -> Value {
                    if as_text { element.to_text().into() } else { Value::Text(element.to_string()) }
                };
                Ok(array::pack(&elements.into_iter().map(shown).collect::<Vec<_>>()))
            }
            Json::Object(_) => Err(fail("22023", "cannot extract elements from an object")),
            _ => Err(fail("22023", "cannot extract elements from a scalar")),
        }),
        // value, type, zone
        plain("pg_to_jsonb", 3, |a| {
            Ok(Value::Text(to_json(type_oid(&a[1])?, &a[0], &settings(&a[2])?)?.to_string()))
        }),
        // Documents; NULL is null.
        variadic("pg_jsonb_build_array", |a| {
            let elements: Result<Vec<Json>, SqlError> = a.iter().map(json_or_null).collect();
            Ok(kept(Json::Array(elements?)))
        }),
        // The same written as json is.
        variadic("pg_json_build_array", |a| {
            let elements: Result<Vec<&str>, SqlError> = a.iter().map(written_or_null).collect();
            Ok(Value::Text(format!("[{}]", elements?.join(", "))))
        }),
        variadic("pg_json_build_object", |a| {
            let mut members = Vec::new();
            for pair in a.chunks(2) {
                if pair[0].is_null() {
                    return Err(fail("22023", "argument 1: key must not be null"));
                }
                let mut key = String::new();
                crate::value::json::write_string(text(&pair[0])?, &mut key);
                members.push(format!("{key} : {}", written_or_null(&pair[1])?));
            }
            Ok(Value::Text(format!("{{{}}}", members.join(", "))))
        }),
        // Texts and documents in turn.
        variadic("pg_jsonb_build_object", |a| {
            let mut members = Vec::new();
            for (place, pair) in a.chunks(2).enumerate() {
                if pair[0].is_null() {
                    return Err(fail("22023", format!("argument {}: key must not be null", place * 2 + 1)));
                }
                members.push((text(&pair[0])?.to_owned(), json_or_null(&pair[1])?));
            }
            Ok(kept(Json::object(members)))
        }),
    ]);
}

fn json(value: &Value) -> Result<Json, SqlError> {
    Json::parse(text(value)?)
}

/// A document as it is written.
pub(super) fn written_or_null(value: &Value) -> Result<&str, SqlError> {
    if value.is_null() { Ok("null") } else { text(value) }
}

fn json_or_null(value: &Value) -> Result<Json, SqlError> {
    if value.is_null() { Ok(Json::Null) } else { json(value) }
}

fn kept(value: Json) -> Value {
    Value::Text(value.to_string())
}

fn document(found: Option<&Json>) -> Value {
    found.map(Json::to_string).into()
}

/// The elements of an array of texts.
fn steps(value: &Value) -> Result<Vec<Option<String>>, SqlError> {
    let steps = array::elements(text(value)?)?.into_iter();
    Ok(steps.map(|step| step.to_text()).collect())
}

fn follow<'j>(from: &'j Json, path: &[Option<String>]) -> Option<&'j Json> {
    path.iter().try_fold(from, |at, step| at.step(step.as_deref()?))
}

fn cat(a: Json, b: Json) -> Json {
    match (a, b) {
        (Json::Object(mut a), Json::Object(b)) => {
            a.extend(b);
            Json::object(a)
        }
        (Json::Array(mut a), Json::Array(b)) => {
            a.extend(b);
            Json::Array(a)
        }
        (Json::Array(mut a), b) => {
            a.push(b);
            Json::Array(a)
        }
        (a, Json::Array(mut b)) => {
            b.insert(0, a);
            Json::Array(b)
        }
        (a, b) => Json::Array(vec![a, b]),
    }
}

fn strip(value: Json) -> Json {
    match value {
        Json::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| *value != Json::Null);
            Json::Object(kept.map(|(key, value)| (key, strip(value))).collect())
        }
        Json::Array(elements) => Json::Array(elements.into_iter().map(strip).collect()),
        other => other,
    }
}

fn set(own: &mut Json, path: &[String], value: Json, create: bool, level: usize) -> Result<(), SqlError> {
    let Some((step, rest)) = path.split_first() else {
        return Ok(());
    };
    match own {
        Json::Object(members) => match members.binary_search_by(|(key, _)| key_order(key, step)) {
            Ok(place) if rest.is_empty() => members[place].1 = value,
            Ok(place) => set(&mut members[place].1, rest, value, create, level + 1)?,
            Err(place) if rest.is_empty() && create => members.insert(place, (step.clone(), value)),
            Err(_) => {}
        },
        Json::Array(elements) => {
            let index: i64 = step.trim().parse().map_err(|_| {
                fail("22P02", format!("path element at position {level} is not an integer: \"{step}\""))
            })?;
            let place = if index < 0 { elements.len() as i64 + index } else { index };
            match usize::try_from(place).ok().filter(|place| *place < elements.len()) {
                Some(place) if rest.is_empty() => elements[place] = value,
                Some(place) => set(&mut elements[place], rest, value, create, level + 1)?,
                None if rest.is_empty() && create && index < 0 => elements.insert(0, value),
                None if rest.is_empty() && create => elements.push(value),
                None => {}
            }
        }
        _ => {}
    }
    Ok(())
}

fn type_oid(value: &Value) -> Result<TypeOid, SqlError> {
    u32::try_from(int(value)?).map(TypeOid).map_err(|_| fail("XX000", "a type's number is out of range"))
}

fn settings(value: &Value) -> Result<Settings, SqlError> {
    Ok(Settings { zone: zone(value)?, ..Settings::default() })
}

/// A value of any type as a document.
fn to_json(type_oid: TypeOid, value: &Value, settings: &Settings) -> Result<Json, SqlError> {
    use crate::value::numeric::Numeric;
    Ok(match (type_oid, value) {
        (_, Value::Null) => Json::Null,
        (TypeOid::BOOL, value) => Json::Bool(int(value)? != 0),
        (TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8, value) => {
            Json::Number(Numeric::from_i128(int(value)?.into()))
        }
        (TypeOid::NUMERIC, value) => match numeric(value)? {
            number @ Numeric::Finite { .. } => Json::Number(number),
            other => Json::String(other.to_string()),
        },
        (TypeOid::FLOAT8, value) => {
            let shown = codec::output(type_oid, value, settings)?.unwrap_or_default();
            match Numeric::parse(&shown) {
                Ok(number @ Numeric::Finite { .. }) => Json::Number(number),
                _ => Json::String(shown),
            }
        }
        (TypeOid::JSONB | TypeOid::JSON, value) => json(value)?,
        (TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ, value) => {
            let shown = codec::output(type_oid, value, settings)?.unwrap_or_default();
            // ISO 8601: a T between, and the offset always with minutes.
            let shown = shown.replacen(' ', "T", 1);
            let zoned = type_oid == TypeOid::TIMESTAMPTZ && !shown.contains("infinity");
            let short = shown.len() >= 3 && matches!(shown.as_bytes()[shown.len() - 3], b'+' | b'-');
            Json::String(if zoned && short { format!("{shown}:00") } else { shown })
        }
        (array, Value::Text(packed)) if types::is_array(array) => {
            let element = types::element(array).unwrap_or(TypeOid::TEXT);
            let mut elements = Vec::new();
            for value in array::elements(packed)? {
                elements.push(to_json(element, &array::from_json(element, &value)?, settings)?);
            }
            Json::Array(elements)
        }
        (other, value) => Json::String(codec::output(other, value, settings)?.unwrap_or_default()),
    })
}

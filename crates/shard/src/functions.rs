//! The SQL functions that SQLite needs so that both engines compute the same placement.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_map::{HashSpec, Key, KeyType, TUPLE_COMPONENTS_MAX};

/// The functions, for every connection to an SQLite shard:
/// `polyshard_bucket(seed, buckets, 'type,type…', column…)`, `polyshard_bucket_bytes(bucket)` and
/// `polyshard_key('type', column)`. NULL gives NULL, as in PostgreSQL.
pub(crate) fn placement_functions() -> Vec<ScalarFunction> {
    let mut functions: Vec<ScalarFunction> = (1..=TUPLE_COMPONENTS_MAX)
        .map(|columns| {
            let arity = u8::try_from(columns + 3).expect("a tuple has few components");
            ScalarFunction::new("polyshard_bucket", arity, bucket)
        })
        .collect();
    functions.push(ScalarFunction::new("polyshard_bucket_bytes", 1, bucket_bytes));
    functions.push(ScalarFunction::new("polyshard_key", 2, key_bytes));
    functions
}

fn bucket(values: &[Value]) -> Result<Value, String> {
    let [Value::Int(seed), Value::Int(buckets), Value::Text(types), columns @ ..] = values else {
        return Err("polyshard_bucket takes a seed, a number of buckets, the types, and the columns".into());
    };
    let types: Vec<KeyType> =
        types.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|error| format!("{error}"))?;
    let buckets = u32::try_from(*buckets).map_err(|error| error.to_string())?;
    let hash = HashSpec::new(*seed, buckets).map_err(|error| error.to_string())?;
    let mut keys = Vec::with_capacity(columns.len());
    for (kind, value) in types.iter().zip(columns) {
        match key(kind, value)? {
            None => return Ok(Value::Null),
            Some(key) => keys.push(key),
        }
    }
    let key = if keys.len() == 1 { keys.remove(0) } else { Key::Tuple(keys) };
    Ok(Value::Int(hash.bucket(&key).into()))
}

fn bucket_bytes(values: &[Value]) -> Result<Value, String> {
    match values {
        [Value::Null] => Ok(Value::Null),
        [Value::Int(bucket)] => {
            let bucket = u32::try_from(*bucket).map_err(|error| error.to_string())?;
            Ok(Value::Blob(bucket.to_be_bytes().to_vec()))
        }
        _ => Err("polyshard_bucket_bytes takes a bucket".into()),
    }
}

fn key_bytes(values: &[Value]) -> Result<Value, String> {
    let [Value::Text(kind), value] = values else {
        return Err("polyshard_key takes a type and a column".into());
    };
    let kind: KeyType = kind.parse().map_err(|error| format!("{error}"))?;
    let Some(key) = key(&kind, value)? else { return Ok(Value::Null) };
    let bytes = kind.encode(&key).map_err(|error| error.to_string())?;
    Ok(Value::Blob(bytes.into_vec()))
}

/// A stored value as a key of the type.
fn key(kind: &KeyType, value: &Value) -> Result<Option<Key>, String> {
    let unfit = || format!("a value of type {} is no {kind} key", value.type_name());
    Ok(Some(match (kind, value) {
        (_, Value::Null) => return Ok(None),
        (KeyType::BigInt, Value::Int(number)) => Key::BigInt(*number),
        (KeyType::Int, Value::Int(number)) => Key::Int(i32::try_from(*number).map_err(|_| unfit())?),
        (KeyType::Binary, Value::Blob(bytes)) => Key::Binary(bytes.clone()),
        (KeyType::Uuid, Value::Blob(bytes)) => Key::Uuid(uuid::Uuid::from_slice(bytes).map_err(|_| unfit())?),
        (KeyType::Text, Value::Text(text)) => Key::Text(text.clone()),
        // SQL tables on SQLite keep days and microseconds, counted as keys are; infinity is the same in both.
        (KeyType::Date, Value::Int(i64::MIN)) => Key::Date(i32::MIN),
        (KeyType::Date, Value::Int(i64::MAX)) => Key::Date(i32::MAX),
        (KeyType::Date, Value::Int(days)) => Key::Date(i32::try_from(*days).map_err(|_| unfit())?),
        (KeyType::Timestamp, Value::Int(micros)) => Key::Timestamp(*micros),
        (KeyType::Binary, _) => return Err(unfit()),
        (_, Value::Text(text)) => kind.parse(text).map_err(|error| error.to_string())?,
        _ => return Err(unfit()),
    }))
}

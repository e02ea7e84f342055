//! Primary keys as text, the same on both engines: how captures and positions name rows.

use polyshard_engine::{Dialect, Value};

use crate::ShardError;
use crate::shape::{Column, Travel};

/// The values of a row's primary key, or of a place in an order.
#[derive(Debug, Clone, PartialEq)]
pub struct RowKey(pub Vec<Value>);

impl RowKey {
    /// As it is stored: a JSON list of texts, each with a letter for its type before it.
    pub fn to_text(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(part).collect();
        serde_json::to_string(&parts).expect("a list of texts")
    }

    /// Reads the stored form.
    pub fn from_text(text: &str) -> Result<RowKey, ShardError> {
        let damaged = |detail: String| ShardError::Damaged { what: "key of a row", detail };
        let parts: Vec<String> = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
        let values: Option<Vec<Value>> = parts.iter().map(|part| value(part)).collect();
        values.map(RowKey).ok_or_else(|| damaged(format!("{text} is no key")))
    }
}

fn part(value: &Value) -> String {
    match value {
        Value::Null => "n".to_owned(),
        Value::Bool(truth) => format!("i{}", i64::from(*truth)),
        Value::Int(number) => format!("i{number}"),
        Value::Real(number) => format!("r{number:?}"),
        Value::Text(text) => format!("t{text}"),
        Value::Blob(bytes) => format!("b{}", polyshard_map::KeyBytes::from(bytes.as_slice()).to_hex()),
    }
}

fn value(part: &str) -> Option<Value> {
    let mut rest = part.chars();
    let kind = rest.next()?;
    let rest = rest.as_str();
    Some(match kind {
        'n' => Value::Null,
        'i' => Value::Int(rest.parse().ok()?),
        'r' => Value::Real(rest.parse().ok()?),
        't' => Value::Text(rest.to_owned()),
        'b' => Value::Blob(polyshard_map::KeyBytes::from_hex(rest).ok()?.into_vec()),
        _ => return None,
    })
}

/// The expression that makes this text of a row's key inside the database.
pub(crate) fn expression(dialect: Dialect, columns: &[&Column], row: &str) -> String {
    let parts: Vec<String> = columns.iter().map(|column| of_column(dialect, column, row)).collect();
    match dialect {
        Dialect::Postgres => format!("json_build_array({})::text", parts.join(", ")),
        Dialect::Sqlite => format!("json_array({})", parts.join(", ")),
    }
}

fn of_column(dialect: Dialect, column: &Column, row: &str) -> String {
    let name = format!("{row}.{}", column.name);
    match dialect {
        Dialect::Sqlite => format!(
            "CASE typeof({name}) WHEN 'integer' THEN 'i' || {name} WHEN 'text' THEN 't' || {name} \
             WHEN 'blob' THEN 'b' || lower(hex({name})) WHEN 'real' THEN 'r' || printf('%!.17g', {name}) \
             ELSE 'n' END"
        ),
        Dialect::Postgres => match (column.kind.as_str(), column.travel) {
            ("smallint" | "integer" | "bigint", _) => format!("'i' || ({name})::text"),
            ("boolean", _) => format!("'i' || ({name})::int::text"),
            ("real" | "double precision", _) => format!("'r' || ({name})::text"),
            ("bytea", _) => format!("'b' || encode({name}, 'hex')"),
            (_, Travel::Filed) => format!("'i' || ({})::text", column.read_as(&name)),
            (_, Travel::Plain | Travel::Text | Travel::Cast) => format!("'t' || ({name})::text"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_as_they_were() {
        let key = RowKey(vec![
            Value::Int(-5),
            Value::Text("tä\"x".into()),
            Value::Blob(vec![0, 255]),
            Value::Real(0.1),
            Value::Null,
        ]);
        assert_eq!(RowKey::from_text(&key.to_text()).unwrap(), key);
        assert!(RowKey::from_text("[\"x1\"]").is_err());
    }
}

//! The rows of one shardlet as lines of JSON: a head for each dataset, then its rows, parents before children.

use polyshard_engine::Value;
use polyshard_map::KeyBytes;
use polyshard_shard::Placement;
use serde::{Deserialize, Serialize};

use crate::BackupError;

/// The version of the form; it stands in every head.
pub(crate) const LINES_FORMAT: u32 = 1;
/// The version of heads whose rows come from PostgreSQL and are written as SQLite files keep them.
pub(crate) const LINES_FORMAT_FILED: u32 = 2;

/// What a dataset's rows are preceded by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) format: u32,
    /// The name on shards.
    pub(crate) dataset: String,
    pub(crate) table: String,
    pub(crate) engine: String,
    /// Names and types, in the order of the values.
    pub(crate) columns: Vec<(String, String)>,
    /// The column whose bytes are the placement, or the columns of the key.
    pub(crate) placement: PlacementText,
    /// The column that tells datasets apart in a table that they share.
    pub(crate) rows_column: Option<String>,
    /// Of format 2: for each column, what the type of a file's column must be called by; empty where values are the
    /// same on both engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept: Vec<String>,
    /// Of format 1 from PostgreSQL: whether texts are written in one way (`polyshard_shard::one_notation`). Without it
    /// they are as the database had it set. Those of format 2 always are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notation: Option<u32>,
}

/// How a placement is found, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlacementText {
    Column(String),
    Key(Vec<String>),
}

impl From<&Placement> for PlacementText {
    fn from(placement: &Placement) -> PlacementText {
        match placement {
            Placement::Column(column) => PlacementText::Column(column.clone()),
            Placement::Key(columns) => PlacementText::Key(columns.clone()),
        }
    }
}

impl From<PlacementText> for Placement {
    fn from(text: PlacementText) -> Placement {
        match text {
            PlacementText::Column(column) => Placement::Column(column),
            PlacementText::Key(columns) => Placement::Key(columns),
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Line {
    Head(Head),
    Row(Vec<Value>),
}

/// A head as a line, without its end.
pub(crate) fn head_line(head: &Head) -> String {
    serde_json::to_string(head).expect("a head has a JSON form")
}

/// A row as a line: each value as a text with a letter for its type before it.
pub(crate) fn row_line(row: &[Value]) -> String {
    let parts: Vec<String> = row.iter().map(part).collect();
    serde_json::to_string(&parts).expect("a list of texts")
}

/// Reads a line.
pub(crate) fn read_line(line: &str) -> Result<Line, BackupError> {
    let damaged = |why: String| BackupError::Damaged(format!("the rows of the backup cannot be read: {why}"));
    if line.starts_with('{') {
        let head: Head = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
        if !(LINES_FORMAT..=LINES_FORMAT_FILED).contains(&head.format) {
            return Err(BackupError::Refused(format!(
                "its rows have format {}, and this program reads {LINES_FORMAT} to {LINES_FORMAT_FILED}; use the \
                 program that took it",
                head.format
            )));
        }
        if head.format == LINES_FORMAT_FILED && head.kept.len() != head.columns.len() {
            return Err(damaged(format!("the forms of the columns of {} are missing", head.dataset)));
        }
        return Ok(Line::Head(head));
    }
    let parts: Vec<String> = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
    let row: Option<Vec<Value>> = parts.iter().map(|part| value(part)).collect();
    row.map(Line::Row).ok_or_else(|| damaged("a value has no type".to_owned()))
}

fn part(value: &Value) -> String {
    match value {
        Value::Null => "n".to_owned(),
        Value::Bool(truth) => format!("o{}", i64::from(*truth)),
        Value::Int(number) => format!("i{number}"),
        // The bits: no digit is lost, and there are numbers that are none.
        Value::Real(number) => format!("r{:016x}", number.to_bits()),
        Value::Text(text) => format!("t{text}"),
        Value::Blob(bytes) => format!("b{}", KeyBytes::from(bytes.as_slice()).to_hex()),
    }
}

fn value(part: &str) -> Option<Value> {
    let mut rest = part.chars();
    let kind = rest.next()?;
    let rest = rest.as_str();
    Some(match kind {
        'n' => Value::Null,
        'o' => Value::Bool(rest == "1"),
        'i' => Value::Int(rest.parse().ok()?),
        'r' => Value::Real(f64::from_bits(u64::from_str_radix(rest, 16).ok()?)),
        't' => Value::Text(rest.to_owned()),
        'b' => Value::Blob(KeyBytes::from_hex(rest).ok()?.into_vec()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_were() {
        let row = vec![
            Value::Null,
            Value::Bool(true),
            Value::Int(i64::MIN),
            Value::Real(0.1),
            Value::Real(f64::NEG_INFINITY),
            Value::Text("{\"line\nend\"} ü".to_owned()),
            Value::Blob(vec![0, 255]),
        ];
        let line = row_line(&row);
        assert!(!line.contains('\n'));
        assert_eq!(read_line(&line).unwrap(), Line::Row(row));
        let head = Head {
            format: LINES_FORMAT,
            dataset: "sql:orders (3)".to_owned(),
            table: "public.orders".to_owned(),
            engine: "postgres".to_owned(),
            columns: vec![("\"id\"".to_owned(), "bigint".to_owned())],
            placement: PlacementText::Key(vec!["id".to_owned()]),
            rows_column: None,
            kept: Vec::new(),
            notation: None,
        };
        assert_eq!(read_line(&head_line(&head)).unwrap(), Line::Head(head.clone()));
        let filed = Head { format: LINES_FORMAT_FILED, kept: vec!["int".to_owned()], ..head.clone() };
        assert_eq!(read_line(&head_line(&filed)).unwrap(), Line::Head(filed.clone()));
        let cut = Head { kept: Vec::new(), ..filed };
        assert!(matches!(read_line(&head_line(&cut)), Err(BackupError::Damaged(_))));
        let newer = Head { format: 9, ..head };
        assert!(matches!(read_line(&head_line(&newer)), Err(BackupError::Refused(_))));
        assert!(matches!(read_line("[\"x\"]"), Err(BackupError::Damaged(_))));
    }

    #[test]
    fn lines_of_format_2_are_read() {
        let mut lines = include_str!("../tests/lines-2.jsonl").lines().map(read_line);
        let Some(Ok(Line::Head(head))) = lines.next() else { panic!("a head") };
        assert_eq!(head.kept, ["int", "", "blob", "text"]);
        let row =
            vec![Value::Int(8770), Value::Int(7), Value::Blob(vec![0, 255]), Value::Text("1 2 3".into())];
        assert_eq!(lines.next().unwrap().unwrap(), Line::Row(row));
    }

    #[test]
    fn lines_of_format_1_are_read() {
        let mut kinds = include_str!("../tests/lines-1.jsonl").lines().map(read_line);
        assert!(matches!(kinds.next(), Some(Ok(Line::Head(_)))));
        assert!(kinds.all(|line| matches!(line, Ok(Line::Row(_)))));
    }
}

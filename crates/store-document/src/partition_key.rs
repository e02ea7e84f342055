//! The partition key of a container: its paths, the values of a document, and those that a client names in a header.

use polyshard_document_query::{PathStep, Value};
use serde::{Deserialize, Serialize};

use crate::epk;
use crate::failure::Failure;

/// Levels of a hierarchical key at most.
const LEVELS_MAX: usize = 3;
/// Bytes of a text of a partition key at most.
const VALUE_BYTES_MAX: usize = 2048;
/// Bytes of a text that is itself the key in a map: with an id, it has to fit into an index of PostgreSQL.
const KEY_BYTES_MAX: usize = 1000;

/// How a container is partitioned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Definition {
    pub paths: Vec<String>,
    #[serde(default = "hash")]
    pub kind: String,
    #[serde(default = "first_version")]
    pub version: u32,
    #[serde(default, rename = "systemKey", skip_serializing_if = "is_false")]
    pub is_system: bool,
}

fn hash() -> String {
    "Hash".to_owned()
}

fn first_version() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Definition {
    /// Checks what a client has sent.
    pub fn check(&self) -> Result<(), Failure> {
        let wrong = |why: &str| Err(Failure::bad_request(format!("partitionKey: {why}")));
        let levels = self.paths.len();
        match self.kind.as_str() {
            "Hash" if levels != 1 => return wrong("kind Hash has one path"),
            "MultiHash" if levels == 0 || levels > LEVELS_MAX => {
                return wrong("kind MultiHash has 1 to 3 paths");
            }
            "Hash" | "MultiHash" => {}
            _ => return wrong("kind must be Hash or MultiHash"),
        }
        if !(1..=2).contains(&self.version) {
            return wrong("version must be 1 or 2");
        }
        for path in &self.paths {
            if steps(path).is_none_or(|steps| steps.is_empty()) {
                return wrong(&format!("{path:?} is no path; write \"/name\""));
            }
        }
        Ok(())
    }

    /// How many values a key has.
    pub fn levels(&self) -> usize {
        self.paths.len()
    }

    /// The values of a document.
    pub fn values_of(&self, document: &Value) -> Result<Vec<Value>, Failure> {
        self.paths.iter().map(|path| value_at(document, path)).collect()
    }

    /// Whether a query's path is the path of this level.
    pub fn is_path(&self, level: usize, path: &[PathStep]) -> bool {
        let Some(steps) = self.paths.get(level).and_then(|path| steps(path)) else { return false };
        let is_step =
            |(step, name): (&PathStep, &String)| matches!(step, PathStep::Key(key) if **key == **name);
        steps.len() == path.len() && path.iter().zip(&steps).all(is_step)
    }

    /// Whether the path of a patch changes a value of the key.
    pub fn is_touched_by(&self, names: &[String]) -> bool {
        self.paths.iter().filter_map(|path| steps(path)).any(|steps| {
            let common = steps.len().min(names.len());
            steps[..common] == names[..common]
        })
    }
}

fn value_at(document: &Value, path: &str) -> Result<Value, Failure> {
    let steps = steps(path).unwrap_or_default();
    let value = steps.iter().fold(document.clone(), |value, name| value.get(name));
    check_value(value)
}

fn check_value(value: Value) -> Result<Value, Failure> {
    match &value {
        Value::Array(_) | Value::Object(_) => {
            Err(Failure::bad_request("a value of the partition key is an array or object"))
        }
        Value::String(text) if text.len() > VALUE_BYTES_MAX => {
            Err(Failure::bad_request("a value of the partition key has more than 2048 bytes"))
        }
        _ => Ok(value),
    }
}

/// The names of a path: `/a/"b/c"`. None if it is no path.
fn steps(path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        rest = rest.strip_prefix('/')?;
        if let Some(quoted) = rest.strip_prefix('"') {
            let end = quoted.find('"')?;
            names.push(quoted[..end].to_owned());
            rest = &quoted[end + 1..];
        } else {
            let end = rest.find('/').unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            names.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    Some(names)
}

/// The values that a client has written into a header: a JSON array, in which `{}` is a value that is not there.
pub(crate) fn read_header(text: &str) -> Result<Vec<Value>, Failure> {
    let wrong =
        || Failure::bad_request(format!("x-ms-documentdb-partitionkey: {text:?} is no JSON array of values"));
    let read = Value::from_json(text.as_bytes()).map_err(|_| wrong())?;
    let values = read.as_array().ok_or_else(wrong)?;
    if values.len() > LEVELS_MAX {
        return Err(wrong());
    }
    values
        .iter()
        .map(|value| match value {
            Value::Object(object) if object.is_empty() => Ok(Value::Undefined),
            other => check_value(other.clone()),
        })
        .collect()
}

/// The text that the key in a map is derived from: that of a text itself, the JSON of other values, those of several
/// levels with a slash between. What cannot be a key stands for itself by its hash.
pub(crate) fn key_text(values: &[Value]) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.to_string(),
        other => other.to_json(),
    };
    let text = values.iter().map(text).collect::<Vec<_>>().join("/");
    if text.len() > KEY_BYTES_MAX || text.contains('\0') {
        return format!("#{}", epk::to_hex(&epk::effective(values)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(paths: &[&str]) -> Definition {
        let kind = if paths.len() == 1 { "Hash" } else { "MultiHash" };
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        Definition { paths, kind: kind.to_owned(), version: 2, is_system: false }
    }

    #[test]
    fn values_are_found_by_their_paths() {
        let document = Value::from_json(br#"{"a":{"b/c":5},"d":null,"e":[1]}"#).unwrap();
        let of = |path: &str| definition(&[path]).values_of(&document).map(|values| values[0].to_json());
        assert_eq!(of("/a/\"b/c\"").unwrap(), "5");
        assert_eq!(of("/d").unwrap(), "null");
        assert_eq!(of("/none/x").unwrap(), "");
        assert!(of("/e").is_err());
        assert!(definition(&["a"]).check().is_err());
        assert!(definition(&["/a", "/b", "/c"]).check().is_ok());
        assert!(definition(&["/a", "/b", "/c", "/d"]).check().is_err());
    }

    #[test]
    fn a_header_is_an_array_of_values() {
        let read = |text: &str| read_header(text).map(|values| key_text(&values));
        assert_eq!(read(r#"["p1"]"#).unwrap(), "p1");
        assert_eq!(read(r#"["caf\u00e9"]"#).unwrap(), "café");
        assert_eq!(read("[5]").unwrap(), "5");
        assert_eq!(read("[null]").unwrap(), "null");
        assert_eq!(read("[{}]").unwrap(), "");
        assert_eq!(read(r#"["A","B",true]"#).unwrap(), "A/B/true");
        assert!(read(r#"["\u0000"]"#).unwrap().starts_with('#'));
        for wrong in ["", "5", "[[1]]", r#"[{"a":1}]"#, "[1,2,3,4]"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

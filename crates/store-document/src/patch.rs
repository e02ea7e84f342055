//! Partial changes of a document: the operations of the service, applied to a value. It is pure.

use polyshard_document_query::{Object, Value};

use crate::failure::Failure;
use crate::partition_key::Definition;

/// Operations of one patch at most.
const OPERATIONS_MAX: usize = 10;

/// A patch as a client has sent it.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    /// `FROM c WHERE …`, if there is a condition.
    pub condition: Option<String>,
    operations: Vec<Operation>,
}

#[derive(Clone, Debug)]
struct Operation {
    kind: Kind,
    path: Vec<String>,
}

#[derive(Clone, Debug)]
enum Kind {
    Add(Value),
    Set(Value),
    Replace(Value),
    Remove,
    Increment(f64),
    /// From this path.
    Move(Vec<String>),
}

impl Patch {
    /// Reads `{"condition": …, "operations": […]}`, or the operations alone.
    pub fn parse(sent: &Value, partition_key: Option<&Definition>) -> Result<Patch, Failure> {
        let listed = match sent {
            Value::Array(_) => sent.clone(),
            _ => sent.get("operations"),
        };
        let listed =
            listed.as_array().ok_or_else(|| Failure::bad_request("a patch is a list of operations"))?;
        if listed.is_empty() || listed.len() > OPERATIONS_MAX {
            return Err(Failure::bad_request("a patch has 1 to 10 operations"));
        }
        let operations: Result<Vec<_>, Failure> =
            listed.iter().map(|sent| Operation::parse(sent, partition_key)).collect();
        let condition =
            sent.get("condition").as_str().map(str::to_owned).filter(|text| !text.trim().is_empty());
        Ok(Patch { condition, operations: operations? })
    }

    /// The document after all operations.
    pub fn apply(&self, document: &Value) -> Result<Value, Failure> {
        self.operations.iter().try_fold(document.clone(), |document, operation| operation.apply(&document))
    }
}

impl Operation {
    fn parse(sent: &Value, partition_key: Option<&Definition>) -> Result<Operation, Failure> {
        let name = sent.get("op");
        let name = name.as_str().unwrap_or_default();
        let path = |property: &str| {
            let text = sent.get(property);
            let names = text.as_str().and_then(pointer).filter(|names| !names.is_empty());
            let names = names.ok_or_else(|| Failure::bad_request(format!("patch: {property} is no path")))?;
            if partition_key.is_some_and(|key| key.is_touched_by(&names)) {
                return Err(Failure::bad_request("patch: the partition key cannot be changed"));
            }
            if names.len() == 1
                && matches!(names[0].as_str(), "id" | "_rid" | "_self" | "_etag" | "_ts" | "_attachments")
            {
                return Err(Failure::bad_request(format!("patch: /{} cannot be changed", names[0])));
            }
            Ok(names)
        };
        let value = || match sent.get("value") {
            Value::Undefined => Err(Failure::bad_request(format!("patch: {name} needs a value"))),
            value => Ok(value),
        };
        let kind = match name {
            "add" => Kind::Add(value()?),
            "set" => Kind::Set(value()?),
            "replace" => Kind::Replace(value()?),
            "remove" => Kind::Remove,
            "incr" | "increment" => {
                let by = value()?.as_number();
                Kind::Increment(by.ok_or_else(|| Failure::bad_request("patch: incr needs a number"))?)
            }
            "move" => Kind::Move(path("from")?),
            other => return Err(Failure::bad_request(format!("patch: there is no operation {other:?}"))),
        };
        Ok(Operation { kind, path: path("path")? })
    }

    fn apply(&self, document: &Value) -> Result<Value, Failure> {
        match &self.kind {
            Kind::Add(value) => put(document, &self.path, value, Put::Add),
            Kind::Set(value) => put(document, &self.path, value, Put::Set),
            Kind::Replace(value) => put(document, &self.path, value, Put::Replace),
            Kind::Remove => remove(document, &self.path).map(|(document, _)| document),
            Kind::Increment(by) => {
                let sum = match at(document, &self.path) {
                    Value::Undefined => *by,
                    Value::Number(number) => number + by,
                    _ => return Err(Failure::bad_request("patch: incr is for numbers")),
                };
                if !sum.is_finite() {
                    return Err(Failure::bad_request("patch: the sum is too large"));
                }
                put(document, &self.path, &Value::Number(sum), Put::Set)
            }
            Kind::Move(from) => {
                if self.path.starts_with(from) && self.path.len() > from.len() {
                    return Err(Failure::bad_request("patch: a value cannot be moved into itself"));
                }
                let (rest, moved) = remove(document, from)?;
                put(&rest, &self.path, &moved, Put::Add)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    /// Into an array, others make room.
    Add,
    /// In an array, instead of what is there.
    Set,
    /// There must be something.
    Replace,
}

/// The names of a JSON pointer.
fn pointer(text: &str) -> Option<Vec<String>> {
    let rest = text.strip_prefix('/')?;
    Some(rest.split('/').map(|name| name.replace("~1", "/").replace("~0", "~")).collect())
}

fn missing(path: &[String]) -> Failure {
    Failure::bad_request(format!("patch: the path {:?} does not exist in the document", path.join("/")))
}

/// The place in an array; its length stands for `-` too.
fn index(name: &str, length: usize) -> Option<usize> {
    if name == "-" { Some(length) } else { name.parse().ok() }
}

fn at(document: &Value, path: &[String]) -> Value {
    path.iter().fold(document.clone(), |value, name| match &value {
        Value::Array(items) => index(name, items.len()).map_or(Value::Undefined, |index| value.at(index)),
        _ => value.get(name),
    })
}

/// The same value with another one at a path.
fn put(value: &Value, path: &[String], new: &Value, how: Put) -> Result<Value, Failure> {
    let Some((name, rest)) = path.split_first() else { return Ok(new.clone()) };
    match value {
        Value::Object(object) => {
            let found = object.get(name);
            let child = match (found, rest) {
                (None, []) if how == Put::Replace => return Err(missing(path)),
                (_, []) => new.clone(),
                (Some(found), _) => put(found, rest, new, how)?,
                (None, _) => return Err(missing(path)),
            };
            let mut changed: Object = Object::clone(object);
            changed.insert(name.as_str(), child);
            Ok(Value::object(changed))
        }
        Value::Array(items) => {
            let place = index(name, items.len()).ok_or_else(|| missing(path))?;
            let mut changed = items.to_vec();
            match rest {
                [] if place == changed.len() && how != Put::Replace => changed.push(new.clone()),
                _ if place >= changed.len() => return Err(missing(path)),
                [] if how == Put::Add => changed.insert(place, new.clone()),
                [] => changed[place] = new.clone(),
                _ => changed[place] = put(&changed[place], rest, new, how)?,
            }
            Ok(Value::array(changed))
        }
        _ => Err(missing(path)),
    }
}

/// The same value without what is at a path, and that.
fn remove(value: &Value, path: &[String]) -> Result<(Value, Value), Failure> {
    let Some((name, rest)) = path.split_first() else { return Err(missing(path)) };
    match value {
        Value::Object(object) => {
            let mut changed: Object = Object::clone(object);
            let found = changed.get(name).cloned().ok_or_else(|| missing(path))?;
            if rest.is_empty() {
                changed.remove(name);
                return Ok((Value::object(changed), found));
            }
            let (child, removed) = remove(&found, rest)?;
            changed.insert(name.as_str(), child);
            Ok((Value::object(changed), removed))
        }
        Value::Array(items) => {
            let place =
                index(name, items.len()).filter(|place| *place < items.len()).ok_or_else(|| missing(path))?;
            let mut changed = items.to_vec();
            if rest.is_empty() {
                let removed = changed.remove(place);
                return Ok((Value::array(changed), removed));
            }
            let (child, removed) = remove(&changed[place], rest)?;
            changed[place] = child;
            Ok((Value::array(changed), removed))
        }
        _ => Err(missing(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(operations: &str) -> Result<String, Failure> {
        let document = Value::from_json(br#"{"id":"a","n":1,"list":[1,2,3],"in":{"x":1}}"#).unwrap();
        let patch = Patch::parse(&Value::from_json(operations.as_bytes()).unwrap(), None)?;
        patch.apply(&document).map(|value| value.to_json())
    }

    #[test]
    fn every_operation_does_what_the_service_says() {
        for (operations, result) in [
            (
                r#"[{"op":"add","path":"/m","value":5}]"#,
                r#"{"id":"a","n":1,"list":[1,2,3],"in":{"x":1},"m":5}"#,
            ),
            (
                r#"[{"op":"add","path":"/list/1","value":9}]"#,
                r#"{"id":"a","n":1,"list":[1,9,2,3],"in":{"x":1}}"#,
            ),
            (
                r#"[{"op":"add","path":"/list/-","value":9}]"#,
                r#"{"id":"a","n":1,"list":[1,2,3,9],"in":{"x":1}}"#,
            ),
            (
                r#"[{"op":"set","path":"/list/1","value":9}]"#,
                r#"{"id":"a","n":1,"list":[1,9,3],"in":{"x":1}}"#,
            ),
            (
                r#"[{"op":"replace","path":"/in/x","value":null}]"#,
                r#"{"id":"a","n":1,"list":[1,2,3],"in":{"x":null}}"#,
            ),
            (r#"[{"op":"remove","path":"/list/0"}]"#, r#"{"id":"a","n":1,"list":[2,3],"in":{"x":1}}"#),
            (
                r#"[{"op":"incr","path":"/n","value":1.5}]"#,
                r#"{"id":"a","n":2.5,"list":[1,2,3],"in":{"x":1}}"#,
            ),
            (
                r#"[{"op":"incr","path":"/new","value":2}]"#,
                r#"{"id":"a","n":1,"list":[1,2,3],"in":{"x":1},"new":2}"#,
            ),
            (
                r#"[{"op":"move","from":"/in/x","path":"/y"}]"#,
                r#"{"id":"a","n":1,"list":[1,2,3],"in":{},"y":1}"#,
            ),
        ] {
            assert_eq!(patched(operations).unwrap(), result, "{operations}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for wrong in [
            r#"[]"#,
            r#"{"operations":5}"#,
            r#"[{"op":"jump","path":"/a"}]"#,
            r#"[{"op":"set","path":"a","value":1}]"#,
            r#"[{"op":"set","path":"/id","value":"b"}]"#,
            r#"[{"op":"replace","path":"/none","value":1}]"#,
            r#"[{"op":"remove","path":"/none"}]"#,
            r#"[{"op":"set","path":"/none/x","value":1}]"#,
            r#"[{"op":"set","path":"/list/7","value":1}]"#,
            r#"[{"op":"set","path":"/n/x","value":1}]"#,
            r#"[{"op":"incr","path":"/list","value":1}]"#,
            r#"[{"op":"move","from":"/in","path":"/in/x"}]"#,
            r#"[{"op":"add","path":"/x"}]"#,
        ] {
            assert_eq!(patched(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }
}

//! Enums: kept as their labels, in an order that the schema knows.

use polyshard_engine::Value;
use polyshard_sql::ast::{ArrayElemTypeDef, DataType};
use polyshard_sql::{Context, Enum, SqlError, TypeOid};

use super::cast::data_type_of;
use super::{Ex, Translator, collated, literal, name_parts};
use crate::fail::{fail, unsupported};
use crate::types;
use crate::value::array;

/// What SQLite's expressions of values and orders of enums begin with: they have the labels in them.
pub(crate) const MARK: &str = "pg_enum_";

/// The type that a name in a statement means, with its modifier.
pub(crate) fn data_type_in(data_type: &DataType, context: &Context<'_>) -> Result<(TypeOid, i32), SqlError> {
    match data_type {
        DataType::Custom(name, modifiers) if modifiers.is_empty() => {
            let known = data_type_of(data_type);
            let (schema, name) = name_parts(name)?;
            match known {
                Err(error) if error.state.0 == "42704" => {
                    let found = find(context, schema.as_deref(), &name);
                    found.map(|made| (made.type_oid, -1)).ok_or(error)
                }
                known => known,
            }
        }
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::Qualified(element, _),
        ) => {
            let (element, type_mod) = data_type_in(element, context)?;
            let array = types::array_of(element).filter(|_| !types::is_array(element));
            array.map(|array| (array, type_mod)).ok_or_else(|| unsupported(format!("the type {data_type}")))
        }
        other => data_type_of(other),
    }
}

/// An enum by its name.
pub(crate) fn find<'c>(context: &Context<'c>, schema: Option<&str>, name: &str) -> Option<&'c Enum> {
    let known = |schema: &str| {
        let same = |made: &&std::sync::Arc<Enum>| made.name.schema == schema && made.name.name == name;
        context.schema.enums.values().find(same).map(|made| &**made)
    };
    match schema {
        Some(schema) => known(schema),
        None => context.search_path.iter().find_map(|schema| known(schema)),
    }
}

/// An enum by its number.
fn of_type<'c>(context: &Context<'c>, type_oid: TypeOid) -> Option<&'c Enum> {
    if !types::is_enum(type_oid) {
        return None;
    }
    context.schema.enums.get(&type_oid).map(|made| &**made)
}

fn labels(made: &Enum) -> String {
    let labels: Vec<Value> = made.labels.iter().map(|label| Value::from(label.as_str())).collect();
    literal(&array::pack(&labels))
}

/// A value to sort by: an enum's place among its labels.
pub(crate) fn sort_value(context: &Context<'_>, ex: &Ex) -> Result<String, SqlError> {
    match of_type(context, ex.type_oid) {
        Some(made) => Ok(format!("{MARK}place({}, {})", ex.sql, labels(made))),
        None => Ok(collated(&ex.sql, ex.type_oid)),
    }
}

impl Translator<'_> {
    /// A text as a value of an enum, or texts as an array of it: checked when it is computed.
    pub(super) fn enum_checked(&self, sql: &str, type_oid: TypeOid) -> Option<String> {
        let made = of_type(self.context, types::element(type_oid).unwrap_or(type_oid))?;
        let kind = if types::is_array(type_oid) { "array" } else { "value" };
        let name = literal(&Value::from(types::display(made.type_oid).as_str()));
        Some(format!("{MARK}{kind}({sql}, {name}, {})", labels(made)))
    }

    /// Whether a literal's text is a label; of an array, whether all are.
    pub(super) fn check_labels(&self, value: &Value, type_oid: TypeOid) -> Result<(), SqlError> {
        let element = types::element(type_oid).unwrap_or(type_oid);
        let (Some(made), Value::Text(text)) = (of_type(self.context, element), value) else { return Ok(()) };
        let name = types::display(element);
        if types::is_array(type_oid) {
            for one in array::elements(text)? {
                if let Value::Text(text) = array::from_json(element, &one)? {
                    check_label(&text, &name, |label| made.labels.iter().any(|known| known == label))?;
                }
            }
            return Ok(());
        }
        check_label(text, &name, |label| made.labels.iter().any(|known| known == label))
    }
}

/// Refuses a text that is no label.
pub(crate) fn check_label(text: &str, name: &str, known: impl Fn(&str) -> bool) -> Result<(), SqlError> {
    if known(text) {
        return Ok(());
    }
    Err(fail("22P02", format!("invalid input value for enum {name}: \"{text}\"")))
}

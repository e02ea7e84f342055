//! CREATE TYPE … AS ENUM, ALTER TYPE … ADD VALUE, DROP TYPE.

use polyshard_sql::ast::{
    AlterType, AlterTypeAddValue, AlterTypeAddValuePosition, AlterTypeOperation, ObjectName,
    UserDefinedTypeRepresentation,
};
use polyshard_sql::{Context, Enum, SqlError};

use super::drop::depended;
use super::{literal_text, name_list, name_parts, new_name, shown_name};
use crate::fail::{fail, unsupported};
use crate::translate::{file_name, find_enum};
use crate::types;

/// Bytes of a label in PostgreSQL.
const LABEL_BYTES_MAX: usize = 63;

pub(super) fn create(
    name: &ObjectName,
    representation: Option<&UserDefinedTypeRepresentation>,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let Some(UserDefinedTypeRepresentation::Enum { labels }) = representation else {
        return Err(unsupported("types other than enums"));
    };
    let name = new_name(name, context)?;
    let is_enum = find_enum(context, Some(&name.schema), &name.name).is_some();
    if is_enum || super::create::exists(context.schema, &name) {
        return Err(fail("42710", format!("type \"{}\" already exists", name.name)));
    }
    if types::by_name(&name.name).is_some() {
        return Err(unsupported(format!("a type called {} beside PostgreSQL's own", name.name)));
    }
    types::enum_type(&name)?;
    let labels: Vec<String> = labels.iter().map(|label| label.value.clone()).collect();
    for (place, label) in labels.iter().enumerate() {
        check_length(label)?;
        if labels[..place].contains(label) {
            let unique = "pg_enum_typid_label_index";
            return Err(fail(
                "23505",
                format!("duplicate key value violates unique constraint \"{unique}\""),
            ));
        }
    }
    Ok(vec![format!(
        "INSERT INTO polyshard_sql_enum (name, labels) VALUES ({}, {})",
        literal_text(&file_name(&name)),
        name_list(&labels)
    )])
}

fn check_length(label: &str) -> Result<(), SqlError> {
    if label.len() > LABEL_BYTES_MAX {
        return Err(fail("42602", format!("invalid enum label \"{label}\""))
            .detail(format!("Labels must be {LABEL_BYTES_MAX} bytes or less.")));
    }
    Ok(())
}

fn known<'c>(name: &ObjectName, context: &Context<'c>) -> Result<Option<&'c Enum>, SqlError> {
    let (schema, bare) = name_parts(name)?;
    Ok(find_enum(context, schema.as_deref(), &bare))
}

pub(super) fn alter(alter: &AlterType, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let made = known(&alter.name, context)?;
    let made = made.ok_or_else(|| fail("42704", format!("type \"{}\" does not exist", alter.name)))?;
    let AlterTypeOperation::AddValue(AlterTypeAddValue { if_not_exists, value, position }) = &alter.operation
    else {
        return Err(unsupported(format!("ALTER TYPE … {}", alter.operation)));
    };
    let label = &value.value;
    check_length(label)?;
    if made.labels.contains(label) {
        if *if_not_exists {
            return Ok(Vec::new());
        }
        return Err(fail("42710", format!("enum label \"{label}\" already exists")));
    }
    let mut labels = made.labels.clone();
    let place_of = |other: &str| {
        let place = labels.iter().position(|known| known == other);
        place.ok_or_else(|| fail("22023", format!("\"{other}\" is not an existing enum label")))
    };
    let place = match position {
        None => labels.len(),
        Some(AlterTypeAddValuePosition::Before(other)) => place_of(&other.value)?,
        Some(AlterTypeAddValuePosition::After(other)) => place_of(&other.value)? + 1,
    };
    labels.insert(place, label.clone());
    Ok(vec![format!(
        "UPDATE polyshard_sql_enum SET labels = {} WHERE name = {}",
        name_list(&labels),
        literal_text(&file_name(&made.name))
    )])
}

pub(super) fn drop_types(
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, SqlError> {
    let mut out = Vec::new();
    for name in names {
        let Some(made) = known(name, context)? else {
            if if_exists {
                continue;
            }
            return Err(fail("42704", format!("type \"{name}\" does not exist")));
        };
        out.extend(drop_enum(made, cascade, context)?);
    }
    Ok(out)
}

/// Takes an enum away, unless columns are of it.
fn drop_enum(made: &Enum, cascade: bool, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let mut details = Vec::new();
    let array = types::array_of(made.type_oid);
    for table in context.schema.tables.values() {
        for column in &table.columns {
            if column.type_oid == made.type_oid || Some(column.type_oid) == array {
                let (name, table) = (shown_name(&made.name), shown_name(&table.name));
                details.push(format!("column {} of table {table} depends on type {name}", column.name));
            }
        }
    }
    if !details.is_empty() {
        if cascade {
            return Err(
                unsupported("DROP TYPE … CASCADE of a type that columns have").hint("drop the columns first")
            );
        }
        return Err(depended(&format!("type {}", shown_name(&made.name)), details.into_iter()));
    }
    let name = literal_text(&file_name(&made.name));
    Ok(vec![format!("DELETE FROM polyshard_sql_enum WHERE name = {name}")])
}

/// The enums of a schema that goes with all that is in it. Columns of other schemas may not be of them.
pub(super) fn of_schema(name: &str, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    let mut out = Vec::new();
    let own = context.schema.enums.values().filter(|made| made.name.schema == name);
    for made in own {
        let array = types::array_of(made.type_oid);
        let used = context.schema.tables.values().filter(|table| table.name.schema != name).any(|table| {
            let mut columns = table.columns.iter();
            columns.any(|column| column.type_oid == made.type_oid || Some(column.type_oid) == array)
        });
        if used {
            return Err(unsupported(format!("DROP SCHEMA {name} while columns elsewhere are of its types")));
        }
        let name = literal_text(&file_name(&made.name));
        out.push(format!("DELETE FROM polyshard_sql_enum WHERE name = {name}"));
    }
    Ok(out)
}

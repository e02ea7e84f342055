//! Proofs at run time: the combine statement reads nothing but what was fetched, and answers in the types that were told.

use polyshard_sql::{Placement, Schema, SqlError, SqlState, TableName};
use serde_json::Value;

/// Refuses a statement whose plan reads a table of which the combine session has only a part.
pub(super) fn relations(explained: &[Vec<Option<String>>], schema: &Schema) -> Result<(), SqlError> {
    let text: String = explained.iter().flatten().flatten().map(String::as_str).collect::<Vec<_>>().join("\n");
    let plan: Value = serde_json::from_str(&text).map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("the combine step's plan could not be read: {error}"))
    })?;
    walk(&plan, schema)
}

fn walk(node: &Value, schema: &Schema) -> Result<(), SqlError> {
    match node {
        Value::Object(fields) => {
            if let (Some(Value::String(name)), Some(Value::String(of))) =
                (fields.get("Relation Name"), fields.get("Schema"))
            {
                check(of, name, schema)?;
            }
            fields.values().try_for_each(|field| walk(field, schema))
        }
        Value::Array(items) => items.iter().try_for_each(|item| walk(item, schema)),
        _ => Ok(()),
    }
}

fn check(of: &str, name: &str, schema: &Schema) -> Result<(), SqlError> {
    if of.starts_with("pg_temp") || of == "pg_catalog" || of == "information_schema" {
        return Ok(());
    }
    let full = TableName { schema: of.to_owned(), name: name.to_owned() };
    match schema.tables.get(&full).map(|table| &table.placement) {
        Some(Placement::Reference { .. }) => Ok(()),
        _ => Err(SqlError::unsupported(
            format!("the query would read one shard's part of \"{full}\" only"),
            "A function or rule reads that table. Query the table itself.",
        )),
    }
}

/// Refuses rows of other types than the client was told.
pub(super) fn same_types(description: &[u8], told: Option<&[u8]>) -> Result<(), SqlError> {
    let Some(told) = told else { return Ok(()) };
    let told = told.get(5..).unwrap_or_default();
    if types(description) == types(told) {
        return Ok(());
    }
    Err(SqlError::new(SqlState::INTERNAL_ERROR, "the answer's types are not those of the statement"))
}

/// The types in a RowDescription's body.
fn types(mut body: &[u8]) -> Option<Vec<u32>> {
    let count = u16::from_be_bytes(*body.first_chunk()?);
    body = &body[2..];
    let mut types = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        let end = body.iter().position(|byte| *byte == 0)?;
        let fields = body.get(end + 1..end + 19)?;
        types.push(u32::from_be_bytes(*fields.get(6..)?.first_chunk()?));
        body = &body[end + 19..];
    }
    Some(types)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_may_be_read() {
        let plan = |of: &str, name: &str| {
            let node = format!(r#"[{{"Plan": {{"Plans": [{{"Relation Name": "{name}", "Schema": "{of}"}}]}}}}]"#);
            vec![vec![Some(node)]]
        };
        let schema = Schema::default();
        assert!(relations(&plan("pg_temp_3", "ps_0"), &schema).is_ok());
        assert!(relations(&plan("pg_catalog", "pg_class"), &schema).is_ok());
        assert!(relations(&plan("public", "orders"), &schema).is_err());
    }

    #[test]
    fn types_are_found_behind_the_names() {
        let body = b"\0\x01id\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
        assert_eq!(types(body), Some(vec![23]));
    }
}

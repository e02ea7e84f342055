//! A proof at run time: the combine statement reads nothing but what was fetched.

use polyshard_sql::{Placement, Schema, SqlError, SqlState, TableName};
use serde_json::Value;

/// Refuses a statement whose plan reads a table of which the combine session has only a part.
pub(super) fn relations(explained: &[Vec<Option<String>>], schema: &Schema) -> Result<(), SqlError> {
    let text: String =
        explained.iter().flatten().flatten().map(String::as_str).collect::<Vec<_>>().join("\n");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_may_be_read() {
        let plan = |of: &str, name: &str| {
            let node =
                format!(r#"[{{"Plan": {{"Plans": [{{"Relation Name": "{name}", "Schema": "{of}"}}]}}}}]"#);
            vec![vec![Some(node)]]
        };
        let schema = Schema::default();
        assert!(relations(&plan("pg_temp_3", "ps_0"), &schema).is_ok());
        assert!(relations(&plan("pg_catalog", "pg_class"), &schema).is_ok());
        assert!(relations(&plan("public", "orders"), &schema).is_err());
    }
}

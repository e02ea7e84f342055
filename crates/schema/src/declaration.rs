//! What is declared of tables and functions, and its stored form.

use polyshard_map::{MapName, ShardId};
use polyshard_sql::TableName;
use serde::{Deserialize, Serialize};

use crate::JournalError;

/// The store of SQL tables, in the list of datasets.
pub const STORE: &str = "sql";

/// Something to be declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declaration {
    /// Each row of the table is on the shard that the map says for the column's value.
    Sharded {
        /// The table.
        table: TableName,
        /// The map.
        map: MapName,
        /// The key column.
        column: String,
    },
    /// All rows of the table are on every shard.
    Reference {
        /// The table.
        table: TableName,
    },
    /// All rows of the table are on one shard.
    Local {
        /// The table.
        table: TableName,
        /// The shard.
        shard: ShardId,
    },
    /// The function reads no table, so that it may run on a shard in a query over several.
    TableFree {
        /// The function; all of its overloads.
        function: TableName,
    },
}

impl Declaration {
    /// The table that it is about, if it is about one.
    pub fn table(&self) -> Option<&TableName> {
        match self {
            Declaration::Sharded { table, .. }
            | Declaration::Reference { table }
            | Declaration::Local { table, .. } => Some(table),
            Declaration::TableFree { .. } => None,
        }
    }
}

/// What is stored of a table or function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Declared {
    Sharded { map: MapName, column: String },
    Reference,
    Local { shard: ShardId },
    TableFree,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    declared: Declared,
}

/// The format this program writes.
const FORMAT: u32 = 1;

impl Declared {
    pub(crate) fn write(&self) -> String {
        let stored = Stored { format: FORMAT, declared: self.clone() };
        serde_json::to_string(&stored).expect("a declaration has string keys only and always serialises")
    }

    pub(crate) fn read(name: &str, body: &str) -> Result<(TableName, Declared), JournalError> {
        let damaged = |detail: String| JournalError::Damaged { what: "declaration", detail };
        let stored: Stored =
            serde_json::from_str(body).map_err(|error| damaged(format!("{name}: {error}")))?;
        if stored.format > FORMAT {
            return Err(damaged(format!("{name} is of a newer format; upgrade this process")));
        }
        let plain = name.strip_prefix(FUNCTION_MARK).unwrap_or(name);
        let (schema, name) = plain.split_once('.').ok_or_else(|| damaged(format!("{name} has no schema")))?;
        Ok((TableName { schema: schema.to_owned(), name: name.to_owned() }, stored.declared))
    }
}

/// What names of functions begin with, to tell them from tables.
const FUNCTION_MARK: &str = "function ";

/// The name that a table's declaration has in the catalog, and its dataset too. A schema's name has no dot here: see
/// [`crate::declare`].
pub(crate) fn key(table: &TableName) -> String {
    format!("{}.{}", table.schema, table.name)
}

pub(crate) fn function_key(function: &TableName) -> String {
    format!("{FUNCTION_MARK}{}", key(function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_of_format_1_is_read_for_ever() {
        let body = r#"{"format":1,"declared":{"is":"sharded","map":"tenants","column":"tenant_id"}}"#;
        let (name, declared) = Declared::read("public.orders", body).unwrap();
        assert_eq!(name, TableName::public("orders"));
        let map = MapName::new("tenants").unwrap();
        assert_eq!(declared, Declared::Sharded { map, column: "tenant_id".into() });
        assert_eq!(declared.write(), body);
        let body = r#"{"format":1,"declared":{"is":"table_free"}}"#;
        let (name, declared) = Declared::read("function public.f", body).unwrap();
        assert_eq!((name, declared), (TableName::public("f"), Declared::TableFree));
        assert!(Declared::read("public.orders", r#"{"format":2,"declared":{"is":"reference"}}"#).is_err());
    }
}

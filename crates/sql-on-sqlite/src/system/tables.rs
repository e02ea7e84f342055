//! The tables of the system catalog, read once from their list.

use std::collections::HashMap;
use std::sync::OnceLock;

use polyshard_sql::TypeOid;

use super::names::Names;
use super::text_literal;
use crate::settings::Settings;
use crate::types;

/// The number of the schema pg_catalog.
const SYSTEM: u32 = 11;

/// A table of the catalog.
pub(super) struct Table {
    pub schema: &'static str,
    pub name: &'static str,
    pub columns: Vec<Column>,
    /// Where its rows come from; none for a table without rows.
    from: Option<&'static str>,
}

/// One column.
pub(super) struct Column {
    pub name: &'static str,
    pub type_oid: TypeOid,
    /// SQLite's expression.
    sql: &'static str,
}

impl Column {
    /// Whether it is for our own functions.
    pub fn is_hidden(&self) -> bool {
        self.name.starts_with('#')
    }
}

/// A table by its name; without a schema only those of pg_catalog are found, as in PostgreSQL.
pub(super) fn find(schema: Option<&str>, name: &str) -> Option<&'static Table> {
    static TABLES: OnceLock<HashMap<String, Table>> = OnceLock::new();
    let tables = TABLES.get_or_init(read);
    tables.get(&format!("{}.{name}", schema.unwrap_or("pg_catalog")))
}

fn read() -> HashMap<String, Table> {
    let mut tables = HashMap::new();
    let mut open: Option<Table> = None;
    for line in include_str!("../rules/system.txt").lines() {
        if let Some(full) = line.strip_prefix("TABLE ") {
            let (schema, name) = full.split_once('.').expect("a table has a schema");
            open = Some(Table { schema, name, columns: Vec::new(), from: None });
        } else if let Some(rest) = line.strip_prefix("EMPTY ") {
            let (full, columns) = rest.split_once(' ').expect("an empty table has columns");
            let (schema, name) = full.split_once('.').expect("a table has a schema");
            let column = |column: &'static str| {
                let (name, kind) = column.split_once(' ').expect("a column has a type");
                Column { name, type_oid: type_of(kind), sql: "NULL" }
            };
            let columns = columns.split(", ").map(column).collect();
            tables.insert(full.to_owned(), Table { schema, name, columns, from: None });
        } else if let Some(from) = line.strip_prefix("FROM ") {
            let mut table = open.take().expect("FROM ends a table");
            table.from = Some(from);
            tables.insert(format!("{}.{}", table.schema, table.name), table);
        } else if !line.is_empty() && !line.starts_with("//") {
            let (head, sql) = line.split_once(" = ").expect("a column has an expression");
            let (name, kind) = head.split_once(' ').expect("a column has a type");
            let table = open.as_mut().expect("a column is in a table");
            table.columns.push(Column { name, type_oid: type_of(kind), sql });
        }
    }
    tables
}

fn type_of(name: &str) -> TypeOid {
    types::by_name(name).unwrap_or_else(|| panic!("the system catalog names an unknown type {name}"))
}

impl Table {
    /// Its rows, as the body of a CTE whose columns are c1, c2, ….
    pub fn sql(&self, settings: &Settings, names: &Names<'_>) -> String {
        let fill = |text: &str| {
            let text = text.replace("{database}", &text_literal(&settings.database));
            let text = text.replace("{superuser}", if settings.is_superuser { "1" } else { "0" });
            names.filled(&text.replace("{user}", &text_literal(&settings.user)))
        };
        let columns: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, column)| format!("({}) AS \"c{}\"", fill(column.sql), place + 1))
            .collect();
        let from = match self.from {
            None => "(SELECT 1) WHERE false".to_owned(),
            Some(from) => {
                let from = names.filled(from);
                let from = from.replace("{types}", &type_rows(names)).replace("{enums}", &names.labels());
                let from = from.replace("{extensions}", &extension_rows());
                from.replace("{settings}", &setting_rows(settings, names))
            }
        };
        format!("SELECT {} FROM {from}", columns.join(", "))
    }
}

fn type_rows(names: &Names<'_>) -> String {
    let row = |known: &types::TypeInfo, within: u32| {
        format!(
            "({}, {}, {}, '{}', {}, {}, {}, {within})",
            known.oid.0,
            text_literal(known.name),
            known.len,
            known.category,
            i32::from(known.preferred),
            known.element,
            known.array
        )
    };
    let own = types::TYPES.iter().map(|known| row(known, SYSTEM));
    let made = names.types().map(|(known, within)| row(known, within));
    format!("(VALUES {})", own.chain(made).collect::<Vec<_>>().join(", "))
}

fn extension_rows() -> String {
    let row = |(name, version): &(&str, &str)| format!("({}, {})", text_literal(name), text_literal(version));
    format!("(VALUES {})", crate::ddl::EXTENSIONS.iter().map(row).collect::<Vec<_>>().join(", "))
}

fn setting_rows(settings: &Settings, names: &Names<'_>) -> String {
    let all = crate::known_settings::all_settings(settings, names.search_path());
    let rows = all.iter().map(|(name, value)| format!("({}, {})", text_literal(name), text_literal(value)));
    format!("(VALUES {})", rows.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_read_and_has_what_psql_asks_for() {
        for name in
            ["pg_class", "pg_attribute", "pg_index", "pg_constraint", "pg_type", "pg_policy", "pg_proc"]
        {
            assert!(find(None, name).is_some_and(|table| !table.columns.is_empty()), "{name}");
        }
        assert!(find(None, "tables").is_none());
        assert!(find(Some("information_schema"), "tables").is_some());
    }
}

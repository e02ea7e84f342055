//! What the statements of a transaction have called tables otherwise, dropped and made. An SQLite shard knows a table
//! by its name alone: that one is gone and another is new does not tell that they are the same.

use std::collections::BTreeMap;

use polyshard_sql::ast::{self, AlterTableOperation, ObjectName, ObjectType, RenameTableNameKind};
use polyshard_sql::{Schema, Statement, TableName};

use crate::entry::Recorded;
use crate::stable::stored;

/// The tables that there are after some statements, each with the name it had before them; none for those they made.
#[derive(Debug)]
pub(crate) struct Names {
    before: BTreeMap<TableName, Option<TableName>>,
}

impl Names {
    /// After these statements, the schema before them being this.
    pub(crate) fn after(known: &Schema, statements: &[Recorded], search_path: &[String]) -> Names {
        let before = known.tables.keys().map(|name| (name.clone(), Some(name.clone()))).collect();
        let mut names = Names { before };
        for recorded in statements.iter().filter(|recorded| recorded.engine.is_none()) {
            // One that cannot be read was not run on an SQLite shard.
            for statement in polyshard_sql::statements(&recorded.sql).unwrap_or_default() {
                names.note(&statement, known, search_path);
            }
        }
        names
    }

    /// The name now of a table that was called so before; nothing if it was dropped.
    pub(crate) fn now(&self, before: &TableName) -> Option<&TableName> {
        self.before.iter().find(|(_, known)| known.as_ref() == Some(before)).map(|(now, _)| now)
    }

    fn note(&mut self, statement: &Statement, known: &Schema, search_path: &[String]) {
        match statement.ast() {
            Some(ast::Statement::AlterTable(alter)) => {
                let Some(mut from) = self.find(&alter.name, search_path) else { return };
                for operation in &alter.operations {
                    let AlterTableOperation::RenameTable { table_name } = operation else { continue };
                    let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = table_name;
                    let Some((_, name)) = parts(to) else { continue };
                    let to = TableName { schema: from.schema.clone(), name };
                    let before = self.before.remove(&from).flatten();
                    self.before.insert(to.clone(), before);
                    from = to;
                }
            }
            Some(ast::Statement::Drop { object_type: ObjectType::Table, names, .. }) => {
                for name in names {
                    if let Some(gone) = self.find(name, search_path) {
                        self.before.remove(&gone);
                    }
                }
            }
            Some(ast::Statement::Drop { object_type: ObjectType::Schema, names, .. }) => {
                for (_, schema) in names.iter().filter_map(parts) {
                    self.before.retain(|name, _| name.schema != schema);
                }
            }
            Some(ast::Statement::CreateTable(create)) => {
                let Some((schema, name)) = parts(&create.name) else { return };
                let exists = |schema: &&String| *schema == "public" || known.schemas.contains(*schema);
                let first = || search_path.iter().find(exists).cloned();
                let Some(schema) = schema.or_else(first) else { return };
                // IF NOT EXISTS: then it is the one that was there.
                self.before.entry(TableName { schema, name }).or_insert(None);
            }
            _ => {}
        }
    }

    /// The table that a name means now.
    fn find(&self, name: &ObjectName, search_path: &[String]) -> Option<TableName> {
        let (schema, name) = parts(name)?;
        let schemas = schema.map_or_else(|| search_path.to_vec(), |schema| vec![schema]);
        let mut meant = schemas.into_iter().map(|schema| TableName { schema, name: name.clone() });
        meant.find(|name| self.before.contains_key(name))
    }
}

/// The schema, if it is said, and the name.
fn parts(name: &ObjectName) -> Option<(Option<String>, String)> {
    let mut parts = name.0.iter().filter_map(|part| part.as_ident()).map(stored);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => Some((None, name)),
        (Some(schema), Some(name), None) => Some((Some(schema), name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polyshard_sql::{Placement, Table};

    use super::*;

    fn names(statements: &[&str]) -> Vec<(String, Option<String>)> {
        let mut known = Schema::default();
        for name in ["a", "b"] {
            let table = Table {
                name: TableName::public(name),
                columns: Vec::new(),
                primary_key: Vec::new(),
                unique: Vec::new(),
                foreign_keys: Vec::new(),
                row_security: false,
                triggers: false,
                placement: Placement::Reference { declared: false },
            };
            known.tables.insert(TableName::public(name), Arc::new(table));
        }
        let statements: Vec<Recorded> = statements.iter().map(|sql| Recorded::new(*sql)).collect();
        let names = Names::after(&known, &statements, &["public".to_owned()]);
        names.before.into_iter().map(|(now, before)| (now.name, before.map(|name| name.name))).collect()
    }

    fn is(now: &str, before: Option<&str>) -> (String, Option<String>) {
        (now.to_owned(), before.map(str::to_owned))
    }

    #[test]
    fn a_table_is_followed_through_its_names() {
        assert_eq!(names(&["ALTER TABLE a RENAME TO \"C\""]), [is("C", Some("a")), is("b", Some("b"))]);
        // Names that are exchanged.
        let turned =
            ["ALTER TABLE a RENAME TO t", "ALTER TABLE public.b RENAME TO a", "ALTER TABLE t RENAME TO b"];
        assert_eq!(names(&turned), [is("a", Some("b")), is("b", Some("a"))]);
        // A table that takes the name of one that is gone is not that one.
        assert_eq!(names(&["DROP TABLE a", "ALTER TABLE b RENAME TO a"]), [is("a", Some("b"))]);
        assert_eq!(names(&["DROP TABLE a; CREATE TABLE a (x int)"]), [is("a", None), is("b", Some("b"))]);
        assert_eq!(
            names(&["CREATE TABLE IF NOT EXISTS a (x int)"]),
            [is("a", Some("a")), is("b", Some("b"))]
        );
        assert_eq!(names(&["ALTER TABLE IF EXISTS x RENAME TO a"]), [is("a", Some("a")), is("b", Some("b"))]);
    }
}

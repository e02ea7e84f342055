//! Triggers that keep what SQLite cannot add to a table that is there: NOT NULL, checks, references.

use polyshard_sql::TableName;

use super::{beside, literal_text};
use crate::translate::{file_name, quoted};

/// The message by which [`crate::error`] knows the class of an error.
fn raised(state: &str, text: &str) -> String {
    format!("RAISE(ABORT, {})", literal_text(&format!("SQLSTATE {state}: {text}")))
}

fn create(name: &str, when: &str, table: &str, condition: &str, body: &str) -> String {
    format!("CREATE TRIGGER {} {when} ON {} WHEN {condition} BEGIN {body}; END", quoted(name), quoted(table))
}

fn not_null_name(table: &str, column: &str, event: &str) -> String {
    format!("polyshard_not_null_{table}_{column}_{event}")
}

/// A column that must not be NULL from now on: the rows that are there are checked first.
pub(super) fn not_null(table: &str, column: &str) -> Vec<String> {
    let there = literal_text(&format!("column \"{column}\" of relation \"{table}\" contains null values"));
    let new = raised(
        "23502",
        &format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"),
    );
    let (own, name) = (quoted(table), quoted(column));
    let mut out = vec![format!("SELECT pg_raise('23502', {there}) FROM {own} WHERE {name} IS NULL LIMIT 1")];
    for (event, when) in
        [("insert", "BEFORE INSERT".to_owned()), ("update", format!("BEFORE UPDATE OF {name}"))]
    {
        let trigger = not_null_name(table, column, event);
        out.push(create(&trigger, &when, table, &format!("new.{name} IS NULL"), &format!("SELECT {new}")));
    }
    out
}

/// The end of [`not_null`].
pub(super) fn drop_not_null(table: &str, column: &str) -> Vec<String> {
    let drop =
        |event: &str| format!("DROP TRIGGER IF EXISTS {}", quoted(&not_null_name(table, column, event)));
    let renamed =
        format!("NOT NULL of column {column}, which was set before the table or column was renamed");
    let end = literal_text(&format!("_{column}_insert"));
    let left = format!(
        "SELECT pg_raise('0A000', {}) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = {} AND \
         instr(name, 'polyshard_not_null_') = 1 AND substr(name, -length({end})) = {end}",
        literal_text(&renamed),
        literal_text(table)
    );
    vec![drop("insert"), drop("update"), left]
}

/// A check: over a row that is there, and over a new one.
pub(super) fn check(table: &str, name: &str, there: &str, new: &str) -> Vec<String> {
    let violated =
        literal_text(&format!("check constraint \"{name}\" of relation \"{table}\" is violated by some row"));
    let message =
        raised("23514", &format!("new row for relation \"{table}\" violates check constraint \"{name}\""));
    let mut out = vec![format!(
        "SELECT pg_raise('23514', {violated}) FROM {} WHERE NOT ({there}) LIMIT 1",
        quoted(table)
    )];
    for (event, when) in [("insert", "BEFORE INSERT"), ("update", "BEFORE UPDATE")] {
        let trigger = format!("polyshard_check_{table}_{name}_{event}");
        out.push(create(&trigger, when, table, &format!("NOT ({new})"), &format!("SELECT {message}")));
    }
    out
}

/// A foreign key.
pub(super) struct Reference<'a> {
    pub name: &'a str,
    /// What its triggers are called after.
    pub key: &'a str,
    pub child: &'a str,
    pub columns: &'a [String],
    pub parent: &'a str,
    pub parent_columns: &'a [String],
    /// As written: `ON UPDATE … ON DELETE …`.
    pub actions: &'a str,
}

impl Reference<'_> {
    fn message(&self) -> String {
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            self.child, self.name
        )
    }

    /// A row of the child refers to nothing.
    fn missing(&self, row: &str) -> String {
        let set: Vec<String> =
            self.columns.iter().map(|column| format!("{row}{} IS NOT NULL", quoted(column))).collect();
        format!(
            "{} AND NOT EXISTS (SELECT 1 FROM {} AS p WHERE {})",
            set.join(" AND "),
            quoted(self.parent),
            self.same("p.", row)
        )
    }

    /// Checks the rows that are there.
    fn check_rows(&self) -> String {
        format!(
            "SELECT pg_raise('23503', {}) FROM {} AS c WHERE {} LIMIT 1",
            literal_text(&self.message()),
            quoted(self.child),
            self.missing("c.")
        )
    }

    /// Has the table itself keep it, from now on.
    pub fn in_table(&self, text: &str) -> Vec<String> {
        let mut out = vec![self.check_rows()];
        out.extend(rewrite(self.child, &format!("pg_with_constraint(sql, {})", literal_text(text))));
        out
    }

    pub fn statements(&self) -> Vec<String> {
        let (message, missing) = (self.message(), |row: &str| self.missing(row));
        let mut out = vec![self.check_rows()];
        let list =
            |columns: &[String]| columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ");
        let refuse = format!("SELECT {}", raised("23503", &message));
        out.push(create(&self.trigger("insert"), "AFTER INSERT", self.child, &missing("new."), &refuse));
        let when = format!("AFTER UPDATE OF {}", list(self.columns));
        out.push(create(&self.trigger("update"), &when, self.child, &missing("new."), &refuse));

        let referred =
            format!("EXISTS (SELECT 1 FROM {} WHERE {})", quoted(self.child), self.of_child("old."));
        out.push(create(
            &self.trigger("parent_delete"),
            "AFTER DELETE",
            self.parent,
            &referred,
            &self.action("DELETE", &self.columns.iter().map(|_| "NULL".to_owned()).collect::<Vec<_>>()),
        ));
        let moved: Vec<String> = self
            .parent_columns
            .iter()
            .map(|column| format!("old.{0} IS NOT new.{0}", quoted(column)))
            .collect();
        let new: Vec<String> =
            self.parent_columns.iter().map(|column| format!("new.{}", quoted(column))).collect();
        out.push(create(
            &self.trigger("parent_update"),
            &format!("AFTER UPDATE OF {}", list(self.parent_columns)),
            self.parent,
            &format!("({}) AND {referred}", moved.join(" OR ")),
            &self.action("UPDATE", &new),
        ));
        out
    }

    /// What becomes of the referring rows.
    fn action(&self, event: &str, values: &[String]) -> String {
        let child = quoted(self.child);
        let set = |values: &[String]| {
            let parts: Vec<String> = self
                .columns
                .iter()
                .zip(values)
                .map(|(column, value)| format!("{} = {value}", quoted(column)))
                .collect();
            format!("UPDATE {child} SET {} WHERE {}", parts.join(", "), self.of_child("old."))
        };
        if self.actions.contains(&format!("ON {event} CASCADE")) {
            return match event {
                "DELETE" => format!("DELETE FROM {child} WHERE {}", self.of_child("old.")),
                _ => set(values),
            };
        }
        if self.actions.contains(&format!("ON {event} SET NULL")) {
            return set(&vec!["NULL".to_owned(); self.columns.len()]);
        }
        let message = format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
            self.parent, self.name, self.child
        );
        format!("SELECT {}", raised("23503", &message))
    }

    /// A row of the parent has the key of a row of the child.
    fn same(&self, parent_row: &str, child_row: &str) -> String {
        let pairs = self.parent_columns.iter().zip(self.columns);
        let parts: Vec<String> = pairs
            .map(|(theirs, own)| format!("{parent_row}{} = {child_row}{}", quoted(theirs), quoted(own)))
            .collect();
        parts.join(" AND ")
    }

    /// A row of the child has the key of a row of the parent.
    fn of_child(&self, parent_row: &str) -> String {
        let pairs = self.parent_columns.iter().zip(self.columns);
        let parts: Vec<String> =
            pairs.map(|(theirs, own)| format!("{} = {parent_row}{}", quoted(own), quoted(theirs))).collect();
        parts.join(" AND ")
    }

    fn trigger(&self, event: &str) -> String {
        format!("polyshard_reference_{}_{event}", self.key)
    }
}

/// A query that fails if a row refers to nothing. The tables are called as in the file.
pub(crate) fn check_reference(
    name: &str,
    child: &str,
    columns: &[String],
    parent: &str,
    parent_columns: &[String],
) -> String {
    Reference { name, key: name, child, columns, parent, parent_columns, actions: "" }.check_rows()
}

/// Gives a table another text: only for what makes no difference to how its rows are kept. A view that comes and goes
/// tells every connection to read the schema anew.
pub(super) fn rewrite(table: &str, text: &str) -> Vec<String> {
    let own = literal_text(table);
    vec![
        "PRAGMA writable_schema = ON".to_owned(),
        format!("UPDATE sqlite_schema SET sql = {text} WHERE type = 'table' AND name = {own}"),
        "PRAGMA writable_schema = RESET".to_owned(),
        "CREATE VIEW polyshard_schema_changed AS SELECT 1".to_owned(),
        "DROP VIEW polyshard_schema_changed".to_owned(),
    ]
}

/// The end of a constraint. Of those that the table itself keeps, only references and checks can be dropped.
pub(super) fn drop_constraint(table: &TableName, name: &str, if_exists: bool) -> Vec<String> {
    let (key, table) = (beside(table, name), &file_name(table));
    let of = format!("table_name = {} AND name = {}", literal_text(table), literal_text(name));
    let mut out = Vec::new();
    if !if_exists {
        let missing = literal_text(&format!("constraint \"{name}\" of relation \"{table}\" does not exist"));
        out.push(format!(
            "SELECT pg_raise('42704', {missing}) WHERE NOT EXISTS (SELECT 1 FROM polyshard_sql_constraint WHERE {of})"
        ));
    }
    let inline = literal_text(&format!("dropping the constraint {name}, which was written in CREATE TABLE"));
    out.push(format!(
        "SELECT pg_raise('0A000', {inline}) FROM sqlite_schema WHERE type = 'table' AND name = {} \
         AND instr(sql, {}) > 0 AND instr(sql, {}) = 0 AND instr(sql, {}) = 0",
        literal_text(table),
        literal_text(&format!("CONSTRAINT {} ", quoted(name))),
        literal_text(&format!("CONSTRAINT {} FOREIGN KEY ", quoted(name))),
        literal_text(&format!("CONSTRAINT {} CHECK ", quoted(name)))
    ));
    out.extend(rewrite(table, &format!("pg_without_reference(sql, {})", literal_text(&quoted(name)))));
    for event in ["insert", "update"] {
        out.push(format!(
            "DROP TRIGGER IF EXISTS {}",
            quoted(&format!("polyshard_check_{table}_{name}_{event}"))
        ));
    }
    out.extend(drop_reference(&key));
    out.push(format!("DROP INDEX IF EXISTS {}", quoted(&key)));
    out.push(format!("DELETE FROM polyshard_sql_constraint WHERE {of}"));
    out
}

/// The triggers of a foreign key, on both tables.
pub(super) fn drop_reference(key: &str) -> Vec<String> {
    ["insert", "update", "parent_delete", "parent_update"]
        .map(|event| {
            format!("DROP TRIGGER IF EXISTS {}", quoted(&format!("polyshard_reference_{key}_{event}")))
        })
        .to_vec()
}

//! The inner part of a query: SELECT, VALUES or a set operation, before its text is made.

use polyshard_sql::{SqlError, TypeOid};

use super::query::Made;
use super::{Ex, How, Translator, collated};
use crate::prepared::OutColumn;

/// The inner part of a query, whose columns can still be given types.
pub(super) enum Body {
    Select { items: Vec<Ex>, head: String, tail: String, one_row: bool },
    Values(Vec<Vec<Ex>>),
    Made(Made),
    Set { left: Box<Body>, right: Box<Body>, op: &'static str },
}

impl Body {
    pub(super) fn types(&self) -> Vec<TypeOid> {
        match self {
            Body::Select { items, .. } => items.iter().map(|item| item.type_oid).collect(),
            Body::Values(rows) => {
                rows.first().map_or_else(Vec::new, |row| row.iter().map(|value| value.type_oid).collect())
            }
            Body::Made(made) => made.columns.iter().map(|column| column.type_oid).collect(),
            Body::Set { left, .. } => left.types(),
        }
    }

    pub(super) fn type_mods(&self) -> Vec<i32> {
        match self {
            Body::Select { items, .. } => items.iter().map(|item| item.type_mod).collect(),
            Body::Made(made) => made.columns.iter().map(|column| column.type_mod).collect(),
            Body::Values(rows) => vec![-1; rows.first().map_or(0, Vec::len)],
            Body::Set { left, right, .. } => left
                .type_mods()
                .into_iter()
                .zip(right.type_mods())
                .map(|(a, b)| if a == b { a } else { -1 })
                .collect(),
        }
    }

    pub(super) fn one_row(&self) -> bool {
        match self {
            Body::Select { one_row, .. } => *one_row,
            Body::Values(rows) => rows.len() <= 1,
            Body::Made(made) => made.one_row,
            Body::Set { .. } => false,
        }
    }

    pub(super) fn coerce(&mut self, this: &mut Translator<'_>, wanted: &[TypeOid]) -> Result<(), SqlError> {
        let fit = |this: &mut Translator<'_>, value: &mut Ex, wanted: TypeOid| -> Result<(), SqlError> {
            if value.type_oid != wanted {
                let name = value.name.clone();
                let made = this.coerce(value.clone(), wanted, -1, How::Implicit)?;
                *value = Ex { name, ..made };
            }
            Ok(())
        };
        match self {
            Body::Select { items, .. } => {
                for (item, wanted) in items.iter_mut().zip(wanted) {
                    fit(this, item, *wanted)?;
                }
            }
            Body::Values(rows) => {
                for row in rows {
                    for (value, wanted) in row.iter_mut().zip(wanted) {
                        fit(this, value, *wanted)?;
                    }
                }
            }
            Body::Set { left, right, .. } => {
                left.coerce(this, wanted)?;
                right.coerce(this, wanted)?;
            }
            Body::Made(made) => {
                if made.columns.iter().zip(wanted).any(|(column, wanted)| column.type_oid != *wanted) {
                    let mut items = Vec::new();
                    for (place, (column, wanted)) in made.columns.iter_mut().zip(wanted).enumerate() {
                        let own = Ex::of(format!("\"s\".\"c{}\"", place + 1), column.type_oid);
                        items.push(this.coerce(own, *wanted, -1, How::Implicit)?);
                        column.type_oid = *wanted;
                    }
                    made.sql = format!("SELECT {} FROM ({}) AS \"s\"", listed(&items), made.sql);
                }
            }
        }
        Ok(())
    }

    /// As a client sees the values: the names of system objects, `character(n)` with its blanks.
    pub(super) fn shown(&mut self, this: &mut Translator<'_>) -> Result<(), SqlError> {
        if let Body::Set { .. } | Body::Values(_) = self {
            let types = self.types();
            let mods = self.type_mods();
            if !types.iter().zip(&mods).any(|(oid, type_mod)| is_shown_otherwise(*oid, *type_mod)) {
                return Ok(());
            }
            let columns = types
                .iter()
                .zip(mods)
                .map(|(type_oid, type_mod)| OutColumn { name: String::new(), type_oid: *type_oid, type_mod })
                .collect();
            let uses = Ex::of("", TypeOid::UNKNOWN);
            *self = Body::Made(Made { sql: self.text(), columns, uses, one_row: false });
        }
        match self {
            Body::Select { items, .. } => {
                for item in items {
                    item.sql = this.shown_value(&item.sql, item.type_oid, item.type_mod)?;
                }
            }
            Body::Made(made) => {
                if !made.columns.iter().any(|column| is_shown_otherwise(column.type_oid, column.type_mod)) {
                    return Ok(());
                }
                let mut items = Vec::new();
                for (place, column) in made.columns.iter().enumerate() {
                    let own = format!("\"s\".\"c{}\"", place + 1);
                    items.push(Ex::of(
                        this.shown_value(&own, column.type_oid, column.type_mod)?,
                        column.type_oid,
                    ));
                }
                made.sql = format!("SELECT {} FROM ({}) AS \"s\"", listed(&items), made.sql);
            }
            Body::Set { .. } | Body::Values(_) => {}
        }
        Ok(())
    }

    /// Its rows, those that are the same with numbers from 1 on.
    fn numbered(&self) -> String {
        let column = |(place, oid): (usize, &TypeOid)| collated(&format!("\"c{}\"", place + 1), *oid);
        let columns: Vec<String> = self.types().iter().enumerate().map(column).collect();
        let shown: Vec<String> =
            columns.iter().enumerate().map(|(place, sql)| format!("{sql} AS \"c{}\"", place + 1)).collect();
        let by =
            if columns.is_empty() { String::new() } else { format!("PARTITION BY {}", columns.join(", ")) };
        let number = format!("row_number() OVER ({by}) AS \"n\"");
        let list: Vec<String> = shown.into_iter().chain([number]).collect();
        format!("SELECT {} FROM ({})", list.join(", "), self.text())
    }

    pub(super) fn text(&self) -> String {
        match self {
            Body::Select { items, head, tail, .. } => {
                // A table without columns still has rows.
                let list = if items.is_empty() { "NULL".to_owned() } else { listed(items) };
                format!("{head} {list}{tail}")
            }
            Body::Values(rows) => {
                let count = rows.first().map_or(0, Vec::len);
                let row = |row: &Vec<Ex>| {
                    let values: Vec<String> = row.iter().map(|value| value.sql.clone()).collect();
                    format!("({})", values.join(", "))
                };
                let types = self.types();
                let columns: Vec<String> = (1..=count)
                    .map(|place| {
                        format!(
                            "{} AS \"c{place}\"",
                            collated(&format!("\"column{place}\""), types[place - 1])
                        )
                    })
                    .collect();
                let rows: Vec<String> = rows.iter().map(row).collect();
                format!("SELECT {} FROM (VALUES {})", columns.join(", "), rows.join(", "))
            }
            Body::Made(made) => format!("SELECT * FROM ({})", made.sql),
            Body::Set { left, right, op } if !op.starts_with("UNION") && op.ends_with("ALL") => {
                // SQLite has them without ALL only: rows that are the same are told apart by their number.
                let op = op.trim_end_matches(" ALL");
                let names: Vec<String> =
                    (1..=self.types().len()).map(|place| format!("\"c{place}\"")).collect();
                let (left, right) = (left.numbered(), right.numbered());
                format!("SELECT {} FROM ({left} {op} {right})", names.join(", "))
            }
            Body::Set { left, right, op } => {
                let side = |body: &Body| match body {
                    Body::Set { .. } => format!("SELECT * FROM ({})", body.text()),
                    other => other.text(),
                };
                format!("{} {op} {}", side(left), side(right))
            }
        }
    }
}

fn listed(items: &[Ex]) -> String {
    let items = items.iter().enumerate();
    let items: Vec<String> = items
        .map(|(place, item)| format!("{} AS \"c{}\"", collated(&item.sql, item.type_oid), place + 1))
        .collect();
    items.join(", ")
}

fn is_shown_otherwise(oid: TypeOid, type_mod: i32) -> bool {
    (oid == TypeOid::BPCHAR && type_mod > 4) || crate::system::is_named(oid)
}

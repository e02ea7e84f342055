//! References that are checked when a transaction ends: what must be asked before it is decided that it does.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use polyshard_engine::Rows;
use polyshard_sql::ast;
use polyshard_sql::{Context, Kind, SqlError, Statement};

use crate::ddl::check_reference;
use crate::describe::{names, text};
use crate::translate::{file_name, name_parts};

/// The references of all tables: what [`Writes::checks`] is to be given the answer to.
pub const REFERENCES_QUERY: &str = "SELECT table_name, name, columns, target, target_columns, \
     CASE WHEN instr(definition, 'INITIALLY DEFERRED') > 0 THEN 'later' ELSE 'now' END \
     FROM polyshard_sql_constraint WHERE kind = 'f' ORDER BY table_name, name";

/// The tables that a transaction has written, under their names in the file.
#[derive(Debug, Default)]
pub struct Writes {
    /// Those that rows were only added to.
    added: BTreeSet<String>,
    /// Those whose rows may have gone or changed.
    changed: BTreeSet<String>,
}

impl Writes {
    /// Notes what a statement writes; tables that it only reads are noted too, which makes no difference but time.
    pub fn note(&mut self, statement: &Statement, context: &Context<'_>) {
        let Some(tree) = statement.ast() else { return };
        let text = statement.text().to_ascii_lowercase();
        let adds = *statement.kind() == Kind::Insert && !text.contains("conflict");
        let tables = if adds { &mut self.added } else { &mut self.changed };
        let _: ControlFlow<()> = ast::visit_relations(tree, |name| {
            if let Ok((schema, name)) = name_parts(name)
                && let Some(table) = context.schema.table(schema.as_deref(), &name, context.search_path)
            {
                tables.insert(file_name(&table.name));
            }
            ControlFlow::Continue(())
        });
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty()
    }

    /// Queries that fail if a reference that is checked at the end does not hold, from what [`REFERENCES_QUERY`] gives.
    pub fn checks(&self, references: &Rows) -> Result<Vec<String>, SqlError> {
        let mut keys = Vec::new();
        for row in references {
            let [child, name, target] = [0, 1, 3].map(|place| text(row.get(place)));
            let later = text(row.get(5))? == "later";
            keys.push((child?, name?, names(row.get(2))?, target?, names(row.get(4))?, later));
        }
        // What a change does to the rows that refer to it is a change, too.
        let mut changed = self.changed.clone();
        loop {
            let before = changed.len();
            for (child, _, _, target, ..) in &keys {
                if changed.contains(target) {
                    changed.insert(child.clone());
                }
            }
            if changed.len() == before {
                break;
            }
        }
        let concerned = keys
            .iter()
            .filter(|(child, .., later)| *later && (self.added.contains(child) || changed.contains(child)));
        Ok(concerned
            .map(|(child, name, columns, target, target_columns, _)| {
                check_reference(name, child, columns, target, target_columns)
            })
            .collect())
    }
}

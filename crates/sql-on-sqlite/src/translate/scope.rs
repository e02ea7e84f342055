//! What names mean at a place in a statement.

use polyshard_sql::{SqlError, TypeOid};

use super::{Ex, Translator};
use crate::fail::fail;

/// A column in sight.
#[derive(Clone, Debug)]
pub(crate) struct Visible {
    /// The table's name or alias; none for a column merged by USING.
    pub relation: Option<String>,
    pub name: String,
    /// SQLite's expression for it.
    pub sql: String,
    pub type_oid: TypeOid,
    pub type_mod: i32,
    pub not_null: bool,
    /// Whether its bare name finds it, and `*` shows it: not if USING has merged it.
    pub bare: bool,
}

/// A table in sight, for grouping by its primary key.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    pub name: String,
    /// SQLite's expressions of its primary key; empty if it has none.
    pub key: Vec<String>,
}

/// Where an aggregate may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregates {
    Allowed,
    /// The place, for the message.
    Forbidden(&'static str),
    /// Within the arguments of one.
    Inside,
}

/// One query's names.
#[derive(Debug)]
pub(crate) struct Scope {
    pub columns: Vec<Visible>,
    pub relations: Vec<Relation>,
    pub aggregates: Aggregates,
    pub windows_allowed: bool,
    pub saw_aggregate: bool,
    /// SQLite's text of the GROUP BY expressions, once they are known.
    pub groups: Option<Vec<String>>,
    /// Tables whose whole key is grouped by: all their columns may be used.
    pub determined: Vec<String>,
    /// Named windows: name and SQLite's text.
    pub windows: Vec<(String, String)>,
    /// Functions that give rows in the select list, by their text: what stands for their value.
    pub spread: Vec<(String, Ex)>,
}

impl Scope {
    pub fn new() -> Scope {
        Scope {
            columns: Vec::new(),
            relations: Vec::new(),
            aggregates: Aggregates::Forbidden("FROM"),
            windows_allowed: false,
            saw_aggregate: false,
            groups: None,
            determined: Vec::new(),
            windows: Vec::new(),
            spread: Vec::new(),
        }
    }
}

impl Translator<'_> {
    /// The innermost query's names.
    pub fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::new());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// Looks a column up, from the innermost query outwards.
    pub fn column(&self, relation: Option<&str>, name: &str) -> Result<Ex, SqlError> {
        for (level, scope) in self.scopes.iter().enumerate().rev() {
            let mut found = scope.columns.iter().filter(|column| {
                column.name == name
                    && match relation {
                        Some(relation) => column.relation.as_deref() == Some(relation),
                        None => column.bare,
                    }
            });
            let Some(column) = found.next() else {
                if let Some(relation) = relation
                    && scope.relations.iter().any(|known| known.name == relation)
                {
                    return Err(fail("42703", format!("column {relation}.{name} does not exist")));
                }
                continue;
            };
            if found.next().is_some() {
                return Err(fail("42702", format!("column reference \"{name}\" is ambiguous")));
            }
            return Ok(self.reference(level, column));
        }
        match relation {
            Some(relation) => {
                Err(fail("42P01", format!("missing FROM-clause entry for table \"{relation}\"")))
            }
            None => Err(fail("42703", format!("column \"{name}\" does not exist"))),
        }
    }

    /// A column of a query as an expression.
    pub fn reference(&self, level: usize, column: &Visible) -> Ex {
        let scope = &self.scopes[level];
        let mut ex = Ex::of(column.sql.clone(), column.type_oid);
        ex.type_mod = column.type_mod;
        ex.not_null = column.not_null;
        ex.level = Some(level);
        ex.name = Some(column.name.clone());
        let grouped = scope.groups.as_ref().is_some_and(|groups| groups.contains(&column.sql))
            || column.relation.as_ref().is_some_and(|relation| scope.determined.contains(relation));
        if !grouped {
            let shown = match &column.relation {
                Some(relation) => format!("{relation}.{}", column.name),
                None => column.name.clone(),
            };
            ex.ungrouped.push((level, shown));
        }
        ex
    }
}

/// Refuses a column that is neither grouped nor within an aggregate.
pub(crate) fn check_grouped(ex: &Ex, level: usize) -> Result<(), SqlError> {
    match ex.ungrouped.iter().find(|(own, _)| *own == level) {
        None => Ok(()),
        Some((_, name)) => Err(fail(
            "42803",
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ),
        )),
    }
}

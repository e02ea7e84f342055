//! The combine step over rows that are given with it: for a question whose parts are few rows.
//!
//! Proof: the statement is the one that would run over the temporary table, which it calls by the same name. That name
//! stands for rows with the table's own names, types, modifiers and collations; and a value that is written as text and
//! read again under the same settings is the same value.

use std::ops::ControlFlow;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, Visit, VisitMut, Visitor, VisitorMut};

use super::{Fragment, Source, tree};

/// How the rows of a plan's only fragment are combined without a temporary table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quick {
    table: String,
    combine: String,
    rows_max: Option<u64>,
}

/// A column of rows that are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenColumn {
    /// Its name.
    pub name: String,
    /// Its type as PostgreSQL writes it, without a modifier.
    pub element: String,
    /// Likewise, with its modifier.
    pub written: String,
    /// Its collation, with its schema and quoted, if it has one.
    pub collation: Option<String>,
}

impl Quick {
    /// Of a combine statement, if it reads one fragment of all shards and nothing else.
    pub(super) fn of(combined: &Query, fragments: &[Fragment]) -> Option<Quick> {
        let [fragment] = fragments else { return None };
        if fragment.from != Source::EveryShard || !fragment.primary_key.is_empty() || combined.with.is_some()
        {
            return None;
        }
        let mut reads = Reads::default();
        let _ = combined.visit(&mut reads);
        if reads.queries != 1 || reads.relations != [format!("pg_temp.{}", fragment.temp)] {
            return None;
        }
        let mut renamed = combined.clone();
        let _ = VisitMut::visit(&mut renamed, &mut Unqualified(&fragment.temp));
        let combine = renamed.to_string();
        // What is sent must mean what was planned.
        let again = tree::query(&combine).ok()?;
        let quick = Quick { table: fragment.temp.clone(), combine, rows_max: fragment.rows_max };
        (again == renamed).then_some(quick)
    }

    /// The most rows that one shard has for it, if the question itself says so.
    pub fn rows_max(&self) -> Option<u64> {
        self.rows_max
    }

    /// The combine statement, whose parameters are the columns, each as an array.
    pub fn over(&self, columns: &[GivenColumn]) -> String {
        let list = |each: &dyn Fn(usize, &GivenColumn) -> String| {
            let parts = columns.iter().enumerate().map(|(at, column)| each(at, column));
            parts.collect::<Vec<_>>().join(", ")
        };
        let names = list(&|_, column| tree::quoted(&column.name));
        let values = list(&|_, column| {
            let collation =
                column.collation.as_ref().map_or_else(String::new, |name| format!(" COLLATE {name}"));
            format!("(u.{}::{}){collation}", tree::quoted(&column.name), column.written)
        });
        let arrays = list(&|at, column| format!("pg_catalog.unnest(${}::{}[])", at + 1, column.element));
        format!(
            "WITH {} ({names}) AS (SELECT {values} FROM ROWS FROM ({arrays}) AS u ({names})) {}",
            self.table, self.combine
        )
    }
}

/// What a query reads, and how many queries there are in it.
#[derive(Default)]
struct Reads {
    relations: Vec<String>,
    queries: usize,
}

impl Visitor for Reads {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.relations.push(relation.to_string());
        ControlFlow::Continue(())
    }
}

/// Calls the table by its name alone.
struct Unqualified<'u>(&'u str);

impl VisitorMut for Unqualified<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        relation.0 = vec![ObjectNamePart::Identifier(Ident::new(self.0))];
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(temp: &str) -> Fragment {
        Fragment {
            temp: temp.to_owned(),
            sql: String::new(),
            from: Source::EveryShard,
            primary_key: Vec::new(),
            rows_max: Some(1),
            shard_mark: String::new(),
        }
    }

    #[test]
    fn only_what_reads_the_given_rows_alone_is_combined_over_them() {
        let of = |sql: &str| Quick::of(&tree::query(sql).unwrap(), &[fragment("ps_0")]);
        let quick = of("SELECT sum(ps_0.a0), 'pg_temp.ps_0' FROM pg_temp.ps_0 LIMIT 1").unwrap();
        assert_eq!(quick.rows_max(), Some(1));
        let column = GivenColumn {
            name: "a0".to_owned(),
            element: "numeric".to_owned(),
            written: "numeric(9,2)".to_owned(),
            collation: None,
        };
        assert_eq!(
            quick.over(&[column]),
            "WITH ps_0 (\"a0\") AS (SELECT (u.\"a0\"::numeric(9,2)) FROM ROWS FROM \
             (pg_catalog.unnest($1::numeric[])) AS u (\"a0\")) \
             SELECT sum(ps_0.a0), 'pg_temp.ps_0' FROM ps_0 LIMIT 1"
        );
        for other in [
            "SELECT 1 FROM pg_temp.ps_0, countries",
            "SELECT 1 FROM pg_temp.ps_0 WHERE ps_0.c0 IN (SELECT 1)",
            "SELECT 1 FROM pg_temp.ps_0, pg_temp.ps_0 AS again",
            "WITH x AS (SELECT 1) SELECT 1 FROM pg_temp.ps_0",
            "SELECT 1 FROM pg_temp.ps_1",
            "SELECT 1",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

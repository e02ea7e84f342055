//! The combine step over rows that are given with it: for a question whose parts are few rows.
//!
//! Proof: the statement is the one that would run over the temporary table, which it calls by the same name. That name
//! stands for rows with the table's own names, types, modifiers and collations; and a value that is written as text and
//! read again under the same settings is the same value.

use std::ops::ControlFlow;

use crate::ast::{
    Expr, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Visit,
    VisitMut, Visitor, VisitorMut,
};

use super::tree::Facts;
use super::{Fragment, Source, tree};

/// How the rows of a plan's only fragment are combined without a temporary table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quick {
    table: String,
    combine: String,
    rows_max: Option<u64>,
    folds: Option<Vec<Fold>>,
}

/// How a column of the answer comes from one column of the shards' rows, by its place, if that is whole numbers.
///
/// Proof: sums of whole numbers that fit are the same in any order and on any machine, as are the least and the
/// greatest of them; NULL is left out, and the answer if there is nothing else. What does not fit is not computed so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The sum as a bigint, 0 if there is nothing.
    Count(usize),
    /// The sum as a bigint.
    Sum(usize),
    /// The least, of the column's type.
    Least(usize),
    /// The greatest, of the column's type.
    Greatest(usize),
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
        let folds = if fragment.rows_max == Some(1) { folds(combined, &fragment.temp) } else { None };
        let quick = Quick { table: fragment.temp.clone(), combine, rows_max: fragment.rows_max, folds };
        (again == renamed).then_some(quick)
    }

    /// The most rows that one shard has for it, if the question itself says so.
    pub fn rows_max(&self) -> Option<u64> {
        self.rows_max
    }

    /// How each column of the only row comes from the shards' own, if it can be said so.
    pub fn folds(&self) -> Option<&[Fold]> {
        self.folds.as_deref()
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

/// Of a combine statement that is nothing but aggregates of the shards' own.
fn folds(combined: &Query, temp: &str) -> Option<Vec<Fold>> {
    let SetExpr::Select(select) = combined.body.as_ref() else { return None };
    // Written once more from what is looked at here: whatever else it has makes it another one.
    let list: Vec<String> = select.projection.iter().map(ToString::to_string).collect();
    let plain = tree::query(&format!("SELECT {} FROM pg_temp.{temp}", list.join(", "))).ok()?;
    if plain != *combined || !is_ungrouped(select) {
        return None;
    }
    let fold = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { expr, .. } => fold(expr, temp),
        _ => None,
    };
    select.projection.iter().map(fold).collect()
}

fn is_ungrouped(select: &Select) -> bool {
    matches!(&select.group_by, GroupByExpr::Expressions(items, _) if items.is_empty())
}

/// A way to fold a column, and the words before and after the column that ask for it.
type Form = (fn(usize) -> Fold, &'static str, &'static str);

fn fold(expr: &Expr, temp: &str) -> Option<Fold> {
    let forms: [Form; 4] = [
        (Fold::Count, "(COALESCE(sum(", "), 0)::bigint)"),
        (Fold::Sum, "(sum(", ")::bigint)"),
        (Fold::Least, "min(", ")"),
        (Fold::Greatest, "max(", ")"),
    ];
    let facts = Facts::of(expr);
    let [column] = facts.columns.as_slice() else { return None };
    let at = column.to_string().strip_prefix(temp)?.strip_prefix(".a")?.parse().ok()?;
    let is = |before: &str, after: &str| {
        tree::expression(&format!("{before}{temp}.a{at}{after}")).is_ok_and(|known| known == *expr)
    };
    forms.into_iter().find(|(_, before, after)| is(before, after)).map(|(fold, ..)| fold(at))
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
    fn counts_and_sums_of_whole_numbers_are_added_up() {
        let of = |sql: &str| Quick::of(&tree::query(sql).unwrap(), &[fragment("ps_0")]).unwrap().folds;
        let sql = "SELECT (COALESCE(sum(ps_0.a0), 0)::bigint) AS \"n\", (sum(ps_0.a1)::bigint) AS \"s\", \
                   max(ps_0.a12) AS \"m\", min(ps_0.a0) AS \"l\" FROM pg_temp.ps_0";
        let expected = vec![Fold::Count(0), Fold::Sum(1), Fold::Greatest(12), Fold::Least(0)];
        assert_eq!(of(sql), Some(expected));
        for other in [
            "SELECT sum(ps_0.a0) AS s FROM pg_temp.ps_0",
            "SELECT max(ps_0.a0) + 1 AS s FROM pg_temp.ps_0",
            "SELECT max(ps_0.g0) AS s FROM pg_temp.ps_0",
            "SELECT max(ps_0.a0) AS s FROM pg_temp.ps_0 LIMIT 0",
            "SELECT max(ps_0.a0) AS s FROM pg_temp.ps_0 HAVING max(ps_0.a0) > 1",
            "SELECT max(ps_0.a0) AS s FROM pg_temp.ps_0 WHERE true",
            "SELECT max(ps_0.a0) AS s FROM pg_temp.ps_0 GROUP BY ps_0.a1",
            "SELECT max(DISTINCT ps_0.a0) AS s FROM pg_temp.ps_0",
            "SELECT max(ps_0.a0) FILTER (WHERE false) AS s FROM pg_temp.ps_0",
            "SELECT max(ps_0.a0) OVER () AS s FROM pg_temp.ps_0",
        ] {
            assert_eq!(of(other), None, "{other}");
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

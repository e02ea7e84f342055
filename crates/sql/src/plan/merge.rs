//! Rows that each shard has sorted, put together in their order as they come: no temporary table, no second sort.
//!
//! Proof: the answer's rows are those of all shards together, sorted. Each shard's rows come sorted by the same keys.
//! The least of the rows that are next on each shard is the least of all that are left, since every other is behind
//! one of those. With LIMIT n OFFSET m the first n + m rows of the whole are among each shard's own first n + m. Rows
//! whose keys are equal may come in any order, as from PostgreSQL itself. What remains to be known, and only when the
//! types and collations are, is whether whoever puts the rows together can compare the keys as PostgreSQL does.

use crate::ast::{Expr, LimitClause, OrderByExpr, OrderBySort, Query};

use super::tree::{self, whole};
use super::{Fragment, Planner, Source};

/// How the rows of all shards are put together in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merge {
    /// What each shard is asked: the keys, by which its rows come sorted, and then the columns of the answer.
    pub rows: Fragment,
    /// Its keys alone, for those who want to know what they are like.
    pub keys_alone: Fragment,
    /// How the rows are sorted by each of its first columns.
    pub keys: Vec<SortedBy>,
    /// How many columns the answer has, if there are keys.
    pub columns: usize,
    /// How many rows are passed over.
    pub offset: u64,
    /// How many rows there are at most after those.
    pub limit: Option<u64>,
    /// The statement that would say the same over a temporary table.
    combine: Query,
}

/// How rows are sorted by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortedBy {
    /// The greatest value first.
    pub descending: bool,
    /// NULL before everything else.
    pub nulls_first: bool,
}

impl SortedBy {
    fn of(item: &OrderByExpr) -> Option<SortedBy> {
        let descending = match item.options.sort {
            None | Some(OrderBySort::Asc) => false,
            Some(OrderBySort::Desc) => true,
            // An order of the operator's own.
            Some(OrderBySort::Using(_)) => return None,
        };
        let nulls_first = item.options.nulls_first.unwrap_or(descending);
        item.with_fill.is_none().then_some(SortedBy { descending, nulls_first })
    }
}

/// What a merge is made from, beside the query itself.
pub(super) struct Sorted<'s> {
    /// What each shard computes; limited if the query is.
    pub inner: &'s Query,
    /// The names of its columns.
    pub names: &'s [String],
    /// What it is called.
    pub temp: &'s str,
    /// The columns of the answer.
    pub list: &'s [String],
    pub order: &'s [OrderByExpr],
    /// The statement over the temporary table.
    pub combine: &'s Query,
}

impl Planner<'_> {
    /// Notes how a query's rows could be merged, if they can.
    pub(super) fn note_merge(&mut self, query: &Query, sorted: &Sorted<'_>) {
        self.merge = self.merge_of(query, sorted);
    }

    fn merge_of(&self, query: &Query, sorted: &Sorted<'_>) -> Option<Merge> {
        let (limit, offset) = window(query)?;
        let keys = sorted.order.iter().map(SortedBy::of).collect::<Option<Vec<_>>>()?;
        let from = format!("({}) AS {} ({})", sorted.inner, sorted.temp, sorted.names.join(", "));
        let columns: Vec<String> =
            sorted.order.iter().enumerate().map(|(at, item)| format!("{} AS k{at}", item.expr)).collect();
        let mut text = format!("SELECT {} FROM {from}", [&columns[..], sorted.list].concat().join(", "));
        if !sorted.order.is_empty() {
            let order: Vec<String> = sorted.order.iter().map(OrderByExpr::to_string).collect();
            text = format!("{text} ORDER BY {}", order.join(", "));
        }
        let alone = if columns.is_empty() { "NULL".to_owned() } else { columns.join(", ") };
        // What is sent must mean what was planned, as with every fragment; the keys alone are a part of it.
        if tree::query(&text).ok()?.to_string() != text {
            return None;
        }
        let fragment = |sql: String| Fragment {
            temp: sorted.temp.to_owned(),
            sql,
            from: Source::EveryShard,
            primary_key: Vec::new(),
            rows_max: limit.and_then(|limit| limit.checked_add(offset)),
            shard_mark: self.shard_mark.clone(),
        };
        Some(Merge {
            rows: fragment(text),
            keys_alone: fragment(format!("SELECT {alone} FROM {from}")),
            keys,
            columns: sorted.list.len(),
            offset,
            limit,
            combine: sorted.combine.clone(),
        })
    }
}

impl Merge {
    /// Of rows that are in no order, one shard after the other.
    pub(super) fn unsorted(rows: &Fragment, query: Query) -> Merge {
        let (rows, keys_alone) = (rows.clone(), rows.clone());
        Merge { rows, keys_alone, keys: Vec::new(), columns: 0, offset: 0, limit: None, combine: query }
    }

    /// Whether it says the same as this combine statement over these fragments.
    pub(super) fn is_whole(&self, combined: &Query, fragments: &[Fragment]) -> bool {
        fragments.len() == 1 && fragments[0].temp == self.rows.temp && self.combine == *combined
    }

    /// How it is told by EXPLAIN.
    pub(super) fn explain(&self) -> String {
        let mut line = match self.keys.len() {
            0 => "Merge: one shard after the other".to_owned(),
            1 => "Merge: in the order of the first column, as the rows come".to_owned(),
            keys => format!("Merge: in the order of the first {keys} columns, as the rows come"),
        };
        if let Some(limit) = self.limit {
            line.push_str(&format!(", {limit} rows"));
        }
        if self.offset > 0 {
            line.push_str(&format!(", after {}", self.offset));
        }
        line
    }
}

/// LIMIT and OFFSET, if they are known numbers.
fn window(query: &Query) -> Option<(Option<u64>, u64)> {
    let number = |expr: &Expr| whole(expr).filter(|number| i64::try_from(*number).is_ok());
    let (limit, offset) = match &query.limit_clause {
        None => (None, 0),
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
            let limit = limit.as_ref().map(|limit| number(limit).ok_or(())).transpose().ok()?;
            (limit, offset.as_ref().map_or(Some(0), |offset| number(&offset.value))?)
        }
        Some(_) => return None,
    };
    match &query.fetch {
        None => Some((limit, offset)),
        Some(fetch) if limit.is_none() && !fetch.with_ties && !fetch.percent => {
            Some((Some(fetch.quantity.as_ref().map_or(Some(1), number)?), offset))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_numbers_of_rows_are_a_window() {
        let of = |end: &str| window(&tree::query(&format!("SELECT 1 FROM t {end}")).unwrap());
        assert_eq!(of(""), Some((None, 0)));
        assert_eq!(of("LIMIT 3 OFFSET 2"), Some((Some(3), 2)));
        assert_eq!(of("LIMIT ALL OFFSET '7'::bigint"), Some((None, 7)));
        assert_eq!(of("OFFSET 2 ROWS FETCH FIRST ROW ONLY"), Some((Some(1), 2)));
        assert_eq!(of("FETCH FIRST 5 ROWS ONLY"), Some((Some(5), 0)));
        for other in [
            "LIMIT 1 + 1",
            "LIMIT NULL",
            "LIMIT -1",
            "LIMIT 2.5",
            "LIMIT 99999999999999999999",
            "LIMIT 9223372036854775808",
            "OFFSET n",
            "ORDER BY 1 FETCH FIRST 2 ROWS WITH TIES",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn nulls_are_where_postgresql_puts_them() {
        let of = |end: &str| {
            let query = tree::query(&format!("SELECT a FROM t ORDER BY a {end}")).unwrap();
            let items = super::super::shape::order_items(query.order_by.as_ref()).unwrap();
            SortedBy::of(&items[0]).map(|sorted| (sorted.descending, sorted.nulls_first))
        };
        assert_eq!(of(""), Some((false, false)));
        assert_eq!(of("DESC"), Some((true, true)));
        assert_eq!(of("ASC NULLS FIRST"), Some((false, true)));
        assert_eq!(of("DESC NULLS LAST"), Some((true, false)));
        assert_eq!(of("USING >"), None);
    }
}

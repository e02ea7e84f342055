//! Queries by seed that need more than one clause's rules: LATERAL, USING, windows with frames, ordered-set aggregates,
//! arrays, documents, recursion, collations, row comparisons. Each has one right answer.

use crate::generate::{Generator, Select, quote};
use crate::world::{Kind, Table, Where};

/// Columns of the answers, for an outer ORDER BY.
fn named(kinds: &[(&str, Kind)]) -> Vec<(String, Kind)> {
    kinds.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
}

/// A table's primary key, with an alias before each column.
fn key(table: &Table, alias: &str) -> String {
    let columns = table.columns[..table.key].iter().map(|(name, _)| format!("{alias}.{}", quote(name)));
    columns.collect::<Vec<_>>().join(", ")
}

impl Generator<'_> {
    fn table(&mut self, name: &str) -> Table {
        let found = self.world.tables.iter().find(|table| table.name == name);
        found.expect("every world has it").clone()
    }

    fn any_table(&mut self) -> Table {
        self.dice.pick(&self.world.tables).clone()
    }

    fn sharded(&mut self) -> Table {
        loop {
            let table = self.any_table();
            if table.place != Where::Everywhere {
                return table;
            }
        }
    }

    /// A column of a kind that passes, with an alias before it; the first of the table if none does.
    fn column(&mut self, table: &Table, alias: &str, pass: impl Fn(Kind) -> bool) -> (String, Kind) {
        let all: Vec<_> = table.columns.iter().filter(|(_, kind)| pass(*kind)).collect();
        let (name, kind) = if all.is_empty() { table.columns[0] } else { **self.dice.pick(&all) };
        (format!("{alias}.{}", quote(name)), kind)
    }

    fn literal_of(&mut self, kind: Kind) -> String {
        crate::world::literal(&mut self.dice, kind)
    }

    /// A query of one of the forms below.
    pub(super) fn wide(&mut self) -> Select {
        match self.dice.below(16) {
            0 => self.lateral_group(),
            1 => self.lateral_rows(),
            2 => self.using(),
            3 => self.natural(),
            4 => self.row_comparison(),
            5 | 6 => self.frames(),
            7 => self.ordered_sets(),
            8 => self.grouping_sets(),
            9 => self.arrays(),
            10 => self.documents(),
            11 => self.recursion(),
            12 => self.collated(),
            13 => self.quantified(),
            14 => self.dependent_group(),
            _ => self.shadowed(),
        }
    }

    fn lateral_group(&mut self) -> Select {
        let (outer, inner) = (self.any_table(), self.any_table());
        let (left, kind) = self.column(&outer, "a", |kind| kind != Kind::Json);
        let (right, _) = self.column(&inner, "b", |other| other == kind);
        let (most, most_kind) = self.column(&inner, "b", |kind| matches!(kind, Kind::Int | Kind::Text));
        let join = ["CROSS JOIN LATERAL", "JOIN LATERAL", "LEFT JOIN LATERAL"][self.dice.below(3)];
        let on = if join.starts_with("CROSS") { "" } else { " ON l.n > 0" };
        let sql = format!(
            "SELECT {left} AS o0, l.n AS o1, l.m AS o2 FROM {} AS a {join} (SELECT count(*) AS n, max({most}) AS m \
             FROM {} AS b WHERE {right}::text = {left}::text) AS l{on}",
            outer.name, inner.name
        );
        Select { sql, columns: named(&[("o0", kind), ("o1", Kind::Big), ("o2", most_kind)]) }
    }

    fn lateral_rows(&mut self) -> Select {
        let (outer, inner) = (self.any_table(), self.sharded());
        let (left, kind) = self.column(&outer, "a", |kind| kind != Kind::Json);
        let (right, _) = self.column(&inner, "b", |other| other == kind);
        let (shown, shown_kind) = self.column(&inner, "b", |_| true);
        let sql = format!(
            "SELECT {left} AS o0, l.v AS o1 FROM {} AS a, LATERAL (SELECT {shown} AS v FROM {} AS b \
             WHERE {right}::text IS NOT DISTINCT FROM {left}::text ORDER BY {} LIMIT {}) AS l",
            outer.name,
            inner.name,
            key(&inner, "b"),
            1 + self.dice.below(3)
        );
        Select { sql, columns: named(&[("o0", kind), ("o1", shown_kind)]) }
    }

    fn kind_of(&self, table: &Table, text: &str) -> Kind {
        let bare = text.split_once('.').map_or(text, |(_, name)| name);
        table.columns.iter().find(|(name, _)| quote(name) == bare).map_or(Kind::Text, |column| column.1)
    }

    fn using(&mut self) -> Select {
        let join = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"][self.dice.below(4)];
        let (left, right, by) = *self.dice.pick(&[
            ("orders", "items", "tenant_id"),
            ("orders", "events", "status"),
            ("items", "items", "sku"),
        ]);
        let (left, right) = (self.table(left), self.table(right));
        let (a, a_kind) = self.column(&left, "a", |_| true);
        let (b, b_kind) = self.column(&right, "b", |_| true);
        let kind = self.kind_of(&left, &format!("a.{by}"));
        let sql = format!(
            "SELECT {by}, {a} AS o1, {b} AS o2 FROM {} AS a {join} {} AS b USING ({by})",
            left.name, right.name
        );
        let sql = if self.dice.percent(30) { format!("{sql} WHERE {by} IS NOT NULL") } else { sql };
        Select { sql, columns: named(&[(by, kind), ("o1", a_kind), ("o2", b_kind)]) }
    }

    fn natural(&mut self) -> Select {
        let join = ["NATURAL JOIN", "NATURAL LEFT JOIN", "NATURAL FULL JOIN"][self.dice.below(3)];
        let (left, right) =
            *self.dice.pick(&[("orders", "items"), ("orders", "events"), ("items", "orders")]);
        let sql = format!("SELECT count(*) AS o0 FROM {left} {join} {right}");
        Select { sql, columns: named(&[("o0", Kind::Big)]) }
    }

    fn row_comparison(&mut self) -> Select {
        let (table, other) = (self.sharded(), self.any_table());
        let (a, a_kind) = self.column(&table, "a", |kind| kind != Kind::Json);
        let (b, b_kind) = self.column(&table, "a", |kind| kind != Kind::Json);
        let condition = match self.dice.below(3) {
            0 => {
                let op = ["<", "<=", ">", "=", "<>"][self.dice.below(5)];
                format!("({a}, {b}) {op} ({}, {})", self.literal_of(a_kind), self.literal_of(b_kind))
            }
            1 => {
                let (x, _) = self.column(&other, "b", |_| true);
                let (y, _) = self.column(&other, "b", |_| true);
                let not = ["", "NOT "][self.dice.below(2)];
                format!(
                    "({a}::text, {b}::text) {not}IN (SELECT {x}::text, {y}::text FROM {} AS b)",
                    other.name
                )
            }
            _ => format!("ROW({a}, {b}) IS DISTINCT FROM ROW({}, {b})", self.literal_of(a_kind)),
        };
        let sql = format!("SELECT {a} AS o0, {b} AS o1 FROM {} AS a WHERE {condition}", table.name);
        Select { sql, columns: named(&[("o0", a_kind), ("o1", b_kind)]) }
    }

    /// Windows in a total order, so that every row has one answer.
    fn frames(&mut self) -> Select {
        let table = self.any_table();
        let order = key(&table, "a");
        let (part, _) = self.column(&table, "a", |kind| kind != Kind::Json);
        let (shown, shown_kind) = self.column(&table, "a", |_| true);
        let partition = if self.dice.percent(50) { format!("PARTITION BY {part} ") } else { String::new() };
        let frame = [
            "",
            " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
            " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
            " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        ][self.dice.below(5)];
        let call = match self.dice.below(9) {
            0 => "row_number()".to_owned(),
            1 => format!("lag({shown}::text, 1, 'none')"),
            2 => format!("lead({shown}::text)"),
            3 => format!("first_value({shown}::text)"),
            4 => format!("nth_value({shown}::text, 2)"),
            5 => "ntile(3)".to_owned(),
            6 => format!("count({shown}) FILTER (WHERE {shown} IS NOT NULL)"),
            7 => format!("string_agg({shown}::text, ',')"),
            _ => format!("sum(length({shown}::text))"),
        };
        let over = if self.dice.percent(40) {
            "w".to_owned()
        } else {
            format!("({partition}ORDER BY {order}{frame})")
        };
        let window = if over == "w" {
            format!(" WINDOW w AS ({partition}ORDER BY {order}{frame})")
        } else {
            String::new()
        };
        let sql = format!(
            "SELECT {shown} AS o0, ({call} OVER {over})::text AS o1 FROM {} AS a{window}",
            table.name
        );
        Select { sql, columns: named(&[("o0", shown_kind), ("o1", Kind::Text)]) }
    }

    fn ordered_sets(&mut self) -> Select {
        let table = self.any_table();
        let (group, group_kind) = self.column(&table, "a", |_| true);
        let (any, _) = self.column(&table, "a", |kind| !matches!(kind, Kind::Json));
        let call = match self.dice.below(9) {
            0 => format!("percentile_disc(0.5) WITHIN GROUP (ORDER BY {any})"),
            1 => format!("percentile_cont(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY length({any}::text))"),
            2 => format!("mode() WITHIN GROUP (ORDER BY {any})"),
            3 => format!("round(stddev_samp(length({any}::text)), 6)"),
            4 => format!("round(var_pop(length({any}::text)), 6)"),
            5 => format!("jsonb_agg({any} ORDER BY {any}::text, {})", key(&table, "a")),
            6 => format!("array_agg(DISTINCT {any} ORDER BY {any} DESC)"),
            7 => format!("rank('m') WITHIN GROUP (ORDER BY {any}::text)"),
            _ => format!("jsonb_object_agg({any}::text, 1) FILTER (WHERE {any} IS NOT NULL)"),
        };
        let sql =
            format!("SELECT {group} AS o0, ({call})::text AS o1 FROM {} AS a GROUP BY {group}", table.name);
        Select { sql, columns: named(&[("o0", group_kind), ("o1", Kind::Text)]) }
    }

    fn grouping_sets(&mut self) -> Select {
        let table = self.sharded();
        let (a, a_kind) = self.column(&table, "a", |_| true);
        let (b, b_kind) = self.column(&table, "a", |_| true);
        let sets = match self.dice.below(4) {
            0 => format!("GROUPING SETS (({a}, {b}), ({a}), ())"),
            1 => format!("ROLLUP ({a}, {b})"),
            2 => format!("CUBE ({a}, {b})"),
            _ => format!("GROUPING SETS (({b}), ({a}))"),
        };
        let having = ["", " HAVING count(*) > 1", " HAVING min(1) = 1 AND count(*) < 30"][self.dice.below(3)];
        let sql = format!(
            "SELECT {a} AS o0, {b} AS o1, GROUPING({a}, {b}) AS o2, count(*) AS o3, count(DISTINCT {b}) AS o4 \
             FROM {} AS a GROUP BY {sets}{having}",
            table.name
        );
        let kinds = [("o0", a_kind), ("o1", b_kind), ("o2", Kind::Int), ("o3", Kind::Big), ("o4", Kind::Big)];
        Select { sql, columns: named(&kinds) }
    }

    fn arrays(&mut self) -> Select {
        let (table, other) = (self.sharded(), self.any_table());
        let (a, a_kind) = self.column(&table, "a", |kind| matches!(kind, Kind::Int | Kind::Text));
        let (b, _) = self.column(&other, "b", |kind| kind == a_kind);
        let sql = match self.dice.below(4) {
            0 => format!(
                "SELECT {a}::text AS o0, ARRAY(SELECT {b}::text FROM {} AS b WHERE {b}::text >= {a}::text \
                 ORDER BY 1 LIMIT 3)::text AS o1 FROM {} AS a",
                other.name, table.name
            ),
            1 => format!(
                "SELECT u.x AS o0, u.n::text AS o1 FROM {} AS a, unnest(ARRAY[{a}::text, 'x', NULL]) \
                 WITH ORDINALITY AS u (x, n)",
                table.name
            ),
            2 => format!(
                "SELECT {a}::text AS o0, ((ARRAY[{a}::text, 'y', 'z'])[2:3])::text AS o1 FROM {} AS a \
                 WHERE {a}::text = ANY (ARRAY(SELECT {b}::text FROM {} AS b))",
                table.name, other.name
            ),
            _ => format!(
                "SELECT g.n::text AS o0, (SELECT count(*) FROM {} AS a WHERE length({a}::text) = g.n)::text AS o1 \
                 FROM generate_series(0, 4) AS g (n)",
                table.name
            ),
        };
        Select { sql, columns: named(&[("o0", Kind::Text), ("o1", Kind::Text)]) }
    }

    fn documents(&mut self) -> Select {
        let table = self.any_table();
        let (a, _) = self.column(&table, "a", |_| true);
        let (doc, kind) = self.column(&table, "a", |kind| kind == Kind::Json);
        let doc = if kind == Kind::Json { doc } else { format!("to_jsonb({doc})") };
        let sql = match self.dice.below(4) {
            0 => format!("SELECT {a}::text AS o0, {doc} ->> 'a' AS o1 FROM {} AS a", table.name),
            1 => format!(
                "SELECT jsonb_build_object('k', {a})::text AS o0, jsonb_typeof({doc}) AS o1 FROM {} AS a \
                 WHERE {doc} IS DISTINCT FROM '1'::jsonb",
                table.name
            ),
            2 => format!(
                "SELECT e.value::text AS o0, count(*)::text AS o1 FROM {} AS a, jsonb_array_elements(\
                 CASE WHEN jsonb_typeof({doc}) = 'array' THEN {doc} ELSE '[0]'::jsonb END) AS e (value) GROUP BY 1",
                table.name
            ),
            _ => {
                format!("SELECT row_to_json(a)::text AS o0, (a IS NULL)::text AS o1 FROM {} AS a", table.name)
            }
        };
        Select { sql, columns: named(&[("o0", Kind::Text), ("o1", Kind::Text)]) }
    }

    fn recursion(&mut self) -> Select {
        let sql = match self.dice.below(3) {
            0 => "(WITH RECURSIVE r (n) AS (SELECT min(line) FROM items WHERE line > 0 UNION ALL \
                  SELECT n + 1 FROM r WHERE n < 9) SELECT r.n AS o0, count(i.sku) AS o1 FROM r \
                  LEFT JOIN items i ON i.line = r.n GROUP BY r.n)"
                .to_owned(),
            1 => "(WITH RECURSIVE r AS (SELECT id, customer FROM orders WHERE id < 3 UNION SELECT o.id, o.customer \
                  FROM orders o JOIN r ON o.customer = r.id) SELECT r.id AS o0, count(*) AS o1 FROM r GROUP BY 1)"
                .to_owned(),
            _ => "(WITH RECURSIVE w AS (SELECT status, count(*) AS n FROM orders GROUP BY status), v AS \
                  (SELECT * FROM w WHERE n > 1) SELECT length(status) AS o0, sum(n)::bigint AS o1 FROM v GROUP BY 1)"
                .to_owned(),
        };
        Select { sql, columns: named(&[("o0", Kind::Int), ("o1", Kind::Big)]) }
    }

    fn collated(&mut self) -> Select {
        let table = self.any_table();
        let (text, _) = self.column(&table, "a", |kind| kind == Kind::Text);
        let collation = ["\"C\"", "\"en-x-icu\"", "\"de-x-icu\""][self.dice.below(3)];
        let text = format!("({text})::text COLLATE {collation}");
        let limit = ["", " LIMIT 5"][self.dice.below(2)];
        let sql = match self.dice.below(4) {
            0 => format!(
                "(SELECT {text} AS o0 FROM {} AS a ORDER BY {text} DESC NULLS LAST{limit})",
                table.name
            ),
            1 => format!("SELECT max({text}) AS o0 FROM {} AS a", table.name),
            2 => format!("SELECT {text} AS o0 FROM {} AS a WHERE {text} < 'm' GROUP BY {text}", table.name),
            _ => format!(
                "SELECT DISTINCT {text} AS o0 FROM {} AS a WHERE {text} BETWEEN 'A' AND 'z'",
                table.name
            ),
        };
        Select { sql, columns: named(&[("o0", Kind::Text)]) }
    }

    fn quantified(&mut self) -> Select {
        let (table, other) = (self.sharded(), self.any_table());
        let (a, a_kind) = self.column(&table, "a", |kind| !matches!(kind, Kind::Json | Kind::Bool));
        let (b, _) = self.column(&other, "b", |kind| kind == a_kind);
        let op = ["= ANY", "<> ALL", "> ALL", "<= ANY"][self.dice.below(4)];
        let sql = format!(
            "SELECT {a} AS o0, {a}::text {op} (SELECT {b}::text FROM {} AS b WHERE {b} IS NOT NULL) AS o1, \
             EXISTS (SELECT FROM {} AS b WHERE {b}::text = {a}::text) AS o2 FROM {} AS a",
            other.name, other.name, table.name
        );
        Select { sql, columns: named(&[("o0", a_kind), ("o1", Kind::Bool), ("o2", Kind::Bool)]) }
    }

    /// Columns that the grouped primary key determines.
    fn dependent_group(&mut self) -> Select {
        let join = ["JOIN", "LEFT JOIN"][self.dice.below(2)];
        let on = ["i.tenant_id = o.tenant_id AND i.order_id = o.id", "i.order_id = o.id"][self.dice.below(2)];
        let sql = format!(
            "SELECT o.status AS o0, o.customer AS o1, count(i.line) AS o2 FROM orders o {join} items i ON {on} \
             GROUP BY o.tenant_id, o.id"
        );
        Select { sql, columns: named(&[("o0", Kind::Text), ("o1", Kind::Int), ("o2", Kind::Big)]) }
    }

    /// A WITH query that has a table's name.
    fn shadowed(&mut self) -> Select {
        let sql =
            "(WITH orders AS (SELECT sku AS status, qty AS id FROM items), items AS (SELECT * FROM orders) \
                   SELECT o.status AS o0, i.id AS o1 FROM orders o JOIN items i USING (status) \
                   WHERE o.id IS NOT NULL AND EXISTS (SELECT 1 FROM public.orders p WHERE p.id = i.id))"
                .to_owned();
        Select { sql, columns: named(&[("o0", Kind::Text), ("o1", Kind::Int)]) }
    }
}

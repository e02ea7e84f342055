//! Random statements over the tables of the world, by seed: joins of all kinds, sub-queries, CTEs, views, groups.

use std::fmt::Write as _;

/// Writes one statement.
pub struct Generator {
    state: u64,
    names: usize,
    ctes: Vec<Relation>,
}

/// Something in a FROM, with its columns of whole numbers.
#[derive(Clone)]
struct Relation {
    name: String,
    columns: Vec<String>,
}

const TABLES: [(&str, &[&str]); 7] = [
    ("orders", &["tenant_id", "id"]),
    ("lines", &["tenant_id", "order_id", "product", "tenant_code"]),
    ("countries", &["tenant_id", "n"]),
    ("order_view", &["tenant", "id"]),
    ("five", &["tenant_id", "id"]),
    ("totals", &["tenant_id", "total"]),
    ("top", &["tenant_id"]),
];

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1, names: 0, ctes: Vec::new() }
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let at = self.below(from.len());
        &from[at]
    }

    fn fresh(&mut self) -> String {
        self.names += 1;
        format!("t{}", self.names)
    }

    pub fn select(&mut self) -> String {
        let mut sql = String::new();
        if self.chance(25) {
            sql += "WITH ";
            for number in 0..1 + self.below(2) {
                let name = format!("c{number}");
                let (query, columns) = self.query(2, &[]);
                let _ = write!(sql, "{}{name} AS ({query})", if number > 0 { ", " } else { "" });
                self.ctes.push(Relation { name, columns });
            }
            sql += " ";
        }
        sql += &self.query(3, &[]).0;
        sql
    }

    pub fn write(&mut self) -> String {
        let target = if self.chance(60) { "orders" } else { "lines" };
        let columns: Vec<String> = TABLES
            .iter()
            .find(|(name, _)| *name == target)
            .unwrap()
            .1
            .iter()
            .map(|c| (*c).to_owned())
            .collect();
        let relation = Relation { name: target.to_owned(), columns };
        let mut scope = vec![relation];
        let mut from = String::new();
        if self.chance(40) {
            let (text, relations) = self.item(1, &[]);
            from = text;
            scope.extend(relations);
        }
        let mut condition = self.condition(2, &scope, &[]);
        if self.chance(60) {
            let key = self.constant();
            condition = format!("{target}.tenant_id = {key} AND {condition}");
        }
        if !from.is_empty() && self.chance(70) {
            let other = self.key_of(&scope[1..]);
            condition = format!("{target}.tenant_id = {other} AND {condition}");
        }
        if self.chance(50) {
            let using = if from.is_empty() { String::new() } else { format!(" USING {from}") };
            return format!("DELETE FROM {target}{using} WHERE {condition} RETURNING {target}.*");
        }
        let from = if from.is_empty() { String::new() } else { format!(" FROM {from}") };
        let column = if target == "orders" { "total" } else { "product" };
        // The new value must not depend on which of several joined rows is taken.
        let value = match self.below(3) {
            0 => "1".to_owned(),
            1 => format!("{target}.{}", if target == "orders" { "id" } else { "tenant_code" }),
            _ => {
                let inner = self.fresh();
                format!("(SELECT count(*) FROM lines {inner} WHERE {inner}.tenant_id = {target}.tenant_id)")
            }
        };
        format!("UPDATE {target} SET {column} = {value}{from} WHERE {condition} RETURNING {target}.*")
    }

    /// A query and the names of its columns; `outer` can be referred to.
    fn query(&mut self, depth: usize, outer: &[Relation]) -> (String, Vec<String>) {
        if depth > 1 && self.chance(12) {
            let (one, columns) = self.query(depth - 1, outer);
            let (other, others) = self.query(depth - 1, outer);
            if columns.len() == others.len() {
                let operator = *self.pick(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
                return (format!("({one}) {operator} ({other})"), columns);
            }
            return (one, columns);
        }
        let mut from = String::new();
        let mut scope: Vec<Relation> = Vec::new();
        for place in 0..1 + usize::from(self.chance(45)) + usize::from(self.chance(20)) {
            if place == 0 {
                let (text, relations) = self.item(depth, outer);
                from = text;
                scope = relations;
            } else {
                self.join(&mut from, &mut scope, depth, outer);
            }
        }
        let mut condition = self.condition(depth, &scope, outer);
        if self.chance(60) {
            let (key, constant) = (self.key_of(&scope), self.constant());
            condition = format!("{key} = {constant} AND {condition}");
        }
        if !outer.is_empty() && self.chance(60) {
            let (inner, key) = (self.key_of(&scope), self.key_of(outer));
            condition = format!("{inner} = {key} AND {condition}");
        }
        let count = 1 + self.below(3);
        let columns: Vec<String> = (0..count).map(|at| format!("x{at}")).collect();
        let mut picked: Vec<String> = (0..count).map(|_| self.column(&scope)).collect();
        if self.chance(50) {
            picked[0] = self.key_of(&scope);
        }
        if depth > 1 && self.chance(8) {
            let (sub, _) = self.query(1, &[scope.clone(), outer.to_vec()].concat());
            picked[count - 1] = format!("(SELECT count(*) FROM ({sub}) AS {})", self.fresh());
        }
        let shape = self.below(10);
        let list = |values: &[String]| {
            let items: Vec<String> =
                values.iter().enumerate().map(|(at, v)| format!("{v} AS x{at}")).collect();
            items.join(", ")
        };
        let text = match shape {
            0 => {
                let groups = picked.clone();
                picked[count - 1] = "count(*)".to_owned();
                let kept: Vec<String> = groups[..count - 1].to_vec();
                let group =
                    if kept.is_empty() { String::new() } else { format!(" GROUP BY {}", kept.join(", ")) };
                format!("SELECT {} FROM {from} WHERE {condition}{group}", list(&picked))
            }
            1 => format!("SELECT DISTINCT {} FROM {from} WHERE {condition}", list(&picked)),
            2 => {
                let partition = self.column(&scope);
                let order = self.column(&scope);
                picked[count - 1] = format!("rank() OVER (PARTITION BY {partition} ORDER BY {order})");
                format!("SELECT {} FROM {from} WHERE {condition}", list(&picked))
            }
            3 => {
                let order: Vec<String> = (1..=count).map(|n| n.to_string()).collect();
                let limit = 1 + self.below(4);
                format!(
                    "SELECT {} FROM {from} WHERE {condition} ORDER BY {} LIMIT {limit}",
                    list(&picked),
                    order.join(", ")
                )
            }
            _ => format!("SELECT {} FROM {from} WHERE {condition}", list(&picked)),
        };
        (text, columns)
    }

    fn item(&mut self, depth: usize, outer: &[Relation]) -> (String, Vec<Relation>) {
        let name = self.fresh();
        if depth > 1 && self.chance(20) {
            let (query, columns) = self.query(depth - 1, &[]);
            return (format!("({query}) AS {name}"), vec![Relation { name, columns }]);
        }
        if !self.ctes.is_empty() && self.chance(35) {
            let at = self.below(self.ctes.len());
            let cte = self.ctes[at].clone();
            return (format!("{} AS {name}", cte.name), vec![Relation { name, columns: cte.columns }]);
        }
        let _ = outer;
        let number = if self.chance(75) { self.below(3) } else { self.below(TABLES.len()) };
        let (table, columns) = TABLES[number];
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        (format!("{table} AS {name}"), vec![Relation { name, columns }])
    }

    fn join(&mut self, from: &mut String, scope: &mut Vec<Relation>, depth: usize, outer: &[Relation]) {
        if depth > 1 && self.chance(10) {
            let visible = [scope.clone(), outer.to_vec()].concat();
            let (query, columns) = self.query(1, &visible);
            let name = self.fresh();
            let kind = *self.pick(&["CROSS JOIN LATERAL", "LEFT JOIN LATERAL"]);
            let on = if kind.starts_with("LEFT") { " ON true" } else { "" };
            let _ = write!(from, " {kind} ({query}) AS {name}{on}");
            scope.push(Relation { name, columns });
            return;
        }
        let (text, relations) = self.item(depth, outer);
        let kind = *self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]);
        if kind == "CROSS JOIN" {
            let _ = write!(from, " CROSS JOIN {text}");
            scope.extend(relations);
            return;
        }
        let (left, right) = (self.key_of(scope), self.key_of(&relations));
        let both = [scope.clone(), relations.clone()].concat();
        let mut on = if self.chance(80) { format!("{left} = {right}") } else { "true".to_owned() };
        // A full join must be one that PostgreSQL can merge or hash.
        if kind != "FULL JOIN" && self.chance(50) {
            let more = self.condition(1, &both, &[]);
            on = format!("{on} AND {more}");
        }
        let _ = write!(from, " {kind} {text} ON {on}");
        scope.extend(relations);
    }

    fn column(&mut self, scope: &[Relation]) -> String {
        let relation = self.pick(scope).clone();
        format!("{}.{}", relation.name, self.pick(&relation.columns))
    }

    /// Most often the column that is, or came from, a key.
    fn key_of(&mut self, scope: &[Relation]) -> String {
        let relation = self.pick(scope).clone();
        if self.chance(85) {
            format!("{}.{}", relation.name, relation.columns[0])
        } else {
            self.column(scope)
        }
    }

    fn constant(&mut self) -> String {
        let value = self.below(12);
        match self.below(6) {
            0 => format!("'{value}'"),
            1 => format!("{value}::bigint"),
            _ => value.to_string(),
        }
    }

    fn condition(&mut self, depth: usize, scope: &[Relation], outer: &[Relation]) -> String {
        match self.below(16) {
            0 | 1 => {
                let (one, other) = (self.condition(depth, scope, outer), self.condition(depth, scope, outer));
                format!("({one} AND {other})")
            }
            2 => {
                let (one, other) = (self.condition(depth, scope, outer), self.condition(depth, scope, outer));
                format!("({one} OR {other})")
            }
            3 => format!("NOT ({})", self.condition(depth, scope, outer)),
            4 => format!("{} = {}", self.column(scope), self.column(scope)),
            5 => {
                let (column, one, other) = (self.column(scope), self.constant(), self.constant());
                let not = if self.chance(25) { "NOT " } else { "" };
                format!("{column} {not}IN ({one}, {other})")
            }
            6 => {
                let (column, low) = (self.column(scope), self.below(8));
                format!("{column} BETWEEN {low} AND {}", low + self.below(4))
            }
            7 => format!("{} IS {}NULL", self.column(scope), if self.chance(50) { "NOT " } else { "" }),
            8 if !outer.is_empty() => format!("{} = {}", self.key_of(scope), self.key_of(outer)),
            9 | 10 if depth > 1 => {
                let visible = [scope.to_vec(), outer.to_vec()].concat();
                let (query, columns) = self.query(depth - 1, &visible);
                let not = if self.chance(30) { "NOT " } else { "" };
                if self.chance(50) {
                    return format!("{not}EXISTS ({query})");
                }
                let name = self.fresh();
                let column = self.key_of(scope);
                format!("{column} {not}IN (SELECT {name}.{} FROM ({query}) AS {name})", columns[0])
            }
            11 if depth > 1 => {
                let visible = [scope.to_vec(), outer.to_vec()].concat();
                let (query, columns) = self.query(depth - 1, &visible);
                let name = self.fresh();
                let column = self.key_of(scope);
                format!("{column} = (SELECT max({name}.{}) FROM ({query}) AS {name})", columns[0])
            }
            12 => format!("{} = {}", self.key_of(scope), self.constant()),
            13 => (*self.pick(&["true", "true", "false", "1 = 0", "NULL"])).to_owned(),
            14 => {
                let (one, other) = (self.key_of(scope), self.column(scope));
                format!("({one}, {other}) = ({}, {})", self.below(12), self.below(8))
            }
            _ => "true".to_owned(),
        }
    }
}

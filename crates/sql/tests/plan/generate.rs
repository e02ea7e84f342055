//! Queries by seed, over everything that SELECT can say; each has one right answer, so that answers can be compared.

use crate::world::{Dice, Kind, Where, World, literal};

/// A query and how to compare its answer.
pub struct Case {
    pub sql: String,
    /// The order of the rows is part of the answer.
    pub ordered: bool,
}

/// A column in scope.
#[derive(Debug, Clone)]
struct Column {
    text: String,
    kind: Kind,
}

/// One relation in FROM.
struct Relation {
    alias: String,
    columns: Vec<(String, Kind)>,
    key: Option<(&'static str, String)>,
    /// Columns that tell its rows apart; empty if none do.
    unique: Vec<String>,
}

pub struct Generator<'w> {
    pub dice: Dice,
    pub world: &'w World,
    /// Whether it uses more of SQL than all engines have.
    wide: bool,
    aliases: usize,
    /// CTEs in sight, with their columns.
    commons: Vec<(String, Vec<(String, Kind)>)>,
}

/// A generated SELECT without ORDER BY.
pub struct Select {
    pub sql: String,
    pub columns: Vec<(String, Kind)>,
}

impl<'w> Generator<'w> {
    pub fn new(seed: u64, world: &'w World) -> Generator<'w> {
        Generator { dice: Dice::new(seed), world, wide: true, aliases: 0, commons: Vec::new() }
    }

    /// Of what SQLite shards have too.
    #[allow(dead_code, reason = "one of the test programs asks no SQLite shards")]
    pub fn common(seed: u64, world: &'w World) -> Generator<'w> {
        Generator { wide: false, ..Generator::new(seed, world) }
    }

    pub fn case(&mut self) -> Case {
        self.commons.clear();
        let with = if self.dice.percent(18) { self.with() } else { String::new() };
        let wide = self.wide && with.is_empty() && self.dice.percent(30);
        let select = if wide { self.wide() } else { self.body(2) };
        let mut sql = format!("{with}{}", select.sql);
        let ordered = self.dice.percent(55);
        if ordered {
            sql.push_str(&self.order(&select));
            if self.dice.percent(60) {
                sql.push_str(&format!(" LIMIT {}", self.dice.below(12)));
                if self.dice.percent(40) {
                    sql.push_str(&format!(" OFFSET {}", self.dice.below(5)));
                }
            } else if self.dice.percent(20) {
                sql.push_str(&format!(" OFFSET 2 FETCH FIRST {} ROWS ONLY", 1 + self.dice.below(5)));
            }
        }
        Case { sql, ordered }
    }

    /// ORDER BY over all columns, so that only equal rows tie.
    fn order(&mut self, select: &Select) -> String {
        let mut places: Vec<usize> = (0..select.columns.len()).collect();
        for at in (1..places.len()).rev() {
            places.swap(at, self.dice.below(at + 1));
        }
        let items: Vec<String> = places
            .iter()
            .map(|place| {
                let way = ["", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST"][self.dice.below(4)];
                let unique =
                    select.columns.iter().filter(|other| other.0 == select.columns[*place].0).count() == 1;
                let name = &select.columns[*place].0;
                if unique && self.dice.percent(50) && !name.starts_with('?') {
                    format!("\"{name}\"{way}")
                } else {
                    format!("{}{way}", place + 1)
                }
            })
            .collect();
        format!(" ORDER BY {}", items.join(", "))
    }

    fn with(&mut self) -> String {
        let mut parts = Vec::new();
        for at in 0..1 + self.dice.below(2) {
            let select = self.body(1);
            let name = format!("w{at}");
            let columns: Vec<(String, Kind)> =
                select.columns.iter().enumerate().map(|(at, column)| (format!("x{at}"), column.1)).collect();
            let names: Vec<String> = columns.iter().map(|column| column.0.clone()).collect();
            let how = ["", "MATERIALIZED ", "NOT MATERIALIZED "][self.dice.below(3)];
            parts.push(format!("{name} ({}) AS {how}({})", names.join(", "), select.sql));
            self.commons.push((name, columns));
        }
        format!("WITH {} ", parts.join(", "))
    }

    fn body(&mut self, depth: usize) -> Select {
        match self.dice.below(100) {
            0..=13 if depth > 0 => self.set_operation(depth - 1),
            14..=44 => self.aggregate(depth),
            45..=54 => self.windowed(depth),
            55..=59 => self.distinct_on(),
            _ => self.rows(depth),
        }
    }

    fn set_operation(&mut self, depth: usize) -> Select {
        let kinds: Vec<Kind> = (0..1 + self.dice.below(3))
            .map(|_| *self.dice.pick(&[Kind::Int, Kind::Text, Kind::Numeric, Kind::Date, Kind::Bool]))
            .collect();
        let left = self.of_kinds(&kinds, depth);
        let right = self.of_kinds(&kinds, depth);
        let op = *self.dice.pick(&[
            "UNION",
            "UNION ALL",
            "INTERSECT",
            "EXCEPT",
            "EXCEPT ALL",
            "UNION",
            "INTERSECT ALL",
        ]);
        let mut sql = format!("{} {op} {}", left.sql, right.sql);
        if self.dice.percent(20) {
            let third = self.of_kinds(&kinds, depth);
            sql = format!("({sql}) UNION ALL {}", third.sql);
        }
        Select { sql, columns: left.columns }
    }

    /// A SELECT with columns of these kinds.
    fn of_kinds(&mut self, kinds: &[Kind], depth: usize) -> Select {
        let (from, relations) = self.from(depth);
        let scope = scope(&relations);
        let mut columns = Vec::new();
        let mut list = Vec::new();
        for (at, kind) in kinds.iter().enumerate() {
            let expr =
                if self.dice.percent(8) { "NULL".to_owned() } else { self.expression(&scope, *kind, 1) };
            list.push(format!("{expr} AS u{at}"));
            columns.push((format!("u{at}"), *kind));
        }
        let filter = self.filter(&relations, depth);
        let distinct = if self.dice.percent(15) { "DISTINCT " } else { "" };
        Select { sql: format!("SELECT {distinct}{} FROM {from}{filter}", list.join(", ")), columns }
    }

    fn rows(&mut self, depth: usize) -> Select {
        let (from, relations) = self.from(depth);
        let scope = scope(&relations);
        let filter = self.filter(&relations, depth);
        if self.dice.percent(12) {
            let columns: Vec<(String, Kind)> =
                relations.iter().flat_map(|relation| relation.columns.clone()).collect();
            return Select { sql: format!("SELECT * FROM {from}{filter}"), columns };
        }
        let mut columns = Vec::new();
        let mut list = Vec::new();
        for _ in 0..1 + self.dice.below(4) {
            let kind = self.dice.pick(&scope).kind;
            let expr = self.expression(&scope, kind, 2);
            self.output(expr, kind, &mut list, &mut columns);
        }
        if depth > 0 && self.dice.percent(12) {
            let (expr, kind) = self.scalar(&relations, depth - 1);
            self.output(expr, kind, &mut list, &mut columns);
        }
        let distinct = if self.dice.percent(18) { "DISTINCT " } else { "" };
        Select { sql: format!("SELECT {distinct}{} FROM {from}{filter}", list.join(", ")), columns }
    }

    fn output(
        &mut self,
        expr: String,
        kind: Kind,
        list: &mut Vec<String>,
        columns: &mut Vec<(String, Kind)>,
    ) {
        if self.dice.percent(50) {
            let name = format!("o{}", columns.len());
            list.push(format!("{expr} AS {name}"));
            columns.push((name, kind));
        } else {
            columns.push(("?".to_owned(), kind));
            list.push(expr);
        }
    }

    fn distinct_on(&mut self) -> Select {
        // Ordered by a key of the table, so that the first row of each group is certain.
        let table = self.dice.pick(&self.world.tables).clone();
        let by = self.dice.pick(&table.columns).0;
        let key: Vec<String> = table.columns[..table.key].iter().map(|column| quote(column.0)).collect();
        let shown = *self.dice.pick(&table.columns);
        let by = quote(by);
        let sql = format!(
            "(SELECT DISTINCT ON ({by}) {by} AS d0, {} AS d1 FROM {} ORDER BY {by}, {})",
            quote(shown.0),
            table.name,
            key.join(", ")
        );
        let by_kind =
            table.columns.iter().find(|column| quote(column.0) == by).map_or(Kind::Text, |column| column.1);
        Select { sql, columns: vec![("d0".to_owned(), by_kind), ("d1".to_owned(), shown.1)] }
    }

    fn aggregate(&mut self, depth: usize) -> Select {
        let (from, relations) = self.from(depth);
        let scope = scope(&relations);
        let filter = self.filter(&relations, depth);
        let mut groups: Vec<(String, Kind)> = Vec::new();
        for _ in 0..self.dice.below(3) {
            let column = self.dice.pick(&scope).clone();
            let expr = match column.kind {
                Kind::Text if self.dice.percent(30) => format!("upper({})", column.text),
                Kind::Int if self.dice.percent(30) => format!("{} % 3", column.text),
                Kind::Date if self.dice.percent(30) => format!("date_trunc('month', {})::date", column.text),
                _ => column.text.clone(),
            };
            groups.push((expr, column.kind));
        }
        let mut list = Vec::new();
        let mut columns = Vec::new();
        for (expr, kind) in groups.clone() {
            if self.dice.percent(85) {
                self.output(expr, kind, &mut list, &mut columns);
            }
        }
        let shown = list.len();
        for _ in 0..1 + self.dice.below(3) {
            let (expr, kind) = self.aggregated(&scope);
            self.output(expr, kind, &mut list, &mut columns);
        }
        if self.dice.percent(10) {
            list.push(format!("rank() OVER (ORDER BY {})", self.aggregated(&scope).0));
            columns.push(("?".to_owned(), Kind::Big));
        }
        let grouping = if groups.is_empty() {
            String::new()
        } else {
            let by_place = shown == groups.len() && self.dice.percent(30);
            let items: Vec<String> = groups
                .iter()
                .enumerate()
                .map(|(at, group)| if by_place { format!("{}", at + 1) } else { group.0.clone() })
                .collect();
            match self.dice.below(12) {
                0 if !by_place => format!(" GROUP BY ROLLUP ({})", items.join(", ")),
                1 if !by_place => format!(" GROUP BY CUBE ({})", items.join(", ")),
                2 if !by_place => format!(" GROUP BY GROUPING SETS (({}), ())", items.join(", ")),
                _ => format!(" GROUP BY {}", items.join(", ")),
            }
        };
        let having = if self.dice.percent(25) {
            let (expr, _) = (format!("count(*) > {}", self.dice.below(4)), ());
            format!(" HAVING {expr}")
        } else {
            String::new()
        };
        Select { sql: format!("SELECT {} FROM {from}{filter}{grouping}{having}", list.join(", ")), columns }
    }

    fn aggregated(&mut self, scope: &[Column]) -> (String, Kind) {
        let column = self.dice.pick(scope).clone();
        let text = &column.text;
        let condition = if self.dice.percent(15) {
            format!(" FILTER (WHERE {})", self.condition(scope, 0))
        } else {
            String::new()
        };
        let number = scope.iter().find(|column| column.kind.is_number()).cloned();
        let (call, kind) = match self.dice.below(14) {
            0 | 1 => ("count(*)".to_owned(), Kind::Big),
            2 => (format!("count({text})"), Kind::Big),
            3 => (format!("count(DISTINCT {text})"), Kind::Big),
            4 if !matches!(column.kind, Kind::Bool | Kind::Uuid | Kind::Json) => {
                (format!("min({text})"), column.kind)
            }
            5 if !matches!(column.kind, Kind::Bool | Kind::Uuid | Kind::Json) => {
                (format!("max({text})"), column.kind)
            }
            6 | 7 if number.is_some() => {
                let number = number.map_or_else(String::new, |number| number.text);
                let plus = if self.dice.percent(30) { " + 1" } else { "" };
                (format!("sum({number}{plus})"), Kind::Numeric)
            }
            8 | 9 if number.is_some() => {
                let number = number.map_or_else(String::new, |number| number.text);
                (format!("avg({number})"), Kind::Numeric)
            }
            10 => (format!("bool_or({text} IS NULL)"), Kind::Bool),
            11 => {
                let way = ["", " DESC"][self.dice.below(2)];
                (format!("string_agg(DISTINCT {text}::text, ',' ORDER BY {text}::text{way})"), Kind::Text)
            }
            12 => (format!("array_agg({text}::text ORDER BY {text}::text)::text"), Kind::Text),
            _ => (format!("bool_and({text} IS NOT NULL)"), Kind::Bool),
        };
        if call.ends_with("::text") {
            return (call, kind);
        }
        (format!("{call}{condition}"), kind)
    }

    fn windowed(&mut self, depth: usize) -> Select {
        let (from, relations) = self.from(depth.min(1));
        let scope = scope(&relations);
        let filter = self.filter(&relations, 0);
        let (part, by, shown) =
            (self.dice.pick(&scope).clone(), self.dice.pick(&scope).clone(), self.dice.pick(&scope).clone());
        let partition = match self.dice.below(3) {
            0 => String::new(),
            1 => match relations.iter().find_map(|relation| relation.key.as_ref()) {
                Some((_, key)) => format!("PARTITION BY {key} "),
                None => String::new(),
            },
            _ => format!("PARTITION BY {} ", part.text),
        };
        // Peers are counted together, so that ties do not matter.
        let function = ["rank()", "dense_rank()", "count(*)", "percent_rank()"][self.dice.below(4)];
        let sql = format!(
            "SELECT {} AS p0, {} AS p1, {function} OVER ({partition}ORDER BY {}) AS p2 FROM {from}{filter}",
            shown.text, by.text, by.text
        );
        let columns =
            vec![("p0".to_owned(), shown.kind), ("p1".to_owned(), by.kind), ("p2".to_owned(), Kind::Big)];
        Select { sql, columns }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("t{}", self.aliases)
    }

    fn relation(&mut self, depth: usize) -> (String, Relation) {
        let alias = self.alias();
        if !self.commons.is_empty() && self.dice.percent(45) {
            let (name, columns) = self.dice.pick(&self.commons).clone();
            return (
                format!("{name} AS {alias}"),
                Relation { alias, columns, key: None, unique: Vec::new() },
            );
        }
        if depth > 0 && self.dice.percent(15) {
            let select = self.body(depth - 1);
            let columns: Vec<(String, Kind)> =
                select.columns.iter().enumerate().map(|(at, column)| (format!("y{at}"), column.1)).collect();
            let names: Vec<String> = columns.iter().map(|column| column.0.clone()).collect();
            let text = format!("({}) AS {alias} ({})", select.sql, names.join(", "));
            return (text, Relation { alias, columns, key: None, unique: Vec::new() });
        }
        let table = self.dice.pick(&self.world.tables).clone();
        let columns: Vec<(String, Kind)> =
            table.columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        let key = match &table.place {
            Where::Map(map) => Some((*map, format!("{alias}.{}", quote(table.columns[0].0)))),
            Where::Everywhere => None,
        };
        let schema = if self.dice.percent(15) { "public." } else { "" };
        let unique =
            table.columns[..table.key].iter().map(|(name, _)| format!("{alias}.{}", quote(name))).collect();
        (format!("{schema}{} AS {alias}", table.name), Relation { alias, columns, key, unique })
    }

    fn from(&mut self, depth: usize) -> (String, Vec<Relation>) {
        let (mut text, first) = self.relation(depth);
        let mut relations = vec![first];
        let joins = [0, 0, 0, 1, 1, 1, 2][self.dice.below(7)];
        for _ in 0..joins {
            let (next, relation) = self.relation(depth.saturating_sub(1));
            let left = relations.iter().rev().find_map(|other| Some((other.key.clone()?, other)));
            let colocated = match (&left, &relation.key) {
                (Some(((map, left), _)), Some((other, right))) if map == other => {
                    Some(format!("{left} = {right}"))
                }
                _ => None,
            };
            let condition = match colocated {
                Some(condition) if self.dice.percent(75) => condition,
                _ => self.join_condition(&relations, &relation),
            };
            let extra = if self.dice.percent(25) {
                let here: Vec<Column> = qualified(std::slice::from_ref(&relation));
                format!(" AND {}", self.condition(&here, 0))
            } else {
                String::new()
            };
            let hashable = condition.contains(" = ");
            let join = match self.dice.below(8) {
                0..=3 => "JOIN",
                4 | 5 => "LEFT JOIN",
                6 => "RIGHT JOIN",
                _ if hashable && extra.is_empty() => "FULL JOIN",
                _ => "JOIN",
            };
            text = format!("{text} {join} {next} ON {condition}{extra}");
            relations.push(relation);
        }
        (text, relations)
    }

    fn join_condition(&mut self, left: &[Relation], right: &Relation) -> String {
        let lefts = qualified(left);
        let rights = qualified(std::slice::from_ref(right));
        for _ in 0..12 {
            let (a, b) = (self.dice.pick(&lefts).clone(), self.dice.pick(&rights).clone());
            if a.kind == b.kind && a.kind != Kind::Json {
                let op = if self.dice.percent(85) {
                    "="
                } else {
                    ["<", ">=", "IS NOT DISTINCT FROM"][self.dice.below(3)]
                };
                return format!("{} {op} {}", a.text, b.text);
            }
        }
        let (a, b) = (self.dice.pick(&lefts).clone(), self.dice.pick(&rights).clone());
        format!("{}::text = {}::text", a.text, b.text)
    }

    fn filter(&mut self, relations: &[Relation], depth: usize) -> String {
        if self.dice.percent(35) {
            return String::new();
        }
        let scope = scope(relations);
        let mut parts = Vec::new();
        for _ in 0..1 + self.dice.below(2) {
            let part = if depth > 0 && self.dice.percent(22) {
                self.subquery_condition(relations, depth - 1)
            } else {
                self.condition(&scope, 1)
            };
            parts.push(part);
        }
        format!(" WHERE {}", parts.join(" AND "))
    }

    fn condition(&mut self, scope: &[Column], depth: usize) -> String {
        let column = self.dice.pick(scope).clone();
        let text = &column.text;
        if depth > 0 && self.dice.percent(20) {
            let (a, b) = (self.condition(scope, 0), self.condition(scope, 0));
            return match self.dice.below(3) {
                0 => format!("({a} OR {b})"),
                1 => format!("NOT ({a})"),
                _ => format!("({a} AND {b})"),
            };
        }
        match self.dice.below(12) {
            0 => format!("{text} IS NULL"),
            1 => format!("{text} IS NOT NULL"),
            2 => format!("{text} IN ({}, {})", self.literal(column.kind), self.literal(column.kind)),
            3 => format!("{text} BETWEEN {} AND {}", self.literal(column.kind), self.literal(column.kind)),
            4 if column.kind == Kind::Text => {
                let pattern = ["a%", "%r%", "_", "%''%"][self.dice.below(4)];
                let like = ["LIKE", "NOT LIKE", "ILIKE"][self.dice.below(3)];
                format!("{text} {like} '{pattern}'")
            }
            5 => format!("{text} IS DISTINCT FROM {}", self.literal(column.kind)),
            6 if column.kind == Kind::Bool => text.clone(),
            7 if column.kind == Kind::Json => format!("{text} @> '{{\"a\": 1}}'"),
            8 if column.kind != Kind::Json => {
                format!("{text} = ANY (ARRAY[{}, {}])", self.literal(column.kind), self.literal(column.kind))
            }
            9 => {
                let other = self.dice.pick(scope).clone();
                format!("{text}::text <> {}::text", other.text)
            }
            10 => {
                let (a, b) = (self.expression(scope, column.kind, 1), self.expression(scope, column.kind, 0));
                let op = ["=", "<>", "<", "<=", ">", ">="][self.dice.below(6)];
                format!("{a} {op} {b}")
            }
            _ => {
                let op = ["=", "<>", "<", "<=", ">", ">="][self.dice.below(6)];
                format!("{text} {op} {}", self.literal(column.kind))
            }
        }
    }

    fn literal(&mut self, kind: Kind) -> String {
        literal(&mut self.dice, kind)
    }

    fn subquery_condition(&mut self, outer: &[Relation], depth: usize) -> String {
        let lefts = scope(outer);
        match self.dice.below(4) {
            0 | 1 => {
                let (from, relations) = self.from(depth);
                let correlation = self.correlation(outer, &relations);
                let filter = self.condition(&scope(&relations), 0);
                let not = if self.dice.percent(35) { "NOT " } else { "" };
                format!("{not}EXISTS (SELECT 1 FROM {from} WHERE {correlation} AND {filter})")
            }
            2 => {
                let (from, relations) = self.from(depth);
                let rights = scope(&relations);
                let left = self.dice.pick(&lefts).clone();
                let right = self.expression(&rights, left.kind, 0);
                let filter = self.condition(&rights, 0);
                let not = if self.dice.percent(25) { "NOT " } else { "" };
                format!("{} {not}IN (SELECT {right} FROM {from} WHERE {filter})", left.text)
            }
            _ => {
                let (scalar, kind) = self.scalar(outer, depth);
                let left = self.expression(&lefts, kind, 0);
                format!("{left} <= {scalar}")
            }
        }
    }

    fn correlation(&mut self, outer: &[Relation], inner: &[Relation]) -> String {
        let keys = |relations: &[Relation]| relations.iter().find_map(|relation| relation.key.clone());
        match (keys(outer), keys(inner)) {
            (Some((a, left)), Some((b, right))) if a == b && self.dice.percent(65) => {
                format!("{left} = {right}")
            }
            _ => {
                let inner = inner.first().expect("FROM has a relation");
                self.join_condition(outer, inner)
            }
        }
    }

    /// A sub-select of one value.
    fn scalar(&mut self, outer: &[Relation], depth: usize) -> (String, Kind) {
        let (from, relations) = self.from(depth);
        let rights = scope(&relations);
        let correlation = if self.dice.percent(60) {
            self.correlation(outer, &relations)
        } else {
            self.condition(&rights, 0)
        };
        let column = self.dice.pick(&rights).clone();
        let (call, kind) = match column.kind {
            Kind::Bool | Kind::Uuid | Kind::Json => ("count(*)".to_owned(), Kind::Big),
            kind if self.dice.percent(60) => (format!("max({})", column.text), kind),
            _ => ("count(*)".to_owned(), Kind::Big),
        };
        (format!("(SELECT {call} FROM {from} WHERE {correlation})"), kind)
    }

    fn expression(&mut self, scope: &[Column], kind: Kind, depth: usize) -> String {
        let same: Vec<&Column> = scope.iter().filter(|column| column.kind == kind).collect();
        if same.is_empty() {
            return self.literal(kind);
        }
        let column = self.dice.pick(&same).text.clone();
        if depth == 0 || self.dice.percent(55) {
            return column;
        }
        let inner = self.expression(scope, kind, depth - 1);
        match (kind, self.dice.below(4)) {
            (_, 0) => format!("coalesce({column}, {})", self.literal(kind)),
            (_, 1) => format!("CASE WHEN {} THEN {column} ELSE {inner} END", self.condition(scope, 0)),
            (Kind::Int, 2) => format!("{column} % 7"),
            (Kind::Int, _) => format!("abs({inner} % 100)"),
            (Kind::Text, 2) => format!("{column} || '-' || {inner}"),
            (Kind::Text, _) => format!("substr(lower({inner}), 1, 3)"),
            (Kind::Numeric, _) => format!("{column} * 2 - {inner}"),
            (Kind::Date, _) => format!("{column} + 1"),
            (Kind::Bool, _) => format!("NOT {column}"),
            (Kind::Json, _) => format!("({column} || '{{\"k\": 1}}'::jsonb)"),
            _ => format!("nullif({column}, {inner})"),
        }
    }
}

pub fn quote(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}

/// The columns of these relations, with the relation's name before each.
fn qualified(relations: &[Relation]) -> Vec<Column> {
    let mut all = Vec::new();
    for relation in relations {
        for (name, kind) in &relation.columns {
            let text = format!("{}.{}", relation.alias, quote(name));
            all.push(Column { text, kind: *kind });
        }
    }
    all
}

/// The columns of a whole FROM clause; some tables' by their bare names too, if they stand alone.
fn scope(relations: &[Relation]) -> Vec<Column> {
    let mut all = qualified(relations);
    if let [only] = relations
        && only.unique.len() % 2 == 1
    {
        all.extend(only.columns.iter().map(|(name, kind)| Column { text: quote(name), kind: *kind }));
    }
    all
}

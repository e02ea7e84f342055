//! Random documents and queries, as a small syntax tree of their own.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value as Json, json};

pub enum Expr {
    /// None: undefined.
    Literal(Option<Json>),
    /// An alias and property names or array indexes.
    Path(&'static str, Vec<Json>),
    Not(Box<Expr>),
    Minus(Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Conditional(Box<[Expr; 3]>),
    In(Box<Expr>, Vec<Expr>, bool),
    Between(Box<[Expr; 3]>, bool),
    Call(&'static str, Vec<Expr>),
    Array(Vec<Expr>),
    Object(Vec<(&'static str, Expr)>),
    /// EXISTS, ARRAY or a count over the items of a property of `c`.
    Items(&'static str, &'static str, Box<Expr>),
    Aggregate(&'static str, Box<Expr>),
}

pub struct Query {
    pub distinct: bool,
    pub top: Option<usize>,
    pub value: bool,
    pub select: Vec<Expr>,
    /// `JOIN t IN c.<property>`.
    pub join: Option<&'static str>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    pub order_by: Vec<(Expr, bool)>,
    pub window: Option<(usize, usize)>,
}

impl Expr {
    pub fn text(&self) -> String {
        let list = |items: &[Expr]| items.iter().map(Expr::text).collect::<Vec<_>>().join(", ");
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Expr::Literal(None) => "undefined".to_owned(),
            Expr::Literal(Some(value)) => value.to_string(),
            Expr::Path(alias, steps) => {
                let step = |step: &Json| match step.as_str() {
                    Some(key) => format!(".{key}"),
                    None => format!("[{step}]"),
                };
                format!("{alias}{}", steps.iter().map(step).collect::<String>())
            }
            Expr::Not(inner) => format!("(NOT ({}))", inner.text()),
            Expr::Minus(inner) => format!("(- ({}))", inner.text()),
            Expr::Binary(operator, left, right) => format!("({} {operator} {})", left.text(), right.text()),
            Expr::Conditional(parts) => {
                format!("({} ? {} : {})", parts[0].text(), parts[1].text(), parts[2].text())
            }
            Expr::In(value, items, negated) => {
                format!("({} {}IN ({}))", value.text(), not(negated), list(items))
            }
            Expr::Between(parts, negated) => {
                let [value, low, high] = &**parts;
                format!("({} {}BETWEEN {} AND {})", value.text(), not(negated), low.text(), high.text())
            }
            Expr::Call(name, arguments) => format!("{name}({})", list(arguments)),
            Expr::Array(items) => format!("[{}]", list(items)),
            Expr::Object(properties) => {
                let property = |(key, value): &(&str, Expr)| format!("{key}: {}", value.text());
                format!("{{{}}}", properties.iter().map(property).collect::<Vec<_>>().join(", "))
            }
            Expr::Items(form, property, filter) => {
                let filter = filter.text();
                match *form {
                    "COUNT" => format!("(SELECT VALUE COUNT(1) FROM i IN c.{property} WHERE {filter})"),
                    form => format!("{form}(SELECT VALUE i FROM i IN c.{property} WHERE {filter})"),
                }
            }
            Expr::Aggregate(name, argument) => format!("{name}({})", argument.text()),
        }
    }
}

impl Query {
    pub fn text(&self) -> String {
        let mut text = String::from("SELECT ");
        if self.distinct {
            text += "DISTINCT ";
        }
        if let Some(top) = self.top {
            text += &format!("TOP {top} ");
        }
        if self.value {
            text += &format!("VALUE {}", self.select[0].text());
        } else {
            let item = |(index, expr): (usize, &Expr)| format!("{} AS p{index}", expr.text());
            text += &self.select.iter().enumerate().map(item).collect::<Vec<_>>().join(", ");
        }
        text += " FROM c";
        if let Some(property) = self.join {
            text += &format!(" JOIN t IN c.{property}");
        }
        if let Some(filter) = &self.filter {
            text += &format!(" WHERE {}", filter.text());
        }
        if !self.group_by.is_empty() {
            text += " GROUP BY ";
            text += &self.group_by.iter().map(Expr::text).collect::<Vec<_>>().join(", ");
        }
        if !self.order_by.is_empty() {
            let item = |(expr, descending): &(Expr, bool)| {
                format!("{}{}", expr.text(), if *descending { " DESC" } else { "" })
            };
            text += " ORDER BY ";
            text += &self.order_by.iter().map(item).collect::<Vec<_>>().join(", ");
        }
        if let Some((offset, limit)) = self.window {
            text += &format!(" OFFSET {offset} LIMIT {limit}");
        }
        text
    }

    /// False where the evaluators may give the rows in different orders.
    pub fn order_is_fixed(&self) -> bool {
        !self.distinct && self.group_by.is_empty()
    }
}

pub struct Generator {
    random: StdRng,
}

const KEYS: [&str; 4] = ["a", "b", "d", "list"];
const STRINGS: [&str; 7] = ["", "a", "ab", "B", "abc", "é", "10"];

impl Generator {
    pub fn new(seed: u64) -> Self {
        Generator { random: StdRng::seed_from_u64(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    pub fn documents(&mut self) -> Vec<Json> {
        (0..self.below(12))
            .map(|id| {
                let mut document = json!({"id": id.to_string()});
                for key in KEYS {
                    if self.chance(75) {
                        document[key] =
                            if key == "list" && self.chance(80) { self.array(1) } else { self.value(2) };
                    }
                }
                document
            })
            .collect()
    }

    fn primitive(&mut self) -> Json {
        match self.below(9) {
            0 => Json::Null,
            1 => json!(self.chance(50)),
            2..=5 => json!(self.below(7) as i64 - 2),
            6 => json!(self.below(9) as f64 / 4.0),
            _ => json!(self.pick(&STRINGS)),
        }
    }

    fn array(&mut self, depth: usize) -> Json {
        Json::from((0..self.below(4)).map(|_| self.value(depth)).collect::<Vec<_>>())
    }

    fn value(&mut self, depth: usize) -> Json {
        match self.below(10) {
            0 if depth > 0 => self.array(depth - 1),
            1 if depth > 0 => {
                let mut object = json!({});
                for key in ["a", "b"] {
                    if self.chance(60) {
                        object[key] = self.value(depth - 1);
                    }
                }
                object
            }
            _ => self.primitive(),
        }
    }

    fn literal(&mut self) -> Expr {
        if self.chance(4) {
            return Expr::Literal(None);
        }
        Expr::Literal(Some(self.value(1)))
    }

    fn path(&mut self, aliases: &[&'static str]) -> Expr {
        let alias = self.pick(aliases);
        let mut steps = Vec::new();
        if alias == "c" {
            steps.push(json!(self.pick(&KEYS)));
        }
        if self.chance(25) {
            steps.push(if self.chance(50) { json!(self.pick(&["a", "b"])) } else { json!(self.below(3)) });
        }
        Expr::Path(alias, steps)
    }

    fn boxed(&mut self, aliases: &[&'static str], depth: usize) -> Box<Expr> {
        Box::new(self.expr(aliases, depth))
    }

    fn three(&mut self, aliases: &[&'static str], depth: usize) -> Box<[Expr; 3]> {
        Box::new([0; 3].map(|_| self.expr(aliases, depth)))
    }

    pub fn expr(&mut self, aliases: &[&'static str], depth: usize) -> Expr {
        if depth == 0 {
            return if self.chance(60) { self.path(aliases) } else { self.literal() };
        }
        let depth = depth - 1;
        match self.below(20) {
            0..=2 => self.path(aliases),
            3 => self.literal(),
            4 => Expr::Not(self.boxed(aliases, depth)),
            5 => Expr::Minus(self.boxed(aliases, depth)),
            6 => Expr::Conditional(self.three(aliases, depth)),
            7 => {
                let items = (0..1 + self.below(3)).map(|_| self.expr(aliases, 0)).collect();
                Expr::In(self.boxed(aliases, depth), items, self.chance(30))
            }
            8 => Expr::Between(self.three(aliases, depth), self.chance(30)),
            9 | 10 => self.call(aliases, depth),
            11 => Expr::Array((0..self.below(3)).map(|_| self.expr(aliases, depth)).collect()),
            12 => Expr::Object(vec![("x", self.expr(aliases, depth)), ("y", self.expr(aliases, depth))]),
            13 => {
                let form = self.pick(&["EXISTS", "ARRAY", "COUNT"]);
                Expr::Items(form, self.pick(&["list", "a"]), self.boxed(&["c", "i"], depth.min(1)))
            }
            _ => {
                const OPERATORS: [&str; 17] = [
                    "+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", ">=", "AND", "OR", "||", "??", "&",
                    "|",
                ];
                let operator = self.pick(&OPERATORS);
                Expr::Binary(operator, self.boxed(aliases, depth), self.boxed(aliases, depth))
            }
        }
    }

    fn call(&mut self, aliases: &[&'static str], depth: usize) -> Expr {
        const ONE: [&str; 11] = [
            "IS_DEFINED",
            "IS_NULL",
            "IS_NUMBER",
            "IS_STRING",
            "IS_ARRAY",
            "IS_OBJECT",
            "IS_BOOL",
            "ABS",
            "LENGTH",
            "ARRAY_LENGTH",
            "UPPER",
        ];
        const TWO: [&str; 6] =
            ["CONCAT", "CONTAINS", "STARTSWITH", "ENDSWITH", "ARRAY_CONTAINS", "ARRAY_CONCAT"];
        if self.chance(50) {
            return Expr::Call(self.pick(&ONE), vec![self.expr(aliases, depth)]);
        }
        Expr::Call(self.pick(&TWO), vec![self.expr(aliases, depth), self.expr(aliases, depth)])
    }

    fn condition(&mut self, aliases: &[&'static str]) -> Expr {
        let simple = |generator: &mut Self| {
            let path = Box::new(generator.path(aliases));
            let literal = Box::new(generator.literal());
            let operator = generator.pick(&["=", "=", "!=", "<", "<=", ">", ">="]);
            if generator.chance(30) {
                return Expr::Binary(operator, literal, path);
            }
            Expr::Binary(operator, path, literal)
        };
        match self.below(8) {
            0..=2 => simple(self),
            3 => Expr::Binary("AND", Box::new(simple(self)), self.boxed(aliases, 2)),
            4 => Expr::Binary("OR", Box::new(simple(self)), Box::new(simple(self))),
            5 => Expr::Not(self.boxed(aliases, 2)),
            _ => self.expr(aliases, 3),
        }
    }

    fn aggregate(&mut self, aliases: &[&'static str]) -> Expr {
        let name = self.pick(&["COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF", "MAKELIST"]);
        // Aggregates may not contain scalar sub-queries.
        let argument = self.boxed(aliases, 0);
        if self.chance(70) {
            return Expr::Aggregate(name, argument);
        }
        let operator = self.pick(&["+", "??", ">", "="]);
        Expr::Aggregate(name, Box::new(Expr::Binary(operator, argument, self.boxed(aliases, 0))))
    }

    pub fn query(&mut self) -> Query {
        let join = if self.chance(30) { Some(self.pick(&["list", "a"])) } else { None };
        let aliases: &[&'static str] = if join.is_some() { &["c", "t"] } else { &["c"] };
        let filter = if self.chance(70) { Some(self.condition(aliases)) } else { None };
        let mut query = Query {
            distinct: self.chance(15),
            top: None,
            value: self.chance(50),
            select: Vec::new(),
            join,
            filter,
            group_by: Vec::new(),
            order_by: Vec::new(),
            window: None,
        };
        if self.chance(25) {
            query.distinct = false;
            if self.chance(60) {
                query.group_by.push(self.path(aliases));
            }
            query.select.push(self.aggregate(aliases));
            query.select.push(self.aggregate(aliases));
        } else {
            query.select.push(self.expr(aliases, 2));
            query.select.push(self.expr(aliases, 1));
            if self.chance(35) && !query.distinct {
                query.order_by =
                    (0..1 + self.below(2)).map(|_| (self.path(&["c"]), self.chance(40))).collect();
            }
        }
        // Which rows are cut off depends on the order.
        if query.order_is_fixed() && self.chance(25) {
            query.top = self.chance(50).then(|| self.below(5));
            query.window = query.top.is_none().then(|| (self.below(4), self.below(5)));
        }
        query
    }
}

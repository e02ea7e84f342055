//! Random conditions against rows: wherever a row satisfies the condition, its shard is one that the route names.

use std::collections::BTreeSet;

use polyshard_map::{Key, MapName, ShardId};
use polyshard_sql::{Maps, Route, TypeOid};
use proptest::prelude::*;

use crate::lane::agrees;
use crate::world::{Value, World, map_name};

/// A condition over two integers, n (the key) and x, either of which may be NULL.
#[derive(Debug, Clone)]
enum Condition {
    Compare(Column, &'static str, Term),
    Reversed(Term, &'static str, Column),
    In(Column, Vec<Term>, bool),
    Between(Column, Term, Term, bool),
    Any(Column, Vec<Option<i32>>),
    IsNull(Column),
    Constant(Option<bool>),
    Same,
    Tuple(Term, Term),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    IsTrue(Box<Condition>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Column {
    N,
    X,
}

/// A value in the text, or as a parameter.
#[derive(Debug, Clone)]
struct Term {
    value: Option<i32>,
    form: u8,
}

type Truth = Option<bool>;

fn and(a: Truth, b: Truth) -> Truth {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Truth, b: Truth) -> Truth {
    and(a.map(|a| !a), b.map(|b| !b)).map(|both| !both)
}

fn compare(a: Option<i32>, operator: &str, b: Option<i32>) -> Truth {
    let (a, b) = (a?, b?);
    Some(match operator {
        "=" => a == b,
        "<>" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        _ => a >= b,
    })
}

impl Column {
    fn of(self, row: (Option<i32>, Option<i32>)) -> Option<i32> {
        if self == Column::N { row.0 } else { row.1 }
    }

    fn name(self, prefix: &str) -> String {
        format!("{prefix}{}", if self == Column::N { "n" } else { "x" })
    }
}

impl Condition {
    /// By SQL's three-valued logic.
    fn holds(&self, row: (Option<i32>, Option<i32>)) -> Truth {
        match self {
            Condition::Compare(column, operator, term) => compare(column.of(row), operator, term.value),
            Condition::Reversed(term, operator, column) => compare(term.value, operator, column.of(row)),
            Condition::In(column, terms, negated) => {
                let equals = terms.iter().map(|term| compare(column.of(row), "=", term.value));
                let found = equals.fold(Some(false), or);
                if *negated { found.map(|found| !found) } else { found }
            }
            Condition::Between(column, low, high, negated) => {
                let value = column.of(row);
                let inside = and(compare(value, ">=", low.value), compare(value, "<=", high.value));
                if *negated { inside.map(|inside| !inside) } else { inside }
            }
            Condition::Any(column, values) => {
                values.iter().map(|value| compare(column.of(row), "=", *value)).fold(Some(false), or)
            }
            Condition::IsNull(column) => Some(column.of(row).is_none()),
            Condition::Constant(value) => *value,
            Condition::Same => compare(row.0, "=", row.1),
            Condition::Tuple(n, x) => and(compare(row.0, "=", n.value), compare(row.1, "=", x.value)),
            Condition::And(a, b) => and(a.holds(row), b.holds(row)),
            Condition::Or(a, b) => or(a.holds(row), b.holds(row)),
            Condition::Not(a) => a.holds(row).map(|a| !a),
            Condition::IsTrue(a) => Some(a.holds(row) == Some(true)),
        }
    }

    fn sql(&self, prefix: &str, params: &mut Vec<(TypeOid, Value)>) -> String {
        match self {
            Condition::Compare(column, operator, term) => {
                format!("{} {operator} {}", column.name(prefix), term.sql(params))
            }
            Condition::Reversed(term, operator, column) => {
                let term = term.sql(params);
                format!("{term} {operator} {}", column.name(prefix))
            }
            Condition::In(column, terms, negated) => {
                let not = if *negated { "NOT " } else { "" };
                let terms: Vec<String> = terms.iter().map(|term| term.sql(params)).collect();
                format!("{} {not}IN ({})", column.name(prefix), terms.join(", "))
            }
            Condition::Between(column, low, high, negated) => {
                let not = if *negated { "NOT " } else { "" };
                let (low, high) = (low.sql(params), high.sql(params));
                format!("{} {not}BETWEEN {low} AND {high}", column.name(prefix))
            }
            Condition::Any(column, values) => {
                let values: Vec<String> =
                    values.iter().map(|value| value.map_or("NULL".to_owned(), |v| v.to_string())).collect();
                params.push((TypeOid(1007), Value::Text(format!("{{{}}}", values.join(",")))));
                format!("{} = ANY (${})", column.name(prefix), params.len())
            }
            Condition::IsNull(column) => format!("{} IS NULL", column.name(prefix)),
            Condition::Constant(None) => "NULL".to_owned(),
            Condition::Constant(Some(value)) => value.to_string(),
            Condition::Same => format!("{prefix}n = {prefix}x"),
            Condition::Tuple(n, x) => {
                let (n, x) = (n.sql(params), x.sql(params));
                format!("({prefix}n, {prefix}x) = ({n}, {x})")
            }
            Condition::And(a, b) => format!("({} AND {})", a.sql(prefix, params), b.sql(prefix, params)),
            Condition::Or(a, b) => format!("({} OR {})", a.sql(prefix, params), b.sql(prefix, params)),
            Condition::Not(a) => format!("NOT ({})", a.sql(prefix, params)),
            Condition::IsTrue(a) => format!("({}) IS TRUE", a.sql(prefix, params)),
        }
    }
}

impl Term {
    fn sql(&self, params: &mut Vec<(TypeOid, Value)>) -> String {
        let Some(value) = self.value else { return "NULL".to_owned() };
        match self.form {
            0 => format!("{value}"),
            1 => format!("'{value}'"),
            2 => format!("'{value}'::int"),
            3 => format!("CAST({value} AS bigint)"),
            4 => {
                params.push((TypeOid::INT4, Value::Binary(value.to_be_bytes().to_vec())));
                format!("${}", params.len())
            }
            5 => {
                params.push((TypeOid::TEXT, Value::Text(value.to_string())));
                format!("${}::int4", params.len())
            }
            // A form that is not recognised must not lead anywhere wrong either.
            _ => format!("({value} + 0)"),
        }
    }
}

const VALUES: [i32; 9] = [-50, -1, 0, 1, 99, 100, 150, 200, 1000];

fn term() -> impl Strategy<Value = Term> {
    let value = prop_oneof![9 => prop::sample::select(&VALUES[..]).prop_map(Some), 1 => Just(None)];
    (value, 0..7_u8).prop_map(|(value, form)| Term { value, form })
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["=", "=", "=", "<", "<=", ">", ">=", "<>"])
}

fn column() -> impl Strategy<Value = Column> {
    prop_oneof![3 => Just(Column::N), 1 => Just(Column::X)]
}

fn condition() -> impl Strategy<Value = Condition> {
    let elements = prop::option::weighted(0.9, prop::sample::select(&VALUES[..]));
    let leaf = prop_oneof![
        4 => (column(), operator(), term()).prop_map(|(c, o, t)| Condition::Compare(c, o, t)),
        2 => (term(), operator(), column()).prop_map(|(t, o, c)| Condition::Reversed(t, o, c)),
        2 => (column(), prop::collection::vec(term(), 1..4), any::<bool>())
            .prop_map(|(c, t, negated)| Condition::In(c, t, negated)),
        2 => (column(), term(), term(), any::<bool>()).prop_map(|(c, l, h, n)| Condition::Between(c, l, h, n)),
        1 => (column(), prop::collection::vec(elements, 0..4)).prop_map(|(c, v)| Condition::Any(c, v)),
        1 => column().prop_map(Condition::IsNull),
        1 => prop::option::of(any::<bool>()).prop_map(Condition::Constant),
        1 => Just(Condition::Same),
        1 => (term(), term()).prop_map(|(n, x)| Condition::Tuple(n, x)),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        prop_oneof![
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Condition::And(Box::new(a), Box::new(b))),
            3 => (inner.clone(), inner.clone()).prop_map(|(a, b)| Condition::Or(Box::new(a), Box::new(b))),
            1 => inner.clone().prop_map(|a| Condition::Not(Box::new(a))),
            1 => inner.prop_map(|a| Condition::IsTrue(Box::new(a))),
        ]
    })
}

const STATEMENTS: [&str; 3] =
    ["SELECT * FROM numbers WHERE", "DELETE FROM numbers WHERE", "UPDATE numbers SET x = 1 WHERE"];

fn home(world: &World, map: &MapName, n: i32) -> ShardId {
    world.map(map).unwrap().locate(&Key::Int(n)).unwrap().shard().clone()
}

fn named(route: &Route) -> BTreeSet<ShardId> {
    match route {
        Route::One { shard, .. } => BTreeSet::from([shard.clone()]),
        Route::Many { shards, .. } => shards.clone(),
        Route::Nowhere { .. } => BTreeSet::new(),
        other => panic!("not a route by key: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    // G1, C2: no row that the condition lets through is on a shard that is left out.
    #[test]
    fn rows_that_matter_are_on_the_shards_named(condition in condition()) {
        let world = World::new();
        let mut params = Vec::new();
        let sql = format!("SELECT * FROM numbers WHERE {}", condition.sql("", &mut params));
        let route = world.route(&sql, &params, true).unwrap();
        let shards = named(&route);
        for n in VALUES {
            for x in VALUES.map(Some).into_iter().chain([None]) {
                if condition.holds((Some(n), x)) == Some(true) {
                    let home = home(&world, &map_name("ranges"), n);
                    prop_assert!(shards.contains(&home), "{sql}: row ({n}, {x:?}) on {home}, route {route:?}");
                }
            }
        }
    }

    // What is known of a shape leads every statement of it where its own text does.
    #[test]
    fn the_short_way_leads_to_the_same_shards(condition in condition()) {
        let world = World::new();
        let mut params = Vec::new();
        let where_ = condition.sql("", &mut params);
        let given: &[&str] = if params.is_empty() { &STATEMENTS } else { &[] };
        for statement in given {
            let sql = format!("{statement} {where_}");
            if let Some(short) = world.lane(&sql) {
                let long = world.route(&sql, &[], true);
                prop_assert!(agrees(&short, &long), "{sql}: {short:?} {long:?}");
            }
        }
    }

    // The same of a join: each side's rows that take part in the answer are on the shards named.
    #[test]
    fn joined_rows_that_matter_are_on_the_shards_named(
        on in condition(),
        filter in condition(),
        kind in prop::sample::select(vec!["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]),
        on_is_about_right in any::<bool>(),
        filter_is_about_right in any::<bool>(),
    ) {
        let world = World::new();
        let mut params = Vec::new();
        let side = |right: bool| if right { "b." } else { "a." };
        let on_sql = on.sql(side(on_is_about_right), &mut params);
        let filter_sql = filter.sql(side(filter_is_about_right), &mut params);
        let sql = format!("SELECT * FROM numbers a {kind} numbers b ON a.n = b.n AND {on_sql} WHERE {filter_sql}");
        let shards = named(&world.route(&sql, &params, true).unwrap());
        // Two tables with the same rows; each row by itself is a world, since the key joins them one to one.
        for n in VALUES {
            let rows: Vec<(Option<i32>, Option<i32>)> = VALUES.map(|x| (Some(n), Some(x))).to_vec();
            let pick = |right: bool, a, b| if right { b } else { a };
            let nothing = (None, None);
            let mut answer = false;
            for a in &rows {
                for b in &rows {
                    let matches = on.holds(pick(on_is_about_right, *a, *b)) == Some(true);
                    answer |= matches && filter.holds(pick(filter_is_about_right, *a, *b)) == Some(true);
                }
                let alone = rows.iter().all(|b| on.holds(pick(on_is_about_right, *a, *b)) != Some(true));
                if alone && matches!(kind, "LEFT JOIN" | "FULL JOIN") {
                    answer |= filter.holds(pick(filter_is_about_right, *a, nothing)) == Some(true);
                }
            }
            for b in &rows {
                let alone = rows.iter().all(|a| on.holds(pick(on_is_about_right, *a, *b)) != Some(true));
                if alone && matches!(kind, "RIGHT JOIN" | "FULL JOIN") {
                    answer |= filter.holds(pick(filter_is_about_right, nothing, *b)) == Some(true);
                }
            }
            if answer {
                let home = home(&world, &map_name("ranges"), n);
                prop_assert!(shards.contains(&home), "{sql}: key {n} on {home}, named {shards:?}");
            }
        }
    }
}

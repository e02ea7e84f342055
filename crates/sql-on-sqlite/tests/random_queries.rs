//! Random queries over two tables with NULLs, duplicates, Unicode and extremes, on PostgreSQL and on SQLite.

mod common;

#[path = "common/values.rs"]
mod values;

use common::Pair;
use values::Dice;

const QUERIES: u64 = 600;

const COLUMNS: [(&str, &str); 8] = [
    ("a", "int"),
    ("b", "bigint"),
    ("n", "numeric"),
    ("t", "text"),
    ("d", "date"),
    ("z", "timestamptz"),
    ("f", "double precision"),
    ("o", "boolean"),
];

fn value(dice: &mut Dice, kind: &str) -> String {
    let choices: &[&str] = match kind {
        "int" => &["NULL", "0", "1", "2", "3", "-5", "2147483647"],
        "bigint" => &["NULL", "1", "2", "10", "9007199254740993", "-9223372036854775807"],
        "numeric" => &["NULL", "1", "1.0", "1.00", "2.5", "-3.14159", "1000000000000.01", "0.1"],
        "text" => &["NULL", "''", "'a'", "'A'", "'ab'", "'é'", "'zebra'", "'日本'", "'a''b'"],
        "date" => &["NULL", "'2020-01-01'", "'2020-02-29'", "'1999-12-31'"],
        "timestamptz" => {
            &["NULL", "'2020-01-01 00:00+00'", "'2020-01-01 12:00+02'", "'1969-12-31 23:59:59.5+00'"]
        }
        "double precision" => &["NULL", "0", "1.5", "-2.25", "1e10"],
        _ => &["NULL", "true", "false"],
    };
    (*dice.pick(choices)).to_owned()
}

fn scalar(dice: &mut Dice, table: &str) -> String {
    let column = |dice: &mut Dice| format!("{table}.{}", dice.pick(&COLUMNS).0);
    match dice.below(9) {
        0 => format!("{table}.a + 1"),
        1 => format!("{table}.n * 2"),
        2 => format!("upper({table}.t)"),
        3 => format!("coalesce({table}.t, 'none')"),
        4 => format!("{table}.d + 1"),
        5 => format!("CASE WHEN {table}.a > 1 THEN {table}.n ELSE {table}.a END"),
        _ => column(dice),
    }
}

fn condition(dice: &mut Dice, table: &str, depth: usize) -> String {
    if depth > 0 && dice.below(3) == 0 {
        let (a, b) = (condition(dice, table, depth - 1), condition(dice, table, depth - 1));
        return match dice.below(3) {
            0 => format!("({a} AND {b})"),
            1 => format!("({a} OR {b})"),
            _ => format!("(NOT {a})"),
        };
    }
    let (name, kind) = *dice.pick(&COLUMNS);
    let own = format!("{table}.{name}");
    match dice.below(7) {
        0 => format!("{own} IS NULL"),
        1 => format!("{own} IS NOT NULL"),
        2 => format!("{own} IN ({}, {})", value(dice, kind), value(dice, kind)),
        3 => format!("{own} BETWEEN {} AND {}", value(dice, kind), value(dice, kind)),
        4 => format!("{own} IS DISTINCT FROM {}", value(dice, kind)),
        _ => format!("{own} {} {}", dice.pick(&["=", "<>", "<", "<=", ">", ">="]), value(dice, kind)),
    }
}

fn aggregate(dice: &mut Dice) -> String {
    let call = *dice.pick(&[
        "count(*)",
        "count(x.t)",
        "count(DISTINCT x.n)",
        "sum(x.a)",
        "sum(x.b)",
        "sum(x.n)",
        "avg(x.a)",
        "avg(x.n)",
        "min(x.t)",
        "trim_scale(max(x.n))",
        "min(x.d)",
        "max(x.z)",
        "bool_and(x.o)",
        "bool_or(x.o)",
        "count(DISTINCT x.t)",
        "string_agg(x.t, ',' ORDER BY x.t, x.id)",
        "array_agg(x.a ORDER BY x.id)",
    ]);
    if dice.below(4) == 0 && !call.starts_with("trim_scale") {
        format!("{call} FILTER (WHERE {})", condition(dice, "x", 0))
    } else {
        call.to_owned()
    }
}

fn query(dice: &mut Dice) -> String {
    let filter = |dice: &mut Dice| {
        if dice.below(3) == 0 { String::new() } else { format!(" WHERE {}", condition(dice, "x", 2)) }
    };
    match dice.below(7) {
        0 | 1 => {
            let items: Vec<String> = (0..1 + dice.below(3)).map(|_| scalar(dice, "x")).collect();
            let down = dice.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"]);
            format!(
                "SELECT x.id, {} FROM r x{} ORDER BY {}{down}, x.id",
                items.join(", "),
                filter(dice),
                items[0]
            )
        }
        2 => {
            let key = scalar(dice, "x");
            let calls: Vec<String> = (0..1 + dice.below(3)).map(|_| aggregate(dice)).collect();
            let having = if dice.below(3) == 0 { " HAVING count(*) > 1" } else { "" };
            format!(
                "SELECT ({key})::text AS k, {} FROM r x{} GROUP BY ({key})::text{having} ORDER BY 1",
                calls.join(", "),
                filter(dice)
            )
        }
        3 => {
            let kind = dice.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
            let on =
                dice.pick(&["x.a = y.a", "x.t = y.t", "x.n = y.n", "x.b = y.a", "x.d = y.d AND x.o = y.o"]);
            format!(
                "SELECT x.id AS i, y.id AS j, x.n, y.t FROM r x {kind} s y ON {on}{} ORDER BY 1, 2",
                filter(dice)
            )
        }
        4 => {
            let op = dice.pick(&["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]);
            let column = dice.pick(&["a", "t", "d", "o"]);
            format!(
                "SELECT x.{column} AS v FROM r x{} {op} SELECT y.{column} FROM s y ORDER BY 1",
                filter(dice)
            )
        }
        5 => {
            let test = dice.pick(&[
                "EXISTS (SELECT 1 FROM s y WHERE y.a = x.a)",
                "x.a IN (SELECT y.a FROM s y WHERE y.a IS NOT NULL)",
                "x.t NOT IN (SELECT y.t FROM s y)",
                "x.n > (SELECT avg(y.n) FROM s y)",
                "x.b = (SELECT max(y.b) FROM s y WHERE y.o = x.o)",
            ]);
            format!("SELECT x.id, x.t FROM r x WHERE {test} ORDER BY x.id")
        }
        _ => {
            let call = dice.pick(&[
                "row_number() OVER (ORDER BY x.n, x.id)",
                "rank() OVER (PARTITION BY x.o ORDER BY x.t)",
                "sum(x.a) OVER (ORDER BY x.id)",
                "count(*) OVER (PARTITION BY x.t)",
                "lag(x.n) OVER (ORDER BY x.id)",
                "first_value(x.t) OVER (PARTITION BY x.a ORDER BY x.id DESC)",
                "avg(x.b) OVER (ORDER BY x.id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
            ]);
            format!("SELECT x.id, {call} FROM r x{} ORDER BY x.id LIMIT {}", filter(dice), 1 + dice.below(30))
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_queries_agree_with_postgresql() {
    // G1, C1, C4
    let mut pair = Pair::open().await;
    let columns: Vec<String> = COLUMNS.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
    let mut dice = Dice::new(7);
    for table in ["r", "s"] {
        pair.both(&format!("CREATE TABLE {table} (id int PRIMARY KEY, {})", columns.join(", "))).await;
        let rows: Vec<String> = (0..40)
            .map(|id| {
                let values: Vec<String> = COLUMNS.iter().map(|(_, kind)| value(&mut dice, kind)).collect();
                format!("({id}, {})", values.join(", "))
            })
            .collect();
        pair.both(&format!("INSERT INTO {table} VALUES {}", rows.join(", "))).await;
    }
    let mut wrong = Vec::new();
    for seed in 0..QUERIES {
        let text = query(&mut Dice::new(seed + 1));
        let (theirs, ours) = (pair.postgres.run(&text).await, pair.lite.run(&text).await);
        if !ours.agrees(&theirs) {
            wrong.push(format!("seed {seed}: {text}\n   PostgreSQL {theirs:?}\n   SQLite     {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {QUERIES}:\n{}", wrong.len(), wrong.join("\n"));
}

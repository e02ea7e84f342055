//! Random expressions without parentheses: the parser binds them as PostgreSQL does.
//!
//! An expression is read by the parser, written out with every pair of parentheses, and given to PostgreSQL beside the
//! original: both must be the same view.

use polyshard_sql::ast::{BinaryOperator, Expr, SelectItem, SetExpr, Statement, UnaryOperator};
use polyshard_sql::statements;

use super::connect;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        let at = self.below(from.len() as u64);
        from[usize::try_from(at).unwrap()]
    }
}

fn number(random: &mut Random, depth: u64) -> String {
    if depth == 0 {
        return random.pick(&["a", "b", "c", "1", "2", "a::int", "b::bigint"]).to_owned();
    }
    let (one, other) = (number(random, random.0 % depth), number(random, depth - 1));
    match random.below(9) {
        0..=4 => {
            format!("{one} {} {other}", random.pick(&["+", "-", "*", "/", "%", "&", "|", "#", "<<", ">>"]))
        }
        5 => format!("- {one}"),
        6 => format!("{one} + - {other}"),
        7 => format!("abs({one})"),
        _ => one,
    }
}

fn text(random: &mut Random) -> String {
    match random.below(4) {
        0 => format!("s || {}", random.pick(&["u", "'x'"])),
        1 => "s COLLATE \"C\"".to_owned(),
        _ => random.pick(&["s", "u", "'x'", "'a%'"]).to_owned(),
    }
}

fn truth(random: &mut Random, depth: u64) -> String {
    if depth == 0 {
        let (one, other) = (number(random, 1), number(random, 1));
        return match random.below(14) {
            0 | 1 => format!("{one} {} {other}", random.pick(&["=", "<", "<=", ">", ">=", "<>", "!="])),
            2 => format!("{one} BETWEEN {other} AND {}", number(random, 1)),
            3 => format!("{one} NOT BETWEEN {other} AND {}", number(random, 1)),
            4 => format!("{one} IN ({other}, {})", number(random, 1)),
            5 => format!("{one} NOT IN ({other})"),
            6 => format!("{one} IS NULL"),
            7 => format!("{one} IS DISTINCT FROM {other}"),
            8 => format!(
                "{} {} {}",
                text(random),
                random.pick(&["LIKE", "NOT LIKE", "ILIKE", "="]),
                text(random)
            ),
            9 => format!("{one} = ANY (ARRAY[{other}, 3])"),
            10 => format!("{one} ISNULL"),
            11 => format!(
                "{one} = {other} IS {}",
                random.pick(&["TRUE", "NOT TRUE", "FALSE", "NULL", "UNKNOWN"])
            ),
            12 => format!("({one}, b) = ({other}, 2)"),
            _ => random.pick(&["p", "q", "true"]).to_owned(),
        };
    }
    let (one, other) = (truth(random, depth - 1), truth(random, random.0 % depth));
    match random.below(10) {
        0..=3 => format!("{one} AND {other}"),
        4..=6 => format!("{one} OR {other}"),
        7 | 8 => format!("NOT {one}"),
        _ => format!("{one} AND NOT {other} OR {one}"),
    }
}

/// The expression with parentheses around everything; none for a form that the test does not know.
fn full(expr: &Expr) -> Option<String> {
    let both =
        |left: &Expr, word: &str, right: &Expr| Some(format!("({} {word} {})", full(left)?, full(right)?));
    let list = |items: &[Expr]| Some(items.iter().map(full).collect::<Option<Vec<_>>>()?.join(", "));
    match expr {
        Expr::Identifier(_) | Expr::Value(_) => Some(expr.to_string()),
        Expr::Nested(inner) => Some(format!("({})", full(inner)?)),
        Expr::BinaryOp { left, op, right } => match op {
            BinaryOperator::And => both(left, "AND", right),
            BinaryOperator::Or => both(left, "OR", right),
            other => both(left, &other.to_string(), right),
        },
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => Some(format!("(NOT {})", full(expr)?)),
        Expr::UnaryOp { op, expr } => Some(format!("({op} {})", full(expr)?)),
        Expr::Cast { expr, data_type, .. } => Some(format!("({}::{data_type})", full(expr)?)),
        Expr::Collate { expr, collation } => Some(format!("({} COLLATE {collation})", full(expr)?)),
        Expr::Between { expr, negated, low, high } => {
            let not = if *negated { "NOT " } else { "" };
            Some(format!("({} {not}BETWEEN {} AND {})", full(expr)?, full(low)?, full(high)?))
        }
        Expr::InList { expr, list: items, negated } => {
            let not = if *negated { "NOT " } else { "" };
            Some(format!("({} {not}IN ({}))", full(expr)?, list(items)?))
        }
        Expr::IsNull(inner) => Some(format!("({} IS NULL)", full(inner)?)),
        Expr::IsTrue(inner) => Some(format!("({} IS TRUE)", full(inner)?)),
        Expr::IsNotTrue(inner) => Some(format!("({} IS NOT TRUE)", full(inner)?)),
        Expr::IsFalse(inner) => Some(format!("({} IS FALSE)", full(inner)?)),
        Expr::IsUnknown(inner) => Some(format!("({} IS UNKNOWN)", full(inner)?)),
        Expr::IsDistinctFrom(left, right) => both(left, "IS DISTINCT FROM", right),
        Expr::Like { negated, expr, pattern, .. } => {
            both(expr, if *negated { "NOT LIKE" } else { "LIKE" }, pattern)
        }
        Expr::ILike { negated, expr, pattern, .. } => {
            both(expr, if *negated { "NOT ILIKE" } else { "ILIKE" }, pattern)
        }
        Expr::AnyOp { left, compare_op, right, .. } => {
            Some(format!("({} {compare_op} ANY ({}))", full(left)?, full(right)?))
        }
        Expr::Array(array) => Some(format!("ARRAY[{}]", list(&array.elem)?)),
        Expr::Tuple(items) => Some(format!("({})", list(items)?)),
        Expr::Function(function) => Some(function.to_string()),
        _ => None,
    }
}

fn parsed(sql: &str) -> Option<Expr> {
    let all = statements(sql).ok()?;
    let Some(Statement::Query(query)) = all[0].ast() else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.as_slice() {
        [SelectItem::ExprWithAlias { expr, .. }] => Some(expr.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn expressions_are_bound_as_postgresql_binds_them() {
    let (_server, client) = connect().await;
    client
        .batch_execute("CREATE TABLE t (a int, b int, c int, p bool, q bool, s text, u text)")
        .await
        .expect("the table is made");
    let seeds = std::env::var("POLYSHARD_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1500_u64);
    let (mut compared, mut refused, mut unread) = (0, 0, 0);
    for seed in 0..seeds {
        let mut random = Random(seed);
        let depth = random.below(4);
        let expression = truth(&mut random, depth);
        let sql = format!("SELECT {expression} AS x FROM t");
        let original = view(&client, &sql).await;
        let Some(expr) = parsed(&sql) else {
            unread += 1;
            continue;
        };
        let Some(original) = original else {
            refused += 1;
            continue;
        };
        let ours = full(&expr).unwrap_or_else(|| panic!("seed {seed}: {expr:?}"));
        let ours = view(&client, &format!("SELECT {ours} AS x FROM t")).await;
        assert_eq!(ours, Some(original), "seed {seed}: read otherwise: {expression}");
        compared += 1;
    }
    println!("{compared} alike, {refused} refused by PostgreSQL, {unread} not understood here");
    assert!(compared > seeds / 2, "{compared} alike, {refused} refused, {unread} not understood");
    assert!(unread * 20 < seeds, "{unread} not understood");
}

/// What PostgreSQL makes of a query; none if it refuses it.
async fn view(client: &tokio_postgres::Client, sql: &str) -> Option<String> {
    client.batch_execute(&format!("CREATE OR REPLACE TEMP VIEW v AS {sql}")).await.ok()?;
    let row = client.query_one("SELECT pg_get_viewdef('v'::regclass)", &[]).await.expect("the view is there");
    Some(row.get(0))
}

//! What a store may look up before it reads documents.

mod common;

use std::ops::Bound;

use common::{bind, bind_with};
use polyshard_document_query::{Condition, PathStep, Test, Value};

fn path_text(path: &[PathStep]) -> String {
    let step = |step: &PathStep| match step {
        PathStep::Key(key) => format!("/{key}"),
        PathStep::Index(index) => format!("/{index}"),
    };
    path.iter().map(step).collect()
}

fn end(bound: &Bound<Value>, closed: &str, open: &str) -> String {
    match bound {
        Bound::Included(value) => format!("{closed}{}", value.to_json()),
        Bound::Excluded(value) => format!("{open}{}", value.to_json()),
        Bound::Unbounded => String::new(),
    }
}

fn text(condition: &Condition) -> String {
    let test = match &condition.test {
        Test::Equal(value) => format!("= {}", value.to_json()),
        Test::In(values) => format!("in {}", Value::array(values.clone()).to_json()),
        Test::Range { lower, upper } => format!("{}{}", end(lower, ">= ", "> "), end(upper, "<= ", "< ")),
        Test::Prefix(prefix) => format!("starts with {prefix}"),
        Test::Defined => "exists".to_owned(),
        Test::Contains(value) => format!("has {}", value.to_json()),
    };
    format!("{} {test}", path_text(&condition.path))
}

fn conditions(query: &str) -> String {
    let parameters = r#"{"@p":"x","@n":5,"@list":[1,2]}"#;
    let query = bind_with(query, parameters).unwrap_or_else(|error| panic!("{error}: {query}"));
    query.conditions().iter().map(text).collect::<Vec<_>>().join("; ")
}

#[test]
fn of_where() {
    let table = [
        ("c.id = @p", "/id = \"x\""),
        ("'a' = c.id AND c.a.b[0] = 1", "/id = \"a\"; /a/b/0 = 1"),
        ("c.a = -1 AND (c.b = 2 AND c.d = {x: [1]})", "/a = -1; /b = 2; /d = {\"x\":[1]}"),
        ("c.a IN (1, @n, 'x')", "/a in [1,5,\"x\"]"),
        ("c.a IN (1, c.b)", "/a exists"),
        ("c.a > 1 AND c.a <= @n", "/a > 1; /a <= 5"),
        ("1 < c.a", "/a > 1"),
        ("c.a BETWEEN 'a' AND 'b'", "/a >= \"a\"; /a <= \"b\""),
        ("c.a != 1", "/a exists"),
        ("c.a > c.b", "/a exists"),
        ("c.a > [1]", "/a in []"),
        ("c.a = undefined", "/a in []"),
        ("c.a = NaN", "/a = \"NaN\""),
        ("c.a", "/a = true"),
        ("NOT c.a", "/a = false"),
        ("c.a NOT IN (1, 2)", "/a exists"),
        ("NOT (c.a = 1)", ""),
        ("c.a = 1 OR c.a = 2 OR c.a IN (3)", "/a in [1,2,3]"),
        ("c.a = 1 OR c.b = 2", ""),
        ("(c.a = 1 AND c.b > 1) OR (c.b = 3 AND c.a = 2)", "/a in [1,2]"),
        ("c.a = 1 OR c.a > 5", ""),
        ("STARTSWITH(c.a, @p)", "/a starts with x"),
        ("STARTSWITH(c.a, @p, true)", "/a exists"),
        ("c.a LIKE 'ab%c'", "/a starts with ab"),
        ("c.a LIKE 'a!%b' ESCAPE '!'", "/a = \"a%b\""),
        ("c.a NOT LIKE 'ab%'", "/a exists"),
        ("IS_DEFINED(c.a) AND IS_NULL(c.b)", "/a exists; /b = null"),
        ("NOT IS_DEFINED(c.a)", ""),
        ("ARRAY_CONTAINS(c.tags, 'x')", "/tags has \"x\""),
        ("ARRAY_CONTAINS(c.tags, {a: 1}, true)", ""),
        ("ARRAY_CONTAINS(@list, c.a)", "/a in [1,2]"),
        ("LOWER(c.a) = 'x'", ""),
        ("(c.a ?? 1) = 1", ""),
        ("c.a = 1 = true", ""),
        ("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 1)", ""),
        ("c[c.k] = 1", ""),
    ];
    for (filter, wanted) in table {
        assert_eq!(conditions(&format!("SELECT VALUE c FROM c WHERE {filter}")), wanted, "{filter}");
    }
}

#[test]
fn of_sources() {
    let table = [
        ("SELECT * FROM c", ""),
        ("SELECT * FROM c.a.b x WHERE x.d = 1", "/a/b exists; /a/b/d = 1"),
        ("SELECT * FROM t IN c.tags WHERE t.a = 1", ""),
        ("SELECT VALUE c FROM c JOIN t IN c.tags WHERE c.a = 1 AND t.b = 2", "/a = 1"),
        ("SELECT VALUE a FROM c JOIN c.x a WHERE a.b = 2", "/x exists; /x/b = 2"),
        ("SELECT VALUE x FROM (SELECT c.a FROM c WHERE c.b = 1) x WHERE x.a = 2", "/b = 1"),
        ("SELECT COUNT(1) FROM c WHERE c.a = 1 GROUP BY c.b", "/a = 1"),
        ("SELECT VALUE 1", ""),
    ];
    for (query, wanted) in table {
        assert_eq!(conditions(query), wanted, "{query}");
    }
}

#[test]
fn of_order_by() {
    let keys = |query: &str| {
        let keys = bind(query).expect("valid").order_by();
        let text = |path: Option<Vec<PathStep>>| path.map_or("?".to_owned(), |path| path_text(&path));
        keys.into_iter().map(|key| (text(key.path), key.descending)).collect::<Vec<_>>()
    };
    assert_eq!(keys("SELECT * FROM c"), []);
    let two = [("/a/b".to_owned(), false), ("/d".to_owned(), true)];
    assert_eq!(keys("SELECT * FROM c ORDER BY c.a.b, c['d'] DESC"), two);
    assert_eq!(keys("SELECT * FROM c.a x ORDER BY x.b"), [("/a/b".to_owned(), false)]);
    assert_eq!(keys("SELECT VALUE t FROM c JOIN t IN c.t ORDER BY t.b"), [("?".to_owned(), false)]);
    assert_eq!(keys("SELECT c.a FROM c GROUP BY c.a ORDER BY c.a"), [("?".to_owned(), false)]);
}

#[test]
fn names_of_functions_and_parameters() {
    let limits = polyshard_document_query::Limits::default();
    let text = "SELECT TOP @top udf.f(@a), udf.g(@b, udf.f(@a)) FROM c";
    let query = polyshard_document_query::Query::parse(text, &limits).expect("valid");
    assert_eq!(query.user_functions(), ["f", "g"]);
    assert_eq!(query.parameter_names(), ["@a", "@b"]);
    let shape = bind("SELECT DISTINCT VALUE COUNT(1) FROM c").expect("valid").shape();
    assert!(shape.aggregate && shape.distinct && !shape.streaming && !shape.grouped && !shape.ordered);
}

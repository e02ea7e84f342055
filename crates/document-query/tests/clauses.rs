//! Every clause: query, documents, result.

mod common;

use std::sync::Arc;

use common::{bind, documents, environment, rows, run, run_with};
use polyshard_document_query::{Environment, UserFunctions, Value};

const PRODUCTS: &str = r#"[
  {"id":"1","name":"helmet","price":20,"tags":["red","small"],"stock":[{"size":"s","count":3},{"size":"m","count":0}]},
  {"id":"2","name":"glove","price":7.5,"tags":["red"],"stock":[{"size":"m","count":10}]},
  {"id":"3","name":"coat","price":"ask","tags":[],"owner":{"name":"Ada"}},
  {"id":"4","name":"boots","price":null,"tags":["black","small"]},
  {"id":"5","name":"scarf"}
]"#;

fn check(table: &[(&str, &str)]) {
    let data = documents(PRODUCTS);
    for (query, wanted) in table {
        assert_eq!(run(query, &data), *wanted, "{query}");
    }
}

#[test]
fn select() {
    check(&[
        ("SELECT * FROM c WHERE c.id = '5'", r#"[{"id":"5","name":"scarf"}]"#),
        ("SELECT VALUE c FROM c WHERE c.id = '5'", r#"[{"id":"5","name":"scarf"}]"#),
        ("SELECT c FROM c WHERE c.id = '5'", r#"[{"c":{"id":"5","name":"scarf"}}]"#),
        ("SELECT c.id, c.price FROM c WHERE c.id IN ('4', '5')", r#"[{"id":"4","price":null},{"id":"5"}]"#),
        ("SELECT VALUE c.price FROM c", r#"[20,7.5,"ask",null]"#),
        ("SELECT c.id AS key, c.price * 2 AS double FROM c WHERE c.id = '1'", r#"[{"key":"1","double":40}]"#),
        (
            "SELECT c.id key, 1, c.tags[0], 'x' FROM c WHERE c.id = '1'",
            r#"[{"key":"1","$1":1,"$2":"red","$3":"x"}]"#,
        ),
        (
            "SELECT c['name'], c.owner.name AS owner FROM c WHERE c.id = '3'",
            r#"[{"name":"coat","owner":"Ada"}]"#,
        ),
        (
            "SELECT {n: c.name, t: [c.id, c.nothing]} AS o FROM c WHERE c.id='2'",
            r#"[{"o":{"n":"glove","t":["2"]}}]"#,
        ),
        ("SELECT 1 AS one, 'a' || 'b'", r#"[{"one":1,"$1":"ab"}]"#),
        ("SELECT VALUE COUNT(1)", "[1]"),
        ("SELECT TOP 2 VALUE c.id FROM c", r#"["1","2"]"#),
        ("SELECT TOP 0 VALUE c.id FROM c", "[]"),
        ("SELECT VALUE c.id FROM c OFFSET 1 LIMIT 2", r#"["2","3"]"#),
        ("SELECT VALUE c.id FROM c OFFSET 4 LIMIT 10", r#"["5"]"#),
        ("SELECT VALUE c.id FROM c OFFSET 0 LIMIT 0", "[]"),
        ("select value c.id from c where c.id = '1'", r#"["1"]"#),
    ]);
}

#[test]
fn from() {
    check(&[
        ("SELECT VALUE p.id FROM products p WHERE p.price > 10", r#"["1"]"#),
        ("SELECT VALUE products.id FROM products WHERE products.price > 10", r#"["1"]"#),
        ("SELECT VALUE r.id FROM ROOT AS r WHERE r.price > 10", r#"["1"]"#),
        ("SELECT * FROM c.owner", r#"[{"name":"Ada"}]"#),
        ("SELECT VALUE owner.name FROM c.owner", r#"["Ada"]"#),
        ("SELECT VALUE o FROM c['owner'].name o", r#"["Ada"]"#),
        ("SELECT VALUE s.size FROM s IN c.stock", r#"["s","m","m"]"#),
        ("SELECT * FROM t IN c.tags", r#"["red","small","red","black","small"]"#),
        ("SELECT VALUE t FROM c.tags[0] t", r#"["red","red","black"]"#),
        ("SELECT VALUE x FROM x IN c.name", "[]"),
        ("SELECT VALUE x.n FROM (SELECT c.name AS n FROM c WHERE c.price > 1) AS x", r#"["helmet","glove"]"#),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE t FROM t IN c.tags) x", "[3]"),
        ("SELECT VALUE x FROM (SELECT VALUE COUNT(1) FROM c) x", "[5]"),
        (
            "SELECT x.t, x.n FROM (SELECT t, COUNT(1) AS n FROM t IN c.tags GROUP BY t) x WHERE x.n > 1",
            r#"[{"t":"red","n":2},{"t":"small","n":2}]"#,
        ),
    ]);
}

#[test]
fn join() {
    check(&[
        (
            "SELECT c.id, t AS tag FROM c JOIN t IN c.tags WHERE t = 'red'",
            r#"[{"id":"1","tag":"red"},{"id":"2","tag":"red"}]"#,
        ),
        ("SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags JOIN s IN c.stock", "[5]"),
        (
            "SELECT VALUE t || s.size FROM c JOIN t IN c.tags JOIN s IN c.stock WHERE c.id='1'",
            r#"["reds","redm","smalls","smallm"]"#,
        ),
        ("SELECT VALUE name FROM c JOIN c.owner.name", r#"["Ada"]"#),
        (
            "SELECT c.id, s.size FROM c JOIN (SELECT VALUE s FROM s IN c.stock WHERE s.count > 0) AS s",
            r#"[{"id":"1","size":"s"},{"id":"2","size":"m"}]"#,
        ),
        ("SELECT VALUE x FROM c JOIN x IN (SELECT VALUE c.tags) WHERE c.id = '4'", r#"["black","small"]"#),
        (
            "SELECT VALUE {a: n.total} FROM c JOIN (SELECT SUM(s.count) AS total FROM s IN c.stock) n WHERE c.id='1'",
            r#"[{"a":3}]"#,
        ),
    ]);
}

#[test]
fn filter() {
    check(&[
        ("SELECT VALUE c.id FROM c WHERE c.price", "[]"),
        ("SELECT VALUE c.id FROM c WHERE c.price != null", r#"["1","2","3"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.price = null", r#"["4"]"#),
        ("SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.price)", r#"["1","2","3","4"]"#),
        ("SELECT VALUE c.id FROM c WHERE NOT (c.price > 10)", r#"["2"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.price > 10 OR c.id = '5'", r#"["1","5"]"#),
        ("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 'small')", r#"["1","4"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.name LIKE '%o%'", r#"["2","3","4"]"#),
        ("SELECT VALUE c.id FROM c WHERE c.name BETWEEN 'b' AND 'd'", r#"["3","4"]"#),
        (
            "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'black')",
            r#"["4"]"#,
        ),
        ("SELECT VALUE c.id FROM c WHERE NOT EXISTS(SELECT VALUE t FROM t IN c.tags)", r#"["3","5"]"#),
        (
            "SELECT VALUE c.id FROM c WHERE ALL(SELECT VALUE t FROM t IN c.tags WHERE t != 'red')",
            r#"["3","4","5"]"#,
        ),
    ]);
}

#[test]
fn sub_queries() {
    check(&[
        ("SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags) FROM c", "[2,1,0,2,0]"),
        (
            "SELECT c.id, (SELECT VALUE t FROM t IN c.tags WHERE t = 'black') AS t FROM c WHERE c.price = null",
            r#"[{"id":"4","t":"black"}]"#,
        ),
        (
            "SELECT VALUE ARRAY(SELECT VALUE s.count FROM s IN c.stock) FROM c WHERE c.id < '4'",
            "[[3,0],[10],[]]",
        ),
        (
            "SELECT VALUE ARRAY(SELECT DISTINCT s.size FROM s IN c.stock) FROM c WHERE c.id = '1'",
            r#"[[{"size":"s"},{"size":"m"}]]"#,
        ),
        ("SELECT VALUE FIRST(SELECT VALUE t FROM t IN c.tags) FROM c", r#"["red","red","black"]"#),
        ("SELECT VALUE LAST(SELECT VALUE t FROM t IN c.tags) FROM c", r#"["small","red","small"]"#),
        (
            "SELECT VALUE (SELECT VALUE t FROM t IN c.tags) FROM c",
            "error: The cardinality of a scalar subquery result set cannot be greater than one.",
        ),
        ("SELECT VALUE (SELECT c.name WHERE c.price > 10).name FROM c", r#"["helmet"]"#),
        ("SELECT VALUE EXISTS(SELECT VALUE 1) FROM c WHERE c.id = '1'", "[true]"),
        (
            "SELECT VALUE ARRAY(SELECT s.size, SUM(s.count) AS n FROM s IN c.stock GROUP BY s.size) FROM c \
             WHERE c.id='1'",
            r#"[[{"size":"m","n":0},{"size":"s","n":3}]]"#,
        ),
    ]);
}

#[test]
fn aggregates() {
    check(&[
        ("SELECT VALUE COUNT(1) FROM c", "[5]"),
        ("SELECT VALUE COUNT(c.price) FROM c", "[4]"),
        ("SELECT COUNT(1) AS n, COUNT(c.owner) FROM c", r#"[{"n":5,"$1":1}]"#),
        ("SELECT VALUE COUNTIF(c.price > 10) FROM c", "[1]"),
        ("SELECT VALUE SUM(c.price) FROM c", "[]"),
        ("SELECT SUM(c.price) FROM c", "[{}]"),
        ("SELECT VALUE SUM(c.price) FROM c WHERE IS_NUMBER(c.price)", "[27.5]"),
        ("SELECT VALUE AVG(c.price) FROM c WHERE IS_NUMBER(c.price)", "[13.75]"),
        ("SELECT VALUE AVG(c.nothing) FROM c", "[]"),
        ("SELECT VALUE SUM(c.nothing) FROM c", "[0]"),
        ("SELECT VALUE MIN(c.price) FROM c", "[null]"),
        ("SELECT VALUE MAX(c.price) FROM c", r#"["ask"]"#),
        ("SELECT VALUE MAX(c.tags) FROM c", "[]"),
        ("SELECT VALUE MIN(c.nothing) FROM c", "[]"),
        ("SELECT VALUE MAKELIST(c.price) FROM c", r#"[[20,7.5,"ask",null]]"#),
        ("SELECT VALUE MAKESET(t) FROM c JOIN t IN c.tags", r#"[["black","red","small"]]"#),
        ("SELECT VALUE COUNT(1) FROM c WHERE false", "[0]"),
        ("SELECT VALUE {n: COUNT(1), m: MAX(c.id) || '!'} FROM c", r#"[{"n":5,"m":"5!"}]"#),
        ("SELECT VALUE COUNT(1) FROM c ORDER BY c.name", "[5]"),
    ]);
}

#[test]
fn group_by() {
    check(&[
        (
            "SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t",
            r#"[{"t":"black","n":1},{"t":"red","n":2},{"t":"small","n":2}]"#,
        ),
        (
            "SELECT COUNT(1) AS n, IS_NUMBER(c.price) AS known FROM c GROUP BY IS_NUMBER(c.price)",
            r#"[{"n":3,"known":false},{"n":2,"known":true}]"#,
        ),
        ("SELECT VALUE COUNT(1) FROM c GROUP BY c.nothing", "[5]"),
        (
            "SELECT c.price, COUNT(1) AS n FROM c GROUP BY c.price",
            r#"[{"n":1},{"price":null,"n":1},{"price":7.5,"n":1},{"price":20,"n":1},{"price":"ask","n":1}]"#,
        ),
        ("SELECT VALUE c.name FROM c WHERE false GROUP BY c.name", "[]"),
        (
            "SELECT c['name'] FROM c WHERE c.id < '3' GROUP BY c.name",
            r#"[{"name":"glove"},{"name":"helmet"}]"#,
        ),
        ("SELECT VALUE c.owner.name FROM c GROUP BY c.owner", r#"["Ada"]"#),
        (
            "SELECT t FROM c JOIN t IN c.tags GROUP BY t ORDER BY COUNT(1) DESC, t DESC",
            r#"[{"t":"small"},{"t":"red"},{"t":"black"}]"#,
        ),
        ("SELECT t FROM c JOIN t IN c.tags GROUP BY t OFFSET 1 LIMIT 1", r#"[{"t":"red"}]"#),
    ]);
}

#[test]
fn distinct() {
    check(&[
        ("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags", r#"["black","red","small"]"#),
        ("SELECT DISTINCT c.owner FROM c", r#"[{},{"owner":{"name":"Ada"}}]"#),
        ("SELECT DISTINCT VALUE c.nothing FROM c", "[]"),
        ("SELECT DISTINCT TOP 2 VALUE t FROM c JOIN t IN c.tags", r#"["black","red"]"#),
        ("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags ORDER BY t DESC", r#"["small","red","black"]"#),
        ("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags OFFSET 1 LIMIT 1", r#"["red"]"#),
    ]);
}

#[test]
fn order_by() {
    check(&[
        ("SELECT VALUE c.name FROM c ORDER BY c.name", r#"["boots","coat","glove","helmet","scarf"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.price", r#"["5","4","2","1","3"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.price DESC", r#"["3","1","2","4","5"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.owner.name DESC, c.name ASC", r#"["3","4","2","1","5"]"#),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.name", r#"["4","3"]"#),
        ("SELECT VALUE c.id FROM c ORDER BY c.name OFFSET 1 LIMIT 2", r#"["3","2"]"#),
        (
            "SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.id DESC",
            r#"["black","small","red","red","small"]"#,
        ),
    ]);
}

#[test]
fn parameters() {
    let data = documents(PRODUCTS);
    let all = r#"{"@p":10,"@ids":["2","5"],"@n":1,"@o":{"a":{"b":[5]}},"@key":"name"}"#;
    let table = [
        ("SELECT VALUE c.id FROM c WHERE c.price > @p", r#"["1"]"#),
        ("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)", r#"["2","5"]"#),
        ("SELECT TOP @n VALUE c.id FROM c", r#"["1"]"#),
        ("SELECT VALUE c.id FROM c OFFSET @n LIMIT @n", r#"["2"]"#),
        ("SELECT VALUE @o.a['b'][0]", "[5]"),
        ("SELECT TOP 1 VALUE c.id FROM c ORDER BY c[@key]", r#"["4"]"#),
        (
            "SELECT VALUE @missing",
            "error: The parameter '@missing' is used in the query and not supplied with the request.",
        ),
        (
            "SELECT TOP @ids VALUE c.id FROM c",
            "error: The count value provided for a TOP clause must be an integer.",
        ),
    ];
    for (query, wanted) in table {
        assert_eq!(run_with(query, &data, all), wanted, "{query}");
    }
}

struct Doubling;

impl UserFunctions for Doubling {
    fn call(&self, name: &str, arguments: &[Value]) -> Result<Value, String> {
        match (name, arguments) {
            ("double", [Value::Number(number)]) => Ok(Value::Number(number * 2.0)),
            ("double", _) => Ok(Value::Undefined),
            _ => Err(format!("no function {name}")),
        }
    }
}

#[test]
fn user_functions() {
    let data = documents(PRODUCTS);
    let result = |query: &str| {
        let environment = Environment { functions: Some(Arc::new(Doubling)), ..environment() };
        match bind(query).and_then(|query| rows(&query, environment, &data)) {
            Ok(rows) => Value::array(rows.into_iter().map(|row| row.value).collect()).to_json(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(result("SELECT VALUE udf.double(c.price) FROM c"), "[40,15]");
    assert_eq!(result("SELECT VALUE c.id FROM c WHERE udf.double(c.price) = 15"), r#"["2"]"#);
    assert_eq!(result("SELECT VALUE udf.other(1) FROM c"), "no function other");
    let missing = "error: The user-defined function 'double' is not available.";
    assert_eq!(run("SELECT VALUE udf.double(1)", &[]), missing);
}

#[test]
fn documents_come_back_as_they_are() {
    let data = documents(r#"[{"z":1,"a":[],"m":{},"_rid":"x","_etag":"\"1\"","n":1.50,"t":"\u0001\n"}]"#);
    assert_eq!(
        run("SELECT * FROM c", &data),
        r#"[{"z":1,"a":[],"m":{},"_rid":"x","_etag":"\"1\"","n":1.5,"t":"\u0001\n"}]"#
    );
}

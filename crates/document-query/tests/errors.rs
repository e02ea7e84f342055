//! Errors in the service's form, with the places that its own planner reports.

mod common;

use common::bind;
use polyshard_document_query::ErrorCode;

fn check(query: &str, start: usize, end: usize, code: &str, message: &str) {
    let error = bind(query).expect_err(query);
    let place = format!(r#"{{"start":{start},"end":{end}}}"#);
    let wanted = format!(
        r#"{{"errors":[{{"severity":"Error","location":{place},"code":"{code}","message":"{message}"}}]}}"#
    );
    assert_eq!(error.to_service_json(), wanted, "{query}");
}

#[test]
fn reported_as_by_the_service() {
    check("SELECT * FORM c", 9, 13, "SC1001", "Syntax error, incorrect syntax near 'FORM'.");
    check("SELECT TOP -1 c.name FROM c", 11, 12, "SC1001", "Syntax error, incorrect syntax near '-'.");
    check("SELECT * FROM c WHERE a = 1", 22, 23, "SC2001", "Identifier 'a' could not be resolved.");
    check("SELECT * FROM c WHERE a.b = 1", 22, 23, "SC2001", "Identifier 'a' could not be resolved.");
    let unknown = "'BADFUNC' is not a recognized built-in function name.";
    check("SELECT BADFUNC(r.age) FROM Root r", 7, 14, "SC2005", unknown);
    let count = "The STARTSWITH function requires 2 to 3 argument(s).";
    check("SELECT * FROM Root r WHERE STARTSWITH(r.key, 'a', 'b', 'c')", 27, 59, "SC2050", count);
    check("SELECT VALUE ABS()", 13, 18, "SC2050", "The ABS function requires 1 argument(s).");
    check(
        "SELECT VALUE CONCAT('a')",
        13,
        24,
        "SC2050",
        "The CONCAT function requires at least 2 argument(s).",
    );
    let nested =
        "Cannot perform an aggregate function on an expression containing an aggregate or a subquery.";
    check("SELECT VALUE MAX(MIN(r)) From r", 13, 24, "SC2101", nested);
    check("SELECT * FROM c GROUP BY c.a", 7, 8, "SC2041", "'SELECT *' is not allowed with GROUP BY.");
    let ungrouped = "Property reference 'c.b' is invalid in the select list because it is not contained in either an \
                     aggregate function or the GROUP BY clause.";
    check("SELECT c.b, COUNT(1) FROM c", 7, 10, "SC2102", ungrouped);
    check("SELECT c.a, c.b FROM c GROUP BY c.a", 12, 15, "SC2102", ungrouped);
    let offset = "The OFFSET count value exceeds the maximum allowed value.";
    check("SELECT c.name FROM c OFFSET 2147483648 LIMIT 10", 28, 38, "SC2062", offset);
    let limit = "The LIMIT count value exceeds the maximum allowed value.";
    check("SELECT c.name FROM c OFFSET 10 LIMIT 2147483648", 37, 47, "SC2061", limit);
    let top = "The count value provided for a TOP clause must be an integer.";
    check("SELECT TOP 4294967296 c.name FROM c", 11, 21, "SC2060", top);
    check("SELECT TOP 1.5 c.name FROM c", 11, 14, "SC2060", top);
    let sub_top = "'TOP' is not supported in subqueries.";
    check("SELECT VALUE ARRAY(SELECT TOP 5 VALUE t FROM t IN c.t) FROM c", 26, 31, "SC2203", sub_top);
    let sub_order = "'ORDER BY' is not supported in subqueries.";
    check("SELECT VALUE x FROM (SELECT VALUE c FROM c ORDER BY c.a) x", 43, 55, "SC2202", sub_order);
    let sub_window = "'OFFSET LIMIT' is not supported in subqueries.";
    check("SELECT VALUE x FROM (SELECT VALUE c FROM c OFFSET 0 LIMIT 1) x", 43, 59, "SC2204", sub_window);
    check("SELECT VALUE 'ä😀' FORM", 19, 23, "SC1001", "Syntax error, incorrect syntax near 'FORM'.");
}

#[test]
fn refused() {
    let table = [
        ("", ErrorCode::Syntax),
        ("SELECT", ErrorCode::Syntax),
        ("SELECT * FROM c WHERE", ErrorCode::Syntax),
        ("SELECT * FROM c c2 c3", ErrorCode::Syntax),
        ("SELECT VALUE 'open", ErrorCode::Syntax),
        ("SELECT VALUE '\\x'", ErrorCode::Syntax),
        ("SELECT VALUE 1e", ErrorCode::Syntax),
        ("SELECT VALUE 1e999", ErrorCode::Syntax),
        ("SELECT VALUE 12abc", ErrorCode::Syntax),
        ("SELECT VALUE 0x", ErrorCode::Syntax),
        ("SELECT VALUE #", ErrorCode::Syntax),
        ("SELECT VALUE @", ErrorCode::Syntax),
        ("SELECT VALUE TRUE", ErrorCode::UnresolvedName),
        ("SELECT VALUE 1 IN ()", ErrorCode::Syntax),
        ("SELECT VALUE 1 NOT 2", ErrorCode::Syntax),
        ("SELECT VALUE 'a' LIKE 'b' ESCAPE 'cd'", ErrorCode::Syntax),
        ("SELECT VALUE {1: 2}", ErrorCode::Syntax),
        ("SELECT VALUE ARRAY(1)", ErrorCode::Syntax),
        ("SELECT VALUE c.a HAVING 1", ErrorCode::Syntax),
        ("SELECT * FROM c OFFSET 1", ErrorCode::Syntax),
        ("SELECT * FROM c LIMIT 1", ErrorCode::Syntax),
        ("SELECT * FROM c; SELECT * FROM c", ErrorCode::Syntax),
        ("SELECT *", ErrorCode::StarWithoutSingleSource),
        ("SELECT * FROM c JOIN t IN c.t", ErrorCode::StarWithoutSingleSource),
        ("SELECT VALUE c FROM c JOIN t IN d.t", ErrorCode::UnresolvedName),
        ("SELECT VALUE food.x FROM food f", ErrorCode::UnresolvedName),
        ("SELECT VALUE c FROM c ORDER BY LOWER(c.a)", ErrorCode::OrderByNotPath),
        ("SELECT VALUE c FROM c ORDER BY 1", ErrorCode::OrderByNotPath),
        ("SELECT VALUE c FROM c WHERE COUNT(1) > 1", ErrorCode::MisplacedAggregate),
        ("SELECT VALUE 1 FROM c GROUP BY COUNT(1)", ErrorCode::MisplacedAggregate),
        ("SELECT VALUE SUM((SELECT VALUE 1)) FROM c", ErrorCode::NestedAggregate),
        ("SELECT VALUE ARRAY(SELECT VALUE c.b) FROM c GROUP BY c.a", ErrorCode::UngroupedProperty),
        ("SELECT VALUE ST_DISTANCE(c.a, c.b) FROM c", ErrorCode::Unsupported),
        ("SELECT VALUE VectorDistance(c.a, [1]) FROM c", ErrorCode::Unsupported),
        ("SELECT TOP 1 * FROM c ORDER BY RANK FullTextScore(c.a, 'b')", ErrorCode::Unsupported),
    ];
    for (query, code) in table {
        let error = bind(query).expect_err(query);
        assert_eq!(error.code(), code, "{query}: {error}");
    }
}

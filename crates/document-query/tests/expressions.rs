//! Operators, literals and undefined.

mod common;

use common::{check_expressions, documents, run};

#[test]
fn literals() {
    check_expressions(&[
        ("undefined", "-"),
        ("null", "null"),
        ("'it\\'s'", "\"it's\""),
        ("\"\\u00e4\\ud83d\\ude00\"", "\"ä😀\""),
        (".5", "0.5"),
        ("1.", "1"),
        ("-1e3", "-1000"),
        ("0x1F", "31"),
        ("1e21", "1e21"),
        ("[1, undefined, 2]", "[1,2]"),
        ("{'a': 1, \"b\": undefined, c: [undefined]}", r#"{"a":1,"c":[]}"#),
        ("{a: 1, a: 2}", r#"{"a":2}"#),
        ("1 -- a comment", "1"),
    ]);
}

#[test]
fn arithmetic() {
    check_expressions(&[
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 - 2 - 1", "4"),
        ("7 % 4", "3"),
        ("-7 % 4", "-3"),
        ("1 / 0", "\"Infinity\""),
        ("1 / -0", "\"-Infinity\""),
        ("1 + '2'", "-"),
        ("1 + null", "-"),
        ("- - 1", "1"),
        ("+'1'", "-"),
        ("100 >> 2", "25"),
        ("100 << 2", "400"),
        ("-1 >>> 0", "4294967295"),
        ("100 & 1000", "96"),
        ("100 | 1000", "1004"),
        ("100 ^ 1000", "908"),
        ("~5", "-6"),
        ("4294967297 | 0", "1"),
        ("NOT true", "false"),
        ("NOT 1", "-"),
    ]);
}

#[test]
fn comparison() {
    check_expressions(&[
        ("1 = 1", "true"),
        ("1 <> 2", "true"),
        ("1 = '1'", "false"),
        ("1 != '1'", "true"),
        ("null = null", "true"),
        ("null != 5", "true"),
        ("undefined = undefined", "-"),
        ("undefined != 1", "-"),
        ("[1, {a: 2}] = [1, {a: 2}]", "true"),
        ("{a: 1, b: 2} = {b: 2, a: 1}", "true"),
        ("{a: 1} = {a: 1, b: 2}", "false"),
        ("1 < 2", "true"),
        ("'a' < 'b'", "true"),
        ("'B' < 'a'", "true"),
        ("false < true", "true"),
        ("null <= null", "true"),
        ("1 < '2'", "-"),
        ("[1] < [2]", "-"),
        ("NaN = NaN", "false"),
        ("1 = 2 & 3 != 4", "-"),
        ("1 BETWEEN 1 AND 2", "true"),
        ("3 NOT BETWEEN 1 AND 2", "true"),
        ("3 BETWEEN 'a' AND 2", "false"),
        ("'b' BETWEEN 'a' AND 'c'", "true"),
        ("1 IN (2, '1', 1)", "true"),
        ("1 NOT IN (2, 3)", "true"),
        ("undefined IN (undefined)", "-"),
        ("[1] IN ([1])", "true"),
    ]);
}

#[test]
fn logic_of_three_values() {
    let truths =
        [("true", Some(true)), ("false", Some(false)), ("undefined", None), ("1", None), ("null", None)];
    for (left, left_truth) in truths {
        for (right, right_truth) in truths {
            let and = match (left_truth, right_truth) {
                (Some(false), _) | (_, Some(false)) => "false",
                (Some(true), Some(true)) => "true",
                _ => "-",
            };
            let or = match (left_truth, right_truth) {
                (Some(true), _) | (_, Some(true)) => "true",
                (Some(false), Some(false)) => "false",
                _ => "-",
            };
            check_expressions(&[(&format!("{left} AND {right}"), and), (&format!("{left} OR {right}"), or)]);
        }
    }
    check_expressions(&[("true OR false AND false", "true"), ("NOT false AND false", "false")]);
}

#[test]
fn choices() {
    check_expressions(&[
        ("undefined ?? 1", "1"),
        ("null ?? 1", "null"),
        ("undefined ?? undefined ?? 3", "3"),
        ("true ? 1 : 2", "1"),
        ("null ? 1 : 2", "2"),
        ("false ? 1 : false ? 2 : 3", "3"),
        ("true ? undefined : 2", "-"),
        ("'a' || 'b' || 'c'", "\"abc\""),
        ("'a' || 1", "-"),
        ("false OR true ? 'y' : 'n'", "\"y\""),
    ]);
}

#[test]
fn like() {
    check_expressions(&[
        ("'abc' LIKE 'a%'", "true"),
        ("'abc' LIKE 'A%'", "false"),
        ("'abc' LIKE '%b%'", "true"),
        ("'abc' LIKE '_b_'", "true"),
        ("'abc' LIKE '_b'", "false"),
        ("'abc' LIKE 'abc'", "true"),
        ("'abc' LIKE ''", "false"),
        ("'' LIKE '%'", "true"),
        ("'b' LIKE '[a-c]'", "true"),
        ("'d' LIKE '[a-c]'", "false"),
        ("'d' LIKE '[^a-c]'", "true"),
        ("'x-y' LIKE 'x[-_]y'", "true"),
        ("'100%' LIKE '100!%' ESCAPE '!'", "true"),
        ("'1000' LIKE '100!%' ESCAPE '!'", "false"),
        ("'a[b' LIKE 'a[[]b'", "true"),
        ("'a[b' LIKE 'a[b'", "true"),
        ("'abc' NOT LIKE '%z%'", "true"),
        ("1 LIKE '1'", "-"),
        ("'a' LIKE 1", "-"),
        ("'aaaaaaaaaaaaaaaaaaaaaaaaaaaaab' LIKE '%a%a%a%a%a%a%a%c'", "false"),
    ]);
}

#[test]
fn paths() {
    let data = documents(r#"[{"a":{"b c":[{"d":1},2]},"k":"a","value":3,"order":4}]"#);
    let table = [
        ("c.a['b c'][0].d", "[1]"),
        ("c['a']['b c'][1]", "[2]"),
        ("c[c.k]['b c'][1 - 1].d", "[1]"),
        ("c.a['b c'][2]", "[]"),
        ("c.a['b c'][-1]", "[]"),
        ("c.a['b c'][0.5]", "[]"),
        ("c.a['b c']['0']", "[]"),
        ("c.a[0]", "[]"),
        ("c.k.x.y", "[]"),
        ("c.value + c.order", "[7]"),
        ("{a: {b: 5}}.a.b", "[5]"),
        ("[7, 8][1]", "[8]"),
    ];
    for (expression, wanted) in table {
        assert_eq!(run(&format!("SELECT VALUE {expression} FROM c"), &data), wanted, "{expression}");
    }
}

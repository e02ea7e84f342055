//! Large, deep and endless input: refused with an error, never with a crash or much memory.

mod common;

use common::{bind, environment, json, rows, run, tie_breaker};
use polyshard_document_query::{Environment, ErrorCode, Limits, Query, Value};

fn parse_code(text: &str, limits: &Limits) -> Option<ErrorCode> {
    Query::parse(text, limits).err().map(|error| error.code())
}

fn run_code(query: &str, environment: Environment, data: &[Value]) -> Option<ErrorCode> {
    rows(&bind(query).expect("valid"), environment, data).err().map(|error| error.code())
}

#[test]
fn text_length() {
    let limits = Limits::default();
    let text = format!("SELECT VALUE '{}'", "x".repeat(512 * 1024 - 15));
    assert_eq!(text.len(), 512 * 1024);
    assert_eq!(parse_code(&text, &limits), None);
    assert_eq!(parse_code(&(text + " "), &limits), Some(ErrorCode::TooComplex));
}

#[test]
fn nesting() {
    let limits = Limits::default();
    let wrapped = |open: &str, inner: &str, close: &str, times: usize| {
        format!("SELECT VALUE {}{inner}{}", open.repeat(times), close.repeat(times))
    };
    let kinds = [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{a: ", "1", "}"),
        ("-(", "1", ")"),
        ("NOT ", "true", ""),
        ("- ", "1", ""),
        ("ABS(", "1", ")"),
        ("(SELECT VALUE ", "1", ")"),
        ("true ? 1 : ", "1", ""),
        ("[0][", "0", "]"),
        ("1 IN (", "1", ")"),
    ];
    for (open, inner, close) in kinds {
        for times in [1_000, 50_000] {
            let text = wrapped(open, inner, close, times);
            assert_eq!(parse_code(&text, &limits), Some(ErrorCode::TooComplex), "{open}");
        }
        let text = wrapped(open, inner, close, 30);
        assert!(!run(&text, &[]).starts_with("error"), "{text}");
    }
    let deepest = wrapped("(1 + [ABS(", "1", ")][0])", 42);
    assert_eq!(run(&deepest, &[]), "[43]");
}

#[test]
fn the_deepest_query_fits_a_small_stack() {
    let text = format!("SELECT VALUE {}1{}", "(SELECT VALUE ".repeat(63), ")".repeat(63));
    let worker = std::thread::Builder::new().stack_size(1024 * 1024);
    let result = worker.spawn(move || {
        let printed =
            bind(&text).map(|_| Query::parse(&text, &Limits::default()).map(|query| query.to_string()));
        assert!(printed.is_ok());
        run(&text, &[])
    });
    assert_eq!(result.expect("a thread").join().expect("no overflow"), "[1]");
}

#[test]
fn long_chains_do_not_nest() {
    let chain = |operator: &str, item: &str| format!("SELECT VALUE {}", vec![item; 20_000].join(operator));
    assert_eq!(run(&chain(" + ", "1"), &[]), "[20000]");
    assert_eq!(run(&chain(" AND ", "true"), &[]), "[true]");
    assert_eq!(run(&chain(" OR ", "1 = 2"), &[]), "[false]");
    assert_eq!(run(&chain(" ?? ", "undefined"), &[]), "[]");
    assert_eq!(run(&format!("SELECT VALUE c{} FROM c", ".a".repeat(20_000)), &[json("{}")]), "[]");
    let list = vec!["1"; 100_000].join(",");
    assert_eq!(run(&format!("SELECT VALUE 2 IN ({list})"), &[]), "[false]");
}

#[test]
fn counts_of_parts() {
    let limits = Limits { list_items: 3, joins: 2, ..Limits::default() };
    assert_eq!(parse_code("SELECT VALUE 1 IN (1, 2, 3)", &limits), None);
    assert_eq!(parse_code("SELECT VALUE 1 IN (1, 2, 3, 4)", &limits), Some(ErrorCode::TooComplex));
    assert_eq!(parse_code("SELECT VALUE c FROM c JOIN a IN c.a JOIN b IN c.b", &limits), None);
    let joins = "SELECT VALUE c FROM c JOIN a IN c.a JOIN b IN c.b JOIN d IN c.d";
    assert_eq!(parse_code(joins, &limits), Some(ErrorCode::TooComplex));
}

#[test]
fn json_depth() {
    let nested = |times: usize| format!("{}{}", "[".repeat(times), "]".repeat(times));
    assert!(Value::from_json(nested(128).as_bytes()).is_ok());
    assert!(Value::from_json(nested(129).as_bytes()).is_err());
    assert!(Value::from_json("[".repeat(1_000_000).as_bytes()).is_err());
    assert!(Value::from_json_with_depth("{\"a\":".repeat(1_000_000).as_bytes(), usize::MAX).is_err());
}

#[test]
fn values_do_not_grow_without_bound() {
    let document = json(&format!(r#"{{"s":"{}"}}"#, "x".repeat(1_000_000)));
    let data = [document];
    let many = vec!["c.s"; 20].join(", ");
    let queries = [
        format!("SELECT VALUE CONCAT({many}) FROM c"),
        format!("SELECT VALUE {} FROM c", many.replace(", ", " || ")),
        "SELECT VALUE REPLACE(c.s, 'x', c.s) FROM c".to_owned(),
        format!("SELECT VALUE StringJoin([{many}], '') FROM c"),
        format!("SELECT VALUE [{many}] FROM c"),
        format!("SELECT VALUE LENGTH(ToString([{many}])) FROM c"),
    ];
    for query in queries {
        let code = run_code(&query, environment(), &data);
        assert_eq!(code, Some(ErrorCode::ValueTooLarge), "{}", &query[..60]);
    }
}

#[test]
fn shared_values_do_not_explode() {
    let doubled = |times: usize, shape: &str| {
        let mut query = "SELECT VALUE c FROM c".to_owned();
        for _ in 0..times {
            query = format!("SELECT VALUE {shape} FROM ({query}) x");
        }
        query
    };
    let data = [json(r#"[1,2,3,4,5,6,7,8,9]"#)];
    for shape in ["[x, x]", "{a: x, b: x}", "ARRAY_CONCAT(x, x)", "ToString([x, x])"] {
        let code = run_code(&doubled(50, shape), environment(), &data);
        assert_eq!(code, Some(ErrorCode::ValueTooLarge), "{shape}");
    }
}

#[test]
fn work_on_one_document() {
    let items = vec!["1"; 1_000].join(",");
    let data = [json(&format!(r#"{{"t":[{items}]}}"#))];
    let query = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.t JOIN b IN c.t JOIN d IN c.t";
    assert_eq!(run_code(query, environment(), &data), Some(ErrorCode::TooMuchWork));
}

#[test]
fn rows_of_one_document() {
    let items = vec!["1"; 1_000].join(",");
    let data = [json(&format!(r#"{{"t":[{items}]}}"#))];
    let queries = [
        "SELECT VALUE [[REPLICATE('x', 10000)]] FROM c JOIN a IN c.t JOIN b IN c.t",
        "SELECT VALUE x FROM c JOIN a IN c.t JOIN b IN c.t JOIN (SELECT VALUE [[REPLICATE('x', 10000)]]) x",
        "SELECT VALUE ARRAY(SELECT VALUE REPLICATE('x', 10000) FROM a IN c.t JOIN b IN c.t) FROM c",
    ];
    for query in queries {
        assert_eq!(run_code(query, environment(), &data), Some(ErrorCode::StateTooLarge), "{query}");
    }
}

#[test]
fn memory_for_state() {
    let small = || Environment { state_bytes_max: 100_000, ..environment() };
    let text = "x".repeat(500);
    let data: Vec<Value> = (0..1_000).map(|id| json(&format!(r#"{{"id":{id},"t":"{id}{text}"}}"#))).collect();
    let queries = [
        "SELECT VALUE c FROM c ORDER BY c.id",
        "SELECT DISTINCT VALUE c.t FROM c",
        "SELECT c.t, COUNT(1) FROM c GROUP BY c.t",
        "SELECT VALUE MAKELIST(c.t) FROM c",
        "SELECT VALUE MAKESET(c.t) FROM c",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.t FROM c) x",
    ];
    for query in queries {
        assert_eq!(run_code(query, small(), &data), Some(ErrorCode::StateTooLarge), "{query}");
        assert_eq!(run_code(query, environment(), &data), None, "{query}");
    }
    let streaming = bind("SELECT VALUE c FROM c").expect("valid");
    assert_eq!(rows(&streaming, small(), &data).expect("no state").len(), 1_000);
    let few = bind("SELECT DISTINCT VALUE c.id % 3 FROM c").expect("valid");
    assert_eq!(rows(&few, small(), &data).expect("little state").len(), 3);
}

#[test]
fn patterns() {
    let data = [json(&format!(r#"{{"s":"{}"}}"#, "a".repeat(100_000)))];
    assert_eq!(run("SELECT VALUE RegexMatch(c.s, '(a+)+$b') FROM c", &data), "[false]");
    assert_eq!(run("SELECT VALUE RegexMatch(c.s, '(a{1000}){1000}') FROM c", &data), "[]");
    let like = format!("SELECT VALUE c.s LIKE '{}b' FROM c", "%a".repeat(50));
    assert_eq!(run(&like, &data), "[false]");
    let patterns: Vec<Value> = (0..500).map(|id| json(&format!(r#"{{"s":"^{id}$"}}"#))).collect();
    assert_eq!(run("SELECT VALUE COUNTIF(RegexMatch('7', c.s)) FROM c", &patterns), "[1]");
}

#[test]
fn ties_are_kept_in_order() {
    let data: Vec<Value> = (0..5_000).map(|id| json(&format!(r#"{{"id":{id}}}"#))).collect();
    let query = bind("SELECT VALUE c.id FROM c ORDER BY c.nothing OFFSET 0 LIMIT 3").expect("valid");
    let mut execution = query.execute(environment());
    for (index, document) in data.iter().enumerate().rev() {
        execution.push(document, &tie_breaker(index)).expect("runs");
    }
    execution.finish().expect("runs");
    let found: Vec<_> = std::iter::from_fn(|| execution.next_row()).map(|row| row.value.to_json()).collect();
    assert_eq!(found, ["0", "1", "2"]);
}

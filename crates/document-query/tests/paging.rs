//! Continuing a result: positions, progress, presorted input, and what is kept in memory.

mod common;

use common::{bind, documents, environment, json, rows, tie_breaker};
use polyshard_document_query::{Environment, Position, Resume, Value};

fn numbered(count: usize) -> Vec<Value> {
    (0..count).map(|index| json(&format!(r#"{{"id":"{index}","n":{},"t":[1,2]}}"#, index * 7 % 10))).collect()
}

fn texts(rows: &[polyshard_document_query::Row]) -> Vec<String> {
    rows.iter().map(|row| row.value.to_json()).collect()
}

/// An execution may go on in another thread.
const fn is_send<T: Send>() {}
const _: () = is_send::<polyshard_document_query::Execution>();

#[test]
fn large_documents_may_give_many_rows() {
    let text = "x".repeat(100_000);
    let items = vec!["1"; 2_000].join(",");
    let data = [json(&format!(r#"{{"t":[{items}],"text":"{text}"}}"#))];
    let query = bind("SELECT c, [c.text] AS again FROM c JOIN t IN c.t").expect("valid");
    assert_eq!(rows(&query, environment(), &data).expect("shared, not copied").len(), 2_000);
}

#[test]
fn streaming_rows_come_with_their_document() {
    let query = bind("SELECT VALUE t FROM c JOIN t IN c.t WHERE c.n > 3").expect("valid");
    assert!(query.shape().streaming && query.shape().joins);
    let mut execution = query.execute(environment());
    execution.push(&json(r#"{"n":5,"t":["a","b"]}"#), b"k").expect("runs");
    let first = execution.next_row().expect("a row");
    assert_eq!((first.value.to_json().as_str(), first.position.row_in_document), ("\"a\"", 0));
    assert!(execution.has_more());
    assert_eq!(execution.progress().rows_returned, 1);
    let second = execution.next_row().expect("a row");
    assert_eq!(
        (second.position.tie_breaker.as_slice(), second.position.row_in_document),
        (b"k".as_slice(), 1)
    );
    assert!(!execution.has_more());
}

#[test]
fn a_reached_limit_says_so() {
    let query = bind("SELECT TOP 2 VALUE c.n FROM c").expect("valid");
    let mut execution = query.execute(environment());
    for document in numbered(2) {
        assert!(!execution.is_satisfied());
        execution.push(&document, b"").expect("runs");
    }
    assert!(execution.is_satisfied());
    let none = bind("SELECT VALUE c.n FROM c OFFSET 0 LIMIT 0").expect("valid").execute(environment());
    assert!(none.is_satisfied());
    assert!(bind("SELECT VALUE 1").expect("valid").execute(environment()).is_satisfied());
    assert_eq!(bind("SELECT VALUE c FROM c OFFSET 3 LIMIT 4").expect("valid").rows_wanted(), Some(7));
}

#[test]
fn positions_have_the_sort_keys() {
    let query = bind("SELECT c.id FROM c ORDER BY c.n DESC, c.x").expect("valid");
    let found =
        rows(&query, environment(), &documents(r#"[{"id":"1"},{"id":"2","n":5,"x":null}]"#)).expect("runs");
    assert_eq!(found[0].position.sort_keys, [Value::Number(5.0), Value::Null]);
    assert_eq!(found[1].position.sort_keys, [Value::Undefined, Value::Undefined]);
    let token = found[1].position.to_value();
    assert_eq!(token.to_json(), r#"{"keys":[[],[]],"tie":"00000000","row":0}"#);
    assert_eq!(Position::from_value(&token).as_ref(), Some(&found[1].position));
}

#[test]
fn tokens_that_are_no_positions_are_refused() {
    let tokens = [
        "1",
        "{}",
        r#"{"keys":1,"tie":"","row":0}"#,
        r#"{"keys":[1],"tie":"","row":0}"#,
        r#"{"keys":[[1,2]],"tie":"","row":0}"#,
        r#"{"keys":[],"tie":"0","row":0}"#,
        r#"{"keys":[],"tie":"zz","row":0}"#,
        r#"{"keys":[],"tie":"é1","row":0}"#,
        r#"{"keys":[],"tie":"","row":-1}"#,
        r#"{"keys":[],"tie":"","row":0.5}"#,
        r#"{"keys":[],"tie":""}"#,
    ];
    for token in tokens {
        assert_eq!(Position::from_value(&json(token)), None, "{token}");
    }
}

/// Reads a query in pages and returns all rows.
fn in_pages(query: &str, data: &[Value], page_rows: usize) -> Vec<String> {
    let query = bind(query).expect("valid");
    let mut found = Vec::new();
    let mut resume = None;
    loop {
        let environment = Environment { page_rows: Some(page_rows), resume: resume.take(), ..environment() };
        let page: Vec<_> =
            rows(&query, environment, data).expect("runs").into_iter().take(page_rows).collect();
        let Some(last) = page.last() else { return found };
        resume = Some(Resume { after: Some(last.position.clone()), progress: last.progress });
        found.extend(texts(&page));
    }
}

#[test]
fn pages_of_every_kind_of_query_add_up() {
    let data = numbered(37);
    let queries = [
        "SELECT VALUE c.id FROM c ORDER BY c.n",
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 5 LIMIT 20",
        "SELECT TOP 11 VALUE c.id FROM c ORDER BY c.n",
        "SELECT VALUE [c.id, t] FROM c JOIN t IN c.t ORDER BY c.n DESC, t",
        "SELECT DISTINCT VALUE c.n FROM c",
        "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 7",
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n",
        "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n ORDER BY COUNT(1) DESC OFFSET 1 LIMIT 8",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE x FROM (SELECT DISTINCT VALUE c.n FROM c) x",
        "SELECT VALUE x FROM (SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n) x ORDER BY x.k",
    ];
    for query in queries {
        let whole = texts(&rows(&bind(query).expect("valid"), environment(), &data).expect("runs"));
        assert!(!whole.is_empty(), "{query}");
        for page_rows in [1, 2, 5, 100] {
            assert_eq!(in_pages(query, &data, page_rows), whole, "{query} in pages of {page_rows}");
        }
    }
}

#[test]
fn presorted_documents_stream() {
    let mut data: Vec<(Value, Vec<u8>)> =
        numbered(30).into_iter().enumerate().map(|(i, d)| (d, tie_breaker(i))).collect();
    data.sort_by(|left, right| left.0.get("n").total_order(&right.0.get("n")).then(left.1.cmp(&right.1)));
    let query = bind("SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 2 LIMIT 20").expect("valid");
    let whole = texts(&rows(&query, environment(), &numbered(30)).expect("runs"));
    let mut resume = None;
    let mut found = Vec::new();
    loop {
        let environment = Environment { presorted: true, resume: resume.take(), ..environment() };
        let mut execution = query.execute(environment);
        let mut last = None;
        for (document, tie_breaker) in &data {
            execution.push(document, tie_breaker).expect("runs");
            assert_eq!(execution.state_bytes(), 0);
            if let Some(row) = execution.next_row() {
                found.push(row.value.to_json());
                last = Some(Resume { after: Some(row.position), progress: row.progress });
                break;
            }
        }
        match last {
            Some(last) => resume = Some(last),
            None => break,
        }
    }
    assert_eq!(found, whole);
}

#[test]
fn a_page_keeps_only_its_rows() {
    let query = bind("SELECT VALUE c FROM c ORDER BY c.n").expect("valid");
    let text = format!(r#"{{"n":1,"text":"{}"}}"#, "x".repeat(10_000));
    let document = json(&text);
    let environment = Environment { page_rows: Some(10), state_bytes_max: 32 * 1024 * 1024, ..environment() };
    let mut execution = query.execute(environment);
    for index in 0..10_000 {
        execution.push(&document, &tie_breaker(index)).expect("the kept rows are within the budget");
    }
    execution.finish().expect("runs");
    assert_eq!(std::iter::from_fn(|| execution.next_row()).count(), 11);
}

#[test]
fn a_page_without_rows_keeps_what_offset_skipped() {
    let query = bind("SELECT VALUE c.id FROM c OFFSET 3 LIMIT 2").expect("valid");
    let data = numbered(8);
    let mut first = query.execute(environment());
    for (index, document) in data[..2].iter().enumerate() {
        first.push(document, &tie_breaker(index)).expect("runs");
    }
    let resume = Some(Resume { after: None, progress: first.progress() });
    let found = rows(&query, Environment { resume, ..environment() }, &data[2..]).expect("runs");
    assert_eq!(texts(&found), ["\"3\"", "\"4\""]);
}

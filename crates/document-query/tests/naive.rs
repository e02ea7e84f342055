//! A second evaluator, written plainly and apart from the crate, against random documents and queries. More cases:
//! `QUERY_CASES=20000 cargo test --test naive`; another start: `QUERY_SEED=7`.

mod common;
#[path = "naive/evaluator.rs"]
mod evaluator;
#[path = "naive/generator.rs"]
mod generator;

use std::env;

use common::{bind, environment, rows, tie_breaker};
use generator::Generator;
use polyshard_document_query::{Environment, Position, Resume, Value};
use serde_json::Value as Json;

const CASES_DEFAULT: u64 = 2_000;
const CASES_LONG: u64 = 100_000;

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn values(documents: &[Json]) -> Vec<Value> {
    documents.iter().map(|document| common::json(&document.to_string())).collect()
}

/// Sorted text where the query leaves the order open.
fn comparable(mut rows: Vec<String>, ordered: bool) -> Vec<String> {
    if !ordered {
        rows.sort();
    }
    rows
}

#[test]
fn agrees_with_the_naive_evaluator() {
    let seed = setting("QUERY_SEED", 1);
    let default = if env::var_os("POLYSHARD_LONG").is_some() { CASES_LONG } else { CASES_DEFAULT };
    let cases = setting("QUERY_CASES", default);
    let mut with_rows = 0;
    for case in 0..cases {
        let mut generator = Generator::new(seed.wrapping_mul(1_000_003).wrapping_add(case));
        let documents = generator.documents();
        let query = generator.query();
        let text = query.text();
        let wanted = evaluator::run(&query, &documents);
        // The evaluator marks numbers without a JSON form with a control character.
        let wanted = wanted.iter().map(|row| common::json(&row.to_string()).to_json().replace("\\u0001", ""));
        let wanted: Vec<String> = wanted.collect();
        let data = values(&documents);
        let bound = bind(&text).unwrap_or_else(|error| panic!("case {case}: {error}\n{text}"));
        let found =
            rows(&bound, environment(), &data).unwrap_or_else(|error| panic!("case {case}: {error}\n{text}"));
        let found: Vec<String> = found.iter().map(|row| row.value.to_json()).collect();
        let fixed = query.order_is_fixed();
        let context = || format!("case {case}, seed {seed}\n{text}\n{}", Json::from(documents.clone()));
        assert_eq!(comparable(found.clone(), fixed), comparable(wanted, fixed), "{}", context());
        with_rows += u64::from(!found.is_empty());
        check_canonical_text(&text, &data, &found);
        check_conditions(&text, &data, &found);
        check_pages(&text, &data, &found, 1 + case as usize % 3, &context());
    }
    assert!(with_rows > cases / 4, "only {with_rows} of {cases} random queries have rows");
}

/// The printed query gives the same rows.
fn check_canonical_text(text: &str, data: &[Value], wanted: &[String]) {
    let limits = polyshard_document_query::Limits::default();
    let printed = polyshard_document_query::Query::parse(text, &limits).expect("parsed before").to_string();
    let bound = bind(&printed).unwrap_or_else(|error| panic!("{error}\n{text}\n{printed}"));
    let found = rows(&bound, environment(), data).expect("ran before");
    let found: Vec<String> = found.iter().map(|row| row.value.to_json()).collect();
    assert_eq!(found, wanted, "{text}\n{printed}");
}

/// Leaving out the documents that fail a condition changes nothing.
fn check_conditions(text: &str, data: &[Value], wanted: &[String]) {
    let bound = bind(text).expect("bound before");
    let conditions = bound.conditions();
    let mut execution = bound.execute(environment());
    for (index, document) in data.iter().enumerate() {
        if conditions.iter().all(|condition| condition.accepts(document)) {
            execution.push(document, &tie_breaker(index)).expect("ran before");
        }
    }
    execution.finish().expect("ran before");
    let found: Vec<String> =
        std::iter::from_fn(|| execution.next_row()).map(|row| row.value.to_json()).collect();
    assert_eq!(found, wanted, "{text}\n{conditions:?}");
}

/// Pages of some rows, each by a new execution that resumes where the last one ended, give the same rows.
fn check_pages(text: &str, data: &[Value], wanted: &[String], page_rows: usize, context: &str) {
    let bound = bind(text).expect("bound before");
    let mut resume: Option<Resume> = None;
    let mut found = Vec::new();
    loop {
        let environment = Environment { page_rows: Some(page_rows), resume: resume.clone(), ..environment() };
        let mut execution = bound.execute(environment);
        for (index, document) in data.iter().enumerate() {
            let start =
                resume.as_ref().and_then(|resume| resume.after.as_ref()).filter(|_| bound.shape().streaming);
            if start.is_none_or(|after| tie_breaker(index) >= after.tie_breaker) {
                execution.push(document, &tie_breaker(index)).expect("ran before");
            }
        }
        execution.finish().expect("ran before");
        let page: Vec<_> = std::iter::from_fn(|| execution.next_row()).take(page_rows).collect();
        found.extend(page.iter().map(|row| row.value.to_json()));
        let Some(last) = page.last() else { break };
        let token = last.position.to_value().to_json();
        let after = Position::from_value(&common::json(&token));
        assert_eq!(after.as_ref(), Some(&last.position), "{context}");
        resume = Some(Resume { after, progress: last.progress });
        assert!(found.len() <= wanted.len(), "rows are repeated with pages of {page_rows}\n{context}");
    }
    assert_eq!(found, wanted, "pages of {page_rows}\n{context}");
}

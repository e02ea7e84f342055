//! What the tests share: running a query text over documents.
#![allow(dead_code, reason = "each test file uses a part of it")]

use polyshard_document_query::{BoundQuery, Environment, Limits, Parameters, Query, QueryError, Row, Value};

/// 2024-10-14T14:20:30.6668888Z.
pub const NOW_TICKS: i64 = 17_289_156_306_668_888;

pub fn json(text: &str) -> Value {
    Value::from_json(text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The items of a JSON array.
pub fn documents(text: &str) -> Vec<Value> {
    json(text).as_array().expect("an array").to_vec()
}

pub fn bind(query: &str) -> Result<BoundQuery, QueryError> {
    bind_with(query, "{}")
}

/// Binds with the properties of a JSON object as parameters.
pub fn bind_with(query: &str, parameters: &str) -> Result<BoundQuery, QueryError> {
    let mut values = Parameters::new();
    for (name, value) in json(parameters).as_object().expect("an object").iter() {
        values.insert(name, value.clone());
    }
    Query::parse(query, &Limits::default())?.bind(&values)
}

pub fn environment() -> Environment {
    Environment { now_ticks: NOW_TICKS, ..Environment::default() }
}

pub fn tie_breaker(index: usize) -> Vec<u8> {
    (index as u32).to_be_bytes().to_vec()
}

/// All rows of a query over documents.
pub fn rows(
    query: &BoundQuery,
    environment: Environment,
    documents: &[Value],
) -> Result<Vec<Row>, QueryError> {
    let mut execution = query.execute(environment);
    for (index, document) in documents.iter().enumerate() {
        execution.push(document, &tie_breaker(index))?;
    }
    execution.finish()?;
    Ok(std::iter::from_fn(|| execution.next_row()).collect())
}

/// The result as JSON text, or the error's message.
pub fn run(query: &str, data: &[Value]) -> String {
    run_with(query, data, "{}")
}

pub fn run_with(query: &str, data: &[Value], parameters: &str) -> String {
    match bind_with(query, parameters).and_then(|query| rows(&query, environment(), data)) {
        Ok(rows) => Value::array(rows.into_iter().map(|row| row.value).collect()).to_json(),
        Err(error) => format!("error: {error}"),
    }
}

/// Checks expressions: each with its JSON, or `-` for undefined.
pub fn check_expressions(table: &[(&str, &str)]) {
    for (expression, wanted) in table {
        let wanted = if *wanted == "-" { "[]".to_owned() } else { format!("[{}]", json(wanted).to_json()) };
        assert_eq!(run(&format!("SELECT VALUE {expression}"), &[]), wanted, "{expression}");
    }
}

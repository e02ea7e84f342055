//! The plain evaluator: JSON values, `None` for undefined, everything in lists. It shares no code with the crate.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value as Json, json};

use crate::generator::{Expr, Query};

type Maybe = Option<Json>;

/// The aliases of one row.
#[derive(Clone)]
struct Row {
    c: Json,
    t: Maybe,
    i: Maybe,
}

/// All rows of the result.
pub fn run(query: &Query, documents: &[Json]) -> Vec<Json> {
    let mut rows = Vec::new();
    for document in documents {
        let row = Row { c: document.clone(), t: None, i: None };
        match query.join {
            None => rows.push(row),
            Some(property) => {
                for item in items(document.get(property)) {
                    rows.push(Row { t: Some(item), ..row.clone() });
                }
            }
        }
    }
    if let Some(filter) = &query.filter {
        rows.retain(|row| evaluate(filter, row) == Some(Json::Bool(true)));
    }
    if matches!(query.select[0], Expr::Aggregate(..)) {
        let groups = groups(query, rows);
        return cut(query, groups.iter().filter_map(|group| project(query, group)).collect());
    }
    // The sort is stable, as ties go by the order of the documents.
    rows.sort_by(|left, right| {
        let orders = query.order_by.iter().map(|(expr, descending)| {
            let order = order(&evaluate(expr, left), &evaluate(expr, right));
            if *descending { order.reverse() } else { order }
        });
        orders.fold(Ordering::Equal, Ordering::then)
    });
    let mut results: Vec<Json> = Vec::new();
    for row in rows {
        let Some(result) = project(query, &[row]) else { continue };
        if !query.distinct || !results.iter().any(|known| same(known, &result)) {
            results.push(result);
        }
    }
    cut(query, results)
}

fn cut(query: &Query, results: Vec<Json>) -> Vec<Json> {
    let (offset, limit) = query.window.unwrap_or((0, usize::MAX));
    results.into_iter().skip(offset).take(limit).take(query.top.unwrap_or(usize::MAX)).collect()
}

fn groups(query: &Query, rows: Vec<Row>) -> Vec<Vec<Row>> {
    if query.group_by.is_empty() {
        return vec![rows];
    }
    let mut groups: Vec<(Vec<Maybe>, Vec<Row>)> = Vec::new();
    for row in rows {
        let keys: Vec<Maybe> = query.group_by.iter().map(|key| evaluate(key, &row)).collect();
        let equal = |known: &Vec<Maybe>| known.iter().zip(&keys).all(|(a, b)| order(a, b).is_eq());
        match groups.iter_mut().find(|(known, _)| equal(known)) {
            Some((_, members)) => members.push(row),
            None => groups.push((keys, vec![row])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The select list of one row, or of the rows of a group.
fn project(query: &Query, rows: &[Row]) -> Maybe {
    let value = |expr: &Expr| match expr {
        Expr::Aggregate(name, argument) => {
            aggregate(name, rows.iter().filter_map(|row| evaluate(argument, row)).collect())
        }
        expr => evaluate(expr, &rows[0]),
    };
    if query.value {
        return value(&query.select[0]);
    }
    let named =
        query.select.iter().enumerate().filter_map(|(index, expr)| Some((format!("p{index}"), value(expr)?)));
    Some(Json::Object(named.collect()))
}

fn aggregate(name: &str, values: Vec<Json>) -> Maybe {
    let numbers: Option<Vec<f64>> = values.iter().map(number).collect();
    let primitive = !values.iter().any(|value| value.is_array() || value.is_object());
    match name {
        "COUNT" => Some(json!(values.len())),
        "COUNTIF" => Some(json!(values.iter().filter(|value| **value == Json::Bool(true)).count())),
        "SUM" => from_number(numbers?.iter().fold(0.0, |sum, number| sum + number)),
        "AVG" => {
            let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
            from_number(numbers.iter().fold(0.0, |sum, number| sum + number) / numbers.len() as f64)
        }
        "MIN" if primitive => values.into_iter().min_by(order_json),
        "MAX" if primitive => values.into_iter().max_by(order_json),
        "MAKELIST" => Some(Json::from(values)),
        _ => None,
    }
}

fn items(value: Option<&Json>) -> Vec<Json> {
    value.and_then(Json::as_array).cloned().unwrap_or_default()
}

fn number(value: &Json) -> Option<f64> {
    match value.as_str() {
        // How infinite numbers are passed on within this evaluator.
        Some("\u{1}NaN") => Some(f64::NAN),
        Some("\u{1}Infinity") => Some(f64::INFINITY),
        Some("\u{1}-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

fn from_number(number: f64) -> Maybe {
    match Number::from_f64(number) {
        Some(number) => Some(Json::Number(number)),
        None if number.is_nan() => Some(json!("\u{1}NaN")),
        None if number > 0.0 => Some(json!("\u{1}Infinity")),
        None => Some(json!("\u{1}-Infinity")),
    }
}

fn string(value: &Json) -> Option<&str> {
    value.as_str().filter(|text| !text.starts_with('\u{1}'))
}

fn rank(value: &Json) -> u8 {
    match value {
        Json::Null => 1,
        Json::Bool(_) => 2,
        _ if number(value).is_some() => 3,
        Json::Array(_) => 5,
        Json::Object(_) => 6,
        _ => 4,
    }
}

fn order(left: &Maybe, right: &Maybe) -> Ordering {
    match (left, right) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(left), Some(right)) => order_json(left, right),
    }
}

fn order_json(left: &Json, right: &Json) -> Ordering {
    if rank(left) != rank(right) {
        return rank(left).cmp(&rank(right));
    }
    if let (Some(left), Some(right)) = (number(left), number(right)) {
        let place = |x: f64| if x.is_nan() { 0 } else { 1 };
        return left.partial_cmp(&right).unwrap_or_else(|| place(left).cmp(&place(right)));
    }
    match (left, right) {
        (Json::Bool(left), Json::Bool(right)) => left.cmp(right),
        (Json::String(left), Json::String(right)) => left.cmp(right),
        (Json::Array(left), Json::Array(right)) => {
            let first = left.iter().zip(right).map(|(l, r)| order_json(l, r)).find(|order| order.is_ne());
            first.unwrap_or(left.len().cmp(&right.len()))
        }
        (Json::Object(left), Json::Object(right)) => {
            let pairs = |map: &Map<String, Json>| {
                let mut pairs: Vec<(String, Json)> =
                    map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                pairs.sort_by(|a, b| a.0.cmp(&b.0));
                pairs
            };
            let (left, right) = (pairs(left), pairs(right));
            let compared = left.iter().zip(&right).map(|(l, r)| l.0.cmp(&r.0).then(order_json(&l.1, &r.1)));
            compared.into_iter().find(|order| order.is_ne()).unwrap_or(left.len().cmp(&right.len()))
        }
        _ => Ordering::Equal,
    }
}

/// Equal as DISTINCT sees it.
fn same(left: &Json, right: &Json) -> bool {
    order_json(left, right).is_eq()
}

/// Equal as `=` sees it.
fn equals(left: &Json, right: &Json) -> bool {
    match (number(left), number(right)) {
        (Some(left), Some(right)) => left == right,
        _ => same(left, right),
    }
}

fn less(left: &Json, right: &Json) -> Option<Ordering> {
    if rank(left) != rank(right) || rank(left) > 4 {
        return None;
    }
    match (number(left), number(right)) {
        (Some(left), Some(right)) => left.partial_cmp(&right),
        _ => Some(order_json(left, right)),
    }
}

fn evaluate(expr: &Expr, row: &Row) -> Maybe {
    match expr {
        Expr::Literal(value) => value.clone(),
        Expr::Path(alias, steps) => {
            let mut value = match *alias {
                "c" => Some(row.c.clone()),
                "t" => row.t.clone(),
                _ => row.i.clone(),
            };
            for step in steps {
                value = match (value?, step) {
                    (Json::Object(map), Json::String(key)) => map.get(key).cloned(),
                    (Json::Array(list), Json::Number(index)) => list.get(index.as_u64()? as usize).cloned(),
                    _ => None,
                };
            }
            value
        }
        Expr::Not(inner) => evaluate(inner, row)?.as_bool().map(|truth| json!(!truth)),
        Expr::Minus(inner) => from_number(-number(&evaluate(inner, row)?)?),
        Expr::Binary(operator, left, right) => binary(operator, evaluate(left, row), evaluate(right, row)),
        Expr::Conditional(parts) => match evaluate(&parts[0], row) {
            Some(Json::Bool(true)) => evaluate(&parts[1], row),
            _ => evaluate(&parts[2], row),
        },
        Expr::In(value, list, negated) => {
            let value = evaluate(value, row)?;
            let found = list.iter().filter_map(|item| evaluate(item, row)).any(|item| equals(&item, &value));
            Some(json!(found != *negated))
        }
        Expr::Between(parts, negated) => {
            let [value, low, high] = [0, 1, 2].map(|index| evaluate(&parts[index], row));
            let above = binary(">=", value.clone(), low);
            let below = binary("<=", value, high);
            let truth = binary("AND", above, below)?.as_bool()?;
            Some(json!(truth != *negated))
        }
        Expr::Call(name, arguments) => {
            call(name, arguments.iter().map(|argument| evaluate(argument, row)).collect())
        }
        Expr::Array(list) => {
            Some(Json::from(list.iter().filter_map(|item| evaluate(item, row)).collect::<Vec<_>>()))
        }
        Expr::Object(properties) => {
            let named =
                properties.iter().filter_map(|(key, value)| Some((key.to_string(), evaluate(value, row)?)));
            Some(Json::Object(named.collect()))
        }
        Expr::Items(form, property, filter) => {
            let mut found = items(row.c.get(property));
            found.retain(|item| {
                let inner = Row { i: Some(item.clone()), ..row.clone() };
                evaluate(filter, &inner) == Some(Json::Bool(true))
            });
            match *form {
                "EXISTS" => Some(json!(!found.is_empty())),
                "ARRAY" => Some(Json::from(found)),
                _ => Some(json!(found.len())),
            }
        }
        Expr::Aggregate(..) => None,
    }
}

fn binary(operator: &str, left: Maybe, right: Maybe) -> Maybe {
    let truths = [&left, &right].map(|side| side.as_ref().and_then(Json::as_bool));
    match operator {
        "AND" if truths.contains(&Some(false)) => return Some(json!(false)),
        "AND" => return Some(json!(truths[0]? && truths[1]?)),
        "OR" if truths.contains(&Some(true)) => return Some(json!(true)),
        "OR" => return Some(json!(truths[0]? || truths[1]?)),
        "??" => return left.or(right),
        _ => {}
    }
    let (left, right) = (left?, right?);
    let ordered = |wanted: fn(Ordering) -> bool| less(&left, &right).map(|order| json!(wanted(order)));
    match operator {
        "=" => return Some(json!(equals(&left, &right))),
        "!=" => return Some(json!(!equals(&left, &right))),
        "<" => return ordered(|order| order == Ordering::Less),
        "<=" => return ordered(|order| order != Ordering::Greater),
        ">" => return ordered(|order| order == Ordering::Greater),
        ">=" => return ordered(|order| order != Ordering::Less),
        "||" => return Some(json!(format!("{}{}", string(&left)?, string(&right)?))),
        _ => {}
    }
    let (x, y) = (number(&left)?, number(&right)?);
    from_number(match operator {
        "+" => x + y,
        "-" => x - y,
        "*" => x * y,
        "/" => x / y,
        "%" => x % y,
        "&" => f64::from(bits(x) & bits(y)),
        _ => f64::from(bits(x) | bits(y)),
    })
}

/// Numbers here are small, so the whole part is the 32-bit integer.
fn bits(number: f64) -> i32 {
    if number.is_finite() { number as i64 as i32 } else { 0 }
}

fn call(name: &str, arguments: Vec<Maybe>) -> Maybe {
    if let Some(kind) = name.strip_prefix("IS_") {
        let rank = arguments[0].as_ref().map_or(0, rank);
        let wanted = match kind {
            "DEFINED" => return Some(json!(rank > 0)),
            "NULL" => 1,
            "BOOL" => 2,
            "NUMBER" => 3,
            "STRING" => 4,
            "ARRAY" => 5,
            _ => 6,
        };
        return Some(json!(rank == wanted));
    }
    let first = arguments[0].clone()?;
    match name {
        "ABS" => return from_number(number(&first)?.abs()),
        "LENGTH" => return Some(json!(string(&first)?.chars().count())),
        "UPPER" => return Some(json!(string(&first)?.to_uppercase())),
        "ARRAY_LENGTH" => return Some(json!(first.as_array()?.len())),
        _ => {}
    }
    let second = arguments[1].clone()?;
    match name {
        "ARRAY_CONTAINS" => Some(json!(first.as_array()?.iter().any(|item| equals(item, &second)))),
        "ARRAY_CONCAT" => Some(Json::from([first.as_array()?.clone(), second.as_array()?.clone()].concat())),
        "CONCAT" => Some(json!(format!("{}{}", string(&first)?, string(&second)?))),
        "CONTAINS" => Some(json!(string(&first)?.contains(string(&second)?))),
        "STARTSWITH" => Some(json!(string(&first)?.starts_with(string(&second)?))),
        _ => Some(json!(string(&first)?.ends_with(string(&second)?))),
    }
}

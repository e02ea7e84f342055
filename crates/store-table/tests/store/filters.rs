//! Filters made at random over entities made at random: both engines let through just what a model of the filter
//! says, which shares nothing with the program's own.

use std::cmp::Ordering;

use polyshard_azure_storage::Timestamp;
use polyshard_store_table::{ChangeKind, EdmValue, Properties};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uuid::Uuid;

use crate::place::Place;
use crate::tools::{change, table};

on_both_engines! {
    random_filters_let_through_what_a_model_does
}

/// Enough that every pair of types and operators meets.
const FILTERS: usize = 250;
const PARTITIONS: [&str; 6] = ["", "a", "a'b", "b", "é", "😀"];
const ROWS: [&str; 7] = ["", "1", "10", "2", "Z", "z", "\u{FFFD}"];
/// Properties that entities have of any type, or not at all.
const NAMES: [&str; 4] = ["p", "q", "größe", "x1"];
const OPERATORS: [&str; 6] = ["eq", "ne", "gt", "ge", "lt", "le"];

/// A value as the model knows it.
#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Flag(bool),
    Small(i32),
    Long(i64),
    Real(f64),
    Id(u128),
    /// Ticks of 100 ns since 1970.
    Time(i64),
    Bytes(Vec<u8>),
}

fn any_value(random: &mut StdRng) -> Value {
    const REALS: [f64; 9] =
        [0.0, -0.0, 1.0, 1.5, -2.5, 9_007_199_254_740_992.0, 1e300, f64::INFINITY, f64::NAN];
    const LONGS: [i64; 6] = [0, 1, -2, i64::MAX, i64::MIN, 9_007_199_254_740_993];
    match random.random_range(0..8) {
        0 => Value::Text(ROWS[random.random_range(0..ROWS.len())].to_owned()),
        1 => Value::Flag(random.random_bool(0.5)),
        2 => Value::Small([0, 1, -2, i32::MAX][random.random_range(0..4)]),
        3 => Value::Long(LONGS[random.random_range(0..LONGS.len())]),
        4 => Value::Real(REALS[random.random_range(0..REALS.len())]),
        5 => Value::Id([0, 1, 1 << 127][random.random_range(0..3)]),
        6 => Value::Time([0, 1, -10_000_000, 17_947_275_160_000_000][random.random_range(0..4)]),
        _ => Value::Bytes([&[][..], &[0], &[0, 255], &[1]][random.random_range(0..4)].to_vec()),
    }
}

impl Value {
    fn edm(&self) -> EdmValue {
        match self {
            Value::Text(text) => EdmValue::String(text.clone()),
            Value::Flag(flag) => EdmValue::Boolean(*flag),
            Value::Small(number) => EdmValue::Int32(*number),
            Value::Long(number) => EdmValue::Int64(*number),
            Value::Real(number) => EdmValue::Double(*number),
            Value::Id(id) => EdmValue::Guid(Uuid::from_u128(*id)),
            Value::Time(ticks) => EdmValue::DateTime(Timestamp::from_ticks(*ticks).unwrap()),
            Value::Bytes(bytes) => EdmValue::Binary(bytes.clone()),
        }
    }

    /// As a filter has it.
    fn literal(&self) -> String {
        match self {
            Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
            Value::Flag(flag) => flag.to_string(),
            Value::Small(number) => number.to_string(),
            Value::Long(number) => format!("{number}L"),
            Value::Real(number) if number.is_nan() => "NaN".to_owned(),
            Value::Real(number) if number.is_infinite() => "INF".to_owned(),
            Value::Real(number) => format!("{number:?}"),
            Value::Id(id) => format!("guid'{}'", Uuid::from_u128(*id)),
            Value::Time(ticks) => format!("datetime'{}'", Timestamp::from_ticks(*ticks).unwrap()),
            Value::Bytes(bytes) => {
                format!("X'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
        }
    }

    /// A number as it is, without rounding: its whole part and what is left of it.
    fn number(&self) -> Option<(i128, f64)> {
        match self {
            Value::Small(number) => Some((i128::from(*number), 0.0)),
            Value::Long(number) => Some((i128::from(*number), 0.0)),
            // What is beyond is beyond every whole number, too.
            Value::Real(number) => {
                let number = number.clamp(-1e30, 1e30);
                Some((number.floor() as i128, number - number.floor()))
            }
            _ => None,
        }
    }
}

/// How two values compare: nothing at all if they are of different kinds, and no order if one is no number.
fn compare(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    if let (Value::Real(a), Value::Real(b)) = (left, right) {
        return Some(a.partial_cmp(b));
    }
    let is_nan = |value: &Value| matches!(value, Value::Real(number) if number.is_nan());
    if let (Some(a), Some(b)) = (left.number(), right.number()) {
        return Some(if is_nan(left) || is_nan(right) { None } else { a.partial_cmp(&b) });
    }
    let ordering = match (left, right) {
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Flag(a), Value::Flag(b)) => a.cmp(b),
        (Value::Id(a), Value::Id(b)) => a.cmp(b),
        (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        _ => return None,
    };
    Some(Some(ordering))
}

/// A filter as the model knows it.
enum Model {
    Compare { name: &'static str, operator: &'static str, value: Value, is_mirrored: bool },
    Truth(&'static str),
    Not(Box<Model>),
    Both(Box<Model>, Box<Model>),
    Either(Box<Model>, Box<Model>),
}

fn any_model(random: &mut StdRng, depth: usize) -> Model {
    let kind = if depth == 0 { 0 } else { random.random_range(0..8) };
    let inner = |random: &mut StdRng| Box::new(any_model(random, depth - 1));
    match kind {
        4 => Model::Not(inner(random)),
        5 => Model::Either(inner(random), inner(random)),
        6 | 7 => Model::Both(inner(random), inner(random)),
        3 if random.random_bool(0.3) => Model::Truth(NAMES[random.random_range(0..NAMES.len())]),
        _ => {
            let text = |list: &[&str], random: &mut StdRng| {
                Value::Text(list[random.random_range(0..list.len())].to_owned())
            };
            let (name, value) = match random.random_range(0..5) {
                0 => ("PartitionKey", text(&PARTITIONS, random)),
                1 => ("RowKey", text(&ROWS, random)),
                _ => (NAMES[random.random_range(0..NAMES.len())], any_value(random)),
            };
            let operator = OPERATORS[random.random_range(0..OPERATORS.len())];
            Model::Compare { name, operator, value, is_mirrored: random.random_bool(0.2) }
        }
    }
}

impl Model {
    fn text(&self) -> String {
        match self {
            Model::Compare { name, operator, value, is_mirrored: false } => {
                format!("{name} {operator} {}", value.literal())
            }
            Model::Compare { name, operator, value, is_mirrored: true } => {
                format!("{} {operator} {name}", value.literal())
            }
            Model::Truth(name) => (*name).to_owned(),
            Model::Not(inner) => format!("not ({})", inner.text()),
            Model::Both(left, right) => format!("({}) and ({})", left.text(), right.text()),
            Model::Either(left, right) => format!("({}) or ({})", left.text(), right.text()),
        }
    }

    fn holds(&self, row: &Row) -> bool {
        match self {
            Model::Compare { name, operator, value, is_mirrored } => {
                let Some(own) = row.get(name) else { return false };
                let (left, right) = if *is_mirrored { (value, own) } else { (own, value) };
                match (compare(left, right), *operator) {
                    (None, _) => false,
                    (Some(None), operator) => operator == "ne",
                    (Some(Some(ordering)), "eq") => ordering.is_eq(),
                    (Some(Some(ordering)), "ne") => ordering.is_ne(),
                    (Some(Some(ordering)), "gt") => ordering.is_gt(),
                    (Some(Some(ordering)), "ge") => ordering.is_ge(),
                    (Some(Some(ordering)), "lt") => ordering.is_lt(),
                    (Some(Some(ordering)), _) => ordering.is_le(),
                }
            }
            Model::Truth(name) => matches!(row.get(name), Some(Value::Flag(true))),
            Model::Not(inner) => !inner.holds(row),
            Model::Both(left, right) => left.holds(row) && right.holds(row),
            Model::Either(left, right) => left.holds(row) || right.holds(row),
        }
    }
}

/// An entity: its keys are the first two values.
struct Row(Vec<(&'static str, Value)>);

impl Row {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

async fn random_filters_let_through_what_a_model_does(place: Place) {
    let mut random = StdRng::seed_from_u64(20_261_116);
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let mut rows = Vec::new();
    for partition in PARTITIONS {
        let mut changes = Vec::new();
        for row in ROWS {
            let mut own = Vec::new();
            for name in NAMES {
                if random.random_bool(0.7) {
                    own.push((name, any_value(&mut random)));
                }
            }
            let list = own.iter().map(|(name, value)| ((*name).to_owned(), value.edm())).collect();
            changes.push(change(row, ChangeKind::Insert(Properties::new(list).unwrap())));
            let keys = [("PartitionKey", partition), ("RowKey", row)];
            own.extend(keys.map(|(name, key)| (name, Value::Text(key.to_owned()))));
            rows.push((format!("{partition}/{row}"), Row(own)));
        }
        cluster.change(partition, changes).await.unwrap();
    }
    rows.sort_by(|(a, _), (b, _)| a.split_once('/').cmp(&b.split_once('/')));
    let mut found = 0;
    for _ in 0..FILTERS {
        let model = any_model(&mut random, 3);
        let text = model.text();
        let expected: Vec<_> =
            rows.iter().filter(|(_, row)| model.holds(row)).map(|(key, _)| key.clone()).collect();
        found += expected.len();
        assert_eq!(cluster.all(&text, 1000).await, expected, "{text}");
        let top = random.random_range(1..12);
        assert_eq!(cluster.all(&text, top).await, expected, "{text} by {top}");
    }
    assert!(found > FILTERS, "{found}: the filters let nothing through");
    cluster.close().await;
}

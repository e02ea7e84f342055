//! Aggregate functions. All of them ignore undefined values.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::value::{Ordered, Value};

/// Which aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Count,
    CountIf,
    Sum,
    Average,
    Minimum,
    Maximum,
    MakeList,
    MakeSet,
}

impl AggregateKind {
    /// The aggregate of a function name.
    pub fn from_name(name: &str) -> Option<AggregateKind> {
        const NAMES: [(&str, AggregateKind); 8] = [
            ("COUNT", AggregateKind::Count),
            ("COUNTIF", AggregateKind::CountIf),
            ("SUM", AggregateKind::Sum),
            ("AVG", AggregateKind::Average),
            ("MIN", AggregateKind::Minimum),
            ("MAX", AggregateKind::Maximum),
            ("MAKELIST", AggregateKind::MakeList),
            ("MAKESET", AggregateKind::MakeSet),
        ];
        NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, kind)| *kind)
    }

    /// True when the state grows with the rows.
    pub fn keeps_values(self) -> bool {
        matches!(self, AggregateKind::MakeList | AggregateKind::MakeSet)
    }
}

/// The state of one aggregate.
#[derive(Clone, Debug)]
pub(super) enum Accumulator {
    Count(u64),
    CountIf(u64),
    /// The flag says that a value was not a number, which leaves no sum.
    Sum {
        total: f64,
        count: u64,
        broken: bool,
        average: bool,
    },
    /// The best value so far. The flag says that a value was an array or object, which leaves no result.
    Extreme {
        best: Value,
        wanted: Ordering,
        broken: bool,
    },
    List(Vec<Value>),
    Set(BTreeSet<Ordered>),
}

impl Accumulator {
    pub fn new(kind: AggregateKind) -> Self {
        let sum = |average| Accumulator::Sum { total: 0.0, count: 0, broken: false, average };
        let extreme = |wanted| Accumulator::Extreme { best: Value::Undefined, wanted, broken: false };
        match kind {
            AggregateKind::Count => Accumulator::Count(0),
            AggregateKind::CountIf => Accumulator::CountIf(0),
            AggregateKind::Sum => sum(false),
            AggregateKind::Average => sum(true),
            AggregateKind::Minimum => extreme(Ordering::Less),
            AggregateKind::Maximum => extreme(Ordering::Greater),
            AggregateKind::MakeList => Accumulator::List(Vec::new()),
            AggregateKind::MakeSet => Accumulator::Set(BTreeSet::new()),
        }
    }

    /// Adds a value and returns by how many bytes the state grew.
    pub fn add(&mut self, value: Value) -> usize {
        if value.is_undefined() {
            return 0;
        }
        match self {
            Accumulator::Count(count) => *count += 1,
            Accumulator::CountIf(count) => *count += u64::from(value.as_bool() == Some(true)),
            Accumulator::Sum { total, count, broken, .. } => match value {
                Value::Number(number) => {
                    *total += number;
                    *count += 1;
                }
                _ => *broken = true,
            },
            Accumulator::Extreme { best, wanted, broken } => {
                *broken |= !value.is_primitive();
                if best.is_undefined() || value.total_order(best) == *wanted {
                    *best = value;
                }
            }
            Accumulator::List(items) => {
                let bytes = value.state_bytes();
                items.push(value);
                return bytes;
            }
            Accumulator::Set(items) => {
                let bytes = value.state_bytes();
                return if items.insert(Ordered(value)) { bytes } else { 0 };
            }
        }
        0
    }

    pub fn result(self) -> Value {
        match self {
            Accumulator::Count(count) | Accumulator::CountIf(count) => Value::Number(count as f64),
            Accumulator::Sum { broken: true, .. } | Accumulator::Extreme { broken: true, .. } => {
                Value::Undefined
            }
            Accumulator::Sum { count: 0, average: true, .. } => Value::Undefined,
            Accumulator::Sum { total, count, average: true, .. } => Value::Number(total / count as f64),
            Accumulator::Sum { total, .. } => Value::Number(total),
            Accumulator::Extreme { best, .. } => best,
            Accumulator::List(items) => Value::array(items),
            Accumulator::Set(items) => Value::array(items.into_iter().map(|item| item.0).collect()),
        }
    }
}

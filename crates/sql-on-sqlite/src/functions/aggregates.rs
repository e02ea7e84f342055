//! Aggregates with PostgreSQL's result types: exact sums and averages, texts, arrays, documents.

use polyshard_engine::{Accumulator, Aggregate, Value};
use polyshard_sql::SqlError;

use super::{int, numeric, real, shown, text};
use crate::fail::{fail, pack, unsupported};
use crate::value::json::Json;
use crate::value::numeric::Numeric;
use crate::value::{array, float};

pub(super) fn all() -> Vec<Aggregate> {
    vec![
        Aggregate::new("pg_sum8", 1, || Box::new(Whole::new(Shown::Sum))),
        Aggregate::new("pg_avgi", 1, || Box::new(Whole::new(Shown::Average))),
        Aggregate::new("pg_sumn", 1, || Box::new(Exact::new(Shown::Sum))),
        Aggregate::new("pg_avgn", 1, || Box::new(Exact::new(Shown::Average))),
        Aggregate::new("pg_sumf", 1, || Box::new(Double::new(Shown::Sum))),
        Aggregate::new("pg_avgf", 1, || Box::new(Double::new(Shown::Average))),
        Aggregate::new("pg_bool_and", 1, || Box::new(Truth { wanted: false, ..Truth::default() })),
        Aggregate::new("pg_bool_or", 1, || Box::new(Truth { wanted: true, ..Truth::default() })),
        Aggregate::new("pg_bit_and", 1, || Box::new(Bits { combine: |a, b| a & b, bits: None })),
        Aggregate::new("pg_bit_or", 1, || Box::new(Bits { combine: |a, b| a | b, bits: None })),
        Aggregate::new("pg_string_agg", 2, || Box::new(Texts::default())),
        Aggregate::new("pg_array_agg", 1, || {
            Box::new(List { element: |a| Ok(array::to_json(&a[0])), list: None })
        }),
        // Its argument is jsonb already.
        Aggregate::new("pg_jsonb_agg", 1, || {
            let element = |a: &[Value]| match &a[0] {
                Value::Null => Ok(Json::Null),
                value => Json::parse(text(value)?),
            };
            Box::new(List { element, list: None })
        }),
        Aggregate::new("pg_json_agg", 1, || Box::new(Written::default())),
        Aggregate::new("pg_jsonb_object_agg", 2, || Box::new(Members::default())),
        Aggregate::new("pg_only", 1, || Box::new(Only::default())),
    ]
}

enum Shown {
    Sum,
    Average,
}

fn no_inverse() -> String {
    pack(&unsupported("this aggregate over a window frame whose start moves"))
}

fn told<T>(result: Result<T, SqlError>) -> Result<T, String> {
    result.map_err(|error| pack(&error))
}

/// Whole numbers.
struct Whole {
    sum: i128,
    count: i128,
    shown: Shown,
}

impl Whole {
    fn new(shown: Shown) -> Whole {
        Whole { sum: 0, count: 0, shown }
    }
}

impl Accumulator for Whole {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            self.sum += i128::from(told(int(&a[0]))?);
            self.count += 1;
        }
        Ok(())
    }

    fn inverse(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            self.sum -= i128::from(told(int(&a[0]))?);
            self.count -= 1;
        }
        Ok(())
    }

    fn value(&self) -> Result<Value, String> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        let sum = Numeric::from_i128(self.sum);
        Ok(shown(&match self.shown {
            Shown::Sum => sum,
            Shown::Average => told(sum.div(&Numeric::from_i128(self.count)))?,
        }))
    }
}

/// Exact decimals.
struct Exact {
    sum: Numeric,
    count: i128,
    shown: Shown,
}

impl Exact {
    fn new(shown: Shown) -> Exact {
        Exact { sum: Numeric::zero(), count: 0, shown }
    }
}

impl Accumulator for Exact {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            self.sum = told(numeric(&a[0]).and_then(|number| self.sum.add(&number)))?;
            self.count += 1;
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(match self.shown {
            Shown::Sum => shown(&self.sum),
            Shown::Average => shown(&told(self.sum.div(&Numeric::from_i128(self.count)))?),
        })
    }
}

/// Doubles, added in the order they come.
struct Double {
    sum: f64,
    count: u64,
    infinite: bool,
    shown: Shown,
}

impl Double {
    fn new(shown: Shown) -> Double {
        Double { sum: 0.0, count: 0, infinite: false, shown }
    }
}

impl Accumulator for Double {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            let value = told(real(&a[0]))?;
            self.infinite |= value.is_infinite();
            self.sum = told(float::checked(self.sum + value, !self.infinite))?;
            self.count += 1;
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(Value::Real(match self.shown {
            Shown::Sum => self.sum,
            Shown::Average => self.sum / self.count as f64,
        }))
    }
}

/// Whether any value is the wanted one.
#[derive(Default)]
struct Truth {
    wanted: bool,
    seen: u64,
    count: u64,
}

impl Accumulator for Truth {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            self.seen += u64::from((told(int(&a[0]))? != 0) == self.wanted);
            self.count += 1;
        }
        Ok(())
    }

    fn inverse(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            self.seen -= u64::from((told(int(&a[0]))? != 0) == self.wanted);
            self.count -= 1;
        }
        Ok(())
    }

    fn value(&self) -> Result<Value, String> {
        if self.count == 0 {
            return Ok(Value::Null);
        }
        Ok(Value::Int(((self.seen > 0) == self.wanted).into()))
    }
}

/// The bits that all numbers, or any, have.
struct Bits {
    combine: fn(i64, i64) -> i64,
    bits: Option<i64>,
}

impl Accumulator for Bits {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if !a[0].is_null() {
            let next = told(int(&a[0]))?;
            self.bits = Some(self.bits.map_or(next, |bits| (self.combine)(bits, next)));
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.bits.map_or(Value::Null, Value::Int))
    }
}

/// Texts joined; the separator of the first is not used.
#[derive(Default)]
struct Texts(Option<String>);

impl Accumulator for Texts {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if a[0].is_null() {
            return Ok(());
        }
        let part = told(text(&a[0]))?;
        match (&mut self.0, &a[1]) {
            (None, _) => self.0 = Some(part.to_owned()),
            (Some(all), separator) => {
                if !separator.is_null() {
                    all.push_str(told(text(separator))?);
                }
                all.push_str(part);
            }
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.0.clone().into())
    }
}

/// An array, of values or of documents.
struct List {
    element: fn(&[Value]) -> Result<Json, SqlError>,
    list: Option<Vec<Json>>,
}

impl Accumulator for List {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        let element = told((self.element)(a))?;
        self.list.get_or_insert_default().push(element);
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.list.as_ref().map(|list| Json::Array(list.clone()).to_string()).into())
    }
}

/// An array of json, each as it is written.
#[derive(Default)]
struct Written(Option<String>);

impl Accumulator for Written {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        let element = told(super::jsonb::written_or_null(&a[0]))?;
        match &mut self.0 {
            None => self.0 = Some(format!("[{element}")),
            Some(list) => {
                list.push_str(", ");
                list.push_str(element);
            }
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.0.as_ref().map(|list| format!("{list}]")).into())
    }
}

/// The members of an object.
#[derive(Default)]
struct Members(Option<Vec<(String, Json)>>);

impl Accumulator for Members {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if a[0].is_null() {
            return Err(pack(&fail("22023", "field name must not be null")));
        }
        let value = match &a[1] {
            Value::Null => Json::Null,
            value => told(text(value).and_then(Json::parse))?,
        };
        let key = told(text(&a[0]))?.to_owned();
        self.0.get_or_insert_default().push((key, value));
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        Err(no_inverse())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.0.as_ref().map(|members| Json::object(members.clone()).to_string()).into())
    }
}

/// The value of the only row of a sub-query that may have one row at most.
#[derive(Default)]
struct Only(Option<Value>);

impl Accumulator for Only {
    fn step(&mut self, a: &[Value]) -> Result<(), String> {
        if self.0.is_some() {
            return Err(pack(&fail(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )));
        }
        self.0 = Some(a[0].clone());
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        self.0 = None;
        Ok(())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(self.0.clone().unwrap_or(Value::Null))
    }
}

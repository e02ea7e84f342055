//! Numbers: checked whole numbers, exact decimals, doubles that overflow with an error.

use polyshard_engine::{ScalarFunction, Value};
use polyshard_sql::SqlError;

use super::{Answer, int, numeric, plain, real, shown, strict};
use crate::fail::{fail, out_of_range};
use crate::value::float;
use crate::value::numeric::Numeric;

pub(super) fn register(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_add2", 2, |a| whole::<2>(i128::from(int(&a[0])?) + i128::from(int(&a[1])?))),
        strict("pg_add4", 2, |a| whole::<4>(i128::from(int(&a[0])?) + i128::from(int(&a[1])?))),
        strict("pg_add8", 2, |a| whole::<8>(i128::from(int(&a[0])?) + i128::from(int(&a[1])?))),
        strict("pg_sub2", 2, |a| whole::<2>(i128::from(int(&a[0])?) - i128::from(int(&a[1])?))),
        strict("pg_sub4", 2, |a| whole::<4>(i128::from(int(&a[0])?) - i128::from(int(&a[1])?))),
        strict("pg_sub8", 2, |a| whole::<8>(i128::from(int(&a[0])?) - i128::from(int(&a[1])?))),
        strict("pg_mul2", 2, |a| whole::<2>(i128::from(int(&a[0])?) * i128::from(int(&a[1])?))),
        strict("pg_mul4", 2, |a| whole::<4>(i128::from(int(&a[0])?) * i128::from(int(&a[1])?))),
        strict("pg_mul8", 2, |a| whole::<8>(i128::from(int(&a[0])?) * i128::from(int(&a[1])?))),
        strict("pg_div2", 2, |a| whole::<2>(quotient(a)?)),
        strict("pg_div4", 2, |a| whole::<4>(quotient(a)?)),
        strict("pg_div8", 2, |a| whole::<8>(quotient(a)?)),
        strict("pg_mod", 2, |a| match int(&a[1])? {
            0 => Err(by_zero()),
            divisor => Ok(Value::Int(int(&a[0])?.wrapping_rem(divisor))),
        }),
        strict("pg_neg2", 1, |a| whole::<2>(-i128::from(int(&a[0])?))),
        strict("pg_neg4", 1, |a| whole::<4>(-i128::from(int(&a[0])?))),
        strict("pg_neg8", 1, |a| whole::<8>(-i128::from(int(&a[0])?))),
        strict("pg_abs2", 1, |a| whole::<2>(i128::from(int(&a[0])?).abs())),
        strict("pg_abs4", 1, |a| whole::<4>(i128::from(int(&a[0])?).abs())),
        strict("pg_abs8", 1, |a| whole::<8>(i128::from(int(&a[0])?).abs())),
        strict("pg_int2", 1, |a| whole::<2>(int(&a[0])?.into())),
        strict("pg_int4", 1, |a| whole::<4>(int(&a[0])?.into())),
        strict("pg_xor", 2, |a| Ok(Value::Int(int(&a[0])? ^ int(&a[1])?))),
        strict("pg_shl4", 2, |a| Ok(Value::Int(i64::from((int(&a[0])? as i32) << (int(&a[1])? & 31))))),
        strict("pg_shr4", 2, |a| Ok(Value::Int(i64::from((int(&a[0])? as i32) >> (int(&a[1])? & 31))))),
        strict("pg_shl8", 2, |a| Ok(Value::Int(int(&a[0])? << (int(&a[1])? & 63)))),
        strict("pg_shr8", 2, |a| Ok(Value::Int(int(&a[0])? >> (int(&a[1])? & 63)))),
        strict("pg_gcd4", 2, |a| whole::<4>(gcd(a)?)),
        strict("pg_gcd8", 2, |a| whole::<8>(gcd(a)?)),
        strict("pg_lcm4", 2, |a| whole::<4>(lcm(a)?)),
        strict("pg_lcm8", 2, |a| whole::<8>(lcm(a)?)),
    ]);
    doubles(all);
    decimals(all);
}

fn doubles(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_addf", 2, |a| two(a, |x, y| x + y)),
        strict("pg_subf", 2, |a| two(a, |x, y| x - y)),
        strict("pg_mulf", 2, |a| {
            let (x, y) = (real(&a[0])?, real(&a[1])?);
            if x * y == 0.0 && x != 0.0 && y != 0.0 {
                return Err(underflow());
            }
            two(a, |x, y| x * y)
        }),
        strict("pg_divf", 2, |a| {
            let (x, y) = (real(&a[0])?, real(&a[1])?);
            if y == 0.0 {
                return Err(by_zero());
            }
            if x / y == 0.0 && x != 0.0 && y.is_finite() {
                return Err(underflow());
            }
            two(a, |x, y| x / y)
        }),
        strict("pg_powf", 2, power),
        strict("pg_negf", 1, |a| Ok(Value::Real(-real(&a[0])?))),
        strict("pg_absf", 1, |a| Ok(Value::Real(real(&a[0])?.abs()))),
        strict("pg_ceilf", 1, |a| Ok(Value::Real(real(&a[0])?.ceil()))),
        strict("pg_floorf", 1, |a| Ok(Value::Real(real(&a[0])?.floor()))),
        strict("pg_roundf", 1, |a| Ok(Value::Real(real(&a[0])?.round_ties_even()))),
        strict("pg_truncf", 1, |a| Ok(Value::Real(real(&a[0])?.trunc()))),
        strict("pg_signf", 1, |a| {
            let x = real(&a[0])?;
            Ok(Value::Real(if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                0.0
            }))
        }),
        strict("pg_sqrtf", 1, |a| {
            let x = real(&a[0])?;
            if x < 0.0 {
                return Err(fail("2201F", "cannot take square root of a negative number"));
            }
            Ok(Value::Real(x.sqrt()))
        }),
        strict("pg_expf", 1, |a| {
            let x = real(&a[0])?;
            let value = x.exp();
            if value == 0.0 && x.is_finite() {
                return Err(underflow());
            }
            float::checked(value, x.is_finite()).map(Value::Real)
        }),
        strict("pg_lnf", 1, |a| logarithm(real(&a[0])?, f64::ln)),
        strict("pg_logf", 1, |a| logarithm(real(&a[0])?, f64::log10)),
        strict("pg_degreesf", 1, |a| one(a, |x| x / (std::f64::consts::PI / 180.0))),
        strict("pg_radiansf", 1, |a| one(a, |x| x * (std::f64::consts::PI / 180.0))),
        // The random bits are SQLite's own.
        plain("pg_random", 1, |a| {
            let bits = int(&a[0])? as u64 >> 11;
            Ok(Value::Real(bits as f64 / (1u64 << 53) as f64))
        }),
        strict("pg_f8_int", 2, |a| {
            let (x, size) = (real(&a[0])?.round_ties_even(), int(&a[1])?);
            let fits = x >= -(2f64.powi(8 * size as i32 - 1)) && x < 2f64.powi(8 * size as i32 - 1);
            if fits { Ok(Value::Int(x as i64)) } else { Err(out_of_range(name(size))) }
        }),
        strict("pg_f8_num", 1, |a| Ok(shown(&Numeric::from_f64(real(&a[0])?)))),
    ]);
}

fn decimals(all: &mut Vec<ScalarFunction>) {
    all.extend([
        strict("pg_addn", 2, |a| numeric(&a[0])?.add(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_subn", 2, |a| numeric(&a[0])?.sub(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_muln", 2, |a| numeric(&a[0])?.mul(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_divn", 2, |a| numeric(&a[0])?.div(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_modn", 2, |a| numeric(&a[0])?.rem(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_idivn", 2, |a| numeric(&a[0])?.div_whole(&numeric(&a[1])?).map(|x| shown(&x))),
        strict("pg_negn", 1, |a| Ok(shown(&numeric(&a[0])?.negated()))),
        strict("pg_absn", 1, |a| Ok(shown(&numeric(&a[0])?.abs()))),
        strict("pg_ceiln", 1, |a| Ok(shown(&numeric(&a[0])?.ceil()))),
        strict("pg_floorn", 1, |a| Ok(shown(&numeric(&a[0])?.floor()))),
        strict("pg_roundn", 2, |a| Ok(shown(&numeric(&a[0])?.round(int(&a[1])?)))),
        strict("pg_truncn", 2, |a| Ok(shown(&numeric(&a[0])?.trunc(int(&a[1])?)))),
        strict("pg_signn", 1, |a| {
            let number = numeric(&a[0])?;
            Ok(match &number {
                Numeric::NaN => shown(&number),
                _ if number.is_zero() => Value::from("0"),
                _ if number.is_negative() => Value::from("-1"),
                _ => Value::from("1"),
            })
        }),
        strict("pg_scale", 1, |a| match numeric(&a[0])? {
            number @ Numeric::Finite { .. } => Ok(Value::Int(number.scale().into())),
            _ => Ok(Value::Null),
        }),
        strict("pg_trim_scale", 1, |a| Ok(shown(&numeric(&a[0])?.without_trailing_zeros()))),
        strict("pg_num_f8", 1, |a| {
            let number = numeric(&a[0])?;
            let value = number.to_f64();
            let finite = matches!(number, Numeric::Finite { .. });
            if value == 0.0 && !number.is_zero() && finite {
                let shown = number.to_string();
                return Err(fail("22003", format!("\"{shown}\" is out of range for type double precision")));
            }
            float::checked(value, finite).map(Value::Real).map_err(|error| match error.state.0 {
                "22003" => fail("22003", format!("\"{number}\" is out of range for type double precision")),
                _ => error,
            })
        }),
        strict("pg_num_int", 2, |a| {
            let (number, size) = (numeric(&a[0])?, int(&a[1])?);
            match number {
                Numeric::NaN => return Err(fail("0A000", format!("cannot convert NaN to {}", name(size)))),
                Numeric::Infinity { .. } => {
                    return Err(fail("0A000", format!("cannot convert infinity to {}", name(size))));
                }
                Numeric::Finite { .. } => {}
            }
            let bound = 1i128 << (8 * size - 1);
            match number.to_i128() {
                Some(value) if (-bound..bound).contains(&value) => Ok(Value::Int(value as i64)),
                _ => Err(out_of_range(name(size))),
            }
        }),
        strict("pg_factorial", 1, |a| {
            /// Beyond it the result is larger than any use, and PostgreSQL's own limit is near.
            const FACTORIAL_MAX: i64 = 5000;
            let n = int(&a[0])?;
            if n < 0 {
                return Err(fail("22003", "factorial of a negative number is undefined"));
            }
            if n > FACTORIAL_MAX {
                return Err(fail("22003", "value overflows numeric format"));
            }
            let mut product = Numeric::from_i128(1);
            for factor in 2..=n {
                product = product.mul(&Numeric::from_i128(factor.into()))?;
            }
            Ok(shown(&product))
        }),
    ]);
}

fn name(size: i64) -> &'static str {
    match size {
        2 => "smallint",
        4 => "integer",
        _ => "bigint",
    }
}

fn whole<const SIZE: u32>(value: i128) -> Answer {
    let bound = 1i128 << (8 * SIZE - 1);
    if (-bound..bound).contains(&value) {
        Ok(Value::Int(value as i64))
    } else {
        Err(out_of_range(name(SIZE.into())))
    }
}

fn quotient(a: &[Value]) -> Result<i128, SqlError> {
    match int(&a[1])? {
        0 => Err(by_zero()),
        divisor => Ok(i128::from(int(&a[0])?) / i128::from(divisor)),
    }
}

fn gcd(a: &[Value]) -> Result<i128, SqlError> {
    let (mut x, mut y) = (i128::from(int(&a[0])?).abs(), i128::from(int(&a[1])?).abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    Ok(x)
}

fn lcm(a: &[Value]) -> Result<i128, SqlError> {
    let (x, y) = (i128::from(int(&a[0])?), i128::from(int(&a[1])?));
    if x == 0 || y == 0 {
        return Ok(0);
    }
    Ok((x / gcd(a)? * y).abs())
}

fn by_zero() -> SqlError {
    fail("22012", "division by zero")
}

fn underflow() -> SqlError {
    fail("22003", "value out of range: underflow")
}

fn one(a: &[Value], body: fn(f64) -> f64) -> Answer {
    let x = real(&a[0])?;
    float::checked(body(x), x.is_finite()).map(Value::Real)
}

fn two(a: &[Value], body: fn(f64, f64) -> f64) -> Answer {
    let (x, y) = (real(&a[0])?, real(&a[1])?);
    float::checked(body(x, y), x.is_finite() && y.is_finite()).map(Value::Real)
}

fn logarithm(x: f64, body: fn(f64) -> f64) -> Answer {
    if x == 0.0 {
        return Err(fail("2201E", "cannot take logarithm of zero"));
    }
    if x < 0.0 {
        return Err(fail("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(Value::Real(body(x)))
}

fn power(a: &[Value]) -> Answer {
    let (x, y) = (real(&a[0])?, real(&a[1])?);
    if x == 0.0 && y < 0.0 {
        return Err(fail("2201F", "zero raised to a negative power is undefined"));
    }
    if x < 0.0 && y.is_finite() && y != y.trunc() {
        return Err(fail("2201F", "a negative number raised to a non-integer power yields a complex result"));
    }
    let value = x.powf(y);
    if value == 0.0 && x != 0.0 && x.is_finite() && y.is_finite() {
        return Err(underflow());
    }
    float::checked(value, x.is_finite() && y.is_finite()).map(Value::Real)
}

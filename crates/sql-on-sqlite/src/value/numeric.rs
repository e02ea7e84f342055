//! PostgreSQL's numeric: exact decimals with the scale they are shown with.

use std::cmp::Ordering;
use std::fmt;

use polyshard_sql::SqlError;

use super::big::Big;
use crate::fail::{bad_input, fail};

/// Digits after the point that a result may have at most.
const SCALE_MAX: u32 = 16_383;
/// Digits before the point that PostgreSQL's format can hold.
const WHOLE_DIGITS_MAX: i64 = 131_072;
/// A quotient has at least this many significant digits.
const QUOTIENT_DIGITS_MIN: i64 = 16;
/// A quotient never has more digits after the point than this.
const QUOTIENT_SCALE_MAX: i64 = 1000;

/// A numeric value.
#[derive(Clone, Debug)]
pub(crate) enum Numeric {
    Finite { negative: bool, digits: Big, scale: u32 },
    NaN,
    Infinity { negative: bool },
}

use Numeric::{Finite, Infinity, NaN};

impl Numeric {
    pub fn zero() -> Numeric {
        Finite { negative: false, digits: Big::zero(), scale: 0 }
    }

    pub fn from_i128(value: i128) -> Numeric {
        Finite { negative: value < 0, digits: Big::from_u128(value.unsigned_abs()), scale: 0 }
    }

    /// Units of `10^-scale`.
    pub fn from_units(value: i128, scale: u32) -> Numeric {
        Finite { negative: value < 0, digits: Big::from_u128(value.unsigned_abs()), scale }
    }

    pub fn parse(text: &str) -> Result<Numeric, SqlError> {
        let bad = || bad_input("numeric", text);
        let trimmed = text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\x0b');
        let (negative, body) = match trimmed.as_bytes().first() {
            Some(b'-') => (true, &trimmed[1..]),
            Some(b'+') => (false, &trimmed[1..]),
            _ => (false, trimmed),
        };
        let lower = body.to_ascii_lowercase();
        match lower.as_str() {
            // A sign before NaN is an error.
            "nan" if body.len() == trimmed.len() => return Ok(NaN),
            "infinity" | "inf" => return Ok(Infinity { negative }),
            _ => {}
        }
        let (mantissa, exponent) = match lower.split_once('e') {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(bad());
                }
                (mantissa, exponent.parse::<i64>().map_err(|_| overflow())?)
            }
            None => (lower.as_str(), 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(bad());
        }
        let mut digits = format!("{whole}{fraction}");
        let mut scale = fraction.len() as i64 - exponent;
        if scale > i64::from(SCALE_MAX) || exponent.abs() > WHOLE_DIGITS_MAX * 2 {
            if digits.bytes().all(|byte| byte == b'0') && exponent < 0 {
                return Ok(Finite { negative: false, digits: Big::zero(), scale: SCALE_MAX });
            }
            if exponent < 0 {
                let number = Finite { negative, digits: Big::parse(&digits), scale: clamp_scale(scale)? };
                return Ok(number);
            }
            return Err(overflow());
        }
        if scale < 0 {
            let zeros = usize::try_from(-scale).map_err(|_| overflow())?;
            digits.extend(std::iter::repeat_n('0', zeros));
            scale = 0;
        }
        let digits = Big::parse(&digits);
        let number = Finite { negative: negative && !digits.is_zero(), digits, scale: clamp_scale(scale)? };
        number.checked()
    }

    /// As `%.15g` of a double would be read.
    pub fn from_f64(value: f64) -> Numeric {
        if value.is_nan() {
            return NaN;
        }
        if value.is_infinite() {
            return Infinity { negative: value < 0.0 };
        }
        let text = format!("{value:.14e}");
        Numeric::parse(&text).map_or_else(|_| Numeric::zero(), Numeric::without_trailing_zeros)
    }

    pub fn to_f64(&self) -> f64 {
        match self {
            NaN => f64::NAN,
            Infinity { negative: false } => f64::INFINITY,
            Infinity { negative: true } => f64::NEG_INFINITY,
            Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    pub fn scale(&self) -> u32 {
        match self {
            Finite { scale, .. } => *scale,
            _ => 0,
        }
    }

    pub fn is_zero(&self) -> bool {
        matches!(self, Finite { digits, .. } if digits.is_zero())
    }

    pub fn is_negative(&self) -> bool {
        matches!(self, Finite { negative: true, .. } | Infinity { negative: true })
    }

    pub fn negated(self) -> Numeric {
        match self {
            Finite { negative, digits, scale } => {
                Finite { negative: !negative && !digits.is_zero(), digits, scale }
            }
            Infinity { negative } => Infinity { negative: !negative },
            NaN => NaN,
        }
    }

    pub fn abs(self) -> Numeric {
        if self.is_negative() { self.negated() } else { self }
    }

    pub fn add(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (Infinity { negative: a }, Infinity { negative: b }) if a != b => Ok(NaN),
            (Infinity { negative }, _) | (_, Infinity { negative }) => Ok(Infinity { negative: *negative }),
            (
                Finite { negative: a_negative, digits: a, scale: a_scale },
                Finite { negative: b_negative, digits: b, scale: b_scale },
            ) => {
                let scale = (*a_scale).max(*b_scale);
                let (a, b) = (a.times_ten_to(scale - a_scale), b.times_ten_to(scale - b_scale));
                let (negative, digits) = if a_negative == b_negative {
                    (*a_negative, a.add(&b))
                } else if a >= b {
                    (*a_negative, a.sub(&b))
                } else {
                    (*b_negative, b.sub(&a))
                };
                Finite { negative: negative && !digits.is_zero(), digits, scale }.checked()
            }
        }
    }

    pub fn sub(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        self.add(&other.clone().negated())
    }

    pub fn mul(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (Infinity { .. }, _) | (_, Infinity { .. }) => {
                if self.is_zero() || other.is_zero() {
                    return Ok(NaN);
                }
                Ok(Infinity { negative: self.is_negative() != other.is_negative() })
            }
            (
                Finite { negative: a_negative, digits: a, scale: a_scale },
                Finite { negative: b_negative, digits: b, scale: b_scale },
            ) => {
                let digits = a.mul(b);
                let negative = a_negative != b_negative && !digits.is_zero();
                let product = Finite { negative, digits, scale: a_scale + b_scale };
                if a_scale + b_scale > SCALE_MAX { product.round(SCALE_MAX as i64) } else { product }
                    .checked()
            }
        }
    }

    /// With as many digits as PostgreSQL chooses.
    pub fn div(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        let by_zero = || fail("22012", "division by zero");
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (Infinity { .. }, Infinity { .. }) => Ok(NaN),
            (Infinity { negative }, _) => {
                if other.is_zero() {
                    return Err(by_zero());
                }
                Ok(Infinity { negative: *negative != other.is_negative() })
            }
            (_, Infinity { .. }) => Ok(Numeric::zero()),
            (Finite { scale: a_scale, .. }, Finite { digits: b, scale: b_scale, .. }) => {
                if b.is_zero() {
                    return Err(by_zero());
                }
                let (a_weight, a_first) = self.leading();
                let (b_weight, b_first) = other.leading();
                let weight = a_weight - b_weight - i64::from(a_first <= b_first);
                let scale = (QUOTIENT_DIGITS_MIN - weight * 4)
                    .max(i64::from(*a_scale))
                    .max(i64::from(*b_scale))
                    .clamp(0, QUOTIENT_SCALE_MAX);
                self.div_to(other, scale as u32)?.checked()
            }
        }
    }

    /// Rounded, half away from zero, to `scale` digits after the point.
    fn div_to(&self, other: &Numeric, scale: u32) -> Result<Numeric, SqlError> {
        let (
            Finite { negative: a_negative, digits: a, scale: a_scale },
            Finite { negative: b_negative, digits: b, scale: b_scale },
        ) = (self, other)
        else {
            return Ok(NaN);
        };
        let shift = i64::from(scale) + i64::from(*b_scale) - i64::from(*a_scale);
        let (a, b) = if shift >= 0 {
            (a.times_ten_to(shift as u32), b.clone())
        } else {
            (a.clone(), b.times_ten_to((-shift) as u32))
        };
        let (mut quotient, rest) = a.div_rem(&b);
        if rest.add(&rest) >= b {
            quotient = quotient.add(&Big::from_u128(1));
        }
        let negative = a_negative != b_negative && !quotient.is_zero();
        Ok(Finite { negative, digits: quotient, scale })
    }

    /// The whole quotient, towards zero.
    pub fn div_whole(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        let (Finite { .. }, Finite { .. }) = (self, other) else {
            return self.div(other);
        };
        if other.is_zero() {
            return Err(fail("22012", "division by zero"));
        }
        let (a, b, negative) = self.aligned(other);
        let (quotient, _) = a.div_rem(&b);
        Ok(Finite { negative: negative && !quotient.is_zero(), digits: quotient, scale: 0 })
    }

    /// The rest, with the sign of the first.
    pub fn rem(&self, other: &Numeric) -> Result<Numeric, SqlError> {
        match (self, other) {
            (NaN, _) | (_, NaN) => Ok(NaN),
            (_, other) if other.is_zero() => Err(fail("22012", "division by zero")),
            (Infinity { .. }, _) => Ok(NaN),
            (number, Infinity { .. }) => Ok(number.clone()),
            (Finite { negative, scale: a_scale, .. }, Finite { scale: b_scale, .. }) => {
                let (a, b, _) = self.aligned(other);
                let (_, rest) = a.div_rem(&b);
                let scale = (*a_scale).max(*b_scale);
                Ok(Finite { negative: *negative && !rest.is_zero(), digits: rest, scale })
            }
        }
    }

    fn aligned(&self, other: &Numeric) -> (Big, Big, bool) {
        let scale = self.scale().max(other.scale());
        let digits = |number: &Numeric| match number {
            Finite { digits, scale: own, .. } => digits.times_ten_to(scale - own),
            _ => Big::zero(),
        };
        (digits(self), digits(other), self.is_negative() != other.is_negative())
    }

    /// Half away from zero, to `scale` digits after (or, if negative, before) the point.
    pub fn round(&self, scale: i64) -> Numeric {
        self.cut(scale, |twice_rest, unit| twice_rest >= unit)
    }

    pub fn trunc(&self, scale: i64) -> Numeric {
        self.cut(scale, |_, _| false)
    }

    pub fn floor(&self) -> Numeric {
        let negative = self.is_negative();
        self.cut(0, |rest, _| negative && !rest.is_zero())
    }

    pub fn ceil(&self) -> Numeric {
        let negative = self.is_negative();
        self.cut(0, |rest, _| !negative && !rest.is_zero())
    }

    /// Cuts digits off; `up` says from twice the rest and the unit whether the last kept digit grows.
    fn cut(&self, scale: i64, up: impl Fn(&Big, &Big) -> bool) -> Numeric {
        let Finite { negative, digits, scale: own } = self else {
            return self.clone();
        };
        let scale = scale.clamp(-i64::from(SCALE_MAX) * 9, i64::from(SCALE_MAX));
        let drop = i64::from(*own) - scale;
        if drop <= 0 {
            let digits = digits.times_ten_to((-drop) as u32);
            return Finite { negative: *negative, digits, scale: scale as u32 };
        }
        let unit = Big::from_u128(1).times_ten_to(drop as u32);
        let (mut kept, rest) = digits.div_rem(&unit);
        if up(&rest.add(&rest), &unit) {
            kept = kept.add(&Big::from_u128(1));
        }
        if scale < 0 {
            kept = kept.times_ten_to((-scale) as u32);
        }
        Finite { negative: *negative && !kept.is_zero(), digits: kept, scale: scale.max(0) as u32 }
    }

    /// The same value with no zero at the end of its fraction.
    pub fn without_trailing_zeros(self) -> Numeric {
        let Finite { negative, digits, scale } = self else {
            return self;
        };
        if digits.is_zero() {
            return Numeric::zero();
        }
        let text = digits.to_string();
        let zeros = text.len() - text.trim_end_matches('0').len();
        let drop = zeros.min(scale as usize);
        Finite { negative, digits: Big::parse(&text[..text.len() - drop]), scale: scale - drop as u32 }
    }

    /// The whole number it rounds to, if that is one of the range.
    pub fn to_i128(&self) -> Option<i128> {
        match self.round(0) {
            Finite { negative, digits, .. } => {
                let value = i128::try_from(digits.to_u128()?).ok()?;
                Some(if negative { -value } else { value })
            }
            _ => None,
        }
    }

    /// Fits it to `numeric(precision, scale)`.
    pub fn limited(&self, precision: i32, scale: i32) -> Result<Numeric, SqlError> {
        let overflow = || fail("22003", "numeric field overflow");
        match self {
            NaN => Ok(NaN),
            Infinity { .. } => Err(overflow()),
            Finite { .. } => {
                let rounded = self.round(scale.into());
                let Finite { digits, scale: shown, .. } = &rounded else {
                    return Ok(rounded);
                };
                let whole_digits = digits.decimal_digits() as i64 - i64::from(*shown);
                if !digits.is_zero() && whole_digits > i64::from(precision) - i64::from(scale) {
                    return Err(overflow());
                }
                Ok(rounded)
            }
        }
    }

    /// The place of the leading digit in base 10000, and that digit.
    fn leading(&self) -> (i64, u32) {
        let Finite { digits, scale, .. } = self else {
            return (0, 0);
        };
        if digits.is_zero() {
            return (0, 0);
        }
        let text = digits.to_string();
        let exponent = text.len() as i64 - 1 - i64::from(*scale);
        let weight = exponent.div_euclid(4);
        // The leading base-10000 digit has this many decimal digits before its end.
        let take = (exponent - weight * 4 + 1) as usize;
        let mut group: String = text.chars().take(take).collect();
        while group.len() < take {
            group.push('0');
        }
        (weight, group.parse().unwrap_or(0))
    }

    fn checked(self) -> Result<Numeric, SqlError> {
        match &self {
            Finite { digits, scale, .. }
                if digits.decimal_digits() as i64 - i64::from(*scale) > WHOLE_DIGITS_MAX =>
            {
                Err(overflow())
            }
            _ => Ok(self),
        }
    }

    /// PostgreSQL's binary form.
    pub fn write_binary(&self, out: &mut Vec<u8>) {
        let header = |out: &mut Vec<u8>, digits: i16, weight: i16, sign: u16, scale: u16| {
            out.extend(digits.to_be_bytes());
            out.extend(weight.to_be_bytes());
            out.extend(sign.to_be_bytes());
            out.extend(scale.to_be_bytes());
        };
        match self {
            NaN => header(out, 0, 0, 0xC000, 0),
            Infinity { negative } => header(out, 0, 0, if *negative { 0xF000 } else { 0xD000 }, 0),
            Finite { negative, digits, scale } => {
                let text = if digits.is_zero() { String::new() } else { digits.to_string() };
                let scale_digits = *scale as usize;
                let padded = format!("{text:0>width$}", width = scale_digits);
                let (whole, fraction) = padded.split_at(padded.len() - scale_digits);
                let whole = format!("{}{whole}", "0".repeat((4 - whole.len() % 4) % 4));
                let fraction = format!("{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
                let mut groups: Vec<i16> = format!("{whole}{fraction}")
                    .as_bytes()
                    .chunks(4)
                    .map(|group| group.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
                    .collect();
                let mut weight = whole.len() as i64 / 4 - 1;
                while groups.first() == Some(&0) {
                    groups.remove(0);
                    weight -= 1;
                }
                while groups.last() == Some(&0) {
                    groups.pop();
                }
                if groups.is_empty() {
                    weight = 0;
                }
                let sign = if *negative { 0x4000 } else { 0 };
                header(out, groups.len() as i16, weight as i16, sign, *scale as u16);
                groups.iter().for_each(|group| out.extend(group.to_be_bytes()));
            }
        }
    }

    pub fn read_binary(bytes: &[u8]) -> Option<Numeric> {
        let word =
            |place: usize| Some(i16::from_be_bytes(bytes.get(place * 2..place * 2 + 2)?.try_into().ok()?));
        let (count, weight, sign, scale) = (word(0)?, word(1)?, word(2)? as u16, word(3)? as u16);
        match sign {
            0xC000 => return Some(NaN),
            0xD000 => return Some(Infinity { negative: false }),
            0xF000 => return Some(Infinity { negative: true }),
            0 | 0x4000 => {}
            _ => return None,
        }
        if count < 0 || scale as u32 > SCALE_MAX || bytes.len() != 8 + count as usize * 2 {
            return None;
        }
        let mut text = String::new();
        for place in 0..count as usize {
            let group = word(4 + place)?;
            if !(0..10_000).contains(&group) {
                return None;
            }
            text.push_str(&format!("{group:04}"));
        }
        if text.is_empty() {
            return Some(Finite { negative: false, digits: Big::zero(), scale: scale.into() });
        }
        let exponent = (i64::from(weight) + 1 - i64::from(count)) * 4;
        let number = Numeric::parse(&format!("{text}e{exponent}")).ok()?.trunc(i64::from(scale));
        Some(if sign == 0x4000 { number.negated() } else { number })
    }
}

fn clamp_scale(scale: i64) -> Result<u32, SqlError> {
    u32::try_from(scale).ok().filter(|scale| *scale <= SCALE_MAX).ok_or_else(overflow)
}

fn overflow() -> SqlError {
    fail("22003", "value overflows numeric format")
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NaN => f.write_str("NaN"),
            Infinity { negative: false } => f.write_str("Infinity"),
            Infinity { negative: true } => f.write_str("-Infinity"),
            Finite { negative, digits, scale } => {
                let scale = *scale as usize;
                let text = format!("{:0>width$}", digits.to_string(), width = scale + 1);
                let (whole, fraction) = text.split_at(text.len() - scale);
                if *negative {
                    f.write_str("-")?;
                }
                f.write_str(whole)?;
                if scale > 0 { write!(f, ".{fraction}") } else { Ok(()) }
            }
        }
    }
}

impl Ord for Numeric {
    /// NaN is greater than everything, as an index needs it.
    fn cmp(&self, other: &Numeric) -> Ordering {
        let rank = |number: &Numeric| match number {
            Infinity { negative: true } => 0,
            Finite { .. } => 1,
            Infinity { negative: false } => 2,
            NaN => 3,
        };
        match (self, other) {
            (Finite { negative: a, .. }, Finite { negative: b, .. }) => match (a, b) {
                (false, true) => Ordering::Greater,
                (true, false) => Ordering::Less,
                (negative, _) => {
                    let (a, b, _) = self.aligned(other);
                    if *negative { b.cmp(&a) } else { a.cmp(&b) }
                }
            },
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Numeric) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Numeric) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Numeric {}

//! Whole numbers of any size, as many digits as a numeric needs.

use std::cmp::Ordering;
use std::fmt;

/// Each part is a digit in this base: decimal shifts and printing are cheap.
const BASE: u64 = 1_000_000_000;
const BASE_DIGITS: usize = 9;

/// A whole number that is not negative; parts from the least, no zero part at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Big(Vec<u32>);

impl Big {
    pub fn zero() -> Big {
        Big(Vec::new())
    }

    pub fn from_u128(mut value: u128) -> Big {
        let mut parts = Vec::new();
        while value > 0 {
            parts.push((value % u128::from(BASE)) as u32);
            value /= u128::from(BASE);
        }
        Big(parts)
    }

    /// From decimal digits.
    pub fn parse(digits: &str) -> Big {
        let bytes = digits.as_bytes();
        let parts = bytes.rchunks(BASE_DIGITS);
        let part = |chunk: &[u8]| chunk.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        Big(parts.map(part).collect()).trimmed()
    }

    pub fn to_u128(&self) -> Option<u128> {
        let mut value = 0u128;
        for part in self.0.iter().rev() {
            value = value.checked_mul(BASE.into())?.checked_add((*part).into())?;
        }
        Some(value)
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// How many decimal digits it has; none for zero.
    pub fn decimal_digits(&self) -> usize {
        match self.0.last() {
            None => 0,
            Some(top) => (self.0.len() - 1) * BASE_DIGITS + top.ilog10() as usize + 1,
        }
    }

    pub fn add(&self, other: &Big) -> Big {
        let mut carry = 0u64;
        let mut parts = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        for place in 0..self.0.len().max(other.0.len()) {
            let sum = u64::from(self.part(place)) + u64::from(other.part(place)) + carry;
            parts.push((sum % BASE) as u32);
            carry = sum / BASE;
        }
        if carry > 0 {
            parts.push(carry as u32);
        }
        Big(parts)
    }

    /// `other` must not be greater.
    pub fn sub(&self, other: &Big) -> Big {
        debug_assert!(self >= other);
        let mut borrow = 0i64;
        let mut parts = Vec::with_capacity(self.0.len());
        for place in 0..self.0.len() {
            let mut rest = i64::from(self.part(place)) - i64::from(other.part(place)) - borrow;
            borrow = i64::from(rest < 0);
            if rest < 0 {
                rest += BASE as i64;
            }
            parts.push(rest as u32);
        }
        Big(parts).trimmed()
    }

    pub fn mul(&self, other: &Big) -> Big {
        let mut parts = vec![0u32; self.0.len() + other.0.len()];
        for (place, a) in self.0.iter().enumerate() {
            let mut carry = 0u64;
            for (offset, b) in other.0.iter().enumerate() {
                let sum = u64::from(*a) * u64::from(*b) + u64::from(parts[place + offset]) + carry;
                parts[place + offset] = (sum % BASE) as u32;
                carry = sum / BASE;
            }
            parts[place + other.0.len()] = carry as u32;
        }
        Big(parts).trimmed()
    }

    pub fn times_ten_to(&self, power: u32) -> Big {
        if power == 0 || self.is_zero() {
            return self.clone();
        }
        let (whole, rest) = (power as usize / BASE_DIGITS, power as usize % BASE_DIGITS);
        let scaled = if rest == 0 { self.clone() } else { self.mul(&Big(vec![10u32.pow(rest as u32)])) };
        let mut parts = vec![0; whole];
        parts.extend(scaled.0);
        Big(parts)
    }

    /// Quotient and rest; the divisor must not be zero.
    pub fn div_rem(&self, divisor: &Big) -> (Big, Big) {
        debug_assert!(!divisor.is_zero());
        if self < divisor {
            return (Big::zero(), self.clone());
        }
        if let [small] = divisor.0[..] {
            return self.div_small(small);
        }
        // Long division with trial digits: scaled so that the divisor's top part is at least half the base,
        // where a trial digit is at most two too large.
        let scale = (BASE / (u64::from(divisor.part(divisor.0.len() - 1)) + 1)) as u32;
        let (mut rest, divisor) = (self.mul(&Big(vec![scale])).0, divisor.mul(&Big(vec![scale])).0);
        rest.resize(self.0.len() + 1, 0);
        let size = divisor.len();
        let (top, second) = (u64::from(divisor[size - 1]), u64::from(divisor[size - 2]));
        let mut quotient = vec![0u32; rest.len() - size];
        for place in (0..quotient.len()).rev() {
            let leading = u64::from(rest[place + size]) * BASE + u64::from(rest[place + size - 1]);
            let (mut trial, mut left) = (leading / top, leading % top);
            while trial >= BASE || trial * second > left * BASE + u64::from(rest[place + size - 2]) {
                trial -= 1;
                left += top;
                if left >= BASE {
                    break;
                }
            }
            let mut borrow = 0i64;
            for offset in 0..=size {
                let part = u64::from(divisor.get(offset).copied().unwrap_or(0)) * trial;
                let taken = i64::from(rest[place + offset]) - borrow - (part % BASE) as i64;
                borrow = (part / BASE) as i64 - taken.div_euclid(BASE as i64);
                rest[place + offset] = taken.rem_euclid(BASE as i64) as u32;
            }
            if borrow > 0 {
                trial -= 1;
                let mut carry = 0u64;
                for offset in 0..=size {
                    let part = u64::from(divisor.get(offset).copied().unwrap_or(0));
                    let sum = u64::from(rest[place + offset]) + part + carry;
                    rest[place + offset] = (sum % BASE) as u32;
                    carry = sum / BASE;
                }
            }
            quotient[place] = trial as u32;
        }
        (Big(quotient).trimmed(), Big(rest).trimmed().div_small(scale).0)
    }

    fn div_small(&self, divisor: u32) -> (Big, Big) {
        let mut rest = 0u64;
        let mut parts = vec![0; self.0.len()];
        for (place, part) in self.0.iter().enumerate().rev() {
            let value = rest * BASE + u64::from(*part);
            parts[place] = (value / u64::from(divisor)) as u32;
            rest = value % u64::from(divisor);
        }
        (Big(parts).trimmed(), Big::from_u128(rest.into()))
    }

    fn part(&self, place: usize) -> u32 {
        self.0.get(place).copied().unwrap_or(0)
    }

    fn trimmed(mut self) -> Big {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Big) -> Ordering {
        let by_size = self.0.len().cmp(&other.0.len());
        by_size.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Big) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Big {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((top, rest)) = self.0.split_last() else {
            return f.write_str("0");
        };
        write!(f, "{top}")?;
        rest.iter().rev().try_for_each(|part| write!(f, "{part:09}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_times_its_divisor_and_the_rest_is_the_dividend() {
        let mut state = 7u64;
        let mut random = |digits: usize| {
            let mut text = String::new();
            while text.len() < digits {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Runs of zeros and nines are where trial digits go wrong.
                text.push_str(match state >> 61 {
                    0 => "000000000",
                    1 => "999999999",
                    _ => ["1", "5", "9", "38", "7"][(state >> 40) as usize % 5],
                });
            }
            Big::parse(&text)
        };
        for round in 0..3000 {
            let (a, b) = (random(1 + round % 97), random(1 + round % 41).add(&Big::from_u128(1)));
            let (quotient, rest) = a.div_rem(&b);
            assert!(rest < b, "{a} / {b}");
            assert_eq!(quotient.mul(&b).add(&rest), a, "{a} / {b}");
        }
    }
}

//! Keys of rows as bytes whose order is PostgreSQL's own order of the values.
//!
//! Only types whose order is a matter of their values alone: no collation but that of bytes ("C"), no type of the
//! user's. A key is read from PostgreSQL's binary form, which has the value exactly. Proofs stand beside each form;
//! together they hold because no form is the beginning of another of the same type, so that the bytes of the first
//! key that differs decide.

use bytes::BufMut;
use polyshard_sql::SortedBy;

use super::columns::Kind;

/// What stands before a value that is there; NULL has one that is less or greater.
const VALUE: u8 = 1;
const NULL_FIRST: u8 = 0;
const NULL_LAST: u8 = 2;

/// How a key's binary form becomes bytes in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Whole numbers of so many bytes with a sign: also days and microseconds, whose infinities are the extremes.
    Signed(usize),
    /// So many bytes that are in order as they are: truth, numbers without a sign, uuids.
    Plain(usize),
    /// float4.
    Single,
    /// float8.
    Double,
    /// Days, months and microseconds.
    Interval,
    /// Digits.
    Numeric,
    /// Bytes of any number.
    Bytes,
    /// Texts whose order is that of their bytes.
    Text,
    /// Likewise, and spaces at the end do not count.
    Padded,
}

impl Form {
    /// Of a type of PostgreSQL's own; nothing if its order is not known here.
    pub fn of(kind: Kind) -> Option<Form> {
        Some(match kind.type_oid {
            16 => Form::Plain(1),
            17 => Form::Bytes,
            20 | 1083 | 1114 | 1184 => Form::Signed(8),
            21 => Form::Signed(2),
            23 | 1082 => Form::Signed(4),
            26 => Form::Plain(4),
            700 => Form::Single,
            701 => Form::Double,
            1186 => Form::Interval,
            1700 => Form::Numeric,
            2950 => Form::Plain(16),
            19 | 25 | 1043 => Form::Text,
            1042 => Form::Padded,
            _ => return None,
        })
    }

    /// Whether its order depends on a collation.
    pub fn is_collated(self) -> bool {
        matches!(self, Form::Text | Form::Padded)
    }

    /// Adds a value, or NULL; nothing if it is not what the type says.
    pub fn put(self, out: &mut Vec<u8>, value: Option<&[u8]>, sorted: SortedBy) -> Option<()> {
        let Some(value) = value else {
            out.put_u8(if sorted.nulls_first { NULL_FIRST } else { NULL_LAST });
            return Some(());
        };
        out.put_u8(VALUE);
        let start = out.len();
        self.put_value(out, value)?;
        if sorted.descending {
            // The order of bytes that are turned over is turned over, since none is the beginning of another.
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
        Some(())
    }

    fn put_value(self, out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
        match self {
            Form::Plain(bytes) if value.len() == bytes => out.put_slice(value),
            Form::Signed(bytes) if value.len() == bytes => {
                // Two's complement with the sign turned over is in the order of the bytes.
                let start = out.len();
                out.put_slice(value);
                out[start] ^= 0x80;
            }
            Form::Plain(_) | Form::Signed(_) => return None,
            // Every float4 is a float8, in the same order.
            Form::Single => put_float(out, f64::from(f32::from_be_bytes(value.try_into().ok()?))),
            Form::Double => put_float(out, f64::from_be_bytes(value.try_into().ok()?)),
            Form::Interval => put_interval(out, value)?,
            Form::Numeric => put_numeric(out, value)?,
            Form::Bytes | Form::Text => put_bytes(out, value),
            Form::Padded => put_bytes(out, value.trim_ascii_end_spaces()),
        }
        Some(())
    }
}

trait Spaces {
    fn trim_ascii_end_spaces(&self) -> &Self;
}

impl Spaces for [u8] {
    fn trim_ascii_end_spaces(&self) -> &[u8] {
        let end = self.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        &self[..end]
    }
}

/// Bytes of any number: the end is less than any byte that follows, also than 0, which is written as two.
fn put_bytes(out: &mut Vec<u8>, value: &[u8]) {
    for part in value.split_inclusive(|byte| *byte == 0) {
        out.put_slice(part);
        if part.ends_with(&[0]) {
            out.put_u8(0xff);
        }
    }
    out.put_slice(&[0, 0]);
}

/// PostgreSQL has NaN equal to itself and greater than everything, and -0 equal to 0. Otherwise the bits of what has
/// no sign are in order, and those of what has one are in the opposite order.
fn put_float(out: &mut Vec<u8>, value: f64) {
    const SIGN: u64 = 1 << 63;
    let bits = if value.is_nan() {
        f64::NAN.to_bits() & !SIGN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    out.put_u64(if bits & SIGN == 0 { bits | SIGN } else { !bits });
}

/// PostgreSQL compares intervals by their microseconds, with days of 24 hours and months of 30 days.
fn put_interval(out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    const DAY: i128 = 86_400_000_000;
    let (time, rest) = value.split_first_chunk::<8>()?;
    let (days, months) = rest.split_first_chunk::<4>()?;
    let days = i128::from(i32::from_be_bytes(*days));
    let months = i128::from(i32::from_be_bytes(months.try_into().ok()?));
    let all = i128::from(i64::from_be_bytes(*time)) + (months * 30 + days) * DAY;
    out.put_u128(all.cast_unsigned() ^ (1 << 127));
    Some(())
}

/// In order: -Infinity, numbers below zero, zero, those above it, Infinity, NaN. Of two numbers above zero the one
/// whose first digit (of base 10,000, and not 0) stands higher is greater; then the first digit that differs decides,
/// and what has no more digits is less. Below zero it is the other way round. How many digits are shown does not count.
fn put_numeric(out: &mut Vec<u8>, value: &[u8]) -> Option<()> {
    const POSITIVE: u16 = 0x0000;
    const NEGATIVE: u16 = 0x4000;
    const NAN: u16 = 0xC000;
    const INFINITY: u16 = 0xD000;
    const MINUS_INFINITY: u16 = 0xF000;
    let word = |at: usize| Some(u16::from_be_bytes([*value.get(at)?, *value.get(at + 1)?]));
    let (count, weight, sign) = (word(0)?, word(2)?.cast_signed(), word(4)?);
    let mut digits = (0..usize::from(count)).map(|at| word(8 + 2 * at)).collect::<Option<Vec<u16>>>()?;
    if value.len() != 8 + 2 * digits.len() || digits.iter().any(|digit| *digit > 9999) {
        return None;
    }
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..leading);
    let kept = digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
    digits.truncate(kept);
    let class = match sign {
        MINUS_INFINITY => 0,
        NEGATIVE | POSITIVE if digits.is_empty() => 2,
        NEGATIVE => 1,
        POSITIVE => 3,
        INFINITY => 4,
        NAN => 5,
        _ => return None,
    };
    out.put_u8(class);
    if !matches!(class, 1 | 3) {
        return Some(());
    }
    let start = out.len();
    let weight = i32::from(weight) - i32::try_from(leading).ok()?;
    out.put_u32(weight.cast_unsigned() ^ (1 << 31));
    for digit in digits {
        out.put_u16(digit + 1);
    }
    out.put_u16(0);
    if class == 1 {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: SortedBy = SortedBy { descending: false, nulls_first: false };
    const DOWN: SortedBy = SortedBy { descending: true, nulls_first: true };

    fn key(form: Form, value: Option<&[u8]>, sorted: SortedBy) -> Vec<u8> {
        let mut out = Vec::new();
        form.put(&mut out, value, sorted).expect("a value of the type");
        out
    }

    /// Values in their order, of which those of one group are equal.
    fn check(form: Form, groups: &[Vec<Vec<u8>>]) {
        let all: Vec<(usize, &Vec<u8>)> = groups
            .iter()
            .enumerate()
            .flat_map(|(at, group)| group.iter().map(move |value| (at, value)))
            .collect();
        for (at, one) in &all {
            for (other_at, other) in &all {
                let up = key(form, Some(one), UP).cmp(&key(form, Some(other), UP));
                assert_eq!(up, at.cmp(other_at), "{form:?}: {one:x?} and {other:x?}");
                let down = key(form, Some(one), DOWN).cmp(&key(form, Some(other), DOWN));
                assert_eq!(down, other_at.cmp(at), "{form:?} descending: {one:x?} and {other:x?}");
            }
            assert!(key(form, Some(one), UP) < key(form, None, UP));
            assert!(key(form, Some(one), DOWN) > key(form, None, DOWN));
        }
    }

    fn alone(values: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
        values.into_iter().map(|value| vec![value]).collect()
    }

    #[test]
    fn whole_numbers_are_in_order() {
        let numbers = [i64::MIN, -256, -255, -1, 0, 1, 255, 256, i64::MAX];
        check(Form::Signed(8), &alone(numbers.map(|number| number.to_be_bytes().to_vec())));
        let small = [i16::MIN, -1, 0, 1, i16::MAX].map(|number| number.to_be_bytes().to_vec());
        check(Form::Signed(2), &alone(small));
        check(Form::Plain(4), &alone([0, 1, u32::MAX].map(|number: u32| number.to_be_bytes().to_vec())));
    }

    #[test]
    fn floats_are_in_postgresqls_order() {
        let least = f64::from_bits(1);
        let values: Vec<Vec<f64>> = vec![
            vec![f64::NEG_INFINITY],
            vec![f64::MIN],
            vec![-1.5],
            vec![-least],
            vec![-0.0, 0.0],
            vec![least],
            vec![1.0],
            vec![1.0 + f64::EPSILON],
            vec![f64::INFINITY],
            vec![f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001)],
        ];
        let bytes = |group: &Vec<f64>| group.iter().map(|value| value.to_be_bytes().to_vec()).collect();
        check(Form::Double, &values.iter().map(bytes).collect::<Vec<_>>());
        let single = [f32::NEG_INFINITY, -1e-40, 0.0, 1e-40, 3.5, f32::INFINITY, f32::NAN];
        check(Form::Single, &alone(single.map(|value| value.to_be_bytes().to_vec())));
    }

    #[test]
    fn bytes_are_in_order_whatever_they_are() {
        let values: [&[u8]; 9] = [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"a", b"a\0", b"ab"];
        check(Form::Bytes, &alone(values.map(<[u8]>::to_vec)));
        let padded = vec![
            vec![b"".to_vec(), b"  ".to_vec()],
            vec![b"a\t".to_vec()],
            vec![b"a b".to_vec(), b"a b ".to_vec()],
        ];
        check(Form::Padded, &padded);
    }

    fn numeric(sign: u16, weight: i16, scale: u16, digits: &[u16]) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u16(u16::try_from(digits.len()).unwrap());
        out.put_i16(weight);
        out.put_u16(sign);
        out.put_u16(scale);
        digits.iter().for_each(|digit| out.put_u16(*digit));
        out
    }

    #[test]
    fn decimal_numbers_are_in_order_however_they_are_written() {
        let groups = vec![
            vec![numeric(0xF000, 0, 0, &[])],
            vec![numeric(0x4000, 1, 0, &[1, 0]), numeric(0x4000, 1, 9, &[1])],
            vec![numeric(0x4000, 0, 4, &[9999, 1])],
            vec![numeric(0x4000, 0, 0, &[9999])],
            vec![numeric(0x4000, -1, 4, &[5])],
            vec![numeric(0, 0, 0, &[]), numeric(0, 0, 3, &[0, 0]), numeric(0x4000, 5, 0, &[])],
            vec![numeric(0, -2, 8, &[9999])],
            vec![numeric(0, -1, 4, &[5]), numeric(0, 0, 6, &[0, 5, 0])],
            vec![numeric(0, 0, 0, &[1])],
            vec![numeric(0, 0, 4, &[1, 1])],
            vec![numeric(0, 0, 0, &[2])],
            vec![numeric(0, i16::MAX, 0, &[1])],
            vec![numeric(0xD000, 0, 0, &[])],
            vec![numeric(0xC000, 0, 0, &[]), numeric(0xC000, 0, 2, &[])],
        ];
        check(Form::Numeric, &groups);
        let wrong =
            [&b""[..], &numeric(0x1234, 0, 0, &[1]), &numeric(0, 0, 0, &[10_000]), &[0, 1, 0, 0, 0, 0, 0, 0]];
        for value in wrong {
            assert_eq!(Form::Numeric.put(&mut Vec::new(), Some(value), UP), None, "{value:x?}");
        }
    }

    #[test]
    fn intervals_are_compared_by_days_of_24_hours_and_months_of_30_days() {
        let interval = |months: i32, days: i32, time: i64| {
            [&time.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat()
        };
        let groups = vec![
            vec![interval(i32::MIN, i32::MIN, i64::MIN)],
            vec![interval(0, 0, -1)],
            vec![interval(0, 0, 0), interval(1, -30, 0), interval(0, 1, -86_400_000_000)],
            vec![interval(0, 29, 86_399_999_999)],
            vec![interval(1, 0, 0), interval(0, 30, 0)],
            vec![interval(i32::MAX, i32::MAX, i64::MAX)],
        ];
        check(Form::Interval, &groups);
        assert_eq!(Form::Interval.put(&mut Vec::new(), Some(&[0; 15]), UP), None);
    }

    /// The first key that differs decides, whatever follows.
    #[test]
    fn several_keys_decide_one_after_the_other() {
        let keys = |one: &[u8], other: Option<i16>| {
            let mut out = Vec::new();
            Form::Bytes.put(&mut out, Some(one), DOWN).unwrap();
            Form::Signed(2)
                .put(&mut out, other.map(i16::to_be_bytes).as_ref().map(|value| &value[..]), UP)
                .unwrap();
            out
        };
        let sorted = [
            keys(b"b", None),
            keys(b"ab", Some(-5)),
            keys(b"a", Some(3)),
            keys(b"a", Some(4)),
            keys(b"a", None),
        ];
        assert!(sorted.is_sorted());
    }
}

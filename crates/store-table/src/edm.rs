//! The values that properties have: the types of the Entity Data Model that tables know, and their texts.

use std::cmp::Ordering;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polyshard_azure_storage::Timestamp;
use uuid::Uuid;

/// The type of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdmType {
    /// Bytes.
    Binary,
    /// A truth value.
    Boolean,
    /// A point in time, to 100 ns.
    DateTime,
    /// A 64-bit floating point number.
    Double,
    /// A UUID.
    Guid,
    /// A 32-bit whole number.
    Int32,
    /// A 64-bit whole number.
    Int64,
    /// A text.
    String,
}

impl EdmType {
    /// All of them.
    pub const ALL: [EdmType; 8] = [
        EdmType::Binary,
        EdmType::Boolean,
        EdmType::DateTime,
        EdmType::Double,
        EdmType::Guid,
        EdmType::Int32,
        EdmType::Int64,
        EdmType::String,
    ];

    /// As on the wire: `Edm.Int64`.
    pub fn name(self) -> &'static str {
        match self {
            EdmType::Binary => "Edm.Binary",
            EdmType::Boolean => "Edm.Boolean",
            EdmType::DateTime => "Edm.DateTime",
            EdmType::Double => "Edm.Double",
            EdmType::Guid => "Edm.Guid",
            EdmType::Int32 => "Edm.Int32",
            EdmType::Int64 => "Edm.Int64",
            EdmType::String => "Edm.String",
        }
    }

    /// The type of that name on the wire.
    pub fn parse(name: &str) -> Option<EdmType> {
        EdmType::ALL.into_iter().find(|edm| edm.name() == name)
    }
}

impl fmt::Display for EdmType {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.name())
    }
}

/// The value of a property. A property without a value is absent, so there is no null.
#[derive(Clone, Debug, PartialEq)]
pub enum EdmValue {
    /// Bytes.
    Binary(Vec<u8>),
    /// A truth value.
    Boolean(bool),
    /// A point in time.
    DateTime(Timestamp),
    /// A floating point number, NaN and the infinities included.
    Double(f64),
    /// A UUID.
    Guid(Uuid),
    /// A 32-bit whole number.
    Int32(i32),
    /// A 64-bit whole number.
    Int64(i64),
    /// A text.
    String(String),
}

impl EdmValue {
    /// Its type.
    pub fn edm_type(&self) -> EdmType {
        match self {
            EdmValue::Binary(_) => EdmType::Binary,
            EdmValue::Boolean(_) => EdmType::Boolean,
            EdmValue::DateTime(_) => EdmType::DateTime,
            EdmValue::Double(_) => EdmType::Double,
            EdmValue::Guid(_) => EdmType::Guid,
            EdmValue::Int32(_) => EdmType::Int32,
            EdmValue::Int64(_) => EdmType::Int64,
            EdmValue::String(_) => EdmType::String,
        }
    }

    /// The value of a type whose text is this, as clients write it in strings.
    pub fn parse(edm: EdmType, text: &str) -> Option<EdmValue> {
        Some(match edm {
            EdmType::Binary => EdmValue::Binary(STANDARD.decode(text).ok()?),
            EdmType::Boolean => EdmValue::Boolean(match text {
                "true" => true,
                "false" => false,
                _ => return None,
            }),
            EdmType::DateTime => EdmValue::DateTime(Timestamp::parse_iso(text)?),
            EdmType::Double => EdmValue::Double(parse_double(text)?),
            EdmType::Guid => EdmValue::Guid(parse_guid(text)?),
            EdmType::Int32 => EdmValue::Int32(text.parse().ok()?),
            EdmType::Int64 => EdmValue::Int64(text.parse().ok()?),
            EdmType::String => EdmValue::String(text.to_owned()),
        })
    }

    /// Bytes it counts in the limits of properties and entities: strings count as UTF-16.
    pub fn size_bytes(&self) -> usize {
        match self {
            EdmValue::Binary(bytes) => bytes.len() + 4,
            EdmValue::Boolean(_) => 1,
            EdmValue::Int32(_) => 4,
            EdmValue::DateTime(_) | EdmValue::Double(_) | EdmValue::Int64(_) => 8,
            EdmValue::Guid(_) => 16,
            EdmValue::String(text) => utf16_bytes(text) + 4,
        }
    }

    /// The value as comparisons see it.
    pub fn scalar(&self) -> Scalar<'_> {
        match self {
            EdmValue::Binary(bytes) => Scalar::Binary(bytes),
            EdmValue::Boolean(value) => Scalar::Boolean(*value),
            EdmValue::DateTime(time) => Scalar::DateTime(*time),
            EdmValue::Double(number) => Scalar::Double(*number),
            EdmValue::Guid(guid) => Scalar::Guid(*guid),
            EdmValue::Int32(number) => Scalar::Int(i64::from(*number)),
            EdmValue::Int64(number) => Scalar::Int(*number),
            EdmValue::String(text) => Scalar::String(text),
        }
    }
}

/// A value as comparisons see it: numbers compare with numbers of every type, everything else with its own type only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// Bytes, in byte order.
    Binary(&'a [u8]),
    /// A truth value; false comes first.
    Boolean(bool),
    /// A point in time.
    DateTime(Timestamp),
    /// A floating point number.
    Double(f64),
    /// A UUID, in the order of its text.
    Guid(Uuid),
    /// A whole number.
    Int(i64),
    /// A text, in the order of its UTF-8 bytes, which is that of its code points.
    String(&'a str),
}

/// How two values relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// One comes before the other, or they are equal.
    Ordered(Ordering),
    /// One is not a number: it differs from everything and has no place in the order.
    Unordered,
    /// They are of types that are never compared.
    Mismatched,
}

impl Scalar<'_> {
    /// How this value relates to another.
    pub fn relation(self, other: Scalar<'_>) -> Relation {
        use Scalar::{Binary, Boolean, DateTime, Double, Guid, Int, String};
        let ordering = match (self, other) {
            (Binary(a), Binary(b)) => a.cmp(b),
            (Boolean(a), Boolean(b)) => a.cmp(&b),
            (DateTime(a), DateTime(b)) => a.cmp(&b),
            (Guid(a), Guid(b)) => a.cmp(&b),
            (String(a), String(b)) => a.cmp(b),
            (Int(a), Int(b)) => a.cmp(&b),
            (Double(a), Double(b)) => {
                return a.partial_cmp(&b).map_or(Relation::Unordered, Relation::Ordered);
            }
            (Int(a), Double(b)) => {
                return compare_exactly(a, b).map_or(Relation::Unordered, Relation::Ordered);
            }
            (Double(a), Int(b)) => {
                let ordering = compare_exactly(b, a).map(Ordering::reverse);
                return ordering.map_or(Relation::Unordered, Relation::Ordered);
            }
            _ => return Relation::Mismatched,
        };
        Relation::Ordered(ordering)
    }
}

/// Compares without rounding the whole number to a double: not all have one.
fn compare_exactly(whole: i64, number: f64) -> Option<Ordering> {
    /// 2^63, the first number that no `i64` reaches.
    const ABOVE: f64 = 9_223_372_036_854_775_808.0;
    if number.is_nan() {
        return None;
    }
    if number >= ABOVE {
        return Some(Ordering::Less);
    }
    if number < -ABOVE {
        return Some(Ordering::Greater);
    }
    let floor = number.floor();
    // Exact: the number is a whole one within the range of i64.
    let ordering = whole.cmp(&(floor as i64));
    Some(if ordering == Ordering::Equal && floor < number { Ordering::Less } else { ordering })
}

/// Reads a double as JSON, OData and the SDKs write it.
pub fn parse_double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        _ => {
            // Rust's own parser also takes `inf`, `nan` and a leading plus, which are no numbers here.
            let plain =
                text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
            let number: f64 = if plain { text.parse().ok()? } else { return None };
            number.is_finite().then_some(number)
        }
    }
}

/// Writes a double so that it is read again as the same number, and never as a whole one: `1.0`, `1e300`, `NaN`.
pub fn write_double(number: f64, to: &mut String) {
    use std::fmt::Write as _;
    if number.is_nan() {
        to.push_str("NaN");
    } else if number.is_infinite() {
        to.push_str(if number > 0.0 { "Infinity" } else { "-Infinity" });
    } else {
        // `Debug` writes the shortest text that reads back as the same number, and keeps `.0`.
        let _infallible = write!(to, "{number:?}");
    }
}

/// Writes a time as the service has it in bodies: with the digits of a second that it has, at most seven, and with no
/// point if it has none.
pub fn write_time(time: Timestamp, to: &mut String) {
    let iso = time.iso();
    let digits = iso.trim_end_matches('Z').trim_end_matches('0');
    to.push_str(digits.strip_suffix('.').unwrap_or(digits));
    to.push('Z');
}

/// Reads a UUID with hyphens, as .NET's default format writes it; braces and others are refused.
pub fn parse_guid(text: &str) -> Option<Uuid> {
    /// The hyphenated form.
    const GUID_CHARS: usize = 36;
    if text.len() == GUID_CHARS { Uuid::try_parse(text).ok() } else { None }
}

/// Base64 with padding, as the wire has it.
pub fn write_binary(bytes: &[u8], to: &mut String) {
    STANDARD.encode_string(bytes, to);
}

/// The length of a text in UTF-16, by which the service's limits are counted.
pub fn utf16_bytes(text: &str) -> usize {
    // Two bytes for every character but those that take four bytes in UTF-8, which take four.
    text.bytes().filter(|byte| byte & 0xC0 != 0x80).count() * 2
        + text.bytes().filter(|byte| *byte >= 0xF0).count() * 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(number: f64) -> String {
        let mut text = String::new();
        write_double(number, &mut text);
        text
    }

    #[test]
    fn doubles_keep_being_doubles() {
        for (number, text) in
            [(1.0, "1.0"), (-0.0, "-0.0"), (1e300, "1e300"), (0.1, "0.1"), (5e-324, "5e-324")]
        {
            assert_eq!(written(number), text);
            assert_eq!(parse_double(text).map(f64::to_bits), Some(number.to_bits()));
        }
        assert!(parse_double("NaN").is_some_and(f64::is_nan));
        assert_eq!(parse_double(&written(f64::NEG_INFINITY)), Some(f64::NEG_INFINITY));
        for text in ["inf", "nan", "", "1e400", "0x1", "infinity", "1_0", "--1"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }

    #[test]
    fn times_have_the_digits_that_they_need() {
        for text in [
            "2008-07-10T00:00:00Z",
            "2011-11-04T00:05:23.283Z",
            "2026-11-15T07:25:16.2221997Z",
            "2026-11-15T07:25:10.0000001Z",
            "0001-01-01T00:00:00Z",
        ] {
            let mut written = String::new();
            write_time(Timestamp::parse_iso(text).unwrap(), &mut written);
            assert_eq!(written, text);
        }
    }

    #[test]
    fn whole_numbers_and_doubles_compare_without_rounding() {
        let relation = |whole, number| Scalar::Int(whole).relation(Scalar::Double(number));
        let big = (1_i64 << 53) + 1;
        assert_eq!(relation(big, (1_i64 << 53) as f64), Relation::Ordered(Ordering::Greater));
        assert_eq!(relation(i64::MAX, i64::MAX as f64), Relation::Ordered(Ordering::Less));
        assert_eq!(relation(i64::MIN, i64::MIN as f64), Relation::Ordered(Ordering::Equal));
        assert_eq!(relation(-1, -0.5), Relation::Ordered(Ordering::Less));
        assert_eq!(relation(0, -0.5), Relation::Ordered(Ordering::Greater));
        assert_eq!(relation(2, f64::NAN), Relation::Unordered);
        assert_eq!(relation(2, f64::NEG_INFINITY), Relation::Ordered(Ordering::Greater));
        assert_eq!(Scalar::String("2").relation(Scalar::Int(2)), Relation::Mismatched);
    }

    proptest! {
        #[test]
        fn every_double_is_read_again(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            let again = parse_double(&written(number)).unwrap();
            prop_assert!(again.to_bits() == bits || number.is_nan() && again.is_nan());
        }

        #[test]
        fn utf16_is_counted_as_it_is_encoded(text in "\\PC{0,20}") {
            prop_assert_eq!(utf16_bytes(&text), text.encode_utf16().count() * 2);
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "\\PC{0,40}") {
            for edm in EdmType::ALL {
                let _any = EdmValue::parse(edm, &text);
            }
        }
    }
}

//! How an entity's properties are stored: a JSON text that keeps every type, readable with the database's own tools.
//!
//! Format 1 is one object. Strings, booleans, `Int32` (`1`) and finite doubles (`1.0`, always with a point or an
//! exponent) are plain; the other types are an object of one member, such as `{"Int64": "5"}`. A later format is told
//! by its first member `$format`, which no property can be called.

use std::borrow::Cow;

use crate::edm::{EdmType, EdmValue, parse_double, write_binary, write_double};
use crate::entity::Properties;
use crate::json::{self, Json};

/// Tells that a text is of a later format.
const FORMAT: &str = "$format";

/// The text of some properties.
pub(crate) fn write(properties: &Properties) -> String {
    // Enough for most: what is escaped, and numbers and dates that are many, make it grow.
    let room = |(name, value): (&str, &EdmValue)| match value {
        EdmValue::String(text) => name.len() + text.len() + 8,
        EdmValue::Binary(bytes) => name.len() + bytes.len() / 3 * 4 + 24,
        _ => name.len() + 24,
    };
    let mut out = String::with_capacity(8 + properties.iter().map(room).sum::<usize>());
    out.push('{');
    for (name, value) in properties.iter() {
        if out.len() > 1 {
            out.push(',');
        }
        json::write_text(name, &mut out);
        out.push(':');
        write_value(value, &mut out);
    }
    out.push('}');
    out
}

fn write_value(value: &EdmValue, out: &mut String) {
    match value {
        EdmValue::String(text) => json::write_text(text, out),
        EdmValue::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        EdmValue::Int32(number) => out.push_str(&number.to_string()),
        EdmValue::Double(number) if number.is_finite() => write_double(*number, out),
        other => {
            // The name without its `Edm.`.
            let edm = &other.edm_type().name()[4..];
            out.push_str("{\"");
            out.push_str(edm);
            out.push_str("\":\"");
            match other {
                EdmValue::Binary(bytes) => write_binary(bytes, out),
                EdmValue::DateTime(time) => out.push_str(&time.iso()),
                EdmValue::Double(number) => write_double(*number, out),
                EdmValue::Guid(guid) => out.push_str(&guid.to_string()),
                EdmValue::Int64(number) => out.push_str(&number.to_string()),
                EdmValue::String(_) | EdmValue::Boolean(_) | EdmValue::Int32(_) => {}
            }
            out.push_str("\"}");
        }
    }
}

/// The properties of a text; an error says what is damaged.
pub(crate) fn read(text: &str) -> Result<Properties, String> {
    let members = json::read_object(text).map_err(|error| error.to_string())?;
    let owned = |(name, value): (Cow<'_, str>, EdmValue)| (name.into_owned(), value);
    let list: Result<_, String> = members.into_iter().map(|member| read_member(member).map(owned)).collect();
    list.map(Properties::stored)
}

/// Those properties of a text that have one of these names, no two of which are the same; what comes after the last of
/// them is not looked at.
pub(crate) fn read_named<'a>(
    text: &'a str,
    names: &[String],
) -> Result<Vec<(Cow<'a, str>, EdmValue)>, String> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let is_wanted = |name: &str| name == FORMAT || names.iter().any(|own| own == name);
    let members = json::read_members(text, &is_wanted, names.len()).map_err(|error| error.to_string())?;
    members.into_iter().map(read_member).collect()
}

fn read_member<'a>((name, value): (Cow<'a, str>, Json<'_>)) -> Result<(Cow<'a, str>, EdmValue), String> {
    if name == FORMAT {
        return Err("it was written by a newer version of this program".to_owned());
    }
    match read_value(value) {
        Some(value) => Ok((name, value)),
        None => Err(format!("property {name} has no value of any type")),
    }
}

fn read_value(value: Json<'_>) -> Option<EdmValue> {
    Some(match value {
        Json::Text(text) => EdmValue::String(text.into_owned()),
        Json::Bool(value) => EdmValue::Boolean(value),
        Json::Number(text) if text.contains(['.', 'e', 'E']) => EdmValue::Double(parse_double(text)?),
        Json::Number(text) => EdmValue::Int32(text.parse().ok()?),
        Json::Null => return None,
        Json::Object(members) => match <[_; 1]>::try_from(members).ok()? {
            [(edm, Json::Text(text))] => EdmValue::parse(EdmType::parse(&format!("Edm.{edm}"))?, &text)?,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyshard_azure_storage::Timestamp;
    use proptest::prelude::*;
    use uuid::Uuid;

    /// As format 1 was first written: it must stay readable.
    const FORMAT_1: &str = "{\"Text\":\"a\\u0000é\",\"Yes\":true,\"Int\":-5,\"One\":1.0,\"Big\":1e300,\
        \"Long\":{\"Int64\":\"9007199254740993\"},\"Nan\":{\"Double\":\"NaN\"},\
        \"When\":{\"DateTime\":\"2026-11-15T07:25:16.2221997Z\"},\
        \"Id\":{\"Guid\":\"c9da6455-213d-42c9-9a79-3e9149a57833\"},\"Raw\":{\"Binary\":\"AAH/\"}}";

    #[test]
    fn format_1_is_read_and_written() {
        let properties = read(FORMAT_1).unwrap();
        assert_eq!(properties.get("Text"), Some(&EdmValue::String("a\0é".into())));
        assert_eq!(properties.get("One"), Some(&EdmValue::Double(1.0)));
        assert_eq!(properties.get("Int"), Some(&EdmValue::Int32(-5)));
        assert_eq!(properties.get("Long"), Some(&EdmValue::Int64(9_007_199_254_740_993)));
        assert_eq!(properties.get("Raw"), Some(&EdmValue::Binary(vec![0, 1, 255])));
        assert_eq!(write(&properties), FORMAT_1);
    }

    #[test]
    fn damage_and_later_formats_are_named() {
        assert!(read("{\"$format\":2,\"x\":1}").unwrap_err().contains("newer"));
        assert!(read_named("{\"$format\":2,\"x\":1}", &["x".to_owned()]).unwrap_err().contains("newer"));
        for damaged in [
            "",
            "{\"a\":null}",
            "{\"a\":{}}",
            "{\"a\":{\"Int64\":5}}",
            "{\"a\":{\"Guid\":\"x\"}}",
            "{\"a\":1e999}",
        ] {
            assert!(read(damaged).is_err(), "{damaged}");
        }
    }

    fn value() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            any::<Vec<u8>>().prop_map(EdmValue::Binary),
            any::<bool>().prop_map(EdmValue::Boolean),
            (-600_000_000_000_000_000i64..2_500_000_000_000_000_000)
                .prop_map(|ticks| EdmValue::DateTime(Timestamp::from_ticks(ticks).unwrap())),
            any::<f64>()
                .prop_filter("differs from itself", |number| !number.is_nan())
                .prop_map(EdmValue::Double),
            any::<u128>().prop_map(|bits| EdmValue::Guid(Uuid::from_u128(bits))),
            any::<i32>().prop_map(EdmValue::Int32),
            any::<i64>().prop_map(EdmValue::Int64),
            any::<String>().prop_map(EdmValue::String),
        ]
    }

    proptest! {
        #[test]
        fn every_value_is_read_as_it_was_written(values in prop::collection::vec(value(), 0..6)) {
            let list = values.into_iter().enumerate().map(|(at, value)| (format!("p{at}"), value)).collect();
            let properties = Properties::new(list).unwrap();
            let text = write(&properties);
            prop_assert_eq!(&read(&text).unwrap(), &properties);
            for names in [&["p1", "p4", "none"][..], &["p4", "p1"], &["p0"], &[]] {
                let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
                let named = read_named(&text, &names).unwrap();
                let is_named = |(name, _): &(&str, &EdmValue)| names.iter().any(|own| own == name);
                let expected: Vec<_> = properties.iter().filter(is_named).collect();
                let named: Vec<_> = named.iter().map(|(name, value)| (name.as_ref(), value)).collect();
                prop_assert_eq!(named, expected);
            }
        }
    }
}

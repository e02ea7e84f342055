//! Properties that hold for any input.

mod common;

use std::cmp::Ordering;

use common::run;
use polyshard_document_query::{Limits, Object, Parameters, Query, Value, format_number};
use proptest::collection::vec;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<f64>().prop_map(Value::Number),
        (-3i32..3).prop_map(|number| Value::Number(f64::from(number))),
        ".{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::array),
            vec(("[a-c]", inner), 0..4)
                .prop_map(|pairs| Value::object(pairs.into_iter().collect::<Object>())),
        ]
    })
}

/// Values whose numbers JSON can write.
fn finite(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_finite(),
        Value::Array(items) => items.iter().all(finite),
        Value::Object(object) => object.iter().all(|(_, value)| finite(value)),
        _ => true,
    }
}

/// Words and symbols of the language, so that garbage gets far into the parser.
fn soup() -> impl Strategy<Value = String> {
    const WORDS: [&str; 58] = [
        "SELECT",
        "VALUE",
        "DISTINCT",
        "TOP",
        "FROM",
        "c",
        "IN",
        "JOIN",
        "WHERE",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "LIKE",
        "ESCAPE",
        "GROUP",
        "BY",
        "ORDER",
        "ASC",
        "DESC",
        "OFFSET",
        "LIMIT",
        "EXISTS",
        "ARRAY",
        "ALL",
        "FIRST",
        "udf",
        "true",
        "null",
        "undefined",
        "COUNT",
        "ABS",
        "AS",
        "x",
        "1",
        "0.5",
        "'s'",
        "\"t\"",
        "@p",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ".",
        ":",
        "?",
        "??",
        "=",
        "!=",
        "<",
        ">>",
        "*",
        "-",
        "||",
        "é",
    ];
    vec(proptest::sample::select(WORDS.to_vec()), 0..25).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parser_never_panics(text in ".{0,80}") {
        let _ = Query::parse(&text, &Limits::default()).map_err(|error| error.to_service_json());
        let _ = Query::parse(&format!("SELECT VALUE {text}"), &Limits::default());
        let _ = Value::from_json(text.as_bytes());
    }

    #[test]
    fn soups_never_panic(text in soup(), document in value()) {
        for text in [text.clone(), format!("SELECT {text}"), format!("SELECT VALUE {text} FROM c")] {
            if let Ok(query) = Query::parse(&text, &Limits::default()) {
                let printed = query.to_string();
                let again = Query::parse(&printed, &Limits::default());
                prop_assert!(again.is_ok(), "{text} printed as {printed}: {again:?}");
                let mut parameters = Parameters::new();
                parameters.insert("@p", Value::Number(1.0));
                if let Ok(bound) = query.bind(&parameters) {
                    let _ = bound.conditions();
                    let mut execution = bound.execute(common::environment());
                    let _ = execution.push(&document, b"1").and_then(|()| execution.finish());
                }
            }
        }
    }

    #[test]
    fn json_bytes_never_panic(bytes in vec(any::<u8>(), 0..60)) {
        if let Ok(value) = Value::from_json(&bytes) {
            prop_assert_eq!(Value::from_json(value.to_json().as_bytes()), Ok(value));
        }
    }

    #[test]
    fn numbers_read_back_as_printed(number in any::<f64>()) {
        let printed = format_number(number);
        let read: f64 = printed.parse().expect("a number");
        prop_assert!(read == number || (read.is_nan() && number.is_nan()), "{} as {}", number, printed);
        if number.is_finite() {
            let value = Value::from_json(printed.as_bytes()).expect("JSON");
            prop_assert_eq!(value.as_number(), Some(number));
            prop_assert_eq!(run(&format!("SELECT VALUE {printed}"), &[]), format!("[{printed}]"));
        }
    }

    #[test]
    fn order_is_total(a in value(), b in value(), c in value()) {
        prop_assert_eq!(a.total_order(&a), Ordering::Equal);
        prop_assert_eq!(a.total_order(&b), b.total_order(&a).reverse());
        prop_assert_eq!(a == b, a.total_order(&b).is_eq());
        if a.total_order(&b).is_le() && b.total_order(&c).is_le() {
            prop_assert!(a.total_order(&c).is_le());
        }
    }

    #[test]
    fn json_reads_back_as_written(value in value().prop_filter("JSON numbers", finite)) {
        prop_assert_eq!(Value::from_json(value.to_json().as_bytes()), Ok(value.clone()));
        let by_serde: serde_json::Value = serde_json::from_str(&value.to_json()).expect("JSON");
        prop_assert_eq!(Value::from_json(by_serde.to_string().as_bytes()).is_ok(), true);
    }

    #[test]
    fn like_agrees_with_a_regular_expression(text in "[ab]{0,8}", pattern in "[ab%_]{0,6}") {
        let regex = pattern.replace('%', ".*").replace('_', ".");
        let query = format!("SELECT VALUE ('{text}' LIKE '{pattern}') = RegexMatch('{text}', '^{regex}$')");
        prop_assert_eq!(run(&query, &[]), "[true]");
    }

    #[test]
    fn dates_survive_ticks(ticks in -62_135_596_800i64..253_402_300_799) {
        let ticks = ticks * 10_000_000 + 1234;
        let query = format!("SELECT VALUE DateTimeToTicks(TicksToDateTime({ticks})) = {ticks}");
        prop_assert_eq!(run(&query, &[]), "[true]");
    }
}

#[test]
fn numbers_print_as_in_javascript() {
    let table = [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (100.0, "100"),
        (1.5e300, "1.5e+300"),
        (1e21, "1e+21"),
        (123456789012345680000.0, "123456789012345680000"),
        (0.000001, "0.000001"),
        (0.0000001, "1e-7"),
        (1.25e-9, "1.25e-9"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (9007199254740993.0, "9007199254740992"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ];
    for (number, text) in table {
        assert_eq!(format_number(number), text);
    }
}

#[test]
fn json_is_strict() {
    let refused: [&[u8]; 21] = [
        b"",
        b"nul",
        b"[1,]",
        b"{\"a\":1,}",
        b"{a:1}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"1e",
        b"1e999",
        b"'a'",
        b"\"\x01\"",
        b"\"\\x\"",
        b"\"\\ud800\"",
        b"\"\\udc00\"",
        b"\"\\u12\"",
        b"1 2",
        b"\"\xff\"",
        b"\xef\xbb\xbf1",
        b"[1",
    ];
    for text in refused {
        assert!(Value::from_json(text).is_err(), "{}", String::from_utf8_lossy(text));
    }
    let accepted = [
        (" [ ] ", "[]"),
        ("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"),
        ("\"\\ud83d\\ude00\\/\"", "\"😀/\""),
        ("-0", "0"),
        ("12345678901234567890", "12345678901234567000"),
        ("1E2", "100"),
        ("\"\\u0000\"", "\"\\u0000\""),
    ];
    for (text, written) in accepted {
        assert_eq!(common::json(text).to_json(), written);
    }
    let error = Value::from_json(b"[1, x]").expect_err("not JSON");
    assert_eq!(error.to_string(), "invalid JSON at byte 4: a value was expected");
}

#[test]
fn objects_keep_their_order() {
    let mut object = Object::new();
    for index in (0..40).rev() {
        object.insert(format!("k{index}"), Value::Number(f64::from(index)));
    }
    object.insert("k5", Value::Null);
    object.insert("k6", Value::Undefined);
    assert_eq!(object.remove("k39"), Some(Value::Number(39.0)));
    assert_eq!((object.len(), object.get("k5"), object.get("k6")), (38, Some(&Value::Null), None));
    assert_eq!(object.get("k0"), Some(&Value::Number(0.0)));
    assert_eq!(object.iter().next().map(|(key, _)| key.to_string()), Some("k38".to_owned()));
}

//! Every key survives encoding, text and JSON, and encoded keys sort as the keys do.

use std::cmp::Ordering;

use polyshard_map::{Key, KeyBytes, KeyType};
use proptest::prelude::*;
use uuid::Uuid;

fn single_types() -> Vec<KeyType> {
    vec![
        KeyType::Int,
        KeyType::BigInt,
        KeyType::Uuid,
        KeyType::Binary,
        KeyType::Text,
        KeyType::Timestamp,
        KeyType::Date,
    ]
}

/// Bytes that often have zeros, and often share a beginning.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()], 0..12)
}

fn days() -> impl Strategy<Value = i32> {
    prop_oneof![
        Just(i32::MIN),
        Just(i32::MAX),
        Just(-2_451_545),
        Just(2_145_031_948),
        Just(0),
        Just(-1),
        -2_451_545..=2_145_031_948,
        -800_000..800_000,
    ]
}

fn micros() -> impl Strategy<Value = i64> {
    const MIN: i64 = -211_813_488_000_000_000;
    const MAX: i64 = 9_223_371_331_199_999_999;
    prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        Just(MIN),
        Just(MAX),
        Just(0_i64),
        Just(-1_i64),
        MIN..=MAX,
        (-70_000_000_000..70_000_000_000_i64).prop_map(|s| s * 1_000_000),
    ]
}

fn key_of(key_type: &KeyType) -> BoxedStrategy<Key> {
    match key_type {
        KeyType::Int => prop_oneof![Just(i32::MIN), Just(i32::MAX), Just(0), Just(-1), any::<i32>()]
            .prop_map(Key::Int)
            .boxed(),
        KeyType::BigInt => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1), any::<i64>()]
            .prop_map(Key::BigInt)
            .boxed(),
        KeyType::Uuid => {
            prop_oneof![Just(Uuid::nil()), Just(Uuid::max()), any::<u128>().prop_map(Uuid::from_u128)]
                .prop_map(Key::Uuid)
                .boxed()
        }
        KeyType::Binary => {
            prop_oneof![bytes(), Just(vec![0; 128]), Just(vec![0xff; 128])].prop_map(Key::Binary).boxed()
        }
        KeyType::Text => {
            prop_oneof!["[^\0]{0,10}", "[ab\u{1}]{0,4}", Just("\u{1}".repeat(2048)), Just("é".repeat(1024))]
                .prop_map(Key::Text)
                .boxed()
        }
        KeyType::Timestamp => micros().prop_map(Key::Timestamp).boxed(),
        KeyType::Date => days().prop_map(Key::Date).boxed(),
        KeyType::Tuple(components) => {
            components.iter().map(key_of).collect::<Vec<_>>().prop_map(Key::Tuple).boxed()
        }
    }
}

fn any_type() -> impl Strategy<Value = KeyType> {
    let single = || proptest::sample::select(single_types());
    prop_oneof![
        3 => single(),
        2 => proptest::collection::vec(single(), 2..=8).prop_map(|parts| KeyType::tuple(parts).expect("2 to 8 parts")),
    ]
}

fn type_and_two_keys() -> impl Strategy<Value = (KeyType, Key, Key)> {
    any_type().prop_flat_map(|key_type| {
        let (one, other) = (key_of(&key_type), key_of(&key_type));
        // Equal keys and equal first components are where order goes wrong, so they are made often.
        (Just(key_type), one, other, 0..10_usize).prop_map(|(key_type, one, other, same)| {
            let other = match (&one, other) {
                (Key::Tuple(first), Key::Tuple(mut second)) => {
                    let shared = same.min(first.len());
                    second[..shared].clone_from_slice(&first[..shared]);
                    Key::Tuple(second)
                }
                (_, other) => other,
            };
            (key_type, one, other)
        })
    })
}

/// The order the product promises, written down a second time without bytes.
fn compare(one: &Key, other: &Key) -> Ordering {
    match (one, other) {
        (Key::Int(a), Key::Int(b)) | (Key::Date(a), Key::Date(b)) => a.cmp(b),
        (Key::BigInt(a), Key::BigInt(b)) | (Key::Timestamp(a), Key::Timestamp(b)) => a.cmp(b),
        (Key::Uuid(a), Key::Uuid(b)) => a.as_u128().cmp(&b.as_u128()),
        (Key::Binary(a), Key::Binary(b)) => a.cmp(b),
        (Key::Text(a), Key::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Key::Tuple(a), Key::Tuple(b)) => a
            .iter()
            .zip(b)
            .map(|(a, b)| compare(a, b))
            .find(|order| order.is_ne())
            .unwrap_or(a.len().cmp(&b.len())),
        _ => panic!("keys of different types"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_key_survives_bytes_text_and_json((key_type, key, _) in type_and_two_keys()) {
        let encoded = key_type.encode(&key).expect("the key fits its type");
        prop_assert_eq!(key_type.decode(encoded.as_slice()), Ok(key.clone()));
        prop_assert_eq!(key_type.parse(&key.to_string()), Ok(key.clone()));
        prop_assert_eq!(key_type.from_json(&key.to_json()), Ok(key.clone()));
        prop_assert_eq!(key_type.to_string().parse::<KeyType>(), Ok(key_type));
    }

    #[test]
    fn bytes_sort_as_the_keys_do((key_type, one, other) in type_and_two_keys()) {
        let (a, b) = (key_type.encode(&one).unwrap(), key_type.encode(&other).unwrap());
        prop_assert_eq!(a.cmp(&b), compare(&one, &other));
        // No other key lies between a key and its successor.
        if a < b {
            prop_assert!(a.successor() <= b);
        }
    }

    #[test]
    fn a_tuple_cut_short_sorts_before_its_continuations(
        (key_type, one, other) in type_and_two_keys(),
        cut in 1..8_usize,
    ) {
        if let (Key::Tuple(parts), Key::Tuple(others)) = (&one, &other) {
            let prefix = Key::Tuple(parts[..cut.min(parts.len())].to_vec());
            let bound = key_type.encode_bound(&prefix).unwrap();
            prop_assert_eq!(key_type.decode_bound(bound.as_slice()), Ok(prefix.clone()));
            let continuation = key_type.encode(&one).unwrap();
            prop_assert!(bound <= continuation);
            let Key::Tuple(prefix_parts) = prefix else { unreachable!() };
            let other_bytes = key_type.encode(&other).unwrap();
            let below = compare(&Key::Tuple(others[..prefix_parts.len()].to_vec()), &Key::Tuple(prefix_parts)).is_lt();
            prop_assert_eq!(other_bytes < bound, below);
        }
    }

    #[test]
    fn garbage_bytes_never_panic_and_decode_only_to_what_encodes_to_them(key_type in any_type(), garbage in bytes()) {
        if let Ok(key) = key_type.decode(&garbage) {
            prop_assert_eq!(key_type.encode(&key), Ok(KeyBytes::new(garbage)));
        }
    }

    #[test]
    fn garbage_text_never_panics(key_type in any_type(), garbage in ".{0,24}") {
        if let Ok(key) = key_type.parse(&garbage) {
            prop_assert_eq!(key_type.parse(&key.to_string()), Ok(key));
        }
    }

    #[test]
    fn text_like_moments_never_panics(
        garbage in "[0-9]{1,7}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.]{0,16}[Z+-]?[0-9:]{0,5}( BC)?",
    ) {
        for key_type in [KeyType::Timestamp, KeyType::Date] {
            if let Ok(key) = key_type.parse(&garbage) {
                prop_assert_eq!(key_type.parse(&key.to_string()), Ok(key));
            }
        }
    }
}

#[test]
fn limits_are_checked() {
    let wrong = [
        (KeyType::Binary, Key::Binary(vec![0; 129])),
        (KeyType::Text, Key::Text("x".repeat(2049))),
        (KeyType::Text, Key::Text("a\0b".to_owned())),
        (KeyType::Date, Key::Date(i32::MIN + 1)),
        (KeyType::Timestamp, Key::Timestamp(i64::MAX - 1)),
        (KeyType::Int, Key::BigInt(1)),
        (KeyType::tuple(vec![KeyType::Int, KeyType::Int]).unwrap(), Key::Tuple(vec![Key::Int(1)])),
    ];
    for (key_type, key) in wrong {
        assert!(key_type.encode(&key).is_err(), "{key:?} is no {key_type}");
    }
    for text in
        ["", "()", "(int)", "(int, (int, int))", "(int, int, int, int, int, int, int, int, int)", "smallint"]
    {
        assert!(text.parse::<KeyType>().is_err(), "{text:?} is no key type");
    }
}

//! The reader of messages is given anything, and answers or refuses; it never panics. C7.

use polyshard_store_sql::codec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _head = codec::head(&bytes);
        let _length = codec::startup_length(&bytes);
        let _startup = codec::startup(&bytes);
        let _parse = codec::Parse::read(&bytes);
        if let Ok(bind) = codec::Bind::read(&bytes) {
            let _values = bind.values();
        }
        let _named = codec::Named::read(&bytes);
        let _execute = codec::Execute::read(&bytes);
        let _text = codec::text(&bytes);
        let _sasl = codec::sasl_initial(&bytes);
    }

    #[test]
    fn what_is_written_is_read_the_same(
        portal in "[a-z]{0,8}",
        statement in "[a-z]{0,8}",
        values in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..9)), 0..6),
        binary in any::<bool>(),
    ) {
        let mut body = Vec::new();
        body.extend(portal.bytes().chain([0]));
        body.extend(statement.bytes().chain([0]));
        body.extend([0, 1, 0, u8::from(binary)]);
        body.extend((values.len() as u16).to_be_bytes());
        for value in &values {
            match value {
                None => body.extend((-1_i32).to_be_bytes()),
                Some(value) => {
                    body.extend((value.len() as i32).to_be_bytes());
                    body.extend(value);
                }
            }
        }
        body.extend([0, 0]);
        let bind = codec::Bind::read(&body).unwrap();
        prop_assert_eq!((bind.portal, bind.statement), (portal.as_str(), statement.as_str()));
        let read = bind.values().unwrap();
        let expected: Vec<(bool, Option<&[u8]>)> = values.iter().map(|value| (binary, value.as_deref())).collect();
        prop_assert_eq!(read.values, expected);
        // Cut short anywhere, it is refused.
        for end in 0..body.len() {
            if let Ok(bind) = codec::Bind::read(&body[..end]) {
                prop_assert!(bind.values().is_err());
            }
        }
    }
}

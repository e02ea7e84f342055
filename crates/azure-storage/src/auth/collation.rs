//! The order in which the service sorts `x-ms-*` headers before they are signed. It is not that of the bytes.
//!
//! It is the order of words in a dictionary: hyphens and apostrophes count only between names that are otherwise the
//! same, other signs come before digits, and digits before letters. The SDKs carry it as a table of weights.

use std::cmp::Ordering;

/// Every character of a header name that counts at first, in order; letters are compared in lower case.
const ORDER: &[u8] = b"!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz";

/// Compares two header names in lower case as the service sorts them.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    let first = |name: &str| name.bytes().filter(|byte| late(*byte) == 0).map(weight).collect::<Vec<_>>();
    let second = |name: &str| name.bytes().map(late).collect::<Vec<_>>();
    first(left).cmp(&first(right)).then_with(|| second(left).cmp(&second(right)))
}

/// The weight of what counts only in the second round; 0 for all else.
fn late(byte: u8) -> u8 {
    match byte {
        b'\'' => 1,
        b'-' => 2,
        _ => 0,
    }
}

fn weight(byte: u8) -> usize {
    // Other bytes cannot be in a header's name; wherever they sort, the signature would be a bug of the client.
    ORDER.iter().position(|own| *own == byte.to_ascii_lowercase()).unwrap_or(ORDER.len() + usize::from(byte))
}

#[cfg(test)]
mod tests {
    use super::compare;

    #[test]
    fn names_are_sorted_as_the_sdks_sort_them() {
        let text = include_str!("../../tests/vectors/header_order.json");
        let orders: Vec<Vec<String>> = serde_json::from_str(text).unwrap();
        assert!(orders.len() > 100);
        for order in orders {
            let mut sorted = order.clone();
            sorted.sort();
            sorted.sort_by(|left, right| compare(left, right));
            assert_eq!(sorted, order);
        }
    }
}

//! Functions that fit nowhere else: IIF, CHOOSE, DOCUMENTID.

use super::{Function, integer, many, or_undefined, plain};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    many("CHOOSE", 2, choose),
    plain("DOCUMENTID", 1, 1, |a| or_undefined(document_id(&a[0]).map(|id| Value::Number(id as f64)))),
    plain("IIF", 3, 3, |a| a[if a[0].as_bool() == Some(true) { 1 } else { 2 }].clone()),
];

fn choose(arguments: &[Value]) -> Value {
    let index =
        integer(&arguments[0]).and_then(|index| usize::try_from(index).ok()).filter(|index| *index > 0);
    or_undefined(index.and_then(|index| arguments.get(index).cloned()))
}

/// The number in the last eight bytes of a document's `_rid`, least significant byte first.
fn document_id(document: &Value) -> Option<u64> {
    const RID_BYTES: usize = 16;
    let rid = decode_base64(document.get("_rid").as_str()?)?;
    let tail: [u8; 8] = rid.get(RID_BYTES - 8..RID_BYTES)?.try_into().ok()?;
    Some(u64::from_le_bytes(tail))
}

/// Base64 with `-` for `/`, as resource ids are written.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let digit = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' | b'-' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(digit)) & 0xFFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

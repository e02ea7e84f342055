//! The effective partition key: the service's own hash of the values of a partition key, so that intervals that clients
//! ask for mean the same here. Every container is hashed as one of version 2.

use std::fmt::Write as _;

use polyshard_document_query::Value;
use sha2::{Digest, Sha256};

/// Bytes of the hash of one level.
pub(crate) const LEVEL_BYTES: usize = 16;

/// Bytes of the digest of a partition key's values.
pub(crate) const DIGEST_BYTES: usize = 16;

/// The effective partition key of some values, one level after the other.
pub(crate) fn effective(values: &[Value]) -> Vec<u8> {
    values.iter().flat_map(level).collect()
}

/// A digest of all values, which tells keys apart whose hashes are the same.
pub(crate) fn digest(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        let start = bytes.len();
        write(value, &mut bytes);
        let length = bytes.len() - start;
        bytes.extend((length as u64).to_le_bytes());
    }
    Sha256::digest(&bytes)[..DIGEST_BYTES].to_vec()
}

/// In hexadecimal, as clients write it.
pub(crate) fn to_hex(epk: &[u8]) -> String {
    epk.iter().fold(String::with_capacity(2 * epk.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// From hexadecimal; none if it is not.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn level(value: &Value) -> [u8; LEVEL_BYTES] {
    let mut bytes = Vec::new();
    write(value, &mut bytes);
    let (first, second) = murmur3_128(&bytes);
    let mut hash = [0; LEVEL_BYTES];
    hash[..8].copy_from_slice(&second.to_be_bytes());
    hash[8..].copy_from_slice(&first.to_be_bytes());
    hash[0] &= 0x3F;
    hash
}

/// A value as it is hashed. Arrays and objects are no values of partition keys.
fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(1),
        Value::Bool(false) => out.push(2),
        Value::Bool(true) => out.push(3),
        Value::Number(number) => {
            out.push(5);
            // Both zeros are one number.
            out.extend((number + 0.0).to_le_bytes());
        }
        Value::String(text) => {
            out.push(8);
            out.extend(text.as_bytes());
            out.push(0xFF);
        }
        Value::Undefined | Value::Array(_) | Value::Object(_) => out.push(0),
    }
}

/// MurmurHash3, x64, 128 bits, seed 0.
fn murmur3_128(bytes: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let (mut h1, mut h2) = (0u64, 0u64);
    let mix1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let mix2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        h1 ^= mix1(word(&block[..8]));
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(word(&block[8..]));
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let rest = blocks.remainder();
    if rest.len() > 8 {
        h2 ^= mix2(word(&rest[8..]));
    }
    if !rest.is_empty() {
        h1 ^= mix1(word(&rest[..rest.len().min(8)]));
    }
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2)
}

fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_python_sdk() {
        for (value, hash) in [
            (Value::string("a"), "3A5381E1114EB8D3FCC90795045B49B7"),
            (Value::Number(5.0), "19C08621B135968252FB34B4CF66F811"),
            (Value::Number(1.5), "35C5DDEB6C795D16A9963C73C54E97BC"),
            (Value::Bool(true), "0E711127C5B5A8E4726AC6DD306A3E59"),
            (Value::Null, "378867E4430E67857ACE5C908374FE16"),
            (Value::Undefined, "11622DAA78F835834610ABE56EFF5CB5"),
            (
                Value::string("日本 a long text that has more than sixteen bytes"),
                "0DA490B3D529457EA4732C3013DD8285",
            ),
            (Value::string(""), "32E9366E637A71B4E710384B2F4970A0"),
        ] {
            assert_eq!(to_hex(&effective(std::slice::from_ref(&value))), hash, "{}", value.to_json());
        }
        let two = effective(&[Value::string("a"), Value::string("b")]);
        assert_eq!(to_hex(&two), "3A5381E1114EB8D3FCC90795045B49B7195644569A78B1E22D200348AF9416CE");
        assert_eq!(from_hex(&to_hex(&two)), Some(two));
        assert_eq!((from_hex("FF"), from_hex("F"), from_hex("é")), (Some(vec![255]), None, None));
    }
}

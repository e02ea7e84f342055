//! Keys as bytes whose order is the order of the keys, and back.
//!
//! Numbers, dates and timestamps are big-endian with the sign bit flipped; a UUID is its 16 bytes; a single text or
//! binary key is its bytes. Inside a tuple, text and binary are escaped (`00` → `00 ff`) and end with `00 00`, so that
//! components compare one after the other and a tuple cut short sorts before all its continuations.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::error::{KeyError, RangeError};
use crate::key::Key;
use crate::key_type::KeyType;

/// Bytes of an undecodable key shown in a message.
const SHOWN_BYTES_MAX: usize = 32;

/// An encoded key, or a bound between keys. Compares bytewise, which is the order of the keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyBytes(Vec<u8>);

impl KeyBytes {
    /// Takes bytes as they are stored.
    pub fn new(bytes: Vec<u8>) -> KeyBytes {
        KeyBytes(bytes)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, owned.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }

    /// The least bytes above these: the upper bound of the range of this key alone.
    pub fn successor(&self) -> KeyBytes {
        let mut bytes = Vec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.push(0);
        KeyBytes(bytes)
    }

    /// Reads the hex form of [`KeyBytes::to_hex`].
    pub fn from_hex(text: &str) -> Result<KeyBytes, RangeError> {
        from_hex(text).map(KeyBytes)
    }

    /// Two lower-case digits a byte.
    pub fn to_hex(&self) -> String {
        to_hex(&self.0)
    }
}

impl AsRef<[u8]> for KeyBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for KeyBytes {
    fn from(bytes: &[u8]) -> KeyBytes {
        KeyBytes(bytes.to_vec())
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyBytes({})", self.to_hex())
    }
}

impl Serialize for KeyBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for KeyBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyBytes, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        KeyBytes::from_hex(&text).map_err(de::Error::custom)
    }
}

impl KeyType {
    /// The key as order-preserving bytes.
    pub fn encode(&self, key: &Key) -> Result<KeyBytes, KeyError> {
        self.check(key)?;
        let mut bytes = Vec::with_capacity(16);
        write_key(&mut bytes, key);
        Ok(KeyBytes(bytes))
    }

    /// Like [`KeyType::encode`], but a tuple may be cut short: the bound before all its continuations.
    pub fn encode_bound(&self, key: &Key) -> Result<KeyBytes, KeyError> {
        if let (KeyType::Tuple(types), Key::Tuple(keys)) = (self, key)
            && !keys.is_empty()
            && keys.len() < types.len()
        {
            types.iter().zip(keys).try_for_each(|(key_type, key)| key_type.check(key))?;
            return Ok(encode_components(keys));
        }
        self.encode(key)
    }

    /// The key that encodes to these bytes.
    pub fn decode(&self, bytes: &[u8]) -> Result<Key, KeyError> {
        let key = self.decode_bound(bytes)?;
        // A tuple cut short is a bound, but no key.
        if let (KeyType::Tuple(types), Key::Tuple(keys)) = (self, &key)
            && keys.len() != types.len()
        {
            return Err(self.undecodable(bytes, "components are missing"));
        }
        Ok(key)
    }

    /// The key, or tuple cut short, that encodes to these bytes.
    pub fn decode_bound(&self, bytes: &[u8]) -> Result<Key, KeyError> {
        let key = match self {
            KeyType::Tuple(types) => {
                let mut rest = bytes;
                let mut keys = Vec::with_capacity(types.len());
                for key_type in types {
                    if rest.is_empty() && !keys.is_empty() {
                        break;
                    }
                    keys.push(
                        read_component(key_type, &mut rest)
                            .ok_or_else(|| self.undecodable(bytes, "cut off"))?,
                    );
                }
                if !rest.is_empty() {
                    return Err(self.undecodable(bytes, "bytes are left over"));
                }
                Key::Tuple(keys)
            }
            KeyType::Binary => Key::Binary(bytes.to_vec()),
            KeyType::Text => {
                Key::Text(utf8(bytes.to_vec()).ok_or_else(|| self.undecodable(bytes, "not UTF-8"))?)
            }
            fixed => {
                let mut rest = bytes;
                let key = read_component(fixed, &mut rest).filter(|_| rest.is_empty());
                key.ok_or_else(|| self.undecodable(bytes, "wrong length"))?
            }
        };
        match (self, &key) {
            (KeyType::Tuple(types), Key::Tuple(keys)) => {
                types.iter().zip(keys).try_for_each(|(t, k)| t.check(k))?
            }
            _ => self.check(&key)?,
        }
        Ok(key)
    }

    fn undecodable(&self, bytes: &[u8], reason: &str) -> KeyError {
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
        KeyError::Undecodable { bytes: to_hex(shown), key_type: self.to_string(), reason: reason.to_owned() }
    }
}

/// Where encoded bytes go: a vector, or the stack buffer of a locate.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Holds the bytes of nearly every key without allocating: a composite of a timestamp, a UUID and a bucket takes 34.
const SCRATCH_BYTES: usize = 64;

/// A stack buffer that moves to the heap only for keys that do not fit.
pub(crate) struct Scratch {
    stack: [u8; SCRATCH_BYTES],
    used: usize,
    heap: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { stack: [0; SCRATCH_BYTES], used: 0, heap: Vec::new() }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.heap.is_empty() { &self.stack[..self.used] } else { &self.heap }
    }
}

impl Sink for Scratch {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        if self.heap.is_empty() && end <= SCRATCH_BYTES {
            self.stack[self.used..end].copy_from_slice(bytes);
            self.used = end;
        } else {
            if self.heap.is_empty() {
                self.heap.extend_from_slice(&self.stack[..self.used]);
            }
            self.heap.extend_from_slice(bytes);
        }
    }
}

/// Encodes a key that has been checked.
pub(crate) fn write_key(sink: &mut impl Sink, key: &Key) {
    match key {
        Key::Binary(bytes) => sink.put(bytes),
        Key::Text(text) => sink.put(text.as_bytes()),
        Key::Tuple(keys) => keys.iter().for_each(|key| write_component(sink, key)),
        fixed => write_component(sink, fixed),
    }
}

/// The first components of a tuple, encoded as in the whole tuple.
pub(crate) fn encode_components(keys: &[Key]) -> KeyBytes {
    let mut bytes = Vec::with_capacity(16);
    keys.iter().for_each(|key| write_component(&mut bytes, key));
    KeyBytes(bytes)
}

pub(crate) fn write_component(sink: &mut impl Sink, key: &Key) {
    match key {
        Key::Int(n) | Key::Date(n) => sink.put(&((*n as u32) ^ (1 << 31)).to_be_bytes()),
        Key::BigInt(n) | Key::Timestamp(n) => sink.put(&((*n as u64) ^ (1 << 63)).to_be_bytes()),
        Key::Uuid(uuid) => sink.put(uuid.as_bytes()),
        Key::Binary(bytes) => write_escaped(sink, bytes),
        Key::Text(text) => write_escaped(sink, text.as_bytes()),
        // Types do not nest, and only checked keys come here.
        Key::Tuple(keys) => keys.iter().for_each(|key| write_component(sink, key)),
    }
}

pub(crate) fn write_escaped(sink: &mut impl Sink, bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    if let Some(first) = parts.next() {
        sink.put(first);
    }
    for part in parts {
        sink.put(&[0, 0xff]);
        sink.put(part);
    }
    sink.put(&[0, 0]);
}

/// Reads escaped bytes and moves past their end.
pub(crate) fn read_escaped(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let zero = rest.iter().position(|byte| *byte == 0)?;
        bytes.extend_from_slice(&rest[..zero]);
        let mark = *rest.get(zero + 1)?;
        *rest = &rest[zero + 2..];
        match mark {
            0 => return Some(bytes),
            0xff => bytes.push(0),
            _ => return None,
        }
    }
}

fn read_component(key_type: &KeyType, rest: &mut &[u8]) -> Option<Key> {
    Some(match key_type {
        KeyType::Int => Key::Int(read_i32(rest)?),
        KeyType::Date => Key::Date(read_i32(rest)?),
        KeyType::BigInt => Key::BigInt(read_i64(rest)?),
        KeyType::Timestamp => Key::Timestamp(read_i64(rest)?),
        KeyType::Uuid => Key::Uuid(Uuid::from_bytes(take(rest)?)),
        KeyType::Binary => Key::Binary(read_escaped(rest)?),
        KeyType::Text => Key::Text(utf8(read_escaped(rest)?)?),
        KeyType::Tuple(_) => return None,
    })
}

fn read_i32(rest: &mut &[u8]) -> Option<i32> {
    take(rest).map(|bytes| (u32::from_be_bytes(bytes) ^ (1 << 31)) as i32)
}

fn read_i64(rest: &mut &[u8]) -> Option<i64> {
    take(rest).map(|bytes| (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

fn utf8(bytes: Vec<u8>) -> Option<String> {
    String::from_utf8(bytes).ok()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(crate) fn from_hex(text: &str) -> Result<Vec<u8>, RangeError> {
    let wrong = || RangeError::NotHex { text: text.chars().take(SHOWN_BYTES_MAX * 2).collect() };
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    digits
        .chunks_exact(2)
        .map(|pair| Some((value(pair[0])? << 4) | value(pair[1])?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)
}

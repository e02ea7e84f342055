//! Small pieces of protocol messages, read and written.

use bytes::{BufMut, Bytes, BytesMut};

use super::Broken;
use crate::reply;

pub(super) fn lost(error: polyshard_engine::Error) -> Broken {
    Broken::Cut(reply::of_engine(&error))
}

/// A message with its head.
pub(super) fn whole(kind: u8, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(body.len() + 5);
    reply::message(&mut out, kind, |out| out.put_slice(body));
    out.freeze()
}

/// The words and the number of a CommandComplete: `INSERT 0` and 3; without a number, all words and 0.
pub(super) fn read_tag(body: &[u8]) -> (String, u64) {
    let tag = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
    let counted = tag.rsplit_once(' ');
    let counted = counted.and_then(|(words, count)| Some((words.to_owned(), count.parse().ok()?)));
    counted.unwrap_or((tag, 0))
}

/// Whether an error says that a prepared statement must be prepared anew.
pub(super) fn is_stale(body: &[u8]) -> bool {
    match field(body, b'C') {
        Some("26000") => true,
        Some("0A000") => field(body, b'M').is_some_and(|message| message.contains("cached plan")),
        _ => false,
    }
}

/// A field of an error or notice.
pub(crate) fn field(body: &[u8], wanted: u8) -> Option<&str> {
    let mut rest = body;
    while let Some((&code, after)) = rest.split_first() {
        let end = after.iter().position(|byte| *byte == 0)?;
        if code == wanted {
            return std::str::from_utf8(&after[..end]).ok();
        }
        rest = &after[end + 1..];
    }
    None
}

pub(super) fn put_name(out: &mut BytesMut, id: u64) {
    let mut digits = [0_u8; 16];
    let mut rest = id;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    out.put_slice(b"polyshard_");
    out.put_slice(&digits);
    out.put_u8(0);
}

/// Bytes of the name that a prepared statement has on the sessions of shards, with its end.
const NAME_BYTES: usize = 27;

/// The beginning of a Bind of the unnamed portal, up to its values, which have so many bytes.
pub(crate) fn put_bind_head(out: &mut BytesMut, id: u64, rest_bytes: usize) {
    let length = u32::try_from(4 + 1 + NAME_BYTES + rest_bytes).unwrap_or(u32::MAX);
    out.put_u8(b'B');
    out.put_u32(length);
    out.put_u8(0);
    put_name(out, id);
}

/// A whole series that runs a prepared statement with these values as texts: Bind, Describe, Execute, Sync.
pub(crate) fn put_question<'v>(out: &mut BytesMut, id: u64, values: impl Iterator<Item = &'v str>) {
    reply::message(out, b'B', |out| {
        out.put_u8(0);
        put_name(out, id);
        // All values and results as texts.
        out.put_u16(0);
        let count_at = out.len();
        out.put_u16(0);
        let mut count = 0_u16;
        for value in values {
            count += 1;
            out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
            out.put_slice(value.as_bytes());
        }
        out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        out.put_u16(0);
    });
    // Columns are asked of this very shard: its table may have one that others have not.
    out.put_slice(b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
}

pub(super) fn parse(out: &mut BytesMut, id: u64, text: &str, types: &[u32]) {
    reply::message(out, b'P', |out| {
        put_name(out, id);
        out.put_slice(text.as_bytes());
        out.put_u8(0);
        out.put_u16(u16::try_from(types.len()).unwrap_or(u16::MAX));
        for type_oid in types {
            out.put_u32(*type_oid);
        }
    });
}

/// The fields of a row in text form.
pub(super) fn texts(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0).min(after.len());
        found.push(String::from_utf8_lossy(&after[..length]).into_owned());
        rest = &after[length..];
    }
    found
}

/// Likewise, with those that are NULL; nothing if it is no row, or not in UTF-8.
pub(crate) fn optional_texts(body: &[u8]) -> Option<Vec<Option<String>>> {
    let (count, mut rest) = body.split_first_chunk::<2>()?;
    let mut found = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        found.push(match usize::try_from(i32::from_be_bytes(*length)) {
            Err(_) => None,
            Ok(length) => {
                let (text, after) = rest.split_at_checked(length)?;
                rest = after;
                Some(std::str::from_utf8(text).ok()?.to_owned())
            }
        });
    }
    Some(found)
}

//! What a shard says of the columns of an answer, as the client is told it.

use bytes::BytesMut;

use crate::reply;

/// Bytes after a column's name: table, number, type, length, modifier and form.
const AFTER_NAME_BYTES: usize = 18;

/// RowDescription without the numbers of tables and columns, which are one shard's own or a temporary table's.
pub(super) fn tell(out: &mut BytesMut, description: &[u8]) {
    let mut body = BytesMut::from(description);
    forget_tables(&mut body);
    reply::message(out, b'T', |out| out.extend_from_slice(&body));
}

/// Takes the numbers of tables and columns out.
pub(super) fn forget_tables(description: &mut [u8]) {
    for (_, after) in places(description) {
        if let Some(numbers) = description.get_mut(after..after + 6) {
            numbers.fill(0);
        }
    }
}

/// The names of the columns.
pub(super) fn names(description: &[u8]) -> Vec<String> {
    let name = |(start, after): (usize, usize)| {
        String::from_utf8_lossy(description.get(start..after - 1).unwrap_or_default()).into_owned()
    };
    places(description).into_iter().map(name).collect()
}

/// Where each column's name begins, and where what follows it does.
fn places(description: &[u8]) -> Vec<(usize, usize)> {
    let count = description.get(..2).map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
    let (mut at, mut places) = (2, Vec::new());
    for _ in 0..count {
        let name = description.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == 0));
        let Some(length) = name else { break };
        places.push((at, at + length + 1));
        at += length + 1 + AFTER_NAME_BYTES;
    }
    places
}

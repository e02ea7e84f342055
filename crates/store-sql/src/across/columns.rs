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

/// The description without its first columns; as it is if it has not as many.
pub(super) fn without_first(description: &[u8], count: usize) -> BytesMut {
    let places = places(description);
    let (Some(left), Some(end)) = (places.len().checked_sub(count), count.checked_sub(1)) else {
        return BytesMut::from(description);
    };
    let start = places.get(end).map_or(2, |(_, after)| after + AFTER_NAME_BYTES);
    let mut body = BytesMut::from(&u16::try_from(left).unwrap_or(u16::MAX).to_be_bytes()[..]);
    body.extend_from_slice(description.get(start..).unwrap_or_default());
    body
}

/// The names of the columns.
pub(super) fn names(description: &[u8]) -> Vec<String> {
    let name = |(start, after): (usize, usize)| {
        String::from_utf8_lossy(description.get(start..after - 1).unwrap_or_default()).into_owned()
    };
    places(description).into_iter().map(name).collect()
}

/// A column's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub type_oid: u32,
    /// Length or precision; -1 for none.
    pub type_mod: i32,
}

/// The first number that PostgreSQL gives to what a user has made.
const FIRST_OF_USERS: u32 = 16384;

impl Kind {
    /// Whether it has the same number on every shard: it is PostgreSQL's own.
    pub fn is_everywhere(self) -> bool {
        self.type_oid < FIRST_OF_USERS
    }
}

/// The types of the columns.
pub(super) fn kinds(description: &[u8]) -> impl Iterator<Item = Kind> {
    let number = |at: usize| {
        let bytes = description.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    // After the numbers of table and column, and with the length in between.
    let kind = |(_, after)| Kind { type_oid: number(after + 6), type_mod: number(after + 12).cast_signed() };
    places(description).into_iter().map(kind).collect::<Vec<_>>().into_iter()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_columns_are_left_out() {
        let column = |name: &str, number: u8| [name.as_bytes(), &[0], &[number; AFTER_NAME_BYTES]].concat();
        let all = [&[0, 3][..], &column("k0", 1), &column("a", 2), &column("b", 3)].concat();
        let rest = [&[0, 1][..], &column("b", 3)].concat();
        assert_eq!(without_first(&all, 2), &rest[..]);
        assert_eq!(without_first(&all, 0), &all[..]);
        assert_eq!(names(&without_first(&all, 1)), ["a", "b"]);
    }
}

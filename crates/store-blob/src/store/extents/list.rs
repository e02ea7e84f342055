//! The list of blocks in a row of `blob_extent`: its encoding, and which bytes of which object or row a range of the
//! blob is.
//!
//! A stored list begins with its format. Format 1: the length of every id (one byte), the number of blocks, and for
//! each its id, its size and where its bytes are; numbers are LEB128.

use std::ops::Range;

/// Blocks in one row at most.
pub(crate) const LIST_BLOCKS_MAX: usize = 1000;

/// The only format there is so far.
const FORMAT: u8 = 1;
/// An object follows, and the offset in it.
const OBJECT: u8 = 0;
/// The bytes follow in the object of the block before.
const OBJECT_FOLLOWS: u8 = 1;
/// The number of a stage follows, and that of the row.
const STAGED: u8 = 2;
/// The stage is that of the block before; the number of the row follows.
const STAGED_FOLLOWS: u8 = 3;

/// The number of an object.
pub(crate) type ObjectNumber = [u8; 16];

/// A block of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What the client calls it; as long as all others of the blob.
    pub id: Box<[u8]>,
    /// Its bytes.
    pub size: u64,
    /// Where they are.
    pub place: EntryPlace,
}

/// Where the bytes of a block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EntryPlace {
    /// In an object, from an offset on.
    Object {
        /// The object.
        object: ObjectNumber,
        /// Where the block begins there.
        offset: u64,
    },
    /// In the row of `blob_block` that has this stage, the block's id and this number.
    Staged {
        /// The number of the set of blocks that it was put in.
        stage: i64,
        /// Which of the blocks with this id.
        seq: i64,
    },
}

/// Neighbouring bytes of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A range of an object.
    Object {
        /// The object.
        object: ObjectNumber,
        /// The bytes of it.
        range: Range<u64>,
    },
    /// A range of a staged block.
    Staged {
        /// Its stage.
        stage: i64,
        /// Its id.
        id: Box<[u8]>,
        /// Which of the blocks with this id.
        seq: i64,
        /// The bytes of it.
        range: Range<u64>,
    },
}

/// The stored form of blocks whose ids are equally long.
pub(crate) fn encode(blocks: &[Entry]) -> Vec<u8> {
    let id_length = blocks.first().map_or(0, |block| block.id.len());
    let mut out = Vec::with_capacity(4 + blocks.len() * (id_length + 24));
    out.push(FORMAT);
    out.push(u8::try_from(id_length).expect("ids are short"));
    put_number(&mut out, blocks.len() as u64);
    let mut before: Option<&Entry> = None;
    for block in blocks {
        assert_eq!(block.id.len(), id_length, "the ids of a blob are equally long");
        out.extend_from_slice(&block.id);
        put_number(&mut out, block.size);
        put_place(&mut out, block.place, before);
        before = Some(block);
    }
    out
}

fn put_place(out: &mut Vec<u8>, place: EntryPlace, before: Option<&Entry>) {
    match (place, before.map(|before| (before.place, before.size))) {
        (
            EntryPlace::Object { object, offset },
            Some((EntryPlace::Object { object: same, offset: from }, size)),
        ) if object == same && offset == from + size => out.push(OBJECT_FOLLOWS),
        (EntryPlace::Object { object, offset }, _) => {
            out.push(OBJECT);
            out.extend_from_slice(&object);
            put_number(out, offset);
        }
        (EntryPlace::Staged { stage, seq }, Some((EntryPlace::Staged { stage: same, .. }, _)))
            if stage == same =>
        {
            out.push(STAGED_FOLLOWS);
            put_number(out, seq.cast_unsigned());
        }
        (EntryPlace::Staged { stage, seq }, _) => {
            out.push(STAGED);
            out.extend_from_slice(&stage.to_be_bytes());
            put_number(out, seq.cast_unsigned());
        }
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads what [`encode`] made; says what is wrong with anything else.
pub(crate) fn decode(stored: &[u8]) -> Result<Vec<Entry>, String> {
    let mut input = Input { bytes: stored };
    let format = input.byte()?;
    if format != FORMAT {
        return Err(format!("the list of blocks has format {format}; this version reads {FORMAT}"));
    }
    let id_length = usize::from(input.byte()?);
    let count = input.number()?;
    if count > LIST_BLOCKS_MAX as u64 {
        return Err(format!("a list of {count} blocks is longer than {LIST_BLOCKS_MAX}"));
    }
    let mut blocks: Vec<Entry> = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let id = input.take(id_length)?.into();
        let size = input.number()?;
        let place = input.place(blocks.last())?;
        blocks.push(Entry { id, size, place });
    }
    if !input.bytes.is_empty() {
        return Err(format!("{} bytes follow the list of blocks", input.bytes.len()));
    }
    Ok(blocks)
}

struct Input<'b> {
    bytes: &'b [u8],
}

impl<'b> Input<'b> {
    fn take(&mut self, length: usize) -> Result<&'b [u8], String> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or_else(|| "the list of blocks ends too soon".to_owned())?;
        self.bytes = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if low << shift >> shift != low {
                break;
            }
            number |= low << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err("a number in the list of blocks has more than 64 bits".to_owned())
    }

    fn place(&mut self, before: Option<&Entry>) -> Result<EntryPlace, String> {
        let before = before.map(|before| (before.place, before.size));
        match (self.byte()?, before) {
            (OBJECT, _) => {
                let object = self.take(16)?.try_into().expect("so many were taken");
                Ok(EntryPlace::Object { object, offset: self.number()? })
            }
            (OBJECT_FOLLOWS, Some((EntryPlace::Object { object, offset }, size))) => {
                let offset =
                    offset.checked_add(size).ok_or_else(|| "an offset has more than 64 bits".to_owned())?;
                Ok(EntryPlace::Object { object, offset })
            }
            (STAGED, _) => {
                let stage = i64::from_be_bytes(self.take(8)?.try_into().expect("so many were taken"));
                Ok(EntryPlace::Staged { stage, seq: self.number()?.cast_signed() })
            }
            (STAGED_FOLLOWS, Some((EntryPlace::Staged { stage, .. }, _))) => {
                Ok(EntryPlace::Staged { stage, seq: self.number()?.cast_signed() })
            }
            (tag, _) => Err(format!("a block has its bytes in place {tag}, which is unknown here")),
        }
    }
}

/// What a range of the blob is made of, where these blocks begin at `start` of the blob. Neighbours in one object are
/// joined.
pub(crate) fn pieces(start: u64, blocks: &[Entry], range: &Range<u64>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut at = start;
    for block in blocks {
        let (begin, end) = (at, at + block.size);
        at = end;
        let (from, until) = (begin.max(range.start), end.min(range.end));
        if from >= until {
            continue;
        }
        let wanted = from - begin..until - begin;
        match (block.place, pieces.last_mut()) {
            (EntryPlace::Object { object, offset }, Some(Piece::Object { object: same, range: before }))
                if *same == object && before.end == offset + wanted.start =>
            {
                before.end = offset + wanted.end;
            }
            (EntryPlace::Object { object, offset }, _) => {
                pieces.push(Piece::Object { object, range: offset + wanted.start..offset + wanted.end });
            }
            (EntryPlace::Staged { stage, seq }, _) => {
                pieces.push(Piece::Staged { stage, id: block.id.clone(), seq, range: wanted });
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_object(id: &[u8], size: u64, object: u8, offset: u64) -> Entry {
        Entry { id: id.into(), size, place: EntryPlace::Object { object: [object; 16], offset } }
    }

    fn staged(id: &[u8], size: u64, stage: i64, seq: i64) -> Entry {
        Entry { id: id.into(), size, place: EntryPlace::Staged { stage, seq } }
    }

    fn some() -> Vec<Entry> {
        vec![
            in_object(b"aa", 300, 7, 0),
            in_object(b"ab", 1, 7, 300),
            staged(b"ba", 5, -2, 1),
            staged(b"bb", 0, -2, 200),
            staged(b"bc", 9, 3, 1),
            in_object(b"ca", u64::MAX >> 1, 8, 4),
        ]
    }

    #[test]
    fn lists_of_earlier_versions_are_read() {
        let stored = [
            1, 2, 6, // format, length of ids, blocks
            b'a', b'a', 0xac, 2, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
            0, // object 7 from 0
            b'a', b'b', 1, 1, // after it
            b'b', b'a', 5, 2, 255, 255, 255, 255, 255, 255, 255, 254, 1, // stage -2, first row
            b'b', b'b', 0, 3, 0xc8, 1, // the same stage, row 200
            b'b', b'c', 9, 2, 0, 0, 0, 0, 0, 0, 0, 3, 1, // stage 3
            b'c', b'a', 255, 255, 255, 255, 255, 255, 255, 255, 127, 0, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
            8, 8, 8, 8, 4,
        ];
        assert_eq!(decode(&stored).unwrap(), some());
        assert_eq!(encode(&some()), stored);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
    }

    #[test]
    fn damaged_lists_are_refused() {
        let stored = encode(&some());
        assert!((0..stored.len()).all(|length| decode(&stored[..length]).is_err()));
        assert!(decode(&[&stored[..], &[0]].concat()).unwrap_err().contains("1 bytes follow"));
        assert!(decode(&[2, 0, 0]).unwrap_err().contains("format 2"));
        assert!(decode(&[1, 0, 1, 0, OBJECT_FOLLOWS]).unwrap_err().contains("place 1"));
        assert!(decode(&[1, 0, 0xe9, 7]).unwrap_err().contains("1001"));
        assert!(decode(&[1, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]).is_err());
    }

    #[test]
    fn ranges_become_pieces_of_places() {
        let blocks = some();
        let object = |object: u8, range| Piece::Object { object: [object; 16], range };
        let row = |id: &[u8], stage, seq, range| Piece::Staged { stage, id: id.into(), seq, range };
        assert_eq!(pieces(1000, &blocks, &(0..1000)), []);
        assert_eq!(pieces(1000, &blocks, &(1299..1301)), [object(7, 299..301)]);
        let all = [object(7, 100..301), row(b"ba", -2, 1, 0..5), row(b"bc", 3, 1, 0..9), object(8, 4..5)];
        assert_eq!(pieces(1000, &blocks, &(1100..1316)), all);
        assert_eq!(pieces(1000, &blocks, &(1302..1303)), [row(b"ba", -2, 1, 1..2)]);
    }
}

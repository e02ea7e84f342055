//! Cuts bytes into pieces where their content says so, so that what is the same in two backups is cut the same way.
//!
//! A rolling sum over the last 64 bytes decides: an insertion moves the cuts around it and no others. The table and
//! the sizes must stay as they are; with others every piece would be new, though nothing would be wrong.

/// No piece is smaller, but for the last: each costs a request and a line.
const PIECE_BYTES_MIN: usize = 64 * 1024;
/// No piece is larger: one changed byte costs a whole piece.
pub(crate) const PIECE_BYTES_MAX: usize = 1024 * 1024;
/// A cut every 256 KiB or so after the least size.
const CUT_MASK: u64 = ((1 << 18) - 1) << 40;

const TABLE: [u64; 256] = table();

/// Numbers without a pattern, from a fixed beginning.
const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let (mut state, mut at) = (0x706f_6c79_7368_6172_u64, 0);
    while at < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = mixed ^ (mixed >> 31);
        at += 1;
    }
    table
}

/// Cuts a stream of bytes into pieces.
#[derive(Default)]
pub(crate) struct Chunker {
    piece: Vec<u8>,
    sum: u64,
}

impl Chunker {
    /// Takes bytes in; gives the pieces that are whole now.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut whole: impl FnMut(Vec<u8>)) {
        while !bytes.is_empty() {
            let cut = self.cut(bytes);
            let (now, later) = bytes.split_at(cut.unwrap_or(bytes.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if cut.is_some() {
                self.sum = 0;
                whole(std::mem::take(&mut self.piece));
            }
        }
    }

    /// The last piece, if there is something left.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (!self.piece.is_empty()).then_some(self.piece)
    }

    /// How many of the bytes end the piece, if they do.
    fn cut(&mut self, bytes: &[u8]) -> Option<usize> {
        let before = self.piece.len();
        // What lies below the least size decides nothing, and costs nothing.
        let skip = PIECE_BYTES_MIN.saturating_sub(before).min(bytes.len());
        for (at, byte) in bytes.iter().enumerate().skip(skip) {
            self.sum = (self.sum << 1).wrapping_add(TABLE[usize::from(*byte)]);
            if self.sum & CUT_MASK == 0 || before + at + 1 >= PIECE_BYTES_MAX {
                return Some(at + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let (mut chunker, mut pieces) = (Chunker::default(), Vec::new());
        for part in bytes.chunks(step) {
            chunker.feed(part, |piece| pieces.push(piece));
        }
        pieces.extend(chunker.finish());
        pieces
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn pieces_are_the_same_however_the_bytes_come_and_lose_none() {
        let bytes = noise(5_000_000);
        let whole = pieces(&bytes, bytes.len());
        assert_eq!(whole.concat(), bytes);
        assert!(whole.len() > 5, "{}", whole.len());
        assert!(whole.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        assert_eq!(pieces(&bytes, 4096), whole);
        assert_eq!(pieces(&bytes, 777), whole);
        assert!(pieces(&[], 1).is_empty());
    }

    #[test]
    fn an_insertion_changes_few_pieces() {
        let mut bytes = noise(5_000_000);
        let before = pieces(&bytes, 65_536);
        bytes.splice(2_000_000..2_000_000, [1, 2, 3]);
        let after = pieces(&bytes, 65_536);
        let new = after.iter().filter(|piece| !before.contains(piece)).count();
        assert!((1..=2).contains(&new), "{new} of {}", after.len());
    }

    #[test]
    fn bytes_that_are_all_the_same_are_cut_at_the_largest_size() {
        let sizes: Vec<usize> = pieces(&vec![0; 3_000_000], 10_000).iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|size| *size <= PIECE_BYTES_MAX), "{sizes:?}");
    }
}

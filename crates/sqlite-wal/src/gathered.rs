//! What a commit has written to the log that is not in the file yet.

use crate::{FRAME_HEADER_BYTES, LOG_HEADER_BYTES, NO_TURN, Turn};

/// The most that is written with one call: SQLite's own file system takes less than 128 KiB at a time.
const CALL_BYTES_MAX: usize = 120 * 1024;

/// The bytes of one commit, which lie one after the other in the log. `put` is always what writes bytes to a place.
#[derive(Default)]
pub(crate) struct Gathered {
    turn: Turn,
    at: i64,
    bytes: Vec<u8>,
    /// What comes next is the last page of the commit.
    is_last: bool,
    /// All of it is in the file; what still comes, checksums or a filled sector, is written as it comes.
    is_done: bool,
}

impl Gathered {
    /// Takes what is written.
    pub fn write<E>(
        &mut self,
        turn: Turn,
        bytes: &[u8],
        at: i64,
        mut put: impl FnMut(&[u8], i64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin(turn);
        if turn == NO_TURN || self.is_done {
            return put(bytes, at);
        }
        let end = self.at + self.bytes.len() as i64;
        if end != at || self.bytes.len() + bytes.len() > CALL_BYTES_MAX {
            self.settle(turn, &mut put)?;
            self.at = at;
        }
        self.bytes.extend_from_slice(bytes);
        if std::mem::replace(&mut self.is_last, ends_commit(bytes, at)) {
            self.is_done = true;
            self.settle(turn, put)?;
        }
        Ok(())
    }

    /// Puts what was gathered into the file if some of it is about to be read. What lies elsewhere is read as it is:
    /// after a commit that failed SQLite does that without its lock, and others may write to the log then.
    pub fn settle_for<E>(
        &mut self,
        turn: Turn,
        (at, amount): (i64, usize),
        put: impl FnMut(&[u8], i64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin(turn);
        let is_apart = at >= self.at + self.bytes.len() as i64 || at + amount as i64 <= self.at;
        if is_apart { Ok(()) } else { self.settle(turn, put) }
    }

    /// Puts what was gathered into the file, before anything else is done with it.
    pub fn settle<E>(
        &mut self,
        turn: Turn,
        mut put: impl FnMut(&[u8], i64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin(turn);
        if self.bytes.is_empty() {
            return Ok(());
        }
        let written = put(&self.bytes, self.at);
        // If that failed, so does the commit, and nobody will ask for its pages.
        self.bytes.clear();
        written
    }

    /// What an earlier turn has left is not of a commit, or it would be in the file; and others may have written to its
    /// place since.
    fn begin(&mut self, turn: Turn) {
        if self.turn != turn {
            self.bytes.clear();
            (self.turn, self.is_last, self.is_done) = (turn, false, false);
        }
    }
}

/// Whether this is the header of a page that ends a commit: it says how many pages the database has then.
fn ends_commit(bytes: &[u8], at: i64) -> bool {
    at >= LOG_HEADER_BYTES as i64 && bytes.len() == FRAME_HEADER_BYTES && bytes[4..8] != [0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: [u8; 4096] = [7; 4096];

    fn header(pages_after: u32) -> [u8; 24] {
        let mut header = [1; 24];
        header[4..8].copy_from_slice(&pages_after.to_be_bytes());
        header
    }

    /// A file that notes each call.
    #[derive(Default)]
    struct File {
        calls: Vec<(i64, usize)>,
        fails: bool,
    }

    impl File {
        fn put(&mut self) -> impl FnMut(&[u8], i64) -> Result<(), i32> {
            |bytes, at| {
                self.calls.push((at, bytes.len()));
                if self.fails { Err(13) } else { Ok(()) }
            }
        }
    }

    #[test]
    fn a_commit_is_one_call_and_there_when_its_last_page_is() {
        let (mut gathered, mut file) = (Gathered::default(), File::default());
        gathered.write(1, &[0; 32], 0, file.put()).unwrap();
        gathered.write(1, &header(0), 32, file.put()).unwrap();
        gathered.write(1, &PAGE, 56, file.put()).unwrap();
        gathered.write(1, &header(9), 4152, file.put()).unwrap();
        assert_eq!(file.calls, []);
        gathered.write(1, &PAGE, 4176, file.put()).unwrap();
        assert_eq!(file.calls, [(0, 32 + 2 * 4120)]);
        // Checksums that are written anew, say.
        gathered.write(1, &header(9), 4152, file.put()).unwrap();
        assert_eq!(file.calls[1..], [(4152, 24)]);
        gathered.settle(1, file.put()).unwrap();
        assert_eq!(file.calls.len(), 2, "nothing was left");
    }

    #[test]
    fn what_is_not_in_one_piece_or_too_long_is_several_calls() {
        let (mut gathered, mut file) = (Gathered::default(), File::default());
        gathered.write(1, &PAGE, 56, file.put()).unwrap();
        gathered.write(1, &PAGE, 90_000, file.put()).unwrap();
        assert_eq!(file.calls, [(56, 4096)], "the first is before the second");
        for page in 1..40 {
            gathered.write(1, &PAGE, 90_000 + page * 4096, file.put()).unwrap();
        }
        gathered.settle(1, file.put()).unwrap();
        assert_eq!(file.calls[1..], [(90_000, 30 * 4096), (90_000 + 30 * 4096, 10 * 4096)]);
    }

    #[test]
    fn what_is_read_is_there() {
        let (mut gathered, mut file) = (Gathered::default(), File::default());
        gathered.write(1, &PAGE, 9000, file.put()).unwrap();
        for elsewhere in [(0, 9000), (9000 + 4096, 24)] {
            gathered.settle_for(1, elsewhere, file.put()).unwrap();
            assert_eq!(file.calls, [], "{elsewhere:?}");
        }
        gathered.settle_for(1, (9000 + 4095, 1), file.put()).unwrap();
        assert_eq!(file.calls, [(9000, 4096)]);
    }

    #[test]
    fn outside_of_a_commit_everything_is_written_as_it_comes() {
        let (mut gathered, mut file) = (Gathered::default(), File::default());
        gathered.write(NO_TURN, &header(0), 32, file.put()).unwrap();
        gathered.write(NO_TURN, &PAGE, 56, file.put()).unwrap();
        assert_eq!(file.calls, [(32, 24), (56, 4096)]);
    }

    #[test]
    fn what_a_commit_left_that_failed_is_never_written() {
        for next in [NO_TURN, 2] {
            let (mut gathered, mut file) = (Gathered::default(), File::default());
            gathered.write(1, &header(0), 32, file.put()).unwrap();
            gathered.settle(next, file.put()).unwrap();
            assert_eq!(file.calls, []);
        }
        let (mut gathered, mut file) = (Gathered::default(), File { fails: true, ..File::default() });
        gathered.write(1, &header(9), 32, file.put()).unwrap();
        assert_eq!(gathered.write(1, &PAGE, 56, file.put()), Err(13));
        gathered.settle(1, file.put()).unwrap();
        assert_eq!(file.calls.len(), 1);
    }
}

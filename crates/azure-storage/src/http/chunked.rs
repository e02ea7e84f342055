//! Bodies in chunks (RFC 9112, section 7.1): a state machine that takes bytes as they come.

/// Chunk sizes with their extensions, and trailers, have lines; none that clients send is nearly this long.
const LINE_BYTES_MAX: usize = 4096;
/// Trailers are read and dropped; more than this many lines of them say something else is going on.
const TRAILER_LINES_MAX: usize = 32;
/// Sixteen hexadecimal digits fill the number that a chunk's size is kept in.
const SIZE_DIGITS_MAX: usize = 16;

/// Where in a chunked body the reader is.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    line: Vec<u8>,
    trailers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Done,
}

/// Bytes that are no chunked body; the connection cannot be used any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadChunk;

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked { state: State::Size, line: Vec::new(), trailers: 0 }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes a part of the body and hands its data to `data`, in pieces. Says how many bytes it took: all of them,
    /// unless the body ended before.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, BadChunk> {
        let mut taken = 0;
        while taken < bytes.len() && self.state != State::Done {
            let rest = &bytes[taken..];
            match self.state {
                State::Data(left) => {
                    let piece = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    data(&rest[..piece]);
                    taken += piece;
                    let left = left - piece as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                }
                State::Size | State::DataEnd | State::Trailer => taken += self.feed_line(rest)?,
                State::Done => {}
            }
        }
        Ok(taken)
    }

    /// Collects a line, and acts on it when it ends.
    fn feed_line(&mut self, rest: &[u8]) -> Result<usize, BadChunk> {
        let (piece, ends) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => (&rest[..at], true),
            None => (rest, false),
        };
        if self.line.len() + piece.len() > LINE_BYTES_MAX {
            return Err(BadChunk);
        }
        self.line.extend_from_slice(piece);
        // Nothing but a line end may follow the data: no need to wait for one to know that something else did.
        if self.state == State::DataEnd && !matches!(self.line.as_slice(), b"" | b"\r") {
            return Err(BadChunk);
        }
        if !ends {
            return Ok(piece.len());
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").ok_or(BadChunk)?;
        self.state = match self.state {
            State::Size => match size(line)? {
                0 => State::Trailer,
                size => State::Data(size),
            },
            State::DataEnd if line.is_empty() => State::Size,
            State::DataEnd => return Err(BadChunk),
            _ if line.is_empty() => State::Done,
            _ => {
                self.trailers += 1;
                if self.trailers > TRAILER_LINES_MAX {
                    return Err(BadChunk);
                }
                State::Trailer
            }
        };
        Ok(piece.len() + 1)
    }
}

/// The size at the start of a chunk's line; what follows a semicolon means nothing here.
fn size(line: &[u8]) -> Result<u64, BadChunk> {
    let end = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
    let digits = line[..end].trim_ascii_end();
    if digits.is_empty() || digits.len() > SIZE_DIGITS_MAX || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(BadChunk);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| BadChunk)?;
    u64::from_str_radix(digits, 16).map_err(|_| BadChunk)
}

#[cfg(test)]
mod tests {
    use super::{BadChunk, Chunked};
    use proptest::prelude::*;

    fn read(parts: &[&[u8]]) -> Result<(Vec<u8>, bool, usize), BadChunk> {
        let (mut chunked, mut body, mut taken) = (Chunked::new(), Vec::new(), 0);
        for part in parts {
            taken += chunked.feed(part, |data| body.extend_from_slice(data))?;
        }
        Ok((body, chunked.is_done(), taken))
    }

    #[test]
    fn chunks_end_where_they_say() {
        let body = b"5;ext=1\r\nhello\r\nA \r\n, world: \n\r\n0\r\nTrailer: x\r\n\r\nGET ";
        assert_eq!(read(&[body]).unwrap(), (b"hello, world: \n".to_vec(), true, body.len() - 4));
        assert_eq!(read(&[b"5\r\nhel"]).unwrap(), (b"hel".to_vec(), false, 6));
    }

    #[test]
    fn what_are_no_chunks_is_refused() {
        for body in ["x\r\n", "\r\n", "5\nhello", "5\r\nhelloX", "-1\r\n", "FFFFFFFFFFFFFFFFF\r\n", "0x5\r\n"]
        {
            assert_eq!(read(&[body.as_bytes()]), Err(BadChunk), "{body:?}");
        }
        assert_eq!(read(&[&[b'1'; 5000]]), Err(BadChunk));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(40));
        assert_eq!(read(&[trailers.as_bytes()]), Err(BadChunk));
    }

    proptest! {
        #[test]
        fn a_body_is_the_same_however_it_is_cut(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..6),
            cut in 1usize..20,
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            let parts: Vec<&[u8]> = bytes.chunks(cut).collect();
            prop_assert_eq!(read(&parts).unwrap(), (chunks.concat(), true, bytes.len()));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _any = read(&[&bytes]);
        }
    }
}

//! Bytes that are almost right: what a parser must survive, and random bytes alone do not reach.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Changes made to one text at the most.
const CHANGES_MAX: usize = 4;

/// Bytes that mean something to most parsers.
const TELLING: &[u8] = b"\0\r\n\t \"'%&()*+,-./0:;<=>?@[\\]{}\x7f\x80\xff";

/// The bytes with a few changes; each seed gives others, the same in every run.
pub fn mutate(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut out = bytes.to_vec();
    for _ in 0..random.random_range(1..=CHANGES_MAX) {
        let at = random.random_range(0..=out.len());
        let end = (at + random.random_range(1..=16)).min(out.len());
        match random.random_range(0..8) {
            0 if at < out.len() => out[at] ^= 1 << random.random_range(0..8),
            1 if at < out.len() => out[at] = TELLING[random.random_range(0..TELLING.len())],
            2 => out.insert(at, TELLING[random.random_range(0..TELLING.len())]),
            3 => drop(out.drain(at..end)),
            4 => {
                let again = out[at..end].to_vec();
                out.splice(at..at, again);
            }
            5 => {
                let length = random.random_range(1..=8);
                out.splice(at..at, (0..length).map(|_| random.random::<u8>()));
            }
            6 => out.truncate(at),
            // A number that is larger than anybody meant.
            _ => {
                if let Some(digit) = out.iter().skip(at).position(u8::is_ascii_digit) {
                    let digit = at + digit;
                    out.splice(digit..digit, *b"99999999999");
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::mutate;

    #[test]
    fn a_seed_gives_the_same_bytes_again_and_seeds_differ() {
        let text = b"GET /a?b=1 HTTP/1.1\r\n\r\n";
        let all: std::collections::HashSet<Vec<u8>> = (0..200).map(|seed| mutate(text, seed)).collect();
        assert!(all.len() > 150, "{}", all.len());
        assert_eq!(mutate(text, 7), mutate(text, 7));
        assert!(mutate(b"", 1).len() < 64);
    }
}

//! Resource ids: the numbers of databases, containers, documents and offers as the service writes them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

/// The bit that tells the number of a container from others.
const CONTAINER_BIT: u32 = 0x8000_0000;

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes).replace('/', "-")
}

fn low(number: u64) -> u32 {
    (number & 0x7FFF_FFFF) as u32
}

/// The resource id of a database.
pub(crate) fn database(number: u64) -> String {
    encode(&low(number).to_be_bytes())
}

fn container_bytes(database: u64, container: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&low(database).to_be_bytes());
    bytes[4..].copy_from_slice(&(low(container) | CONTAINER_BIT).to_be_bytes());
    bytes
}

/// The resource id of a container.
pub(crate) fn container(database: u64, container: u64) -> String {
    encode(&container_bytes(database, container))
}

/// The resource id of a document. The high half of the last byte says what it is: 0 for a document.
pub(crate) fn document(database: u64, container: u64, document: i64) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&container_bytes(database, container));
    bytes[8..].copy_from_slice(&document.to_le_bytes());
    encode(&bytes)
}

/// The resource id of the range of partition keys of a container.
pub(crate) fn range(database: u64, container: u64) -> String {
    document(database, container, 0x50 << 56)
}

/// The resource id of the offer of a database or container.
pub(crate) fn offer(number: u64) -> String {
    encode(&low(number).to_be_bytes()[1..])
}

/// The number of a document from random bits: its last byte is 0.
pub(crate) fn new_document(random: u64) -> i64 {
    (random >> 8) as i64
}

/// The number of the database or container that this is the resource id of.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let bytes = STANDARD_NO_PAD.decode(text.trim_end_matches('=').replace('-', "/")).ok()?;
    let number = |bytes: &[u8]| Some(u64::from(u32::from_be_bytes(bytes.try_into().ok()?)));
    match bytes.len() {
        4 => number(&bytes),
        8 => number(&bytes[4..]).map(|number| number & !u64::from(CONTAINER_BIT)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_ids_have_the_lengths_of_the_service_and_are_read_again() {
        assert_eq!((database(7).len(), container(7, 8).len(), document(7, 8, 9).len()), (8, 12, 24));
        assert_eq!(parse(&database(7)), Some(7));
        assert_eq!(parse(&container(7, 123_456)), Some(123_456));
        assert_eq!(offer(5).len(), 4);
        assert_eq!(parse("no"), None);
        assert!(new_document(u64::MAX) > 0);
    }
}

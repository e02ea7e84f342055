//! A message, its id and its pop receipt, and the limits of the service.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

/// The largest text of a message, in bytes of UTF-8: the service's limit, which clients know.
pub const MESSAGE_BYTES_MAX: usize = 65_536;
/// Most messages of one get or peek: the service's limit.
pub const MESSAGES_PER_GET_MAX: u32 = 32;
/// How long a message may be invisible: seven days, the service's limit.
pub const VISIBILITY_MS_MAX: i64 = 7 * 24 * 3600 * 1000;
/// How long a message lives if its sender does not say: seven days, as with the service.
pub const TTL_DEFAULT_MS: i64 = 7 * 24 * 3600 * 1000;

/// 9999-12-31T23:59:59Z: what the service shows as the end of a message that never expires.
pub(crate) const NEVER_MS: i64 = 253_402_300_799_000;

/// A message's id: unique, and greater than those made before it by the same process. It is a uuid of version 8 whose
/// first 60 free bits are the time in ticks of 100 ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// The id of a tick since 1970, which no other id of this process may share, and something random, by which it
    /// differs from those of other processes.
    pub(crate) fn new(tick: i64, random: u64) -> MessageId {
        let tick = u64::try_from(tick).unwrap_or(0) & ((1 << 60) - 1);
        // The uuid's version takes the four bits after the first 48, so the last 12 bits of the tick move down.
        let high = (tick >> 12 << 16) | (tick & 0xFFF);
        let bits = u128::from(high) << 64 | u128::from(random);
        MessageId(uuid::Builder::from_custom_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// Reads an id that a client gives back.
    pub fn parse(text: &str) -> Option<MessageId> {
        Uuid::try_parse(text).ok().map(MessageId)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<MessageId> {
        Uuid::from_slice(bytes).ok().map(MessageId)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Its random half.
    fn mixer(&self) -> i64 {
        self.0.as_u64_pair().1 as i64
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// What proves that its holder was the last to get or update a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PopReceipt(i64);

impl PopReceipt {
    pub(crate) fn new(nonce: i64) -> PopReceipt {
        PopReceipt(nonce)
    }

    pub(crate) fn nonce(self) -> i64 {
        self.0
    }

    /// The receipt as clients have it.
    pub fn to_text(self, id: &MessageId) -> String {
        STANDARD.encode(self.to_bytes(id))
    }

    /// Reads what a client has of a message's receipt; nothing if no service wrote it so.
    pub fn parse(text: &str, id: &MessageId) -> Option<PopReceipt> {
        // A plus sign that the client did not encode has become a space.
        let bytes = STANDARD.decode(text.replace(' ', "+")).ok()?;
        PopReceipt::from_bytes(&bytes, id)
    }

    /// The receipt for the wire. The messages of one get share a nonce; mixed with the id no two receipts are alike.
    pub fn to_bytes(self, id: &MessageId) -> [u8; 8] {
        (self.0 ^ id.mixer()).to_be_bytes()
    }

    /// Reads a receipt that a client gives back for a message. One of another message becomes one that fits none.
    pub fn from_bytes(bytes: &[u8], id: &MessageId) -> Option<PopReceipt> {
        let wire = bytes.try_into().ok().map(i64::from_be_bytes)?;
        Some(PopReceipt(wire ^ id.mixer()))
    }
}

/// How long a message lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// So many milliseconds.
    Ms(i64),
    /// Until it is deleted.
    Never,
}

impl Ttl {
    pub(crate) fn expires_ms(self, now_ms: i64) -> i64 {
        match self {
            Ttl::Ms(ms) => now_ms.saturating_add(ms).min(NEVER_MS),
            Ttl::Never => NEVER_MS,
        }
    }
}

/// A message to be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage {
    /// Its text.
    pub body: String,
    /// How long nobody sees it, in milliseconds.
    pub invisible_ms: i64,
    /// How long it lives.
    pub ttl: Ttl,
}

/// A message as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// When it was put, in milliseconds since 1970.
    pub inserted_ms: i64,
    /// When it expires.
    pub expires_ms: i64,
    /// When it becomes visible.
    pub visible_ms: i64,
    /// How often it was got.
    pub dequeue_count: i64,
    /// What may change or delete it.
    pub receipt: PopReceipt,
    /// Its text.
    pub body: String,
}

#[cfg(test)]
mod tests {
    use super::{MessageId, PopReceipt};

    #[test]
    fn ids_are_ordered_by_time_whatever_is_random() {
        let now = 17_947_275_162_221_997;
        let ids: Vec<_> = [0, 1, 4095, 4096, 1 << 40]
            .iter()
            .map(|more| MessageId::new(now + more, u64::MAX / (more + 1) as u64))
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
        assert_eq!(MessageId::parse(&ids[1].to_string()), Some(ids[1]));
        assert_eq!(MessageId::from_bytes(ids[1].as_bytes()), Some(ids[1]));
        assert_ne!(MessageId::new(now, 1), MessageId::new(now, 2));
        for text in ["", "x", "00000000-0000-0000-0000-00000000000"] {
            assert_eq!(MessageId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_receipt_is_of_one_message() {
        let (one, other) = (MessageId::new(1, 1), MessageId::new(1, 2));
        let receipt = PopReceipt::new(-7);
        assert_eq!(PopReceipt::from_bytes(&receipt.to_bytes(&one), &one), Some(receipt));
        assert_ne!(receipt.to_bytes(&one), receipt.to_bytes(&other));
        assert_ne!(PopReceipt::from_bytes(&receipt.to_bytes(&one), &other), Some(receipt));
        for length in [0, 7, 9, 16] {
            assert_eq!(PopReceipt::from_bytes(&vec![0; length], &one), None);
        }
    }
}

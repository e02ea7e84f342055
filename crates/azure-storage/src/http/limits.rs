//! What one connection may use of memory and time.

use std::time::Duration;

/// Longer than any head the SDKs make: 8 KiB of metadata, a long URL and their own headers.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Metadata counts: 8 KiB hold well under a hundred headers that say something.
const HEADERS_MAX: usize = 128;
/// The service's own limit for entities, batches and messages.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The service's limit of one `Put Blob`, and a byte so that a store can tell a longer one.
const STREAM_BYTES_MAX: u64 = 5_000 * 1024 * 1024 + 1;
/// A head is one packet or a few; a client that needs longer keeps a connection from others.
const HEAD_MS_MAX: u64 = 10_000;
/// 4 MiB at the half of a megabit a second.
const BODY_MS_MAX: u64 = 60_000;
/// A piece is 64 KiB or the rest: no client is slower than 2 KiB a second and still there.
const PIECE_MS_MAX: u64 = 30_000;
/// SDKs keep connections to reuse them and are confused by servers that close early; the service waits for minutes.
const IDLE_MS_MAX: u64 = 300_000;
/// How long a client may leave a response, or a MiB of it, unread.
const WRITE_MS_MAX: u64 = 60_000;

/// What one connection may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of request line and headers together; more is answered with 431.
    pub head_bytes_max: usize,
    /// Number of headers; more is answered with 431.
    pub headers_max: usize,
    /// Bytes of a body; more is answered with 413 `RequestBodyTooLarge`.
    pub body_bytes_max: usize,
    /// Bytes of a body that is read in pieces; more is answered with 413 `RequestBodyTooLarge`.
    pub stream_bytes_max: u64,
    /// Time from the first byte of a head to its last; then the connection is closed.
    pub head_time: Duration,
    /// Time for a whole body; then the connection is closed.
    pub body_time: Duration,
    /// Time for each piece of a body that is read in pieces; then the connection is closed. While the store does not
    /// ask for more, it does not run.
    pub piece_time: Duration,
    /// Time between a response and the next request; then the connection is closed.
    pub idle_time: Duration,
    /// Time for a whole response to be taken by the client, or for each MiB of one that is sent in pieces; then the
    /// connection is closed.
    pub write_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: HEAD_BYTES_MAX,
            headers_max: HEADERS_MAX,
            body_bytes_max: BODY_BYTES_MAX,
            stream_bytes_max: STREAM_BYTES_MAX,
            head_time: Duration::from_millis(HEAD_MS_MAX),
            body_time: Duration::from_millis(BODY_MS_MAX),
            piece_time: Duration::from_millis(PIECE_MS_MAX),
            idle_time: Duration::from_millis(IDLE_MS_MAX),
            write_time: Duration::from_millis(WRITE_MS_MAX),
        }
    }
}

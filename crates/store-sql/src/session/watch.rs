//! What is counted and traced of a session: each text of the simple protocol, and each series up to its Sync.

use std::time::Duration;

use polyshard_meter::{Requests, trace};
use tracing::Span;

use super::{Session, Stop};
use crate::codec;

/// The words that requests are counted by. Others are counted together, so that their number is bounded.
const WORDS: [&str; 18] = [
    "select", "insert", "update", "delete", "with", "begin", "start", "commit", "rollback", "copy", "create",
    "alter", "drop", "truncate", "set", "show", "explain", "fetch",
];
const OTHER: &str = "other";
/// A series that runs nothing: statements are prepared, or closed.
const PREPARE: &str = "prepare";

/// The request at hand.
#[derive(Default)]
pub(super) struct Watched {
    /// When it began, in microseconds; none between requests.
    began: Option<i64>,
    /// What it does, by the first statement that it runs.
    operation: Option<&'static str>,
    /// Whether the client was told an error.
    pub(super) failed: bool,
    span: Option<Span>,
}

impl Watched {
    /// What is done for it is a part of this.
    pub(super) fn span(&self) -> Span {
        self.span.clone().unwrap_or_else(Span::none)
    }
}

impl Session {
    /// A message came.
    pub(super) fn watch(&mut self, kind: u8, body: &[u8]) {
        // The goodbye, and what is left of a COPY that failed.
        if matches!(kind, b'X' | b'd' | b'c' | b'f') {
            return;
        }
        if self.watched.began.is_none() && !self.begin_watched(None) {
            self.told &= !matches!(kind, b'Q' | b'S');
            return;
        }
        if matches!(kind, b'Q' | b'S') {
            // What an earlier request was told is not this one's.
            self.told = false;
        }
        if self.watched.operation.is_none() {
            self.watched.operation = match kind {
                b'Q' => Some(word(body)),
                b'B' => codec::Bind::read(body)
                    .ok()
                    .and_then(|bind| self.statements.get(bind.statement))
                    .map(|named| word(named.prepared.text.as_bytes())),
                _ => None,
            };
        }
    }

    /// A series came that does this; true if it is traced.
    pub(super) fn begin_watching(&mut self, operation: &'static str) -> bool {
        if self.watched.began.is_none() {
            self.begin_watched(Some(operation));
        }
        self.watched.span.is_some()
    }

    /// Begins a request; false if nobody wants to know.
    fn begin_watched(&mut self, operation: Option<&'static str>) -> bool {
        let span = Some(trace::request(None)).filter(|span| !span.is_disabled());
        if span.is_none() && !polyshard_meter::is_counting() {
            return false;
        }
        let began = Some(self.door.now_micros());
        self.watched = Watched { began, operation, failed: false, span };
        true
    }

    /// A message was carried out. The answer to a request ends with a text, or a Sync, or the connection.
    pub(super) fn watched_step(&mut self, kind: u8, done: &Result<bool, Stop>, requests: &Requests) {
        self.watched.failed |= self.skipping || (kind == b'S' && self.told);
        let outcome = match done {
            Err(Stop::Gone(_)) => "gone",
            Err(_) => "error",
            Ok(_) if !matches!(kind, b'Q' | b'S') => return,
            Ok(_) if self.watched.failed => "error",
            Ok(_) => "ok",
        };
        let Some(began) = self.watched.began.take() else { return };
        // The clock may have been set back meanwhile.
        let took = u64::try_from(self.door.now_micros() - began).unwrap_or(0);
        let operation = self.watched.operation.unwrap_or(PREPARE);
        requests.record(operation, outcome, Duration::from_micros(took));
        if let Some(span) = self.watched.span.take() {
            trace::answered(&span, operation, outcome);
        }
    }
}

/// The first word of a statement. One that begins with a comment or a parenthesis has none of those known.
pub(super) fn word(text: &[u8]) -> &'static str {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(text.len());
    let first = &text[..end];
    WORDS.into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(first)).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn a_statement_is_counted_by_its_first_word() {
        assert_eq!(word(b" SELECT 1\0"), "select");
        assert_eq!(word(b"insert\0"), "insert");
        assert_eq!(word(b"Copy t from stdin"), "copy");
        assert_eq!(word(b"selection"), "other");
        assert_eq!(word(b"/* why */ SELECT 1"), "other");
        assert_eq!(word(b"\0"), "other");
    }
}

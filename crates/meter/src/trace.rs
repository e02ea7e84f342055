//! The spans of traced requests: made here, so that all doors tell the same; who exports them is elsewhere.
//!
//! Which requests are traced is decided here too, before anything is made: one that is not has no spans, and pays a
//! look at a number. Without an exporter none is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::Empty;
use tracing::{Span, dispatcher, info_span};

use crate::stripes::thread_number;

/// What all of them are under. The log leaves it out.
pub const TARGET: &str = "polyshard_trace";

/// How many of the low bits of a trace's id decide whether it is kept, as W3C's Trace Context has it: all who see it
/// decide alike.
pub const DECIDING_BITS: u32 = 56;

/// Traces whose deciding bits are below this are kept; without an exporter, [`OFF`].
static SHARE: AtomicU64 = AtomicU64::new(OFF);
const OFF: u64 = u64::MAX;

/// From here on this share of requests is traced, and those that their client traces.
pub fn switch_on(share: Share) {
    SHARE.store(share.0, Ordering::Relaxed);
}

/// How many of all requests are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// From 0, none, to 1, all of them.
    pub fn new(part: f64) -> Share {
        // Beyond 52 bits a fraction has no more digits, which nobody notices.
        Share((part.clamp(0.0, 1.0) * (1_u64 << DECIDING_BITS) as f64) as u64)
    }

    /// Whether a trace with this id is one of them.
    pub fn keeps(self, trace: u128) -> bool {
        (trace as u64) & ((1 << DECIDING_BITS) - 1) < self.0
    }

    /// The id of a trace that was chosen to be kept, out of a random number.
    pub fn kept(self, random: u128) -> u128 {
        let deciding = (1 << DECIDING_BITS) - 1;
        random & !u128::from(deciding) | u128::from((random as u64 & deciding) % self.0.max(1))
    }
}

/// What a client says its request is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: u128,
    /// The span above.
    pub span: u64,
    /// Whether the client keeps it.
    pub kept: bool,
}

impl Parent {
    /// Reads W3C's `traceparent`: `00-trace-span-flags` in hexadecimal.
    pub fn read(text: &str) -> Option<Parent> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let wrong = [(version, 2), (trace, 32), (span, 16), (flags, 2)].iter().any(|(part, length)| {
            part.len() != *length || !part.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        // Later versions may have more parts, this one has not.
        if wrong || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Parent { trace, span, kept: flags & 1 == 1 })
    }
}

/// A request of the connection that is being served, which knows its door; no span if it is not traced. `traceparent`
/// is what the client says it is a part of, in the words of W3C's Trace Context: the client has then decided.
pub fn request(traceparent: Option<&str>) -> Span {
    let share = SHARE.load(Ordering::Relaxed);
    if share == OFF {
        return Span::none();
    }
    let traced = match traceparent.and_then(Parent::read) {
        Some(parent) => parent.kept,
        None => Share(share).keeps(u128::from(roll())),
    };
    if !traced {
        return Span::none();
    }
    info_span!(target: TARGET, "request", traceparent, operation = Empty, outcome = Empty)
}

/// A request was answered: what it was, and how it ended.
pub fn answered(span: &Span, operation: &'static str, outcome: &'static str) {
    if !span.is_disabled() {
        span.record("operation", operation);
        span.record("outcome", outcome);
    }
}

/// The part of a request that is on one shard; no span if the request that is being served is not traced. Ends when it
/// is dropped. No key is told.
pub fn on_shard(shard: &str, map: &str, access: &'static str) -> Span {
    if SHARE.load(Ordering::Relaxed) == OFF || !in_traced_request() {
        return Span::none();
    }
    info_span!(target: TARGET, "shard", shard, map, access)
}

/// Without it what is below a request that is not traced would be a part of its connection.
fn in_traced_request() -> bool {
    dispatcher::get_default(|dispatch| {
        dispatch.current_span().metadata().is_some_and(|metadata| metadata.target() == TARGET)
    })
}

/// A number as good as random: SplitMix64 (Steele, Lea, Flood, 2014), one sequence for each thread. Nobody needs to be
/// unable to guess which requests are traced.
fn roll() -> u64 {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    thread_local! {
        static STATE: Cell<u64> = Cell::new(mixed((thread_number() as u64).wrapping_mul(STEP)));
    }
    let state = STATE.get().wrapping_add(STEP);
    STATE.set(state);
    mixed(state)
}

fn mixed(state: u64) -> u64 {
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Parent, Share, roll};

    #[test]
    fn a_clients_trace_is_read_and_nonsense_is_not() {
        let (trace, span) = (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7);
        let parent = |kept| Some(Parent { trace, span, kept });
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        assert_eq!(Parent::read(&format!("{given}-01")), parent(true));
        assert_eq!(Parent::read(&format!("{given}-00")), parent(false));
        assert_eq!(Parent::read(&format!("cc{}-01-more", &given[2..])), parent(true));
        let wrong = [
            "",
            "00",
            given,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ];
        for wrong in wrong {
            assert_eq!(Parent::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_none_or_a_share_of_requests_is_traced() {
        let kept = |part| (0..10_000).filter(|_| Share::new(part).keeps(u128::from(roll()))).count();
        assert_eq!((kept(0.0), kept(1.0)), (0, 10_000));
        let tenth = kept(0.1);
        // Five standard deviations, of a sequence that begins where it always does.
        assert!((850..=1_150).contains(&tenth), "{tenth}");
    }

    #[test]
    fn the_id_of_a_trace_that_was_chosen_is_one_that_others_would_keep() {
        for part in [0.000_001, 0.01, 0.5, 1.0] {
            let share = Share::new(part);
            for number in 0..1_000_u128 {
                let random = number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
                let trace = share.kept(random);
                assert!(share.keeps(trace), "{part}: {trace:x}");
                assert_eq!(trace >> 56, random >> 56);
            }
        }
    }
}

//! What both writers share: the queued batch, the order of a group, and its counters.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use crate::{Batch, Error, Expect, Rows};

/// What one batch is answered with.
pub(crate) type Answer = Result<Vec<Rows>, Error>;

/// A batch waiting for the writer.
pub(crate) struct Op {
    pub batch: Batch,
    pub reply: oneshot::Sender<Answer>,
}

/// Counters behind [`crate::Stats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub writes: AtomicU64,
    pub groups: AtomicU64,
    pub groups_rerun: AtomicU64,
    pub reads: AtomicU64,
    pub sessions_opened: AtomicU64,
}

impl Counters {
    pub fn snapshot(&self, queued: usize) -> crate::Stats {
        crate::Stats {
            writes: self.writes.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            groups_rerun: self.groups_rerun.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            queued,
            sessions_opened: self.sessions_opened.load(Ordering::Relaxed),
        }
    }

    pub fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Sorts each run of batches that have an order key; batches without one stay where they are, and nothing
/// passes them.
pub(crate) fn sort(ops: &mut [Op]) {
    for run in ops.chunk_by_mut(|a, b| a.batch.order_key.is_some() && b.batch.order_key.is_some()) {
        if run.len() > 1 {
            run.sort_by(|a, b| a.batch.order_key.cmp(&b.batch.order_key));
        }
    }
}

/// Checks what statement number `statement` of a batch achieved.
pub(crate) fn check(statement: usize, expected: Expect, got: u64) -> Result<(), Error> {
    if expected.is_met_by(got) { Ok(()) } else { Err(Error::Expectation { statement, expected, got }) }
}

/// Answers batches whose guard is void, and leaves the others. Called when the session is there and before
/// anything is sent on it.
pub(crate) fn refuse_void(ops: Vec<Op>) -> Vec<Op> {
    if ops.iter().all(|op| crate::guard::check(op.batch.guard.as_ref()).is_ok()) {
        return ops;
    }
    let (good, void): (Vec<Op>, Vec<Op>) =
        ops.into_iter().partition(|op| crate::guard::check(op.batch.guard.as_ref()).is_ok());
    for op in void {
        let refused = crate::guard::check(op.batch.guard.as_ref());
        let _ = op.reply.send(refused.map(|()| Vec::new()));
    }
    good
}

/// Answers every batch; a caller who has gone does not mind.
pub(crate) fn reply_all(ops: Vec<Op>, answers: Vec<Answer>) {
    debug_assert_eq!(ops.len(), answers.len());
    for (op, answer) in ops.into_iter().zip(answers) {
        let _ = op.reply.send(answer);
    }
}

/// Answers every batch with the same error.
pub(crate) fn reply_error(ops: Vec<Op>, error: &Error) {
    for op in ops {
        let _ = op.reply.send(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_batches_are_sorted_and_pass_none_without_a_key() {
        let keys = [Some(3), Some(1), None, Some(2), Some(0), Some(2)];
        let mut ops: Vec<Op> = keys
            .iter()
            .map(|key| {
                let mut batch = Batch::new();
                batch.order_key = key.map(|key| vec![key]);
                Op { batch, reply: oneshot::channel().0 }
            })
            .collect();
        sort(&mut ops);
        let sorted: Vec<_> = ops.iter().map(|op| op.batch.order_key.as_ref().map(|key| key[0])).collect();
        assert_eq!(sorted, [Some(1), Some(3), None, Some(0), Some(2), Some(2)]);
    }
}
